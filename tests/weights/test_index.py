"""Checkpoints in several files: read in the order of their index, and refused where index and files disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from purexport.weights import WeightsError, open_weights
from purexport.weights.index import LONGEST
from tests.weights import made

ONES = np.ones(2, np.float32)


def sharded(folder: Path, places: Any, **shards: list[str]) -> Path:
    """An index beside files "s1.safetensors" and so on, each with these names."""
    for at, (shard, names) in enumerate(shards.items()):
        made.of_arrays(folder / f"{shard}.safetensors", dict.fromkeys(names, (at + 1) * ONES))
    path = folder / "model.safetensors.index.json"
    path.write_bytes(places if isinstance(places, bytes) else json.dumps({"weight_map": places}).encode())
    return path


S1, S2 = "s1.safetensors", "s2.safetensors"


@pytest.mark.parametrize("by_folder", [False, True])
def test_shards(by_folder: bool, tmp_path: Path) -> None:
    path = sharded(tmp_path, {"b": S2, "a": S1, "c": S2}, s1=["a"], s2=["c", "b"])
    found = open_weights(tmp_path if by_folder else path)
    assert {name: np.frombuffer(row.payload.tobytes(), "<f4")[0] for name, row in found.items()} == {
        "b": 2,
        "a": 1,
        "c": 2,
    }
    assert list(found) == ["b", "a", "c"] and found.origin == "model.safetensors.index.json"
    assert [row.origin for row in found.values()] == [S2, S1, S2]


def test_shards_by_torch_through_links(tmp_path: Path) -> None:
    """As the cache of a model hub has them: the names are links to files of other names elsewhere."""
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    torch.save({"a": torch.ones(2)}, blobs / "0")
    torch.save({"b": torch.zeros(3)}, blobs / "1")
    (blobs / "2").write_text(json.dumps({"metadata": {"total_size": 20}, "weight_map": {"a": "x.bin", "b": "y.bin"}}))
    for target, name in enumerate(["x.bin", "y.bin", "pytorch_model.bin.index.json"]):
        (folder / name).symlink_to(blobs / str(target))
    assert {name: row.shape for name, row in open_weights(folder).items()} == {"a": (2,), "b": (3,)}


ADVICE = "; download or write the checkpoint again, whole"

# (what, index, message behind the index's name)
WRONG: list[tuple[str, Any, str]] = [
    ("missing files", {"a": S1, "b": "x", "c": "y", "d": "x"}, "2 of its 3 files are not in "),
    ("which", {"a": S1, "b": "x", "c": "y"}, ": 'x', 'y'; download them, or write the checkpoint again"),
    (
        "a tensor that is not there",
        {"a": S1, "z": S1, "b": S2, "c": S2},
        f"'{S1}' does not hold 'z', as the index says" + ADVICE,
    ),
    ("in another file", {"a": S1, "b": S1, "c": S2}, f"'{S1}' does not hold 'b', as the index says" + ADVICE),
    ("not in the index", {"a": S1, "b": S2}, f"'{S2}' holds 'c', which the index names in no file" + ADVICE),
    ("no JSON", b"{", "it is not the JSON of the format: "),
    (
        "a key twice",
        b'{"weight_map": {"a": "x", "a": "y"}}',
        "it is not the JSON of the format: the key 'a' comes twice",
    ),
    ("no map", b"{}", "it has no weight_map, and so is not an index of a checkpoint" + ADVICE),
    ("a list as map", b'{"weight_map": []}', "it has no weight_map"),
    ("a configuration", b'{"hidden_size": 12}', "it has no weight_map, and so is not an index of a checkpoint"),
    ("numbers", {"a": 3}, "tensor 'a' would be in 3, which is not a file of the index's folder"),
    *[
        (f"a path {path!r}", {"a": path}, f"tensor 'a' would be in {path!r}, which is not a file of the index's folder")
        for path in ("../x", "/etc/passwd", "x/../../y", "C:x", "x\\y", "", ".", "x/", "..")
    ],
]


@pytest.mark.parametrize(("places", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_refused(places: Any, message: str, tmp_path: Path) -> None:
    path = sharded(tmp_path, places, s1=["a"], s2=["b", "c"])
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert str(caught.value).startswith("model.safetensors.index.json: ") and message in str(caught.value)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    path = sharded(tmp_path, {"a": S1, "b": S2}, s1=["a"], s2=["b", "a"])
    with pytest.raises(WeightsError, match=f"'{S2}' holds 'a', which the index says to be in '{S1}'"):
        open_weights(path)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = sharded(tmp_path, {"a": S1, "b": S2}, s1=["a"], s2=["b"])
    (tmp_path / S2).write_bytes((tmp_path / S2).read_bytes()[:-1])
    with pytest.raises(
        WeightsError, match=r"^s2.safetensors: tensor 'b': its bytes end at 8, but the file has 7 bytes"
    ):
        open_weights(path)
    (tmp_path / S2).write_bytes(path.read_bytes())
    with pytest.raises(WeightsError, match=r"^s2.safetensors: it is not a checkpoint"):
        open_weights(path)


def test_a_huge_file_is_no_index(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(LONGEST + 1)
    with pytest.raises(WeightsError, match="it has 100000001 bytes, more than an index may have"):
        open_weights(path)
