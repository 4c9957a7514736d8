"""Runs programs for a time, counts, and shows each kind of finding once, made small, with the seed and a script.

The work is done in a child process that is begun anew every so often and after a crash: what torch
or the runtime do not survive is counted, by its seed, and does not end the run.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

WORK = 2000  # programs that a child process runs
PATIENCE = 120.0  # seconds that one program may take, the shrinking included


@dataclass
class Report:
    """What a session counted: exports by route and outcome, what was compared, findings and the operators covered."""

    programs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    operators: set[str] = field(default_factory=set)
    findings: dict[str, list[str]] = field(default_factory=dict)  # by what was said: the seeds
    crashes: list[str] = field(default_factory=list)  # where, and the seed
    seconds: float = 0.0

    def lines(self, known: int) -> list[str]:
        """The report as text, of `known` operators that have a rule."""
        rate = self.programs / self.seconds if self.seconds else 0.0
        found = [
            f"programs: {self.programs} programs, {self.seconds:.0f} s, {rate:.1f}/s, {len(self.findings)} findings"
        ]
        found += [f"  {number:7} {name}" for name, number in sorted(self.outcomes.items())]
        found += [f"  {number:7} {name}" for name, number in sorted(self.counts.items())]
        found.append(f"  {len(self.operators):7} operators in files, of {known} that have a rule")
        found += [f"  the process crashed: {place}" for place in self.crashes]
        found += [
            f"  FINDING {len(seeds)} times, first --seed {seeds[0]}: {said}" for said, seeds in self.findings.items()
        ]
        return found


def session(seed: str, seconds: float | None, runs: int | None, folder: Path | None, axes: int | None = None) -> int:
    """Runs programs `seed:0`, `seed:1`, ...; the exit status.  A seed with a colon is that one program.

    `axes` is the number of dynamic axes of each program; without it chance decides.
    """
    report = Report()
    started = time.monotonic()
    single = ":" in seed
    base, first = (seed.split(":", maxsplit=1)[0], int(seed.split(":")[1])) if single else (seed, 0)
    last = first + (1 if single else runs if runs is not None else sys.maxsize)
    at = first
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _all(report, base, at, last, folder, axes, started, seconds)
    except KeyboardInterrupt:
        print("interrupted")
    report.seconds = time.monotonic() - started
    from fuzz.programs.schemas import known_operators

    print("\n".join(report.lines(known_operators())), flush=True)
    return int(bool(report.findings or report.crashes))


def _all(
    report: Report,
    base: str,
    at: int,
    last: int,
    folder: Path | None,
    axes: int | None,
    started: float,
    seconds: float | None,
) -> None:
    """Runs the programs `at` to `last` in child processes."""
    context = multiprocessing.get_context("spawn")
    while at < last and (seconds is None or time.monotonic() - started < seconds):
        mine, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, base, at, min(at + WORK, last), folder, axes), daemon=True)
        child.start()
        theirs.close()
        at = _listen(mine, child, base, at, report, started, seconds)
        child.kill()
        child.join()


def _listen(
    mine: Connection, child: SpawnProcess, base: str, at: int, report: Report, started: float, seconds: float | None
) -> int:
    """Takes a child's programs in; the number of the next one."""
    stage = "making the program"
    while seconds is None or time.monotonic() - started < seconds:
        ended = ""
        try:
            if mine.poll(PATIENCE):
                message = mine.recv()
            else:
                ended = f"no word for {PATIENCE:.0f} s"
        except EOFError:
            child.join(10)
            ended = f"exit status {child.exitcode}"
        if ended:
            report.crashes.append(f"{stage}, {ended}: --seed {base}:{at}")
            print(f"CRASH {report.crashes[-1]}", flush=True)
            return at + 1
        if isinstance(message, str):
            stage = message
            continue
        if message is None:
            return at
        _take(report, f"{base}:{at}", message)
        at += 1
        if report.programs % 100 == 0:
            report.seconds = time.monotonic() - started
            print(report.lines(0)[0], flush=True)
    return at


def _take(report: Report, seed: str, message: Any) -> None:
    routes, counts, operators, findings = message
    report.programs += 1
    report.outcomes.update(f"{route}: {outcome}" for route, outcome in routes.items())
    report.counts.update(counts)
    report.operators |= operators
    for said in findings:
        report.findings.setdefault(said, []).append(seed)


def _child(out: Connection, base: str, first: int, last: int, folder: Path | None, axes: int | None) -> None:
    import torch
    import torch._dynamo.config

    from fuzz.programs.make import make
    from fuzz.programs.routes import run

    torch.set_num_threads(1)
    # what torch remembers of calls on fake tensors is a third of the time, and no program makes a call twice
    torch._dynamo.config.fake_tensor_cache_enabled = False
    shown: set[str] = set()
    for number in range(first, last):
        seed = f"{base}:{number}"
        out.send("making the program")
        program = make(seed, axes)
        out.send("torch")
        try:
            outcome = run(program, at=out.send)
        except Exception as error:
            out.send(({"torch": f"does not run the program: {type(error).__name__}"}, {}, set(), []))
            continue
        said = []
        for finding in {finding.key: finding for finding in reversed(outcome.findings)}.values():
            said.append(signature(finding.key, finding.text))
            if said[-1] not in shown:
                shown.add(said[-1])
                show(seed, program, finding, folder)
        out.send((outcome.routes, outcome.counts, outcome.operators, said))
    out.send(None)


def signature(key: str, text: str) -> str:
    """A finding's words without numbers and names of values: those that are alike are counted together."""
    return f"{key}: " + re.sub(r"-?[\d.]+(e-?\d+)?|'\w+'", "#", text.replace("\n", " "))[:140]


def show(seed: str, program: Any, finding: Any, folder: Path | None) -> None:
    """Prints a finding with the smallest program that shows it, and writes the script that does."""
    from fuzz.programs.shrink import smaller

    small = smaller(program, finding)
    print(f"FINDING {finding.key}  --seed {seed}\n{finding.text[:1500]}\n{small.source()}", end="")
    print(f"    opset {small.opset}, sizes {small.sizes}")
    print("".join(f"    {draw}\n" for draw in (*small.inputs, *small.owned)), end="")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        script = small.script(finding.route.split("/")[0])
        path = folder / f"program-{hashlib.sha1(script.encode()).hexdigest()[:12]}.py"
        path.write_text(script)
        print(f"    script: {path}")
    sys.stdout.flush()
