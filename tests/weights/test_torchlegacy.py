"""Files of torch before 1.6, pickles in a row: read as torch.load reads them, and every part of them made wrong.

Tensors of all kinds, which dict is taken and what is refused are rows of `test_torchzip`, for both formats.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from purexport.weights import WeightsError, open_weights, torchlegacy
from purexport.weights.stored import CheckpointFile
from tests.weights.test_torchzip import GRID, TENSORS, octets

# those that torch writes and does not read again: of bytes without a type, which have no dtype
NOT_BY_TORCH = ("float8", "uint16", "uint32", "uint64")


def saved(path: Path, checkpoint: Any) -> Path:
    torch.save(checkpoint, path, _use_new_zipfile_serialization=False)
    return path


@pytest.mark.parametrize(("name", "tensor"), [row[:2] for row in TENSORS], ids=[row[0] for row in TENSORS])
def test_as_torch_reads_it(name: str, tensor: torch.Tensor, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt", {"first": GRID, "w": tensor})
    if any(part in name for part in NOT_BY_TORCH):
        with pytest.raises(AttributeError, match="has no attribute 'dtype'"):
            torch.load(path, weights_only=False)
        return
    for key, value in torch.load(path, weights_only=True).items():
        row = open_weights(path)[key]
        assert row.payload == octets(value) and row.shape == tuple(value.shape)


def test_only_the_pickles_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part of the file, and four times as much where the pickles are longer than that."""
    monkeypatch.setattr(torchlegacy, "_FIRST", 64)
    path = saved(tmp_path / "m.pt", {"w": GRID, "big": torch.zeros(1 << 20)})
    sizes: list[int] = []
    monkeypatch.setattr(torchlegacy._Pickles, "_read", recorded(torchlegacy._Pickles._read, sizes))
    assert open_weights(path)["w"].payload == octets(GRID)
    assert sizes == [64, 256, 1024]
    left = budget_left(path)
    monkeypatch.setattr(torchlegacy, "_FIRST", 1024)
    assert budget_left(path) == left
    monkeypatch.setattr(torchlegacy, "LONGEST_PICKLES", 300)
    with pytest.raises(WeightsError, match="its pickles have more than the 300 bytes that they may have; load it with"):
        open_weights(path)


def budget_left(path: Path) -> int:
    """What was made of a pickle that had to be read again is not counted."""
    with CheckpointFile(path) as opened:
        torchlegacy.read(opened)
        return opened.budget.left


def recorded(function: Callable[[Any, int], None], sizes: list[int]) -> Callable[[Any, int], None]:
    def wrapper(self: Any, size: int) -> None:
        sizes.append(size)
        function(self, size)

    return wrapper


def text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()  # a str of Python 2


def persistent(kind: str = "Float", key: str = "7", count: int = 24, view: bytes = b"N") -> bytes:
    head = b"(" + text("storage") + f"ctorch\n{kind}Storage\n".encode() + text(key) + text("cpu")
    return head + b"K" + bytes([count]) + view + b"tQ"


def tensor(stored: bytes, start: int = 0, shape: bytes = b"K\x02K\x03\x86", steps: bytes = b"K\x03K\x01\x86") -> bytes:
    """As torch 0.1 to 0.3 wrote it."""
    return b"ctorch._utils\n_rebuild_tensor\n(" + stored + b"K" + bytes([start]) + shape + steps + b"tR"


def one(value: bytes) -> bytes:
    """The pickle of {"w": value}, as Python 2 wrote an OrderedDict."""
    return b"\x80\x02ccollections\nOrderedDict\n](](" + text("w") + value + b"ee\x85R."


def file(path: Path, pickled: bytes, keys: Any = ("7",), data: bytes | None = None, **parts: Any) -> Path:
    start = [parts.get("magic", torchlegacy.MAGIC), parts.get("version", torchlegacy.VERSION), {"little_endian": True}]
    content = b"".join(pickle.dumps(part, 2) for part in start) + pickled
    content += pickle.dumps(list(keys) if isinstance(keys, tuple) else keys, 2)
    path.write_bytes(content + ((24).to_bytes(8, "little") + octets(GRID) if data is None else data))
    return path


# (what, value of the tensor, the bytes that are read)
READ: list[tuple[str, bytes, torch.Tensor]] = [
    ("Python 2", tensor(persistent()), GRID.reshape(-1)[:6]),
    ("a part of a storage", tensor(persistent(view=b"(" + text("8") + b"K\x04K\x06t")), GRID.reshape(-1)[4:10]),
    ("a part, strided", tensor(persistent(view=b"(" + text("8") + b"K\x04K\x06t"), steps=b"K\x01K\x02\x86"), GRID),
]


