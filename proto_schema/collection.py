"""Python's cyclic garbage collector, silent while many objects are made that all stay.

Each of its passes walks everything that is alive, so that its cost grows faster than the graph does.  What is made here
holds hardly any cycles.  All of it is taken for old afterwards, because the first pass would otherwise walk it as new;
what cycles there are go with the next pass over the old.  Two threads do no harm: the one that found the collector
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
        if not gc.get_freeze_count():
            gc.freeze()  # everything is moved behind the generations, and from there into the oldest one
            gc.unfreeze()
        gc.enable()
