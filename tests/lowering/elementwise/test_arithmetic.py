"""Elementwise arithmetic, rounding, powers and signs."""

from __future__ import annotations

import math

import pytest
import torch

from tests.harness import Row, boolean, f16, f32, f64, i8, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
BORDERS = [-INF, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, INF, NAN]


def simple(function, spec, suffix=""):
    return Row(function.__name__ + suffix, function, spec)


# operators of one operand that are the same in ONNX, with an integer row for the promotion to float
SAME = [
    simple(function, spec)
    for function, spec in [
        (torch.sigmoid, f32(3, 4)),
        (torch.special.expit, f32(3, 4)),
        (torch.tanh, f32(3, 4)),
        (torch.exp, f32(3, 4)),
        (torch.log, f32(3, 4, low=0.1, high=5)),
        (torch.sqrt, f32(3, 4, low=0, high=5)),
        (torch.sin, f32(3, 4)),
        (torch.cos, f32(3, 4)),
        (torch.tan, f32(3, 4, low=-1.4, high=1.4)),
        (torch.asin, f32(3, 4, low=-1, high=1)),
        (torch.acos, f32(3, 4, low=-1, high=1)),
        (torch.atan, f32(3, 4)),
        (torch.sinh, f32(3, 4)),
        (torch.cosh, f32(3, 4)),
        (torch.asinh, f32(3, 4)),
        (torch.acosh, f32(3, 4, low=1, high=5)),
        (torch.atanh, f32(3, 4, low=-0.9, high=0.9)),
        (torch.arcsin, f32(3, low=-1, high=1)),
        (torch.arccos, f32(3, low=-1, high=1)),
        (torch.arctan, f32(3)),
        (torch.arcsinh, f32(3)),
        (torch.arccosh, f32(3, low=1, high=5)),
        (torch.arctanh, f32(3, low=-0.9, high=0.9)),
        (torch.reciprocal, f32(3, 4)),
        (torch.rsqrt, f32(3, 4, low=0.1, high=5)),
        (torch.square, f32(3, 4)),
        (torch.exp2, f32(3, 4)),
        (torch.special.exp2, f32(3, 4)),
        (torch.log2, f32(3, 4, low=0.1, high=5)),
        (torch.log10, f32(3, 4, low=0.1, high=5)),
        (torch.deg2rad, f32(3, low=-180, high=180)),
        (torch.rad2deg, f32(3)),
        (torch.ceil, f32(3, 4)),
        (torch.floor, f32(3, 4)),
        (torch.trunc, values(BORDERS)),
        (torch.fix, values(BORDERS)),
        (torch.frac, f32(3, 4, low=-5, high=5)),
        (torch.abs, values(BORDERS)),
        (torch.absolute, f32(3)),
        (torch.neg, values(BORDERS)),
        (torch.negative, f32(3)),
        (torch.sgn, f32(3)),
        (torch.signbit, values(BORDERS)),
    ]
]

TO_FLOAT = [
    Row(f"{function.__name__}-int", function, i64(5, low=1, high=4))
    for function in (torch.exp, torch.sqrt, torch.reciprocal, torch.rsqrt, torch.log1p, torch.expm1, torch.log2)
] + [
    Row("sin-bool", torch.sin, boolean(5)),
    Row("sigmoid-int32", torch.sigmoid, i32(5)),
    Row("exp2-int", torch.exp2, i64(5)),
    Row("log10-int", torch.log10, i64(5, low=1, high=9)),
    Row("deg2rad-int", torch.deg2rad, i64(5)),
    Row("rad2deg-int", torch.rad2deg, i64(5)),
    Row("tanh-zero-dim", torch.tanh, f32()),
    Row("exp-half", torch.exp, f16(5)),
    Row("exp-double", torch.exp, f64(5)),
    Row("tanh-dynamic", torch.tanh, f32(2, 3), dynamic={0: {0: "a", 1: "b"}}),
]

INTEGERS = [
    Row("abs-int8", torch.abs, values([-128, -1, 0, 127], torch.int8), trap="the smallest int8 has no absolute value"),
    Row("neg-uint8", torch.neg, u8(5), trap="wraps"),
    Row("neg-int", torch.neg, i64(5)),
    Row("sign-int", torch.sign, i64(5)),
    Row("sign-bool", torch.sign, boolean(5)),
    Row("sign-nan", torch.sign, values(BORDERS), trap="the sign of NaN is 0"),
    Row("signbit-int", torch.signbit, i64(5)),
    Row("ceil-int", torch.ceil, i64(5)),
    Row("floor-int", torch.floor, i64(5)),
    Row("trunc-int", torch.trunc, i32(5)),
    Row("round-int", torch.round, i64(5)),
    Row("square-int", torch.square, i64(5)),
    Row("square-uint8", torch.square, u8(5), trap="wraps"),
]

