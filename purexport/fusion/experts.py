"""The row that makes MoE of ONNX Runtime from a layer of experts.

The operator takes numbers of a router, chooses by them, and weighs by their softmax.  A model says itself which experts
it chose, and with which weights.  The logarithms of these weights, and the lowest number for all other experts, are
numbers of a router that chooses the same; the softmax has the weights divided by their sum, which is a factor behind
it.
So the weights must be positive, which is seen by how they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue
from purexport.fusion.expressions import Expressions, shape_of
from purexport.fusion.rewriting import FusionSite, tensor

_POSITIVE = frozenset({"aten::softmax", "aten::_softmax", "aten::sigmoid", "aten::exp", "aten::softplus", "aten::relu"})
_OF_OPERAND = frozenset(
    {"aten::topk", "aten::sort", "aten::gather", "aten::index_select", "aten::slice", "aten::select", "aten::view"}
    | {"aten::reshape", "aten::unsqueeze", "aten::squeeze", "aten::transpose", "aten::flatten", "aten::sum"}
    | {"aten::expand", "aten::sqrt", "aten::cumsum"}
)
_OF_BOTH = frozenset({"aten::mul", "aten::div", "aten::add"})


def mixture_of_experts(site: FusionSite) -> Sequence[AtenValue] | None:
    """The experts of a layer as one operator."""
    call, known = site.call, site.known
    if call.target != own.EXPERTS:
        return None
    args = dict(call.args)
    if args["x"].tensor.dtype != torch.float32:
        site.refuse("the kernel for experts takes float32 only")
        return None
    if not _is_positive(known, args["weights"]):
        site.refuse("the weights of its experts may be negative")
        return None
    transposed, interleaved = args.pop("transposed"), args.pop("interleaved")
    for name in ("up", "down") if transposed else ():
        count, one, other = shape_of(args[name]) or (None,) * 3
        (args[name],) = site.write(
            "aten::transpose.int", [tensor(args[name], count, other, one)], self=args[name], dim0=1, dim1=2
        )
    for name in () if interleaved else ("up", "up_bias"):
        if args[name] is not None:
            args[name] = _interleaved(site, args[name])
    return site.write(own.MIXTURE, [call.outputs[0].tensor], **args)


def _interleaved(site: FusionSite, value: AtenValue) -> AtenValue:
    """[experts, 2 * size, ...] with the rows of both halves in turns."""
    count, size, *rest = shape_of(value) or ()
    if not isinstance(size, int):
        raise TypeError(f"weights of {value.type}")
    half = size // 2
    (apart,) = site.write(
        "aten::unflatten.int", [tensor(value, count, 2, half, *rest)], self=value, dim=1, sizes=[2, half]
    )
    (turns,) = site.write("aten::transpose.int", [tensor(value, count, half, 2, *rest)], self=apart, dim0=1, dim1=2)
    return site.write(
        "aten::flatten.using_ints", [tensor(value, count, size, *rest)], self=turns, start_dim=1, end_dim=2
    )[0]


def _is_positive(known: Expressions, value: Any) -> bool:
    """Whether no element is below 0, by how the value is computed."""
    stack = [value]
    while stack:
        item = known.plain(stack.pop())
        number = known.number(item)
        if isinstance(number, (int, float)):
            if number < 0:
                return False
            continue
        call = known.call(item)
        if call is not None and call.target == "prim::getitem":
            call = known.call(call.args["list"])
        if call is None or (call.base not in _POSITIVE and call.base not in _OF_OPERAND and call.base not in _OF_BOTH):
            return False
        if call.base in _OF_BOTH:
            if call.args.get("alpha", 1) != 1 or call.args.get("rounding_mode") is not None:
                return False
            stack += [call.args["self"], call.args["other"]]
        elif call.base in _OF_OPERAND:
            if item not in call.outputs[:1]:
                return False
            stack.append(call.args["self"])
    return True
