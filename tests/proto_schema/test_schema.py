"""The field table against the official descriptors: every message, field, number, type, packing, oneof and enum."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from onnx import onnx_data_pb2, onnx_operators_ml_pb2

import proto_schema as ps
from proto_schema.wire.fields import Message, message_class

KINDS = {
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


def descriptors() -> Iterator[Any]:
    for module in (onnx.onnx_ml_pb2, onnx_data_pb2, onnx_operators_ml_pb2):
        yield from walk(module.DESCRIPTOR.message_types_by_name.values())


def walk(found: Any) -> Iterator[Any]:
    for descriptor in found:
        yield descriptor
        yield from walk(descriptor.nested_types)


DESCRIPTORS = {descriptor.full_name.removeprefix("onnx."): descriptor for descriptor in descriptors()}


def ours(name: str) -> Any:
    found: Any = ps
    for step in name.split("."):
        found = getattr(found, step)
    return found


def theirs_as_rows(descriptor: Any) -> list[tuple[object, ...]]:
    rows = [
        (
            field.name,
            field.number,
            KINDS[field.type],
            field.is_repeated,
            field.is_packed,
            field.containing_oneof.name if field.containing_oneof else None,
            field.message_type.full_name.removeprefix("onnx.") if field.message_type else None,
            field.enum_type.name if field.enum_type else None,
        )
        for field in descriptor.fields
    ]
    return sorted(rows, key=lambda row: row[1])


def ours_as_rows(cls: type[Message]) -> list[tuple[object, ...]]:
    return [
        (
            field.name,
            field.number,
            "bytes" if field.kind.name == "payload" else field.kind.name,
            field.repeated,
            field.packed,
            field.oneof,
            message_class(cls, field).__qualname__ if field.message else None,
            field.enum.__name__ if field.enum else None,
        )
        for field in cls.FIELDS
    ]


@pytest.mark.parametrize("name", sorted(DESCRIPTORS))
def test_message(name: str) -> None:
    cls, descriptor = ours(name), DESCRIPTORS[name]
    assert ours_as_rows(cls) == theirs_as_rows(descriptor)
    assert set(cls.__annotations__) == {field.name for field in cls.FIELDS}
    for enum in descriptor.enum_types:
        values = {value.name: value.number for value in enum.values}
        assert dict(getattr(cls, enum.name).__members__) == values
        assert {key: getattr(cls, key) for key in values} == values
        assert all(type(getattr(cls, key)) is int for key in values)


def test_no_message_or_enum_is_missing_or_invented() -> None:
    declared = {
        cls.__qualname__ for cls in vars(ps.onnx).values() if isinstance(cls, type) and issubclass(cls, Message)
    }
    assert declared - {"Message"} == {name for name in DESCRIPTORS if "." not in name}
    assert len([name for name in DESCRIPTORS if DESCRIPTORS[name].file.name == "onnx/onnx-ml.proto"]) == 28
    for enum in onnx.onnx_ml_pb2.DESCRIPTOR.enum_types_by_name.values():
        mine: type[IntEnum] = getattr(ps, enum.name)
        assert {key: int(value) for key, value in mine.__members__.items()} == {v.name: v.number for v in enum.values}


def test_enums_answer_to_protobufs_names() -> None:
    for ours, theirs in [
        (ps.TensorProto.DataType, onnx.TensorProto.DataType),
        (ps.AttributeProto.AttributeType, onnx.AttributeProto.AttributeType),
        (ps.Version, onnx.onnx_ml_pb2.Version),
    ]:
        assert ours.items() == theirs.items() and ours.keys() == theirs.keys() and ours.values() == theirs.values()
        assert [ours.Name(number) for number in ours.values()] == [theirs.Name(number) for number in theirs.values()]
        assert [ours.Value(name) for name in ours.keys()] == theirs.values()  # noqa: SIM118
    for call in (lambda: ps.TensorProto.DataType.Name(99), lambda: ps.TensorProto.DataType.Value("NO")):
        with pytest.raises(ValueError, match=r"99|NO"):
            call()


def test_every_message_is_offered_by_the_package() -> None:
    for name in DESCRIPTORS:
        assert name.partition(".")[0] in ps.__all__
