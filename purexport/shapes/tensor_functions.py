"""Shape functions in the place of torch's, where those ask for numbers, take one size for another, or know few dtypes.

They run on fakes (fakes.py): what they return has sizes, a dtype, and the memory that it shares.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _one_hot(self: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """torch's own shape function wants to know the largest class; here that is a size that only the run knows."""
    classes = num_classes if num_classes >= 0 else self.reshape(-1).nonzero().shape[0]
    return self.new_empty((*self.shape, classes))


def _index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """torch's own shape function does not broadcast zero-dim positions with the others, and knows no masks of uint8."""
    indices = [item != 0 if item is not None and item.dtype is torch.uint8 else item for item in indices]
    if any(item is not None and item.dim() for item in indices):
        indices = [
            item.reshape(1) if item is not None and not item.dim() and item.dtype is not torch.bool else item
            for item in indices
        ]
    return torch.ops.aten.index.Tensor(self, indices)


def _slice(self: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """A length that torch calls a number because it takes the axis for long is written for any size instead."""
    least: Any = torch.sym_min
    most: Any = torch.sym_max
    size = self.shape[dim]
    bounds = [0 if start is None else start, sys.maxsize if end is None else end]
    if not _is_computed(size) or _is_computed(start) or _is_computed(end) or bounds[1] == sys.maxsize:
        # of the last few: torch.export takes the axis to have as many, too
        return torch.ops.aten.slice.Tensor(self, dim, start, end, step)
    first, last = [least(at, size) if at >= 0 else most(size + at, 0) for at in bounds]
    length = most(last - first, 0) if bounds[0] else last
    shape, strides = list(self.shape), list(self.stride())
    shape[dim], strides[dim] = (length + step - 1) // step, strides[dim] * step
    return self.as_strided(shape, strides, self.storage_offset())


def along_axis(function: Any, self: torch.Tensor, *args: Any, dim: int | None = None, **others: Any) -> Any:
    """``unique`` and its like, of which torch's own takes a negative axis for another one."""
    return function(self, *args, dim=dim + self.dim() if dim is not None and dim < 0 else dim, **others)


def _kron(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """torch's own writes sizes as numbers."""
    rank = max(self.dim(), other.dim())
    shapes = [(1,) * (rank - tensor.dim()) + tuple(tensor.shape) for tensor in (self, other)]
    sizes = [one * two for one, two in zip(*shapes, strict=True)]
    return torch.empty(sizes, dtype=torch.result_type(self, other))


def _pieces(self: torch.Tensor, indices: Sequence[Any], dim: int = 0) -> list[torch.Tensor]:
    """The pieces between positions, each as ``_slice`` gives it."""
    return [_slice(self, dim, start, end) for start, end in itertools.pairwise([0, *indices, sys.maxsize])]


def _columns(self: torch.Tensor, indices: Sequence[Any]) -> list[torch.Tensor]:
    return _pieces(self, indices, 1 if self.dim() > 1 else 0)


def _max_pool1d(**arguments: Any) -> Any:
    """By an operator that keeps symbols."""
    return torch.ops.aten.max_pool1d_with_indices(**arguments)[0]


def _batch_norm(input: torch.Tensor, **others: Any) -> torch.Tensor:
    """torch's own chooses a kernel first, and asks for that whether there are elements."""
    return torch.empty(input.shape, dtype=input.dtype)


def _fill_diagonal(self: torch.Tensor, **others: Any) -> torch.Tensor:
    """torch's own asks for numbers."""
    return self


def _is_computed(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


_OWN: dict[str, Callable[..., Any]] = {
    "aten::max_pool1d": _max_pool1d,
    "aten::batch_norm": _batch_norm,
    "aten::one_hot": _one_hot,
    "aten::index.Tensor": _index,
    "aten::_unsafe_index.Tensor": _index,
    "aten::slice.Tensor": _slice,
    "aten::unique_consecutive": functools.partial(along_axis, torch.ops.aten.unique_consecutive.default),
    "aten::unique_dim": functools.partial(along_axis, torch.ops.aten.unique_dim.default),
    "aten::fill_diagonal_": _fill_diagonal,
    "aten::kron": _kron,
    "aten::tensor_split.indices": _pieces,
    "aten::hsplit.array": _columns,
    "aten::vsplit.array": functools.partial(_pieces, dim=0),
    "aten::dsplit.array": functools.partial(_pieces, dim=2),
}


def shape_function(target: str) -> Callable[..., Any] | None:
    """Ours for ``aten::name.overload``; None where torch's does."""
    return _OWN.get(target)
