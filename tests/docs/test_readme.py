"""The examples run, and the files that the documents name exist; `test_pages.py` runs the documents."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torchvision_shim import torchvision

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


APART = {"edit_without_torch.py", "onnx_without_onnx.py"}
"""Examples of what a process does that has not imported torch, or that has no onnx."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")
def test_example(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if path.name in APART:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(path)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        return
    if "from transformers" in path.read_text():
        torchvision()  # which transformers imports, also one without operators
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_documents_name_exist(path: Path) -> None:
    text = path.read_text()
    links = [(path.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    rooms = re.findall(r"`((?:proto_schema|purexport|tests|tools|docs|benchmarks|examples)/[\w./]+)`", text)
    missing = [str(file) for file in [*links, *(ROOT / room for room in rooms)] if not file.exists()]
    assert not missing, missing
    assert text.isascii()
