"""Arithmetic on small constants, done while the graph is built.

Shape arithmetic of a static model must leave no node behind, so an operator of this table whose inputs are all small
constants becomes a constant.  Arguments come in the form of the newest operator versions (`axes` as an argument of
Unsqueeze), before the emitter binds them to a version.  Results never grow past `LIMIT` elements: large constants
(`ones`, `arange`, `expand`) stay nodes, so folding never makes a file notably larger.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value

LIMIT = 256

Tensor = torch.Tensor


def _div(a: Tensor, b: Tensor) -> Tensor:
    # ONNX Div truncates integers
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _mod(a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def _slice(
    data: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    dims = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    for dim, start, end, step in zip(dims, starts.tolist(), ends.tolist(), strides, strict=True):
        positions = range(data.shape[dim])[slice(start, None if step < 0 and end < -(2**31) else end, step)]
        data = data.index_select(dim, torch.tensor(list(positions), dtype=torch.int64))
    return data


def _unsqueeze(data: Tensor, axes: Tensor) -> Tensor:
    rank = data.dim() + axes.numel()
    for axis in sorted(axis % rank for axis in axes.flatten().tolist()):
        data = data.unsqueeze(axis)
    return data


def _squeeze(data: Tensor, axes: Tensor | None = None) -> Tensor:
    return data.squeeze() if axes is None else data.squeeze(tuple(axes.flatten().tolist()))


def _gather(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    flat = torch.where(indices < 0, indices + data.shape[axis], indices).flatten()
    shape = [*data.shape[:axis], *indices.shape, *data.shape[axis:][1:]]
    return data.index_select(axis, flat).reshape(shape)


def _reshape(data: Tensor, shape: Tensor, allowzero: int = 0) -> Tensor:
    sizes = [data.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(shape.tolist())]
    return data.reshape(sizes)


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _reduce(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduce(data: Tensor, axes: Tensor | None = None, keepdims: int = 1) -> Tensor:
        for axis in range(data.dim()) if axes is None else axes.tolist():
            data = function(data, axis, keepdim=True, dtype=data.dtype)
        return data if keepdims else _squeeze(data, axes)

    return reduce


def _cast(data: Tensor, to: int, saturate: int = 1) -> Tensor:
    return data.to(dtypes.torch_dtype(to))


_FOLDERS: dict[str, Callable[..., Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": _div,
    "Mod": _mod,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Cast": _cast,
    "Equal": torch.eq,
    "Less": torch.lt,
    "Greater": torch.gt,
    "Not": torch.logical_not,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Where": torch.where,
    "Min": lambda *items: functools.reduce(torch.minimum, items),
    "Max": lambda *items: functools.reduce(torch.maximum, items),
    "Concat": lambda *items, axis: torch.cat(items, axis),
    "Gather": _gather,
    "Range": _range,
    "ReduceProd": _reduce(torch.prod),
    "ReduceSum": _reduce(torch.sum),
    "Reshape": _reshape,
    "Shape": lambda data, start=None, end=None: torch.tensor(data.shape[start:end], dtype=torch.int64),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
_ATTRIBUTES = frozenset({"axis", "to", "saturate", "fmod", "allowzero", "keepdims", "start", "end"})


def fold(op_type: str, inputs: Sequence[Any], named: dict[str, Any], every: bool = True) -> Tensor | None:
    """The result of an operator on constants; None when it is not to be folded.

    Unless `every` constant is meant, those that may be weights stay: named ones, and floating-point numbers.
    """
    function = _FOLDERS.get(op_type)
    if function is None or not any(isinstance(item, Value) for item in inputs):
        return None
    if not every and any(map(_may_be_weight, (*inputs, *named.values()))):
        return None
    tensors = [_tensor(item, inputs) for item in inputs]
    options = {name: item if name in _ATTRIBUTES else _tensor(item, inputs) for name, item in named.items()}
    if any(item is _UNKNOWN for item in (*tensors, *options.values())):
        return None
    result = function(*tensors, **{name: item for name, item in options.items() if item is not None})
    return result if result.numel() <= LIMIT else None


def _may_be_weight(item: Any) -> bool:
    return isinstance(item, Value) and item.const is not None and (bool(item.name) or item.const.is_floating_point())


_UNKNOWN: Any = object()


def _tensor(item: Any, inputs: Sequence[Any]) -> Any:
    if item is None:
        return None
    if isinstance(item, Value):
        return item.const if item.const is not None and item.const.numel() <= LIMIT else _UNKNOWN
    if isinstance(item, (list, tuple)) and any(isinstance(part, Value) for part in item):
        return _UNKNOWN
    # a plain number takes the type of the values beside it; positions and sizes are int64
    values = [value for value in inputs if isinstance(value, Value)]
    integral = isinstance(item, (list, tuple)) or not values
    dtype = torch.int64 if integral else dtypes.torch_dtype(values[0].dtype or dtypes.INT64)
    return torch.tensor(item, dtype=dtype)
