"""Files: round trips, inline or external by size, atomic and durable saves, and guesses at what is no model."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper as official

import proto_schema as ps
from proto_schema.files import durable, saving
from proto_schema.files.marks import size_of_data
from proto_schema.numpy_helper import from_array, to_array
from proto_schema.wire import codec

W = np.arange(5000, dtype=np.float32).reshape(50, 100)


def model(*arrays: Any) -> ps.ModelProto:
    """A valid model that adds up its initializers w0, w1, ..."""
    arrays = arrays or (W, np.ones(3, np.float32), W + 1)
    weights = [from_array(array, f"w{index}") for index, array in enumerate(arrays)]
    nodes = [ps.NodeProto(op_type="Identity", input=[w.name or ""], output=[f"y{i}"]) for i, w in enumerate(weights)]
    graph = ps.GraphProto(name="g", node=nodes, initializer=weights)
    return ps.ModelProto(ir_version=8, opset_import=[ps.OperatorSetIdProto(domain="", version=17)], graph=graph)


def arrays(found: ps.ModelProto) -> list[Any]:
    assert found.graph is not None
    return [to_array(tensor) for tensor in found.graph.initializer]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def locations(path: Path) -> set[str]:
    """The data files that the model refers to."""
    loaded = onnx.load(path, load_external_data=False)
    return {t.external_data[0].value for t in loaded.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}


def check_official(path: Path, expected: ps.ModelProto) -> None:
    loaded = onnx.load(path)
    for tensor, array in zip(loaded.graph.initializer, arrays(expected), strict=True):
        np.testing.assert_array_equal(official.to_array(tensor), array)


# ---- loading


def test_loading_maps(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(), path)
    loaded = ps.load(path)
    assert loaded == model() and ps.load(str(path)) == model()
    array = arrays(loaded)[0]
    assert not array.flags.writeable and not array.flags.owndata
    assert path.read_bytes() == model().SerializeToString() == ps.dumps(loaded) == ps.dumps(ps.loads(path.read_bytes()))


def test_loading_from_file_objects(tmp_path: Path) -> None:
    data = ps.dumps(model())
    assert ps.load(io.BytesIO(data)) == model()
    read, write = os.pipe()
    threading.Thread(target=lambda: (os.write(write, data), os.close(write))).start()
    with open(read, "rb") as pipe:
        assert ps.load(pipe) == model()
    path = tmp_path / "m.onnx"
    ps.save(model(), path, external_data=True)
    with path.open("rb") as file:
        np.testing.assert_array_equal(arrays(ps.load(file))[2], W + 1)
    with pytest.raises(TypeError, match="'rb'"):
        ps.load(io.StringIO("x"))


def test_loading_from_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: ps.save(model(), path))
    thread.start()
    assert ps.load(path) == model()
    thread.join()


STRANGERS = [
    (b"", "the file is empty"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
    (b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>", "web page"),
    (b"<html>", "web page"),
    (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML"),
    (b"PK\x03\x04\x14\x00\x00\x00", "zip archive"),
    (gzip.compress(b"x" * 100), "gzip"),
    (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    (b'{"ir_version": 8}', "JSON"),
    (b"ir_version: 8\nproducer_name: 'x'\n", "text form"),
    (b"\x93NUMPY\x01\x00v\x00", "numpy"),
    (bytes(5000), "zeros"),
    (b"\x1c\x00\x00\x00TFL3" + bytes(50), "TensorFlow Lite"),
    (bytes(range(255, 100, -1)), "no ONNX model"),
    (b"\xa2\x06\x05hello", "no field of a ModelProto"),
]


@pytest.mark.parametrize(("data", "part"), STRANGERS, ids=[row[1] for row in STRANGERS])
def test_what_is_no_model(data: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ps.DecodeError) as caught:
        ps.load(path)
    assert part in str(caught.value) and str(path) in str(caught.value)
    with pytest.raises(ps.DecodeError):
        ps.load(io.BytesIO(data))


def test_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ps.dumps(model())[:-10])
    with pytest.raises(ps.DecodeError, match=r"m.onnx: @0x\w+: truncated.*cut off at \d+ bytes"):
        ps.load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ps.load(tmp_path / "absent.onnx")
    with pytest.raises(IsADirectoryError):
        ps.load(tmp_path)


# ---- saving inline


def test_saving_to_objects_that_cannot_seek(tmp_path: Path) -> None:
    target = io.BytesIO()
    ps.save(model(), target)
    assert target.getvalue() == ps.dumps(model())
    script = "import sys, proto_schema as ps; ps.save(ps.load(sys.argv[1]), sys.stdout.buffer)"
    path = tmp_path / "m.onnx"
    ps.save(model(), path)
    done = subprocess.run([sys.executable, "-c", script, path], stdout=subprocess.PIPE, check=True)
    assert done.stdout == ps.dumps(model())
    with pytest.raises(ps.EncodeError, match="path"):
        ps.save(model(), io.BytesIO(), external_data=True)


def test_saving_over_the_source(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(), path)
    loaded = ps.load(path)
    loaded.producer_name = "changed"
    ps.save(loaded, path)
    assert names(tmp_path) == ["m.onnx"]
    again = ps.load(path)
    assert again.producer_name == "changed" and again == loaded
    np.testing.assert_array_equal(arrays(again)[0], W)


def test_an_untouched_model_is_reproduced(tmp_path: Path) -> None:
    source = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    ps.save(ps.load(source), tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == source.read_bytes()


def test_permissions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(), path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    ps.save(model(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    path = tmp_path / "m.onnx"
    path.symlink_to(other)
    ps.save(model(), path)
    assert other.read_bytes() == b"precious" and not path.is_symlink() and ps.load(path) == model()


UNWRITABLE = [
    ("a folder", ".", IsADirectoryError, "cannot save"),
    ("no such folder", "nowhere/m.onnx", FileNotFoundError, "nowhere does not exist"),
    ("a file as folder", "file/m.onnx", NotADirectoryError, "cannot save"),
]


@pytest.mark.parametrize(("name", "error", "part"), [row[1:] for row in UNWRITABLE], ids=[row[0] for row in UNWRITABLE])
@pytest.mark.parametrize("external", [False, True])
def test_unwritable_targets(name: str, error: type[OSError], part: str, external: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    if name == "." and external:
        error = ps.EncodeError  # type: ignore[assignment]
        part = "path"
    with pytest.raises(error, match=part):
        ps.save(model(), tmp_path / name, external_data=external)
    assert names(tmp_path) == ["file"]


# ---- saving with external data


def test_external(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(), path, external_data=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert size_of_data(str(tmp_path / "m.onnx.data")) == 5 * 4096 + W.nbytes
    check_official(path, model())
    onnx.checker.check_model(path)
    loaded = ps.load(path)
    assert loaded.graph is not None and [t.data_location for t in loaded.graph.initializer] == [1, None, 1]
    assert [to_array(t).tolist() for t in loaded.graph.initializer] == [a.tolist() for a in arrays(model())]
    assert ps.dumps(loaded) == path.read_bytes()
    first = path.read_bytes(), (tmp_path / "m.onnx.data").read_bytes()
    ps.save(model(), path, external_data=True)
    assert (path.read_bytes(), (tmp_path / "m.onnx.data").read_bytes()) == first


def test_the_model_in_memory_is_not_changed(tmp_path: Path) -> None:
    mine = model()
    ps.save(mine, tmp_path / "m.onnx", external_data=True)
    assert mine == model()


@pytest.mark.parametrize("external", [True, None, False])
def test_resaving_leaves_no_orphans_and_never_appends(external: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(), path, external_data=True)
    for _ in range(3):
        loaded = ps.load(path)
        loaded.producer_name = "again"
        ps.save(loaded, path, external_data=external)
    assert names(tmp_path) == (["m.onnx", "m.onnx.data"] if external else ["m.onnx"])
    np.testing.assert_array_equal(arrays(ps.load(path))[2], W + 1)
    check_official(path, model())
    if external:
        assert size_of_data(str(tmp_path / "m.onnx.data")) == 5 * 4096 + W.nbytes
        assert (tmp_path / "m.onnx.data").stat().st_nlink == 1


def test_changed_metadata_leaves_the_data_file_as_it_is(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    ps.save(model(), path, external_data=True)
    before = data.stat()
    loaded = ps.load(path)
    loaded.producer_name = "somebody else"
    ps.save(loaded, path, external_data=True)
    assert (data.stat().st_ino, data.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert ps.load(path).producer_name == "somebody else"
    np.testing.assert_array_equal(arrays(ps.load(path))[2], W + 1)


def test_a_data_file_that_was_replaced_meanwhile_is_written_again(tmp_path: Path) -> None:
    """The place and size of the bytes are the same, the bytes are another model's."""
    path = tmp_path / "m.onnx"
    ps.save(model(), path, external_data=True)
    mine, other = ps.load(path), ps.load(path)
    before = [array.copy() for array in arrays(mine)]
    for tensor in other.graph.initializer:
        if tensor.data_location == ps.TensorProto.EXTERNAL:
            fresh = ps.numpy_helper.from_array(ps.numpy_helper.to_array(tensor) * 0, tensor.name)
            tensor.CopyFrom(fresh)
    ps.save(other, path, external_data=True)
    ps.save(mine, path, external_data=True)
    for one, two in zip(arrays(ps.load(path)), before, strict=True):
        np.testing.assert_array_equal(one, two)


