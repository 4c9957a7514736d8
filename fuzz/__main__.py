"""`python -m fuzz HARNESS --seconds N [--runs N] [--seed S] [--record]`, or `all --minutes N`, or `programs`.

The exit status is 0 without findings, 1 with, 2 if misused.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fuzz import (
    checker,
    checkpoints,
    codecs,
    counts,
    decoder,
    differential,
    every,
    external,
    growth,
    inspector,
    messages,
    tools,
)
from fuzz.engine import Session, has_atheris, outcome, plain
from fuzz.folders import harness as folders
from fuzz.meaning import harness as meaning

_SINGLE = (decoder, differential, codecs, messages, growth, external, inspector, tools, checker, folders, meaning)
HARNESSES = {harness.name: harness for harness in (*(module.HARNESS for module in _SINGLE), *checkpoints.HARNESSES)}


def main(arguments: list[str] | None = None) -> int:
    """Runs one harness, or replays a file through it."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["programs"]:
        return programs(given[1:])
    if given[:1] == ["all"]:
        return every.run(HARNESSES, given[1:])
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz what reads files.")
    parser.add_argument(
        "harness", choices=HARNESSES, help="; ".join(f"{h.name}: {h.invariant}" for h in HARNESSES.values())
    )
    parser.add_argument("--seconds", type=float, help="stop after this time (60 where neither limit is given)")
    parser.add_argument("--runs", type=int, help="stop after so many executions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="plain mutation, even where atheris is installed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "findings", help="the folder for findings")
    parser.add_argument("--record", action="store_true", help="add what was done to the counts")
    parser.add_argument("--counts", type=Path, default=counts.COUNTS, help="the file of the counts")
    parser.add_argument("--replay", type=Path, help="run this one file instead")
    asked = parser.parse_args(given)
    harness = HARNESSES[asked.harness]
    if asked.replay:
        data = asked.replay.read_bytes()
        word, broken = outcome(harness, data)
        for line in harness.told(data) if harness.told else []:
            print(line)
        print(f"FINDING {broken}" if broken else f"holds: {word}")
        return int(bool(broken))
    seconds = 60.0 if asked.seconds is None and asked.runs is None else asked.seconds
    session = Session(harness, asked.runs, seconds, asked.out)
    if has_atheris() and not (asked.plain or harness.timed):
        from fuzz import guided

        guided.run(session, asked.seed, finish)
    try:
        plain(session, asked.seed)
    except KeyboardInterrupt:
        print("interrupted")
    if asked.record:
        counts.record(harness.name, session.counted, session.taken, len(session.findings), asked.seed, asked.counts)
    return finish(session)


def programs(given: list[str]) -> int:
    """Random torch programs on every route (docs/development/fuzzing.md); the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz programs", description="Export random torch programs.")
    parser.add_argument("--seconds", type=float, help="stop after this time (60 where neither limit is given)")
    parser.add_argument("--runs", type=int, help="stop after so many programs")
    parser.add_argument("--seed", default="0", help="a text; one with a colon and a number is that one program")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "findings", help="the folder for findings")
    parser.add_argument("--axes", type=int, choices=range(1, 5), help="dynamic axes of each program, at four sizes")
    asked = parser.parse_args(given)
    from fuzz.programs.session import session

    seconds = 60.0 if asked.seconds is None and asked.runs is None else asked.seconds
    return session(asked.seed, seconds, asked.runs, asked.out, asked.axes)


def finish(session: Session) -> int:
    """Prints the session's line; the exit status."""
    print(session.summary(), flush=True)
    return int(bool(session.findings))


if __name__ == "__main__":
    logging.getLogger("proto_schema").setLevel(logging.ERROR)  # thousands of warnings, of hostile files
    raise SystemExit(main())
