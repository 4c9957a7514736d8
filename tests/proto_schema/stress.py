"""Two to eight writers of one path at once, as threads and as processes, round after round; run by test_stress.py.

    python -m tests.proto_schema.stress SCENARIO --rounds N --seed S

Strategy: eight processes are forked once and take orders over pipes. In each round a folder is laid out anew, with
decoys and perhaps an older model. The orders are dealt out, each as a thread of some process; each thread prepares its
work, and all begin at one moment. Calls of the system that change names, or look at them, take a little longer now and
then, so that writers meet at all points. Each model holds one number in all of its weights and in its metadata, and
the number of its tensors and their sizes depend on it, so what is loaded says who wrote it.

After a round: the model that lies there is one of those that were written, whole; no writer that began after another
had ended is lost; no change of an editor is lost that nobody has overwritten; every writer has succeeded; the folder
holds nothing of ours but the model's files; the decoys are as they were. A reader sees one model whole, at any moment.
Prints what was done and what went wrong as JSON.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema.numpy_helper import from_array, to_array
from purexport import inspect
from purexport.cli.main import build_parser
from tests.proto_schema.decoys import Watched, lay_out, used_by

PROCESSES = 8
KILLED = "killed"
PATIENCE = 60.0  # seconds for one round
SHAKEN = ("open", "replace", "rename", "link", "unlink", "fsync", "stat", "lstat", "ftruncate")
EXTERNAL: dict[str, Any] = {"external_data": True, "size_threshold": 0, "alignment": 64}
# a save, by what it is called
SAVES: dict[str, dict[str, Any]] = {
    "inline": {"external_data": False},
    "external": EXTERNAL,
    "shards": {**EXTERNAL, "shard_size": 900},
    "location": {**EXTERNAL, "location": "w.bin"},
    "resume": {**EXTERNAL, "resume": True},
}


def model(number: int, payloads: list[Any] | None = None) -> ps.ModelProto:
    """All values are the number; so is the metadata."""
    made = [from_array(array, f"w{index}") for index, array in enumerate(arrays(number))]
    for tensor, payload in zip(made, payloads or (), strict=bool(payloads)):
        tensor.raw_data = payload
    joined = ps.NodeProto(op_type="Concat", input=[tensor.name or "" for tensor in made], output=["y"])
    joined.attribute = [ps.AttributeProto(name="axis", i=0, type=ps.AttributeProto.INT)]
    out = ps.helper.make_tensor_value_info("y", ps.TensorProto.INT32, [sum(array.size for array in arrays(number))])
    graph = ps.GraphProto(name="g", node=[joined], initializer=made, output=[out])
    opset = ps.OperatorSetIdProto(domain="", version=17)
    said = ps.StringStringEntryProto(key="number", value=str(number))
    return ps.ModelProto(ir_version=8, graph=graph, opset_import=[opset], metadata_props=[said])


def arrays(number: int) -> list[Any]:
    """Every second model has the same sizes as the one before it, so that mixtures of the two would load."""
    kind = number // 2
    return [np.full(40 + 90 * index + kind % 3, number, np.int32) for index in range(2 + kind % 3)]


def number_in(path: Path) -> tuple[int, set[str]]:
    """(the number of the model that lies there, the other keys of its metadata). ValueError where it is a mixture."""
    loaded = ps.load(path)
    assert loaded.graph is not None
    said = {entry.key or "": entry.value for entry in loaded.metadata_props}
    found = [to_array(tensor) for tensor in loaded.graph.initializer]
    number = int(found[0].flat[0])
    held = sorted({int(value) for array in found for value in np.unique(array)})
    if said.pop("number", str(number)) != str(number) or held != [number]:
        raise MixtureError(f"values of {held}, metadata of {loaded.metadata_props}")
    if [array.shape for array in found] != [array.shape for array in arrays(number)]:
        raise MixtureError(f"model {number} with tensors of {[array.shape for array in found]}")
    return number, set(said)


class MixtureError(AssertionError):
    """What was read is not one of the models, whole."""


# ---- what a writer does


@dataclass
class Order:
    """One writer: what it does to `target`, with the model of this `number`."""

    kind: str
    target: Path
    number: int
    key: str = ""  # the metadata that an editor adds
    source: Path | None = None  # a file beside the target, or elsewhere, that it reads
    delay: float = 0.0
    doomed: float = 0.0  # seconds after which it is killed, in a process of its own
    begin: float = 0.0
    end: float = 0.0
    error: str = ""
    trace: str = ""
    seen: list[str] = field(default_factory=list)  # by a reader

    def prepared(self) -> Callable[[], object]:
        """Everything that can be done before."""
        name, target = self.kind, str(self.target)
        if name in SAVES:
            made = model(self.number)
            return lambda: ps.save(made, target, **SAVES[name])
        if name in PREPARED:
            return PREPARED[name](self)
        edits = inspect.Edits(metadata={self.key: "yes"})
        work: dict[str, Callable[[], object]] = {
            "edit": lambda: inspect.edit(target, edits),
            "append": lambda: inspect.edit(target, edits, append=True),
            "canonicalize": lambda: inspect.canonicalize(target, target),
            "salvage": lambda: inspect.salvage(str(self.source), target),
            "extract": lambda: inspect.extract_subgraph(str(self.source), target, ["y"]),
            "cli edit": lambda: command("edit", target, "--metadata", f"{self.key}=yes"),
            "cli canonicalize": lambda: command("canonicalize", target, "-o", target),
            "cli salvage": lambda: command("salvage", str(self.source), "-o", target),
            "cli extract": lambda: command("extract", str(self.source), "--outputs", "y", "-o", target),
            "reader": self.read,
        }
        return work[name]

    def read(self) -> None:
        """Loads the model again and again, for a while, and reads all of its tensors."""
        stop = time.monotonic() + 0.03
        while time.monotonic() < stop:
            try:
                self.seen.append(str(number_in(self.target)[0]))
            except (ps.ExternalDataError, FileNotFoundError) as error:
                self.seen.append(type(error).__name__)


def by_reference(order: Order) -> Callable[[], object]:
    """A save of a model whose weights stay where they lie: in a file of the user's, or in the data of a model."""
    assert order.source is not None
    if order.source.suffix == ".onnx":
        loaded = ps.load(order.source)
        assert loaded.graph is not None
        for tensor in loaded.graph.initializer:
            to_array(tensor)
        made = loaded
    else:
        at, ranges = 0, []
        for array in arrays(order.number):
            ranges.append(ps.FileRange(order.source, at, array.nbytes))
            at += array.nbytes
        made = model(order.number, ranges)
    return lambda: ps.save(made, order.target, external_data="reference", size_threshold=0)


