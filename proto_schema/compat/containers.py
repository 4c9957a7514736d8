"""Repeated fields with protobuf's manners, over the plain lists of the core messages.

A container keeps the list itself, so that it and every other container of the same field show the same items. Before it
adds to the list it makes the message that owns the field part of its parent, where it was only read so far.
What is put in is copied, as protobuf does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import Any

from proto_schema.compat.assigning import Check, shown
from proto_schema.wire.fields import Field, Message

_ARRAYS = {"int32": "i4", "int64": "i8", "uint64": "u8", "float": "f4", "double": "f8"}  # kind -> type in numpy


class _Repeated(MutableSequence[Any]):
    """What both kinds of repeated fields have."""

    __slots__ = ("_field", "_items", "_owner")

    def __init__(self, owner: Any, field: Field) -> None:
        self._owner = owner
        self._field = field
        self._items: list[Any] = getattr(owner._core, field.name)

    def _touch(self) -> None:
        self._owner.SetInParent()

    def __len__(self) -> int:
        return len(self._items)

    def __delitem__(self, at: Any) -> None:
        del self._items[at]

    def clear(self) -> None:
        self._items.clear()

    def reverse(self) -> None:
        self._items.reverse()

    def __repr__(self) -> str:
        return repr(list(self))

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> list[Any]:
        return list(self)

    def __reduce__(self) -> Any:
        raise TypeError(f"the repeated field {self._field.name} cannot be pickled; pickle its message or list(...)")


class RepeatedScalars(_Repeated):
    """A repeated field of numbers, text or bytes."""

    __slots__ = ("_check",)

    def __init__(self, owner: Any, field: Field, check: Check) -> None:
        super().__init__(owner, field)
        self._check = check

    def __getitem__(self, at: Any) -> Any:
        found = self._items[at]
        return [shown(self._field, item) for item in found] if isinstance(at, slice) else shown(self._field, found)

    def __setitem__(self, at: Any, value: Any) -> None:
        checked = list(map(self._check, value)) if isinstance(at, slice) else self._check(value)
        self._items[at] = checked
        self._touch()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """An array of the field's own type."""
        import numpy as np

        own = _ARRAYS.get(self._field.kind.name)
        return np.array(self._items, dtype=own if dtype is None else dtype)

    def insert(self, index: int, value: Any) -> None:
        self._items.insert(index, self._check(value))
        self._touch()

    def append(self, value: Any) -> None:
        self._items.append(self._check(value))
        self._touch()

    def extend(self, values: Iterable[Any] | None) -> None:
        if values is None:  # protobuf lets it pass
            return
        checked = list(map(self._check, values))
        self._items.extend(checked)
        self._touch()

    def MergeFrom(self, other: Iterable[Any]) -> None:  # noqa: N802
        """Appends the items of another container."""
        self.extend(other)

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        self._items.sort(key=key, reverse=reverse)

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RepeatedScalars):
            return self._items == other._items
        return self._items == other if isinstance(other, list) else NotImplemented

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return list(self._items)


class RepeatedMessages(_Repeated):
    """A repeated field of messages: made by `add`, copied in by the others."""

    __slots__ = ("_kind",)

    def __init__(self, owner: Any, field: Field, kind: Any) -> None:
        super().__init__(owner, field)
        self._kind = kind

    def _copied(self, value: Any) -> Message:
        copied: Message = self._kind._core_of(value, "append").__deepcopy__({})
        return copied

    def __getitem__(self, at: Any) -> Any:
        found = self._items[at]
        return list(map(self._kind._over, found)) if isinstance(at, slice) else self._kind._over(found)

    def __setitem__(self, at: Any, value: Any) -> None:
        raise TypeError(f"the items of the repeated field {self._field.name} cannot be assigned; use CopyFrom on one")

    def __iter__(self) -> Iterator[Any]:
        return map(self._kind._over, self._items)

    def add(self, **values: Any) -> Any:
        """A new item at the end, made of these fields."""
        made = self._kind(**values)
        self._items.append(made._core)
        self._touch()
        return made

    def insert(self, index: int, value: Any) -> None:
        self._items.insert(index, self._copied(value))
        self._touch()

    def append(self, value: Any) -> None:
        self._items.append(self._copied(value))
        self._touch()

    def extend(self, values: Iterable[Any] | None) -> None:
        if values is None:
            return
        copied = [self._copied(value) for value in values]
        self._items.extend(copied)
        self._touch()

    def MergeFrom(self, other: Iterable[Any]) -> None:  # noqa: N802
        """Appends copies of the items of another container."""
        self.extend(other)

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        if key is None:
            raise TypeError(f"messages have no order: sorting the field {self._field.name} needs a key")
        over = self._kind._over
        self._items.sort(key=lambda item: key(over(item)), reverse=reverse)

    def pop(self, index: int = -1) -> Any:
        return self._kind._over(self._items.pop(index))

    def remove(self, value: Any) -> None:
        self._items.remove(self._kind._core_of(value, "remove"))

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RepeatedMessages):
            return self._items == other._items
        return list(self) == other if isinstance(other, list) else NotImplemented

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [self._kind._over(item.__deepcopy__(memo)) for item in self._items]
