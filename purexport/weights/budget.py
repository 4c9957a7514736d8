"""How much memory the objects may take that a pickle becomes: as for messages, a base and a rate for each byte of it.

An opcode of one byte becomes an object of fifty to a hundred. So what is made is counted before it is made, by sizes
that are about those of CPython; what is let go is not counted back, with one exception, the marks on the stack. Pickles
of real checkpoints need half of the rate. The other headers (JSON, the directory of an archive, an array's) need no
count: what is made of a byte of theirs takes less than the rate.
"""

from __future__ import annotations

BASE = 1 << 28
RATE = 32  # for each byte that is read
_OVERHEAD = 8  # of these, for the bytes themselves and the texts cut from them, of up to 4 bytes a character
ROW = 480  # a tensor by its name: `Stored`, its range of the file, its places in the mappings
TOO_MUCH = "its objects need more memory than those of any checkpoint of its size: it is hostile or damaged"


class Budget:
    """Bytes of memory that may still be taken. The files of one checkpoint share it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BASE

    def earn(self, size: int) -> None:
        """So many bytes of pickles were read."""
        self.left += (RATE - _OVERHEAD) * size
