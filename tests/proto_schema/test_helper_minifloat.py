"""Rounding to the small float types, value by value, against the official package's own casts."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from proto_schema.tensors import minifloat

OFFICIAL = {
    onnx.TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    onnx.TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    onnx.TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    onnx.TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    onnx.TensorProto.FLOAT6E2M3: ml_dtypes.float6_e2m3fn,
    onnx.TensorProto.FLOAT6E3M2: ml_dtypes.float6_e3m2fn,
}


def _hard_values(exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Every value of a type, the midpoints between neighbours, the float64 next to each, and what is out of range."""
    middles = (exact[:-1] + exact[1:]) / 2
    around = [exact, middles, np.nextafter(middles, math.inf), np.nextafter(middles, -math.inf)]
    beyond = [exact[-1] * 1.01, exact[-1] * 4, 1e30, math.inf, 1e-30, 5e-324, 0.0]
    positive = np.concatenate([*around, beyond])
    return np.concatenate([positive, -positive])


def _exact(dtype: type, count: int) -> npt.NDArray[np.float64]:
    values = np.arange(count, dtype=np.uint8).view(dtype).astype(np.float64)
    return np.unique(np.abs(values[np.isfinite(values)]))


@pytest.mark.parametrize("code", sorted(OFFICIAL), ids=onnx.TensorProto.DataType.Name)
def test_codes_equal_the_official_saturating_cast(code: int) -> None:
    dtype, form = OFFICIAL[code], minifloat.FORMATS[code]
    values = _hard_values(_exact(dtype, form.sign_bit))
    expected = numpy_helper.saturate_cast(values, np.dtype(dtype)).view(np.uint8)
    assert np.array_equal(minifloat.codes(values, form), expected)
    assert form.name == onnx.TensorProto.DataType.Name(code)


@pytest.mark.parametrize("code", [c for c, form in minifloat.FORMATS.items() if form.nan is not None])
def test_nan_keeps_its_sign_where_the_type_has_two(code: int) -> None:
    values = np.array([[math.nan, -math.nan]])
    expected = values.astype(OFFICIAL[code]).view(np.uint8)
    assert np.array_equal(minifloat.codes(values, minifloat.FORMATS[code]), expected)


def test_nan_is_refused_where_the_type_has_none() -> None:
    with pytest.raises(ValueError, match=re.escape("FLOAT4E2M1 has no NaN; replace the 2 NaN values")):
        minifloat.codes([1.0, math.nan, math.nan], minifloat.FORMATS[onnx.TensorProto.FLOAT4E2M1])


def test_bfloat16_equals_the_official_cast() -> None:
    tops = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16
    lows = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    values = (tops[:, None] | lows).view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(minifloat.bfloat16_codes(values), expected)
    doubles = [0.1, -0.1, 1 + 2**-8, 1 + 2**-8 + 2**-40, 1e300, -1e300, 3, math.nan]
    expected = np.array(doubles, dtype=ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(minifloat.bfloat16_codes(doubles), expected)


def test_float8e8m0_equals_the_official_rounding() -> None:
    powers = np.ldexp(1.0, np.arange(-150, 128))
    values = np.concatenate(
        [powers, powers * 1.5, powers * (1 + 2**-23), [0, math.inf, -math.inf, math.nan, -3.0, 3e38]]
    )
    with np.errstate(over="ignore"):
        expected = numpy_helper.to_float8e8m0(values.astype(np.float32)).view(np.uint8)
    assert np.array_equal(minifloat.float8e8m0_codes(values), expected)
