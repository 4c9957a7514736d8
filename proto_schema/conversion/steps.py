"""What changed between two versions of an operator, from the operator history, and the changes that need no row.

Most changes add types only: upwards these need nothing, and downwards a look at the types that the node has. A change
of form that a node does not use needs nothing either: `fit` drops attributes that say a default, and writes defaults
that were others in the other version.
"""

from __future__ import annotations

from functools import cache

from proto_schema import operators
from proto_schema.conversion import rows
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.onnx import AttributeProto
from proto_schema.operators import OpSchema

_HINTS = ("consumed_inputs", "is_test")
"""Attributes of the first opsets that say nothing about results at inference, and that later ones withdrew."""
_EMPTY = (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS)


@cache
def changes(domain: str, name: str, source: int, target: int) -> tuple[int, ...]:
    """The versions between two opsets at which the operator changed its form or appeared, in the order of the way.

    Downwards these are versions that are left, upwards such that are reached.
    """
    upward = target > source
    low, high = min(source, target), max(source, target)
    known = operators.versions(name, domain)
    found = []
    for version in known:
        if low < version <= high:
            before = operators.schema(name, version - 1, domain)
            after = operators.schema(name, version, domain)
            row = rows.find(domain, name, version, upward)
            if row is not None or before is None or after is None or not same_form(before, after):
                found.append(version)
    return tuple(found if upward else reversed(found))


def same_form(one: OpSchema, other: OpSchema) -> bool:
    """Whether two versions differ in nothing but types."""
    return (
        one.deprecated == other.deprecated
        and [item.option for item in one.inputs] == [item.option for item in other.inputs]
        and [item.option for item in one.outputs] == [item.option for item in other.outputs]
        and one.attributes == other.attributes
    )


def fit(node: VersionedNode, into: OpSchema, opset: int) -> None:
    """Bring the node to another version, where it uses nothing that this one lacks. Raises RefusedError."""
    given, said = node.schema, node.node.attributes
    for name in list(said):
        if name in into.attributes:
            continue
        if name in _HINTS and into.since_version > given.since_version:
            node.with_(drop=name)
            continue
        declared = given.attributes.get(name)
        default = declared.default if declared is not None else None
        value = node.attribute(name)
        plain = tuple(value) if isinstance(value, list) else value
        if plain == default or (declared is not None and declared.type in _EMPTY and not plain and default is None):
            node.with_(drop=name)
        else:
            raise RefusedError(f"its attribute {name!r} is {_shown(value)}, which opset {opset} lacks")
    for name, declared in into.attributes.items():
        if name in said:
            continue
        before = given.attributes.get(name)
        if before is not None and before.default is not None and before.default != declared.default:
            value = before.default
            node.with_(also={name: list(value) if isinstance(value, tuple) else value})
        elif declared.required:
            raise RefusedError(f"opset {opset} requires the attribute {name!r}")
    _check_count(node, into, opset)
    node.schema = into


def _check_count(node: VersionedNode, into: OpSchema, opset: int) -> None:
    for place in range(into.max_input, len(node.inputs)):
        if node.inputs[place] is not None:
            what = f"its input {node.formal(place)!r} is not there in opset {opset}"
            raise RefusedError(what)
    for place in range(into.max_output, len(node.outputs)):
        if node.outputs[place]:
            what = node.schema.outputs[min(place, len(node.schema.outputs) - 1)].name
            raise RefusedError(f"its output {what!r} is not there in opset {opset}")
    for place in range(into.min_input):
        formal = into.inputs[min(place, len(into.inputs) - 1)]
        if formal.option == "single" and not node.has(place):
            raise RefusedError(f"opset {opset} requires the input {formal.name!r}")


def _shown(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) < 60 else f"{text[:60]}..."
