"""What a save may touch: rows of a folder, one step, and what must be as before or refused after it.

Everything in the folder but the saved model and its own data files is watched: bytes, mode, owner, time. A refused
step names the file, says what to do, and touches nothing at all. `decoys.py` and `stress.py` have the parts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.files import owned
from proto_schema.files.naming import temporary_name
from proto_schema.files.saveplan import SavePlan
from proto_schema.numpy_helper import to_array
from purexport.inspect import Edits, canonicalize, edit
from tests.conftest import Logged
from tests.proto_schema.decoys import Watched, lay_out, naming, used_by
from tests.proto_schema.stress import EXTERNAL, held_by, model

INLINE: dict[str, Any] = {"external_data": False}
SHARDS: dict[str, Any] = {**EXTERNAL, "shard_size": 900}
W_BIN: dict[str, Any] = {**EXTERNAL, "location": "w.bin"}
FOREIGN = b"not written by us " * 300

Step = Callable[..., object]


def save(number: int, target: str = "m.onnx", **options: Any) -> Step:
    """A save of the model of this number."""
    return lambda folder, **more: ps.save(model(number), folder / target, **options, **more)


def put(name: str, content: bytes = FOREIGN) -> Step:
    """A file of somebody else."""
    return lambda folder: (folder / name).write_bytes(content)


def cp(name: str, copy: str) -> Step:
    """As the command of this name."""
    return lambda folder: shutil.copy(folder / name, folder / copy)


def mv(name: str, new: str) -> Step:
    return lambda folder: os.rename(folder / name, folder / new)


def link(name: str, new: str) -> Step:
    """A hard link."""
    return lambda folder: os.link(folder / name, folder / new)


def symlink(name: str, new: str) -> Step:
    return lambda folder: os.symlink(name, folder / new)


def append(name: str) -> Step:
    """The user adds something of his own to a data file."""

    def run(folder: Path) -> None:
        with open(folder / name, "ab") as file:
            file.write(b"a line of the user's\n")

    return run


def loaded_save(source: str, target: str, **options: Any) -> Step:
    """A model is loaded, and saved again from where it lies."""
    return lambda folder, **more: ps.save(ps.load(folder / source), folder / target, **options, **more)


@dataclass(frozen=True)
class Row:
    """After `before`, the `step` is done (`refused` empty), or refused with a text that this matches.

    `holds`: what the models hold then, by file. `ours`: the files that the step may replace or remove.
    `forced`: whether overwrite=True does what is refused without it.
    """

    name: str
    before: list[Step]
    step: Step
    refused: str = ""
    forced: bool = False
    holds: dict[str, int] = field(default_factory=dict)
    ours: tuple[str, ...] = ("m.onnx",)


DONE = [  # everything that is watched stays as it was, and the models hold what they should
    # a model does not choose what is deleted
    *(
        Row(
            f"{what}, over a model that names files of the user's",
            [
                lay_out,
                put("m.onnx", naming("m.onnx.bak", "m.onnx.md5", "m.onnx-notes.txt", "m.onnx.data-00001-of-00002")),
            ],
            save(2, **options),
            holds={"m.onnx": 2},
        )
        for what, options in {"inline": INLINE, "external": EXTERNAL, "shards": SHARDS}.items()
    ),
    Row(
        "over a model that names the data of another",
        [save(1, "n.onnx", **EXTERNAL), put("m.onnx", naming("n.onnx.data"))],
        save(2, **INLINE),
        holds={"m.onnx": 2, "n.onnx": 1},
    ),
    Row(
        "over a model that names the data of another that has moved",
        [save(1, "n.onnx", **EXTERNAL), mv("n.onnx", "../n.onnx"), put("m.onnx", naming("n.onnx.data"))],
        save(2, **INLINE),
        holds={"m.onnx": 2},
    ),
    Row(
        "over a model that names a file which only looks like its data",
        [put("m.onnx.data", bytes(4)), put("m.onnx", naming("m.onnx.data"))],
        save(2, **INLINE),
        holds={"m.onnx": 2},
    ),
    # copies of a model need its data
    *(
        Row(
            f"{what}, over a model with a copy",
            [save(1, **EXTERNAL), cp("m.onnx", "backup.onnx")],
            save(2, **options),
            holds={"m.onnx": 2, "backup.onnx": 1},
        )
        for what, options in {"inline": INLINE, "external": EXTERNAL, "shards": SHARDS, "location": W_BIN}.items()
    ),
    Row("shards with a copy", [save(1, **SHARDS), cp("m.onnx", "b.onnx")], save(2, **SHARDS), holds={"b.onnx": 1}),
    Row(
        "a copy of another suffix",
        [save(1, **EXTERNAL), cp("m.onnx", "m.onnx.bak")],
        save(2, **EXTERNAL),
        holds={"m.onnx.bak": 1, "m.onnx": 2},
    ),
    Row(
        "a hard link",
        [save(1, **EXTERNAL), link("m.onnx", "second.onnx")],
        save(2, **INLINE),
        holds={"second.onnx": 1, "m.onnx": 2},
    ),
    Row(
        "a model that was renamed",
        [save(1, **EXTERNAL), mv("m.onnx", "old.onnx")],
        save(2, **EXTERNAL),
        holds={"old.onnx": 1, "m.onnx": 2},
    ),
    # copies of the data, made by the user: of any name, they are the user's
    *(
        Row(
            f"data copied to {copy}",
            [save(1, **EXTERNAL), cp("m.onnx.data", copy)],
            save(2, **options),
            holds={"m.onnx": 2},
            ours=("m.onnx", "m.onnx.data"),
        )
        for copy in ("m.onnx.data.bak", "m.onnx.data.1", "m.onnx.1.data", "copy.data", "m.onnx.data.partial")
        for options in (INLINE, EXTERNAL)
    ),
    Row(
        "empty journals beside files of others, after a kill",
        [
            put("m.onnx.data.partial"),
            put("m.onnx.data.partial.journal", b""),
            put("film.partial"),
            put("film.partial.journal", b""),
            save(1, **EXTERNAL),
            put(".m.onnx.proto_schema-lock", b""),
        ],
        save(2, **EXTERNAL),
        holds={"m.onnx": 2},
        ours=("m.onnx", "m.onnx.data", ".m.onnx.proto_schema-lock"),
    ),
    *(
        Row(
            f"{what}, over data that a model in the folder above refers to",
            [save(1, **EXTERNAL), loaded_save("m.onnx", "../above.onnx", external_data="reference", size_threshold=0)],
            save(2, **options),
            holds={"m.onnx": 2, "../above.onnx": 1},
        )
        for what, options in {"inline": INLINE, "external": EXTERNAL}.items()
    ),
    Row("data to which the user has added", [save(1, **EXTERNAL), append("m.onnx.data")], save(2, **EXTERNAL)),
    # files that stand at the name of the data
    *(
        Row(f"{what}, beside a foreign m.onnx.data", [put("m.onnx.data")], save(2, **options), holds={"m.onnx": 2})
        for what, options in {"inline": INLINE, "external": EXTERNAL}.items()
    ),
    Row(
        "a model of others with that data",
        [put("m.onnx", naming("m.onnx.data")), put("m.onnx.data")],
        save(2, **EXTERNAL),
        holds={"m.onnx": 2},
    ),
    Row(
        "a link at the name of the data",
        [put("precious"), symlink("precious", "m.onnx.data")],
        save(2, **EXTERNAL),
        holds={"m.onnx": 2},
    ),
    Row(
        "a folder at the name of the data",
        [lambda folder: (folder / "m.onnx.data").mkdir()],
        save(2, **EXTERNAL),
        holds={"m.onnx": 2},
    ),
    # what is replaced without a word
    Row("an inline model of another program", [put("m.onnx", naming())], save(2, **EXTERNAL), holds={"m.onnx": 2}),
    Row("an empty file, as tempfile makes it", [put("m.onnx", b"")], save(2, **INLINE), holds={"m.onnx": 2}),
    # decoys of all kinds
    *(
        Row(
            f"{what}, among decoys",
            [lay_out, save(1, **old)],
            save(2, **new),
            "",
            False,
            {"m.onnx": 2},
            ("m.onnx", data),
        )
        for what, data, old, new in [
            ("inline over external", "m.onnx.data", EXTERNAL, INLINE),
            ("external over external", "m.onnx.data", EXTERNAL, EXTERNAL),
            ("shards over location", "w.bin", W_BIN, SHARDS),
        ]
    ),
]
REFUSED = [  # nothing is touched
    Row("a foreign file at the location", [put("w.bin")], save(2, **W_BIN), "w.bin", forced=True, holds={"m.onnx": 2}),
    Row("a link at the location", [put("precious"), symlink("precious", "w.bin")], save(2, **W_BIN), "w.bin"),
    Row("two models, one location", [save(1, "n.onnx", **W_BIN)], save(2, **W_BIN), r"w\.bin.*n\.onnx|n\.onnx.*w\.bin"),
    Row("the location of a copy", [save(1, **W_BIN), cp("m.onnx", "b.onnx")], save(2, **W_BIN), "w.bin"),
    Row("over its own data", [save(1, **EXTERNAL)], loaded_save("m.onnx", "m.onnx.data"), r"m\.onnx\.data"),
    Row("over the data of another", [save(1, "n.onnx", **EXTERNAL)], save(2, "n.onnx.data"), r"n\.onnx\.data"),
    *(
        Row(f"over {name}", [put(name)], save(2, name), name.replace(".", r"\."), True, {name: 2})
        for name in ("net.py", "x.npy", "model.safetensors", "notes.txt", "archive.tar")
    ),
    Row(
        "over another model's file, by location",
        [save(1, "n.onnx", **INLINE)],
        save(2, **{**EXTERNAL, "location": "n.onnx"}),
        r"n\.onnx",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Empty, in a folder of its own."""
    made = tmp_path / "models"
    made.mkdir()
    return made


