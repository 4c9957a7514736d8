"""Weights in Constant nodes and in graphs inside of nodes become initializers of the main graph, and are found there.

`Constant -> w; MatMul(x, w)` in a branch -> an initializer `w` of the main graph, which the branch reads as an outer
value; where several graphs have a `w`, each gets a name of its own. What makes floats of the codes is put at the
beginning of the branch that had the weight, so that the other branch does not compute it, and in front of a loop whose
body had it. What stays where it is, is listed with the reason.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Container
from dataclasses import field

from proto_schema.graphs.names import as_text
from proto_schema.ir import Graph, Model, Node, Value
from proto_schema.onnx import TensorProto
from proto_schema.quantization.candidates import STANDARD, Left
from proto_schema.quantization.codes.elements import FLOATS
from proto_schema.tensors.dtypes import element_count
from proto_schema.wire.records import dataclass

_FREE = 4  # the IR version from which on initializers need not be inputs


@dataclass
class Hoisted:
    """What was hoisted.

    `sources`: by the id of a new initializer's tensor, the tensor that it was. `homes`: by its id, the graph at whose
    beginning its floats are made, where that is not the main graph. `left`: what stays, and why.
    """

    sources: dict[int, TensorProto] = field(default_factory=dict)
    homes: dict[int, Graph] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


def hoist(model: Model, smallest: int, only: Container[int] | None = None) -> Hoisted:
    """Hoist the weights of at least `smallest` elements; `only` the tensors of these ids."""
    work = _Work(model, smallest, only)
    work.graph(model.graph, None, in_loop=False)
    for function in model.functions:
        reason = f"is in the function {as_text(function.name)!r}; inline_local_functions brings it into the graph"
        for graph in function.nested():
            tensors = [(node, constant_of(node)) for node in graph.nodes]
            work.found.left += [
                Left(_named(tensor, node.output.name), reason)
                for node, tensor in tensors
                if tensor is not None and _is_large(tensor, smallest)
            ]
    return work.found


class _Work:
    """One walk over the graphs of a model. Tensors and payloads are not copied."""

    def __init__(self, model: Model, smallest: int, only: Container[int] | None) -> None:
        self.model = model
        self.smallest = smallest
        self.only = only
        self.found = Hoisted()
        self.times: Counter[str] = Counter()  # in how many graphs a name is defined
        for graph in model.graph.nested():
            made = (value for node in graph.nodes for value in node.outputs if value is not None)
            self.times.update({value.name for value in (*graph.inputs, *graph.initializers, *made)})
        version = model.message.ir_version or 0
        self.refusal = ""
        if version < _FREE:
            self.refusal = f"is not a weight of the main graph, and IR version {version} allows no more of these"

    def graph(self, graph: Graph, home: Graph | None, *, in_loop: bool) -> None:
        """Hoist the weights of a graph. `home`: where floats are made for it, None for the main graph."""
        if graph.node is not None:
            home = home if in_loop else graph
            for value in list(graph.initializers):
                tensor = value.tensor
                if isinstance(tensor, TensorProto) and self._takes(graph, value, tensor):
                    self._hoist(value, tensor, home, graph.node is not None)
                    graph.remove_initializer(value)
        for node in graph.nodes:
            held = constant_of(node)
            if held is not None and self._takes(graph, node.output, held):
                self._hoist(node.output, held, home, graph.node is not None)
                graph.nodes.remove(node)
        for node in graph.nodes:
            for body in node.bodies:
                self.graph(body, home, in_loop=in_loop or node.op_type != "If" or node.domain not in STANDARD)

    def _takes(self, graph: Graph, value: Value, tensor: TensorProto) -> bool:
        """Whether a weight is hoisted; the reason is noted where it is not."""
        if not _is_large(tensor, self.smallest):
            return False
        if self.only is not None:
            return id(tensor) in self.only
        is_end = value.is_input or (value.is_output and value in graph.outputs)
        reason = self.refusal or ("is an input or output of the graph that it is in" if is_end else "")
        reason = "has a name that is not UTF-8" if isinstance(value.name, bytes) else reason
        if reason:
            self.found.left.append(Left(_named(tensor, value.name), reason))
        return not reason

    def _hoist(self, value: Value, source: TensorProto, home: Graph | None, inside: bool) -> None:
        name = self.model.new_name(value.name) if inside and self.times[value.name] > 1 else value.name
        tensor = _named(source, name)
        value.replace_uses(self.model.graph.add_initializer(tensor))
        self.found.sources[id(tensor)] = source
        if home is not None:
            self.found.homes[id(tensor)] = home


def constant_of(node: Node) -> TensorProto | None:
    """The tensor that a Constant node holds."""
    if node.op_type != "Constant" or node.domain not in STANDARD or len(node.outputs) != 1:
        return None
    held = list(node.attributes.values())
    return held[0] if len(held) == 1 and isinstance(held[0], TensorProto) and node.outputs[0] is not None else None


def _named(tensor: TensorProto, name: str) -> TensorProto:
    made = copy.copy(tensor)
    made.name = name
    return made


def _is_large(tensor: TensorProto, smallest: int) -> bool:
    return tensor.data_type in FLOATS[:3] and len(tensor.dims) >= 2 and element_count(tensor.dims) >= smallest
