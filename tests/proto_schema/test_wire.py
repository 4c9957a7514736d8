"""The decoding table: what is accepted, refused, merged and kept, as rows that both decoders run.

A row is (what it shows, message class, hex of the bytes, hex of what the official runtime writes back or None where
it refuses). Each row runs the official decoder (which proves the row), the generated decoder on bytes and on a long
memoryview, the interpreter, both encoders, the sizers, and a cut at every byte.
"""

from __future__ import annotations

import struct

import onnx
import pytest
from google.protobuf.message import DecodeError as OfficialDecodeError
from onnx import onnx_data_pb2, onnx_operators_ml_pb2

import proto_schema as ps
from proto_schema import wire
from proto_schema.wire import codec, interpret
from proto_schema.wire.generate import decoder

OFFICIAL = [onnx, onnx_data_pb2, onnx_operators_ml_pb2]
# In NodeProto: 0a input (string, repeated), 1a name (string), 2a attribute (message, repeated)
# In AttributeProto: 0a name, 15 f, 18 i, 22 s, 2a t, 3a floats packed, 3d floats, 40 ints, 42 ints packed, a001 type
# In TensorProto: 08 dims, 10 data_type, 1a segment, 22 float_data packed, 2a int32_data packed, 70 data_location


def nested_groups(depth: int) -> str:
    return "f38f01" * depth + "f48f01" * depth  # unknown field 2302


def nested_types(depth: int) -> str:
    """TypeProto > sequence_type > elem_type > ..., `depth` messages inside the outermost."""
    data = b""
    for level in range(depth):
        tag = b"\x0a" if (depth - level) % 2 == 0 else b"\x22"
        data = tag + wire.varint(len(data)) + data
    return data.hex()


def groups_in_types(types: int, groups: int) -> str:
    data = bytes.fromhex("0b" * groups + "0c" * groups) if types % 2 else bytes.fromhex("13" * groups + "14" * groups)
    for level in range(types):
        tag = b"\x0a" if (types - level) % 2 == 0 else b"\x22"
        data = tag + wire.varint(len(data)) + data
    return data.hex()


