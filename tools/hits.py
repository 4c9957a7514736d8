"""What `tools/reached.py` writes into a changed module: `__hit__(number)`, which notes that a test came to a place.

The copies of the tree import this module in each of their processes, by a `sitecustomize.py`.  A line of the notes is
a test, a tab and a number; what runs while modules are imported has no test.  As a plugin of pytest the module notes
the seconds of each test.
"""

from __future__ import annotations

import builtins
import os
from pathlib import Path

import pytest

FOLDER = "PUREXPORT_HITS"  # the folder of the notes
_seen: set[tuple[str, int]] = set()


def hit(number: int) -> bool:
    """Notes a place once a test.  False, so that `__hit__(3) or x` is x."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (test, number) not in _seen:
        _seen.add((test, number))
        _note("hits", f"{test}\t{number}\n")
    return False


def _note(name: str, line: str) -> None:
    """Appends a line; each is one write, since processes of tests may end at any place."""
    place = os.open(Path(os.environ[FOLDER]) / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(place, line.encode())
    finally:
        os.close(place)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        _note("took", f"{report.nodeid}\t{report.duration:.3f}\n")


builtins.__hit__ = hit  # type: ignore[attr-defined]
