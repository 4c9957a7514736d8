"""Calls of functions become the nodes of their bodies.

For one call: the body is copied; its values, those of graphs in it and its nodes get names that nothing else has,
inputs and outputs the names of the call; attributes that refer to the function's take the values of the call, else the
defaults, else go away; then calls among the new nodes are handled the same way. Graphs that the call passes as
attributes belong to the caller, and none of their names change. The number of nodes that come of it is known before
anything is copied, because a few functions that call each other can make any number.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proto_schema.errors import CheckError
from proto_schema.graphs.calls import FunctionId, callee
from proto_schema.graphs.names import Unique, bodies, defined, rename_node
from proto_schema.inlining.versions import all_nodes
from proto_schema.onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto

__all__ = ["MOST_NODES", "CallInliner", "refuse_too_many"]

MOST_NODES = 10_000_000
"""Nodes that inlining may make. A file of 2 GiB has fewer."""

Find = Callable[[NodeProto], "FunctionProto | None"]
Convert = Callable[[NodeProto, list[NodeProto], FunctionProto], list[NodeProto]]


@dataclass
class CallInliner:
    """Inlines what `find` gives for a node. `convert` brings the nodes of a body to the versions of the caller."""

    find: Find
    unique: Unique
    convert: Convert | None = None
    inlined: list[FunctionProto] = field(default_factory=list)
    count: int = 0

    def nodes(self, nodes: list[NodeProto], infos: list[ValueInfoProto]) -> list[NodeProto]:
        """The nodes with calls replaced, at any depth; the types of values of bodies are added to `infos`."""
        made: list[NodeProto] = []
        for node in nodes:
            self._append(node, made, infos)
        return made

    def _append(self, node: NodeProto, made: list[NodeProto], infos: list[ValueInfoProto]) -> None:
        function = self.find(node)
        if function is None:
            for graph in bodies(node):
                graph.node = self.nodes(graph.node, graph.value_info)
            made.append(node)
            return
        self.inlined.append(function)
        for inner in self._body(node, function, infos):
            self._append(inner, made, infos)

    def _body(self, call: NodeProto, function: FunctionProto, infos: list[ValueInfoProto]) -> list[NodeProto]:
        """The nodes of the function for one call, under names of the caller."""
        self.count += 1
        suffix = f"__{self.count}"
        scope, passed = _interface(call, function, lambda name: self.unique(name + suffix))
        body = [copy.deepcopy(node) for node in function.node]
        for node in body:
            for name in node.output:
                if name and name not in scope:
                    scope[name] = self.unique(name + suffix)
        names = ChainMap(scope)
        for node in body:
            rename_node(node, names, self._local(suffix), lambda name: self.unique(name + suffix))
        ends = {name for name in (*call.input, *call.output) if name}
        for value in function.value_info:
            renamed = scope.get(value.name or "")
            if renamed and renamed not in ends:
                info = copy.deepcopy(value)
                info.name = renamed
                infos.append(info)
        body += passed
        bind(body, call, function)
        return body if self.convert is None else self.convert(call, body, function)

    def _local(self, suffix: str) -> Callable[[GraphProto], Mapping[str, str]]:
        return lambda graph: {name: self.unique(name + suffix) for name in dict.fromkeys(defined(graph)) if name}


def _interface(
    call: NodeProto, function: FunctionProto, fresh: Callable[[str], str]
) -> tuple[dict[str, str], list[NodeProto]]:
    """Names of the body -> those of the caller, for inputs and outputs, and nodes for inputs that are outputs, too."""
    for what, formals, actuals in (
        ("inputs", function.input, call.input),
        ("outputs", function.output, call.output),
    ):
        if len(actuals) > len(formals):
            raise CheckError(
                f"the node {call.name or call.op_type!r} has {len(actuals)} {what}; the function "
                f"{function.domain or ''}::{function.name or ''} has {len(formals)}"
            )
    scope = dict.fromkeys(function.input, "")
    scope.update(zip(function.input, call.input, strict=False))
    inputs = set(function.input)
    passed = []
    for place, formal in enumerate(function.output):
        actual = call.output[place] if place < len(call.output) else ""
        if formal not in inputs:
            scope[formal] = actual or fresh(formal)
        elif actual:
            passed.append(NodeProto(op_type="Identity", domain="", input=[formal], output=[actual]))
    for node in passed:
        node.input = [scope[name] for name in node.input]
    return scope, passed


def bind(nodes: list[NodeProto], call: NodeProto, function: FunctionProto) -> None:
    """Attributes that refer to those of the function take their values from the call, or the default, or go away."""
    given = {attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)}
    for node in list(all_nodes(nodes)):  # before graphs of the call get among them
        node.attribute = [bound for attribute in node.attribute if (bound := _bound(attribute, given)) is not None]


def _bound(attribute: AttributeProto, given: Mapping[str | None, AttributeProto]) -> AttributeProto | None:
    if not attribute.ref_attr_name:
        return attribute
    value = given.get(attribute.ref_attr_name)
    if value is None:
        return None
    made = copy.deepcopy(value)
    made.name = attribute.name
    made.doc_string = attribute.doc_string
    return made


def refuse_too_many(nodes: list[NodeProto], find: Find, key: Callable[[NodeProto], FunctionId] = callee) -> None:
    """ValueError where inlining would make more than MOST_NODES nodes. Calls must not be recursive."""
    sizes: dict[FunctionId, int] = {}

    def size(inner: list[NodeProto]) -> int:
        total = 0
        for node in all_nodes(inner):
            function = find(node)
            if function is None:
                total += 1
                continue
            name = key(node)
            if name not in sizes:
                sizes[name] = size(function.node)
            total += sizes[name]
        return total

    total = size(nodes)
    if total > MOST_NODES:
        raise ValueError(
            f"inlining would make {total:,} nodes, and {MOST_NODES:,} are the limit: inline fewer functions with "
            "inline_selected_functions"
        )
