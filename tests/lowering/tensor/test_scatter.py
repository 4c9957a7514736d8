"""Writing into a copy: slices, diagonals, positions, reductions; and diagonals and windows that are read."""

from __future__ import annotations

import pytest
import torch

from tests.harness import CAPTURES, Row, boolean, f16, f32, f64, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

N = {0: {0: "n"}}
BOTH = {0: {0: "a", 1: "b"}}
# torch.export wants bounds declared for axes that these slice, which a row cannot say
TRACE = ("trace",)
AROUND = (9, 11, 15, 18)  # before ScatterElements, before its reductions, before those of extremes
INDEX = values([[0, 2, 1], [1, 0, 2]], torch.int64)
ONCE = values([[0, 2, 1], [1, 0, 3]], torch.int64)

PARTS = [
    Row("slice-scatter", lambda x, s: torch.slice_scatter(x, s, 1, 1, 3), f32(2, 5), f32(2, 2)),
    Row("slice-scatter-step", lambda x, s: torch.slice_scatter(x, s, 1, 0, 5, 2), f32(2, 5), f32(2, 3)),
    Row("slice-scatter-empty", lambda x, s: torch.slice_scatter(x, s, 1, 3, 1), f32(2, 5), f32(2, 0)),
    Row("slice-scatter-whole", lambda x, s: torch.slice_scatter(x, s, 1), f32(2, 5), f32(2, 5)),
    Row("slice-scatter-clamped", lambda x, s: torch.slice_scatter(x, s, 1, -9, 99), f32(2, 5), f32(2, 5)),
    Row("slice-scatter-int", lambda x, s: torch.slice_scatter(x, s, 0, 1, 2), i64(3), i64(1)),
    Row(
        "slice-scatter-dynamic",
        lambda x: torch.slice_scatter(x, x[1:-1] * 2, 0, 1, -1),
        f32(5),
        dynamic=N,
        opsets=AROUND,
        routes=TRACE,
        sizes={"n": 2},
        trap="the slice of two elements is empty",
    ),
    Row(
        "slice-scatter-dynamic-step",
        lambda x: torch.slice_scatter(x, x[1::2] * 2, 0, 1, None, 2),
        f32(5),
        dynamic=N,
        opsets=AROUND,
        routes=TRACE,
    ),
    Row(
        "slice-scatter-past-a-small-axis",
        lambda x: torch.slice_scatter(x, x[2:4] * 2, 0, 2, 4),
        f32(6),
        dynamic=N,
        routes=TRACE,
        sizes={"n": 1},
        opsets=(9, 13, 20),
    ),
    Row(
        "slice-scatter-from-the-end",
        lambda x: torch.slice_scatter(x, x[-4:-2] * 2, 0, -4, -2),
        f32(6),
        dynamic=N,
        routes=TRACE,
        sizes={"n": 1},
        opsets=(9, 13, 20),
    ),
    Row(
        "select-scatter",
        lambda x, s: torch.select_scatter(x, s, 1, 2),
        f32(2, 5),
        f32(2),
        dynamic={0: {0: "n"}, 1: {0: "n"}},
    ),
    Row("select-scatter-last", lambda x, s: torch.select_scatter(x, s, 0, -1), f32(3, 2), f32(2), dynamic=N),
    Row(
        "select-scatter-computed",
        lambda x, s, y: torch.select_scatter(x, s, 0, y.size(0)),
        f32(9, 2),
        f32(2),
        f32(3),
        dynamic={0: {0: "m"}, 2: {0: "n"}},
        opsets=AROUND,
        routes=TRACE,
    ),
    Row("diagonal-scatter", lambda x, s: torch.diagonal_scatter(x, s), f32(3, 4), f32(3)),
    Row(
        "diagonal-scatter-offset",
        lambda x, s: torch.diagonal_scatter(x, s, -1, 2, 0),
        f32(3, 2, 4),
        f32(2, 3),
        dynamic={0: {1: "n"}, 1: {0: "n"}},
    ),
    Row(
        "diagonal-scatter-dynamic",
        lambda x: torch.diagonal_scatter(x, x.diagonal(1) * 2, 1),
        f32(3, 4),
        dynamic=BOTH,
        opsets=AROUND,
        routes=TRACE,
        sizes={"a": 6, "b": 5},
    ),
]

