"""Hands calls of functions that `torch.vmap` made to a function of ours, in the whole process.

torch's tracer cannot record such calls: one `vmap` in another stops it, and what is computed with sizes inside becomes
the example's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Call = Callable[..., Any]
Handler = Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]


def call_of_batched_functions() -> Any:
    """What runs the functions that `torch.vmap` makes; None where torch has it elsewhere."""
    return getattr(_module(), "vmap_impl", None)


def _module() -> Any:
    return getattr(getattr(torch, "_functorch", None), "apis", None)


@contextmanager
def batched_calls_handed_to(handler: Handler) -> Iterator[None]:
    """Inside, the call of such a function becomes `handler(original, args, kwargs)`."""
    module, original = _module(), call_of_batched_functions()
    if original is None:
        yield
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(original, args, kwargs)

    module.vmap_impl = call
    try:
        yield
    finally:
        module.vmap_impl = original
