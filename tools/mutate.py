"""Mutation testing: change the code in one small place, and see whether a test notices.

    python -m tools.mutate codec --seconds 600 --seed 1
    python -m tools.mutate codec --at proto_schema/wire.py:84      # every change of one line

Strategy: the tree is copied to a temporary folder. This process imports what is slow (torch, onnx, pytest) and nothing
of the project; for each change it writes the one changed module into the copy and forks a child that imports the
project from there and runs the group's tests until the first failure. Tests that noticed most so far go first.
Changes are drawn at random by the seed until the time is up. Those that nothing noticed are printed as they are found.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from tools.mutants import Change, changes

ROOT = Path(__file__).resolve().parent.parent
MEMORY = 12 << 30  # bytes of address space that a child may take
BASE_SECONDS, FACTOR = 20, 3  # the time that tests may take with a change: this, and so often what they take without


@dataclass(frozen=True)
class Group:
    """What is changed, what must notice it, and what is imported before.

    `texts` are modules that write code as text. `without` says which tests are too slow to run each time, as a regular
    expression. `once`: a row that runs on several routes and at several opsets runs on the first of each.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    imports: tuple[str, ...]
    texts: tuple[str, ...] = ()
    without: str = ""
    once: bool = False


GROUPS = {
    "codec": Group(
        tuple(f"proto_schema/{name}.py" for name in ("wire", "scalars", "generate", "interpret", "codec", "fields")),
        tuple(
            f"tests/proto_schema/test_{name}.py"
            for name in ("wire", "malformed", "messages", "schema", "differential", "payload", "tensors", "files")
        ),
        ("numpy", "onnx"),
        ("proto_schema/generate.py",),
        r"mutated\[[1-7]|budget_bounds|linear_time|stay_resident",
    ),
    "functionalize": Group(
        tuple(
            f"purexport/functionalize/{name}.py"
            for name in ("graph", "blocks", "storages", "view_inverses", "out_of_place", "aliasing")
        ),
        tuple(f"tests/functionalize/test_{name}.py" for name in ("order", "blocks", "writes", "refused")),
        ("torch", "torch.export", "onnx", "onnxruntime", "sympy"),
        once=True,
    ),
}


