"""Addresses in storage: reads are ranges of one version, tried again; writes are visible when they are whole."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proto_schema as ps
from proto_schema import helper
from proto_schema.external import addresses
from proto_schema.external.manifest import compare
from proto_schema.numpy_helper import from_array, to_array
from proto_schema.quantization import quantize
from purexport.cli.main import main
from purexport.weights import open_weights
from tests.proto_schema.test_executors import ByPickle
from tests.weights.models import safetensors

fsspec = pytest.importorskip("fsspec")
memory = pytest.importorskip("fsspec.implementations.memory")

VALUES = [np.random.default_rng(seed).standard_normal((96, 128)).astype(np.float32) for seed in range(3)]


class Flaky(memory.MemoryFileSystem):  # type: ignore[misc]
    """Memory that counts what is asked of it, and fails as it is told."""

    protocol = "flaky"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    log: list[tuple[str, str, int]] = []
    fails: Callable[[str, int], Exception | None] = staticmethod(lambda what, count: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("flaky://", "memory://")))

    def _asked(self, what: str, path: str, size: int = 0) -> None:
        Flaky.log.append((what, path, size))
        error = Flaky.fails(what, sum(row[0] == what for row in Flaky.log))
        if error is not None:
            raise error

    def info(self, path: str, **options: Any) -> Any:
        self._asked("info", path)
        return super().info(path, **options)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> Any:
        data = super().cat_file(path, start, end, **options)
        self._asked("read", path, len(data))
        return data

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        if "w" not in mode:
            return file
        whole = type(file).write

        class Counted(type(file)):  # type: ignore[misc]
            def write(this, data: Any) -> int:
                self._asked("write", path, len(data))
                return int(whole(this, data))

        file.__class__ = Counted
        return file


@pytest.fixture(autouse=True)
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Flaky]]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(addresses, "FIRST_PAUSE", 0)
    monkeypatch.setattr(Flaky, "log", [])
    monkeypatch.setattr(Flaky, "fails", staticmethod(lambda what, count: None))
    Flaky.store.clear()
    yield Flaky
    Flaky.store.clear()


def made() -> ps.ModelProto:
    weights = [from_array(value, f"w{place}") for place, value in enumerate(VALUES)]
    nodes = [helper.make_node("MatMul", ["x", f"w{place}"], [f"y{place}"]) for place in range(3)]
    given = helper.make_tensor_value_info("x", 1, ["n", 96])
    results = [helper.make_tensor_value_info(f"y{place}", 1, ["n", 128]) for place in range(3)]
    graph = helper.make_graph(nodes, "g", [given], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def values(model: ps.ModelProto) -> list[Any]:
    assert model.graph is not None
    return [to_array(tensor) for tensor in model.graph.initializer]


def names() -> list[str]:
    return sorted(path.rpartition("/")[2] for path in Flaky.store)


def data_files() -> dict[str, bytes]:
    """The data files of models, by their names."""
    return {path.rpartition("/")[2]: data for path, data in content().items() if path.endswith(".data")}


def content() -> dict[str, bytes]:
    return {path: file.getvalue() for path, file in Flaky.store.items()}


# ---- what works

SAVES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["m.onnx"]),
    ({"external_data": True}, ["m.onnx", "m.onnx.#.data"]),
    ({"external_data": True, "location": "w.bin", "checksums": True}, ["m.onnx", "w.bin"]),
    (
        {"shard_size": 60_000, "external_data": True},
        ["m.onnx", *(f"m.onnx.#-0000{i}-of-00003.data" for i in (1, 2, 3))],
    ),
]


@pytest.mark.parametrize(("options", "wanted"), SAVES, ids=["inline", "external", "location", "shards"])
def test_saved_and_loaded(options: dict[str, Any], wanted: list[str], tmp_path: Path) -> None:
    """The same bytes as files have, where names are the same; and from storage to storage, and to a file."""
    told: list[tuple[int, int]] = []
    ps.save(made(), "flaky://b/m.onnx", progress=lambda *at: told.append(at), **options)
    assert [re.sub(r"\.[0-9a-f]{8}", ".#", name) for name in names()] == wanted and told[-1][0] == told[-1][1]
    ps.save(made(), tmp_path / "m.onnx", **options)
    if "#" not in "".join(wanted):
        found = {path.rpartition("/")[2]: data for path, data in content().items()}
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == found
    model = ps.load("flaky://b/m.onnx")
    assert all(map(np.array_equal, values(model), VALUES))
    ps.save(model, "flaky://c/m.onnx", **options)
    assert all(map(np.array_equal, values(ps.load("flaky://c/m.onnx")), VALUES))
    ps.save(model, tmp_path / "back.onnx", external_data=True)
    assert all(map(np.array_equal, values(ps.load(tmp_path / "back.onnx")), VALUES))
    if "checksums" in options:
        assert not compare(model).mismatches and main(["check", "flaky://b/m.onnx", "--checksums"]) == 0


def other_model() -> ps.ModelProto:
    other = made()
    assert other.graph is not None
    other.graph.initializer[0] = from_array(VALUES[0] + 1, "w0")
    return other


def test_the_data_of_a_replaced_model() -> None:
    """It goes when the new model is whole: a reader of the old one has right numbers, or an error."""
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    old, before = ps.load("flaky://b/m.onnx"), data_files()
    with pytest.raises(FileExistsError, match="in storage none is replaced"):
        ps.save(other_model(), "flaky://b/m.onnx", external_data=True, location=next(iter(before)))
    ps.save(other_model(), "flaky://b/m.onnx", external_data=True)
    assert len(names()) == 2 and not before.keys() & data_files().keys()
    assert np.array_equal(values(ps.load("flaky://b/m.onnx"))[0], VALUES[0] + 1)
    with pytest.raises(
        ps.ExternalDataError, match=r"cannot open flaky://b/m\.onnx\.\w+\.data: there is no such object"
    ):
        values(old)
    ps.save(ps.load("flaky://b/m.onnx"), "flaky://b/m.onnx", external_data=True, shard_size=60_000)  # over itself
    assert len(names()) == 4 and np.array_equal(values(ps.load("flaky://b/m.onnx"))[0], VALUES[0] + 1)
    ps.save(made(), "flaky://b/m.onnx")
    assert names() == ["m.onnx"]


def a_copy_of_the_model(store: dict[str, Any], data: str) -> None:
    store["/b/copy.onnx"] = store["/b/m.onnx"]


def a_model_that_is_damaged(store: dict[str, Any], data: str) -> None:
    store["/b/copy.onnx"] = memory.MemoryFile(data=store["/b/m.onnx"].getvalue()[:-9])


def without_its_mark(store: dict[str, Any], data: str) -> None:
    store[f"/b/{data}"] = memory.MemoryFile(data=store[f"/b/{data}"].getvalue()[:-1])


def of_another_model(store: dict[str, Any], data: str) -> None:
    whole = store[f"/b/{data}"].getvalue()
    store[f"/b/{data}"] = memory.MemoryFile(data=whole.replace(b" of m.onnx", b" of n.onnx"))


@pytest.mark.parametrize("change", [a_copy_of_the_model, a_model_that_is_damaged, without_its_mark, of_another_model])
def test_data_that_stays(change: Callable[[dict[str, Any], str], None], storage: type[Flaky]) -> None:
    """Another model may need it, or it is not known to be of the replaced model."""
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    [name] = data_files()
    change(storage.store, name)
    before = content()
    ps.save(other_model(), "flaky://b/m.onnx", external_data=True)
    del before["/b/m.onnx"]
    assert before.items() < content().items()


def test_verbs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    for words in (
        ["show", "flaky://b/m.onnx"],
        ["stat", "flaky://b/m.onnx"],
        ["inspect", "flaky://b/m.onnx"],
        ["check", "flaky://b/m.onnx"],
        ["quantize", "flaky://b/m.onnx", "-o", "flaky://b/q.onnx", "--type", "int8"],
        ["infer", "flaky://b/m.onnx", "-o", "flaky://b/i.onnx"],
        ["quantize", "flaky://b/m.onnx", "-o", str(tmp_path / "q.onnx"), "--type", "int8"],
        ["share", "flaky://b/m.onnx", "flaky://b/q.onnx", "-o", str(tmp_path / "shared")],
    ):
        assert main(words) == 0, words
    assert {"q.onnx", "i.onnx"} < set(names()) and len(data_files()) == 3
    ps.save(ps.load("flaky://b/q.onnx"), tmp_path / "r.onnx")
    ps.save(ps.load(tmp_path / "q.onnx"), tmp_path / "q.onnx", external_data=False)
    assert (tmp_path / "r.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    assert all(map(np.array_equal, values(ps.load("flaky://b/i.onnx")), VALUES))


def test_what_is_read(storage: type[Flaky]) -> None:
    """`show` reads the model's own file, and asks for the sizes of the others."""
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    storage.log.clear()
    assert main(["show", "flaky://b/m.onnx"]) == 0
    assert sum(size for what, _, size in storage.log if what == "read") == len(content()["/b/m.onnx"]) < 2000


