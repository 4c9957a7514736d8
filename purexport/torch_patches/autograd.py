"""Replaces how autograd Functions are applied, by torch and by its compiler.

Up to torch 2.13, `Function.apply` itself calls `_SingleLevelFunction.apply`, which is replaced here.  So a bound
`apply` that the model stored before is intercepted too.  Since then `Function.apply` is a function of C++.  It is
replaced itself, and a bound `apply` that the model stored before is intercepted where it calls `forward` of its class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import function as autograd

_PLAIN = vars(torch._C._FunctionBase)["apply"]
APPLIED_IN_C = vars(autograd.Function)["apply"] is _PLAIN
"""Whether a bound `apply` calls nothing of Python before `forward`."""


def plain_apply(function: Any) -> Callable[..., Any]:
    """torch's own `function.apply`, whatever replaces it at the moment."""
    bound: Callable[..., Any] = _PLAIN.__get__(None, function)
    return bound


@contextmanager
def applied_by(apply: Callable[..., Any]) -> Iterator[None]:
    """Inside, applying a Function becomes `apply(function, *args, **kwargs)`, in the whole process."""
    level: Any = autograd._SingleLevelFunction
    public: Any = autograd.Function
    outer, whole = vars(level).get("apply"), vars(public)["apply"]
    level.apply = classmethod(apply)
    if APPLIED_IN_C:
        public.apply = classmethod(_with_defaults(apply))
    try:
        yield
    finally:
        public.apply = whole
        if outer is None:
            del level.apply
        else:
            level.apply = outer


def _with_defaults(handler: Callable[..., Any]) -> Callable[..., Any]:
    """As `Function.apply` did in Python: `forward` of a Function with `setup_context` gets its defaults before."""

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function.setup_context is not public.setup_context:
            bound = inspect.signature(function.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        return handler(function, *args, **kwargs)

    public: Any = autograd.Function
    return apply  # torch's compiler goes by this name


@contextmanager
def forward_handed_to(handler: Callable[..., Any], kinds: Iterable[Any]) -> Iterator[None]:
    """Inside, `forward` of these classes is `handler(function, forward, args)`.  `forward` is the original.

    A class that inherits `forward` gets one of its own for the time being, so that `function` is the class itself.
    """
    found = [(kind, kind.forward, vars(kind).get("forward")) for kind in kinds]
    for kind, forward, _ in found:
        kind.forward = staticmethod(_handing(handler, kind, forward))
    try:
        yield
    finally:
        for kind, _, own in found:
            if own is None:
                del kind.forward
            else:
                kind.forward = own


def _handing(handler: Callable[..., Any], kind: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)  # torch asks for the signature
    def handed(*args: Any) -> Any:
        return handler(kind, forward, args)

    return handed


@contextmanager
def left_whole_by_dynamo(kinds: Iterable[Any]) -> Iterator[None]:
    """Inside, torch's compiler records applications of these classes as calls; otherwise it traces into Functions."""
    from torch._dynamo import trace_rules  # only torch.export needs the compiler, which takes long to load

    allowed: Any = trace_rules._allowed_callable_ids
    told = [kind for kind in kinds if id(kind) not in allowed]
    for kind in told:
        allowed.add(id(kind))
    try:
        yield
    finally:
        for kind in told:
            allowed.remove(id(kind))
