"""Matrix products, what is added to them, and distances of vectors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import Row, check_export, f16, f32, f64, i8, i32, i64, layer, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
MATRICES = (f32(2, 3), f32(3, 4))
BATCHES = (f32(2, 2, 3), f32(2, 3, 4))

PRODUCTS = [
    Row("linear", layer(nn.Linear, 3, 4), f32(2, 3), dynamic="batch"),
    Row("linear-no-bias", layer(nn.Linear, 3, 4, bias=False), f32(2, 3)),
    Row("linear-rank-1", layer(nn.Linear, 3, 4), f32(3)),
    Row("linear-rank-3", layer(nn.Linear, 3, 4), f32(2, 5, 3), dynamic={0: {0: "batch", 1: "length"}}),
    Row("linear-weight-vector", lambda x, w: functional.linear(x, w), f32(2, 3), f32(3)),
    Row("linear-double", layer(nn.Linear, 3, 4, dtype=torch.float64), f64(2, 3)),
    Row("linear-half", lambda x, w: functional.linear(x, w), f16(2, 3), f16(4, 3)),
    Row("linear-integers", lambda x, w, b: functional.linear(x, w, b), i64(2, 3), i64(4, 3), i64(4)),
    Row("matmul", lambda a, b: a.matmul(b), *MATRICES, dynamic={0: {0: "rows"}, 1: {1: "columns"}}),
    Row("matmul-batches", lambda a, b: a @ b, f32(2, 1, 2, 3), f32(5, 3, 4)),
    Row("matmul-vectors", lambda a, b: a @ b, f32(3), f32(3)),
    Row("matmul-vector-left", lambda a, b: a @ b, f32(3), f32(2, 3, 4)),
    Row("matmul-vector-right", lambda a, b: a @ b, f32(2, 4, 3), f32(3)),
    Row("matmul-int64", lambda a, b: a @ b, i64(2, 3), i64(3, 2)),
    Row("matmul-int32", lambda a, b: a @ b, i32(2, 3), i32(3, 2)),
    Row("matmul-int8", lambda a, b: a @ b, i8(2, 3), i8(3, 2), trap="wraps"),
    Row("linalg_matmul", lambda a, b: torch.linalg.matmul(a, b), *MATRICES),
    Row("mm", lambda a, b: a.mm(b), *MATRICES, dynamic={0: {0: "rows"}}),
    Row("bmm", lambda a, b: a.bmm(b), *BATCHES, dynamic="batch"),
    Row("mv", lambda a, b: a.mv(b), f32(2, 3), f32(3)),
    Row("dot", lambda a, b: a.dot(b), f32(3), f32(3), dynamic={0: {0: "n"}, 1: {0: "n"}}),
    Row("dot-integers", lambda a, b: a.dot(b), i64(3), i64(3)),
    Row("vdot", lambda a, b: a.vdot(b), f32(3), f32(3)),
    Row("vecdot", lambda a, b: torch.linalg.vecdot(a, b), f32(2, 3), f32(3)),
    Row("vecdot-first", lambda a, b: torch.linalg.vecdot(a, b, dim=0), f32(3, 2), f32(3, 2)),
    Row("outer", lambda a, b: torch.outer(a, b), f32(2), i64(3)),
    Row("ger", lambda a, b: torch.ger(a, b), f32(2), f32(3), dynamic={0: {0: "n"}, 1: {0: "m"}}),
    Row("chain_matmul", lambda a, b, c: torch.chain_matmul(a, b, c), f32(2, 3), f32(3, 4), f32(4, 2)),
    Row("multi_dot", lambda a, b, c: torch.linalg.multi_dot([a, b, c]), f32(3), f32(3, 4), f32(4)),
    Row(
        "multi_dot-any",
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        f32(2, 3),
        f32(3, 4),
        f32(4, 5),
        dynamic={0: {0: "n"}, 2: {1: "m"}},
        routes=("trace",),
    ),
    Row("kron", lambda a, b: torch.kron(a, b), f32(2, 3), f32(3, 2)),
    Row(
        "kron-any",
        lambda a, b: torch.kron(a, b),
        f32(2, 3),
        f32(3, 2),
        dynamic={0: {0: "n", 1: "m"}, 1: {0: "n+1"}},
        trap="torch.export makes numbers of the sizes",
    ),
    Row("kron-ranks", lambda a, b: torch.kron(a, b), f32(2, 3), i64(2)),
    Row("kron-zero-dim", lambda a, b: torch.kron(a, b), f32(), f32()),
]

ADDED = [
    Row("addmm", lambda c, a, b: torch.addmm(c, a, b), f32(4), *MATRICES, dynamic={1: {0: "rows"}}),
    Row("addmm-scaled", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), f32(2, 4), *MATRICES),
    Row(
        "addmm-beta-0",
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        values([math.nan] * 4),
        *MATRICES,
        trap="NaN times 0 does not count",
    ),
    Row(
        "addmm-no-terms",
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5),
        f32(2, 4),
        f32(2, 0),
        f32(0, 4),
        trap="ONNX Runtime's Gemm forgets beta",
    ),
    Row("addmm-integers", lambda c, a, b: torch.addmm(c, a, b, beta=3, alpha=-2), i64(2), i64(3, 2), i64(2, 2)),
    Row("addmm-double", lambda c, a, b: torch.addmm(c, a, b), f64(2), f64(3, 2), f64(2, 2)),
    Row("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b), f32(2, 2, 4), *BATCHES, dynamic="batch"),
    Row("baddbmm-scaled", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), f32(1, 2, 4), *BATCHES),
    Row("baddbmm-beta-0", lambda c, a, b: torch.baddbmm(c, a, b, beta=0), values([[[math.nan]]]), *BATCHES),
    Row("addbmm", lambda c, a, b: torch.addbmm(c, a, b, beta=0.5), f32(2, 4), *BATCHES),
    Row("addmv", lambda c, a, b: torch.addmv(c, a, b, alpha=2), f32(2), f32(2, 3), f32(3)),
    Row("addr", lambda c, a, b: torch.addr(c, a, b, beta=0.5, alpha=2), f32(2, 3), f32(2), f32(3)),
]

VECTORS = [
    Row("trace", lambda x: x.trace(), f32(3, 4)),
    Row("trace-integers", lambda x: x.trace(), i32(3, 2)),
    Row("trace-any-size", lambda x: x.trace(), f32(3, 4), dynamic={0: {0: "n", 1: "m"}}),
    Row("cross", lambda a, b: torch.linalg.cross(a, b), f32(2, 3), f32(1, 3), dynamic={0: {0: "n"}}),
    Row("cross-first-of-size-3", lambda a, b: torch.cross(a, b), f32(2, 3, 3), f32(2, 3, 3)),
    Row("cross-of-any-batch", lambda a, b: torch.cross(a, b), f32(2, 3), f32(2, 3), dynamic="batch", every=(0, 1)),
    Row("cross-dim", lambda a, b: torch.cross(a, b, dim=0), f32(3, 2), f32(3, 2)),
    Row("cross-integers", lambda a, b: torch.linalg.cross(a, b), i64(2, 3), i64(2, 3)),
    Row("cosine", lambda a, b: functional.cosine_similarity(a, b), f32(2, 3), f32(2, 3), dynamic="batch"),
    Row("cosine-wide", lambda a, b: functional.cosine_similarity(a, b), f32(2, 1), f32(2, 3), trap="broadcast first"),
    Row("cosine-longer", lambda a, b: functional.cosine_similarity(a, b, dim=0), f32(2, 3), f32(3)),
    Row("cosine-dynamic", lambda a, b: functional.cosine_similarity(a, b, 0), f32(2, 3), f32(1, 3), dynamic="batch"),
    Row("cosine-zero", lambda a, b: functional.cosine_similarity(a * 0, b, dim=0), f32(2, 3), f32(3)),
    Row("pairwise", lambda a, b: functional.pairwise_distance(a, b), f32(2, 3), f32(2, 3), dynamic="batch"),
    Row(
        "pairwise-3",
        lambda a, b: functional.pairwise_distance(a, b, p=3, eps=0.1, keepdim=True),
        f32(2, 3),
        f32(3),
        traced="found type 'int'",
    ),
    Row("cdist", lambda a, b: torch.cdist(a, b), f32(2, 4, 3), f32(2, 5, 3), dynamic={0: {1: "n"}, 1: {1: "m"}}),
    Row("cdist-1", lambda a, b: torch.cdist(a, b, p=1), f32(4, 3), f32(5, 3), traced="found type 'int'"),
    Row("cdist-3", lambda a, b: torch.cdist(a, b, p=3.0), f32(4, 3), f32(5, 3)),
    Row("cdist-infinite", lambda a, b: torch.cdist(a, b, p=math.inf), f32(4, 3), f32(5, 3)),
    Row("cdist-0", lambda a, b: torch.cdist(a, b, p=0.0), values([[1.0, 2], [3, 2]]), values([[1.0, 2], [4, 5]])),
    Row("_cdist_forward", lambda a, b: aten._cdist_forward(a, b, 2.0, None), f32(4, 3), f32(5, 3)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*PRODUCTS, *ADDED, *VECTORS]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


@pytest.mark.parametrize("shape", [(3, 4), (3, 3)])
def test_cross_keeps_the_axis_of_the_example(shape: tuple[int, int]) -> None:
    """Without `dim`, torch looks for an axis of size 3.  If the one of the example is dynamic, it becomes static."""
    inputs = torch.randn(shape), torch.randn(shape)
    with pytest.warns(UserWarning, match="axis 'n' was declared dynamic, but the model fixes it at 3"):
        program = check_export(
            lambda a, b: torch.cross(a, b), inputs, opset=20, dynamic_axes={"x0": {0: "n"}, "x1": {0: "n"}}
        )
    assert [dim.dim_value for dim in program.model_proto.graph.input[0].type.tensor_type.shape.dim] == list(shape)