# ---- checkpoints


def test_checkpoints(tmp_path: Path, storage: type[Flaky]) -> None:
    state = {
        "a": torch.arange(300_000.0).reshape(300, 1000),
        "t": torch.arange(12.0).reshape(3, 4).t(),
        "s": torch.ones(()),
    }
    torch.save(state, tmp_path / "m.pt")
    safetensors(tmp_path / "m.safetensors", state)
    np.savez(tmp_path / "m.npz", **{name: value.numpy() for name, value in state.items()})
    for path in tmp_path.iterdir():
        storage.store[f"/w/{path.name}"] = memory.MemoryFile(data=path.read_bytes())
        storage.log.clear()
        found = open_weights(f"flaky://w/{path.name}")
        assert sum(size for what, _, size in storage.log if what == "read") < 900_000, path.name
        local = open_weights(path)
        assert {name: row.payload.tobytes() for name, row in found.items()} == {
            name: row.payload.tobytes() for name, row in local.items()
        }


def test_folders(tmp_path: Path, storage: type[Flaky]) -> None:
    """An index and its files; the chunks of torch.distributed.checkpoint."""
    from torch.distributed.checkpoint.state_dict_saver import save as save_state

    with pytest.warns(UserWarning, match="single process"):
        save_state({"model": {"w": torch.ones(3, 4)}}, checkpoint_id=tmp_path / "dcp")
    folder = tmp_path / "hf"
    folder.mkdir()
    safetensors(folder / "a.safetensors", {"a": torch.ones(3)})
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "a.safetensors"}}')
    for path in (*folder.iterdir(), *(tmp_path / "dcp").iterdir()):
        storage.store[f"/{path.parent.name}/{path.name}"] = memory.MemoryFile(data=path.read_bytes())
    assert open_weights("flaky://hf")["a"].payload.tobytes() == np.ones(3, np.float32).tobytes()
    assert open_weights("flaky://dcp/")["w"].payload.tobytes() == np.ones((3, 4), np.float32).tobytes()
    del storage.store["/dcp/__0_0.distcp"]
    with pytest.raises(ValueError, match=r"'__0_0.distcp' is not in flaky://dcp"):
        open_weights("flaky://dcp")


