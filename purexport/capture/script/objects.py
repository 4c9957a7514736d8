"""What a script does with lists, dicts, strings and other objects: Python, by the names that TorchScript uses.

Each row takes the operands as they are (lists are shared, not copied) and returns the result.  Elements may be values
of the graph; a row never looks into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport.aten.graph import Value
from purexport.errors import ExportError


def _equal(one: Any, other: Any) -> bool:
    """Equality of lists and texts; sizes that are equal by their symbols are one value."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return False
        same = [mine is theirs or _equal(mine, theirs) for mine, theirs in zip(one, other, strict=True)]
        return all(same)
    if isinstance(one, Value) or isinstance(other, Value):
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


def _get(items: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return items.get(key, default)


def _range_length(start: int, stop: int, step: int) -> int:
    return len(range(start, stop, step))


def _derive_index(index: int, start: int, step: int) -> int:
    return start + index * step


def _format(template: str, *operands: Any) -> str:
    return template.format(*operands)


STRUCTURAL: dict[str, Callable[..., Any]] = {
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::insert": _insert,
    "aten::pop": _pop,
    "aten::popitem": lambda items: items.popitem(),
    "aten::clear": lambda items: items.clear(),
    "aten::reverse": lambda items: items.reverse(),
    "aten::copy": lambda items: items.copy() if isinstance(items, dict) else list(items),
    "aten::add_": _extended,
    "aten::sort": lambda items, reverse=False: items.sort(reverse=reverse),
    "aten::sorted": sorted,
    "aten::remove": lambda items, item: items.remove(item),
    "aten::index": lambda items, item: items.index(item),
    "aten::count": lambda items, item: items.count(item),
    "aten::setdefault": lambda items, key, default: items.setdefault(key, default),
    "aten::sum": sum,
    "aten::list": list,
    "aten::dict": dict,
    "aten::len": len,
    "aten::__getitem__": lambda items, key: items[key],
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::slice": _slice,
    "aten::get": _get,
    "aten::keys": lambda items: list(items.keys()),
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "aten::update": lambda items, more: items.update(more),
    "aten::__contains__": lambda items, key: key in items,
    "aten::add": lambda one, other: one + other,
    "aten::mul": lambda one, other: one * other,
    "aten::eq": _equal,
    "aten::ne": lambda one, other: not _equal(one, other),
    "aten::format": _format,
    "aten::join": lambda glue, items: glue.join(items),
    "aten::split": lambda text, separator=None, limit=-1: text.split(separator, limit),
    "aten::startswith": lambda text, start, *_: text.startswith(start),
    "aten::endswith": lambda text, end, *_: text.endswith(end),
    "aten::lower": lambda text: text.lower(),
    "aten::upper": lambda text: text.upper(),
    "aten::strip": lambda text, chars=None: text.strip(chars),
    "aten::replace": lambda text, old, new, count=-1: text.replace(old, new, count),
    "aten::str": str,
    "aten::__range_length": _range_length,
    "aten::__derive_index": _derive_index,
    "aten::__is__": lambda one, other: one is other,
    "aten::__isnot__": lambda one, other: one is not other,
}

_CHANGE = "append extend insert pop popitem clear reverse _set_item Delete update add_ sort remove setdefault"
CHANGING = frozenset(f"aten::{name}" for name in _CHANGE.split())
_ON_NUMBERS = frozenset({"aten::__range_length", "aten::__derive_index", "aten::str"})


def is_structural(kind: str, operands: list[Any]) -> bool:
    """True when the operator works on objects here, not on tensors or numbers of the graph."""
    if kind not in STRUCTURAL or not operands:
        return False
    if kind in ("aten::__is__", "aten::__isnot__"):
        return True
    if kind in _ON_NUMBERS:
        return not any(isinstance(operand, Value) for operand in operands)
    return isinstance(operands[0], (list, tuple, dict, str))
