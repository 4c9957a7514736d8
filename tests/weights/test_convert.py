"""Casts equal torch's to the bit, NaN apart; transposed tensors equal numpy's, whatever their source is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proto_schema.derived import transposed as transposing
from proto_schema.derived.cast import CastPayload
from proto_schema.derived.strided import StridedPayload
from proto_schema.external.payload import LazyPayload, Payload
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES
from purexport.dtypes import torch_dtype
from purexport.weights import Stored, WeightsError, cast, convert, open_weights, transposed
from tests.weights import made

RNG = np.random.default_rng(7)


def patterns(bits: int) -> np.ndarray[Any, Any]:
    """Every pattern where they are few; else random ones, those around each rounding step, and the special values."""
    kind = f"<u{bits // 8}"
    if bits <= 16:
        return np.arange(1 << bits).astype(kind)
    drawn = RNG.integers(0, 1 << bits, 100_000, dtype=np.uint64, endpoint=False) if bits < 64 else None
    drawn = RNG.integers(0, 1 << 63, 100_000, dtype=np.uint64) * 2 if drawn is None else drawn
    halves = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(f"<f{bits // 8}").view(kind)
    upper = (np.arange(1 << 16).astype(np.uint64) << (bits - 16)).astype(kind)
    steps = [upper, upper + 0x7FFF, upper + 0x8000, upper + 0x8001, halves, halves + 1, halves - 1]
    middles = [halves + (1 << shift) for shift in ((12, 13) if bits == 32 else (28, 29, 41, 42))]
    return np.concatenate([drawn.astype(kind), *[np.asarray(part).astype(kind) for part in (*steps, *middles)]])


@pytest.mark.parametrize("before", convert.SOURCES, ids=lambda code: DTYPES[code].name)
@pytest.mark.parametrize("after", convert.TARGETS, ids=lambda code: DTYPES[code].name)
def test_casts_are_those_of_torch(before: int, after: int) -> None:
    codes = patterns(DTYPES[before].bits)
    source = torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(torch_dtype(before))
    expected = source.to(torch_dtype(after))
    result = cast(open_weights({"w": source})["w"], after)
    assert (result.dtype, result.shape, result.name) == (after, tuple(source.shape), "w")
    found = torch.frombuffer(bytearray(result.payload.tobytes()), dtype=torch_dtype(after))
    assert torch.equal(found.isnan(), expected.isnan())
    number = {2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    assert torch.equal(found.view(number)[~expected.isnan()], expected.view(number)[~expected.isnan()])


def test_casts_that_are_refused() -> None:
    integers = open_weights({"w": np.arange(3)})["w"]
    message = (
        r"^tensor 'w': INT64 to FLOAT is not a cast between floats; it can become FLOAT, FLOAT16, DOUBLE, BFLOAT16$"
    )
    with pytest.raises(WeightsError, match=message):
        cast(integers, TensorProto.FLOAT)
    with pytest.raises(WeightsError, match="FLOAT to FLOAT8E5M2 is not a cast"):
        cast(open_weights({"w": np.zeros(2, "f4")})["w"], TensorProto.FLOAT8E5M2)
    assert cast(integers, TensorProto.INT64) is integers


GRID = np.arange(60, dtype="<f4").reshape(3, 4, 5)


def pieced(data: bytes, size: int) -> Payload:
    """A payload that can only be read from its beginning, and whose pieces end within elements."""

    def parts() -> Iterator[bytes]:
        yield from (data[at : at + size] for at in range(0, len(data), size))

    return LazyPayload(len(data), parts)


def from_npz(folder: Path) -> Stored:
    np.savez(folder / "m.npz", w=np.asfortranarray(GRID))
    return open_weights(folder / "m.npz")["w"]


# (what the tensor is of, its making)
SOURCES: list[tuple[str, Callable[[Path], Stored]]] = [
    ("a range of a file", lambda folder: open_weights(made.of_arrays(folder / "m.safetensors", {"w": GRID}))["w"]),
    ("a strided range", from_npz),
    ("memory", lambda _: open_weights({"w": GRID})["w"]),
    ("strided memory", lambda _: open_weights({"w": GRID.T.copy().T})["w"]),
    ("a torch tensor", lambda _: open_weights({"w": torch.from_numpy(GRID)})["w"]),
    ("pieces", lambda _: Stored("w", 1, (3, 4, 5), pieced(GRID.tobytes(), 7), "here")),
    ("a cast", lambda _: cast(open_weights({"w": torch.from_numpy(GRID).bfloat16()})["w"], 1)),
]


@pytest.mark.parametrize("held", [1 << 20, 0])
@pytest.mark.parametrize("make", [row[1] for row in SOURCES], ids=[row[0] for row in SOURCES])
def test_transposed(make: Callable[[Path], Stored], held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposing, "HELD", held)
    stored = make(tmp_path)
    for axes in permutations(range(3)):
        once = transposed(stored, axes)
        assert once.shape == GRID.transpose(axes).shape
        assert once.payload.tobytes() == GRID.transpose(axes).tobytes()
        assert all(len(chunk) <= 8 for chunk in once.payload.chunks(8))
        twice = transposed(once, (1, 2, 0))
        assert twice.payload.tobytes() == GRID.transpose(axes).transpose(1, 2, 0).tobytes()
        half = cast(twice, TensorProto.FLOAT16)
        assert half.payload.tobytes() == GRID.transpose(axes).transpose(1, 2, 0).astype("<f2").tobytes()


def test_conversions_stay_in_the_file(tmp_path: Path) -> None:
    """A cast of a transposed tensor and the other way round both gather from the file, and are the same bytes."""
    stored = open_weights(made.of_arrays(tmp_path / "m.safetensors", {"w": GRID}))["w"]
    one = transposed(cast(stored, TensorProto.BFLOAT16), (2, 1, 0))
    other = cast(transposed(stored, (2, 1, 0)), TensorProto.BFLOAT16)
    assert isinstance(one.payload, CastPayload) and isinstance(one.payload.source, StridedPayload)
    assert one.payload.identity == other.payload.identity is not None
    assert one.payload == other.payload and one.payload.identity != cast(stored, TensorProto.BFLOAT16).payload.identity


# (what, shape, axes, message)
WRONG: list[tuple[str, tuple[int, ...], tuple[int, ...], str]] = [
    ("too few", (2, 3), (0,), "tensor 'w': (0,) is not an order of the axes of [2, 3]"),
    ("twice", (2, 3), (0, 0), "tensor 'w': (0, 0) is not an order of the axes of [2, 3]"),
    ("negative", (2, 3), (-1, 0), "tensor 'w': (-1, 0) is not an order of the axes of [2, 3]"),
]


@pytest.mark.parametrize(("shape", "axes", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_orders_that_are_refused(shape: tuple[int, ...], axes: tuple[int, ...], message: str) -> None:
    with pytest.raises(WeightsError) as caught:
        transposed(open_weights({"w": np.zeros(shape)})["w"], axes)
    assert str(caught.value) == message


def test_small_types_are_refused() -> None:
    stored = Stored("w", TensorProto.INT4, (2, 2), LazyPayload(2, lambda: b"ab"), "here")
    with pytest.raises(WeightsError, match="tensor 'w': INT4 shares bytes between elements"):
        transposed(stored, (1, 0))


# (what, shape and axes)
EDGES = [((), ()), ((0, 3), (1, 0)), ((1, 5, 1), (2, 1, 0)), ((7,), (0,))]


@pytest.mark.parametrize(("shape", "axes"), EDGES, ids=str)
def test_edges(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    array = RNG.random(shape).astype("<f4")
    for stored in (open_weights({"w": array})["w"], open_weights({"w": torch.from_numpy(np.asarray(array))})["w"]):
        found = transposed(transposed(stored, axes), axes)
        assert found.payload.tobytes() == np.asarray(array).transpose(axes).transpose(axes).tobytes()
        assert cast(found, TensorProto.DOUBLE).payload.tobytes() == array.astype("<f8").tobytes()


def test_memory_of_a_cast_is_bounded() -> None:
    """64 MB of a source that is never whole in memory."""
    size = 1 << 26
    source = LazyPayload(size, lambda: (bytes(1 << 20) for _ in range(size >> 20)))
    stored = cast(Stored("w", TensorProto.FLOAT, (size // 4,), source, "here"), TensorProto.BFLOAT16)
    tracemalloc.start()
    try:
        assert sum(map(len, stored.payload.chunks())) == size // 2
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