# ---- what fails


def every(number: int, what: str, error: Callable[[], Exception]) -> Callable[[str, int], Exception | None]:
    return lambda asked, count: error() if asked == what and count % number == 0 else None


def after(number: int, what: str, error: Callable[[], Exception]) -> Callable[[str, int], Exception | None]:
    return lambda asked, count: error() if asked == what and count > number else None


def test_requests_that_fail_are_tried_again(storage: type[Flaky], monkeypatch: pytest.MonkeyPatch) -> None:
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    for what in ("read", "info"):
        monkeypatch.setattr(storage, "fails", staticmethod(every(3, what, lambda: TimeoutError("slow"))))
        assert all(map(np.array_equal, values(ps.load("flaky://b/m.onnx")), VALUES))
    monkeypatch.setattr(
        storage, "fails", staticmethod(after(0, "info", lambda: OSError("https://u:SECRET@h/x?sig=SECRET")))
    )
    with pytest.raises(OSError, match="it cannot be read: OSError") as caught:
        ps.load("flaky://u:SECRET@b/m.onnx?sig=SECRET")
    assert "SECRET" not in str(caught.value) + str(caught.value.__cause__)


def test_an_object_that_changes(storage: type[Flaky]) -> None:
    """Before it is read, and while it is."""
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    model = ps.load("flaky://b/m.onnx")
    [(name, data)] = data_files().items()
    storage.store[f"/b/{name}"] = memory.MemoryFile(data=data[:-1] + b"\0")
    with pytest.raises(ps.ExternalDataError, match=rf"flaky://b/{name} has changed or been replaced"):
        values(model)
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced"):
        ps.save(model, "flaky://b/copy.onnx", external_data=True)
    assert names() == ["m.onnx", name]
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced"):
        ps.save(quantize(model, "int4"), "flaky://b/q.onnx", external_data=True)
    assert names() == ["m.onnx", name]
    del storage.store[f"/b/{name}"]
    with pytest.raises(ps.ExternalDataError, match=rf"cannot open flaky://b/{name}: there is no such object"):
        values(ps.load("flaky://b/m.onnx"))


