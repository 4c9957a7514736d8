"""Hands each operator call to a function of ours before composite operators fall apart into others.

torch reserves the dispatch key `DeferredInit` for libraries beside it, and has no kernels for it.  It lies above
autograd, autocast and the decomposition of composite operators, and below the layers of torch.func.  So a kernel for it
sees `aten::linear` and `aten::layer_norm` as the model called them, and inside of `torch.func.grad` what is computed.

The kernels are registered at the first use and stay, like our own operators.  torch calls them only where the key is
included, which is so for the calling thread inside of the context.  A call that the handler makes goes to torch itself
if it is made in `below`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

_KEY = torch._C._dispatch_key_parse("DeferredInit")
_AUTOCAST = torch._C.DispatchKey.AutocastCPU
_handler: ContextVar[Handler] = ContextVar("_handler")


def key_is_included() -> bool:
    """Whether calls are handed over at the moment."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_included(_KEY))


def key_is_excluded() -> bool:
    """Whether calls go to torch itself at the moment."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(_KEY))


@contextmanager
def calls_before_composites(handler: Handler) -> Iterator[None]:
    """Inside, each call of an operator becomes `handler(overload, args, kwargs)`, for the current thread.

    The arguments are those of the schema, as far as they differ from its defaults at the end; numbers are numbers also
    where the schema says Tensor.
    """
    _kernels().complete()
    was = key_is_included()
    token = _handler.set(handler)
    torch._C._dispatch_tls_set_dispatch_key_included(_KEY, True)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, was)
        _handler.reset(token)


class below:  # noqa: N801 - a context manager, as those that are functions
    """Inside, calls go to torch itself."""

    __slots__ = ("was",)

    def __enter__(self) -> None:
        self.was = key_is_excluded()
        torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, True)

    def __exit__(self, *_: object) -> None:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, self.was)


def casting(overload: Any) -> Any | None:
    """The call of an operator by way of autocast, where that is on and has a say; None elsewhere.

    Autocast casts the arguments and calls the operator again, and both calls are handed over.
    """
    if not torch.is_autocast_enabled("cpu") or torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOCAST):
        return None
    if not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), _AUTOCAST):
        return None
    return functools.partial(overload.redispatch, torch._C.DispatchKeySet(_AUTOCAST))


class _Kernels:
    """A kernel for every operator that there is, and the libraries that hold them."""

    def __init__(self) -> None:
        rest = torch.library.Library("_", "IMPL", "DeferredInit")  # type: ignore[no-untyped-call]
        rest.fallback(torch.library.fallthrough_kernel)  # type: ignore[no-untyped-call]
        self.libraries: dict[str, Any] = {"": rest}
        self.names: set[str] = set()
        self.declared: Any = None

    def complete(self) -> None:
        """Register kernels for the operators that were declared since the last time.

        torch takes tens of milliseconds for its list of names, so it is asked only where there may be others: after a
        declaration in Python, or where a library or a module was loaded.
        """
        declared = (frozenset(torch.library._defs), len(torch.ops.loaded_libraries), len(sys.modules))
        if declared == self.declared:
            return
        self.declared = declared
        for name in set(torch._C._dispatch_get_all_op_names()) - self.names:
            self.names.add(name)
            namespace, _, rest = name.partition("::")
            library = self.libraries.get(namespace)
            if library is None:
                library = torch._C._dispatch_library("IMPL", namespace, "DeferredInit", __file__, 1)
                self.libraries[namespace] = library
            library.impl(rest, "DeferredInit", _kernel(namespace, rest), False)  # type: ignore[call-arg]
        for operator in list(torch._ops._higher_order_ops.values()):
            if _KEY not in operator.py_kernels:
                operator.py_impl(_KEY)(functools.partial(_called, operator))


@functools.cache
def _kernels() -> _Kernels:
    """They stay until the process ends."""
    return _Kernels()


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return _handler.get()(operator, args, kwargs)


def _kernel(namespace: str, rest: str) -> Callable[..., Any]:
    overload: Any = None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal overload
        if overload is None:
            name, _, suffix = rest.partition(".")
            overload = getattr(getattr(getattr(torch.ops, namespace), name), suffix or "default")
        return _handler.get()(overload, args, kwargs)

    return kernel
