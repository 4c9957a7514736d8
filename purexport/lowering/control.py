"""If, Loop and Scan: calls with blocks become nodes with subgraphs.

Source: https://onnx.ai/onnx/operators/onnx__If.html, onnx__Loop.html and onnx__Scan.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from purexport import dtypes
from purexport.aten.graph import Call, ScalarType, SequenceType, TensorType, Type
from purexport.errors import OpsetError
from purexport.graph.ir import Value
from purexport.lowering.blocks import block_input, fill, from_border, to_border, typed
from purexport.lowering.core.emitter import first_with_sequences
from purexport.lowering.support.pairs import Pair, to_interleaved

if TYPE_CHECKING:
    from purexport.lowering.lower import Lowering


def lower_control(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> None:
    """Lower a call with blocks; gaps inside are noted by ``run`` as anywhere."""
    before = len(run.gaps)
    _refuse_sequences(run, call)
    outputs = _FORMS[call.target](run, call, arguments)
    if len(run.gaps) > before:
        run.poisoned.update(call.outputs)
        return
    for value, result in zip(call.outputs, outputs, strict=True):
        run.env[value] = from_border(run, typed(result, value.type), value.type)


def _refuse_sequences(run: Lowering, call: Call) -> None:
    """Lists that cross the border of a body need newer versions of If and Loop than tensors do."""
    op_type = call.target.removeprefix("prim::")
    if any(isinstance(value.type, SequenceType) for value in call.outputs) and not run.op.takes_sequences(op_type):
        raise OpsetError(f"ONNX {op_type} takes tensors only", first_with_sequences(op_type))


def _branch(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> Sequence[Value]:
    types = [value.type for value in call.outputs]
    if not run.op.means_today("If") and _shapes_differ(call):
        raise OpsetError("the branches of ONNX If give one shape", run.op.since_today("If"))
    bodies = []
    for block in call.blocks:
        with run.op.subgraph() as body:
            fill(run, body, block, types)
        bodies.append(body)
    condition = run.op.cast(run.op.like(arguments["condition"], Value(dtypes.BOOL)), dtypes.BOOL)
    run.op.source = call.source
    return run.op.multi("If", condition, outputs=len(types), then_branch=bodies[0], else_branch=bodies[1])


def _shapes_differ(call: Call) -> bool:
    """True where two branches give tensors of shapes that are not the same by what is known of them."""
    pairs = zip(*[[getattr(item, "type", None) for item in block.outputs] for block in call.blocks], strict=True)
    return any(isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape != b.shape for a, b in pairs)


def _loop(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> Sequence[Value]:
    (block,) = call.blocks
    types = [value.type for value in call.outputs]
    with run.op.subgraph() as body:
        step, *carried = block.inputs
        body.inputs += [block_input(run, step, "step"), Value(dtypes.BOOL, (), name="condition")]
        body.inputs += [block_input(run, value, "carried") for value in carried]
        fill(run, body, block, [ScalarType(bool), *types])
    start = [to_border(run, item, type_) for item, type_ in zip(arguments["carried"], types, strict=True)]
    most = None if arguments["most"] is None else run.op.like(arguments["most"], Value(dtypes.INT64))
    condition = run.op.like(arguments["condition"], Value(dtypes.BOOL))
    run.op.source = call.source
    return run.op.multi("Loop", most, condition, *start, outputs=len(types), body=body)


def _scan(run: Lowering, call: Call, arguments: Mapping[str, Any]) -> Sequence[Value]:
    (block,) = call.blocks
    types = [value.type for value in call.outputs]
    count, rows = len(arguments["init"]), arguments["rows"]
    with run.op.subgraph() as body:
        names = ["carried"] * count + ["row"] * len(rows)
        body.inputs += [block_input(run, value, name) for value, name in zip(block.inputs, names, strict=True)]
        fill(run, body, block, [*types[:count], *map(_row, types[count:])])
    start = [to_border(run, item, type_) for item, type_ in zip(arguments["init"], types, strict=False)]
    given = [to_interleaved(run.op, row) if isinstance(row, Pair) else row for row in rows]
    run.op.source = call.source
    return run.op.multi("Scan", *start, *given, outputs=len(types), body=body, num_scan_inputs=len(rows))


def _row(type_: Type) -> Type:
    """The type of one row of a stacked result."""
    assert isinstance(type_, TensorType), "only tensors are stacked"
    return TensorType(type_.dtype, None if type_.shape is None else type_.shape[1:])


_FORMS = {"prim::If": _branch, "prim::Loop": _loop, "prim::Scan": _scan}
