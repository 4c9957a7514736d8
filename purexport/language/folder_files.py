"""The files of a folder with a language model: which ones may be read, and how much of them.

A folder comes from strangers, and what is copied out of it may be published.  So a link counts only where it leads to
a file beneath the folder, or where model hubs keep the file: in a cache, `snapshots/REVISION/config.json` is a link to
`blobs/HASH` of the same repository.  All other links are refused, those of weights too.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from purexport.errors import ExportError
from purexport.weights.stored import CheckpointFile, listed

MOST_JSON = 1 << 24  # bytes of a config or of an index; the largest known have a tenth of it
MOST_COPIED = 1 << 28  # bytes of all files of a tokenizer together; the largest known have a sixth of it
_SNAPSHOTS, _BLOBS = "snapshots", "blobs"


def file_in(folder: Path, name: str) -> Path:
    """The path of a file of the folder.

    Raises ExportError for a link that leads elsewhere; FileNotFoundError for one that leads nowhere.
    """
    path, real, inside = folder / name, Path(os.path.realpath(folder / name)), Path(os.path.realpath(folder))
    if not (real.is_relative_to(inside) or real.parent in _blobs_of(inside)):
        raise ExportError(
            f"{path} leads to {real}, which is neither beneath the folder nor a blob of the "
            "same repository in a hub's cache; put a copy of the file there if the result may have it",
            code="file-outside-folder",
        )
    if not real.exists():
        raise FileNotFoundError(errno.ENOENT, "it is not there, or is a link that leads nowhere", str(path))
    return path


def _blobs_of(inside: Path) -> set[Path]:
    """Where the files of a snapshot are, if the folder is one in a hub's cache."""
    return {place.parent / _BLOBS for place in inside.parents if place.name == _SNAPSHOTS}


def content_of(folder: Path, name: str, most: int) -> bytes:
    """The bytes of a file of the folder.

    Raises ExportError as `file_in` does, and for a file of more than `most` bytes; OSError, WeightsError.
    """
    with CheckpointFile(file_in(folder, name)) as file:
        if file.size > most:
            raise ExportError(
                f"{folder / name} has {file.size} bytes, and at most {most} are read from such a file; "
                "is it the right file?",
                code="file-too-large",
            )
        return file.read(0, file.size)


def json_of(folder: Path, name: str) -> Any:
    """What a JSON file of the folder says.  Raises ExportError for what is not JSON, and as `content_of` does."""
    content = content_of(folder, name, MOST_JSON)
    try:
        return json.loads(content)
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = f"it is not JSON: {error}"
    raise ExportError(f"{folder / name}: {reason}; download or write it again", code="odd-config")


def contents_of(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of several files, by name.  Raises as `content_of` does; what is bounded is their sum."""
    found: dict[str, bytes] = {}
    left = MOST_COPIED
    for name in names:
        found[name] = content_of(folder, name, left)
        left -= len(found[name])
    return found


def check_index(folder: Path, name: str) -> None:
    """Raise as `file_in` does for a file that an index of weights names.  What the index says is checked when read."""
    found = json_of(folder, name)
    places = found.get("weight_map") if isinstance(found, dict) else None
    shards = {item for item in places.values() if isinstance(item, str)} if isinstance(places, dict) else set()
    outside = [shard for shard in shards if os.path.isabs(shard) or ".." in shard.split("/") or "\0" in shard]
    if outside:
        raise ExportError(
            f"{folder / name} names {listed(sorted(outside))}, which is not a file of its folder; download "
            "or write the checkpoint again",
            code="file-outside-folder",
        )
    for shard in sorted(shards):
        if (folder / shard).exists():  # the reader says which ones are missing
            file_in(folder, shard)
