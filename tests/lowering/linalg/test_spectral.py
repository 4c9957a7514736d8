"""What singular values decide: matrix norms, condition, rank, pseudo-inverse and least squares."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.harness import Row, f32, f64, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
linalg = torch.linalg
BOUNDS: dict[str, Any] = {"opsets": (9, 13, 23)}
ANY: dict[str, Any] = {
    "dynamic": {0: {0: "batch", 1: "n", 2: "m"}},
    "sizes": {"batch": 1, "n": 7, "m": 9},
    "opsets": (13, 23),
}
# torch.export holds the sizes of norms, of conditions and of products of several matrices
TRACED: dict[str, Any] = {**ANY, "routes": ("trace",)}
SQUARE: dict[str, Any] = {**TRACED, "dynamic": {0: {0: "batch", 1: "n", 2: "n"}}}
SINGULAR = values([[1.0, 2], [2, 4]])
RANKS = values([[[1.0, 2, 0], [2, 4, 0]], [[1, 0, 0], [0, 1e-4, 0]], [[0, 0, 0], [0, 0, 0]]])
BOUND = values([0.0, 1e-3, 0.0])
CLEAR = values([1e-5, 1e-3, 1e-5])  # a bound of 0 would count the rounding of a processor's own decomposition

NORMS = [
    *(
        Row(f"matrix-norm-{order}", lambda x, order=order: linalg.matrix_norm(x, order), f32(2, 3, 4), **BOUNDS)
        for order in (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")
    ),
    *(
        Row(
            f"matrix-norm-{order}-axes",
            lambda x, order=order: linalg.matrix_norm(x, order, dim=(2, 0), keepdim=True),
            f32(3, 2, 4),
            **BOUNDS,
        )
        for order in (1, 2, -math.inf, "fro", "nuc")
    ),
    *(
        Row(f"matrix-norm-{order}-any", lambda x, order=order: linalg.matrix_norm(x, order), f32(2, 3, 4), **TRACED)
        for order in (2, "nuc")
    ),
    Row("norm-1-any", lambda x: linalg.norm(x, 1, dim=(0, 2)), f32(2, 3, 4), routes=("trace",), dynamic="batch"),
    Row("norm-any", lambda x: linalg.norm(x, 2, dim=(1, 2), keepdim=True), f32(2, 3, 4), **TRACED),
    Row("matrix-norm-dtype", lambda x: linalg.matrix_norm(x, "nuc", dtype=torch.float64), f32(3, 4), **BOUNDS),
    Row("norm", lambda x: linalg.norm(x), f32(2, 3, 4), **BOUNDS),
    Row("norm-vector", lambda x: linalg.norm(x, 3, dim=1), f32(2, 3), **BOUNDS),
    Row("norm-matrix", lambda x: linalg.norm(x, 2), f32(2, 3), trap="of a matrix, not of its elements", **BOUNDS),
    Row("norm-axes", lambda x: linalg.norm(x, 1, dim=(0, 2)), f32(2, 3, 4), **BOUNDS),
    Row("norm-fro", lambda x: linalg.norm(x, "fro"), f32(2, 3), **BOUNDS),
    Row("norm-nuc-axes", lambda x: linalg.norm(x, "nuc", dim=(0, 1), keepdim=True), f32(2, 3, 4), **BOUNDS),
    Row("norm-of-nothing", lambda x: linalg.norm(x, math.inf), f32(0, 3), trap="0", **BOUNDS),
    Row("norm-2-of-nothing", lambda x: linalg.norm(x, 2), f32(0, 3), trap="0", **BOUNDS),
    Row("nuclear", lambda x: aten.nuclear_norm(x), f32(3, 4), **BOUNDS),
    Row("nuclear-axes", lambda x: torch.norm(x, "nuc", dim=(0, 1)), f32(2, 3, 4), **BOUNDS),
    Row("nuclear-dim", lambda x: aten.nuclear_norm.dim(x, [0, 2]), f32(2, 3, 4), **BOUNDS),
]

CONDITION = [
    *(
        Row(f"cond-{order}", lambda x, order=order: linalg.cond(x, order), f32(2, 3, 3), **BOUNDS)
        for order in (None, 2, -2, 1, -math.inf, "fro", "nuc")
    ),
    Row("cond-any", lambda x: linalg.cond(x, 1), f32(2, 3, 3), **SQUARE),
    Row("cond-2-any", lambda x: linalg.cond(x), f32(2, 3, 3), **SQUARE),
    Row("cond-not-square", lambda x: linalg.cond(x), f32(3, 2), **BOUNDS),
    Row("cond-singular", lambda x: linalg.cond(x, 1), SINGULAR, trap="infinite", **BOUNDS),
    Row("cond-of-nothing", lambda x: linalg.cond(x), f32(2, 0, 0), **BOUNDS),
]

RANK = [
    Row("rank", lambda x: linalg.matrix_rank(x), RANKS, **BOUNDS),
    Row("rank-atol", lambda x: linalg.matrix_rank(x, atol=1e-3), RANKS, **BOUNDS),
    Row("rank-rtol", lambda x: linalg.matrix_rank(x, rtol=1e-5), RANKS, **BOUNDS),
    Row("rank-both", lambda x: linalg.matrix_rank(x, atol=1e-5, rtol=0.5), RANKS, **BOUNDS),
    Row("rank-tensor", lambda x, a: linalg.matrix_rank(x, atol=a), RANKS, BOUND, **BOUNDS),
    Row("rank-tensors", lambda x, a: linalg.matrix_rank(x, atol=a, rtol=a / 10), RANKS, CLEAR, **BOUNDS),
    Row("rank-tensor-zero-dim", lambda x, a: linalg.matrix_rank(x, rtol=a), RANKS, values(1e-3), **BOUNDS),
    Row("rank-old", lambda x: linalg.matrix_rank(x, 1e-3), RANKS, **BOUNDS),
    Row("rank-old-tensor", lambda x, a: linalg.matrix_rank(x, a), RANKS, CLEAR, **BOUNDS),
    Row("rank-hermitian", lambda x: linalg.matrix_rank(x, hermitian=True), values([[1.0, 9], [0, 0]]), **BOUNDS),
    Row("rank-any", lambda x: linalg.matrix_rank(x), f32(2, 3, 4), **ANY),
    Row("rank-of-nothing", lambda x: linalg.matrix_rank(x), f32(2, 0, 3), **BOUNDS),
]

INVERSE = [
    Row("pinv", lambda x: linalg.pinv(x), f32(2, 4, 3), dynamic="batch", **BOUNDS),
    Row("pinv-wide", lambda x: linalg.pinv(x), f32(3, 4), **BOUNDS),
    Row("pinv-any", lambda x: linalg.pinv(x), f32(2, 3, 4), **ANY),
    Row("pinv-double", lambda x: linalg.pinv(x), f64(10, 9), **BOUNDS),
    Row("pinv-singular", lambda x: linalg.pinv(x), RANKS, **BOUNDS),
    Row("pinv-atol", lambda x: linalg.pinv(x, atol=1e-3), RANKS, **BOUNDS),
    Row("pinv-tensors", lambda x, a: linalg.pinv(x, atol=a, rtol=a), RANKS, CLEAR, **BOUNDS),
    Row("pinv-rcond", lambda x: linalg.pinv(x, 1e-3), RANKS, **BOUNDS),
    Row("pinv-rcond-tensor", lambda x, a: linalg.pinv(x, a), RANKS, CLEAR, **BOUNDS),
    Row("pinv-hermitian", lambda x: linalg.pinv(x, hermitian=True), f32(3, 3), trap="one half counts", **BOUNDS),
    Row("pinv-of-nothing", lambda x: linalg.pinv(x), f32(2, 0, 3), **BOUNDS),
    Row("pinverse", lambda x: torch.pinverse(x), f32(3, 2), **BOUNDS),
]

SQUARES = [
    Row("lstsq", lambda a, b: linalg.lstsq(a, b), f32(5, 3), f32(5, 2), **BOUNDS),
    Row("lstsq-wide", lambda a, b: linalg.lstsq(a, b), f32(2, 3, 5), f32(2, 3, 2), **BOUNDS),
    Row("lstsq-vector", lambda a, b: linalg.lstsq(a, b), f32(2, 5, 3), f32(2, 5), **BOUNDS),
    Row("lstsq-singular", lambda a, b: linalg.lstsq(a, b), SINGULAR, f32(2, 1), trap="the smallest", **BOUNDS),
    Row(
        "lstsq-rcond",
        lambda a, b: linalg.lstsq(a, b, rcond=0.4, driver="gelsd"),
        f32(4, 3),
        f32(4, 1),
        routes=("trace",),  # torch.export does not tell that the example loses rank, and so has no residuals
        **BOUNDS,
    ),
    Row(
        "lstsq-any",
        lambda a, b: linalg.lstsq(a, b),
        f32(2, 5, 3),
        f32(2, 5, 2),
        **{**TRACED, "dynamic": {0: {0: "batch", 1: "n"}, 1: {0: "batch", 1: "n", 2: "m"}}},
    ),
    *(
        Row(
            f"lstsq-{name}",
            lambda a, b, name=name: linalg.lstsq(a, b, driver=name),
            f32(2, 5, 3),
            f32(2, 5, 2),
            **BOUNDS,
        )
        for name in ("gels", "gelsy", "gelsd", "gelss")
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*NORMS, *CONDITION, *RANK, *INVERSE, *SQUARES]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
