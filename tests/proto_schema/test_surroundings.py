"""Other threads, the locale, the current folder: none of it shows in what is read or written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import tensors
from proto_schema.numpy_helper import from_array, to_array
from tests.proto_schema.test_limits import model, nodes, printed, with_package


def weighted(seed: int, count: int = 20) -> ps.ModelProto:
    rng = np.random.default_rng(seed)
    return model(nodes(50), *(from_array(rng.random(300, np.float32), f"w{number}") for number in range(count)))


def test_threads_with_files_of_their_own(tmp_path: Path) -> None:
    """Load, values, check, save, show, edit: eight threads, each with another model, give what one alone gives."""
    problems: list[str] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        made, folder = weighted(seed), tmp_path / str(seed)
        folder.mkdir()
        start.wait()
        try:
            for step in range(4):
                path = folder / f"{step}.onnx"
                ps.save(made, path, external_data=step % 2 == 1)
                loaded = ps.load(path)
                ps.checker.check_model(path)
                for mine, theirs in zip(tensors(loaded), tensors(made), strict=True):
                    np.testing.assert_array_equal(to_array(mine), to_array(theirs))
                ps.save(loaded, folder / "again.onnx", external_data=False)
                if (folder / "again.onnx").read_bytes() != made.SerializeToString():
                    problems.append(f"model {seed} is another one")
        except Exception as error:  # a thread's errors are nobody's
            problems.append(f"{type(error).__name__}: {error}")

    run(work, 8)
    assert problems == []


def test_threads_with_one_file(tmp_path: Path) -> None:
    """One loaded model, read by eight threads for the first time at once, while two others save over its file."""
    path = tmp_path / "m.onnx"
    ps.save(weighted(0), path, external_data=True, shard_size=4000)
    loaded, expected = ps.load(path), list(map(to_array, tensors(weighted(0))))
    problems: list[str] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        try:
            for mine, value in zip(tensors(loaded), expected, strict=True):
                np.testing.assert_array_equal(to_array(mine), value)
            if number < 2:
                ps.save(loaded, tmp_path / f"copy{number}.onnx")
        except Exception as error:  # a thread's errors are nobody's
            problems.append(f"{type(error).__name__}: {error}")

    run(work, 8)
    assert problems == []
    assert (tmp_path / "copy0.onnx").read_bytes() == (tmp_path / "copy1.onnx").read_bytes()


def run(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


PROGRAM = """
import os, sys
import proto_schema as ps
from purexport.cli.main import main
path, text = sys.argv[1], sys.argv[2].encode("ascii").decode("unicode_escape")
model = ps.load(path)
model.producer_name = text
model.graph.node[0].name = "I" + text
ps.save(model, os.path.join(os.path.dirname(path), "out.onnx"), external_data=True, size_threshold=0)
ps.checker.check_model(os.path.join(os.path.dirname(path), "out.onnx"))
text = ps.helper.printable_graph(model.graph)
for words in (["show", path], ["stat", path], ["inspect", path], ["check", path]):
    assert main(words) == 0, words
"""
LOCALES: list[tuple[str, dict[str, str]]] = [
    ("C, no UTF-8 by Python", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    ("POSIX, ASCII streams", {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}),
    ("Turkish, if it is installed", {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    ("German, commas in numbers, Latin 1", {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0"}),
]


@pytest.mark.parametrize("settings", [row[1] for row in LOCALES], ids=[row[0] for row in LOCALES])
def test_locales(settings: dict[str, str], tmp_path: Path) -> None:
    """The same bytes are written, and what is printed is ASCII."""
    folder = tmp_path / "m\u00f6del"
    folder.mkdir()
    ps.save(weighted(1, 2), folder / "m.onnx")
    text = "\u0130\u0131 \u00e4 \u65e5"
    command = [sys.executable, "-c", PROGRAM, os.fsencode(folder / "m.onnx"), text.encode("unicode_escape")]
    environment = {name: value for name, value in with_package().items() if not name.startswith(("LC_", "LANG"))}
    done = subprocess.run(command, capture_output=True, check=False, env={**environment, **settings})
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    expected = ps.load(folder / "m.onnx")
    assert expected.graph is not None
    expected.producer_name, expected.graph.node[0].name = text, f"I{text}"
    (tmp_path / "here").mkdir()
    ps.save(expected, tmp_path / "here/out.onnx", external_data=True, size_threshold=0)
    for name in ("out.onnx", "out.onnx.data"):
        assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert done.stdout.isascii()


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute paths need none; a relative one is an OSError of the system's."""
    path, gone = tmp_path / "m.onnx", tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ps.save(weighted(2), path, external_data=True)
    loaded = ps.load(path)
    for mine, theirs in zip(tensors(loaded), tensors(weighted(2)), strict=True):
        np.testing.assert_array_equal(to_array(mine), to_array(theirs))
    ps.save(loaded, tmp_path / "again.onnx")
    ps.checker.check_model(path)
    assert ps.loads(ps.dumps(loaded)) == loaded
    for verb in ("show", "stat", "inspect", "check"):
        assert printed(verb, path)[0] == 0
    with pytest.raises(OSError, match=r"m\.onnx|No such file"):
        ps.save(loaded, "m.onnx")


def test_a_current_folder_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was loaded by a relative path finds its data from anywhere."""
    monkeypatch.chdir(tmp_path)
    ps.save(weighted(3), "m.onnx", external_data=True, shard_size=4000)
    loaded = ps.load("m.onnx")
    monkeypatch.chdir("/")
    for mine, theirs in zip(tensors(loaded), tensors(weighted(3)), strict=True):
        np.testing.assert_array_equal(to_array(mine), to_array(theirs))
