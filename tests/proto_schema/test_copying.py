"""Bytes from file to file: by the kernel where it can, the same bytes by each other way, and never another file's."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import copying
from proto_schema.external.copying import Sources, copy_range
from proto_schema.external.payload import FileMap, file_range, stamp_of
from proto_schema.files import durable
from proto_schema.numpy_helper import from_array, to_array

SIZE = 300_000
DATA = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8).tobytes()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"head" + DATA + b"tail")
    return path


def model(*ranges: ps.FileRange) -> ps.ModelProto:
    tensors = [
        ps.TensorProto(name=f"w{index}", data_type=2, dims=[data.nbytes], raw_data=data)
        for index, data in enumerate(ranges)
    ]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def weights(path: Path) -> list[bytes]:
    graph = ps.load(path).graph
    assert graph is not None
    return [to_array(tensor).tobytes() for tensor in graph.initializer]


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many bytes each system call moves from here on."""
    moved = dict.fromkeys(("copy_file_range", "sendfile", "write"), 0)
    for name in moved:
        real = getattr(os, name)

        def call(*args: Any, real: Any = real, name: str = name) -> int:
            count: int = real(*args)
            moved[name] += count
            return count

        monkeypatch.setattr(os, name, call)
    return moved


# ---- the ways of the kernel


def fails(code: int) -> Callable[..., int]:
    def call(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    return call


def short(real: Any) -> Callable[..., int]:
    """At most 70,001 bytes a call."""
    return lambda a, b, count_or_offset, last: (
        real(a, b, min(count_or_offset, 70_001), last)
        if real is os.copy_file_range
        else real(a, b, count_or_offset, min(last, 70_001))
    )


def once(real: Any, then: Callable[..., int]) -> Callable[..., int]:
    """Copies 1000 bytes, then does as `then`."""
    calls = iter([lambda a, b, c, d: real(a, b, 1000, d)])
    return lambda *args: next(calls, then)(*args)


def interrupted(real: Any) -> Callable[..., int]:
    calls = iter([fails(errno.EINTR)])
    return lambda *args: next(calls, real)(*args)


COPY, SEND = os.copy_file_range, os.sendfile
WAYS = [  # what happens, copy_file_range, sendfile, the calls that move bytes
    ("as it should", COPY, SEND, {"copy_file_range"}),
    ("few bytes a call", short(COPY), SEND, {"copy_file_range"}),
    ("a signal", interrupted(COPY), SEND, {"copy_file_range"}),
    *[
        (errno.errorcode[code], fails(code), SEND, {"sendfile"})
        for code in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.EIO)
    ],
    ("a file of unknown size", lambda *_: 0, SEND, {"sendfile"}),
    ("sendfile, few bytes a call", fails(errno.EXDEV), short(SEND), {"sendfile"}),
    ("neither", fails(errno.ENOSYS), fails(errno.EINVAL), {"write"}),
    ("refused halfway", once(COPY, fails(errno.EXDEV)), fails(errno.EINVAL), {"copy_file_range", "write"}),
]


