"""`VersionedNode`: what a row of the table sees, a node of the graph in the form of one version of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from proto_schema import operators
from proto_schema.conversion.errors import ParameterError, RefusedError
from proto_schema.inference.types import Type
from proto_schema.ir import Node, Value
from proto_schema.onnx import AttributeProto
from proto_schema.operators import OpSchema
from proto_schema.tensors.attributes import make_attribute


class VersionedNode:
    """A node in the form of `schema`. Its attributes have the defaults of that version."""

    __slots__ = ("node", "schema")

    def __init__(self, node: Node, schema: OpSchema) -> None:
        self.node = node
        self.schema = schema

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """What it reads; None for what it leaves out."""
        return self.node.inputs

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """What it makes; None for outputs that nobody wants."""
        return self.node.outputs

    @property
    def types(self) -> list[Type | None]:
        """What is known of the types of its outputs."""
        return [None if value is None else value.type for value in self.node.outputs]

    # -- inputs

    def has(self, place: int) -> bool:
        """Whether the node has that input."""
        return self.node.input(place) is not None

    def input(self, place: int) -> Value | None:
        """An input, None where the node leaves it out."""
        return self.node.input(place)

    def __getitem__(self, place: int) -> Value:
        """An input that the operator requires. Raises RefusedError where the node has none."""
        found = self.input(place)
        if found is None:
            raise RefusedError(f"it has no input {place}, which its operator requires")
        return found

    def wants(self, place: int) -> bool:
        """Whether the node names that output."""
        return place < len(self.outputs) and self.outputs[place] is not None

    def out_type(self, place: int) -> Type | None:
        """What is known of the type of an output."""
        return self.types[place] if place < len(self.outputs) else None

    # -- what rows ask, and refuse where it is not known

    def ints(self, place: int) -> list[int] | None:
        """The elements of an integer input, where the node has it and they are known."""
        found = self.input(place)
        return None if found is None else found.ints()

    def need_ints(self, place: int) -> list[int]:
        """The same. Raises RefusedError where they are not known."""
        found = self.ints(place)
        if found is None:
            raise RefusedError(f"its input {self.formal(place)!r} is computed when the model runs")
        return found

    def need_rank(self, place: int) -> int:
        """The rank of an input. Raises RefusedError where it is not known."""
        found = self[place].rank
        if found is None:
            raise RefusedError(f"the rank of its input {self.formal(place)!r} is not known")
        return found

    def need_dtype(self, place: int) -> int:
        """The data type of an input. Raises RefusedError where it is not known."""
        found = self[place].dtype
        if not found:
            raise RefusedError(f"the data type of its input {self.formal(place)!r} is not known")
        return found

    def formal(self, place: int) -> str:
        """The name of an input in the operator's specification."""
        formals = self.schema.inputs
        return formals[min(place, len(formals) - 1)].name if formals else str(place)

    # -- attributes

    def given(self, name: str) -> bool:
        """Whether the node has that attribute itself."""
        return name in self.node.attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: the node's, else the default of this version, else `default`. Text is bytes.

        Raises ParameterError for one whose value is the function's.
        """
        value = self.node.attributes.get(name)
        if isinstance(value, AttributeProto):
            raise ParameterError(f"its attribute {name!r} is a parameter of the function")
        if value is not None:
            return value
        declared = self.schema.attributes.get(name)
        if declared is None or declared.default is None:
            return default
        return list(declared.default) if isinstance(declared.default, tuple) else declared.default

    def text(self, name: str, default: str = "") -> str:
        """The value of a text attribute."""
        value = self.attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)

    def arguments(self) -> dict[str, Any]:
        """The inputs and attributes by name, as a form takes them. Raises ParameterError as `attribute` does."""
        found: dict[str, Any] = {}
        for place, value in enumerate(self.inputs):
            formal = self.schema.inputs[min(place, len(self.schema.inputs) - 1)]
            if formal.option == "variadic":
                found.setdefault(formal.name, []).append(value)
            elif value is not None:
                found[formal.name] = value
        for name in self.schema.attributes:
            value = self.attribute(name)
            if value is not None:
                found[name] = self.text(name) if isinstance(value, (bytes, bytearray)) else value
        return found

    # -- another form of the same node

    def with_(
        self,
        *,
        op_type: str = "",
        inputs: Sequence[Value | None] | None = None,
        drop: str = "",
        also: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> VersionedNode:
        """Bring the node to the form of the version that the row leads to. `drop` names attributes that it loses.

        An attribute of the value None goes, too. `also` has attributes whose names are computed.
        """
        node = self.node
        node.op_type = op_type or node.op_type
        if inputs is not None:
            node.inputs = trimmed(inputs)
        node.outputs = (*node.outputs[:1], *trimmed(node.outputs[1:]))
        set_attributes(node, {**dict.fromkeys(drop.split()), **attributes, **(also or {})})
        return self


def trimmed(values: Sequence[Value | None]) -> Sequence[Value | None]:
    """The values without those at the end that are left out."""
    while values and values[-1] is None:
        values = values[:-1]
    return values


def set_attributes(node: Node, values: Mapping[str, Any]) -> None:
    """Set attributes in the types that the operator declares; those of the value None go."""
    for name, value in values.items():
        if value is not None:
            node.attributes[name] = _typed(name, value, _declared_type(node.op_type, node.domain, name))
        elif name in node.attributes:
            del node.attributes[name]


def _typed(name: str, value: Any, code: int | None) -> Any:
    if code == AttributeProto.GRAPH or isinstance(value, AttributeProto):
        return value
    if code == AttributeProto.FLOAT:
        value = float(value)
    elif code == AttributeProto.FLOATS:
        value = [float(item) for item in value]
    elif code == AttributeProto.INT:
        value = int(value)
    elif code == AttributeProto.INTS:
        value = [int(item) for item in value]
    return make_attribute(name, value, attr_type=code)


@cache
def _declared_type(op_type: str, domain: str, name: str) -> int | None:
    """The type of an attribute, as the newest version of the operator that has it declares it."""
    for version in reversed(operators.versions(op_type, domain)):
        schema = operators.schema(op_type, version, domain)
        if schema is not None and name in schema.attributes:
            return schema.attributes[name].type
    return None
