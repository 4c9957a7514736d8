"""Results on fake tensors that look like an input, without the long way that torch takes to find that out.

Where sizes are symbolic, torch expands a normalization into a dozen operators.  Of each it asks which sizes broadcast,
and how the result lies in memory.  But the result has the sizes of the input and lies as the input does, or row by row.
Each row of `_rows` says so for plain arguments: the strides of the input are those of a new tensor, and the sizes of
the other arguments are the numbers that they should be.  For all else the row says None, and torch goes its own way.

Strides are compared as expressions.  So a row asks torch nothing, and leaves no assumption about a size behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from purexport.torch_patches.calls import functions_handed_to
from purexport.torch_patches.fakes import implementations

_ATEN = torch.ops.aten
_CHANNELS_LAST = (0, 2, 3, 1)  # the axes from the outermost to the innermost

Row = Callable[..., Any]


@contextmanager
def known_results() -> Iterator[None]:
    """Inside, the rows go before what torch does with fake tensors, in the whole process."""
    table = quick_implementations()
    before = dict(table)
    for operator, row in _rows().items():
        if operator not in table:
            table[operator] = _or_else(table, operator, row)
    try:
        yield
    finally:
        table.clear()
        table.update(before)


def quick_implementations() -> dict[Any, Callable[..., Any]]:
    """What torch asks first about an operator on fake tensors of symbolic sizes."""
    from torch._subclasses import fake_impls  # only torch.export needs it

    found: dict[Any, Callable[..., Any]] = fake_impls.get_fast_op_impls()
    return found


def _or_else(table: dict[Any, Callable[..., Any]], operator: Any, row: Row) -> Callable[..., Any]:
    """The row, and torch's own way where it says None: there the table has no row for the operator."""

    def result(mode: Any, *args: Any, **kwargs: Any) -> Any:
        found = row(mode, *args, **kwargs)
        if found is not None:
            return found
        del table[operator]
        try:
            with mode:
                return operator(*args, **kwargs)
        finally:
            table[operator] = result

    return result


def _rows() -> dict[Any, Row]:
    return {
        _ATEN.native_group_norm.default: _group_norm,
        _ATEN.native_layer_norm.default: _layer_norm,
        _ATEN._native_batch_norm_legit_no_training.default: _batch_norm,
        _ATEN.gelu.default: _gelu,
        _ATEN.clone.default: _clone,
    }


# The rows -------------------------------------------------------------------------------------------------------------


def _group_norm(
    mode: Any, input: Any, weight: Any, bias: Any, batch: Any, channels: Any, inner: Any, group: int, eps: float
) -> tuple[Any, Any, Any] | None:
    """(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps)

    torch lays the result out row by row where there is no weight.
    """
    form = _form(input)
    if form is None or input.ndim < 2 or not _floats(input, [weight, bias], [channels]):
        return None
    if group < 1 or channels % group or (weight is None and form is not torch.contiguous_format):
        return None
    declared = [_expression(size) for size in (batch, channels, inner)]
    if declared != [*map(_expression, input.shape[:2]), math.prod(map(_expression, input.shape[2:]))]:
        return None
    moments = [_new(mode, input, (batch, group)) for _ in range(2)]
    return _new(mode, input, input.shape, form), *moments


def _layer_norm(
    mode: Any, input: Any, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Any] | None:
    """(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)

    The result lies row by row, whatever the input does.
    """
    wanted, count = list(normalized_shape), len(normalized_shape)
    if not _floats(input, [weight, bias], wanted) or list(input.shape[-count:]) != wanted:
        return None
    moments = [_new(mode, input, (*input.shape[:-count], *(1 for _ in wanted))) for _ in range(2)]
    return _new(mode, input, input.shape), *moments


def _batch_norm(
    mode: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any] | None:
    """(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps)

    On processors nothing is saved for a backward pass.
    """
    form = _form(input)
    if form is None or input.ndim < 2:
        return None
    if not _floats(input, [weight, bias, running_mean, running_var], [input.shape[1]]):
        return None
    return _new(mode, input, input.shape, form), *(_new(mode, input, (0,)) for _ in range(2))


