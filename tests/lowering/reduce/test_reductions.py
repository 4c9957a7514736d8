"""Reductions: axes, kept axes, dtypes, empty tensors, and the infinite and the missing."""

from __future__ import annotations

import math

import pytest
import torch

from tests.harness import Row, boolean, f16, f32, f64, i8, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
FEW = (9, 13, 20)
NANS = values([[1.0, float("inf"), float("nan")], [3.0, 1.0, 2.0], [float("nan"), float("nan"), 0.0]])
BOTH = {0: {0: "rows", 1: "columns"}}

SUMS = [
    Row("sum", torch.sum, f32(3, 4)),
    Row("sum-axis", lambda x: x.sum(1), f32(3, 4), dynamic=BOTH),
    Row("sum-axes-kept", lambda x: x.sum((0, -1), keepdim=True), f32(2, 3, 4), dynamic="batch"),
    Row("sum-int", torch.sum, i32(3, 4), trap="sums of integers are int64"),
    Row("sum-bool", lambda x: x.sum(0), boolean(3, 4)),
    Row("sum-uint8", torch.sum, u8(9), opsets=FEW),
    Row("sum-dtype", lambda x: x.sum(1, dtype=torch.float64), f32(3, 4), opsets=FEW),
    Row("sum-to-int32", lambda x: x.sum(1, dtype=torch.int32), i64(3, 4), opsets=FEW),
    Row("sum-zero-dim", lambda x: x.sum(), f32(), opsets=FEW),
    Row("sum-zero-dim-axis", lambda x: x.sum(0), f32(), opsets=FEW),
    Row("sum-no-axes", lambda x: x.sum(dim=[]), f32(3, 4), opsets=FEW, trap="no axes are all axes"),
    Row("sum-empty", lambda x: x.sum(1), f32(3, 0), opsets=FEW),
    Row("sum-half", lambda x: x.sum(1), f16(3, 4), opsets=FEW),
    Row("mean", torch.mean, f32(3, 4), dynamic=BOTH),
    Row("mean-axis", lambda x: x.mean(-1), f32(3, 4), dynamic=BOTH),
    Row("mean-axes", lambda x: x.mean((2, 3), keepdim=True), f32(2, 3, 4, 5)),
    Row("mean-dtype", lambda x: x.mean(1, dtype=torch.float32), i64(3, 4), opsets=FEW),
    Row("mean-empty", lambda x: x.mean(1), f32(3, 0), opsets=FEW, trap="NaN of nothing"),
    Row("var-mean-empty", lambda x: torch.var_mean(x, 1), f32(3, 0), opsets=FEW, trap="NaN of nothing"),
    Row("nansum", torch.nansum, values([1.0, NAN, 3.0])),
    Row("nansum-axis", lambda x: x.nansum(1), values([[1.0, NAN], [NAN, NAN]])),
    Row("nansum-int", torch.nansum, i64(4), opsets=FEW),
    Row("nanmean", lambda x: x.nanmean(1, keepdim=True), values([[1.0, NAN, 5.0], [NAN, NAN, NAN]])),
    Row("prod", torch.prod, f32(3, 4)),
    Row("prod-axis", lambda x: x.prod(1, keepdim=True), f32(3, 4)),
    Row("prod-int", torch.prod, i32(4), trap="products of integers are int64"),
    Row("prod-bool", torch.prod, boolean(4), opsets=FEW),
    Row("prod-empty", lambda x: x.prod(1), f32(3, 0), opsets=FEW),
    Row("logsumexp", lambda x: x.logsumexp(1), f32(3, 4), dynamic=BOTH),
    Row("logsumexp-kept", lambda x: x.logsumexp((0, 1), keepdim=True), values([[1000.0, -1000.0], [999.0, 0.0]])),
    Row("logsumexp-infinite", lambda x: x.logsumexp(1), values([[-INF, -INF], [INF, 1.0], [-INF, 1.0]])),
    Row("logsumexp-int", lambda x: x.logsumexp(0), i64(4)),
    Row("logsumexp-zero-dim", lambda x: x.logsumexp(0), f32(), opsets=FEW),
    Row("special-logsumexp", lambda x: torch.special.logsumexp(x, 1), f32(3, 4), opsets=FEW),
    Row("count-nonzero", torch.count_nonzero, i64(3, 4, low=0, high=2)),
    Row("count-nonzero-axis", lambda x: torch.count_nonzero(x, 1), f32(3, 4)),
    Row("count-nonzero-axes", lambda x: torch.count_nonzero(x, (0, 1)), boolean(3, 4)),
]

