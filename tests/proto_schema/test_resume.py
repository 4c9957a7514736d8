"""Saves that are interrupted and go on: what is written again, what is refused, what an ended save leaves."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import pieces
from proto_schema.files import resume
from proto_schema.numpy_helper import from_array
from tests.conftest import Logged
from tests.proto_schema.decoys import used_by
from tests.proto_schema.faults import WRITES, Disk, Fault

BLOCK = 1 << 16
SIZES = [40_000, 9, 140_000, 65_536, 120_001, 5000]  # bytes; some below a block, some above, one at a multiple
NAMES = ["m.onnx.data.partial", "m.onnx.data.partial.journal"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", BLOCK)


@cache
def content(seed: int = 0) -> list[Any]:
    return [np.random.default_rng(seed + index).integers(0, 256, size, np.uint8) for index, size in enumerate(SIZES)]


def in_memory(arrays: list[Any], folder: Path) -> list[Any]:
    return [array.tobytes() for array in arrays]


def from_file(arrays: list[Any], folder: Path) -> list[Any]:
    source, at, made = folder / "source", 0, []
    if not source.exists():
        source.write_bytes(b"".join(array.tobytes() for array in arrays))
    for array in arrays:
        made.append(ps.FileRange(source, at, array.nbytes))
        at += array.nbytes
    return made


def computed(arrays: list[Any], folder: Path) -> list[Any]:
    return [ps.LazyPayload(array.nbytes, lambda array=array: array.tobytes()) for array in arrays]


def mixed(arrays: list[Any], folder: Path) -> list[Any]:
    kinds = [in_memory, from_file, computed]
    return [kinds[index % 3](arrays, folder)[index] for index in range(len(arrays))]


Kind = Callable[[list[Any], Path], list[Any]]
KINDS: list[Kind] = [in_memory, from_file, computed, mixed]


def model(payloads: list[Any]) -> ps.ModelProto:
    tensors = [
        ps.TensorProto(name=f"w{index}", data_type=2, dims=[len(data)], raw_data=data)
        for index, data in enumerate(payloads)
    ]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def save(folder: Path, kind: Kind, arrays: list[Any] | None = None, **options: Any) -> None:
    given = kind(arrays if arrays is not None else content(), folder)
    options = {"external_data": True, "size_threshold": 1, "resume": True, **options}
    ps.save(model(given), folder / "out" / "m.onnx", **options)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out").iterdir())


@pytest.fixture
def folder(quick_folder: Path) -> Path:
    (quick_folder / "out").mkdir()
    return quick_folder


@pytest.fixture
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a save that nothing interrupts writes."""
    plain = tmp_path_factory.mktemp("plain")
    (plain / "out").mkdir()
    save(plain, in_memory, resume=False)
    return {name: (plain / "out" / name).read_bytes() for name in names(plain)}


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "out" / name).read_bytes() for name in names(folder)}


