"""The two ends of the model: what stands for its inputs, parameters and constants, and its outputs as ONNX has them.

A complex input has a last axis of size 2 in the file, and so has a complex output.  Equal bytes are stored once.  An
output is made by a node of its own and has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from proto_schema.external.payload import Payload
from proto_schema.sizes import Size
from purexport import dtypes
from purexport.aten.graph import AtenValue, Input, ScalarType, TensorType, Type, same_bytes
from purexport.errors import ExportError, UnsupportedDtypeError
from purexport.graph.ir import Value
from purexport.lowering.arguments import code_of
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support import pairs
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized, quantized_constant
from purexport.lowering.tensor import sequence


def model_inputs(op: Emitter, inputs: Iterable[Input], type_of: Callable[[AtenValue], Type]) -> dict[AtenValue, Any]:
    """What stands for each input; those that are no constants become inputs of the graph.

    Raises UnsupportedDtypeError for a dtype that ONNX has not, ExportError for a complex input of unknown rank.
    """
    env: dict[AtenValue, Any] = {}
    shared: dict[tuple[Any, ...], Value | Pair] = {}
    for item in inputs:
        type_ = type_of(item.value)
        if not isinstance(type_, TensorType):
            type_ = TensorType(torch.int64, ())
        name = "" if item.kind == "constant" else item.name
        if item.stored is not None:
            env[item.value] = _stored(op, name, type_, item.stored)
        elif item.tensor is None:
            env[item.value] = _input(op, item.name, type_)
        elif item.tensor.is_quantized:
            env[item.value] = quantized_constant(op, item.tensor, item.name)
        else:
            key = same_bytes(item.tensor)
            if key not in shared:
                shared[key] = tensor_constant(op, item.tensor, name)
            env[item.value] = shared[key]
    return env


def tensor_constant(op: Emitter, tensor: torch.Tensor, name: str = "") -> Value | Pair:
    """A tensor that exists, as a constant of the graph: a pair of constants where it is complex."""
    if tensor.is_complex():
        return pairs.pair_of_constant(op, tensor, name)
    return op.const(tensor.detach(), name=name)


def model_output(op: Emitter, name: str, found: Any, output: Any) -> Value:
    """An output of the graph, named `name`, for what stands for the result `output` of the model.

    A number is float32 outside of the graph, where it is float64.  Raises ExportError for what is no tensor of ONNX.
    """
    if isinstance(found, (bool, int, float)):
        found = op.const(found, code_of(found))
    if isinstance(output, AtenValue) and output.type == ScalarType(float):
        found = op.cast(found, dtypes.FLOAT)
    if isinstance(found, Pair):
        found = pairs.to_interleaved(op, found)
    if isinstance(found, Quantized):
        raise ExportError(
            f"output {name!r} is a quantized tensor, and ONNX has none; return x.dequantize() or x.int_repr()",
            code="quantized-tensor",
        )
    if not isinstance(found, Value):
        raise ExportError(
            f"output {name!r} is a {type(found).__name__}, and ONNX outputs are tensors", code="output-not-a-tensor"
        )
    result = found
    if found.node is None or found in op.graph.outputs:
        # an output needs a name of its own: an input, a constant or a value returned twice is copied
        result = sequence.copy(op, found)
        result.shape, result.element = found.shape, found.element
    result.name = name
    return result


def _input(op: Emitter, name: str, type_: TensorType) -> Value | Pair:
    shape = type_.shape
    if type_.dtype.is_complex and shape is not None:
        shape = (*shape, 2)
    value = Value(_input_code(name, type_.dtype), shape, name=name)
    op.graph.inputs.append(value)
    for size in shape or ():
        if isinstance(size, Size):
            op.builder.scope.taken |= size.symbols
    if not type_.dtype.is_complex:
        return value
    if value.shape is None:
        raise ExportError(
            f"input {name!r} is complex and its rank is not known; pass torch.view_as_real of it", code="complex-tensor"
        )
    return pairs.from_interleaved(op, value)


def _stored(op: Emitter, name: str, type_: TensorType, stored: Payload) -> Value | Pair:
    """A constant whose values no rule sees."""
    shape = (*(type_.shape or ()), 2) if type_.dtype.is_complex else type_.shape
    value = Value(_input_code(name, type_.dtype), shape, name=name, stored=stored)
    if not type_.dtype.is_complex:
        return value
    return pairs.from_interleaved(op, value)


def _input_code(name: str, dtype: torch.dtype) -> int:
    try:
        return pairs.part_code(dtype)
    except UnsupportedDtypeError as error:
        raise UnsupportedDtypeError(f"input {name!r}: {error}") from None
