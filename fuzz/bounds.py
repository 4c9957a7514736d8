"""What one execution on files may cost, and where its files lie."""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from fuzz.harness import Violation

SLOWEST = 2.0  # seconds of this thread's time, for some kilobytes
PER_BYTE, SLACK = 512, 1 << 19
MEASURED = 8  # one input in so many has its memory measured, which takes long


def folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: a disk may take 10 ms to write a small file anew."""
    return tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


@contextmanager
def bounded(data: bytes, size: int) -> Iterator[None]:
    """Violation where what is inside takes too long for the input `data`, or too much memory for a file of `size`."""
    measured = zlib.crc32(data) % MEASURED == 0
    started = time.thread_time()
    if measured:
        tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1] if measured else 0
        tracemalloc.stop()
    if peak > PER_BYTE * size + SLACK:
        raise Violation(f"it takes more than {PER_BYTE} bytes of memory a byte of the file")
    if time.thread_time() - started > SLOWEST:
        raise Violation(f"it takes more than {SLOWEST} seconds")