TRUTH = [
    Row("any", torch.any, boolean(3, 4)),
    Row("any-axis", lambda x: x.any(1), boolean(3, 4), dynamic=BOTH),
    Row("any-axes", lambda x: torch.any(x, (0, 2)), boolean(2, 3, 4)),
    Row("any-float", torch.any, values([0.0, NAN]), trap="NaN is true"),
    Row("any-uint8", torch.any, u8(3, 4), trap="uint8 of uint8"),
    Row("any-empty", torch.any, boolean(0), opsets=FEW),
    Row("any-zero-dim", torch.any, boolean(), opsets=FEW),
    Row("all", torch.all, boolean(3, 4)),
    Row("all-axis", lambda x: x.all(1, keepdim=True), i64(3, 4, low=0, high=2)),
    Row("all-axes", lambda x: torch.all(x, (0, 2)), f32(2, 3, 4)),
    Row("all-empty", torch.all, boolean(0), opsets=FEW),
]

EXTREMES = [
    Row("amax", lambda x: x.amax(1), f32(3, 4), dynamic=BOTH),
    Row("amin", lambda x: x.amin((0, 1), keepdim=True), f32(3, 4)),
    Row("max", torch.max, f32(3, 4)),
    Row("min", torch.min, i64(3, 4)),
    Row("max-int8", torch.max, i8(9)),
    Row("min-bool", lambda x: x.amin(1), boolean(3, 4)),
    Row("max-nan", lambda x: x.amax(1), values([[1.0, NAN, 2.0], [NAN, 1.0, 2.0], [1.0, 2.0, NAN]])),
    Row("min-nan", torch.min, values([1.0, NAN, 2.0])),
    Row("max-infinite", torch.amax, values([-INF, -INF])),
    Row("aminmax", torch.aminmax, f32(3, 4)),
    Row("aminmax-axis", lambda x: torch.aminmax(x, dim=1, keepdim=True), f32(3, 4)),
    Row("argmax", torch.argmax, f32(3, 4)),
    Row("argmax-axis", lambda x: x.argmax(1), f32(3, 4), dynamic=BOTH),
    Row("argmax-kept", lambda x: x.argmax(keepdim=True), f32(3, 4)),
    Row("argmax-ties", lambda x: x.argmax(0), values([1.0, 2.0, 2.0]), trap="the first of equals"),
    Row("argmax-nan", lambda x: (x.argmax(1), x.argmin(1)), NANS, trap="the first NaN is both, also behind infinity"),
    Row("argmax-nan-all", lambda x: (x.argmax(), x.argmin(keepdim=True)), NANS),
    Row("max-nan-both", lambda x: (*x.max(1), *x.min(1)), NANS),
    Row("vector-norm-nan", lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), NANS),
    Row("argmax-int32", lambda x: x.argmax(-1), i32(3, 4)),
    Row("argmax-zero-dim", torch.argmax, f32()),
    Row("argmin", torch.argmin, f32(3, 4)),
    Row("argmin-axis", lambda x: x.argmin(1, keepdim=True), i64(3, 4)),
    Row("argmin-double", lambda x: x.argmin(0), f64(3, 4), opsets=FEW),
    Row("max-dim", lambda x: x.max(1), f32(3, 4), dynamic=BOTH),
    Row("max-dim-kept", lambda x: x.max(-1, keepdim=True), i64(3, 4)),
    Row("max-dim-values", lambda x: x.max(0).values, f32(3, 4)),
    Row("max-dim-ties", lambda x: x.max(0), values([1.0, 2.0, 2.0]), trap="the first of equals"),
    Row("min-dim", lambda x: x.min(1), f32(3, 4)),
    Row("min-dim-bool", lambda x: x.min(1), boolean(3, 4), opsets=FEW),
    Row("max-dim-zero-dim", lambda x: x.max(0), f32(), opsets=FEW),
]

