"""Symmetric eigenvalues and singular values.  Vectors are compared by their sizes, or by what they compose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
linalg = torch.linalg
BOUNDS: dict[str, Any] = {"opsets": (9, 13, 23)}
SQUARE: dict[str, Any] = {
    "dynamic": {0: {0: "batch", 1: "n", 2: "n"}},
    "sizes": {"batch": 1, "n": 12},
    "opsets": (13, 23),
}
ANY: dict[str, Any] = {**SQUARE, "dynamic": {0: {1: "n", 2: "m"}}, "sizes": {"n": 7, "m": 9}}
SINGLE = {"dynamic": {0: {0: "n", 1: "n"}}, "sizes": {"n": 1}, "opsets": (23,)}
EQUAL = values([[2.0, 0, 0], [0, 2, 0], [0, 0, -1]])
RANK_1 = values([[1.0, 2, 3], [2, 4, 6], [-1, -2, -3], [0, 0, 0]])


def symmetric(x: Tensor) -> Tensor:
    return x + x.mT


def sizes_of_vectors(results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The vectors without their signs."""
    return tuple(item.abs() for item in results)


def of_symmetric(results: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The values, what they and the vectors compose, and whether the vectors are orthogonal."""
    found, vectors = results
    return found, (vectors * found.unsqueeze(-2)) @ vectors.mT, vectors.mT @ vectors


def of_any(results: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The values, what they and the vectors compose, and whether the vectors are orthogonal."""
    u, found, vh = results
    k = found.shape[-1]
    return found, (u[..., :k] * found.unsqueeze(-2)) @ vh[..., :k, :], u.mT @ u, vh @ vh.mT


SYMMETRIC = [
    Row(
        "eigh",
        lambda x: sizes_of_vectors(torch.linalg.eigh(symmetric(x))[1:]),
        f32(2, 4, 4),
        **BOUNDS,
        traced="infer the expected size of a list",
    ),
    Row("eigh-composes", lambda x: of_symmetric(torch.linalg.eigh(symmetric(x))), f32(2, 5, 5), **BOUNDS),
    Row("eigh-double", lambda x: of_symmetric(torch.linalg.eigh(symmetric(x))), f64(12, 12), **BOUNDS),
    Row("eigh-any", lambda x: of_symmetric(torch.linalg.eigh(symmetric(x))), f32(2, 3, 3), **SQUARE),
    Row("eigh-any-single", lambda x: of_symmetric(torch.linalg.eigh(symmetric(x))), f32(2, 2), **SINGLE),
    Row("eigh-upper", lambda x: torch.linalg.eigh(x, UPLO="U")[0], f32(3, 3), trap="one half counts", **BOUNDS),
    Row("eigh-lower", lambda x: torch.linalg.eigvalsh(x), f32(3, 3), trap="one half counts", **BOUNDS),
    Row("eigh-equal", lambda x: of_symmetric(torch.linalg.eigh(x)), EQUAL, **BOUNDS),
    Row("eigh-zero", lambda x: of_symmetric(torch.linalg.eigh(x)), values([[0.0, 0], [0, 0]]), **BOUNDS),
    Row("eigh-one", lambda x: torch.linalg.eigvalsh(x), f32(2, 1, 1), **BOUNDS),
    Row("eigh-no-rows", lambda x: torch.linalg.eigh(x), f32(2, 0, 0), **BOUNDS),
    Row("eigh-no-matrix", lambda x: torch.linalg.eigh(x), f32(0, 3, 3), **BOUNDS),
    Row("eigvalsh", lambda x: torch.linalg.eigvalsh(symmetric(x)), f32(2, 3, 3), dynamic="batch", **BOUNDS),
    Row(
        "eigvalsh-huge", lambda x: torch.linalg.eigvalsh(symmetric(x)) / 1e30, f32(3, 3, low=1e30, high=9e30), **BOUNDS
    ),
    Row("_eigh", lambda x: of_symmetric(aten._linalg_eigh(symmetric(x))), f32(3, 3), **BOUNDS),
    Row("_eigh-values", lambda x: aten._linalg_eigh(symmetric(x), "L", False), f32(3, 3), **BOUNDS),
]

SINGULAR = [
    Row(
        "svd-sizes",
        lambda x: sizes_of_vectors(torch.linalg.svd(x, full_matrices=False)),
        f32(2, 4, 3),
        **BOUNDS,
        traced="infer the expected size of a list",
    ),
    Row("svd", lambda x: of_any(torch.linalg.svd(x)), f32(2, 5, 3), dynamic="batch", **BOUNDS),
    Row("svd-wide", lambda x: of_any(torch.linalg.svd(x)), f32(3, 5), **BOUNDS),
    Row("svd-thin", lambda x: of_any(torch.linalg.svd(x, full_matrices=False)), f32(12, 10), **BOUNDS),
    Row("svd-any", lambda x: of_any(torch.linalg.svd(x)), f32(2, 5, 3), **ANY),
    Row("svd-thin-any", lambda x: of_any(torch.linalg.svd(x, full_matrices=False)), f32(2, 3, 5), **ANY),
    Row("svd-double", lambda x: of_any(torch.linalg.svd(x)), f64(11, 9), **BOUNDS),
    Row("svd-rank-1", lambda x: of_any(torch.linalg.svd(x)), RANK_1, trap="U is complete", **BOUNDS),
    Row("svd-zero", lambda x: of_any(torch.linalg.svd(x)), values([[0.0, 0], [0, 0]]), **BOUNDS),
    Row("svd-no-rows", lambda x: torch.linalg.svd(x), f32(2, 0, 3), opsets=(13, 23)),
    Row("svd-no-matrix", lambda x: torch.linalg.svd(x), f32(0, 2, 3), opsets=(13, 23)),
    Row(
        "svd-old",
        lambda x: sizes_of_vectors(torch.svd(x)),
        f32(4, 3),
        **BOUNDS,
        traced="infer the expected size of a list",
    ),
    Row("svd-old-values", lambda x: torch.svd(x, compute_uv=False), f32(4, 3), **BOUNDS),
    Row("_svd-values", lambda x: aten._linalg_svd(x, False, False), f32(4, 3), **BOUNDS),
    Row("_svd", lambda x: of_any(aten._linalg_svd(x)), f32(4, 3), **BOUNDS),
    Row("svdvals", lambda x: torch.linalg.svdvals(x), f32(2, 3, 4), dynamic="batch", **BOUNDS),
    Row("svdvals-any", lambda x: torch.linalg.svdvals(x), f32(2, 3, 4), **ANY),
    Row("svdvals-small", lambda x: torch.linalg.svdvals(x * 1e-30) * 1e30, f32(3, 4), **BOUNDS),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*SYMMETRIC, *SINGULAR]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (torch.linalg.eigh, True),
        (torch.linalg.svd, True),
        (torch.linalg.eigvalsh, False),
        (torch.linalg.svdvals, False),
    ],
    ids=lambda item: getattr(item, "__name__", str(item)),
)
def test_report_remarks_on_signs(function: Callable[..., Any], said: bool) -> None:
    program = purexport.export(function, (torch.eye(3),), capture="trace")
    assert any("signs of the vectors" in text for text in program.report.warnings) == said


@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.eigvals, aten._linalg_eigvals])
def test_complex_eigenvalues_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match=r"linalg_eig.*complex tensors"):
        purexport.export(function, (torch.eye(3),), capture="trace")
