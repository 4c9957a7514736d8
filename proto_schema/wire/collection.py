"""Python's cyclic garbage collector, silent while many objects are made that all stay.

Each of its passes walks everything that is alive, so that its cost grows faster than the graph does.  What is made here
holds hardly any cycles.  Where there is much of it, all is taken for old afterwards, because the first pass would
otherwise walk it as new; what cycles there are go with the next pass over the old.  Little is left to the passes over
what is new, so that a process which makes many small models keeps none of their cycles.  Two threads do no harm: the
one that found the collector running starts it again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MUCH = 100_000  # objects that a pass would walk as new: some 5 ms


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
        # what a program froze stays frozen; the count of it is asked last, because that walks all of it
        if gc.get_count()[0] > MUCH and not gc.get_freeze_count():
            gc.freeze()  # everything is moved behind the generations, and from there into the oldest one
            gc.unfreeze()
        gc.enable()
