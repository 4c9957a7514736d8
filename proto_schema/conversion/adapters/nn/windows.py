"""Rows of pooling and of Gemm: what older versions say without attributes that came later."""

from __future__ import annotations

from typing import Any

from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.legalization.nn.windows import PoolWindows


def _have_gaps(node: VersionedNode) -> bool:
    return any(item != 1 for item in node.attribute("dilations") or ())


def _as_pads(node: VersionedNode, op: Writer) -> Result:
    """Windows past the end have pads there, where no window lies in them alone."""
    windows = PoolWindows(op, node[0], node.attribute("kernel_shape"), node.arguments())
    if windows.have_gaps or not windows.are_small:
        return None
    pads = [*windows.before, *windows.after]
    return node.with_(drop="ceil_mode dilations auto_pad", pads=pads, strides=windows.strides)


@down("MaxPool", version=10)
@down("LpPool", version=18)
def without_gaps(node: VersionedNode, op: Writer) -> Result:
    """Windows without gaps, which end where the input does, or have pads there."""
    if not node.attribute("ceil_mode") and not _have_gaps(node):
        return node.with_(drop="ceil_mode dilations")
    return None if node.schema.name == "LpPool" or node.wants(1) else _as_pads(node, op)


@down("MaxPool", version=8)
def no_places(node: VersionedNode, op: Writer) -> Result:
    """The order in which places count means nothing without them."""
    return None if node.wants(1) else node.with_(drop="storage_order")


@down("AveragePool", version=19)
def average_without_gaps(node: VersionedNode, op: Writer) -> Result:
    """Windows without gaps."""
    return None if _have_gaps(node) else node.with_(drop="dilations")


@down("AveragePool", version=10)
def average_past_the_end(node: VersionedNode, op: Writer) -> Result:
    """Windows that reach past the end, by pads that do not count."""
    if not node.attribute("ceil_mode"):
        return node.with_(drop="ceil_mode")
    return None if node.attribute("count_include_pad") else _as_pads(node, op)


@down("Gemm", version=11)
def gemm(node: VersionedNode, op: Writer) -> Result:
    """Without the third operand: a zero."""
    if node.has(2):
        return None
    zero: Any = op.like(0, node[0])
    return node.with_(inputs=[node[0], node[1], zero])