class Counted:
    """The bytes that go to data files, seen at the calls that write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written = 0
        for name in WRITES:
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any, **kwargs: Any) -> int:
            count = real(*args, **kwargs)
            self.written += count
            return count

        return call


def stop_at_half(folder: Path, kind: Kind, fault: str = "killed", location: str = "m.onnx.data") -> int:
    """A save that is stopped about in the middle; returns how many bytes its journal claims."""
    total = sum(SIZES)
    for at in range(5, 100):
        disk = Disk(folder / "out", at, Fault(fault, 28))
        with disk.mounted(), suppress(OSError, KeyboardInterrupt, ps.ExternalDataError):
            save(folder, kind, location=location)
        disk.close()
        done = finished(folder, location)
        if total // 3 < done < total:
            return done
        assert disk.met, "the save was over before"
        for name in names(folder):
            (folder / "out" / name).unlink()
    raise AssertionError


def finished(folder: Path, location: str = "m.onnx.data") -> int:
    journal = folder / "out" / f"{location}.partial.journal"
    lines = journal.read_text().splitlines()[2:] if journal.exists() else []
    pieces = [(*map(int, line.split()[:2]), line.split()[2].strip("-")) for line in lines if line.count(" ") == 3]
    return sum(
        end - start for end, start, digest in pieces if resume._line(end, start, digest).decode().strip() in lines
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["killed", "torn", "error", "interrupted after", "power"])
def test_it_goes_on(
    fault: str, kind: Kind, folder: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = stop_at_half(folder, kind, fault)
    assert [name for name in names(folder) if name in NAMES] == NAMES
    counted = Counted(monkeypatch)
    save(folder, kind)
    assert files(folder) == expected
    rest = len(expected["m.onnx.data"]) - done
    assert rest <= counted.written <= rest + len(expected["m.onnx"]) + 4096  # the journal


EVERY = (1, 1)  # the first call that is met, and how far the next is
CALLS = [
    pytest.param(fault, kind, calls, id=f"{fault}-{kind.__name__}{suffix}", marks=marks)
    for number, fault in enumerate([Fault("error", 28), Fault("killed"), Fault("torn"), Fault("power")])
    for place, kind in enumerate([in_memory, mixed])
    for calls, suffix, marks in [
        ((1 + (number + place) % 9, 9), "", ()),
        (EVERY, "-every call", pytest.mark.full),
    ]
]


@pytest.mark.parametrize(("fault", "kind", "calls"), CALLS)
def test_calls(fault: Fault, kind: Kind, calls: tuple[int, int], folder: Path) -> None:
    """Stopped at each call in turn over an older model: old or new, whole; then it goes on, and nothing is left.

    Nothing is left by a save that cannot use what is there either: with other options, or without `resume`.
    """
    old = content(50)
    save(folder, in_memory, old, resume=False)
    before, least = files(folder), sum(SIZES)
    for at in range(calls[0], 200, calls[1]):
        lay_out(folder, before)
        disk = Disk(folder / "out", at, fault, lost=1)
        with disk.mounted():
            try:
                save(folder, kind)
            except (OSError, ps.ExternalDataError):
                assert fault.kind == "error"
        disk.close()
        assert weights(folder) in (old_bytes := [array.tobytes() for array in old], new_bytes())
        done = finished(folder)
        state = files(folder)
        with pytest.MonkeyPatch.context() as patch:
            counted = Counted(patch)
            save(folder, kind)
        assert weights(folder) == new_bytes() != old_bytes
        assert set(names(folder)) == {"m.onnx", "m.onnx.data"}, f"{fault} at {at} ({disk.log[-1]})"
        if disk.stopped and set(state) - set(before):
            lay_out(folder, state)
            other = OTHERS[at % len(OTHERS)]
            save(folder, kind, **other)
            assert weights(folder) == new_bytes()
            assert set(names(folder)) == used_by(folder / "out" / "m.onnx"), f"{fault} at {at}, then {other}"
        if done and disk.stopped:
            least = min(least, counted.written)
        if not disk.met:
            assert least < BLOCK * 2 or fault.kind == "error" or calls != EVERY  # it did go on where most was finished
            return
    raise AssertionError("the save makes more calls than this test walks through")


# what is saved next, where it does not go on
OTHERS: list[dict[str, Any]] = [
    {"resume": False},
    {"external_data": False, "resume": False},
    {"location": "w.bin", "resume": False},
    {"location": "w.bin"},
    {"shard_size": 150_000},
]


def lay_out(folder: Path, state: dict[str, bytes]) -> None:
    for name in names(folder):
        (folder / "out" / name).unlink()
    for name, data in state.items():
        (folder / "out" / name).write_bytes(data)


def weights(folder: Path) -> list[bytes]:
    graph = ps.load(folder / "out" / "m.onnx").graph
    assert graph is not None
    return [ps.numpy_helper.to_array(tensor).tobytes() for tensor in graph.initializer]


def new_bytes() -> list[bytes]:
    return [array.tobytes() for array in content()]


def another_layout(folder: Path) -> dict[str, Any]:
    return {"alignment": 64}


def other_values(folder: Path) -> dict[str, Any]:
    return {"arrays": content(7)}


def damaged_data(folder: Path) -> None:
    path = folder / "out" / NAMES[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def damaged_journal(folder: Path) -> None:
    path = folder / "out" / NAMES[1]
    path.write_bytes(path.read_bytes().replace(b"6", b"7"))


def short_data(folder: Path) -> None:
    os.truncate(folder / "out" / NAMES[0], 10)


def no_data(folder: Path) -> None:
    (folder / "out" / NAMES[0]).unlink()


def changed_source(folder: Path) -> None:
    if (folder / "source").exists():
        os.utime(folder / "source", ns=(1, 1))
    else:
        damaged_data(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        another_layout,
        other_values,
        damaged_data,
        damaged_journal,
        short_data,
        no_data,
        changed_source,
    ],
)
def test_what_it_starts_anew(change: Callable[[Path], Any], kind: Kind, folder: Path) -> None:
    stop_at_half(folder, kind)
    options = change(folder) or {}
    if "arrays" in options:
        (folder / "source").unlink(missing_ok=True)
    save(folder, kind, **options)
    plain = {**options, "resume": False}
    found = weights(folder)
    assert set(names(folder)) == {"m.onnx", "m.onnx.data"}
    written = files(folder)["m.onnx.data"]
    save(folder, kind, **plain)
    assert weights(folder) == found and files(folder)["m.onnx.data"] == written
    assert found == [array.tobytes() for array in options.get("arrays", content())]


def foreign_journal(folder: Path) -> None:
    (folder / "out" / NAMES[1]).write_bytes(bytes(range(256)) * 10)


def journal_of_another_model(folder: Path) -> None:
    path = folder / "out" / NAMES[1]
    path.write_bytes(path.read_bytes().replace(b" m.onnx\n", b" n.onnx\n", 1))


def no_journal(folder: Path) -> None:
    (folder / "out" / NAMES[1]).unlink()


def an_empty_journal(folder: Path) -> None:
    (folder / "out" / NAMES[1]).write_bytes(b"")


def links(folder: Path) -> None:
    """Both names lead to files of somebody else."""
    for name in NAMES:
        (folder / "out" / name).unlink()
        (folder / f"victim {name}").write_bytes(b"precious")
        (folder / "out" / name).symlink_to(folder / f"victim {name}")


def hard_link(folder: Path) -> None:
    os.link(folder / "out" / NAMES[0], folder / "another name")


@pytest.mark.parametrize(
    "change", [foreign_journal, journal_of_another_model, no_journal, an_empty_journal, links, hard_link]
)
def test_what_is_not_of_this_model_is_left_alone(change: Callable[[Path], Any], folder: Path) -> None:
    stop_at_half(folder, in_memory)
    change(folder)
    before = {path: (path.lstat(), path.read_bytes()) for path in folder.rglob("*") if path.name in NAMES}
    with pytest.raises(FileExistsError, match=r"was not left by a save of m\.onnx; remove it, or save without resume"):
        save(folder, in_memory)
    save(folder, in_memory, resume=False)
    assert weights(folder) == new_bytes()
    for path, (status, data) in before.items():
        if change is not hard_link:
            assert path.lstat().st_ino == status.st_ino and path.read_bytes() == data
    for path in folder.glob("victim*"):
        assert path.read_bytes() == b"precious"


def test_a_forged_journal_is_not_believed(folder: Path, expected: dict[str, bytes]) -> None:
    """Bytes of somebody else, and a journal that says they are finished: of weights in a file too."""
    stop_at_half(folder, from_file)
    path = folder / "out" / NAMES[0]
    path.write_bytes(bytes(path.stat().st_size))
    save(folder, from_file)
    assert files(folder)["m.onnx.data"] == expected["m.onnx.data"]


def test_the_damage_behind_what_holds(
    folder: Path, expected: dict[str, bytes], logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies before the first damaged range is kept."""
    done = stop_at_half(folder, in_memory)
    path = folder / "out" / NAMES[0]
    data = bytearray(path.read_bytes())
    data[done - 1] ^= 1
    path.write_bytes(data)
    counted = Counted(monkeypatch)
    save(folder, in_memory)
    assert files(folder)["m.onnx.data"] == expected["m.onnx.data"]
    assert "are not those that are to be written" in logged.text and "going on at" in logged.text
    assert counted.written < len(expected["m.onnx.data"]) - BLOCK + 4096  # the model and the journal


