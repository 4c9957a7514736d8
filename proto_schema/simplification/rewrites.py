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

from proto_schema.helper import make_attribute
from proto_schema.onnx import NodeProto
from proto_schema.simplification.draft import Draft

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
    """The second of two reshapes alone, unless it takes sizes from its input (0) that are others now."""
    if draft.same_type(node.input[0], node.output[0]):
        return node.input[0]
    inner = draft.makers.get(node.input[0])
    if inner is None or inner.domain or inner.op_type not in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return None
    wanted = draft.array(node.input[1]) if len(node.input) > 1 else None
    if wanted is None or draft.opset < 5 or 0 in wanted:
        return None
    return _like(node, [inner.input[0], node.input[1]], None)


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
