"""What operators give on shapes: of tensors that are tuples of sizes, and of numbers that are numbers.

A row of `SHAPES` takes the operands in the order of the ATen schema, and gives a shape or a list of shapes.  It raises
UnfitError wherever the operator refuses operands of these shapes.  Rows are there for what models call often; operators
with torch's tag `pointwise` need none.  `INTEGERS` are operators on whole numbers that give whole numbers or truth
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from purexport.aten import scalars

Shape = tuple[int, ...]


class UnfitError(RuntimeError):
    """The numbers cannot be found out without running the model itself."""


def shape_of(item: Any) -> Shape:
    """The shape of an operand: a number has no axes."""
    return item if isinstance(item, tuple) else ()


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all of them are stretched to.  Raises UnfitError where they do not fit."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    found = [1] * max(map(len, shapes))
    for shape in shapes:
        offset = len(found) - len(shape)
        for axis, size in enumerate(shape, offset):
            if size != 1:
                _require(found[axis] in (1, size), shapes)
                found[axis] = size
    return tuple(found)


def _require(holds: bool, *what: Any) -> None:
    if not holds:
        raise UnfitError(f"sizes that do not fit: {what}")


def _axis(shape: Shape, dim: int, new: int = 0) -> int:
    """An axis counted from the front, of a tensor that gets so many further axes."""
    count = max(len(shape) + new, 1)
    _require(-count <= dim < count, shape, dim)
    return dim % count


def _same(x: Any, *_: Any) -> Any:
    return x


def _size(x: Shape, dim: int) -> int:
    return x[_axis(x, dim)]


# Other axes of the same elements --------------------------------------------------------------------------------------


def _view(x: Any, sizes: Sequence[int]) -> Shape:
    count = math.prod(shape_of(x))
    if -1 not in sizes:
        _require(math.prod(sizes) == count and min(sizes, default=0) >= 0, x, sizes)
        return tuple(sizes)
    known = math.prod(size for size in sizes if size != -1)
    _require(sizes.count(-1) == 1 and known > 0 and count % known == 0, x, sizes)
    return tuple(count // known if size == -1 else size for size in sizes)


def _flatten(x: Shape, start: int, end: int) -> Shape:
    start, end = _axis(x, start), _axis(x, end)
    _require(start <= end, x)
    return (*x[:start], math.prod(x[start : end + 1]), *x[end + 1 :])


def _permute(x: Shape, dims: Sequence[int]) -> Shape:
    order = [_axis(x, dim) for dim in dims]
    _require(sorted(order) == list(range(len(x))), x, dims)
    return tuple(x[axis] for axis in order)


def _transpose(x: Shape, one: int, other: int) -> Shape:
    found = list(x)
    one, other = _axis(x, one), _axis(x, other)
    found[one], found[other] = x[other], x[one]
    return tuple(found)


def _t(x: Shape) -> Shape:
    _require(len(x) <= 2, x)
    return x[::-1]


def _unsqueeze(x: Any, dim: int) -> Shape:
    shape = shape_of(x)
    axis = _axis(shape, dim, 1)
    return (*shape[:axis], 1, *shape[axis:])


def _squeeze(x: Shape, dim: int) -> Shape:
    axis = _axis(x, dim)
    return x[:axis] + x[axis + 1 :] if x and x[axis] == 1 else x


def _expand(x: Any, sizes: Sequence[int], _: bool = False) -> Shape:
    shape = shape_of(x)
    added = len(sizes) - len(shape)
    _require(added >= 0, x, sizes)
    found = []
    for axis, size in enumerate(sizes):
        old = shape[axis - added] if axis >= added else 1
        _require(size == old or (size == -1 and axis >= added) or (old == 1 and size >= 0), x, sizes)
        found.append(old if size == -1 else size)
    return tuple(found)


# Parts ----------------------------------------------------------------------------------------------------------------


def _slice(x: Shape, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Shape:
    axis = _axis(x, dim)
    _require(step > 0 and len(x) > 0, x)
    return (*x[:axis], len(range(*slice(start, end, step).indices(x[axis]))), *x[axis + 1 :])


def _select(x: Shape, dim: int, index: int) -> Shape:
    axis = _axis(x, dim)
    _require(len(x) > 0 and -x[axis] <= index < x[axis], x, index)
    return x[:axis] + x[axis + 1 :]


def _split(x: Shape, size: int, dim: int = 0) -> list[Shape]:
    axis = _axis(x, dim)
    _require(size > 0, x, size)
    starts = range(0, max(x[axis], 1), size)
    return [(*x[:axis], min(size, x[axis] - start), *x[axis + 1 :]) for start in starts]


def _chunk(x: Shape, count: int, dim: int = 0) -> list[Shape]:
    axis = _axis(x, dim)
    _require(count > 0 and x[axis] > 0, x, count)
    return _split(x, -(-x[axis] // count), axis)


def _unbind(x: Shape, dim: int = 0) -> list[Shape]:
    axis = _axis(x, dim)
    return [x[:axis] + x[axis + 1 :]] * x[axis]


def _cat(tensors: Sequence[Any], dim: int = 0) -> Shape:
    shapes = [shape for shape in map(shape_of, tensors) if shape != (0,)] or [(0,)]
    first = shapes[0]
    axis = _axis(first, dim)
    _require(len(first) > 0, tensors)
    for shape in shapes:
        _require(len(shape) == len(first), tensors)
        _require(shape[:axis] == first[:axis] and shape[axis + 1 :] == first[axis + 1 :], tensors)
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _stack(tensors: Sequence[Any], dim: int = 0) -> Shape:
    first = shape_of(tensors[0])
    _require(all(shape_of(item) == first for item in tensors), tensors)
    axis = _axis(first, dim, 1)
    return (*first[:axis], len(tensors), *first[axis:])


def _embedding(weight: Shape, indices: Any, *_: Any) -> Shape:
    return (*shape_of(indices), *weight[1:])


# Products -------------------------------------------------------------------------------------------------------------


def _mm(x: Shape, y: Shape) -> Shape:
    _require(len(x) == len(y) == 2 and x[1] == y[0], x, y)
    return x[0], y[1]


def _bmm(x: Shape, y: Shape) -> Shape:
    _require(len(x) == len(y) == 3 and x[0] == y[0] and x[2] == y[1], x, y)
    return x[0], x[1], y[2]


def _addmm(bias: Any, x: Shape, y: Shape, *_: Any) -> Shape:
    return _expand(bias, _mm(x, y))


def _matmul(x: Shape, y: Shape) -> Shape:
    _require(len(x) > 0 and len(y) > 0 and x[-1] == y[-2 if len(y) > 1 else 0], x, y)
    rows = x[-2:-1] if len(x) > 1 else ()
    columns = y[-1:] if len(y) > 1 else ()
    return (*broadcast(x[:-2], y[:-2]), *rows, *columns)


def _linear(x: Shape, weight: Shape, bias: Shape | None = None) -> Shape:
    _require(len(x) > 0 and len(weight) == 2 and x[-1] == weight[1], x, weight)
    _require(bias is None or bias in ((weight[0],), ()), bias)
    return (*x[:-1], weight[0])


def _attention(
    query: Shape, key: Shape, value: Shape, mask: Shape | None = None, dropout: float = 0.0, causal: bool = False,
    scale: float | None = None, grouped: bool = False,
) -> Shape:  # fmt: skip
    _require(len(query) == len(key) == len(value) >= 3, query, key, value)
    _require(query[-1] == key[-1] and key[-2] == value[-2] and not (causal and mask is not None), query, key, value)
    heads = [query[:-2], key[:-2], value[:-2]]
    if grouped:
        _require(query[-3] % key[-3] == 0 and query[-3] % value[-3] == 0, heads)
        heads = [shape[:-1] for shape in heads]
    batch = broadcast(*heads)
    batch = (*batch, query[-3]) if grouped else batch
    if mask is not None:
        wanted = (*batch, query[-2], key[-2])
        _require(broadcast(mask, wanted) == wanted, mask, wanted)
    return (*batch, query[-2], value[-1])


def _convolved(
    x: Shape, weight: Shape, bias: Shape | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Shape:
    axes = len(weight) - 2
    _require(len(x) in (axes + 1, axes + 2) and x[-axes - 1] == weight[1] * groups, x, weight)
    _require(weight[0] % groups == 0 and bias in (None, weight[:1]) and min(_each(dilation, axes)) > 0, weight, bias)
    found = [
        (size + 2 * pad - gap * (length - 1) - 1) // step + 1
        for size, length, step, pad, gap in zip(
            x[-axes:], weight[2:], *(_each(item, axes) for item in (stride, padding, dilation)), strict=True
        )
    ]
    _require(min(found) > 0, x, weight)
    return (*x[: -axes - 1], weight[0], *found)


def _each(item: Any, axes: int) -> Sequence[int]:
    """A number for each axis."""
    items = item if isinstance(item, list) else [item]
    return items * axes if len(items) == 1 else items


def _convolution(
    x: Shape, weight: Shape, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output: Any,
    groups: int, *_: Any,
) -> Shape:  # fmt: skip
    if not transposed:
        return _convolved(x, weight, bias, stride, padding, dilation, groups)
    axes = len(weight) - 2
    _require(len(x) in (axes + 1, axes + 2) and x[-axes - 1] == weight[0] and weight[0] % groups == 0, x, weight)
    _require(bias in (None, (weight[1] * groups,)) and min(*_each(stride, axes), *_each(dilation, axes)) > 0, weight)
    found = [
        (size - 1) * step - 2 * pad + gap * (length - 1) + more + 1
        for size, length, step, pad, gap, more in zip(
            x[-axes:], weight[2:], *(_each(item, axes) for item in (stride, padding, dilation, output)), strict=True
        )
    ]
    grown = zip(_each(output, axes), _each(stride, axes), _each(dilation, axes), strict=True)
    _require(min(found) > 0 and all(more < max(step, gap) for more, step, gap in grown), x, weight)
    return (*x[: -axes - 1], weight[1] * groups, *found)


# Along axes -----------------------------------------------------------------------------------------------------------


def _reduced(x: Any, dims: Any, keepdim: bool = False, *_: Any) -> Shape:
    shape = shape_of(x)
    named = range(len(shape)) if dims in (None, []) else dims if isinstance(dims, list) else [dims]
    axes = {_axis(shape, dim) for dim in named}
    _require(len(axes) == len(named), x, dims)
    kept = ((axis, size) for axis, size in enumerate(shape) if keepdim or axis not in axes)
    return tuple(1 if axis in axes else size for axis, size in kept)


def _along(x: Any, dim: int, *_: Any) -> Shape:
    """The shape of what is computed along an axis, for each element."""
    shape = shape_of(x)
    _axis(shape, dim)
    return shape


def _layer_norm(x: Shape, normalized: Sequence[int], weight: Any = None, bias: Any = None, *_: Any) -> Shape:
    last = tuple(normalized)
    _require(x[len(x) - len(last) :] == last and weight in (None, last) and bias in (None, last), x, last)
    return x


def _group_norm(x: Shape, groups: int, weight: Any = None, bias: Any = None, *_: Any) -> Shape:
    _require(len(x) > 1 and x[1] % groups == 0 and weight in (None, x[1:2]) and bias in (None, x[1:2]), x, groups)
    return x


def _batch_norm(x: Shape, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> Shape:
    _require(len(x) > 1 and all(item in (None, x[1:2]) for item in (weight, bias, mean, variance)), x)
    return x


def _resized(x: Shape, sizes: Sequence[int] | None, *others: Any) -> Shape:
    """Of interpolation; the last operand are the factors by which sizes grow."""
    found = sizes if sizes is not None else [math.floor(size * by) for size, by in zip(x[2:], others[-1], strict=True)]
    _require(len(found) == len(x) - 2 and min((*found, *x[1:])) > 0, x, sizes)
    return (*x[:2], *found)


def _padded(x: Shape, sizes: Sequence[int]) -> Shape:
    _require(len(sizes) % 2 == 0 and len(sizes) <= 2 * len(x), x, sizes)
    found = list(x)
    for place in range(len(sizes) // 2):
        axis = len(x) - 1 - place
        before, after = sizes[2 * place : 2 * place + 2]
        _require(found[axis] + before >= 0 and found[axis] + after >= 0, x, sizes)  # torch cuts one side first
        found[axis] += before + after
        _require(found[axis] >= 0, x, sizes)
    return tuple(found)


# New tensors ----------------------------------------------------------------------------------------------------------


def _filled(sizes: Sequence[int], *_: Any) -> Shape:
    _require(min(sizes, default=0) >= 0, sizes)
    return tuple(sizes)


def _new(_: Any, sizes: Sequence[int], *__: Any) -> Shape:
    return _filled(sizes)


def _range(start: Any, end: Any, step: Any = 1) -> Shape:
    _require(step != 0 and (end - start) * step >= 0, start, end, step)
    return (math.ceil((end - start) / step),)


SHAPES: dict[str, Callable[..., Any]] = {
    "aten::size.int": _size,
    "aten::size": lambda x: list(shape_of(x)),
    "aten::numel": lambda x: math.prod(shape_of(x)),
    "aten::dim": lambda x: len(shape_of(x)),
    **dict.fromkeys(("aten::detach", "aten::clone", "aten::contiguous", "aten::alias", "aten::type_as"), _same),
    **dict.fromkeys((f"aten::to.{form}" for form in ("device", "dtype", "dtype_layout", "other", "prim_dtype")), _same),
    **dict.fromkeys(("aten::view", "aten::reshape", "aten::_unsafe_view"), _view),
    "aten::flatten.using_ints": _flatten,
    "aten::permute": _permute,
    "aten::transpose.int": _transpose,
    "aten::t": _t,
    "aten::unsqueeze": _unsqueeze,
    "aten::squeeze.dim": _squeeze,
    "aten::expand": _expand,
    "aten::slice.Tensor": _slice,
    "aten::select.int": _select,
    **dict.fromkeys(("aten::split.Tensor", "aten::split"), _split),
    "aten::chunk": _chunk,
    "aten::unbind.int": _unbind,
    "aten::cat": _cat,
    "aten::stack": _stack,
    "aten::embedding": _embedding,
    "aten::mm": _mm,
    "aten::bmm": _bmm,
    "aten::addmm": _addmm,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_convolution": _convolution,
    "aten::convolution": _convolution,
    **dict.fromkeys(("aten::mean.dim", "aten::sum.dim_IntList", "aten::any.dim", "aten::all.dim"), _reduced),
    **dict.fromkeys(("aten::softmax.int", "aten::log_softmax.int", "aten::cumsum"), _along),
    "aten::layer_norm": _layer_norm,
    "aten::group_norm": _group_norm,
    "aten::batch_norm": _batch_norm,
    "aten::upsample_nearest2d.vec": _resized,
    "aten::upsample_bilinear2d.vec": _resized,
    "aten::constant_pad_nd": lambda x, sizes, *_: _padded(x, sizes),
    **dict.fromkeys(("aten::zeros", "aten::ones", "aten::full", "aten::empty.memory_format"), _filled),
    **dict.fromkeys(("aten::new_ones", "aten::new_zeros", "aten::new_full", "aten::new_empty"), _new),
    "aten::arange": lambda end, *_: _range(0, end),
    "aten::arange.start": lambda start, end, *_: _range(start, end),
    "aten::arange.start_step": lambda start, end, step, *_: _range(start, end, step),
}
"""By name with the overload."""


_WHOLE = "add sub rsub mul floor_divide floordiv remainder neg eq ne lt le gt ge __and__ __or__ Int IntImplicit"
INTEGERS: dict[str, Callable[..., Any]] = {
    f"aten::{name}": scalars.function_of(f"aten::{name}") for name in (*_WHOLE.split(), "ScalarImplicit")
}
"""By name without the overload; operands and results are whole numbers or truth values."""

__all__ = ["INTEGERS", "SHAPES", "Shape", "UnfitError", "broadcast", "shape_of"]
