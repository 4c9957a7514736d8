"""How a message is declared: once, as a class with annotations; everything else derives from that.

    class NodeProto(Message):
        input: list[str] = repeated(1, STRING)
        name: str | None = optional(3, STRING)
        attribute: list[AttributeProto] = repeated(5, "AttributeProto")

Invariants: a class has exactly its fields and `unknown_fields` as attributes, so a misspelt name is an AttributeError.
`None` is an absent field (proto2 presence), a repeated field is always a list, and of a oneof at most one member is not
None: assigning one clears the others. Assigning a message stores it, never a copy. A list of messages also has `add`,
so what is assigned to it is copied into one.
A repeated field lies in the slot `_name`, which is None until its list is first asked for: most lists of most messages
are never used, and empty ones would be most of the memory, and nearly all the work of the garbage collector. Thousands
of numbers lie there as the `Run` that they were decoded to, until their list is asked for; thousands of messages as
`Unread`. In a message that was read on demand a list is a str, the bytes of its values with their tags (Latin-1).
Functions per class (constructor, codec) are compiled on first use; importing a schema compiles nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from proto_schema.external.payload import contiguous
from proto_schema.wire import I32, I64, LEN, VARINT
from proto_schema.wire.lists import MessageList, Unread, each
from proto_schema.wire.records import dataclass
from proto_schema.wire.runs import Form, Run
from proto_schema.wire.slots import list_property

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda cls: cls


T = TypeVar("T")
M = TypeVar("M", bound="Message")


class Enum(IntEnum):
    """An enum of the schema: a Python IntEnum that also answers to the names that protobuf's enums have."""

    @classmethod
    def Name(cls, number: int) -> str:  # noqa: N802
        """The name of a number. ValueError if it has none."""
        return cls(number).name

    @classmethod
    def Value(cls, name: str) -> int:  # noqa: N802
        """The number of a name. ValueError where there is none."""
        if name not in cls.__members__:
            raise ValueError(f"{cls.__qualname__} has no value {name!r}")
        return int(cls.__members__[name])

    @classmethod
    def keys(cls) -> list[str]:
        """All names, in the order of declaration."""
        return list(cls.__members__)

    @classmethod
    def values(cls) -> list[int]:
        """All numbers, in the order of declaration."""
        return [int(member) for member in cls.__members__.values()]

    @classmethod
    def items(cls) -> list[tuple[str, int]]:
        """(name, number) of each, in the order of declaration."""
        return list(zip(cls.keys(), cls.values(), strict=True))


@dataclass(frozen=True)
class FieldType:
    """What a field holds: its name in the schema language, and the wire type of one value."""

    name: str
    wire_type: int


INT32, INT64, UINT64 = FieldType("int32", VARINT), FieldType("int64", VARINT), FieldType("uint64", VARINT)
FLOAT, DOUBLE = FieldType("float", I32), FieldType("double", I64)
STRING, BYTES = FieldType("string", LEN), FieldType("bytes", LEN)
PAYLOAD = FieldType("payload", LEN)  # bytes on the wire; decoded to a view of the input, encoded without a copy
ENUM, MESSAGE = FieldType("enum", VARINT), FieldType("message", LEN)


@dataclass(frozen=True)
class Field:
    """One row of the field table. `enum` is set for an ENUM, `message` (a dotted class name) for a MESSAGE."""

    name: str
    number: int
    kind: FieldType
    repeated: bool = False
    packed: bool = False
    oneof: str | None = None
    enum: type[IntEnum] | None = None
    message: str | None = None

    @property
    def slot(self) -> str:
        """The attribute in which the value lies: for a repeated field None may stand for an empty list there."""
        return f"_{self.name}" if self.repeated else self.name

    @property
    def tag(self) -> int:
        """The tag that the encoder writes: field number << 3 | wire type."""
        return self.number << 3 | (LEN if self.packed else self.kind.wire_type)

    @property
    def form(self) -> Form | None:
        """How runs of the field are written; None for a field that has none."""
        number = self.number << 3
        if not self.repeated or number > 127 or self.kind in (STRING, PAYLOAD, ENUM, MESSAGE):
            return None
        return Form(self.kind.name, number | self.kind.wire_type, self.packed)


