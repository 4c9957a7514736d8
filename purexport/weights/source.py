"""`open_weights`: any source of weights becomes one mapping from name to `Stored`.

The first bytes of a file say what it is, not its suffix. A folder must hold one checkpoint, which is found by the usual
names. In a sequence a later source goes before an earlier one, name by name. Keys are renamed last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

from proto_schema.external.addresses import is_address, is_folder, joined, name_of, names_in
from proto_schema.files.sniff import what_it_is
from proto_schema.wire.collection import paused_collection
from purexport.errors import WeightsError
from purexport.weights import gguffile, index, npy, onnxfile, safetensors, torchdcp, torchlegacy, torchzip
from purexport.weights.arrays import Mappings, stored
from purexport.weights.packed import unpacked
from purexport.weights.stored import CheckpointFile, Path, Stored, listed, shown
from purexport.weights.ziparchive import Archive

Source: TypeAlias = "Path | Mapping[str, Any] | Sequence[Any]"
Rename: TypeAlias = "Mapping[str, str | None] | Callable[[str], str | None]"


class Weights(Mapping[str, Stored]):
    """Tensors by name. The key of a renamed tensor is the new name; its `Stored.name` stays the old one."""

    def __init__(self, found: Mapping[str, Stored], origin: str) -> None:
        self._found = dict(found)
        self.origin = origin

    def __getitem__(self, name: str) -> Stored:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors, tied ones counted as often as they are named."""
        return sum(item.nbytes for item in self._found.values())

    def __repr__(self) -> str:
        return f"<Weights of {self.origin}: {len(self)} tensors, {self.nbytes} bytes>"


def open_weights(source: Source, *, rename: Rename | None = None) -> Weights:
    """The tensors of a checkpoint, or of several, where a later one wins; none of their data is read.

    source: the path of a checkpoint (.safetensors, an index in JSON, what torch.save writes, .gguf, .npz, .npy, .onnx)
    or of a folder that holds one, also one of torch.distributed.checkpoint, or an address in storage (s3://..., with
    the extra `remote`); a mapping from name to torch tensor, numpy array or `Stored`; or a sequence of these, of which
    a later one wins. A weight in codes of GPTQ, AWQ, bitsandbytes or fp8 is a float32 tensor under its name.
    rename: {old: new}, or a function from old to new; None leaves a tensor out.
    Raises OSError where a file cannot be opened, WeightsError where it is malformed or keys do not fit, TypeError for
    a source that is none of these.
    """
    with paused_collection():
        found = _opened(source)
    return found if rename is None else _renamed(found, rename)


def _opened(source: Source) -> Weights:
    if isinstance(source, Weights):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _of_path(source)
    if isinstance(source, Mapping):
        return _of_mapping(source)
    if isinstance(source, Sequence) and not isinstance(source, (bytes, bytearray, memoryview)):
        return _laid_over([_opened(item) for item in source])
    hint = "; pass its state_dict()" if hasattr(source, "state_dict") else ""
    raise TypeError(f"weights come from a path, a mapping or a sequence of these, not a {type(source).__name__}{hint}")


def _of_mapping(source: Mapping[str, Any]) -> Weights:
    origin = "the mapping"
    for name in source:
        if not isinstance(name, str):
            raise WeightsError(f"{origin}: its keys must be names, not {shown(name)}")
    mappings = Mappings()
    return Weights({name: stored(name, value, origin, mappings) for name, value in source.items()}, origin)


def _laid_over(layers: Iterable[Weights]) -> Weights:
    found: dict[str, Stored] = {}
    origins = []
    for layer in layers:
        found.update(layer)
        origins.append(layer.origin)
    if not origins:
        raise WeightsError("an empty sequence of weights: pass at least one source")
    return Weights(found, " + ".join(origins))


def _of_path(path: Path) -> Weights:
    folder = os.fsdecode(path)
    if is_folder(folder) if is_address(folder) else os.path.isdir(folder):
        names = names_in(folder) if is_address(folder) else sorted(os.listdir(folder))
        if torchdcp.in_folder(names):
            _refuse_two(folder, names)
            rows = torchdcp.read(folder, names)
            name = name_of(folder.rstrip("/")) if is_address(folder) else os.path.basename(os.path.abspath(folder))
            return Weights(unpacked({row.name: row for row in rows}, joined(folder, torchdcp.METADATA)), name)
        path = _checkpoint_in(folder, names)
    with CheckpointFile(path) as file:
        is_index = file.start.lstrip().startswith(b"{") and not safetensors.begins(file.start)
        rows = index.read(file, _rows) if is_index else _rows(file)
        found = {row.name: row for row in rows}
        return Weights(unpacked(found, file.path), file.label)


