"""safetensors headers: every type reads as its bytes, and every malformed header is refused with the place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proto_schema.external.payload import FileRange
from proto_schema.tensors.dtypes import DTYPES
from purexport.weights import Stored, WeightsError, open_weights
from purexport.weights.safetensors import DATA_TYPES, LONGEST_HEADER
from tests.weights import made

DATA = bytes(range(200))

# (the format's name, bits of an element, what TensorProto calls it)
TYPES = [
    ("BOOL", 8, "BOOL"),
    ("U8", 8, "UINT8"),
    ("I8", 8, "INT8"),
    ("U16", 16, "UINT16"),
    ("I16", 16, "INT16"),
    ("U32", 32, "UINT32"),
    ("I32", 32, "INT32"),
    ("U64", 64, "UINT64"),
    ("I64", 64, "INT64"),
    ("F16", 16, "FLOAT16"),
    ("BF16", 16, "BFLOAT16"),
    ("F32", 32, "FLOAT"),
    ("F64", 64, "DOUBLE"),
    ("C64", 64, "COMPLEX64"),
    ("F8_E4M3", 8, "FLOAT8E4M3FN"),
    ("F8_E4M3FNUZ", 8, "FLOAT8E4M3FNUZ"),
    ("F8_E5M2", 8, "FLOAT8E5M2"),
    ("F8_E5M2FNUZ", 8, "FLOAT8E5M2FNUZ"),
    ("F8_E8M0", 8, "FLOAT8E8M0"),
    ("F4", 4, "FLOAT4E2M1"),
]


def test_every_type_has_a_row() -> None:
    assert {row[0] for row in TYPES} == set(DATA_TYPES)


@pytest.mark.parametrize(("kind", "bits", "name"), TYPES, ids=[row[0] for row in TYPES])
def test_types(kind: str, bits: int, name: str, tmp_path: Path) -> None:
    size = 6 * bits // 8
    header = {"w": {"dtype": kind, "shape": [2, 3], "data_offsets": [0, size]}}
    found = open_weights(made.safetensors(tmp_path / "m.safetensors", header, DATA[:size]))["w"]
    assert isinstance(found, Stored) and DTYPES[found.dtype].name == name
    assert found.shape == (2, 3) and found.nbytes == size and found.payload == DATA[:size]
    assert found.origin == "m.safetensors" and found.name == "w"


def entry(begin: int, end: int, shape: Any = None, dtype: Any = "U8", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end], **more}


# (what is in it, header, bytes of data, {name: bytes})
GOOD: list[tuple[str, Any, int, dict[str, bytes]]] = [
    ("nothing", {}, 0, {}),
    ("metadata only", {"__metadata__": {"format": "pt"}}, 0, {}),
    ("not in the order of the data", {"b": entry(4, 9), "a": entry(0, 4)}, 9, {"b": DATA[4:9], "a": DATA[:4]}),
    ("unaligned numbers", {"a": entry(0, 1), "b": entry(1, 9, [2], "F32")}, 9, {"a": DATA[:1], "b": DATA[1:9]}),
    ("a scalar", {"a": entry(0, 8, [], "I64")}, 8, {"a": DATA[:8]}),
    ("no elements", {"a": entry(0, 0, [0, 3]), "b": entry(0, 2), "c": entry(2, 2)}, 2, {"a": b"", "b": DATA[:2]}),
    ("padding of the header", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', 1, {"a": DATA[:1]}),
    (
        "names as they come",
        {"": entry(0, 1), "\u00e4 \x00/": entry(1, 2)},
        2,
        {"": DATA[:1], "\u00e4 \x00/": DATA[1:2]},
    ),
    ("metadata among the tensors", {"a": entry(0, 1), "__metadata__": {"a": "b"}}, 1, {"a": DATA[:1]}),
]


@pytest.mark.parametrize(("header", "size", "expected"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD])
def test_what_is_read(header: Any, size: int, expected: dict[str, bytes], tmp_path: Path) -> None:
    found = open_weights(made.safetensors(tmp_path / "m.safetensors", header, DATA[:size]))
    assert {name: found[name].payload.tobytes() for name in expected} == expected


def text(entries: str) -> bytes:
    return ("{" + entries + "}").encode()


ONE = '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
AGAIN = "; write the checkpoint again with the safetensors library"
SIZES = " not a list of sizes"

# (what is wrong, header, bytes of data, the message behind the file's name)
BAD: list[tuple[str, Any, int, str]] = [
    (
        "no JSON",
        b"{a}",
        0,
        "its header is not the JSON of the format: Expecting property name enclosed in double quotes",
    ),
    ("more behind it", b"{} {}", 0, "its header is not the JSON of the format: Extra data"),
    ("another beginning", b" {}", 0, "its header must begin with '{', not b' {}'; it is not a safetensors file"),
    ("a list", b"[]", 0, "its header must begin with '{', not b'[]'"),
    ("no UTF-8", b'{"\xff":1}', 0, "its header is not the JSON of the format: 'utf-8' codec can't decode byte 0xff"),
    ("UTF-16", "{}".encode("utf-16-le"), 0, "its header is not the JSON of the format"),
    ("NaN", text('"a":NaN'), 0, "its header is not the JSON of the format: NaN is no JSON" + AGAIN),
    ("deep", b'{"a":' + b"[" * 100_000, 0, "its header is nested too deeply" + AGAIN),
    ("a tensor twice", text(f"{ONE},{ONE}"), 1, "its header is not the JSON of the format: the key 'a' comes twice"),
    (
        "a key twice",
        text('"a":{"dtype":"U8","dtype":"I8"}'),
        0,
        "its header is not the JSON of the format: the key 'dtype'",
    ),
    ("metadata of numbers", {"__metadata__": {"a": 1}}, 0, "__metadata__ must be an object of texts" + AGAIN),
    ("metadata, a list", {"__metadata__": []}, 0, "__metadata__ must be an object of texts"),
    ("no entry", {"a": 3}, 0, "tensor 'a': its entry must have dtype, shape and data_offsets, and is 3"),
    (
        "a key less",
        {"a": {"dtype": "U8"}},
        0,
        "tensor 'a': its entry must have dtype, shape and data_offsets, and has 'dtype'",
    ),
    ("a key more", {"a": entry(0, 1, scale=2)}, 1, "and has 'dtype', 'shape', 'data_offsets', 'scale'"),
    (
        "another type",
        {"a": entry(0, 1, dtype="F6_E2M3")},
        1,
        "tensor 'a': the dtype 'F6_E2M3' is not one of F32 U8 I8",
    ),
    ("a number as type", {"a": entry(0, 1, dtype=[1])}, 1, "tensor 'a': the dtype [1] is not one of"),
    ("a shape of floats", {"a": entry(0, 1, [1.0])}, 1, "tensor 'a': the shape [1.0] is" + SIZES),
    ("a shape of truths", {"a": entry(0, 1, [True])}, 1, "tensor 'a': the shape [True] is" + SIZES),
    ("a negative size", {"a": entry(0, 1, [-1])}, 1, "tensor 'a': the shape [-1] is" + SIZES),
    ("no list as shape", {"a": entry(0, 1, "1")}, 1, "tensor 'a': the shape '1' is" + SIZES),
    (
        "an overflow",
        {"a": entry(0, 0, [2**40, 2**40])},
        0,
        "tensor 'a': the shape [1099511627776, 1099511627776] is neg",
    ),
    ("an overflow with 0", {"a": entry(0, 0, [2**64, 0])}, 0, "overflows 64 bits"),
    (
        "three offsets",
        {"a": {**entry(0, 1), "data_offsets": [0, 1, 2]}},
        1,
        "the data_offsets [0, 1, 2] are not two asc",
    ),
    (
        "offsets that descend",
        {"a": {**entry(0, 1), "data_offsets": [2, 1]}},
        2,
        "the data_offsets [2, 1] are not two asc",
    ),
    (
        "negative offsets",
        {"a": {**entry(0, 1), "data_offsets": [-1, 0]}},
        2,
        "the data_offsets [-1, 0] are not two asc",
    ),
    (
        "too few bytes",
        {"a": entry(0, 7, [2], "F32")},
        7,
        "tensor 'a': bytes 0 to 7 of the data are 7, but F32 [2] needs 8",
    ),
    (
        "a gap",
        {"a": entry(0, 1), "b": entry(3, 4)},
        4,
        "tensor 'b': bytes 1 to 3 of the data, before it, belong to no tensor",
    ),
    (
        "a gap at the start",
        {"a": entry(1, 2)},
        2,
        "tensor 'a': bytes 0 to 1 of the data, before it, belong to no tensor",
    ),
    ("a gap at the end", {"a": entry(0, 2)}, 5, "bytes 2 to 5 of the data, at its end, belong to no tensor" + AGAIN),
    (
        "an overlap",
        {"b": entry(2, 6), "a": entry(0, 4)},
        6,
        "tensor 'b': bytes 2 to 6 of the data overlap tensor 'a', which ends at 4",
    ),
    (
        "the same bytes",
        {"a": entry(0, 4), "b": entry(0, 4)},
        4,
        "tensor 'b': bytes 0 to 4 of the data overlap tensor 'a'",
    ),
    (
        "cut off",
        {"a": entry(0, 4), "b": entry(4, 9)},
        7,
        "tensor 'b': its bytes end at 9, but the file has 7 bytes of data; "
        "the file is cut off: copy or download it again",
    ),
    (
        "a name that is not text",
        text(ONE.replace('"a"', '"\\ud800"')),
        1,
        "tensor '\\ud800': the name is not text" + AGAIN,
    ),
    ("long names are cut", {"n" * 5000: 3}, 0, "n...nnn"),
]


@pytest.mark.parametrize(("header", "size", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_is_refused(header: Any, size: int, message: str, tmp_path: Path) -> None:
    path = made.safetensors(tmp_path / "m.safetensors", header, DATA[:size])
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert str(caught.value).startswith("m.safetensors: ") and message in str(caught.value)
    assert str(caught.value).isascii() and len(str(caught.value)) < 500


# (bytes of the file, the message behind the file's name)
SHORT = [
    (b"", "it is not a checkpoint; the file is empty: write or download it again"),
    (bytes(70), "it is not a checkpoint; it begins with zeros: the download or copy was not finished"),
    (b"1234567", "it has 7 bytes, too few for a safetensors file; copy or download it again"),
    ((3).to_bytes(8, "little") + b"{}", "its header would have 3 bytes, but 2 follow; copy or download the file again"),
    (
        (LONGEST_HEADER + 1).to_bytes(8, "little"),
        "its header would have 100000001 bytes, more than the 100000000 of the",
    ),
    (b"\xff" * 8 + b"{}", "its header would have 18446744073709551615 bytes, more than"),
]


@pytest.mark.parametrize(("data", "message"), SHORT, ids=[row[1][:30] for row in SHORT])
def test_files_without_a_header(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert str(caught.value).startswith(f"m.safetensors: {message}")


def test_nothing_of_the_data_is_read(tmp_path: Path) -> None:
    """A terabyte that is not there: a sparse file, whose ranges know the file."""
    size = 1 << 40
    path = made.safetensors(tmp_path / "m.safetensors", {"w": entry(0, size, [1 << 10, 1 << 30])})
    start = path.stat().st_size
    os.truncate(path, start + size)
    found = open_weights(path)["w"]
    assert isinstance(found.payload, FileRange)
    assert (found.payload.source, found.payload.offset, found.nbytes) == (str(path), start, size)
    assert found.payload.stamp is not None


def test_many_tensors(tmp_path: Path) -> None:
    header = {f"model.layers.{at}.weight": entry(4 * at, 4 * at + 4, [1], "F32") for at in range(20_000)}
    data = np.arange(20_000, dtype="<f4")
    found = open_weights(made.safetensors(tmp_path / "m.safetensors", header, data.tobytes()))
    assert len(found) == 20_000
    assert found["model.layers.17777.weight"].payload == data[17777:17778].tobytes()
