"""Sizes of results as expressions, of calls whose operands have sizes that can change.

In this order: a row (`core/shape_functions`, or one here where the row for numbers cannot be asked with symbols), which
gives exact expressions; an operator that torch tags as pointwise broadcasts; for any other, torch is asked at two more
sets of sizes, and a size that is one of the operands', or a sum with it, is found again.  What is left becomes a symbol
of its own, which nothing is known of.  A symbol too many costs a remark or a node and never a wrong number: the graph
takes each size from the tensor that has it.  So the one thing that must be right is which sizes cannot change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from proto_schema.sizes import Dim, Size
from proto_schema.sizes import size as sizes
from purexport.frontends.core.shape_functions import SHAPES, UnfitError, broadcast
from purexport.frontends.trace.size_rows import SIZES

Shape = tuple[Dim, ...]


class Extent:
    """A size for the rows of shape functions: a comparison that depends has the example's answer."""

    __slots__ = ("example", "size")

    def __init__(self, size: Size, example: int) -> None:
        self.size = size
        self.example = example

    def __hash__(self) -> int:
        return hash(self.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Extent)):
            return False
        found = sizes.equals(self.size, _size(other))
        return self.example == _example(other) if found is None else found

    def __lt__(self, other: Any) -> bool:
        found = sizes.less(self.size, _size(other))
        return self.example < _example(other) if found is None else found

    def __gt__(self, other: Any) -> bool:
        found = sizes.less(_size(other), self.size)
        return self.example > _example(other) if found is None else found

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __neg__(self) -> Any:
        return extent(-self.size, -self.example)


def _size(item: Any) -> Dim:
    return item.size if isinstance(item, Extent) else item


def _example(item: Any) -> Any:
    return item.example if isinstance(item, Extent) else item


def extent(size: Dim, example: int) -> Any:
    """The size as a row sees it."""
    return Extent(size, example) if isinstance(size, Size) else size


def _operator(name: str) -> Any:
    def forward(self: Extent, other: Any) -> Any:
        if not isinstance(other, (int, Extent)):
            return NotImplemented
        made = getattr(self.size, name)(_size(other))
        return extent(made, getattr(self.example, name)(_example(other)))

    return forward


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _prefix in ("", "r"):
        _method = f"__{_prefix}{_name}__"
        if hasattr(Size, _method):
            setattr(Extent, _method, _operator(_method))


# Rows for symbols -----------------------------------------------------------------------------------------------------


def _at(x: Sequence[Any], dim: int) -> int:
    return dim % max(len(x), 1)


def _bound(end: Any, size: Any) -> Any:
    """An end of a slice as torch clamps it."""
    if _size(end) == 0 and not isinstance(end, Extent):
        return 0
    if isinstance(end, int) and end >= 2**62:
        return size
    negative = end < 0
    if isinstance(end, Extent) and sizes.less(end.size, 0) is None:
        raise UnfitError("an end that may be on either side")
    end = size + end if negative else end
    return _largest(0, _smallest(end, size))


def _smallest(*items: Any) -> Any:
    return extent(sizes.minimum(*map(_size, items)), min(map(_example, items)))


