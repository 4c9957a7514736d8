"""Descriptors: what `Message.DESCRIPTOR` says of messages, fields and enums, with the names that protobuf's have.

Made of the rows of the core classes. Programs ask for names, numbers, types and defaults; protobuf's own `text_format`
and `json_format`, where they are installed, work on these too. Whatever has no meaning in ONNX (extensions, services,
options) is there and empty.
https://googleapis.dev/python/protobuf/latest/google/protobuf/descriptor.html
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from proto_schema import onnx as schema
from proto_schema.compat.assigning import default_of
from proto_schema.wire.fields import ENUM, MESSAGE, Enum, Field, Message, message_class

PACKAGE = "onnx"
_OPERATORS = ("OperatorProto", "OperatorSetProto", "OperatorStatus")
_DATA = ("SequenceProto", "MapProto", "OptionalProto")

# kind -> (type, cpp_type) of https://protobuf.dev/reference/protobuf/google.protobuf/#field-kind
_TYPES = {
    "double": (1, 5),
    "float": (2, 6),
    "int64": (3, 2),
    "uint64": (4, 4),
    "int32": (5, 1),
    "string": (9, 9),
    "message": (11, 10),
    "bytes": (12, 9),
    "payload": (12, 9),
    "enum": (14, 8),
}


class DescriptorOptions:
    """Options that nobody has set."""

    map_entry = message_set_wire_format = deprecated = packed = allow_alias = debug_redact = False

    def ListFields(self) -> list[Any]:  # noqa: N802
        """Nothing."""
        return []


class _Described:
    """What all descriptors have. They are equal only to themselves."""

    name: str
    full_name: str
    has_options = False

    def GetOptions(self) -> DescriptorOptions:  # noqa: N802
        """No options."""
        return DescriptorOptions()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.full_name}>"


class FileDescriptor(_Described):
    """The file that declares a message."""

    package = PACKAGE
    syntax = "proto2"
    dependencies: ClassVar[list[Any]] = []
    public_dependencies: ClassVar[list[Any]] = []
    extensions_by_name: ClassVar[dict[str, Any]] = {}
    services_by_name: ClassVar[dict[str, Any]] = {}
    edition = 998  # proto2

    def __init__(self, name: str) -> None:
        self.name = self.full_name = name

    @property
    def message_types_by_name(self) -> dict[str, Descriptor]:
        """The messages of the file that lie in no other."""
        found = [item for item in vars(schema).values() if isinstance(item, type) and issubclass(item, Message)]
        described = [descriptor_of(item) for item in found if item is not Message]
        return {item.name: item for item in described if item.file is self}

    @property
    def enum_types_by_name(self) -> dict[str, EnumDescriptor]:
        """The enums of the file that lie in no message."""
        found = [item for item in vars(schema).values() if isinstance(item, type) and issubclass(item, Enum)]
        described = [enum_descriptor(item) for item in found if item is not Enum]
        return {item.name: item for item in described if item.file is self}


@cache
def _file(name: str) -> FileDescriptor:
    return FileDescriptor(name)


def _file_of(qualname: str) -> FileDescriptor:
    outermost = qualname.partition(".")[0]
    if outermost in _OPERATORS:
        return _file("onnx/onnx-operators-ml.proto")
    return _file("onnx/onnx-data.proto" if outermost in _DATA else "onnx/onnx-ml.proto")


class Descriptor(_Described):
    """A message class."""

    is_extendable = False
    extensions: ClassVar[list[Any]] = []
    extensions_by_name: ClassVar[dict[str, Any]] = {}
    extension_ranges: ClassVar[list[Any]] = []

    def __init__(self, core: type[Message]) -> None:
        self.core = core
        self.name = core.__name__
        self.full_name = f"{PACKAGE}.{core.__qualname__}"
        self.file = _file_of(core.__qualname__)
        self._concrete_class: Any = None  # set by `messages`, which makes the class

    @cached_property
    def fields(self) -> list[FieldDescriptor]:
        """In the order of declaration."""
        declared = [name for name in self.core.__annotations__ if name in self.fields_by_name]
        return [self.fields_by_name[name] for name in declared]

    @cached_property
    def fields_by_name(self) -> dict[str, FieldDescriptor]:
        """By ascending number."""
        return {field.name: FieldDescriptor(self, field) for field in self.core.FIELDS}

    @property
    def fields_by_camelcase_name(self) -> dict[str, FieldDescriptor]:
        """By the name in JSON."""
        return {field.camelcase_name: field for field in self.fields}

    @property
    def fields_by_number(self) -> dict[int, FieldDescriptor]:
        """By number."""
        return {field.number: field for field in self.fields}

    @cached_property
    def oneofs(self) -> list[OneofDescriptor]:
        """The oneofs."""
        names = dict.fromkeys(field.oneof for field in self.core.FIELDS if field.oneof)
        return [OneofDescriptor(self, name) for name in names]

    @property
    def oneofs_by_name(self) -> dict[str, OneofDescriptor]:
        """The oneofs by name."""
        return {item.name: item for item in self.oneofs}

    @property
    def nested_types(self) -> list[Descriptor]:
        """The messages that are declared in this one."""
        inner = [item for item in vars(self.core).values() if isinstance(item, type) and issubclass(item, Message)]
        return [descriptor_of(item) for item in inner]

    @property
    def nested_types_by_name(self) -> dict[str, Descriptor]:
        """The same by name."""
        return {item.name: item for item in self.nested_types}

    @property
    def enum_types(self) -> list[EnumDescriptor]:
        """The enums that are declared in this message."""
        inner = [item for item in vars(self.core).values() if isinstance(item, type) and issubclass(item, Enum)]
        return [enum_descriptor(item) for item in inner]

    @property
    def enum_types_by_name(self) -> dict[str, EnumDescriptor]:
        """The same by name."""
        return {item.name: item for item in self.enum_types}

    @property
    def enum_values_by_name(self) -> dict[str, EnumValueDescriptor]:
        """The values of all its enums."""
        return {value.name: value for enum in self.enum_types for value in enum.values}

    @property
    def containing_type(self) -> Descriptor | None:
        """The message that declares this one."""
        outer, _, _ = self.core.__qualname__.rpartition(".")
        return descriptor_of(getattr(schema, outer)) if outer else None


class FieldDescriptor(_Described):
    """A field of a message."""

    TYPE_DOUBLE, TYPE_FLOAT, TYPE_INT64, TYPE_UINT64, TYPE_INT32, TYPE_FIXED64, TYPE_FIXED32 = range(1, 8)
    TYPE_BOOL, TYPE_STRING, TYPE_GROUP, TYPE_MESSAGE, TYPE_BYTES, TYPE_UINT32, TYPE_ENUM = range(8, 15)
    TYPE_SFIXED32, TYPE_SFIXED64, TYPE_SINT32, TYPE_SINT64 = range(15, 19)
    CPPTYPE_INT32, CPPTYPE_INT64, CPPTYPE_UINT32, CPPTYPE_UINT64, CPPTYPE_DOUBLE = range(1, 6)
    CPPTYPE_FLOAT, CPPTYPE_BOOL, CPPTYPE_ENUM, CPPTYPE_STRING, CPPTYPE_MESSAGE = range(6, 11)
    LABEL_OPTIONAL, LABEL_REQUIRED, LABEL_REPEATED = 1, 2, 3
    is_extension = is_required = False
    extension_scope = None

    def __init__(self, owner: Descriptor, field: Field) -> None:
        self.containing_type = owner
        self.field = field
        self.name = field.name
        self.full_name = f"{owner.full_name}.{field.name}"
        self.number = field.number
        self.type, self.cpp_type = _TYPES[field.kind.name]
        self.is_repeated = field.repeated
        self.is_packed = field.packed
        self.has_presence = not field.repeated
        self.label = self.LABEL_REPEATED if field.repeated else self.LABEL_OPTIONAL
        self.has_default_value = False
        self.default_value: Any = [] if field.repeated else None if field.kind is MESSAGE else default_of(field)
        self.file = owner.file

    @property
    def index(self) -> int:
        """Its place in the order of declaration."""
        return self.containing_type.fields.index(self)

    @property
    def camelcase_name(self) -> str:
        """`opsetImport` for `opset_import`."""
        first, *others = self.name.split("_")
        return first + "".join(word.capitalize() for word in others)

    json_name = camelcase_name

    @property
    def message_type(self) -> Descriptor | None:
        """The message that it holds."""
        if self.field.kind is not MESSAGE:
            return None
        return descriptor_of(message_class(self.containing_type.core, self.field))

    @property
    def enum_type(self) -> EnumDescriptor | None:
        """The enum whose numbers it holds."""
        enum = self.field.enum
        return enum_descriptor(enum) if self.field.kind is ENUM and enum and issubclass(enum, Enum) else None

    @property
    def containing_oneof(self) -> OneofDescriptor | None:
        """The oneof that it is a member of."""
        return self.containing_type.oneofs_by_name[self.field.oneof] if self.field.oneof else None


class OneofDescriptor(_Described):
    """A oneof of a message."""

    def __init__(self, owner: Descriptor, name: str) -> None:
        self.containing_type = owner
        self.name = name
        self.full_name = f"{owner.full_name}.{name}"

    @property
    def fields(self) -> list[FieldDescriptor]:
        """Its members."""
        return [field for field in self.containing_type.fields if field.field.oneof == self.name]


class EnumDescriptor(_Described):
    """An enum. Those of proto2 are closed: other numbers are no values."""

    is_closed = True

    def __init__(self, enum: type[Enum]) -> None:
        self.enum = enum
        self.name = enum.__name__
        self.full_name = f"{PACKAGE}.{enum.__qualname__}"
        self.file = _file_of(enum.__qualname__)
        self.values = [EnumValueDescriptor(self, name, number) for name, number in enum.items()]
        self.values_by_name = {value.name: value for value in self.values}
        self.values_by_number = {value.number: value for value in self.values}

    @property
    def containing_type(self) -> Descriptor | None:
        """The message that declares it."""
        outer, _, _ = self.enum.__qualname__.rpartition(".")
        return descriptor_of(getattr(schema, outer)) if outer else None


class EnumValueDescriptor(_Described):
    """A value of an enum."""

    def __init__(self, enum: EnumDescriptor, name: str, number: int) -> None:
        self.type = enum
        self.name = name
        self.full_name = f"{enum.full_name}.{name}"
        self.number = number
        self.index = list(enum.enum.__members__).index(name)


class EnumType:
    """An enum as a message class has it: `TensorProto.DataType.Name(1)`, `.Value("FLOAT")`, `.items()`, `.FLOAT`."""

    def __init__(self, enum: type[Enum]) -> None:
        self.DESCRIPTOR = enum_descriptor(enum)
        self.__name__ = enum.__name__
        self._enum = enum
        vars(self).update(enum.items())

    def Name(self, number: int) -> str:  # noqa: N802
        """The name of a number. ValueError if it has none, TypeError for what is no int."""
        if not isinstance(number, int):
            raise TypeError(f"enum {self.__name__}: an int is expected, not {number!r}")
        if number not in self.values():
            raise ValueError(f"enum {self.__name__} has no name for the value {number}")
        return str(self._enum(number).name)

    def Value(self, name: str) -> int:  # noqa: N802
        """The number of a name. ValueError if there is none."""
        return self._enum.Value(name)

    def keys(self) -> list[str]:
        """All names."""
        return self._enum.keys()

    def values(self) -> list[int]:
        """All numbers."""
        return self._enum.values()

    def items(self) -> list[tuple[str, int]]:
        """(name, number) of each."""
        return self._enum.items()

    def __repr__(self) -> str:
        return f"<enum {self.DESCRIPTOR.full_name}>"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


@cache
def descriptor_of(core: type[Message]) -> Descriptor:
    """The descriptor of a core class."""
    return Descriptor(core)


@cache
def enum_descriptor(enum: type[Enum]) -> EnumDescriptor:
    """The descriptor of an enum of the schema."""
    return EnumDescriptor(enum)


@cache
def wrapped_enum(enum: type[Enum]) -> EnumType:
    """The enum with protobuf's manners."""
    return EnumType(enum)
