"""Operators with data-dependent sizes, and operators for which torch's own shape functions give wrong sizes.

A shape function runs on fake tensors.  Its result shows the sizes, the dtype, and the aliasing of the real one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten.graph import Call, TensorType, values_in
from purexport.facts.fact import Aliases, Fact, alike

_MASKS = (torch.bool, torch.uint8)


def _has_mask(call: Call) -> bool:
    if call.target != "aten::index.Tensor":
        return False
    types = [value.type for value in values_in(call.args["indices"])]
    return any(isinstance(type_, TensorType) and type_.dtype in _MASKS for type_ in types)


def holds_for_all_sizes(condition: Any) -> bool:
    """Whether a condition on symbolic sizes holds, whatever they are."""
    return bool(condition.node.statically_known_true("", 0) if isinstance(condition, torch.SymBool) else condition)


def _one_hot(self: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """torch's own function reads the largest class from the data; here the number of classes is an unbacked size.

    This also holds for a computed `num_classes` that may be negative, since a negative number means the largest class.
    """
    known = holds_for_all_sizes(num_classes >= 0)
    classes = num_classes if known else _unknown_size(self, least=0 if isinstance(num_classes, torch.SymInt) else 1)
    return self.new_empty((*self.shape, classes), dtype=torch.int64)


def _unknown_size(beside: Any, least: int) -> Any:
    """A new unbacked size of at least `least`, in the shape environment of the fake tensor `beside`."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    size = beside.fake_mode.shape_env.create_unbacked_symint()
    _constrain_range_for_size(size, min=least)
    return size


def _index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """torch's own function does not broadcast zero-dim indices with the others, and takes no uint8 masks."""
    indices = [item != 0 if item is not None and item.dtype is torch.uint8 else item for item in indices]
    if any(item is not None and item.dim() for item in indices):
        indices = [
            item.reshape(1) if item is not None and not item.dim() and item.dtype is not torch.bool else item
            for item in indices
        ]
    return torch.ops.aten.index.Tensor(self, indices)


def along_axis(function: Any, self: torch.Tensor, *args: Any, dim: int | None = None, **others: Any) -> Any:
    """For `unique` and similar operators: torch's own function takes a negative axis for a wrong one."""
    return function(self, *args, dim=dim + self.dim() if dim is not None and dim < 0 else dim, **others)


def _combinations(self: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """torch's own function selects rows by a mask, so that their number would be an unbacked size."""
    count = self.shape[0]
    step = 1 if with_replacement else -1
    rows = math.prod(count + step * place for place in range(r)) // math.factorial(r)
    return self.new_empty((rows, r) if r else (0,))


def _affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool) -> torch.Tensor:
    """torch's own function forces symbolic sizes to the example's."""
    return theta.new_empty((size[0], *size[2:], len(size) - 2))


def _roll(self: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor:
    """torch's own function asks whether there are any elements, which is unknown where data decides the sizes."""
    return torch.empty(self.shape, dtype=self.dtype)


def _take_along_dim(self: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """torch's own function broadcasts the sizes as numbers."""
    if dim is None:
        return self.new_empty((indices.numel(),))
    shapes = [[*item.shape[:dim], 1, *item.shape[dim:][1:]] for item in (self, indices)]
    sizes = list(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    sizes[dim] = indices.shape[dim]
    return self.new_empty(sizes)


def _vander(x: torch.Tensor, N: int | None = None, increasing: bool = False) -> torch.Tensor:  # noqa: N803  the schema's name
    """torch's own function reads the size as a number."""
    columns = x.shape[0] if N is None else N
    return x.new_empty((x.shape[0], columns), dtype=torch.promote_types(x.dtype, torch.int64))


def _istft(self: torch.Tensor, n_fft: int, *args: Any, length: Any = None, **others: Any) -> torch.Tensor:
    """torch's own function reads the length as a number."""
    if not isinstance(length, torch.SymInt):
        found: torch.Tensor = torch.ops.aten.istft(self, n_fft, *args, length=length, **others)
        return found
    return self.new_empty((*self.shape[:-2], length), dtype=self.dtype.to_real())


def _dim_arange(like: torch.Tensor, dim: int) -> torch.Tensor:
    """torch's own function reads the size as a number."""
    return like.new_empty((like.shape[dim],), dtype=torch.int64)


FACTS = (
    *alike(
        "_unique _unique2 argwhere bincount masked_select nonzero nonzero_numpy repeat_interleave "
        "unique_dim_consecutive",
        Fact("aten::", data_dependent=True),
    ),
    Fact("aten::_reshape_from_tensor", aliases=Aliases.MAYBE, data_dependent=True),
    Fact("torchvision::nms", data_dependent=True),
    Fact(
        "aten::unique_consecutive",
        data_dependent=True,
        shapes=functools.partial(along_axis, torch.ops.aten.unique_consecutive.default),
    ),
    Fact(
        "aten::unique_dim",
        data_dependent=True,
        shapes=functools.partial(along_axis, torch.ops.aten.unique_dim.default),
    ),
    Fact("aten::one_hot", data_dependent=True, shapes=_one_hot),
    Fact("aten::index", data_dependent=_has_mask, shapes={"Tensor": _index}),
    Fact("aten::_unsafe_index", shapes={"Tensor": _index}),
    Fact("aten::combinations", shapes=_combinations),
    Fact("aten::take_along_dim", shapes=_take_along_dim),
    Fact("aten::vander", shapes=_vander),
    Fact("aten::istft", shapes=_istft),
    Fact("aten::_dim_arange", shapes=_dim_arange),
    Fact("aten::roll", shapes=_roll),
    Fact("aten::affine_grid_generator", shapes=_affine_grid),
)
