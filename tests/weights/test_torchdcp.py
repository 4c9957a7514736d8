"""Folders of torch.distributed.checkpoint, written by torch: every tensor's bytes, whatever boxes it was cut into."""

from __future__ import annotations

import os
import pickle
import random
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

import purexport
from proto_schema import ExternalDataError
from proto_schema.derived.strided import StridedPayload
from proto_schema.external.payload import FileRange
from purexport.cli.main import main
from purexport.weights import WeightsError, chunked, open_weights
from purexport.weights.boxes import Box, why_incomplete
from tests.weights.models import safetensors

Cut = tuple[tuple[int, ...], tuple[int, ...]]  # offsets, sizes


class Parts(torch.Tensor):
    """A tensor that a checkpoint gets in several boxes, as the processes of a group give them."""

    cuts: Sequence[Cut]

    @staticmethod
    def of(whole: torch.Tensor, cuts: Sequence[Cut]) -> Parts:
        made = torch.Tensor._make_subclass(Parts, whole)
        made.cuts = cuts
        return made

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        properties = TensorProperties.create_from_tensor(torch.empty(0, dtype=self.dtype))
        chunks = [ChunkStorageMetadata(torch.Size(at), torch.Size(size)) for at, size in self.cuts]
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets, place),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, properties, self.shape),
            )
            for place, chunk in enumerate(chunks)
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        offsets, sizes = next(cut for cut in self.cuts if torch.Size(cut[0]) == index.offset)
        plain = self.as_subclass(torch.Tensor)
        return plain[tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))]


