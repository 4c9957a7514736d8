"""Strided ranges of a file: every step, cut into blocks of every size, gives the bytes in row-major order."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from proto_schema import ExternalDataError
from proto_schema.derived import strided
from proto_schema.derived.strided import StridedPayload, blocks, is_contiguous
from proto_schema.external.payload import FileRange, stamp_of

# (shape, steps, start): in items of a file of 4096
VIEWS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((), (), 5),
    ((7,), (3,), 0),
    ((64, 64), (1, 64), 0),
    ((16, 4, 64), (4, 1, 64), 0),
    ((4, 16, 64), (1, 4, 64), 0),
    ((3, 1, 5), (100, 7, 0), 11),
    ((5, 6), (0, 0), 4095),
    ((2, 2, 2, 2, 2), (1, 500, 20, 1000, 3), 1),
    ((1, 1), (4000, 9), 17),
    ((3,), (2000,), 95),
    ((0, 4), (1, 1), 0),
    ((63, 63), (65, 1), 0),
]
LIMITS = [(1 << 24, 1 << 23, 1 << 14), (1 << 12, 1 << 10, 64)]  # BLOCK, READ, SMALL
SMALLER = [(16, 16, 16), (40, 64, 8)]


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_views(itemsize: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(4096 * itemsize, dtype=np.uint64).astype(np.uint8).view(f"V{itemsize}")
    data.view(np.uint8)[:: itemsize * 3] = 7
    path = tmp_path / "data"
    path.write_bytes(b"head" + data.tobytes() + b"tail")
    base = FileRange(path, 4, data.nbytes)
    for limits in LIMITS if itemsize > 1 else LIMITS + SMALLER:
        for name, value in zip(("BLOCK", "READ", "SMALL"), limits, strict=True):
            monkeypatch.setattr(strided, name, value)
        for shape, steps, start in VIEWS:
            payload = StridedPayload(base, itemsize, shape, steps, start)
            expected = as_strided(data[start:], shape, [step * itemsize for step in steps]).tobytes()
            assert payload.nbytes == len(expected)
            assert payload.tobytes() == expected, (limits, shape, steps)
            permuted = payload.permuted(list(range(len(shape)))[::-1])
            view = as_strided(data[start:], shape, [step * itemsize for step in steps]).T
            assert permuted.tobytes() == view.tobytes()


@pytest.mark.parametrize(
    ("shape", "most"), [((), 1), ((5,), 2), ((3, 4), 12), ((3, 4), 5), ((3, 4, 5), 3), ((0, 3), 2)]
)
def test_blocks_make_up_the_shape(shape: tuple[int, ...], most: int) -> None:
    order = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    found = []
    for corner, extents in blocks(shape, most):
        block = order[tuple(slice(at, at + extent) for at, extent in zip(corner, extents, strict=True))]
        assert list(block.shape) == extents and block.size <= most
        found += block.ravel().tolist()
    assert found == order.ravel().tolist()


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transposed matrix in blocks and reads of a sixteenth: two of them are held at most, and one is read."""
    size = 1 << 22
    monkeypatch.setattr(strided, "BLOCK", size // 16)
    monkeypatch.setattr(strided, "READ", size // 16)
    monkeypatch.setattr(strided, "SMALL", size // 256)
    with (tmp_path / "data").open("wb") as file:
        file.truncate(size)
    payload = StridedPayload(FileRange(tmp_path / "data", 0, size), 4, (1024, 1024), (1, 1024))
    tracemalloc.start()
    try:
        assert sum(map(len, payload.chunks())) == size
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()


def test_a_file_that_changed_or_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(64))
    base = FileRange(path, 0, 64, stamp_of(path.stat()))
    assert StridedPayload(base, 4, (4, 4), (1, 4)) == bytes(64)
    path.write_bytes(bytes(60))
    with pytest.raises(ExternalDataError, match="has changed or been replaced"):
        StridedPayload(base, 4, (4, 4), (1, 4)).tobytes()
    with pytest.raises(EOFError, match="4 of 64 bytes at 0 are missing"):
        StridedPayload(FileRange(path, 0, 64), 4, (4, 4), (1, 4)).tobytes()


@pytest.mark.parametrize(
    ("shape", "steps", "expected"),
    [
        ((), (), True),
        ((3, 4), (4, 1), True),
        ((3, 1, 4), (4, 99, 1), True),
        ((1,), (0,), True),
        ((3, 4), (1, 3), False),
        ((3, 4), (8, 2), False),
        ((3, 4), (0, 1), False),
    ],
)
def test_is_contiguous(shape: tuple[int, ...], steps: tuple[int, ...], expected: bool) -> None:
    assert is_contiguous(shape, steps) is expected
