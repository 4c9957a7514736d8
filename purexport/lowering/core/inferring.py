"""The shapes of the values of a node, from the inference rows of `proto_schema`, as the node is made.

A value's shape and small content are what the operator's row gives for the inputs.  A size of which nothing is known
is a symbol of its own, so that two values of one unknown size are known to have the same.  The bodies of If and Loop
are inferred while they are written, so a row gets the types that their outputs have by then.
"""

from __future__ import annotations

from typing import Any

import torch

from proto_schema.inference import rows
from proto_schema.inference.site import ABSENT, Misfit, Scope, Site
from proto_schema.inference.types import MOST, Content, SequenceOf, Tensor, Type
from proto_schema.operators import OpSchema
from proto_schema.sizes import Dim
from purexport.errors import ExportError
from purexport.graph.build import raw_tensor
from purexport.graph.ir import Graph, Node, Value


def infer_outputs(node: Node, schema: OpSchema, scope: Scope) -> None:
    """Give the outputs of a node their shapes, and their contents where these are known.

    Raises ExportError where the inputs contradict the operator's specification.
    """
    inputs = [ABSENT if value is None else type_of(value, scope) for value in node.inputs]
    attributes = node.attributes
    if any(isinstance(item, torch.Tensor) for item in attributes.values()):
        attributes = {
            name: raw_tensor(item) if isinstance(item, torch.Tensor) else item for name, item in attributes.items()
        }

    def body(graph: Graph, *_: object) -> list[Type | None]:
        return [type_of(value, scope) for value in graph.outputs]

    site = Site(schema, inputs, attributes, len(node.outputs), scope, body)
    try:
        found = rows.infer(site)
    except Misfit as problem:
        raise ExportError(
            f"ONNX {node.op_type} at {node.source}: {problem}; "
            "if the model runs on its example, this is a mistake in a lowering rule, please report it",
            code="rule-fault",
        ) from None
    for value, type_ in zip(node.outputs, found, strict=True):
        if isinstance(type_, Tensor):
            value.shape = type_.shape
            value.content = type_.content
        elif isinstance(type_, SequenceOf) and isinstance(type_.element, Tensor) and value.element is None:
            value.element = (type_.element.dtype, type_.element.shape)


def type_of(value: Value, scope: Scope) -> Type | None:
    """What is known of a value, as rows take it."""
    if value.element is not None:
        dtype, shape = value.element
        return SequenceOf(Tensor(dtype, _filled(shape, scope)))
    if value.shape is not None and None in value.shape:
        value.shape = _filled(value.shape, scope)
    return Tensor(value.dtype or 0, value.shape, content_of(value))  # type: ignore[arg-type]  # no size is None now


def content_of(value: Value) -> Content:
    """The elements of a small constant, or what inference found."""
    const = value.const
    if value.content is None and const is not None and const.numel() <= MOST:
        plain = not (const.is_complex() or const.is_quantized or const.is_meta)
        value.content = tuple(const.reshape(-1).tolist()) if plain else None
    return value.content


def _filled(shape: Any, scope: Scope) -> tuple[Dim, ...] | None:
    """The shape, with a symbol of its own for each size of which nothing is known."""
    return None if shape is None else tuple([scope.fresh() if size is None else size for size in shape])
