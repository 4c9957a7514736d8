"""`--input` of odd arrays, sizes and ranges: one line that says what to write, or the right tensor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from purexport.cli.main import main
from purexport.cli.specs import parse_input


def _header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def _shaped(shape: str, data: bytes = b"") -> bytes:
    return _header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", data)


NO_TYPE = "ONNX has no data type for numpy's "

# a .npy file, as an array or as bytes; what is said of it
FILES: list[tuple[str, Any, str]] = [
    ("a record", np.zeros(3, dtype=[("a", "f4"), ("b", "i8")]), "does not describe an array of numbers"),
    ("objects", np.array([1, "a", None], dtype=object), "does not describe an array of numbers"),
    ("text", np.array(["ab", "c"]), NO_TYPE + "<U2"),
    ("octets", np.array([b"ab", b"c"]), NO_TYPE + "|S2"),
    ("a date", np.array(["2020-01-01"], dtype="M8[D]"), "does not describe an array of numbers"),
    ("a duration", np.array([1, 2], dtype="m8[s]"), "does not describe an array of numbers"),
    ("big-endian", np.arange(4, dtype=">f4"), "it is big-endian; write it with array.astype('<f4')"),
    ("big-endian integers", np.arange(4, dtype=">i8"), "it is big-endian; write it with array.astype('<i8')"),
    ("long double", np.arange(4, dtype=np.longdouble), NO_TYPE + "float128"),
    ("octets without a meaning", np.zeros(3, dtype="V5"), NO_TYPE + "|V5"),
    ("nothing", b"", "the file is empty"),
    ("zeros", bytes(64), "numpy's versions 1 to 3"),
    ("a part of the data", _shaped("(2, 2)", bytes(13)), "asks for 16 bytes of data, but 13 follow"),
    ("a part of the header", _shaped("(2, 2)")[:30], "its header would have"),
    ("a huge shape", _shaped("(99999999999, 9999)"), "but 0 follow"),
    ("an overflowing shape", _shaped("(9223372036854775807, 4)"), "is negative or overflows 64 bits"),
    ("a negative shape", _shaped("(-1, 4)"), "does not describe an array of numbers"),
    ("a shape of truth", _shaped("(True, 4)"), "does not describe an array of numbers"),
    ("a deep header", _header("(" * 2000), "does not describe an array of numbers"),
]


def _refused(spec: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    assert main(["export", "torch.nn:Identity", "--input", spec, "-o", "out.onnx"]) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and streams.err.count("\n") == 1 and len(streams.err) < 600
    assert "--traceback" not in streams.err and not os.path.exists("out.onnx")
    return streams.err


@pytest.mark.parametrize(("content", "said"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_file_that_is_no_array_of_numbers(
    content: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        Path("a.npy").write_bytes(content)
    else:
        np.save("a.npy", content, allow_pickle=True)
    line = _refused("x=@a.npy", capsys)
    assert "a.npy: " in line and said in line


ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    np.zeros((0, 4), np.float16),
    np.float64(3),
    np.array([True, False]),
    np.arange(3, dtype=np.uint16),
    np.array([1 + 2j], np.complex64),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_an_array_is_read_as_it_is(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    made = parse_input(f"x=@{tmp_path / 'a.npy'}").make(torch.Generator())
    assert str(made.numpy().dtype) == str(array.dtype)
    np.testing.assert_array_equal(made.numpy(), array)


# an input, what is said of it
SPECS = [
    ("float32[999999999,999999999]", "needs 3,999,999,992 GB of memory; write smaller sizes"),
    ("float32[99999999999999999999]", "more elements than a tensor can have"),
    ("float32[0,9999999999999999999]", "more elements than a tensor can have"),
    ("float32[4611686018427387904]", "needs 18,446,744,074 GB of memory; write smaller sizes"),
    ("float32[9223372036854775807,2]", "more elements than a tensor can have"),
    (f"float32[{'9' * 5000}]", "a number has more than 30 digits"),
    ("complex64[99999999999]", "needs 800 GB of memory; write smaller sizes"),
    ("float16[9999999999999]", "needs 60,000 GB of memory; write smaller sizes"),
    ("float32[-1,4]", "write NAME=DTYPE[SIZES]"),
    ("float32[1.5]", "write NAME=DTYPE[SIZES]"),
    ("float32[\u0663]", "write NAME=DTYPE[SIZES]"),
    ("int64[4]:0..99999999999999999999", "int64 drawn here has only -9223372036854775808 to 9223372036854775806"),
    (f"int64[4]:0..{'9' * 5000}", "a number has more than 30 digits"),
    ("int64[4]:0..9223372036854775807", "int64 drawn here has only -9223372036854775808 to 9223372036854775806"),
    ("int8[4]:0..300", "int8 drawn here has only -128 to 127"),
    ("uint8[4]:-5..5", "uint8 drawn here has only 0 to 255"),
    ("bool[4]:0..9", "bool drawn here has only 0 to 1"),
    ("float16[4]:0..70000", "float16 drawn here has only -65504 to 65504"),
]


@pytest.mark.parametrize(("spec", "said"), SPECS, ids=[row[0][:40] for row in SPECS])
def test_sizes_and_ranges_that_no_tensor_has(
    spec: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = _refused(f"x={spec}", capsys)
    assert line.startswith("purexport export: --input ") and said in line


RANGES = [
    ("int8[99]:-128..127", -128, 127),
    ("bool[9]:0..1", 0, 1),
    ("uint64[9]:5..5", 5, 5),
    ("bfloat16[9]:2..9", 2, 9),
]


@pytest.mark.parametrize(("spec", "low", "high"), RANGES)
def test_the_ends_of_a_range_are_drawn(spec: str, low: int, high: int) -> None:
    made = parse_input(f"x={spec}").make(torch.Generator().manual_seed(0)).to(torch.int64)
    assert low <= int(made.min()) and int(made.max()) <= high