def _largest(*items: Any) -> Any:
    return extent(sizes.maximum(*map(_size, items)), max(map(_example, items)))


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = _at(x, dim)
    size = x[axis]
    first = _bound(0 if start is None else start, size)
    last = _bound(2**63 - 1 if end is None else end, size)
    count = _largest(0, last - first)
    return (*x[:axis], -(-count // step) if step != 1 else count, *x[axis + 1 :])


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    axis = _at(x, dim)
    pieces = -(-_example(x[axis]) // _example(size))
    last = x[axis] - size * (pieces - 1)
    return [(*x[:axis], piece, *x[axis + 1 :]) for piece in [size] * (pieces - 1) + [last]]


def _chunk(x: Any, count: int, dim: int = 0) -> Any:
    return _split(x, -(-x[_at(x, dim)] // count), dim)


def _sections(x: Any, pieces: Any, dim: int = 0) -> Any:
    axis = _at(x, dim)
    return [(*x[:axis], piece, *x[axis + 1 :]) for piece in pieces]


def _unbind(x: Any, dim: int = 0) -> Any:
    axis = _at(x, dim)
    return [x[:axis] + x[axis + 1 :]] * _example(x[axis])


def _range(start: Any, end: Any, step: Any = 1) -> Any:
    if not isinstance(step, int) or isinstance(start, float) or isinstance(end, float):
        raise UnfitError("not a whole number")
    return (-(-(end - start) // step),) if step > 0 else (-((end - start) // -step),)


def _window(x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil: bool = False) -> Any:
    axes = len(window)
    found = []
    for size, length, step, pad, gap in zip(
        x[-axes:], window, _each(stride, axes), _each(padding, axes), _each(dilation, axes), strict=True
    ):
        if ceil:
            raise UnfitError("the last window depends")
        found.append((size + 2 * pad - gap * (length - 1) - 1) // step + 1)
    return found


def _each(item: Any, axes: int) -> Any:
    items = list(item) if isinstance(item, (list, tuple)) else [item]
    return items * axes if len(items) == 1 else items


def _convolved(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *_: Any
) -> Any:
    axes = len(weight) - 2
    if isinstance(padding, str):
        if padding == "same":
            return (*x[: -axes - 1], weight[0], *x[-axes:])
        padding = 0
    return (*x[: -axes - 1], weight[0], *_window(x, weight[2:], stride, padding, dilation))


def _images(x: Any, axes: int) -> Any:
    """The axes before those of pictures: the channels, and before them that of a batch, which may be missing."""
    if not axes < len(x) <= axes + 2:
        raise UnfitError("more axes, or fewer")
    return x[:-axes]


def _max_pooled(axes: int) -> Callable[..., Any]:
    def row(x: Any, window: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Any:
        window = _each(window, axes)
        return (*_images(x, axes), *_window(x, window, stride or window, padding, dilation, ceil))

    return row


def _average_pooled(axes: int) -> Callable[..., Any]:
    def row(x: Any, window: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, *_: Any) -> Any:
        window = _each(window, axes)
        return (*_images(x, axes), *_window(x, window, stride or window, padding, 1, ceil))

    return row


def _adaptive(axes: int) -> Callable[..., Any]:
    return lambda x, size: (*_images(x, axes), *_each(size, axes))


def _pad(x: Any, sizes_: Any, *_: Any) -> Any:
    found = list(x)
    for place in range(len(sizes_) // 2):
        found[-1 - place] = found[-1 - place] + sizes_[2 * place] + sizes_[2 * place + 1]
    return tuple(found)


def _repeat(x: Any, counts: Any) -> Any:
    padded = (1,) * (len(counts) - len(x)) + tuple(x)
    return tuple(size * count for size, count in zip(padded, counts, strict=True))


def _unflattened(x: Any, dim: int, parts: Any) -> Any:
    axis = _at(x, dim)
    known = math.prod(size for size in parts if size != -1)
    return (*x[:axis], *(x[axis] // known if size == -1 else size for size in parts), *x[axis + 1 :])


def _resized(x: Any, size: Any, *others: Any) -> Any:
    if size is None:
        factors = others[-1]
        if any(factor != int(factor) for factor in factors):
            raise UnfitError("a factor that is no whole number")
        size = [one * int(factor) for one, factor in zip(x[2:], factors, strict=True)]
    return (*x[:2], *size)


def _same(x: Any, *_: Any) -> Any:
    return x


def _triangle(x: Any, *_: Any) -> Any:
    if len(x) < 2:
        raise UnfitError("no matrix")
    return x


def _topk(x: Any, count: Any, dim: int = -1, *_: Any) -> Any:
    axis = _at(x, dim)
    if x and not (-len(x) <= dim < len(x) and 0 <= _example(count) <= _example(x[axis])):
        raise UnfitError("more elements than there are")
    found = (*x[:axis], count, *x[axis + 1 :]) if x else x
    return [found, found]


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = _at(x, dim1), _at(x, dim2)
    rest = tuple([size for axis, size in enumerate(x) if axis not in (first, second)])
    rows, columns = (x[first] + min(offset, 0), x[second] - max(offset, 0))
    return (*rest, _largest(0, _smallest(rows, columns)))


def _one_hot(x: Any, count: Any = -1) -> Any:
    if not isinstance(count, Extent) and count == -1:
        raise UnfitError("the data decides how many classes there are")
    return (*x, count)


ROWS: dict[str, Callable[..., Any]] = {
    **SHAPES,
    **SIZES,
    "aten::slice.Tensor": _slice,
    **dict.fromkeys(("aten::split.Tensor", "aten::split"), _split),
    **dict.fromkeys(("aten::split_with_sizes", "aten::split.sizes"), _sections),
    "aten::chunk": _chunk,
    "aten::unbind.int": _unbind,
    "aten::arange": lambda end, *_: _range(0, end),
    "aten::arange.start": lambda start, end, *_: _range(start, end),
    "aten::arange.start_step": lambda start, end, step=1, *_: _range(start, end, step),
    **{f"aten::conv{axes}d{form}": _convolved for axes in (1, 2, 3) for form in ("", ".padding")},
    **{f"aten::max_pool{axes}d": _max_pooled(axes) for axes in (1, 2, 3)},
    **{f"aten::avg_pool{axes}d": _average_pooled(axes) for axes in (1, 2, 3)},
    **{f"aten::adaptive_avg_pool{axes}d": _adaptive(axes) for axes in (1, 2, 3)},
    "aten::unflatten.int": _unflattened,
    "aten::pad": _pad,
    "aten::repeat": _repeat,
    "aten::upsample_nearest2d.vec": _resized,
    "aten::upsample_bilinear2d.vec": _resized,
    "aten::upsample_bicubic2d.vec": _resized,
    "aten::topk": _topk,
    "aten::one_hot": _one_hot,
    "aten::diagonal": _diagonal,
    **dict.fromkeys(
        ("aten::dropout", "aten::dropout_", "aten::rms_norm", "aten::instance_norm", "aten::softmax.int"), _same
    ),
    **dict.fromkeys(("aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::int_repr"), _same),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"), _same),
    **dict.fromkeys(("aten::tril", "aten::triu"), _triangle),
    **dict.fromkeys(("aten::roll", "aten::flip", "aten::masked_fill.Scalar"), _same),
}
"""By name with the overload."""

del ROWS["aten::size.int"], ROWS["aten::size"], ROWS["aten::numel"], ROWS["aten::dim"]

_POINTWISE = torch.Tag.pointwise


def row_of(target: str, overload: Any) -> Callable[..., Any] | None:
    """The row of an operator, which takes shapes and numbers in the order of the schema."""
    found = ROWS.get(target)
    if found is not None:
        return found
    tags = overload.tags
    if _POINTWISE in tags:
        return lambda *args: broadcast(*[item for item in args if isinstance(item, tuple)])
    return None


# Torch at other sizes -------------------------------------------------------------------------------------------------


def found_again(found: Sequence[int | None], operands: Sequence[tuple[Dim, tuple[int, ...]]]) -> Dim | None:
    """The size with these values at the example and at other sizes: a number, one of the operands', or a sum with one.

    None where it is neither, or where a value is not known.
    """
    if any(value is None for value in found):
        return None
    first = found[0]
    if all(value == first for value in found):
        return first
    for size, values in operands:
        if tuple(values) == tuple(found):
            return size
    for size, values in operands:
        differences = {mine - theirs for mine, theirs in zip(found, values, strict=True)}  # type: ignore[operator]
        if len(differences) == 1:
            return size + differences.pop()
    return None


def sums(sizes: Mapping[str, int]) -> dict[str, Size]:
    """The labels that are expressions of others, which hold for the example."""
    found = {}
    for label in sizes:
        with suppress(ValueError):
            size = Size.parse(label, [name for name in sizes if name != label])
            if isinstance(size, Size) and size.name is None and size.symbols <= sizes.keys() - {label}:
                found[label] = size
    return {label: size for label, size in found.items() if size.at(sizes) == sizes[label]}


__all__ = ["ROWS", "Extent", "UnfitError", "extent", "found_again", "row_of", "sums"]
