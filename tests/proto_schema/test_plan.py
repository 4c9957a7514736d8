"""The plan of a save: what it says is what the save does. Progress, and disks that are too small."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import meter
from proto_schema.numpy_helper import from_array, to_array

W = np.arange(50_000, dtype=np.float32)
SMALL = np.arange(100, dtype=np.float32)


def mixed(folder: Path) -> ps.ModelProto:
    """Tensors from every kind of source: two of memory that are one, a file's range, a function, two small ones."""
    checkpoint = folder / "checkpoint"
    checkpoint.write_bytes(b"head" + W.tobytes())
    tied = from_array(W, "tied")
    lazy = ps.LazyPayload(W.nbytes, lambda: [W.tobytes()])
    tensors = [
        from_array(W, "w"),
        from_array(SMALL, "small"),
        tied,
        ps.TensorProto(name="stored", dims=[50_000], data_type=1, raw_data=ps.FileRange(checkpoint, 4, W.nbytes)),
        ps.TensorProto(name="lazy", dims=[50_000], data_type=1, raw_data=lazy),
        ps.TensorProto(name="few", dims=[9], data_type=2, raw_data=ps.FileRange(checkpoint, 0, 9)),
    ]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def content(path: Path) -> list[bytes]:
    graph = ps.load(path).graph
    assert graph is not None
    return [to_array(tensor).tobytes() for tensor in graph.initializer]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"external_data": True},
    {"external_data": True, "alignment": 64, "size_threshold": 0},
    {"external_data": True, "shard_size": 300_000, "location": "weights.bin"},
    {"external_data": True, "size_threshold": 1 << 30},
]
BEFORE: list[tuple[str, Callable[[Path], None]]] = [
    ("nothing there", lambda _: None),
    ("an older model", lambda path: ps.save(ps.ModelProto(ir_version=3), path)),
    ("the same, saved before", lambda path: ps.save(mixed(path.parent), path, external_data=True)),
]


