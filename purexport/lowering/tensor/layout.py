"""Operators that change how elements are arranged on axes, and compute nothing.

The shape of the result is known from torch (as ints, or as expressions of the dynamic axes), so a reshape needs at most
the computed sizes that cannot be left to -1. The `_copy` forms are the same in ONNX, where every result is a new
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.inference.types import product
from purexport import dtypes
from purexport.aten.graph import TensorType
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import (
    axis_of,
    dims_of,
    permute,
    reshape,
    reshape_to_result,
    squeezed_axes,
    swap_last,
)
from purexport.lowering.support.reshaping import squeezed, unsqueezed
from purexport.lowering.support.sizes import computed_size


@lower("aten::view", "aten::_unsafe_view", "aten::_reshape_copy", "aten::view_copy")
def view(op: Emitter, self: Value, size: Sequence[Any]) -> Value:
    """aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"""
    return reshape_to_result(op, self, size)


@lower("aten::reshape")
def reshape_rule(op: Emitter, self: Value, shape: Sequence[Any]) -> Value:
    """aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)"""
    return reshape_to_result(op, self, shape)


@lower("aten::flatten.using_ints")
def flatten(op: Emitter, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)"""
    first, last = axis_of(start_dim, self.rank), axis_of(end_dim, self.rank)
    sizes = self.shape or ()
    inner = [size for size in sizes[first : last + 1] if size is not None]
    merged = -1 if None in sizes[first : last + 1] else product(inner)
    dims = dims_of(op, self)
    return reshape_to_result(op, self, [*dims[:first], merged, *dims[last + 1 :]])


@lower("aten::ravel")
def ravel(op: Emitter, self: Value) -> Value:
    """aten::ravel(Tensor(a) self) -> Tensor(a)"""
    return reshape_to_result(op, self, [-1])


