"""Several models with one data file: equal bytes lie once, and whatever stops the save leaves each model whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.files.marks import is_marked, mark
from proto_schema.files.owned import data_of
from proto_schema.numpy_helper import from_array, to_array
from tests.proto_schema.decoys import Watched, lay_out_few
from tests.proto_schema.faults import FAULTS, Disk, Fault

NAMES = ("a.onnx", "b.onnx")
X, Y, SMALL = np.arange(20_000, dtype=np.float32), np.full(9000, 2, np.float32), np.ones(3, np.float32)
OLD = {"a.onnx": [X - 1, Y - 1], "b.onnx": [X - 1, SMALL]}
NEW = {"a.onnx": [X, Y, X.copy()], "b.onnx": [X.copy(), Y + 1, SMALL]}


def models(arrays: dict[str, list[Any]]) -> dict[str, ps.ModelProto]:
    """Models with initializers of these values."""
    found = {}
    for name, values in arrays.items():
        tensors = [from_array(value, f"w{place}") for place, value in enumerate(values)]
        found[name] = ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))
    return found


def is_held(path: Path, wanted: list[Any]) -> bool:
    """Whether the model that lies there has these values."""
    if not path.exists():
        return False
    graph = ps.load(path).graph
    found = [to_array(tensor) for tensor in graph.initializer] if graph is not None else []
    return len(found) == len(wanted) and all(map(np.array_equal, found, wanted))


def loaded(folder: Path, **options: Any) -> dict[str, ps.ModelProto]:
    """The new models from files of their own."""
    folder.mkdir()
    for name, model in models(NEW).items():
        ps.save(model, folder / name, **options)
    return {name: ps.load(folder / name) for name in NAMES}


@pytest.mark.parametrize("options", [{"external_data": False}, {"external_data": True}, {"shard_size": 50_000}])
def test_equal_bytes_lie_once(options: dict[str, Any], tmp_path: Path) -> None:
    """Of one model or two, in memory or in files; a small tensor stays in its model."""
    given = loaded(tmp_path / "from", **{"external_data": True, **options})
    folder = tmp_path / "to"
    folder.mkdir()
    told: list[int] = []
    planned = ps.share(given, folder, dry_run=True)
    assert not list(folder.iterdir())
    done = ps.share(given, folder, progress=lambda at, total: told.append(at))
    assert done == planned and told[-1] == done.data_size + sum(done.models.values())
    assert (done.tensors, done.stored, done.apart) == (5, 3, 3 * X.nbytes + 2 * Y.nbytes)
    assert sorted(os.listdir(folder)) == ["a.onnx", "b.onnx", "model.onnx.data"]
    data = folder / "model.onnx.data"
    assert data.stat().st_size == done.data_size < X.nbytes + 2 * Y.nbytes + 3 * 4096
    assert all(is_held(folder / name, NEW[name]) for name in NAMES)
    assert all(is_marked(str(data), {"model.onnx.data"}, name) for name in NAMES)
    assert not is_marked(str(data), {"model.onnx.data"}, "c.onnx")
    before = data.read_bytes()
    ps.share(given, folder)
    assert sorted(os.listdir(folder)) == ["a.onnx", "b.onnx", "model.onnx.data"] and data.read_bytes() == before


def test_ranges_that_overlap(tmp_path: Path) -> None:
    """Of those the first is compared, and the others are written as they are: never with the bytes of another."""
    data = np.tile(np.arange(1000, dtype=np.uint8), 9)
    (tmp_path / "w.data").write_bytes(data.tobytes())
    found = [(0, 4000), (1000, 4000), (256, 4000), (5000, 4000), (0, 4000)]
    tensors = []
    for place, (offset, length) in enumerate(found):
        entries = {"location": "w.data", "offset": str(offset), "length": str(length)}
        held = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
        tensors.append(
            ps.TensorProto(name=f"w{place}", data_type=2, dims=[length], data_location=1, external_data=held)
        )
    graph = ps.GraphProto(name="g", initializer=tensors)
    (tmp_path / "m.onnx").write_bytes(ps.ModelProto(ir_version=8, graph=graph).SerializeToString())
    folder = tmp_path / "to"
    folder.mkdir()
    done = ps.share({name: ps.load(tmp_path / "m.onnx") for name in NAMES}, folder)
    for name in NAMES:
        held_now = ps.load(folder / name).graph
        assert held_now is not None
        for tensor, (offset, length) in zip(held_now.initializer, found, strict=True):
            assert np.array_equal(to_array(tensor), data[offset : offset + length])
    assert done.tensors == 10
    assert done.stored == 3  # that at 0, which is that at 5000 too; those at 256 and at 1000, which begin inside of it


def test_data_goes_with_its_last_model(tmp_path: Path) -> None:
    """A save of one model leaves the data to the other one."""
    ps.share(models(NEW), tmp_path, "w.bin")
    ps.save(models(OLD)["a.onnx"], tmp_path / "a.onnx")
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx", "w.bin"] and is_held(tmp_path / "b.onnx", NEW["b.onnx"])
    ps.save(models(OLD)["b.onnx"], tmp_path / "b.onnx", external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx", "b.onnx.data"]
    assert is_held(tmp_path / "a.onnx", OLD["a.onnx"])


def test_several_data_files(tmp_path: Path) -> None:
    """Each has the mark of all models. Those of before are replaced, and go with the last model."""
    ps.share(models(OLD), tmp_path, shard_size=50_000)
    done = ps.share(models(NEW), tmp_path, shard_size=50_000)
    names = [f"model.onnx-0000{place}-of-00003.data" for place in (1, 2, 3)]
    assert list(done.data_files) == [str(tmp_path / name) for name in names]
    assert done.data_files == {path: os.path.getsize(path) for path in done.data_files}
    assert sorted(os.listdir(tmp_path)) == sorted([*NAMES, *names])
    assert all(is_held(tmp_path / name, NEW[name]) for name in NAMES)
    assert all(is_marked(str(tmp_path / name), {name}, model) for name in names for model in NAMES)
    ps.save(models(OLD)["a.onnx"], tmp_path / "a.onnx")
    assert is_held(tmp_path / "b.onnx", NEW["b.onnx"])
    ps.save(models(OLD)["b.onnx"], tmp_path / "b.onnx")
    assert sorted(os.listdir(tmp_path)) == [*NAMES]


def test_in_place(tmp_path: Path) -> None:
    """Models are replaced by those that share; data that another model needs, or nobody wrote, stays."""
    given = loaded(tmp_path / "m", external_data=True)
    (tmp_path / "m" / "copy.onnx").write_bytes((tmp_path / "m" / "b.onnx").read_bytes())
    (tmp_path / "m" / "model.onnx.data").write_bytes(b"mine")
    ps.share(given, tmp_path / "m")
    names = ["a.onnx", "b.onnx", "b.onnx.data", "copy.onnx", "model.onnx.1.data", "model.onnx.data"]
    assert sorted(os.listdir(tmp_path / "m")) == names
    assert (tmp_path / "m" / "model.onnx.data").read_bytes() == b"mine"
    assert all(is_held(tmp_path / "m" / name, NEW[name]) for name in NAMES)
    assert is_held(tmp_path / "m" / "copy.onnx", NEW["b.onnx"])
    with pytest.raises(FileExistsError, match="it was not written for"):
        ps.share(given, tmp_path / "m", "model.onnx.data")


REFUSALS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ({}, {}, ValueError, "no model is given"),
    ({"x/a.onnx": None}, {}, ValueError, "must be the bare name"),
    ({"a.onnx": None}, {"location": ".."}, ValueError, "must be the bare name"),
    ({"a.onnx": None}, {"location": "a.onnx"}, ValueError, "is the name of a model"),
    ({"a.onnx": None}, {"alignment": 0}, ValueError, "alignment must be at least 1"),
    ({"a.onnx": None}, {"shard_size": 0}, ValueError, "shard_size must be at least 1"),
    ({"model-00002-of-00002.onnx": None}, {"location": "model.onnx", "shard_size": 9}, OSError, "a model of this"),
    ({"notes.txt": None}, {}, FileExistsError, "is not an ONNX model"),
    ({"a.onnx": None}, {"location": "notes.txt"}, FileExistsError, "it was not written for"),
]


@pytest.mark.parametrize(("given", "options", "error", "text"), REFUSALS, ids=lambda value: str(value)[:30])
def test_refusals(given: Any, options: dict[str, Any], error: type[Exception], text: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(error, match=text):
        ps.share({name: models(NEW)["a.onnx"] for name in given}, tmp_path, **options)
    assert os.listdir(tmp_path) == ["notes.txt"] and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_mark_has_the_models_that_fit() -> None:
    line = mark("d", [f"{number}.onnx" for number in range(5000)], 3)
    assert len(line) <= 8192 and line.startswith(b"\n#proto_schema data, 3 bytes, d of 0.onnx, 1.onnx, ")


def test_changed_sources(tmp_path: Path) -> None:
    """A data file that is another by the time it is read is an error, and nothing is written."""
    given = loaded(tmp_path / "from", external_data=True)
    (tmp_path / "from" / "a.onnx.data").write_bytes(bytes(200_000))
    (tmp_path / "to").mkdir()
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced"):
        ps.share(given, tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


BEFORE = ("nothing", "models-of-their-own", "models-that-share", "models-that-share-files")


_DEFAULT = ("interrupted after", "killed", "power")
EVERY = (1, 1)  # the first call that is met, and how far the next is
WALKS = [
    pytest.param(before, fault, calls, id=f"{before}-{fault}{suffix}", marks=marks)
    for place, before in enumerate(BEFORE)
    for number, fault in enumerate(FAULTS)
    for calls, suffix, marks in (
        [((1 + (place + number) % 3, 3), "", ()), (EVERY, "-every call", pytest.mark.full)]
        if before.startswith("models") and not before.endswith("files") and fault.kind in _DEFAULT
        else [(EVERY, "-every call", pytest.mark.sweep)]
    )
]


@pytest.mark.parametrize(("before", "fault", "calls"), WALKS)
def test_calls(before: str, fault: Fault, calls: tuple[int, int], quick_folder: Path) -> None:
    """At each call in turn, by default each third: each model is the old or the new one, and nothing else is left."""
    folder = quick_folder / "folder"
    folder.mkdir()
    options = {"shard_size": 50_000} if before.endswith("files") else {}
    if before.startswith("models-that-share"):
        ps.share(models(OLD), folder, **options)
    elif before == "models-of-their-own":
        for name, model in models(OLD).items():
            ps.save(model, folder / name, external_data=True)
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    lay_out_few(folder)
    others = Watched(folder, content)
    new = models(NEW)
    for at in range(calls[0], 200, calls[1]):
        lost = 0
        while True:
            for name in set(os.listdir(folder)) - others.names:
                (folder / name).unlink()
            for name, data in content.items():
                (folder / name).write_bytes(data)
            disk = Disk(folder, at, fault, lost)
            done = False
            with disk.mounted():
                try:
                    ps.share(new, folder, **options)
                    done = True
                except (OSError, KeyboardInterrupt):
                    assert fault.kind not in ("short", "killed", "torn", "power")
            disk.close()
            _check(folder, others, disk, done, bool(content), new)
            if fault.kind != "power" or disk.undone < lost or lost > 20:
                break
            lost += 1
        if not disk.met:
            assert others.changes() == []
            return
    raise AssertionError("it makes more calls than this test walks through")


def _check(folder: Path, others: Watched, disk: Disk, done: bool, had: bool, new: dict[str, ps.ModelProto]) -> None:
    where = f"{disk.fault} at call {disk.at} ({disk.log[-1]}), {disk.lost} names lost"
    for name in NAMES:
        path = folder / name
        old = is_held(path, OLD[name]) if had else not path.exists()
        assert is_held(path, NEW[name]) or (old and not done), f"{where}: {name} is neither the old nor the new one"
    extra = _unused(folder, others)
    if disk.stopped:
        ps.share(new, folder)
        assert all(is_held(folder / name, NEW[name]) for name in NAMES), f"{where}: the next one"
        assert not _unused(folder, others), f"{where}: {_unused(folder, others)} is left by the next one"
    elif disk.fault.kind != "error" or disk.log[disk.at - 1 :][:1] != ["unlink"]:  # else removing itself failed
        assert not extra, f"{where}: {extra} is left behind"
    assert others.changes(whole=False) == [], where


def _unused(folder: Path, others: Watched) -> set[str]:
    """What is neither another's, nor a model, nor data of one."""
    used = {*others.names, *NAMES}
    for name in NAMES:
        if (folder / name).exists():
            used.update(map(os.path.basename, data_of(str(folder / name))))
    return set(os.listdir(folder)) - used
