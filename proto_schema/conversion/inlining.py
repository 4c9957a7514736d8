"""Writes calls of functions out: the nodes of the body in place of the call, with names and attributes of their own.

Only what is asked for is written out. A function may call another; both may be asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from proto_schema.conversion.errors import ConversionError
from proto_schema.graphs.calls import FunctionId, callable_functions, callee, function_id
from proto_schema.onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

DEEPEST = 100


class Inliner:
    """Writes out the calls of some functions of a model."""

    def __init__(self, model: ModelProto, wanted: set[FunctionId], taken: set[str]) -> None:
        self.functions = callable_functions(model.functions)
        self.wanted = wanted
        self.taken = taken
        self.count = 0

    def model(self, model: ModelProto) -> ModelProto:
        """The model without these functions. Raises ConversionError for functions that call each other in a circle."""
        made = copy.copy(model)
        if model.graph is not None:
            made.graph = self._graph(model.graph, {}, 0)
        functions = []
        for function in model.functions:
            if function_id(function) in self.wanted:
                continue
            kept = copy.copy(function)
            kept.node = self._nodes(function.node, 0)
            functions.append(kept)
        made.functions = functions
        return made

    def _nodes(self, nodes: Sequence[NodeProto], depth: int) -> list[NodeProto]:
        found: list[NodeProto] = []
        for node in nodes:
            key = callee(node)
            if key in self.wanted and key in self.functions:
                found += self._call(self.functions[key], node, depth)
            elif any(item.g is not None for item in node.attribute):
                made = copy.copy(node)
                made.attribute = [self._inner(item, {}, depth) for item in node.attribute]
                found.append(made)
            else:
                found.append(node)
        return found

    def _inner(self, item: AttributeProto, names: Mapping[str, str], depth: int) -> AttributeProto:
        if item.g is None:
            return item
        made = copy.copy(item)
        made.g = self._graph(item.g, names, depth)
        return made

    def _graph(self, graph: GraphProto, names: Mapping[str, str], depth: int) -> GraphProto:
        made = copy.copy(graph)
        made.node = self._nodes(graph.node, depth)
        return made

    def _call(self, function: FunctionProto, call: NodeProto, depth: int) -> list[NodeProto]:
        if depth > DEEPEST:
            raise ConversionError(f"the function {function.name!r} calls itself")
        prefix = f"{call.name or function.name}/"
        names: dict[str, str] = {}
        for place, name in enumerate(function.input):
            names[name] = call.input[place] if place < len(call.input) else ""
        made: list[NodeProto] = []
        outputs = dict(zip(function.output, call.output, strict=False))
        for name, outer in outputs.items():
            if outer and name not in names:
                names[name] = outer
        given = {item.name or "": item for item in function.attribute_proto}
        given.update({item.name or "": item for item in call.attribute})
        for node in function.node:
            made.append(self._node(node, names, given, prefix))
        for name, outer in outputs.items():
            if outer and names.get(name) != outer:  # an output that is an input
                made.append(NodeProto(op_type="Identity", input=[names[name]], output=[outer]))
        return self._nodes(made, depth + 1)

    def _node(
        self, node: NodeProto, names: dict[str, str], given: Mapping[str, AttributeProto], prefix: str
    ) -> NodeProto:
        made = copy.copy(node)
        made.input = [names.get(name, name) if name else "" for name in node.input]
        made.output = [self._named(name, names, prefix) for name in node.output]
        if node.name:
            made.name = prefix + node.name
        attributes = []
        for item in node.attribute:
            if item.ref_attr_name:
                passed = given.get(item.ref_attr_name)
                if passed is None:
                    continue
                bound = copy.copy(passed)
                bound.name = item.name
                attributes.append(bound)
            elif item.g is not None:
                bound = copy.copy(item)
                bound.g = self._body(item.g, names, given, prefix)
                attributes.append(bound)
            else:
                attributes.append(item)
        made.attribute = attributes
        return made

    def _body(
        self, graph: GraphProto, names: Mapping[str, str], given: Mapping[str, AttributeProto], prefix: str
    ) -> GraphProto:
        inner = dict(names)
        made = copy.copy(graph)
        for field in ("input", "initializer"):
            items = [copy.copy(item) for item in getattr(graph, field)]
            for item in items:
                inner.pop(item.name or "", None)
                item.name = self._named(item.name or "", inner, prefix)
            setattr(made, field, items)
        made.node = [self._node(node, inner, given, prefix) for node in graph.node]
        made.output = [copy.copy(item) for item in graph.output]
        for output in made.output:
            output.name = inner.get(output.name or "", output.name)
        made.value_info = []
        return made

    def _named(self, name: str, names: dict[str, str], prefix: str) -> str:
        """The name that a value of the body has in the graph around the call."""
        if not name:
            return ""
        if name not in names:
            fresh = prefix + name
            while fresh in self.taken:
                self.count += 1
                fresh = f"{prefix}{name}_{self.count}"
            self.taken.add(fresh)
            names[name] = fresh
        return names[name]
