"""What the tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.networks import NET


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with net.py in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name == "net" or name.startswith("net_")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path
