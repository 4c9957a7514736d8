"""What a verb may overwrite: nothing that it reads, no data of a model, and no file of the user's without --force.

Each row is refused with status 2 and one line, which names the file and says what to do; the folder is compared byte
for byte. Then what the verbs do with the modes of what they replace, and with targets that are no regular files.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import proto_schema as ps
from purexport.cli.main import main
from tests.proto_schema.decoys import Watched
from tests.proto_schema.stress import EXTERNAL, held_by, model
from tests.tiers import dealt

ROOT = Path(__file__).parents[2]
NET = """
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
"""
EXPORT = ("export", "net.py:Net", "--input", "x=float32[1,4]")
FOREIGN = b"a file of the user's\n"
WAY_OUT = ("another", "other", "elsewhere", "new file", "--force")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models with data, a module, weights, an array, and files of the user's."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, number in (("m.onnx", 1), ("n.onnx", 2)):
        ps.save(model(number), folder / name, **EXTERNAL)
    (folder / "damaged.onnx").write_bytes(model(3).SerializeToString() + b"\x3a\xff\x01")
    (folder / "net.py").write_text(NET)
    net = torch.nn.Linear(4, 2)
    torch.save(net.state_dict(), folder / "w.pt")
    np.savez(folder / "w.npz", **{name: value.detach().numpy() for name, value in net.state_dict().items()})
    np.save(folder / "x.npy", np.ones((1, 4), np.float32))
    for name in ("notes.txt", "m.html", "w.safetensors", "y.npy", "out.tar"):
        (folder / name).write_bytes(FOREIGN)
    os.symlink("m.onnx", "link.onnx")
    os.symlink("m.onnx.data", "link.data")
    return folder


def to(target: str) -> list[list[str]]:
    """Every verb that writes a file, on m.onnx, with this target."""
    return [
        ["canonicalize", "m.onnx", "-o", target],
        ["infer", "m.onnx", "-o", target],
        ["merge", "m.onnx", "m.onnx", "--prefix", "a/", "-o", target],
        ["convert", "m.onnx", "--opset", "21", "-o", target],
        ["simplify", "m.onnx", "-o", target],
        ["quantize", "m.onnx", "--type", "float16", "-o", target],
        ["salvage", "m.onnx", "-o", target],
        ["html", "m.onnx", "-o", target],
        ["diff", "m.onnx", "m.onnx", "--html", target],
        ["extract", "m.onnx", "--tensor", "w1", "-o", target],
        ["extract", "m.onnx", "--tensors", "-o", target],
        ["extract", "m.onnx", "--outputs", "y", "-o", target],
        ["edit", "m.onnx", "--metadata", "a=b", "-o", target],
        [*EXPORT, "--weights", "w.npz", "-o", target],
    ]


NOT_IN_PLACE = ("salvage", "html", "diff", "extract", "merge", "quantize")  # the model has more than their result

# words, the file that the message names
NEVER: list[tuple[list[str], str]] = [
    *((words, "m.onnx.data") for words in to("m.onnx.data")),
    *((words, "n.onnx.data") for words in to("n.onnx.data")),
    *((words, "link.data") for words in to("link.data") if words[0] in ("canonicalize", "html")),
    (["run", "m.onnx", "--input", "x=@x.npy", "-o", "x.npy"], "x.npy"),
    (["run", "m.onnx", "--inputs", "w.npz", "-o", "w.npz"], "w.npz"),
    *((words, "m.onnx") for words in to("m.onnx") if words[0] in NOT_IN_PLACE),
    *((words, "link.onnx") for words in to("link.onnx") if words[0] in NOT_IN_PLACE),
    *((words, "m.onnx") for words in to("../folder/m.onnx") if words[0] in ("salvage", "html", "quantize")),
    ([*EXPORT, "-o", "net.py"], "net.py"),
    (["compare", "net.py:Net", "m.onnx", *EXPORT[2:], "--html", "net.py"], "net.py"),
    (["compare", "n.onnx", "m.onnx", "--input", "x=@x.npy", "--html", "n.onnx.data"], "n.onnx.data"),
    (["compare", "n.onnx", "m.onnx", "--input", "x=@x.npy", "--html", "x.npy"], "x.npy"),
    (["export", "net:Net", *EXPORT[2:], "-o", "net.py"], "net.py"),
    ([*EXPORT, "--weights", "w.pt", "-o", "w.pt"], "w.pt"),
    ([*EXPORT, "--weights", "w.npz", "-o", "w.npz"], "w.npz"),
    ([*EXPORT, "--weights", "w.pt", "--external-data", "-o", "w.pt"], "w.pt"),
    (["export", "net.py:Net", "--input", "x=@x.npy", "-o", "x.npy"], "x.npy"),
    ([*EXPORT, "--weights", "w.pt", "--tar", "-o", "w.pt"], "w.pt"),
]
WITHOUT_FORCE: list[tuple[list[str], str]] = [
    *((words, "notes.txt") for words in to("notes.txt")),
    *((words, "x.npy") for words in to("x.npy")),
    (["html", "m.onnx"], "m.html"),
    (["extract", "m.onnx", "--tensor", "w1", "-o", "y.npy"], "y.npy"),
    (["extract", "m.onnx", "--tensors", "-o", "w.safetensors"], "w.safetensors"),
    (["run", "m.onnx", "-o", "y.npy"], "y.npy"),
    ([*EXPORT, "--tar", "-o", "out.tar"], "out.tar"),
]


def named(rows: Sequence[tuple[list[str], str]]) -> list[str]:
    return [" ".join(words) for words, _ in rows]


def refused(words: Sequence[str], name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(folder)
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert name in error and error.count("\n") == 1 and any(word in error for word in WAY_OUT), error
    assert watched.changes() == [] and watched.left() == []


@pytest.mark.parametrize(("words", "name"), dealt(NEVER, 2, named(NEVER)))
def test_what_no_option_overwrites(
    words: list[str], name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(words, name, folder, capsys)
    refused([*words, "--force"], name, folder, capsys)


@pytest.mark.parametrize(("words", "name"), WITHOUT_FORCE, ids=named(WITHOUT_FORCE))
def test_what_force_overwrites(words: list[str], name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(words, name, folder, capsys)
    before, watched = (folder / name).read_bytes(), Watched(folder, [name])
    assert main([*words, "--force"]) == (words[0] == "quantize")  # 1: no weight of this model is in a product
    assert (folder / name).read_bytes() != before and watched.changes() == []


def test_the_data_that_two_models_share(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`canonicalize` to another file of the folder, which refers to the same data, and `edit` too."""
    assert (
        main(["canonicalize", "m.onnx", "-o", "c.onnx"])
        == main(["edit", "m.onnx", "--metadata", "a=b", "-o", "e.onnx"])
        == 0
    )
    ps.save(model(5), folder / "m.onnx", external_data=False)
    ps.save(model(7), folder / "c.onnx", external_data=False)
    assert [held_by(folder / name) for name in ("m.onnx", "c.onnx", "e.onnx")] == ["5", "7", "1"]


