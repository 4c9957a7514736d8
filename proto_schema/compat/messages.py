"""The message classes as `import onnx` has them: protobuf's manners over the plain messages of `proto_schema.onnx`.

Strategy: a mannered message is a face of a core message, which it keeps in `_core` and never copies. Reading, writing
and encoding go to the core; so its codec, checker, inference and printer serve both kinds, and the core stays as small
and as fast as it is. `plain` and `mannered` cross between the two in no time, whatever the size of the model.
A subclass of the core could not do: its functions ask `is None` where these classes answer with a default.

The classes are made from the rows of the core classes, a property a field:

    absent fields read as "", 0, b"" or a message; a scalar is checked as it is assigned
    an absent submessage is a face of a fresh core (`_parent` says of which field); the first write puts it there
    a repeated field is a container over the core's list

Invariant: as long as somebody holds the face of a core, there is no second one, so `model.graph is model.graph`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakValueDictionary

from proto_schema import onnx as schema
from proto_schema.compat import foreign
from proto_schema.compat.assigning import check_of, default_of, shown
from proto_schema.compat.containers import RepeatedMessages, RepeatedScalars, _Repeated
from proto_schema.compat.descriptors import Descriptor, EnumType, FieldDescriptor, descriptor_of, wrapped_enum
from proto_schema.errors import DecodeError
from proto_schema.text import text_format
from proto_schema.wire.codec import encode, size
from proto_schema.wire.fields import MESSAGE, Enum, Field, Message, message_class, present

T = TypeVar("T", bound="Mannered")


class Mannered:
    """A message with protobuf's manners. `proto_schema.compat.messages.plain(m)` is the core message under it."""

    __slots__ = ("__weakref__", "_core", "_parent", "_read")
    CORE: ClassVar[type[Message]]
    DESCRIPTOR: ClassVar[Descriptor]

    _core: Any
    _parent: tuple[Mannered, str] | None
    _read: WeakValueDictionary[str, Mannered] | None

    def __init__(self, **values: Any) -> None:
        core = type(self).CORE()
        _set(self, "_core", core)
        _set(self, "_parent", None)
        _set(self, "_read", None)
        _FACES[id(core)] = self
        for name, value in values.items():
            self._give(name, value)

    def _give(self, name: str, value: Any) -> None:
        """One argument of the constructor: None leaves the field out, a dict makes a message."""
        field = _FIELDS[type(self).CORE].get(name)
        if field is None:
            raise ValueError(f'protocol message {type(self).__name__} has no "{name}" field')
        if value is None:
            return
        if field.repeated:
            held = getattr(self, name)
            if field.kind is MESSAGE:
                for item in value:
                    held.add(**item) if isinstance(item, dict) else held.append(item)
            else:
                held.extend(value)
        elif field.kind is MESSAGE:
            kind = _CLASSES[message_class(type(self).CORE, field)]
            getattr(self, name).CopyFrom(kind(**value) if isinstance(value, dict) else value)
        else:
            setattr(self, name, value)

    # -- crossing between the two kinds

    @classmethod
    def _over(cls: type[T], core: Any) -> T:
        """The face of a core message of this class."""
        found = _FACES.get(id(core))
        if found is not None and found._core is core:
            return cast("T", found)
        made = cls.__new__(cls)
        _set(made, "_core", core)
        _set(made, "_parent", None)
        _set(made, "_read", None)
        _FACES[id(core)] = made
        return made

    @classmethod
    def _core_of(cls, value: Any, method: str) -> Message:
        """The core of a message of just this class. TypeError for anything else."""
        if type(value) is cls:
            return cast("Message", value._core)
        if type(value) is cls.CORE:
            return value
        expected = cls.DESCRIPTOR.full_name
        raise TypeError(
            f"the parameter of {method}() must be an instance of the same class: expected {expected}, got "
            f"{type(value).__module__}.{type(value).__qualname__}"
        )

    def _child(self, field: Field) -> Mannered:
        """The face of a submessage; where it is absent, of a fresh one that becomes part of this when it is written."""
        held = getattr(self._core, field.name)
        if held is not None:
            return mannered_class(type(held))._over(held)
        read = self._read
        if read is None:
            read = WeakValueDictionary()
            _set(self, "_read", read)
        found = read.get(field.name)
        if found is None or found._parent is None:
            found = read[field.name] = _CLASSES[message_class(type(self).CORE, field)]()
            _set(found, "_parent", (self, field.name))
        return found

    def SetInParent(self) -> None:  # noqa: N802
        """Makes this submessage present in the message that it was read from."""
        waiting = self._parent
        if waiting is None:
            return
        parent, name = waiting
        _set(self, "_parent", None)
        parent.SetInParent()
        setattr(parent._core, name, self._core)

    # -- what protobuf's messages have

    def ParseFromString(self, data: Any) -> int:  # noqa: N802
        """Replaces this message by the one in `data`; returns the number of bytes. DecodeError where that is none."""
        self.SetInParent()
        return self._parsed(self._core.ParseFromString, data)

    def MergeFromString(self, data: Any) -> int:  # noqa: N802
        """Merges the message in `data` into this one; returns the number of bytes."""
        self.SetInParent()
        return self._parsed(self._core.MergeFromString, data)

    @staticmethod
    def _parsed(function: Any, data: Any) -> int:
        if isinstance(data, str):
            raise TypeError("bytes are parsed, not str")
        held = data if isinstance(data, bytes) else bytes(memoryview(data))  # others may change it later
        try:
            return int(function(held))
        except DecodeError as error:
            raise foreign.decode_error(error) from None

    @classmethod
    def FromString(cls: type[T], data: Any) -> T:  # noqa: N802
        """The message in `data`."""
        made = cls()
        made.ParseFromString(data)
        return made

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:  # noqa: N802
        """The encoding, always deterministic. EncodeError, a ValueError, past 2 GiB."""
        return encode(self._core)

    def SerializePartialToString(self, *, deterministic: bool | None = None) -> bytes:  # noqa: N802
        """As SerializeToString: ONNX has no required fields."""
        return encode(self._core)

    def ByteSize(self) -> int:  # noqa: N802
        """The size of the encoding."""
        return size(self._core)

    def IsInitialized(self, errors: list[str] | None = None) -> bool:  # noqa: N802
        """True: ONNX has no required fields."""
        return True

    def FindInitializationErrors(self) -> list[str]:  # noqa: N802
        """Nothing: ONNX has no required fields."""
        return []

    def HasField(self, field_name: str) -> bool:  # noqa: N802
        """Whether an optional field, or a member of a oneof, is there. ValueError for other names."""
        return bool(self._core.HasField(field_name))

    def WhichOneof(self, oneof_group: str) -> str | None:  # noqa: N802
        """The member of a oneof that is there."""
        found: str | None = self._core.WhichOneof(oneof_group)
        return found

    def ClearField(self, field_name: str) -> None:  # noqa: N802
        """Makes a field absent. What was read from it stays with its reader."""
        self.SetInParent()
        self._core.ClearField(field_name)

    def Clear(self) -> None:  # noqa: N802
        """Makes all fields absent."""
        self.SetInParent()
        self._core.Clear()

    def CopyFrom(self, other_msg: Any) -> None:  # noqa: N802
        """Makes this a deep copy of another message of the same class."""
        other = type(self)._core_of(other_msg, "CopyFrom")
        self.SetInParent()
        self._core.CopyFrom(other)

    def MergeFrom(self, other_msg: Any) -> None:  # noqa: N802
        """Scalars of the other message replace, lists are appended, messages are merged."""
        other = type(self)._core_of(other_msg, "MergeFrom")
        self.SetInParent()
        self._core.MergeFrom(other)

    def ListFields(self) -> list[tuple[FieldDescriptor, Any]]:  # noqa: N802
        """(descriptor, value) of every field that is there, by ascending number."""
        named = type(self).DESCRIPTOR.fields_by_name
        return [(named[field.name], getattr(self, field.name)) for field, _ in present(self._core)]

    def DiscardUnknownFields(self) -> None:  # noqa: N802
        """Forgets the unknown fields of this message and all below it."""
        self._core.unknown_fields = b""
        for field, value in self.ListFields():
            if field.message_type is not None:
                for item in value if field.is_repeated else (value,):
                    item.DiscardUnknownFields()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mannered):
            return type(other) is type(self) and self._core == other._core
        return self._core == other if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self: T) -> T:
        return self.__deepcopy__({})

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return type(self)._over(self._core.__deepcopy__(memo))

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        return _unpickled, (type(self).CORE.__qualname__, encode(self._core))

    def __str__(self) -> str:
        return text_format(self._core)

    def __repr__(self) -> str:
        show = _REPR.get(type(self).CORE)
        return text_format(self._core) if show is None else show(self)


