"""Reads external data: what a tensor's entries say, and the file they name, opened so that no model can misuse it.

The rules, each of them once a published vulnerability of some loader: the location is a relative path below the
model's folder, without `..` components; no step of it may be a link, and the file must be a regular one without links
from elsewhere; numbers are plain ASCII digits; unknown keys are refused; offset and length lie inside the file.
The file is opened beneath a handle of its folder, step by step, and checked through its own descriptor, so that
nothing can be swapped between check and use. It is mapped, never read: a promise of too many bytes costs nothing.
Model hubs cache by links: a declared `trust_root` allows links whose targets stay beneath it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from proto_schema.errors import ExternalDataError, UnreadableDataError
from proto_schema.external.payload import KEEPS_OPEN, FileMap, FileRange, RangePayload, Stamp, changed, stamp_of
from proto_schema.onnx import StringStringEntryProto, TensorProto
from proto_schema.wire.fields import Message
from proto_schema.wire.generate import finder
from proto_schema.wire.records import dataclass

KEYS = ("location", "offset", "length", "checksum", "basepath")
_FOLLOW_NOT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = _FOLLOW_NOT | getattr(os, "O_DIRECTORY", 0)
_FILE = _FOLLOW_NOT | getattr(os, "O_NONBLOCK", 0)  # so that opening a pipe or device does not wait
_BENEATH = os.open in os.supports_dir_fd
# of a path that the model names; whatever else keeps a file from being opened is no fault of the model
NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}


@dataclass(frozen=True)
class Entries:
    """A tensor's `external_data`, checked: `length` None is everything from `offset` to the end of the file."""

    location: str
    offset: int = 0
    length: int | None = None
    checksum: str | None = None


def entries(tensor: TensorProto) -> Entries:
    """What the tensor's external_data says. ExternalDataError for what a location, a key or a number must not be."""
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        key, value = entry.key, entry.value
        if key not in KEYS:
            raise _error(tensor, f"external_data has the unknown key {key!r} (known: {', '.join(KEYS)})")
        if not isinstance(value, str):
            raise _error(tensor, f"external_data has no readable value for {key!r}")
        if key in found:  # readers disagree on which of them counts
            raise _error(tensor, f"external_data has the key {key!r} twice")
        found[key] = value
    if "location" not in found:
        raise _error(tensor, "its data is external, but external_data has no location")
    _check_location(tensor, found["location"])
    offset = _number(tensor, "offset", found.get("offset")) or 0
    return Entries(found["location"], offset, _number(tensor, "length", found.get("length")), found.get("checksum"))


