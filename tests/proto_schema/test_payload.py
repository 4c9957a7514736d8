"""Payloads: bounded pieces, never a copy of what is large, the same bytes from every kind of source."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import payload
from proto_schema.files import durable
from proto_schema.wire import codec

DATA = bytes(range(256)) * 1000


def mapping(tmp_path: Path) -> mmap.mmap:
    with file(tmp_path).open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"xx" + DATA + b"yy")
    return path


SOURCES: list[tuple[str, Callable[[Path], Any]]] = [
    ("bytes", lambda _: DATA),
    ("bytearray", lambda _: bytearray(DATA)),
    ("memoryview", lambda _: memoryview(DATA)),
    ("memoryview of floats", lambda _: memoryview(np.frombuffer(DATA, np.float32).reshape(-1, 100))),
    ("strided memoryview", lambda _: memoryview(np.repeat(np.frombuffer(DATA, np.uint8), 2))[::2]),
    ("file range by path", lambda folder: ps.FileRange(file(folder), 2, len(DATA))),
    ("file range of a mapping", lambda folder: ps.FileRange(mapping(folder), 2, len(DATA))),
    ("lazy bytes", lambda _: ps.LazyPayload(len(DATA), lambda: DATA)),
    ("lazy pieces", lambda _: ps.LazyPayload(len(DATA), lambda: [DATA[:7], b"", np.frombuffer(DATA[7:], np.uint8)])),
]


@pytest.mark.parametrize("make", [row[1] for row in SOURCES], ids=[row[0] for row in SOURCES])
def test_sources_encode_to_the_same_bytes(make: Callable[[Path], Any], tmp_path: Path) -> None:
    tensor = ps.TensorProto(name="w", raw_data=make(tmp_path))
    expected = ps.TensorProto(name="w", raw_data=DATA)
    encoded = expected.SerializeToString()
    assert tensor.SerializeToString() == encoded
    assert tensor.ByteSize() == len(encoded)
    assert tensor.SerializeToString() == encoded  # a payload may be read again
    assert tensor == expected
    assert payload.nbytes(tensor.raw_data) == len(DATA)
    sizes = [len(chunk) for chunk in payload.chunks(tensor.raw_data, 1000)]
    assert sum(sizes) == len(DATA) and max(sizes) <= 1000 and min(sizes) > 0
    assert bytes(payload.contiguous(tensor.raw_data)) == DATA


def test_payloads_are_passed_through_the_encoder() -> None:
    source = memoryview(DATA)
    lazy = ps.LazyPayload(1 << 40, lambda: pytest.fail("read"))
    graph = ps.GraphProto(initializer=[ps.TensorProto(raw_data=source), ps.TensorProto(raw_data=lazy)])
    parts, size = codec.encode_parts(ps.ModelProto(graph=graph))
    assert any(part is source or getattr(part, "obj", None) is DATA for part in parts)
    assert any(part is lazy for part in parts)
    assert size > 1 << 40
    assert all(0 < len(part) < 100 for part in parts if isinstance(part, bytes))
    with pytest.raises(ps.EncodeError, match="2 GiB"):
        ps.ModelProto(graph=graph).SerializeToString()


@pytest.mark.parametrize("made", [b"123", b"12345", [b"12", b"345"], []], ids=str)
def test_a_lazy_payload_of_another_size_is_refused(made: object) -> None:
    with pytest.raises(ValueError, match="for a payload of 4"):
        ps.LazyPayload(4, lambda: made).tobytes()


class Untrue(ps.Payload):
    """Says 4 bytes."""

    def __init__(self, made: list[bytes]) -> None:
        self.made = made

    @property
    def nbytes(self) -> int:
        return 4

    def chunks(self, limit: int = payload.CHUNK) -> Iterator[memoryview]:
        yield from map(memoryview, self.made)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("made", [[b"123"], [b"12", b"345"], []], ids=str)
def test_a_payload_of_another_size_is_not_written(tmp_path: Path, made: list[bytes], external: bool) -> None:
    tensor = ps.TensorProto(name="w", data_type=2, dims=[4], raw_data=Untrue(made))
    model = ps.ModelProto(ir_version=10, graph=ps.GraphProto(name="g", initializer=[tensor]))
    with pytest.raises(ValueError, match="must make as many as it says"):
        ps.save(model, tmp_path / "m.onnx", external_data=external, size_threshold=0)
    with pytest.raises(ValueError, match="must make as many as it says"):
        ps.dumps(model)
    assert not list(tmp_path.iterdir())


def test_errors_of_sources() -> None:
    with pytest.raises(TypeError):
        ps.LazyPayload(4, lambda: 5).tobytes()
    with pytest.raises(ValueError, match="offset"):
        ps.FileRange("x", -1, 4)
    with pytest.raises(OSError, match="absent"):
        ps.FileRange("absent", 0, 4).tobytes()


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    with pytest.raises(EOFError, match="are missing"):
        ps.FileRange(file(tmp_path), 2, len(DATA) + 3).tobytes()


def test_equality_and_repr() -> None:
    lazy = ps.LazyPayload(3, lambda: b"abc")
    assert lazy == b"abc" == lazy and lazy == memoryview(b"abc") and lazy == ps.LazyPayload(3, lambda: [b"a", b"bc"])
    assert all(lazy != other for other in (b"abd", b"ab", 3))
    assert repr(lazy) == "<LazyPayload of 3 bytes>" and len(lazy) == 3 and bytes(lazy) == b"abc"
    assert ps.FileRange("a", 0, 1).identity == ps.FileRange("a", 0, 1).identity != ps.FileRange("a", 1, 1).identity


class Trickle(io.RawIOBase):
    """A writer that takes few bytes at a time."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.largest = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.largest = max(self.largest, len(data))
        self.taken += data[:777]
        return min(777, len(data))


