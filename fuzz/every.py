"""`python -m fuzz all --minutes N`: every harness in turn, each for its share of the time.

The shares are in proportion to what is missing to the goals, in seconds at the rates of before; where nothing is
missing, all have the same. An interrupt ends the run with the lines so far.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from fuzz import counts
from fuzz.engine import Session, plain
from fuzz.harness import Harness

USUAL_RATE = 500.0  # executions a second of a harness that has no count yet


def shares(names: list[str], done: counts.Counts) -> dict[str, float]:
    """Which part of the time each harness gets; together 1."""
    missing = {}
    for name in names:
        row = done["present"].get(name)
        rate = row["executions"] / row["seconds"] if row and row["seconds"] and row["executions"] else USUAL_RATE
        missing[name] = max(counts.goal_of(name) - counts.total(done, name), 0) / rate
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