PREPARED = {"reference": by_reference}


def command(*words: str) -> None:
    """A verb, which must succeed."""
    parser = build_parser([words[0]])
    arguments = parser.parse_args(list(words))
    if status := arguments.run(arguments):
        raise RuntimeError(f"purexport {words[0]} ended with {status}")


EDITS = ("edit", "append", "cli edit")
KEEPERS = (*EDITS, "canonicalize", "cli canonicalize")  # they change the model that is there
FROM_FILES = ("salvage", "extract", "cli salvage", "cli extract")
KINDS = (*SAVES, *KEEPERS, *FROM_FILES, "reference")


# ---- processes


def shake(seed: int) -> None:
    """Some calls of the system take longer, now and then."""
    chance = random.Random(seed)

    def shaken(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if chance.random() < 0.1:
                time.sleep(chance.random() * 1e-3)
            return real(*args, **kwargs)

        return call

    for name in SHAKEN:
        setattr(os, name, shaken(getattr(os, name)))


def without_locks() -> None:
    """As on a file system that has none."""

    def refused(*args: object) -> None:
        number = random.choice([errno.ENOLCK, errno.EOPNOTSUPP])
        raise OSError(number, os.strerror(number))

    for name in ("flock", "lockf"):
        setattr(fcntl, name, refused)


def serve(orders: Connection, seed: int, locks: bool) -> None:
    """A process: takes a round's orders, says that it is ready, hears when to begin, hands back what became of them."""
    shake(seed)
    if not locks:
        without_locks()
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    while True:
        mine: list[Order] | None = orders.recv()
        if mine is None:
            return
        gate, begin = threading.Event(), [0.0]
        threads = [threading.Thread(target=execute, args=(order, order.prepared(), gate, begin)) for order in mine]
        for thread in threads:
            thread.start()
        orders.send("ready")
        begin[0] = orders.recv()
        gate.set()
        for thread in threads:
            thread.join()
        orders.send(mine)


def execute(order: Order, work: Callable[[], object], gate: threading.Event, begin: list[float]) -> None:
    gate.wait()
    time.sleep(max(begin[0] + order.delay - time.monotonic(), 0.0))
    order.begin = time.monotonic()
    try:
        if order.doomed:
            kill(order, work)
        else:
            work()
    except Exception as error:  # the judge says which are allowed
        order.error = f"{type(error).__name__}: {error}"
        order.trace = traceback.format_exc()
    order.end = time.monotonic()


def kill(order: Order, work: Callable[[], object]) -> None:
    """The work is begun by a fork of this process, which has no other threads."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(order.doomed)
    os.kill(child, signal.SIGKILL)
    if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        order.error = KILLED


class Pool:
    """The processes, which end with the block."""

    def __init__(self, seed: int, locks: bool) -> None:
        self._pipes: list[Connection] = []
        self._children: list[int] = []
        for number in range(PROCESSES):
            here, there = Pipe()
            child = os.fork()
            if child == 0:
                try:
                    serve(there, seed * PROCESSES + number, locks)
                finally:
                    os._exit(0)
            there.close()
            self._pipes.append(here)
            self._children.append(child)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for child in self._children:
            os.waitpid(child, 0)

    def run(self, dealt: dict[int, list[Order]]) -> list[Order]:
        """The orders, by process, with what became of them. TimeoutError where one does not end."""
        pipes = {number: self._pipes[number] for number in dealt}
        for number, pipe in pipes.items():
            pipe.send(dealt[number])
        for pipe in pipes.values():
            self._answer(pipe)
        begin = time.monotonic() + 0.001
        for pipe in pipes.values():
            pipe.send(begin)
        return [order for pipe in pipes.values() for order in self._answer(pipe)]

    def _answer(self, pipe: Connection) -> Any:
        if not pipe.poll(PATIENCE):
            for child in self._children:
                os.kill(child, 9)
            raise TimeoutError(f"a writer has not ended after {PATIENCE} s")
        return pipe.recv()


# ---- rounds


@dataclass
class Round:
    """One folder, what was there, the orders, and what is wrong afterwards."""

    folder: Path
    chance: random.Random
    locks: bool
    orders: list[Order] = field(default_factory=list)
    before: dict[Path, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refusals: tuple[str, ...] = ()  # errors that a writer of this scenario may end with

    def lay_out(self, target: str, kind: str | None, number: int) -> Path:
        """A model that is there already."""
        path = self.folder / target
        if kind is not None:
            ps.save(model(number), path, **SAVES[kind])
            self.before[path] = number
        return path

    def watch(self) -> None:
        """From now on everything that is there, except our models and what they consist of, is a decoy."""
        lay_out(self.folder, without=("m.onnx.data.partial", "w.bin.partial"))
        ours = {name for path in self.before for name in used_by(path)}
        self.copy = self.folder / "backup.onnx"
        path = self.folder / "m.onnx"
        if path in self.before and self.chance.random() < 0.25:  # a copy that needs the data of the model
            shutil.copy(path, self.copy)
            ours -= used_by(path) - {path.name}
        self.watched = Watched(self.folder, ours)

    def dealt(self) -> dict[int, list[Order]]:
        """As threads of one process, as processes, or mixed."""
        alone = any(order.doomed for order in self.orders)
        count = PROCESSES if alone else self.chance.choice([1, 2, PROCESSES, PROCESSES])
        found: dict[int, list[Order]] = {}
        for number, order in enumerate(self.orders):
            order.delay = self.chance.choice([0.0, self.chance.random() * 0.004])
            found.setdefault(number % count, []).append(order)
        return found

    def judge(self) -> list[str]:
        """What is wrong."""
        targets = {order.target for order in self.orders}
        for target in targets:
            self._judge(target, [order for order in self.orders if order.target == target])
        if self.copy.exists() and (held := held_by(self.copy)) != str(OLD):
            self.wrong.append(f"the copy of the old model holds {held}")
        if any(order.doomed for order in self.orders):  # the next save leaves nothing of theirs
            last = self.folder / "m.onnx"
            ps.save(model(OLD), last, **SAVES[self.chance.choice(["inline", "external", "shards", "resume"])])
            if held_by(last) != str(OLD):
                self.wrong.append(f"the next save: {held_by(last)}")
        if changed := self.watched.changes():
            self.wrong.append(f"touched: {changed}")
        left = self.watched.left(*(target.name for target in targets))
        if not self.locks:  # data files that nobody could tell from those of another writer
            left = [name for name in left if name.endswith((".tmp", ".partial", ".journal")) or name.startswith(".")]
        if left:
            self.wrong.append(f"left: {left}")
        return self.wrong

    def _judge(self, target: Path, orders: list[Order]) -> None:
        before = self.before.get(target)
        writers = [order for order in orders if order.kind not in (*KEEPERS, "reader") and not order.error]
        allowed = {order.number for order in orders if order in writers or (order.doomed and order.kind in SAVES)}
        allowed |= {before} if before is not None else set()
        for order in orders:
            self._judge_order(order, allowed)
        if not target.exists():
            if writers or before is not None:
                self.wrong.append(f"{target.name} is gone")
            return
        held = held_by(target)
        if not held.isdecimal():
            self.wrong.append(f"{target.name}: {held}")
            return
        number, keys = number_in(target)
        if number not in allowed:
            self.wrong.append(f"{target.name} holds {number}, which nobody wrote")
        if not self.locks:
            return
        mine = [order for order in orders if order.number == number and order.kind not in KEEPERS]
        ended = max((order.end for order in mine), default=0.0)
        for other in writers:
            if other.number != number and other.begin > ended:
                self.wrong.append(f"{other.kind} {other.number} is lost: it began after {number} had ended")
        for editor in (order for order in orders if order.kind in EDITS and not order.error):
            if editor.begin > ended and editor.key not in keys:
                self.wrong.append(f"the change of {editor.kind} {editor.key} is lost")

    def _judge_order(self, order: Order, allowed: set[int]) -> None:
        fine = {*map(str, allowed), "ExternalDataError", "UnreadableDataError"}
        if order.target not in self.before:
            fine.add("FileNotFoundError")
        if odd := set(order.seen) - fine:
            self.wrong.append(f"a reader has seen {sorted(odd)}")
        if order.error and not self._may_fail(order):
            self.wrong.append(f"{order.kind} {order.number} failed: {order.error}\n{order.trace}")

    def _may_fail(self, order: Order) -> bool:
        kind, error = order.kind, order.error
        return (
            error.startswith(self.refusals)
            or error == KILLED
            or (kind in KEEPERS and order.target not in self.before and "FileNotFound" in error)
            or (kind in KEEPERS and not self.locks and "has changed" in error)
            or (kind == "location" and "w.bin" in error and "refers to it" in error and self._is_shared())
        )

    def _is_shared(self) -> bool:
        """Whether another model may need the data of the first."""
        return self.copy.exists() or len({order.target for order in self.orders}) > 1

    def __str__(self) -> str:
        said = [f"{order.target.name}: {order.kind} {order.number}" for order in self.orders]
        return f"over {[(path.name, number) for path, number in self.before.items()]}: {', '.join(said)}"


def held_by(path: Path) -> str:
    """The number of the model that lies there, or why there is none."""
    try:
        return str(number_in(path)[0])
    except (AssertionError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"


Scenario = Callable[[Round], None]
OLD = 1000  # its number


def one_path(this: Round) -> None:
    """All kinds of writers, and a reader; models equal or different; over nothing or an older model."""
    chance = this.chance
    path = this.lay_out("m.onnx", chance.choice([None, *SAVES]), OLD)
    same = chance.random() < 0.2
    for index in range(chance.randint(2, 8)):
        order = Order(chance.choice(KINDS), path, OLD + 2 if same else OLD + 1 + index, key=f"key{index}")
        if order.kind in FROM_FILES:
            order.source = this.folder.parent / f"source{index}.onnx"
            ps.save(model(order.number), order.source, external_data=False)
        elif order.kind == "reference":
            order.source = this.folder / f"source{index}.bin"
            order.source.write_bytes(b"".join(array.tobytes() for array in arrays(order.number)))
        this.orders.append(order)
    if chance.random() < 0.5:
        this.orders.append(Order("reader", path, 0))


def saves(this: Round) -> None:
    """Two to eight processes save with external data at once: what happens when every rank exports."""
    path = this.lay_out("m.onnx", this.chance.choice(["external", "external", "inline", None]), OLD)
    same = this.chance.random() < 0.5
    for index in range(this.chance.randint(2, 8)):
        this.orders.append(Order("external", path, OLD + 2 if same else OLD + 1 + index))


def edits(this: Round) -> None:
    """Only editors: no change may be lost."""
    path = this.lay_out("m.onnx", this.chance.choice(list(SAVES)), OLD)
    for index in range(this.chance.randint(2, 8)):
        this.orders.append(Order(this.chance.choice(KEEPERS), path, OLD, key=f"key{index}"))


def readers(this: Round) -> None:
    """Writers with external data, and readers: one of the models whole, or an ExternalDataError."""
    path = this.lay_out("m.onnx", this.chance.choice(["external", "shards", "location"]), OLD)
    for index in range(this.chance.randint(2, 6)):
        this.orders.append(Order(this.chance.choice([*SAVES, "edit"]), path, OLD + 1 + index, key=f"key{index}"))
    this.orders += [Order("reader", path, 0) for _ in range(2)]


def one_location(this: Round) -> None:
    """Two models in one folder that ask for the same data file: one gets it, the other is refused."""
    this.refusals = ("ValueError", "FileExistsError", "OSError")
    first = this.lay_out("m.onnx", this.chance.choice([None, "inline", "location"]), OLD)
    second = this.lay_out("n.onnx", this.chance.choice([None, "inline", "external"]), OLD + 1)
    for index in range(this.chance.randint(2, 6)):
        this.orders.append(Order("location", [first, second][index % 2], OLD + 2 + index))


def referring(this: Round) -> None:
    """One model refers to the data of another, which is written meanwhile."""
    this.refusals = ("ExternalDataError", "UnreadableDataError", "EncodeError")
    first = this.lay_out("m.onnx", this.chance.choice(["external", "shards", "location"]), OLD)
    for index in range(this.chance.randint(1, 4)):
        this.orders.append(Order(this.chance.choice(list(SAVES)), first, OLD + 1 + index))
    second = this.folder / "n.onnx"
    this.orders += [Order("reference", second, OLD, source=first) for _ in range(this.chance.randint(1, 2))]


def killed(this: Round) -> None:
    """Some of the writers are killed; the others go on, and the next save leaves nothing."""
    path = this.lay_out("m.onnx", this.chance.choice([None, *SAVES]), OLD)
    for index in range(this.chance.randint(2, 8)):
        order = Order(this.chance.choice([*SAVES, "edit"]), path, OLD + 1 + index, key=f"key{index}")
        order.doomed = this.chance.choice([0.0, 0.001 + this.chance.random() * 0.015])
        this.orders.append(order)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario for scenario in (one_path, saves, edits, readers, one_location, referring, killed)
}


def run(name: str, rounds: int, seed: int, locks: bool, place: Path) -> dict[str, Any]:
    """What was done, and what went wrong in which rounds."""
    done: Counter[str] = Counter()
    wrong: list[str] = []
    with Pool(seed, locks) as pool:
        for number in range(rounds):
            folder = place / str(number) / "models"
            folder.mkdir(parents=True)
            this = Round(folder, random.Random(f"{name} {seed} {number}"), locks)
            SCENARIOS[name](this)
            this.watch()
            this.orders = pool.run(this.dealt())
            if problems := this.judge():
                wrong.append(f"round {number}, {this}: {'; '.join(problems)}")
            done.update(order.kind for order in this.orders)
            done["refused"] += sum(bool(order.error) for order in this.orders)
            shutil.rmtree(folder.parent)
    return {"rounds": rounds, "done": dict(done), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="+", choices=SCENARIOS)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-locks", action="store_true", help="as on a file system that has none")
    asked = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=memory) as place:
        found = {
            name: run(name, asked.rounds, asked.seed, not asked.without_locks, Path(place, name))
            for name in asked.scenario
        }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
