"""Invariant: the steps of every reader grow with the file, whatever is repeated in it: at most as n log n.

Each pattern is made at three sizes, each twice the one before, and given to each reader. From the second size to the
third at most STEEPEST times as many steps may be added as from the first to the second: linear is 2, n log n little
more, quadratic 4. What looks steep is measured again at larger sizes, because readers take short ways for short
messages. `fuzz.steps` counts the steps, in a process that has imported none of our packages before:

    python -m fuzz.counted --size 64 --part 0/40

prints a line for each pattern and reader that is too steep, and how many held. `--part K/M` takes every M-th, and those
of `NAMED`; `--part named` takes these alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzz.steps import Steps, counting

STEEPEST = 2.5
LEAST = 64  # steps that are no growth
AGAIN = (4, 16)
MEMORY = "/dev/shm"
MOST = 1_200_000  # steps after which nothing is measured again

NAMED = [
    *[(pattern, "salvage") for pattern in ("cut off in a node", "nodes in names", "almost fields", "groups left open")],
    *[(pattern, "salvage") for pattern in ("every second node broken", "zeros inside")],
    *[(pattern, "diff") for pattern in ("nodes of two operators", "nodes of many operators")],
    ("chain", "diff without names"),
    ("large dims", "html"),
    ("merged graphs", "edit --rename-value"),
    ("graphs in many nodes", "edit of all values"),
    ("chain", "edit of all values"),
    ("metadata", "edit of much metadata"),
    ("fan out", "edit of many outputs"),
    ("fan out", "extract of all values"),
    ("tensors at one place", "stat --duplicates"),
    ("tensors that overlap", "stat --duplicates"),
    *[("tensors at one place", reader) for reader in ("html", "html --histograms all")],
    *[("tensors that overlap", reader) for reader in ("html", "diff without names", "share")],
    *[(pattern, "convert") for pattern in ("fan out", "large dims", "names of sizes", "sums of sizes")],
    *[(pattern, "infer") for pattern in ("values of many sizes", "more and more axes", "joined values")],
    *[("calls of one function", reader) for reader in ("check_model", "run")],
    ("inputs", "run"),
    ("required attributes", "check_model"),
]
"""Pattern and reader of what was quadratic once: these are in every part."""

EXCUSED = {
    ("tensors that overlap", "plan, save"): "each tensor is written, so that the files are as large as all together",
    ("tensors that overlap", "extract --tensors"): "as above",
    ("tensors that overlap", "quantize"): "as above: each is another tensor of the result",
    ("tensors at one place", "extract --tensors"): "as above: the format has no tensors that share bytes",
    ("joined values", "run"): "each value holds all before it: the model computes that much, which was asked for",
    ("tensors that overlap", "html --histograms all"): "all values of each tensor are read, which was asked for",
}
"""Pattern and reader: why the steps are not in proportion to the model's file."""


def steep(counts: Sequence[int]) -> bool:
    """Whether the counts at three sizes, each twice the one before, grow faster than n log n."""
    small, middle, large = counts
    return large - middle > STEEPEST * max(middle - small, 0) + LEAST


class Bench:
    """Patterns and readers in a process that counts, with the files of one model."""

    def __init__(self, steps: Steps, place: Path) -> None:
        from fuzz.patterns import PATTERNS
        from fuzz.readers import DOCUMENTED, READERS, Files

        self.patterns = PATTERNS
        self.readers = READERS
        self._documented = DOCUMENTED
        self._files = Files(place)
        self._steps = steps

    def counts(self, pattern: str, reader: str, size: int) -> list[int]:
        """The steps at this size, twice and four times of it."""
        self._count(pattern, reader, 4)  # what is made once in a process is made now
        return [self._count(pattern, reader, size << double) for double in range(3)]

    def _count(self, pattern: str, reader: str, size: int) -> int:
        self._files.write(self.patterns[pattern](size))
        before = self._steps.count
        with suppress(*self._documented):
            self.readers[reader](self._files)
        return self._steps.count - before


def found(bench: Bench, size: int, chosen: Callable[[str, str], bool]) -> Iterator[tuple[str, str, list[int], bool]]:
    """(pattern, reader, counts, whether they are steep) for what is chosen."""
    for pattern in bench.patterns:
        for reader in bench.readers:
            if (pattern, reader) in EXCUSED or not chosen(pattern, reader):
                continue
            counts = bench.counts(pattern, reader, size)
            for again in AGAIN:
                if steep(counts) and counts[-1] < MOST:
                    counts = bench.counts(pattern, reader, again * size)
            yield pattern, reader, counts, steep(counts)


def in_part(text: str) -> Callable[[str, str], bool]:
    """`0/40`: one pair of pattern and reader in forty, by their names; `named`: none but those of the table."""
    named = set(NAMED)
    if text == "named":
        return lambda *pair: pair in named
    part, of = map(int, text.split("/"))
    return lambda *pair: pair in named or zlib.crc32(" ".join(pair).encode()) % of == part


def main(arguments: list[str] | None = None) -> int:
    """Counts and prints; 1 if something is steep."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.counted", description="Count the steps of readers.")
    parser.add_argument("--size", type=int, default=64, help="of what is repeated; twice and four times it follow")
    parser.add_argument("--part", default="0/1", metavar="K/M", help="every M-th pair of pattern and reader, or: named")
    parser.add_argument("--pattern", action="append", help="only this one (may be given again)")
    parser.add_argument("--reader", action="append", help="only this one (may be given again)")
    parser.add_argument("--show", action="store_true", help="print the counts of what holds, too")
    asked = parser.parse_args(arguments)
    part = in_part(asked.part)

    def chosen(pattern: str, reader: str) -> bool:
        wanted: list[tuple[Any, str]] = [(asked.pattern, pattern), (asked.reader, reader)]
        return all(not names or name in names for names, name in wanted) and part(pattern, reader)

    held = broken = 0
    with counting() as steps, tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as place:
        for pattern, reader, counts, is_steep in found(Bench(steps, Path(place)), asked.size, chosen):
            broken += is_steep
            held += not is_steep
            if is_steep or asked.show:
                print(f"{'STEEP' if is_steep else 'holds'} {pattern} | {reader} | {counts}", flush=True)
    print(f"{held} held, {broken} are too steep", flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    raise SystemExit(main())
