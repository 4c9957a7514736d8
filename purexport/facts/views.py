"""Views: operators whose result aliases an argument, and what a write through the result does to the argument.

Each inverse takes the base before the write and the view's new content, and returns the call that computes the base
after the write.  A write through a view without an inverse is followed element by element where all sizes are known
(`functionalize/view_inverses`).
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import AtenValue, Call, TensorType
from purexport.facts.fact import Aliases, Fact, UnknownInverse, alike

INT64_MAX = 2**63 - 1
MAYBE = Aliases.MAYBE


def _reshape(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::reshape_as", {"self": new, "other": base}


def _same(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::alias", {"self": new}


def _same_if_real(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    if base.tensor.dtype.is_complex:
        raise UnknownInverse("a part of a complex tensor; write through view_as_real")
    return _same(view, base, new)


def _transpose(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    dims = [arg for name, arg in view.args.items() if name != "self"]
    return "aten::transpose.int", {"self": new, "dim0": dims[0], "dim1": dims[1]}


def _reversed(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::numpy_T", {"self": new}


def _swap_last(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    if base.tensor.rank is None or base.tensor.rank < 2:
        return _same(view, base, new)
    return "aten::transpose.int", {"self": new, "dim0": -2, "dim1": -1}


def _adjoint(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    if base.tensor.dtype.is_complex:
        raise UnknownInverse("a conjugate is not written through")
    return _swap_last(view, base, new)


def _permute(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    dims = view.args["dims"]
    order = [dim % len(dims) for dim in dims]
    return "aten::permute", {"self": new, "dims": [order.index(i) for i in range(len(order))]}


def _movedim(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    args = {"self": new, "source": view.args["destination"], "destination": view.args["source"]}
    return view.target, args


def _slice(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("dim", "start", "end", "step")}
    return "aten::slice_scatter", {"self": base, "src": new, **args}


def _narrow(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    start, length = view.args["start"], view.args["length"]
    if start == 0:
        end = length
    elif isinstance(start, int) and isinstance(length, int):
        end = start + length
    else:
        raise UnknownInverse("its position is computed; use a slice")
    if start != 0 and end == 0:
        end = INT64_MAX  # a negative start, and the slice reaches the last element
    args = {"dim": view.args["dim"], "start": start, "end": end, "step": 1}
    return "aten::slice_scatter", {"self": base, "src": new, **args}


def _select(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::select_scatter", {"self": base, "src": new, "dim": view.args["dim"], "index": view.args["index"]}


def _diagonal(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    args = {name: view.args[name] for name in ("offset", "dim1", "dim2")}
    return "aten::diagonal_scatter", {"self": base, "src": new, **args}


def _expand(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    old, wide = base.tensor.shape, new.tensor.shape
    if old is None or wide is None:
        raise UnknownInverse("its shape is not known", code="view-sizes-unknown")
    added = len(wide) - len(old)
    if wide[added:] != old or any(size != 1 for size in wide[:added]):
        raise UnknownInverse("an expanded tensor contains an element several times", code="view-overlaps")
    return _same(view, base, new) if not added else _reshape(view, base, new)


def _as_pairs(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::view_as_real", {"self": new}


def _as_complex(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::view_as_complex", {"self": new}


def _flattens_nothing(call: Call) -> bool:
    given = call.args["self"]
    rank = given.type.rank if isinstance(given, AtenValue) and isinstance(given.type, TensorType) else None
    ends = [call.args["start_dim"], call.args["end_dim"]]
    return rank is None or (rank > 0 and ends[0] % rank == ends[1] % rank)


def _view(self: torch.Tensor, size: Any) -> torch.Tensor:
    """A reshape: fakes are made with contiguous strides, which may refuse a view that the model's strides allow."""
    return self.reshape(size)


def slice_of(self: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """A slice whose length holds for any size: torch would take the axis to be long enough and make it a number."""
    least: Any = torch.sym_min
    most: Any = torch.sym_max
    size = self.shape[dim]
    bounds = [0 if start is None else start, INT64_MAX if end is None else end]
    to_end = bounds[1] == INT64_MAX
    if not _is_computed(size) or _is_computed(start) or _is_computed(end) or (to_end and bounds[0] >= 0):
        return torch.ops.aten.slice.Tensor(self, dim, start, end, step)
    if to_end:  # the last few, or all where there are fewer
        length = least(size, -bounds[0])
    else:
        first, last = [least(at, size) if at >= 0 else most(size + at, 0) for at in bounds]
        length = most(last - first, 0) if bounds[0] else last
    shape, strides = list(self.shape), list(self.stride())
    shape[dim], strides[dim] = (length + step - 1) // step, strides[dim] * step
    return self.as_strided(shape, strides, self.storage_offset())


def _is_computed(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


FACTS = (
    # the same elements in the same order, with other sizes
    Fact("aten::view", inverse=_reshape, reinterprets=frozenset({"dtype"}), shapes={"": _view}),
    *alike("view_as unflatten squeeze unsqueeze", Fact("aten::", inverse=_reshape)),
    *alike("reshape reshape_as ravel _unsafe_view", Fact("aten::", inverse=_reshape, aliases=MAYBE)),
    Fact("aten::flatten", inverse=_reshape, aliases=MAYBE, returns_itself=_flattens_nothing),
    *alike(
        "atleast_1d atleast_2d atleast_3d",
        Fact("aten::", inverse=_reshape, aliases=MAYBE, returns_itself=True),
    ),
    # the same tensor, where there is nothing to do
    *alike("alias detach", Fact("aten::", inverse=_same)),
    *alike("lift_fresh positive", Fact("aten::", inverse=_same, returns_itself=True)),
    *alike(
        "contiguous to type_as dropout feature_dropout alpha_dropout feature_alpha_dropout",
        Fact("aten::", inverse=_same, aliases=MAYBE, returns_itself=True),
    ),
    *alike("real resolve_conj resolve_neg", Fact("aten::", inverse=_same_if_real, aliases=MAYBE, returns_itself=True)),
    *alike("conj cpu", Fact("aten::", aliases=MAYBE, returns_itself=True)),
    Fact("aten::sum_to_size", returns_itself=True),
    # torch.export records `lift_fresh`, which aliases, as this operator
    Fact("aten::lift_fresh_copy", aliases=Aliases.UNKNOWN),
    # permuted axes
    *alike("transpose swapaxes swapdims", Fact("aten::", inverse=_transpose)),
    *alike("t numpy_T", Fact("aten::", inverse=_reversed)),
    Fact("aten::mT", inverse=_swap_last),
    *alike("mH adjoint", Fact("aten::", inverse=_adjoint)),
    Fact("aten::permute", inverse=_permute),
    *alike("movedim moveaxis", Fact("aten::", inverse=_movedim)),
    # some of the elements
    Fact("aten::slice", inverse=_slice, shapes={"Tensor": slice_of}),
    Fact("aten::narrow", inverse=_narrow),
    Fact("aten::select", inverse=_select),
    *alike("diagonal linalg_diagonal", Fact("aten::", inverse=_diagonal)),
    # broadcast
    *alike("expand expand_as broadcast_to", Fact("aten::", inverse=_expand)),
    # pairs of real numbers and complex numbers
    Fact("aten::view_as_complex", inverse=_as_pairs),
    Fact("aten::view_as_real", inverse=_as_complex),
)
