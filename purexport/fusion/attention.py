"""The row that makes GroupQueryAttention of ONNX Runtime from an attention call, its cache and its rotary embedding.

    attention(rotary(q), cat(past key, rotary(k)), cat(past value, v), visible(mask))

The operator takes only the new keys and values, and gives the whole cache back.  It makes the mask by itself: causal,
or a window.  What the padding hides is added as a bias, because the operator knows lengths, and no holes.

It can turn queries and keys too, by positions that it counts itself.  That is what a row without padding in front has;
otherwise RotaryEmbedding of the same domain does so before it, by the positions that the model is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue
from purexport.fusion.expressions import Expressions, leaves, shape_of
from purexport.fusion.masks import made_by_visible
from purexport.fusion.packed import one_product
from purexport.fusion.rewriting import FusionSite, Row, tensor

POSITIONS = "position_ids"
_WIDTHS, _WIDTHS_WITH_ROTARY, _PAIRS = 8, 16, 8  # the kernel (ONNX Runtime 1.31, CPU) takes multiples of these only


def group_query_attention(positions: int, *, lengths: bool = False) -> Row:
    """The row.  Tables of angles have so many `positions`; with `lengths` padding is behind the tokens only."""
    tables: dict[tuple[AtenValue, ...], tuple[torch.Tensor, torch.Tensor] | None] = {}

    def group_query_attention(site: FusionSite) -> Sequence[AtenValue] | None:
        if site.call.target != own.ATTENTION:
            return None
        return _written(site, positions, tables, lengths)

    return group_query_attention


def _written(site: FusionSite, positions: int, tables: dict[Any, Any], lengths: bool) -> Sequence[AtenValue] | None:
    call, known = site.call, site.known
    args = call.args
    query = args["query"]
    shapes = [shape_of(args[name]) for name in ("query", "key", "value")]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        site.refuse("attention of tensors without four axes")
        return None
    (_, heads, _, width), (_, kv_heads, _, _), (_, _, _, value_width) = shapes  # type: ignore[misc]
    if width != value_width:
        site.refuse(f"keys have {width} elements and values {value_width}")
        return None
    if width % _WIDTHS:
        site.refuse(f"keys have {width} elements, which is not a multiple of {_WIDTHS}")
        return None
    key, value = (known.joined(args[name], -2) for name in ("key", "value"))
    if key is None or value is None or len(key) != 2 or len(value) != 2 or not _are_inputs(site, key[0], value[0]):
        site.refuse("its keys and values are not those of a past with new ones behind them")
        return None
    mask = made_by_visible(known, args["mask"]) if args["mask"] is not None else None
    pattern, window, padding = own.CAUSAL, 0, None
    if mask is not None:
        pattern, window, padding = mask.args["pattern"], mask.args["width"], mask.args["padding"]
    elif args["mask"] is not None or not args["causal"]:
        site.refuse("its mask is made by code of the model")
        return None
    if pattern not in (own.CAUSAL, own.WINDOW):
        site.refuse("its mask is neither causal nor a window")
        return None
    turned = _rotary(site, query, key[1], positions, tables)
    plain = (query, key[1]) if turned is None else turned.plain
    flat = [_tokens_first(site, item, count * width) for item, count in zip(plain, (heads, kv_heads), strict=True)]
    flat.append(_tokens_first(site, value[1], kv_heads * width))
    # with positions of any kind the kernel would take the first one, and count on from it
    inside = turned is not None and lengths and width % _WIDTHS_WITH_ROTARY == 0 and turned.pairs % _PAIRS == 0
    flat = one_product(site, flat, whole=inside or turned is None)
    angles: list[Any] = [None, None]
    if turned is not None:
        angles = [
            site.constant(table, name) for table, name in zip(turned.tables, ("cos_cache", "sin_cache"), strict=True)
        ]
        for place, count in enumerate(() if inside else (heads, kv_heads)):
            (flat[place],) = site.write(
                own.ROTARY_EMBEDDING,
                [flat[place].tensor],
                x=flat[place],
                positions=turned.positions,
                cos=angles[0],
                sin=angles[1],
                heads=count,
                interleaved=turned.interleaved,
            )
    batch, length = (shape_of(query) or ())[0], (shape_of(query) or ())[2]
    types = [tensor(query, batch, length, heads * width), args["key"].tensor, args["value"].tensor]
    result, present_key, present_value = site.write(
        own.GROUP_QUERY_ATTENTION,
        types,
        query=flat[0],
        key=flat[1] if len(flat) > 1 else None,
        value=flat[2] if len(flat) > 1 else None,
        past_key=key[0],
        past_value=value[0],
        cos=angles[0] if inside else None,
        sin=angles[1] if inside else None,
        padding=padding,
        bias=args["bias"],
        sinks=args["sinks"],
        heads=heads,
        kv_heads=kv_heads,
        scale=args["scale"],
        softcap=args["softcap"],
        window=window,
        interleaved=turned is not None and turned.interleaved,
        lengths=lengths,
    )
    site.instead[known.plain(args["key"])] = present_key
    site.instead[known.plain(args["value"])] = present_value
    apart = site.write(
        "aten::unflatten.int", [tensor(query, batch, length, heads, width)], self=result, dim=2, sizes=[heads, width]
    )
    return site.write("aten::transpose.int", [call.outputs[0].tensor], self=apart[0], dim0=1, dim1=2)


def attention_with_past(site: FusionSite) -> Sequence[AtenValue] | None:
    """Attention to cat([past, new], 2): the operator of the standard takes both, and gives them together."""
    call, known = site.call, site.known
    if call.target != own.ATTENTION or call.args["sinks"] is not None or call.args["causal"]:
        return None
    args = call.args
    keys, values = (known.joined(args[name], -2) or () for name in ("key", "value"))
    if len(keys) != 2 or len(values) != 2 or not _are_inputs(site, keys[0], values[0]):
        return None
    (past_key, key), (past_value, value) = keys, values
    shapes = [shape_of(item) or () for item in (past_key, past_value)]
    if any(len(shape) != 4 for shape in shapes) or shapes[0][:3] != shapes[1][:3]:
        return None
    if len({item.tensor.dtype for item in (args["query"], args["key"], key, value, past_key, past_value)}) != 1:
        return None  # one of them is cast on the way
    types = [call.outputs[0].tensor, args["key"].tensor, args["value"].tensor]
    result, present_key, present_value = site.write(
        own.ATTENTION_WITH_PAST, types, **{**args, "key": key, "value": value}, past_key=past_key, past_value=past_value
    )
    site.instead[known.plain(args["key"])] = present_key
    site.instead[known.plain(args["value"])] = present_value
    return [result]


def _are_inputs(site: FusionSite, *values: AtenValue) -> bool:
    """Whether the values are inputs of the user: the past."""
    return all(value in site.known.inputs and site.known.inputs[value].kind == "user" for value in values)


def _tokens_first(site: FusionSite, value: AtenValue, width: int) -> AtenValue:
    """[batch, heads, length, size] as [batch, length, heads * size]; what it was made from, where it was that."""
    known = site.known
    shape = shape_of(value) or ()
    call = known.call(known.plain(value))
    if call is not None and (
        (call.base == "aten::transpose" and {call.args["dim0"] % 4, call.args["dim1"] % 4} == {1, 2})
        or (call.base == "aten::permute" and list(call.args["dims"]) == [0, 2, 1, 3])
    ):
        apart = known.plain(call.args["self"])
        view = known.call(apart)
        if view is not None and view.base in ("aten::view", "aten::reshape", "aten::unflatten"):
            source = known.plain(view.args["self"])
            if shape_of(source) == (shape[0], shape[2], width):
                return source  # type: ignore[no-any-return]
        turned = apart
    else:
        turned = site.write(
            "aten::transpose.int", [tensor(value, shape[0], shape[2], shape[1], shape[3])], self=value, dim0=1, dim1=2
        )[0]
    flat = tensor(value, shape[0], shape[2], width)
    return site.write("aten::flatten.using_ints", [flat], self=turned, start_dim=2, end_dim=3)[0]


@dataclass(frozen=True, eq=False)
class _Turned:
    """Queries and keys before a rotary embedding, and the embedding."""

    plain: tuple[AtenValue, AtenValue]
    tables: tuple[torch.Tensor, torch.Tensor]  # [positions, pairs] each
    positions: AtenValue
    interleaved: bool

    @property
    def pairs(self) -> int:
        return self.tables[0].shape[1]


def _rotary(
    site: FusionSite, query: AtenValue, key: AtenValue, positions: int, tables: dict[Any, Any]
) -> _Turned | None:
    """The rotary embedding of queries and keys, where it is the same and its angles follow from the positions."""
    known = site.known
    calls = [known.call(known.plain(item)) for item in (query, key)]
    if any(call is None or call.target != own.ROTARY for call in calls):
        return None
    one, two = (call.args for call in calls if call is not None)
    where = site.user_input(POSITIONS)
    angles = (one["cos"], one["sin"])
    if where is None or one["interleaved"] != two["interleaved"]:
        return None
    if not all(known.same(mine, two[name]) for name, mine in zip(("cos", "sin"), angles, strict=True)):
        return None
    found = next((tables[other] for other in tables if all(map(known.same, angles, other))), None)
    if found is None:
        found = tables.setdefault(angles, _tables(known, angles, where.value, positions))
    return _Turned((one["x"], two["x"]), found, where.value, one["interleaved"]) if found is not None else None


def _tables(
    known: Expressions, angles: tuple[AtenValue, AtenValue], where: AtenValue, positions: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """[positions, pairs] each: the angles by position, where they are computed from the positions alone.

    They are asked for in another order too: an angle must not depend on the other positions.
    """
    for angle in angles:
        if any(known.inputs[leaf].kind == "user" and leaf is not where for leaf in leaves(known, angle)):
            return None
    every = torch.arange(positions)
    shuffled = torch.randperm(positions, generator=torch.Generator().manual_seed(0))
    found = []
    for angle in angles:
        try:
            table, other = (known.evaluated(angle, {where: asked[None]}) for asked in (every, shuffled))
        except (LookupError, RuntimeError, TypeError):
            return None
        table, other = (item.reshape(positions, -1).contiguous() for item in (table, other))
        if table.shape[-1] != (shape_of(angle) or (None,))[-1] or not torch.equal(table[shuffled], other):
            return None
        found.append(table)
    return found[0], found[1]
