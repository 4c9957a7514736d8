"""Comparisons, logic, choices and bounds."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from tests.harness import Row, boolean, f16, f32, f64, i8, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
LEFT = values([1.0, 2.0, 3.0, NAN, NAN, INF, -INF, 0.0])
RIGHT = values([2.0, 2.0, 2.0, NAN, 1.0, INF, INF, -0.0])
FEW = (9, 13, 20)

ORDER = [
    row
    for name in ("eq", "ne", "lt", "gt", "le", "ge")
    for function in [getattr(torch, name)]
    for row in [
        Row(f"{name}-float", function, LEFT, RIGHT, trap="NaN equals nothing"),
        Row(f"{name}-number", lambda x, function=function: function(x, 2), LEFT),
        Row(f"{name}-broadcast", function, f32(3, 1), f32(4), opsets=FEW),
        Row(f"{name}-int64", function, i64(9, low=0, high=3), i64(9, low=0, high=3)),
        Row(f"{name}-int8", function, i8(9, low=0, high=3), i8(9, low=0, high=3), opsets=FEW),
        Row(f"{name}-bool", function, boolean(9), boolean(9), opsets=FEW),
        Row(f"{name}-mixed", function, i64(9, low=0, high=3), f32(9), opsets=FEW),
        Row(f"{name}-double", function, f64(3), f64(3), opsets=FEW),
    ]
]

NAMES = [
    row
    for name in ("not_equal", "less", "greater", "less_equal", "greater_equal")
    for function in [getattr(torch, name)]
    for row in [
        Row(f"{name}-tensor", function, f32(3), f32(3), opsets=FEW),
        Row(f"{name}-number", lambda x, function=function: function(x, 0.5), f32(3), opsets=FEW),
    ]
]

KINDS = [
    Row("isnan", torch.isnan, LEFT),
    Row("isnan-int", torch.isnan, i64(3)),
    Row("isinf", torch.isinf, values([1.0, INF, -INF, NAN, 3e38])),
    Row("isinf-half", torch.isinf, values([1.0, INF, -INF, NAN], torch.float16)),
    Row("isinf-double", torch.isinf, values([1.0, INF, -INF, NAN, 1e300], torch.float64)),
    Row("isinf-int", torch.isinf, i64(3)),
    Row("isfinite", torch.isfinite, values([1.0, INF, -INF, NAN, 3e38])),
    Row("isfinite-int", torch.isfinite, i32(3)),
    Row("isposinf", torch.isposinf, values([1.0, INF, -INF, NAN])),
    Row("isposinf-int", torch.isposinf, i64(3), opsets=FEW),
    Row("isneginf", torch.isneginf, values([1.0, INF, -INF, NAN])),
    Row("isneginf-int", torch.isneginf, i64(3), opsets=FEW),
    Row("isreal", torch.isreal, values([1.0, NAN])),
    Row("isreal-int", torch.isreal, i64(3), opsets=FEW),
    Row("equal", lambda x, y: (torch.equal(x, y), x.equal(x)), i64(3, 4), i64(3, 4)),
    Row("equal-shapes", lambda x, y: (x + y, x.equal(y)), i64(3, 4), i64(4), opsets=FEW),
    Row("allclose", lambda x: (torch.allclose(x, x + 1e-7), x.allclose(x * 2, rtol=0.1)), f32(3, 4), dynamic="batch"),
    Row(
        "isclose", torch.isclose, values([1.0, 1.0, INF, NAN, INF, 0.0]), values([1.000001, 1.1, INF, NAN, -INF, 1e-9])
    ),
    Row("isclose-nan", lambda x, y: torch.isclose(x, y, rtol=0.1, equal_nan=True), LEFT, RIGHT),
    Row(
        "isclose-int",
        lambda x, y: torch.isclose(x, y, atol=1),
        i64(9, low=0, high=4),
        i64(9, low=0, high=4),
        traced="found type 'int'",
    ),
    Row("nan-to-num", torch.nan_to_num, values([1.0, INF, -INF, NAN])),
    Row("nan-to-num-numbers", lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), values([1.0, INF, -INF, NAN])),
    Row("nan-to-num-int", torch.nan_to_num, i64(3), opsets=FEW),
]

LOGIC = [
    Row("logical-not", torch.logical_not, values([0.0, -0.0, 0.5, NAN])),
    Row("logical-not-bool", torch.logical_not, boolean(4)),
    Row("logical-and", torch.logical_and, values([0.0, 0.5, NAN]), i64(3, low=0, high=2)),
    Row("logical-or", torch.logical_or, boolean(5), i64(5, low=0, high=2)),
    Row("logical-xor", torch.logical_xor, boolean(5), boolean(5)),
]

CHOICES = [
    Row("where", torch.where, boolean(3, 4), f32(3, 4), f32(4)),
    Row(
        "where-bool", torch.where, boolean(3, 4), boolean(3, 4), boolean(4), trap="ONNX Runtime has no kernel for bool"
    ),
    Row("where-int16", lambda c, x, y: torch.where(c, x, y).short(), boolean(4), i8(4), i8(4)),
    Row("where-promotes", torch.where, boolean(4), i64(4), f32(4)),
    Row("where-number", lambda c, x: torch.where(c, x, 0.0), boolean(4), f32(4)),
    Row("where-number-first", lambda c, x: torch.where(c, 1, x), boolean(4), f32(4)),
    Row("where-numbers", lambda c: torch.where(c, 1.0, 2.0), boolean(4)),
    Row("where-integers", lambda c: torch.where(c, 1, 2), boolean(4)),
    Row("where-uint8-condition", lambda c, x, y: torch.where(c > 1, x, y), u8(4, low=0, high=3), f32(4), f32(4)),
    Row("masked-fill", lambda x, m: x.masked_fill(m, -math.inf), f32(3, 4), boolean(4)),
    Row("masked-fill-tensor", lambda x, m, v: x.masked_fill(m, v), f32(3, 4), boolean(3, 4), f32()),
    Row("masked-fill-int", lambda x, m: x.masked_fill(m, 7), i32(3, 4), boolean(3, 4)),
    Row("masked-fill-bool", lambda x, m: x.masked_fill(m, True), boolean(3, 4), boolean(3, 4), routes=("export",)),
    Row("threshold", torch.nn.Threshold(0.5, -1.0), values([0.1, 0.5, 0.6, NAN]), trap="NaN stays"),
]

BOUNDS = [
    Row("clamp", lambda x: x.clamp(-0.5, 0.5), values([-1.0, 0.0, 1.0, NAN])),
    Row("clamp-min-only", lambda x: x.clamp(min=0.5), f32(3, 4)),
    Row("clamp-max-only", lambda x: x.clamp(max=0.5), f32(3, 4)),
    Row("clamp-crossed", lambda x: x.clamp(1.0, -1.0), f32(5), trap="max wins"),
    Row("clamp-int", lambda x: x.clamp(-3, 3), i64(9)),
    Row("clamp-int32", lambda x: x.clamp(-3, 3), i32(9), opsets=FEW),
    Row("clamp-uint8", lambda x: x.clamp(10, 200), u8(9), opsets=FEW),
    Row("clamp-int-by-float", lambda x: x.clamp(-2.5, 2.5), i64(9), trap="promotes"),
    Row("clamp-half", lambda x: x.clamp(-0.5, 0.5), f16(5), opsets=FEW),
    Row("clamp-tensors", lambda x, a, b: x.clamp(a, b), f32(3, 4), f32(4), f32(3, 1)),
    Row("clamp-tensor-int", lambda x, a: torch.clamp(x, min=a), i64(5), i64(5)),
    # a trace records such a bound as a number
    Row("clamp-mixed", lambda x: torch.clamp(x, 0, x.max() - 2), i64(5), opsets=FEW, routes=("trace", "script")),
    Row("clip", lambda x: torch.clip(x, -0.5, 0.5), f32(5)),
    Row("clip-tensor", torch.clip, f32(5), f32(5)),
    Row("clamp-min", lambda x: torch.clamp_min(x, 0.5), f32(5)),
    Row("clamp-min-tensor", torch.clamp_min, f32(5), f32(5)),
    Row("clamp-max", lambda x: torch.clamp_max(x, 0.5), f32(5)),
    Row("clamp-max-tensor", torch.clamp_max, f32(5), f32(5)),
    Row("maximum", torch.maximum, LEFT, RIGHT, trap="NaN is handed on"),
    Row("minimum", torch.minimum, LEFT, RIGHT, trap="NaN is handed on"),
    Row("maximum-int", torch.maximum, i64(9), i64(9)),
    Row("minimum-int32", torch.minimum, i32(9), i32(9)),
    Row("maximum-bool", torch.maximum, boolean(9), boolean(9)),
    Row("minimum-bool", torch.minimum, boolean(9), boolean(9)),
    Row("minimum-uint8", torch.minimum, u8(9), u8(9), opsets=FEW),
    Row("max-other", torch.max, f32(3, 4), f32(4)),
    Row("min-other", torch.min, f32(3, 4), f32(4)),
    Row("fmax", torch.fmax, LEFT, RIGHT, trap="a number beats NaN"),
    Row("fmin", torch.fmin, LEFT, RIGHT, trap="a number beats NaN"),
    Row("fmax-int", torch.fmax, i64(5), i64(5), opsets=FEW),
]

# numbers that follow from a size, beside tensors of other dtypes
ANY = {0: {0: "n"}}
COMPUTED = [
    *(
        Row(f"{name}-{inputs.dtype}".replace("torch.", ""), function, inputs, dynamic=ANY, sizes={"n": 1}, every=(3, 7))
        for inputs in (i64(4, low=0), u8(4, high=9), f16(4))
        for name, function in {
            "compare": lambda x: (
                x == x.size(0) * 0.5,
                x != x.size(0) * 0.5,
                x < x.size(0) / 3,
                x <= x.size(0) / 2,
                x > -x.size(0) * 1.5,
                x >= x.size(0) * 2 - 3.5,
            ),
            "choose": lambda x: (
                x.masked_fill(x > 2, x.size(0) * 1.5),
                torch.where(x > 2, x, x.size(0) * 1.5),
                torch.where(x > 2, -x.size(0) * 0.5, x),
            ),
            "bound": lambda x: (
                torch.clamp(x, x.size(0) / 3, 7),
                torch.clamp(x, -2.5, x.size(0) * 0.5),
                torch.clamp_min(x, x.size(0) * 0.5),
                torch.clamp_max(x, x.size(0) * 0.5 - 2),
            ),
        }.items()
    ),
    Row(
        "threshold-truncated",
        lambda x: (
            functional.threshold(x, x.size(0) * 0.29, 2.5),
            functional.threshold(x, 2.0, x.size(0) * 0.29),
            functional.threshold(x, -x.size(0) * 0.5, -x.size(0) * 1.5),
        ),
        i64(4, low=-40, high=40),
        dynamic=ANY,
        sizes={"n": 100},
        every=(3,),
        trap="0.29 of 100 is 28.999999999999996, and in float32 it is 29",
    ),
    Row(
        "hardtanh-truncated",
        lambda x: (functional.hardtanh(x, 0.0, x.size(0) * 0.29), functional.hardtanh(x, -x.size(0) * 0.5, 30.5)),
        i64(4, low=-40, high=40),
        dynamic=ANY,
        sizes={"n": 100},
        every=(3,),
        routes=("trace", "script"),  # torch.export holds the size
    ),
    Row(
        "less-than-in-float32",
        lambda x: (x.masked_fill(x > 2, x.size(0) * 0.29), x.double() + 25 <= x.size(0) * 0.29),
        i64(4),
        dynamic=ANY,
        sizes={"n": 100},
        trap="0.29 of 100 is 28.999999999999996, and in float32 it is 29",
    ),
]

ROWS = [*ORDER, *NAMES, *KINDS, *LOGIC, *CHOICES, *BOUNDS, *COMPUTED]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
