"""open_weights: what may be given, one over the other, and keys renamed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from proto_schema.external.payload import FileRange
from purexport.weights import Stored, Weights, WeightsError, open_weights, safetensors
from purexport.weights.arrays import Mappings
from purexport.weights.stored import CheckpointFile
from tests.weights import made

ONES = np.ones((2, 3), np.float32)


def values(found: Stored) -> list[float]:
    return np.frombuffer(found.payload.tobytes(), "<f4").tolist()


def test_layers_and_repr(tmp_path: Path) -> None:
    base = made.of_arrays(tmp_path / "base.safetensors", {"a": ONES, "b": ONES})
    delta = made.of_arrays(tmp_path / "delta.safetensors", {"b": 2 * ONES, "c": 3 * ONES[0]})
    found = open_weights([str(base), delta, {"c": torch.full((1,), 4.0)}])
    assert {name: values(found[name])[0] for name in found} == {"a": 1, "b": 2, "c": 4}
    assert [item.origin for item in found.values()] == ["base.safetensors", "delta.safetensors", "the mapping"]
    assert repr(found) == "<Weights of base.safetensors + delta.safetensors + the mapping: 3 tensors, 52 bytes>"
    assert open_weights(found) is found


# (what, rename, {new name: old name})
RENAMED: list[tuple[str, Any, dict[str, str]]] = [
    ("a table", {"a": "x"}, {"x": "a", "b": "b", "c": "c"}),
    ("a table that leaves out", {"a": None}, {"b": "b", "c": "c"}),
    ("two change places", {"a": "b", "b": "a"}, {"b": "a", "a": "b", "c": "c"}),
    ("a function", lambda name: f"model.{name}", {"model.a": "a", "model.b": "b", "model.c": "c"}),
    ("a function that leaves out", lambda name: name if name > "a" else None, {"b": "b", "c": "c"}),
]


@pytest.mark.parametrize(("rename", "expected"), [row[1:] for row in RENAMED], ids=[row[0] for row in RENAMED])
def test_rename(rename: Any, expected: dict[str, str]) -> None:
    found = open_weights({"a": ONES, "b": ONES, "c": ONES}, rename=rename)
    assert {new: item.name for new, item in found.items()} == expected


def fails(name: str) -> str:
    raise KeyError(name)


# (what is wrong, source, rename, error, message)
WRONG: list[tuple[str, Any, Any, type[Exception], str]] = [
    (
        "two become one",
        {"a": ONES, "b": ONES},
        lambda _: "x",
        WeightsError,
        "rename: the keys 'a' and 'b' both become 'x'; map one of them to None",
    ),
    (
        "one becomes another",
        {"a": ONES, "b": ONES},
        {"b": "a"},
        WeightsError,
        "rename: the keys 'a' and 'b' both become 'a'",
    ),
    (
        "a function that fails",
        {"a": ONES},
        fails,
        WeightsError,
        "rename: the function fails on the key 'a' with KeyError: 'a'; return the key itself to keep it, None to leave",
    ),
    ("no name", {"a": ONES}, lambda _: 3, WeightsError, "rename: the key 'a' becomes 3; a name must be a text"),
    ("an empty name", {"a": ONES}, {"a": ""}, WeightsError, "rename: the key 'a' becomes ''; a name must be a text"),
    (
        "a key that is not there",
        {"layer.weight": ONES},
        {"layer.wieght": "x"},
        WeightsError,
        "rename: the mapping has no 'layer.wieght'; did you mean 'layer.weight'?",
    ),
    (
        "keys that are not there",
        {"a": ONES},
        {"one": "x", "two": "y"},
        WeightsError,
        "rename: the mapping has no 'one', 'two'; it has 'a'",
    ),
    ("neither", {"a": ONES}, "a=b", TypeError, "rename must be a mapping or a function, not a str"),
    (
        "a module",
        torch.nn.Linear(1, 1),
        None,
        TypeError,
        "weights come from a path, a mapping or a sequence of these, not a Linear; pass its state_dict()",
    ),
    ("bytes", b"abc", None, TypeError, "weights come from a path, a mapping or a sequence of these, not a bytes"),
    ("nothing", [], None, WeightsError, "an empty sequence of weights: pass at least one source"),
    ("numbers as keys", {3: ONES}, None, WeightsError, "the mapping: its keys must be names, not 3"),
    (
        "a number",
        {"a": 3},
        None,
        WeightsError,
        "the mapping: tensor 'a' is a builtins.int; pass a torch tensor, a numpy array, a TensorProto or a purexport",
    ),
    (
        "text",
        {"a": np.array(["x"])},
        None,
        WeightsError,
        "the mapping: tensor 'a' has numpy's type <U1, which is not a number type of ONNX",
    ),
    (
        "objects",
        {"a": np.array([None])},
        None,
        WeightsError,
        "the mapping: tensor 'a' has numpy's type object, which is",
    ),
    (
        "on the meta device",
        {"a": torch.empty(2, device="meta")},
        None,
        WeightsError,
        "the mapping: tensor 'a' is on the meta device and holds no data",
    ),
    (
        "a dict in it",
        {"model": {"a": ONES}},
        None,
        WeightsError,
        "the mapping: 'model' is a mapping of its own; pass the one that holds the tensors",
    ),
    (
        "a tensor of tensors",
        {"a": TwoTensor(torch.ones(2), torch.ones(2))},
        None,
        WeightsError,
        "the mapping: tensor 'a' is a TwoTensor, which stands for other tensors; pass a plain one, of a",
    ),
    ("sparse", {"a": torch.eye(2).to_sparse()}, None, WeightsError, "tensor 'a' is sparse_coo; pass its dense form"),
    (
        "of no ONNX type",
        {"a": torch.zeros(1, dtype=torch.complex32)},
        None,
        WeightsError,
        "the mapping: tensor 'a': ONNX has no data type for torch.complex32; cast to another dtype before",
    ),
    ("absent", "absent.safetensors", None, FileNotFoundError, "No such file or directory: "),
    (
        "a device",
        "/dev/null",
        None,
        WeightsError,
        "/dev/null is not a regular file, but a device: weights are read at many places of it; copy it to one",
    ),
]


@pytest.mark.parametrize(
    ("source", "rename", "error", "message"), [row[1:] for row in WRONG], ids=[r[0] for r in WRONG]
)
def test_what_is_refused(source: Any, rename: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        open_weights(source, rename=rename)
    assert message in str(caught.value)


SAFE = (2).to_bytes(8, "little") + b"{}"

# (what is in the folder, the file that is taken)
FOLDERS: list[tuple[dict[str, bytes], str]] = [
    ({"model.safetensors": SAFE, "config.json": b"{}"}, "model.safetensors"),
    ({"model.safetensors": SAFE, "model.fp16.safetensors": SAFE, "pytorch_model.bin": b""}, "model.safetensors"),
    ({"other.safetensors": SAFE, "a.onnx": b""}, "other.safetensors"),
    ({"adapter.bin": SAFE}, "adapter.bin"),
]


@pytest.mark.parametrize(("files", "taken"), FOLDERS, ids=[row[1] for row in FOLDERS])
def test_folders(files: dict[str, bytes], taken: str, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert open_weights(tmp_path).origin == taken


# (what is in the folder, message behind the folder's name)
UNCLEAR: list[tuple[list[str], str]] = [
    (
        ["a.safetensors", "b.safetensors"],
        "holds several checkpoints: 'a.safetensors', 'b.safetensors'; pass the one that",
    ),
    (["a.pt", "b.pth", "c.onnx"], "holds several checkpoints: 'a.pt', 'b.pth'; pass the one that is meant"),
    (["config.json"], "holds no checkpoint, but 'config.json'; pass the folder of one"),
    ([], "holds no checkpoint, but nothing; pass the folder of one"),
]


@pytest.mark.parametrize(("names", "message"), UNCLEAR, ids=[" ".join(row[0]) for row in UNCLEAR])
def test_folders_that_are_refused(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(SAFE)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path} {message}")


# (first bytes, message)
FILES: list[tuple[bytes, str]] = [
    (
        b"version https://git-lfs.github.com/spec/v1\noid",
        "it is not a checkpoint; this is a Git LFS pointer, not the file itself",
    ),
    (b"<!DOCTYPE html><html>", "it is not a checkpoint; this is a web page, probably a login or error page"),
    (b"\x1f\x8b\x08rest", "it is not a checkpoint; this is gzip-compressed: decompress it first"),
    (b"\x80\x02}q\0.", "it is a pickle, but torch.save did not write it; load it where you trust it, and save"),
    (b"storages\0", "it is a tar archive, as the first versions of torch wrote it; load it with torch and save its"),
    (
        b"whatever this is",
        "it is not a checkpoint that is known: safetensors, an index, torch.save's archive, GGUF, npz, npy or ONNX",
    ),
    (b"PK\3\4", "the directory at the end of the zip archive is missing; the file is cut off: copy it again"),
]


@pytest.mark.parametrize(("data", "message"), FILES, ids=[row[1][:40] for row in FILES])
def test_files_that_are_no_checkpoint(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "model.bin")
    assert str(caught.value).startswith(f"model.bin: {message}")


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path) -> None:
    path = made.of_arrays(tmp_path / "m.safetensors", {"a": ONES})
    with CheckpointFile(path) as file:
        os.truncate(path, 20)
        with pytest.raises(WeightsError, match=r"^m.safetensors: the file became shorter while it was read, at 20"):
            safetensors.read(file)


def make_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as made_here:
        made_here.bind(path)


@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "a pipe"), (make_socket, "a socket")])
def test_what_is_no_file_is_refused_without_waiting(
    make: Callable[[str], None], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given itself, found in a folder, or named by an index."""
    monkeypatch.chdir(tmp_path)
    make("model.safetensors")
    (tmp_path / "i.json").write_text('{"weight_map": {"a": "model.safetensors"}}')
    for source in ("model.safetensors", ".", "i.json"):
        with pytest.raises(WeightsError, match=f"model.safetensors is not a regular file, but {what}: weights are"):
            open_weights(source)


