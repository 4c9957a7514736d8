"""Hands calls of torch's functions or operators to a function of ours, which decides what happens instead.

This affects only the current thread, because torch keeps its modes per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class _Functions(TorchFunctionMode):
    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self.handler = handler

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.handler(function, args, kwargs or {})


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: what keeps torch's compiler out would load it at the first call."""
        return False

    def __init__(self, handler: Handler) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.handler = handler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.handler(func, args, kwargs or {})


@contextmanager
def functions_handed_to(handler: Handler) -> Iterator[None]:
    """Inside, each call of a function of torch's Python interface becomes `handler(function, args, kwargs)`.

    Calls that the handler itself makes go to torch, or to the handler of the next outer context.
    """
    with _Functions(handler):
        yield


@contextmanager
def operators_handed_to(handler: Handler) -> Iterator[None]:
    """Inside, each call of an operator that reaches the kernels becomes `handler(overload, args, kwargs)`."""
    with _Operators(handler):
        yield
