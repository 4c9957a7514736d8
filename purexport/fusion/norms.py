"""Rows for normalizations that models write out, and for those that come behind a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue, TensorType
from purexport.fusion.expressions import Expressions, shape_of
from purexport.fusion.rewriting import FusionSite, tensor

_KINDS = {torch.float32, torch.float16}


def rms_norm(site: FusionSite) -> Sequence[AtenValue] | None:
    """weight * (x * rsqrt(mean(x ** 2, -1) + eps)), also without a weight, as aten::rms_norm.

    Casts to float32 and back lie between the parts: RMSNormalization computes in float32 too.
    """
    call, known = site.call, site.known
    if call.base != "aten::mul" or len(call.outputs) != 1:
        return None
    result = call.outputs[0]
    one, other = known.plain(call.args["self"]), known.plain(call.args["other"])
    for weight, scaled in ((one, other), (other, one)):
        shape = shape_of(weight)
        found = _scaled(known, scaled)
        if found is None or shape is None or len(shape) != 1 or shape != (shape_of(found[0]) or ())[-1:]:
            continue
        return _written(site, found, weight, result)
    return None


def bare_rms_norm(site: FusionSite) -> Sequence[AtenValue] | None:
    """x * rsqrt(mean(x ** 2, -1) + eps) where no weight follows."""
    call = site.call
    if call.base != "aten::mul" or len(call.outputs) != 1:
        return None
    found = _scaled(site.known, call.outputs[0])
    return _written(site, found, None, call.outputs[0]) if found is not None else None


def skip_norm(site: FusionSite) -> Sequence[AtenValue] | None:
    """rms_norm(x + skip) or layer_norm(x + skip), as one operator that gives the sum too."""
    call, known = site.call, site.known
    if call.base not in ("aten::rms_norm", "aten::layer_norm") or len(call.args["normalized_shape"]) != 1:
        return None
    weight, bias, eps = call.args["weight"], call.args.get("bias"), call.args["eps"]
    total, result = call.args["input"], call.outputs[0]
    terms = known.operands(total, "aten::add")
    shapes = [shape_of(item) for item in (*(terms or ()), total, result)]
    if terms is None or weight is None or eps is None or any(shape != shapes[0] for shape in shapes):
        return None
    if shapes[0] is None or len(shapes[0]) != 3:  # what the kernel takes
        return None
    added = known.plain(total)
    kinds = {item.tensor.dtype for item in (*terms, total, added, weight, result, *([bias] if bias else []))}
    if len(kinds) != 1 or not kinds <= _KINDS:
        return None
    normal, both = site.write(
        own.SKIP_NORM,
        [result.tensor, tensor(added, *shapes[0])],
        x=terms[0],
        skip=terms[1],
        weight=weight,
        bias=bias,
        eps=eps,
        centered=call.base == "aten::layer_norm",
    )
    site.behind[added] = both
    return [normal]


def _written(
    site: FusionSite, found: tuple[AtenValue, float], weight: AtenValue | None, result: AtenValue
) -> Sequence[AtenValue]:
    x, eps = found
    width = (shape_of(x) or ())[-1]
    dtype = result.tensor.dtype
    same = _as(site, x, dtype)
    scale = None if weight is None else _as(site, weight, dtype)
    return site.write("aten::rms_norm", [result.tensor], input=same, normalized_shape=[width], weight=scale, eps=eps)


def _as(site: FusionSite, value: AtenValue, dtype: torch.dtype) -> AtenValue:
    """The value in the dtype of the result: a model may have cast it between the parts, or only its weight."""
    if value.tensor.dtype == dtype:
        return value
    options = {"non_blocking": False, "copy": False, "memory_format": None}
    return site.write("aten::to.dtype", [TensorType(dtype, shape_of(value))], self=value, dtype=dtype, **options)[0]


def _scaled(known: Expressions, value: Any) -> tuple[AtenValue, float] | None:
    """(x, eps) where `value` is x * rsqrt(mean(x ** 2, -1) + eps)."""
    parts = known.operands(value, "aten::mul")
    for x, factor in (parts, parts[::-1]) if parts is not None else ():
        root = known.call(factor)
        if root is None or root.base not in ("aten::rsqrt", "aten::pow"):
            continue
        if root.base == "aten::pow" and known.number(root.args["exponent"]) != -0.5:
            continue
        total = known.operands(root.args["self"], "aten::add")
        mean = known.call(total[0]) if total is not None else None
        if total is None or mean is None or mean.base != "aten::mean" or not mean.args.get("keepdim"):
            continue
        eps, rank = known.number(total[1]), len(shape_of(x) or ())
        if not isinstance(eps, float) or [item % rank for item in mean.args["dim"]] != [rank - 1]:
            continue
        if _squared(known, mean.args["self"]) is x:
            return x, eps
    return None


def _squared(known: Expressions, value: object) -> Any:
    """x where `value` is x ** 2."""
    call = known.call(known.plain(value))
    if call is None:
        return None
    if call.base == "aten::pow" and known.number(call.args["exponent"]) == 2:
        return known.plain(call.args["self"])
    if call.base == "aten::square":
        return known.plain(call.args["self"])
    if call.base == "aten::mul":
        one, other = known.plain(call.args["self"]), known.plain(call.args["other"])
        return one if one is other else None
    return None
