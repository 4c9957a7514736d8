"""Names of values in graphs: who defines them, who uses them from outside, and renaming that respects scopes.

A graph is a scope: its inputs, initializers and the outputs of its nodes are defined in it, and hide names of the same
text in the graphs around it. A function's body is a scope that sees nothing of the outside. Renaming follows that, so
that a name in the body of an If changes if and only if the value that it means does.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping

from proto_schema.onnx import GraphProto, NodeProto, TensorProto

__all__ = ["Unique", "as_text", "bodies", "constants", "defined", "free_names", "rename_graph", "rename_node", "used"]

Local = Callable[[GraphProto], Mapping[str, str]]


def as_text(value: str | bytes | None) -> str:
    """Text of a decoded message, where text that is no UTF-8 is bytes and is escaped here; empty if absent."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value or ""


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.g is not None:
            yield attribute.g
        yield from attribute.graphs


def constants(graph: GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph; of a sparse one the tensor of its values, which bears the name."""
    yield from graph.initializer
    yield from (sparse.values for sparse in graph.sparse_initializer if sparse.values is not None)


def defined(graph: GraphProto) -> Iterator[str]:
    """The names that the graph itself defines: of inputs, initializers and results of nodes."""
    yield from (value.name or "" for value in graph.input)
    yield from (tensor.name or "" for tensor in constants(graph))
    yield from (name for node in graph.node for name in node.output if name)


def used(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Every name of a value or node, at any depth: what a new name must differ from."""
    for node in nodes:
        if node.name:
            yield node.name
        yield from node.input
        yield from node.output
        for graph in bodies(node):
            yield from defined(graph)
            yield from (value.name or "" for value in graph.output)
            yield from used(graph.node)


def free_names(node: NodeProto) -> Iterator[str]:
    """The values that a node uses, including those that its subgraphs take from outside."""
    yield from (name for name in node.input if name)
    for graph in bodies(node):
        inside = {value.name for value in graph.input}
        inside.update(tensor.name for tensor in constants(graph))
        for inner in graph.node:
            yield from (name for name in free_names(inner) if name not in inside)
            inside.update(inner.output)
        yield from (name for value in graph.output if (name := value.name) and name not in inside)


class Unique:
    """Names that nothing has yet: `name`, else `name_0`, `name_1`, ... in constant time each."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self._next: dict[str, int] = {}

    def __call__(self, wanted: str) -> str:
        """The wanted name, or one that begins with it; it is taken from now on."""
        name = wanted
        while name in self.taken:
            count = self._next.get(wanted, 0)
            self._next[wanted] = count + 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name


def rename_graph(graph: GraphProto, outer: ChainMap[str, str], local: Local, node_name: Callable[[str], str]) -> None:
    """Renames values and nodes of a graph and of those in it, in place.

    `outer` maps the names around the graph; `local` gives new names for some of the graph's own, where the others keep
    theirs; `node_name` maps the names of nodes.
    """
    own = {name: name for name in defined(graph)}
    own.update(local(graph))
    scope = outer.new_child(own)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.name:
            value.name = scope.get(value.name, value.name)
    for tensor in constants(graph):
        if tensor.name:
            tensor.name = scope.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        if sparse.indices is not None and sparse.indices.name:
            sparse.indices.name = own.get(sparse.indices.name, sparse.indices.name)
    for annotation in graph.quantization_annotation:
        if annotation.tensor_name:
            annotation.tensor_name = scope.get(annotation.tensor_name, annotation.tensor_name)
        for entry in annotation.quant_parameter_tensor_names:
            if entry.value:
                entry.value = scope.get(entry.value, entry.value)
    for node in graph.node:
        rename_node(node, scope, local, node_name)


def rename_node(node: NodeProto, scope: ChainMap[str, str], local: Local, node_name: Callable[[str], str]) -> None:
    """Renames what a node uses and makes, and the graphs in it, in place."""
    if node.name:
        node.name = node_name(node.name)
    node.input = [scope.get(name, name) for name in node.input]
    node.output = [scope.get(name, name) for name in node.output]
    for configuration in node.device_configurations:
        for spec in configuration.sharding_spec:
            if spec.tensor_name:
                spec.tensor_name = scope.get(spec.tensor_name, spec.tensor_name)
    for graph in bodies(node):
        rename_graph(graph, scope, local, node_name)