ARITHMETIC = [
    Row("add", torch.add, f32(3, 4), f32(3, 4)),
    Row("add-broadcast", torch.add, f32(3, 4), f32(4), dynamic={0: {0: "a"}}),
    Row("add-number", lambda x: x + 1.5, f32(3)),
    Row("add-int-number", lambda x: x + 2, i64(3)),
    Row("add-float-number-to-int", lambda x: x + 2.5, i64(3), trap="a number of a higher kind promotes"),
    Row("add-alpha", lambda x, y: torch.add(x, y, alpha=2.5), f32(3), f32(3)),
    Row("add-alpha-int", lambda x, y: torch.add(x, y, alpha=3), i64(3), i64(3)),
    Row("add-bool", torch.add, boolean(6), boolean(6), trap="an or"),
    Row("add-bool-int", torch.add, boolean(6), i64(6)),
    Row("add-int8", torch.add, i8(9), i8(9), trap="wraps"),
    Row("add-uint8", torch.add, u8(9), u8(9), trap="wraps"),
    Row("add-int32-int64", torch.add, i32(4), i64(4)),
    Row("add-zero-dim-double", torch.add, f32(4), f64(), trap="a zero-dim tensor does not widen"),
    Row("add-int-zero-dim-float", torch.add, i64(4), f32()),
    Row("sub", torch.sub, f32(3, 4), f32(4)),
    Row("sub-number", lambda x: x - 2, f32(3)),
    Row("sub-alpha", lambda x, y: torch.sub(x, y, alpha=2), f32(3), f32(3)),
    Row("subtract", torch.subtract, f32(3), f32(3)),
    Row("subtract-number", lambda x: torch.subtract(x, 2), f32(3)),
    Row("sub-uint8", torch.sub, u8(9), u8(9), trap="wraps"),
    Row("rsub", lambda x: 3 - x, f32(3)),
    Row("rsub-tensor", lambda x, y: torch.rsub(x, y, alpha=2), f32(3), f32(3)),
    Row("rsub-int", lambda x: 3 - x, i64(3)),
    Row("mul", torch.mul, f32(3, 4), f32(3, 1)),
    Row("mul-number", lambda x: x * 3, f32(3)),
    Row("multiply", torch.multiply, f32(3), f32(3)),
    Row("multiply-number", lambda x: torch.multiply(x, 3), f32(3)),
    Row("mul-bool", torch.mul, boolean(6), boolean(6), trap="an and"),
    Row("mul-int8", torch.mul, i8(9), i8(9), trap="wraps"),
    Row("mul-half-number", lambda x: x * 1.5, f16(3)),
    Row("div", torch.div, f32(3, 4), f32(3, 4)),
    Row("div-number", lambda x: x / 3, f32(3)),
    Row("div-int", torch.div, i64(5), i64(5, low=1, high=9), trap="true division of integers is float"),
    Row("divide", torch.divide, f32(3), f32(3)),
    Row("divide-number", lambda x: torch.divide(x, 3), f32(3)),
    Row("true-divide", torch.true_divide, f32(3), f32(3)),
    Row("true-divide-number", lambda x: torch.true_divide(x, 3), i64(3)),
    Row("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), f32(3), f32(2, 3), f32(2, 1)),
    Row("addcmul-int", lambda x, y, z: torch.addcmul(x, y, z, value=2), i64(3), i64(3), i64(3)),
    Row("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), f32(3), f32(3), f32(3, low=1, high=2)),
    Row("lerp-number", lambda x, y: torch.lerp(x, y, 0.3), f32(3), f32(3)),
    Row("lerp-tensor", torch.lerp, f32(3), f32(3), f32(3)),
    Row("hypot", torch.hypot, values([3.0, -1e30, INF, 0.0]), values([4.0, 1e30, 1.0, 0.0]), trap="overflow"),
]

ATEN = torch.ops.aten

NUMBERS = [
    Row("add-scalar", lambda x: ATEN.add.Scalar(x, 2.5), f32(3), opsets=(9, 20)),
    Row("sub-scalar", lambda x: ATEN.sub.Scalar(x, 2), i64(3), opsets=(9, 20)),
    Row("subtract-scalar", lambda x: ATEN.subtract.Scalar(x, 2), i64(3), opsets=(9, 20)),
    Row("mul-scalar", lambda x: ATEN.mul.Scalar(x, 2.5), i64(3), opsets=(9, 20)),
    Row("multiply-scalar", lambda x: ATEN.multiply.Scalar(x, 2.5), f32(3), opsets=(9, 20)),
    Row("div-scalar", lambda x: ATEN.div.Scalar(x, 2), i64(3), opsets=(9, 20)),
    Row("div-scalar-mode", lambda x: ATEN.div.Scalar_mode(x, 2, rounding_mode="floor"), i64(3), opsets=(9, 20)),
    Row("divide-scalar", lambda x: ATEN.divide.Scalar(x, 2), i64(3), opsets=(9, 20)),
    Row("divide-scalar-mode", lambda x: ATEN.divide.Scalar_mode(x, 2, rounding_mode="trunc"), i64(3), opsets=(9, 20)),
    Row("true-divide-scalar", lambda x: ATEN.true_divide.Scalar(x, 2), i64(3), opsets=(9, 20)),
]

SIGNS = [7, -7, 7, -7, 6, -6, 0, 0, 1]
BY = [3, 3, -3, -3, 3, 3, -5, 5, -1]

DIVISION = [
    Row(f"{name}-{kind}", function, values(SIGNS, dtype), values(BY, dtype), trap="signs")
    for name, function in [
        ("floor-divide", torch.floor_divide),
        ("div-floor", lambda x, y: torch.div(x, y, rounding_mode="floor")),
        ("div-trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
        ("divide-floor", lambda x, y: torch.divide(x, y, rounding_mode="floor")),
        ("remainder", torch.remainder),
        ("fmod", torch.fmod),
    ]
    for kind, dtype in [("int64", torch.int64), ("int32", torch.int32), ("int8", torch.int8), ("float", torch.float32)]
] + [
    Row(
        "floor-divide-exact",
        torch.floor_divide,
        values([1.0, 0.3, -1.0, 5.0]),
        values([0.1, 0.1, 0.1, 2.5]),
        trap="goes by the exact remainder: 1.0 // 0.1 is 9",
    ),
    Row("floor-divide-zero", torch.floor_divide, values([1.0, -1.0, 0.0]), values([0.0, 0.0, 0.0])),
    Row("floor-divide-infinite", torch.floor_divide, values([1.0, -1.0]), values([INF, INF])),
    Row("floor-divide-uint8", torch.floor_divide, u8(5), u8(5, low=1)),
    Row("floor-divide-number", lambda x: x // 2, i64(5)),
    Row("floor-divide-float-number", lambda x: x // 2, f32(5, low=-9, high=9)),
    Row("floor-divide-scalar", lambda x: torch.ops.aten.floor_divide.Scalar(x, 3), f32(5, low=-9, high=9)),
    Row("div-mode-none", lambda x, y: torch.div(x, y, rounding_mode=None), i64(5), i64(5, low=1)),
    Row("div-mode-number", lambda x: torch.div(x, 3, rounding_mode="floor"), i64(5)),
    Row("divide-mode-number", lambda x: torch.divide(x, 3, rounding_mode="trunc"), i64(5)),
    Row("remainder-number", lambda x: x % 3, i64(5)),
    Row("remainder-number-float", lambda x: torch.remainder(x, -1.5), f32(5, low=-9, high=9)),
    Row("remainder-of-number", lambda x: torch.remainder(7, x), i64(5, low=1)),
    Row("remainder-exact", torch.remainder, values([1.0, 0.3, 1e6]), values([0.1, 0.1, 0.3]), trap="no rounding"),
    Row("fmod-number", lambda x: torch.fmod(x, 1.5), f32(5, low=-9, high=9)),
]

ROUNDING = [
    Row("round", torch.round, values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4, 1e10, INF, NAN]), trap="ties to even"),
    Row("round-half", torch.round, f16(5, low=-5, high=5)),
    Row("round-decimals", lambda x: torch.round(x, decimals=2), f32(5)),
    Row("round-tens", lambda x: torch.round(x, decimals=-1), f32(5, low=-99, high=99)),
    Row("round-no-decimals", lambda x: torch.round(x, decimals=0), f32(5)),
    Row("special-round", lambda x: torch.special.round(x, decimals=1), f32(5)),
]

POWERS = (
    [
        Row(f"pow-{number}", lambda x, number=number: x**number, f32(4, low=0.1, high=3))
        for number in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.7)
    ]
    + [Row(f"pow-int-{number}", lambda x, number=number: x**number, i64(6)) for number in (0, 1, 2, 3, 4)]
    + [
        Row("pow-negative-base", lambda x: x**2, values([-2.0, -0.5, 3.0])),
        Row("pow-int-float", lambda x: x**0.5, i64(5, low=0)),
        Row("pow-int8", lambda x: x**2, i8(5), trap="wraps"),
        Row("pow-bool", lambda x: x**2, boolean(5), routes=("trace",)),
        Row("pow-tensors", torch.pow, f32(3, 4, low=0.1, high=3), f32(4)),
        Row("pow-int-tensors", torch.pow, i64(5), i64(5, low=0, high=5)),
        Row(
            "pow-int-tensors-negative",
            torch.pow,
            torch.tensor([-2, -1, -1, 0, 0, 0, 1, 2, 3]),
            torch.tensor([-1, -2, -3, -1, 0, 2, -3, -2, 2]),
        ),
        Row("pow-int32-tensors", torch.pow, i32(5), i32(5, low=0, high=5)),
        Row("pow-mixed", torch.pow, f32(4), i64(4, low=0, high=4)),
        Row("pow-of-number", lambda x: 2**x, f32(4)),
        Row("pow-of-number-int", lambda x: 2**x, i64(4, low=0)),
        Row("float-power", torch.float_power, f32(4, low=0.1, high=3), f32(4)),
        Row("float-power-number", lambda x: torch.float_power(x, 2), i64(4)),
        Row("float-power-of-number", lambda x: torch.float_power(2, x), f32(4)),
    ]
)

LOGARITHMS = [
    Row("log1p", torch.log1p, values([1e-8, -1e-8, 0.0, 1.0, 1e10, -1.0, INF]), atol=0, trap="tiny arguments"),
    Row("expm1", torch.expm1, values([1e-8, -1e-8, 0.0, 1.0, 10.0, -INF]), atol=0, trap="tiny arguments"),
    Row("special-log1p", torch.special.log1p, f32(4, low=0)),
    Row("special-expm1", torch.special.expm1, f32(4)),
    Row(
        "logaddexp",
        torch.logaddexp,
        values([1.0, 100.0, -INF, INF, NAN, -INF]),
        values([2.0, -100.0, -INF, INF, 1.0, 0.0]),
        trap="infinities",
    ),
    Row("logaddexp2", torch.logaddexp2, f32(4), f32(4)),
]

Y = [0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 1.0, -1.0, INF, NAN, 1.0, 2.0, 3.0]
X = [1.0, 1.0, -1.0, -1.0, 0.0, 0.0, -1.0, -2.0, INF, 1.0, NAN, -INF, INF]

ANGLES = [
    Row("atan2", torch.atan2, values(Y), values(X), trap="quadrants, zeros, infinities"),
    Row("arctan2", torch.arctan2, f32(6), f32(6)),
    Row("atan2-int", torch.atan2, i64(6), i64(6)),
    Row("angle", torch.angle, values([-1.0, -0.0, 0.0, 2.0, NAN])),
    Row("angle-int", torch.angle, i64(4)),
    Row("copysign", torch.copysign, f32(4), values([-0.0, 0.0, -1.0, INF]), trap="the sign of zero"),
    Row("copysign-number", lambda x: torch.copysign(x, -2.0), f32(4)),
    Row("copysign-int", torch.copysign, i64(4), i64(4)),
    Row("heaviside", torch.heaviside, values([-1.0, 0.0, 2.0, NAN]), f32(4)),
]

# numbers that follow from a size, beside tensors of other dtypes
ANY = {0: {0: "n"}}
COMPUTED = [
    *(
        Row(
            f"computed-{inputs.dtype}".replace("torch.", ""),
            lambda x: (
                x + x.size(0) * 0.5,
                x * (x.size(0) / 3),
                x / (-x.size(0) * 1.5),
                torch.pow(x, x.size(0) * 0.5),
                torch.floor_divide(x, x.size(0) * 0.5),
                torch.remainder(x, -x.size(0) * 1.5),
                torch.rsub(x, x.size(0) * 2 + 0.5, alpha=2),
            ),
            inputs,
            dynamic=ANY,
            sizes={"n": 1},
            every=(3, 7),
        )
        for inputs in (i64(4, low=1, high=9), u8(4, low=1, high=9), f16(4, low=1, high=3))
    ),
    Row(
        "computed-factors",
        lambda x, y: (
            torch.add(x, y, alpha=x.size(0) * 0.5),
            torch.sub(x, x, alpha=-x.size(0) * 1.5),
            torch.addcmul(x, x, x, value=x.size(0) / 3),
            torch.lerp(x, x * 2, x.size(0) * 0.29),
        ),
        f64(4),
        f64(4),
        dynamic="batch",
        sizes={"batch": 1},
        every=(100,),
        trap="beside doubles a number is a double, of which a float32 is 1e-8 away",
    ),
]

ROWS = [
    *(*SAME, *TO_FLOAT, *INTEGERS, *ARITHMETIC, *NUMBERS, *DIVISION, *ROUNDING, *POWERS, *LOGARITHMS, *ANGLES),
    *COMPUTED,
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
