"""Operators that treat the real and the imaginary part of complex tensors alike: an ordinary rule, run once for each
part.

Operators that move, copy or concatenate elements do not look at their values; sums, differences and means are linear. A
real tensor or a number among complex operands gets an imaginary part of zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, by_parts
from purexport.lowering.support.fields import giving_parts
from purexport.lowering.support.pairs import Pair, pair_of, part_code

by_parts(
    "self",
    *("aten::view", "aten::_unsafe_view", "aten::_reshape_copy", "aten::view_copy", "aten::reshape"),
    *("aten::flatten.using_ints", "aten::ravel", "aten::unflatten.int", "aten::reshape_as", "aten::view_as"),
    *("aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims", "aten::unsqueeze"),
    *("aten::transpose.int", "aten::swapdims", "aten::swapaxes", "aten::t", "aten::numpy_T", "aten::mT"),
    *("aten::permute", "aten::movedim.int", "aten::movedim.intlist", "aten::moveaxis.int", "aten::moveaxis.intlist"),
    *("aten::atleast_1d", "aten::atleast_2d", "aten::atleast_3d"),
    *("aten::slice.Tensor", "aten::narrow", "aten::narrow.Tensor", "aten::select.int"),
    *("aten::index.Tensor", "aten::index_select"),
    *("aten::gather", "aten::take_along_dim", "aten::take", "aten::masked_select"),
    *("aten::split.Tensor", "aten::split_with_sizes", "aten::split.sizes", "aten::chunk", "aten::unbind.int"),
    *("aten::tensor_split.sections", "aten::tensor_split.indices", "aten::hsplit.int", "aten::hsplit.array"),
    *("aten::vsplit.int", "aten::vsplit.array", "aten::dsplit.int", "aten::dsplit.array"),
    *("aten::diagonal", "aten::linalg_diagonal", "aten::diag_embed", "aten::diag", "aten::diagflat", "aten::unfold"),
    *("aten::tril", "aten::triu", "aten::trace"),
    *("aten::narrow_copy", "aten::permute_copy", "aten::unbind_copy.int", "aten::as_strided_copy"),
    *("aten::expand", "aten::broadcast_to", "aten::expand_as", "aten::repeat", "aten::tile"),
    *("aten::repeat_interleave.self_int", "aten::rot90", "aten::flip", "aten::fliplr", "aten::flipud", "aten::roll"),
    *("aten::contiguous", "aten::clone", "aten::detach", "aten::alias", "aten::lift_fresh_copy", "aten::positive"),
    *("aten::resolve_conj", "aten::resolve_neg", "aten::neg", "aten::negative"),
    *("aten::sum", "aten::sum.dim_IntList", "aten::mean", "aten::mean.dim", "aten::cumsum"),
    *("aten::zeros_like", "aten::empty_like", "aten::zero", "aten::new_zeros", "aten::new_empty"),
)
by_parts("", "aten::zeros", "aten::empty.memory_format")
by_parts("fill_value", "aten::full")
by_parts("self fill_value", "aten::full_like", "aten::new_full")
by_parts("self value", "aten::fill.Scalar", "aten::fill.Tensor", "aten::pad", "aten::constant_pad_nd")
by_parts("self value", "aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
by_parts("self values", "aten::index_put")
by_parts("self src", "aten::copy", "aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter")
by_parts("self src", "aten::scatter.src", "aten::scatter_add", "aten::as_strided_scatter")
by_parts("self source", "aten::index_add", "aten::index_copy", "aten::put", "aten::masked_scatter")
by_parts("self other", "aten::where.self", "aten::where.ScalarOther", "aten::where.ScalarSelf", "aten::where.Scalar")
by_parts("s", "aten::scalar_tensor")
by_parts(
    "tensors",
    *("aten::cat", "aten::concat", "aten::concatenate", "aten::stack", "aten::hstack", "aten::vstack"),
    *("aten::row_stack", "aten::dstack", "aten::column_stack", "aten::broadcast_tensors", "aten::meshgrid"),
    *("aten::meshgrid.indexing", "aten::cartesian_prod"),
)


def rule_by_parts(ordinary: Rule, operands: Sequence[str]) -> Rule:
    """A rule for pairs that runs the rule `ordinary` on each part, or on the real parts only where the
    result is real.
    """

    @functools.wraps(ordinary.function)
    def run(op: Emitter, **arguments: Any) -> Any:
        dtype = _part_dtype(op, arguments)
        if dtype is None:
            return ordinary(op, _of_part(arguments, lambda pair: pair.real))
        for name in operands:
            if arguments.get(name) is not None:
                arguments[name] = _paired(op, arguments[name], dtype, as_numbers=name not in ordinary.promote)
        of_parts = giving_parts(op)
        real = ordinary(of_parts, _of_part(arguments, lambda pair: pair.real))
        imag = ordinary(of_parts, _of_part(arguments, lambda pair: pair.imag))
        return _together(real, imag)

    return Rule(run, ordinary.parameters)


def _part_dtype(op: Emitter, arguments: Mapping[str, Any]) -> int | None:
    """The dtype of the parts of the result; None for a real result. A list of tensors has the dtype of the operand."""
    type_ = op.results[0]
    if type_ is not None:
        return part_code(type_.dtype) if type_.dtype.is_complex else None
    return next((item.dtype for item in _items(arguments.values()) if isinstance(item, Pair)), None)


def _items(arguments: Iterable[Any]) -> Iterator[Any]:
    for item in arguments:
        if isinstance(item, (list, tuple)):
            yield from _items(item)
        else:
            yield item


def _paired(op: Emitter, item: Any, dtype: int, *, as_numbers: bool) -> Any:
    if isinstance(item, (list, tuple)):
        return [_paired(op, one, dtype, as_numbers=as_numbers) for one in item]
    if as_numbers and isinstance(item, (bool, int, float, complex)):
        # the ordinary rule expects a number, unless type promotion would have made a value of it
        return _Number(complex(item))
    return pair_of(op, item, dtype)


class _Number(complex):
    """A Python number; each of its two parts goes to one of the two runs."""


def _of_part(arguments: Mapping[str, Any], part: Callable[[Any], Any]) -> dict[str, Any]:
    def of(item: Any) -> Any:
        if isinstance(item, (Pair, _Number)):
            return part(item)
        return [of(one) for one in item] if isinstance(item, (list, tuple)) else item

    return {name: of(item) for name, item in arguments.items()}


def _together(real: Any, imag: Any) -> Any:
    if isinstance(real, Value):
        return Pair(real, imag)
    return [Pair(*parts) for parts in zip(real, imag, strict=True)]
