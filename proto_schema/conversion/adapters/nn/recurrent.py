"""Rows of recurrent operators: before opset 14 the batch was always the second axis."""

from __future__ import annotations

from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.ir import Value


@down("GRU", "LSTM", "RNN", version=14)
def batch_second(node: VersionedNode, op: Writer) -> Result:
    """Sequences and states with the batch first are transposed."""
    if not node.attribute("layout"):
        return None
    inputs: list[Value | None] = list(node.inputs)
    inputs[0] = op.Transpose(node[0], perm=[1, 0, 2])
    for place in (5, 6):
        if node.has(place) and (place == 5 or node.schema.name == "LSTM"):
            inputs[place] = op.Transpose(node[place], perm=[1, 0, 2])
    kept = {name: value for name, value in node.node.attributes.items() if name != "layout"}
    count = 3 if node.schema.name == "LSTM" else 2
    made = op.at(13).multi(node.schema.name, *inputs, outputs=count, **kept)
    orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    return [
        op.Transpose(item, perm=order) if node.wants(place) else None
        for place, (item, order) in enumerate(zip(made, orders[:count], strict=True))
    ]
