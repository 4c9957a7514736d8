"""Lets a trace record `torch.range(1, x.shape[0])`, the only maker of tensors that no mode of torch hands on.

Under the tracer a size is a tensor, and `torch.range` would record the example's number.  A mode does not see the
call, so the function itself is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purexport.torch_patches.torch_jit import tracing_state


def range_of_torch() -> Any:
    """What `torch.range` is at the moment."""
    return torch.range


@contextmanager
def range_recorded(
    is_size: Callable[[torch.Tensor], bool], exact: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Inside, `torch.range` of sizes is computed with operators under the tracer; `is_size` says what a size is, and
    `exact` gives a number that follows from sizes in float64.

    This is set in the whole process.  Outside of a trace, and without a size among the bounds, torch's own runs.
    """
    original = torch.range

    def range(start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, **kwargs: Any) -> Any:
        if end is None:
            start, end = 0, start
        sizes = [item for item in (start, end, step) if isinstance(item, torch.Tensor) and is_size(item)]
        if tracing_state() is None or out is not None or not sizes:
            named = kwargs if out is None else {**kwargs, "out": out}
            return original(start, end, step, **named)
        dtype = kwargs.pop("dtype", None) or torch.get_default_dtype()
        first, last, width = (_double(item, exact) for item in (start, end, step))
        if not dtype.is_floating_point:  # torch truncates all three first
            first, last, width = map(_truncated, (first, last, width))
        count = torch.floor((last - first) / width).to(torch.int64) + 1
        steps: Any = torch.arange(count, device=kwargs.get("device"))  # type: ignore[call-overload]
        return (steps.to(torch.float64) * width + first).to(dtype)

    torch.range = range
    try:
        yield
    finally:
        torch.range = original


def _double(bound: Any, exact: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return exact(bound).to(torch.float64) if isinstance(bound, torch.Tensor) else float(bound)


def _truncated(bound: Any) -> Any:
    return torch.trunc(bound) if isinstance(bound, torch.Tensor) else float(math.trunc(bound))