_set = object.__setattr__
# A cache, no state: which face a core has now. It keeps nothing alive, and a missing entry only costs a new face.
_FACES: WeakValueDictionary[int, Mannered] = WeakValueDictionary()
_CLASSES: dict[type[Message], type[Mannered]] = {}
_FIELDS: dict[type[Message], dict[str, Field]] = {}


# -- the classes


def _scalar_property(field: Field) -> property:
    name, default, check = field.name, default_of(field), check_of(field)

    def read(self: Mannered) -> Any:
        value = getattr(self._core, name)
        return default if value is None else shown(field, value)

    def assign(self: Mannered, value: Any) -> None:
        checked = check(value)
        if self._parent is not None:
            self.SetInParent()
        setattr(self._core, name, checked)

    return property(read, assign, doc=f"{field.kind.name}, field {field.number}")


def _refuse(field: Field) -> Any:
    way = "use append, extend or [:]" if field.repeated else "use CopyFrom, or write its fields"

    def assign(self: Mannered, value: Any) -> None:
        # `m.field += [...]` and `m.field[:] = ...` have done their work when they come here with the container
        if isinstance(value, _Repeated) and value._owner is self and value._field is field:
            return
        what = f'assignment not allowed to message, map, or repeated field "{field.name}" in protocol message object'
        raise AttributeError(f"{what}; {way}")

    return assign


