"""Whether only the end of a file is missing from its last field."""

from __future__ import annotations

import pytest

import proto_schema as ps
from proto_schema.wire import LEN, varint
from purexport.inspect import Bytes
from purexport.inspect.cut_short import is_cut_short

DIMS = bytes([1 << 3, 100])
TYPE = bytes([2 << 3, ps.TensorProto.INT8])
NAME = bytes([8 << 3 | LEN, 1]) + b"w"


def field(number: int, body: bytes, announced: int | None = None) -> bytes:
    """A field of bytes whose length may say something else."""
    return varint(number << 3 | LEN) + varint(len(body) if announced is None else announced) + body


RAW = field(9, bytes(40), 100)  # 60 of its 100 bytes are missing
# what the bytes of a tensor are, they, the length that its header announces (None: 60 more), whether it is cut short
ROWS = [
    ("its data lacks the end", DIMS + TYPE + NAME + RAW, None, True),
    ("its type is not known", NAME + RAW, None, True),
    ("nothing of it is there", b"", None, True),
    ("its data begins with the end", DIMS + TYPE + varint(9 << 3 | LEN), None, True),
    ("a field in it ends with the file", DIMS + TYPE + NAME, None, True),
    ("its data is larger than its sizes", DIMS + TYPE + NAME + field(9, bytes(40), 101), 60 + 41 + 9, False),
    ("its data passes its own end", DIMS + TYPE + NAME + RAW, 60, False),
    ("a field before is not known", field(77, b"x") + RAW, None, False),
    ("a field before is damaged", field(4, b"abc") + RAW, None, False),
    ("its last field is not known", DIMS + TYPE + field(77, b"x"), None, False),
    ("its last tag is none", DIMS + TYPE + b"\x07", None, False),
    ("it passes the end of its parent", DIMS + TYPE + NAME + RAW, 1 << 20, False),
    ("it is whole", DIMS + TYPE + NAME, 7, False),
]


@pytest.mark.parametrize(("name", "body", "announced", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_is_cut_short(name: str, body: bytes, announced: int | None, expected: bool) -> None:
    source = Bytes(field(5, body, len(body) + 60 if announced is None else announced), ps.GraphProto)
    child = next(source.children(source.whole()))
    assert is_cut_short(source, child, 1 << 20) is expected
    assert is_cut_short(source, child, None) is (expected or "its parent" in name)