def set_entries(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Turns the tensor into one whose data lies in a file; its own data fields become empty."""
    values = {"location": location, "offset": str(offset), "length": str(length)}
    tensor.external_data = [StringStringEntryProto(key=key, value=value) for key, value in values.items()]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.raw_data = None


def _number(tensor: TensorProto, key: str, text: str | None) -> int | None:
    """Exactly ASCII digits: int() alone takes `1_0`, `+4`, ` 8 ` and the digits of other scripts. Empty is absent."""
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _error(tensor, f"the external {key} is {text!r}; it must be plain digits, below 2**63")
    return int(text)


def _check_location(tensor: TensorProto, location: str) -> None:
    if reason := is_foreign(location):
        raise _error(tensor, f"the external location {location!r} {reason}")


def is_foreign(location: str) -> str:
    """What is wrong with a location as a path below the model's folder; '' if nothing is."""
    windows = "\\" in location or location[1:2] == ":"
    if not location or "\0" in location or location.startswith("/") or windows:
        return "is not a relative path with forward slashes"
    return "leaves the model's folder" if ".." in location.split("/") else ""


@contextmanager
def _told(tensor: TensorProto, path: str) -> Iterator[None]:
    """Errors inside name the tensor, and the file that cannot be opened."""
    try:
        yield
    except ExternalDataError as error:
        raise _error(tensor, str(error), type(error)) from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        of_model = isinstance(error, EOFError) or error.errno in NOT_THERE
        kind = ExternalDataError if of_model else UnreadableDataError
        raise _error(tensor, f"cannot open {path}: {reason}", kind) from error


def _error(tensor: TensorProto, reason: str, kind: type[ExternalDataError] = ExternalDataError) -> ExternalDataError:
    return kind(f"tensor {tensor.name or ''!r}: {reason}")


class Folder:
    """Where the external data of a loaded model lies. Files are mapped on first use and stay mapped as long as used."""

    def __init__(self, path: str | os.PathLike[str], trust_root: str | os.PathLike[str] | None = None) -> None:
        self.path = os.path.abspath(path)
        self.trust_root = None if trust_root is None else os.path.realpath(trust_root)
        self._maps: dict[str, memoryview | FileRange] = {}
        self._mapped_files: dict[str, tuple[int, ...]] = {}
        self._stamps: dict[str, Stamp] = {}
        self._lock = Lock()

    def look(self, location: str) -> None:
        """Notes which file has that name now: one that takes its place, or a change, is refused later."""
        if location in self._stamps or is_foreign(location):
            return
        with suppress(OSError, ValueError):
            path = self.file(location)
            status = os.lstat(path) if self.trust_root is None else os.stat(path)
            self._stamps[location] = stamp_of(status)

    def view(self, tensor: TensorProto, expected: int | None = None) -> memoryview:
        """The tensor's bytes, mapped read-only. `expected` is the size that type and shape ask for."""
        data = self.payload(tensor, expected)
        if isinstance(data, memoryview):
            return data
        with _told(tensor, self.file(entries(tensor).location)):
            return memoryview(data.tobytes())

    def payload(self, tensor: TensorProto, expected: int | None = None) -> memoryview | RangePayload:
        """The same; where mappings cost descriptors and few are left, a range, of a file that must not change."""
        entry = entries(tensor)
        data = self._found(tensor, entry.location)
        size = data.nbytes
        length = entry.length if entry.length is not None else expected
        stop = size if length is None else entry.offset + length
        if entry.offset > size or stop > size:
            wanted = f"bytes {entry.offset} to {stop}"
            raise _error(tensor, f"{wanted} of {self.file(entry.location)}, which has {size}; is it complete?")
        if expected is not None and stop - entry.offset != expected:
            raise _error(
                tensor, f"the external length is {stop - entry.offset}, but its type and dims need {expected} bytes"
            )
        if not isinstance(data, memoryview):
            return data.part(entry.offset, stop - entry.offset)
        return data[entry.offset : stop]

    def whole(self, tensor: TensorProto, location: str) -> memoryview | RangePayload:
        """The whole file of that name, for a reader who goes by other entries than `entries`; opened as safely."""
        _check_location(tensor, location)
        return self._found(tensor, location)

    def file(self, location: str) -> str:
        """The path of a data file, for messages."""
        return os.path.join(self.path, *location.split("/"))

    def is_current(self, location: str) -> bool:
        """Whether the file that was mapped is still the one of that name, unchanged."""
        try:
            return self._mapped_files.get(location) == _identity(os.lstat(self.file(location)))
        except OSError:
            return False

    def _found(self, tensor: TensorProto, location: str) -> memoryview | RangePayload:
        with self._lock:
            found = self._maps.get(location)
            if found is None:
                with _told(tensor, self.file(location)):
                    found = self._maps[location] = self._map(location)
        return found

    def _map(self, location: str) -> memoryview | FileRange:
        try:
            descriptor = self._open(location)
        except FileNotFoundError:
            if location in self._stamps:
                raise changed(self.file(location)) from None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ExternalDataError(f"{self.file(location)} is not a regular file")
            if status.st_nlink > 1 and self.trust_root is None:
                self._refuse_foreign_links(location, status)
            if self._stamps.setdefault(location, stamp_of(status)) != stamp_of(status):
                raise changed(self.file(location))
            self._mapped_files[location] = _identity(status)
            if status.st_size == 0:
                return memoryview(b"")
            if KEEPS_OPEN and len(self._maps) >= _most_mapped():
                return FileRange(self.file(location), 0, status.st_size, stamp_of(status))
            return memoryview(FileMap.of(descriptor, self.file(location)))
        finally:
            os.close(descriptor)

    def _open(self, location: str) -> int:
        path = self.file(location)
        if self.trust_root is None:
            return _open_beneath(self.path, location.split("/"), path)
        real = os.path.realpath(path)  # links are followed once, here; the open below follows none
        for root in (self.trust_root, os.path.realpath(self.path)):
            if real.startswith(os.path.join(root, "")):
                return _open_beneath(root, os.path.relpath(real, root).split(os.sep), path)
        raise ExternalDataError(f"{path} leads to {real}, outside the trust root {self.trust_root}")

    def _refuse_foreign_links(self, location: str, status: os.stat_result) -> None:
        """Hard links within the folder of the file are harmless; others make its content somebody else's."""
        with os.scandir(os.path.dirname(self.file(location))) as found:
            here = sum(entry.inode() == status.st_ino for entry in found)
        if here < status.st_nlink:
            raise ExternalDataError(_link_refusal(self.file(location)))


def _most_mapped() -> int:
    """How many files of a model stay mapped where each costs a descriptor: a quarter of what the process may have."""
    try:
        import resource
    except ImportError:  # Windows
        return 1024
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft // 4, 1)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (*stamp_of(status), status.st_nlink)


def _open_beneath(root: str, steps: list[str], path: str) -> int:
    """Opens root/steps without following a link in any step. `path` is for messages."""
    steps = [step for step in steps if step not in ("", ".")] or ["."]
    if not _BENEATH:  # Windows
        _open_beneath_without_links(root, steps, path)
        return os.open(path, os.O_RDONLY | _FILE)
    at = os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for step in steps[:-1]:
            inner = _open_step(step, _FOLDER, at, path)
            os.close(at)
            at = inner
        return _open_step(steps[-1], _FILE, at, path)
    finally:
        os.close(at)


@contextmanager
def folder_beneath(root: str, tensor: TensorProto, location: str) -> Iterator[int | None]:
    """A handle of the folder of root/location, which is reached without following a link; None where there are none.

    Raises ExternalDataError, which names the tensor, for a location that leaves the folder and for links on the way.
    """
    _check_location(tensor, location)
    path = os.path.join(root, *location.split("/"))
    folders = [step for step in location.split("/")[:-1] if step not in ("", ".")]
    with _told(tensor, path):
        if not _BENEATH:
            _open_beneath_without_links(root, [*folders, location.rsplit("/", maxsplit=1)[-1]], path)
            yield None
            return
        at = os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            for step in folders:
                inner = _open_step(step, _FOLDER, at, path)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)


