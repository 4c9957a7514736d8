"""Lets a trace record how Python rounds a size: `math.ceil(x.shape[2] / 2)`, `math.floor`, `round`, `math.trunc`.

Under the tracer a size is a tensor.  A tensor has none of these methods, so Python would round the example's number
(`math.ceil`) or raise an error (`round`).  `torch._check` refuses tensors, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purexport.torch_patches.torch_jit import tracing_state

_METHODS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[float], int]]] = {
    "__ceil__": (torch.ceil, math.ceil),
    "__floor__": (torch.floor, math.floor),
    "__trunc__": (torch.trunc, math.trunc),
    "__round__": (torch.round, round),
}
_CHECK = "_check_with"


def rounding_of_tensors() -> tuple[Any, ...]:
    """What Python finds when it rounds a tensor, and what torch checks conditions with."""
    return (*(vars(torch.Tensor).get(name) for name in _METHODS), getattr(torch, _CHECK))


@contextmanager
def rounding_recorded(is_size: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """Inside, a size that Python rounds stays a tensor under the tracer; `is_size` says which tensors are sizes.

    This is set in the whole process.  A tensor outside of a trace, and one that is no size, is rounded as before.
    """
    before = dict(zip((*_METHODS, _CHECK), rounding_of_tensors(), strict=True))
    for name in _METHODS:
        setattr(torch.Tensor, name, _method(name, is_size))
    setattr(torch, _CHECK, _check_with(before[_CHECK]))
    try:
        yield
    finally:
        setattr(torch, _CHECK, before.pop(_CHECK))
        for name, method in before.items():
            if method is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)


def _method(name: str, is_size: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    recorded, plain = _METHODS[name]

    def rounded(self: torch.Tensor, *digits: int) -> Any:
        if tracing_state() is None or digits or self.dim() or not is_size(self):
            return plain(self.item(), *digits)
        return recorded(self).to(torch.int64) if self.is_floating_point() else self

    return rounded


def _check_with(original: Callable[..., Any]) -> Callable[..., Any]:
    def check(error_type: Any, cond: Any, message: Any) -> None:
        original(error_type, bool(cond) if isinstance(cond, torch.Tensor) else cond, message)

    return check