def _gelu(mode: Any, input: Any, *, approximate: str = "none") -> Any:
    """(Tensor self, *, str approximate='none')"""
    form = _form(input)
    if form is None or not _floats(input, [], []) or approximate not in ("none", "tanh"):
        return None
    return _new(mode, input, input.shape, form)


def _clone(mode: Any, input: Any, *, memory_format: Any = None) -> Any:
    """(Tensor self, *, MemoryFormat? memory_format=None)"""
    form = _form(input)
    if form is None or memory_format not in (None, torch.preserve_format, torch.contiguous_format):
        return None
    return _new(mode, input, input.shape, torch.contiguous_format if memory_format is torch.contiguous_format else form)


# What is plain --------------------------------------------------------------------------------------------------------


def _floats(input: Any, others: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Whether all are floats of one dtype in the memory of the processor, and `others` have these `sizes`, or are None.

    Sizes that are no numbers are not plain.
    """
    if not _is_plain(input) or not input.dtype.is_floating_point or not all(type(size) is int for size in sizes):
        return False
    return all(
        _is_plain(other) and other.dtype == input.dtype and list(other.shape) == list(sizes)
        for other in others
        if other is not None
    )


def _is_plain(tensor: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return type(tensor) is FakeTensor and tensor.layout is torch.strided and tensor.device.type == "cpu"


def _form(tensor: Any) -> Any:
    """The memory format of a new tensor that lies as this one does; None where the strides do not show that.

    Where an axis has one element or none, strides can fit several formats, and operators differ in which they take.
    """
    if not _is_plain(tensor):
        return None
    sizes, strides = tensor.shape, tensor.stride()
    if _fits(sizes, strides):
        return torch.contiguous_format
    if tensor.ndim != len(_CHANNELS_LAST) or any(type(size) is int and size < 2 for size in sizes):
        return None
    fits = _fits([sizes[axis] for axis in _CHANNELS_LAST], [strides[axis] for axis in _CHANNELS_LAST])
    return torch.channels_last if fits else None


def _fits(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether each stride is the product of the sizes behind it; torch also writes `max(size, 1)` for such a size."""
    from sympy import Integer, sympify  # where there are symbolic sizes, torch has loaded it
    from torch.utils._sympy import functions

    largest: Any = functions.Max
    behind: list[Any] = []
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        found = _expression(stride)
        if found != math.prod(behind) and found != math.prod(largest(sympify(item), Integer(1)) for item in behind):
            return False
        behind.append(_expression(size))
    return True


def _expression(size: Any) -> Any:
    """The number, or the expression of a size that is open; what is neither equals nothing."""
    if not isinstance(size, torch.SymInt):
        return size
    node = size.node
    number = node.maybe_as_int()  # older versions of torch have numbers without an expression
    return getattr(node, "expr", math.nan) if number is None else number


def _new(mode: Any, input: Any, sizes: Sequence[Any], form: Any = torch.contiguous_format) -> Any:
    """A new tensor of the input's dtype in its place."""
    from torch._subclasses.fake_tensor import FakeTensor

    made = torch.empty(sizes, dtype=input.dtype, device="meta", memory_format=form)
    return FakeTensor(mode, made, input.device)


# Convolutions ---------------------------------------------------------------------------------------------------------


@contextmanager
def layouts_changed_at_once() -> Iterator[None]:
    """Inside, the result of a convolution is given the layout of its kernel by a new tensor, in the whole process.

    torch makes the result row by row, and copies it as it copies a tensor whose layout is not known.
    """
    table, operator = implementations(), _ATEN.convolution.default
    made = table[operator]

    def result(*args: Any, **kwargs: Any) -> Any:
        with functions_handed_to(_changed):
            return made(*args, **kwargs)

    table[operator] = result
    try:
        yield
    finally:
        table[operator] = made


def _changed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function is torch.Tensor.to and len(args) == 1 and kwargs == {"memory_format": torch.channels_last}:
        (tensor,) = args
        if type(tensor) is torch.Tensor and tensor.is_meta and tensor.ndim == 4:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=torch.channels_last)
    return function(*args, **kwargs)
