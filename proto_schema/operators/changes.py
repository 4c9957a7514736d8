"""What changed between the versions of operators: names of arguments, their defaults, how axes are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema import operators
from proto_schema.operators import OpSchema

RENAMED = {("TopK", "k"): "K", ("Pad", "value"): "constant_value"}
"""The same argument under an older name: an attribute of old versions, an input of new ones."""
FORMERLY = {(op_type, new): old for (op_type, old), new in RENAMED.items()}
NEGATIVE_AXES = 11
"""From this opset on operators count negative axes from the end."""
WORDS = {
    ("ScatterElements", "reduction", "max"): 18,
    ("ScatterElements", "reduction", "min"): 18,
    ("ScatterND", "reduction", "max"): 18,
    ("ScatterND", "reduction", "min"): 18,
    ("Pad", "mode", "wrap"): 19,
}
"""The opset that first has a word of an attribute that is older."""
FORMER_WORDS = {("GridSample", "mode"): (20, {"linear": "bilinear", "cubic": "bicubic"})}
"""Words of an attribute by their names in versions before an opset."""


def newest(op_type: str, domain: str = "") -> OpSchema | None:
    """The newest version of an operator; None for one that the standard lacks."""
    versions = operators.versions(op_type, domain)
    return operators.schema(op_type, versions[-1], domain) if versions else None


def is_default(schema: OpSchema, name: str, value: Any) -> bool:
    """Whether an argument only says what the attribute is anyway."""
    row = schema.attributes.get(name)
    if row is None:
        return False
    default = row.default.decode() if isinstance(row.default, bytes) else row.default
    value = value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
    return bool(default == value)


def from_the_front(schema: OpSchema, rank: int | None, attributes: dict[str, Any]) -> None:
    """Count negative axes from the front, where older versions take no others and the rank of the input is known."""
    if schema.domain or schema.since_version >= NEGATIVE_AXES or rank is None:
        return
    for name in ("axis", "axes"):
        found = attributes.get(name)
        items = list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]
        if all(item >= 0 for item in items) or schema.name == "OneHot":  # whose axis is the result's
            continue
        axes = rank + (len(items) if schema.name == "Unsqueeze" else 0)
        counted = [item % axes if axes else item for item in items]
        attributes[name] = counted if isinstance(found, (list, tuple)) else counted[0]


def first_version(op_type: str, domain: str, arguments: Sequence[str]) -> int | None:
    """The lowest opset that has the operator with those arguments; None where no opset has it."""
    found = operators.versions(op_type, domain)
    schema = newest(op_type, domain)
    first = operators.schema(op_type, found[0], domain) if found else None
    if schema is None or first is None or schema.deprecated:
        return None
    known = [*first.attributes, *[item.name for item in first.inputs]]
    later = [first_with(first, RENAMED.get((op_type, name), name)) for name in arguments if name not in known]
    return max([found[0], *[version for version in later if version is not None]])


def first_with(schema: OpSchema, name: str, as_input: bool = False) -> int | None:
    """The lowest later opset whose version has an argument of that name."""
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is None or version <= schema.since_version:
            continue
        if name in [item.name for item in later.inputs] or (name in later.attributes and not as_input):
            return version
    return None
