"""Covariance and correlation, with weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.harness import Row, f32, f64, i64, values
from tests.row_plans import Plan, row_params, run_row

FEW: dict[str, Any] = {"opsets": (9, 13, 23)}

COVARIANCE = [
    Row("cov", lambda x: torch.cov(x), f32(3, 5), **FEW),
    Row("cov-any", lambda x: torch.cov(x), f32(3, 5), dynamic={0: {0: "n", 1: "m"}}, **FEW),
    Row("cov-correction", lambda x: torch.cov(x, correction=0), f64(3, 5), **FEW),
    Row("cov-vector", lambda x: torch.cov(x), f32(5), **FEW),
    Row("cov-number", lambda x: torch.cov(x), f32(), trap="NaN of one observation", **FEW),
    Row("cov-integers", lambda x: torch.cov(x), i64(3, 5), **FEW),
    Row("cov-counts", lambda x, w: torch.cov(x, fweights=w), f32(3, 5), i64(5, low=1, high=4), **FEW),
    Row("cov-weights", lambda x, w: torch.cov(x, aweights=w), f32(3, 5), f32(5, low=0, high=1), **FEW),
    Row(
        "cov-both",
        lambda x, c, w: torch.cov(x, correction=2, fweights=c, aweights=w),
        f32(3, 5),
        i64(5, low=1, high=4),
        f32(5, low=0, high=1),
        **FEW,
    ),
    Row("cov-few", lambda x: torch.cov(x), values([[1.0], [2]]), trap="0 / 0", **FEW),
    Row("corrcoef", lambda x: torch.corrcoef(x), f32(3, 5), **FEW),
    Row("corrcoef-any", lambda x: torch.corrcoef(x), f32(3, 5), dynamic={0: {0: "n", 1: "m"}}, **FEW),
    Row("corrcoef-equal", lambda x: torch.corrcoef(x), values([[1.0, 2, 3], [2, 4, 6.1], [1, 1, 1]]), **FEW),
    Row("corrcoef-vector", lambda x: torch.corrcoef(x), f32(5), **FEW),
]


@pytest.mark.parametrize(("row", "plan"), row_params(COVARIANCE))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
