"""Python's own functions on symbolic numbers: `int`, `float`, `len`, `min`, `max`, `range`, and those of `math`.

Each form gives None where nothing is symbolic, and then Python's own function decides.  `math` is replaced as a module;
the builtins have other meanings only in the namespaces of modules where a first run showed that they are needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from purexport.frontends.trace.numbers import SYMBOLIC, Number, wrapped
from purexport.frontends.trace.ranges import CountedNumbers, as_list, counted
from purexport.frontends.trace.tensors import Recorded

_REALS = (int, float, torch.SymInt, torch.SymFloat)


def _as_int(item: Any = 0) -> Any:
    if type(item) is Recorded and not item.layout_.sizes:
        item = item.item()
    if isinstance(item, torch.SymFloat):
        return math.trunc(item)
    return item if isinstance(item, torch.SymInt) else None


def _as_float(item: Any = 0.0) -> Any:
    if type(item) is Recorded and not item.layout_.sizes:
        item = item.item()
    if isinstance(item, torch.SymInt):
        return wrapped(item.node.sym_float())
    return item if isinstance(item, torch.SymFloat) else None


def _length(item: Any) -> Any:
    if isinstance(item, CountedNumbers):
        return item.length()
    return item.shape[0] if type(item) is Recorded and item.layout_.sizes else None


_ORIGINALS: dict[str, Callable[..., Any]] = {"sym_min": min, "sym_max": max}


def _chosen(name: str) -> Callable[..., Any]:
    """`min` or `max` of numbers, of which at least one is symbolic."""

    def form(*items: Any) -> Any:
        given = items[0] if len(items) == 1 and isinstance(items[0], (list, tuple)) else items
        if len(items) == 1 and isinstance(items[0], Iterator):
            given = list(items[0])  # it cannot be asked twice
            found = form(given)
            return _ORIGINALS[name](given) if found is None else found
        if not any(isinstance(item, SYMBOLIC) for item in given) or not all(type(item) in _REALS for item in given):
            return None
        return functools.reduce(lambda one, other: _joined(name, one, other), given)

    return form


def _joined(name: str, one: Any, other: Any) -> Any:
    first = next((item.node for item in (one, other) if isinstance(item, SYMBOLIC)), None)
    if first is None:
        return _ORIGINALS[name](one, other)
    nodes = [_node(first, item) for item in (one, other)]
    if nodes[0].kind is not nodes[1].kind:  # the result would be an int or a float as the sizes are
        return None
    return wrapped(getattr(nodes[0], name)(nodes[1]))


def _node(like: Number, item: Any) -> Any:
    if isinstance(item, SYMBOLIC):
        return item.node
    return like.wrap_float(item) if isinstance(item, float) else like.wrap_int(item)


def _of_math(name: str) -> Callable[..., Any]:
    def form(*items: Any) -> Any:
        if len(items) != 1 or not isinstance(items[0], SYMBOLIC):
            return None
        return wrapped(getattr(items[0].node, name)())

    return form


def _logarithm(*items: Any) -> Any:
    if not any(isinstance(item, SYMBOLIC) for item in items):
        return None
    logs = [wrapped(item.node.log()) if isinstance(item, SYMBOLIC) else math.log(item) for item in items]
    return logs[0] if len(logs) == 1 else logs[0] / logs[1]


BUILTINS: dict[Any, Callable[..., Any]] = {
    int: _as_int,
    float: _as_float,
    len: _length,
    min: _chosen("sym_min"),
    max: _chosen("sym_max"),
    range: counted,
    list: as_list,
}
NAMES = frozenset(function.__name__ for function in BUILTINS)
MATH: dict[str, Callable[..., Any]] = {
    "sqrt": _of_math("sqrt"),
    "exp": _of_math("exp"),
    "fabs": _of_math("fabs"),
    "log": _logarithm,
}
# what models that are told that they are traced call on a size
OF_TORCH: dict[str, Callable[..., Any]] = {name: _of_math(name) for name in ("ceil", "floor", "round", "sqrt")}
