"""The names of the files that a save makes beside its target, and how to know them again.

A temporary file is `.NAME.RANDOM.tmp`: NAME is that of the target, and the second half of RANDOM is a checksum of NAME
and of the first half. So nobody has such a file by chance, and what a save that was killed left behind is recognized.
A data file whose name is taken is called `NAME.RANDOM` until it can have it.
Names have at most 255 bytes, as file systems want it: a longer one is cut, and a checksum of the whole is put in.
"""

from __future__ import annotations

import os
from binascii import crc32

LONGEST = 255
PARTIAL = ".partial"
JOURNAL = ".partial.journal"
"""The suffixes of a data file that an interrupted save can continue, and of its journal."""


def fitted(stem: str, suffix: str) -> str:
    """`stem` and `suffix` together, where they fit into a file's name; else a cut stem with a checksum of the whole."""
    if len(os.fsencode(stem + suffix)) <= LONGEST:
        return stem + suffix
    whole = os.fsencode(stem)
    end = f"-{crc32(whole):08x}{suffix}"
    return whole[: LONGEST - len(os.fsencode(end))].decode("utf-8", "ignore") + end


def temporary_name(target: str) -> str:
    """A fresh name in the folder of `target`, hidden."""
    folder, name = os.path.split(target)
    return os.path.join(folder, _temporary(name, os.urandom(4).hex()))


def is_temporary(name: str, target: str) -> bool:
    """Whether this is the name of a temporary file for a target of that name."""
    random = name[-len("????????????????.tmp") :][:8]
    return name.endswith(".tmp") and name == _temporary(target, random)


def is_any_temporary(name: str) -> bool:
    """Whether this is the name of a temporary file, whatever its target is called; not of one whose name was cut."""
    return name.startswith(".") and is_temporary(name, name[1 : -len(".????????????????.tmp")])


def fresh_name(name: str) -> str:
    """Another name for a data file, for the time until it can have this one."""
    return _fresh(name, os.urandom(4).hex())


def wanted_name(name: str) -> str | None:
    """The name that a file of a fresh name was to have; None for another name."""
    wanted = name[: -len(".????????????????")]
    return wanted if wanted and name == _fresh(wanted, name[len(wanted) + 1 :][:8]) else None


def _fresh(name: str, random: str) -> str:
    return fitted(name, f".{random}{crc32(os.fsencode(name + random)):08x}")


def lock_name(target: str) -> str:
    """The path of the lock of a target; a path that ends in a separator stands for the folder itself."""
    folder, name = os.path.split(target)
    return os.path.join(folder, fitted(f".{name}" if name else "", ".proto_schema-lock"))


def _temporary(target: str, random: str) -> str:
    return fitted(f".{target}", f".{random}{crc32(os.fsencode(target + random)):08x}.tmp")


def data_names(name: str, count: int) -> list[str]:
    """Names of data files: `name` itself for one, numbered before its last suffix for more."""
    if count <= 1:
        return [fitted(name, "")] * count
    stem, suffix = os.path.splitext(name)
    return [fitted(stem, f"-{index:05}-of-{count:05}{suffix}") for index in range(1, count + 1)]
