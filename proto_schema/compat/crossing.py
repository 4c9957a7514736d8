"""Functions of `proto_schema` as callables that take and give messages with protobuf's manners.

Arguments cross without a copy, so a function that changes its argument changes the caller's message. A message that
comes back is the caller's own if it was an argument; otherwise, if messages went in, it is a copy: functions here may
share parts between what they take and what they give, and protobuf never does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from proto_schema.compat.containers import _Repeated
from proto_schema.compat.messages import Mannered, mannered, plain
from proto_schema.wire.fields import Message


def crossing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function between messages with protobuf's manners."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        cores = {id(core) for core in _cores((*args, *kwargs.values()))}
        result = function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
        return mannered(_own(result, cores) if cores else result)

    return call


def _cores(values: Any) -> Iterator[Message]:
    """The messages among some values, also in the lists, tuples and dicts among them."""
    for value in values:
        if isinstance(value, Mannered):
            yield value._core
        elif isinstance(value, Message):
            yield value
        elif isinstance(value, _Repeated):
            yield from (item for item in value._items if isinstance(item, Message))
        elif isinstance(value, (list, tuple)):
            yield from _cores(value)
        elif isinstance(value, dict):
            yield from _cores(value.values())


def _own(value: Any, given: set[int]) -> Any:
    """The result without parts of what was given, unless it was given itself."""
    if isinstance(value, Message):
        return value if id(value) in given else value.__deepcopy__({})
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Message, list, tuple, dict)) for item in value):
        items = [_own(item, given) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _own(item, given) for key, item in value.items()}
    return value


def crossed(module: ModuleType, names: list[str] | None = None) -> dict[str, Any]:
    """The public names of a module, with functions that cross."""
    public = names or getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in public}
    return {name: crossing(value) if _is_function(value) else value for name, value in found.items()}


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)
