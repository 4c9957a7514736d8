"""Saves by many hands: the bytes of one, whoever writes which piece, and whoever dies meanwhile."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.external import executors, pieces
from proto_schema.external.datafiles import DataFile
from proto_schema.external.payload import FileRange, LazyPayload
from proto_schema.numpy_helper import from_array
from proto_schema.quantization import quantize

SIZE = 96  # of a matrix


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1 << 14)


def products(weights: list[ps.TensorProto]) -> ps.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", item.name or ""], [f"y_{item.name}"]) for item in weights]
    given = helper.make_tensor_value_info("x", 1, ["n", SIZE])
    results = [helper.make_tensor_value_info(f"y_{item.name}", 1, ["n", SIZE]) for item in weights]
    graph = helper.make_graph(nodes, "g", [given], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a file, with its data beside it."""
    values = [np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32) for seed in range(4)]
    path = tmp_path_factory.mktemp("source") / "m.onnx"
    ps.save(products([from_array(value, f"w{place}") for place, value in enumerate(values)]), path, external_data=True)
    return path


def copied(model: ps.ModelProto) -> ps.ModelProto:
    return model


def in_halves(model: ps.ModelProto) -> ps.ModelProto:
    return ps.convert_float(model, "float16")


def in_nibbles(model: ps.ModelProto) -> ps.ModelProto:
    return quantize(model, "int4")


def in_blocks_of_rows(model: ps.ModelProto) -> ps.ModelProto:
    """Read in the order of the transposed matrices."""
    return quantize(model, {"type": "uint4", "block_size": 32, "symmetric": False}, target="onnxruntime")


def with_scales_of_scales(model: ps.ModelProto) -> ps.ModelProto:
    return quantize(model, "nvfp4")


def by_hand(model: ps.ModelProto) -> ps.ModelProto:
    """A function, which only this process can call, and numbers in its memory."""
    assert model.graph is not None
    data = np.arange(SIZE * SIZE, dtype=np.float32)
    here = threading.get_ident()

    def computed() -> bytes:
        assert threading.get_ident() == here
        return data.tobytes()

    added = [
        ps.TensorProto(name="f", data_type=1, dims=[SIZE, SIZE], raw_data=LazyPayload(data.nbytes, computed)),
        from_array((data + 1).reshape(SIZE, SIZE), "memory"),
    ]
    return products([*model.graph.initializer, *added])


MODELS: list[Callable[[ps.ModelProto], ps.ModelProto]] = [
    copied,
    in_halves,
    in_nibbles,
    in_blocks_of_rows,
    with_scales_of_scales,
    by_hand,
]


class ByPickle(Executor):
    """Does each job at once, on what another process would get; the first `losses` of them are lost with their worker.

    With `breaks` the executor is broken then.
    """

    def __init__(self, losses: int = 0, breaks: bool = False) -> None:
        self.losses = losses
        self.breaks = breaks
        self.done = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        if self.breaks and self.losses < 0:
            raise BrokenExecutor("a worker died")
        future: Future[Any] = Future()
        self.losses -= 1
        if self.losses >= 0:
            future.set_exception(BrokenExecutor("a worker died"))
            self.losses = -1 if self.breaks else self.losses
            return future
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        self.done += 1
        future.set_result(pickle.loads(pickle.dumps(function(*arguments))))
        return future


def saved(model: ps.ModelProto, folder: Path, **options: Any) -> dict[str, bytes]:
    folder.mkdir()
    ps.save(model, folder / "m.onnx", external_data=True, size_threshold=1, **options)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


EXECUTORS: dict[str, Callable[[], Any]] = {
    "threads": lambda: ThreadPoolExecutor(3),
    "threads by name": lambda: "threads:2",
    "pickled": ByPickle,
    "two lost": lambda: ByPickle(2),
    "broken": lambda: ByPickle(1, breaks=True),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "resume": {"resume": True},
    "checksums": {"checksums": True, "shard_size": 50_000, "alignment": 1},
}
ROWS = [
    pytest.param(change, executor, options, marks=() if row % 5 == 0 else pytest.mark.full)
    for row, (options, executor, change) in enumerate(product(OPTIONS, EXECUTORS, MODELS))
]


@pytest.mark.parametrize(("change", "executor", "options"), ROWS)
def test_the_bytes_of_one(
    change: Callable[[ps.ModelProto], ps.ModelProto],
    executor: str,
    options: str,
    source: Path,
    quick_folder: Path,
) -> None:
    asked, model = OPTIONS[options], change(ps.load(source))
    expected = saved(change(ps.load(source)), quick_folder / "alone", **{**asked, "resume": False})
    assert saved(model, quick_folder / "many", **asked, executor=EXECUTORS[executor]()) == expected


def test_the_work_is_done_by_the_executor(source: Path, quick_folder: Path) -> None:
    """Only what lies in memory, or is a function, stays here."""
    executor = ByPickle()
    saved(in_nibbles(ps.load(source)), quick_folder / "all", executor=executor)
    assert executor.done == len(pieces.pieces_of(layout_of(in_nibbles(ps.load(source))), 1 << 14)) > 3


def layout_of(model: ps.ModelProto) -> DataFile:
    from proto_schema.external import tensors
    from proto_schema.external.datafiles import payload_of, plan

    found = [(one, data) for one in tensors(model) if (data := payload_of(one)) is not None]
    [file] = plan(found, 1, 4096, None).files
    return file


