"""What a model lacks before it can be converted: values that nothing makes, or what operators require of their nodes.

Such a model means nothing, at no opset, and rows of changes read what their operators require. The order of the nodes
is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proto_schema import operators
from proto_schema.attributes import get_attribute_value
from proto_schema.conversion.drafts import Refusal
from proto_schema.graphs.calls import callable_functions, callee
from proto_schema.inference.site import misform
from proto_schema.ir.inferred import opset_of
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto

_READ_BY_NOBODY = "consumed_inputs"  # required below opset 6, where files leave it out


def lacking(model: ModelProto, domain: str) -> list[Refusal]:
    """What is missing, a row for each node or output. `domain`: the one whose operators are looked at."""
    functions = set(callable_functions(model.functions))
    search = _Search(domain, functions)
    found: list[Refusal] = []
    for function in model.functions:
        found += search.function(function)
    if model.graph is not None:
        found += search.graph(model.graph, [], opset_of(model.opset_import, domain))
    return found


class _Search:
    def __init__(self, domain: str, functions: set[tuple[str, str, str]]) -> None:
        self.domain = domain
        self.functions = functions

    def function(self, function: FunctionProto) -> Iterator[Refusal]:
        known = {*function.input, *(name for node in function.node for name in node.output)}
        yield from self.nodes(function.node, [known], opset_of(function.opset_import, self.domain))
        for name in function.output:
            if name not in known:
                yield Refusal(f"the function {function.name!r}", f"nothing makes its output {name!r}")

    def graph(self, graph: GraphProto, outer: list[set[str]], opset: int) -> Iterator[Refusal]:
        known = {item.name or "" for item in graph.input} | {item.name or "" for item in graph.initializer}
        known.update(name for node in graph.node for name in node.output)
        for sparse in graph.sparse_initializer:
            if sparse.values is not None:
                known.add(sparse.values.name or "")
        around = [known, *outer]
        yield from self.nodes(graph.node, around, opset)
        for item in graph.output:
            if not _held(item.name or "", around):
                yield Refusal(f"the graph {graph.name!r}", f"nothing makes its output {item.name!r}")

    def nodes(self, nodes: Sequence[NodeProto], known: list[set[str]], opset: int) -> Iterator[Refusal]:
        for node in nodes:
            reason = self._reason(node, known, opset)
            if reason:
                made = ", ".join(repr(name) for name in node.output if name) or "nothing"
                title = f"node {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {made}"
                yield Refusal(title, reason)
            for item in node.attribute:
                for graph in (item.g, *item.graphs):
                    if graph is not None:
                        yield from self.graph(graph, known, opset)

    def _reason(self, node: NodeProto, known: list[set[str]], opset: int) -> str:
        for name in node.input:
            if name and not _held(name, known):
                return f"nothing makes its input {name!r}"
        key = callee(node)
        if key in self.functions or operators.canonical(key[0]) != self.domain:
            return ""
        schema = operators.schema(key[1], opset, self.domain)
        if schema is None:
            return ""
        for place, formal in enumerate(schema.inputs[: schema.min_input]):
            if formal.option == "single" and not (place < len(node.input) and node.input[place]):
                return f"its input {formal.name!r} is missing"
        if len(node.output) < schema.min_output:
            return f"it has {len(node.output)} outputs, and {key[1]} makes {schema.min_output} or more"
        named = {_READ_BY_NOBODY, *(item.name for item in node.attribute)}
        absent = next((name for name, row in schema.attributes.items() if row.required and name not in named), None)
        if absent is not None:
            return f"its attribute {absent!r} is missing"
        given = {item.name or "": get_attribute_value(item) for item in node.attribute if not item.ref_attr_name}
        return misform(schema, len(node.input), given)


def _held(name: str, known: list[set[str]]) -> bool:
    return any(name in names for names in known)
