"""How a file shows that it was written here, and for which model.

A data file ends in a mark: a line of ASCII text after the last tensor, with the number of bytes before it, its own name
and that of the model's file, or those of all models that were written together with it. Readers of external data look
at ranges, so it is in nobody's way. The journal of an interrupted save begins with such a line. Only what bears the
mark of a model is replaced or removed with that model: what a model says of files is no reason to touch them. A copy
under another name bears a mark that is not its own, so it belongs to who made it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

_DATA = b"\n#proto_schema data, "
_JOURNAL = b"#proto_schema journal, of "
LONGEST = 8192  # bytes that are searched: two names of at most 255 bytes, with ten characters for each here


def mark(name: str, models: Sequence[str], size: int) -> bytes:
    """The mark of a data file of that name with `size` bytes of data, for the models in files of the other names.

    Where they are too many for a mark, it has the first ones.
    """
    line = _DATA + b"%d bytes, %s of %s" % (size, _plain(name), _plain(models[0]))
    for model in models[1:]:
        longer = line + b", " + _plain(model)
        if len(longer) >= LONGEST:
            break
        line = longer
    return line + b"\n"


def journal_mark(model: str) -> bytes:
    """The first line of a journal, for the model in a file of this name."""
    return _JOURNAL + _plain(model) + b"\n"


def is_marked(path: str, names: Iterable[str], model: str) -> bool:
    """Whether the file at `path` is regular and ends in the mark of one of the names, for that model or several."""
    with suppress(OSError):
        size, found = _marked(path)
        return any(_names(found, size, name, model) for name in names)
    return False


def is_mark_of(tail: bytes, start: int, name: str, model: str) -> bool:
    """Whether a file of that name, whose last bytes from `start` on are `tail`, ends in its mark for that model."""
    size = size_without_mark(tail, start)
    return _names(tail[size - start :], size, name, model)


def _names(found: bytes, size: int, name: str, model: str) -> bool:
    start = _DATA + b"%d bytes, %s of " % (size, _plain(name))
    if not (found.startswith(start) and found.endswith(b"\n")):
        return False
    return _plain(model) in found[len(start) : -1].split(b", ")


def size_of_data(path: str) -> int:
    """How many bytes of the regular file at `path` come before a mark, if it has one. OSError for another file."""
    return _marked(path)[0]


def size_without_mark(tail: bytes, start: int) -> int:
    """How many bytes of a file come before its mark; `tail` are the last ones, from `start` on. A mark is one line."""
    at = tail.rfind(_DATA)
    line = tail[at + 1 :] if at >= 0 else b""
    is_mark = line.startswith(b"%s%d bytes" % (_DATA[1:], start + at)) and line.find(b"\n") == len(line) - 1
    return start + (at if is_mark else len(tail))


def _marked(path: str) -> tuple[int, bytes]:
    """(the size of the data, the mark behind it or nothing)."""
    size = _regular_size(path)
    start = max(size - LONGEST, 0)
    tail = _read(path, start)
    at = tail.rfind(_DATA)
    at = at if tail[at:].startswith(b"%s%d bytes" % (_DATA, start + at)) else len(tail)
    return start + at, tail[at:]


def is_journal(path: str, model: str) -> bool:
    """Whether the file at `path` is a journal for that model."""
    with suppress(OSError):
        _regular_size(path)
        return _read(path, 0).startswith(journal_mark(model))
    return False


def _regular_size(path: str) -> int:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    return status.st_size


def _read(path: str, start: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        return file.read(LONGEST)


def _plain(name: str) -> bytes:
    """The name in printable ASCII without spaces and line ends, another for each name."""
    return name.encode("unicode_escape").replace(b" ", b"\\x20")