def test_short_writes_are_continued() -> None:
    writer = Trickle()
    parts = [b"ab", memoryview(DATA), ps.LazyPayload(len(DATA), lambda: DATA), bytearray(b"c")]
    durable.write_stream(writer, parts)
    assert bytes(writer.taken) == b"ab" + DATA + DATA + b"c"


def test_pieces_are_bounded_and_small_ones_joined() -> None:
    def parts() -> Iterator[Any]:
        yield from [b"x"] * 10_000
        yield memoryview(bytes(10 << 20))
        yield b"y"

    sizes = [len(piece) for piece in durable.gathered(parts(), 1 << 20)]
    assert sizes == [10_000, *[1 << 20] * 10, 1]


@pytest.mark.parametrize(("answer", "error"), [(0, OSError), (None, BlockingIOError)])
def test_writers_that_stop(answer: int | None, error: type[Exception]) -> None:
    class Stuck(io.RawIOBase):
        def write(self, data: Any) -> int | None:
            return answer

    with pytest.raises(error):
        durable.write_stream(Stuck(), [b"abc"])


def test_a_writer_without_a_result_takes_all() -> None:
    taken: list[bytes] = []

    class Sink:
        def write(self, data: Any) -> None:
            taken.append(bytes(data))

    durable.write_stream(Sink(), [b"abc", b"d"])
    assert b"".join(taken) == b"abcd"


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system cannot let go of mapped pages")
def test_a_mapped_file_does_not_stay_resident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a header between two weights makes pages around it count as memory: they are let go now and then."""
    tensors = [ps.TensorProto(name=str(at), raw_data=bytes(1 << 20)) for at in range(64)]
    path = tmp_path / "m.onnx"
    ps.save(ps.ModelProto(graph=ps.GraphProto(initializer=tensors)), path)
    calls: list[int] = []
    monkeypatch.setattr(payload.FileMap, "madvise", lambda self, advice: calls.append(advice), raising=False)
    model: Any = ps.load(path)
    assert calls == [mmap.MADV_DONTNEED] * 8
    monkeypatch.undo()
    weights = [tensor.raw_data for tensor in model.graph.initializer]
    before = mapped_bytes()
    assert all(bytes(chunk) == bytes(1 << 20) for weight in weights for chunk in payload.chunks(weight))
    assert mapped_bytes() - before < 24 << 20
    assert all(bytes(weight) == bytes(1 << 20) for weight in weights)


def mapped_bytes() -> int:
    """The bytes of mapped files that are resident; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[2]) * mmap.PAGESIZE if statm.exists() else 0
