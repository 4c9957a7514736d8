"""Type promotion against torch itself: every dtype beside every other, as tensors, zero-dim tensors and numbers."""

from __future__ import annotations

import pytest
import torch

from purexport.aten.graph import AtenValue, ScalarType, TensorType
from purexport.lowering.core.promotion import common_dtype

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
NUMBERS = [True, 3, 2.5, 1j]


def tensor(dtype: torch.dtype) -> tuple[AtenValue, torch.Tensor]:
    return AtenValue(TensorType(dtype, (2,))), torch.ones(2, dtype=dtype)


def zero_dim(dtype: torch.dtype) -> tuple[AtenValue, torch.Tensor]:
    return AtenValue(TensorType(dtype, ())), torch.ones((), dtype=dtype)


def operands() -> list[tuple[object, object]]:
    """(what the export sees, what torch sees)"""
    return [*map(tensor, DTYPES), *map(zero_dim, DTYPES), *((number, number) for number in NUMBERS)]


@pytest.mark.parametrize("first", operands(), ids=lambda item: str(item[1]).replace("\n", ""))
def test_two_operands(first: tuple[object, object]) -> None:
    """Each operand beside each other one gives the dtype of `torch.result_type`."""
    wrong = []
    for second in operands():
        if not isinstance(first[1], torch.Tensor) and not isinstance(second[1], torch.Tensor):
            continue  # no tensor: torch's operators get none such
        expected = torch.result_type(first[1], second[1])
        found = common_dtype([first[0], second[0]])
        if found != expected:
            wrong.append(f"{first[1]!r} and {second[1]!r}: {found}, torch says {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_true_division(dtype: torch.dtype) -> None:
    """Integers and booleans are computed in the default float type, others in their own."""
    seen, real = tensor(dtype)
    assert common_dtype([seen, 2], to_float=True) == torch.true_divide(real, 2).dtype
    assert common_dtype([seen], to_float=True) == torch.sin(real).dtype


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not dtype.is_complex], ids=str)
def test_three_operands(dtype: torch.dtype) -> None:
    """`clamp` promotes itself and both bounds."""
    if dtype == torch.bool:
        pytest.skip("torch clamps no booleans")
    seen, real = tensor(dtype)
    assert common_dtype([seen, 1, 2.5]) == torch.clamp(real, 1, 2.5).dtype


@pytest.mark.parametrize("kind", [bool, int, float])
def test_computed_numbers(kind: type) -> None:
    """A number that the graph computes promotes as a Python number of its kind."""
    for dtype in DTYPES:
        seen, real = tensor(dtype)
        assert common_dtype([seen, AtenValue(ScalarType(kind))]) == torch.result_type(real, kind(1)), dtype


def test_default_dtype() -> None:
    """Python floats follow torch's default dtype."""
    seen, _ = tensor(torch.int64)
    torch.set_default_dtype(torch.float64)
    try:
        assert common_dtype([seen, 2.5]) == torch.float64
        assert common_dtype([seen], to_float=True) == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_no_operand() -> None:
    with pytest.raises(AssertionError, match="at least one operand"):
        common_dtype([])
