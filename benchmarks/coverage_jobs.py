"""Names in processes of their own, which record as they go.

A process is forked from this one, which has all imported, and takes some names, one after the other: a new process
costs ten times what a run does, because it copies the pages of this one as it touches them.  Where a process dies, the
run that it was in has failed, and another process does the runs that are left, so that a crash costs one run.

Every eighth name comes first, then those behind them, and so on: what a sweep has done when it is stopped is a sample.
"""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from coverage_exports import PEERS, exports
from coverage_judge import judged, line
from coverage_samples import Sample, results_of, samples, set_apart

SECONDS = 90  # of the processor, for a sample
WAIT = 20 * SECONDS  # for one that waits for ever
MEMORY = 8 << 30  # a process
NAMES = 25  # a process
STRIDE = 8


@dataclass
class Run:
    """What is measured of a name at once, and what was found; `end` says that nothing is to come."""

    name: str
    dtype: torch.dtype
    route: str
    opset: int
    verdicts: list[str] = field(default_factory=list)
    apart: str = ""
    end: bool = False

    def record(self, every: int) -> dict[str, Any]:
        """The line of the results."""
        found: dict[str, Any] = {"name": self.name, "route": self.route}
        found |= {"dtype": named(self.dtype), "opset": self.opset}
        if every > 1:
            found["every"] = every
        if self.apart:
            found["apart"] = self.apart
        return {**found, "verdicts": self.verdicts}


def named(dtype: torch.dtype) -> str:
    """`float64`."""
    return str(dtype).removeprefix("torch.")


# In the process -------------------------------------------------------------------------------------------------------


def _child(pipe: Connection, entries: Any, runs: Sequence[tuple[int, Run]], options: Any) -> None:
    """Send, for each run, `(place, "begin", "")`, its `"apart"` or one `"verdict"` a sample, and `"end"`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for (name, dtype), group in _grouped(runs, lambda run: (run.name, run.dtype)):
        pipe.send((group[0][0], "begin", ""))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        apart, found = _usable(name, entries[name], dtype, options)
        if apart:
            for place, _ in group:
                pipe.send((place, "apart", apart))
        expected = [results_of(*sample) for sample in found]
        for route, places in _grouped(group, lambda run: run.route):
            _of_route(pipe, route, places, list(zip(found, expected, strict=True)), options)


def _grouped(runs: Sequence[tuple[int, Run]], key: Any) -> Iterator[tuple[Any, list[tuple[int, Run]]]]:
    groups: dict[Any, list[tuple[int, Run]]] = {}
    for place, run in runs:
        groups.setdefault(key(run), []).append((place, run))
    yield from groups.items()


def _of_route(
    pipe: Connection,
    route: str,
    runs: Sequence[tuple[int, Run]],
    found: Sequence[tuple[Sample, list[torch.Tensor]]],
    options: Any,
) -> None:
    places = {run.opset: (place, run) for place, run in runs}
    left = list(places)
    for sample, results in found:
        if not left:
            break
        pipe.send((places[left[0]][0], "begin", ""))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        for opset, data in exports(route, sample, tuple(left), options.apart):
            place, run = places[opset]
            pipe.send((place, "begin", ""))
            verdict = judged(run.name, sample, results, data)
            pipe.send((place, "verdict", verdict))
            if verdict and route in PEERS:
                left.remove(opset)  # one failure decides, and these are slow
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
        left = [opset for opset in left if opset not in options.first]
    for place, _ in runs:
        pipe.send((place, "end", ""))


def _usable(name: str, entry: Any, dtype: torch.dtype, options: Any) -> tuple[str, list[Sample]]:
    """Why a name cannot be compared in a dtype, or empty and its samples."""
    try:
        found = samples(entry, dtype, options.samples, options.spread)
        return set_apart(name, found) if found else ("no samples", [])
    except Exception as error:
        return f"torch cannot run it: {line(error)}", []


# Around it ------------------------------------------------------------------------------------------------------------


class Job:
    """Some names in a process, for all of their runs."""

    def __init__(self, entries: Any, runs: Sequence[Run], options: Any) -> None:
        self.entries, self.options = entries, options
        self.runs = list(runs)
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        left = [(place, run) for place, run in enumerate(self.runs) if not run.end]
        self.current = left[0][0]
        for _, run in left:
            run.verdicts, run.apart = [], ""
        arguments = (theirs, self.entries, left, self.options)
        self.process = context.Process(target=_child, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.since = time.monotonic()

    def advance(self) -> Iterator[Run]:
        """Take what the process says, and give the runs that have ended."""
        try:
            while self.pipe.poll():
                place, kind, value = self.pipe.recv()
                self.since = time.monotonic()
                run = self.runs[place]
                if kind == "begin":
                    self.current = place
                elif kind == "apart":
                    run.apart = value
                elif kind == "verdict":
                    run.verdicts.append(value)
                else:
                    run.end = True
                    yield run
        except EOFError:
            self.process.join()
            if not self.done:
                yield from self._died(self._how())
            return
        if time.monotonic() - self.since > WAIT:
            self.process.kill()
            self.process.join()
            yield from self._died(f"time: more than {WAIT} s")

    @property
    def done(self) -> bool:
        """Whether all runs have ended."""
        return all(run.end for run in self.runs)

    def _how(self) -> str:
        code = self.process.exitcode
        return f"time: more than {SECONDS} s" if code == -signal.SIGPROF else f"crash: the process ended with {code}"

    def _died(self, why: str) -> Iterator[Run]:
        run = self.runs[self.current]
        run.verdicts.append(why)
        run.end = True
        yield run
        if not self.done:
            self._start()


def sweep(entries: Any, runs: Sequence[Run], options: Any, results: Path) -> None:
    """Do the runs, names by `options.processes` processes at a time, and append each record to `results`."""
    gc.collect()
    gc.freeze()  # so that a collection in a child copies no pages
    order = list(dict.fromkeys(run.name for run in runs))
    names = [name for first in range(STRIDE) for name in order[first::STRIDE]]
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    batches = [names[first : first + NAMES] for first in range(0, len(names), NAMES)]
    waiting, running = batches[::-1], list[Job]()
    done = 0
    with results.open("a") as file:
        while waiting or running:
            while waiting and len(running) < options.processes:
                running.append(Job(entries, [run for name in waiting.pop() for run in by_name[name]], options))
            wait([job.pipe for job in running], timeout=1)
            for job in list(running):
                for run in job.advance():
                    done += 1
                    file.write(json.dumps(run.record(options.every)) + "\n")
                    if bad := next(filter(None, run.verdicts), ""):
                        print(f"{run.name}  {run.route}  {named(run.dtype)}  {run.opset}  {bad[:150]}", flush=True)
                file.flush()
                if job.done:
                    job.process.join()
                    running.remove(job)
                    print(f"{done} of {len(runs)} runs", flush=True)