def _rows(file: CheckpointFile) -> list[Stored]:
    """The tensors of one file. Its first bytes say what it is; of a damaged one the suffix chooses the reader."""
    start, suffix = file.start, os.path.splitext(file.label)[1]
    if safetensors.begins(start):
        return safetensors.read(file)
    if start.startswith((b"PK\3\4", b"PK\5\6")):
        archive = Archive(file)
        return npy.read_archive(archive) if npy.is_archive(archive) else torchzip.read(archive)
    if start.startswith(npy.MAGIC):
        return npy.read(file)
    if start.startswith(gguffile.MAGIC):
        return gguffile.read(file)
    if torchlegacy.begins(start):
        return torchlegacy.read(file)
    if torchlegacy.is_tar(start):
        raise file.error(
            "it is a tar archive, as the first versions of torch wrote it; load it with torch and save its state dict "
            "again with torch.save"
        )
    hint = what_it_is(start, None)
    if "ONNX" not in hint:  # an error page, a compressed file, the pointer that git keeps in place of a large file
        raise file.error(f"it is not a checkpoint{hint}")
    if suffix == ".safetensors":
        return safetensors.read(file)
    if suffix == ".onnx" or start.startswith(b"\x08"):
        return onnxfile.read(file)
    raise file.error(
        "it is not a checkpoint that is known: safetensors, an index, torch.save's archive, GGUF, npz, npy or ONNX"
    )


# What a folder may hold, best first: the usual name, and the pattern of other names, which exactly one file may match.
_CHECKPOINTS = (
    ("model.safetensors.index.json", (".safetensors.index.json",)),
    ("model.safetensors", (".safetensors",)),
    ("pytorch_model.bin.index.json", (".bin.index.json",)),
    ("pytorch_model.bin", (".bin", ".pt", ".pth", ".ckpt")),
    ("model.gguf", (".gguf",)),
    ("model.npz", (".npz",)),
    ("model.onnx", (".onnx",)),
)


def _refuse_two(folder: str, names: Sequence[str]) -> None:
    """WeightsError for a folder with a checkpoint of torch.distributed.checkpoint and another one."""
    other = [usual for usual, _ in _CHECKPOINTS if usual in names]
    if other:
        found = torchdcp.files(names)
        raise WeightsError(
            f"{folder} holds several checkpoints: {listed([*found[:1], *other])}; pass the one that is meant, or move "
            "the other away"
        )


def _checkpoint_in(folder: str, names: Sequence[str]) -> str:
    """The one checkpoint in a folder. WeightsError where there is none, or it is not clear which one is meant."""
    for usual, endings in _CHECKPOINTS:
        found = [name for name in names if name.endswith(endings)]
        if usual in found or len(found) == 1:
            return joined(folder, usual if usual in found else found[0])
        if found:
            raise WeightsError(f"{folder} holds several checkpoints: {listed(found)}; pass the one that is meant")
    raise WeightsError(f"{folder} holds no checkpoint, but {listed(list(names)) or 'nothing'}; pass the folder of one")


def _renamed(found: Weights, rename: Rename) -> Weights:
    new_name = _by_table(found, rename) if isinstance(rename, Mapping) else _by_function(rename)
    result: dict[str, Stored] = {}
    sources: dict[str, str] = {}
    for old, item in found.items():
        new = new_name(old)
        if new is None:
            continue
        if new in sources:
            pair = f"{shown(sources[new])} and {shown(old)}"
            raise WeightsError(
                f"rename: the keys {pair} both become {shown(new)}; map one of them to None", code="weights-do-not-fit"
            )
        sources[new] = old
        result[new] = item
    return Weights(result, found.origin)


def _by_table(found: Weights, table: Mapping[str, str | None]) -> Callable[[str], str | None]:
    missing = [old for old in table if old not in found]
    if missing:
        close = get_close_matches(str(missing[0]), list(found), 1)
        hint = f"did you mean {shown(close[0])}?" if close else f"it has {listed(list(found))}"
        raise WeightsError(f"rename: {found.origin} has no {listed(missing)}; {hint}", code="weights-do-not-fit")
    return lambda old: _name(old, table[old]) if old in table else old


def _by_function(function: Callable[[str], str | None]) -> Callable[[str], str | None]:
    if not callable(function):
        raise TypeError(f"rename must be a mapping or a function, not a {type(function).__name__}")

    def new_name(old: str) -> str | None:
        try:
            new = function(old)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise WeightsError(
                f"rename: the function fails on the key {shown(old)} with {reason}; return the key itself to keep it, "
                "None to leave the tensor out",
                code="weights-do-not-fit",
            ) from error
        return _name(old, new)

    return new_name


def _name(old: str, new: object) -> str | None:
    if new is None or (isinstance(new, str) and new):
        return new
    raise WeightsError(
        f"rename: the key {shown(old)} becomes {shown(new)}; a name must be a text that is not empty",
        code="weights-do-not-fit",
    )
