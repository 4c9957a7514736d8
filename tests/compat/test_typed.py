"""The public surface as editors and type checkers see it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import purexport
from tests.compat import typed_program

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore:the option '(dynamo|optimize|strip_doc_string)' has no effect")
def test_the_typed_program_runs() -> None:
    seen = typed_program.main()
    assert seen == ["Gemm", "n", 4, "weight", "bias", True, (3, 2), "graph", True]


@pytest.mark.sweep
def test_the_typed_program_has_the_types() -> None:
    """Every run of mypy checks it too; here mypy sees the packages as users have them, by py.typed."""
    command = [sys.executable, "-m", "mypy", "--strict", "tests/compat/typed_program.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_argument_is_explained() -> None:
    parameters = inspect.signature(purexport.export).parameters
    text = inspect.getdoc(purexport.export) or ""
    assert not [name for name in parameters if f"`{name}`" not in text]


def test_the_signature_has_types_at_run_time() -> None:
    """Tools that build command lines and schemas of functions evaluate the annotations."""
    hints = typing.get_type_hints(purexport.export)
    assert hints["dynamo"] == bool | None and hints["return"] is purexport.ONNXProgram


def test_all_names_are_listed() -> None:
    """Those that are loaded when they are first used, too."""
    script = "import purexport, sys; print(*dir(purexport)); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    names, loaded = done.stdout.splitlines()
    assert not {*purexport.__all__} - {*names.split()} and loaded == "False"
    assert {*purexport._ROOMS, *purexport._MODULES} <= {*purexport.__all__}
    assert all(getattr(purexport, name) is not None for name in purexport.__all__)