SAME = "as it came"
NODE, ATTRIBUTE, TENSOR, TYPE, DIMENSION = (
    "NodeProto",
    "AttributeProto",
    "TensorProto",
    "TypeProto",
    "TensorShapeProto.Dimension",
)
ROWS: list[tuple[str, str, str, str | None]] = [
    ("nothing at all", NODE, "", ""),
    ("presence: explicit defaults are written", ATTRIBUTE, "0a001800", SAME),
    ("an empty present message", NODE, "2a00", SAME),
    ("an empty string in a list", NODE, "0a000a00", SAME),
    ("declared order is not number order", ATTRIBUTE, "a001020a0161", "0a0161a00102"),
    # varints
    ("negative int64 in ten bytes", ATTRIBUTE, "18ffffffffffffffffff01", SAME),
    ("overlong varint of ten bytes", ATTRIBUTE, "1880808080808080808000", "1800"),
    ("tenth byte above 1: high bits dropped", ATTRIBUTE, "18ffffffffffffffffff7f", "18ffffffffffffffffff01"),
    ("tenth byte of 2: nothing left", ATTRIBUTE, "1880808080808080808002", "1800"),
    ("varint of eleven bytes", ATTRIBUTE, "188080808080808080808001", None),
    ("varint of ten bytes that goes on", ATTRIBUTE, "18ffffffffffffffffff81", None),
    ("int32 beyond 32 bits", TENSOR, "1081808080f0ffffff7f", "1001"),
    ("int32 with bit 31: negative", TENSOR, "10ffffffff0f", "10ffffffffffffffffff01"),
    # tags
    ("tag overlong, two bytes", NODE, "9a000161", "1a0161"),
    ("tag overlong, five bytes", NODE, "9a808080000161", "1a0161"),
    ("tag overlong, six bytes", NODE, "9a80808080000161", None),
    ("tag above 32 bits", NODE, "9a808080100161", None),
    ("tag above 32 bits, all of them", NODE, "faffffff7f0161", None),
    ("largest field number", NODE, "faffffff0f0161", SAME),
    ("field number 0", NODE, "0000", None),
    ("field number 0, length-delimited", NODE, "020161", None),
    ("field number 0, overlong", NODE, "8080808000", None),
    ("field number 0 after a good field", NODE, "1a016100", None),
    ("wire type 6", NODE, "1e", None),
    ("wire type 7", NODE, "1f", None),
    ("wire type 6 of an unknown field", NODE, "fe7f", None),
    # lengths
    ("length overlong, two bytes", NODE, "1a810061", "1a0161"),
    ("length overlong, five bytes", NODE, "1a8180808000" + "61", "1a0161"),
    ("length overlong, six bytes", NODE, "1a818080808000" + "61", None),
    ("length of 2**31", NODE, "1a8080808008", None),
    ("length of 2**31 - 1, not there", NODE, "1affffffff07", None),
    ("length above 2**32", NODE, "1a8180808010" + "61", None),
    ("length one too long", NODE, "1a0261", None),
    ("a child's length beyond its parent", NODE, "2a030a0361" + "616161", None),
    # groups
    ("unknown group", NODE, "a306080112026161a406", SAME),
    ("unknown group, empty", NODE, "a306a406", SAME),
    ("unknown group with all wire types", NODE, "a30608010d010203041201610901020304050607081314a406", SAME),
    ("group not closed", NODE, "a3060801", None),
    ("group closed by another number", NODE, "a306ac06", None),
    ("end of group, none open", NODE, "a406", None),
    ("end of group of a known number", NODE, "0c", None),
    ("groups crossed", NODE, "a306ab06a406ac06", None),
    ("field number 0 inside an unknown group", NODE, "a3060001a406", SAME),
    ("a group of field number 0 inside a group", NODE, "a3060304a406", SAME),
    ("wire type 6 inside a group", NODE, "a3060ea406", None),
    ("a group as a known message field", NODE, "2b0a01612c", SAME),
    ("group that ends beyond its parent", NODE, "2a02a306a406", None),
    # unknown fields
    ("unknown fields go behind the known ones, in order", NODE, "a0060198060a1a0161a20600", "1a0161a0060198060aa20600"),
    ("unknown field with overlong tag and value stays raw", NODE, "a08680008180001a0161", "1a0161a0868000818000"),
    ("wire type of a known string is varint", NODE, "18011a0161", "1a01611801"),
    ("wire type of a known string is fixed64", NODE, "190102030405060708", SAME),
    ("wire type of a known number is length", ATTRIBUTE, "1a0161", SAME),
    ("wire type of a known float is fixed64", ATTRIBUTE, "110102030405060708", SAME),
    ("wire type of an unpacked list is fixed64", ATTRIBUTE, "410102030405060708", SAME),
    ("unknown values of a closed enum", ATTRIBUTE, "a001630a0161", "0a0161a00163"),
    ("unknown enum value, overlong", ATTRIBUTE, "a001e3800a0161", None),
    ("unknown enum value, overlong tag and value", ATTRIBUTE, "a08100e3000a0161", "0a0161a08100e300"),
    ("unknown enum value, negative", ATTRIBUTE, "a001ffffffffffffffffff01", SAME),
    ("unknown enum value beyond 32 bits", ATTRIBUTE, "a001e380808010", SAME),
    ("known enum value beyond 32 bits", ATTRIBUTE, "a0018180808010", "a00101"),
    ("unknown enum value does not replace a known one", ATTRIBUTE, "a00102a00163", SAME),
    # packed and unpacked
    ("unpacked list comes packed", ATTRIBUTE, "420401020304", "4001400240034004"),
    ("unpacked list comes both ways", ATTRIBUTE, "4001420202034004", "4001400240034004"),
    ("packed list comes unpacked", TENSOR, "28012802", "2a020102"),
    ("packed list comes both ways", TENSOR, "28012a020203" + "2804", "2a0401020304"),
    ("empty packed list", TENSOR, "2a00", ""),
    ("empty packed form of an unpacked list", ATTRIBUTE, "4200", ""),
    ("packed floats, unpacked field", ATTRIBUTE, "3a080000803f00000040", "3d0000803f3d00000040"),
    ("packed floats, no multiple of 4", ATTRIBUTE, "3a050000803f00", None),
    ("packed doubles, no multiple of 8", TENSOR, "5204" + "00000000", None),
    ("packed varint cut off", TENSOR, "2a020181", None),
    ("packed varint of eleven bytes", TENSOR, "2a0b8080808080808080808001", None),
    ("packed varint of ten bytes, high bits", TENSOR, "2a0affffffffffffffffff7f", "2a0affffffffffffffffff01"),
    ("packed varint of eleven bytes, all going on", TENSOR, "2a0b8080808080808080808080", None),
    ("packed list beyond its parent", NODE, "2a04420501020304", None),
    ("packed uint64", TENSOR, "5a0bffffffffffffffffff0105", SAME),
    ("long packed list", TENSOR, "2a8001" + "01ac02" * 42 + "0102", SAME),
    ("long packed list, cut off", TENSOR, "2a8001" + "01ac02" * 42 + "0181", None),
    ("long packed list with a varint of eleven bytes", TENSOR, "2a6b" + "01" * 96 + "8080808080808080808001", None),
    ("long packed int64, all widths", TENSOR, "3a50" + "ffffffffffffffffff01" * 8, SAME),
    # floats
    ("infinities and zeros", TENSOR, "22100000807f000080ff0000008000000000", SAME),
    ("quiet NaN with payload", ATTRIBUTE, "155634c27f", SAME),
    ("signalling NaN", ATTRIBUTE, "155634a27f", SAME),
    ("signalling NaN in a list", TENSOR, "22085634a2ff0000803f", SAME),
    ("signalling NaN as double", TENSOR, "5208010000000000f07f", SAME),
    ("smallest subnormal", ATTRIBUTE, "1501000000", SAME),
    # merging
    ("a scalar twice: the last wins", ATTRIBUTE, "18011802", "1802"),
    ("a string twice: the last wins", NODE, "1a01611a0162", "1a0162"),
    ("a message twice: merged, lists appended", ATTRIBUTE, "2a0408011001" + "2a0408021002", "2a06080108021002"),
    ("a message twice: unknown fields of both", ATTRIBUTE, "2a03a00601" + "2a03a00602", "2a06a00601a00602"),
    ("an element twice is two", NODE, "2a030a01612a021801", "2a030a01612a021801"),
    ("the same oneof member twice: merged", TYPE, "0a0208010a021200", "0a0408011200"),
    ("another oneof member: the last wins", TYPE, "0a02080122020a00", "22020a00"),
    ("oneof: A, B, A does not merge with the first", TYPE, "0a02080122000a021200", "0a021200"),
    ("oneof of scalars", DIMENSION, "08051201" + "6e", "12016e"),
    ("oneof of scalars, back again", DIMENSION, "12016e0805", "0805"),
    ("oneof: a mismatched member changes nothing", DIMENSION, "08050a0161", "08050a0161"),
    # text and bytes
    ("invalid UTF-8 in a string", NODE, "1a02ff61", SAME),
    ("a surrogate in UTF-8", NODE, "1a03eda080", SAME),
    ("overlong UTF-8", NODE, "1a02c080", SAME),
    ("NUL and other scripts", NODE, "1a0500e697a541", SAME),
    ("bytes are bytes", ATTRIBUTE, "2203ff0061", SAME),
    # nesting
    ("100 nested messages", TYPE, nested_types(100), SAME),
    ("101 nested messages", TYPE, nested_types(101), None),
    ("100 nested groups", NODE, nested_groups(100), SAME),
    ("101 nested groups", NODE, nested_groups(101), None),
    ("50 messages, 50 groups", TYPE, groups_in_types(50, 50), SAME),
    ("50 messages, 51 groups", TYPE, groups_in_types(50, 51), None),
    ("99 messages, 1 group", TYPE, groups_in_types(99, 1), SAME),
    ("100 messages, 1 group", TYPE, groups_in_types(100, 1), None),
    # disagreements between official parsers: a zero byte or an end-group, then junk
    ("a model, a zero byte, junk", "ModelProto", "080800ffff", None),
    ("a model, an end of group, junk", "ModelProto", "08080cffff", None),
    ("field number 2**29", "ModelProto", "080880808080100a", None),
    # the other files' messages
    ("sequence of tensors", "SequenceProto", "0a017310011a0408011001" + "2a00", SAME),
    ("map", "MapProto", "0a016d100718011802220161" + "2a021001", SAME),
    ("optional of optional", "OptionalProto", "10053a021000", SAME),
    ("operator set", "OperatorSetProto", "0a066f6e6e782d31" + "2805" + "420a0a0452656c7510061801", SAME),
    ("operator of unknown status", "OperatorProto", "18050a0161", "0a01611805"),
]


