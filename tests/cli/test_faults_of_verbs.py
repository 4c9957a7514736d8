"""The verbs that write a file, on a disk that fails at any one call: the old file or the new one, to the byte.

After a kill the next save of the same file leaves nothing of ours. Files of others are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.numpy_helper import from_array
from purexport import inspect
from purexport.cli.main import build_parser
from tests.proto_schema.decoys import Watched, lay_out_few
from tests.proto_schema.faults import FAULTS, SIGNALS, Disk, Fault

pytestmark = pytest.mark.usefixtures("signals_end")

MOST_CALLS = 60
EDITS = inspect.Edits(metadata={"author": "somebody"})


@dataclass(frozen=True)
class Verb:
    """`run` makes `target` of the model of 200 kB at a path. Where it `appends`, a part of the new end may be there."""

    name: str
    run: Callable[[Path], object]
    target: str = "m.onnx"
    appends: bool = False


def by_command(*words: str, target: str, status: int = 0) -> Verb:
    """A verb as it is typed, on the model `m.onnx`, with the target as its output, and its exit status."""

    def run(path: Path) -> None:
        given = [str(path) if word == "m.onnx" else word for word in words]
        parser = build_parser([words[0]])
        arguments = parser.parse_args([*given, "-o", str(path.with_name(target)), "--force"])
        assert (arguments.run(arguments) or 0) == status

    return Verb(words[0], run, target)


AGAIN = {"overwrite": True}  # a file of the last round is there
VERBS = [
    Verb("edit", lambda path: inspect.edit(path, EDITS)),
    Verb("edit --append", lambda path: inspect.edit(path, EDITS, append=True), appends=True),
    Verb("canonicalize", lambda path: inspect.canonicalize(path, path)),
    Verb("salvage", lambda path: inspect.salvage(path, path.with_name("out.onnx")), "out.onnx"),
    Verb(
        "extract, tensor",
        lambda path: inspect.tensor_to_npy(path, "w1", path.with_name("w.npy"), overwrite=True),
        "w.npy",
    ),
    Verb(
        "extract, all",
        lambda path: inspect.to_safetensors(path, path.with_name("w.safetensors"), overwrite=True),
        "w.safetensors",
    ),
    Verb("extract, graph", lambda path: inspect.extract_subgraph(path, path.with_name("s.onnx"), ["y"]), "s.onnx"),
    Verb("html", lambda path: inspect.html(path, path.with_name("m.html"), **AGAIN), "m.html"),
    Verb("diff", lambda path: inspect.diff_page(path, path, [], path.with_name("d.html"), **AGAIN), "d.html"),
]
# These go through one way of writing, `replacing`: each is walked with some of the faults, and the sweep takes all.
TYPED = [
    by_command("convert", "m.onnx", "--opset", "16", target="c.onnx"),
    by_command("infer", "m.onnx", target="i.onnx"),
    by_command("quantize", "m.onnx", "--type", "float16", target="q.onnx", status=1),  # no weight is in a product
    by_command("merge", "m.onnx", "m.onnx", "--prefix", "a/", target="t.onnx"),
    by_command("simplify", "m.onnx", target="s.onnx"),
    by_command("run", "m.onnx", target="y.npy"),
]
VERBS += TYPED


def model() -> bytes:
    """Not in canonical form: its fields come in another order than they are written."""
    weights = [from_array(np.arange(25_000, dtype=np.float32), "w0"), from_array(np.ones(9, np.int64), "w1")]
    node = ps.NodeProto(op_type="Identity", input=["w0"], output=["y"])
    out = ps.helper.make_tensor_value_info("y", ps.TensorProto.FLOAT, [25_000])
    graph = ps.GraphProto(name="g", node=[node], initializer=weights, output=[out])
    opset = ps.OperatorSetIdProto(domain="", version=17)
    head = ps.ModelProto(ir_version=8, opset_import=[opset]).SerializeToString()
    return ps.ModelProto(graph=graph).SerializeToString() + head


class Walking:
    """One verb, on a folder that is laid out anew for each run."""

    def __init__(self, verb: Verb, folder: Path) -> None:
        self.verb, self.folder, self.path = verb, folder, folder / "m.onnx"
        self.model = model()
        lay_out_few(folder)
        self.others = Watched(folder)
        self.lay_out()
        verb.run(self.path)
        self.new = (folder / verb.target).read_bytes()
        self.before = {"m.onnx": self.model, verb.target: b"what was there"} | {"m.onnx": self.model}
        self.old = self.before[verb.target]
        assert self.new != self.old

    def lay_out(self) -> None:
        for name in set(os.listdir(self.folder)) - self.others.names:
            (self.folder / name).unlink()
        for name, data in getattr(self, "before", {"m.onnx": self.model}).items():
            (self.folder / name).write_bytes(data)

    def run(self, fault: Fault, at: int, lost: int = 0) -> Disk:
        self.lay_out()
        disk, ended = Disk(self.folder, at, fault, lost), False
        if fault in SIGNALS:
            disk.in_a_fork(lambda: self.verb.run(self.path))
        else:
            with disk.mounted():
                try:
                    self.verb.run(self.path)
                    ended = True
                except (OSError, ValueError, KeyboardInterrupt):
                    assert fault.kind not in ("killed", "torn", "power")
                    assert self.verb.appends or fault.kind != "short"
        disk.close()
        where = f"{fault} at call {at} ({disk.log[-1]}), {lost} names lost"
        found = (self.folder / self.verb.target).read_bytes()
        begun = self.verb.appends and disk.stopped and found.startswith(self.old) and len(found) <= len(self.new)
        assert found == self.new or (found == self.old and not ended) or begun, where
        undone = fault.kind == "error" and disk.log[at - 1 :][:1] == ["unlink"]
        assert not self.extra() or undone or (disk.stopped and all(name[0] == "." for name in self.extra())), where
        if disk.stopped:
            self.next(at)
            assert not self.extra(), f"{where}: {self.extra()} is left behind by the next"
        assert self.others.changes(whole=False) == [], where
        return disk

    def extra(self) -> set[str]:
        """What is there beside the model, the target and what is not ours."""
        return set(os.listdir(self.folder)) - self.others.names - {"m.onnx", self.verb.target}

    def next(self, at: int) -> None:
        """What writes the same file next: the verb again or, where it is a model's, also a save."""
        if at % 2 and self.verb.target.endswith(".onnx"):
            ps.save(ps.loads(self.model), self.folder / self.verb.target, external_data=False)
        else:
            self.path.write_bytes(self.model)
            self.verb.run(self.path)


