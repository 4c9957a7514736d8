"""Nodes that change nothing, and pairs of nodes that cancel: a row for each operator.

A row gets the graph and a node, and returns the name of the value that its result equals, a node that takes its place,
or None. A value may stand for a result only where data type and shape are known to be the same for all sizes of the
inputs; the engine checks that again for every row.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from proto_schema.helper import make_attribute
from proto_schema.onnx import NodeProto
from proto_schema.simplification.draft import Draft
from proto_schema.sizes import Dim, Size
from proto_schema.sizes.reshaping import constant_shape, is_copied, may_be_zero, what_is_left

Rewrite = Callable[[Draft, NodeProto], "str | NodeProto | None"]


def _identity(draft: Draft, node: NodeProto) -> str:
    return node.input[0]


def _dropout(draft: Draft, node: NodeProto) -> str | None:
    """In inference: the mask is not used, and nothing asks for training."""
    if len(node.output) > 1 and node.output[1] and draft.uses[node.output[1]]:
        return None
    if len(node.input) > 2 and node.input[2] and draft.single(node.input[2]) is not False:
        return None
    return None if draft.opset < 7 else node.input[0]


def _cast(draft: Draft, node: NodeProto) -> str | None:
    return node.input[0] if draft.dtype(node.input[0]) == draft.attributes(node).get("to") else None


def _one_input(draft: Draft, node: NodeProto) -> str | None:
    return node.input[0] if len(node.input) == 1 else None


def _same_shape(draft: Draft, node: NodeProto) -> str | None:
    """For Reshape, Expand, Tile and others that only move or repeat: the same shape is the same tensor."""
    return node.input[0] if draft.same_type(node.input[0], node.output[0]) else None


def _pad(draft: Draft, node: NodeProto) -> str | None:
    pads = draft.attributes(node).get("pads") if draft.opset < 11 else draft.array(node.input[1])
    return node.input[0] if pads is not None and not any(pads) else None


def _slice(draft: Draft, node: NodeProto) -> str | None:
    """A part of the same shape is the whole, unless it goes backwards."""
    steps = draft.array(node.input[4]) if len(node.input) > 4 and node.input[4] else ()
    forwards = steps is not None and all(step > 0 for step in steps)
    return node.input[0] if forwards and draft.same_type(node.input[0], node.output[0]) else None


def _neutral(number: int, both: bool) -> Rewrite:
    """`x + 0`, `x * 1`: with a number on the right, or on either side."""

    def rewrite(draft: Draft, node: NodeProto) -> str | None:
        for mine, other in ((0, 1), (1, 0)) if both else ((0, 1),):
            found = draft.single(node.input[other])
            if found == number and draft.same_type(node.input[mine], node.output[0]):
                # x + 0.0 and x - -0.0 make 0.0 of -0.0; only x + -0.0 and x - 0.0 are always x
                sign = {"Add": -1, "Sub": 1}.get(node.op_type or "") if isinstance(found, float) else None
                return node.input[mine] if sign is None or math.copysign(1, found) == sign else None
        return None

    return rewrite


def _transpose(draft: Draft, node: NodeProto) -> str | NodeProto | None:
    perm = _perm(draft, node)
    if perm is None:
        return None
    if perm == sorted(perm):
        return node.input[0]
    inner = draft.makers.get(node.input[0])
    if inner is None or inner.op_type != "Transpose" or inner.domain:
        return None
    first = _perm(draft, inner)
    if first is None or len(first) != len(perm):
        return None
    both = [first[axis] for axis in perm]
    return inner.input[0] if both == sorted(both) else _like(node, [inner.input[0]], {"perm": both})


def _perm(draft: Draft, node: NodeProto) -> list[int] | None:
    perm = draft.attributes(node).get("perm")
    if perm is not None:
        return list(perm)
    shape = draft.shape(node.input[0])
    return None if shape is None else list(range(len(shape)))[::-1]


def _reshape(draft: Draft, node: NodeProto) -> str | NodeProto | None:
    """The second of two reshapes alone, unless it takes sizes from its input (0) that are others now; and a shape that
    is computed from sizes as a constant.
    """
    if draft.same_type(node.input[0], node.output[0]):
        return node.input[0]
    known = _as_constant(draft, node)
    if known is not None:
        return known
    inner = draft.makers.get(node.input[0])
    if inner is None or inner.domain or inner.op_type not in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return None
    wanted = draft.array(node.input[1]) if len(node.input) > 1 else None
    if wanted is None or draft.opset < 5 or 0 in wanted:
        return None
    return _like(node, [inner.input[0], node.input[1]], None)


def _as_constant(draft: Draft, node: NodeProto) -> NodeProto | None:
    """A Reshape whose shape is computed from sizes of its input, with a shape of numbers, 0 and one -1.

    Without `allowzero` a computed size of 0 stands for the size of the input.  So a size that may be 0 must be that of
    the input at its place; with `allowzero`, it may be the one that is left.
    """
    old, shape = draft.shape(node.input[0]), draft.type(node.input[1]) if len(node.input) > 1 else None
    if (
        old is None
        or shape is None
        or shape.content is None
        or draft.opset < 5
        or draft.array(node.input[1]) is not None
    ):
        return None
    copies = not draft.attributes(node).get("allowzero", 0)
    new: list[Dim | None] = []
    for place, element in enumerate(shape.content):
        size = element if isinstance(element, Size) or (type(element) is int and element >= -1) else None
        if size is None or (size == 0 and not (copies and place < len(old))):
            return None
        new.append(old[place] if size == 0 else None if size == -1 else size)
    left = [place for place, size in enumerate(new) if size is None]
    if len(left) > 1:
        return None
    open_ = [place for place, size in enumerate(new) if isinstance(size, Size) and not is_copied(old, place, size)]
    if copies and any(may_be_zero(new[place]) for place in open_):
        return None
    if left:
        new[left[0]] = what_is_left(old, new, left[0])
    found = constant_shape(old, new, left[0] if left else None)
    if found is None:
        return None
    return _like(node, [node.input[0], draft.new_constant(f"{node.output[0]}_shape", np.array(found, np.int64))], {})


def _undone(other: str) -> Rewrite:
    """Squeeze of Unsqueeze, Not of Not: the value before both, where it has the type of the result."""

    def rewrite(draft: Draft, node: NodeProto) -> str | None:
        inner = draft.makers.get(node.input[0])
        if inner is None or inner.domain or inner.op_type != other:
            return None
        return inner.input[0] if draft.same_type(inner.input[0], node.output[0]) else None

    return rewrite


def _squeeze(other: str) -> Rewrite:
    undone = _undone(other)

    def rewrite(draft: Draft, node: NodeProto) -> str | NodeProto | None:
        return _same_shape(draft, node) or undone(draft, node)

    return rewrite


def _like(node: NodeProto, inputs: list[str], attributes: Mapping[str, Any] | None) -> NodeProto:
    """The node with other inputs, and with other attributes where they are given."""
    made = copy.copy(node)
    made.input = inputs
    if attributes is not None:
        made.attribute = [make_attribute(name, value) for name, value in attributes.items()]
    return made


REWRITES: Mapping[str, Rewrite] = MappingProxyType(
    {
        "Identity": _identity,
        "Dropout": _dropout,
        "Cast": _cast,
        "CastLike": _same_shape,
        "Concat": _one_input,
        "Max": _one_input,
        "Mean": _one_input,
        "Min": _one_input,
        "Sum": _one_input,
        "Expand": _same_shape,
        "Flatten": _same_shape,
        "Tile": _same_shape,
        "Pad": _pad,
        "Slice": _slice,
        "Add": _neutral(0, both=True),
        "Sub": _neutral(0, both=False),
        "Mul": _neutral(1, both=True),
        "Div": _neutral(1, both=False),
        "Pow": _neutral(1, both=False),
        "Transpose": _transpose,
        "Reshape": _reshape,
        "Squeeze": _squeeze("Unsqueeze"),
        "Unsqueeze": _squeeze("Squeeze"),
        "Not": _undone("Not"),
        "Neg": _undone("Neg"),
    }
)