def saved(folder: Path, state: dict[str, Any], **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no group of processes
        dcp.save(state, checkpoint_id=folder, **options)
    return folder


def octets(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().as_subclass(torch.Tensor).contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


GRID = torch.arange(7 * 6 * 5.0).reshape(7, 6, 5)
FLAT = torch.arange(42).reshape(7, 6)

# (what, tensor, cuts)
TENSORS: list[tuple[str, torch.Tensor, Sequence[Cut]]] = [
    ("one chunk", GRID, [((0, 0, 0), (7, 6, 5))]),
    ("rows, uneven", GRID, [((0, 0, 0), (3, 6, 5)), ((3, 0, 0), (3, 6, 5)), ((6, 0, 0), (1, 6, 5))]),
    ("rows, not in order", FLAT, [((4, 0), (3, 6)), ((0, 0), (4, 6))]),
    ("columns", FLAT, [((0, 0), (7, 4)), ((0, 4), (7, 2))]),
    ("the last axis", GRID, [((0, 0, 0), (7, 6, 3)), ((0, 0, 3), (7, 6, 2))]),
    ("a grid", FLAT.half(), [((a, b), (d, e)) for a, d in ((0, 4), (4, 3)) for b, e in ((0, 1), (1, 5))]),
    ("bricks", FLAT, [((0, 0), (2, 4)), ((0, 4), (5, 2)), ((2, 0), (5, 4)), ((5, 4), (2, 2))]),
    ("a spiral", FLAT, [((0, 0), (1, 5)), ((0, 5), (6, 1)), ((6, 1), (1, 5)), ((1, 0), (6, 1)), ((1, 1), (5, 4))]),
    ("one row", FLAT.reshape(1, 42), [((0, 0), (1, 20)), ((0, 20), (1, 22))]),
    ("an empty chunk", FLAT, [((0, 0), (7, 6)), ((7, 0), (0, 6))]),
    ("bfloat16", GRID.bfloat16(), [((0, 0, 0), (7, 2, 5)), ((0, 2, 0), (7, 4, 5))]),
    ("bool", GRID > 30, [((0, 0, 0), (7, 2, 5)), ((0, 2, 0), (7, 4, 5))]),
    ("a scalar", torch.tensor(3), [((), ())]),
    ("nothing", torch.zeros(0, 3), [((0, 0), (0, 3))]),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state: dict[str, Any] = {name: Parts.of(tensor, cuts) for name, tensor, cuts in TENSORS}
    state["plain"], state["strided"] = GRID.clone(), FLAT.t()
    return saved(tmp_path_factory.mktemp("dcp") / "whole", state)


@pytest.mark.parametrize("block", [None, 100, 1])
def test_every_tensor(whole: Path, block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in blocks that are smaller than a row."""
    if block is not None:
        monkeypatch.setattr(chunked, "BLOCK", block)
    found = open_weights(whole)
    wanted = {name: tensor for name, tensor, _ in TENSORS} | {"plain": GRID, "strided": FLAT.t()}
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        assert found[name].shape == tuple(tensor.shape), name
        for limit in (7, 1 << 20):
            assert b"".join(found[name].payload.chunks(limit)) == octets(tensor), name
    assert isinstance(found["one chunk"].payload, FileRange) and isinstance(found["plain"].payload, FileRange)
    assert isinstance(found["strided"].payload, StridedPayload)


def test_a_file_that_changes(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ckpt", {"a": Parts.of(FLAT, TENSORS[3][2]), "b": GRID})
    found = open_weights(folder)
    with open(folder / "__0_0.distcp", "ab") as file:
        file.write(b"more")
    for name in "ab":
        with pytest.raises(ExternalDataError, match="has changed or been replaced"):
            found[name].payload.tobytes()


# ---- which state dict

NET = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def optimizer() -> dict[str, Any]:
    made = torch.optim.Adam(NET.parameters())
    NET(torch.ones(2, 3)).sum().backward()
    made.step()
    return made.state_dict()


LAYOUTS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("alone", NET.state_dict),
    ("beside its optimizer", lambda: {"model": NET.state_dict(), "optimizer": optimizer(), "step": 7}),
    ("in an app", lambda: {"app": {"model": NET.state_dict(), "optim": optimizer()}}),
    ("on the same level", lambda: {**NET.state_dict(), "optimizer": optimizer(), "train_state": {"s": torch.ones(1)}}),
    ("with averages", lambda: {"model": NET.state_dict(), "ema": NET.state_dict(), "seed": torch.ones(2)[0]}),
]


@pytest.mark.parametrize("make", [row[1] for row in LAYOUTS[:-1]], ids=[row[0] for row in LAYOUTS[:-1]])
def test_the_state_dict(make: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    found = open_weights(saved(tmp_path / "ckpt", make()))
    state = NET.state_dict()
    assert set(found) == set(state)
    assert all(found[name].payload.tobytes() == octets(state[name]) for name in state)


def test_names_of_a_model_that_sound_like_training(tmp_path: Path) -> None:
    state = {"scheduler.weight": GRID, "a.optim.bias": FLAT}
    assert set(open_weights(saved(tmp_path / "flat", state))) == set(state)
    assert set(open_weights(saved(tmp_path / "deep", {"model": state, "optim": {"x": GRID}}))) == set(state)


def test_several_or_none(tmp_path: Path) -> None:
    state = {"student": NET.state_dict(), "teacher": NET.state_dict()}
    with pytest.raises(
        WeightsError, match=r"hold tensors: \['student'\], \['teacher'\]; save the one that is meant alone"
    ):
        open_weights(saved(tmp_path / "two", state))
    with pytest.raises(WeightsError, match="only the state of an optimizer or of the training is in it"):
        open_weights(saved(tmp_path / "no", {"optimizer": optimizer()}))
    with pytest.raises(WeightsError, match="no tensors are in the checkpoint, it has 'step'"):
        open_weights(saved(tmp_path / "step", {"step": 3}))


def test_an_export(tmp_path: Path) -> None:
    """The same file as from the state dict."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    cuts = {"0.weight": [((0, 0), (16, 64)), ((16, 0), (16, 64))], "2.weight": [((0, 0), (8, 20)), ((0, 20), (8, 12))]}
    state = {name: Parts.of(value, cuts[name]) if name in cuts else value for name, value in model.state_dict().items()}
    folder = saved(tmp_path / "ckpt", {"model": state, "optimizer": {"x": torch.ones(3)}})
    args = (torch.ones(1, 64),)
    purexport.export(model, args, tmp_path / "wanted.onnx", weights=dict(model.state_dict()), external_data=True)
    purexport.export(model, args, tmp_path / "found.onnx", weights=folder, external_data=True)
    wanted, found = ((tmp_path / f"{name}.onnx.data").read_bytes() for name in ("wanted", "found"))
    assert wanted[: wanted.rindex(b"\n#")] == found[: found.rindex(b"\n#")]


@pytest.mark.full
def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without memory, from a checkpoint with an optimizer."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    saved(tmp_path / "ckpt", {"model": model.state_dict(), "optimizer": {"x": torch.ones(3)}})
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["export", "net.py:Net", "--meta", "--input", "x=float32[1,64]", "--weights", "ckpt", "-o", "cli.onnx"]
    assert main([*words, "--external-data", "--checksums"]) == 0
    weights = {name: row.payload.tobytes() for name, row in open_weights("cli.onnx").items()}
    assert weights == {name: octets(value) for name, value in model.state_dict().items()}
    assert main(["check", "cli.onnx", "--checksums"]) == 0


# ---- what is damaged


def changed(change: Callable[[Any], None]) -> Callable[[Path], None]:
    """A change of what .metadata says."""

    def damage(folder: Path) -> None:
        found = pickle.loads((folder / ".metadata").read_bytes())
        change(found)
        (folder / ".metadata").write_bytes(pickle.dumps(found))

    return damage


def without_entry(found: Any) -> None:
    del found.storage_data[next(key for key in found.storage_data if key.fqn == "w" and key.offset[0])]


def other_place(**places: Any) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        for key, value in found.storage_data.items():
            if key.fqn == "w" and key.offset[0]:
                found.storage_data[key] = replace(value, **places)

    return change


def without_chunk(found: Any) -> None:
    found.state_dict_metadata["w"].chunks.pop()


def overlap(found: Any) -> None:
    row = found.state_dict_metadata["w"]
    row.chunks.append(replace(row.chunks[0], offsets=torch.Size([1, 0])))


def outside(found: Any) -> None:
    found.state_dict_metadata["w"].chunks[0].sizes = torch.Size([9, 6])


def of_complex(found: Any) -> None:
    found.state_dict_metadata["w"].properties.dtype = torch.complex32


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - size)


def flipped(place: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "__0_0.distcp"
        data = bytearray(path.read_bytes())
        data[place] ^= 0xFF
        path.write_bytes(data)

    return damage


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


CHUNK = r"tensor 'w': the chunk of size \[3, 6\] at \[4, 0\]"
DAMAGES: list[tuple[str, Callable[[Path], None], str]] = [
    (
        "no metadata",
        lambda folder: (folder / ".metadata").unlink(),
        r"holds '__0_0.distcp', but no .metadata, which is w",
    ),
    (
        "no file",
        lambda folder: (folder / "__0_0.distcp").unlink(),
        r"'__0_0.distcp' is not in .*: it has the chunk of si",
    ),
    ("a file that is cut", cut("__0_0.distcp", 9), f"{CHUNK} would be at bytes .*: it is cut off; copy the checkpoint"),
    ("no entry", changed(without_entry), rf"^.metadata: {CHUNK} is in no file; copy the checkpoint again"),
    ("no chunk", changed(without_chunk), r"tensor 'w': only 24 of its 42 elements are held; copy"),
    ("an overlap", changed(overlap), r"tensor 'w': two parts that overlap, but are not the same"),
    ("a chunk outside", changed(outside), r"at \[0, 0\] does not lie in its shape \[7, 6\]"),
    (
        "another file",
        changed(other_place(relative_path="../x.distcp")),
        "which is not a file of the checkpoint's folder",
    ),
    ("a path", changed(other_place(relative_path="/etc/passwd")), "which is not a file of the checkpoint's folder"),
    ("no number", changed(other_place(offset=-1)), f"{CHUNK} would be at -1: it is damaged"),
    (
        "an extension",
        changed(other_place(transform_descriptors=["zstd"])),
        f"{CHUNK} is transformed .*zstd.*: save the",
    ),
    (
        "another archive",
        changed(other_place(offset=0)),
        r"tensor 'w': the chunk of size .* is damaged: __0_0.distcp @0:",
    ),
    ("a type", changed(of_complex), "ONNX has no data type for torch.complex32"),
    (
        "a chunk's start",
        flipped(1),
        "tensor 'w': the chunk of size .* is damaged: __0_0.distcp @0: the header of member",
    ),
    ("no pickle", lambda folder: (folder / ".metadata").write_bytes(b"{}"), r"^.metadata @0x.: opcode b'{' is not one"),
    ("a cut pickle", cut(".metadata", 9), r"^.metadata @0x.*: it ends too early"),
    ("a list", lambda folder: (folder / ".metadata").write_bytes(pickle.dumps([1])), "where Metadata should be"),
    (
        "arguments copied",
        lambda folder: (folder / ".metadata").write_bytes(
            b"\x80\x02cpathlib\nPosixPath\nq\0(" + b"N" * 99 + b"tq\1" + b"h\0h\1R0" * 99 + b"."
        ),
        "the lists that its calls copy have more items than it has bytes",
    ),
    (
        "code",
        lambda folder: (folder / ".metadata").write_bytes(pickle.dumps(Evil())),
        r"needs posix.system, which no st",
    ),
]


@pytest.mark.parametrize(("damage", "said"), [row[1:] for row in DAMAGES], ids=[row[0] for row in DAMAGES])
def test_damages_are_named(
    damage: Callable[[Path], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = saved(tmp_path / "ckpt", {"w": Parts.of(FLAT, [((0, 0), (4, 6)), ((4, 0), (3, 6))])})
    damage(folder)
    with pytest.raises(WeightsError, match=said):
        open_weights(folder)
    assert os.listdir(tmp_path) == ["ckpt"]


def test_beside_another_checkpoint(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ckpt", {"w": FLAT})
    safetensors(folder / "model.safetensors", {"w": GRID})
    with pytest.raises(WeightsError, match=r"holds several checkpoints: '.metadata', 'model.safetensors'; pass"):
        open_weights(folder)


def test_many_boxes() -> None:
    """More than are compared in pairs must be cut axis by axis."""
    grid = [Box((a, b), (1, 2)) for a in range(3000) for b in range(0, 4, 2)]
    assert why_incomplete((3000, 4), grid) == ""
    assert "overlap, or are too many" in why_incomplete((3000, 4), [*grid[:-1], Box((2999, 1), (1, 2))])
    assert "only 11998 of its 12000" in why_incomplete((3000, 4), grid[:-1])


# ---- the form of safetensors


@pytest.fixture
def with_safetensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What torch's writer needs of the package: a function, here one of the tests."""

    def save(state: dict[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
        return safetensors(tmp_path / "made.safetensors", state, metadata=metadata).read_bytes()

    package, module = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
    module.save = save  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "safetensors", package)
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)


def shards(folder: Path, *parts: dict[str, Any]) -> Path:
    """Files as the processes of a group write them, one after the other."""
    folder.mkdir()
    for number, state in enumerate(parts, 1):
        made = folder.parent / f"of {number}"
        saved(made, state, storage_writer=HuggingFaceStorageWriter(str(made), save_distributed=True))
        for path in made.glob("*.safetensors"):
            path.rename(folder / path.name.replace("shard-00001", f"shard-{number:05}"))
    return folder


@pytest.mark.usefixtures("with_safetensors")
def test_safetensors(tmp_path: Path) -> None:
    first, second = [((0, 0), (7, 2))], [((0, 2), (7, 4))]
    parts = [{"w": Parts.of(FLAT, first), "b": GRID}, {"w": Parts.of(FLAT, second), "c": GRID + 1}]
    folder = shards(tmp_path / "ckpt", *parts)
    assert len(os.listdir(folder)) == 2 and all(name.startswith("shard-0000") for name in os.listdir(folder))
    found = open_weights(folder)
    assert {name: row.payload.tobytes() for name, row in found.items()} == {
        "w": octets(FLAT),
        "b": octets(GRID),
        "c": octets(GRID + 1),
    }
    one = next(path for path in folder.iterdir() if "shard-00001" in path.name)
    data = one.read_bytes()
    one.write_bytes(data.replace(b"saved_offsets", b"saved_offsetz"))
    with pytest.raises(WeightsError, match=r"shard-00001.*: its DCP_SHARDING_INFO is .*: it is damaged"):
        open_weights(folder)
    one.unlink()
    with pytest.raises(WeightsError, match=r"has the shards 'shard-00002.*', and shard 1 is missing"):
        open_weights(folder)
    one.with_name(one.name.replace("00001-of", "00009-of")).write_bytes(data)
    one.write_bytes(next(path for path in folder.iterdir() if "shard-00002" in path.name).read_bytes())
    for path in folder.glob("*00009-of*"):
        path.unlink()
    with pytest.raises(WeightsError, match=r"ckpt: tensor 'w': only 28 of its 42 elements are held"):
        open_weights(folder)


# ---- any bytes


@pytest.mark.full
@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_any_bytes(name: str, tmp_path: Path) -> None:
    """Tensors that can be read, or an error, whatever a file of the folder says."""
    cuts = [((0, 0), (4, 6)), ((4, 0), (3, 4)), ((4, 4), (3, 2))]
    folder = saved(tmp_path / "ckpt", {"model": {"w": Parts.of(FLAT, cuts), "s": FLAT.t()}, "optimizer": optimizer()})
    path, chance = folder / name, random.Random(5)
    good = path.read_bytes()
    read = 0
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 1, 4))] = chance.randbytes(chance.choice((0, 1, 1, 4)))
        path.write_bytes(data)
        with suppress(WeightsError):
            for row in open_weights(folder).values():
                assert len(row.payload.tobytes()) == row.nbytes
                read += 1
    assert read > 100
