"""Models: a graph, functions, and the versions of operators that they are written for."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from proto_schema.graphs.names import Unique
from proto_schema.graphs.sharing import sharing
from proto_schema.inference.walk import Values
from proto_schema.ir.functions import Function
from proto_schema.ir.graph import Graph
from proto_schema.ir.inferred import Recorder, frame_type
from proto_schema.ir.naming import names_in
from proto_schema.ir.reading import read_function, read_graph
from proto_schema.ir.writing import with_opsets, write_function, write_graph
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, Version
from proto_schema.wire.collection import paused_collection


class Model:
    """A model: its graph, its functions, and the version of each domain. `message` has all else, such as metadata.

    Training graphs stay as they are in the message: they are no part of what is followed here.
    """

    def __init__(self, graph: Graph | None = None, opsets: dict[str, int] | None = None) -> None:
        self.graph = Graph() if graph is None else graph
        self.functions: list[Function] = []
        self.opsets = dict(opsets or {})
        self.message = ModelProto(ir_version=int(Version.IR_VERSION))
        self._unique: Unique | None = None

    def __repr__(self) -> str:
        return f"<Model {self.graph!r}, opsets {self.opsets}>"

    def to_message(self) -> ModelProto:
        """The message. Values without a name get one; messages of what did not change are those that were read."""
        made = copy.copy(self.message)
        with paused_collection():
            if self.message.graph is not None or len(self.graph.nodes) or self.graph.inputs or self.graph.outputs:
                made.graph = write_graph(self.graph)
            made.functions = [write_function(function) for function in self.functions]
        made.opset_import = with_opsets(made.opset_import, self.opsets)
        return made

    def infer(self) -> None:
        """Find the types of all values, as far as those of the inputs and what the file declares tell them.

        The outputs of graphs are declared anew where more is known of them.
        """
        infer_by(self, self.to_message())

    def new_name(self, wanted: str) -> str:
        """The wanted name, or one that begins with it and that no value and no node of the model has."""
        if self._unique is None:
            self._unique = Unique(name for graph in (self.graph, *self.functions) for name in names_in(graph))
        return self._unique(wanted)


def infer_by(model: Model, message: ModelProto) -> Recorder:
    """Find the types of all values of a model by its message, and give what inferred them."""
    written = sharing(message)
    recorder = Recorder(written)
    recorder.run()
    if written.graph is not None:
        _learn(model.graph, written.graph, recorder)
    for function, item in zip(model.functions, written.functions, strict=True):
        _learn(function, item, recorder)
    return recorder


def _learn(graph: Graph, message: GraphProto | FunctionProto, recorder: Recorder) -> None:
    known: Sequence[Values] = recorder.kept.get(id(message.node), ())
    if known:
        for value in (*graph.inputs, *(value for node in graph.nodes for value in node.outputs if value is not None)):
            value._type = frame_type(known, value.name)
    if isinstance(message, GraphProto):
        graph._declared_outputs = [
            item if value.declared is None or item.type != value.declared.type else said
            for value, said, item in zip(graph.outputs, graph._declared_outputs, message.output, strict=True)
        ]
    for node, written in zip(graph.nodes, message.node, strict=True):
        for body, inner in zip(node.bodies, _bodies(written), strict=True):
            _learn(body, inner, recorder)


def _bodies(node: Any) -> Iterator[GraphProto]:
    for attribute in node.attribute if node._attribute else ():
        if attribute.g is not None:
            yield attribute.g
        else:
            yield from attribute.graphs


def from_message(message: ModelProto) -> Model:
    """The model of a message, which does not change as long as nobody changes it.

    Tensors, types and messages of nodes are shared with it. Raises CheckError where a value is made twice.
    """
    model = Model()
    model.message = message
    model.opsets = {item.domain or "": item.version or 0 for item in message.opset_import}
    with paused_collection():
        if message.graph is not None:
            model.graph = read_graph(message.graph)
        model.functions = [read_function(item, f"functions[{at}]") for at, item in enumerate(message.functions)]
    return model
