"""Order along an axis, running sums, and places in sorted sequences."""

from __future__ import annotations

import math

import pytest
import torch

from tests.harness import Row, boolean, f16, f32, f64, i8, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
FEW = (9, 13, 20)
FEW = (9, 13, 20)
BOTH = {0: {0: "rows", 1: "columns"}}
TIES = values([3.0, 1.0, 3.0, 2.0, 1.0])
MIXED = values([INF, 1.0, NAN, -INF, 3.4e38, INF, NAN, -2.0])

SORTING = [
    Row("topk", lambda x: x.topk(2), f32(3, 5)),
    Row("topk-smallest", lambda x: x.topk(2, largest=False), f32(3, 5)),
    Row("topk-axis", lambda x: x.topk(2, dim=0), f32(4, 5), dynamic=BOTH),
    Row("topk-int64", lambda x: x.topk(2)[0], i64(9), opsets=FEW),
    Row("topk-int32", lambda x: x.topk(2)[0], i32(9), opsets=FEW),
    Row("topk-half", lambda x: x.topk(2)[0], f16(9), opsets=FEW),
    Row("topk-zero-dim", lambda x: x.topk(1), f32(), opsets=FEW),
    Row("topk-computed", lambda x: x.topk(x.shape[1] - 1), f32(3, 5), dynamic=BOTH),
    Row("sort", lambda x: x.sort(), f32(3, 5)),
    Row("sort-descending", lambda x: x.sort(descending=True), f32(3, 5)),
    Row("sort-axis-dynamic", lambda x: x.sort(0), f32(4, 5), dynamic=BOTH),
    Row("sort-stable", lambda x: torch.sort(x, stable=True), TIES, trap="equals keep their order"),
    Row(
        "sort-stable-down", lambda x: torch.sort(x, stable=True, descending=True), TIES, trap="equals keep their order"
    ),
    Row("sort-int8", lambda x: x.sort()[0], i8(9), opsets=FEW),
    Row("sort-bool", lambda x: torch.sort(x, stable=True), boolean(9), opsets=FEW),
    Row("sort-zero-dim", lambda x: x.sort(), f32(), opsets=FEW),
    Row("msort", torch.msort, f32(4, 3), opsets=FEW),
    Row("argsort", lambda x: x.argsort(1), f32(3, 5)),
    Row("argsort-stable", lambda x: torch.argsort(x, stable=True, descending=True), TIES),
    Row("kthvalue", lambda x: x.kthvalue(2), f32(3, 5)),
    Row("kthvalue-axis", lambda x: x.kthvalue(3, 0, keepdim=True), f32(4, 5), dynamic={0: {0: "rows"}}),
    Row("kthvalue-zero-dim", lambda x: x.kthvalue(1), f32(), opsets=FEW),
    Row("sort-nan", lambda x: x.sort(0), MIXED, opsets=(9, 10, 20), trap="NaN is larger than infinity"),
    Row("sort-nan-descending", lambda x: x.sort(0, descending=True), MIXED, opsets=(9, 10, 20), trap="NaN comes first"),
    Row("sort-nan-double", lambda x: x.double().sort(0), MIXED, opsets=(9, 20)),
    Row("topk-nan", lambda x: x.topk(3)[0], MIXED, opsets=(9, 10, 20)),
    Row("topk-nan-smallest", lambda x: x.topk(4, largest=False)[0], MIXED, opsets=(9, 20)),
    Row("kthvalue-nan", lambda x: x.kthvalue(6)[0], MIXED, opsets=FEW),
    Row("median", torch.median, f32(3, 4), trap="the lower of two middle values"),
    Row("median-axis", lambda x: x.median(1), f32(3, 4)),
    Row("median-axis-dynamic", lambda x: x.median(1)[0], f32(3, 4), dynamic=BOTH),
    Row("median-kept", lambda x: x.median(0, keepdim=True), f32(3, 4), opsets=FEW),
    Row("median-int", torch.median, i64(5), opsets=FEW),
    Row("median-nan", lambda x: x.median(1), values([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]]), trap="NaN where one is"),
    Row("nanmedian", torch.nanmedian, values([1.0, NAN, 3.0, 2.0, NAN]), opsets=FEW),
    Row(
        "nanmedian-axis",
        lambda x: x.nanmedian(1)[0],
        values([[1.0, NAN, 2.0], [NAN, NAN, NAN], [3.0, 1.0, 2.0]]),
        opsets=FEW,
    ),
    Row(
        "nanmedian-kept",
        lambda x: x.nanmedian(1, keepdim=True),
        values([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]]),
        opsets=FEW,
    ),
    Row("mode", lambda x: x.mode()[0], values([[1.0, 2.0, 2.0, 3.0], [4.0, 4.0, 1.0, 1.0]]), opsets=FEW),
    Row("mode-axis", lambda x: x.mode(0, keepdim=True)[0], i64(5, 3, low=0, high=3), opsets=FEW),
]

