"""Lists of messages, some of which are still bytes: read when somebody looks at them, copied when nobody did.

Strategy: an `Unread` stands in the slot of a repeated field until its list is asked for: frames (messages that are
plain, as `plain` has it, each behind its tag and length) as one bytes object, between them what was decoded at once.
The list is then a list of the single frames. One that is taken out becomes a message, and stays that message; whoever
walks the list, or changes more than its end, reads all of it first, and it is an ordinary list from then on. What is
written of a list (`stored`) is messages and the frames between them.

Invariants: frames are exactly what the encoder writes, so copying them changes nothing. All who hold an `Unread` get
one and the same list, and all who take an element get the same message, in whichever thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from operator import index
from threading import RLock
from typing import Any, ClassVar, TypeVar, cast

from proto_schema.wire.collection import paused_collection
from proto_schema.wire.records import dataclass

M = TypeVar("M")
_MANY = 1 << 10  # messages: Python's collector rests while so many are made
SHORTEST = 1 << 14  # bytes of messages that are worth it: fewer are decoded at once


class MessageList(list[M]):
    """The list of a repeated field of messages: a list that also has protobuf's `add`."""

    __slots__ = ("_lock",)
    _lock: RLock  # only where some of it is unread
    MAKE: ClassVar[Callable[..., Any]]

    def add(self, **fields: Any) -> M:
        """Append a new message with these fields, and return it."""
        made = cast("M", type(self).MAKE(**fields))
        self.append(made)
        return made

    def __reduce__(self) -> tuple[type[list[M]], tuple[list[M]]]:
        return list, (list(self),)


def _reading_other(name: str) -> Any:
    """The method of a list, which looks into another list past its methods."""
    plain = getattr(list, name)

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, UnreadList):
            other.read()
        return plain(self, other)

    return method


for _name in ("__add__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"):
    setattr(MessageList, _name, _reading_other(_name))
MessageList.__hash__ = None


class UnreadList(MessageList[M]):
    """A list in which some messages are still frames. Its class becomes `KIND.read_class` when all of it is read."""

    __slots__ = ()
    KIND: ClassVar[FieldKind]

    def read(self) -> None:
        """Makes messages of all that is bytes; the list is an ordinary one then."""
        with self._lock:
            if isinstance(self, UnreadList):
                frame = self.KIND.reader()
                with paused_collection(len(self) >= _MANY):
                    inside: Iterator[Any] = list.__iter__(self)
                    items = [frame(item) if item.__class__ is bytes else item for item in inside]
                list.__setitem__(self, slice(None), items)
                self.__class__ = self.KIND.read_class  # type: ignore[assignment]

    def raw(self) -> list[Any]:
        """The messages and frames as they are now."""
        with self._lock:
            return list.__getitem__(self, slice(None))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            self.read()
            return list.__getitem__(self, at)
        with self._lock:
            item: Any = list.__getitem__(self, at)
            if item.__class__ is bytes and isinstance(self, UnreadList):
                item = self.KIND.reader()(item)
                place = index(at)
                list.__setitem__(self, place + len(self) if place < 0 else place, item)
            return item

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice) or value.__class__ is bytes:
            self.read()
        with self._lock:
            list.__setitem__(self, at, value)

    def append(self, item: Any) -> None:
        """Add to the end."""
        if item.__class__ is bytes:  # a mistake, which the encoder will refuse
            self.read()
        list.append(self, item)

    def __radd__(self, other: Any) -> Any:
        self.read()
        return other + list(self)


def _reading_first(name: str) -> Any:
    """The method of a list of messages, of one that is read."""
    plain = getattr(MessageList, name)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        self.read()
        return plain(self, *args, **named)

    return method


