"""The harness of folders notices when a promise is broken: a writer that does its work and something else besides.

`python -m fuzz folders` runs it for as long as one likes (docs/development/fuzzing.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proto_schema as ps
from fuzz.engine import outcome
from fuzz.folders import doings, harness, others
from fuzz.folders.harness import HARNESS, HEAD, RECORD
from fuzz.folders.snapshot import FILE, Entry, data_of, meaning, take

SAVE = ps.save
PLAIN = bytes(HEAD)  # none of the decoys that are there sometimes


def step(*choices: int) -> bytes:
    """The choices of one step."""
    return bytes(choices).ljust(RECORD, b"\0")


def saved(target: int = 0, kind: int = 0, where: int = 0, odd: int = 0, fault: int = 0, at: int = 0) -> bytes:
    """A save to one of `TARGETS`: of a new model (kind 0), of the first one (2); with all data outside (where 0)."""
    source = (1, 0) if kind == 2 else ()
    return step(0, fault, at, 0, 1, target, kind, *source, where, 0, odd)


def other(name: str, *choices: int) -> bytes:
    """A step of somebody else."""
    return step(15, [row.__name__ for row in others.OTHERS].index(name), *choices)


def called(name: str, *choices: int) -> bytes:
    """A step of one of our tools."""
    return step(0, 0, 0, doings.DOINGS.index(getattr(doings, name)), *choices)


KILLED, READ_ONLY = 32 - 3, others.MODES.index(0o444)
ONE, TWO = PLAIN + saved(), PLAIN + saved() + saved(4)  # m.onnx; and n.onnx
AGAIN = PLAIN + saved() + saved()

Naughty = Callable[[Path], object]


def beside(name: str, do: Naughty) -> Naughty:
    return lambda path: do(path.parent / name)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def spoiled(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def spoiled_if_there(path: Path) -> None:
    if path.exists():
        spoiled(path)


def refused(_: Path) -> None:
    raise ValueError("no")


def crashed(_: Path) -> None:
    raise KeyError("no")


def opened_to_all(path: Path) -> None:
    path.chmod(0o666)


# (input, what each save does after its work, how the finding begins)
BROKEN: list[tuple[bytes, Naughty, str]] = [
    (ONE, beside("notes.txt", Path.unlink), "Violation: save, done: a file of others is gone"),
    (ONE, beside("net.py", spoiled), "Violation: save, done: a file of others is changed"),
    (ONE, beside("x.npy", opened_to_all), "Violation: save, done: a file of others has another mode"),
    (ONE, beside("link_in", Path.unlink), "Violation: save, done: a file of others is gone"),
    (ONE, beside("pipe", Path.unlink), "Violation: save, done: a file of others is gone"),
    (ONE, beside("sub/keep.bin", emptied), "Violation: save, done: a file of others is changed"),
    (ONE, beside("../outside/secret", emptied), "Violation: save, done: something outside of the folder is changed"),
    (ONE, beside("../outside/new", emptied), "Violation: save, done: something outside of the folder is changed"),
    (ONE, beside(".m.onnx.tmp", emptied), "Violation: save, done: something new is left behind"),
    (ONE, Path.unlink, "Violation: save, done: the target is no file"),
    (ONE, emptied, "Violation: save, done: the new model is broken"),
    (ONE, beside("m.onnx.data", emptied), "Violation: save, done: the new model is broken"),
    (ONE, beside("m.onnx.data", spoiled), "Violation: save, done: the new model has other weights"),
    (ONE, beside("m.onnx.data", opened_to_all), "Violation: save, done: a data file or temporary file may be read"),
    (ONE, opened_to_all, "Violation: save, done: a new file may be read or written by more than the umask says"),
    (AGAIN, opened_to_all, "Violation: save, done: a new file may be read"),
    (ONE, refused, "Violation: save, refused: "),
    (ONE, crashed, "KeyError"),
    (PLAIN + saved(4) + saved(), beside("n.onnx.data", spoiled_if_there), "Violation: save, done: the new model has"),
]


@pytest.mark.parametrize(("data", "naughty", "finding"), BROKEN, ids=[f"{n}: {row[2]}" for n, row in enumerate(BROKEN)])
def test_a_writer_that_does_something_else_is_found(
    data: bytes, naughty: Naughty, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(HARNESS, data)[1] == ""

    def save(model: Any, target: Any, *arguments: Any, **options: Any) -> None:
        SAVE(model, target, *arguments, **options)
        naughty(Path(target))

    monkeypatch.setattr(ps, "save", save)
    assert outcome(HARNESS, data)[1].startswith(finding)