# ---- modes and owners

KEEPING = {  # verbs that replace m.onnx, or another file with --force
    "canonicalize": ["canonicalize", "m.onnx", "-o", "m.onnx"],
    "infer": ["infer", "damaged.onnx", "-o", "m.onnx", "--force"],
    "convert": ["convert", "damaged.onnx", "--opset", "21", "-o", "m.onnx", "--force"],
    "simplify": ["simplify", "damaged.onnx", "-o", "m.onnx", "--force"],
    "quantize": ["quantize", "damaged.onnx", "-o", "m.onnx", "--force"],
    "edit": ["edit", "m.onnx", "--metadata", "a=b"],
    "edit --append": ["edit", "m.onnx", "--metadata", "a=b", "--append"],
    "salvage": ["salvage", "damaged.onnx", "-o", "m.onnx", "--force"],
    "extract, graph": ["extract", "damaged.onnx", "--outputs", "y", "-o", "m.onnx", "--force"],
    "extract, tensor": ["extract", "m.onnx", "--tensor", "w1", "-o", "y.npy", "--force"],
    "extract, all": ["extract", "m.onnx", "--tensors", "-o", "w.safetensors", "--force"],
    "html": ["html", "m.onnx", "--force"],
    "export": [*EXPORT, "-o", "m.onnx"],
}
TARGETS = {"extract, tensor": "y.npy", "extract, all": "w.safetensors", "html": "m.html"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("verb", KEEPING)
def test_mode_and_owner_stay(verb: str, folder: Path) -> None:
    target = folder / TARGETS.get(verb, "m.onnx")
    (folder / "damaged.onnx").write_bytes(model(3).SerializeToString())
    os.chown(target, 1234, 2345)
    target.chmod(0o640)
    before = target.read_bytes()
    assert main(KEEPING[verb]) == (verb == "quantize")  # 1: no weight of this model is in a product
    status = target.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o640, 1234, 2345)
    assert target.read_bytes() != before or verb == "canonicalize"


