"""Triangular systems, solve, inverse and determinants; few steps are written out, more are a Loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
BOUNDS: dict[str, Any] = {"opsets": (9, 13, 23)}
SQUARE: dict[str, Any] = {
    "dynamic": {0: {0: "batch", 1: "n", 2: "n"}},
    "sizes": {"batch": 1, "n": 11},
    "opsets": (13, 23),
}
BESIDE: dict[str, Any] = {**SQUARE, "dynamic": {0: {0: "batch", 1: "n", 2: "n"}, 1: {0: "batch", 1: "n"}}}
EXCHANGED = values([[0.0, 2, 1], [1, 1, 0], [3, 0, 1]])
SINGULAR = values([[[1.0, 2], [2, 4]], [[1, 2], [3, 4]]])


def positive(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def solved(x: torch.Tensor) -> torch.Tensor:
    """A well-conditioned matrix of any sign."""
    return x + 4 * torch.eye(x.shape[-1], dtype=x.dtype).flip(-1)


def factors(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linalg.lu_factor(solved(x))


TRIANGULAR = [
    Row(
        "triangular",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=False),
        f32(3, 3),
        f32(3, 2),
        **BOUNDS,
    ),
    Row(
        "triangular-upper",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=True),
        f32(2, 3, 3),
        f32(2, 3, 2),
        **BOUNDS,
    ),
    Row(
        "triangular-unit",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
        f32(3, 3),
        f32(3, 2),
        **BOUNDS,
    ),
    Row(
        "triangular-right",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=True, left=False),
        f32(3, 3),
        f32(2, 3),
        **BOUNDS,
    ),
    Row(
        "triangular-broadcast",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=True),
        f32(3, 1, 3, 3),
        f32(2, 3, 2),
        **BOUNDS,
    ),
    Row(
        "triangular-any",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=True),
        f32(2, 3, 3),
        f32(2, 3, 2),
        dynamic=BESIDE["dynamic"],
        sizes=BESIDE["sizes"],
        **BOUNDS,
    ),
    Row(
        "triangular-broadcast-any",
        lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=False),
        f32(2, 3, 3),
        f32(3, 2),
        dynamic={0: {0: "batch"}},
        opsets=(9, 23),
    ),
    Row(
        "triangular-old",
        lambda a, b: torch.triangular_solve(b, positive(a), transpose=True),
        f32(3, 3),
        f32(2, 3, 2),
        **BOUNDS,
    ),
    Row("cholesky-solve", lambda b, a: torch.cholesky_solve(b, positive(a)), f32(3, 2), f32(3, 3), **BOUNDS),
    Row("cholesky-solve-upper", lambda b, a: torch.cholesky_solve(b, a, True), f32(3, 2), f32(2, 3, 3), **BOUNDS),
    Row("cholesky-inverse", lambda a: torch.cholesky_inverse(positive(a), upper=True), f32(2, 3, 3), **BOUNDS),
]

SOLVE = [
    Row("inverse", lambda x: torch.inverse(solved(x)), f32(3, 3), **BOUNDS),
    Row("inverse-batch", lambda x: torch.linalg.inv(solved(x)), f32(2, 4, 4), dynamic="batch", **BOUNDS),
    Row("inverse-loop", lambda x: torch.linalg.inv(solved(x)), f32(9, 9), **BOUNDS),
    Row("inverse-any", lambda x: torch.linalg.inv(solved(x)), f32(2, 3, 3), **SQUARE),
    Row("inverse-exchange", lambda x: x.inverse(), EXCHANGED, trap="the first pivot is 0", **BOUNDS),
    Row("inverse-double", lambda x: solved(x).inverse(), f64(3, 3), **BOUNDS),
    Row("inverse-no-matrix", lambda x: torch.linalg.inv(x), f32(0, 3, 3), **BOUNDS),
    Row("inverse-ex", lambda x: torch.linalg.inv_ex(solved(x)), f32(2, 3, 3), **BOUNDS),
    Row("inverse-info", lambda x: torch.linalg.inv_ex(x)[1], SINGULAR, trap="the first pivot that is 0", **BOUNDS),
    Row("solve", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(3, 2), **BOUNDS),
    Row("solve-vector", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(3), **BOUNDS),
    Row("solve-vectors", lambda a, b: torch.linalg.solve(solved(a), b), f32(2, 3, 3), f32(2, 3), **BOUNDS),
    Row("solve-right", lambda a, b: torch.linalg.solve(solved(a), b, left=False), f32(3, 3), f32(2, 3), **BOUNDS),
    Row("solve-broadcast", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(2, 3, 2), **BOUNDS),
    Row("solve-any", lambda a, b: torch.linalg.solve(solved(a), b), f32(2, 3, 3), f32(2, 3, 4), **BESIDE),
    Row("solve-ex", lambda a, b: torch.linalg.solve_ex(solved(a), b), f32(3, 3), f32(3, 2), **BOUNDS),
    Row("solve-info", lambda a, b: torch.linalg.solve_ex(a, b)[1], SINGULAR, f32(2, 2), **BOUNDS),
    Row("_solve-ex", lambda a, b: aten._linalg_solve_ex(solved(a), b), f32(2, 3, 3), f32(2, 3, 2), **BOUNDS),
    Row("lu-solve", lambda a, b: torch.linalg.lu_solve(*factors(a), b), f32(3, 3), f32(3, 2), **BOUNDS),
    Row("lu-solve-any", lambda a, b: torch.linalg.lu_solve(*factors(a), b), f32(2, 3, 3), f32(2, 3, 4), **BESIDE),
    Row(
        "lu-solve-adjoint",
        lambda a, b: torch.linalg.lu_solve(*factors(a), b, adjoint=True),
        f32(2, 3, 3),
        f32(3, 2),
        **BOUNDS,
    ),
    Row(
        "lu-solve-right", lambda a, b: torch.linalg.lu_solve(*factors(a), b, left=False), f32(3, 3), f32(2, 3), **BOUNDS
    ),
    Row("lu-solve-old", lambda a, b: torch.lu_solve(b, *factors(a)), f32(2, 3, 3), f32(2, 3, 2), **BOUNDS),
]

DETERMINANT = [
    Row("det", lambda x: solved(x).det(), f32(3, 3), **BOUNDS),
    Row("det-batch", lambda x: torch.linalg.det(solved(x)), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("det-exchange", lambda x: x.det(), EXCHANGED, **BOUNDS),
    Row("det-singular", lambda x: x.det(), values([[1.0, 2], [2, 4]]), **BOUNDS),
    Row("det-double", lambda x: solved(x).det(), f64(3, 3), **BOUNDS),
    Row("det-any", lambda x: torch.linalg.det(solved(x) / 4), f64(2, 3, 3), **SQUARE),
    Row("_det", lambda x: aten._linalg_det(x), f32(2, 3, 3), **BOUNDS),
    Row("slogdet", lambda x: torch.slogdet(solved(x)), f32(2, 3, 3), **BOUNDS),
    Row("slogdet-any", lambda x: torch.slogdet(solved(x)), f32(2, 3, 3), **SQUARE),
    Row("slogdet-singular", lambda x: torch.linalg.slogdet(x), SINGULAR, trap="sign 0 and -inf", **BOUNDS),
    Row("linalg-slogdet", lambda x: torch.linalg.slogdet(x), EXCHANGED, **BOUNDS),
    Row("_slogdet", lambda x: aten._linalg_slogdet(x), f32(2, 3, 3), **BOUNDS),
    Row("logdet", lambda x: torch.logdet(positive(x)), f32(3, 3), **BOUNDS),
    Row("logdet-negative", lambda x: torch.logdet(x), values([[0.0, 1], [1, 0]]), trap="NaN", **BOUNDS),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*TRIANGULAR, *SOLVE, *DETERMINANT]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
