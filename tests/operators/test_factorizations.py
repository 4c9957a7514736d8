"""Inverse, solve, determinants, Cholesky, triangular systems, QR and exponential, unrolled."""

from __future__ import annotations

import pytest
import torch

from tests.harness import Row, f32, f64, row_params, run_row, values

OPSETS = (9, 13, 23)
EXCHANGED = values([[0.0, 2, 1], [1, 1, 0], [3, 0, 1]])
BOUNDS = {"opsets": OPSETS, "rtol": 1e-3, "atol": 1e-4}


def positive(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def solved(x: torch.Tensor) -> torch.Tensor:
    """A well-conditioned matrix of any sign."""
    return x + 4 * torch.eye(x.shape[-1], dtype=x.dtype).flip(-1)


SOLVE = [
    Row("inverse", lambda x: torch.inverse(solved(x)), f32(3, 3), **BOUNDS),
    Row("inverse-batch", lambda x: torch.linalg.inv(solved(x)), f32(2, 4, 4), dynamic="batch", **BOUNDS),
    Row("inverse-exchange", lambda x: x.inverse(), EXCHANGED, trap="the first pivot is 0", **BOUNDS),
    Row("inverse-double", lambda x: solved(x).inverse(), f64(3, 3), **BOUNDS),
    Row("inverse-ex", lambda x: torch.linalg.inv_ex(solved(x)), f32(2, 3, 3), **BOUNDS),
    Row("solve", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(3, 2), **BOUNDS),
    Row("solve-vector", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(3), **BOUNDS),
    Row("solve-vectors", lambda a, b: torch.linalg.solve(solved(a), b), f32(2, 3, 3), f32(2, 3), **BOUNDS),
    Row("solve-right", lambda a, b: torch.linalg.solve(solved(a), b, left=False), f32(3, 3), f32(2, 3), **BOUNDS),
    Row("solve-broadcast", lambda a, b: torch.linalg.solve(solved(a), b), f32(3, 3), f32(2, 3, 2), **BOUNDS),
    Row("solve-ex", lambda a, b: torch.linalg.solve_ex(solved(a), b), f32(3, 3), f32(3, 2), **BOUNDS),
]

DETERMINANT = [
    Row("det", lambda x: solved(x).det(), f32(3, 3), **BOUNDS),
    Row("det-batch", lambda x: torch.linalg.det(solved(x)), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("det-exchange", lambda x: x.det(), EXCHANGED, **BOUNDS),
    Row("det-singular", lambda x: x.det(), values([[1.0, 2], [2, 4]]), **BOUNDS),
    Row("det-double", lambda x: solved(x).det(), f64(3, 3), **BOUNDS),
    Row("slogdet", lambda x: torch.slogdet(solved(x)), f32(2, 3, 3), **BOUNDS),
    Row("linalg-slogdet", lambda x: torch.linalg.slogdet(x), EXCHANGED, **BOUNDS),
    Row("logdet", lambda x: torch.logdet(positive(x)), f32(3, 3), **BOUNDS),
    Row("logdet-negative", lambda x: torch.logdet(x), values([[0.0, 1], [1, 0]]), trap="NaN", **BOUNDS),
]

TRIANGULAR = [
    Row("cholesky", lambda x: torch.linalg.cholesky(positive(x)), f32(3, 3), **BOUNDS),
    Row("cholesky-upper", lambda x: torch.linalg.cholesky(positive(x), upper=True), f32(2, 3, 3), **BOUNDS),
    Row("cholesky-old", lambda x: torch.cholesky(positive(x)), f32(3, 3), **BOUNDS),
    Row("cholesky-ex", lambda x: torch.linalg.cholesky_ex(positive(x)), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row(
        "cholesky-half",
        lambda x: torch.linalg.cholesky(x),
        values([[4.0, 9], [2, 5]]),
        trap="only the lower half counts",
        **BOUNDS,
    ),
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
        "triangular-old",
        lambda a, b: torch.triangular_solve(b, positive(a), transpose=True)[0],
        f32(3, 3),
        f32(3, 2),
        **BOUNDS,
    ),
    Row("cholesky-solve", lambda b, a: torch.cholesky_solve(b, positive(a)), f32(3, 2), f32(3, 3), **BOUNDS),
    Row("cholesky-inverse", lambda a: torch.cholesky_inverse(positive(a), upper=True), f32(3, 3), **BOUNDS),
]

POWERS = [
    Row("power-0", lambda x: torch.linalg.matrix_power(x, 0), f32(2, 3, 3), **BOUNDS),
    Row("power-1", lambda x: x.matrix_power(1), f32(3, 3), **BOUNDS),
    Row("power-5", lambda x: x.matrix_power(5), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("power-minus-2", lambda x: solved(x).matrix_power(-2), f32(3, 3), **BOUNDS),
    Row("exp", lambda x: torch.matrix_exp(x), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("exp-large", lambda x: torch.linalg.matrix_exp(3 * x), f32(3, 3), **BOUNDS),
    Row("exp-double", lambda x: torch.linalg.matrix_exp(x), f64(3, 3), **BOUNDS),
    Row("qr", lambda x: torch.linalg.qr(x), f32(2, 4, 3), dynamic="batch", **BOUNDS),
    Row("qr-wide", lambda x: torch.linalg.qr(x), f32(3, 4), **BOUNDS),
    Row("qr-complete", lambda x: torch.linalg.qr(x, mode="complete"), f32(4, 3), **BOUNDS),
    Row("qr-r", lambda x: torch.linalg.qr(x, mode="r")[1], f32(4, 3), **BOUNDS),
]


@pytest.mark.parametrize(("row", "route", "opset"), row_params([*SOLVE, *DETERMINANT, *TRIANGULAR, *POWERS]))
def test_row(row: Row, route: str, opset: int) -> None:
    run_row(row, route, opset)
