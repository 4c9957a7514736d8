"""The dtype of what is computed of tensors and numbers, as torch promotes them.

Source: `aten/src/ATen/native/TypeProperties.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.frontends.core.shape_functions import UnfitError

_KINDS = {bool: torch.bool, int: torch.int64}


def promoted(operands: Sequence[Any]) -> torch.dtype:
    """torch's `result_type` of tensors and numbers: those with axes decide, then those without, then numbers."""
    first = operands[0]
    if all(isinstance(item, torch.Tensor) and item.dtype == first.dtype for item in operands):
        return first.dtype  # type: ignore[no-any-return]
    ranks: list[torch.dtype | None] = [None, None, None]
    for item in operands:
        tensor = isinstance(item, torch.Tensor)
        rank = 2 if not tensor else 1 if item.dim() == 0 else 0
        dtype = item.dtype if tensor else _of_number(item)
        before = ranks[rank]
        ranks[rank] = dtype if before is None else torch.promote_types(before, dtype)
    found = ranks[2]
    for higher in ranks[1::-1]:
        found = found if higher is None else higher if found is None else _combined(higher, found)
    assert found is not None
    return found


def _combined(higher: torch.dtype, lower: torch.dtype) -> torch.dtype:
    """The dtype of operands, of which some decide unless the others are of a wider kind."""
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def _of_number(item: Any) -> torch.dtype:
    default = torch.get_default_dtype()
    return default.to_complex() if isinstance(item, complex) else _KINDS.get(type(item), default)


def letter(dtype: torch.dtype) -> str:
    """The kind of numbers: `b` of truth values, `i` of integers, `f` of floats, `c` of complex numbers."""
    return "c" if dtype.is_complex else "f" if dtype.is_floating_point else "b" if dtype == torch.bool else "i"


def kind_of(item: Any) -> str:
    """The same of a tensor or a number."""
    return letter(item.dtype if isinstance(item, torch.Tensor) else _of_number(item))


def one_dtype(tensors: Sequence[torch.Tensor], letters: str = "f") -> torch.dtype:
    """The dtype of all.  Raises UnfitError for several dtypes, and for one of another kind than these letters."""
    dtype = tensors[0].dtype
    if letter(dtype) not in letters or any(item.dtype != dtype for item in tensors):
        raise UnfitError("operands of another kind")
    return dtype
