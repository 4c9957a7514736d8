"""Replaces how autograd Functions are applied, by torch and by its compiler.

`Function.apply` itself calls `_SingleLevelFunction.apply`, which is replaced here.  So a bound `apply` that the model
stored before is intercepted too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import function as autograd

_PLAIN = vars(torch._C._FunctionBase)["apply"]


def plain_apply(function: Any) -> Callable[..., Any]:
    """torch's own `function.apply`, whatever replaces it at the moment."""
    bound: Callable[..., Any] = _PLAIN.__get__(None, function)
    return bound


@contextmanager
def applied_by(apply: Callable[..., Any]) -> Iterator[None]:
    """Inside, applying a Function becomes `apply(function, *args, **kwargs)`, in the whole process."""
    level: Any = autograd._SingleLevelFunction
    outer = vars(level).get("apply")
    level.apply = classmethod(apply)
    try:
        yield
    finally:
        if outer is None:
            del level.apply
        else:
            level.apply = outer


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
