"""Tensors made from nothing: zeros, full, arange, and copies in another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.common import dims_of, full
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


@lower("aten::zeros", "aten::empty.memory_format")
def zeros(op: Emitter, size: Sequence[Any], dtype: Any = None) -> Value:
    # the content of an empty tensor is anything; zeros are as good
    return full(op, size, 0, op.result_dtype)


@lower("aten::ones")
def ones(op: Emitter, size: Sequence[Any], dtype: Any = None) -> Value:
    return full(op, size, 1, op.result_dtype)


@lower("aten::full")
def full_rule(op: Emitter, size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Value:
    return full(op, size, fill_value, op.result_dtype)


@lower("aten::new_zeros", "aten::new_empty")
def new_zeros(op: Emitter, self: Value, size: Sequence[Any], dtype: Any = None) -> Value:
    return full(op, size, 0, op.result_dtype)


@lower("aten::new_ones")
def new_ones(op: Emitter, self: Value, size: Sequence[Any], dtype: Any = None) -> Value:
    return full(op, size, 1, op.result_dtype)


@lower("aten::new_full")
def new_full(op: Emitter, self: Value, size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Value:
    return full(op, size, fill_value, op.result_dtype)


@lower("aten::zeros_like", "aten::empty_like", "aten::zero")
def zeros_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    return full(op, dims_of(op, self), 0, op.result_dtype)


@lower("aten::ones_like")
def ones_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    return full(op, dims_of(op, self), 1, op.result_dtype)


@lower("aten::full_like")
def full_like(op: Emitter, self: Value, fill_value: Any, dtype: Any = None) -> Value:
    return full(op, dims_of(op, self), fill_value, op.result_dtype)


@lower("aten::fill.Scalar", "aten::fill.Tensor")
def fill(op: Emitter, self: Value, value: Any) -> Value:
    return full(op, dims_of(op, self), value, op.result_dtype)


@lower("aten::scalar_tensor")
def scalar_tensor(op: Emitter, s: Any, dtype: Any = None) -> Value:
    return op.cast(s, op.result_dtype) if isinstance(s, Value) else op.const(s, op.result_dtype)


@lower("aten::arange")
def arange(op: Emitter, end: Any, dtype: Any = None) -> Value:
    return arange_step(op, 0, end, 1)


@lower("aten::arange.start")
def arange_start(op: Emitter, start: Any, end: Any, dtype: Any = None) -> Value:
    return arange_step(op, start, end, 1)


@lower("aten::arange.start_step")
def arange_step(op: Emitter, start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Value:
    bounds = [
        op.cast(item, op.result_dtype) if isinstance(item, Value) else op.const(item, op.result_dtype)
        for item in (start, end, step)
    ]
    return op.Range(*bounds)


@lower(
    "aten::to.dtype",
    "aten::to.device",
    "aten::to.dtype_layout",
    "aten::_to_copy",
    "aten::to.prim_Device",
    "aten::to.prim_dtype",
)
def to(op: Emitter, self: Value, dtype: Any = None) -> Value:
    return op.cast(self, op.result_dtype)


@lower("aten::to.other", "aten::type_as")
def to_other(op: Emitter, self: Value, other: Value) -> Value:
    return op.cast(self, op.result_dtype)


@lower(
    "aten::contiguous",
    "aten::clone",
    "aten::detach",
    "aten::alias",
    "aten::lift_fresh_copy",
    "aten::lift_fresh",
    "aten::detach_copy",
    "aten::positive",
    "aten::resolve_conj",
    "aten::resolve_neg",
)
def same(op: Emitter, self: Value) -> Value:
    return self


@lower("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout")
def dropout(op: Emitter, input: Value, p: Any, train: bool) -> Value:
    if not train:
        return input
    if not op.has("Dropout", "training_mode"):
        return op.Dropout(input, ratio=p)
    return op.Dropout(input, ratio=op.const(p, dtypes.FLOAT), training_mode=op.const(True, dtypes.BOOL))


@lower("aten::copy")
def copy(op: Emitter, self: Value, src: Value) -> Value:
    """copy(Tensor self, Tensor src, bool non_blocking=False): src in the shape and dtype of self."""
    moved = op.cast(src, self.dtype)
    if src.shape == self.shape and self.shape is not None and None not in self.shape:
        return moved
    return op.Expand(moved, op.shape(self))