def test_other_models_data_is_left_alone(tmp_path: Path) -> None:
    ps.save(model(), tmp_path / "m.onnx", external_data=True, location="shared.bin")
    ps.save(ps.load(tmp_path / "m.onnx"), tmp_path / "n.onnx", external_data="reference")
    (tmp_path / "m.onnx.notes").write_text("mine")
    ps.save(model(), tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.notes", "n.onnx", "shared.bin"]


def test_moved_to_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ps.save(model(), tmp_path / "a/m.onnx", external_data=True)
    ps.save(ps.load(tmp_path / "a/m.onnx"), tmp_path / "b/m.onnx", external_data=True, location="w.bin")
    assert names(tmp_path / "b") == ["m.onnx", "w.bin"]
    check_official(tmp_path / "b/m.onnx", model())
    target = io.BytesIO()
    ps.save(ps.load(tmp_path / "b/m.onnx"), target)
    assert ps.loads(target.getvalue()) == model()


def test_external_tensors_of_a_type_from_the_future_are_kept(tmp_path: Path) -> None:
    ps.save(model(), tmp_path / "m.onnx", external_data=True)
    loaded = ps.load(tmp_path / "m.onnx")
    assert loaded.graph is not None
    loaded.graph.initializer[0].data_type = 99
    ps.save(loaded, tmp_path / "n.onnx")
    again = ps.load(tmp_path / "n.onnx").graph
    assert again is not None and again.initializer[0].raw_data == W.tobytes()


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    lazy = ps.LazyPayload(W.nbytes, lambda: W)
    tied = model(W, W, W.copy())
    assert tied.graph is not None
    for name in "ab":
        tied.graph.initializer.append(ps.TensorProto(name=name, dims=list(W.shape), data_type=1, raw_data=lazy))
    ps.save(tied, tmp_path / "m.onnx", external_data=True, alignment=1)
    assert size_of_data(str(tmp_path / "m.onnx.data")) == 3 * W.nbytes
    check_official(tmp_path / "m.onnx", tied)
    ps.save(ps.load(tmp_path / "m.onnx"), tmp_path / "n.onnx", external_data=True, alignment=64)
    assert size_of_data(str(tmp_path / "n.onnx.data")) == 2 * 20032 + W.nbytes


def test_shards(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    many = model(*[W + index for index in range(5)])
    ps.save(many, path, external_data=True, shard_size=45_000)
    assert names(tmp_path) == ["m.onnx", *[f"m.onnx-0000{i}-of-00003.data" for i in (1, 2, 3)]]
    check_official(path, many)
    ps.save(ps.load(path), path, external_data=True, shard_size=65_536)
    assert names(tmp_path) == ["m.onnx", *[f"m.onnx-0000{i}-of-00002.data" for i in (1, 2)]]
    ps.save(ps.load(path), path, external_data=True, shard_size=1)
    assert len(names(tmp_path)) == 6
    check_official(path, many)


def test_thresholds(tmp_path: Path) -> None:
    small = model(np.ones(255, np.float32), np.ones(256, np.float32), np.ones(0, np.float32))
    ps.save(small, tmp_path / "m.onnx", external_data=True)
    loaded = ps.load(tmp_path / "m.onnx")
    assert loaded.graph is not None and [t.data_location for t in loaded.graph.initializer] == [None, 1, None]
    ps.save(small, tmp_path / "m.onnx", external_data=True, size_threshold=0)
    loaded = ps.load(tmp_path / "m.onnx")
    assert loaded.graph is not None and [t.data_location for t in loaded.graph.initializer] == [1, 1, None]
    ps.save(model(np.ones(3, np.float32)), tmp_path / "tiny.onnx", external_data=True)
    assert not (tmp_path / "tiny.onnx.data").exists()


def test_tensors_in_attributes_and_subgraphs_move_too(tmp_path: Path) -> None:
    branch = ps.GraphProto(name="b", initializer=[from_array(W, "inner")])
    attributes = [
        ps.AttributeProto(name="value", t=from_array(W + 2), type=4),
        ps.AttributeProto(name="g", g=branch, type=5),
    ]
    deep = ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", node=[ps.NodeProto(attribute=attributes)]))
    ps.save(deep, tmp_path / "m.onnx", external_data=True)
    loaded = ps.load(tmp_path / "m.onnx")
    assert loaded.graph is not None
    first, second = loaded.graph.node[0].attribute
    assert first.t is not None and second.g is not None
    np.testing.assert_array_equal(to_array(first.t), W + 2)
    np.testing.assert_array_equal(to_array(second.g.initializer[0]), W)
    ps.save(loaded, tmp_path / "m.onnx")
    assert ps.load(tmp_path / "m.onnx") == deep


def huge() -> ps.ModelProto:
    """Above 2 GiB as its sizes say; nothing of that is ever made."""
    lazy = ps.LazyPayload(2**31, lambda: pytest.fail("read"))
    return ps.ModelProto(
        graph=ps.GraphProto(initializer=[ps.TensorProto(name="w", data_type=2, dims=[2**31], raw_data=lazy)])
    )


def test_past_two_gib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ps.EncodeError, match="external_data=True"):
        ps.save(huge(), tmp_path / "m.onnx", external_data=False)
    with pytest.raises(ps.EncodeError, match="file's path"):
        ps.save(huge(), io.BytesIO())
    with pytest.raises(ps.EncodeError, match="2 GiB"):
        ps.dumps(huge())
    with pytest.raises(ps.EncodeError, match="without its external data"):
        ps.save(huge(), tmp_path / "m.onnx", external_data=True, size_threshold=2**40)
    assert names(tmp_path) == []
    for module in (saving, codec):
        monkeypatch.setattr(module, "MAX_LENGTH", 20_000)
    ps.save(model(), tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    check_official(tmp_path / "m.onnx", model())


@pytest.mark.parametrize(
    "wrong",
    [
        {"location": "a/b"},
        {"location": ".."},
        {"location": ""},
        {"location": "m.onnx"},
        {"alignment": 0},
        {"size_threshold": -1},
        {"shard_size": 0},
    ],
    ids=str,
)
def test_wrong_arguments(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be|own name"):
        ps.save(model(), tmp_path / "m.onnx", external_data=True, **wrong)


# ---- failures leave everything as it was


def failing(kind: str) -> ps.ModelProto:
    broken = model()
    assert broken.graph is not None
    tensor = broken.graph.initializer[2]
    if kind == "payload":
        tensor.raw_data = ps.LazyPayload(W.nbytes, lambda: b"short")
    if kind == "value":
        tensor.name = 3  # type: ignore[assignment]
    if kind == "missing data":
        tensor.raw_data = None
        tensor.data_location = 1
        tensor.external_data = [ps.StringStringEntryProto(key="location", value="gone")]
        object.__setattr__(tensor, "origin", ps.external.Folder("."))
    return broken


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("before", ["nothing", "inline", "external"])
@pytest.mark.parametrize("kind", ["payload", "value", "missing data"])
def test_a_failed_save_changes_nothing(kind: str, before: str, external: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    if before != "nothing":
        ps.save(model(), path, external_data=before == "external")
    old = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(ValueError):
        ps.save(failing(kind), path, external_data=external)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == old


CALLS = ["open", "write", "fsync", "replace", "posix_fallocate", "link", "fchmod"]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_crash_at_any_system_call_leaves_a_model(call: str, external: bool, tmp_path: Path) -> None:
    """Each call in turn fails as on a full disk: afterwards the old or the new model is there, whole, nothing else."""
    path = tmp_path / "m.onnx"
    real = getattr(os, call)
    for at in range(1, 60):
        for name in names(tmp_path):
            (tmp_path / name).unlink()
        ps.save(model(W + 7), path, external_data=True)
        count = 0

        def fails(*args: Any, at: int = at, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, fails)
            try:
                ps.save(model(), path, external_data=external)
                saved = True
            except OSError as error:
                saved = False
                assert error.errno == errno.ENOSPC and error.filename == os.fspath(path)
        found = arrays(ps.load(path))
        if saved:
            np.testing.assert_array_equal(found[2], W + 1)
        assert len(found) == (3 if saved or len(found) == 3 else 1)
        assert set(names(tmp_path)) == {"m.onnx", *locations(path)}
        check_official(path, model() if len(found) == 3 else model(W + 7))
        if count < at:
            return
    raise AssertionError("the save makes more calls than this test fails")


def test_the_disk_is_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace", "posix_fallocate"):
        real = getattr(os, name)

        def logged(*args: Any, real: Any = real, name: str = name, **kwargs: Any) -> Any:
            calls.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, logged)
    ps.save(model(), tmp_path / "m.onnx", external_data=True)
    written, renamed_and_folder = ["posix_fallocate", "fsync"], ["replace", "fsync"]
    assert calls == written * 2 + renamed_and_folder * 2  # of data and model, in this order


def test_file_systems_without_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    ps.save(model(), tmp_path / "m.onnx")
    assert ps.load(tmp_path / "m.onnx") == model()
    assert durable.takes_rename(str(tmp_path / "absent"))
