"""Blocks of neutral calls to the bodies of If, Loop and Scan.

A subgraph sees outer names.  Each of its outputs is made by a node of its own, because ONNX wants an output to be
produced inside; what comes from outside, or twice, goes through an Identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from purexport import dtypes
from purexport.capture.aten import Block, Dim, ScalarType, TensorType, Type
from purexport.capture.aten import Value as AtenValue
from purexport.graph.ir import Graph, Value

if TYPE_CHECKING:
    from purexport.lowering.lower import Lowering

_NUMBERS = {int: dtypes.INT64, float: dtypes.FLOAT, bool: dtypes.BOOL}


def block_input(run: Lowering, value: AtenValue, name: str) -> Value:
    """An input of a body."""
    made = run.env[value] = Value(code(value.type), shape(value.type), name=name)
    return made


def fill(run: Lowering, body: Graph, block: Block, types: Sequence[Type]) -> None:
    """The block's calls, and its outputs in the types that the node promises; without outputs where a call failed."""
    before = len(run.gaps)
    run.calls(block.calls, block.outputs)
    if len(run.gaps) > before:
        return
    for output, type_ in zip(block.outputs, types, strict=True):
        result = run.op.like(run.argument(output), Value(code(type_)))
        if result.node not in body.nodes or result in body.outputs:
            result = run.op.Identity(result)
        result.dtype, result.shape = code(type_), shape(type_)
        body.outputs.append(result)


def code(type_: Type) -> int:
    """The ONNX data type of a tensor or a number."""
    if isinstance(type_, TensorType):
        return dtypes.onnx_code(type_.dtype)
    assert isinstance(type_, ScalarType), "the capture lets no list through"
    return _NUMBERS[type_.kind]


def shape(type_: Type) -> tuple[Dim, ...] | None:
    """The shape of a tensor or a number, None where unknown."""
    return type_.shape if isinstance(type_, TensorType) else ()
