"""What a write through a view means for the base from which the view was taken.

The fact of a view has the inverse that computes the new base.  For a view that returns a list, all parts are taken
again and joined with the written one in its place, so that no size of a part is needed here.  Where there is no inverse
and all sizes are known, torch computes the position of each element that a chain of views shows, and the new content is
scattered to these positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Call, ListType, TensorType
from purexport.facts.fact import Pieces, UnknownInverse
from purexport.facts.table import fact_of, reinterprets
from purexport.facts.views import INT64_MAX
from purexport.functionalize.aliasing import seen_by

_MOST_POSITIONS = 1 << 20

Emit = Callable[[Call], None]
Constant = Callable[[torch.Tensor], AtenValue]
Chain = Sequence[tuple[Call, int | None]]  # from the base on; the number is the index into a view that returns a list


def inverse(view: Call, index: int | None, base: AtenValue, new: AtenValue, emit: Emit) -> AtenValue:
    """Emit the calls that write `new` to the elements of `base` that `view` shows; returns the base's new value.

    `index` is the index into a view that returns a list.  Raises UnknownInverse.
    """
    row = fact_of(view.target)
    if index is not None and row.pieces is not None:
        target, args = _joined(row.pieces, view, index, base, new, emit)
    elif index is None and row.inverse is not None and not reinterprets(view.target):
        target, args = row.inverse(view, base, new)
    else:
        raise UnknownInverse("writes through this view are not supported")
    result = AtenValue(base.type)
    emit(Call(target, args, [result], view.source))
    return result


def positions(chain: Chain, base: AtenValue) -> torch.Tensor:
    """For each element that a chain of views shows, its flat index in `base`: int64, in the shape of the last view.

    Raises UnknownInverse where sizes or strides are not known.
    """
    type_ = base.tensor
    shape = [dim for dim in type_.shape or () if isinstance(dim, int)]
    if type_.shape is None or len(shape) < len(type_.shape) or type_.known_strides is None:
        raise UnknownInverse("its sizes must be known", code="view-sizes-unknown")
    if math.prod(shape) > _MOST_POSITIONS:
        raise UnknownInverse(f"this is supported for up to {_MOST_POSITIONS} elements")
    # for a complex tensor the positions have an imaginary part, which reveals a real part or a conjugate
    dtype, mark = (torch.complex128, 1j) if type_.dtype.is_complex else (torch.int64, 0)
    seen: Any = torch.empty_strided(shape, type_.known_strides, dtype=dtype)
    seen.copy_(torch.arange(math.prod(shape)).reshape(shape) + mark)
    for view, index in chain:
        seen = None if reinterprets(view.target) else seen_by(view, seen)
        seen = seen[index] if index is not None and seen is not None else seen
        if not isinstance(seen, torch.Tensor):
            raise UnknownInverse("this view is not supported")
    assert isinstance(seen, torch.Tensor)
    if not type_.dtype.is_complex:
        return seen
    if not seen.is_complex() or not bool((seen.imag == 1).all()):
        raise UnknownInverse("a part or a conjugate is not written through")
    return seen.real.long()


def scattered(chain: Chain, base: AtenValue, new: AtenValue, constant: Constant, emit: Emit) -> AtenValue:
    """Write `new` to the elements of `base` that a chain of views shows; returns the base's new value.

    Raises UnknownInverse where a size is not known, or where the last view shows an element of `base` more than once.
    """
    type_, places = base.tensor, positions(chain, base).reshape(-1)
    if len(set(places.tolist())) < places.numel():
        raise UnknownInverse("it contains an element several times", code="view-overlaps")
    shape = [dim for dim in type_.shape or () if isinstance(dim, int)]
    count = math.prod(shape)
    flat, content, all_ = (AtenValue(TensorType(type_.dtype, (size,))) for size in (count, places.numel(), count))
    source, result = chain[-1][0].source, AtenValue(type_)
    emit(Call("aten::reshape", {"self": base, "shape": [-1]}, [flat], source))
    emit(Call("aten::reshape", {"self": new, "shape": [-1]}, [content], source))
    scatter = {"self": flat, "dim": 0, "index": constant(places), "src": content}
    emit(Call("aten::scatter.src", scatter, [all_], source))
    emit(Call("aten::reshape", {"self": all_, "shape": shape}, [result], source))
    return result


def _joined(
    pieces_of: Pieces, view: Call, index: int, base: AtenValue, new: AtenValue, emit: Emit
) -> tuple[str, dict[str, Any]]:
    """All parts, with the written one replaced, joined by a concat or stack."""
    dim = view.args["dim"] if pieces_of.axis is None else pieces_of.axis(base.tensor.rank)
    if "indices" in view.args:
        bounds = [0, *view.args["indices"], INT64_MAX]
        args = {"dim": dim, "start": bounds[index], "end": bounds[index + 1], "step": 1}
        return "aten::slice_scatter", {"self": base, "src": new, **args}
    known = view.outputs[0].type
    whole = AtenValue(known if isinstance(known, ListType) else ListType())
    emit(Call(view.target, {**view.args, "self": base}, [whole], view.source))
    pieces = [new] * _count(pieces_of, view, base, dim)
    shape = new.tensor.shape if pieces_of.join == "aten::stack" else None  # the sizes of other parts may differ
    for position in range(len(pieces)):
        if position != index:
            pieces[position] = AtenValue(TensorType(base.tensor.dtype, shape))
            emit(Call("prim::getitem", {"list": whole, "index": position}, [pieces[position]], view.source))
    return pieces_of.join, {"tensors": pieces, "dim": dim}


def _count(pieces_of: Pieces, view: Call, base: AtenValue, dim: int) -> int:
    """The number of parts of the view."""
    args = view.args
    if "sections" in args:
        return int(args["sections"])
    given = args.get("split_sizes") or args.get("split_size")
    if isinstance(given, list):
        return len(given)
    size = base.tensor.shape[dim] if base.tensor.shape is not None else None
    if isinstance(size, int) and pieces_of.size is not None:
        given = pieces_of.size(size, args)
    if not isinstance(size, int) or not isinstance(given, int):
        listed = view.outputs[0].type
        if isinstance(listed, ListType) and listed.count is not None:  # any other number makes the file stop
            return listed.count
        raise UnknownInverse("the number of its pieces is not known", code="view-sizes-unknown")
    return max(-(-size // given), 1)
