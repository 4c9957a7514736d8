"""Runs of many values beside the interpreter, which reads them one by one, and beside upb.

A row is a field with hundreds of values, of which some are odd or malformed. All routes must say the same: the
generated decoders (on bytes and on a memoryview), the interpreter, and the official runtime; of errors the text, the
path and the offset are compared, of messages every value down to the bits, before and after a list was asked for.
"""

from __future__ import annotations

import copy
import json
import pickle
import struct
import threading
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from fuzz.differential import rewritten
from fuzz.harness import difference
from proto_schema.wire import MAX_DEPTH, interpret, runs, varint
from proto_schema.wire.fields import DOUBLE, ENUM, INT32, Enum, Message, numbers, repeated
from proto_schema.wire.generate import decoder

ATTRIBUTE, TENSOR = ps.AttributeProto, ps.TensorProto
INT, SINGLE, TEXT, DIM, STRING_DATA = b"\x40", b"\x3d", b"\x4a", b"\x08", b"\x32"
MINUS = b"\xff" * 9 + b"\x01"


def ints(*values: int, tag: bytes = INT) -> bytes:
    return b"".join(tag + varint(value & 2**64 - 1) for value in values)


def floats(*values: float, tag: bytes = SINGLE) -> bytes:
    return b"".join(tag + struct.pack("<f", value) for value in values)


def texts(*values: bytes, tag: bytes = TEXT) -> bytes:
    return b"".join(tag + varint(len(value)) + value for value in values)