def test_a_torn_line_is_not_believed(folder: Path, expected: dict[str, bytes]) -> None:
    stop_at_half(folder, mixed)
    journal = folder / "out" / NAMES[1]
    lines = journal.read_bytes().splitlines(keepends=True)
    for end in range(len(lines[-1])):
        journal.write_bytes(b"".join([*lines[:-1], lines[-1][:end]]))
        descriptor = os.open(journal, os.O_RDWR)
        found: dict[int, tuple[int, str]] = {}
        resume._Journal(str(journal), descriptor, b"".join(lines[:2]), found)
        os.close(descriptor)
        assert len(found) == len(lines) - 3
    save(folder, mixed)
    assert files(folder)["m.onnx.data"] == expected["m.onnx.data"]


def test_another_model_is_saved_when_the_journal_appears(
    folder: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cleans up behind itself, and must see at every moment that the journal is not its own."""
    other, opened, seen = folder / "out" / "n.onnx", os.open, []

    def watched(path: Any, *args: Any, **kwargs: Any) -> int:
        descriptor = opened(path, *args, **kwargs)
        if str(path).endswith(NAMES[1]) and not other.exists():
            ps.save(model([b"n"]), other, external_data=True, size_threshold=0)
            seen.append((folder / "out" / NAMES[1]).read_bytes()[:40])
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", watched)
        save(folder, in_memory)
    assert seen and seen[0].startswith(b"#proto_schema journal, of m.onnx\n")
    assert files(folder)["m.onnx.data"] == expected["m.onnx.data"]


def test_an_error_before_anything_is_finished_leaves_nothing(folder: Path) -> None:
    broken = model([ps.LazyPayload(100_000, lambda: b"short")])
    with pytest.raises(ValueError, match="100000"):
        ps.save(broken, folder / "out" / "m.onnx", external_data=True, resume=True)
    assert names(folder) == []


def test_the_plan_knows_what_is_there_already(folder: Path) -> None:
    """The disk must have room for the rest only."""
    stop_at_half(folder, in_memory)
    options: dict[str, Any] = {"external_data": True, "size_threshold": 1}
    given, path = model(in_memory(content(), folder)), folder / "out" / "m.onnx"
    anew, rest = (ps.plan(given, path, **options, resume=resume) for resume in (False, True))
    assert anew.needed > sum(SIZES) and rest.needed < 4096


def test_a_reserved_part_counts_as_not_written(folder: Path, expected: dict[str, bytes]) -> None:
    """Zeros that were only reserved are not taken for finished ones, though some weights are zeros."""
    zeros = [np.zeros(size, np.uint8) for size in SIZES]
    stop_at_half(folder, in_memory)
    save(folder, in_memory, zeros)
    assert weights(folder) == [array.tobytes() for array in zeros]


@pytest.mark.parametrize("options", [{"external_data": True}, {"external_data": False}], ids=str)
def test_the_next_save_removes_what_is_left(options: dict[str, Any], folder: Path) -> None:
    """Also of a data file of another name, and where the save does not resume."""
    stop_at_half(folder, in_memory, location="w.bin")
    assert sorted(names(folder))[-2:] == ["w.bin.partial", "w.bin.partial.journal"]
    save(folder, in_memory, resume=False, **options)
    assert weights(folder) == new_bytes() and not any("partial" in name for name in names(folder))


def test_shards_and_inline(folder: Path, expected: dict[str, bytes]) -> None:
    save(folder, mixed, shard_size=150_000)
    assert len(names(folder)) == 1 + 4 and weights(folder) == new_bytes()
    save(folder, mixed, external_data=False)
    assert names(folder) == ["m.onnx"] and weights(folder) == new_bytes()


WRITER = """
import os, sys
import numpy as np
import proto_schema as ps
from proto_schema.external import pieces
pieces.PIECE = 1 << 20
arrays = [np.random.default_rng(index).integers(0, 256, 3_000_000, np.uint8) for index in range(8)]
tensors = [ps.TensorProto(name=f"w{i}", data_type=2, dims=[a.size], raw_data=a.tobytes()) for i, a in enumerate(arrays)]
model = ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))
sys.stdout.write("ready\\n"); sys.stdout.flush()
ps.save(model, sys.argv[1], external_data=True, resume=sys.argv[2] == "resume")
"""


def writer(path: Path, how: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), how], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def killings(folder: Path, count: int) -> Iterator[int]:
    """A process that saves is killed again and again, and started again; yields how far the journal is each time."""
    chance, longest = random.Random(0), 0.04
    for _ in range(count):
        process = writer(folder / "out" / "m.onnx", "resume")
        try:
            process.wait(chance.uniform(0.0, longest))
            longest *= 0.9
        except subprocess.TimeoutExpired:
            process.kill()
            longest *= 1.1  # so that about half of them come in time, whatever else the machine does
        process.wait()
        yield finished(folder)
        if (folder / "out" / "m.onnx").exists():
            for name in names(folder):
                (folder / "out" / name).unlink()


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.sweep)])
def test_a_killed_process_goes_on(count: int, folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert writer(plain / "m.onnx", "plain").wait() == 0
    seen = list(killings(folder, count))
    assert writer(folder / "out" / "m.onnx", "resume").wait() == 0
    assert (folder / "out" / "m.onnx.data").read_bytes() == (plain / "m.onnx.data").read_bytes()
    assert not any(name in names(folder) for name in NAMES)
    assert count < 10 or any(seen), "no kill came between the first and the last block"


def test_arrays_of_numpy(folder: Path) -> None:
    """Views of an array's memory are compared by their bytes."""
    array = np.arange(50_000, dtype=np.float32)
    given = ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=[from_array(array, "w")]))
    disk = Disk(folder / "out", 12, Fault("killed"))
    with disk.mounted():
        ps.save(given, folder / "out" / "m.onnx", external_data=True, resume=True)
    disk.close()
    ps.save(given, folder / "out" / "m.onnx", external_data=True, resume=True)
    np.testing.assert_array_equal(
        np.frombuffer((folder / "out" / "m.onnx.data").read_bytes()[: array.nbytes], np.float32), array
    )