def _repeated_property(field: Field, owner: type[Message]) -> property:
    if field.kind is MESSAGE:
        core = message_class(owner, field)

        def messages(self: Mannered) -> RepeatedMessages:
            return RepeatedMessages(self, field, _CLASSES[core])

        return property(messages, _refuse(field), doc=f"messages, field {field.number}")
    check = check_of(field)

    def scalars(self: Mannered) -> RepeatedScalars:
        return RepeatedScalars(self, field, check)

    return property(scalars, _refuse(field), doc=f"{field.kind.name}s, field {field.number}")


def _message_property(field: Field) -> property:
    def read(self: Mannered) -> Mannered:
        return self._child(field)

    return property(read, _refuse(field), doc=f"a message, field {field.number}")


def _property(field: Field, owner: type[Message]) -> property:
    if field.repeated:
        return _repeated_property(field, owner)
    return _message_property(field) if field.kind is MESSAGE else _scalar_property(field)


def _make(core: type[Message]) -> type[Mannered]:
    space: dict[str, Any] = {"__slots__": (), "CORE": core, "__doc__": core.__doc__, "__qualname__": core.__qualname__}
    space["__module__"] = "onnx"
    for name, value in vars(core).items():
        if isinstance(value, type) and issubclass(value, Message):
            space[name] = _make(value)
        elif isinstance(value, type) and issubclass(value, Enum):
            space[name] = wrapped_enum(value)
            space.update((member.name, int(member)) for member in value)
    for field in core.FIELDS:
        space[field.name] = _property(field, core)
        space[f"{field.name.upper()}_FIELD_NUMBER"] = field.number
    space["DESCRIPTOR"] = descriptor_of(core)
    made: type[Mannered] = type(core.__name__, (Mannered,), space)
    made.DESCRIPTOR._concrete_class = made
    _CLASSES[core] = made
    _FIELDS[core] = {field.name: field for field in core.FIELDS}
    return made


