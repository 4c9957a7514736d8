"""`torch.tensor([x.sum(), 1.0])`: literals whose numbers are tensors of the run become the stack of their numbers.

torch would take the numbers out of the tensors, and the file would hold the example's.  A sequence of numbers that a
size counts makes a tensor of itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from purexport.frontends.trace.ranges import CountedNumbers
from purexport.frontends.trace.tensors import Recorded


def literal(function: Any, data: Any, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """`function(data, ...)`, for `torch.tensor` and `torch.as_tensor`."""
    if isinstance(data, CountedNumbers):
        return data.as_tensor(dtype, options.get("device"))
    leaves = [*_leaves(data)] if isinstance(data, (list, tuple)) else []
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not any(type(tensor) is Recorded for tensor in tensors) or any(tensor.dim() for tensor in tensors):
        found: torch.Tensor = function(data, dtype=dtype, **options)
        return found
    return _stacked(data, dtype or functools.reduce(torch.promote_types, map(_dtype, leaves)))


def _leaves(data: Any) -> Iterator[Any]:
    for item in data:
        yield from _leaves(item) if isinstance(item, (list, tuple)) else (item,)


def _dtype(leaf: Any) -> torch.dtype:
    """The dtype that torch takes a number of a literal for."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype
    if isinstance(leaf, bool):
        return torch.bool
    return torch.int64 if isinstance(leaf, (int, torch.SymInt)) else torch.tensor(0.0).dtype


def _stacked(data: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.stack(
        [_stacked(item, dtype) if isinstance(item, (list, tuple)) else _one(item, dtype) for item in data]
    )


def _one(item: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(item, (list, tuple)):
        return _stacked(item, dtype)
    return item.to(dtype) if isinstance(item, torch.Tensor) else torch.scalar_tensor(item, dtype=dtype)
