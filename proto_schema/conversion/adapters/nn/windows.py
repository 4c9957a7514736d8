"""Rows of pooling and of Gemm: windows that reach past the end, and windows with gaps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer, is_float
from proto_schema.ir import Value


def _dilated(node: VersionedNode) -> bool:
    return any(item != 1 for item in node.attribute("dilations") or ())


def _geometry(node: VersionedNode) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int]]:
    """Sizes, kernel, strides, dilations, pads before and behind of the axes of space, all explicit.

    Pads behind include what windows reach past the end. Raises RefusedError where a size is not known.
    """
    rank = node.need_rank(0) - 2
    sizes = node[0].sizes
    if sizes is None:
        raise RefusedError("the size of its input is not known")
    space = list(sizes[2:])
    kernel = list(node.attribute("kernel_shape"))
    strides = list(node.attribute("strides") or [1] * rank)
    dilations = list(node.attribute("dilations") or [1] * rank)
    pads = list(node.attribute("pads") or [0] * (2 * rank))
    auto = node.text("auto_pad", "NOTSET")
    before, after = pads[:rank], pads[rank:]
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-space[axis] // strides[axis])
            total = max((count - 1) * strides[axis] + reach - space[axis], 0)
            less, more = total // 2, total - total // 2
            before[axis], after[axis] = (less, more) if auto == "SAME_UPPER" else (more, less)
        elif auto == "VALID":
            before[axis] = after[axis] = 0
        if node.attribute("ceil_mode") and auto in ("NOTSET", ""):
            whole = space[axis] + before[axis] + after[axis] - reach
            count = -(-whole // strides[axis]) + 1
            if (count - 1) * strides[axis] >= space[axis] + before[axis]:
                count -= 1  # the last window would begin past the end
            after[axis] += max((count - 1) * strides[axis] - whole, 0)
    return space, kernel, strides, dilations, before, after


@down("MaxPool", version=10)
def max_pool(node: VersionedNode, op: Writer) -> Result:
    """Windows past the end have pads there. Windows with gaps are written by Gather: one slice for each element."""
    if not node.attribute("ceil_mode") and not _dilated(node):
        return node.with_(drop="ceil_mode dilations")
    if node.wants(1):
        raise RefusedError("its windows have gaps or reach past the end, and it gives places")
    _, kernel, strides, _, before, after = _geometry(node)
    if not _dilated(node) and all(max(one, two) < size for one, two, size in zip(before, after, kernel, strict=True)):
        drop = "ceil_mode dilations auto_pad"
        return node.with_(drop=drop, pads=[*before, *after], strides=strides)
    return _gathered(node, op, "ReduceMax", -math.inf)


def _gathered(node: VersionedNode, op: Writer, reduction: str, fill: float) -> Value:
    """A reduction over windows: each axis of space becomes one of windows and one of their elements."""
    space, kernel, strides, dilations, before, after = _geometry(node)
    rank = len(space)
    x = node[0]
    if not is_float(node.need_dtype(0)):
        raise RefusedError("its windows have gaps, and its elements are not floats")
    if any((*before, *after)):
        x = op.Pad(x, [0, 0, *before, 0, 0, *after], fill)
    for axis in range(rank - 1, -1, -1):
        whole = space[axis] + before[axis] + after[axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        count = (whole - reach) // strides[axis] + 1
        places = np.arange(count)[:, None] * strides[axis] + np.arange(kernel[axis])[None, :] * dilations[axis]
        x = op.Gather(x, op.const(places.astype(np.int64)), axis=2 + axis)
    elements = [2 + 2 * axis + 1 for axis in range(rank)]
    return op.ReduceMax(x, elements, keepdims=0) if reduction == "ReduceMax" else op.ReduceSum(x, elements, keepdims=0)


@down("MaxPool", version=8)
def no_places(node: VersionedNode, op: Writer) -> Result:
    """The order in which places count means nothing without them."""
    return None if node.wants(1) else node.with_(drop="storage_order")


@down("AveragePool", version=19)
def average_with_gaps(node: VersionedNode, op: Writer) -> Result:
    """Windows with gaps by Gather."""
    return _averaged(node, op) if _dilated(node) else node.with_(drop="dilations")


@down("AveragePool", version=10)
def average_past_the_end(node: VersionedNode, op: Writer) -> Result:
    """Windows that reach past the end, by pads that do not count."""
    if not node.attribute("ceil_mode"):
        return node.with_(drop="ceil_mode")
    _, kernel, strides, _, before, after = _geometry(node)
    small = all(max(one, two) < size for one, two, size in zip(before, after, kernel, strict=True))
    if not node.attribute("count_include_pad") and small:
        return node.with_(drop="ceil_mode auto_pad", pads=[*before, *after], strides=strides)
    return _averaged(node, op)


def _averaged(node: VersionedNode, op: Writer) -> Value:
    """The sum of each window over how many of its elements count, which is known."""
    space, kernel, strides, dilations, before, after = _geometry(node)
    plain = list(node.attribute("pads") or [0] * (2 * len(space)))
    counts = np.ones((), np.float64)
    for axis, size in enumerate(space):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        whole = size + before[axis] + after[axis]
        number = (whole - reach) // strides[axis] + 1
        places = np.arange(number)[:, None] * strides[axis] + np.arange(kernel[axis])[None, :] * dilations[axis]
        low, high = before[axis], before[axis] + size
        if node.attribute("count_include_pad"):
            low, high = 0, high + (plain[len(space) + axis] if node.attribute("ceil_mode") else after[axis])
        own = ((places >= low) & (places < high)).sum(1)
        counts = counts[..., None] * own
    total = _gathered(node, op, "ReduceSum", 0.0)
    return op.Div(total, op.const(counts, node.need_dtype(0)))


@down("LpPool", version=18)
def norm_of_windows(node: VersionedNode, op: Writer) -> Result:
    """Windows with gaps, or past the end, by Gather."""
    if not node.attribute("ceil_mode") and not _dilated(node):
        return node.with_(drop="ceil_mode dilations")
    p = node.attribute("p")
    powered = op.Pow(op.Abs(node[0]), float(p))
    inner = node.with_(inputs=[powered])
    return op.Pow(_gathered(inner, op, "ReduceSum", 0.0), 1.0 / p)


@down("Gemm", version=11)
def gemm(node: VersionedNode, op: Writer) -> Result:
    """Without the third operand: a zero."""
    if node.has(2):
        return None
    zero: Any = op.like(0, node[0])
    return node.with_(inputs=[node[0], node[1], zero])