VARIANCE = [
    Row("var", torch.var, f32(3, 4)),
    Row("var-axis", lambda x: x.var(1), f32(3, 4), dynamic=BOTH),
    Row("var-biased", lambda x: x.var(1, unbiased=False), f32(3, 4)),
    Row("var-whole-biased", lambda x: torch.var(x, unbiased=False), f32(3, 4)),
    Row("var-correction", lambda x: torch.var(x, dim=(0, 1), correction=2, keepdim=True), f32(3, 4), dynamic=BOTH),
    Row("var-single", lambda x: torch.var(x, 1), f32(3, 1), trap="zero divided by zero"),
    Row("std", torch.std, f32(3, 4)),
    Row("std-whole-biased", lambda x: torch.std(x, unbiased=False), f32(3, 4), opsets=FEW),
    Row("var-mean-whole-biased", lambda x: torch.var_mean(x, unbiased=False), f32(3, 4), opsets=FEW),
    Row("std-mean-whole-biased", lambda x: torch.std_mean(x, unbiased=False), f32(3, 4), opsets=FEW),
    Row("std-axis", lambda x: x.std(1, keepdim=True), f32(3, 4)),
    Row("std-correction", lambda x: torch.std(x, dim=1, correction=0), f32(3, 4), dynamic=BOTH),
    Row("var-mean", torch.var_mean, f32(3, 4)),
    Row("var-mean-axis", lambda x: torch.var_mean(x, 1), f32(3, 4)),
    Row("var-mean-correction", lambda x: torch.var_mean(x, dim=1, correction=0, keepdim=True), f32(3, 4)),
    Row("std-mean", torch.std_mean, f32(3, 4)),
    Row("std-mean-axis", lambda x: torch.std_mean(x, 1, unbiased=False), f32(3, 4)),
    Row("std-mean-correction", lambda x: torch.std_mean(x, dim=1, correction=0), f32(3, 4)),
]

NORMS = [
    Row(f"vector-norm-{order}", lambda x, order=order: torch.linalg.vector_norm(x, order, dim=1), f32(3, 4))
    for order in (0, 0.5, 1, 2, 3, INF, -INF)
] + [
    Row("vector-norm", torch.linalg.vector_norm, f32(3, 4)),
    Row("vector-norm-zero-dim", torch.linalg.vector_norm, f32()),
    Row("vector-norm-dtype", lambda x: torch.linalg.vector_norm(x, dtype=torch.float64), f32(3), opsets=FEW),
    Row("norm", lambda x: x.norm(), f32(3, 4)),
    Row(
        "norm-axis",
        lambda x: x.norm(dim=1, keepdim=True),
        f32(3, 4),
        dynamic=BOTH,
        traced="Keyword argument dim unknown",
    ),
    Row("norm-order", lambda x: x.norm(1, dim=1), f32(3, 4)),
    Row("norm-scalar", lambda x: torch.ops.aten.norm.Scalar(x, 3), f32(3, 4)),
    Row("norm-option", lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, None, [1]), f32(3, 4)),
    Row(
        "norm-dtype",
        lambda x: torch.ops.aten.norm.ScalarOpt_dim_dtype(x, 2, [1], False, dtype=torch.float64),
        f32(3, 4),
    ),
    Row("norm-whole-dtype", lambda x: torch.ops.aten.norm.ScalarOpt_dtype(x, 2, dtype=torch.float64), f32(3, 4)),
    Row("frobenius", lambda x: torch.ops.aten.frobenius_norm.dim(x, [0, 1], True), f32(3, 4)),
    Row("dist", torch.dist, f32(3, 4), f32(4)),
    Row("dist-order", lambda x, y: torch.dist(x, y, 1), f32(3, 4), f32(3, 4)),
]

ROWS = [*SUMS, *TRUTH, *EXTREMES, *VARIANCE, *NORMS]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
