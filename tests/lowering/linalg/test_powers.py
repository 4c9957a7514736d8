"""Powers and the exponential of matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

BOUNDS: dict[str, Any] = {"opsets": (9, 13, 23)}
SQUARE: dict[str, Any] = {"dynamic": {0: {0: "batch", 1: "n", 2: "n"}}, "sizes": {"batch": 1, "n": 11}}


def solved(x: torch.Tensor) -> torch.Tensor:
    """A well-conditioned matrix of any sign."""
    return x + 4 * torch.eye(x.shape[-1], dtype=x.dtype).flip(-1)


POWERS = [
    Row("power-0", lambda x: torch.linalg.matrix_power(x, 0), f32(2, 3, 3), **BOUNDS),
    Row("power-1", lambda x: x.matrix_power(1), f32(3, 3), **BOUNDS),
    Row("power-5", lambda x: x.matrix_power(5), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("power-minus-2", lambda x: solved(x).matrix_power(-2), f32(3, 3), **BOUNDS),
    Row("power-minus-2-any", lambda x: solved(x).matrix_power(-2), f32(2, 3, 3), **SQUARE, opsets=(13, 23)),
    Row("exp", lambda x: torch.matrix_exp(x), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("exp-large", lambda x: torch.linalg.matrix_exp(3 * x), f32(3, 3), **BOUNDS),
    Row("exp-double", lambda x: torch.linalg.matrix_exp(5 * x), f64(2, 3, 3), **BOUNDS),
    Row("exp-any", lambda x: torch.matrix_exp(x / 3), f32(2, 3, 3), **SQUARE, **BOUNDS),
    Row("exp-zero", lambda x: torch.matrix_exp(x), values([[0.0, 0], [0, 0]]), **BOUNDS),
    Row("exp-no-matrix", lambda x: torch.matrix_exp(x), f32(0, 3, 3), **BOUNDS),
]


@pytest.mark.parametrize(("row", "plan"), row_params(POWERS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
