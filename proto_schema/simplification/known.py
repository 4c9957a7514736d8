"""What the rows of a simplification ask of the values and nodes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proto_schema import operators
from proto_schema.budget import Budget
from proto_schema.errors import UnreadableDataError
from proto_schema.inference.site import misform
from proto_schema.ir import Builder, Model, Node, Value
from proto_schema.ir.calls import has_attributes
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.tensors.dtypes import DTYPES

Array = Any
PLAIN = frozenset(code for code, row in DTYPES.items() if row.native)
"""Data types that numpy has: others are not folded."""


class Known:
    """What inference knows of a model, and what its small constants hold."""

    def __init__(self, model: Model, limit: int, budget: Budget) -> None:
        """Constants of more than `limit` bytes are not read. `budget` is for what is computed of them."""
        model.infer()
        self.model = model
        self.graph = model.graph
        self.builder = Builder(model.graph, model.opsets)
        self.limit = limit
        self.budget = budget
        self.opsets = {operators.canonical(domain): version for domain, version in model.opsets.items()}
        self.opset = self.opsets.get("", 0)
        self.functions = {(item.domain, item.name, item.overload) for item in model.functions}
        self.outputs = set(self.graph.outputs)
        self._arrays: dict[Value, Array] = {}
        self._fitting: dict[Any, bool] = {}  # of nodes without attributes

    def array(self, value: Value | None) -> Array | None:
        """The elements of a small constant, or those that inference knows; None for what is large or numpy lacks."""
        if value is None:
            return None
        if value not in self._arrays:
            self._arrays[value] = self.read(value, self.limit)
        return self._arrays[value]

    def read(self, value: Value, limit: int) -> Array | None:
        """The elements of a value of at most so many bytes; None for others, and where its data is not there."""
        if value.dtype not in PLAIN:
            return None
        try:
            return value.array(limit)
        except UnreadableDataError:  # the constant stays as it is
            return None

    def hold(self, value: Value, array: Array) -> None:
        """Remember what a new constant holds."""
        self._arrays[value] = array

    def attributes(self, node: Node) -> Mapping[str, Any]:
        """The attributes with the defaults of the operator's version."""
        schema = operators.schema(node.op_type, self.opset)
        declared = schema.attributes if schema is not None else {}
        found = {name: row.default for name, row in declared.items() if row.default is not None}
        return {**found, **node.attributes} if node.attributes else found

    def calls_function(self, node: Node) -> bool:
        """Whether the model has a function of the name, which the node may mean."""
        return (node.domain, node.op_type, node.overload) in self.functions

    def fits(self, node: Node) -> bool:
        """Whether a node has the inputs, outputs and attributes that its version of the operator asks for."""
        if node.domain:
            return True
        shape = node.op_type, len(node.outputs), tuple([item is None for item in node._reads])
        key = None if has_attributes(node) else shape
        if key is not None and key in self._fitting:
            return self._fitting[key]
        fits = self._fits(node)
        if key is not None:
            self._fitting[key] = fits
        return fits

    def _fits(self, node: Node) -> bool:
        schema = operators.schema(node.op_type, self.opset)
        if schema is None:
            return False
        inputs = zip(schema.inputs, node.inputs, strict=False)
        if any(value is None and formal.option == "single" for formal, value in inputs):
            return False
        rows = node.attributes.messages()
        given = {row.name or "": None if row.ref_attr_name else get_attribute_value(row) for row in rows}
        return len(node.outputs) >= schema.min_output and not misform(schema, len(node.inputs), given)
