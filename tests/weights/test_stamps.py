"""A checkpoint that is replaced or changed after `open_weights` is refused when its bytes are read, by every reader."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import proto_schema as ps
import purexport
from proto_schema import ExternalDataError
from proto_schema.numpy_helper import from_array
from purexport.weights import open_weights
from tests.weights import made

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.ones(2, np.float32)
STATE = {"weight": torch.from_numpy(WEIGHT), "bias": torch.from_numpy(BIAS)}


def of_safetensors(path: Path) -> Path:
    return made.of_arrays(path, {"weight": WEIGHT, "bias": BIAS})


def of_torch(path: Path) -> Path:
    torch.save(STATE, path)
    return path


def of_old_torch(path: Path) -> Path:
    torch.save(STATE, path, _use_new_zipfile_serialization=False)
    return path


def of_columns(path: Path) -> Path:
    """Gathered when they are written."""
    torch.save({"weight": STATE["weight"].mT.contiguous().mT, "bias": STATE["bias"]}, path)
    return path


def of_arrays(path: Path) -> Path:
    with open(path, "wb") as file:
        np.savez(file, weight=WEIGHT, bias=BIAS)
    return path


def of_array(path: Path) -> Path:
    with open(path, "wb") as file:
        np.save(file, WEIGHT)
    return path


def model(path: Path, external: bool) -> Path:
    graph = ps.GraphProto(name="g", initializer=[from_array(WEIGHT, "weight"), from_array(BIAS, "bias")])
    ps.save(ps.helper.make_model(graph), path, external_data=external, size_threshold=1)
    return path


def of_model(path: Path) -> Path:
    return model(path, False)


def of_model_with_data(path: Path) -> Path:
    model(path.with_name("x.onnx"), True)
    return path.with_name("x.onnx.data")


def of_shard(path: Path) -> Path:
    made.of_arrays(path, {"weight": WEIGHT})
    made.of_arrays(path.with_name("other"), {"bias": BIAS})
    index = {"weight_map": {"weight": path.name, "bias": "other"}}
    path.with_name("i.json").write_text(json.dumps(index))
    return path


# (what, what makes the file, what is opened if it is another one)
READERS: list[tuple[str, Callable[[Path], Path], str]] = [
    ("safetensors", of_safetensors, ""),
    ("a torch archive", of_torch, ""),
    ("a torch archive, strided", of_columns, ""),
    ("a file of torch before 1.6", of_old_torch, ""),
    ("npz", of_arrays, ""),
    ("ONNX", of_model, ""),
    ("external data", of_model_with_data, "x.onnx"),
    ("a shard", of_shard, "i.json"),
]


def replace(path: Path) -> None:
    """Another file of the same size takes its place, as atomic writers do it."""
    other = path.with_name("another")
    other.write_bytes(bytes(path.stat().st_size))
    os.replace(other, path)


def write(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\1")


def write_and_set_the_time(path: Path) -> None:
    """As tools do that keep the times of files."""
    before = path.stat()
    write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = [replace, write, write_and_set_the_time, cut, grow, become_a_pipe]


def age(path: Path) -> None:
    """Times of files are steps of some milliseconds: a change within the same one would not show."""
    os.utime(path, (1e9, 1e9))


ROWS = pytest.mark.parametrize(("make", "opened"), [row[1:] for row in READERS], ids=[row[0] for row in READERS])
ONE = ("npy", of_array, "")  # of a name that no model has
CHANGED = "has changed or been replaced since it was opened"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("make", "opened"), [row[1:] for row in [*READERS, ONE]], ids=[r[0] for r in [*READERS, ONE]])
def test_what_changed_is_not_read(
    make: Callable[[Path], Path], opened: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = make(tmp_path / "m.weights")
    age(path)
    weights = open_weights(tmp_path / opened if opened else path)
    change(path)
    with pytest.raises(ExternalDataError, match=f"{path.name} {CHANGED}"):
        next(iter(weights.values())).payload.tobytes()


@pytest.mark.parametrize("change", [write, become_a_pipe])
@ROWS
def test_what_changed_is_not_saved(
    make: Callable[[Path], Path], opened: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = make(tmp_path / "m.weights")
    age(path)
    source = tmp_path / opened if opened else path
    program = purexport.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),), weights=source)
    change(path)
    with pytest.raises(ExternalDataError, match=path.name):
        program.save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_what_changes_during_the_capture_is_refused(tmp_path: Path) -> None:
    """Also where the graph refers to none of its bytes: numbers may have been computed of them."""
    path = of_safetensors(tmp_path / "m.weights")
    age(path)

    class Writer(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            write(path)
            return x * 2

    with pytest.raises(ExternalDataError, match=f"m.weights {CHANGED}"):
        purexport.export(Writer(3, 2), (torch.ones(1, 3),), weights=path)
