"""Reductions.  ``axes`` moved from attribute to input at opset 13 (ReduceSum) and 18; the emitter knows."""

from __future__ import annotations

from typing import Any

from purexport.graph.ir import Value
from purexport.lowering.common import axis_of
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


def _axes(value: Value, dim: Any) -> list[int] | None:
    """The axes to reduce; None means all."""
    if dim is None or dim == []:
        return None
    dims = dim if isinstance(dim, (list, tuple)) else [dim]
    return sorted({axis_of(item, value.rank) for item in dims})


def _reduce(op: Emitter, op_type: str, value: Value, dim: Any, keepdim: bool) -> Value:
    if value.rank == 0:
        return value
    return op.emit(op_type, value, axes=_axes(value, dim), keepdims=int(keepdim))


@lower("aten::mean", "aten::mean.dim")
def mean(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return _reduce(op, "ReduceMean", op.cast(self, op.result_dtype), dim, keepdim)


@lower("aten::sum", "aten::sum.dim_IntList")
def sum_rule(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return _reduce(op, "ReduceSum", op.cast(self, op.result_dtype), dim, keepdim)


@lower("aten::prod", "aten::prod.dim_int")
def prod(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return _reduce(op, "ReduceProd", op.cast(self, op.result_dtype), dim, keepdim)


@lower("aten::amax", "aten::max")
def amax(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _reduce(op, "ReduceMax", self, dim, keepdim)


@lower("aten::amin", "aten::min")
def amin(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _reduce(op, "ReduceMin", self, dim, keepdim)


@lower("aten::argmax")
def argmax(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    if dim is None:
        flat = op.ArgMax(op.Reshape(self, [-1]), axis=0, keepdims=0)
        return op.Reshape(flat, [1] * self.rank) if keepdim and self.rank else flat
    return op.ArgMax(self, axis=axis_of(dim, self.rank), keepdims=int(keepdim))
