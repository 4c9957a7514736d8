"""The changes of a version are what its users need to know, and no more: whoever reads them all has five minutes."""

from __future__ import annotations

import re
from pathlib import Path

CHANGES = Path(__file__).parents[2] / "CHANGELOG.md"
MOST = 8_000  # bytes of the newest version; what is beyond goes to its page in docs/


def test_the_newest_version_is_short() -> None:
    newest = re.split(r"(?m)^## ", CHANGES.read_text(encoding="utf-8"))[1]
    assert len(newest.encode()) <= MOST, "say it shorter, or on a page of docs/"