@pytest.mark.parametrize(("value", "expected"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_files_of_old_torch(value: bytes, expected: torch.Tensor, tmp_path: Path) -> None:
    path = file(tmp_path / "m.pt", one(value))
    by_torch = torch.load(path, weights_only=False)["w"]
    row = open_weights(path)["w"]
    assert row.payload == octets(by_torch)
    assert expected is GRID or octets(expected) == octets(by_torch)


def test_what_comes_behind_is_not_looked_at(tmp_path: Path) -> None:
    path = file(tmp_path / "m.pt", one(tensor(persistent())))
    path.write_bytes(path.read_bytes() + b"more")
    assert octets(torch.load(path, weights_only=False)["w"]) == open_weights(path)["w"].payload.tobytes()


GOOD = one(tensor(persistent()))
TWO = b"\x80\x02}(" + text("a") + tensor(persistent()) + text("b")

# (what, the pickle of the object, what else is in the file, message)
WRONG: list[tuple[str, bytes, dict[str, Any], str]] = [
    (
        "another magic number",
        GOOD,
        {"magic": 7},
        "m.pt: it is a pickle, but torch.save did not write it; load",
    ),
    ("another version", GOOD, {"version": 1002}, "m.pt: its format has the version 1002, and 1001 is known; load it"),
    ("no such storage", GOOD, {"keys": ("7", "8")}, "m.pt: it lists the storage '8', which its tensors do not name"),
    ("a storage twice", GOOD, {"keys": ("7", "7")}, "m.pt: it lists the storage '7', which is there already"),
    ("a number for a key", GOOD, {"keys": (7,)}, "m.pt: it lists the storage 7, which its tensors do not name"),
    ("no list of storages", GOOD, {"keys": "7"}, "m.pt: the list of its storages is '7'; the file is damaged"),
    ("a storage that is absent", GOOD, {"keys": ()}, "m.pt: it lacks the storages '7', which its tensors name"),
    (
        "another size",
        GOOD,
        {"data": (23).to_bytes(8, "little") + octets(GRID)},
        "m.pt: the storage '7' has 23 items of 4 bytes, but its tensors say 96 bytes",
    ),
    (
        "a negative size",
        GOOD,
        {"data": b"\xff" * 8 + octets(GRID)},
        "m.pt: the storage '7' has -1 items of 4 bytes",
    ),
    (
        "cut off",
        GOOD,
        {"data": (24).to_bytes(8, "little") + octets(GRID)[:-1]},
        "m.pt: the storage '7' would have 96 bytes at ",
    ),
    ("a persistent id of five", GOOD.replace(b"NtQ", b"tQ"), {}, "it refers to something else than a storage"),
    ("a view that is none", one(tensor(persistent(view=b"K\1"))), {}, "it refers to something else than a storage"),
    (
        "a view outside",
        one(tensor(persistent(view=b"(" + text("8") + b"K\x13K\x06t"))),
        {},
        "a part of storage '7' lies outside of it",
    ),
    (
        "a tensor outside of its view",
        one(tensor(persistent(view=b"(" + text("8") + b"K\x04K\x05t"))),
        {},
        "lies outside of its storage, which has 20 bytes",
    ),
    (
        "a storage of two types",
        TWO + tensor(persistent("Int")) + b"u.",
        {},
        "the storage '7' has two types or sizes",
    ),
    (
        "a storage of two sizes",
        TWO + tensor(persistent(count=23)) + b"u.",
        {},
        "the storage '7' has two types or sizes",
    ),
    (
        "a module",
        one(b"(" + text("module") + b"ctorch.nn\nLinear\nNNtQ"),
        {},
        "it needs torch.nn.Linear, which",
    ),
    ("no object", b"", {}, "is not one of pickle's protocols 2 to 5"),
]


@pytest.mark.parametrize(("pickled", "parts", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_refused(pickled: bytes, parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = file(tmp_path / "m.pt", pickled, **parts)
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert message in str(caught.value) and str(caught.value).isascii()


def test_cut_anywhere(tmp_path: Path) -> None:
    """A file that is cut short is refused at every length."""
    whole = file(tmp_path / "m.pt", GOOD).read_bytes()
    for size in range(len(whole)):
        (tmp_path / "m.pt").write_bytes(whole[:size])
        with pytest.raises(WeightsError, match=r"^m.pt"):
            open_weights(tmp_path / "m.pt")