def planned(step: Step, folder: Path) -> SavePlan:
    """What `plan` says to the arguments of a step that saves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ps, "save", ps.plan)
        found = step(folder)
    assert isinstance(found, SavePlan)
    return found


@pytest.mark.parametrize("row", DONE, ids=lambda row: row.name)
def test_what_is_left_alone(row: Row, folder: Path) -> None:
    for step in row.before:
        step(folder)
    watched = Watched(folder, row.ours)
    everything = Watched(folder)
    plan = planned(row.step, folder)
    assert everything.changes() == [] and everything.left() == []
    row.step(folder)
    assert watched.changes() == []
    assert {file.name: file.size for file in plan.files} == {
        name: (folder / name).stat().st_size for name in used_by(folder / "m.onnx")
    }
    assert {name: held_by(folder / name) for name in row.holds} == {n: str(value) for n, value in row.holds.items()}
    assert watched.left("m.onnx") == []


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_what_is_refused(row: Row, folder: Path) -> None:
    """Also with overwrite=True, where another model or the command itself would lose its data."""
    for step in row.before:
        step(folder)
    watched = Watched(folder)
    with pytest.raises((ValueError, OSError), match=row.refused):
        planned(row.step, folder)
    with pytest.raises((ValueError, OSError), match=row.refused):
        row.step(folder)
    assert watched.changes() == [] and watched.left() == []
    if row.forced:
        row.step(folder, overwrite=True)
        assert {name: held_by(folder / name) for name in row.holds} == {n: str(v) for n, v in row.holds.items()}
    else:
        with pytest.raises((ValueError, OSError), match=row.refused):
            row.step(folder, overwrite=True)
        assert watched.changes() == [] and watched.left() == []


def test_what_stays_is_named(tmp_path: Path, logged: Logged) -> None:
    """Data that the replaced model refers to, and that a save does not remove, is named in a message."""
    put("notes.bin")(tmp_path)
    put("m.onnx", naming("notes.bin"))(tmp_path)
    save(2, **INLINE)(tmp_path)
    assert "notes.bin" in logged.text


def test_a_foreign_partial_file(tmp_path: Path) -> None:
    """Without our journal it is somebody else's: refused, or written elsewhere."""
    for name in ("m.onnx.data.partial", "m.onnx.data.partial.journal"):
        put(name)(tmp_path)
    watched = Watched(tmp_path)
    try:
        save(2, **EXTERNAL, resume=True)(tmp_path)
    except (ValueError, OSError) as error:
        assert "m.onnx.data.partial" in str(error)
        assert watched.left() == []
    else:
        assert held_by(tmp_path / "m.onnx") == "2" and watched.left("m.onnx") == []
    assert watched.changes() == []


