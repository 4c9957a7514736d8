"""The table of tolerances is seen to fail: what is computed in a lower precision is refused, and so is a wide bound
that says no reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.harness import Row, check_program, export, f64
from tests.row_plans import run_row
from tests.tolerances import CHAIN, EXACT, TABLE, USUAL, Bounds, assert_near

LOWER = [
    (torch.float64, torch.float32),
    (torch.float64, torch.float16),
    (torch.float32, torch.float16),
    (torch.float32, torch.bfloat16),
    (torch.float16, torch.bfloat16),
    (torch.float16, torch.float8_e4m3fn),
    (torch.bfloat16, torch.float8_e4m3fn),
    (torch.complex128, torch.complex64),
]
NUMBERS = torch.randn(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def through(dtype: torch.dtype, lower: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of a dtype, and the same rounded to a lower one on the way."""
    exact = (torch.complex(NUMBERS, NUMBERS.flip(0)) if dtype.is_complex else NUMBERS).to(dtype)
    return exact.to(lower).to(dtype), exact


@pytest.mark.parametrize(("dtype", "lower"), LOWER, ids=str)
@pytest.mark.parametrize("bounds", [USUAL, CHAIN, EXACT], ids=["usual", "chain", "exact"])
def test_a_lower_precision_is_refused(dtype: torch.dtype, lower: torch.dtype, bounds: Bounds) -> None:
    rounded, exact = through(dtype, lower)
    assert_near(exact, exact, bounds)
    if bounds is CHAIN and (dtype, lower) in ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float8_e4m3fn)):
        return  # a chain of operations in half precision is as far off as one in the next lower one
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_near(rounded, exact, bounds)


@pytest.mark.parametrize("dtype", sorted(TABLE))
def test_one_unit_in_the_last_place_is_near(dtype: str) -> None:
    """Two libraries that round differently agree, also where the number is small."""
    kind = getattr(torch, dtype)
    if kind.is_complex:
        assert TABLE[dtype] == TABLE[str(kind.to_real()).removeprefix("torch.")]
        return
    one = torch.tensor([1.0, -0.25, 2.0**-5], dtype=torch.float64)
    assert_near((one * (1 + torch.finfo(kind).eps)).to(kind), one.to(kind))


def test_every_floating_dtype_has_a_row() -> None:
    """Those that ONNX has: torch's others hold a scale, or two numbers in a byte."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    found = {value for value in found if value.is_floating_point or value.is_complex}
    names = {str(value).removeprefix("torch.") for value in found} - {"float8_e8m0fnu", "float4_e2m1fn_x2"}
    assert names == set(TABLE)


EQUAL = [
    (torch.tensor([1, 2]), torch.tensor([1, 3])),
    (torch.tensor([1, 200], dtype=torch.uint8), torch.tensor([1, 201], dtype=torch.uint8)),
    (torch.tensor([2**62]), torch.tensor([2**62 + 1])),
    (torch.tensor([True]), torch.tensor([False])),
    (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    (torch.ones(2), torch.ones(1, 2)),
    (torch.tensor([torch.nan]), torch.tensor([1.0])),
    (torch.tensor([torch.inf]), torch.tensor([1e38])),
]


@pytest.mark.parametrize(("found", "wanted"), EQUAL)
def test_what_must_be_equal(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Integers, booleans, dtypes and shapes, NaN and infinities: whatever the bounds."""
    for bounds in (USUAL, Bounds(rtol=0.5, atol=0.5, loose="said here")):
        assert_near(wanted, wanted, bounds)
        with pytest.raises(AssertionError):
            assert_near(found, wanted, bounds)


@pytest.mark.parametrize("given", [{"rtol": 1e-8}, {"atol": 1e-11}, {"rtol": 0.0, "atol": 1.0}, {"times": 2.0}])
def test_a_wide_bound_without_a_reason_is_refused(given: dict[str, float]) -> None:
    exact = np.ones(3)
    with pytest.raises(ValueError, match=r"wider than \(1e-09, 1e-12\), the table's for float64, without a reason"):
        assert_near(exact, exact, Bounds(**given))
    assert_near(exact * (1 + 1e-12), exact, Bounds(**given, loose="said here"))


def test_a_reason_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a reason for bounds that are the table's"):
        Bounds(loose="said here")


def test_a_row_says_why() -> None:
    row = Row("loose", torch.exp, f64(3), rtol=1e-4)
    with pytest.raises(ValueError, match=r"say loose='...', or mend"):
        run_row(row, {"trace": [17]})
    run_row(Row("loose", torch.exp, f64(3), rtol=1e-4, loose="said here"), {"trace": [17]})


def test_an_unknown_dtype_is_said() -> None:
    with pytest.raises(KeyError, match="no tolerance for float128; add a row"):
        USUAL.of("float128")


IN_FLOAT32: list[tuple[str, Any]] = [
    ("rms_norm", lambda x: functional.rms_norm(x, [8])),
    ("layer_norm", lambda x: functional.layer_norm(x, [8])),
    ("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    ("matmul", lambda x: x @ x.t()),
    ("softmax", lambda x: torch.softmax(x, -1)),
]


@pytest.mark.parametrize(("name", "model"), IN_FLOAT32, ids=[name for name, _ in IN_FLOAT32])
def test_a_file_that_computes_in_float32_is_refused(name: str, model: Any) -> None:
    """The fault that the table is for: a float64 rule that goes through float32."""
    args = f64(4, 8).make(torch.Generator().manual_seed(0)), {}
    good = export(model, args[:1], {}, opset=17, capture="trace")
    wrong = export(lambda x: model(x.float()).double(), args[:1], {}, opset=17, capture="trace")
    check_program(good, model, [(args[:1], {})], 17)
    with pytest.raises(AssertionError, match="Not equal to tolerance rtol=1e-09, atol=1e-12"):
        check_program(wrong, model, [(args[:1], {})], 17)
