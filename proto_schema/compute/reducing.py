"""Reductions along axes. Before opset 18 (ReduceSum: 13) axes are an attribute, then an input.

No axes means all, and with `noop_with_empty_axes` none. A reduction of no elements gives what changes nothing: 0, 1, or
the lowest or highest value. float16 is summed in float32, integers in their own type as in C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE
from proto_schema.compute.elementwise import wide
from proto_schema.compute.moving import ints
from proto_schema.compute.rows import row


def _axes(call: Call, x: Array, axes: Array | None) -> tuple[int, ...]:
    given = ints(call, "axes", axes)
    if not given:
        return () if call.attribute("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted({call.axis(axis, x.ndim) for axis in given}))


def _reduction(name: str, function: Callable[[Array, tuple[int, ...], bool], Any]) -> None:
    @row(name)
    def compute(call: Call, x: Array, axes: Array | None = None) -> Any:
        return function(wide(x), _axes(call, x, axes), bool(call.attribute("keepdims", 1)))


def _sum(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    total = _sum(x, axes, keep)
    if x.dtype.kind in "iu":
        return np.trunc(total / count)
    return total / x.dtype.type(count)


def _limit(x: Array, high: bool) -> Any:
    if x.dtype.kind == "b":
        return high
    if x.dtype.kind == "f":
        return np.inf if high else -np.inf
    return np.iinfo(x.dtype).max if high else np.iinfo(x.dtype).min


def _max(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.max(x, axis=axes, keepdims=keep, initial=_limit(x, False))


def _min(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    return np.min(x, axis=axes, keepdims=keep, initial=_limit(x, True))


def _log_sum_exp(x: Array, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.kind in "iu":
        x = x.astype(np.float64)
    highest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    highest = np.where(np.isfinite(highest), highest, 0)
    total = np.log(np.sum(np.exp(x - highest), axis=axes, keepdims=True)) + highest
    return total if keep else total.squeeze(axes)


def _log(total: Any) -> Any:
    return np.log(total.astype(np.float64) if total.dtype.kind in "iu" else total)


def _root(total: Any) -> Any:
    return np.sqrt(total.astype(np.float64) if total.dtype.kind in "iu" else total)


_reduction("ReduceSum", _sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceMax", _max)
_reduction("ReduceMin", _min)
_reduction("ReduceProd", lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype))
_reduction("ReduceL1", lambda x, axes, keep: _sum(np.abs(x), axes, keep))
_reduction("ReduceL2", lambda x, axes, keep: _root(_sum(x * x, axes, keep)))
_reduction("ReduceSumSquare", lambda x, axes, keep: _sum(x * x, axes, keep))
_reduction("ReduceLogSum", lambda x, axes, keep: _log(_sum(x, axes, keep)))
_reduction("ReduceLogSumExp", _log_sum_exp)


def _place(call: Call, x: Array, find: Callable[..., Any]) -> Any:
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    if call.attribute("select_last_index", 0):
        found = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
    else:
        found = find(x, axis=axis)
    return np.expand_dims(found, axis) if call.attribute("keepdims", 1) else found


@row("ArgMax")
def arg_max(call: Call, x: Array) -> Any:
    """The index of the largest element along an axis: the first, or the last where asked."""
    return _place(call, x, np.argmax)


@row("ArgMin")
def arg_min(call: Call, x: Array) -> Any:
    """The index of the smallest element along an axis: the first, or the last where asked."""
    return _place(call, x, np.argmin)


def _running(name: str, function: Callable[..., Any], start: int) -> None:
    @row(name)
    def compute(call: Call, x: Array, axis: Array) -> Any:
        at = call.axis(int(np.asarray(axis).reshape(-1)[0]), x.ndim)
        values = np.flip(wide(x), at) if call.attribute("reverse", 0) else wide(x)
        found = function(values, axis=at, dtype=values.dtype)
        if call.attribute("exclusive", 0):
            first = np.full_like(np.take(found, [], axis=at), start, shape=(*x.shape[:at], 1, *x.shape[at + 1 :]))
            found = np.concatenate([first, found], axis=at)
            found = found[(slice(None),) * at + (slice(0, x.shape[at]),)]
        return np.flip(found, at) if call.attribute("reverse", 0) else found


_running("CumSum", np.cumsum, 0)
_running("CumProd", np.cumprod, 1)


def _det_cost(call: Call, x: Array) -> Cost:
    side = x.shape[-1] if x.ndim else 1
    return Cost(x.size * (side + 20), WIDE * x.size, 3 * WIDE * x.size)


@row("Det", cost=_det_cost)
def det(call: Call, x: Array) -> Any:
    """The determinants of square matrices."""
    return np.linalg.det(wide(x))