@pytest.mark.parametrize("change", MODELS)
@pytest.mark.parametrize("size", [1 << 10, 1 << 14, 1 << 30])
def test_pieces(change: Callable[[ps.ModelProto], ps.ModelProto], size: int, source: Path) -> None:
    """They follow each other, and together they are the file; codes and scales of a weight are in one."""
    content = layout_of(change(ps.load(source)))
    content.mark = b"the mark"
    found = pieces.pieces_of(content, size)
    assert [piece.start for piece in found] == [0, *(piece.end for piece in found[:-1])]
    assert found[-1].end == content.whole_size
    joined = b"".join(bytes(data) for piece in found for _, data in piece.places())
    assert joined == b"".join(map(bytes, content.parts()))
    owners = [{data.together for _, data in piece.payloads if hasattr(data, "together")} - {None} for piece in found]
    assert sum(map(len, owners)) == len(set().union(*owners))
    assert size != 1 << 30 or len(found) == 1


def failing() -> bytes:
    raise ValueError("this one cannot be made")


def test_errors(source: Path, quick_folder: Path) -> None:
    """An error of a piece is that of the save: nothing is left, and nothing runs any more."""
    model = in_nibbles(ps.load(source))
    assert model.graph is not None
    folder = quick_folder / "to"
    data = bytearray((source.parent / "m.onnx.data").read_bytes())
    data[:4] = np.float32(np.nan).tobytes()
    (quick_folder / "m.onnx").write_bytes(source.read_bytes())
    (quick_folder / "m.onnx.data").write_bytes(data)
    for executor in (ByPickle(), "threads"):
        folder.mkdir()
        with pytest.raises(ValueError, match="'w0' cannot be quantized"):
            ps.save(
                in_nibbles(ps.load(quick_folder / "m.onnx")), folder / "m.onnx", external_data=True, executor=executor
            )
        assert not list(folder.iterdir())
        folder.rmdir()


def test_a_piece_that_kills_its_workers(source: Path, quick_folder: Path) -> None:
    with pytest.raises(OSError, match="3 workers were lost over it"):
        saved(in_nibbles(ps.load(source)), quick_folder / "to", executor=ByPickle(10**6))
    assert not list((quick_folder / "to").iterdir())


NAMES: list[tuple[Any, str]] = [
    ("thread", "there is no executor 'thread'; it can be threads, threads:N, processes"),
    ("threads:0", "there is no executor 'threads:0'"),
    ("dask", "there is no executor 'dask'"),
    (7, "executor=7 is no executor of concurrent.futures; give one"),
]


@pytest.mark.parametrize(("executor", "said"), NAMES, ids=str)
def test_names(executor: Any, said: str, source: Path, quick_folder: Path) -> None:
    with pytest.raises(ValueError, match=said):
        ps.save(ps.load(source), quick_folder / "m.onnx", executor=executor)


def test_what_is_not_installed(source: Path, quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors.importlib, "import_module", absent)
    with pytest.raises(ImportError, match="executor 'dask://h:1' needs the package distributed: install it"):
        ps.save(ps.load(source), quick_folder / "m.onnx", external_data=True, executor="dask://h:1")
    assert not list(quick_folder.iterdir())


def absent(name: str) -> Any:
    raise ImportError(name)


def test_a_source_that_changes(source: Path, quick_folder: Path) -> None:
    """Another process looks at the file again, by its stamp."""
    model = ps.load(source)
    data = source.parent / "m.onnx.data"
    held = FileRange(data, 0, 8, ps.external.payload.stamp_of(data.stat()))
    assert bytes(pickle.loads(pickle.dumps(held))) == data.read_bytes()[:8]
    status = data.stat()
    os.utime(data, ns=(1, 1))
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced"):
        bytes(pickle.loads(pickle.dumps(held)))
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert model.graph is not None


def test_what_is_finished_is_not_computed_again(source: Path, quick_folder: Path) -> None:
    """A run that was stopped goes on: what comes from files alone is known by its digest."""
    expected = saved(in_nibbles(ps.load(source)), quick_folder / "alone")
    folder = quick_folder / "to"

    class Stops(ByPickle):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            if self.done == 3:
                raise KeyboardInterrupt
            return super().submit(function, *arguments, **options)

    stopped = Stops()
    with pytest.raises(KeyboardInterrupt):
        saved(in_nibbles(ps.load(source)), folder, executor=stopped, resume=True)
    assert {path.name for path in folder.iterdir()} == {"m.onnx.data.partial", "m.onnx.data.partial.journal"}
    executor = ByPickle()
    ps.save(
        in_nibbles(ps.load(source)),
        folder / "m.onnx",
        external_data=True,
        size_threshold=1,
        resume=True,
        executor=executor,
    )
    count = len(pieces.pieces_of(layout_of(in_nibbles(ps.load(source))), 1 << 14))
    assert executor.done == count - 3
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected


@pytest.mark.full
def test_processes_of_which_one_is_killed(source: Path, quick_folder: Path) -> None:
    """By the name of the executor a new one is made; one that was given is closed, and this process does the rest."""
    expected = saved(in_nibbles(ps.load(source)), quick_folder / "alone")
    assert saved(in_nibbles(ps.load(source)), quick_folder / "named", executor="processes:2") == expected
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        pool.submit(time.sleep, 0).result()
        slow = [pool.submit(time.sleep, 0.5) for _ in range(4)]
        threading.Timer(0.2, lambda: os.kill(next(iter(pool._processes)), signal.SIGKILL)).start()
        assert saved(in_nibbles(ps.load(source)), quick_folder / "killed", executor=pool) == expected
        assert any(isinstance(future.exception(), BrokenExecutor) for future in slow)
