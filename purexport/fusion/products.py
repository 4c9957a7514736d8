"""Rows that find attention where a model computes it by torch's own operators.

    scaled_dot_product_attention(q, k, v, mask)
    softmax(q @ k^T * scale + bias + mask) @ v      with batch and heads as two axes or as one

Both become `purexport_llm::attention`, as the attention layers that transformers lets us record do at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue, TensorType
from purexport.fusion.expressions import Expressions, shape_of
from purexport.fusion.masks import made_by_visible
from purexport.fusion.rewriting import FusionSite, tensor

_LOWEST = -1e4  # what is below hides a key; models write the lowest number of a type


def fused_attention(site: FusionSite) -> Sequence[AtenValue] | None:
    """aten::scaled_dot_product_attention, where it does not make a mask of its own."""
    call = site.call
    if call.target != "aten::scaled_dot_product_attention":
        return None
    args = call.args
    width = (shape_of(args["query"]) or (None,))[-1]
    ranks = [len(shape_of(args[name]) or ()) for name in ("query", "key", "value")]
    if args["is_causal"] or args["dropout_p"] or ranks != [4, 4, 4] or not isinstance(width, int):
        return None
    scale = args["scale"] if args["scale"] is not None else width**-0.5
    return _attention(
        site, call.outputs[0].tensor, [args[name] for name in ("query", "key", "value")], scale, args["attn_mask"]
    )


@dataclass
class _Scores:
    """What is under a softmax, from outside to inside."""

    scale: float = 1.0
    factors: tuple[AtenValue, AtenValue] | None = None
    added: list[AtenValue] = field(default_factory=list)
    seen: AtenValue | None = None  # true where a key is visible


def written_attention(site: FusionSite) -> Sequence[AtenValue] | None:
    """softmax(q @ k^T * scale + bias + mask) @ v."""
    call, known = site.call, site.known
    factors = _factors(known, call.outputs[0]) if call.base in ("aten::matmul", "aten::bmm") else None
    if factors is None:
        return None
    softmax = known.call(_with_heads(known, factors[0]))
    value = _with_heads(known, factors[1])
    if softmax is None or softmax.base not in ("aten::softmax", "aten::_softmax", "aten::_safe_softmax"):
        return None
    under = softmax.args["self"]
    rank = len(shape_of(under) or ())
    if known.number(softmax.args["dim"]) not in (-1, rank - 1):
        return None
    found = _Scores()
    if not _read(site, under, found) or found.factors is None or len(shape_of(value) or ()) != 4:
        return None
    query, key = (_with_heads(known, item) for item in found.factors)
    shapes = [shape_of(item) for item in (query, key)]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        return None
    heads = (shapes[0] or ())[1]
    extra = [_four_axes(site, item, heads) for item in found.added]
    if len(extra) > 2 or None in extra or (len(extra) == 2 and found.seen is not None):
        return None
    mask, bias = (extra[0], extra[1] if len(extra) > 1 else None) if extra else (None, None)
    if found.seen is not None:
        mask, bias = found.seen, mask
    result = call.outputs[0].tensor
    if len(result.shape or ()) == 4:
        return _attention(site, result, [query, key, value], found.scale, mask, bias)
    shape = (*(shapes[0] or ())[:3], (shape_of(value) or ())[3])
    whole = _attention(site, TensorType(result.dtype, shape), [query, key, value], found.scale, mask, bias)
    return site.write("aten::flatten.using_ints", [result], self=whole[0], start_dim=0, end_dim=1)


def tensor_like(value: AtenValue) -> TensorType:
    """The type of another tensor like this one."""
    return tensor(value, *(shape_of(value) or ()))


def _attention(
    site: FusionSite, type_: TensorType, operands: Sequence[AtenValue], scale: float, mask: Any, bias: Any = None
) -> Sequence[AtenValue]:
    query, key, value = operands
    return site.write(
        own.ATTENTION,
        [type_],
        query=query,
        key=key,
        value=value,
        mask=mask,
        bias=bias,
        sinks=None,
        scale=scale,
        softcap=0.0,
        causal=False,
    )


def _factors(known: Expressions, value: Any) -> tuple[AtenValue, AtenValue] | None:
    call = known.call(known.plain(value))
    if call is None or call.base not in ("aten::matmul", "aten::bmm"):
        return None
    return call.args["self"], call.args["other" if call.base == "aten::matmul" else "mat2"]


def _with_heads(known: Expressions, value: Any) -> Any:
    """[batch, heads, x, y] of which `value` is a view with batch and heads as one axis; otherwise `value` itself."""
    value = known.plain(value)
    shape, call = shape_of(value), known.call(value)
    if shape is None or call is None or call.base not in ("aten::view", "aten::reshape", "aten::flatten"):
        return value
    source = known.plain(call.args["self"])
    wide = shape_of(source)
    if wide is None or {len(shape), len(wide)} != {3, 4} or wide[-2:] != shape[-2:]:
        return value
    return source


def _read(site: FusionSite, value: Any, found: _Scores) -> bool:
    """Take apart what is under the softmax, down to the product; False where it is something else."""
    known = site.known
    while True:
        value = _with_heads(known, value)
        call = known.call(value)
        if call is None:
            return False
        if call.base == "aten::add" and call.args["alpha"] == 1:
            one, other = call.args["self"], call.args["other"]
            if not isinstance(one, AtenValue) or not isinstance(other, AtenValue):
                return False
            towards = [item for item in (one, other) if _leads_to_product(known, item)]
            if len(towards) != 1:
                return False
            added = other if towards[0] is one else one
            if found.scale != 1.0 and made_by_visible(known, added) is None:
                return False  # a factor does not change what a mask hides, but any other number
            found.added.append(added)
            value = towards[0]
        elif call.base == "aten::masked_fill" and _hides(known, call.args["value"]) and found.seen is None:
            hidden = call.args["mask"]
            found.seen = site.write("aten::logical_not", [tensor_like(hidden)], self=hidden)[0]
            value = call.args["self"]
        elif call.base == "aten::where" and _hides(known, call.args.get("other")) and found.seen is None:
            found.seen, value = call.args["condition"], call.args["self"]
        elif call.base in ("aten::mul", "aten::div") and isinstance(
            factor := known.number(call.args["other"]), (int, float)
        ):
            found.scale *= factor if call.base == "aten::mul" else 1 / factor
            value = call.args["self"]
        elif call.base == "aten::baddbmm" and found.scale == 1.0:
            start = known.call(known.plain(call.args["self"]))
            if call.args["beta"] == 1 and (start is None or start.base not in ("aten::zeros", "aten::empty")):
                found.added.append(call.args["self"])
            elif call.args["beta"] not in (0, 1):
                return False
            found.scale = float(call.args["alpha"])
            return _take_factors(known, (call.args["batch1"], call.args["batch2"]), found)
        else:
            factors = _factors(known, value)
            return factors is not None and _take_factors(known, factors, found)


def _leads_to_product(known: Expressions, value: Any) -> bool:
    value = _with_heads(known, value)
    call = known.call(value)
    while call is not None:
        if call.base in ("aten::matmul", "aten::bmm", "aten::baddbmm"):
            return True
        if call.base not in ("aten::mul", "aten::div", "aten::add", "aten::masked_fill", "aten::where"):
            return False
        value = _with_heads(known, call.args["self"])
        call = known.call(value)
    return False


def _hides(known: Expressions, value: Any) -> bool:
    number = known.number(value)
    return isinstance(number, (int, float)) and number <= _LOWEST


def _take_factors(known: Expressions, factors: tuple[Any, Any], found: _Scores) -> bool:
    query, turned = known.plain(factors[0]), known.plain(factors[1])
    call = known.call(turned)
    rank = len(shape_of(turned) or ())
    if call is None:
        return False
    if call.base == "aten::transpose":
        axes = {call.args["dim0"] % rank, call.args["dim1"] % rank}
        if axes != {rank - 1, rank - 2}:
            return False
    elif call.base != "aten::permute" or list(call.args["dims"]) != [*range(rank - 2), rank - 1, rank - 2]:
        return False
    found.factors = (query, call.args["self"])
    return True


def _four_axes(site: FusionSite, value: AtenValue, heads: Any) -> AtenValue | None:
    """What is added, with axes for batch and heads."""
    shape = shape_of(value)
    if shape is None or len(shape) in (4, 2, 1):
        return value if shape is not None and len(shape) == 4 else None
    if not isinstance(heads, int) or not isinstance(shape[0], int):
        return None
    if shape[0] == heads or shape[0] == 1:  # [heads, queries, keys]
        return site.write("aten::unsqueeze", [tensor(value, 1, *shape)], self=value, dim=0)[0]
    apart = tensor(value, shape[0] // heads, heads, *shape[1:])
    return site.write("aten::unflatten.int", [apart], self=value, dim=0, sizes=[-1, heads])[0]
