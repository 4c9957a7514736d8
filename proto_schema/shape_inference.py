"""Shape inference with the names of `onnx.shape_inference`: the types and shapes of all values of a model.

    inferred = ps.shape_inference.infer_shapes("model.onnx")

A model of any size: initializers are shared with the model that was given, never copied, and only small ones are read.
Nothing stays blank: where a size follows from nothing, it gets a name of its own (`unk__0`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from proto_schema.budget import BudgetLike
from proto_schema.graphs.sharing import sharing
from proto_schema.inference.alone import infer_function_output_types, infer_node_outputs
from proto_schema.inference.walk import InferenceError, Walk
from proto_schema.onnx import GraphProto, ModelProto, TensorProto
from proto_schema.wire.collection import paused_collection

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from proto_schema.files.saving import SaveOptions

__all__ = [
    "InferenceError",
    "infer_function_output_types",
    "infer_node_outputs",
    "infer_shapes",
    "infer_shapes_path",
    "infer_with_problems",
]


def infer_shapes(
    model: ModelProto | bytes | str | os.PathLike[str],
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
    *,
    use_defaults: bool = False,
    budget: BudgetLike = None,
) -> ModelProto:
    """The model with the types and shapes of its values declared in `value_info` and in its outputs.

    `model`: a message, which is not changed, its encoding, or a path.  With `strict_mode`, a node or declaration that
    contradicts what is inferred raises InferenceError; otherwise its values stay as they are declared.  `check_type`
    does so for the types of the inputs of nodes.  Without `data_prop` the content of small tensors is not followed.
    With `use_defaults` an initializer that is also an input counts as a constant, as in onnx: what is inferred is wrong
    for another value of that input.  `budget` is for functions and bodies of loops that are inferred more than once;
    past it nothing is known of their results.  Raises DecodeError for what is no model.
    """
    return infer_with_problems(model, check_type, strict_mode, data_prop, use_defaults=use_defaults, budget=budget)[0]


def infer_with_problems(
    model: ModelProto | bytes | str | os.PathLike[str],
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
    *,
    use_defaults: bool = False,
    budget: BudgetLike = None,
) -> tuple[ModelProto, list[str]]:
    """As `infer_shapes`, and what contradicts, a line each.  With `strict_mode` the first is raised instead."""
    from proto_schema.files.models import load

    if isinstance(model, (str, os.PathLike)):
        model = load(model)
    elif not isinstance(model, ModelProto):
        model = ModelProto.FromString(model)
    else:
        model = sharing(model)
    walk = Walk(model, strict=strict_mode, check=check_type, propagate=data_prop, defaults=use_defaults, budget=budget)
    with paused_collection():
        walk.run()
    return model, walk.problems


def infer_shapes_path(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str] = "",
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> None:
    """Infer the shapes of the model in a file, and write the result to `output_path`, which may be the same file."""
    made = infer_shapes(model_path, check_type, strict_mode, data_prop)
    save_inferred(made, model_path, output_path or model_path)


def save_inferred(
    model: ModelProto,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    **stored: Unpack[SaveOptions],
) -> None:
    """Write what was inferred of the file `source`.  Beside it, the external data stays where it is.

    With a `shard_size` the data is written again, to files of about that many bytes. `stored` are options of `save`.
    """
    from proto_schema.external.addresses import is_address
    from proto_schema.files.models import save
    from proto_schema.files.saving import Where

    graph = model.graph or GraphProto()
    external = any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph.initializer)
    beside = os.path.dirname(os.path.abspath(source)) == os.path.dirname(os.path.abspath(target))
    where: Where = "reference" if external and beside else None
    if stored.get("shard_size") is not None or (external and is_address(os.fspath(target))):
        where = True
    stored["external_data"] = where
    save(model, target, **stored)
