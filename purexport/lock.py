"""One export at a time.

torch's own capture is not made for threads: the tracer's table of module scopes, the warnings filter, the switch of the
fused attention and what torch.export patches belong to the process.  So an export holds one lock for the whole process,
which an export inside an export passes.  Only exports wait; models that run in other threads do not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Hold the process's lock of exports."""
    with _LOCK:
        yield
