"""Type promotion as torch defines it, in one place, before a rule runs.

torch distinguishes tensors with dimensions, zero-dim tensors and Python numbers; a lower category changes the result's
dtype only by its kind (integral, floating, complex), never by its width.
Source: torch's "Tensor Attributes", section torch.dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenValue, ScalarType, TensorType

_NUMBERS: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64, complex: torch.complex128}
# torch has a complex dtype of bfloat16 since 2.15
_COMPLEX = {torch.float16: torch.complex32, torch.bfloat16: getattr(torch, "bcomplex32", torch.complex64)}


def common_dtype(operands: Sequence[Any], to_float: bool = False) -> torch.dtype:
    """The dtype in which torch computes on `operands` (neutral values and Python numbers)."""
    categories: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        category, dtype = _category(operand)
        known = categories[category]
        categories[category] = dtype if known is None else torch.promote_types(known, dtype)
    result: torch.dtype | None = None
    for found in categories:
        if found is not None and (result is None or _kind(found) > _kind(result)):
            result = _widened(result, found)
    assert result is not None, "a promoted call has at least one operand"
    if to_float and _kind(result) < 2:
        return torch.get_default_dtype()
    return result


def _widened(result: torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    # a complex number beside a float tensor: complex of the tensor's width
    if result is not None and _kind(result) == 2 and _kind(dtype) == 3:
        return torch.promote_types(result, _COMPLEX.get(result, torch.complex64))
    return dtype


def _category(operand: Any) -> tuple[int, torch.dtype]:
    """0 for tensors with dimensions, 1 for zero-dim tensors, 2 for numbers; and the dtype that each brings."""
    if isinstance(operand, AtenValue) and isinstance(operand.type, TensorType):
        return (1 if operand.type.rank == 0 else 0), operand.type.dtype
    kind = (
        operand.type.kind if isinstance(operand, AtenValue) and isinstance(operand.type, ScalarType) else type(operand)
    )
    if kind is float:
        return 2, torch.get_default_dtype()
    if kind is complex:
        return 2, torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    return 2, _NUMBERS[kind]


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1
