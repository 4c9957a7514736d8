"""onnx.shape_inference: `proto_schema.shape_inference`, with messages as protobuf has them.

As in onnx, an initializer that is also an input counts as a constant, although whoever runs the model may give another
value. The content of constants is followed through nodes without `data_prop`, too, so more sizes are known.
"""

from __future__ import annotations

import os
from typing import Any

from proto_schema import operators
from proto_schema import shape_inference as ours
from proto_schema.checking.models import check_calls
from proto_schema.checking.place import Problem
from proto_schema.compat.crossing import crossing
from proto_schema.compat.messages import PROTOS, mannered, plain
from proto_schema.compat.modules.checker import FullCheckError
from proto_schema.compat.modules.defs import registered
from proto_schema.inlining.versions import all_nodes, imports_of

__all__ = ["InferenceError", "infer_function_output_types", "infer_node_outputs", "infer_shapes", "infer_shapes_path"]

InferenceError = ours.InferenceError
infer_function_output_types = crossing(ours.infer_function_output_types)


def infer_shapes(model: Any, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False) -> Any:
    """A copy of the model with the types and shapes of its values; see `proto_schema.shape_inference`.

    TypeError for anything but a ModelProto or its encoding.
    """
    if not isinstance(model, (PROTOS["ModelProto"], bytes)):
        way = "; for a path use infer_shapes_path" if isinstance(model, (str, os.PathLike)) else ""
        raise TypeError(f"infer_shapes only accepts ModelProto or bytes, incorrect type: {type(model)}{way}")
    if check_type and not isinstance(model, bytes):
        _check_own(plain(model))
    try:
        if not isinstance(model, bytes):
            check_calls(plain(model))
    except Problem as problem:
        raise FullCheckError(str(problem)) from None
    inferred = ours.infer_shapes(plain(model), check_type, strict_mode, True, use_defaults=True)
    return mannered(inferred.__deepcopy__({}))


def _check_own(model: Any) -> None:
    """Raises InferenceError for a node with more inputs than the schema takes that a program registered for it."""
    opsets = imports_of(model)
    for node in all_nodes(model.graph.node if model.graph is not None else ()):
        domain = operators.canonical(node.domain or "")
        row = registered(node.op_type or "", opsets.get(domain, 0), domain)
        if row is not None and len(node.input) > row.max_input:
            raise InferenceError(f"{node.op_type} takes {row.max_input} inputs, and there are {len(node.input)}")


def infer_shapes_path(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str] = "",
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = False,
) -> None:
    """The same for a file; the result goes to `output_path`, by default to the same file."""
    for path in (model_path, output_path):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"infer_shapes_path only accepts paths, incorrect type: {type(path)}")
    ours.infer_shapes_path(model_path, output_path, check_type, strict_mode, data_prop)


def infer_node_outputs(schema: Any, node: Any, input_types: Any, *others: Any, **named: Any) -> Any:
    """The types of a node's outputs by name; see `proto_schema.shape_inference`.

    What contradicts is an InferenceError, and a ValidationError too.
    """
    try:
        return crossing(ours.infer_node_outputs)(schema, node, input_types, *others, **named)
    except InferenceError as error:
        raise FullCheckError(str(error)) from error
