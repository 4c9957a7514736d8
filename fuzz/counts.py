"""How much each harness has done: one file, `counts.json`, that runs add to and that the docs are written from.

Invariant: a run adds what it did and nothing else. A lock on the folder makes two runs that end at once take turns, and
the file appears whole or not at all. `open` is set back by hand, when what was found is fixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TypedDict

COUNTS = Path(__file__).parent / "counts.json"
GOALS = {"decoder": 50_000_000, "differential": 10_000_000, "folders": 200_000}
GOAL = 1_000_000  # of each other harness


class Row(TypedDict):
    """What one harness has done with the present code; `last` is the run that ended last."""

    executions: int
    seconds: int
    findings: int
    open: int
    last_date: str
    last_seed: str


class Counts(TypedDict):
    """`earlier`: executions with code that has changed since, by the name of a harness or of several together."""

    earlier: dict[str, int]
    present: dict[str, Row]


def goal_of(name: str) -> int:
    """How many executions (steps of `folders`, graphs of `meaning`) a harness is to reach."""
    return GOALS.get(name, GOAL)


def read(path: Path = COUNTS) -> Counts:
    """All counts."""
    if not path.exists():
        return {"earlier": {}, "present": {}}
    found: Counts = json.loads(path.read_text())
    return found


def total(counts: Counts, name: str) -> int:
    """What a harness has done in all; what several did together counts for none of them."""
    row = counts["present"].get(name)
    return counts["earlier"].get(name, 0) + (row["executions"] if row else 0)


def record(name: str, executions: int, seconds: float, findings: int, seed: object, path: Path = COUNTS) -> None:
    """Adds a run."""
    with _locked(path.parent):
        counts = read(path)
        old = counts["present"].get(name)
        counts["present"][name] = {
            "executions": executions + (old["executions"] if old else 0),
            "seconds": round(seconds) + (old["seconds"] if old else 0),
            "findings": findings + (old["findings"] if old else 0),
            "open": findings + (old["open"] if old else 0),
            "last_date": date.today().isoformat(),
            "last_seed": str(seed),
        }
        made = path.with_name(f"{path.name}.new")
        made.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
        os.replace(made, path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; where the system has no such locks, whoever comes."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