STOPS: list[tuple[str, Callable[[], BaseException], type[BaseException]]] = [
    ("a full disk", lambda: OSError(28, "no space"), OSError),
    ("an odd error", lambda: RuntimeError("of some library"), OSError),
    ("an interrupt", KeyboardInterrupt, KeyboardInterrupt),
]


@pytest.mark.parametrize(("error", "raised"), [row[1:] for row in STOPS], ids=[row[0] for row in STOPS])
@pytest.mark.parametrize("there", [False, True], ids=["new", "over another"])
def test_a_write_that_stops(
    error: Any, raised: type[BaseException], there: bool, storage: type[Flaky], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call in turn: nothing half-written is visible, the old model is whole."""
    if there:
        ps.save(made(), "flaky://b/m.onnx", external_data=True, shard_size=60_000)
    before = content()
    for count in range(40):
        storage.log.clear()
        monkeypatch.setattr(storage, "fails", staticmethod(after(count, "write", error)))
        try:
            ps.save(made(), "flaky://b/m.onnx", external_data=True, shard_size=60_000)
        except raised:
            assert content() == before, count
            continue
        assert count > 3 and len(content()) == 4 and not set(before) & set(data_files())
        return
    raise AssertionError("it never ends")


def test_nothing_is_visible_before_the_end(storage: type[Flaky], monkeypatch: pytest.MonkeyPatch) -> None:
    """While one object is written, those that are there are whole."""
    seen: list[list[str]] = []

    def look(what: str, count: int) -> None:
        if what == "write":
            seen.append(names())

    monkeypatch.setattr(storage, "fails", staticmethod(look))
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    written = list(data_files())
    assert seen[0] == [] and all(found in ([], written) for found in seen) and seen[-1] == written


def test_shared_data(capsys: pytest.CaptureFixture[str], storage: type[Flaky]) -> None:
    """Several models with one set of data files; a later save of one of them leaves these to the other."""
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    ps.save(other_model(), "flaky://b/n.onnx", external_data=True)
    words = ["share", "flaky://b/m.onnx", "flaky://b/n.onnx", "-o", "flaky://c"]
    assert main([*words, "--dry-run"]) == 0 and not any("/c/" in path for path in storage.store)
    assert main([*words, "--shard-size", "100kB"]) == 0 and "stored as 4" in capsys.readouterr().out
    there = [name for name in names() if re.match(r"model\.onnx\.\w{8}-0000[12]-of-00002\.data", name)]
    assert len(there) == 2 and len(names()) == 8
    assert [values(ps.load(f"flaky://c/{name}.onnx"))[0][0, 0] for name in "mn"] == [
        VALUES[0][0, 0],
        VALUES[0][0, 0] + 1,
    ]
    ps.save(made(), "flaky://c/m.onnx")
    assert len(names()) == 8 and np.array_equal(values(ps.load("flaky://c/n.onnx"))[1], VALUES[1])
    ps.save(made(), "flaky://c/n.onnx")
    assert not set(there) & set(names())
    assert main([*words, "--force", "--shard-size", "100kB"]) == 0
    assert main([*words, "--force"]) == 0 and len(names()) == 7


@pytest.mark.parametrize("executor", ["threads:2", "lost"])
def test_data_files_by_many(executor: str) -> None:
    """A worker writes a whole data file, with its digests; one that is lost does it again."""
    given: Any = ByPickle(1) if executor == "lost" else executor
    options: dict[str, Any] = {"external_data": True, "shard_size": 60_000, "checksums": True, "location": "w.data"}
    ps.save(made(), "flaky://b/m.onnx", external_data=True)
    model = ps.load("flaky://b/m.onnx")
    ps.save(model, "flaky://c/m.onnx", **options)
    ps.save(model, "flaky://d/m.onnx", executor=given, **options)
    alone, many = ({path[3:]: data for path, data in content().items() if path[1] == place} for place in "cd")
    assert len(alone) == 4 and many == alone and not compare(ps.load("flaky://d/m.onnx")).mismatches
    assert executor != "lost" or given.done == 3


# ---- mistakes

ADDRESS_MISTAKES: list[tuple[list[str], str]] = [
    (["show", "flaky://b/none.onnx"], "flaky://b/none.onnx: there is no such object"),
    (["show", "nope://b/m.onnx"], "no file system for nope:// is known: install fsspec (the extra remote) and the"),
    (["show", "nope://me:SECRET@b/m.onnx?t=SECRET"], "nope://b/m.onnx: no file system for nope:// is known"),
    (["show", "flaky://b"], "flaky://b: it is a folder, or has no size: give the address of a file"),
    (["quantize", "flaky://b/none.onnx", "-o", "q.onnx"], "flaky://b/none.onnx: there is no such object"),
    (["infer", "flaky://b/m.onnx", "-o", "flaky://b/notes.txt"], "it is there already and is not called .onnx"),
    (["edit", "flaky://b/m.onnx", "--metadata", "a=b"], "what is edited must be on this machine, not in storage"),
    (["share", "flaky://b/m.onnx", "-o", "flaky://b"], "flaky://b/m.onnx is in that folder itself; name another"),
    (["scan", "flaky://b/m.onnx"], "a file that is scanned, with its data, must be on this machine"),
    (["html", "flaky://b/m.onnx", "-o", "m.html"], "a model with a page must be on this machine"),
    (
        ["canonicalize", "flaky://b/m.onnx", "-o", "flaky://b/c.onnx"],
        "what this command writes must be on this machine",
    ),
]


@pytest.mark.parametrize(("words", "said"), ADDRESS_MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes(words: list[str], said: str, capsys: pytest.CaptureFixture[str], storage: type[Flaky]) -> None:
    ps.save(made(), "flaky://b/m.onnx")
    storage.store["/b/notes.txt"] = memory.MemoryFile(data=b"mine")
    before = content()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and "SECRET" not in error and content() == before


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"external_data": "reference"}, ps.EncodeError, "cannot refer to the weights of others"),
    ({"resume": True}, ValueError, "resume=True is for files"),
    ({"archive": "tar"}, ValueError, "archive='tar' is for files and streams"),
]


@pytest.mark.parametrize(("options", "error", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_refused_options(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ps.save(made(), "flaky://b/m.onnx", **options)
    assert not names()


def test_without_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths need none of it; an address says what to install."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.chdir(tmp_path)
    ps.save(made(), "m.onnx", external_data=True)
    assert all(map(np.array_equal, values(ps.load("m.onnx")), VALUES))
    assert len(open_weights("m.onnx")) == 3
    assert main(["quantize", "m.onnx", "-o", "q.onnx", "--type", "int8"]) == 0
    for words in (["show", "s3://b/m.onnx"], ["quantize", "m.onnx", "-o", "s3://b/m.onnx"]):
        assert main(words) == 2
        assert ": addresses need fsspec: install fsspec (the extra remote)" in capsys.readouterr().err
    with pytest.raises(OSError, match="addresses need fsspec"):
        open_weights("s3://b/m.safetensors")


ADDRESSES = [
    ("s3://b/m.onnx", True),
    ("simplecache::s3://b/m", True),
    ("https://h/m", True),
    ("C:\\models\\m.onnx", False),
    ("c://m", False),
    ("m.onnx", False),
    ("a/b://c", False),
    ("", False),
]


@pytest.mark.parametrize(("text", "wanted"), ADDRESSES)
def test_what_is_an_address(text: str, wanted: bool) -> None:
    assert addresses.is_address(text) is wanted and not addresses.is_address(Path(text or "."))


def test_a_reader_at_places(storage: type[Flaky]) -> None:
    storage.store["/b/x"] = memory.MemoryFile(data=bytes(range(100)))
    with addresses.RemoteFile("flaky://b/x").range(0, 100).open() as file:
        assert file.seek(-3, os.SEEK_END) == 97 and file.read(9) == bytes((97, 98, 99)) and file.read(1) == b""
        assert file.seek(5) == 5 and io.BufferedReader(file).read(2) == bytes((5, 6))
