"""Objects in storage by their addresses (`s3://`, `gs://`, `https://`, `memory://`, ...): ranges of them, and writes.

Strategy: fsspec, the extra `remote`, has the file systems; it is imported only for an address. An object is looked at
when it is opened: its size, and its version (the ETag, or what the storage says in its place). A range is read in
pieces, some of them at once. After the last one the object is looked at again: with another version the bytes
may be of two objects, and they are refused. What fails is tried again with a pause that doubles.
A write becomes visible when it is whole: fsspec's transaction commits a multipart upload at its end, or drops it.
Invariant: no error has the text of another library, the user or the query of an address: they may hold credentials.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import posixpath
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

from proto_schema.errors import ExternalDataError, UnreadableDataError
from proto_schema.external import Folder, is_foreign
from proto_schema.external.payload import CHUNK, RangePayload, pieces
from proto_schema.onnx import TensorProto

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+(?:::[a-z][a-z0-9+.-]+)*://", re.ASCII)
TRIES = 6
FIRST_PAUSE = 0.2  # seconds; it doubles
IN_FLIGHT = 4  # pieces that are asked for at once
PART = 1 << 24  # bytes of a part of an upload, if it needs no more than
MOST_PARTS = 9000  # of them: S3 takes 10,000
_LOOKS = 8  # at an object whose upload has ended with an error: within a minute
_VERSIONS = (
    *("ETag", "etag", "version_id", "md5Hash", "generation", "content_md5", "sha256"),
    *("mtime", "modified", "LastModified", "last_modified", "Last-Modified", "created"),
)
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError, NotImplementedError)

Address: TypeAlias = str
Result = TypeVar("Result")


def is_address(path: object) -> bool:
    """Whether a path is the address of an object in storage."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def shown(address: Address) -> str:
    """The address for messages: without user, password and query."""
    scheme, _, rest = address.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, inner = place.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{inner}"


