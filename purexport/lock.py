"""One export at a time.

torch's own capture is not thread-safe: the warnings filter, the switch of the fused attention, and everything that
torch.export and our own patches replace belong to the process.  So an export holds one lock for the whole process.  The
lock is reentrant, for an export inside an export.  Only exports wait; models that run in other threads do not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of exports, of which the process has one."""
    with _LOCK:
        yield
