"""Models as a tar: what is in it, who can read it, and the streams that it is written to."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.files import archive, saving
from proto_schema.numpy_helper import from_array, to_array

ARRAYS = [np.arange(5000, dtype=np.float32), np.ones(3, np.float32), np.arange(200_000, dtype=np.int32)]


def model(arrays: list[Any] = ARRAYS) -> ps.ModelProto:
    tensors = [from_array(array, f"w{index}") for index, array in enumerate(arrays)]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def check_model(path: Path) -> None:
    graph = ps.load(path).graph
    assert graph is not None
    for tensor, array in zip(graph.initializer, ARRAYS, strict=True):
        np.testing.assert_array_equal(to_array(tensor), array)


def archived(**options: Any) -> bytes:
    stream = io.BytesIO()
    ps.save(model(), stream, archive="tar", **options)
    return stream.getvalue()


# (options, names of the members)
LAYOUTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["model.onnx"]),
    ({"external_data": False}, ["model.onnx"]),
    ({"external_data": True}, ["model.onnx", "model.onnx.data"]),
    ({"external_data": True, "location": "weights.bin"}, ["model.onnx", "weights.bin"]),
    (
        {"external_data": True, "shard_size": 100_000},
        ["model.onnx", "model.onnx-00001-of-00002.data", "model.onnx-00002-of-00002.data"],
    ),
    ({"external_data": True, "size_threshold": 10**9}, ["model.onnx"]),
]


@pytest.mark.parametrize(("options", "members"), LAYOUTS, ids=[str(row[0]) for row in LAYOUTS])
def test_the_members_are_the_files_of_a_folder(options: dict[str, Any], members: list[str], tmp_path: Path) -> None:
    data = archived(**options)
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        assert found.getnames() == members
        found.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.10.12 and 3.11.4
        found.extractall(tmp_path / "tar")
    check_model(tmp_path / "tar" / "model.onnx")
    (tmp_path / "folder").mkdir()
    ps.save(model(), tmp_path / "folder" / "model.onnx", **options)
    for name in members:
        assert (tmp_path / "tar" / name).read_bytes() == (tmp_path / "folder" / name).read_bytes()
    assert archived(**options) == data and len(data) % 10240 == 0


@pytest.mark.skipif(shutil.which("tar") is None, reason="the system has no program tar")
def test_the_program_tar_reads_it_without_a_word(tmp_path: Path) -> None:
    done = subprocess.run(
        ["tar", "xvf", "-"],
        input=archived(external_data=True),
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env={**os.environ, "TZ": "America/Los_Angeles"},
    )
    assert done.stdout.split() == [b"model.onnx", b"model.onnx.data"] and done.stderr == b""
    check_model(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("name", "inside"),
    [("net.tar", "net.onnx"), ("net.onnx.tar", "net.onnx"), ("net", "net.onnx"), ("a b\N{EM DASH}c.tar", None)],
)
def test_to_a_path(name: str, inside: str | None, tmp_path: Path) -> None:
    """A path is replaced as by any other save: whole or not at all."""
    path = tmp_path / name
    path.write_bytes(b"old")
    ps.save(model(), path, archive="tar", external_data=True, overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == [name]
    inside = inside or f"{name.removesuffix('.tar')}.onnx"
    with tarfile.open(path) as found:
        assert found.getnames() == [inside, f"{inside}.data"]
    plan = ps.plan(model(), path, archive="tar", external_data=True)
    assert [(file.name, file.action) for file in plan.files] == [
        (name, "write"),
        (f"{inside}.data", "member"),
    ]
    assert plan.written == plan.files[0].size == path.stat().st_size
    broken = model()
    assert broken.graph is not None
    broken.graph.initializer[2].raw_data = ps.LazyPayload(800_000, lambda: b"short")
    with pytest.raises(ValueError, match="800000"):
        ps.save(broken, path, archive="tar", external_data=True)
    assert plan.written == path.stat().st_size and len(list(tmp_path.iterdir())) == 1


def test_loading_a_tar_says_what_it_is(tmp_path: Path) -> None:
    ps.save(model(), tmp_path / "m.tar", archive="tar")
    with pytest.raises(ps.DecodeError, match="tar archive: unpack it"):
        ps.load(tmp_path / "m.tar")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"archive": "zip"}, "'zip' is neither None nor 'tar'"),
    ({"archive": "tar", "external_data": "reference"}, "an archive holds the weights"),
    ({"archive": "tar", "external_data": True, "location": "model.onnx"}, "own name in the archive"),
    ({"archive": "tar", "external_data": True, "location": "a/b"}, "bare name"),
    ({"external_data": True}, "archive='tar'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[row[1] for row in WRONG])
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    stream = io.BytesIO()
    with pytest.raises(ValueError, match=message):
        ps.save(model(), stream, **options)
    assert stream.getvalue() == b""


def test_past_two_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then are there two members by default; without an archive the error names this way out."""
    monkeypatch.setattr(saving, "MAX_LENGTH", 20_000)
    stream = io.BytesIO()
    ps.save(model(), stream, archive="tar")
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as found:
        assert found.getnames() == ["model.onnx", "model.onnx.data"]
    with pytest.raises(ps.EncodeError, match="archive='tar'"):
        ps.save(model(), io.BytesIO())
    with pytest.raises(ps.EncodeError, match="external_data=True"):
        ps.save(model(), io.BytesIO(), archive="tar", external_data=False)