class Verdict:
    """A plugin of pytest: chooses and orders the group's tests, and writes the one that fails to a file."""

    def __init__(self, path: Path, order: Counter[str], group: Group) -> None:
        self.path = path
        self.order = order
        self.group = group

    @pytest.hookimpl(trylast=True)  # behind the choice by marks
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        without = self.group.without
        chosen = [item for item in items if not (without and re.search(without, item.nodeid))]
        if self.group.once:
            rows: dict[str, pytest.Item] = {}
            for item in chosen:
                rows.setdefault(re.sub(r"(-(trace|export|script))?-\d+\]$", "]", item.nodeid), item)
            chosen = list(rows.values())
        items[:] = sorted(chosen, key=lambda item: -self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.path.write_text(report.nodeid)


def child(tree: Path, group: Group, note: Path, order: Counter[str]) -> None:
    """Runs in a process of its own; its exit status is pytest's."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.chdir(tree)
    os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # a changed module may have the size and the second of the one before: no bytecode is kept of it
    sys.dont_write_bytecode = note.name != "baseline"
    options = ["-x", "-q", "-o", "addopts=", "-m", "not sweep", "-p", "no:cacheprovider", "-p", "no:xdist"]
    status = pytest.main([*options, f"--basetemp={note}.tmp", *group.tests], plugins=[Verdict(note, order, group)])
    os._exit(status)


@dataclass
class Slot:
    """A copy of the tree, and the child that works in it."""

    tree: Path
    process: Any = None
    change: tuple[str, Change] | None = None
    deadline: float = 0.0


@dataclass
class Runner:
    """One run over the changes of a group."""

    group: Group
    folder: Path
    jobs: int
    order: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    originals: dict[str, str] = field(default_factory=dict)
    limit: float = 0.0

    def prepare(self) -> list[Slot]:
        """The copies of the tree."""
        self.originals = {module: (ROOT / module).read_text() for module in self.group.modules}
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        slots = [Slot(self.folder / f"tree{number}") for number in range(self.jobs)]
        for slot in slots:
            for name in filter(None, names.stdout.split("\0")):
                target = slot.tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_file():
                    shutil.copy2(ROOT / name, target)
        return slots

    def baseline(self, slots: list[Slot]) -> float:
        """Seconds that the tests take without a change. SystemExit where they fail.

        It leaves bytecode of all but the modules to change in the copies.
        """
        longest = 0.0
        for slot in slots:
            start = time.monotonic()
            self.start(slot, "baseline", 3600)
            slot.process.join(3600)
            if slot.process.exitcode != 0:
                noted = self.folder / "baseline"
                found = noted.read_text() if noted.exists() else f"exit status {slot.process.exitcode}"
                raise SystemExit(f"the tests fail without a change: {found}")
            longest = max(longest, time.monotonic() - start)
            for module in self.group.modules:
                for cached in (slot.tree / module).parent.glob(f"__pycache__/{Path(module).stem}.*"):
                    cached.unlink()
        return longest

    def start(self, slot: Slot, name: str, limit: float) -> None:
        arguments = (slot.tree, self.group, self.folder / name, self.order)
        slot.process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
        slot.process.start()
        slot.deadline = time.monotonic() + limit

    def run(self, drawn: list[tuple[str, Change, str]], seconds: float) -> None:
        """Tries changes, as (module, change, source of the module with it), until none is left or the time is up."""
        slots = self.prepare()
        took = self.baseline(slots)
        self.limit = BASE_SECONDS + FACTOR * took
        say(f"{len(drawn)} changes; the tests take {took:.1f} s without one")
        end = time.monotonic() + seconds
        number = 0
        while any(slot.process.is_alive() for slot in slots) or (number < len(drawn) and time.monotonic() < end):
            for slot in slots:
                if slot.change is not None and (not slot.process.is_alive() or time.monotonic() > slot.deadline):
                    self.finish(slot)
                if slot.change is None and number < len(drawn) and time.monotonic() < end:
                    module, change, source = drawn[number]
                    number += 1
                    (slot.tree / module).write_text(source)
                    slot.change = module, change
                    self.start(slot, f"{slot.tree.name}.noted", self.limit)
            wait([slot.process.sentinel for slot in slots if slot.change is not None], 0.5)
        for slot in slots:
            if slot.change is not None:
                self.finish(slot)

    def finish(self, slot: Slot) -> None:
        """Counts what became of a change, and takes it back."""
        assert slot.change is not None
        module, change = slot.change
        late = slot.process.is_alive()
        with contextlib.suppress(ProcessLookupError):  # with what it has started itself
            os.killpg(slot.process.pid, signal.SIGKILL)
        slot.process.join()
        note = self.folder / f"{slot.tree.name}.noted"
        verdict = "timed out" if late else "survived" if slot.process.exitcode == 0 else "killed"
        self.counts[verdict] += 1
        if note.exists():
            self.order[note.read_text()] += 1
            note.unlink()
        if verdict != "killed":
            say(f"{verdict}: {module}:{change.line}: {change.text}")
        (slot.tree / module).write_text(self.originals[module])
        slot.change = None


def drawn_changes(group: Group, seed: int, at: list[str]) -> list[tuple[str, Change, str]]:
    """Every change of the group's modules, or those of some lines, in an order that the seed decides."""
    found = []
    for module in group.modules:
        tree = ast.parse((ROOT / module).read_text())
        for change in changes(tree, texts=module in group.texts):
            place = f"{module}:{change.line}"
            if not at or {module, place, f"{place}: {change.text}"} & set(at):
                found.append((module, change, change.source(tree)))
    random.Random(seed).shuffle(found)
    return found


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """The exit status: 1 when something survived."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description="Change the code and run the tests.")
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    parser.add_argument("--again", type=Path, help="only what survived in this output of an earlier run")
    parser.add_argument("--tests", nargs="+", help="files to run instead of the group's, on every route and opset")
    parser.add_argument("--at", action="append", help="FILE or FILE:LINE: only changes there; may be given again")
    asked = parser.parse_args()
    group = GROUPS[asked.group]
    if asked.tests:
        group = replace(group, tests=tuple(asked.tests), without="", once=False)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # a process with threads cannot be forked
    for name in group.imports:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        runner = Runner(group, Path(folder), asked.jobs)
        lines = asked.again.read_text().splitlines() if asked.again else []
        again = [line.removeprefix("survived: ") for line in lines if line.startswith("survived: ")]
        runner.run(drawn_changes(group, asked.seed, again + (asked.at or [])), asked.seconds)
    counts = runner.counts
    say(
        f"{sum(counts.values())} made, {counts['killed']} killed, {counts['survived']} survived, "
        f"{counts['timed out']} timed out"
    )
    return int(counts["survived"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
