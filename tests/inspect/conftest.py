"""One browser for all tests of pages, which starts when the first of them asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import proto_schema as ps
from tests.inspect.browser import Browser
from tests.inspect.pages import Opened, made


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture
def opened(window: Browser, tmp_path: Path) -> Opened:
    """A function that opens the page of a model. The console must be silent: its policy refused nothing."""

    def open_page(model: bytes | ps.ModelProto) -> Browser:
        window.open(made(tmp_path, model))
        assert window.console() == []
        return window

    return open_page