# ---- an old graph never gets new weights


def same_size(folder: Path) -> None:
    """Another program writes into the data file."""
    path = folder / "m.onnx.data"
    path.write_bytes(path.read_bytes().replace(b"\x02\0\0\0", b"\x03\0\0\0"))


def replaced(folder: Path) -> None:
    """... and another puts its own file in the place of it."""
    cp("m.onnx.data", "c")(folder)
    mv("c", "m.onnx.data")(folder)
    same_size(folder)


# what happens between load and use
CHANGES: list[tuple[str, Step]] = [
    ("external", save(3, **EXTERNAL)),
    ("shards", save(3, **SHARDS)),
    ("location", save(3, **W_BIN)),
    ("inline", save(3, **INLINE)),
    ("written into", same_size),
    ("replaced", replaced),
    ("gone", lambda folder: (folder / "m.onnx.data").unlink()),
]
OLDER: dict[str, dict[str, Any]] = {"external": EXTERNAL, "shards": SHARDS, "location": W_BIN}


CHANGED = [
    pytest.param(name, change, old, read, id=f"{name}-{old}-{'one tensor' if read else 'nothing'} read")
    for name, change in CHANGES
    for old in (["external"] if name in ("written into", "replaced", "gone") else OLDER)  # these change m.onnx.data
    for read in (False, True)
]


