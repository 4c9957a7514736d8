"""The process of a command line: its answer stands whatever becomes of its streams, of its model's code, of itself."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.numpy_helper import from_array
from purexport.cli.main import main
from purexport.cli.process import EndedBySignal, ended_by_signals

pytestmark = pytest.mark.usefixtures("signals_end")

ROOT = Path(__file__).parents[2]
T = ps.TensorProto


def _model(op_type: str = "Add") -> ps.ModelProto:
    info = ps.helper.make_tensor_value_info
    node = ps.helper.make_node(op_type, ["x", "w"], ["y"], name="n")
    weight = from_array(np.arange(600, dtype=np.float32), "w")
    graph = ps.helper.make_graph([node], "g", [info("x", T.FLOAT, [600])], [info("y", T.FLOAT, [600])], [weight])
    return ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a good model, an invalid one, a broken one, and one whose data is missing."""
    monkeypatch.chdir(tmp_path)
    ps.save(_model(), "good.onnx")
    ps.save(_model("Nope"), "bad.onnx")
    Path("broken.onnx").write_bytes(Path("good.onnx").read_bytes()[:-50])
    ps.save(_model(), "ext.onnx", external_data=True)
    Path("ext.onnx.data").unlink()
    return tmp_path


def _command(argv: str) -> list[str]:
    return [sys.executable, "-m", "purexport", *shlex.split(argv)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


# Streams that take nothing -------------------------------------------------------------------------------------------

# the command line, its exit status
ANSWERS = [
    ("check good.onnx", 0),
    ("check bad.onnx", 1),
    ("infer good.onnx", 0),
    ("convert good.onnx --opset 21 --dry-run", 0),
    ("simplify good.onnx --dry-run", 0),
    ("run good.onnx --trace", 0),
    ("quantize good.onnx --dry-run", 1),
    ("check bad.onnx --json", 1),
    ("check broken.onnx --parsers", 1),
    ("diff good.onnx good.onnx", 0),
    ("diff good.onnx bad.onnx", 1),
    ("inspect good.onnx", 0),
    ("inspect broken.onnx", 1),
    ("inspect broken.onnx --json", 1),
    ("inspect broken.onnx --hex", 1),
    ("salvage broken.onnx -o kept.onnx", 1),
    ("stat ext.onnx", 1),
    ("html broken.onnx -o page.html", 1),
    ("locate good.onnx 0", 0),
    ("show good.onnx", 0),
    ("edit good.onnx --set producer_name=me -o edited.onnx", 0),
    ("extract good.onnx --tensors -o w.safetensors", 0),
    ("canonicalize good.onnx -o same.onnx", 0),
    ("completion bash", 0),
    ("--help", 0),
    ("check --help", 0),
    ("show none.onnx", 2),
]


# One process that forks a command line for each row, so that Python starts only once: [status, standard error] of each.
RUNS = """
import json, os, sys
import numpy, proto_schema.checker, purexport.inspect
from purexport.cli.main import entry

rows, where = json.loads(sys.argv[1]), sys.argv[2]
results = []
for argv in rows:
    child = os.fork()
    if child == 0:
        if where == "closed pipe":
            reader, writer = os.pipe()
            os.close(reader)
        else:
            writer = os.open(where, os.O_WRONLY)
        os.dup2(writer, 1)
        os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.argv = ["purexport", *argv]
        sys.exit(entry())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    results.append([status, open("err").read()])
print(json.dumps(results))
"""


def _runs(where: str, every: int = 1) -> dict[str, list[object]]:
    """What becomes of every so many of the rows."""
    rows = [argv for argv, _ in ANSWERS[::every]]
    command = [sys.executable, "-c", RUNS, json.dumps([row.split() for row in rows]), where]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return dict(zip(rows, json.loads(done.stdout), strict=True))


@pytest.mark.full
def test_a_closed_pipe_does_not_change_the_answer(files: Path) -> None:
    found = _runs("closed pipe")
    assert {argv: status for argv, (status, _) in found.items()} == dict(ANSWERS)
    assert [argv for argv, (_, text) in found.items() if text] == [argv for argv, status in ANSWERS if status == 2]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
def test_a_full_standard_output_is_an_error(every: int, files: Path) -> None:
    """One line, which is an object with `--json`."""
    for argv, (status, text) in _runs("/dev/full", every).items():
        error = "none.onnx: No such file or directory" if "none" in argv else "standard output: No space left on device"
        if "--json" in argv:
            assert isinstance(text, str)
            assert json.loads(text)["error"]["message"] == "[Errno 28] No space left on device: 'standard output'"
        else:
            verb = "" if "--help" in argv else f" {argv.split()[0]}"
            assert text == f"purexport{verb}: {error}\n", argv
        assert status == 2, argv


def test_errors_into_a_closed_pipe(files: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert subprocess.run(_command("show none.onnx"), check=False, env=ENVIRONMENT, stderr=writer).returncode == 2
    assert subprocess.run(_command("show"), check=False, env=ENVIRONMENT, stderr=writer).returncode == 2
    os.close(writer)


def test_a_full_standard_error_does_not_change_the_answer(files: Path) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run(_command("show none.onnx"), check=False, env=ENVIRONMENT, stderr=full).returncode == 2
        assert subprocess.run(_command("check bad.onnx"), check=False, env=ENVIRONMENT, stderr=full).returncode == 1


# how the shell starts it, what it says on standard output and on standard error
CLOSED = [
    (">&-", "", "purexport: standard output is closed; redirect it, as in >/dev/null\n"),
    ("2>&-", "purexport: standard error is closed; redirect it, as in 2>/dev/null\n", ""),
    (">&- 2>&-", "", ""),
]


@pytest.mark.parametrize(("how", "out", "err"), CLOSED, ids=[row[0] for row in CLOSED])
@pytest.mark.parametrize("argv", ["edit good.onnx --set producer_name=me", "--help"])
def test_a_closed_stream_is_refused_before_anything_is_done(
    argv: str, how: str, out: str, err: str, files: Path
) -> None:
    before = Path("good.onnx").read_bytes()
    command = f"{shlex.join(_command(argv))} {how}"
    done = subprocess.run(["bash", "-c", command], check=False, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, out, err)
    assert Path("good.onnx").read_bytes() == before


def test_text_that_the_terminal_cannot_encode(files: Path) -> None:
    """A file's name that is no text, in a locale of ASCII: escaped, and no error."""
    name = b"caf\xe9.onnx"
    os.rename("good.onnx", name)
    command = [os.fsencode(word) for word in _command("canonicalize")] + [name, b"-o", b"\xff.onnx"]
    for encoding in ("ascii", "utf-8"):
        environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, check=False, env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.startswith(b"wrote \\udcff.onnx")


def test_what_a_model_prints_is_no_error_either() -> None:
    code = "from purexport.cli.process import take_streams; take_streams(); print('caf\\xe9 \\udcff')"
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"caf\\xe9 \\udcff\n", b"")


# Code of the model that ends the process -----------------------------------------------------------------------------

ENDS = """
import sys

import torch
from torch import nn


def end(how):
    if how == "exit":
        sys.exit(0)
    if how == "text":
        raise SystemExit("no licence")
    if how == "interrupt":
        raise KeyboardInterrupt
    raise BaseException("other")


class Net(nn.Module):
    how = None

    def forward(self, x):
        if self.how:
            end(self.how)
        return x + 1


class Made(Net):
    def __init__(self):
        super().__init__()
        end(HOW)


class Called(Net):
    how = HOW

"""

# how it ends, what is said of it
WAYS = [
    ("exit", "SystemExit: 0"),
    ("text", "SystemExit: no licence"),
    ("interrupt", "KeyboardInterrupt"),
    ("other", "BaseException: other"),
]
LINES = {"exit": 10, "text": 12, "interrupt": 14, "other": 15}
PLACES = [("import", ()), ("Made", ()), ("Called", ()), ("Called", ("--capture", "export"))]


@pytest.mark.parametrize(("how", "said"), WAYS, ids=[row[0] for row in WAYS])
@pytest.mark.parametrize(("place", "options"), PLACES, ids=["import", "constructor", "trace", "torch.export"])
def test_a_model_that_ends_the_process(
    how: str,
    said: str,
    place: str,
    options: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line that says what was raised and where; no answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = ENDS.replace("HOW", repr(how)) + ("\n\nend(Called.how)\n" if place == "import" else "")
    Path("ends.py").write_text(text)
    monkeypatch.delitem(sys.modules, "ends", raising=False)
    name = "Net" if place == "import" else place
    assert main(["export", f"ends.py:{name}", "--input", "x=float32[2]", *options]) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and streams.err.count("\n") == 1
    assert f"ended by {said}" in streams.err and f"ends.py:{LINES[how]}" in streams.err
    assert not list(tmp_path.glob("*.onnx"))


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder for a module of that name, which is not loaded yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    return tmp_path / "net.py"


def test_a_module_that_reads_the_command_line(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line of the model's own code is named, not that of the library which ends the process."""
    net.write_text("import argparse\nargparse.ArgumentParser().parse_args(['--help'])\n")
    assert main(["export", "net.py:Net"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "cannot import net.py: it is ended by SystemExit: 0 at net.py:2" in last


# Signals ------------------------------------------------------------------------------------------------------------

SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


def _long(folder: Path) -> None:
    """A model of 2 GB of zeros that take no room on the disk, until they are written somewhere else."""
    tensor = T(name="w", data_type=T.FLOAT, dims=[1 << 29])
    entries = {"location": "zeros", "offset": "0", "length": str(1 << 31)}
    tensor.external_data = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
    tensor.data_location = T.EXTERNAL
    ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=[tensor])), folder / "long.onnx")
    with open(folder / "zeros", "wb") as file:
        file.truncate(1 << 31)


LATER = [SIGNALS[0], *(pytest.param(number, marks=pytest.mark.full) for number in SIGNALS[1:])]


@pytest.mark.parametrize("number", LATER, ids=lambda number: number.name)
def test_a_signal_in_the_middle_of_a_long_save(number: signal.Signals, tmp_path: Path) -> None:
    """The temporary file is gone at once, the old file stays, and the status is what shells expect."""
    (tmp_path / "w.safetensors").write_bytes(b"what was there")
    _long(tmp_path)
    before = set(os.listdir(tmp_path))
    with subprocess.Popen(
        _command("extract long.onnx --tensors -o w.safetensors --force"),
        env=ENVIRONMENT,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not _growing(tmp_path, before):
            time.sleep(0.002)
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (128 + number, "")
    assert err == f"purexport extract: ended by {number.name}\n"
    assert set(os.listdir(tmp_path)) == before
    assert (tmp_path / "w.safetensors").read_bytes() == b"what was there"


@pytest.mark.parametrize("second", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_does_not_interrupt_the_clean_up(second: signal.Signals) -> None:
    """timeout(1) sends its signal twice, and a closed terminal more than one. A later one counts again."""
    done = []
    with pytest.raises(EndedBySignal) as caught, ended_by_signals():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(second)
            done.append("cleaned up")
    assert done and caught.value.status == 143
    with pytest.raises(EndedBySignal), ended_by_signals():
        signal.raise_signal(second)


def _growing(folder: Path, before: set[str]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any((folder / name).stat().st_size > 1 << 20 for name in set(os.listdir(folder)) - before)
    return False


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_while_the_model_is_made(
    number: signal.Signals, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no mistake of the model."""
    net.write_text(f"import signal\nsignal.raise_signal({int(number)})\n")
    with ended_by_signals():
        assert main(["export", "net.py:Net"]) == 128 + number
    assert capsys.readouterr().err == f"purexport export: ended by {number.name}\n"


@pytest.mark.full
@pytest.mark.parametrize("number", SIGNALS[1:], ids=lambda number: number.name)
def test_a_signal_to_the_process_while_the_model_is_made(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        _command("export net.py:Net"), env=ENVIRONMENT, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        _, err = process.communicate()
    assert (process.returncode, err.decode()) == (128 + number, f"purexport export: ended by {number.name}\n")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.full
def test_a_signal_that_is_ignored_does_not_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nraise OSError('still here')\n"
    )
    command = ["nohup", *_command("export net.py:Net")]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1][-19:]) == (2, "OSError: still here")


def test_only_the_entry_takes_streams_and_signals(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    """`main` is a function that other programs call; so is everything below it."""

    def refuse(*_: object) -> None:
        raise AssertionError("a handler is installed")

    monkeypatch.setattr(signal, "signal", refuse)
    streams = sys.stdout, sys.stderr
    assert main(["check", "good.onnx"]) == 0
    assert (sys.stdout, sys.stderr) == streams