ALONG = [
    Row(
        "index-copy",
        lambda x, i, s: x.index_copy(0, i, s),
        f32(4, 2),
        values([3, 0], torch.int64),
        f32(2, 2),
        opsets=AROUND,
    ),
    Row(
        "index-copy-list",
        lambda x, s: x.index_copy(1, torch.tensor([3, 0]), s),
        f32(2, 4),
        f32(2, 2),
        dynamic={0: {0: "n"}, 1: {0: "n"}},
        routes=("export",),
        opsets=(9, 13, 20),
    ),
    Row(
        "index-fill",
        lambda x, i: x.index_fill(1, i, -1),
        f32(2, 4),
        values([3, 0], torch.int64),
        opsets=AROUND,
        dynamic=N,
    ),
    Row(
        "index-fill-tensor",
        lambda x, i, v: x.index_fill(0, i, v),
        f32(4, 2),
        values([3, -4], torch.int64),
        f32(),
        opsets=AROUND,
    ),
    Row(
        "index-add",
        lambda x, i, s: x.index_add(0, i, s),
        f32(4, 2),
        values([3, 0, 3], torch.int64),
        f32(3, 2),
        opsets=AROUND,
        trap="equal positions add up",
    ),
    Row(
        "index-add-alpha",
        lambda x, i, s: x.index_add(1, i, s, alpha=2),
        f32(2, 4),
        values([3, 0, 3], torch.int64),
        f32(2, 3),
        opsets=AROUND,
        dynamic={0: {0: "n"}, 2: {0: "n"}},
    ),
    Row(
        "index-add-zero-dim",
        lambda x, i, s: x.index_add(0, i, s),
        f32(),
        values([0], torch.int64),
        f32(),
        opsets=AROUND,
    ),
    Row(
        "index-reduce-prod",
        lambda x, i, s: x.index_reduce(0, i, s, "prod"),
        f32(4, 2),
        values([3, 0, 3], torch.int64),
        f32(3, 2),
        opsets=AROUND,
    ),
    Row(
        "index-reduce-amax",
        lambda x, i, s: x.index_reduce(0, i, s, "amax", include_self=False),
        f32(4),
        values([3, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "index-reduce-mean",
        lambda x, i, s: x.index_reduce(0, i, s, "mean"),
        f32(4),
        values([3, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
]

ELEMENTS = [
    Row("scatter", lambda x, i, s: x.scatter(1, i, s), f32(2, 4), ONCE, f32(2, 3)),
    Row(
        "scatter-first-axis",
        lambda x, i, s: x.scatter(0, i, s),
        f32(4, 3),
        values([[0, 2, 1]], torch.int64),
        f32(2, 3),
        trap="of a larger src the part that index covers",
    ),
    Row(
        "scatter-smaller-index",
        lambda x, i, s: x.scatter(0, i, s),
        f32(4, 3),
        values([[0, 2], [1, 0]], torch.int64),
        f32(2, 2),
    ),
    Row("scatter-number", lambda x, i, s: x.scatter(0, i, s), f32(4), values(2, torch.int64), f32()),
    Row("scatter-value", lambda x, i: x.scatter(1, i, 2.5), f32(2, 4), INDEX),
    Row("scatter-value-dynamic", lambda x, i: x.scatter(1, i, 1), f32(2, 4), INDEX, dynamic={0: {0: "n"}, 1: {0: "n"}}),
    Row("scatter-one-hot", lambda i: torch.zeros(2, 4).scatter(1, i, 1.0), INDEX),
    Row("scatter-int", lambda x, i, s: x.scatter(1, i, s), i64(2, 4), INDEX, i64(2, 3)),
    Row("scatter-bool", lambda x, i: x.scatter(1, i, True), boolean(2, 4), INDEX, routes=("export",)),
    Row("scatter-zero-dim", lambda x, i, s: x.scatter(0, i, s), f32(), values(0, torch.int64), f32()),
    Row("scatter-empty-index", lambda x, i, s: x.scatter(0, i, s) + 1, f32(3), values([], torch.int64), f32(0)),
    Row(
        "scatter-reduce-add",
        lambda x, i, s: x.scatter(1, i, s, reduce="add"),
        f32(2, 4),
        INDEX,
        f32(2, 3),
        opsets=AROUND,
    ),
    Row(
        "scatter-value-multiply",
        lambda x, i: x.scatter(1, i, 2.0, reduce="multiply"),
        f32(2, 4),
        INDEX,
        opsets=AROUND,
    ),
    Row(
        "scatter-add",
        lambda x, i, s: x.scatter_add(1, i, s),
        f32(2, 4),
        values([[0, 0, 1], [1, 1, 1]], torch.int64),
        f32(2, 3),
        opsets=AROUND,
        dynamic={0: {0: "n"}, 1: {0: "n"}, 2: {0: "n"}},
    ),
    Row("scatter-add-int", lambda x, i, s: x.scatter_add(1, i, s), i64(2, 4), INDEX, i64(2, 3), opsets=AROUND),
    Row(
        "scatter-sum",
        lambda x, i, s: x.scatter_reduce(0, i, s, "sum"),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-sum-without-self",
        lambda x, i, s: x.scatter_reduce(0, i, s, "sum", include_self=False),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-prod",
        lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-mean",
        lambda x, i, s: x.scatter_reduce(0, i, s, "mean"),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-mean-without-self",
        lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
        trap="what nothing is written to keeps its value",
    ),
    Row(
        "scatter-amax",
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-amin-without-self",
        lambda x, i, s: x.scatter_reduce(0, i, s, "amin", include_self=False),
        f32(4),
        values([0, 0, 3], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
    Row(
        "scatter-amax-int",
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax", include_self=False),
        i64(4),
        values([0, 0, 3], torch.int64),
        i64(3),
        opsets=AROUND,
    ),
    Row(
        "masked-scatter",
        lambda x, m, s: x.masked_scatter(m, s),
        f32(2, 3),
        boolean(2, 3),
        f32(7),
        opsets=AROUND,
        dynamic={0: {0: "n"}, 1: {0: "n"}, 2: {0: "m"}},
        sizes={"n": 3, "m": 9},
    ),
    Row(
        "masked-scatter-broadcast",
        lambda x, m, s: x.masked_scatter(m, s),
        f32(2, 3),
        boolean(3),
        f32(2, 3),
        opsets=AROUND,
    ),
    Row(
        "masked-scatter-of-nothing",
        lambda x: x.masked_scatter(x > 9, x[x > 9] * 2),
        f32(2, 3),
        opsets=AROUND,
        trap="Gather takes no element of an empty source, whatever is done with it",
    ),
    Row("masked-scatter-wide", torch.masked_scatter, f32(3), boolean(2, 3), f32(2, 3), opsets=AROUND),
    Row("put-flat", lambda x, i, s: x.put(i, s), f32(2, 3), values([5, -6], torch.int64), f32(2), opsets=AROUND),
    Row(
        "put-flat-accumulate",
        lambda x, i, s: x.put(i, s, accumulate=True),
        f32(2, 3),
        values([5, 0, 5], torch.int64),
        f32(3),
        opsets=AROUND,
    ),
]

DIAGONALS = [
    Row("diagonal", lambda x: x.diagonal(), f32(3, 4)),
    Row("diagonal-offset", lambda x: x.diagonal(1, -1, 0), f32(4, 2, 3), dynamic={0: {1: "n"}}),
    Row("diagonal-below", lambda x: x.diagonal(-2), f32(4, 3)),
    Row("diagonal-outside", lambda x: x.diagonal(7), f32(4, 3)),
    Row(
        "diagonal-dynamic",
        lambda x: x.diagonal(-1),
        f32(3, 4),
        dynamic=BOTH,
        opsets=AROUND,
        sizes={"a": 7, "b": 5},
        routes=TRACE,
    ),
    Row("diagonal-copy", lambda x: torch.diagonal_copy(x), f32(3, 3)),
    Row("linalg-diagonal", lambda x: torch.linalg.diagonal(x, offset=1), f32(2, 3, 3)),
    Row("diag-embed", lambda x: torch.diag_embed(x), f32(2, 3), dynamic=N),
    Row("diag-embed-offset", lambda x: torch.diag_embed(x, -1, 0, 2), f32(2, 3)),
    Row("diag-embed-dynamic", lambda x: torch.diag_embed(x, 1), f32(2, 3), dynamic=BOTH, opsets=AROUND),
    Row("diag-of-vector", lambda x: torch.diag(x, 1), f32(3)),
    Row("diag-of-matrix", lambda x: torch.diag(x, -1), f32(3, 4)),
    Row("diagflat", lambda x: torch.diagflat(x), f32(2, 2)),
    Row("diagflat-number", lambda x: torch.diagflat(x, 1), f32()),
    Row("tril", lambda x: x.tril(), f32(3, 4)),
    Row("tril-below", lambda x: x.tril(-1), f32(2, 3, 4)),
    Row("triu", lambda x: x.triu(1), f32(3, 4)),
    Row("triu-dynamic", lambda x: x.triu(1), f32(3, 4), dynamic=BOTH, opsets=AROUND),
    Row("triu-dynamic-by-comparison", lambda x: x.triu(-1), f32(3, 4), dynamic=BOTH, opsets=(9, 13)),
    Row("triu-mask", lambda x: torch.triu(torch.ones(4, 4, dtype=torch.bool), 1) & x, boolean(4, 4)),
    Row("tril-int", lambda x: x.tril(), i64(3, 3)),
    Row("tril-int32", lambda x: x.tril(1), i32(3, 3)),
    Row("tril-half", lambda x: x.tril(), f16(3, 3)),
    Row("tril-double", lambda x: x.tril(), f64(3, 3)),
    Row("causal-mask", lambda x: torch.full((4, 4), float("-inf")).triu(1) + x, f32(4, 4)),
    Row("unfold", lambda x: x.unfold(1, 3, 2), f32(2, 8), dynamic=N),
    Row("unfold-dynamic", lambda x: x.unfold(0, 3, 1), f32(5, 2), dynamic=N, opsets=AROUND),
    Row(
        "unfold-part",
        lambda x: x.unfold(1, x.shape[1] // 2, x.shape[1] // 4),
        f32(2, 8),
        dynamic={0: {1: "length"}},
        opsets=AROUND,
        routes=CAPTURES,
    ),
    Row("unfold-zero-dim", lambda x: x.unfold(0, 1, 1), f32()),
    Row("unfold-copy", lambda x: torch.unfold_copy(x, 0, 2, 2), f32(5)),
]

TURNS = [
    Row("flip", lambda x: x.flip(0, -1), f32(2, 3), dynamic=N, opsets=(9, 13, 20)),
    Row("flip-static", lambda x: x.flip(1), f32(2, 3)),
    Row("flip-int", lambda x: x.flip(0), i64(3)),
    Row("flip-bool", lambda x: x.flip(0), boolean(3)),
    Row("flip-nothing", lambda x: x.flip(()) + 1, f32(3)),
    Row("fliplr", lambda x: x.fliplr(), f32(2, 3)),
    Row("flipud", lambda x: x.flipud(), f32(2, 3)),
    Row("rot90", lambda x: x.rot90(), f32(2, 3)),
    Row("rot90-twice", lambda x: x.rot90(2, (1, 2)), f32(2, 3, 4)),
    Row("rot90-back", lambda x: x.rot90(-1, (0, 1)), f32(2, 3, 2)),
    Row("rot90-none", lambda x: x.rot90(4) + 1, f32(2, 3)),
    Row("combinations", lambda x: torch.combinations(x), f32(4)),
    Row("combinations-three", lambda x: torch.combinations(x, 3, True), f32(3)),
]

COPIES = [
    Row("view-copy", lambda x: torch.view_copy(x, (3, 2)), f32(2, 3)),
    Row("squeeze-copy", lambda x: (torch.squeeze_copy(x), torch.squeeze_copy(x, 0)), f32(1, 3)),
    Row("squeeze-copy-dims", lambda x: torch.ops.aten.squeeze_copy.dims(x, [0, 2]), f32(1, 3, 1)),
    Row("unsqueeze-copy", lambda x: torch.unsqueeze_copy(x, 0), f32(3)),
    Row("transpose-copy", lambda x: (torch.transpose_copy(x, 0, 1), torch.t_copy(x)), f32(2, 3)),
    Row("slice-copy", lambda x: torch.slice_copy(x, 0, 1, 3), f32(4)),
    Row("select-copy", lambda x: torch.select_copy(x, 0, 1), f32(4)),
    Row("split-copy", lambda x: torch.split_copy(x, 2), f32(4)),
    Row("split-with-sizes-copy", lambda x: torch.split_with_sizes_copy(x, [1, 3]), f32(4)),
    Row("unbind-copy", lambda x: torch.unbind_copy(x), f32(2, 3)),
]


def set_elements(x: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found[0] = x.size(0) * 0.29
    found[found == 3] = x.size(0) * 1.5
    return found


# numbers that follow from a size, made into the dtype of the tensor
COMPUTED = [
    *(
        Row(
            f"scatter-a-number-{inputs.dtype}".replace("torch.", ""),
            lambda x: (
                x.index_fill(0, torch.tensor([0, 2]), x.size(0) * 0.29),
                x.scatter(0, torch.tensor([0, 2]), x.size(0) * 0.29),
                x.scatter(0, torch.tensor([0, 2]), x.size(0) / 3, reduce="add"),
            ),
            inputs,
            dynamic={0: {0: "n"}},
            sizes={"n": 100},
            every=(3, 7),
            trap="0.29 of 100 is 28.999999999999996, and in float32 it is 29",
        )
        for inputs in (i64(4), u8(4, high=9), f16(4))
    ),
    Row("set-a-number", set_elements, i64(4), dynamic={0: {0: "n"}}, sizes={"n": 100}, every=(3, 7)),
]


@pytest.mark.parametrize(("row", "plan"), row_params(PARTS + ALONG + ELEMENTS + DIAGONALS + TURNS + COPIES + COMPUTED))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