@pytest.mark.parametrize(("name", "change", "old", "read"), CHANGED)
def test_an_old_graph_has_old_weights(name: str, change: Step, old: str, read: bool, tmp_path: Path) -> None:
    save(2, **OLDER[old])(tmp_path)
    loaded = ps.load(tmp_path / "m.onnx")
    assert loaded.graph is not None
    if read:
        to_array(loaded.graph.initializer[0])
    change(tmp_path)
    try:
        ps.save(loaded, tmp_path / "q.onnx", external_data=False)
    except ps.ExternalDataError as error:
        assert "m.onnx" in str(error) or "w.bin" in str(error)
        assert not (tmp_path / "q.onnx").exists()
        found = [_value(tensor) for tensor in loaded.graph.initializer]
        assert set(found) <= {2, None} and None in found
    else:
        assert held_by(tmp_path / "q.onnx") == "2"


def _value(tensor: ps.TensorProto) -> int | None:
    try:
        (value,) = np.unique(to_array(tensor))
    except ps.ExternalDataError:
        return None
    return int(value)


# ---- names


@pytest.mark.parametrize("length", [200, 241, 242, 250, 255])
@pytest.mark.parametrize("options", [INLINE, EXTERNAL], ids=["inline", "external"])
def test_long_names(options: dict[str, Any], length: int, tmp_path: Path) -> None:
    """No name is longer than the system allows: that of the data file is cut."""
    name = "m" * (length - 5) + ".onnx"
    for number in (1, 2):
        save(number, name, **options)(tmp_path)
    assert held_by(tmp_path / name) == "2" and set(os.listdir(tmp_path)) == used_by(tmp_path / name)