@pytest.mark.parametrize(("copies", "sends", "movers"), [row[1:] for row in WAYS], ids=[row[0] for row in WAYS])
def test_every_way_copies_the_same(
    copies: Any, sends: Any, movers: set[str], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", copies)
    monkeypatch.setattr(os, "sendfile", sends)
    moved = counted(monkeypatch)
    told: list[int] = []
    with source.open("rb") as opened, (tmp_path / "target").open("wb", buffering=0) as target:
        target.write(b"<")
        copy_range(opened.fileno(), 4, SIZE, target.fileno(), told.append)
        target.write(b">")
    assert (tmp_path / "target").read_bytes() == b"<" + DATA + b">"
    assert sum(told) == SIZE
    assert {name for name, count in moved.items() if count} == movers


@pytest.mark.parametrize("missing", [["copy_file_range"], ["copy_file_range", "sendfile"]], ids=str)
def test_systems_without_these_calls(
    missing: list[str], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    ps.save(model(ps.FileRange(source, 4, SIZE)), tmp_path / "m.onnx")
    assert weights(tmp_path / "m.onnx") == [DATA]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_is_no_reason_to_try_another_way(
    code: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", fails(code))
    monkeypatch.setattr(os, "sendfile", lambda *_: pytest.fail("tried"))
    with pytest.raises(OSError, match="cannot save") as caught:
        ps.save(model(ps.FileRange(source, 4, SIZE)), tmp_path / "m.onnx")
    assert caught.value.errno == code and caught.value.filename == os.fspath(tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == ["source"]


# ---- what goes by the kernel


def test_ranges_go_by_the_kernel(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = ps.FileRange(source, 4, SIZE), ps.FileRange(source, 0, copying.WORTH - 1), ps.FileRange(source, 1, 70_000)
    expected = [data.tobytes() for data in ranges]
    for external in (False, True):
        moved = counted(monkeypatch)
        ps.save(model(*ranges), tmp_path / "m.onnx", external_data=external, alignment=1)
        assert moved["copy_file_range"] == SIZE + 70_000  # what is small is read and joined
        assert copying.WORTH <= moved["write"] < copying.WORTH + 500
        assert weights(tmp_path / "m.onnx") == expected
        monkeypatch.undo()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_loaded_models_go_by_the_kernel(
    first: bool, second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ps.GraphProto(name="g", initializer=[from_array(np.frombuffer(DATA, np.uint8), "w")])
    ps.save(ps.ModelProto(ir_version=8, graph=graph), tmp_path / "m.onnx", external_data=first)
    loaded = ps.load(tmp_path / "m.onnx")
    loaded.producer_name = "another"
    moved = counted(monkeypatch)
    (tmp_path / "sub").mkdir()
    for target in (tmp_path / "sub/n.onnx", tmp_path / "m.onnx"):
        ps.save(loaded, target, external_data=second)
        assert weights(target) == [DATA] and ps.load(target).producer_name == "another"
    in_place = first and second  # then the data file stays as it is
    assert moved["copy_file_range"] == SIZE * (1 if in_place else 2)
    assert moved["write"] < 1000


def test_views_of_mappings_know_their_place(source: Path) -> None:
    with source.open("rb") as opened:
        mapped = FileMap.of(opened.fileno(), str(source))
    view = memoryview(mapped)
    for data in (view[4:-4], ps.FileRange(mapped, 4, SIZE), view[2:][2:-4].cast("I")):
        found = file_range(data)
        assert found is not None and (found.source, found.offset, found.nbytes) == (str(source), 4, SIZE)
        assert found.stamp == stamp_of(source.stat()) and found == DATA
    for other in (view[:0], view[::2], memoryview(DATA), DATA, ps.LazyPayload(1, lambda: b"x")):
        assert file_range(other) is None


# ---- the source stays the same file


def test_saving_over_the_source(tmp_path: Path) -> None:
    """The weights come from a file with the name of the data file: it stays, also where replacing was asked for."""
    data = tmp_path / "m.onnx.data"
    data.write_bytes(b"head" + DATA)
    for options in ({}, {"overwrite": True}):
        given = model(ps.FileRange(data, 4, SIZE), ps.FileRange(data, 0, 9))
        ps.save(given, tmp_path / "m.onnx", external_data=True, **options)
        assert weights(tmp_path / "m.onnx") == [DATA, b"head" + DATA[:5]]
        assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.1.data", "m.onnx.data"]
        assert data.read_bytes() == b"head" + DATA
    with pytest.raises(FileExistsError, match="is not an ONNX model"):
        ps.save(model(ps.FileRange(data, 0, SIZE)), data)


def shortened(path: Path) -> None:
    os.truncate(path, SIZE // 2)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(path.stat().st_size))
    os.replace(other, path)


def written(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"HEAD")


DURING = [  # what befalls the source while it is copied, the message
    ("shortened", shortened, r"source: \d+ of 300000 bytes at 4 are missing"),
    ("replaced", replaced, "source has changed or been replaced"),
    ("written to", written, "source has changed or been replaced"),
    ("removed", os.unlink, "source has changed or been replaced"),
]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(("befalls", "message"), [row[1:] for row in DURING], ids=[row[0] for row in DURING])
def test_a_source_that_changes_meanwhile(
    befalls: Callable[[Path], None],
    message: str,
    external: bool,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It happens after the first of two ranges; the old model stays, and nothing else does."""
    path = tmp_path / "m.onnx"
    ps.save(ps.ModelProto(ir_version=3), path)
    before = path.read_bytes()
    real = os.copy_file_range
    happened: list[int] = []

    def call(*args: Any) -> int:
        count = real(*args)
        if not happened:
            happened.append(count)
            befalls(source)
        return count

    monkeypatch.setattr(copying, "STEP", 100_000)
    monkeypatch.setattr(os, "copy_file_range", call)
    with pytest.raises(ps.ExternalDataError, match=message):
        ps.save(model(ps.FileRange(source, 4, SIZE), ps.FileRange(source, 3, SIZE)), path, external_data=external)
    assert path.read_bytes() == before
    assert set(os.listdir(tmp_path)) <= {"m.onnx", "source"}


BEFORE = [
    ("absent", lambda path: ps.FileRange(path.with_name("gone"), 0, SIZE), "No such file.*gone"),
    ("too short", lambda path: ps.FileRange(path, 9, SIZE), r"source has 300008 bytes, not those from 9 to 300009"),
    ("another", lambda path: ps.FileRange(path, 4, SIZE, (0, 0, 0, 0)), "source has changed or been replaced"),
    ("too short, and small", lambda path: ps.FileRange(path, SIZE, 9), r"not those from 300000 to 300009"),
    ("a folder", lambda path: ps.FileRange(path.parent, 0, SIZE), "Is a directory"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in BEFORE], ids=[row[0] for row in BEFORE])
def test_a_source_that_is_not_what_it_should_be(
    make: Callable[[Path], ps.FileRange], message: str, source: Path, tmp_path: Path
) -> None:
    for external in (False, True):
        with pytest.raises(ps.ExternalDataError, match=message):
            ps.save(model(make(source)), tmp_path / "m.onnx", external_data=external)
    assert os.listdir(tmp_path) == ["source"]


def test_a_stamped_range_refuses_another_file_when_it_is_read(source: Path) -> None:
    data = ps.FileRange(source, 4, SIZE, stamp_of(source.stat()))
    assert data.tobytes() == DATA
    replaced(source)
    with pytest.raises(ps.ExternalDataError, match="changed or been replaced"):
        data.tobytes()


@pytest.mark.parametrize("befalls", [replaced, os.unlink], ids=["replaced", "removed"])
def test_a_mapping_has_its_bytes_whatever_befalls_the_name(
    befalls: Callable[[Path], None], source: Path, tmp_path: Path
) -> None:
    with source.open("rb") as opened:
        mapped = FileMap.of(opened.fileno(), str(source))
    befalls(source)
    ps.save(model(ps.FileRange(mapped, 4, SIZE)), tmp_path / "m.onnx")
    assert weights(tmp_path / "m.onnx") == [DATA]


def test_the_disk_works_while_the_rest_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every so many bytes the system is asked to write back those that were written, not those that the kernel copies.

    Each byte is named once, and errors do not matter.
    """
    asked: list[tuple[int, int]] = []

    def advise(descriptor: int, offset: int, length: int, advice: int) -> None:
        asked.append((offset, length))
        raise OSError(errno.ESPIPE, "not supported")

    monkeypatch.setattr(durable, "WRITE_BACK", 100_000)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    lazy = ps.LazyPayload(SIZE, lambda: [DATA[:150_000], DATA[150_000:]])
    made = model(ps.FileRange(source, 4, SIZE))
    assert made.graph is not None
    made.graph.initializer.append(ps.TensorProto(name="lazy", data_type=2, dims=[SIZE], raw_data=lazy))
    ps.save(made, tmp_path / "m.onnx", external_data=True, alignment=1)
    assert weights(tmp_path / "m.onnx") == [DATA, DATA]
    assert asked == [(SIZE, 150_000), (SIZE + 150_000, SIZE - 150_000)]


def test_a_pipe_as_source_is_read(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, DATA[:60_000])
    os.close(write)
    made = Sources().copy(ps.FileRange(f"/proc/self/fd/{read}", 0, 60_000), 1)
    os.close(read)
    assert made is False