EVERY = (1, 1)  # the first call that is met, and how far the next is


def rows(faults: list[Fault], apart: int) -> list[Any]:
    """Each verb with each fault, at one call of so many, and with `-m full` at every call.

    Another call is met with each fault and verb, and the verbs write in few ways, so that all calls are met.  Of the
    typed verbs a third of the rows is made so, and the sweep takes the others.
    """
    found = []
    for number, fault in enumerate(faults):
        for place, verb in enumerate(VERBS):
            name, few = f"{fault}-{verb.name}", (1 + (place + number) % apart, apart)
            if verb in TYPED and (TYPED.index(verb) + number) % 3:
                found.append(pytest.param(verb, fault, EVERY, id=name, marks=pytest.mark.sweep))
            else:
                found.append(pytest.param(verb, fault, few, id=name))
                found.append(pytest.param(verb, fault, EVERY, id=f"{name}-every call", marks=pytest.mark.full))
    return found


@pytest.mark.parametrize(("verb", "fault", "calls"), rows(FAULTS, 9))
def test_calls(verb: Verb, fault: Fault, calls: tuple[int, int], quick_folder: Path) -> None:
    walking = Walking(verb, quick_folder)
    for at in range(calls[0], MOST_CALLS, calls[1]):
        disk = walking.run(fault, at)
        for lost in range(1, 10):
            if fault.kind != "power" or disk.undone < lost - 1:
                break
            disk = walking.run(fault, at, lost)
        if not disk.met:
            assert walking.others.changes() == []
            return
    raise AssertionError("the verb makes more calls than this test walks through")


# with the default action, as where these functions are called from a program; every second verb has the other signal
SIGNALLED = [row for row in rows(SIGNALS, 15) if SIGNALS[VERBS.index(row.values[0]) % 2] == row.values[1]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("verb", "fault", "calls"), SIGNALLED)
def test_a_signal_at_calls(verb: Verb, fault: Fault, calls: tuple[int, int], quick_folder: Path) -> None:
    test_calls(verb, fault, calls, quick_folder)


TO_ANOTHER = [verb for verb in VERBS if verb.target != "m.onnx"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("verb", TO_ANOTHER, ids=lambda verb: verb.name)
def test_a_pipe_is_written_to_and_stays(verb: Verb, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    target = tmp_path / verb.target
    verb.run(path)
    expected = target.read_bytes()
    target.unlink()
    os.mkfifo(target)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(target.read_bytes)
        verb.run(path)
        assert found.result(10) == expected
    assert target.is_fifo()