# ---- locks

WAITING = """
import logging, sys
from pathlib import Path
from tests.proto_schema.test_ownership import EXTERNAL, save
logging.basicConfig(stream=sys.stdout, level=logging.INFO)
save(3, **EXTERNAL)(Path(sys.argv[1]))
"""


@contextmanager
def at_work(folder: Path) -> Iterator[threading.Event]:
    """A save of model 2, which is about to be committed, and is when the event is set."""
    inside, go_on = threading.Event(), threading.Event()

    def told(done: int, total: int) -> None:
        inside.set()
        go_on.wait(20)

    thread = threading.Thread(target=save(2, **EXTERNAL, progress=told), args=(folder,))
    thread.start()
    try:
        assert inside.wait(20)
        yield go_on
    finally:
        go_on.set()
        thread.join(20)


def waiting(folder: Path) -> subprocess.Popen[str]:
    """A process that wants to save, and has said that it waits."""
    command = [sys.executable, "-c", WAITING, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None and "m.onnx" in process.stdout.readline(), "it does not say that it waits"
    return process


def test_a_lock_is_waited_for_with_a_message(tmp_path: Path, logged: Logged) -> None:
    """A save that finds another one at work says so, and goes on after it; a thread as a process."""
    with at_work(tmp_path) as go_on:
        process = waiting(tmp_path)
        thread = threading.Thread(target=save(4, **EXTERNAL), args=(tmp_path,))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and process.poll() is None and not (tmp_path / "m.onnx").exists()
        assert "m.onnx" in logged.text
        go_on.set()
        thread.join(20)
        assert process.wait(20) == 0
    assert held_by(tmp_path / "m.onnx") in ("3", "4")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]


@pytest.mark.usefixtures("signals_end")
@pytest.mark.parametrize("by", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.full), "SIGKILL"])
def test_one_that_waits_is_ended(by: str, tmp_path: Path) -> None:
    """The one that works goes on, and the next one still waits for it."""
    with at_work(tmp_path) as go_on:
        process = waiting(tmp_path)
        process.send_signal(signal.Signals[by])
        assert process.wait(20) != 0
        thread = threading.Thread(target=save(4, **EXTERNAL), args=(tmp_path,))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and not (tmp_path / "m.onnx").exists()
        go_on.set()
        thread.join(20)
    assert held_by(tmp_path / "m.onnx") == "4" and sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]


def test_other_targets_are_not_waited_for(tmp_path: Path) -> None:
    """A save to another name of the folder, and reading, go on meanwhile."""
    save(1, **EXTERNAL)(tmp_path)

    def told(done: int, total: int) -> None:
        if not (tmp_path / "n.onnx").exists():
            save(3, "n.onnx", **EXTERNAL)(tmp_path)
        assert held_by(tmp_path / "m.onnx") == "1"

    save(2, **EXTERNAL, progress=told)(tmp_path)
    assert (held_by(tmp_path / "m.onnx"), held_by(tmp_path / "n.onnx")) == ("2", "3")


def test_a_lock_file_of_a_program_that_is_gone(tmp_path: Path) -> None:
    """Nobody holds it, so nobody waits, and it is swept."""
    (tmp_path / ".m.onnx.proto_schema-lock").write_bytes(b"")
    save(2, **EXTERNAL)(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]


