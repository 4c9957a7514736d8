"""Bits of integers and booleans."""

from __future__ import annotations

import pytest
import torch

from tests.harness import Row, boolean, f32, i8, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

ALL = (9, 17, 23)

ROWS = [
    Row("and", torch.bitwise_and, i64(9), i64(9), opsets=ALL),
    Row("or", torch.bitwise_or, i32(9), i32(9), opsets=ALL),
    Row("xor", torch.bitwise_xor, u8(9), u8(9), opsets=ALL),
    Row("not", torch.bitwise_not, i64(9)),
    Row("view-of-bits", lambda x: x.view(torch.int32), f32(3, 2), opsets=(25, 26), min_opset=26, routes=("trace",)),
    Row("not-int8", torch.bitwise_not, i8(9)),
    Row("not-uint8", torch.bitwise_not, u8(9)),
    Row("and-bool", torch.bitwise_and, boolean(9), boolean(9)),
    Row("or-bool", torch.bitwise_or, boolean(9), boolean(9)),
    Row("xor-bool", torch.bitwise_xor, boolean(9), boolean(9)),
    Row("not-bool", torch.bitwise_not, boolean(9)),
    Row("invert-operator", lambda x: ~(x > 0), f32(5)),
    Row("and-number", lambda x: torch.bitwise_and(x, 6), i64(9), opsets=ALL),
    Row("or-number", lambda x: torch.bitwise_or(x, 6), i64(9), opsets=ALL),
    Row("xor-number", lambda x: torch.bitwise_xor(x, 6), i64(9), opsets=ALL),
    Row("number-and", lambda x: torch.bitwise_and(6, x), i64(9), opsets=ALL),
    Row("number-or", lambda x: torch.bitwise_or(6, x), i64(9), opsets=ALL),
    Row("number-xor", lambda x: torch.bitwise_xor(6, x), i64(9), opsets=ALL),
    Row("and-operator", lambda x, y: x & y, boolean(9), boolean(9)),
    Row("or-operator", lambda x, y: x | y, boolean(9), boolean(9)),
    Row("xor-operator", lambda x, y: x ^ y, boolean(9), boolean(9)),
    Row("and-operator-number", lambda x: x & 6, i64(9), opsets=ALL),
    Row("or-operator-number", lambda x: x | 6, i64(9), opsets=ALL),
    Row("xor-operator-number", lambda x: x ^ 6, i64(9), opsets=ALL),
    Row("left-shift", torch.bitwise_left_shift, i64(9), i64(9, low=0, high=9)),
    Row("left-shift-number", lambda x: torch.bitwise_left_shift(x, 3), i32(9)),
    Row("left-shift-of-number", lambda x: torch.bitwise_left_shift(3, x), i64(9, low=0, high=9)),
    Row("left-shift-uint8", torch.bitwise_left_shift, u8(9), u8(9, low=0, high=7), trap="bits fall out"),
    Row("right-shift", torch.bitwise_right_shift, i64(9), i64(9, low=0, high=9), trap="the sign is shifted in"),
    Row("right-shift-number", lambda x: torch.bitwise_right_shift(x, 2), i32(9)),
    Row("right-shift-of-number", lambda x: torch.bitwise_right_shift(300, x), i64(9, low=0, high=9)),
    Row("right-shift-uint8", torch.bitwise_right_shift, u8(9), u8(9, low=0, high=7)),
    Row("left-shift-beyond", torch.bitwise_left_shift, i64(99), i64(99, low=-9, high=99), trap="nothing is left"),
    Row("left-shift-beyond-int32", torch.bitwise_left_shift, i32(99), i32(99, low=-9, high=50)),
    Row("right-shift-beyond", torch.bitwise_right_shift, i64(99), i64(99, low=-9, high=99), trap="the sign is left"),
    Row("right-shift-beyond-int32", torch.bitwise_right_shift, i32(99), i32(99, low=-9, high=50)),
    Row("right-shift-beyond-uint8", torch.bitwise_right_shift, u8(99), u8(99, low=0, high=40)),
    Row("right-shift-number-beyond", lambda x: torch.bitwise_right_shift(x, 31), i32(9)),
    Row("left-shift-operator", lambda x, y: x << y, i64(9), i64(9, low=0, high=9)),
    Row("left-shift-operator-number", lambda x: x << 2, i64(9)),
    Row("right-shift-operator", lambda x, y: x >> y, i64(9), i64(9, low=0, high=9)),
    Row("right-shift-operator-number", lambda x: x >> 2, i64(9)),
    Row(
        "gcd-int",
        torch.gcd,
        values([12, -18, 0, 7], torch.int64),
        values([8, 12, 5, 0], torch.int64),
        opsets=(20,),
    ),
    Row(
        "lcm",
        torch.lcm,
        values([12, -18, 0, 7], torch.int32),
        values([8, 12, 5, 0], torch.int32),
        opsets=(20,),
    ),
    Row("ldexp", torch.ldexp, f32(4), i64(4)),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
