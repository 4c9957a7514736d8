"""Unique values, bins and histograms, one-hot, segments and bags."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from tests.harness import Row, boolean, f16, f32, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
FEW = (9, 13, 20)
ONE = (20,)
TWICE = values([3.0, 1.0, 3.0, NAN, 1.0, NAN, 2.0, 2.0])
RUNS = values([[1, 1, 2], [2, 3, 3], [1, 1, 1]], torch.int64)
I64 = torch.int64
SCRIPT = ("script",)


def one_hot_of_a_size(x: torch.Tensor) -> torch.Tensor:
    return F.one_hot(x, x.shape[0] + 4)


def one_hot_of_a_number(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return F.one_hot(x, int(count))


ROWS = [
    Row("unique", torch.unique, TWICE, opsets=FEW, trap="each NaN is one of its own"),
    Row(
        "unique-all",
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        i64(3, 4, low=0, high=5),
        opsets=FEW,
        dynamic="batch",
    ),
    Row("unique-int32", torch.unique, i32(9), opsets=ONE),
    Row("unique-half", torch.unique, f16(9), opsets=ONE),
    Row("unique-zero-dim", lambda x: torch.unique(x, return_inverse=True), f32(), opsets=ONE),
    Row("unique-nothing", lambda x: torch.unique(x, return_counts=True), f32(0), opsets=ONE),
    Row("unique-old", lambda x: torch.ops.aten._unique(x, True, True), f32(5), opsets=ONE),
    Row(
        "unique-axis",
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        values([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0]]),
        opsets=FEW,
    ),
    Row("consecutive", torch.unique_consecutive, RUNS, opsets=FEW),
    Row(
        "consecutive-all",
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        RUNS,
        opsets=FEW,
        dynamic="batch",
    ),
    Row("consecutive-axis", lambda x: torch.unique_consecutive(x, dim=1), values([[1.0, 1, 2], [3, 3, 3]]), opsets=FEW),
    Row(
        "consecutive-last", lambda x: torch.unique_consecutive(x, dim=-1), values([[1.0, 1, 2], [3, 3, 3]]), opsets=FEW
    ),
    Row(
        "unique-last",
        lambda x: x.unique(dim=-1),
        values([[1.0, 1, 2], [3, 3, 3]]),
        opsets=FEW,
        traced="no attribute or method 'unique'",
    ),
    Row("consecutive-nothing", lambda x: torch.unique_consecutive(x, return_counts=True), f32(0), opsets=ONE),
    Row(
        "bincount-of-a-size",
        lambda x, y: torch.bincount(x, minlength=y.shape[0]),
        i64(5, low=0, high=3),
        f32(6),
        dynamic={1: {0: "classes"}},
        opsets=(13, 18),
    ),
    Row("bincount", torch.bincount, i64(9, low=0, high=6), opsets=FEW, dynamic="batch"),
    Row("bincount-weights", lambda x, w: torch.bincount(x, w, 9), i64(9, low=0, high=6), f32(9), opsets=FEW),
    Row("bincount-nothing", lambda x: torch.bincount(x, minlength=3), i64(0), opsets=ONE),
    Row("one-hot", F.one_hot, i64(2, 3, low=0, high=5), opsets=FEW),
    Row("one-hot-classes", lambda x: F.one_hot(x, 7), i64(3, low=0, high=5), opsets=(9, 13, 20), dynamic="batch"),
    Row("one-hot-of-a-size", one_hot_of_a_size, i64(2, 3, low=0, high=5), opsets=FEW, dynamic="batch"),
    Row("one-hot-of-a-number", one_hot_of_a_number, i64(4, low=0, high=5), values(7, I64), opsets=FEW, routes=SCRIPT),
    Row(
        "one-hot-of-a-negative-number",
        one_hot_of_a_number,
        *(i64(4, low=0, high=5), values(-1, I64)),
        opsets=ONE,
        routes=SCRIPT,
        trap="the largest class says how many there are",
    ),
    Row("one-hot-of-nothing", one_hot_of_a_number, i64(0), values(3, I64), opsets=ONE, routes=SCRIPT),
    Row("nonzero-static", lambda x: torch.nonzero_static(x, size=4), boolean(3, 3), opsets=FEW),
    Row("nonzero-static-few", lambda x: torch.nonzero_static(x, size=9, fill_value=7), u8(2, 2, high=2), opsets=ONE),
    Row("histogram", lambda x: torch.histogram(x, 5), f32(20), opsets=FEW),
    Row("histogram-range", lambda x: torch.histogram(x, 4, range=(-1.0, 1.5)), f32(20), opsets=FEW),
    Row("histogram-edges", torch.histogram, f32(20), values([-1.0, 0.0, 0.2, 2.0]), opsets=FEW),
    Row("histogram-density", lambda x, w: torch.histogram(x, 3, weight=w, density=True), f32(9), f32(9, low=0)),
    Row(
        "histogram-border", lambda x: torch.histogram(x, 2), values([0.0, 1.0, 2.0, 2.0]), trap="the last bin is closed"
    ),
    Row("histogram-alone", lambda x: torch.histogram(x, 2), values([3.0, 3.0]), trap="a half on either side"),
    Row("histogramdd", lambda x: torch.histogramdd(x, [2, 3])[0], f32(9, 2), opsets=FEW),
    Row("histogramdd-int", lambda x: torch.histogramdd(x, 2, density=True).hist, f32(9, 2), opsets=ONE),
    Row(
        "histogramdd-edges",
        lambda x, a, b: torch.histogramdd(x, [a, b])[0],
        f32(9, 2),
        values([-1.0, 0.0, 1.0]),
        values([-2.0, 2.0]),
        opsets=ONE,
    ),
    *(
        Row(
            f"segments-{name}",
            lambda x, n, name=name: torch.segment_reduce(x, name, lengths=n, unsafe=True),
            f32(5, 2),
            values([2, 0, 3], torch.int64),
            opsets=FEW,
            trap="of nothing: zero, NaN, infinities, one",
        )
        for name in ("sum", "mean", "max", "min", "prod")
    ),
    Row(
        "segments-offsets",
        lambda x, n: torch.segment_reduce(x, "mean", offsets=n, initial=1.0, unsafe=True),
        f32(5),
        values([0, 2, 2, 5], torch.int64),
        opsets=ONE,
    ),
    *(
        Row(
            f"bag-{mode}",
            lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode),
            f32(7, 3),
            values([1, 2, 2, 6, 0], torch.int64),
            values([0, 3, 3], torch.int64),
            opsets=FEW,
            trap="an empty bag is zero",
        )
        for mode in ("sum", "mean", "max")
    ),
    Row(
        "bag-without-padding",
        lambda w, i, o: torch.embedding_bag(w, i, o)[0],
        f32(7, 3),
        i64(5, low=0, high=7),
        values([0, 2], torch.int64),
        opsets=ONE,
    ),
    Row("bag-rows", lambda w, i: F.embedding_bag(i, w), f32(7, 3), i64(2, 4, low=0, high=7), opsets=ONE),
    Row(
        "bag-weights",
        lambda w, i, o, p: F.embedding_bag(
            i, w, o, mode="sum", per_sample_weights=p, include_last_offset=True, padding_idx=-1
        ),
        f32(7, 3),
        values([1, 2, 6, 0], torch.int64),
        values([0, 1, 4], torch.int64),
        f32(4),
        opsets=ONE,
    ),
    *(
        Row(
            f"bag{name}",
            lambda w, i, o, name=name: getattr(torch.ops.aten, name)(w, i, o)[0],
            f32(4, 2),
            i64(3, low=0, high=4),
            i64(1, low=0, high=1),
            opsets=ONE,
        )
        for name in ("_embedding_bag", "_embedding_bag_forward_only")
    ),
    Row("pdist", F.pdist, f32(4, 3), opsets=FEW, dynamic="batch"),
    Row("pdist-p", lambda x: torch.ops.aten._pdist_forward(x, 3.0), f32(4, 3), opsets=ONE),
    Row("pdist-infinite", lambda x: F.pdist(x, INF), f32(4, 3), opsets=ONE),
    Row(
        "max-pool-backward",
        lambda x, g: torch.ops.aten.max_pool2d_with_indices_backward(
            g, x, [2, 2], [1, 1], [0, 0], [1, 1], False, F.max_pool2d(x, 2, 1, return_indices=True)[1]
        ),
        f32(1, 2, 4, 4),
        f32(1, 2, 3, 3),
        opsets=ONE,
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
