"""Reads files of torch before 1.6, and of torch.save(..., _use_new_zipfile_serialization=False): pickles in a row.

In the file lie five pickles: a magic number, the version of the format, facts on the machine, the object, and the keys
of its storages; then for each key the number of its items in 8 bytes, and the items. All numbers are little-endian, on
whatever machine they were written. The pickles do not say how long they are, so a first part of the file is read, and a
larger one if a pickle goes on behind it. What comes after the last storage is not looked at, as in torch.
Source: torch/serialization.py (`_legacy_save`), and THPStorage_writeFileRaw in torch/csrc/serialization.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from purexport.errors import WeightsError
from purexport.weights.statedict import SAVE_AGAIN, rows
from purexport.weights.stored import CheckpointFile, Stored, listed, shown
from purexport.weights.torchvalues import GLOBALS, Storage, storage_of, view_of
from purexport.weights.unpickle import EndsEarlyError, Unpickler
from purexport.weights.ziparchive import COPY_AGAIN

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
LONGEST_PICKLES = 1 << 26  # as in an archive
_FIRST = 1 << 16  # bytes that are read at first
_TAR = (b"storages\0", b"tensors\0", b"pickle\0", b"sys_info\0")


def begins(start: bytes) -> bool:
    """Whether a file that begins like this may be of the format: every pickle of protocol 2 or later does."""
    return start.startswith(b"\x80")


def is_tar(start: bytes) -> bool:
    """Whether a file that begins like this is of the format before: a tar archive, whose members have these names."""
    return start.startswith(_TAR)


def read(file: CheckpointFile) -> list[Stored]:
    """The tensors of the state dict, in its order. WeightsError says what is malformed or not supported, and where."""
    pickles = _Pickles(file)
    _check_beginning(pickles)
    storages = _LegacyStorages(file)
    found = pickles.next(storages.named)
    storages.find(pickles.next(), pickles.at)
    return rows(found, file, storages.begin)


def _check_beginning(pickles: _Pickles) -> None:
    file = pickles.file
    try:
        magic = pickles.next()
    except EndsEarlyError:
        raise
    except WeightsError:
        magic = None
    if magic != MAGIC:
        raise file.error(
            "it is a pickle, but torch.save did not write it; load it where you trust it, and save the tensors with "
            "torch.save({name: tensor}, path)"
        )
    version = pickles.next()
    if version != VERSION:
        raise file.error(f"its format has the version {shown(version)}, and {VERSION} is known; {SAVE_AGAIN}")
    pickles.next()  # on the machine: the file is the same on all


class _Pickles:
    """The pickles at the beginning of a file, one after the other; `at` is where the next one begins."""

    def __init__(self, file: CheckpointFile) -> None:
        self.file = file
        self.at = 0
        self._data = b""
        self._read(_FIRST)

    def _read(self, size: int) -> None:
        before = len(self._data)
        self._data = self.file.read(0, min(size, self.file.size, LONGEST_PICKLES))
        self.file.budget.earn(len(self._data) - before)

    def next(self, persistent: Callable[[object], object] = storage_of) -> object:
        """What the next pickle holds."""
        while True:
            left = self.file.budget.left
            reader = Unpickler(self._data, GLOBALS, persistent, self.file.label, self.file.budget, self.at)
            try:
                found = reader.load()
            except EndsEarlyError:
                if len(self._data) == self.file.size:
                    raise
                if len(self._data) == LONGEST_PICKLES:
                    what = f"its pickles have more than the {LONGEST_PICKLES} bytes that they may have"
                    raise self.file.error(f"{what}; {SAVE_AGAIN}") from None
                self.file.budget.left = left  # what was made so far is gone
                self._read(4 * len(self._data))
                continue
            self.at = reader.at
            return found


class _LegacyStorages:
    """The storages of a file: those that its object names, and where they are."""

    def __init__(self, file: CheckpointFile) -> None:
        self._file = file
        self._named: dict[str, Storage] = {}
        self._begins: dict[str, int] = {}

    def named(self, key: object) -> Storage:
        """A persistent id in the object. TypeError if it is no storage, WeightsError if it contradicts an earlier one.

        Parts of storages, in the files of torch before 0.4, have a name of their own: it is not needed.
        """
        if not (isinstance(key, tuple) and len(key) == 6):
            raise TypeError
        storage = storage_of(key[:5])
        if storage.key not in self._named:
            self._file.spend(_PLACE)
        first = self._named.setdefault(storage.key, storage)
        if (first.kind, first.size) != (storage.kind, storage.size) and (first.size or storage.size):
            raise WeightsError(f"the storage {shown(storage.key)} has two types or sizes; {SAVE_AGAIN}")
        return storage if key[5] is None else view_of(storage, key[5])

    def find(self, keys: object, at: int) -> None:
        """Looks where the storages begin; they lie in the order of `keys`. WeightsError where they are not there."""
        if not isinstance(keys, list):
            raise self._file.error(f"the list of its storages is {shown(keys)}; {COPY_AGAIN}")
        for key in keys:
            storage = self._named.get(key) if isinstance(key, str) else None
            if storage is None or key in self._begins:
                what = "which is there already" if storage else "which its tensors do not name"
                raise self._file.error(f"it lists the storage {shown(key)}, {what}; {COPY_AGAIN}")
            begin = at + 8
            if begin + storage.size > self._file.size:
                raise self._file.error(
                    f"the storage {shown(key)} would have {storage.size} bytes at {begin}, but the file ends at "
                    f"{self._file.size}: it is cut off; copy or download it again"
                )
            count = int.from_bytes(self._file.read(at, 8), "little", signed=True)
            if count * storage.kind.width != storage.size:
                what = f"has {count} items of {storage.kind.width} bytes, but its tensors say {storage.size} bytes"
                raise self._file.error(f"the storage {shown(key)} {what}; {COPY_AGAIN}")
            self._begins[key] = begin
            at = begin + storage.size
        absent = [key for key in self._named if key not in self._begins]
        if absent:
            raise self._file.error(f"it lacks the storages {listed(absent)}, which its tensors name; {SAVE_AGAIN}")

    def begin(self, storage: Storage) -> int:
        """The offset in the file of a storage, or of a part of one."""
        return self._begins[storage.key] + storage.begin


_PLACE = 240  # bytes of memory for what is known of a storage, and where it is
