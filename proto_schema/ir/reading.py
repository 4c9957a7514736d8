"""Messages to graphs. Messages, tensors and types are referred to, never copied."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from proto_schema.errors import CheckError
from proto_schema.ir.functions import Function
from proto_schema.ir.graph import Annotation, Graph, Node, Value
from proto_schema.onnx import FunctionProto, GraphProto, NodeProto

# the slots of repeated fields: None where the file has none, and asking the properties makes a list of it
_PARTS: Any = attrgetter("_input", "_output", "_attribute")


class _Scope:
    """The names of one graph. A name that is not here is looked up in the graphs around it."""

    __slots__ = ("graph", "outer", "unknown", "values")

    def __init__(self, graph: Graph, outer: _Scope | None = None) -> None:
        self.graph = graph
        self.outer = outer
        self.values: dict[str, Value] = {}
        self.unknown: dict[str, Value] = {}
        """What was read before anything made it: a later node may, where nodes are out of order."""

    def get(self, name: str) -> Value | None:
        """The value of a name, None where nothing has it."""
        scope: _Scope | None = self
        while scope is not None:
            found = scope.values.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def find(self, name: str) -> Value:
        """The value of a name; for a name that nothing has, a value that nothing makes."""
        known = self.get(name)
        if known is not None:
            return known
        scope: _Scope | None = self
        made = self.unknown.get(name) or Value(name)
        while scope is not None:
            made = scope.unknown.setdefault(name, made)
            scope = scope.outer
        return made

    def define(self, name: str) -> Value:
        """A new value, or the one that was read under the name before."""
        made = self.unknown.pop(name, None) if self.unknown else None
        if made is None or made.producer is not None:
            made = Value(name)
        if self.outer is not None and self.outer.get(name) is not None:
            self.graph._hiding.add(made)
        self.values[name] = made
        return made


def read_graph(message: GraphProto, outer: _Scope | None = None, path: str = "graph") -> Graph:
    """The graph of a message. Raises CheckError where a name is defined twice."""
    graph = Graph(message.name or "")
    scope = _Scope(graph, outer)
    graph.message = message
    inputs = []
    for place, item in enumerate(message.input):
        _expect_new(scope, item.name or "", f"{path}.input[{place}]")
        value = scope.define(item.name or "")
        value.declared = item
        inputs.append(value)
    graph.inputs = inputs
    for field in ("initializer", "sparse_initializer"):
        for place, tensor in enumerate(getattr(message, field)):
            held: Any = tensor if field == "initializer" else tensor.values
            name = (held.name if held is not None else "") or ""
            known = scope.values.get(name)
            if known is not None and known.is_input and known.tensor is None:
                known.tensor = tensor
            else:
                _expect_new(scope, name, f"{path}.{field}[{place}]")
                known = scope.define(name)
                known.tensor, known._graph = tensor, graph
            graph._initializers[known] = None
    _read_nodes(graph, message, scope, path)
    results = []
    for item in message.output:
        value = scope.find(item.name or "")
        own = value.declared is None and scope.values.get(item.name or "") is value
        if own:
            value.declared = item
        graph._declared_outputs.append(None if own else item)
        results.append(value)
    declared, graph._declared_outputs = graph._declared_outputs, []
    graph._set_all(results)
    graph._declared_outputs = declared
    for annotation in message.quantization_annotation:
        entries = annotation.quant_parameter_tensor_names
        found = {entry.key or "": scope.get(entry.value or "") for entry in entries}
        parameters = {key: value for key, value in found.items() if value is not None}
        graph.annotations.append(Annotation(annotation, scope.get(annotation.tensor_name or ""), parameters))
    return graph


def read_function(message: FunctionProto, path: str) -> Function:
    """The function of a message. Raises CheckError where a name is defined twice."""
    function = Function(message.name or "")
    scope = _Scope(function)
    function.message = message
    function.domain, function.overload = message.domain or "", message.overload or ""
    function.opsets = {item.domain or "": item.version or 0 for item in message.opset_import}
    function.inputs = [scope.define(name) for name in message.input]
    _read_nodes(function, message, scope, path)
    function.outputs = [scope.find(name) for name in message.output]
    return function


def _read_nodes(graph: Graph, message: GraphProto | FunctionProto, scope: _Scope, path: str) -> None:
    append, values, find = graph.nodes.append, scope.values, scope.find
    for place, item in enumerate(message.node):
        read, written, attributes = _PARTS(item)
        if str in (read.__class__, written.__class__, attributes.__class__):  # of a node that was read on demand
            read, written, attributes = item.input, item.output, item.attribute
        node = Node.__new__(Node)
        node.op_type, node.domain = item.op_type or "", item.domain or ""
        node.overload, node.name = item.overload or "", item.name or ""
        node.message, node.graph, node._attributes = item, None, None
        reads: list[Value | None] = []
        node._reads = reads
        for name in read or ():
            if not name:
                reads.append(None)
                continue
            value = values.get(name) or find(name)
            value._uses[node, len(reads)] = None
            reads.append(value)
        for attribute in attributes or ():
            if attribute.g is not None or attribute._graphs:
                _read_bodies(node, item, scope, f"{path}.node[{place}]")
                break
        made: list[Value | None] = []
        for name in written or ():
            if not name:
                made.append(None)
                continue
            if name in values:
                _expect_new(scope, name, f"{path}.node[{place}].output")
            value = scope.define(name)
            value.producer, value.place = node, len(made)
            made.append(value)
        node.outputs = tuple(made)
        append(node)
    for entry in message.value_info:
        known = values.get(entry.name or "")
        if known is None or known.declared is not None:
            graph._declared.append(entry)
        else:
            known.declared = entry
            graph._declared.append(known)


def _read_bodies(node: Node, message: NodeProto, scope: _Scope, path: str) -> None:
    for attribute in message.attribute:
        graphs = [attribute.g] if attribute.g is not None else attribute.graphs
        if graphs:
            step = f'{path}.attribute["{attribute.name}"]'
            read = [
                read_graph(item, scope, f"{step}.g" if attribute.g is not None else f"{step}.graphs[{place}]")
                for place, item in enumerate(graphs)
            ]
            node.attributes._hold(attribute.name or "", read)


def _expect_new(scope: _Scope, name: str, path: str) -> None:
    if name and name in scope.values:
        raise CheckError(f"{path}: {name!r} is defined already; a value is assigned only once")
