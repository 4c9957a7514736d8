"""Rows of control flow: Scan over a batch, as opset 8 had it."""

from __future__ import annotations

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer


@up("Scan", version=9)
def scan_without_batch(node: VersionedNode, op: Writer) -> Result:
    """A batch of one is taken away and put back. More need a loop around the loop, and lengths are withdrawn."""
    if node.has(0):
        raise RefusedError("it has lengths of sequences, which opset 9 withdrew")
    values = [node[place] for place in range(1, len(node.inputs))]
    if any(item.dim(0) != 1 for item in values):
        raise RefusedError("it has a batch of several sequences, which opset 9 withdrew")
    rows = node.attribute("num_scan_inputs")
    body = node.attribute("body")
    bare = [op.Squeeze(item, [0]) for item in values]
    directions = {"scan_input_directions": node.attribute("directions")} if node.given("directions") else {}
    made = op.looped("Scan", bare, [None] * len(node.outputs), body=body, num_scan_inputs=rows, **directions)
    return [op.Unsqueeze(item, [0]) if node.wants(place) else None for place, item in enumerate(made)]


@down("Scan", version=11)
def scan_axes(node: VersionedNode, op: Writer) -> Result:
    """Negative axes, counted from the front."""
    rows = node.attribute("num_scan_inputs")
    axes = node.attribute("scan_input_axes") or []
    if min([*axes, *(node.attribute("scan_output_axes") or [])], default=0) >= 0:
        return None
    found = [
        positive([axis], item.rank if item is not None else None)[0]
        for axis, item in zip(axes, node.inputs[-rows:], strict=True)
    ]
    outputs = node.attribute("scan_output_axes") or []
    if any(axis < 0 for axis in outputs):
        from proto_schema.inference.types import Tensor

        kinds = node.types[len(node.inputs) - rows :]
        ranks = [len(item.shape) if isinstance(item, Tensor) and item.shape is not None else None for item in kinds]
        outputs = [positive([axis], rank)[0] for axis, rank in zip(outputs, ranks, strict=True)]
    if found == axes and outputs == (node.attribute("scan_output_axes") or []):
        return None
    return node.with_(scan_input_axes=found or None, scan_output_axes=outputs or None)


@down("Scan", version=9)
def scan_of_one(node: VersionedNode, op: Writer) -> Result:
    """A batch of one around everything."""
    rows = node.attribute("num_scan_inputs")
    plain = {"scan_input_axes", "scan_output_axes", "scan_output_directions"}
    if any(any(node.attribute(name) or []) for name in plain):
        raise RefusedError("it scans along other axes, or stacks backwards")
    wide = [op.Unsqueeze(item, [0]) for item in node.inputs if item is not None]
    directions = {"directions": node.attribute("scan_input_directions")} if node.given("scan_input_directions") else {}
    made = op.at(8).looped(
        "Scan",
        [None, *wide],
        [None] * len(node.outputs),
        body=node.attribute("body"),
        num_scan_inputs=rows,
        **directions,
    )
    return [op.Squeeze(item, [0]) if node.wants(place) else None for place, item in enumerate(made)]
