"""Reads a checkpoint in several files: an index in JSON says which of them holds which tensor.

The index and the files must agree: every file exists and holds exactly the tensors that the index lists for it. An
index names files beside it; a name that leads out of its folder is refused. Links are followed, because model hubs keep
their files that way, and what a link leads to is read as a checkpoint only.
"""

from __future__ import annotations

from collections.abc import Callable

from proto_schema.external.addresses import exists, joined, parent
from purexport.weights.jsontext import parsed
from purexport.weights.stored import CheckpointFile, Stored, listed, shown

LONGEST = 100_000_000  # bytes, as many as the header of a safetensors file may have
_ADVICE = "download or write the checkpoint again, whole"


def read(file: CheckpointFile, read_shard: Callable[[CheckpointFile], list[Stored]]) -> list[Stored]:
    """The tensors of all files, in the order of the index. WeightsError says what does not fit."""
    places = _places(file)
    shards: dict[str, list[str]] = {}
    for name, shard in places.items():
        shards.setdefault(shard, []).append(name)
    folder = parent(file.path)
    missing = [name for name in shards if not exists(joined(folder, name))]
    if missing:
        what = f"{len(missing)} of its {len(shards)} files are not in {folder}"
        raise file.error(f"{what}: {listed(missing)}; download them, or write the checkpoint again")
    found: dict[str, Stored] = {}
    for shard, names in shards.items():
        with CheckpointFile(joined(folder, shard), file.budget) as opened:
            rows = {row.name: row for row in read_shard(opened)}
        _check(file, shard, names, rows, places)
        found.update(rows)
    return [found[name] for name in places]


def _places(file: CheckpointFile) -> dict[str, str]:
    """Which file each tensor is in."""
    if file.size > LONGEST:
        raise file.error(f"it has {file.size} bytes, more than an index may have: is it the right file?")
    found = parsed(file, file.read(0, file.size), "it", _ADVICE).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise file.error(f"it has no weight_map, and so is not an index of a checkpoint; {_ADVICE}")
    for name, shard in found.items():
        if not isinstance(shard, str) or not lies_beside(shard):
            raise file.error(
                f"tensor {shown(name)} would be in {shown(shard)}, which is not a file of the index's folder"
            )
    return found


def lies_beside(name: str) -> bool:
    """Whether this is the name of a file in the folder, or below it."""
    parts = name.split("/")
    return not (set(name) & {"\\", "\0", ":"} or name.startswith("/") or ".." in parts or parts[-1] in ("", "."))


def _check(file: CheckpointFile, shard: str, names: list[str], rows: dict[str, Stored], places: dict[str, str]) -> None:
    absent = [name for name in names if name not in rows]
    if absent:
        raise file.error(f"{shown(shard)} does not hold {listed(absent)}, as the index says; {_ADVICE}")
    other = [name for name in rows if places.get(name) != shard]
    if other:
        place = places.get(other[0])
        says = "names in no file" if place is None else f"says to be in {shown(place)}"
        raise file.error(f"{shown(shard)} holds {listed(other)}, which the index {says}; {_ADVICE}")