@pytest.mark.parametrize("before", [row[1] for row in BEFORE], ids=[row[0] for row in BEFORE])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_plan_is_what_the_save_does(
    options: dict[str, Any], before: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    before(path)
    model = mixed(tmp_path)
    there = {name: (tmp_path / name).stat().st_size for name in os.listdir(tmp_path)}
    plan = ps.plan(model, path, **options)
    assert {name: (tmp_path / name).stat().st_size for name in os.listdir(tmp_path)} == there
    told: list[tuple[int, int]] = []
    ps.save(model, path, **options, progress=lambda done, total: told.append((done, total)))
    sizes = {name: (tmp_path / name).stat().st_size for name in os.listdir(tmp_path) if name != "checkpoint"}
    assert {file.name: file.size for file in plan.files} == sizes
    assert {file.name: file.replaces for file in plan.files} == {name: there.get(name) for name in sizes}
    assert plan.written == sum(sizes.values()) and told[-1] == (plan.written, plan.written)
    assert plan.needed >= plan.written and plan.fits and plan.target == str(path)
    for planned, expected in zip(plan.tensors, content(path), strict=True):
        assert planned.length == len(expected)
        if planned.offset is not None:
            stop = planned.offset + planned.length
            assert (tmp_path / planned.file).read_bytes()[planned.offset : stop] == expected
        else:
            assert planned.length < 1024 and planned.file == "m.onnx"
    by_name = {tensor.name: tensor for tensor in plan.tensors}
    assert [by_name[name].source for name in ("w", "stored", "lazy", "few")] == ["memory", "file", "computed", "file"]
    assert by_name["stored"].path == str(tmp_path / "checkpoint") and by_name["stored"].way == "copy"
    assert plan.copied == W.nbytes and plan.referenced == 0
    moved = options.get("external_data") and options.get("size_threshold", 0) <= W.nbytes
    assert plan.kind == ("external" if moved else "inline")
    assert plan.shared == (W.nbytes if moved else 0)
    assert (by_name["tied"].way, by_name["tied"].shared_with) == (("shared", "w") if moved else ("write", None))


def test_data_files_that_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(mixed(tmp_path), path, external_data=True)
    loaded = ps.load(path)
    loaded.producer_name = "changed"
    plan = ps.plan(loaded, path, external_data=True)
    assert [(file.name, file.action) for file in plan.files] == [("m.onnx", "write"), ("m.onnx.data", "keep")]
    before = path.with_name("m.onnx.data").stat()
    ps.save(loaded, path, external_data=True)
    assert path.with_name("m.onnx.data").stat().st_mtime_ns == before.st_mtime_ns
    assert plan.written == path.stat().st_size == plan.needed
    assert [tensor.way for tensor in plan.tensors] == ["keep", "write", "shared", "keep", "keep", "write"]
    elsewhere = ps.plan(loaded, tmp_path / "n.onnx", external_data=True)
    assert [tensor.way for tensor in elsewhere.tensors] == ["copy", "write", "shared", "copy", "copy", "write"]


def test_the_plan_of_a_stream(tmp_path: Path) -> None:
    plan = ps.plan(mixed(tmp_path), io.BytesIO())
    target = io.BytesIO()
    told: list[tuple[int, int]] = []
    ps.save(mixed(tmp_path), target, progress=lambda done, total: told.append((done, total)))
    assert plan.written == len(target.getvalue()) == told[-1][0]
    assert (plan.target, plan.free, plan.kind) == ("", None, "inline")


def test_the_plan_as_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(mixed(tmp_path), path)
    plan = ps.plan(mixed(tmp_path), path, external_data=True)
    lines = str(plan).splitlines()
    assert " ".join(line.split()[0] for line in lines) == "write write copy write shared disk pieces memory"
    assert lines[0].endswith("m.onnx, in place of 801 kB") and lines[1].split()[1:3] == ["601", "kB"]
    assert "1 tensor copied by the kernel (checkpoint)" in lines[2]
    assert "4 tensors written (checkpoint, computed, memory)" in lines[3]
    facts = json.loads(json.dumps(plan.as_dict()))
    assert facts["copied"] == plan.copied and len(facts["tensors"]) == 6 and facts["fits"] is True
    replaced = path.stat().st_size
    assert facts["files"][0] == {"name": "m.onnx", "size": plan.files[0].size, "action": "write", "replaces": replaced}


REFUSED = [
    ({"external_data": "elsewhere"}, ValueError, "none of None, True, False"),
    ({"external_data": True, "location": "a/b"}, ValueError, "bare name"),
    ({"external_data": True, "location": "m.onnx"}, ValueError, "own name"),
    ({"external_data": True, "location": "old.safetensors"}, FileExistsError, "old.safetensors is there already"),
    ({"external_data": "reference", "location": "checkpoint"}, ValueError, "refers to in place"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_a_plan_refuses_what_a_save_refuses(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "old.safetensors").write_bytes(b"precious")
    model = mixed(tmp_path)
    for function in (ps.plan, ps.save):
        with pytest.raises(error, match=message):
            function(model, tmp_path / "m.onnx", **options)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "old.safetensors"]


# ---- a disk that is too small


@pytest.mark.parametrize("external", [False, True])
def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(
    external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    ps.save(mixed(tmp_path), path, external_data=True)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    model = mixed(tmp_path)
    needed = ps.plan(model, path, external_data=external).needed
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, needed - 1))
    plan = ps.plan(model, path, external_data=external)
    assert not plan.fits and plan.free == needed - 1 and "TOO SMALL" in str(plan)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "posix_fallocate", "copy_file_range"):
            patch.setattr(os, name, lambda *_: pytest.fail("touched"))
        with pytest.raises(OSError, match=r"60\d kB|80\d kB") as caught:
            ps.save(model, path, external_data=external)
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(path)
    assert "until the new one is whole" in str(caught.value) and "make room" in str(caught.value)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, needed))
    ps.save(model, path, external_data=external)


@pytest.mark.parametrize("says", [lambda *_: (0, 0, 0), OSError], ids=["nothing", "an error"])
def test_a_disk_that_does_not_say_its_size(says: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(tmp_path))

    def asked(path: Any) -> Any:
        if says is OSError:
            raise OSError("unknown")
        return usage(*says())

    monkeypatch.setattr(shutil, "disk_usage", asked)
    assert ps.plan(mixed(tmp_path), tmp_path / "m.onnx").free is None
    ps.save(mixed(tmp_path), tmp_path / "m.onnx")


# ---- progress


def heard(told: list[tuple[int, int]], done: int, total: int) -> None:
    told.append((done, total))


@pytest.mark.parametrize("external", [False, True])
def test_progress_grows_to_the_total(external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "EVERY", 100_000)
    for _ in range(2):  # the second replaces the first
        told: list[tuple[int, int]] = []
        ps.save(mixed(tmp_path), tmp_path / "m.onnx", external, progress=partial(heard, told))
        dones = [done for done, _ in told]
        assert len({total for _, total in told}) == 1 and told[-1][0] == told[-1][1]
        assert len(told) >= 3 and all(step >= 100_000 for step in np.diff(dones)[:-1])
        assert dones == sorted(set(dones))


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("at", [0, -1])
def test_a_callback_that_raises_ends_the_save(
    at: int, external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the last call, when everything is written."""
    monkeypatch.setattr(meter, "EVERY", 100_000)
    path = tmp_path / "m.onnx"
    ps.save(from_model(W + 1), path, external_data=True)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}

    def stops(done: int, total: int) -> None:
        if at == 0 or done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.save(from_model(W), path, external_data=external, progress=stops)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def from_model(array: Any) -> ps.ModelProto:
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=[from_array(array, "w")]))
