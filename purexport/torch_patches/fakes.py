"""What counts has the dtype of a count on fake tensors, too.

Before torch 2.12 the fake results of `unique` and its like, and of `bincount`, have the dtype of the values that are
counted.  So torch.export and scripts would record a wrong dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ATEN = torch.ops.aten
_UNIQUE = (
    _ATEN._unique.default,
    _ATEN._unique2.default,
    _ATEN.unique_dim.default,
    _ATEN.unique_consecutive.default,
    _ATEN.unique_dim_consecutive.default,
)


@contextmanager
def counts_typed() -> Iterator[None]:
    """Inside, fake results that are positions or counts are int64, and total weights are floats."""
    table = implementations()
    wanted = dict.fromkeys(_UNIQUE, _with_counts) | {_ATEN.bincount.default: _with_weights}
    before = {key: table[key] for key in wanted if key in table}
    for key, function in before.items():
        table[key] = wanted[key](function)
    try:
        yield
    finally:
        table.update(before)


def implementations() -> dict[Any, Callable[..., Any]]:
    """torch's own functions for operators on fake tensors."""
    from torch._subclasses import fake_impls  # only scripts and torch.export need it

    found: dict[Any, Callable[..., Any]] = fake_impls.op_implementations_dict
    return found


def _with_counts(function: Callable[..., Any]) -> Callable[..., Any]:
    def results(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        first, *counts = function(*args, **kwargs)
        return (first, *(_typed(item, torch.int64) for item in counts))

    return results


def _with_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    def result(mode: Any, called: Any, inputs: Any, weights: Any = None, minlength: Any = 0) -> Any:
        found = function(mode, called, inputs, weights, minlength)
        if weights is None:
            return _typed(found, torch.int64)
        return _typed(found, torch.float32 if weights.dtype == torch.float32 else torch.float64)

    return result


def _typed(tensor: Any, dtype: torch.dtype) -> Any:
    return tensor if tensor.dtype == dtype else tensor.new_empty(tensor.shape, dtype=dtype)
