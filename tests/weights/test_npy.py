"""numpy's files: what numpy writes is read where it lies, and everything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proto_schema.derived.strided import StridedPayload
from proto_schema.external.payload import FileRange
from proto_schema.tensors.dtypes import DTYPES
from purexport.weights import WeightsError, open_weights
from tests.weights import made

GRID = np.arange(24).reshape(2, 3, 4)
TYPES = ["f4", "u1", "i1", "u2", "i2", "i4", "i8", "?", "f2", "f8", "u4", "u8", "c8", "c16"]


@pytest.mark.parametrize("kind", TYPES)
def test_types_and_orders(kind: str, tmp_path: Path) -> None:
    arrays = {
        "c": GRID.astype(kind),
        "fortran": np.asfortranarray(GRID.astype(kind)),
        "vector": GRID.astype(kind)[0, 0],
        "number": GRID.astype(kind)[0, 0, 1],
        "empty": np.zeros((0, 3), kind),
    }
    np.savez(tmp_path / "m.npz", **arrays)
    found = open_weights(tmp_path / "m.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        alone = open_weights(tmp_path / f"{name}.npy")
        assert list(alone) == [name]
        for row in (found[name], alone[name]):
            assert np.dtype(DTYPES[row.dtype].numpy) == array.dtype and row.shape == array.shape
            assert row.payload.tobytes() == array.tobytes()
            assert isinstance(row.payload, StridedPayload if name == "fortran" else FileRange)


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header.encode("latin-1") + data


# (form of the header, which numpy or another writer may use)
HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }          \n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
    '{"shape": (2,), "descr": "<f4", "fortran_order": False}\n',
    "{'descr':'<f4','fortran_order':False,'shape':(2L,)}",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_forms_of_the_header(header: str, version: int, tmp_path: Path) -> None:
    (tmp_path / "m.npy").write_bytes(npy(header, b"12345678", version))
    assert open_weights(tmp_path / "m.npy")["m"].payload == b"12345678"


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)", more: str = "") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {more}}}"


# (what, bytes of the file, message behind the array's name)
WRONG: list[tuple[str, bytes, str]] = [
    ("cut off", b"\x93NUMPY\1", "it does not begin as numpy's versions 1 to 3 of the format do"),
    ("a newer version", npy(header(), b"12345678", 4), "it does not begin as numpy's versions 1 to 3"),
    ("a long header", b"\x93NUMPY\1\0\xff\xff", "its header would have 65535 bytes"),
    ("a header beyond the file", b"\x93NUMPY\1\0\x05\0{", "its header would have 5 bytes"),
    ("no literal", npy("print(1)"), "its header 'print(1)' does not describe an array of numbers"),
    ("an expression", npy(header(shape="(1+1,)"), b"12345678"), "does not describe an array of numbers"),
    ("a nested shape", npy(header(shape="((2,),)"), b"12345678"), "does not describe an array of numbers"),
    ("a negative size", npy(header(shape="(-2,)"), b"12345678"), "does not describe an array of numbers"),
    ("no sizes", npy(header(shape="(1 2,)"), b"12345678"), "its type '<f4' or its shape (1 2,) is none"),
    ("a record", npy(header("[('a', '<f4')]"), b"12345678"), "does not describe an array of numbers"),
    ("something more", npy(header(more="'x': 1"), b"12345678"), "has more than a type, an order and a shape"),
    ("something before", npy("x" + header(), b"12345678"), "has more than a type, an order and a shape"),
    ("no type", npy(header("'<f3'"), b"12345678"), "its type '<f3' or its shape (2,) is none"),
    ("text", npy(header("'<U1'"), b"12345678"), "ONNX has no data type for numpy's <U1"),
    ("objects", npy(header("'|O8'"), b"12345678"), "ONNX has no data type for numpy's object"),
    ("a date", npy(header("'<M8'"), b"12345678"), "ONNX has no data type for numpy's datetime64"),
    ("big-endian", npy(header("'>f4'"), b"12345678"), "it is big-endian"),
    ("too little data", npy(header(), b"1234567"), "its header asks for 8 bytes of data, but 7 follow"),
    ("too much data", npy(header(), b"123456789"), "its header asks for 8 bytes of data, but 9 follow"),
    ("an overflow", npy(header(shape="(4294967296, 4294967296)")), "is negative or overflows 64 bits"),
    ("digits without end", npy(header(shape=f"({'9' * 390},)")), "is negative or overflows 64 bits"),
]


@pytest.mark.parametrize(("data", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(data)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "w.npy")
    assert str(caught.value).startswith("w.npy: array 'w': ") and message in str(caught.value)
    assert str(caught.value).endswith("; save the array with numpy.save")


# (what, how it is written, message)
ARCHIVES: list[tuple[str, Callable[[Path], Any], str]] = [
    (
        "compressed",
        lambda path: np.savez_compressed(path, a=GRID),
        "member 'a.npy' is compressed (deflate); save them with numpy.savez, not savez_compressed",
    ),
    (
        "no array",
        lambda path: (np.savez(path, a=GRID), made.rezipped(path, {"a.npy": b"x" * 20})),
        "array 'a': it does not",
    ),
    ("empty", lambda path: np.savez(path), "the zip archive has no data.pkl: it was not written by torch.save"),
]


@pytest.mark.parametrize(("write", "message"), [row[1:] for row in ARCHIVES], ids=[row[0] for row in ARCHIVES])
def test_archives_that_are_refused(write: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "m.npz")
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.npz")
    assert message in str(caught.value)
