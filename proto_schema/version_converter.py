"""Models from one opset to another, both ways, and from one IR version to another.

    older = ps.version_converter.convert_version("model.onnx", 12)

The result computes what the model computes. What the target's operators cannot say is written out in them; what cannot
be written out is refused with the node, the reason and the nearest opset that can say it. Weights are shared with the
model that was given: neither time nor memory depends on their size.
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING

from proto_schema import operators
from proto_schema.conversion.errors import ConversionError, Refusal
from proto_schema.conversion.ir import convert_ir, imports_of, written_out
from proto_schema.onnx import GraphProto, ModelProto, OperatorSetIdProto, TensorProto
from proto_schema.wire.collection import paused_collection

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from proto_schema.conversion.engine import Engine
    from proto_schema.files.saving import SaveOptions

__all__ = ["ConversionError", "Refusal", "convert_ir", "convert_version", "save_converted"]

OLDEST = 7
"""The oldest opset of ai.onnx that is converted to: before, operators broadcast by attributes."""


def convert_version(
    model: ModelProto | bytes | str | os.PathLike[str], target_version: int, domain: str = ""
) -> ModelProto:
    """The model in another opset version of a domain; `ai.onnx` without one.

    `model`: a message, which is not changed, its encoding, or a path. The IR version is raised where the opset came
    with a later one, and stays otherwise (`convert_ir` lowers it). Names of values, inputs and outputs stay.
    Raises ConversionError (a RuntimeError and a ValueError) that lists all nodes that cannot be converted, ValueError
    for a version that does not exist, DecodeError for what is no model.
    """
    from proto_schema.files.models import load

    if isinstance(model, (str, os.PathLike)):
        model = load(model)
    elif not isinstance(model, ModelProto):
        model = ModelProto.FromString(model)
    model, domain = copy.copy(model), operators.canonical(domain)
    model.opset_import = imports_of(model)
    newest = operators.newest_opset(domain)
    target = int(target_version)
    oldest = 1 if domain else OLDEST
    if not oldest <= target <= newest:
        named = domain or "ai.onnx"
        raise ConversionError(
            f"opset {target} of {named} is not one of {oldest} to {newest}, which can be converted to"
        )
    with paused_collection():
        made = _converted(model, target, domain)
    lowest = operators.ir_version_for(target, domain)
    if (made.ir_version or 0) < lowest:
        made = convert_ir(made, lowest)
    return made


def _converted(model: ModelProto, target: int, domain: str) -> ModelProto:
    from proto_schema.conversion.engine import Engine

    _check_imports(model)
    source = opset(model, domain)
    if source and source > operators.newest_opset(domain):
        raise ConversionError(
            f"the model has opset {source}, newer than {operators.newest_opset(domain)}, the newest known"
        )
    nodes = (model.graph or GraphProto()).node
    if not source and not domain and any(not node.domain for node in nodes):
        raise ConversionError("the model has nodes of ai.onnx, and imports no opset of it: nothing to convert from")
    while True:
        engine: Engine = Engine(model, target, domain)
        made, outside = engine.run()
        if made is not None:
            return made
        model = written_out(model, outside)


def _check_imports(model: ModelProto) -> None:
    """Raises ConversionError where a domain is imported at two versions, of which readers take one or the other."""
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        known: dict[str, int] = {}
        for item in imports:
            domain, version = operators.canonical(item.domain or ""), item.version or 0
            if known.setdefault(domain, version) != version:
                raise ConversionError(
                    f"the domain {domain or 'ai.onnx'!r} is imported at opset {known[domain]} and at opset {version}: "
                    "it is unknown which of them the nodes mean"
                )


def opset(model: ModelProto, domain: str = "") -> int:
    """The version of a domain that a model imports, 0 where it imports none."""
    domain = operators.canonical(domain)
    items: list[OperatorSetIdProto] = model.opset_import
    return next((item.version or 0 for item in items if operators.canonical(item.domain or "") == domain), 0)


def save_converted(
    model: ModelProto,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    **stored: Unpack[SaveOptions],
) -> None:
    """Write what was converted of the file `source`; data as `save_inferred` of shape_inference writes it."""
    from proto_schema.shape_inference import save_inferred

    save_inferred(model, source, target, **stored)


def has_external(model: ModelProto) -> bool:
    """Whether the model's weights lie in other files."""
    graph = model.graph or GraphProto()
    return any(item.data_location == TensorProto.EXTERNAL for item in graph.initializer)
