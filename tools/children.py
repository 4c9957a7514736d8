"""Runs tests on changed copies of a tree, in children forked from a process that has imported what is slow.

This process imports torch, onnx and pytest, and nothing of the project.  A child imports the project from its copy of
the tree and runs pytest once a phase, so that a later phase finds imported what an earlier one needed.  It notes what
runs and what fails in a file, and is killed, with all that it has started, where that file stands still for too long.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

IMPORTS = ("numpy", "onnx", "onnxruntime", "sympy", "torch", "torch.export", "torch._dynamo")
MEMORY = 12 << 30  # bytes of address space that a child may take
ROW = re.compile(r"(-(trace|export|script))?-\d+\]$")


class Phase(Protocol):
    """Tests that run together; see `tools/mutate.py`."""

    tier: str
    files: tuple[str, ...]
    marks: str
    once: bool
    tests: frozenset[str] | None


@dataclass
class Ended:
    """How a child ended: its exit status (0 where all passed), in which phase, and whether it stood still (`late`)."""

    status: int
    phase: int
    failed: list[str]
    running: str
    late: bool
    passed: list[str]
    slowest: list[tuple[str, float]]
    cpu: float  # seconds of the child and of what it waited for


class Verdict:
    """A plugin of pytest: chooses and orders the tests of a phase, and notes what runs and fails."""

    def __init__(self, note: Any, phase: Phase, order: Counter[str], without: str, left_out: set[str]) -> None:
        self.note, self.phase, self.order, self.without, self.left_out = note, phase, order, without, left_out

    @pytest.hookimpl(trylast=True)  # behind the choice by marks
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if not (self.without and re.search(self.without, item.nodeid))]
        chosen = [item for item in chosen if item.nodeid not in self.left_out]
        if self.phase.tests is not None:
            chosen = [item for item in chosen if item.nodeid in self.phase.tests]
        if self.phase.once:
            rows: dict[str, pytest.Item] = {}
            for item in chosen:
                rows.setdefault(ROW.sub("]", item.nodeid), item)
            chosen = list(rows.values())
        items[:] = sorted(chosen, key=lambda item: -self.order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note.write(f"{'failed' if report.failed else 'has'} {report.nodeid}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note.write(f"runs {nodeid}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.note.write(f"took {report.duration:.3f} {report.nodeid}\n")
            if report.passed:
                self.left_out.add(report.nodeid)  # of the phases behind this one
        if report.failed:
            self.note.write(f"failed {report.nodeid}\n")


class Slot:
    """A copy of a tree, in which one child works at a time."""

    def __init__(self, tree: Path, note: Path) -> None:
        self.tree, self.note = tree, note

    @contextlib.contextmanager
    def changed(self, sources: dict[str, str]) -> Iterator[None]:
        """Other contents of some files for a while.  Afterwards their times are as before, so bytecode stays valid."""
        before = {name: ((self.tree / name).read_bytes(), (self.tree / name).stat()) for name in sources}
        try:
            for name, source in sources.items():
                (self.tree / name).write_text(source)
            yield
        finally:
            for name, (data, stat) in before.items():
                (self.tree / name).write_bytes(data)
                os.utime(self.tree / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(
        self,
        phases: Sequence[Phase],
        without: str,
        limit: float,
        full_limit: float = 0.0,
        *,
        order: Counter[str] | None = None,
        ignored: frozenset[str] = frozenset(),
        stop: bool = True,
        bytecode: bool = False,
    ) -> Ended:
        """Runs the phases until one fails, or until no test ends for `limit` seconds.

        In phases of another tier than the first that is `full_limit`.
        """
        self.note.write_text("")
        child = os.fork()
        if child == 0:
            try:
                self._work(phases, without, order or Counter(), ignored, stop, bytecode)
            finally:
                os._exit(70)  # what pytest did not catch
        late = self._awaited(child, phases, limit, full_limit)
        with contextlib.suppress(ProcessLookupError):  # with what it has started itself
            os.killpg(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        shutil.rmtree(f"{self.note}.tmp", ignore_errors=True)
        return self._ended(os.waitstatus_to_exitcode(status), late, used.ru_utime + used.ru_stime)

    def _work(
        self,
        phases: Sequence[Phase],
        without: str,
        order: Counter[str],
        ignored: frozenset[str],
        stop: bool,
        bytecode: bool,
    ) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        os.chdir(self.tree)
        os.environ["PYTHONPATH"] = sys.path[0] = str(self.tree)
        # a changed module may have the size and the second of the one before: no bytecode is kept of it
        sys.dont_write_bytecode = not bytecode
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        plugins = ("cacheprovider", "xdist", "faulthandler")
        options = ["-q", "-o", "addopts=", *(f"-pno:{name}" for name in plugins), f"--basetemp={self.note}.tmp"]
        passed = set(ignored)
        with self.note.open("a", buffering=1) as note:
            for number, phase in enumerate(phases):
                note.write(f"phase {number}\n")
                if not phase.files:
                    continue
                verdict = Verdict(note, phase, order, without, passed)
                status = pytest.main([*options, *(["-x"] if stop else []), "-m", phase.marks, *phase.files], [verdict])
                if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                    os._exit(int(status))
        os._exit(0)

    def _awaited(self, child: int, phases: Sequence[Phase], limit: float, full_limit: float) -> bool:
        """Whether the child stood still for too long.  It is not reaped, so that its group can still be killed."""
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            still = time.time() - self.note.stat().st_mtime
            if still > limit and still > (limit if phases[self._phase()].tier == phases[0].tier else full_limit):
                return True
            time.sleep(0.02)
        return False

    def _phase(self) -> int:
        numbers = [line.split()[1] for line in self._lines() if line.startswith("phase ")]
        return int(numbers[-1]) if numbers else 0

    def _lines(self) -> list[str]:
        return self.note.read_text(errors="replace").splitlines()

    def _ended(self, status: int, late: bool, cpu: float) -> Ended:
        lines = self._lines()
        running = [line.partition(" ")[2] for line in lines if line.startswith("runs ")]
        failed = dict.fromkeys(line.partition(" ")[2] for line in lines if line.startswith("failed "))
        took = [line.split(" ", 2)[1:] for line in lines if line.startswith("took ")]
        slowest = sorted(((name, float(seconds)) for seconds, name in took), key=lambda one: -one[1])[:4]
        last = running[-1] if running else "collection"
        passed = [name for _, name in took if name not in failed]
        return Ended(status, self._phase(), list(failed), last, late, passed, slowest, cpu)


class Folder:
    """A temporary folder with as many copies of the files that git knows in a tree."""

    def __init__(self, tree: Path, copies: int) -> None:
        self.tree, self.copies = tree, copies
        self.slots: list[Slot] = []

    def __enter__(self) -> Folder:
        self.folder = tempfile.TemporaryDirectory(prefix="mutate-")
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=self.tree, check=True, capture_output=True, text=True).stdout
        for number in range(self.copies):
            copy = Path(self.folder.name) / f"tree{number}"
            for name in filter(None, names.split("\0")):
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if (self.tree / name).is_file():
                    shutil.copy2(self.tree / name, target)
            self.slots.append(Slot(copy, copy.with_suffix(".note")))
        return self

    def __exit__(self, *error: object) -> None:
        self.folder.cleanup()


def import_before() -> None:
    """Imports what is slow, and nothing of the project."""
    for name in IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # so that a child does not copy the pages of what is imported


def in_workers(tasks: list[str], folder: Folder, work: Callable[[str, Slot], None]) -> None:
    """Does the tasks in their order in a process for each copy of the tree.  SystemExit where one fails."""
    taken, given = os.pipe()
    for number in range(len(tasks)):
        os.write(given, number.to_bytes(2, "little"))
    os.close(given)
    workers = []
    for slot in folder.slots:
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                while number := os.read(taken, 2):
                    work(tasks[int.from_bytes(number, "little")], slot)
                status = 0
            except BaseException as error:  # the process ends here, and says why
                print(f"a worker ends: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        workers.append(worker)
    if any(os.waitpid(worker, 0)[1] for worker in workers):
        raise SystemExit("a worker ended early; run it again to go on")
