"""Settings for every test: one computing thread a worker, so that pytest-xdist's workers do not fight over cores.

The variable is read when torch (and numpy's BLAS) is first imported, which happens after this file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for files by the thousand, in memory where the system has such a place."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The one long test goes first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: item.name != "test_every_rule_has_a_row")
