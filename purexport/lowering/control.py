"""If, Loop and Scan: calls with blocks become nodes with subgraphs.

Source: https://onnx.ai/onnx/operators/onnx__If.html, onnx__Loop.html and onnx__Scan.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from purexport import dtypes
from purexport.aten.graph import AtenValue, Block, Call, ScalarType, SequenceType, TensorType, Type
from purexport.errors import OpsetError
from purexport.graph.ir import Value
from purexport.lowering.blocks import add_input, fill, from_border, to_border, typed
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.versions import first_with_sequences
from purexport.lowering.state import LowerCalls, LoweringState
from purexport.lowering.support.pairs import Pair, to_interleaved


def lower_control(
    state: LoweringState, op: Emitter, call: Call, arguments: Mapping[str, Any], lower_calls: LowerCalls
) -> None:
    """Lower a call with blocks; gaps inside are noted in `state` as anywhere."""
    before = len(state.gaps)
    _refuse_sequences(op, call)
    outputs = _FORMS[call.target](state, op, call, arguments, lower_calls)
    if len(state.gaps) > before:
        state.poisoned.update(call.outputs)
        return
    for value, result in zip(call.outputs, outputs, strict=True):
        type_ = state.type(value)
        state.env[value] = from_border(op, typed(result, type_, call.target == "prim::If"), type_)


def _refuse_sequences(op: Emitter, call: Call) -> None:
    """Lists that cross the border of a body need newer versions of If and Loop than tensors do."""
    op_type = call.target.removeprefix("prim::")
    if any(isinstance(value.type, SequenceType) for value in call.outputs) and not op.takes_sequences(op_type):
        raise OpsetError(f"ONNX {op_type} takes tensors only", first_with_sequences(op_type))


def _branch(
    state: LoweringState, op: Emitter, call: Call, arguments: Mapping[str, Any], lower_calls: LowerCalls
) -> Sequence[Value]:
    types = [state.type(value) for value in call.outputs]
    if not op.means_today("If") and _shapes_differ(state, call):
        raise OpsetError("the branches of ONNX If give one shape", op.since_today("If"))
    bodies = [op.subgraph() for _ in call.blocks]
    for inside, block in zip(bodies, call.blocks, strict=True):
        fill(state, inside, block, types, lower_calls, open_sizes=True)
    yes, no = (inside.graph for inside in bodies)
    condition = op.cast(op.like(arguments["condition"], Value(dtypes.BOOL)), dtypes.BOOL)
    return op.multi("If", condition, outputs=len(types), then_branch=yes, else_branch=no)


def _shapes_differ(state: LoweringState, call: Call) -> bool:
    """True where two branches give tensors of shapes that are not the same by what is known of them."""
    pairs = zip(*[[_type_of(state, item) for item in block.outputs] for block in call.blocks], strict=True)
    return any(isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape != b.shape for a, b in pairs)


def _type_of(state: LoweringState, item: Any) -> Type | None:
    return state.type(item) if isinstance(item, AtenValue) else None


def _loop(
    state: LoweringState, op: Emitter, call: Call, arguments: Mapping[str, Any], lower_calls: LowerCalls
) -> Sequence[Value]:
    (block,) = call.blocks
    types = [state.type(value) for value in call.outputs]
    inside = op.subgraph()
    _begin(state, inside, block.inputs)
    fill(state, inside, block, [ScalarType(bool), *types], lower_calls)
    start = [to_border(op, item, type_) for item, type_ in zip(arguments["carried"], types, strict=True)]
    most = None if arguments["most"] is None else op.like(arguments["most"], Value(dtypes.INT64))
    condition = op.like(arguments["condition"], Value(dtypes.BOOL))
    return op.multi("Loop", most, condition, *start, outputs=len(types), body=inside.graph)


def _begin(state: LoweringState, inside: Emitter, inputs: Sequence[AtenValue]) -> None:
    """The inputs of the body of a Loop: the step, the condition, and the carried values."""
    step, *carried = inputs
    add_input(state, inside, step, "step")
    inside.graph.inputs.append(Value(dtypes.BOOL, (), name="condition"))
    for value in carried:
        add_input(state, inside, value, "carried")


def _scan(
    state: LoweringState, op: Emitter, call: Call, arguments: Mapping[str, Any], lower_calls: LowerCalls
) -> Sequence[Value]:
    (block,) = call.blocks
    types = [state.type(value) for value in call.outputs]
    count, rows = len(arguments["init"]), arguments["rows"]
    if not rows:
        return _steps(state, op, call, arguments, lower_calls)
    inside = op.subgraph()
    for value, name in zip(block.inputs, ["carried"] * count + ["row"] * len(rows), strict=True):
        add_input(state, inside, value, name)
    fill(state, inside, block, [*types[:count], *map(_row, types[count:])], lower_calls)
    start = [to_border(op, item, type_) for item, type_ in zip(arguments["init"], types, strict=False)]
    given = [to_interleaved(op, row) if isinstance(row, Pair) else row for row in rows]
    return op.multi("Scan", *start, *given, outputs=len(types), body=inside.graph, num_scan_inputs=len(rows))


def _steps(
    state: LoweringState, op: Emitter, call: Call, arguments: Mapping[str, Any], lower_calls: LowerCalls
) -> Sequence[Value]:
    """A scan without rows is a Loop of ONNX, whose Scan takes no step at least in ONNX Runtime."""
    (block,) = call.blocks
    types = [state.type(value) for value in call.outputs]
    *carried, step = block.inputs
    inside = op.subgraph()
    _begin(state, inside, [step, *carried])
    rows = [*types[: len(carried)], *map(_row, types[len(carried) :])]
    whole = Block(block.calls, [True, *block.outputs], block.inputs)
    fill(state, inside, whole, [ScalarType(bool), *rows], lower_calls)
    start = [to_border(op, item, type_) for item, type_ in zip(arguments["init"], types, strict=False)]
    most = op.like(arguments["count"], Value(dtypes.INT64))
    return op.multi("Loop", most, op.const(True, dtypes.BOOL), *start, outputs=len(types), body=inside.graph)


def _row(type_: Type) -> Type:
    """The type of one row of a stacked result."""
    assert isinstance(type_, TensorType), "only tensors are stacked"
    return TensorType(type_.dtype, None if type_.shape is None else type_.shape[1:])


_FORMS = {"prim::If": _branch, "prim::Loop": _loop, "prim::Scan": _scan}