QUANTILES = [
    Row("quantile", lambda x: x.quantile(0.3), f32(3, 4)),
    Row("quantile-axis", lambda x: x.quantile(0.3, dim=1), f32(3, 4), opsets=FEW),
    Row("quantile-kept", lambda x: x.quantile(0.7, dim=0, keepdim=True), f32(3, 4), opsets=FEW),
    Row("quantile-many", lambda x, q: x.quantile(q, dim=1), f32(3, 4), values([0.0, 0.25, 0.6, 1.0]), opsets=FEW),
    Row(
        "quantile-many-kept",
        lambda x, q: x.quantile(q, dim=1, keepdim=True),
        f32(3, 4),
        values([0.1, 1.0]),
        opsets=FEW,
    ),
    Row("quantile-many-flat", lambda x, q: x.quantile(q, keepdim=True), f32(3, 4), values([0.1, 1.0]), opsets=FEW),
    Row("quantile-zero-dim", lambda x: x.quantile(0.5, dim=0, keepdim=True), f32(), opsets=FEW),
    Row("quantile-nan", lambda x: x.quantile(0.5, dim=1), values([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]]), opsets=FEW),
    Row("quantile-dynamic", lambda x: x.quantile(0.3, dim=1), f32(3, 4), dynamic=BOTH, opsets=FEW),
] + [
    Row(f"quantile-{way}", lambda x, way=way: x.quantile(0.4, dim=1, interpolation=way), f32(3, 4), opsets=FEW)
    for way in ("lower", "higher", "nearest", "midpoint")
]

CUMULATIVE = [
    Row("diff", lambda x: torch.diff(x, n=2), f32(3, 6)),
    Row("diff-dynamic", lambda x: torch.diff(x, n=2, dim=0), f32(3, 6), dynamic=BOTH, routes=["trace", "script"]),
    Row("diff-bool", lambda x: torch.diff(x), boolean(2, 5), opsets=FEW, trap="logical_xor"),
    Row("diff-int8", lambda x: torch.diff(x, dim=0), i8(4, 2), opsets=FEW, trap="wraps"),
    Row("diff-between", lambda x, y: torch.diff(x, dim=0, prepend=y, append=y), i64(2, 3), f32(1, 3), opsets=FEW),
    Row("diff-of-few", lambda x: torch.diff(x, n=5), f32(2, 3), opsets=FEW, trap="nothing is left"),
    Row("cumsum", lambda x: x.cumsum(1), f32(3, 4)),
    Row("cumsum-dynamic", lambda x: x.cumsum(-1), f32(3, 4), dynamic=BOTH),
    Row("cumsum-int", lambda x: x.cumsum(0), i32(5), trap="int64"),
    Row("cumsum-bool", lambda x: x.cumsum(0), boolean(5)),
    Row("cumsum-dtype", lambda x: x.cumsum(0, dtype=torch.float32), i64(5), opsets=FEW),
    Row("cumsum-int8", lambda x: x.cumsum(0, dtype=torch.int8), i8(5), opsets=FEW, trap="wraps"),
    Row("cumprod-uint8", lambda x: x.cumprod(0, dtype=torch.uint8), u8(5, high=9), opsets=(20, 26), trap="wraps"),
    Row("cumsum-zero-dim", lambda x: x.cumsum(0), f32(), opsets=FEW),
    Row("cumsum-double", lambda x: x.cumsum(0), f64(5), opsets=FEW),
    Row("cumprod", lambda x: x.cumprod(1), f32(3, 4), opsets=(9, 13, 20, 26)),
    Row("vander", lambda x: torch.vander(x, 4), f32(3), opsets=(9, 20, 26), dynamic="batch"),
    Row("cumprod-dynamic", lambda x: x.cumprod(0), f32(3, 4), dynamic=BOTH),
    Row("cumprod-int", lambda x: x.cumprod(0), i32(5), opsets=FEW),
    Row("logcumsumexp", lambda x: x.logcumsumexp(1), values([[1.0, 100.0, -100.0], [-INF, -INF, 2.0]])),
    Row("logcumsumexp-axis", lambda x: x.logcumsumexp(0), f32(4, 3), opsets=FEW),
    Row(
        "cummax",
        lambda x: x.cummax(1),
        values([[1.0, 3.0, 3.0, 2.0], [-INF, 0.0, 5.0, 5.0]]),
        trap="the last of equals",
    ),
    Row("cummax-axis", lambda x: x.cummax(0), f32(4, 3), dynamic=BOTH),
    Row("cummin", lambda x: x.cummin(0), f32(4, 3)),
    Row("cummin-int", lambda x: x.cummin(0), i64(5), opsets=FEW),
    Row("cummax-zero-dim", lambda x: x.cummax(0), f32(), opsets=FEW),
]

