"""Settings for every test, and two questions at the end: did the operator rows run every rule, and do the routes agree?

One computing thread a worker, so that pytest-xdist's workers do not fight over cores: the variable is read when torch
(and numpy's BLAS) is first imported, which happens after this file.

A run of all tests knows which rules the rows of tests/lowering ran, so nothing is exported a second time to tell, and
how many files of another route were those of the trace.  Each worker hands that on (`ROWS_RUN`), and the run fails
where a rule is missing or a route differs more often than it did (`tests/row_plans.py`).  Of a part of the tests
nothing is said; `pytest -m sweep tests/lowering/test_rules_have_rows.py` asks for itself.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import DEFAULT, Asked, tiers_of

ROWS_RUN = "what operator rows did"

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks() -> Iterator[None]:
    """A file is synced at once, because no machine loses its power here.

    Tests that lose what was not synced count the calls (`tests/proto_schema/faults.py`); processes of their own wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # an error for what is not open
        yield


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for files by the thousand, in memory where the system has such a place."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


class Logged(logging.Handler):
    """The messages of both packages while a test runs.

    pytest's own plugin for that is off: around each part of a test it visits every logger, of which torch has hundreds.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    @property
    def text(self) -> str:
        return "\n".join(self.messages)


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What both packages log at the level of INFO and above."""
    handler = Logged()
    loggers = [logging.getLogger(name) for name in ("purexport", "proto_schema")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture
def signals_end() -> Iterator[None]:
    """SIGHUP and SIGINT end a process, and those that it starts, also where all tests run under nohup or with "&"."""
    before = {number: signal.signal(number, how) for number, how in _ENDING.items()}
    yield
    for number, how in before.items():
        signal.signal(number, how)


_ENDING: dict[int, Any] = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


def pytest_configure(config: pytest.Config) -> None:
    """Before any table is made."""
    Asked.by(config.option.markexpr)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test belongs to one tier."""
    torn = [item.nodeid for item in items if len(tiers_of(item)) > 1]
    if torn:
        raise pytest.UsageError(f"a test has one marker of a tier at most, and these have more: {', '.join(torn[:9])}")


def pytest_collection_finish() -> None:
    """The tests themselves live as long as the run: no pass of the collector need walk them again.

    Without that the passes over all that is alive are so rare that classes which tests made pile up, and each change of
    an attribute of `torch.nn.Module`, of which an export makes several, visits all of them.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A worker hands on what its rows did; the run itself is judged where all of it comes together."""
    run = _rows_run()
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[ROWS_RUN] = run
        return
    found = session.config.stash.setdefault(_FOUND, [])
    found.append(run)
    if exitstatus == pytest.ExitCode.OK and _is_whole(session.config):
        from tests.row_plans import verdict

        said = session.config.stash[_SAID] = verdict(found)
        if any(line.startswith("FAILED") for line in said):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """pytest-xdist tells that a worker has ended."""
    said = getattr(node, "workeroutput", {})  # a worker that crashed says nothing
    node.config.stash.setdefault(_FOUND, []).append(said.get(ROWS_RUN, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(_SAID, ()):
        terminalreporter.write_line(line)


_FOUND = pytest.StashKey[list[dict[str, Any]]]()
_SAID = pytest.StashKey[list[str]]()


def _rows_run() -> dict[str, Any]:
    plans = sys.modules.get("tests.row_plans")
    return plans.run_here() if plans is not None else {}


def _is_whole(config: pytest.Config) -> bool:
    """Whether all the default tests are asked for."""
    narrowed = config.option.keyword or config.option.deselect or config.option.ignore or config.option.maxfail
    asked = set(config.args) <= {"tests", str(config.rootpath), str(config.rootpath / "tests")}
    return asked and not narrowed and config.option.markexpr == DEFAULT and not config.option.collectonly
