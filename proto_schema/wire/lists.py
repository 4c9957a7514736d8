"""Lists of messages, some of which are still bytes: read when somebody looks at them, copied when nobody did.

Strategy: an `Unread` stands in the slot of a repeated field until its list is asked for: `Frames` (messages that are
plain, as `plain` has it, each behind its tag and length, as one bytes object), between them what was decoded at once.
The list then has an int for each frame, the place where it begins in the bytes of all. One that is taken out becomes a
message, and stays that message; whoever walks the list, or changes more than its end, reads all of it first, and it is
an ordinary list from then on. What is written of a list (`stored`) is messages and the frames between them.

Invariants: frames are exactly what the encoder writes, so copying them changes nothing. All who hold an `Unread` get
one and the same list, and all who take an element get the same message, in whichever thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import index
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast
from weakref import ref

from proto_schema.wire.collection import paused_collection
from proto_schema.wire.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

M = TypeVar("M")
_MANY = 1 << 10  # messages: Python's collector rests while so many are made
_SOME = 32  # lists of a field that are made one by one, before those of all messages are
SHORTEST = 1 << 14  # bytes of messages that are worth it: fewer are decoded at once


class UnreadBytes:
    """The bytes of what is unread in a list, and the lock of those who read them."""

    __slots__ = ("data", "lock")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lock = RLock()


class MessageList(list[M]):
    """The list of a repeated field of messages: a list that also has protobuf's `add`."""

    __slots__ = ("__weakref__", "_source")
    _source: UnreadBytes  # only where some of it is unread
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
    """A list in which ints are places of frames. Its class becomes `KIND.read_class` when all of it is read."""

    __slots__ = ()
    KIND: ClassVar[FieldKind]

    def read(self) -> None:
        """Makes messages of all that is bytes; the list is an ordinary one then."""
        with self._source.lock:
            if isinstance(self, UnreadList):
                read = self.KIND.reader()
                items: list[Any] = []
                siblings = Siblings(self)
                with paused_collection(len(self) >= _MANY):
                    for part in runs(self._source.data, self.raw()):
                        items += read(part, part.decode("latin-1"), siblings) if part.__class__ is bytes else part
                list.__setitem__(self, slice(None), items)
                self.__class__ = self.KIND.read_class  # type: ignore[assignment]
                self._source.data = b""

    def raw(self) -> list[Any]:
        """The messages and places of frames as they are now."""
        with self._source.lock:
            return list.__getitem__(self, slice(None))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            self.read()
            return list.__getitem__(self, at)
        with self._source.lock:
            item: Any = list.__getitem__(self, at)
            if item.__class__ is int and isinstance(self, UnreadList):
                data = self._source.data
                frame = data[item : frame_end(data, item)]
                item = self.KIND.reader()(frame, frame.decode("latin-1"), None)[0]
                place = index(at)
                list.__setitem__(self, place + len(self) if place < 0 else place, item)
            return item

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice) or value.__class__ is int:  # which the encoder will refuse
            self.read()
        with self._source.lock:
            list.__setitem__(self, at, value)

    def append(self, item: Any) -> None:
        """Add to the end."""
        if item.__class__ is int:  # a mistake, which the encoder will refuse
            self.read()
        with self._source.lock:
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
    """One repeated field: the two classes of its lists, and the function that makes messages of frames in a row."""

    read_class: type[MessageList[Any]]
    unread_class: type[UnreadList[Any]]
    shortest: int  # bytes: fewer are read together when their list is asked for
    reader: Callable[[], Callable[[bytes, str, Siblings | None], list[Any]]]  # makes it: bytes, as Latin-1 text


