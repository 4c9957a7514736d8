"""What a write through one view means for the tensor that the view was taken from.

One row a view: given the base before the write and the view's new content, the base after it.  A list of pieces is put
together again around the written one, so that no size of a piece is needed here.  Where there is no row and all sizes
are known, torch itself says where each element that a chain of views shows lies, and the content is scattered there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from purexport.aten.graph import Call, ListType, TensorType, Value
from purexport.functionalize.aliasing import seen_by

INT64_MAX = 2**63 - 1
_MOST_POSITIONS = 1 << 20


class UnknownInverse(LookupError):  # noqa: N818  caught by the functionalization, never by users
    """There is no row for this view, or not for these arguments."""

    def __init__(self, reason: str, *, code: str = "view-without-inverse") -> None:
        self.code = code
        super().__init__(reason)


Emit = Callable[[Call], None]
Constant = Callable[[torch.Tensor], Value]
Chain = Sequence[tuple[Call, int | None]]  # from a storage's base on; the position in a view that returns a list
Row = Callable[[Call, Value, Value], tuple[str, dict[str, Any]]]


def inverse(view: Call, index: int | None, base: Value, new: Value, emit: Emit) -> Value:
    """Emit the calls that put ``new`` into ``base`` where ``view`` looks; returns the base's new value.

    ``index`` is the position in a view that returns a list.  Raises UnknownInverse.
    """
    if index is not None:
        target, args = _from_list(view, index, base, new, emit)
    else:
        row = _ROWS.get(view.base)
        if row is None or view.target == "aten::view.dtype":
            raise UnknownInverse("writes through this view are not supported")
        target, args = row(view, base, new)
    result = Value(base.type)
    emit(Call(target, args, [result], view.source))
    return result


def positions(chain: Chain, base: Value) -> torch.Tensor:
    """Where in ``base``, counted in the order of its elements, lies what a chain of views shows: int64, of its shape.

    Raises UnknownInverse where sizes or strides are not known.
    """
    type_ = base.tensor
    shape = [dim for dim in type_.shape or () if isinstance(dim, int)]
    if type_.shape is None or len(shape) < len(type_.shape) or type_.strides is None:
        raise UnknownInverse("its sizes must be known", code="view-sizes-unknown")
    if math.prod(shape) > _MOST_POSITIONS:
        raise UnknownInverse(f"this is supported for up to {_MOST_POSITIONS} elements")
    # of a complex tensor the positions have an imaginary part too, which shows what is a part or a conjugate
    dtype, mark = (torch.complex128, 1j) if type_.dtype.is_complex else (torch.int64, 0)
    seen: Any = torch.empty_strided(shape, type_.strides, dtype=dtype)
    seen.copy_(torch.arange(math.prod(shape)).reshape(shape) + mark)
    for view, index in chain:
        seen = None if view.target == "aten::view.dtype" else seen_by(view, seen)
        seen = seen[index] if index is not None and seen is not None else seen
        if not isinstance(seen, torch.Tensor):
            raise UnknownInverse("this view is not supported")
    assert isinstance(seen, torch.Tensor)
    if not type_.dtype.is_complex:
        return seen
    if not seen.is_complex() or not bool((seen.imag == 1).all()):
        raise UnknownInverse("a part or a conjugate is not written through")
    return seen.real.long()


def scattered(chain: Chain, base: Value, new: Value, constant: Constant, emit: Emit) -> Value:
    """Put ``new`` into ``base`` where a chain of views looks; returns the base's new value.

    Raises UnknownInverse where a size is not known, or several places of the chain's end are one of ``base``.
    """
    type_, places = base.tensor, positions(chain, base).reshape(-1)
    if len(set(places.tolist())) < places.numel():
        raise UnknownInverse("it has several places for one element", code="view-overlaps")
    shape = [dim for dim in type_.shape or () if isinstance(dim, int)]
    count = math.prod(shape)
    flat, content, all_ = (Value(TensorType(type_.dtype, (size,))) for size in (count, places.numel(), count))
    source, result = chain[-1][0].source, Value(type_)
    emit(Call("aten::reshape", {"self": base, "shape": [-1]}, [flat], source))
    emit(Call("aten::reshape", {"self": new, "shape": [-1]}, [content], source))
    scatter = {"self": flat, "dim": 0, "index": constant(places), "src": content}
    emit(Call("aten::scatter.src", scatter, [all_], source))
    emit(Call("aten::reshape", {"self": all_, "shape": shape}, [result], source))
    return result


def _reshape(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::reshape_as", {"self": new, "other": base}


def _same(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    if base.tensor.dtype.is_complex and view.base in ("aten::real", "aten::resolve_conj", "aten::resolve_neg"):
        raise UnknownInverse("a part of a complex tensor; write through view_as_real")
    return "aten::alias", {"self": new}


def _transpose(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    dims = [arg for name, arg in view.args.items() if name != "self"]
    return "aten::transpose.int", {"self": new, "dim0": dims[0], "dim1": dims[1]}


def _reversed(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::numpy_T", {"self": new}


def _swap_last(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    if base.tensor.dtype.is_complex and view.base != "aten::mT":
        raise UnknownInverse("a conjugate is not written through")
    if base.tensor.rank is None or base.tensor.rank < 2:
        return _same(view, base, new)
    return "aten::transpose.int", {"self": new, "dim0": -2, "dim1": -1}


def _permute(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    dims = view.args["dims"]
    order = [dim % len(dims) for dim in dims]
    return "aten::permute", {"self": new, "dims": [order.index(i) for i in range(len(order))]}


def _movedim(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    args = {"self": new, "source": view.args["destination"], "destination": view.args["source"]}
    return view.target, args


def _slice(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("dim", "start", "end", "step")}
    return "aten::slice_scatter", {"self": base, "src": new, **args}


def _narrow(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    start, length = view.args["start"], view.args["length"]
    if start == 0:
        end = length
    elif isinstance(start, int) and isinstance(length, int):
        end = start + length
    else:
        raise UnknownInverse("its position is computed; use a slice")
    if start != 0 and end == 0:
        end = INT64_MAX  # from a negative start up to the end
    args = {"dim": view.args["dim"], "start": start, "end": end, "step": 1}
    return "aten::slice_scatter", {"self": base, "src": new, **args}


def _select(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::select_scatter", {"self": base, "src": new, "dim": view.args["dim"], "index": view.args["index"]}


def _diagonal(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("offset", "dim1", "dim2")}
    return "aten::diagonal_scatter", {"self": base, "src": new, **args}


def _expand(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    old, wide = base.tensor.shape, new.tensor.shape
    if old is None or wide is None:
        raise UnknownInverse("its shape is not known", code="view-sizes-unknown")
    added = len(wide) - len(old)
    if wide[added:] != old or any(size != 1 for size in wide[:added]):
        raise UnknownInverse("an expanded tensor has several places for one element", code="view-overlaps")
    return _same(view, base, new) if not added else _reshape(view, base, new)


def _as_pairs(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::view_as_real", {"self": new}


def _as_complex(view: Call, base: Value, new: Value) -> tuple[str, dict[str, Any]]:
    return "aten::view_as_complex", {"self": new}


def _from_list(view: Call, index: int, base: Value, new: Value, emit: Emit) -> tuple[str, dict[str, Any]]:
    """The pieces taken again, the written one replaced, and joined."""
    dim = view.args["dim"] if "dim" in view.args else _named_axis(view, base)
    if "indices" in view.args:
        bounds = [0, *view.args["indices"], INT64_MAX]
        args = {"dim": dim, "start": bounds[index], "end": bounds[index + 1], "step": 1}
        return "aten::slice_scatter", {"self": base, "src": new, **args}
    whole = Value(ListType())
    emit(Call(view.target, {**view.args, "self": base}, [whole], view.source))
    pieces = [new] * _count(view, base, dim)
    shape = new.tensor.shape if view.base == "aten::unbind" else None  # other pieces may differ in size
    for position in range(len(pieces)):
        if position != index:
            pieces[position] = Value(TensorType(base.tensor.dtype, shape))
            emit(Call("prim::getitem", {"list": whole, "index": position}, [pieces[position]], view.source))
    joined = "aten::stack" if view.base == "aten::unbind" else "aten::cat"
    return joined, {"tensors": pieces, "dim": dim}


def _named_axis(view: Call, base: Value) -> int:
    return {"aten::hsplit": 0 if base.tensor.rank == 1 else 1, "aten::vsplit": 0, "aten::dsplit": 2}[view.base]


def _count(view: Call, base: Value, dim: int) -> int:
    """How many pieces the view has."""
    args = view.args
    if "sections" in args:
        return int(args["sections"])
    given = args.get("split_sizes") or args.get("split_size")
    if isinstance(given, list):
        return len(given)
    size = base.tensor.shape[dim] if base.tensor.shape is not None else None
    if isinstance(size, int) and view.base in ("aten::chunk", "aten::unsafe_chunk"):
        given = max(-(-size // args["chunks"]), 1)
    if view.base == "aten::unbind":
        given = 1
    if not isinstance(size, int) or not isinstance(given, int):
        raise UnknownInverse("the number of its pieces is not known", code="view-sizes-unknown")
    return max(-(-size // given), 1)


_RESHAPED = (
    *("view", "_unsafe_view", "reshape", "reshape_as", "view_as", "flatten", "unflatten", "ravel"),
    *("squeeze", "unsqueeze", "atleast_1d", "atleast_2d", "atleast_3d"),
)
_UNCHANGED = (
    *("alias", "detach", "contiguous", "to", "type_as", "float", "positive", "real", "resolve_conj", "resolve_neg"),
    *("lift_fresh", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
)
_ROWS: dict[str, Row] = {
    **dict.fromkeys((f"aten::{name}" for name in _RESHAPED), _reshape),
    **dict.fromkeys((f"aten::{name}" for name in _UNCHANGED), _same),
    "aten::transpose": _transpose,
    "aten::swapaxes": _transpose,
    "aten::swapdims": _transpose,
    "aten::t": _reversed,
    "aten::numpy_T": _reversed,
    "aten::mT": _swap_last,
    "aten::mH": _swap_last,
    "aten::adjoint": _swap_last,
    "aten::permute": _permute,
    "aten::movedim": _movedim,
    "aten::moveaxis": _movedim,
    "aten::slice": _slice,
    "aten::narrow": _narrow,
    "aten::select": _select,
    "aten::diagonal": _diagonal,
    "aten::linalg_diagonal": _diagonal,
    "aten::expand": _expand,
    "aten::expand_as": _expand,
    "aten::broadcast_to": _expand,
    "aten::view_as_complex": _as_pairs,
    "aten::view_as_real": _as_complex,
}
