"""The Python blocks of docs/cookbook.md and of the pages on coming from other packages run, first to last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "count"),
    [("cookbook.md", 22), ("coming-from-torch-onnx.md", 4), ("coming-from-onnx.md", 2), ("comparing.md", 2)],
)
def test_page(page: str, count: int, tmp_path: Path) -> None:
    """From a file, because scripts need their source."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert len(blocks) == count
    (tmp_path / "page.py").write_text("\n".join(blocks))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
