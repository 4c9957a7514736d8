"""The code blocks of a page, and what running them shows.

A block is a fence, or lines that are indented by four after an empty line. Its kind says what becomes of it:

`python`   runs in the namespace of the blocks before it; what begins with `# NAME.py` is saved as that file instead
`console`  each line after `$ ` runs; what follows is compared with its output, or it must succeed if nothing follows
`text`     is compared with what the block before it printed, if that block ran

Indented lines that begin with `$ ` are `console`, and others are `plain`, as is a fence without a language.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from purexport.cli.main import main

ROOT = Path(__file__).parents[2]
_DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *_DOCS]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    text: str

    @property
    def first(self) -> str:
        """The first line, which names the block in the tables of the tests."""
        return self.text.split("\n", 1)[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.kind}) {self.first}"

    def commands(self) -> Iterator[tuple[str, str]]:
        """(command, the output that the page shows) of a block that is `console`."""
        for one in re.split(r"(?m)^\$ ", self.text)[1:]:
            command, _, shown = one.partition("\n")
            yield command, shown.strip("\n")


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    lines = (ROOT / page).read_text().split("\n")
    found, at = [], 0
    while at < len(lines):
        fence = re.match(r"( *)(`{3,})(\w*)$", lines[at])
        end = at + 1
        if fence is not None:
            while lines[end].strip() != fence[2]:
                end += 1
            text = "\n".join(line.removeprefix(fence[1]) for line in lines[at + 1 : end])
            found.append(Block(page, at + 1, fence[3] or "plain", text))
            end += 1
        elif lines[at].startswith("    ") and not lines[at - 1].strip():
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(line.strip() and line[4:] for line in lines[at:end]).rstrip()
            found.append(Block(page, at + 1, "console" if text.startswith("$ ") else "plain", text))
        at = end
    return found


def run(ran: list[Block], monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """Runs blocks in the current folder, which has the files of the page.

    Returns those that could be run: a text is none if no block before it ran. A block that fails raises an error that
    names it.
    """
    space = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", space)
    monkeypatch.syspath_prepend(".")
    sys.modules.pop("net", None)  # of the page before
    done: list[Block] = []
    printed: str | None = None
    for block in ran:
        if block.kind == "python":
            printed = _python(block, len(done) + 1, space)
        elif block.kind == "console":
            printed = _console(block)
        elif block.kind == "text" and printed is not None:
            assert comparable(block.text) == comparable(printed), f"{block} is not what was printed:\n{printed}"
        else:
            printed = None
            continue
        done.append(block)
    return done


def _python(block: Block, number: int, space: types.ModuleType) -> str:
    """What a block printed. It is a file, because scripts and dataclasses need their source."""
    name = re.match(r"# (\w+\.py)$", block.first)
    if name is not None:
        Path(name[1]).write_text(block.text + "\n")
        sys.modules.pop(name[1].removesuffix(".py"), None)
        return ""
    file = Path(f"block-{number}.py")
    file.write_text(block.text + "\n")
    written = io.BytesIO()
    streams = io.TextIOWrapper(written, write_through=True)  # which has a buffer for bytes, as sys.stdout does
    try:
        with contextlib.redirect_stdout(streams):
            exec(compile(block.text + "\n", str(file.absolute()), "exec", dont_inherit=True), vars(space))  # the pages
    except Exception as error:
        raise AssertionError(f"{block} fails: {type(error).__name__}: {error}") from error
    return written.getvalue().decode(errors="replace")


def _console(block: Block) -> str:
    """What the last command of a block printed; each is compared with what the page shows below it."""
    text = ""
    for command, shown in block.commands():
        words = shlex.split(command, comments=True)
        assert words[0] == "purexport", f"{block} cannot be run here: {command}"
        streams = io.StringIO()
        with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
            status = main(words[1:])
        text = streams.getvalue()
        if shown:
            assert comparable(text) == comparable(shown), f"{block}: {command} prints:\n{text}"
        else:
            assert status == 0, f"{block}: {command} ends with {status}:\n{text}"
    return text


def comparable(text: str) -> str:
    """Without what differs from machine to machine: fractions, the folder, sizes in bytes."""
    text = re.sub(r"[\d,.]+ ([kMG]?B)\b", r"N \1", text)
    text = re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", "N", text).replace(f"{Path.cwd()}/", "")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
