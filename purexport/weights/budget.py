"""How much memory the objects may take that a header becomes: as for messages, a base and a rate for each byte read.

A pickle of one byte an opcode, or JSON of empty objects, becomes objects of fifty to a hundred times its size. So what
is made is counted before it is made, by sizes that are at least those of CPython. Headers of real checkpoints need a
fraction of the rate.
"""

from __future__ import annotations

BASE = 1 << 28
RATE = 32  # for each byte that is read
_OVERHEAD = 8  # of these, for the bytes themselves and the texts cut from them, of up to 4 bytes a character
ROW = 1000  # a tensor by its name: `Stored`, its range of the file, its places in the mappings
TOO_MUCH = "its objects need more memory than those of any checkpoint of its size: it is hostile or damaged"


class Budget:
    """Bytes of memory that may still be taken. The files of one checkpoint share it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BASE

    def earn(self, size: int) -> None:
        """So many bytes of a header were read."""
        self.left += (RATE - _OVERHEAD) * size
