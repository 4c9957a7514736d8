"""If and Loop: calls with blocks become nodes with subgraphs.

A subgraph sees outer names.  Each of its outputs is made by a node of its own, because ONNX wants an output to be
produced inside; what comes from outside, or twice, goes through an Identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from purexport import dtypes
from purexport.capture.aten import Block, Call, ScalarType, TensorType, Type
from purexport.capture.aten import Value as AtenValue
from purexport.graph.ir import Graph, Value

if TYPE_CHECKING:
    from purexport.lowering.lower import Lowering

_NUMBERS = {int: dtypes.INT64, float: dtypes.FLOAT, bool: dtypes.BOOL}


def lower_control(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> None:
    """Lower ``prim::If`` or ``prim::Loop``; gaps inside are noted by ``run`` as anywhere."""
    before = len(run.gaps)
    outputs = _loop(run, call, arguments) if call.target == "prim::Loop" else _branch(run, call, arguments)
    if len(run.gaps) > before:
        run.poisoned.update(call.outputs)
        return
    for value, result in zip(call.outputs, outputs, strict=True):
        result.dtype, result.shape = _code(value.type), _shape(value.type)
        run.env[value] = result


def _branch(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> Sequence[Value]:
    types = [value.type for value in call.outputs]
    bodies = []
    for block in call.blocks:
        with run.op.subgraph() as body:
            _fill(run, body, block, block.outputs, types)
        bodies.append(body)
    condition = run.op.cast(run.op.like(arguments["condition"], Value(dtypes.BOOL)), dtypes.BOOL)
    run.op.source = call.source
    return run.op.multi("If", condition, outputs=len(types), then_branch=bodies[0], else_branch=bodies[1])


def _loop(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> Sequence[Value]:
    (block,) = call.blocks
    types = [value.type for value in call.outputs]
    with run.op.subgraph() as body:
        step, *carried = block.inputs
        body.inputs += [_input(run, step, "step"), Value(dtypes.BOOL, (), name="condition")]
        body.inputs += [_input(run, value, "carried") for value in carried]
        _fill(run, body, block, block.outputs, [ScalarType(bool), *types])
    start = [run.op.like(item, Value(_code(type_))) for item, type_ in zip(arguments["carried"], types, strict=True)]
    most = None if arguments["most"] is None else run.op.like(arguments["most"], Value(dtypes.INT64))
    condition = run.op.like(arguments["condition"], Value(dtypes.BOOL))
    run.op.source = call.source
    return run.op.multi("Loop", most, condition, *start, outputs=len(types), body=body)


def _input(run: Lowering, value: AtenValue, name: str) -> Value:
    made = run.env[value] = Value(_code(value.type), _shape(value.type), name=name)
    return made


def _fill(run: Lowering, body: Graph, block: Block, outputs: Sequence[Any], types: Sequence[Type]) -> None:
    """The block's calls, and its outputs in the types that the node promises."""
    before = len(run.gaps)
    run.calls(block.calls, outputs)
    if len(run.gaps) > before:
        return
    for output, type_ in zip(outputs, types, strict=True):
        result = run.op.like(run.argument(output), Value(_code(type_)))
        if result.node not in body.nodes or result in body.outputs:
            result = run.op.Identity(result)
        result.dtype, result.shape = _code(type_), _shape(type_)
        body.outputs.append(result)


def _code(type_: Type) -> int:
    if isinstance(type_, TensorType):
        return dtypes.onnx_code(type_.dtype)
    assert isinstance(type_, ScalarType), "the capture lets no list through"
    return _NUMBERS[type_.kind]


def _shape(type_: Type) -> Any:
    return type_.shape if isinstance(type_, TensorType) else ()