for _name in (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__gt__", "__iadd__", "__imul__", "__iter__"),
    *("__le__", "__lt__", "__mul__", "__ne__", "__repr__", "__reversed__", "__rmul__"),
    *("clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(UnreadList, _name, _reading_first(_name))


@dataclass(frozen=True)
class FieldKind:
    """One repeated field: the two classes of its lists, and the function that makes a message of a frame."""

    read_class: type[MessageList[Any]]
    unread_class: type[UnreadList[Any]]
    shortest: int  # bytes: fewer are read together when their list is asked for
    reader: Callable[[], Callable[[bytes], Any]]  # makes that function when it is first needed


class Frames:
    """Some frames in a row, as `stored` hands them out."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Unread:
    """The messages of a repeated field: bytes are frames of many, all else was decoded at once."""

    __slots__ = ("_made", "kind", "parts")

    def __init__(self, kind: FieldKind, parts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.parts = parts
        self._made: dict[str, MessageList[Any]] = {}

    def values(self) -> MessageList[Any]:
        """The list, which is the truth from now on; the same one for all callers, in whichever thread."""
        return self._made.get("list") or self._made.setdefault("list", self._list())

    def _list(self) -> MessageList[Any]:
        few = sum(len(part) for part in self.parts if part.__class__ is bytes) < self.kind.shortest
        frame = self.kind.reader()
        items: list[Any] = []
        for part in self.parts:
            if part.__class__ is not bytes:
                items.append(part)
            elif few:
                items += [frame(part[start:stop]) for start, stop in pairwise(borders(part))]
            else:
                items += [part[start:stop] for start, stop in pairwise(borders(part))]
        return self.kind.read_class(items) if few else _unread(self.kind, items)

    def append(self, message: Any) -> None:
        self.values().append(message)

    def __len__(self) -> int:
        if self._made:
            return len(self._made["list"])
        return sum(len(borders(part)) - 1 if part.__class__ is bytes else 1 for part in self.parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __getitem__(self, at: Any) -> Any:
        return self.values()[at]

    def __eq__(self, other: object) -> bool:
        """As lists are equal."""
        if not isinstance(other, Unread):
            return self.values() == other
        if not (self._made or other._made) and self.parts == other.parts:
            return True
        return self.values() == other.values()

    __hash__ = None  # type: ignore[assignment]


def _unread(kind: FieldKind, items: Iterable[Any]) -> UnreadList[Any]:
    made = kind.unread_class(items)
    made._lock = RLock()
    return made


def borders(data: bytes) -> list[int]:
    """Where each frame begins, and where the last one ends. A frame has a tag of one byte, a length of one or two."""
    found = [0]
    at, end = 0, len(data)
    while at < end:
        size = data[at + 1]
        at += size + 2 if size < 128 else size + (data[at + 2] << 7) - 125
        found.append(at)
    return found


def each(items: Any, change: Callable[[Any], Any]) -> Any:
    """For the slot of a repeated field: what `change` makes of its messages; frames stay as they are."""
    if isinstance(items, Unread):
        if not items._made:
            return Unread(
                items.kind, tuple([part if part.__class__ is bytes else change(part) for part in items.parts])
            )
        items = items.values()
    if isinstance(items, UnreadList):
        return _unread(items.KIND, [item if item.__class__ is bytes else change(item) for item in items.raw()])
    return [change(item) for item in items]


def stored(items: Any) -> Iterable[Any]:
    """What is written of a repeated field: messages, and `Frames` of what nobody has read."""
    if items.__class__ is Unread:
        if not items._made:
            return [Frames(part) if part.__class__ is bytes else part for part in items.parts]
        items = items.values()
    return _together(items.raw()) if isinstance(items, UnreadList) else items


def _together(items: list[Any]) -> Iterator[Any]:
    """Frames that follow each other as one."""
    some: list[bytes] = []
    for item in items:
        if item.__class__ is bytes:
            some.append(item)
            continue
        if some:
            yield Frames(b"".join(some))
            some = []
        yield item
    if some:
        yield Frames(b"".join(some))


__all__ = ["FieldKind", "Frames", "MessageList", "Unread", "UnreadList", "borders", "each", "stored"]
