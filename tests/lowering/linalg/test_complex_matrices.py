"""Complex matrices: factorizations, systems, determinants, eigenvalues, singular values and what follows from them.

Vectors that are unique up to a factor of magnitude 1 are compared by what they compose. The factors of LU and QR are
those of LAPACK, whose choice of pivots and signs the rows compare too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.harness import Row, c64, c128, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
linalg = torch.linalg
# the routes agree on what these rules are given: a few rows take all of them
ALL: dict[str, Any] = {"opsets": (13,)}
BOUNDS: dict[str, Any] = {"opsets": (13,), "routes": ("trace",)}
ANY: dict[str, Any] = {
    "dynamic": {0: {0: "n", 1: "m"}},
    "sizes": {"n": 9, "m": 4},
    "opsets": (20,),
    "routes": ("trace",),
}
SQUARE: dict[str, Any] = {"dynamic": {0: {0: "n", 1: "n"}}, "sizes": {"n": 10}, "opsets": (20,), "routes": ("trace",)}
# |re| + |im| and the magnitude order these rows in opposite ways
PIVOTS = values([[2.9 + 0j, 1, 2j], [2 + 2j, 3, 1], [0.5j, 1j, 4]], torch.complex64)
EQUAL = values([[2 + 0j, 0, 0], [0, 2, 1j], [0, -1j, 2]], torch.complex64)
RANK_1 = values([[1 + 1j, 2j, 3], [2 + 2j, 4j, 6], [-1 - 1j, -2j, -3], [0, 0, 0]], torch.complex64)


def hermitian(z: Tensor) -> Tensor:
    return z + z.mH


def positive(z: Tensor) -> Tensor:
    return z @ z.mH + 0.5 * torch.eye(3)


def of_hermitian(results: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    found, vectors = results
    return found, (vectors * found.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors


def of_any(results: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    u, found, vh = results
    k = found.shape[-1]
    return found, (u[..., :k] * found.unsqueeze(-2)) @ vh[..., :k, :], u.mH @ u, vh @ vh.mH


FACTORS = [
    Row("cholesky", lambda z: linalg.cholesky(positive(z)), c64(2, 3, 3), dynamic="batch", **ALL),
    Row("cholesky-upper", lambda z: torch.cholesky(positive(z), upper=True), c64(3, 3), **BOUNDS),
    Row("cholesky_ex", lambda z: linalg.cholesky_ex(z @ z.mH + torch.eye(9)), c64(9, 9), **BOUNDS),
    Row("cholesky_ex-not-positive", lambda z: linalg.cholesky_ex(-positive(z))[1], c64(2, 3, 3), **BOUNDS),
    Row("cholesky_solve", lambda z, b: torch.cholesky_solve(b, z), c64(3, 3), c64(3, 2), **BOUNDS),
    Row("cholesky_solve-upper", lambda z, b: torch.cholesky_solve(b, z, upper=True), c64(3, 3), c64(3, 2), **BOUNDS),
    Row("cholesky_inverse", lambda z: torch.cholesky_inverse(linalg.cholesky(positive(z))), c64(3, 3), **BOUNDS),
    Row("lu", linalg.lu, c64(2, 4, 3), dynamic="batch", **ALL),
    Row("lu-pivots", lambda z: linalg.lu_factor(z), PIVOTS, trap="LAPACK adds the parts of a pivot", **BOUNDS),
    Row("lu-wide", lambda z: linalg.lu_factor_ex(z), c64(3, 5), **BOUNDS),
    Row("lu-any", linalg.lu, c64(3, 3), **ANY),
    Row("lu-singular", lambda z: linalg.lu_factor_ex(z)[1:], values([[0j, 1], [0, 2]], torch.complex64), **BOUNDS),
    Row("lu_with_info", lambda z: aten._lu_with_info(z), c64(3, 3), **BOUNDS),
    Row("lu_unpack", lambda z: torch.lu_unpack(*linalg.lu_factor(z)), c64(4, 3), **ALL),
    Row("lu_unpack-pivots", lambda z: torch.lu_unpack(*linalg.lu_factor(z), unpack_data=False)[0], c64(3, 3), **BOUNDS),
    Row("lu_solve", lambda z, b: linalg.lu_solve(*linalg.lu_factor(z), b), c64(3, 3), c64(3, 2), **BOUNDS),
    Row("old-lu_solve", lambda z, b: torch.lu_solve(b, *linalg.lu_factor(z)), c64(3, 3), c64(3, 2), **BOUNDS),
    *[
        Row(
            f"lu_solve-left-{left}-adjoint-{adjoint}",
            lambda z, b, left=left, adjoint=adjoint: linalg.lu_solve(
                *linalg.lu_factor(z), b if left else b.mT, left=left, adjoint=adjoint
            ),
            c64(3, 3),
            c64(3, 2),
            **BOUNDS,
        )
        for left, adjoint in ((True, True), (False, False), (False, True))
    ],
    Row("geqrf", torch.geqrf, c64(2, 4, 3), dynamic="batch", **BOUNDS),
    Row("geqrf-zeros", torch.geqrf, values([[1 + 2j, 1], [0, 3j]], torch.complex64), **BOUNDS),
    Row("geqrf-real", torch.geqrf, values([[1 + 0j, 1], [0, 3]], torch.complex64), trap="no reflection", **BOUNDS),
    Row("qr", linalg.qr, c64(4, 3), **ALL),
    Row("qr-wide", linalg.qr, c64(3, 5), **BOUNDS),
    Row("qr-any", linalg.qr, c64(4, 3), **ANY),
    Row("qr-complete", lambda z: linalg.qr(z, mode="complete"), c64(4, 2), **BOUNDS),
    Row("qr-r", lambda z: linalg.qr(z, mode="r")[1], c64(4, 3), **BOUNDS),
    Row("old-qr", lambda z: torch.qr(z, some=False), c64(3, 2), **BOUNDS),
    Row("householder_product", lambda z: linalg.householder_product(*torch.geqrf(z)), c64(4, 3), **BOUNDS),
    Row("orgqr", lambda z: torch.orgqr(*torch.geqrf(z)), c64(4, 3), **BOUNDS),
    Row("orgqr-given", torch.orgqr, c64(4, 3), c64(3), opsets=(13,), routes=("export", "script")),
    Row(
        "ormqr",
        lambda z, b: (torch.ormqr(*torch.geqrf(z), b), torch.ormqr(*torch.geqrf(z), b, transpose=True)),
        c64(4, 3),
        c64(4, 2),
        **BOUNDS,
    ),
    Row("ormqr-right", lambda z, b: torch.ormqr(*torch.geqrf(z), b, left=False), c64(4, 3), c64(2, 4), **BOUNDS),
]

SYSTEMS = [
    Row("solve_triangular", lambda z, b: linalg.solve_triangular(z, b, upper=True), c64(3, 3), c64(3, 2), **BOUNDS),
    Row(
        "solve_triangular-right",
        lambda z, b: linalg.solve_triangular(z, b, upper=False, left=False, unitriangular=True),
        c64(3, 3),
        c64(2, 3),
        **BOUNDS,
    ),
    Row("triangular_solve", lambda z, b: torch.triangular_solve(b, z, transpose=True), c64(3, 3), c64(3, 2), **BOUNDS),
    Row("solve_ex", lambda z, b: linalg.solve_ex(z, b), c64(2, 3, 3), c64(2, 3), dynamic="batch", **ALL),
    Row("_solve_ex", lambda z, b: aten._linalg_solve_ex(z, b, left=False), c64(3, 3), c64(2, 3), **BOUNDS),
    Row("solve-any", linalg.solve, c64(3, 3), c64(3, 2), dynamic={0: {0: "n", 1: "n"}, 1: {0: "n"}}, opsets=(20,)),
    Row("inv_ex", linalg.inv_ex, c64(2, 3, 3), **BOUNDS),
    Row("inv", lambda z: (z.inverse(), linalg.inv(z)), c64(3, 3), **BOUNDS),
    Row("tensorinv", lambda z: linalg.tensorinv(z, ind=1), c64(4, 2, 2), **BOUNDS),
    Row("det", lambda z: (linalg.det(z), torch.det(z)), c64(2, 3, 3), **ALL),
    Row("_linalg_det", lambda z: aten._linalg_det(z)[0], c64(2, 3, 3), **BOUNDS),
    Row("det-empty", linalg.det, c64(0, 0), **BOUNDS),
    Row("slogdet", linalg.slogdet, c64(2, 3, 3), **BOUNDS),
    Row("logdet", torch.logdet, c64(3, 3), **BOUNDS),
    Row("matrix_exp", torch.matrix_exp, c64(2, 3, 3), dynamic="batch", **ALL),
    Row("matrix_exp-any", linalg.matrix_exp, c64(3, 3, low=-0.5, high=0.5), **SQUARE),
    Row("matrix_exp-empty", linalg.matrix_exp, c64(0, 0), **BOUNDS),
]

SPECTRA = [
    Row("eigh", lambda z: of_hermitian(linalg.eigh(hermitian(z))), c64(2, 4, 4), **ALL),
    Row("eigh-double", lambda z: of_hermitian(linalg.eigh(hermitian(z))), c128(5, 5), **BOUNDS),
    Row("eigh-any", lambda z: of_hermitian(linalg.eigh(hermitian(z))), c64(3, 3), **SQUARE),
    Row("eigh-equal", lambda z: of_hermitian(linalg.eigh(z)), EQUAL, **BOUNDS),
    Row("eigh-unit", lambda z: of_hermitian(linalg.eigh(z)), values([[1 + 0j, 0], [0, 1]], torch.complex64), **BOUNDS),
    Row("eigh-upper", lambda z: linalg.eigvalsh(z, UPLO="U"), c64(3, 3), trap="one half counts", **BOUNDS),
    Row("eigh-lower", lambda z: linalg.eigh(z)[0], c64(3, 3), trap="one half counts", **BOUNDS),
    Row("eigh-empty", linalg.eigh, c64(2, 0, 0), **BOUNDS),
    Row("svd", lambda z: of_any(linalg.svd(z)), c64(2, 4, 3), **ALL),
    Row("svd-wide", lambda z: of_any(linalg.svd(z)), c64(3, 5), **BOUNDS),
    Row("svd-thin", lambda z: of_any(linalg.svd(z, full_matrices=False)), c64(5, 3), **BOUNDS),
    Row("svd-any", lambda z: of_any(linalg.svd(z)), c64(4, 3), **ANY),
    Row("svd-rank", lambda z: of_any(linalg.svd(z)), RANK_1, **BOUNDS),
    Row("svd-empty", linalg.svd, c64(2, 0), **BOUNDS),
    Row("svdvals", linalg.svdvals, c64(2, 3, 4), dynamic="batch", **BOUNDS),
    Row(
        "norms", lambda z: (linalg.matrix_norm(z, "nuc"), linalg.matrix_norm(z, 2), linalg.cond(z)), c64(3, 3), **BOUNDS
    ),
    Row(
        "matrix_rank", lambda z: (linalg.matrix_rank(z), linalg.matrix_rank(z.mH @ z, hermitian=True)), RANK_1, **BOUNDS
    ),
    Row("pinv", linalg.pinv, c64(2, 4, 3), dynamic="batch", **ALL),
    Row("pinv-hermitian", lambda z: linalg.pinv(hermitian(z), hermitian=True), c64(3, 3), **BOUNDS),
    Row("pinv-rcond", lambda z: aten.linalg_pinv.rcond_tensor(z, torch.tensor(1e-3)), RANK_1, **BOUNDS),
    Row("pinv-rank", lambda z: linalg.pinv(z, rtol=1e-3), RANK_1, **BOUNDS),
    Row("pinv-empty", linalg.pinv, c64(0, 3), **BOUNDS),
    Row("old-pinv", lambda z: (torch.pinverse(z), linalg.pinv(z, 1e-5)), c64(3, 4), **BOUNDS),
    Row("lstsq", lambda z, b: linalg.lstsq(z, b)[0], c64(4, 3), c64(4, 2), **BOUNDS),
    Row("lstsq-residuals", lambda z, b: linalg.lstsq(z, b, driver="gelsd"), c64(4, 3), c64(4, 2), **ALL),
    Row("lstsq-gels", lambda z, b: linalg.lstsq(z, b, driver="gels")[:2], c64(2, 4, 3), c64(2, 4, 1), **BOUNDS),
]

ROWS = FACTORS + SYSTEMS + SPECTRA


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
