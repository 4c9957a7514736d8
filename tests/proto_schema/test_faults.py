"""Saves on a disk that fails, is interrupted or stops at any one call: each fifth by default, with `-m full` every one.

The invariant: the folder loads as the old model or as the new one, whole. After an error nothing else is in it than
before; after a kill there may be temporary files, and data files that the new model would have referred to.
Another save of that model then succeeds, whatever its options, and nothing of ours is left. Files of others, some of
which look like ours, are never touched.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.numpy_helper import from_array, to_array
from tests.proto_schema.decoys import Watched, lay_out_few
from tests.proto_schema.faults import FAULTS, SIGNALS, Disk, Fault, Stopped

pytestmark = pytest.mark.usefixtures("signals_end")

OLD = [np.full(5000, 7, np.float32), np.arange(9000, dtype=np.float32), np.ones(3, np.float32)]
# the first is large enough for the kernel to copy it from file to file
NEW = [np.full(20_000, 8, np.float32), np.arange(9000, dtype=np.float32) + 1]
MOST_CALLS = 160
LEFT_BY_A_KILL = re.compile(r"\.?m\.onnx.*|\.proto_schema-lock")


def model(arrays: list[Any], source: Path | None = None) -> ps.ModelProto:
    """Initializers of these values, in memory or as ranges of the file `source`."""
    tensors = [from_array(array, f"w{index}") for index, array in enumerate(arrays)]
    if source is not None:
        source.write_bytes(b"".join(array.tobytes() for array in arrays))
        at = 0
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.raw_data = ps.FileRange(source, at, array.nbytes)
            at += array.nbytes
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def held(path: Path) -> list[Any] | None:
    """The values of the model that lies there, None where no file is."""
    if not path.exists():
        return None
    loaded = ps.load(path)
    assert loaded.graph is not None
    return [to_array(tensor) for tensor in loaded.graph.initializer]


def same(found: list[Any] | None, expected: list[Any] | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


@dataclass(frozen=True)
class Walk:
    """A save `options` over what `before` left; its weights come from a file where `from_file`.

    `copied`: the old model has a copy, which needs its data.
    """

    name: str
    before: dict[str, Any] | None
    options: dict[str, Any]
    from_file: bool = False
    copied: bool = False


INLINE: dict[str, Any] = {"external_data": False}
EXTERNAL: dict[str, Any] = {"external_data": True}
SHARDS: dict[str, Any] = {"external_data": True, "shard_size": 30_000}
WALKS = [
    Walk("inline over nothing", None, INLINE),
    Walk("inline over inline", INLINE, INLINE),
    Walk("inline over external", EXTERNAL, INLINE),
    Walk("external over nothing", None, EXTERNAL),
    Walk("external over inline", INLINE, EXTERNAL),
    Walk("external over external", EXTERNAL, EXTERNAL),
    Walk("external over external, from a file", EXTERNAL, EXTERNAL, from_file=True),
    Walk("external over shards", SHARDS, EXTERNAL),
    Walk("shards over external", EXTERNAL, SHARDS),
    Walk("shards over shards, from a file", SHARDS, SHARDS, from_file=True),
    Walk("external over external, with a copy", EXTERNAL, EXTERNAL, copied=True),
    Walk("inline over external, with a copy", EXTERNAL, INLINE, copied=True),
]
# what is saved after a kill: the same again, or with other options
NEXT: list[dict[str, Any]] = [{}, INLINE, EXTERNAL, {**EXTERNAL, "location": "other.data"}, SHARDS]


class Walking:
    """One walk: saves on a folder that is laid out anew for each, with everything that must hold checked after each."""

    def __init__(self, walk: Walk, place: Path) -> None:
        self.walk = walk
        self.folder = place / "folder"
        self.folder.mkdir()
        self.path = self.folder / "m.onnx"
        if walk.before is not None:
            ps.save(model(OLD), self.path, **walk.before)
        self.before = {item.name: item.read_bytes() for item in self.folder.iterdir()}
        lay_out_few(self.folder)
        if walk.copied:
            shutil.copy(self.path, self.folder / "backup.onnx")
        self.others = Watched(self.folder, {"m.onnx"} if walk.copied else self.before)
        self.old = None if walk.before is None else OLD
        self.new = model(NEW, place / "source" if walk.from_file else None)

    def save(self, fault: Fault, at: int, lost: int = 0) -> Disk:
        """One save with the fault at one call."""
        for name in set(os.listdir(self.folder)) - self.others.names:
            (self.folder / name).unlink()
        for name in self.before.keys() - self.others.names:
            (self.folder / name).write_bytes(self.before[name])
        disk = Disk(self.folder, at, fault, lost)
        saved = False
        if fault in SIGNALS:
            disk.in_a_fork(lambda: ps.save(self.new, self.path, **self.walk.options))
            saved = not disk.stopped
        else:
            with disk.mounted():
                try:
                    ps.save(self.new, self.path, **self.walk.options)
                    saved = True
                except (OSError, KeyboardInterrupt, ps.ExternalDataError):
                    assert fault.kind not in ("short", "killed", "torn", "power")
        disk.close()
        self.check(disk, saved, f"{fault} at call {at} ({disk.log[-1]}), {lost} names lost")
        return disk

    def check(self, disk: Disk, saved: bool, where: str) -> None:
        """What must hold after a save that met a fault."""
        found = held(self.path)
        assert same(found, NEW) or (same(found, self.old) and not saved), f"{where}: neither the old nor the new model"
        extra = self.others.left("m.onnx")
        if disk.stopped:
            assert all(map(LEFT_BY_A_KILL.fullmatch, extra)), f"{where}: {extra}"
            options = NEXT[(disk.at + disk.lost) % len(NEXT)] or self.walk.options
            ps.save(self.new, self.path, **options)
            assert same(held(self.path), NEW), f"{where}: the next save, {options}"
            left = self.others.left("m.onnx")
            assert not left, f"{where}: {left} is left behind by the next save, {options}"
        elif disk.fault.kind != "error" or disk.log[disk.at - 1 :][:1] != ["unlink"]:  # else removing itself failed
            assert not extra, f"{where}: {extra} is left behind"
        assert self.others.changes(whole=False) == [], where

    def end(self) -> None:
        """At the end of a walk: what is not ours is as it was, to the byte, and so is what a copy needs."""
        assert self.others.changes() == []
        if self.walk.copied:
            assert same(held(self.folder / "backup.onnx"), OLD)


EVERY = (1, 1)  # the first call that is met, and how far the next is


def sampled(number: int, apart: int) -> tuple[int, int]:
    """One call of so many, another one for each fault and walk: the walks that ask alike meet all calls together."""
    return 1 + number % apart, apart


ROWS = [  # where a copy needs the data, a few kinds show what there is to see
    pytest.param(walk, fault, calls, id=f"{walk.name}-{fault}{suffix}", marks=pytest.mark.sweep if is_rare else marks)
    for place, walk in enumerate(WALKS)
    for number, fault in enumerate(FAULTS)
    for is_rare in [walk.copied and fault.kind not in ("killed", "power")]
    for calls, suffix, marks in [(sampled(place + number, 9), "", ()), (EVERY, "-every call", pytest.mark.full)]
]


@pytest.mark.parametrize(("walk", "fault", "calls"), ROWS)
def test_calls(walk: Walk, fault: Fault, calls: tuple[int, int], quick_folder: Path) -> None:
    walking = Walking(walk, quick_folder)
    for at in range(calls[0], MOST_CALLS, calls[1]):
        disk = walking.save(fault, at)
        for lost in range(1, 20):  # further back, as long as there is more that can be lost
            if fault.kind != "power" or disk.undone < lost - 1:
                break
            disk = walking.save(fault, at, lost)
        if not disk.met:
            return walking.end()
    raise AssertionError("the save makes more calls than this test walks through")


_SIGNALLED = {("external over external", "SIGTERM"), ("shards over external", "SIGHUP")}
SIGNALLED = [
    pytest.param(walk, fault, calls, id=f"{walk.name}-{fault}{suffix}", marks=marks)
    for walk in WALKS
    for fault in SIGNALS
    for calls, suffix, marks in (
        [(sampled(0, 9), "", ()), (EVERY, "-every call", pytest.mark.full)]
        if (walk.name, fault.kind) in _SIGNALLED
        else [(EVERY, "-every call", pytest.mark.sweep)]
    )
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("walk", "fault", "calls"), SIGNALLED)
def test_a_signal_at_calls(walk: Walk, fault: Fault, calls: tuple[int, int], quick_folder: Path) -> None:
    """The default action: the process ends at once, without a word."""
    test_calls(walk, fault, calls, quick_folder)


def test_the_disk_itself(tmp_path: Path) -> None:
    """That the faults of the tests do what they say."""
    (tmp_path / "a").write_bytes(b"old")
    disk = Disk(tmp_path, 4, Fault("power"), lost=1)
    with disk.mounted():
        handle = os.open(tmp_path / "b", os.O_WRONLY | os.O_CREAT)
        os.write(handle, b"new")
        os.replace(tmp_path / "b", tmp_path / "a")
        os.fsync(handle)
        raise AssertionError("the process went on")
    assert disk.stopped and disk.log == ["open", "write", "replace", "fsync"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": bytes(3)}
    disk = Disk(tmp_path, 1, Fault("torn"))
    with disk.mounted():
        os.pwrite(os.open(tmp_path / "a", os.O_WRONLY), b"x", 0)
    assert disk.stopped
    with pytest.raises(Stopped):
        disk._call("unlink", (tmp_path / "a",), {})