GRID = torch.arange(12, dtype=torch.float32).reshape(3, 4)

# (what, tensor or array, what it means)
IN_MEMORY: list[tuple[str, Callable[[], Any], torch.Tensor]] = [
    ("a tensor", lambda: GRID, GRID),
    ("a parameter", lambda: torch.nn.Parameter(GRID), GRID),
    ("transposed", lambda: GRID.t(), GRID.t()),
    ("expanded", lambda: GRID[:, :1].expand(3, 5), GRID[:, :1].expand(3, 5)),
    ("a scalar", lambda: torch.tensor(3.0), torch.tensor(3.0)),
    ("nothing in it", lambda: torch.empty(0, 3), torch.empty(0, 3)),
    ("bfloat16", lambda: GRID.bfloat16(), GRID.bfloat16()),
    ("bool", lambda: GRID > 3, GRID > 3),
    ("conjugate", lambda: torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    ("an array", lambda: GRID.numpy(), GRID),
    ("an array of Fortran", lambda: np.asfortranarray(GRID.numpy()), GRID),
    ("a strided array", lambda: GRID.numpy()[:, ::2], GRID[:, ::2]),
    ("big-endian", lambda: GRID.numpy().astype(">f4"), GRID),
    ("a numpy number", lambda: np.float64(2.5), torch.tensor(2.5, dtype=torch.float64)),
    ("an empty array", lambda: np.zeros((0, 2), np.int32), torch.zeros(0, 2, dtype=torch.int32)),
]


@pytest.mark.parametrize(("make", "expected"), [row[1:] for row in IN_MEMORY], ids=[row[0] for row in IN_MEMORY])
def test_in_memory(make: Callable[[], Any], expected: torch.Tensor) -> None:
    from purexport.dtypes import onnx_code

    found = open_weights({"w": make()})["w"]
    assert found.shape == tuple(expected.shape) and found.dtype == onnx_code(expected.dtype)
    flat = expected.contiguous().reshape(-1)
    assert found.payload.tobytes() == (flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def test_tied_memory_is_one_identity() -> None:
    found = open_weights({"a": GRID, "b": GRID.view(3, 4), "c": GRID.clone(), "x": ONES, "y": ONES[:], "z": ONES[:1]})
    identity = {name: item.payload.identity for name, item in found.items()}
    assert identity["a"] == identity["b"] != identity["c"] and identity["x"] == identity["y"] != identity["z"]


# (what, mode and view of a memory-mapped array of 100 numbers behind 64 bytes, where it lies in the file if there)
MAPPED: list[tuple[str, str, Callable[[Any], Any], int | None]] = [
    ("whole", "r", lambda array: array, 64),
    ("a slice", "r", lambda array: array[10:20], 104),
    ("an array of it", "r", lambda array: np.asarray(array)[90:].reshape(2, 5), 424),
    ("written to", "r+", lambda array: array, 64),
    ("copied on writing", "c", lambda array: array, None),
    ("strided", "r", lambda array: array[::2], None),
    ("computed", "r", lambda array: array + 0, None),
]


def names_the_file(path: Path) -> bool:
    """Whether a mapping of the file, which must be there, is listed under the device and inode of the file."""
    status = path.stat()
    return any(row[3:5] == (status.st_dev, status.st_ino) for row in Mappings()._rows)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mappings are listed by Linux only")
@pytest.mark.parametrize(("mode", "view", "offset"), [row[1:] for row in MAPPED], ids=[row[0] for row in MAPPED])
def test_memory_mapped(mode: Any, view: Callable[[Any], Any], offset: int | None, tmp_path: Path) -> None:
    path = tmp_path / "data of a model"
    path.write_bytes(bytes(64) + np.arange(100, dtype="<f4").tobytes())
    whole = np.memmap(path, "<f4", mode, offset=64, shape=(100,))
    if offset is not None and not names_the_file(path):
        pytest.skip("this file system lists its mappings under another device than its files")
    array = view(whole)
    if mode != "r":
        array[0] = 77
    found = open_weights({"w": array})["w"]
    assert found.payload == array.tobytes()
    assert isinstance(found.payload, FileRange) == (offset is not None)
    if isinstance(found.payload, FileRange):
        assert (found.payload.source, found.payload.offset) == (str(path), offset)


def test_a_mapped_file_that_was_replaced_is_read_from_memory(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.arange(100, dtype="<f4").tobytes())
    array = np.memmap(path, "<f4", "r")
    path.rename(tmp_path / "moved")
    path.write_bytes(bytes(400))
    assert open_weights({"w": array})["w"].payload == np.arange(100, dtype="<f4").tobytes()


def test_without_torch(tmp_path: Path) -> None:
    """The readers neither import torch nor need it."""
    made.of_arrays(tmp_path / "m.safetensors", {"a": ONES})
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np; from purexport.weights import open_weights\n"
        "found = open_weights(['m.safetensors', {'b': np.ones(3)}]); assert list(found) == ['a', 'b']\n"
        "assert found['a'].payload.tobytes() == np.ones(6, '<f4').tobytes()"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_stored_of_the_wrong_size_is_refused() -> None:
    from proto_schema.external.payload import LazyPayload

    payload = LazyPayload(7, lambda: b"1234567")
    with pytest.raises(WeightsError, match=r"^here: tensor 'w' has 7 bytes, but FLOAT \[2\] needs 8$"):
        Stored("w", 1, (2,), payload, "here")
    with pytest.raises(WeightsError, match="data type STRING has no fixed size"):
        Stored("w", 8, (2,), payload, "here")
    assert isinstance(open_weights({"w": Stored("v", 2, (7,), payload, "here")}), Weights)
