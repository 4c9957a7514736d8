"""What an export tells while it runs: stages and bytes, to functions, to the log, and to people at a terminal."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import purexport
from proto_schema.external import meter
from purexport import progress
from purexport.cli.main import main
from purexport.progress import Pace, Progress, bar, duration
from purexport.progress.bar import Line
from tests.conftest import Logged

LINEAR = torch.nn.Linear(512, 512)


class Clock:
    """Each look takes `step` seconds."""

    def __init__(self, step: float) -> None:
        self.now, self.step = -step, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


PACES = [  # seconds since the start, done, total, text
    (2, 10**9, 4 * 10**9, "1 GB of 4 GB, 500 MB/s, 6 s left"),
    (10, 10**9, 61 * 10**9, "1 GB of 61 GB, 100 MB/s, 10 min 0 s left"),
    (100, 10**6, 10**9, "1 MB of 1 GB, 10 kB/s, 27 h 45 min left"),
    (3, 2 * 10**9, 2 * 10**9, "2 GB of 2 GB, 667 MB/s, in 3 s"),
    (0, 5, 10, "5 B of 10 B"),
    (9, 0, 10, "0 B of 10 B"),
]


@pytest.mark.parametrize(("seconds", "done", "total", "text"), PACES, ids=[row[3] for row in PACES])
def test_pace(seconds: float, done: int, total: int, text: str) -> None:
    assert Pace(Clock(seconds)).text(done, total) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599.6, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def plain(*stage: Any) -> None:
    heard.append(stage)


def with_bytes(stage: str, number: int, stages: int, *, done: int = 0, total: int = 0) -> None:
    heard.append((stage, number, stages, done, total))


class Both:
    def __call__(self, *stage: Any, **sizes: int) -> None:
        heard.append((*stage, *sizes.values()))


heard: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


@pytest.mark.parametrize(("tell", "takes"), [(plain, False), (with_bytes, True), (Both(), True), (None, False)])
def test_only_those_who_take_bytes_hear_of_them(tell: Any, takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "EVERY", 1 << 12)
    target = io.BytesIO()
    purexport.export(LINEAR, (torch.ones(1, 512),), target, progress=tell)
    saves = [call for call in heard if call[:3] == ("save", 6, 6)]
    assert len(saves) == 0 if tell is None else (len(saves) >= 3) == takes
    if takes:
        size = len(target.getvalue())
        assert saves[-1][3:] == (size, size)
    assert (Progress(tell).bytes is not None) == takes


def test_the_log_has_a_line_every_few_seconds(logged: Logged) -> None:
    log = progress.Log(Clock(1.0))
    log("save", 6, 6)
    for done in range(10):
        log("save", 6, 6, done=done * 10**6, total=10**7)
    texts = logged.messages
    assert texts[0] == "export: save (6/6)" and 2 <= len(texts) <= 3
    assert all("MB of 10 MB" in text and "left" in text for text in texts[1:])


def test_the_line_is_drawn_over_itself_and_erased() -> None:
    out = io.StringIO()
    line = Line(out, Clock(0.06))
    line("lower", 3, 6)
    line("save", 6, 6)
    for done in range(6):
        line("save", 6, 6, done=done * 10**6, total=5 * 10**6)
    line.erase()
    drawn = out.getvalue().split("\r")
    assert drawn[:3] == ["", "lower (3/6)", "save (6/6) "] and drawn[-1] == ""
    assert re.match(r"save \[#+\] 5 MB of 5 MB, ", drawn[-3]) and drawn[-2] == " " * len(drawn[-3].rstrip())
    assert 2 <= sum("MB of" in text for text in drawn) < 6
    widths = [len(text) for text in drawn[1:-1]]
    assert all(now >= len(before.rstrip()) for before, now in zip(drawn[1:-2], widths[1:], strict=True))


def chunk(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how Linux says that nobody has the other end of a terminal
        return b""


@pytest.mark.filterwarnings("ignore")
def test_people_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "seen_net.py").write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 4)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    read, write = pty.openpty()
    with open(write, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["export", "seen_net:make", "--input", "x=float32[1,4]", "-o", "m.onnx"]) == 0
    text = b"".join(iter(lambda: chunk(read), b""))
    os.close(read)
    assert b"\rcapture (1/6)" in text and b"\rsave" in text and text.endswith(b" \r") and text.isascii()
    printed = capsys.readouterr().out
    assert printed.startswith("wrote     m.onnx") and "\r" not in printed


class Looked(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_drawn_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread looks at the clock, since a stage says nothing; a warning takes the place of the line."""
    monkeypatch.setattr(sys, "stderr", out := Looked())
    monkeypatch.setattr(bar, "_TICK", 0.01)
    showwarning = warnings.showwarning
    with bar.shown(None, 0.01) as tell:
        assert callable(tell)
        tell("capture", 1, 6)
        while "capture (1/6)" not in out.getvalue():
            time.sleep(0.01)
        tell("save", 6, 6, done=10, total=10)
    assert re.search(r"save \[#+\] 10 B of 10 B", out.getvalue())
    assert out.getvalue().endswith("\r") and warnings.showwarning is showwarning
    assert not [thread for thread in threading.enumerate() if thread.name == "purexport-progress"]


@pytest.mark.parametrize("told", [False, True, plain])
def test_what_was_asked_for_stays(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := Looked())
    monkeypatch.setattr(bar, "DELAY", 0.0)
    with bar.shown(told) as tell:
        assert tell is told
    purexport.export(LINEAR, (torch.ones(1, 512),), io.BytesIO(), progress=told)
    assert "\r" not in out.getvalue()


def test_nothing_is_drawn_for_what_is_short_or_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Looked(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        purexport.export(torch.nn.ReLU(), (torch.ones(1),), io.BytesIO())
        assert stream.getvalue() == ""
    assert not bar.is_looked_at(None)


def test_a_program_without_logging_sees_what_it_asked_for() -> None:
    """The handler that does nothing is none that hears."""
    assert any(isinstance(handler, logging.NullHandler) for handler in progress.LOGGER.handlers)
    assert not progress._is_heard(logging.Logger("alone"))