def classes(name: str) -> tuple[type, type[ps.Message]]:
    ours: type = ps  # type: ignore[assignment]
    theirs = next(module for module in OFFICIAL if hasattr(module, name.partition(".")[0]))
    for step in name.split("."):
        theirs, ours = getattr(theirs, step), getattr(ours, step)
    return theirs, ours


def official(cls: type, data: bytes) -> bytes | None:
    try:
        return cls.FromString(data).SerializeToString()
    except OfficialDecodeError:
        return None


def wide(cls: type[ps.Message], data: bytes) -> ps.Message:
    """The route that large files take, forced."""
    view = memoryview(data)
    budget = interpret.Allowance(1 << 30)
    message = decoder(cls, True)(view, view, 0, len(view), 0, budget, wire.MAX_DEPTH)
    budget.settle()
    assert isinstance(message, cls)
    return message


def interpreted(cls: type[ps.Message], data: bytes) -> ps.Message:
    return interpret.decode(cls, memoryview(data), 0, len(data), interpret.Allowance(1 << 30))


def verdict(cls: type[ps.Message], data: bytes) -> bytes | None:
    """What all of our routes say, which must be the same."""
    try:
        message = cls.FromString(data)
    except ps.DecodeError as error:
        assert error.offset is not None and 0 <= error.offset <= len(data)
        with pytest.raises(ps.DecodeError):
            interpreted(cls, data)
        with pytest.raises(Exception):  # noqa: B017 -- generated code may raise anything
            wide(cls, data)
        return None
    encoded = message.SerializeToString()
    assert interpret.encode(interpreted(cls, data)) == wide(cls, data).SerializeToString() == encoded
    assert message.ByteSize() == len(encoded)
    assert interpret.encode(message) == encoded
    assert codec.decode(cls, bytearray(data)).SerializeToString() == encoded
    return encoded


