"""What verbs print: plain text in a pipe; colour, and columns by rich where it is installed, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import proto_schema as ps
from tests.inspect.test_tree import SAMPLE_BYTES, sample_model

ROOT = Path(__file__).parents[2]
RUN = "import sys; from purexport.cli.main import main; sys.exit(main(sys.argv[1:]))"
WITHOUT_RICH = f"import sys; sys.modules['rich'] = None; {RUN}"
needs_rich = pytest.mark.skipif(
    find_spec("rich") is None, reason="rich is not installed (pip install 'purexport[cli]')"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(SAMPLE_BYTES)
    return tmp_path / "m.onnx"


def command(argv: Sequence[object], code: str) -> list[str]:
    return [sys.executable, "-c", code, *map(str, argv)]


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS", "FORCE_COLOR")
    }
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TERM": "xterm",
        **more,
    }


def in_pipe(*argv: object, code: str = RUN) -> str:
    done = subprocess.run(command(argv, code), env=environment(), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def on_terminal(*argv: object, code: str = RUN, **more: str) -> str:
    """What a terminal of 100 columns gets, stderr too."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command(argv, code), env=environment(COLUMNS="100", **more), stdin=slave, stdout=slave, stderr=slave
    ):
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # how a terminal says that nobody writes any more
            pass
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


def bare(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


VERBS = [("show",), ("stat",), ("inspect",), ("check", "--parsers")]
NAMES = [verb[0] for verb in VERBS]


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_a_pipe_gets_the_same_with_and_without_rich(verb: tuple[str, ...], file: Path) -> None:
    text = in_pipe(*verb, file)
    assert text == in_pipe(*verb, file, code=WITHOUT_RICH)
    assert "\x1b" not in text and text.isascii()


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_a_terminal_without_rich(verb: tuple[str, ...], file: Path) -> None:
    """The lines of the pipe, cut to its width, with colours."""
    text, plain = on_terminal(*verb, file, code=WITHOUT_RICH), in_pipe(*verb, file)
    assert "\x1b[" in text
    for shown, whole in zip(bare(text).splitlines(), plain.splitlines(), strict=True):
        assert shown == whole or (shown.endswith("...") and whole.startswith(shown[:-3]))
    assert bare(text) == on_terminal(*verb, file, code=WITHOUT_RICH, NO_COLOR="1")


# what a terminal with rich shows of a verb, whatever lies between
TABLES = [
    (
        "show",
        [
            "m.onnx,",
            "inputs",
            "name type",
            "x float32[batch, 64]",
            "operator count",
            "MatMul 1 ####",
            "1 Pad h y mode=",
        ],
    ),
    (
        "stat",
        ["m.onnx, ", "what the bytes are", "weights 16.4 kB 98", "largest of 2 tensors", "fc.weight FLOAT[64, 64]"],
    ),
]


@needs_rich
@pytest.mark.parametrize(("verb", "parts"), TABLES, ids=[row[0] for row in TABLES])
def test_a_terminal_with_rich(verb: str, parts: list[str], file: Path) -> None:
    text = on_terminal(verb, file)
    assert "\x1b[" in text
    flat = " ".join(bare(text).split())
    for part in parts:
        assert part in flat, (part, flat)
    assert max(map(len, bare(text).splitlines())) <= 100
    assert " ".join(on_terminal(verb, file, NO_COLOR="1").split()) == flat  # columns without colours


@needs_rich
def test_a_terminal_that_can_do_nothing_gets_what_a_pipe_gets(file: Path) -> None:
    assert on_terminal("show", file, TERM="dumb") == in_pipe("show", file)


@pytest.mark.parametrize("code", [pytest.param(RUN, marks=needs_rich), WITHOUT_RICH], ids=["rich", "without"])
def test_names_do_not_move_the_cursor(code: str, tmp_path: Path) -> None:
    model = sample_model()
    assert model.graph is not None
    model.graph.node[0].output[0] = model.graph.input[0].name = "[red]a[/red]\x1b[2J\x07"
    (tmp_path / "m.onnx").write_bytes(ps.dumps(model))
    for verb in ("show", "stat", "inspect"):
        text = on_terminal(verb, tmp_path / "m.onnx", code=code)
        assert "\x1b[2J" not in text and "\x07" not in text
    assert "[red]a[/red]\\x1b[2J\\x07" in bare(on_terminal("show", tmp_path / "m.onnx", code=code))


def test_an_error_begins_in_red(tmp_path: Path) -> None:
    text = on_terminal("show", tmp_path / "none.onnx")
    assert text.startswith("\x1b[31mpurexport show:\x1b[0m ") and "none.onnx: No such file" in text
    assert on_terminal("show", tmp_path / "none.onnx", NO_COLOR="1").startswith("purexport show: ")
