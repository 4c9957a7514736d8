"""Shapes that nodes get as they are made: what is learnt of sizes, and where it holds."""

from __future__ import annotations

import pytest
import torch

import purexport
from proto_schema.sizes import Size
from purexport import dtypes
from purexport.graph.ir import Graph, Value, better
from purexport.lowering.core.emitter import Emitter

N, M = Size.symbol("n"), Size.symbol("m")


def vector(*shape: int | Size) -> Value:
    return Value(dtypes.FLOAT, shape)


def test_what_a_body_learns_does_not_hold_outside() -> None:
    op = Emitter.of(Graph(), 20)
    inside = op.subgraph()
    inside.MatMul(vector(2, N), vector(M, 3))
    assert inside.builder.scope.equations.equals(N, M) is True
    assert op.builder.scope.equations.equals(N, M) is None
    op.MatMul(vector(2, N), vector(M, 3))
    assert op.subgraph().builder.scope.equations.equals(N, M) is True


def test_fresh_sizes_of_bodies_are_apart() -> None:
    op = Emitter.of(Graph(), 20)
    bodies = [op, op.subgraph(), op.subgraph()]
    shapes = [body.NonZero(vector(4)).shape for body in (*bodies, *bodies)]
    assert len(set(shapes)) == len(shapes)


def test_a_label_is_no_fresh_size() -> None:
    program = purexport.export(
        lambda x: x.nonzero(), (torch.ones(3),), dynamic_axes={"x": {0: "unk__0"}}, input_names=["x"], capture="trace"
    )
    (rows, _) = program.model_proto.graph.output[0].type.tensor_type.shape.dim
    assert rows.dim_param not in ("", "unk__0")


def test_numbers_and_sizes_are_written_once() -> None:
    op = Emitter.of(Graph(), 20)
    x = vector(N, 4)
    first, other = op.dim(x, 0), op.dim(op.Relu(x), 0)
    assert first is other
    assert isinstance(first, Value)
    assert op.Sub(first, other).const is not None
    assert op.Less(first, op.const(0)).const is not None
    assert op.Mul(first, op.const(2)) is op.Mul(other, op.const(2))
    assert [node.op_type for node in op.graph.nodes] == ["Shape", "Gather", "Relu", "Mul"]


def test_numbers_stay_computed_where_nothing_is_folded() -> None:
    op = Emitter.of(Graph(), 20, folds=False)
    size = op.dim(vector(N, 4), 0)
    assert op.Sub(size, size).const is None


@pytest.mark.parametrize(
    ("said", "inferred", "known"),
    [
        (None, (N,), (N,)),
        ((N,), None, (N,)),
        ((None, 3), (N, M), (N, 3)),
        ((N, M), (4, None), (4, M)),
        ((N,), (M,), (N,)),
        ((N,), (M, 2), (M, 2)),
    ],
)
def test_the_better_known_shape(said: object, inferred: object, known: object) -> None:
    assert better(said, inferred) == known  # type: ignore[arg-type]