def test_members_of_more_than_eight_gib(tmp_path: Path) -> None:
    """As sparse files: the old tar format ends at 8 GiB."""
    members = [("big.onnx", 5), ("big.onnx.data", 9 * 2**30 + 1), ("behind", 7)]
    path = tmp_path / "big.tar"
    with path.open("wb") as file:
        for part in archive.tar_parts((name, [ps.LazyPayload(size, list)], size) for name, size in members):
            if isinstance(part, ps.Payload):
                file.seek(part.nbytes, os.SEEK_CUR)
            else:
                file.write(part)
    with tarfile.open(path) as found:
        assert [(member.name, member.size) for member in found] == members


class Unseekable:
    """An object with just `write`, which may take less than it is given."""

    def __init__(self, most: int = 1 << 30, fails_at: int = 1 << 40) -> None:
        self.data = bytearray()
        self.most, self.fails_at = most, fails_at

    def write(self, data: Any) -> int:
        if len(self.data) >= self.fails_at:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        taken = bytes(data[: self.most])
        self.data += taken
        return len(taken)


@pytest.mark.parametrize("most", [7, 511, 1 << 20])
def test_to_an_object_that_takes_little(most: int) -> None:
    small = model([np.arange(1500, dtype=np.float32)])
    whole, stream = io.BytesIO(), Unseekable(most)
    ps.save(small, whole, archive="tar", external_data=True)
    ps.save(small, stream, archive="tar", external_data=True)
    assert bytes(stream.data) == whole.getvalue()


def test_weights_are_read_once_and_in_their_turn() -> None:
    stream = Unseekable()
    size, count = 3_000_000, 3
    asked: list[int] = []

    def made(index: int) -> ps.LazyPayload:
        def make() -> bytes:
            asked.append(len(stream.data))
            return bytes([index]) * size

        return ps.LazyPayload(size, make)

    tensors = [ps.TensorProto(name=f"w{i}", data_type=2, dims=[size], raw_data=made(i)) for i in range(count)]
    ps.save(ps.ModelProto(graph=ps.GraphProto(initializer=tensors)), stream, archive="tar", external_data=True)
    assert len(asked) == count
    for before, after in pairwise(asked):
        assert after - before >= size // 2  # what came before was written, but for what fills a system call


def test_a_reader_that_goes_away() -> None:
    with pytest.raises(BrokenPipeError):
        ps.save(model(), Unseekable(1000, 30_000), archive="tar", external_data=True)


@pytest.mark.parametrize("how", ["pipe", "socket", "fifo"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_real_streams(how: str, leaves: bool, tmp_path: Path) -> None:
    """The reader gets all of it, or leaves early: then the writer's error says so."""
    got: list[bytes] = []

    def read(file: Any) -> None:
        with file:
            got.append(file.read(5000) if leaves else file.read())

    target: Any
    if how == "pipe":
        ends = os.pipe()
        source, target = os.fdopen(ends[0], "rb", buffering=0), os.fdopen(ends[1], "wb", buffering=0)
    elif how == "socket":
        sockets = socket.socketpair()
        source, target = sockets[0].makefile("rb"), sockets[1].makefile("wb")
        for end in sockets:
            end.close()
    else:
        os.mkfifo(tmp_path / "fifo")
        target, source = tmp_path / "fifo", None
    reader = threading.Thread(target=lambda: read(source or (tmp_path / "fifo").open("rb", 0)))
    reader.start()
    try:
        if leaves:
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                ps.save(model(), target, archive="tar", external_data=True)
        else:
            ps.save(model(), target, archive="tar", external_data=True)
    finally:
        if how != "fifo":
            try:
                target.close()
            except OSError:  # what its buffer holds cannot be written either
                assert leaves
        reader.join(20)
    whole = archived(external_data=True)
    assert len(got) == 1 and (got[0] == whole if not leaves and how != "fifo" else len(got[0]) >= min(5000, len(whole)))


WRITER = """
import sys
import numpy as np
import proto_schema as ps
tensors = [ps.numpy_helper.from_array(np.full(300_000, i, np.int32), f"w{i}") for i in range(5)]
ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=tensors)), sys.stdout.buffer, archive="tar",
        external_data=True)
"""


@pytest.mark.skipif(shutil.which("tar") is None, reason="the system has no program tar")
def test_another_process_unpacks_while_it_is_written(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
        subprocess.run(["tar", "x"], stdin=writer.stdout, cwd=tmp_path, check=True)
    assert writer.returncode == 0
    graph = ps.load(tmp_path / "model.onnx").graph
    assert graph is not None
    assert [int(to_array(tensor)[-1]) for tensor in graph.initializer] == [0, 1, 2, 3, 4]
