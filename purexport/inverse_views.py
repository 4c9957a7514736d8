"""What a write through one view means for the tensor that the view was taken from.

One row a view: given the base before the write and the view's new content, the base after it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from purexport.capture.aten import Call, TensorType, Value


class UnknownInverse(LookupError):  # noqa: N818  caught by the functionalization, never by users
    """There is no row for this view, or not for these arguments."""


Emit = Callable[[Call], None]
Row = Callable[[Call, Value, Value], tuple[str, dict[str, Any]]]


def inverse(view: Call, index: int | None, base: Value, new: Value, emit: Emit) -> Value:
    """Emit the call that puts ``new`` into ``base`` where ``view`` looks; returns the base's new value.

    ``index`` is the position in a view that returns a list.  Raises UnknownInverse.
    """
    if index is not None:
        target, args = _from_list(view, index, base, new)
    else:
        row = _ROWS.get(view.base)
        if row is None:
            raise UnknownInverse("writes through this view are not supported yet")
        target, args = row(view, base, new)
    result = Value(base.type)
    emit(Call(target, args, [result], view.source))
    return result


def _reshape(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::reshape_as", {"self": new, "other": base}


def _same(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::alias", {"self": new}


def _transpose(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    dims = [arg for name, arg in view.args.items() if name != "self"]
    return "aten::transpose.int", {"self": new, "dim0": dims[0], "dim1": dims[1]}


def _t(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::t", {"self": new}


def _permute(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    dims = view.args["dims"]
    order = [dim % len(dims) for dim in dims]
    return "aten::permute", {"self": new, "dims": [order.index(i) for i in range(len(order))]}


def _slice(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("dim", "start", "end", "step")}
    return "aten::slice_scatter", {"self": base, "src": new, **args}


def _narrow(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    start, length = view.args["start"], view.args["length"]
    if not isinstance(start, int) or not isinstance(length, int):
        raise UnknownInverse("its position is computed")
    return _scatter(base, new, view.args["dim"], start, start + length)


def _scatter(base: Value, new: Value, dim: int, start: int, end: int) -> tuple[str, dict[str, Any]]:
    return "aten::slice_scatter", {"self": base, "src": new, "dim": dim, "start": start, "end": end, "step": 1}


def _select(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::select_scatter", {"self": base, "src": new, "dim": view.args["dim"], "index": view.args["index"]}


def _diagonal(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("offset", "dim1", "dim2")}
    return "aten::diagonal_scatter", {"self": base, "src": new, **args}


def _expand(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    if base.tensor.shape != new.tensor.shape or base.tensor.shape is None:
        raise UnknownInverse("an expanded tensor has several places for one element")
    return _same(view, base, new)


def _from_list(view: Call, index: int, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    dim = view.args["dim"]
    if view.base == "aten::unbind":
        return "aten::select_scatter", {"self": base, "src": new, "dim": dim, "index": index}
    sizes = _piece_sizes(view, dim, base)
    starts = [0, *accumulate(sizes)]
    return _scatter(base, new, dim, starts[index], starts[index + 1])


def _piece_sizes(view: Call, dim: int, base: Value) -> list[int]:
    shape = base.tensor.shape if isinstance(base.type, TensorType) else None
    size = shape[dim] if shape is not None else None
    given = view.args.get("split_sizes") or view.args.get("split_size")
    if isinstance(given, list) and all(isinstance(item, int) for item in given):
        return given
    if isinstance(size, int) and view.base == "aten::chunk":
        given = -(-size // view.args["chunks"])
    if not isinstance(size, int) or not isinstance(given, int):
        raise UnknownInverse("the sizes of its pieces are computed")
    return [min(given, size - start) for start in range(0, size, given)]


_ROWS: dict[str, Row] = {
    "aten::view": _reshape,
    "aten::reshape": _reshape,
    "aten::reshape_as": _reshape,
    "aten::view_as": _reshape,
    "aten::flatten": _reshape,
    "aten::unflatten": _reshape,
    "aten::squeeze": _reshape,
    "aten::unsqueeze": _reshape,
    "aten::alias": _same,
    "aten::detach": _same,
    "aten::contiguous": _same,
    "aten::to": _same,
    "aten::dropout": _same,
    "aten::transpose": _transpose,
    "aten::swapaxes": _transpose,
    "aten::swapdims": _transpose,
    "aten::t": _t,
    "aten::permute": _permute,
    "aten::slice": _slice,
    "aten::narrow": _narrow,
    "aten::select": _select,
    "aten::diagonal": _diagonal,
    "aten::expand": _expand,
    "aten::expand_as": _expand,
}