def mannered_class(core: type[Message]) -> type[Mannered]:
    """The class with protobuf's manners of a core class."""
    return _CLASSES[core]


def _all() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(schema).items():
        if isinstance(value, type) and issubclass(value, Message) and value is not Message:
            found[name] = _make(value)
        elif isinstance(value, type) and issubclass(value, Enum) and value is not Enum:
            found[name] = wrapped_enum(value)
    return found


PROTOS: dict[str, Any] = _all()
"""Every message class and enum of the schema, by its name."""


def _unpickled(name: str, data: bytes) -> Mannered:
    found: Any = schema
    for step in name.split("."):
        found = getattr(found, step)
    return _CLASSES[found].FromString(data)


# -- crossing


def plain(value: Any) -> Any:
    """What `proto_schema` takes: the core message of a message, also in lists, tuples, dicts and repeated fields."""
    if isinstance(value, Mannered):
        return value._core
    if isinstance(value, _Repeated):
        return value._items
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (Mannered, _Repeated, list, tuple, dict)) for item in value):
            items = [plain(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
    elif isinstance(value, dict) and any(
        isinstance(item, (Mannered, _Repeated, list, tuple, dict)) for item in value.values()
    ):  # one without messages is the caller's own, who may look at what a function adds to it
        return {key: plain(item) for key, item in value.items()}
    return value


def mannered(value: Any) -> Any:
    """The message with protobuf's manners of a core message, also in lists, tuples and dicts. Nothing is copied."""
    if isinstance(value, Message):
        return _CLASSES[type(value)]._over(value)
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (Message, list, tuple, dict)) for item in value):
            items = [mannered(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
    elif isinstance(value, dict):
        return {key: mannered(item) for key, item in value.items()}
    return value


# -- short forms: the whole text of a model would be long


def _model(model: Any) -> str:
    parts = [f"ir_version={model.ir_version}"]
    parts += [f"opset_import={_imports(model)}"] if model.opset_import else []
    parts += [f"{name}={getattr(model, name)!r}" for name in _SHORT if getattr(model, name)]
    parts.append(f"graph={model.graph!r}")
    parts += _counted(model, "functions")
    return f"ModelProto({', '.join(parts)})"


def _graph(graph: Any) -> str:
    named = ("input", "output", "initializer", "node", "value_info")
    return f"GraphProto({', '.join([repr(graph.name), *(text for name in named for text in _counted(graph, name))])})"


def _function(function: Any) -> str:
    parts = [repr(function.name)]
    parts += [f"{name}={getattr(function, name)!r}" for name in ("domain", "overload") if getattr(function, name)]
    parts += [f"opset_import={_imports(function)}"] if function.opset_import else []
    parts += _counted(function, "input") + _counted(function, "output")
    parts += [f"attribute={list(function.attribute)}"] if function.attribute else []
    return f"FunctionProto({', '.join([*parts, *_counted(function, 'node')])})"


_SHORT = ("domain", "producer_name", "producer_version")
_PLURAL = {"input": "inputs", "output": "outputs", "initializer": "initializers", "node": "nodes"}


def _counted(message: Any, name: str) -> list[str]:
    held = getattr(message, name)
    return [f"{name}=<{len(held)} {_PLURAL.get(name, name)}>"] if held else []


def _imports(message: Any) -> str:
    return repr({item.domain: item.version for item in message.opset_import})


_REPR = {schema.ModelProto: _model, schema.GraphProto: _graph, schema.FunctionProto: _function}

__all__ = ["PROTOS", "EnumType", "Mannered", "mannered", "mannered_class", "plain"]
