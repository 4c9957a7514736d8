"""The parts of a tensor as a sequence, for dtypes in which a runtime splits none: a Loop that inserts one after the
other, which moves elements of every dtype. Elements of another dtype would make a sequence of another type.
"""

from __future__ import annotations

from proto_schema.legalization.sizes import value_of
from purexport import dtypes
from purexport.errors import OpsetError
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.running import form


@form("SplitToSequence")
def split_to_sequence(op: Emitter, input: Value, split: Value | None = None, axis: int = 0, keepdims: int = 1) -> Value:
    """Slices of `split`, a zero-dim value, of which the last may be smaller; without it those at single indices."""
    dtype = input.dtype or dtypes.FLOAT
    if dtype == dtypes.BFLOAT16:
        raise OpsetError("no version of ONNX has sequences of bfloat16", None)
    if not op.takes_sequences("Loop"):
        name = dtypes.type_string(dtype)
        raise OpsetError(f"the runtime's SplitToSequence takes no {name}, and ONNX Loop carries no sequence yet", 13)
    size = value_of(op, op.dim(input, axis))
    count = size if split is None else op.Div(op.Add(size, op.Sub(split, op.const(1))), split)
    at, condition = Value(dtypes.INT64, (), name="step"), Value(dtypes.BOOL, (), name="condition")
    carried = Value(name="parts")
    carried.element = kind = (dtype, None)
    inside = op.subgraph()
    inside.graph.inputs += [at, condition, carried]
    if split is None:
        part = inside.Gather(input, at if not keepdims else inside.Unsqueeze(at, [0]), axis=axis)
    else:
        begin = inside.Unsqueeze(inside.Mul(at, split), [0])
        part = inside.Slice(input, begin, inside.Add(begin, split), axes=[axis])
    longer = inside.SequenceInsert(carried, part)
    longer.element = kind
    inside.graph.outputs += [inside.Identity(condition), longer]
    empty = op.SequenceEmpty(dtype=dtype)
    empty.element = kind
    (found,) = op.multi("Loop", count, op.const(True, dtypes.BOOL), empty, outputs=1, body=inside.graph)
    found.element = kind
    return found
