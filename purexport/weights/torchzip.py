"""Reads checkpoints of torch since 1.6: a zip archive of a pickle and one uncompressed member per storage.

The pickle is read as data (`unpickle`), with the table of `torchvalues`; `statedict` makes rows of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable

from purexport.weights.statedict import SAVE_AGAIN, rows
from purexport.weights.stored import Stored, listed, shown
from purexport.weights.torchvalues import GLOBALS, Storage, storage_of
from purexport.weights.unpickle import Unpickler
from purexport.weights.ziparchive import Archive

LONGEST_PICKLE = 1 << 26  # of half a million tensors


def read(archive: Archive) -> list[Stored]:
    """The tensors of the state dict, in its order. WeightsError says what is malformed or not supported, and where."""
    found, begin_of = loaded(archive)
    return rows(found, archive.file, begin_of)


def loaded(archive: Archive) -> tuple[object, Callable[[Storage], int]]:
    """(what was saved, where in the file its storages begin). WeightsError as `read`."""
    file = archive.file
    root = _root(archive)
    data = archive.content(archive.members[f"{root}data.pkl"], LONGEST_PICKLE, SAVE_AGAIN)
    _check_byte_order(archive, root)
    file.budget.earn(len(data))
    found = Unpickler(data, GLOBALS, storage_of, f"{file.label}: data.pkl", file.budget).load()
    return found, _Storages(archive, f"{root}data/").begin


def _root(archive: Archive) -> str:
    """The folder of the archive, with a slash."""
    names = [name for name in archive.members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(names) != 1:
        what = "has no data.pkl" if not names else f"has {listed(names)}"
        raise archive.file.error(f"the zip archive {what}: it was not written by torch.save")
    root = names[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in archive.members:
        raise archive.file.error(
            "it is a TorchScript archive, not a checkpoint; save torch.jit.load(path).state_dict() with torch.save"
        )
    return root


def _check_byte_order(archive: Archive, root: str) -> None:
    member = archive.members.get(f"{root}byteorder")
    order = b"little" if member is None else archive.content(member, 64, SAVE_AGAIN)
    if order != b"little":
        raise archive.file.error(f"its byte order is {shown(order.decode('latin-1'))}; {SAVE_AGAIN}")


class _Storages:
    """Where the storages of an archive begin; each is looked up once."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._folder = folder
        self._found: dict[str, tuple[int, int]] = {}

    def begin(self, storage: Storage) -> int:
        """The offset in the file. WeightsError if the archive has no such member, or one of another size."""
        if storage.key not in self._found:
            name = f"{self._folder}{storage.key}"
            member = self._archive.members.get(name)
            if member is None:
                raise self._archive.file.error(f"the storage {shown(name)} is missing; {SAVE_AGAIN}")
            self._found[storage.key] = self._archive.range(member, SAVE_AGAIN)
        begin, size = self._found[storage.key]
        if size != storage.size:
            what = f"the storage {shown(self._folder + storage.key)} has {size} bytes"
            raise self._archive.file.error(f"{what}, but the pickle says {storage.size}; {SAVE_AGAIN}")
        return begin
