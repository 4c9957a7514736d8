"""Copies of models for tools that add types or nodes: what they leave as it is belongs to both."""

from __future__ import annotations

import copy

from proto_schema.onnx import GraphProto, ModelProto, NodeProto


def sharing(model: ModelProto) -> ModelProto:
    """A copy that shares with the model all that neither inference nor conversion changes."""
    made = copy.copy(model)
    if made.graph is not None:
        made.graph = _graph(made.graph)
    made.functions = [copy.copy(item) for item in model.functions]
    return made


def _graph(graph: GraphProto) -> GraphProto:
    made = copy.copy(graph)
    made.output = [copy.copy(item) for item in graph.output]
    made.initializer = list(graph.initializer)
    made.value_info = [copy.copy(item) for item in graph.value_info]
    made.node = [_node(node) if any(item.g is not None for item in node.attribute) else node for node in graph.node]
    return made


def _node(node: NodeProto) -> NodeProto:
    made = copy.copy(node)
    made.attribute = [copy.copy(item) for item in node.attribute]
    for item in made.attribute:
        if item.g is not None:
            item.g = _graph(item.g)
    return made