def joined(folder: str, name: str) -> str:
    """The path or the address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else os.path.join(folder, name)


def parent(path: str) -> str:
    """The folder of a path or an address."""
    return folder_of(path) if is_address(path) else os.path.dirname(path)


def size_of_file(path: str) -> int:
    """The size of the file at a path or an address. OSError where there is none."""
    return RemoteFile(path).size if is_address(path) else os.path.getsize(path)


def refuse_address(path: object, what: str) -> None:
    """OSError for an address where only files are taken; `what` says for what."""
    if is_address(path):
        reason = f"{what} must be on this machine, not in storage: give a path, and copy from or to storage"
        raise OSError(errno.EPROTONOSUPPORT, reason, shown(str(path)))


def exists(path: str) -> bool:
    """Whether there is a file at a path or an address."""
    return size_at(path) is not None if is_address(path) else os.path.exists(path)


def folder_of(address: Address) -> Address:
    """The address without its last step."""
    return re.split(r"[?#]", address, maxsplit=1)[0].rpartition("/")[0]


def name_of(path: str) -> str:
    """The last step of a path or an address."""
    return posixpath.basename(shown(path)) if is_address(path) else os.path.basename(path)


class RemoteFile:
    """An object in storage, as it was when it was looked at. OSError where it cannot be reached or is no file."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._open()
        found = self._info()
        if found.get("type") == "directory" or found.get("size") is None:
            raise IsADirectoryError(
                errno.EISDIR, "it is a folder, or has no size: give the address of a file", self.name
            )
        self.size = int(found["size"])
        self._version = self._version_of(found)

    def _open(self) -> None:
        self._fs, self._path = _file_system(self.address)

    def __getstate__(self) -> tuple[str, int, tuple[str, ...]]:
        """For another process, whose own settings have the credentials."""
        return self.address, self.size, self._version

    def __setstate__(self, state: tuple[str, int, tuple[str, ...]]) -> None:
        self.address, self.size, self._version = state
        self._open()

    @property
    def name(self) -> str:
        """The address for messages."""
        return shown(self.address)

    @property
    def version(self) -> tuple[str, ...]:
        """What tells the object from another at this address."""
        return self._version

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. OSError where they cannot be read, EOFError where there are fewer."""
        if not length:
            return b""
        found: bytes = again(self._fs.cat_file, self.address, self._path, start=offset, end=offset + length)
        if len(found) != length:
            raise EOFError(f"{self.name}: {length - len(found)} of {length} bytes at {offset} are missing")
        return found

    def expect_unchanged(self) -> None:
        """UnreadableDataError if another object has this address now."""
        if self._version_of(self._info()) != self._version:
            raise UnreadableDataError(f"{self.name} has changed or been replaced since it was opened; start again")

    def range(self, offset: int, length: int) -> RemoteRange:
        """A part of it, to be read later."""
        return RemoteRange(self, offset, length)

    def whole(self) -> bytes:
        """All of it."""
        return self.range(0, self.size).tobytes()

    def _info(self) -> dict[str, Any]:
        with suppress(Exception):  # a file system without a cache of what it saw
            self._fs.invalidate_cache()
        return dict(again(self._fs.info, self.address, self._path))

    def _version_of(self, found: dict[str, Any]) -> tuple[str, ...]:
        said = [f"{key}={found[key]}" for key in _VERSIONS if found.get(key) is not None]
        return (str(found.get("size")), *said[:2])


class RemoteRange(RangePayload):
    """`length` bytes at `offset` of an object, which must be the same as when it was opened."""

    def __init__(self, file: RemoteFile, offset: int, length: int) -> None:
        self.file = file
        self.offset = offset
        self._length = length

    @property
    def nbytes(self) -> int:
        return self._length

    @property
    def place(self) -> str:
        return "storage"

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def identity(self) -> object:
        return (self.file.address, self.offset, self._length)

    @property
    def version(self) -> tuple[str, ...]:
        """That of the object."""
        return self.file.version

    def part(self, offset: int, length: int) -> RemoteRange:
        """Some of these bytes."""
        return RemoteRange(self.file, self.offset + offset, length)

    def open(self) -> io.RawIOBase:
        """The object, to be read at several places; it is looked at again when that is closed."""
        return _ObjectReader(self.file)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises OSError where it cannot be read, EOFError where it is too short, UnreadableDataError if it changed."""
        end = self.offset + self._length
        starts = iter(range(self.offset, end, CHUNK))
        from concurrent.futures import Future, ThreadPoolExecutor  # for an address only

        waiting: deque[Future[bytes]] = deque()
        with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="proto_schema") as pool:
            try:
                for at in starts:
                    waiting.append(pool.submit(self.file.read, at, min(CHUNK, end - at)))
                    if len(waiting) > IN_FLIGHT:
                        yield from pieces(memoryview(waiting.popleft().result()), limit)
                while waiting:
                    yield from pieces(memoryview(waiting.popleft().result()), limit)
            finally:
                for future in waiting:
                    future.cancel()
        if self._length:
            self.file.expect_unchanged()


