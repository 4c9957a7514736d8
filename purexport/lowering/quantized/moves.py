"""Operators that only move elements: on quantized tensors they move the integers, and scale and zero point stay."""

from __future__ import annotations

from typing import Any

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import QUANTIZED, Rule, add, rule_of, taken
from purexport.lowering.elementwise import arithmetic  # noqa: F401
from purexport.lowering.nn import resize  # noqa: F401
from purexport.lowering.support.qdq import Quantized
from purexport.lowering.tensor import (
    concat,  # noqa: F401
    create,  # noqa: F401
    indexing,  # noqa: F401
    layout,  # noqa: F401
    padding,  # noqa: F401
    slices,  # noqa: F401
)

_SAME_AXES = "clone contiguous detach"
_MOVES = (
    "channel_shuffle chunk expand flatten.using_ints flip index_select movedim.int narrow permute pixel_shuffle "
    "repeat reshape select.int size.int slice.Tensor split.sizes split.Tensor "
    "split_with_sizes squeeze squeeze.dim squeeze.dims t transpose.int unbind.int unflatten.int unsqueeze "
    "upsample_nearest2d.vec view"
)


def _moves(target: str, any_scheme: bool) -> None:
    ordinary = rule_of(target)

    def rule(op: Emitter, **arguments: Any) -> Any:
        tensor = next(found for item in arguments.values() for found in _tensors(item))
        if tensor.axis is not None and not any_scheme:
            raise UnsupportedForm(
                "of a tensor quantized per channel has no ONNX form; dequantize it before", code="quantized-tensor"
            )
        plain = {name: _integers(item) for name, item in arguments.items()}
        return _wrapped(ordinary.function(op, **plain), tensor)

    add(Rule(rule, taken(target, ordinary.parameters)), target + QUANTIZED)


def _tensors(item: Any) -> list[Quantized]:
    if isinstance(item, Quantized):
        return [item]
    return [part for part in item if isinstance(part, Quantized)] if isinstance(item, list) else []


def _integers(item: Any) -> Any:
    if isinstance(item, Quantized):
        return item.integers
    return [_integers(part) for part in item] if isinstance(item, list) else item


def _wrapped(result: Any, tensor: Quantized) -> Any:
    if isinstance(result, (list, tuple)):
        return [_wrapped(item, tensor) for item in result]
    is_tensor = isinstance(result, Value) and result.dtype == tensor.integers.dtype
    return tensor.with_integers(result) if is_tensor else result


for _target in _SAME_AXES.split():
    _moves(f"aten::{_target}", any_scheme=True)
for _target in _MOVES.split():
    _moves(f"aten::{_target}", any_scheme=False)
