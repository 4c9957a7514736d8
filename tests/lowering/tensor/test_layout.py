"""Operators that move elements or sizes: views, transpositions, joins, slices, splits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.harness import Row, boolean, f16, f32, f64, i32, i64, run_ort, values
from tests.row_plans import Plan, export_row, row_params, run_row

# torch.export wants bounds declared for axes that these slice or divide, which a row cannot say
TRACE = ("trace",)
AROUND = (9, 11, 17, 20)
ROW_AND_COLUMN = {0: {0: "rows", 1: "columns"}}

RESHAPES = [
    Row("view", lambda x: x.view(4, 3), f32(2, 6)),
    Row("view-minus-one", lambda x: x.view(-1, 3), f32(2, 6), dynamic="batch"),
    Row(
        "view-of-sizes", lambda x: x.view(x.size(0), x.size(1) * x.size(2)), f32(2, 3, 4), dynamic={0: {0: "a", 1: "b"}}
    ),
    Row("view-to-zero-dim", lambda x: x.view(()), f32(1)),
    Row("view-of-zero-dim", lambda x: x.view(1, 1), f32()),
    Row("view-dtype-bool", lambda x: x.view(3, 2), boolean(2, 3)),
    Row("reshape", lambda x: x.reshape(3, 2, 2), f32(2, 6)),
    Row("reshape-two-computed", lambda x: x.reshape(x.shape[1], x.shape[0]), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row(
        "reshape-computed-and-minus-one",
        lambda x: x.reshape(x.shape[0], 2, -1),
        f32(3, 4),
        dynamic={0: {0: "a", 1: "b"}},
        sizes={"b": 8},
        routes=TRACE,
    ),
    Row(
        "reshape-to-zero-size",
        lambda x: x.reshape(2, 0, 3),
        f32(0, 6),
        trap="0 means a copied size to ONNX before allowzero",
    ),
    Row("reshape-of-zero-size", lambda x: x.reshape(-1, 3), f32(0, 6)),
    Row("flatten", lambda x: torch.flatten(x, 1), f32(2, 3, 4), dynamic="batch"),
    Row("flatten-middle", lambda x: torch.flatten(x, 1, 2), f32(2, 3, 4, 2), dynamic={0: {0: "a", 3: "b"}}),
    Row("flatten-two-dynamic", lambda x: torch.flatten(x, 0, 1), f32(2, 3, 4), dynamic=ROW_AND_COLUMN),
    Row(
        "flatten-keeping-dynamic-ends",
        lambda x: torch.flatten(x, -2),
        f32(2, 3, 4),
        dynamic={0: {0: "a", 1: "b", 2: "c"}},
    ),
    Row("flatten-zero-dim", torch.flatten, f32(), trap="a zero-dim tensor becomes one of one element"),
    Row("unflatten", lambda x: torch.unflatten(x, 1, (2, -1)), f32(2, 6, 3), dynamic="batch"),
    Row(
        "unflatten-dynamic",
        lambda x: torch.unflatten(x, 0, (-1, 2)),
        f32(4, 3),
        dynamic="batch",
        sizes={"batch": 8},
        routes=TRACE,
    ),
    Row("reshape-as", lambda x, y: x.reshape_as(y), f32(2, 6), f32(3, 4)),
    Row("view-as", lambda x, y: x.view_as(y), f32(2, 6), f32(2, 3, 2), dynamic="batch"),
    Row("squeeze", lambda x: x.squeeze(), f32(1, 3, 1)),
    Row("squeeze-dim", lambda x: x.squeeze(-1), f32(2, 3, 1), dynamic="batch"),
    Row("squeeze-dim-not-one", lambda x: x.squeeze(1), f32(2, 3, 1), trap="an axis that is not 1 stays"),
    Row("squeeze-dims", lambda x: x.squeeze((0, 2, 1)), f32(1, 3, 1)),
    Row(
        "squeeze-dim-by-chance",
        lambda x: x.squeeze(1).softmax(-1),
        f32(3, 1, 4),
        dynamic={0: {0: "rows", 1: "one"}},
        sizes={"one": 1},
        routes=("trace",),
        trap="an axis of size 1 that may change is removed, too",
    ),
    Row(
        "squeeze-by-chance",
        lambda x: x.squeeze().sum(-1),
        f32(1, 3, 1, 4),
        dynamic={0: {0: "batch", 1: "rows"}},
        sizes={"batch": 1},
        routes=("trace",),
    ),
    Row(
        "squeeze-dynamic",
        lambda x: x.squeeze(1) * 2,
        f32(3, 2, 4),
        dynamic={0: {0: "rows", 1: "n"}},
        sizes={"n": 1},
        trap="torch removes the axis at some sizes only",
    ),
    Row(
        "squeeze-dynamic-all",
        lambda x: 1 - x.squeeze().sigmoid(),
        f32(3, 2, 1, 4),
        dynamic={0: {0: "rows", 1: "n"}},
        sizes={"n": 1},
    ),
    Row("squeeze-zero-dim", lambda x: x.squeeze(0), f32()),
    Row("unsqueeze", lambda x: x.unsqueeze(1), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("unsqueeze-last", lambda x: x.unsqueeze(-1), i64(2, 3)),
    Row("unsqueeze-zero-dim", lambda x: x.unsqueeze(-1), f32()),
    Row("unsafe-view", lambda x: torch.ops.aten._unsafe_view(x, [3, 2]), f32(2, 3)),
    Row("reshape-copy", lambda x: torch.ops.aten._reshape_copy(x, [3, 2]), f32(2, 3)),
    Row("ravel", lambda x: x.t().ravel(), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("atleast", lambda x: (torch.atleast_1d(x), torch.atleast_2d(x), torch.atleast_3d(x)), f32()),
    Row("atleast-3d-of-two", lambda x: (torch.atleast_3d(x),), f32(2, 3), dynamic="batch"),
]

PERMUTATIONS = [
    Row("transpose", lambda x: x.transpose(0, -1), f32(2, 3, 4), dynamic={0: {0: "a", 2: "b"}}),
    Row("transpose-zero-dim", lambda x: x.transpose(0, -1), f32()),
    Row("transpose-same", lambda x: x.transpose(1, 1) + 1, f32(2, 3)),
    Row("transpose-bool", lambda x: x.transpose(0, 1), boolean(2, 3)),
    Row("swapaxes", lambda x: torch.swapaxes(x, 0, 1), f32(2, 3)),
    Row("swapdims", lambda x: torch.swapdims(x, 0, 1), f32(2, 3)),
    Row("t", lambda x: x.t(), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("t-one-axis", lambda x: x.t() * 2, f32(3)),
    Row("numpy-t", lambda x: x.T, f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("mt", lambda x: x.mT, f32(2, 3, 4), dynamic="batch"),
    Row("mh", lambda x: x.mH, f32(2, 3, 4), dynamic="batch"),
    Row("adjoint", torch.adjoint, f32(2, 3, 4), dynamic="batch"),
    Row("permute", lambda x: x.permute(2, 0, -2), f32(2, 3, 4), dynamic={0: {0: "a", 1: "b", 2: "c"}}),
    Row("permute-half", lambda x: x.permute(1, 0), f16(2, 3)),
    Row("permute-copy", lambda x: torch.permute_copy(x, (1, 0)), f32(2, 3)),
    Row("movedim", lambda x: torch.movedim(x, 0, 2), f32(2, 3, 4), dynamic="batch"),
    Row("movedim-several", lambda x: torch.movedim(x, (0, 1), (-1, 0)), f32(2, 3, 4), dynamic="batch"),
    Row("moveaxis", lambda x: torch.moveaxis(x, 0, 2), f32(2, 3, 4), dynamic="batch"),
    Row("moveaxis-several", lambda x: torch.moveaxis(x, (0, 1), (-1, 0)), f32(2, 3, 4)),
]

JOINS = [
    Row("cat", lambda x, y: torch.cat([x, y], -1), f32(2, 3), f32(2, 2), dynamic={0: {0: "a"}, 1: {0: "a"}}),
    Row("cat-dynamic-axis", lambda x, y: torch.cat([x, y]), f32(2, 3), f32(4, 3), dynamic={0: {0: "a"}, 1: {0: "b"}}),
    Row(
        "cat-promotes", lambda x, y: torch.cat([x, y]), i64(2, 3), f32(1, 3), trap="the result is of the promoted dtype"
    ),
    Row("cat-bool", lambda x, y: torch.cat([x, y]), boolean(2), boolean(3)),
    Row("cat-skips-empty", lambda x, y: torch.cat([y, x], 1), f32(2, 3), f32(0), trap="an empty 1-d tensor is skipped"),
    Row("cat-all-empty", lambda x: torch.cat([x, x]), f32(0)),
    Row("cat-one", lambda x: torch.cat([x]), f32(2)),
    Row("concat", lambda x, y: torch.concat([x, y], 1), f32(2, 3), f32(2, 2)),
    Row("concatenate", lambda x, y: torch.concatenate([x, y], 1), f32(2, 3), f32(2, 2)),
    Row("stack", lambda x, y: torch.stack([x, y], 1), f32(2, 3), f32(2, 3), dynamic="batch"),
    Row("stack-last", lambda x, y: torch.stack([x, y], -1), f32(2, 3), f32(2, 3)),
    Row(
        "stack-sizes",
        lambda x: torch.stack([torch.as_tensor(size) for size in x.shape]) + x.sum(),
        f32(2, 3),
        dynamic=ROW_AND_COLUMN,
        routes=("trace",),
    ),
    Row("stack-zero-dim", lambda x, y: torch.stack([x, y]), f32(), f32()),
    Row("stack-promotes", lambda x, y: torch.stack([x, y]), i32(3), f64(3)),
    Row("hstack", lambda x, y: torch.hstack([x, y]), f32(2, 3), f32(2, 1), dynamic="batch"),
    Row("hstack-one-axis", lambda x, y: torch.hstack([x, y]), f32(2), f32(3), trap="1-d tensors are joined on axis 0"),
    Row("hstack-zero-dim", lambda x, y: torch.hstack([x, y]), f32(), f32(3)),
    Row("vstack", lambda x, y: torch.vstack([x, y]), f32(3), f32(2, 3)),
    Row("dstack", lambda x, y: torch.dstack([x, y]), f32(2, 3), f32(2, 3), dynamic="batch"),
    Row("column-stack", lambda x, y: torch.column_stack([x, y]), f32(2), f32(2, 3), dynamic="batch"),
    Row("row-stack", lambda x, y: torch.row_stack([x, y]), f32(3), f32(2, 3)),
    Row("expand", lambda x: x.expand(4, 2, 3), f32(2, 1)),
    Row("expand-minus-one", lambda x: x.expand(-1, -1, 5), f32(2, 3, 1), dynamic="batch"),
    Row("expand-to-size", lambda x, y: x.expand(y.size(0), -1), f32(1, 3), f32(4, 2), dynamic={1: {0: "n"}}),
    Row("expand-new-axis", lambda x: x.expand(2, -1, -1), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("expand-bool", lambda x: x.expand(4, 3), boolean(1, 3)),
    Row("expand-nothing", lambda x: x.expand(2, 3) + 1, f32(2, 3)),
    Row("expand-as", lambda x, y: x.expand_as(y), f32(3), f32(2, 3), dynamic={1: {0: "n"}}),
    Row("expand-copy", lambda x: torch.expand_copy(x, (2, 3)), f32(3)),
    Row("broadcast-to", lambda x: torch.broadcast_to(x, (2, 3)), f32(3)),
    Row("broadcast-to-size", lambda x, y: torch.broadcast_to(x, y.shape), f32(3), f32(2, 3), dynamic={1: {0: "n"}}),
    Row(
        "broadcast-tensors",
        lambda x, y: list(torch.broadcast_tensors(x, y)),
        f32(3, 1),
        f32(2),
        dynamic={0: {0: "n"}, 1: {0: "m"}},
    ),
    Row("broadcast-tensors-three", torch.broadcast_tensors, f32(2, 1, 1), f32(3, 1), i64()),
    Row(
        "meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), f32(3), f32(2), dynamic={0: {0: "n"}, 1: {0: "m"}}
    ),
    Row(
        "meshgrid-xy",
        lambda x, y: torch.meshgrid(x, y, indexing="xy"),
        f32(3),
        f32(2),
        dynamic={0: {0: "n"}, 1: {0: "m"}},
    ),
    Row("meshgrid-xy-three", lambda x, y, z: torch.meshgrid(x, y, z, indexing="xy"), f32(3), f32(2), f32(4)),
    Row("meshgrid-one", lambda x: torch.meshgrid(x, indexing="xy"), f32(3)),
    Row("meshgrid-default", lambda x, y: torch.ops.aten.meshgrid([x, y]), f32(3), f32()),
    Row("cartesian-prod", lambda x, y: (torch.cartesian_prod(x, y),), f32(3), f32(2), dynamic={0: {0: "n"}}),
    Row("block-diag", torch.block_diag, f32(2, 3), f32(2)),
    Row("repeat", lambda x: x.repeat(2, 3), f32(2, 2), dynamic="batch"),
    Row("repeat-new-axis", lambda x: x.repeat(2, 1, 2), f32(2, 2), dynamic=ROW_AND_COLUMN),
    Row("repeat-computed", lambda x, y: x.repeat(y.size(0), 1), f32(1, 3), f32(4), dynamic={1: {0: "n"}}),
    Row("repeat-int", lambda x: x.repeat(2, 2), i64(2, 2)),
    Row("repeat-bool", lambda x: x.repeat(2, 2), boolean(2, 2)),
    Row("repeat-none", lambda x: x.repeat(0, 1), f32(2, 2)),
    Row("repeat-nothing", lambda x: x.repeat(1, 1) + 1, f32(2, 2)),
    Row("repeat-zero-dim", lambda x: x.repeat(3), f32()),
    Row("tile", lambda x: torch.tile(x, (2, 2)), f32(2, 2), dynamic="batch"),
    Row("tile-fewer", lambda x: torch.tile(x, (2,)), f32(2, 2), trap="missing repeats are 1, at the front"),
]

PARTS = [
    Row("slice", lambda x: x[1:3], f32(5, 2)),
    Row("slice-negative", lambda x: x[:, -3:-1], f32(2, 5), dynamic=ROW_AND_COLUMN, routes=TRACE),
    Row("slice-step", lambda x: x[1::2], f32(5), dynamic="batch", routes=TRACE, opsets=AROUND),
    Row("slice-step-static", lambda x: (x[1::2], x[:, ::3]), f32(5, 7)),
    Row("slice-past-the-end", lambda x: x[2:100], f32(5), dynamic="batch", routes=TRACE, trap="bounds are clamped"),
    Row("slice-before-the-start", lambda x: x[-100:2], f32(5), dynamic="batch", routes=TRACE),
    Row("slice-empty", lambda x: x[3:1], f32(5)),
    Row(
        "slice-computed",
        lambda x, y: x[: y.size(0)],
        f32(9, 2),
        f32(3),
        dynamic={0: {0: "m"}, 1: {0: "n"}},
        opsets=AROUND,
        routes=TRACE,
    ),
    Row(
        "slice-computed-start",
        lambda x, y: x[y.size(0) :],
        f32(9, 2),
        f32(3),
        dynamic={0: {0: "m"}, 1: {0: "n"}},
        opsets=AROUND,
        routes=TRACE,
    ),
    Row("slice-whole", lambda x: x[:] * 2, f32(5), dynamic="batch"),
    Row("slice-half-axis", lambda x: x[: x.shape[0] // 2], f32(6, 2), dynamic="batch", opsets=AROUND, routes=TRACE),
    Row("slice-int", lambda x: x[1:3], i64(5)),
    Row("slice-bool", lambda x: x[1:3], boolean(5)),
    Row("narrow", lambda x: x.narrow(1, 1, 2), f32(2, 4), dynamic="batch"),
    Row("narrow-from-the-end", lambda x: x.narrow(0, -2, 1), f32(4), dynamic="batch"),
    Row("narrow-to-the-end", lambda x: x.narrow(0, -2, 2), f32(4), dynamic="batch", trap="-2 + 2 is the end, not 0"),
    Row(
        "narrow-computed",
        lambda x, y: x.narrow(0, 1, y.size(0)),
        f32(9),
        f32(3),
        dynamic={0: {0: "m"}, 1: {0: "n"}},
        opsets=AROUND,
        routes=TRACE,
    ),
    Row(
        "narrow-tensor",
        lambda x, y: torch.narrow(x, 0, y, 2),
        f32(9),
        i64(low=1, high=5),
        opsets=AROUND,
        routes=("trace", "export"),
    ),
    Row(
        "narrow-tensor-from-the-end",
        lambda x, y: torch.narrow(x, 1, y, 2),
        f32(2, 9),
        values(-3, torch.int64),
        opsets=AROUND,
        routes=("export",),
    ),
    Row("narrow-copy", lambda x: torch.narrow_copy(x, 1, 1, 2), f32(2, 4)),
    Row("select", lambda x: x[1], f32(3, 4), dynamic={0: {0: "n"}}),
    Row(
        "select-negative",
        lambda x: x[:, -1],
        f32(3, 4),
        dynamic=ROW_AND_COLUMN,
        trap="opset 9's Gather takes no negative index",
    ),
    Row("select-negative-dynamic", lambda x: x[-2], f32(3, 4), dynamic=ROW_AND_COLUMN),
    Row(
        "select-computed",
        lambda x, y: x.select(0, y.size(0)),
        f32(9, 4),
        f32(3),
        dynamic={0: {0: "m"}, 1: {0: "n"}},
        sizes={"m": 11},
        routes=TRACE,
    ),
    Row("split", lambda x: x.split(2), f32(5, 2)),
    Row("split-last-axis", lambda x: x.split(2, -1), f32(2, 4), dynamic="batch"),
    Row("split-one-piece", lambda x: x.split(9)[0] + 1, f32(5)),
    Row("split-int", lambda x: x.split(2), i64(4)),
    Row("split-sizes", lambda x: x.split([1, 4], 1), f32(2, 5), dynamic="batch"),
    Row("split-sizes-zero", lambda x: x.split([0, 5], 1), f32(2, 5)),
    Row("split-with-sizes", lambda x: torch.ops.aten.split_with_sizes(x, [1, 2, 2], 1), f32(2, 5)),
    Row("split-dot-sizes", lambda x: torch.ops.aten.split.sizes(x, [1, 2, 2], 1), f32(2, 5)),
    Row("unsafe-split", lambda x: torch.unsafe_split(x, 2, 1), f32(2, 5)),
    Row("unsafe-split-with-sizes", lambda x: torch.unsafe_split_with_sizes(x, [2, 3], 1), f32(2, 5)),
    Row("chunk", lambda x: x.chunk(3, -1), f32(2, 7), dynamic="batch"),
    Row("chunk-fewer", lambda x: x.chunk(4), f32(5), trap="5 in 4 chunks gives 2, 2, 1: three pieces"),
    Row(
        "chunk-dynamic",
        lambda x: torch.cat([x, x]).chunk(2),
        f32(4, 2),
        dynamic="batch",
    ),
    Row(
        "chunk-dynamic-uneven",
        lambda x: x.chunk(3, 1),
        f32(2, 7),
        dynamic={0: {1: "width"}},
        sizes={"width": 11},
        routes=TRACE,
        trap="11 in 3 chunks is 4, 4, 3",
    ),
    Row(
        "tensor-split-dynamic",
        lambda x: torch.tensor_split(x, 3, -1),
        f32(2, 7),
        dynamic={0: {1: "width"}},
        sizes={"width": 2},
        routes=TRACE,
        trap="2 in 3 pieces is 1, 1, 0",
    ),
    Row("unsafe-chunk", lambda x: torch.unsafe_chunk(x, 2, 1), f32(2, 4)),
    Row("tensor-split", lambda x: torch.tensor_split(x, 3), f32(7, 2), trap="the first pieces are the longer ones"),
    Row("tensor-split-at", lambda x, at: torch.tensor_split(x, at), f32(7, 2), values([2, 5], torch.int64)),
    Row("tensor-split-indices", lambda x: torch.tensor_split(x, (1, 4), 1), f32(2, 6), dynamic="batch"),
    Row("tensor-split-negative", lambda x: torch.tensor_split(x, (1, -2)), f32(6), dynamic="batch", routes=TRACE),
    Row("hsplit", lambda x: torch.hsplit(x, 2), f32(2, 4), dynamic="batch"),
    Row("hsplit-indices", lambda x: torch.hsplit(x, (1, 3)), f32(2, 4)),
    Row("vsplit", lambda x: torch.vsplit(x, 2), f32(4, 2)),
    Row("vsplit-indices", lambda x: torch.vsplit(x, (1, 3)), f32(4, 2)),
    Row("dsplit", lambda x: torch.dsplit(x, 2), f32(1, 2, 4)),
    Row("dsplit-indices", lambda x: torch.dsplit(x, (1, 3)), f32(1, 2, 4)),
    Row("unbind", lambda x: x.unbind(1), f32(2, 3), dynamic="batch"),
    Row("unbind-negative-axis", lambda x: torch.unbind(x, -1), i64(2, 3)),
    Row("size", lambda x: x * x.size(-1) + x.size(0), f32(2, 3), dynamic=ROW_AND_COLUMN),
    Row("numel", lambda x: x / x.numel(), f32(2, 3), dynamic=ROW_AND_COLUMN, routes=("export",)),
    Row("no-elements-known", lambda x: x + torch.ops.aten._efficientzerotensor([2, 3]), f32(2, 3), routes=("trace",)),
    Row("sym-size", lambda x: x + torch.ops.aten.sym_size.int(x, 0), f32(2, 3), routes=("export",), dynamic="batch"),
    Row("shape-as-tensor", torch._shape_as_tensor, f32(2, 3), dynamic=ROW_AND_COLUMN, routes=("trace",)),
    Row(
        "reshape-from-tensor",
        lambda x: torch._reshape_from_tensor(x, torch._shape_as_tensor(x.t())),
        f32(2, 3),
        dynamic=ROW_AND_COLUMN,
        routes=("trace",),
    ),
    Row("sym-numel", lambda x: x + torch.ops.aten.sym_numel(x), f32(2, 3), routes=("export",), dynamic="batch"),
]


@pytest.mark.parametrize(("row", "plan"), row_params(RESHAPES + PERMUTATIONS + JOINS + PARTS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


@pytest.mark.parametrize("size", [4, 3, 2, 1])
def test_a_chunk_that_torch_would_not_give_is_refused(size: int) -> None:
    """A file has as many pieces as the example; where torch gives fewer, the runtime stops instead of adding one."""
    program = export_row(Row("chunks", lambda x: x.chunk(4), f32(8, 2), dynamic="batch"), "trace", 17)
    data = program.model_proto.SerializeToString()
    assert [piece.shape[0] for piece in run_ort(data, [np.ones((7, 2), np.float32)])] == [2, 2, 2, 1]
    assert [piece.shape[0] for piece in run_ort(data, [np.ones((0, 2), np.float32)])] == [0, 0, 0, 0]
    if len(torch.ones(size).chunk(4)) == 4:
        assert len(run_ort(data, [np.ones((size, 2), np.float32)])) == 4
    else:
        with pytest.raises(Exception, match=r"(?i)split"):
            run_ort(data, [np.ones((size, 2), np.float32)])
