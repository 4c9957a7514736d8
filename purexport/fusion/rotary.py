"""Rows for rotary embeddings, which become `purexport_llm::rotary` with angles for each pair once.

Models write them in three ways, with x = (a, b) in halves or (a, b) next to each other:

    x * cos + (-b, a) * sin     cos and sin have each angle twice
    (a * cos - b * sin, b * cos + a * sin)
    the first elements so, the rest of the axis as it is
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport.aten.graph import AtenValue
from purexport.aten.own_operators import ROTARY
from purexport.fusion.expressions import Expressions, shape_of
from purexport.fusion.rewriting import FusionSite, tensor

_AXES = 4  # batch, heads, tokens, elements: what is turned, and of angles, has these axes


def rotary(site: FusionSite) -> Sequence[AtenValue] | None:
    """x * cos + (-b, a) * sin."""
    call, known = site.call, site.known
    terms = known.operands(call.outputs[0], "aten::add") if call.base == "aten::add" else None
    for straight, crossed in (terms, terms[::-1]) if terms is not None else ():
        for x, cos in _products(known, straight):
            for turned, sin in _products(known, crossed):
                interleaved = _turned(known, turned, x)
                if interleaved is None or len(shape_of(x) or ()) != _AXES:
                    continue
                halves = [_each_angle_once(site, item, x, interleaved) for item in (cos, sin)]
                if None in halves:
                    return None
                return site.write(
                    ROTARY, [call.outputs[0].tensor], x=x, cos=halves[0], sin=halves[1], interleaved=interleaved
                )
    return None


def split_rotary(site: FusionSite) -> Sequence[AtenValue] | None:
    """(a * cos - b * sin, b * cos + a * sin)."""
    known = site.known
    parts = known.joined(site.call.outputs[0], -1) if site.call.base == "aten::cat" else None
    if parts is None or len(parts) != 2:
        return None
    less, more = known.operands(parts[0], "aten::sub"), known.operands(parts[1], "aten::add")
    if less is None or more is None:
        return None
    for a, cos in _products(known, less[0]):
        for b, sin in _products(known, less[1]):
            both = {frozenset((b, cos)), frozenset((a, sin))}
            if {frozenset(next(iter(_products(known, item)), ())) for item in more} != both:
                continue
            x = _halves(known, a, b)
            if all(item is not None and len(shape_of(item) or ()) == _AXES for item in (x, cos, sin)):
                type_ = site.call.outputs[0].tensor
                return site.write(ROTARY, [type_], x=x, cos=cos, sin=sin, interleaved=False)
    return None


def partial_rotary(site: FusionSite) -> Sequence[AtenValue] | None:
    """A rotary embedding of the first elements, with the rest behind it."""
    known = site.known
    parts = known.joined(site.call.outputs[0], -1) if site.call.base == "aten::cat" else None
    if parts is None or len(parts) != 2:
        return None
    turned = known.call(parts[0])
    if turned is None or turned.target != ROTARY:
        return None
    first, rest = known.sliced(turned.args["x"]), known.sliced(parts[1])
    if first is None or rest is None or first[0] is not rest[0]:
        return None
    size = (shape_of(first[0]) or (None,))[-1]
    if first[1] != 0 or first[3] != 1 or rest[1:] != (first[2], size, 1):
        return None
    return site.write(ROTARY, [site.call.outputs[0].tensor], **{**turned.args, "x": first[0]})


def _products(known: Expressions, value: Any) -> list[tuple[Any, Any]]:
    """The operands of a product, either way round."""
    found = known.operands(value, "aten::mul")
    return [found, found[::-1]] if found is not None else []


def _turned(known: Expressions, value: Any, x: Any) -> bool | None:
    """Whether `value` is (-b, a) of x = (a, b): False in halves, True next to each other, None if it is not."""
    parts = known.joined(value, -1)
    if parts is not None and len(parts) == 2:
        return False if _halves(known, parts[1], _negated(known, parts[0])) is x else None
    call = known.call(known.plain(value))
    if call is None or call.base not in ("aten::flatten", "aten::view", "aten::reshape"):
        return None
    stack = known.call(known.plain(call.args["self"]))
    shape = shape_of(value)
    if stack is None or stack.base != "aten::stack" or shape != shape_of(x) or len(stack.args["tensors"]) != 2:
        return None
    if stack.args["dim"] not in (-1, len(shape or ())):
        return None
    second, first = _negated(known, stack.args["tensors"][0]), known.sliced(stack.args["tensors"][1])
    other = known.sliced(second) if second is not None else None
    size = (shape or (None,))[-1]
    if first is None or other is None or not first[0] is other[0] is x:
        return None
    return True if (first[1], first[3], other[1], other[3]) == (0, 2, 1, 2) and first[2] == size else None


def _negated(known: Expressions, value: Any) -> Any:
    call = known.call(known.plain(value))
    return known.plain(call.args["self"]) if call is not None and call.base == "aten::neg" else None


def _halves(known: Expressions, first: Any, second: Any) -> Any:
    """x where the two are its halves."""
    if first is None or second is None:
        return None
    one, two = known.sliced(first), known.sliced(second)
    if one is None or two is None or one[0] is not two[0]:
        return None
    size = (shape_of(one[0]) or (None,))[-1]
    if not isinstance(size, int) or size % 2:
        return None
    return one[0] if (one[1:], two[1:]) == ((0, size // 2, 1), (size // 2, size, 1)) else None


def _each_angle_once(site: FusionSite, value: Any, x: Any, interleaved: bool) -> AtenValue | None:
    """`value` has each angle twice, in halves or next to each other; a value that has them once."""
    shape, wanted = shape_of(value), shape_of(x)
    if (
        shape is None
        or len(shape) != _AXES
        or wanted is None
        or shape[-1] != wanted[-1]
        or not _has_pairs(site.known, value, interleaved)
    ):
        return None
    half = shape[-1] // 2
    bounds = {"start": 0, "end": shape[-1], "step": 2} if interleaved else {"start": 0, "end": half, "step": 1}
    return site.write("aten::slice.Tensor", [tensor(value, *shape[:-1], half)], self=value, dim=-1, **bounds)[0]


_UNARY = ("aten::cos", "aten::sin", "aten::unsqueeze", "aten::mul", "aten::slice", "aten::transpose")


def _has_pairs(known: Expressions, value: Any, interleaved: bool) -> bool:
    """Whether each number stands there twice, by how it was made."""
    while True:
        value = known.plain(value)
        call = known.call(value)
        if call is None:
            return False
        if call.base in ("aten::cat", "aten::concat"):
            parts = known.joined(value, -1)
            return not interleaved and parts is not None and len(parts) == 2 and parts[0] is parts[1]
        if call.base == "aten::repeat_interleave":
            axis = call.args.get("dim")
            rank = len(shape_of(value) or ())
            return interleaved and known.number(call.args["repeats"]) == 2 and axis in (-1, rank - 1)
        if call.base == "aten::flatten":
            stack = known.call(known.plain(call.args["self"]))
            if stack is None or stack.base != "aten::stack":
                return False
            items = [known.plain(item) for item in stack.args["tensors"]]
            return interleaved and len(items) == 2 and items[0] is items[1] and stack.args["dim"] == -1
        if call.base == "aten::mul" and known.number(call.args["other"]) is None:
            return False
        if call.base not in _UNARY:
            return False
        value = call.args["self"]
