"""The results of a call: bound to what the rule gives, and checked against the types that torch recorded."""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.aten.graph import Call, ScalarType, SequenceType, TensorType, Type
from purexport.errors import ExportError
from purexport.graph.ir import Value, better
from purexport.lowering import blocks
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.state import LoweringState
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized


def bind_results(state: LoweringState, op: Emitter, call: Call, result: Any) -> None:
    """Let `result` stand for the call's output, or its items for the outputs; None leaves one out.

    Raises ExportError where a rule gives another dtype than torch does.
    """
    single = len(call.outputs) == 1
    results = [result] if single else list(result)
    for output, item in zip(call.outputs, results, strict=single):
        type_ = state.type(output)
        state.env[output] = item
        if item is None:
            state.absent.add(output)
        if not isinstance(type_, TensorType):
            if isinstance(type_, SequenceType):
                blocks.typed(item, type_)
            if isinstance(type_, ScalarType) and isinstance(item, Value) and item.shape is None:
                item.shape = ()
            continue
        if isinstance(item, (bool, int, float)):
            state.env[output] = op.const(item, dtypes.onnx_code(type_.dtype))
        elif isinstance(item, Pair):
            part = TensorType(type_.dtype.to_real(), type_.shape)
            _check(call, part, item.real)
            _check(call, part, item.imag)
        elif isinstance(item, Quantized):
            _check_integers(call, type_, item)
        elif isinstance(item, Value):
            _check(call, type_, item)


def is_empty(type_: Type) -> bool:
    """True for the type of a tensor that has no elements, whatever the sizes of dynamic axes."""
    if not isinstance(type_, TensorType) or not type_.shape or 0 not in type_.shape:
        return False
    return all(isinstance(size, int) for size in type_.shape) and not (
        type_.dtype.is_complex or dtypes.is_quantized(type_.dtype)
    )


def empty_results(op: Emitter, call: Call, state: LoweringState) -> Any:
    """A constant without elements, or a list of them, for a call all of whose results are such."""
    found = []
    for type_ in map(state.type, call.outputs):
        assert isinstance(type_, TensorType), "only tensors are empty"
        shape = [size for size in type_.shape or () if isinstance(size, int)]
        found.append(op.const(torch.empty(shape, dtype=type_.dtype)))
    return found[0] if len(found) == 1 else found


def _check_integers(call: Call, type_: TensorType, item: Quantized) -> None:
    # torch.export and scripts record the dtype of the numbers, not of the integers
    dtype = dtypes.stored_dtype(type_.dtype) if dtypes.is_quantized(type_.dtype) else None
    stored = dtypes.torch_dtype(item.integers.dtype or dtypes.UINT8)
    _check(call, TensorType(dtype or stored, type_.shape), item.integers)


def _check(call: Call, type_: TensorType, item: Value) -> None:
    code = dtypes.onnx_code(type_.dtype)
    if item.dtype is not None and item.dtype != code:
        raise ExportError(
            f"the rule of {call.target} at {call.source} gives {dtypes.type_string(item.dtype)} where torch gives "
            f"{dtypes.type_string(code)}; this is a mistake in the rule, please report it",
            code="rule-fault",
        )
    item.dtype = code
    if item.const is None:
        # of two expressions the recorded one has the names that users gave
        item.sized = better(type_.shape, item.shape)