@pytest.mark.parametrize("verb", KEEPING)
def test_a_read_only_file_is_refused(verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = TARGETS.get(verb, "m.onnx")
    (folder / "damaged.onnx").write_bytes(model(3).SerializeToString())
    (folder / target).chmod(0o444)
    refused([word for word in KEEPING[verb] if word != "--force"], target, folder, capsys)


# ---- what is no regular file

# Every verb with a target that is a pipe, with one that is an open file under a name as /dev/stdout is, and with a
# device. One process, so that what hangs is ended; prints what is wrong.
STREAMS = """
import faulthandler, os, stat, sys, threading
from pathlib import Path
from purexport.cli.main import main

verbs = eval(sys.argv[1])
words_out = os.dup(1)
faulthandler.dump_traceback_later(60, exit=True)
os.symlink("/proc/self/fd/1", "stdout")
os.symlink("/proc/self/fd", "fd")
sink = os.open("sink", os.O_WRONLY | os.O_CREAT, 0o666)

def said(*words):
    os.write(words_out, (" ".join(map(str, words)) + "\\n").encode())

def run(words):
    os.dup2(sink, 1)
    status = main(words)
    sys.stdout.flush()
    return status

for verb, words in verbs.items():
    wanted = int(verb == "quantize")  # no weight of this model is in a product
    status = run([*words, "-o", "expected"])
    if status != wanted:
        said(verb, "to a file:", status)
        continue
    expected = Path("expected").read_bytes()
    os.unlink("expected")
    os.mkfifo("pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    said(verb, "to a pipe ...")
    status = run([*words, "-o", "pipe"])
    reader.join(5)
    if status != wanted or found != [expected] or not stat.S_ISFIFO(os.lstat("pipe").st_mode):
        said("WRONG", verb, "to a pipe:", status, [len(data) for data in found], len(expected))
    os.unlink("pipe")
    for name, number in (("stdout", 1), ("fd/7", 7)):
        said(verb, "to", name, "...")
        opened = os.open("opened", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(sink, 1)
        os.dup2(opened, number)
        status = main([*words, "-o", name])
        sys.stdout.flush()
        os.dup2(sink, 1)
        data = Path("opened").read_bytes()
        if status != wanted or data != expected or not os.path.islink("stdout"):
            said("WRONG", verb, "to", name, status, len(data), len(expected), os.path.islink("stdout"))
            if not os.path.islink("stdout"):
                os.unlink("stdout")
                os.symlink("/proc/self/fd/1", "stdout")
    if os.geteuid() == 0:
        os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        status = run([*words, "-o", "device"])
        if status != wanted or not stat.S_ISCHR(os.lstat("device").st_mode):
            said("WRONG", verb, "to a device:", status)
        os.unlink("device")
said("done")
"""
TO_STREAMS = {
    "canonicalize": ["canonicalize", "i.onnx"],
    "infer": ["infer", "i.onnx"],
    "merge": ["merge", "i.onnx", "i.onnx", "--prefix", "a/"],
    "convert": ["convert", "i.onnx", "--opset", "21"],
    "simplify": ["simplify", "i.onnx"],
    "quantize": ["quantize", "i.onnx", "--type", "float16"],
    "salvage": ["salvage", "i.onnx"],
    "html": ["html", "i.onnx"],
    "edit": ["edit", "i.onnx", "--metadata", "a=b"],
    "extract, tensor": ["extract", "i.onnx", "--tensor", "w1"],
    "extract, all": ["extract", "i.onnx", "--tensors"],
    "extract, graph": ["extract", "i.onnx", "--outputs", "y"],
    "export": list(EXPORT),
}


@pytest.mark.full
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_what_is_no_regular_file_is_written_to(folder: Path) -> None:
    """Once, whole, with nothing else in it; and it stays what it is. `edit` may refuse."""
    ps.save(model(1), folder / "i.onnx", external_data=False)
    command = [sys.executable, "-c", STREAMS, repr(TO_STREAMS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG") and "edit" not in line]
    assert wrong == [] and done.stdout.endswith("done\n"), done.stdout[-300:] + done.stderr[-2000:]


# ---- what an export finds out before it begins


@pytest.mark.parametrize(("target", "options"), [("notes.txt", []), ("n.onnx.data", []), ("out.tar", ["--tar"])])
def test_a_target_is_judged_before_the_export(
    target: str, options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is not even made."""
    (folder / "net.py").write_text(NET + "        open('made', 'w').close()\n")
    refused([*EXPORT, *options, "-o", target], target, folder, capsys)