@pytest.mark.parametrize(("name", "data", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(name: str, data: str, expected: str | None) -> None:
    theirs, ours = classes(name)
    whole = bytes.fromhex(data)
    wanted = whole if expected == SAME else None if expected is None else bytes.fromhex(expected)
    assert official(theirs, whole) == wanted
    assert verdict(ours, whole) == wanted
    for cut in range(len(whole)):
        assert verdict(ours, whole[:cut]) == official(theirs, whole[:cut])


def test_the_largest_length() -> None:
    largest = bytes.fromhex("ffffffff07")
    assert wire.read_length(largest, 0, 5 + 2**31 - 1) == (2**31 - 1, 5)
    with pytest.raises(ps.DecodeError, match="2147483646 are left"):
        wire.read_length(largest, 0, 5 + 2**31 - 2)
    with pytest.raises(ps.DecodeError, match="above the limit"):
        wire.read_length(bytes.fromhex("8080808008"), 0, 2**40)


@pytest.mark.parametrize("bits", range(64))
def test_sizes_of_varints(bits: int) -> None:
    for number in ((1 << bits) - 1, 1 << bits):
        assert wire.varint_size(number) == len(wire.varint(number))
        assert wire.read_varint(wire.varint(number), 0, 10) == (number, wire.varint_size(number))


# (hex of the bytes, what walk gives: number, wire type, start of the tag, of the value, and end)
WALKED = [
    ("", []),
    ("0801", [(1, 0, 0, 1, 2)]),
    ("08010a026161", [(1, 0, 0, 1, 2), (1, 2, 2, 4, 6)]),
    ("0d01020304" + "fa0600", [(1, 5, 0, 1, 5), (111, 2, 5, 8, 8)]),
    ("0b08010c" + "110102030405060708", [(1, 3, 0, 1, 4), (2, 1, 4, 5, 13)]),
]


@pytest.mark.parametrize(("data", "spans"), WALKED, ids=[row[0] for row in WALKED])
def test_walk(data: str, spans: list[tuple[int, ...]]) -> None:
    assert [tuple(span) for span in wire.walk(bytes.fromhex(data))] == spans


def test_walk_refuses_what_decoders_refuse() -> None:
    refused = 0
    for name, data, expected in (row[1:] for row in ROWS):
        try:
            spans = list(wire.walk(bytes.fromhex(data)))
        except ps.DecodeError:
            assert expected is None, (name, data)
            refused += 1
        else:
            starts = [0, *(span.stop for span in spans)]
            assert [*(span.start for span in spans), len(data) // 2] == starts
    assert refused > 30
    assert list(wire.walk(bytes.fromhex("000008010000"), 2, 4)) == [wire.Span(1, wire.VARINT, 2, 3, 4)]


# (bits of a float64 NaN, of the float32 that is written)
NANS = [
    ("000000000000f07f", None),  # an infinity, to see that the row runs
    ("010000000000f07f", "0000c07f"),  # a payload that a float32 has no room for
    ("ffffff1f0000f07f", "0000c07f"),
    ("000000200000f07f", "0100807f"),
    ("010000000000f0ff", "0000c0ff"),
    ("0000000000fff8ff", None),
]


@pytest.mark.parametrize(("wide", "narrow"), NANS, ids=[row[0] for row in NANS])
def test_a_nan_stays_one_when_it_becomes_a_float32(wide: str, narrow: str | None) -> None:
    (value,) = struct.unpack("<d", bytes.fromhex(wide))
    written = ps.AttributeProto(f=value).SerializeToString()[1:]
    if narrow is None:
        assert written == struct.pack("<f", value)
    else:
        assert written.hex() == narrow