def delimited(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


def drawn(seed: int, count: int = 700) -> list[int]:
    """Numbers of all widths."""
    rng = Random(seed)
    return [rng.randrange(-(2**63), 2**63) >> rng.choice((0, 1, 20, 31, 33, 50, 56, 57, 63)) for _ in range(count)]


SMALL, WIDE, NEGATIVE = ints(*[at % 128 for at in range(1200)]), ints(*drawn(1)), ints(*[-1] * 300)
FLOAT = floats(*np.linspace(-3, 3, 700).tolist())
WORDS = texts(*[b"LEAF" if at % 2 else b"BRANCH_LEQ" for at in range(400)])
NAN, SIGNALLING = b"\x56\x34\xc2\x7f", b"\x56\x34\xa2\xff"
PACKED = {"22": struct.pack("<700f", *range(700)), "52": struct.pack("<300d", *range(300))}
VARINTS = b"".join(varint(value & 2**64 - 1) for value in drawn(2))
INT32S = b"".join(varint(value & 2**64 - 1) for value in [-1, 2**31 - 1, -(2**31), 0, 127, 128] * 100)

# (what it shows, class, bytes)
ROWS: list[tuple[str, type[Message], bytes]] = [
    # whole runs
    ("ints of one byte", ATTRIBUTE, SMALL),
    ("ints of all widths", ATTRIBUTE, WIDE),
    ("negative ints", ATTRIBUTE, NEGATIVE),
    ("floats", ATTRIBUTE, FLOAT),
    ("texts", ATTRIBUTE, WORDS),
    ("texts with the tag inside, empty ones, long ones", ATTRIBUTE, texts(*[b"J", b"", b"JJJ\x02J", b"x" * 300] * 90)),
    ("texts of another field", TENSOR, texts(*[b"2", b"\xff\xfe"] * 300, tag=STRING_DATA)),
    ("dims", TENSOR, ints(*range(900), tag=DIM)),
    ("several runs behind each other", ATTRIBUTE, FLOAT + WIDE + WORDS),
    ("a run, other fields, a run of the same field", ATTRIBUTE, WIDE + b"\x0a\x01n" + SMALL),
    ("a run larger than a block", ATTRIBUTE, ints(*drawn(3, 9000)) + FLOAT * 20),
    (
        "texts larger than a block",
        ATTRIBUTE,
        texts(*[b"ab"] * 400, b"x" * (1 << 15), *[b"JK"] * 9000, b"y" * (1 << 16), *[b""] * 500),
    ),
    # faults in runs of ints
    ("a varint of 11 bytes", ATTRIBUTE, WIDE + INT + b"\x80" * 10 + b"\x01" + SMALL),
    ("a varint of 11 bytes at the start", ATTRIBUTE, INT + b"\x80" * 10 + b"\x01" + SMALL),
    ("a varint of 10 bytes with high bits", ATTRIBUTE, WIDE + INT + b"\xff" * 9 + b"\x7f" + SMALL),
    ("an overlong varint", ATTRIBUTE, SMALL + INT + b"\x81\x00" + SMALL),
    ("an overlong zero of ten bytes", ATTRIBUTE, SMALL + INT + b"\x80" * 9 + b"\x00" + SMALL),
    ("nothing but bytes that go on", ATTRIBUTE, SMALL + INT + b"\x80" * 40000),
    ("another field's tag inside", ATTRIBUTE, WIDE + b"\x18\x05" + WIDE),
    ("another field's tag where one-byte values are", ATTRIBUTE, SMALL + b"\x18\x05" + SMALL),
    ("another wire type of the same field", ATTRIBUTE, SMALL + b"\x41" + b"12345678" + SMALL),
    ("the tag in two bytes", ATTRIBUTE, SMALL + b"\xc0\x00\x05" + SMALL),
    ("a tag that ends like that of the run", ATTRIBUTE, WIDE + b"\x80\x40\x05" + WIDE),
    ("a tag of six bytes", ATTRIBUTE, SMALL + b"\xc0\x80\x80\x80\x80\x00\x05" + SMALL),
    ("field number 0 inside", ATTRIBUTE, SMALL + b"\x00\x05" + SMALL),
    ("the last value cut off", ATTRIBUTE, WIDE + INT + b"\x80\x80"),
    ("a tag, and nothing behind it", ATTRIBUTE, SMALL + INT),
    ("packed ones behind unpacked ones", ATTRIBUTE, SMALL + delimited(b"\x42", VARINTS)),
    ("packed ones where unpacked are written", ATTRIBUTE, delimited(b"\x42", VARINTS) + SMALL),
    # faults in runs of floats
    ("a float cut off", ATTRIBUTE, FLOAT + b"\x3d\x00\x00\x80"),
    ("a tag of floats, and nothing behind it", ATTRIBUTE, FLOAT + SINGLE),
    ("a double among floats", ATTRIBUTE, FLOAT + b"\x39" + b"12345678" + FLOAT),
    ("NaN with a payload", ATTRIBUTE, FLOAT + SINGLE + NAN + FLOAT),
    ("signalling NaN with a payload", ATTRIBUTE, FLOAT + SINGLE + SIGNALLING + FLOAT),
    ("infinities and zeros", ATTRIBUTE, floats(*[float("inf"), float("-inf"), -0.0, 0.0] * 300)),
    ("packed floats, unpacked field", ATTRIBUTE, delimited(b"\x3a", PACKED["22"] + SIGNALLING) + FLOAT),
    ("packed floats, no multiple of 4", ATTRIBUTE, delimited(b"\x3a", PACKED["22"] + b"1")),
    # faults in runs of texts
    ("a length past the end", ATTRIBUTE, WORDS + TEXT + b"\x05LEAF"),
    ("a length cut off", ATTRIBUTE, WORDS + TEXT + b"\x85"),
    ("a length in two bytes where one does", ATTRIBUTE, WORDS + TEXT + b"\x84\x00LEAF" + WORDS),
    ("a length of six bytes", ATTRIBUTE, WORDS + TEXT + b"\x84\x80\x80\x80\x80\x00LEAF" + WORDS),
    ("a length above 2**31", ATTRIBUTE, WORDS + TEXT + b"\x80\x80\x80\x80\x08" + WORDS),
    ("texts, then a number of the same field", ATTRIBUTE, WORDS + b"\x48\x05" + WORDS),
    # packed fields
    ("float_data", TENSOR, delimited(b"\x22", PACKED["22"])),
    ("double_data", TENSOR, delimited(b"\x52", PACKED["52"])),
    ("int32_data", TENSOR, delimited(b"\x2a", INT32S)),
    ("int32_data beyond 32 bits", TENSOR, delimited(b"\x2a", INT32S + varint(2**31) + INT32S)),
    ("int32_data, negative in five bytes", TENSOR, delimited(b"\x2a", INT32S + b"\xff\xff\xff\xff\x0f" + INT32S)),
    ("int64_data", TENSOR, delimited(b"\x3a", VARINTS)),
    ("uint64_data", TENSOR, delimited(b"\x5a", VARINTS)),
    ("int64_data, an overlong one", TENSOR, delimited(b"\x3a", VARINTS + b"\x80\x00" + VARINTS)),
    ("int64_data, 11 bytes", TENSOR, delimited(b"\x3a", VARINTS + b"\x80" * 10 + b"\x01" + VARINTS)),
    ("int64_data, cut off", TENSOR, delimited(b"\x3a", VARINTS + b"\x80")),
    ("double_data, no multiple of 8", TENSOR, delimited(b"\x52", PACKED["52"] + b"1234")),
    ("packed, beyond its message", TENSOR, b"\x22" + varint(2801) + PACKED["22"]),
    ("packed twice", TENSOR, delimited(b"\x22", PACKED["22"]) * 2),
    ("unpacked ones in a packed field", TENSOR, ints(*range(900), tag=b"\x38")),
    ("packed, then one by itself", TENSOR, delimited(b"\x3a", VARINTS) + b"\x38\x05"),
    ("a signalling NaN in float_data", TENSOR, delimited(b"\x22", PACKED["22"] + SIGNALLING)),
]
REFUSED = {
    "a varint of 11 bytes",
    "a varint of 11 bytes at the start",
    "nothing but bytes that go on",
    "a tag of six bytes",
    "field number 0 inside",
    "the last value cut off",
    "a tag, and nothing behind it",
    "a float cut off",
    "a tag of floats, and nothing behind it",
    "packed floats, no multiple of 4",
    "a length past the end",
    "a length cut off",
    "a length of six bytes",
    "a length above 2**31",
    "int64_data, 11 bytes",
    "int64_data, cut off",
    "double_data, no multiple of 8",
    "packed, beyond its message",
}


def generated(cls: type[Message], data: bytes, wide: bool) -> Message:
    view = memoryview(data)
    budget = interpret.Allowance(1 << 30)
    message: Message = decoder(cls, wide)(view, view if wide else data, 0, len(data), 0, budget, MAX_DEPTH)
    budget.settle()
    return message


@pytest.mark.parametrize(("what", "cls", "data"), ROWS, ids=[row[0] for row in ROWS])
def test_row(what: str, cls: type[Message], data: bytes) -> None:
    node = ps.NodeProto if cls is ATTRIBUTE else ps.AttributeProto
    data = delimited(b"\x2a", data)  # so that the error has a path, and bytes behind it
    expected = rewritten(node, data + b"\x0a\x01x")
    assert (expected is None) == (what in REFUSED)
    if expected is None:
        with pytest.raises(ps.DecodeError) as reference:
            interpret.decode(node, memoryview(data), 0, len(data), interpret.Allowance(1 << 30))
        with pytest.raises(ps.DecodeError) as shown:
            node.FromString(data)
        assert (str(shown.value), shown.value.path, shown.value.offset) == (
            str(reference.value),
            reference.value.path,
            reference.value.offset,
        )
        for wide in (False, True):
            with pytest.raises(Exception):  # noqa: B017 -- generated code may raise anything
                generated(node, data, wide)
        return
    data += b"\x0a\x01x"
    reference_message = interpret.decode(node, memoryview(data), 0, len(data), interpret.Allowance(1 << 30))
    for wide in (False, True):
        message = generated(node, data, wide)
        copied = copy.deepcopy(message)
        assert message.ByteSize() == len(expected)
        assert message.SerializeToString() == expected
        assert not difference(reference_message, message)  # this asks for every list
        assert message.ByteSize() == len(expected)
        assert message.SerializeToString() == expected == copied.SerializeToString() == interpret.encode(message)


def test_whole_runs_are_runs() -> None:
    """Or the rows would test nothing."""
    odd = {"int32_data beyond 32 bits", "int32_data, negative in five bytes", "int64_data, an overlong one"}
    odd |= {"packed twice", "unpacked ones in a packed field", "packed ones behind unpacked ones"}
    for wide, (what, cls, data) in product((False, True), ROWS):
        if what not in REFUSED | odd:
            message = generated(cls, data, wide)
            assert any(isinstance(getattr(message, field.slot), runs.Run) for field in cls.FIELDS), what


class Listed(Message):
    """A class with fields that ONNX does not have."""

    class Color(Enum):
        RED = 0
        BLUE = 1

    numbers: list[int] = repeated(1, INT32)
    colors: list[int] = repeated(2, Color)
    late: list[int] = repeated(20, INT32)
    wide: list[float] = repeated(3, DOUBLE)


def test_fields_that_have_no_runs() -> None:
    """Enums, whose unknown values go elsewhere, and tags of two bytes."""
    assert {field.name for field in Listed.FIELDS if field.form} == {"numbers", "wide"}
    assert next(field for field in Listed.FIELDS if field.name == "colors").kind is ENUM
    data = b"\x10\x00\x10\x01\x10\x05" * 300 + b"\xa0\x01\x05" * 500
    message = Listed.FromString(data)
    assert message.colors == [0, 1] * 300
    assert message.unknown_fields == b"\x10\x05" * 300
    assert message.late == [5] * 500


# (fields, values): what is written must be what the interpreter writes, also for odd kinds of numbers
WRITTEN: list[tuple[type[Message], str, list[Any]]] = [
    (ATTRIBUTE, "ints", [True, False, np.int64(-5), 2**63 - 1, -(2**63)] * 30),
    (ATTRIBUTE, "floats", [1, True, np.float32(0.1), 0.1, 1e39, -1e39, float("nan"), 3.4028235677973366e38] * 30),
    (
        ATTRIBUTE,
        "floats",
        list(struct.unpack("<3d", bytes.fromhex("010000000000f07f000000200000f0ff010000000000f0ff"))) * 30,
    ),
    (ATTRIBUTE, "strings", [b"a", bytearray(b"b"), memoryview(b"c")] * 40),
    (ATTRIBUTE, "strings", [b"", b"x" * 127, b"y" * 128, b"z" * 20000] * 40),
    (TENSOR, "dims", list(range(0, 2**20, 2**12))),
    (TENSOR, "int32_data", [-1, 2**31 - 1, -(2**31), np.int8(-3)] * 30),
    (TENSOR, "uint64_data", [2**64 - 1, 0, 127, 128, 2**63] * 30),
    (TENSOR, "float_data", [0.1, -0.0, float("inf"), 1e39] * 30),
    (TENSOR, "double_data", [0.1, 1e300, 7] * 30),
]


@pytest.mark.parametrize(("cls", "name", "values"), WRITTEN)
def test_written(cls: type[Message], name: str, values: list[Any]) -> None:
    message = cls(**{name: values})
    assert message.SerializeToString() == interpret.encode(message)
    assert message.ByteSize() == len(message.SerializeToString())


# values that a field cannot hold, among many that it can
UNFIT: list[tuple[type[Message], str, Any]] = [
    (ATTRIBUTE, "ints", 2**63),
    (ATTRIBUTE, "ints", 1.5),
    (ATTRIBUTE, "ints", "5"),
    (ATTRIBUTE, "floats", "0.5"),
    (ATTRIBUTE, "floats", None),
    (ATTRIBUTE, "strings", "text"),
    (ATTRIBUTE, "strings", 5),
    (TENSOR, "int32_data", 2**31),
    (TENSOR, "int32_data", 0.5),
    (TENSOR, "uint64_data", -1),
    (TENSOR, "float_data", "x"),
]


@pytest.mark.parametrize(("cls", "name", "value"), UNFIT)
def test_unfit(cls: type[Message], name: str, value: Any) -> None:
    plain: Any = b"" if name == "strings" else 1
    message = cls(**{name: [*[plain] * 200, value, plain]})
    with pytest.raises(ps.EncodeError) as reference:
        interpret.encode(message)
    with pytest.raises(ps.EncodeError) as shown:
        message.SerializeToString()
    assert str(shown.value) == str(reference.value)


def many() -> ps.AttributeProto:
    return ps.AttributeProto.FromString(FLOAT + WIDE + WORDS)


def test_a_list_is_a_list() -> None:
    message = many()
    assert type(message.ints) is type(message.floats) is type(message.strings) is list
    assert message.ints is message.ints
    assert json.loads(json.dumps(message.ints)) == drawn(1) == pickle.loads(pickle.dumps(message.ints))
    message.ints.append(7)
    message.strings[0] = b"other"
    message.floats[:] = [1.0]
    expected = ps.AttributeProto(ints=[*drawn(1), 7], strings=[b"other", *many().strings[1:]], floats=[1.0])
    assert message == expected
    assert message.SerializeToString() == expected.SerializeToString()
    message.ints = [3]
    assert message.ints == [3]
    message.ClearField("strings")
    assert message.strings == []
    assert not message.HasField("i")


def test_equality() -> None:
    """Of runs with runs, of runs with lists, and with the numbers that have several forms."""
    touched = many()
    assert touched.ints
    assert many() == many() == touched == many()
    assert many() != ps.AttributeProto.FromString(FLOAT + ints(*drawn(1)[:-3]) + WORDS)
    zeros, negative = (ps.AttributeProto.FromString(floats(*[zero] * 300)) for zero in (0.0, -0.0))
    assert zeros == negative
    odd = ps.AttributeProto.FromString(FLOAT + SINGLE + NAN)
    assert odd == copy.deepcopy(odd) == copy.copy(odd)  # as lists with the same NaN are equal
    assert odd != ps.AttributeProto.FromString(FLOAT + SINGLE + NAN)
    assert odd.SerializeToString() == FLOAT + SINGLE + NAN


def test_copies() -> None:
    message = many()
    deep, shallow, pickled = copy.deepcopy(message), copy.copy(message), pickle.loads(pickle.dumps(message))
    assert isinstance(deep._ints, runs.Run)  # type: ignore[attr-defined]
    message.ints.append(5)
    assert shallow.ints is message.ints
    assert deep.ints == pickled.ints == drawn(1)
    assert deep.ints is not message.ints
    assert shallow.SerializeToString() == message.SerializeToString()
    merged = many()
    merged.MergeFrom(many())
    assert merged.ints == drawn(1) * 2
    taken = ps.AttributeProto()
    taken.CopyFrom(many())
    assert taken == many()
    after = many()
    other = copy.copy(after)
    other.ints.clear()
    assert after.SerializeToString() == FLOAT + WORDS
    assert after.ByteSize() == len(FLOAT + WORDS)


def test_threads_get_one_list() -> None:
    for _ in range(20):
        message, found, barrier = many(), [], threading.Barrier(4)

        def read(message: ps.AttributeProto = message, found: list[Any] = found, barrier: Any = barrier) -> None:
            barrier.wait()
            found.append(message.floats)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(values) for values in found}) == 1
        assert message.floats is found[0]


def test_what_only_looks_makes_no_list() -> None:
    message = many()
    shown = repr(message)
    assert "ints=[" in shown
    assert "684 more" in shown
    assert message.ByteSize() == len(message.SerializeToString())
    assert all(isinstance(getattr(message, name), runs.Run) for name in ("_ints", "_floats", "_strings"))
    assert shown == repr(
        interpret.decode(
            ATTRIBUTE, memoryview(FLOAT + WIDE + WORDS), 0, len(FLOAT + WIDE + WORDS), interpret.Allowance(1 << 30)
        )
    )


def test_numbers_as_arrays() -> None:
    message = many()
    array = numbers(message, "ints")
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.int64
    assert array.tolist() == message.ints == numbers(message, "ints")
    tensor = ps.TensorProto.FromString(b"\x08\xbc\x05\x10\x01" + delimited(b"\x22", PACKED["22"]))
    assert np.array_equal(ps.numpy_helper.to_array(tensor), np.arange(700, dtype=np.float32))
    assert isinstance(tensor._float_data, runs.Run)  # type: ignore[attr-defined]
