"""What it costs to quantize a large model from storage to storage: bytes, requests, and what bounds the time.

    python -m tools.storage_cost            # the table of docs/large-models.md
    python -m tools.storage_cost --rate 400 --workers 4

The counts follow from how the bytes pass: a tensor is read in pieces of `CHUNK` bytes and its object is looked at once
after it; a data file is uploaded in parts of `PART` bytes, or of more where it would need too many. The time is the
longest of reading, writing and computing, each shared by all workers: the rates are what you measure, not what is known
here. `tests/proto_schema/test_storage_cost.py` counts the requests of a small model, and compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from proto_schema.external.addresses import MOST_PARTS, PART
from proto_schema.external.payload import CHUNK

SHARD = 5 * 10**9
BLOCK = 32  # elements that share a scale of two bytes: int4 has 4.5 bits an element


@dataclass(frozen=True)
class Layout:
    """The matrices of a model: (how many, elements of each), in two bytes an element; `kept` are not quantized."""

    name: str
    matrices: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...] = ()

    @property
    def parameters(self) -> int:
        """All elements."""
        return sum(count * size for count, size in (*self.matrices, *self.kept))


def dense(name: str, layers: int, hidden: int, inner: int, keys: int, words: int) -> Layout:
    """A decoder as Llama's: four matrices of attention, three behind it, and the table of words twice."""
    attention = ((2 * layers, hidden * hidden), (2 * layers, hidden * keys))
    return Layout(name, (*attention, (3 * layers, hidden * inner), (1, hidden * words)), ((1, hidden * words),))


def experts(name: str, layers: int, hidden: int, inner: int, count: int, words: int) -> Layout:
    """A decoder with a mixture of experts in each layer, whose three kinds of matrices are one tensor each."""
    attention = (4 * layers, hidden * hidden)
    return Layout(name, (attention, (3 * layers, count * hidden * inner), (1, hidden * words)), ((1, hidden * words),))


LAYOUTS = [
    dense("7B", 32, 4096, 11008, 4096, 32000),
    dense("70B", 80, 8192, 28672, 1024, 128256),
    dense("405B", 126, 16384, 53248, 1024, 128256),
    experts("1T", 61, 7168, 2048, 370, 163840),
]


@dataclass(frozen=True)
class Cost:
    """Bytes and requests of one run; `pieces` are the largest parts that go to one worker as a whole."""

    read: int
    written: int
    reads: int
    writes: int
    pieces: int

    def seconds(self, workers: int, network: float, computing: float) -> tuple[float, str]:
        """(how long it takes at least, what bounds it) with so many workers; rates in bytes a second and worker."""
        hands = min(workers, self.pieces)
        times = {
            "reading": self.read / network / hands,
            "writing": self.written / network / hands,
            "computing": self.read / computing / hands,
        }
        slowest = max(times, key=lambda name: times[name])
        return times[slowest], slowest


def cost(layout: Layout, shard: int = SHARD, passes: int = 1) -> Cost:
    """What int4 of a model costs; `passes` is 2 for types with one scale of a whole column or weight."""
    read = reads = 0
    sizes: list[int] = []
    for count, elements in layout.matrices:
        read += count * passes * 2 * elements
        reads += count * passes * (ceil(2 * elements / CHUNK) + 1)
        sizes += count * [elements // 2, elements // BLOCK * 2]
    for count, elements in layout.kept:
        read += count * 2 * elements
        reads += count * (ceil(2 * elements / CHUNK) + 1)
        sizes += count * [2 * elements]
    files = list(_files(sizes, shard))
    return Cost(read, sum(files), reads, sum(_requests(size) for size in files), len(files))


def _files(sizes: list[int], shard: int) -> Iterator[int]:
    """The sizes of the data files, as `datafiles.plan` fills them, without gaps and marks."""
    held = 0
    for size in sizes:
        if held and held + size > shard:
            yield held
            held = 0
        held += size
    yield held


def _requests(size: int) -> int:
    """An upload: its beginning, its parts, and its end."""
    return 2 + ceil(size / max(PART, ceil(size / MOST_PARTS)))


def lines(network: float = 1e9, computing: float = 8e8, workers: int = 16) -> Iterator[str]:
    """The table, as the page has it."""
    hands = f"1 worker | {workers} workers"
    yield f"| model | read | written | GET and HEAD | PUT and POST | data files | {hands} | bound |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for layout in LAYOUTS:
        found = cost(layout)
        alone, _ = found.seconds(1, network, computing)
        together, bound = found.seconds(workers, network, computing)
        yield (
            f"| {layout.name} | {found.read / 1e9:,.0f} GB | {found.written / 1e9:,.0f} GB | {found.reads:,} | "
            f"{found.writes:,} | {found.pieces} | {_time(alone)} | {_time(together)} | {bound} |"
        )


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"


def main() -> int:
    """Print the table for these rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=float, default=1000, help="MB a second that a worker reads, and writes")
    parser.add_argument("--rate", type=float, default=800, help="MB of the source a second that a worker quantizes")
    parser.add_argument("--workers", type=int, default=16)
    given = parser.parse_args()
    sys.stdout.write("\n".join(lines(given.network * 1e6, given.rate * 1e6, given.workers)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
