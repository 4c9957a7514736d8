"""Cholesky, LU and QR: written out where the matrix is small, a Loop where it is larger or of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

OPSETS = (9, 13, 23)
BOUNDS: dict[str, Any] = {"opsets": OPSETS}
# beyond the steps that are written out
SQUARE: dict[str, Any] = {"dynamic": {0: {0: "batch", 1: "n", 2: "n"}}, "sizes": {"batch": 1, "n": 11}}
ANY: dict[str, Any] = {"dynamic": {0: {1: "n", 2: "m"}}, "sizes": {"n": 11, "m": 4}, "opsets": OPSETS}
TIES = values([[1.0, 2, 3], [-1, 5, 6], [1, 0, 2]])


def positive(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


CHOLESKY = [
    Row("cholesky", lambda x: torch.linalg.cholesky(positive(x)), f32(3, 3), **BOUNDS),
    Row("cholesky-loop", lambda x: torch.linalg.cholesky(positive(x)), f32(2, 12, 12), **BOUNDS),
    Row("cholesky-any", lambda x: torch.linalg.cholesky(positive(x)), f32(2, 3, 3), **SQUARE, **BOUNDS),
    Row("cholesky-upper", lambda x: torch.linalg.cholesky(positive(x), upper=True), f32(2, 3, 3), **BOUNDS),
    Row("cholesky-double", lambda x: torch.linalg.cholesky(positive(x)), f64(10, 10), **BOUNDS),
    Row("cholesky-old", lambda x: torch.cholesky(positive(x)), f32(3, 3), **BOUNDS),
    Row("cholesky-no-matrix", lambda x: torch.linalg.cholesky(x), f32(0, 3, 3), **BOUNDS),
    Row("cholesky-no-rows", lambda x: torch.linalg.cholesky(x), f32(2, 0, 0), **BOUNDS),
    Row("cholesky-ex", lambda x: torch.linalg.cholesky_ex(positive(x)), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row("cholesky-ex-no-rows", lambda x: torch.linalg.cholesky_ex(x)[1], f32(2, 0, 0), **BOUNDS),
    Row(
        "cholesky-ex-info",
        lambda x: torch.linalg.cholesky_ex(x)[1],
        values(
            [[[1.0, 0, 0], [0, 4, 0], [0, 4, 3]], [[1, 0, 0], [0, 4, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]]]
        ),
        trap="the first that is not positive, from 1 on",
        **BOUNDS,
    ),
    Row(
        "cholesky-half",
        lambda x: torch.linalg.cholesky(x),
        values([[4.0, 9], [2, 5]]),
        trap="only the lower half counts",
        **BOUNDS,
    ),
]

LU = [
    Row("lu", lambda x: torch.linalg.lu(x), f32(2, 4, 4), dynamic="batch", **BOUNDS),
    Row("lu-tall", lambda x: torch.linalg.lu(x), f32(4, 3), **BOUNDS),
    Row("lu-wide", lambda x: torch.linalg.lu(x), f32(3, 4), **BOUNDS),
    Row("lu-loop", lambda x: torch.linalg.lu(x), f32(2, 11, 12), **BOUNDS),
    Row("lu-any", lambda x: torch.linalg.lu(x), f32(2, 3, 5), **ANY),
    Row("lu-double", lambda x: torch.linalg.lu(x), f64(9, 10), **BOUNDS),
    Row("lu-no-rows", lambda x: torch.linalg.lu(x), f32(2, 0, 3), opsets=(13, 23)),
    Row("lu-ties", lambda x: torch.linalg.lu_factor(x), TIES, trap="the first of equal pivots", **BOUNDS),
    Row("lu-factor", lambda x: torch.linalg.lu_factor(x), f32(2, 5, 3), **BOUNDS),
    Row(
        "lu-factor-ex",
        lambda x: torch.linalg.lu_factor_ex(x),
        values([[[1.0, 2], [2, 4]], [[1, 2], [3, 4]], [[0, 1], [0, 2]]]),
        trap="a pivot of 0 is named, and its column left alone",
        **BOUNDS,
    ),
    Row("lu-old", lambda x: torch.lu(x), f32(3, 3), **BOUNDS),
    Row("lu-unpack", lambda x: torch.lu_unpack(*torch.linalg.lu_factor(x)), f32(2, 5, 3), **BOUNDS),
    Row("lu-unpack-any", lambda x: torch.lu_unpack(*torch.linalg.lu_factor(x)), f32(2, 3, 5), **ANY),
    Row(
        "lu-unpack-pivots",
        lambda x: torch.lu_unpack(*torch.linalg.lu_factor(x), unpack_data=False),
        f32(3, 3),
        **BOUNDS,
    ),
]

QR = [
    Row("qr", lambda x: torch.linalg.qr(x), f32(2, 4, 3), dynamic="batch", **BOUNDS),
    Row("qr-wide", lambda x: torch.linalg.qr(x), f32(3, 4), **BOUNDS),
    Row("qr-complete", lambda x: torch.linalg.qr(x, mode="complete"), f32(4, 3), **BOUNDS),
    Row("qr-r", lambda x: torch.linalg.qr(x, mode="r"), f32(4, 3), **BOUNDS),
    Row("qr-loop", lambda x: torch.linalg.qr(x), f32(2, 10, 12), **BOUNDS),
    Row("qr-any", lambda x: torch.linalg.qr(x), f32(2, 3, 5), **ANY),
    Row("qr-double", lambda x: torch.linalg.qr(x), f64(10, 9), **BOUNDS),
    Row("qr-triangle", lambda x: torch.linalg.qr(x.triu()), f32(3, 3), trap="nothing to reflect", **BOUNDS),
    Row("qr-no-matrix", lambda x: torch.linalg.qr(x), f32(0, 3, 2), **BOUNDS),
    Row("qr-old", lambda x: torch.qr(x, some=False), f32(4, 3), **BOUNDS),
    Row("geqrf", lambda x: torch.geqrf(x), f32(2, 4, 3), **BOUNDS),
    Row("householder", lambda x: torch.linalg.householder_product(*torch.geqrf(x)), f32(2, 4, 3), **BOUNDS),
    Row("householder-few", lambda x, t: torch.linalg.householder_product(x, t), f32(2, 4, 3), f32(2, 2), **BOUNDS),
    Row("orgqr", lambda x: torch.orgqr(*torch.geqrf(x)), f32(4, 3), **BOUNDS),
    Row("ormqr", lambda x, c: torch.ormqr(*torch.geqrf(x), c), f32(2, 4, 3), f32(2, 4, 5), **BOUNDS),
    Row("ormqr-right", lambda x, c: torch.ormqr(*torch.geqrf(x), c, False, True), f32(2, 4, 3), f32(2, 5, 4), **BOUNDS),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*CHOLESKY, *LU, *QR]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