def _open_beneath_without_links(root: str, steps: list[str], path: str) -> None:
    """Where folders cannot be opened: the path as a whole must have no links."""
    if os.path.realpath(os.path.join(root, *steps)) != os.path.join(os.path.realpath(root), *steps):
        raise ExternalDataError(_link_refusal(path))


def _open_step(step: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(step, os.O_RDONLY | flags, dir_fd=folder)
    except OSError as error:
        if stat.S_ISLNK(os.stat(step, dir_fd=folder, follow_symlinks=False).st_mode):
            raise ExternalDataError(_link_refusal(path)) from error
        raise


def _link_refusal(path: str) -> str:
    return f"{path} is or contains a link out of the model's folder; pass trust_root= to load if its target is trusted"


def external_view(tensor: TensorProto, base_dir: str | os.PathLike[str], expected: int | None = None) -> memoryview:
    """The bytes of an external tensor: below `base_dir`, else where it was loaded from, else in the current folder."""
    folder = Folder(base_dir) if os.fspath(base_dir) else origin(tensor) or Folder(".")
    return folder.view(tensor, expected)


def origin(tensor: TensorProto) -> Folder | None:
    """The folder that the tensor was loaded from, if it was."""
    found: Folder | None = getattr(tensor, "origin", None)
    return found


def forget_origin(tensor: TensorProto) -> None:
    """The tensor's data is no longer that of a file."""
    if origin(tensor) is not None:
        object.__delattr__(tensor, "origin")


def set_origin(found: Iterable[Message], folder: Folder) -> None:
    """Notes in each of these messages that is an external tensor where its file lies, and which file that is now."""
    for tensor in found:
        if isinstance(tensor, TensorProto) and tensor.data_location == TensorProto.EXTERNAL:
            object.__setattr__(tensor, "origin", folder)
            for entry in tensor.external_data:
                if entry.key == "location" and isinstance(entry.value, str):
                    folder.look(entry.value)


def tensors(message: Message) -> list[TensorProto]:
    """Every TensorProto in a message, at any depth, in the order of encoding."""
    found: list[TensorProto] = []
    finder(type(message), TensorProto)(message, found)
    return found
