"""Python's cyclic garbage collector, silent while many objects are made that all stay.

Each of its passes walks everything that is alive, so that its cost grows faster than the graph does.  What is made here
holds hardly any cycles; what there is goes at the next pass.  Two threads do no harm: the one that found the collector
running starts it again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection(worth_it: bool = True) -> Iterator[None]:
    """The collector rests inside, when that is worth it."""
    if not (worth_it and gc.isenabled()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
