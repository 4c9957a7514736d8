"""What a check depends on beside the message: versions and functions of the model, and the names in scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from proto_schema.checking.place import Problem
from proto_schema.graphs.calls import FunctionId, domain_of
from proto_schema.onnx import FunctionProto, OperatorSetIdProto
from proto_schema.operators import OpSchema, schema


def imported(opset_import: list[OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> version; of two entries for a domain the last counts, as in the official checker.

    Raises Problem for a version that is no int32.
    """
    for place, entry in enumerate(opset_import):
        if not -(2**31) <= (entry.version or 0) < 2**31:
            raise Problem(f"the version {entry.version} is out of range", "opset_import", place)
    return {domain_of(entry.domain): entry.version or 0 for entry in opset_import}


class SchemaSource(Protocol):
    """Where schemas of users' own operators are found: `defs.Registry`."""

    def find(self, op_type: str, opset: int, domain: str) -> OpSchema | None:
        """The schema in force at this opset of the domain."""
        ...


@dataclass(frozen=True)
class Context:
    """The surroundings of a check.

    `opsets`: domain -> version. `main_graph`: whether value infos must have types. `in_function`: whether attributes
    may refer to those of a function. `registry`: schemas of users' own operators. External data is looked for where a
    tensor was loaded from; of a message in memory its presence is not checked.
    """

    ir_version: int
    opsets: Mapping[str, int]
    functions: Mapping[FunctionId, FunctionProto] = field(default_factory=dict)
    main_graph: bool = True
    in_function: bool = False
    check_custom_domain: bool = False
    skip_opset_compatibility_check: bool = False
    registry: SchemaSource | None = None
    known_attributes: dict[int, frozenset[str | None]] = field(default_factory=dict)
    known_schemas: dict[tuple[str, str, int], OpSchema | None] = field(default_factory=dict)

    def schema_of(self, op_type: str, domain: str) -> OpSchema | None:
        """The schema in force at the imported opset of the domain, looked up once for all nodes."""
        key = op_type, domain, self.opsets[domain]
        if key not in self.known_schemas:
            found = schema(op_type, key[2], domain)
            if found is None and self.registry is not None:
                found = self.registry.find(op_type, key[2], domain)
            self.known_schemas[key] = found
        return self.known_schemas[key]

    def attributes_of(self, function: FunctionProto) -> frozenset[str | None]:
        """The names of a function's attributes, put together once for all its calls."""
        found = self.known_attributes.get(id(function))
        if found is None:
            declared = (attribute.name for attribute in function.attribute_proto)
            found = self.known_attributes[id(function)] = frozenset([*function.attribute, *declared])
        return found


class NameScope:
    """The names defined in a graph, and those of the graphs around it."""

    __slots__ = ("names", "outer")

    def __init__(self, outer: NameScope | None = None) -> None:
        self.names: set[str] = set()
        self.outer = outer

    def sees(self, name: str) -> bool:
        """Whether the name is defined here or further out."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False