@lower("aten::unflatten.int")
def unflatten(op: Emitter, self: Value, dim: int, sizes: Sequence[Any]) -> Value:
    """aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)

    A -1 is what is left of that axis, whatever the other axes are.
    """
    axis = axis_of(dim, self.rank)
    dims = dims_of(op, self)
    whole = self.shape[axis] if self.shape is not None else None
    numbers = [size for size in sizes if isinstance(size, int) and size > 0]
    if -1 in sizes and len(numbers) == len(sizes) - 1 and whole is not None:
        sizes = [whole // product(numbers) if size == -1 else size for size in sizes]
    return reshape_to_result(op, self, [*dims[:axis], *sizes, *dims[axis + 1 :]])


@lower("aten::reshape_as", "aten::view_as")
def reshape_as(op: Emitter, self: Value, other: Value) -> Value:
    """aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)"""
    return reshape_to_result(op, self, dims_of(op, other))


@lower(
    "aten::squeeze",
    "aten::squeeze.dim",
    "aten::squeeze.dims",
    "aten::squeeze_copy",
    "aten::squeeze_copy.dim",
    "aten::squeeze_copy.dims",
)
def squeeze(op: Emitter, self: Value, dim: Any = None) -> Value:
    """aten::squeeze(Tensor(a) self) -> Tensor(a)

    `squeeze.dim` leaves an axis whose size is not 1. A size that only the run knows counts as not 1, unless the result
    says that all axes are removed, or that nobody need know its rank.
    """
    axes = squeezed_axes(self.rank, dim)
    assert self.shape is not None
    changing = self.rank > 0 and any(not isinstance(self.shape[axis], int) for axis in axes)
    if changing and op.result.shape is None:
        return _without_ones(op, self, axes)
    if changing and op.result.shape is not None and len(op.result.shape) == self.rank - len(axes):
        op.remark("removes an axis whose size is 1 in the example; for other sizes the file stops with an error")
        return op.Squeeze(self, axes)
    if changing:
        op.remark(
            "takes an axis for longer than 1; for sizes where it does not hold, the file has an axis more than torch"
        )
    axes = [axis for axis in axes if self.rank and self.shape[axis] == 1]
    return squeezed(op, self, axes) if axes else self


def _without_ones(op: Emitter, self: Value, axes: Sequence[int]) -> Value:
    """The tensor without those of the axes whose size is 1 in the run.  It goes to outputs, which declare the others:
    ONNX has no shape for two ranks, and wants one.
    """
    assert self.shape is not None
    op.remark("removes a dynamic axis where its size is 1, as torch does; the output declares the axis for all sizes")
    if len(axes) == self.rank:
        without = op.Squeeze(self)
    else:
        sizes = op.Shape(self)
        stays = op.const([axis not in axes for axis in range(self.rank)], dtypes.BOOL)
        kept = op.Compress(sizes, op.Or(stays, op.Not(op.Equal(sizes, [1]))), axis=0)
        without = op.Reshape(self, kept, allowzero=1 if op.has("Reshape", "allowzero") else None)
    without.shape = tuple(size for axis, size in enumerate(self.shape) if axis not in axes or size != 1)
    return without


@lower("aten::unsqueeze", "aten::unsqueeze_copy")
def unsqueeze(op: Emitter, self: Value, dim: int) -> Value:
    """aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"""
    return unsqueezed(op, self, dim % (self.rank + 1))


@lower("aten::atleast_1d")
def atleast_1d(op: Emitter, self: Value) -> Value:
    """aten::atleast_1d(Tensor self) -> Tensor"""
    return self if self.rank else reshape(op, self, [1])


@lower("aten::atleast_2d")
def atleast_2d(op: Emitter, self: Value) -> Value:
    """aten::atleast_2d(Tensor self) -> Tensor"""
    one = atleast_1d(op, self)
    return op.Unsqueeze(one, [0]) if self.rank < 2 else one


@lower("aten::atleast_3d")
def atleast_3d(op: Emitter, self: Value) -> Value:
    """aten::atleast_3d(Tensor self) -> Tensor

    A vector becomes [1, n, 1] and a matrix [n, m, 1].
    """
    two = atleast_2d(op, self)
    return op.Unsqueeze(two, [2]) if self.rank < 3 else two


@lower("aten::transpose.int", "aten::swapdims", "aten::transpose_copy.int")
def transpose(op: Emitter, self: Value, dim0: int, dim1: int) -> Value:
    """aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)

    A zero-dim tensor stays as it is.
    """
    order = list(range(self.rank))
    if order:
        one, other = axis_of(dim0, self.rank), axis_of(dim1, self.rank)
        order[one], order[other] = order[other], order[one]
    return permute(op, self, order)


@lower("aten::swapaxes")
def swapaxes(op: Emitter, self: Value, axis0: int, axis1: int) -> Value:
    """aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)"""
    return transpose(op, self, axis0, axis1)


@lower("aten::t", "aten::numpy_T", "aten::t_copy")
def t(op: Emitter, self: Value) -> Value:
    """aten::t(Tensor(a) self) -> Tensor(a)

    A tensor of rank below 2 stays as it is.
    """
    return permute(op, self, list(range(self.rank))[::-1])


@lower("aten::mT")
def m_t(op: Emitter, self: Value) -> Value:
    """aten::mT(Tensor(a) self) -> Tensor(a)"""
    return swap_last(op, self) if self.rank > 1 else self


@lower("aten::mH", "aten::adjoint")
def m_h(op: Emitter, self: Value) -> Value:
    """aten::mH(Tensor(a) self) -> Tensor(a)"""
    if op.result.dtype.is_complex:
        raise UnsupportedForm(
            "of a complex tensor has no rule; write .mT and .conj() on the real and imaginary parts",
            code="complex-tensor",
        )
    return swap_last(op, self) if self.rank > 1 else self


@lower("aten::permute", "aten::permute_copy")
def permute_rule(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    """aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)"""
    return permute(op, self, [axis_of(dim, self.rank) for dim in dims])


@lower("aten::movedim.int", "aten::movedim.intlist", "aten::moveaxis.int", "aten::moveaxis.intlist")
def movedim(op: Emitter, self: Value, source: Any, destination: Any) -> Value:
    """aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)

    The axes that are not named keep their order.
    """
    sources = [axis_of(item, self.rank) for item in _list(source)]
    places = [axis_of(item, self.rank) for item in _list(destination)]
    rest = iter([axis for axis in range(self.rank) if axis not in sources])
    moved = dict(zip(places, sources, strict=True))
    return permute(op, self, [moved[axis] if axis in moved else next(rest) for axis in range(self.rank)])


def _list(item: Any) -> list[int]:
    return list(item) if isinstance(item, (list, tuple)) else [item]


@lower("aten::size.int", "aten::sym_size.int")
def size_int(op: Emitter, self: Value, dim: int) -> Any:
    """aten::size.int(Tensor self, int dim) -> int"""
    return op.dim(self, dim)


@lower("aten::sym_stride.int")
def sym_stride(op: Emitter, self: Value, dim: int) -> Any:
    """aten::sym_stride.int(Tensor self, int dim) -> SymInt"""
    type_ = op.operands["self"]
    stride = type_.strides[dim] if isinstance(type_, TensorType) and type_.strides is not None else None
    found = None if stride is None else computed_size(op, stride)
    if found is None:
        raise UnsupportedForm("of a tensor whose layout is not known has no rule", code="memory-layout")
    return found


@lower("aten::sym_numel")
def numel(op: Emitter, self: Value) -> Any:
    """aten::sym_numel(Tensor self) -> SymInt"""
    return op.known(op.ReduceProd(op.shape(self), keepdims=0))


@lower("aten::_shape_as_tensor")
def shape_as_tensor(op: Emitter, self: Value) -> Value:
    """aten::_shape_as_tensor(Tensor self) -> Tensor"""
    return op.shape(self)


@lower("aten::_reshape_from_tensor")
def reshape_from_tensor(op: Emitter, self: Value, shape: Value) -> Value:
    """aten::_reshape_from_tensor(Tensor self, Tensor shape) -> Tensor

    A size of 0 is a size of 0, as in torch; before opset 14 (`allowzero`) ONNX Reshape copies the size of the input for
    it.
    """
    return op.Reshape(self, shape, allowzero=1 if op.has("Reshape", "allowzero") else None)