class _ObjectReader(io.RawIOBase):
    """An object as a file that is read at any place."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """UnreadableDataError if another object had the address by then."""
        looks = not self.closed and self._at > 0
        super().close()
        if looks:
            self._file.expect_unchanged()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(self._at, max(min(len(view), self._file.size - self._at), 0))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


class RemoteFolder(Folder):
    """Where the external data of a model in storage lies."""

    def __init__(self, address: Address) -> None:
        super().__init__(".")
        self.path = address
        self._files: dict[str, RemoteFile | OSError] = {}

    def look(self, location: str) -> None:
        if location not in self._files and not is_foreign(location):
            try:
                self._files[location] = RemoteFile(self.file(location))
            except OSError as error:  # of a file that nobody may ask for
                self._files[location] = error

    def file(self, location: str) -> str:
        return f"{self.path}/{location}"

    def is_current(self, location: str) -> bool:
        return False

    def _found(self, tensor: TensorProto, location: str) -> memoryview | RangePayload:
        self.look(location)
        found = self._files[location]
        if isinstance(found, RemoteFile):
            return found.range(0, found.size)
        kind = ExternalDataError if isinstance(found, FileNotFoundError) else UnreadableDataError
        raise kind(f"tensor {tensor.name or ''!r}: cannot open {shown(self.file(location))}: {found.strerror}")


def size_at(address: Address) -> int | None:
    """The size of an object; None where there is none."""
    try:
        return RemoteFile(address).size
    except (FileNotFoundError, IsADirectoryError):
        return None


def names_in(address: Address) -> list[str]:
    """The names of the objects in a folder; none where there is no folder. OSError where it cannot be looked at."""
    fs, path = _file_system(address)
    try:
        found = again(fs.ls, address, path, detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(
        {posixpath.basename(str(item).rstrip("/")) for item in found if str(item).strip("/") != path.strip("/")}
    )


def is_folder(address: Address) -> bool:
    """Whether there is something below an address."""
    fs, path = _file_system(address)
    return bool(again(fs.isdir, address, path))


def upload(
    address: Address,
    parts: Iterable[bytes | memoryview],
    size: int,
    told: Callable[[int], None],
    before: Callable[[], None] = lambda: None,
) -> None:
    """Writes an object of that size, which is visible when it is whole. OSError where that fails; nothing is visible.

    `told` hears how many bytes were taken, `before` is called when all are; what they raise ends the write.
    """
    fs, path = _file_system(address, skip_instance_cache=True)
    digest, is_sent = sha256(), False

    def write() -> None:
        nonlocal is_sent
        with fs.transaction, fs.open(path, "wb", block_size=max(PART, -(-size // MOST_PARTS))) as file:
            for part in parts:
                file.write(part)
                digest.update(part)
                told(len(part))
            before()
            is_sent = True

    try:
        once(write, address, "it cannot be written")
    except OSError:
        if not is_sent or not _appears(address, size, digest.hexdigest()):
            raise


def _appears(address: Address, size: int, digest: str) -> bool:
    """Whether the object of these bytes is there after all, or soon.

    A storage that takes long to join the parts may do so when its client has lost patience and asked again: the second
    request fails, since the upload is over, and the object is whole.
    """
    pause, seen = FIRST_PAUSE, None
    for _ in range(_LOOKS):
        with suppress(OSError, EOFError, UnreadableDataError):
            file = RemoteFile(address)
            if file.size == size and file.version != seen:
                seen, found = file.version, sha256()
                for chunk in file.range(0, size).chunks():
                    found.update(chunk)
                if found.hexdigest() == digest:
                    return True
        time.sleep(pause)
        pause *= 2
    return False


def remove(address: Address) -> None:
    """Removes an object of ours, if that is possible."""
    with suppress(Exception):
        fs, path = _file_system(address)
        fs.rm_file(path)


def again(function: Callable[..., Result], address: Address, *args: Any, **options: Any) -> Result:
    """What a function of a file system returns, tried again where that may help. OSError where it does not."""
    pause = FIRST_PAUSE
    for _ in range(TRIES - 1):
        try:
            return function(*args, **options)
        except _FINAL:
            break
        except Exception:
            time.sleep(pause)
            pause *= 2
    return once(lambda: function(*args, **options), address, "it cannot be read")


def once(function: Callable[[], Result], address: Address, what: str) -> Result:
    """What a function of a file system returns. OSError of the same kind, in words that hold no credentials."""
    try:
        return function()
    except (ExternalDataError, UnreadableDataError, EOFError):
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", shown(address)) from None
    except PermissionError:
        raise PermissionError(errno.EACCES, f"{what}: access is denied", shown(address)) from None
    except (IsADirectoryError, NotADirectoryError):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", shown(address)) from None
    except ImportError:
        scheme = address.partition("://")[0]
        raise _not_installed(address, f"the file system for {scheme}:// is not installed") from None
    except NotImplementedError:
        raise OSError(errno.EROFS, f"{what}: its file system cannot do that", shown(address)) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise OSError(error.errno or errno.EIO, f"{what}: {reason}", shown(address)) from None
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise OSError(errno.EIO, f"{what}: {type(error).__name__}", shown(address)) from None
    except Exception as error:  # of any library that fsspec calls
        raise OSError(errno.EIO, f"{what}: {type(error).__name__}", shown(address)) from None


def _not_installed(address: Address, what: str) -> OSError:
    return OSError(
        errno.EPROTONOSUPPORT,
        f"{what}: install fsspec (the extra remote) and the package of that storage (s3fs, gcsfs, ...)",
        shown(address),
    )


def _file_system(address: Address, **options: Any) -> tuple[Any, str]:
    """The file system of an address, and the path in it. OSError where none is known or installed."""
    scheme = address.partition("://")[0]
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise _not_installed(address, "addresses need fsspec") from None
    known = {*fsspec.available_protocols(), *fsspec.registry}
    if any(part not in known for part in scheme.split("::")):
        raise _not_installed(address, f"no file system for {scheme}:// is known")
    made: tuple[Any, str] = once(
        lambda: fsspec.core.url_to_fs(address, use_listings_cache=False, **options), address, "it cannot be opened"
    )
    return made
