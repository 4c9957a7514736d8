"""What README and the examples show does run, and what the documents name does exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(code_or_file: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *(["-c", code_or_file] if "\n" in code_or_file else [code_or_file])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_code(tmp_path: Path) -> None:
    """The Python blocks, one after the other in one process."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    assert "['Conv', 'Relu']" in run("\n".join(blocks), tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path, tmp_path: Path) -> None:
    code = str(path)
    if "from transformers" in path.read_text():  # which imports torchvision, also one without operators
        shim = ["from tests.torchvision_shim import torchvision", "torchvision()"]
        code = "\n".join([*shim, "import runpy", f"runpy.run_path({code!r}, run_name='__main__')"])
    assert run(code, tmp_path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_documents_name_exist(path: Path) -> None:
    text = path.read_text()
    links = [(path.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    rooms = re.findall(r"`((?:proto_schema|purexport|tests|tools|docs|benchmarks|examples)/[\w./]+)`", text)
    missing = [str(file) for file in [*links, *(ROOT / room for room in rooms)] if not file.exists()]
    assert not missing, missing
    assert text.isascii()
