"""The harness of folders notices when a promise is broken: a writer that does its work and something else besides.

`python -m fuzz folders` runs it for as long as one likes (docs/development/fuzzing.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proto_schema as ps
from fuzz.engine import outcome
from fuzz.folders import doings, harness, others
from fuzz.folders.harness import HARNESS, HEAD, RECORD

SAVE = ps.save
PLAIN = bytes(HEAD)  # none of the decoys that are there sometimes


def step(*choices: int) -> bytes:
    """The choices of one step."""
    return bytes(choices).ljust(RECORD, b"\0")


def saved(target: int = 0, kind: int = 0, where: int = 0, fault: int = 0, at: int = 0) -> bytes:
    """A save to one of `TARGETS`: of a new model (kind 0) or a kept one (3), with data outside (where 0) or not (4)."""
    return step(0, fault, at, 0, 1, target, kind, *((0,) if kind == 3 else ()), where)


def other(done: Callable[..., str], *choices: int) -> bytes:
    """A step of somebody else; the first two choices are the file: of the models (0), of their data (2), of all (3)."""
    return step(15, others.OTHERS.index(done), *choices)


def called(made: Callable[..., Any], *choices: int, fault: int = 0, at: int = 0) -> bytes:
    """A step of one of our tools: its source (1, which model) and its target (1, which of TARGETS) come first."""
    return step(0, fault, at, doings.DOINGS.index(made), *choices)


ONE, INLINE = PLAIN + saved(), PLAIN + saved(where=4)
AGAIN = ONE + saved()

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
    (
        ONE,
        beside("../outside/secret", Path.unlink),
        "Violation: save, done: something outside of the folder is changed",
    ),
    (ONE, beside("../outside/new", emptied), "Violation: save, done: something outside of the folder is changed"),
    (ONE, beside(".m.onnx.tmp", emptied), "Violation: save, done: something new is left behind"),
    (INLINE, Path.unlink, "Violation: save, done: the target is not a file"),
    (INLINE, emptied, "Violation: save, done: the new model is broken"),
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


def nothing(*_: Any) -> Any:
    return iter(())


def ignore(*_: Any, **__: Any) -> None:
    """Neither a check nor a result."""


KILLED, FAILED, READ_ONLY = 29, 24, others.MODES.index(0o444)
TAKEN = bytes([0, 1]).ljust(HEAD, b"\0")  # with a file of somebody else that is called m.onnx.data
BACKUP = others.COPIES.index("backup.onnx")
ODD = doings.ODD_TARGETS.index("net.py")
NO_REASON = ("proto_schema.files.owned.Surroundings.objection", lambda *_: "")

# (input, what to replace by what, how the finding begins): guards of the writers, each taken away
UNGUARDED: list[tuple[bytes, tuple[Any, ...], str]] = [
    (TAKEN + saved(), NO_REASON, "Violation: save, done: a file of others is gone"),
    (
        ONE + saved(4) + other(others.copy, 0, 0, BACKUP) + saved(where=4),
        ("proto_schema.files.owned.Surroundings.user", lambda *_: ""),
        "Violation: save, done: another model is broken",
    ),
    (
        ONE + saved(where=4),
        ("proto_schema.files.owned.Surroundings.leftovers", nothing),
        "Violation: save, done: data of the replaced model is still there",
    ),
    (
        PLAIN + saved(fault=KILLED, at=10) + saved(),
        ("proto_schema.files.owned.Surroundings.temporaries", nothing),
        "Violation: save, done: what a killed save left is still there",
    ),
    (
        ONE + saved(fault=FAILED, at=9),
        ("proto_schema.files.commit.Commit._clean", ignore),
        "Violation: save, failed: something new is left behind",
    ),
    (
        INLINE + saved(4) + other(others.mode, 0, 0, READ_ONLY) + saved(),
        ("proto_schema.files.saving.judge", ignore),
        "Violation: save, done: a read-only file is replaced",
    ),
    (
        INLINE + saved(4) + called(doings.canonicalize, 1, 0, 0, 1, ODD),
        ("proto_schema.files.commit.judge", ignore),
        "Violation: canonicalize, done: a file of another kind is replaced",
    ),
    (
        INLINE + saved(4) + called(doings.npy, 1, 0, 1, 0),
        ("proto_schema.files.commit.judge", ignore),
        "Violation: npy, done: a file that the same command reads is replaced",
    ),
    (AGAIN, ("proto_schema.files.durable.keep_mode", ignore), "Violation: save, done: the target has another mode"),
    (
        ONE + saved(4, where=4) + called(doings.load, 1, 0) + other(others.overwrite, 2, 0) + saved(3, kind=3),
        ("proto_schema.external.Folder.look", ignore),
        "Violation: save, done: the new model has other weights",
    ),
]


@pytest.mark.parametrize(
    ("data", "change", "finding"), UNGUARDED, ids=[f"{n}: {row[2]}" for n, row in enumerate(UNGUARDED)]
)
def test_a_guard_that_is_gone_is_found(
    data: bytes, change: tuple[Any, ...], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(HARNESS, data)[1] == ""
    monkeypatch.setattr(*change)
    assert outcome(HARNESS, data)[1].startswith(finding)


def test_the_story_of_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*NO_REASON)
    assert harness.told(TAKEN + saved()) == [
        'ps.save(model(1), "m.onnx", external_data=True, size_threshold=50, alignment=64)',
        "# Violation: save, done: a file of others is gone",
    ]


def test_a_step_that_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "PATIENCE", 0.1)
    monkeypatch.setattr(ps, "save", lambda *_, **__: time.sleep(30))
    assert outcome(HARNESS, ONE)[1] == "Violation: a step does not end"
