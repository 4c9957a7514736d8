"""Factors of symmetric matrices, with blocks of one and two rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

linalg = torch.linalg
BOUNDS: dict[str, Any] = {"opsets": (9, 13, 23)}
SQUARE: dict[str, Any] = {"dynamic": {0: {0: "batch", 1: "n", 2: "n"}}, "sizes": {"batch": 1, "n": 12}}
BESIDE: dict[str, Any] = {**SQUARE, "dynamic": {**SQUARE["dynamic"], 1: {0: "batch", 1: "n"}}}
# one of a block of two first, one of blocks of one, one of both
MIXED = values(
    [[[0.0, 1, 2], [1, 0, 3], [2, 3, 0]], [[9, 1, 1], [1, 8, 1], [1, 1, 7]], [[5, 1, 0], [1, 0, 2], [0, 2, 0]]]
)


def symmetric(x: Tensor) -> Tensor:
    return x + x.mT


LDL = [
    Row("ldl", lambda x: linalg.ldl_factor(symmetric(x)), f64(4, 6, 6), **BOUNDS),
    Row("ldl-mixed", lambda x: linalg.ldl_factor_ex(x), MIXED, trap="each at a row of its own", **BOUNDS),
    Row("ldl-any", lambda x: linalg.ldl_factor(symmetric(x)), f64(2, 3, 3), **SQUARE, **BOUNDS),
    Row("ldl-half", lambda x: linalg.ldl_factor(x), f32(3, 3), trap="only the lower half counts", **BOUNDS),
    Row("ldl-zero", lambda x: linalg.ldl_factor_ex(x), values([[0.0, 0], [0, 1]]), trap="info", **BOUNDS),
    Row("ldl-one", lambda x: linalg.ldl_factor_ex(x), f32(1, 1), **BOUNDS),
    Row("ldl-no-rows", lambda x: linalg.ldl_factor_ex(x), f32(0, 0), **BOUNDS),
    Row("ldl-no-matrix", lambda x: linalg.ldl_factor_ex(x), f32(0, 2, 2), **BOUNDS),
    Row("ldl-hermitian", lambda x: linalg.ldl_factor(symmetric(x), hermitian=True), f32(3, 3), **BOUNDS),
    Row("ldl-solve", lambda a, b: linalg.ldl_solve(*linalg.ldl_factor(a), b), MIXED, f32(3, 3, 2), **BOUNDS),
    Row("ldl-solve-broadcast", lambda a, b: linalg.ldl_solve(*linalg.ldl_factor(a), b), MIXED, f32(3, 2), **BOUNDS),
    Row(
        "ldl-solve-any",
        lambda a, b: linalg.ldl_solve(*linalg.ldl_factor(symmetric(a)), b),
        f64(2, 3, 3),
        f64(2, 3, 2),
        **BESIDE,
        **BOUNDS,
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(LDL))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
