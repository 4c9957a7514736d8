"""Creating tensors: zeros, full, arange and others, and copies in another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.folding import LIMIT
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import axis_of, dims_of, full


@lower("aten::zeros", "aten::empty.memory_format", "aten::_efficientzerotensor", "prim::Uninitialized")
def zeros(op: Emitter, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor

    Also serves `empty`, whose content is arbitrary.
    """
    return full(op, size, 0, op.result_dtype)


@lower("aten::ones")
def ones(op: Emitter, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return full(op, size, 1, op.result_dtype)


@lower("aten::full")
def full_rule(op: Emitter, size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Value:
    """aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return full(op, size, fill_value, op.result_dtype)


@lower("aten::empty_strided", "aten::empty_permuted")
def empty_strided(
    op: Emitter, size: Sequence[Any], stride: Any = None, physical_layout: Any = None, dtype: Any = None
) -> Value:
    """aten::empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return full(op, size, 0, op.result_dtype)


@lower("aten::new_empty_strided")
def new_empty_strided(op: Emitter, self: Value, size: Sequence[Any], stride: Any, dtype: Any = None) -> Value:
    """aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None,
    Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return full(op, size, 0, op.result_dtype)


@lower("aten::new_zeros", "aten::new_empty")
def new_zeros(op: Emitter, self: Value, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return full(op, size, 0, op.result_dtype)


@lower("aten::new_ones")
def new_ones(op: Emitter, self: Value, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return full(op, size, 1, op.result_dtype)


@lower("aten::new_full")
def new_full(op: Emitter, self: Value, size: Sequence[Any], fill_value: Any, dtype: Any = None) -> Value:
    """aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return full(op, size, fill_value, op.result_dtype)


@lower("aten::zeros_like", "aten::empty_like", "aten::zero")
def zeros_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    """aten::zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return full(op, dims_of(op, self), 0, op.result_dtype)


@lower("aten::ones_like")
def ones_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    """aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return full(op, dims_of(op, self), 1, op.result_dtype)


@lower("aten::full_like")
def full_like(op: Emitter, self: Value, fill_value: Any, dtype: Any = None) -> Value:
    """aten::full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return full(op, dims_of(op, self), fill_value, op.result_dtype)


@lower("aten::fill.Scalar", "aten::fill.Tensor")
def fill(op: Emitter, self: Value, value: Any) -> Value:
    """aten::fill.Scalar(Tensor self, Scalar value) -> Tensor"""
    return full(op, dims_of(op, self), value, op.result_dtype)


@lower("aten::scalar_tensor")
def scalar_tensor(op: Emitter, s: Any, dtype: Any = None) -> Value:
    """aten::scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return op.cast(s, op.result_dtype) if isinstance(s, Value) else op.const(s, op.result_dtype)


# Positions ----------------------------------------------------------------------------------------------------------


def iota(op: Emitter, size: Any) -> Value:
    """The int64 numbers 0, 1, ... below `size`, which is an int or a computed value."""
    return op.Range(op.const(0), size if isinstance(size, Value) else op.const(size), op.const(1))


@lower("aten::_dim_arange")
def dim_arange(op: Emitter, like: Value, dim: int) -> Value:
    """aten::_dim_arange(Tensor like, int dim) -> Tensor

    The positions along an axis.
    """
    return iota(op, op.dim(like, axis_of(dim, like.rank)))


@lower("aten::arange")
def arange(op: Emitter, end: Any, dtype: Any = None) -> Value:
    """aten::arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return arange_step(op, 0, end, 1)


@lower("aten::arange.start")
def arange_start(op: Emitter, start: Any, end: Any, dtype: Any = None) -> Value:
    """aten::arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return arange_step(op, start, end, 1)


@lower("aten::arange.start_step")
def arange_step(op: Emitter, start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Value:
    """aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor

    As many steps as fit before `end`; their number is computed in double, as in torch.  For an int64 result torch
    truncates all three before that, for one of other integers only the start and the step, after it.
    """
    if not any(isinstance(item, Value) and item.const is None for item in (start, end, step)):
        known = [
            item.const.item() if isinstance(item, Value) and item.const is not None else item
            for item in (start, end, step)
        ]
        return _known_steps(op, known)
    if op.result_dtype == dtypes.INT64:
        start, end, step = (_truncated(op, item) for item in (start, end, step))
    if all(map(_is_integer, (start, end, step))):
        counted = op.Range(*[op.like(item, Value(dtypes.INT64)) for item in (start, end, step)])
        return op.cast(counted, op.result_dtype)
    count = _count(op, start, end, step)
    if start == 0 and step == 1:
        return op.cast(iota(op, count), op.result_dtype)
    # computed in int64, or in double for float results, and then converted once
    floats = dtypes.is_floating(op.result_dtype)
    exact = Value(dtypes.DOUBLE if floats else dtypes.INT64)
    steps = op.Mul(op.cast(iota(op, count), exact.dtype), op.like(step, exact))
    return op.cast(op.Add(steps, op.like(start, exact)), op.result_dtype)


@lower("aten::range", "aten::range.step")
def range_step(op: Emitter, start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Value:
    """aten::range.step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor

    `end` is included where a step meets it.  For integers torch truncates all three first.
    """
    double = Value(dtypes.DOUBLE)
    if not dtypes.is_floating(op.result_dtype):
        start, end, step = (_truncated(op, item) for item in (start, end, step))
    first, last, width = (op.like(item, double) for item in (start, end, step))
    count = op.Add(op.cast(op.Floor(op.Div(op.Sub(last, first), width)), dtypes.INT64), op.const(1))
    steps = op.Mul(op.cast(iota(op, op.known(count)), dtypes.DOUBLE), width)
    return op.cast(op.Add(steps, first), op.result_dtype)


def _is_integer(bound: Any) -> bool:
    return not (dtypes.is_floating(bound.dtype) if isinstance(bound, Value) else isinstance(bound, float))


def _truncated(op: Emitter, bound: Any) -> Any:
    return op.cast(bound, dtypes.INT64) if isinstance(bound, Value) else int(bound)


def _known_steps(op: Emitter, bounds: Sequence[Any]) -> Value:
    values = torch.arange(*bounds, dtype=dtypes.torch_dtype(op.result_dtype))
    integral = all(isinstance(item, int) for item in bounds) and not dtypes.is_floating(op.result_dtype)
    if values.numel() <= LIMIT or not integral:
        return op.const(values)
    dtype = op.result_dtype if op.newest_takes("Range", op.result_dtype) else dtypes.INT64
    return op.cast(op.Range(*[op.const(item, dtype) for item in bounds]), op.result_dtype)


def _count(op: Emitter, start: Any, end: Any, step: Any) -> Value:
    if start == 0 and step == 1 and (not isinstance(end, Value) or not dtypes.is_floating(end.dtype)):
        return op.cast(end, dtypes.INT64)
    double = Value(dtypes.DOUBLE)
    span = op.Div(op.Sub(op.like(end, double), op.like(start, double)), op.like(step, double))
    return op.cast(op.Ceil(span), dtypes.INT64)


@lower("aten::linspace", "aten::linspace.Tensor_Tensor", "aten::linspace.Tensor_Scalar", "aten::linspace.Scalar_Tensor")
def linspace(op: Emitter, start: Any, end: Any, steps: Any, dtype: Any = None) -> Value:
    """aten::linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor

    Computed from both ends, so that the last number is exactly `end`, as in torch.
    """
    if not any(isinstance(item, Value) for item in (start, end, steps)):
        return op.const(torch.linspace(start, end, steps, dtype=dtypes.torch_dtype(op.result_dtype)))
    return op.cast(_spaced(op, start, end, steps), op.result_dtype)


def _spaced(op: Emitter, start: Any, end: Any, steps: Any) -> Value:
    double = Value(dtypes.DOUBLE)
    if not dtypes.is_floating(op.result_dtype):  # torch truncates the bounds then
        start, end = _truncated(op, start), _truncated(op, end)
    first, last = op.like(start, double), op.like(end, double)
    number = op.like(steps, double)
    place = op.cast(iota(op, op.known(steps)), dtypes.DOUBLE)
    intervals = op.Max(op.Sub(number, op.like(1, double)), op.like(1, double))
    width = op.Div(op.Sub(last, first), intervals)
    from_end = op.Sub(last, op.Mul(op.Sub(intervals, place), width))
    in_front = op.Less(place, op.Mul(number, op.like(0.5, double)))
    return op.Where(in_front, op.Add(first, op.Mul(place, width)), from_end)


@lower("aten::logspace", "aten::logspace.Tensor_Tensor", "aten::logspace.Tensor_Scalar", "aten::logspace.Scalar_Tensor")
def logspace(op: Emitter, start: Any, end: Any, steps: Any, base: float = 10.0, dtype: Any = None) -> Value:
    """aten::logspace(Scalar start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None,
    Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
    """
    if not any(isinstance(item, Value) for item in (start, end, steps)):
        return op.const(torch.logspace(start, end, steps, base, dtype=dtypes.torch_dtype(op.result_dtype)))
    exponents = _spaced(op, start, end, steps)
    return op.cast(op.Pow(op.like(base, exponents), exponents), op.result_dtype)


@lower("aten::eye", "aten::eye.m")
def eye(op: Emitter, n: Any, m: Any = None, dtype: Any = None) -> Value:
    """aten::eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)
    -> Tensor
    """
    rows, columns = iota(op, op.known(n)), iota(op, op.known(n if m is None else m))
    return op.cast(op.Equal(op.Unsqueeze(rows, axes=[1]), op.Unsqueeze(columns, axes=[0])), op.result_dtype)


@lower("aten::tril_indices")
def tril_indices(op: Emitter, row: Any, col: Any, offset: int = 0, dtype: Any = None) -> Value:
    """aten::tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor

    [2, n]: the rows and the columns of the elements, row by row.
    """
    return _triangle_indices(op, row, col, offset, upper=False)


@lower("aten::triu_indices")
def triu_indices(op: Emitter, row: Any, col: Any, offset: int = 0, dtype: Any = None) -> Value:
    """aten::triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor

    [2, n]: the rows and the columns of the elements, row by row.
    """
    return _triangle_indices(op, row, col, offset, upper=True)


def _triangle_indices(op: Emitter, rows: Any, columns: Any, offset: int, *, upper: bool) -> Value:
    rows, columns = op.known(rows), op.known(columns)
    if isinstance(rows, int) and isinstance(columns, int):
        function = torch.triu_indices if upper else torch.tril_indices
        return op.const(function(rows, columns, offset, dtype=dtypes.torch_dtype(op.result_dtype)))
    row = op.Unsqueeze(op.Add(iota(op, rows), op.const(offset)), [1])
    column = op.Unsqueeze(iota(op, columns), [0])
    outside = op.Greater(row, column) if upper else op.Less(row, column)
    return op.cast(op.NonZero(op.Not(outside)), op.result_dtype)


# Copies -------------------------------------------------------------------------------------------------------------


@lower(
    "aten::to.dtype",
    "aten::to.device",
    "aten::to.dtype_layout",
    "aten::_to_copy",
    "aten::to.prim_Device",
    "aten::to.prim_dtype",
)
def to(op: Emitter, self: Value, dtype: Any = None) -> Value:
    """aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False,
    MemoryFormat? memory_format=None) -> Tensor(a)
    """
    return op.like(self, Value(op.result_dtype))


@lower("prims::convert_element_type")
def convert_element_type(op: Emitter, a: Value, dtype: Any) -> Value:
    """prims::convert_element_type(Tensor a, ScalarType dtype) -> Tensor

    What torch's decompositions of operators on halves have in place of aten::to.
    """
    return op.cast(a, op.result_dtype)


@lower("aten::to.other", "aten::type_as")
def to_other(op: Emitter, self: Value, other: Value) -> Value:
    """aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False,
    MemoryFormat? memory_format=None) -> Tensor(a)
    """
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
def identity_rule(op: Emitter, self: Value) -> Value:
    """aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)

    The result is `self`: layout and aliasing do not exist in ONNX.
    """
    return self


@lower("aten::copy")
def copy(op: Emitter, self: Value, src: Value) -> Value:
    """aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor

    `src`, broadcast to the shape of `self`, in the dtype of `self`.
    """
    moved = op.cast(src, self.dtype)
    if src.shape == self.shape and self.shape is not None and None not in self.shape:
        return moved
    return op.Expand(moved, op.shape(self))
