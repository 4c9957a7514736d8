"""Rows of sequences and optionals."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, INT64, Writer
from proto_schema.inference.types import OptionalOf, SequenceOf, Tensor
from proto_schema.ir import Graph, Value


@down("OptionalHasElement", version=18)
def has_element(node: VersionedNode, op: Writer) -> Result:
    """Of what is no optional, or not there, the answer is known."""
    value = node.input(0)
    if value is None:
        return op.const(np.array(False))
    if value.type is not None and not isinstance(value.type, OptionalOf):
        return op.const(np.array(True))
    return None


@down("OptionalGetElement", version=18)
def get_element(node: VersionedNode, op: Writer) -> Result:
    """What is no optional is its own element."""
    value = node[0]
    if value.type is not None and not isinstance(value.type, OptionalOf):
        return op.Identity(value)
    return None


@down("SequenceMap", version=17)
def sequence_map(node: VersionedNode, op: Writer) -> Result:
    """A Loop over the places, which builds the sequences of the results."""
    graph: Graph = node.attribute("body")
    dtypes = [item.dtype for item in graph.outputs]
    if not all(dtypes):
        raise RefusedError("its body gives no tensors of known types")
    starts = [op.SequenceEmpty(dtype=dtype) for dtype in dtypes]
    count = op.SequenceLength(node[0])
    kinds = [SequenceOf(Tensor(dtype)) for dtype in dtypes]
    given = [(f"made{place}", kind) for place, kind in enumerate(kinds)]
    with op.body(("place", Tensor(INT64, ())), ("go", Tensor(BOOL, ())), *given) as body:
        place, go, *made = body.inputs
        items: list[Value] = []
        for position in range(len(node.inputs)):
            value = node[position]
            items.append(op.SequenceAt(value, place) if isinstance(value.type, SequenceOf) else value)
        results = op.inlined(graph, items)
        body.outputs = [go, *[op.SequenceInsert(one, item) for one, item in zip(made, results, strict=True)]]
    return op.looped("Loop", [count, op.const(np.array(True)), *starts], kinds, body=body)