def test_a_save_inside_of_its_own_progress(tmp_path: Path) -> None:
    """It must not wait for itself."""
    failed: list[Exception] = []

    def told(done: int, total: int) -> None:
        try:
            save(3, **EXTERNAL)(tmp_path)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=save(2, **EXTERNAL, progress=told), args=(tmp_path,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for itself"
    assert all(isinstance(error, (OSError, ValueError, RuntimeError)) for error in failed)
    assert held_by(tmp_path / "m.onnx") == "2"


def test_a_model_above_needs_the_data(tmp_path: Path) -> None:
    """It refers to a file in the folder of the target, which keeps it; the new model has its data elsewhere."""
    (tmp_path / "sub").mkdir()
    save(1, "sub/m.onnx", **EXTERNAL)(tmp_path)
    ps.save(ps.load(tmp_path / "sub" / "m.onnx"), tmp_path / "above.onnx", external_data="reference", size_threshold=0)
    for options in (EXTERNAL, INLINE):
        save(2, "sub/m.onnx", **options)(tmp_path)
        assert (held_by(tmp_path / "above.onnx"), held_by(tmp_path / "sub" / "m.onnx")) == ("1", "2")


@pytest.mark.parametrize("name", ["w\0bin", "\0", "w" * 300, "../" * 40 + "w", "\ud800"])
def test_data_of_a_name_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    """Whether the target is one of the files that the command reads is asked of every name that a model says."""
    found = ps.TensorProto(name="w", data_type=2, dims=[1], data_location=ps.TensorProto.EXTERNAL)
    found.external_data = [ps.StringStringEntryProto(key="location", value=name.encode("utf-8", "surrogatepass"))]
    whole = ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=[found]))
    (tmp_path / "m.onnx").write_bytes(ps.dumps(whole))
    (tmp_path / "n.onnx").write_bytes(ps.dumps(whole))
    canonicalize(tmp_path / "m.onnx", tmp_path / "n.onnx")
    assert (tmp_path / "n.onnx").read_bytes() == ps.dumps(whole)


def test_files_outside_of_the_folder_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the model says that is replaced: a mark is looked for in files beside it only."""
    box = tmp_path / "box"
    (box / "sub").mkdir(parents=True)
    places = [tmp_path / "o", tmp_path / "o.data", box / "sub" / "o"]
    for place in places:
        place.write_bytes(bytes(64))
    hostile = naming("../o", str(tmp_path / "o.data"), "sub/o", "/dev/zero", "..", "")
    (box / "m.onnx").write_bytes(hostile)
    opened: list[str] = []

    def looked(path: str, *_: object) -> bool:
        opened.append(path)
        return False

    monkeypatch.setattr(owned, "is_marked", looked)
    save(1, "m.onnx", **EXTERNAL)(box)
    (box / "m.onnx").write_bytes(hostile)
    edit(box / "m.onnx", Edits(fields={"producer_name": "me"}))
    assert [path for path in opened if os.path.dirname(path) != str(box)] == []


def test_a_temporary_model_of_another_target_needs_nothing(tmp_path: Path) -> None:
    """It is not saved yet, and its save looks again at what it refers to; else unused data would stay if it fails."""
    save(1, **W_BIN)(tmp_path)
    shutil.copy(tmp_path / "m.onnx", temporary_name(str(tmp_path / "n.onnx")))
    save(2, **INLINE)(tmp_path)
    assert not (tmp_path / "w.bin").exists() and held_by(tmp_path / "m.onnx") == "2"


@pytest.mark.parametrize("closed", ["backup.onnx", "the new model"])
def test_what_cannot_be_read_may_need_the_data(closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is closed to this user keeps its data; an edit that cannot look at what it wrote changes nothing."""
    save(1, **EXTERNAL)(tmp_path)
    shutil.copy(tmp_path / "m.onnx", tmp_path / "backup.onnx")
    real = owned._possible_model

    def opened(path: str) -> object:
        if os.path.basename(path) == closed or (path.endswith(".tmp") and closed == "the new model"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(owned, "_possible_model", opened)
        if closed == "backup.onnx":
            save(2, **INLINE)(tmp_path)
        else:
            (tmp_path / "backup.onnx").unlink()
            with pytest.raises(OSError, match="Permission denied"):
                edit(tmp_path / "m.onnx", Edits(metadata={"a": "b"}))
    whole = "backup.onnx" if closed == "backup.onnx" else "m.onnx"
    assert held_by(tmp_path / whole) == "1"