class Siblings:
    """Of the messages of a list that were read together: how many were asked for the list of a field."""

    __slots__ = ("asked", "owner")

    def __init__(self, owner: MessageList[Any]) -> None:
        self.owner = ref(owner)
        self.asked: dict[str, int] = {}

    def to_fill(self, name: str) -> list[Any]:
        """The messages whose lists are to be made now: those of all, when some were asked for."""
        count = self.asked[name] = self.asked.get(name, 0) + 1
        return list(self.owner() or ()) if count == _SOME else []


class Frames:
    """Some frames in a row; places: where each begins and the last one ends, if somebody may ask."""

    __slots__ = ("data", "places")

    def __init__(self, data: bytes, places: Any = None) -> None:
        self.data = data
        self.places = places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frames) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]


class Unread:
    """The messages of a repeated field: `Frames` of many, all else was decoded at once."""

    __slots__ = ("_made", "kind", "parts")

    def __init__(self, kind: FieldKind, parts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.parts = parts
        self._made: dict[str, MessageList[Any]] = {}

    def values(self) -> MessageList[Any]:
        """The list, which is the truth from now on; the same one for all callers, in whichever thread."""
        return self._made.get("list") or self._made.setdefault("list", self._list())

    def _list(self) -> MessageList[Any]:
        items: list[Any] = []
        data: list[bytes] = []
        size = 0
        for part in self.parts:
            if part.__class__ is Frames:
                items += (part.places[:-1] + size).tolist()
                data.append(part.data)
                size += len(part.data)
            else:
                items.append(part)
        made = _unread(self.kind, items, b"".join(data))
        if size < self.kind.shortest:
            made.read()
        return made

    def append(self, message: Any) -> None:
        self.values().append(message)

    def __len__(self) -> int:
        if self._made:
            return len(self._made["list"])
        return sum(len(part.places) - 1 if part.__class__ is Frames else 1 for part in self.parts)

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


def _unread(kind: FieldKind, items: Iterable[Any], data: bytes) -> UnreadList[Any]:
    made = kind.unread_class(items)
    made._source = UnreadBytes(data)
    return made


def frame_end(data: bytes, at: int) -> int:
    """Where the frame that begins here ends. It has a tag of one byte and a length of one or two."""
    size = data[at + 1]
    return at + size + 2 if size < 128 else at + size + (data[at + 2] << 7) - 125


def runs(data: bytes, items: list[Any]) -> Iterator[Any]:
    """Of messages and places: lists of the messages, and bytes of the frames, that follow each other."""
    if set(map(type, items)) == {int}:
        yield data
        return
    for frames, group in groupby(items, lambda item: item.__class__ is int):
        some = list(group)
        yield data[some[0] : frame_end(data, some[-1])] if frames else some


def each(items: Any, change: Callable[[Any], Any]) -> Any:
    """For the slot of a repeated field: what `change` makes of its messages; frames stay as they are."""
    if isinstance(items, Unread):
        if not items._made:
            parts = [part if part.__class__ is Frames else change(part) for part in items.parts]
            return Unread(items.kind, tuple(parts))
        items = items.values()
    if isinstance(items, UnreadList):
        with items._source.lock:
            if isinstance(items, UnreadList):
                copied = [item if item.__class__ is int else change(item) for item in items.raw()]
                return _unread(items.KIND, copied, items._source.data)
    return [change(item) for item in items]


def stored(items: Any) -> Iterable[Any]:
    """What is written of a repeated field: messages, and `Frames` of what nobody has read."""
    if items.__class__ is Unread:
        if not items._made:
            return items.parts
        items = items.values()
    if not isinstance(items, UnreadList):
        return items  # type: ignore[no-any-return]
    with items._source.lock:
        data = items._source.data
        return _written(data, items.raw()) if isinstance(items, UnreadList) else items


def _written(data: bytes, items: list[Any]) -> Iterator[Any]:
    for part in runs(data, items):
        if part.__class__ is bytes:
            yield Frames(part)
        else:
            yield from part


__all__ = ["FieldKind", "Frames", "MessageList", "Unread", "UnreadList", "each", "runs", "stored"]
