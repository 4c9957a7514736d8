"""Work on pieces of data by several threads, in order: numpy lets go of the interpreter while it computes.

The results come in the order of the pieces, so bytes do not depend on the number of threads, and few pieces are in
memory at once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

_AHEAD = 2  # pieces for each thread that are on the way


def in_order(
    items: Iterable[tuple[memoryview, int]], work: Callable[[memoryview, int], Result], threads: int | None
) -> Iterator[Result]:
    """`work` of each item, in the order of the items, with so many threads at once (None: one a core)."""
    count = threads or cores()
    if count == 1:
        for item in items:
            yield work(*item)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="proto_schema") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, *item))
                if len(waiting) > count * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
