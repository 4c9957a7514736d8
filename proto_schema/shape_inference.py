"""Shape inference with the names of `onnx.shape_inference`: the types and shapes of all values of a model.

    inferred = ps.shape_inference.infer_shapes("model.onnx")

A model of any size: initializers are shared with the model that was given, never copied, and only small ones are read.
Nothing stays blank: where a size follows from nothing, it gets a name of its own (`unk__0`).
"""

from __future__ import annotations

import copy
import os

from proto_schema.collection import paused_collection
from proto_schema.inference.walk import InferenceError, Walk
from proto_schema.onnx import GraphProto, ModelProto, NodeProto

__all__ = ["InferenceError", "infer_shapes", "infer_shapes_path"]


def infer_shapes(
    model: ModelProto | bytes | str | os.PathLike[str],
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> ModelProto:
    """The model with the types and shapes of its values declared in `value_info` and in its outputs.

    `model`: a message, which is not changed, its encoding, or a path.  With `strict_mode`, a node or declaration that
    contradicts what is inferred raises InferenceError; otherwise its values stay as they are declared.  `check_type`
    does so for the types of the inputs of nodes.  Without `data_prop` the content of small tensors is not followed.
    Raises DecodeError for what is no model.
    """
    from proto_schema.files import load

    if isinstance(model, (str, os.PathLike)):
        model = load(model)
    elif not isinstance(model, ModelProto):
        model = ModelProto.FromString(model)
    else:
        model = _sharing(model)
    with paused_collection():
        Walk(model, strict=strict_mode, check=check_type, propagate=data_prop).run()
    return model


def infer_shapes_path(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str] = "",
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> None:
    """Infer the shapes of the model in a file, and write the result to `output_path`, which may be the same file."""
    from proto_schema.files import save

    made = infer_shapes(model_path, check_type, strict_mode, data_prop)
    save(made, output_path or model_path)


def _sharing(model: ModelProto) -> ModelProto:
    """A copy that shares with the model all that inference does not change."""
    made = copy.copy(model)
    if made.graph is not None:
        made.graph = _graph(made.graph)
    return made


def _graph(graph: GraphProto) -> GraphProto:
    made = copy.copy(graph)
    made.output = [copy.copy(item) for item in graph.output]
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