@dataclass(frozen=True)
class _Row:
    """A field before its name is known."""

    number: int
    kind: FieldType | type[IntEnum] | str
    repeated: bool
    packed: bool
    oneof: str | None

    def named(self, name: str) -> Field:
        make = partial(Field, name, self.number, repeated=self.repeated, packed=self.packed, oneof=self.oneof)
        if isinstance(self.kind, FieldType):
            return make(kind=self.kind)
        if isinstance(self.kind, str):
            return make(kind=MESSAGE, message=self.kind)
        return make(kind=ENUM, enum=self.kind)


def optional(number: int, kind: FieldType | type[IntEnum] | str, *, oneof: str | None = None) -> Any:
    """A field that is there or not. `kind`: a Kind, an IntEnum (closed), or the dotted name of a message class."""
    return _Row(number, kind, False, False, oneof)


def repeated(number: int, kind: FieldType | type[IntEnum] | str, *, packed: bool = False) -> Any:
    """A list. `packed` says how numbers are written; both forms are read."""
    return _Row(number, kind, True, packed, None)


if TYPE_CHECKING:  # what type checkers know of a field: what reading it gives, and what may be assigned

    class Messages(Generic[M]):
        """A repeated field of messages."""

        def __get__(self, message: object, owner: type | None = None) -> MessageList[M]: ...

        def __set__(self, message: object, value: Iterable[M] | None) -> None: ...

    class Assumed(Generic[M]):
        """An optional message that nearly every file has, so that programs do not ask whether it is there."""

        def __get__(self, message: object, owner: type | None = None) -> M: ...

        def __set__(self, message: object, value: M | None) -> None: ...


class MessageType(type):
    """Turns the declared rows into slots and `FIELDS`, and the values of nested enums into class constants."""

    FIELDS: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> MessageType:
        if any(getattr(base, "FIELDS", ()) for base in bases):
            raise TypeError(f"{bases[0].__qualname__} is a message, and messages cannot be subclassed")
        rows = {key: value for key, value in space.items() if isinstance(value, _Row)}
        table = sorted((row.named(key) for key, row in rows.items()), key=lambda field: field.number)
        for key in rows:
            del space[key]
        beside = ("_siblings",) if space.get("ON_DEMAND") else ()  # only where some list is text
        space["__slots__"] = (*space.get("__slots__", ()), *[field.slot for field in table], *beside)
        space["FIELDS"] = tuple(table)
        space.update((field.name, list_property(field)) for field in table if field.repeated)
        if any(field.oneof for field in table):
            space["__setattr__"] = _exclusive_setattr(tuple(table))
        for enum in [value for value in space.values() if isinstance(value, type) and issubclass(value, IntEnum)]:
            space.update((member.name, int(member)) for member in enum)
        return super().__new__(mcs, name, bases, space)

    if TYPE_CHECKING:  # the constants of nested enums: ps.TensorProto.FLOAT

        def __getattr__(cls, name: str) -> int: ...


