"""Nodes that change nothing, and pairs of nodes that cancel: a row for each operator.

A row gets what is known of the graph and a node. It returns the value that the node's result equals, True where it made
the node another one with the same result, or None. A value may stand for a result only where data type and shape are
known to be the same for all sizes of the inputs; the engine checks that again for every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from proto_schema.inference.types import Tensor
from proto_schema.ir import Node, Value
from proto_schema.numpy_helper import from_array
from proto_schema.simplification.known import Known
from proto_schema.sizes import Dim, Size
from proto_schema.sizes.reshaping import constant_shape, is_copied, may_be_zero, what_is_left

Rewrite = Callable[[Known, Node], "Value | bool | None"]


def _identity(known: Known, node: Node) -> Value | None:
    return node.input(0)


def _dropout(known: Known, node: Node) -> Value | None:
    """In inference: the mask is not used, and nothing asks for training."""
    if any(value is not None and value.uses for value in node.outputs[1:]):
        return None
    if node.input(2) is not None and known.single(node.input(2)) is not False:
        return None
    return None if known.opset < 7 else node.input(0)


def _cast(known: Known, node: Node) -> Value | None:
    data = node.input(0)
    return data if data is not None and data.dtype == known.attributes(node).get("to") else None


def _one_input(known: Known, node: Node) -> Value | None:
    return node.input(0) if len(node.inputs) == 1 else None


def _same_shape(known: Known, node: Node) -> Value | None:
    """For Reshape, Expand, Tile and others that only move or repeat: the same shape is the same tensor."""
    return _of_same_type(known, node.input(0), node)


def _of_same_type(known: Known, value: Value | None, node: Node) -> Value | None:
    """The value if it has the type of the result."""
    return value if value is not None and known.same_type(value, node.output) else None


def _pad(known: Known, node: Node) -> Value | None:
    pads = known.attributes(node).get("pads") if known.opset < 11 else known.array(node.input(1))
    return node.input(0) if pads is not None and not any(pads) else None


def _slice(known: Known, node: Node) -> Value | None:
    """A part of the same shape is the whole, unless it goes backwards."""
    steps = known.array(node.input(4)) if node.input(4) is not None else ()
    forwards = steps is not None and all(step > 0 for step in steps)
    return _same_shape(known, node) if forwards else None


def _neutral(number: int, both: bool) -> Rewrite:
    """`x + 0`, `x * 1`: with a number on the right, or on either side."""

    def rewrite(known: Known, node: Node) -> Value | None:
        for mine, other in ((0, 1), (1, 0)) if both else ((0, 1),):
            found = known.single(node.input(other))
            value = _of_same_type(known, node.input(mine), node)
            if found == number and value is not None:
                # x + 0.0 and x - -0.0 make 0.0 of -0.0; only x + -0.0 and x - 0.0 are always x
                sign = {"Add": -1, "Sub": 1}.get(node.op_type) if isinstance(found, float) else None
                return value if sign is None or math.copysign(1, found) == sign else None
        return None

    return rewrite


def _inner(node: Node, *op_types: str) -> Node | None:
    """The node of one of these operators that makes the first input."""
    data = node.input(0)
    inner = None if data is None else data.producer
    return inner if inner is not None and not inner.domain and inner.op_type in op_types and inner.inputs else None


def _transpose(known: Known, node: Node) -> Value | bool | None:
    perm = _perm(known, node)
    if perm is None:
        return None
    if perm == sorted(perm):
        return node.input(0)
    inner = _inner(node, "Transpose")
    first = None if inner is None else _perm(known, inner)
    if inner is None or first is None or len(first) != len(perm):
        return None
    both = [first[axis] for axis in perm]
    return inner.input(0) if both == sorted(both) else _change(node, [inner.input(0)], {"perm": both})


def _perm(known: Known, node: Node) -> list[int] | None:
    perm, data = known.attributes(node).get("perm"), node.input(0)
    if perm is not None:
        return list(perm)
    return None if data is None or data.rank is None else list(range(data.rank))[::-1]


def _reshape(known: Known, node: Node) -> Value | bool | None:
    """The second of two reshapes alone, unless it takes sizes from its input (0) that are others now; and a shape that
    is computed from sizes as a constant.
    """
    found = _same_shape(known, node) or _as_constant(known, node)
    if found is not None:
        return found
    inner = _inner(node, "Reshape", "Squeeze", "Unsqueeze", "Flatten")
    wanted = known.array(node.input(1))
    if inner is None or wanted is None or known.opset < 5 or 0 in wanted:
        return None
    return _change(node, [inner.input(0), node.input(1)], None)


def _as_constant(known: Known, node: Node) -> bool | None:
    """A Reshape whose shape is computed from sizes of its input, with a shape of numbers, 0 and one -1.

    Without `allowzero` a computed size of 0 stands for the size of the input.  So a size that may be 0 must be that of
    the input at its place; with `allowzero`, it may be the one that is left.
    """
    data, computed = node.input(0), node.input(1)
    if data is None or computed is None or known.opset < 5 or known.array(computed) is not None:
        return None
    old, shape = data.shape, computed.type
    if old is None or not isinstance(shape, Tensor) or shape.content is None:
        return None
    copies = not known.attributes(node).get("allowzero", 0)
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
    array = np.array(found, np.int64)
    made = known.graph.add_initializer(from_array(array), known.model.new_name(f"{node.output.name}_shape"))
    known.hold(made, array)
    return _change(node, [data, made], {})


def _undone(other: str) -> Rewrite:
    """Squeeze of Unsqueeze, Not of Not: the value before both, where it has the type of the result."""

    def rewrite(known: Known, node: Node) -> Value | None:
        inner = _inner(node, other)
        return None if inner is None else _of_same_type(known, inner.input(0), node)

    return rewrite


def _squeeze(other: str) -> Rewrite:
    undone = _undone(other)

    def rewrite(known: Known, node: Node) -> Value | bool | None:
        return _same_shape(known, node) or undone(known, node)

    return rewrite


def _change(node: Node, inputs: Sequence[Value | None], attributes: Mapping[str, Any] | None) -> bool:
    """Give the node other inputs, and other attributes where they are given."""
    node.inputs = tuple(inputs)
    if attributes is not None:
        node.attributes.clear()
        node.attributes.update(attributes)
    return True


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
