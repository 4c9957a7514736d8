"""Sizes of reductions, of what is picked by places, and of new tensors: rows as those of `shapes`, in the same form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from purexport.frontends.core.shape_functions import SHAPES, UnfitError, broadcast

_reduced = SHAPES["aten::mean.dim"]
_along = SHAPES["aten::cumsum"]
_convolution = SHAPES["aten::convolution"]


def _require(holds: Any) -> None:
    if not holds:
        raise UnfitError("sizes that do not fit")


def _whole(x: Any, *_: Any) -> Any:
    return ()


def _same(x: Any, *_: Any) -> Any:
    return x


def _twice(x: Any, dim: int, keepdim: bool = False) -> Any:
    return [_reduced(x, dim, keepdim)] * 2


def _sorted(x: Any, *others: Any) -> Any:
    return [x, x]


def _added(bias: Any, x: Any, y: Any, *_: Any) -> Any:
    """A product of matrices in batches, to which the first operand is added."""
    _require(len(x) == len(y) == 3 and x[0] == y[0] and x[2] == y[1])
    found = (x[0], x[1], y[2])
    _require(broadcast(bias, found) == found)
    return found


def _vector_product(x: Any, y: Any) -> Any:
    _require(len(y) == 1 and x[-1] == y[0])
    return x[:-1]


def _selected(x: Any, dim: int, index: Any) -> Any:
    _require(x and len(index) <= 1 and -len(x) <= dim < len(x))
    axis = dim % len(x)
    return (*x[:axis], index[0] if index else 1, *x[axis + 1 :])


def _scattered(x: Any, dim: int, index: Any, *_: Any) -> Any:
    _require(len(x) == len(index) and -len(x) <= dim < len(x))
    return x


def _gathered(x: Any, dim: int, index: Any, *_: Any) -> Any:
    _require(len(x) == len(index) and -len(x) <= dim < len(x))
    axis = dim % len(x)
    _require(all(mine <= theirs for place, (mine, theirs) in enumerate(zip(index, x, strict=True)) if place != axis))
    return index


def _indexed(x: Any, indices: Sequence[Any]) -> Any:
    """What tensors of places pick: their axes stand where the first is, unless others stand between them."""
    places = [place for place, item in enumerate(indices) if item is not None]
    _require(places and len(indices) <= len(x))
    picked = broadcast(*(indices[place] for place in places))
    rest = [size for axis, size in enumerate(x) if axis not in places]
    first = places[0] if places[-1] - places[0] + 1 == len(places) else 0
    return (*rest[:first], *picked, *rest[first:])


def _transposed(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Any:  # fmt: skip
    return _convolution(x, weight, bias, stride, padding, dilation, True, output, groups)


def _gated(x: Any, dim: int = -1) -> Any:
    axis = dim % len(x)
    _require(x[axis] % 2 == 0)
    return (*x[:axis], x[axis] // 2, *x[axis + 1 :])


def _square(rows: Any, columns: Any = None, *_: Any) -> Any:
    return rows, rows if columns is None else columns


def _rms_norm(x: Any, normalized: Sequence[Any], weight: Any = None, *_: Any) -> Any:
    last = tuple(normalized)
    _require(x[len(x) - len(last) :] == last and weight in (None, last))
    return x


def _named(row: Callable[..., Any], names: str) -> dict[str, Callable[..., Any]]:
    return {f"aten::{name}": row for name in names.split()}


def fits_inside(padding: Any, kernel: Any) -> bool:
    """Whether the padding is at most half of the kernel, as torch asks for."""
    steps = range(max(len(item) if isinstance(item, (list, tuple)) else 1 for item in (padding, kernel)))
    at = [
        [item[step % len(item)] if isinstance(item, (list, tuple)) else item for step in steps]
        for item in (padding, kernel)
    ]
    return all(2 * border <= size for border, size in zip(*at, strict=True))


SIZES: dict[str, Callable[..., Any]] = {
    **_named(_whole, "sum mean prod any all max min"),
    **_named(_reduced, "amax amin argmax argmin prod.dim_int logsumexp"),
    **_named(lambda x, dim, correction, keepdim: _reduced(x, dim, keepdim), "var.correction std.correction"),
    **_named(lambda x, dim, unbiased=True, keepdim=False: _reduced(x, dim, keepdim), "var.dim std.dim"),
    **_named(lambda x, order, dim, keepdim=False, *_: _reduced(x, dim, keepdim), "norm.ScalarOpt_dim"),
    **_named(lambda x, order=2, dim=None, keepdim=False, *_: _reduced(x, dim, keepdim), "linalg_vector_norm"),
    **_named(_twice, "max.dim min.dim"),
    **_named(_along, "cumprod"),
    **_named(_sorted, "sort"),
    **_named(_added, "baddbmm"),
    **_named(_vector_product, "mv dot"),
    **_named(_selected, "index_select"),
    **_named(_scattered, "scatter.src scatter.value scatter_add"),
    **_named(_gathered, "gather"),
    **_named(_indexed, "index.Tensor"),
    **_named(_transposed, "conv_transpose1d conv_transpose2d.input"),
    **_named(_gated, "glu"),
    **_named(_square, "eye eye.m"),
    **_named(_rms_norm, "rms_norm"),
    **_named(lambda size, *_: tuple(size), "rand randn"),
    **_named(lambda count, *_: (count,), "randperm"),
    **_named(lambda high, size, *_: tuple(size), "randint"),
    **_named(lambda low, high, size, *_: tuple(size), "randint.low"),
    **_named(lambda start, end, steps, *_: (steps,), "linspace"),
    **_named(_same, "native_batch_norm"),
}
"""By name with the overload."""