def _exclusive_setattr(table: tuple[Field, ...]) -> Callable[[Any, str, Any], None]:
    rivals = {
        field.name: tuple(f.name for f in table if f.oneof == field.oneof and f is not field)
        for field in table
        if field.oneof
    }

    def assign(self: Any, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if value is not None:
            for rival in rivals.get(name, ()):
                object.__setattr__(self, rival, None)

    return assign


@dataclass_transform(kw_only_default=True)
class Message(metaclass=MessageType):
    """A message with protobuf's familiar methods. `unknown_fields` holds the raw bytes of fields not in the table."""

    __slots__ = ("unknown_fields",)
    FIELDS: ClassVar[tuple[Field, ...]]
    NOTES: ClassVar[tuple[str, ...]] = ()  # slots beside the fields, which go along with copies; unset until used
    ALIKE: ClassVar[bool] = False  # whether files hold many of these with the same few bytes: they are decoded once
    ON_DEMAND: ClassVar[bool] = False  # whether long lists of these are read when somebody looks at them
    unknown_fields: bytes

    if not TYPE_CHECKING:  # for type checkers dataclass_transform makes the signature from the annotations

        def __init__(self, **values: Any) -> None:
            from proto_schema.wire.generate import constructor

            cls = type(self)
            cls.__init__ = constructor(cls)
            cls.__init__(self, **values)

    @classmethod
    def FromString(cls, data: Buffer) -> Self:  # noqa: N802
        """The message that `data` (any bytes-like) encodes; DecodeError where it does not."""
        from proto_schema.wire.codec import decode

        return decode(cls, data)

    def ParseFromString(self, data: Buffer) -> int:  # noqa: N802
        """Replaces this message by the one in `data` and returns the number of bytes; unchanged on DecodeError."""
        parsed = type(self).FromString(data)
        self._take(parsed)
        return memoryview(data).nbytes

    def MergeFromString(self, data: Buffer) -> int:  # noqa: N802
        """Merges the message in `data` into this one, as concatenated encodings would; unchanged on DecodeError."""
        self.MergeFrom(type(self).FromString(data))
        return memoryview(data).nbytes

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:  # noqa: N802
        """The encoding. Always deterministic. Raises EncodeError, which names the field, on a value of a wrong type."""
        from proto_schema.wire.codec import encode

        return encode(self)

    def SerializePartialToString(self, deterministic: bool | None = None) -> bytes:  # noqa: N802
        """The same as SerializeToString: ONNX has no required fields."""
        return self.SerializeToString()

    def ByteSize(self) -> int:  # noqa: N802
        """The number of bytes that SerializeToString would return, without encoding."""
        from proto_schema.wire.codec import size

        return size(self)

    def IsInitialized(self) -> bool:  # noqa: N802
        """True: ONNX has no required fields."""
        return True

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Whether an optional field, or any member of a oneof, is there. ValueError for any other name."""
        if field_of(type(self), name, repeated=False):
            return getattr(self, name) is not None
        return self.WhichOneof(name) is not None

    def WhichOneof(self, name: str) -> str | None:  # noqa: N802
        """The name of the member of the oneof `name` that is set, or None. ValueError where there is no such oneof."""
        members = [field.name for field in type(self).FIELDS if field.oneof == name]
        if not members:
            raise ValueError(f"{type(self).__qualname__} has no optional field or oneof {name!r}")
        return next((member for member in members if getattr(self, member) is not None), None)

    def ClearField(self, name: str) -> None:  # noqa: N802
        """Makes a field absent or empty; for a oneof, its set member. ValueError if there is no such field."""
        field = field_of(type(self), name)
        if field is None:
            member = self.WhichOneof(name)
            if member is not None:
                setattr(self, member, None)
        else:
            setattr(self, name, [] if field.repeated else None)

    def Clear(self) -> None:  # noqa: N802
        """Makes every field absent or empty, unknown ones too."""
        self._take(type(self)())

    def ListFields(self) -> list[tuple[Field, Any]]:  # noqa: N802
        """(field, value) of every field that is there, by ascending number."""
        return list(present(self))

    def CopyFrom(self, other: Self) -> None:  # noqa: N802
        """Makes this a deep copy of `other`; payloads are shared, not copied."""
        if other is not self:
            self._take(_copy(_same_type(self, other)))

    def MergeFrom(self, other: Self) -> None:  # noqa: N802
        """Scalars of `other` replace, lists are appended, messages are merged."""
        fresh = _copy(_same_type(self, other))
        for field, value in present(fresh):
            mine = getattr(self, field.name)
            if field.repeated:
                mine.extend(value)
            elif field.kind is MESSAGE and mine is not None:
                mine.MergeFrom(value)
            else:
                setattr(self, field.name, value)
        self.unknown_fields += fresh.unknown_fields

    def _take(self, other: Message) -> None:
        for field in type(self).FIELDS:
            object.__setattr__(self, field.slot, slot_value(other, field))
        for name in ("unknown_fields", *type(self).NOTES):
            if hasattr(other, name):
                object.__setattr__(self, name, getattr(other, name))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        same = all(_same(field, self, other) for field in type(self).FIELDS)
        return same and self.unknown_fields == other.unknown_fields

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        fresh = type(self)()
        fresh._take(self)
        return fresh

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return _copy(self)

    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]:
        return type(self).FromString, (self.SerializeToString(),)

    def __repr__(self) -> str:
        """The fields that are there; those that would be long are counted, so that it has a few lines at most."""
        shown = [f"{field.name}={short_text(field, value)}" for field, value in held(self)]
        if self.unknown_fields:
            shown.append(f"unknown_fields={_shown(self.unknown_fields)}")
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """The message as a table, for notebooks."""
        # what draws them knows all messages, and is loaded where a notebook asks
        drawn: str = import_module("proto_schema.notebook").message_html(self)
        return drawn

    def __dir__(self) -> list[str]:
        return [
            name
            for name in super().__dir__()
            if not name.startswith("_") and name not in ("ALIKE", "FIELDS", "NOTES", "ON_DEMAND")
        ]


def message_class(owner: type[Message], field: Field) -> type[Message]:
    """The class of a MESSAGE field of `owner`: its dotted name, looked up in the module that declares `owner`."""
    found: Any = sys.modules[owner.__module__]
    for step in (field.message or "").split("."):
        found = getattr(found, step)
    return cast("type[Message]", found)


@cache
def reachable(cls: type[Message]) -> frozenset[type[Message]]:
    """The class and every message class below it."""
    found: set[type[Message]] = set()
    todo = [cls]
    while todo:
        owner = todo.pop()
        if owner not in found:
            found.add(owner)
            todo += [message_class(owner, field) for field in owner.FIELDS if field.kind is MESSAGE]
    return frozenset(found)


def fields_to(cls: type[Message], target: type[Message]) -> list[Field]:
    """The fields of a class that hold `target`, directly or at some depth."""
    rows = [field for field in cls.FIELDS if field.kind is MESSAGE]
    return [field for field in rows if target in reachable(message_class(cls, field))]


def field_of(cls: type[Message], name: str, repeated: bool | None = None) -> Field | None:
    """The field called `name`, if the class has it (and it is repeated or not, as asked)."""
    found = next((field for field in cls.FIELDS if field.name == name), None)
    return None if found and repeated is not None and found.repeated is not repeated else found


def present(message: Message) -> Iterator[tuple[Field, Any]]:
    """(field, value) of every field that is there, by ascending number."""
    for field, value in held(message):
        yield field, getattr(message, field.name) if isinstance(value, (Run, Unread)) else value


def held(message: Message) -> Iterator[tuple[Field, Any]]:
    """As `present`, with runs as they are: what only looks at them makes no lists."""
    for field in type(message).FIELDS:
        value = slot_value(message, field)
        if value if field.repeated else value is not None:
            yield field, value


def slot_value(message: Message, field: Field) -> Any:
    """What lies in the slot of a field; a list that is text yet is made of it."""
    value = getattr(message, field.slot)
    return getattr(message, field.name) if field.repeated and value.__class__ is str else value


def listed(message: Message, name: str) -> Any:
    """The list of a repeated field for who only reads it: where there are no values, no list is made."""
    return getattr(message, name) if getattr(message, f"_{name}") else ()


def numbers(message: Message, name: str) -> Any:
    """The numbers of a repeated field for numpy: an array where no list was made of them yet, otherwise that list."""
    value = getattr(message, f"_{name}")
    return value.numbers() if isinstance(value, Run) else getattr(message, name)


_BYTES = (bytes, bytearray, memoryview)


def _same(field: Field, one: Message, other: Message) -> bool:
    """Whether a field has equal values; payloads by their bytes, whatever format a memoryview gives them."""
    mine, theirs = getattr(one, field.slot), getattr(other, field.slot)
    if field.repeated and (mine.__class__ is str or theirs.__class__ is str) and mine != theirs:
        mine, theirs = slot_value(one, field), slot_value(other, field)
    if field.kind is PAYLOAD and isinstance(mine, _BYTES) and isinstance(theirs, _BYTES):
        return contiguous(mine) == contiguous(theirs)
    return bool(mine == theirs or (field.repeated and not mine and not theirs))


def _same_type(mine: T, other: T) -> T:
    if type(other) is not type(mine):
        raise TypeError(f"a {type(mine).__qualname__} cannot take over a {type(other).__qualname__}")
    return other


def _copy(message: M) -> M:
    fresh = type(message)()
    for field in type(message).FIELDS:
        value = getattr(message, field.slot)
        if value if field.repeated else value is not None:
            object.__setattr__(fresh, field.slot, _copied(field, value))
    for name in ("unknown_fields", *type(message).NOTES):
        if hasattr(message, name):
            object.__setattr__(fresh, name, getattr(message, name))
    if type(message).ON_DEMAND:
        fresh._siblings = None  # type: ignore[attr-defined]
    return fresh


def _copied(field: Field, value: Any) -> Any:
    if value.__class__ is str:
        return value
    if field.kind is MESSAGE:
        return each(value, _copy) if field.repeated else _copy(value)
    return value.copied() if isinstance(value, Run) else list(value) if field.repeated else value


_MOST_ITEMS = 16  # of a list in a repr
_MOST_CHARACTERS = 160  # of a text, and of a message in a list
_ROOM = 300  # of a message in a field, and of a list of messages


def short_text(field: Field, value: Any) -> str:
    """The value of a field that is there, as a repr has it: bounded, whatever the file holds."""
    if field.kind is MESSAGE:
        return _messages(value) if field.repeated else _inner(value, _ROOM)
    if field.enum is not None and isinstance(value, int) and value in field.enum._value2member_map_:
        return field.enum(value).name
    return _shown(value)


def _messages(items: list[Any]) -> str:
    """As many of the items as have room, and how many more there are."""
    texts: list[str] = []
    for at in range(min(_MOST_ITEMS, len(items))):  # one by one: a slice would read all
        text = _inner(items[at], _MOST_CHARACTERS)
        if texts and sum(map(len, texts)) + len(text) > _ROOM:
            break
        texts.append(text)
    left = [f"... {len(items) - len(texts)} more"] if len(texts) < len(items) else []
    return f"[{', '.join([*texts, *left])}]"


def _inner(message: Any, room: int) -> str:
    """A message inside of another: in full where that has room, otherwise its name and how much is in it."""
    if not isinstance(message, Message):  # a mistake, which the encoder will refuse
        return _shown(message)
    name = type(message).__qualname__
    full = _in_full(message, room)
    if full is not None:
        return full
    named = [_cut(text) for text in [getattr(message, "name", None)] if isinstance(text, str)]
    counts = [
        f"{field.name}: {len(value)}" if field.repeated else field.name
        for field, value in held(message)
        if field.kind is MESSAGE or field.repeated
    ]
    return f"<{', '.join([' '.join([name, *named]), *counts])}>"


def _in_full(message: Any, room: int) -> str | None:
    """Every field of a message; None where that is longer than `room`, of which no more than that is made."""
    if not isinstance(message, Message):
        return _shown(message)
    name = type(message).__qualname__
    parts: list[str] = []
    left = room - len(name) - 2 - 30 * bool(message.unknown_fields)
    for field, value in held(message):
        if field.kind is not MESSAGE:
            text: str | None = short_text(field, value)
        elif field.repeated:
            if len(value) > left:
                return None
            texts: list[str] = []
            for item in value:
                inner = _in_full(item, left - sum(map(len, texts)))
                if inner is None:
                    return None
                texts.append(inner)
            text = f"[{', '.join(texts)}]"
        else:
            text = _in_full(value, left)
        if text is None:
            return None
        parts.append(f"{field.name}={text}")
        left -= len(parts[-1]) + 2
        if left < 0:
            return None
    if message.unknown_fields:
        parts.append(f"unknown_fields={_shown(message.unknown_fields)}")
    return f"{name}({', '.join(parts)})"


def _shown(value: Any) -> str:
    """A bounded repr of what is no message: long lists, texts and payloads say how much is left out."""
    if isinstance(value, (list, Run)):
        first = value.first(_MOST_ITEMS) if isinstance(value, Run) else value[:_MOST_ITEMS]
        items = [_shown(item) for item in first]
        if len(value) > _MOST_ITEMS:
            items.append(f"... {len(value) - _MOST_ITEMS} more")
        return f"[{', '.join(items)}]"
    if isinstance(value, (memoryview, bytes, bytearray)):
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        return repr(bytes(value)) if size <= 64 else f"<{size} bytes>"
    return _cut(value) if isinstance(value, str) else repr(value)


def _cut(text: str) -> str:
    left = len(text) - _MOST_CHARACTERS
    return repr(text) if left <= 0 else f"{text[:_MOST_CHARACTERS]!r}... {left} more characters"
