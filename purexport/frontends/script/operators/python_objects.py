"""Operators on lists of known length, tuples, dicts and strings: Python functions under TorchScript's names.

Each row takes the operands as they are (lists are not copied) and returns the result.  Elements may be values of the
graph.  Invariant: a row never reads such values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport.aten.graph import AtenValue
from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import PYTHON, Handler, Handlers, ScriptNode
from purexport.frontends.script.values import Raised

handles = Handlers()


def _equal(one: Any, other: Any) -> bool:
    """Equality of lists and strings; sizes with equal expressions are one value."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return False
        same = [mine is theirs or _equal(mine, theirs) for mine, theirs in zip(one, other, strict=True)]
        return all(same)
    if isinstance(one, AtenValue) or isinstance(other, AtenValue):
        if one is other:
            return True
        raise ExportError(
            "the script compares sizes that may or may not be equal when the model runs", code="sizes-compared"
        )
    return bool(one == other)


def _append(items: list[Any], item: Any) -> list[Any]:
    items.append(item)
    return items


def _extend(items: list[Any], more: list[Any]) -> None:
    items.extend(more)


def _extended(items: list[Any], more: list[Any]) -> list[Any]:
    items.extend(more)
    return items


def _insert(items: list[Any], index: int, item: Any) -> None:
    items.insert(index, item)


def _set_item(items: Any, key: Any, item: Any) -> Any:
    items[key] = item
    return items


def _delete(items: Any, key: Any) -> None:
    del items[key]


def _slice(items: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[start:end:step]


def _pop(items: Any, *key: Any) -> Any:
    return items.pop(*key)


def _popitem(items: dict[Any, Any]) -> tuple[Any, Any]:
    """The first item, where Python takes the last."""
    key = next(iter(items))
    return key, items.pop(key)


def _get(items: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return items.get(key, default)


def _format(template: str, *operands: Any) -> str:
    return template.format(*operands)


# operators that change their first operand
_CHANGES: dict[str, Callable[..., Any]] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "popitem": _popitem,
    "clear": lambda items: items.clear(),
    "reverse": lambda items: items.reverse(),
    "add_": _extended,
    "sort": lambda items, reverse=False: items.sort(reverse=reverse),
    "remove": lambda items, item: items.remove(item),
    "setdefault": lambda items, key, default: items.setdefault(key, default),
    "_set_item": _set_item,
    "Delete": _delete,
    "update": lambda items, more: items.update(more),
}
# operators that change nothing
_READS: dict[str, Callable[..., Any]] = {
    "copy": lambda items: items.copy() if isinstance(items, dict) else list(items),
    "sorted": sorted,
    "index": lambda items, item: items.index(item),
    "count": lambda items, item: items.count(item),
    "sum": sum,
    "list": list,
    "dict": dict,
    "len": len,
    "__getitem__": lambda items, key: items[key],
    "slice": _slice,
    "get": _get,
    "keys": lambda items: list(items.keys()),
    "values": lambda items: list(items.values()),
    "items": lambda items: list(items.items()),
    "__contains__": lambda items, key: key in items,
    "add": lambda one, other: one + other,
    "mul": lambda one, other: one * other,
    "eq": _equal,
    "ne": lambda one, other: not _equal(one, other),
    "format": _format,
    "join": lambda glue, items: glue.join(items),
    "split": lambda text, separator=None, limit=-1: text.split(separator, limit),
    "startswith": lambda text, start, *_: text.startswith(start),
    "endswith": lambda text, end, *_: text.endswith(end),
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "strip": lambda text, chars=None: text.strip(chars),
    "replace": lambda text, old, new, count=-1: text.replace(old, new, count),
}


def _python(function: Callable[..., Any], *, changes: bool) -> Handler:
    """The handler that runs a Python function; with `changes` the function changes its first operand."""

    def handler(machine: Machine, node: ScriptNode, *operands: Any) -> Any:
        if isinstance(operands[0], dict) and len(operands) > 1 and isinstance(operands[1], AtenValue):
            raise ExportError(
                f"{node.kind} at {node.source} takes a key that depends on data; ONNX has no dicts, use a tensor",
                code="data-dependent",
            )
        if changes:
            machine.touch(operands[0], node.source)
        try:
            return function(*operands)
        except (IndexError, KeyError) as error:
            raise Raised(node.source, f"{type(error).__name__}: {error}") from error
        except TypeError as error:
            raise ExportError(
                f"{node.kind} at {node.source} depends on data in a way that has no form in ONNX: {error}",
                code="data-dependent",
            ) from error

    return handler


for _name, _function in _CHANGES.items():
    handles.add(PYTHON, f"aten::{_name}", _python(_function, changes=True))
for _name, _function in _READS.items():
    handles.add(PYTHON, f"aten::{_name}", _python(_function, changes=False))
