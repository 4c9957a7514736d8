"""`python -m fuzz all --minutes N`: every harness in turn, each for its share of the time.

The shares are in proportion to the part of its goal that each lacks; where nothing is missing, all have the same. An
interrupt ends the run with the lines so far.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from fuzz import counts
from fuzz.engine import Session, plain
from fuzz.harness import Harness


def shares(names: list[str], done: counts.Counts) -> dict[str, float]:
    """Which part of the time each harness gets; together 1."""
    goals = {name: counts.goal_of(name) for name in names}
    missing = {name: max(goal - counts.total(done, name), 0) / goal for name, goal in goals.items()}
    whole = sum(missing.values())
    return {name: part / whole if whole else 1 / len(names) for name, part in missing.items()}


def run(harnesses: Mapping[str, Harness], given: list[str]) -> int:
    """The exit status: 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzz all", description="Run every harness in turn.")
    parser.add_argument("--minutes", type=float, required=True, help="for all of them together")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the time, unless it is given")
    parser.add_argument("--record", action="store_true", help="add what was done to the counts")
    parser.add_argument("--counts", type=Path, default=counts.COUNTS, help="the file of the counts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "findings", help="the folder for findings")
    asked = parser.parse_args(given)
    found = 0
    for name, share in shares(list(harnesses), counts.read(asked.counts)).items():
        if not share:
            continue
        session = Session(harnesses[name], None, share * asked.minutes * 60, asked.out)
        stopped = False
        try:
            plain(session, asked.seed)
        except KeyboardInterrupt:
            stopped = True
        print(session.summary(), flush=True)
        found += len(session.findings)
        if asked.record:
            counts.record(name, session.counted, session.taken, len(session.findings), asked.seed, asked.counts)
        if stopped:
            break
    return int(bool(found))