EDGES = values([1.0, 3.0, 3.0, 5.0])
PROBES = values([0.0, 1.0, 2.0, 3.0, 5.0, 6.0, NAN, INF])

PLACES = [
    Row("searchsorted", torch.searchsorted, EDGES, PROBES, trap="NaN comes last"),
    Row("searchsorted-right", lambda s, x: torch.searchsorted(s, x, right=True), EDGES, PROBES),
    Row("searchsorted-side", lambda s, x: torch.searchsorted(s, x, side="right"), EDGES, PROBES, opsets=FEW),
    Row("searchsorted-int32", lambda s, x: torch.searchsorted(s, x, out_int32=True), EDGES, PROBES, opsets=FEW),
    Row("searchsorted-number", lambda s: torch.searchsorted(s, 3.0), EDGES, opsets=FEW),
    Row("searchsorted-rows", lambda s, x: torch.searchsorted(s.sort(1)[0], x), f32(2, 4), f32(2, 3), opsets=FEW),
    Row(
        "searchsorted-sorter",
        lambda s, x: torch.searchsorted(s, x, sorter=s.argsort()),
        f32(5),
        f32(3),
        opsets=FEW,
    ),
    Row("searchsorted-empty", torch.searchsorted, f32(0), f32(0), opsets=FEW),
    Row("bucketize", torch.bucketize, PROBES, EDGES),
    Row("bucketize-right", lambda x, b: torch.bucketize(x, b, right=True), f32(3, 4), EDGES),
    Row("bucketize-int", torch.bucketize, i64(5), i64(1), opsets=FEW),
    Row("bucketize-number", lambda b: torch.bucketize(2.0, b), EDGES, opsets=FEW),
    Row("histc", lambda x: torch.histc(x, 5, -1, 1), f32(30)),
    Row("histc-data", lambda x: torch.histc(x, 4), values([1.0, 2.0, 2.5, 5.0]), trap="the last bin is closed"),
    Row("histc-same", lambda x: torch.histc(x, 4), values([2.0, 2.0]), opsets=FEW),
    Row("histc-equal-bounds", lambda x: torch.histc(x, 4, 3, 3), f32(9), trap="equal bounds are not looked at"),
    Row("histc-equal-bounds-same", lambda x: torch.histc(x, 4, 3, 3), values([2.0, 2.0]), opsets=FEW),
    Row(
        "histc-computed",
        lambda x: (
            torch.histc(x, 4, -x.size(0) * 0.5, x.size(0) / 3),
            torch.histc(x, 4, x.size(0) * 0.5 - 2.0, 2.0),
            torch.histc(x, 4, 2.0, x.size(0) * 2 + 0.5),
        ),
        f32(4),
        dynamic={0: {0: "n"}},
        sizes={"n": 1},
        every=(3, 8),
    ),
]

ROWS = [*SORTING, *QUANTILES, *CUMULATIVE, *PLACES]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
