"""numpy's files: .npy holds one array, .npz is a zip archive of such files.

Files come from anywhere. The header of an array is a Python literal, of which three items are taken by their form:
nothing is evaluated. A number in it leads to an allocation only if the file has that many bytes, packed ones unpacked.
Source: the format as numpy.lib.format documents it, versions 1 to 3.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO

import numpy as np

__all__ = ["MAGIC", "NpyError", "header", "read"]

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000
_LONGEST_SHOWN = 200
_ITEMS = (
    re.compile(r"""(['"])descr\1 *: *(['"])([<>|=]?[a-zA-Z][0-9]+)\2 *(?:,|(?=\}))"""),
    re.compile(r"""(['"])fortran_order\1 *: *(True|False) *(?:,|(?=\}))"""),
    re.compile(r"""(['"])shape\1 *: *\(([0-9L, ]{0,400})\) *(?:,|(?=\}))"""),
)
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # what numpy writes
_ENCRYPTED = 1
_MOST_AXES = 32
_AGAIN = "write it again with numpy.savez"
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


class NpyError(ValueError):
    """A file that is none of numpy's, or is damaged; the text says what, and what to do."""


def header(fetch: Callable[[int, int], bytes], size: int) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """(type, whether the first axis runs fastest, shape, where the data begins) of an array in `size` bytes.

    `fetch(offset, count)` gives bytes of it. Raises NpyError.
    """
    intro = fetch(0, min(size, 12))
    if not intro.startswith(MAGIC) or len(intro) < 10 or intro[6] not in (1, 2, 3):
        raise NpyError("it does not begin as numpy's versions 1 to 3 of the format do")
    width = 2 if intro[6] == 1 else 4
    length = int.from_bytes(intro[8 : 8 + width], "little")
    if length > min(LONGEST_HEADER, size - 8 - width):
        raise NpyError(f"its header would have {length} bytes")
    text = fetch(8 + width, length).decode("latin-1")
    return *_meaning(text), 8 + width + length


def _meaning(text: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    found = []
    rest = text
    shown = repr(" ".join(text[:_LONGEST_SHOWN].split()))
    for item in _ITEMS:
        match = item.search(rest)
        if match is None:
            raise NpyError(f"its header {shown} does not describe an array of numbers")
        found.append(match.group(match.lastindex or 0))
        rest = rest[: match.start()] + rest[match.end() :]
    if not re.fullmatch(r"\{ *\} *\n?", rest):
        raise NpyError(f"its header {shown} has more than a type, an order and a shape")
    descriptor, order, sizes = found
    try:
        kind = np.dtype(descriptor)
        shape = tuple(int(size) for size in sizes.replace("L", "").split(",") if size.strip())
    except (TypeError, ValueError):
        raise NpyError(f"its type {descriptor[:40]!r} or its shape ({sizes}) is none") from None
    return kind, order == "True", shape


def read(path: str | os.PathLike[str], most: int) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """The array of a .npy file, or the arrays of an .npz file by name, of at most so many bytes together.

    Raises NpyError for what is no such file, and OSError for one that cannot be read; a pipe is not waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NpyError("it is a pipe, a socket or a device, and not a file")
        if status.st_size > most:
            raise NpyError(f"it has {status.st_size} bytes, and the budget is {most}; see --budget")
        if file.read(2) == b"PK":
            return _archive(file, most)
        file.seek(0)
        return _array(file.read())


def _array(data: bytes) -> np.ndarray[Any, Any]:
    kind, backwards, shape, start = header(lambda offset, count: data[offset : offset + count], len(data))
    needed = kind.itemsize * prod(shape)
    if needed > len(data) - start:
        raise NpyError(f"its header asks for {needed} bytes of data, and {len(data) - start} follow; {_AGAIN}")
    if len(shape) > _MOST_AXES:
        raise NpyError(f"it has {len(shape)} axes, and numpy has at most {_MOST_AXES}")
    return np.frombuffer(data, kind, prod(shape), start).reshape(shape, order="F" if backwards else "C")


def _archive(file: BinaryIO, most: int) -> dict[str, np.ndarray[Any, Any]]:
    found: dict[str, np.ndarray[Any, Any]] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                where = f"its array {name[:40]!r}"
                if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
                    raise NpyError(f"{where} is encrypted, or packed as numpy packs none; {_AGAIN}")
                if entry.file_size > most:
                    raise NpyError(f"{where} has {entry.file_size} bytes, and {most} are left of the budget")
                with archive.open(entry) as member:
                    data = member.read(entry.file_size + 1)
                most -= len(data)
                try:
                    found[name] = _array(data)
                except NpyError as error:
                    raise NpyError(f"{where}: {error}") from None
    except NpyError:
        raise
    except _DAMAGED:
        raise NpyError(f"the archive is damaged; {_AGAIN}") from None
    return found
