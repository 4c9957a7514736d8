"""Weights in Constant nodes and in graphs inside of nodes become initializers of the main graph, and are found there.

`Constant -> w; MatMul(x, w)` in a branch -> an initializer `w` of the main graph, which the branch reads as an outer
value; where several graphs have a `w`, each gets a name of its own. What makes floats of the codes is put at the
beginning of the branch that had the weight, so that the other branch does not compute it, and in front of a loop whose
body had it. What stays where it is, is listed with the reason.
"""

from __future__ import annotations

import copy
from collections import ChainMap, Counter
from collections.abc import Container, Iterator
from dataclasses import field

from proto_schema.dtypes import element_count
from proto_schema.graphs.names import Unique, as_text, bodies, defined, used
from proto_schema.inlining.versions import all_nodes
from proto_schema.onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.quantization.candidates import STANDARD, Left, graphs_inside
from proto_schema.quantization.elements import FLOATS
from proto_schema.records import dataclass

_FREE = 4  # the IR version from which on initializers need not be inputs


@dataclass
class Hoisted:
    """The model with such weights as initializers of the main graph.

    `sources`: by the id of a new initializer, the tensor that it was. `homes`: by its id, the graph at whose beginning
    its floats are made, where that is not the main graph. `left`: what stays, and why.
    """

    model: ModelProto
    sources: dict[int, TensorProto] = field(default_factory=dict)
    homes: dict[int, GraphProto] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


def hoisted(model: ModelProto, smallest: int, only: Container[int] | None = None) -> Hoisted:
    """The model with the weights of at least `smallest` elements hoisted; `only` the tensors of these ids."""
    found = Hoisted(model)
    graph = model.graph
    if graph is not None and _has_any(graph, smallest):
        work = _Work(model, smallest, only, found)
        made = work.graph(graph, ChainMap(), None, in_loop=False)
        if found.sources:
            made.initializer = [*made.initializer, *work.made]
            found.model = copy.copy(model)
            found.model.graph = made
    for function in model.functions:
        reason = f"is in the function {as_text(function.name)!r}; inline_local_functions brings it into the graph"
        for node in all_nodes(function.node):
            found.left += [Left(tensor, reason) for tensor in _constant(node, smallest)]
    return found


def _has_any(graph: GraphProto, smallest: int) -> bool:
    if any(True for node in all_nodes(graph.node) for _ in _constant(node, smallest)):
        return True
    return any(_is_large(tensor, smallest) for inner in graphs_inside(graph) for tensor in inner.initializer)


class _Work:
    """One walk over the graphs of a model. Graphs and nodes that change are copied, tensors and payloads are not."""

    def __init__(self, model: ModelProto, smallest: int, only: Container[int] | None, found: Hoisted) -> None:
        self.smallest = smallest
        self.only = only
        self.found = found
        self.made: list[TensorProto] = []
        self.times: Counter[str] = Counter()  # in how many graphs a name is defined
        graph = model.graph or GraphProto()
        ends = (item.name or "" for item in graph.output)
        self.unique = Unique([*defined(graph), *used(graph.node), *ends])
        for one in (graph, *graphs_inside(graph)):
            self.times.update(set(defined(one)))
        version = model.ir_version or 0
        self.refusal = ""
        if version < _FREE:
            self.refusal = f"is not a weight of the main graph, and IR version {version} allows no more of these"

    def graph(
        self, graph: GraphProto, outer: ChainMap[str, str], home: GraphProto | None, *, in_loop: bool
    ) -> GraphProto:
        """The graph without the weights that are hoisted. `outer`: what the values around it are called now.

        `home` is the graph whose floats are made for those of this one: None for the main graph.
        """
        made = copy.copy(graph)
        inside = bool(outer.maps[1:])
        if inside and not in_loop:
            home = made
        ends = {item.name or "" for item in (*graph.input, *graph.output)}
        own = {name: name for name in defined(graph)}
        gone: set[int] = set()
        if inside:
            for tensor in graph.initializer:
                name = tensor.name or ""
                if _is_large(tensor, self.smallest) and self._takes(tensor, tensor, name, ends):
                    own[name] = self._hoist(tensor, name, home, inside)
                    gone.add(id(tensor))
        for node in graph.node:
            for tensor in _constant(node, self.smallest):
                source = node.attribute[0].t
                if source is not None and self._takes(source, tensor, node.output[0], ends):
                    own[node.output[0]] = self._hoist(source, node.output[0], home, inside)
                    gone.add(id(node))
        scope = outer.new_child(own)
        if gone:
            made.initializer = [item for item in graph.initializer if id(item) not in gone]
            moved = {name for name, now in own.items() if name != now} | {item.name for item in self.made}
            made.value_info = [item for item in graph.value_info if item.name not in moved]
        made.node = [self._node(node, scope, home, in_loop) for node in graph.node if id(node) not in gone]
        return made

    def _takes(self, source: TensorProto, shown: TensorProto, name: str, ends: set[str]) -> bool:
        """Whether a weight is hoisted; the reason is noted where it is not."""
        if self.only is not None:
            return id(source) in self.only
        reason = self.refusal or ("is an input or output of the graph that it is in" if name in ends else "")
        reason = "has a name that is not UTF-8" if isinstance(name, bytes) else reason
        if reason:
            self.found.left.append(Left(shown, reason))
        return not reason

    def _hoist(self, source: TensorProto, name: str, home: GraphProto | None, inside: bool) -> str:
        """Note the new initializer.  Returns its name."""
        tensor = copy.copy(source)
        tensor.name = self.unique(name) if inside and self.times[name] > 1 else name
        self.made.append(tensor)
        self.found.sources[id(tensor)] = source
        if home is not None:
            self.found.homes[id(tensor)] = home
        return tensor.name

    def _node(self, node: NodeProto, scope: ChainMap[str, str], home: GraphProto | None, in_loop: bool) -> NodeProto:
        inputs = [scope.get(name, name) for name in node.input]
        if inputs == node.input and not any(True for _ in bodies(node)):
            return node
        made = copy.copy(node)
        made.input = inputs
        in_loop = in_loop or node.op_type != "If" or (node.domain or "") not in STANDARD
        made.attribute = [self._attribute(item, scope, home, in_loop) for item in node.attribute]
        return made

    def _attribute(
        self, item: AttributeProto, scope: ChainMap[str, str], home: GraphProto | None, in_loop: bool
    ) -> AttributeProto:
        if item.g is None and not item.graphs:
            return item
        made = copy.copy(item)
        if item.g is not None:
            made.g = self.graph(item.g, scope, home, in_loop=in_loop)
        made.graphs = [self.graph(graph, scope, home, in_loop=in_loop) for graph in item.graphs]
        return made


def _constant(node: NodeProto, smallest: int) -> Iterator[TensorProto]:
    """The large float tensor that a Constant node holds, under the name of its value."""
    if node.op_type != "Constant" or (node.domain or "") not in STANDARD or len(node.attribute) != 1:
        return
    tensor = node.attribute[0].t
    if tensor is not None and len(node.output) == 1 and _is_large(tensor, smallest):
        shown = copy.copy(tensor)
        shown.name = node.output[0]
        yield shown


def _is_large(tensor: TensorProto, smallest: int) -> bool:
    return tensor.data_type in FLOATS[:3] and len(tensor.dims) >= 2 and element_count(tensor.dims) >= smallest
