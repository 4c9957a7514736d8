"""The published vulnerabilities of ONNX loaders, each built as a file and given to everything of ours that opens files.

A row is a trick: the identifiers under which it was published, the file, who must refuse it, and with which words. All
entry points run on every row, also those that need not refuse. What must hold for each: the folder beside the model's
is as it was, and (where the kernel can tell, by inotify) no file in it was opened; nothing of the secret in it appears
in what is written or printed; a refusal is a ValueError or an OSError, on the command line a line and no traceback.
An advisory may name several tricks, and a trick several advisories; saving has its own rows below, and checkpoints.
`test_external.py` has more locations and numbers, `tests/weights` more checkpoints.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import external
from proto_schema.external import tensors
from proto_schema.files.marks import size_of_data
from proto_schema.numpy_helper import from_array, to_array
from proto_schema.wire import varint
from purexport.cli.main import main
from purexport.weights.source import open_weights
from tests.tiers import dealt

SECRET = b"the secret of another folder, 1!" * 2
LENGTH = ("length", "32")
Build = Callable[[Path], ps.ModelProto | bytes]


# ---- files


def model(*weights: ps.TensorProto, **fields: Any) -> ps.ModelProto:
    """y = x + w, valid but for what the weights say."""
    value = ps.helper.make_tensor_value_info
    node = ps.helper.make_node("Add", ["x", "w"], ["y"])
    graph = ps.helper.make_graph([node], "g", [value("x", 1, [8])], [value("y", 1, [8])], list(weights))
    made = ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 20)], ir_version=10)
    for name, content in fields.items():
        setattr(made, name, content)
    return made


def weight(*entries: tuple[str, str], dims: tuple[int, ...] = (8,), name: str = "w", **more: Any) -> ps.TensorProto:
    made = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries]
    return ps.TensorProto(name=name, data_type=1, dims=list(dims), data_location=1, external_data=made, **more)


def at(location: str, *more: tuple[str, str], **options: Any) -> Build:
    """A model whose weight lies there."""
    return lambda folder: model(weight(("location", location), *(more or (LENGTH,)), **options))


def linked(location: str, make: Callable[[Path, Path], None]) -> Build:
    """The same, behind a link: `make` gets the model's folder and the one outside."""

    def build(folder: Path) -> ps.ModelProto:
        make(folder, folder.parent / "outside")
        return model(weight(("location", location), LENGTH))

    return build


def recursive(_: Path) -> ps.ModelProto:
    """Two functions that call each other."""
    imports = [ps.helper.make_opsetid("", 20), ps.helper.make_opsetid("my", 1)]
    made = model(from_array(np.zeros(8, np.float32), "w"))
    for name, other in (("A", "B"), ("B", "A")):
        call = ps.helper.make_node(other, ["a"], ["b"], domain="my")
        made.functions.append(ps.helper.make_function("my", name, ["a"], ["b"], [call], imports))
    made.opset_import.append(imports[1])
    assert made.graph is not None
    made.graph.node = [ps.helper.make_node("A", ["x"], ["y"], domain="my")]
    return made


def deep(levels: int) -> Build:
    """Graphs in attributes of nodes of graphs, of which only a hand-made file can have so many."""

    def build(_: Path) -> bytes:
        heads, size = [], 0  # the innermost first: to join the data at each level would take quadratic time
        for level in range(levels - 1, 0, -1):  # node in graph, attribute in node, graph in attribute, ...
            heads.append(varint((1, 5, 6)[(level - 1) % 3] << 3 | 2) + varint(size))
            size += len(heads[-1])
        return b"".join([varint(7 << 3 | 2) + varint(size), *reversed(heads)])

    return build


def stored(*dims: int, data: bytes = bytes(32)) -> Build:
    return lambda folder: model(ps.TensorProto(name="w", data_type=1, dims=list(dims), raw_data=data))


def promised(_: Path) -> bytes:
    """A raw_data of 2 GiB - 1 that ends after four bytes."""
    return b"\x3a\xff\xff\xff\xff\x07\x2a\xff\xff\xff\xff\x07\x4a\xff\xff\xff\xff\x07" + bytes(4)


# ---- who opens files


def load_values(path: Path, out: Path) -> None:
    for tensor in tensors(ps.load(path)):
        to_array(tensor)


def values_by_folder(path: Path, out: Path) -> None:
    for tensor in tensors(ps.loads(path.read_bytes())):
        to_array(tensor, base_dir=path.parent)


def saving(**options: Any) -> Callable[[Path, Path], None]:
    return lambda path, out: ps.save(ps.load(path), out / "saved.onnx", **options)


def values_of_weights(path: Path, out: Path) -> None:
    for row in open_weights(path).values():
        row.payload.tobytes()


def command(*words: str) -> Callable[[Path, Path], None]:
    """A verb, with `M` for the model, `O` and `E` for files to write; a status that is not 0 becomes a ValueError."""

    def call(path: Path, out: Path) -> None:
        found, streams = {"M": str(path), "O": str(out / "written"), "E": f"{path}.edited"}, (sys.stdout, sys.stderr)
        text = sys.stdout = sys.stderr = io.StringIO()
        try:
            status = main([found.get(word, word) for word in words])
        finally:
            sys.stdout, sys.stderr = streams
            Path(f"{path}.edited").unlink(missing_ok=True)
        assert "Traceback" not in text.getvalue() and "--traceback" not in text.getvalue(), text.getvalue()
        (out / "printed").write_text(text.getvalue())
        if status:
            raise ValueError(text.getvalue())

    return call


READERS: dict[str, Callable[[Path, Path], None]] = {  # of the data itself: these must refuse data that is not ours
    "load": load_values,
    "base_dir": values_by_folder,
    "check_model": lambda path, out: ps.checker.check_model(path, full_check=True),
    "plan": lambda path, out: print(ps.plan(ps.load(path), out / "saved.onnx"), file=io.StringIO()),
    "save": saving(),
    "save external": saving(external_data=True, size_threshold=0),
    "save resumed": saving(external_data=True, size_threshold=0, resume=True),
    "save in place": saving(external_data="reference", size_threshold=0),
    "save tar": saving(archive="tar", external_data=True),
    "weights": values_of_weights,
    "extract tensor": command("extract", "M", "--tensor", "w", "-o", "O"),
    "extract tensors": command("extract", "M", "--tensors", "-o", "O"),
    "check": command("check", "M"),
}
OTHERS: dict[str, Callable[[Path, Path], None]] = {
    "show": command("show", "M"),
    "inspect": command("inspect", "M"),
    "stat": command("stat", "M"),
    "locate": command("locate", "M", "40"),
    "diff": command("diff", "M", "M"),
    "html": command("html", "M", "-o", "O"),
    "canonicalize": command("canonicalize", "M", "-o", "E"),
    "edit": command("edit", "M", "--set", "producer_name=me", "-o", "E"),
    "extract subgraph": command("extract", "M", "--outputs", "y", "-o", "O"),
    "salvage": command("salvage", "M", "-o", "O"),
}
ALL = READERS | OTHERS
DECODERS = [name for name in ALL if name not in ("inspect", "locate", "html", "salvage", "check", "stat")]


@dataclass(frozen=True)
class Trick:
    """`refuse`: the entry points that must refuse with `words`. `opens`: a link count shows on an open file only."""

    published: str
    what: str
    build: Build
    words: str
    refuse: list[str] = field(default_factory=lambda: list(READERS))
    opens: bool = False


EVIL_TEXT = "\x1b[2J\x07\x9b</script><script>alert(1)</script>"
MODEL_TEXTS = ("producer_name", "producer_version", "domain", "doc_string")
TRICKS = [
    Trick("CVE-2022-25882", "parent folder", at("../outside/w.bin"), "leaves the model's folder"),
    Trick(
        "CVE-2022-25882",
        "absolute path",
        lambda folder: at(str(folder.parent / "outside/w.bin"))(folder),
        "not a relative path",
    ),
    Trick("CVE-2024-27318", "parent behind a folder", at("sub/../../outside/w.bin"), "leaves the model's folder"),
    Trick("CVE-2024-27318", "parent in backslashes", at("..\\outside\\w.bin"), "not a relative path"),
    Trick("CVE-2024-27318", "NUL behind a good name", at("w.bin\0/../../outside/w.bin"), "not a relative path"),
    Trick("CVE-2024-27319", "a long location in an error", at("/" + "A" * 2**20), "not a relative path"),
    Trick("CVE-2024-27319", "a long key in an error", at("w.bin", ("A" * 2**20, "1")), "unknown key"),
    Trick("CVE-2024-27319", "a long number in an error", at("w.bin", ("offset", "A" * 2**20)), "plain digits"),
    Trick(
        "CVE-2026-27489",
        "symbolic link",
        linked("link", lambda inside, outside: (inside / "link").symlink_to(outside / "w.bin")),
        "link out of the model's folder",
    ),
    Trick("CVE-2026-34445", "a key that is an attribute", at("w.bin", LENGTH, ("__class__", "x")), "unknown key"),
    Trick("CVE-2026-34445", "a key of ours", at("w.bin", LENGTH, ("file_path", "/etc/passwd")), "unknown key"),
    Trick("CVE-2026-34445", "length of exabytes", at("w.bin", ("length", str(2**62))), "which has 64"),
    Trick("CVE-2026-34445", "negative offset", at("w.bin", ("offset", "-8"), LENGTH), "plain digits"),
    Trick("CVE-2026-34445", "underscore in a number", at("w.bin", ("offset", "1_0"), LENGTH), "plain digits"),
    Trick("CVE-2026-34445", "other digits", at("w.bin", ("length", "\u0663\u0662")), "plain digits"),
    Trick(
        "CVE-2026-34446",
        "hard link",
        linked("link", lambda inside, outside: os.link(outside / "w.bin", inside / "link")),
        "link out of the model's folder",
        opens=True,
    ),
    Trick(
        "CVE-2026-34447",
        "link as a folder",
        linked("link/w.bin", lambda inside, outside: (inside / "link").symlink_to(outside)),
        "link out of the model's folder",
    ),
    Trick(
        "CVE-2026-34447",
        "link to a link",
        linked(
            "link",
            lambda inside, outside: [
                (inside / "sub/link").symlink_to(outside / "w.bin"),
                (inside / "link").symlink_to("sub/link"),
            ],
        ),
        "link",
    ),
    Trick(
        "no number",
        "named pipe, which must not block",
        linked("link", lambda inside, outside: os.mkfifo(inside / "link")),
        "regular file",
    ),
    Trick(
        "no number",
        "names that write to the terminal, and to a page",
        lambda _: model(from_array(np.zeros(8, np.float32), "w"), **dict.fromkeys(MODEL_TEXTS, EVIL_TEXT)),
        "",
        [],
    ),
    Trick("no number", "functions that call each other", recursive, "recursive", ["check_model", "check"]),
    Trick("no number", "101 levels", deep(101), "nested", DECODERS),
    Trick("no number", "100,000 levels", deep(100_000), "nested", DECODERS),
    Trick("no number", "a length beyond the file", promised, "truncated|cut off|left here", DECODERS),
    Trick("no number", "dims that overflow", stored(2**32, 2**32), "", ["load", "check", "weights", "extract tensor"]),
    Trick("no number", "dims that wrap to the data", stored(2**61 + 1, 8), "", ["load", "check", "extract tensors"]),
    Trick("no number", "dims that do not match", stored(9), "", ["load", "check", "weights", "extract tensor"]),
    Trick("no number", "negative dims", stored(-8, -1), "", ["load", "check", "weights", "extract tensor"]),
]


# ---- the folder outside


class Watched:
    """Tells which files of a folder were touched: by what they are, and where the kernel tells by inotify."""

    OPENED = 0x20 | 0x10  # and closed
    UNLINKED = OPENED | 0x04 | 0x08  # another name of a file is gone, which may have been open for writing
    READ = UNLINKED | 0x01  # by another name, which is in the folder

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._state()
        self._descriptor = -1
        library = ctypes.CDLL(None, use_errno=True)
        if hasattr(library, "inotify_init1"):
            self._descriptor = library.inotify_init1(os.O_NONBLOCK)
            for path in [folder, *folder.rglob("*")]:
                library.inotify_add_watch(self._descriptor, os.fsencode(path), 0xFFF)

    def complaint(self, but: int = 0) -> str:
        """What happened to the folder, or ""; but for these events."""
        seen = 0
        while self._descriptor >= 0:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                break
            while data:
                _, mask, _, size = struct.unpack_from("iIII", data)
                seen |= mask & ~but
                data = data[16 + size :]
        return f"events {seen:#x}" if seen else "" if self._state() == self._before else "it has changed"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _state(self) -> list[tuple[str, int, int]]:
        found = [(path, path.lstat()) for path in sorted(self._folder.rglob("*"))]
        return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]


@contextmanager
def untouched(folder: Path, but: int = 0) -> Iterator[None]:
    watched = Watched(folder)
    try:
        yield
        assert watched.complaint(but) == ""
    finally:
        watched.close()
    assert (folder / "w.bin").read_bytes() == SECRET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model, with data of its own, beside one with a secret."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (inside / "w.bin").write_bytes(bytes(64))
    (tmp_path / "outside/w.bin").write_bytes(SECRET)
    return inside


def test_the_watch_sees_an_open_file(folder: Path) -> None:
    watched = Watched(folder.parent / "outside")
    (folder.parent / "outside/w.bin").read_bytes()
    complaint = watched.complaint()
    watched.close()
    assert complaint.startswith("events") or not sys.platform.startswith("linux")


@pytest.mark.parametrize("trick", dealt(TRICKS, 4, [f"{row.published} {row.what}" for row in TRICKS]))
def test_trick(trick: Trick, folder: Path, tmp_path: Path) -> None:
    found = trick.build(folder)
    path = folder / "m.onnx"
    path.write_bytes(found if isinstance(found, bytes) else found.SerializeToString())
    before = {name: name.lstat().st_size for name in folder.rglob("*")}
    wrong = []
    for number, (name, call) in enumerate(ALL.items()):
        out = tmp_path / f"out{number}"
        out.mkdir()
        text = ""
        with untouched(tmp_path / "outside", Watched.OPENED if trick.opens else 0):
            try:
                call(path, out)
            except (ValueError, OSError) as error:
                text = str(error) or "no words"
        if name in trick.refuse and not any(words in text for words in trick.words.split("|") if text):
            wrong.append(f"{name}: {text[:200] or 'not refused'}")
        if len(text) > 4000:
            wrong.append(f"{name}: an error of {len(text)} characters")
        text += (out / "printed").read_text() if (out / "printed").exists() else ""
        if any(ord(letter) < 32 or 126 < ord(letter) < 160 for letter in text if letter != "\n"):
            wrong.append(f"{name}: control characters")
        if name == "html" and (out / "written").exists() and b"<script>alert" in (out / "written").read_bytes():
            wrong.append("a script of the file's in the page")
        written = [made.read_bytes() for made in out.rglob("*")]
        if any(SECRET[:8] in data for data in written):
            wrong.append(f"{name}: the secret got out")
    assert wrong == []
    assert {name: name.lstat().st_size for name in folder.rglob("*")} == before


# ---- saving


def link(target: str, source: str) -> Callable[[Path], None]:
    return lambda out: (out / target).symlink_to(out.parent / source)


def hard(target: str, source: str) -> Callable[[Path], None]:
    return lambda out: os.link(out.parent / source, out / target)


# identifiers, what lies in the way, how it is put there, the names that lead to the outside
SAVES: list[tuple[str, str, Callable[[Path], None], dict[str, Any]]] = [
    ("CVE-2025-51480", "the tensor itself says a place", lambda out: None, {}),
    ("GHSA-q56x", "a link as the model", link("m.onnx", "outside/w.bin"), {}),
    ("GHSA-q56x", "a link as the data file", link("m.onnx.data", "outside/w.bin"), {}),
    ("GHSA-q56x", "a link as the fresh data file", link("m.onnx.data.1", "outside/w.bin"), {}),
    (
        "GHSA-q56x",
        "a link as the partial file",
        link("m.onnx.data.partial", "outside/w.bin"),
        {"resume": True, "refused": True},
    ),
    (
        "GHSA-q56x",
        "a link as the journal",
        link("m.onnx.data.partial.journal", "outside/w.bin"),
        {"resume": True, "refused": True},
    ),
    ("GHSA-7w46", "a hard link as the model", hard("m.onnx", "outside/w.bin"), {}),
    ("GHSA-7w46", "a hard link as the data file", hard("m.onnx.data", "outside/w.bin"), {}),
    (
        "GHSA-7w46",
        "a hard link as the partial file",
        hard("m.onnx.data.partial", "outside/w.bin"),
        {"resume": True, "refused": True},
    ),
    ("GHSA-7w46", "a data file of an earlier save", lambda out: None, {"again": True}),
]


@pytest.mark.parametrize(("put", "options"), [row[2:] for row in SAVES], ids=[f"{row[0]} {row[1]}" for row in SAVES])
def test_saving(
    put: Callable[[Path], None],
    options: dict[str, Any],
    folder: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Nothing is written through the place or appended to it, and what was saved is whole."""
    out = tmp_path / "out"
    out.mkdir()
    put(out)
    array = np.arange(8, dtype=np.float32)
    held = model(weight(("location", "../outside/w.bin"), LENGTH, raw_data=array.tobytes(), name="w"))
    assert held.graph is not None
    held.graph.initializer[0].data_location = None
    options = dict(options)
    again, refused = options.pop("again", False), options.pop("refused", False)
    with untouched(tmp_path / "outside", Watched.READ if "hard" in request.node.name else Watched.UNLINKED):
        for _ in range(2 if again else 1):
            with pytest.raises(FileExistsError, match="remove it") if refused else nullcontext():
                ps.save(held, out / "m.onnx", external_data=True, size_threshold=0, alignment=1, **options)
    if refused:
        return
    (saved,) = tensors(ps.load(out / "m.onnx"))
    name = {entry.key: entry.value for entry in saved.external_data}["location"]
    assert name in ("m.onnx.data", "m.onnx.1.data") and size_of_data(str(out / str(name))) == 32
    np.testing.assert_array_equal(to_array(saved), array)


@pytest.mark.parametrize("location", ["../outside/w.bin", "/w.bin", "sub/w.bin", "..", "w\0.bin", "..\\w.bin"])
def test_saving_takes_no_paths(location: str, folder: Path) -> None:
    """CVE-2025-51480, by the argument."""
    held = model(from_array(np.zeros(8, np.float32), "w"))
    with untouched(folder.parent / "outside"), pytest.raises(ValueError, match="bare name of a file"):
        ps.save(held, folder / "m.onnx", external_data=True, location=location)
    assert not (folder / "m.onnx").exists()


@pytest.mark.parametrize("name", ["w.bin", "sub"])
def test_a_swap_before_the_open(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GHSA-q56x: the file, or a folder on the way, becomes a link right before the system opens it."""
    real, outside = os.open, folder.parent / "outside"
    (folder / "sub/w.bin").write_bytes(bytes(64))
    row = weight(("location", "sub/w.bin" if name == "sub" else "w.bin"), LENGTH)

    def swapped(path: str, *args: Any, **options: Any) -> int:
        if path == name and not (folder / name).is_symlink():
            (folder / name).rename(folder.parent / "moved")
            (folder / name).symlink_to(outside if name == "sub" else outside / "w.bin")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", swapped)
    with untouched(outside), pytest.raises(ps.ExternalDataError, match="link"):
        external.Folder(folder).view(row)
    assert (folder / name).is_symlink()


# ---- checkpoints, by the same tricks


class Evil:
    """What a pickle may call when Python reads it."""

    def __init__(self, folder: Path) -> None:
        self._target = str(folder / "was-here")

    def __reduce__(self) -> Any:
        return os.mkdir, (self._target,)


def zipped(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return made.getvalue()


def objects(outside: Path) -> bytes:
    """An array of objects, which is a pickle."""
    made = io.BytesIO()
    np.save(made, np.array([Evil(outside)], object), allow_pickle=True)
    return made.getvalue()


def tensors_file(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header


def index(place: str) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": {"w": place}}).encode()


# what, the file's name, its bytes for the folder outside, words
CHECKPOINTS: list[tuple[str, str, Callable[[Path], bytes], str]] = [
    (
        "code in torch.save",
        "m.pt",
        lambda o: zipped(m__data__pkl=b"", **{"m/data.pkl": pickle.dumps(Evil(o))}),
        "needs",
    ),
    ("code in a bare pickle", "m.pt", lambda o: pickle.dumps(Evil(o)), "a pickle, but torch.save did not write it"),
    ("code in an array", "m.npy", objects, "does not describe an array of numbers"),
    (
        "code in an archive of arrays",
        "m.npz",
        lambda o: zipped(**{"w.npy": objects(o)}),
        "does not describe an array of numbers",
    ),
    ("an index that leads out", "m.index.json", lambda o: index("../outside/w.bin"), "not a file of the index's"),
    ("an index with an absolute path", "m.index.json", lambda o: index(str(o / "w.bin")), "not a file of the index's"),
    ("a header of exabytes", "m.safetensors", lambda o: tensors_file(b"{}", 2**62), "header would have"),
    ("a header of 4 GB", "m.safetensors", lambda o: tensors_file(b"{}", 2**32 - 1), "header would have"),
    ("JSON as deep as Python's stack", "m.safetensors", lambda o: tensors_file(b'{"a":' * 100_000), "header"),
]


@pytest.mark.parametrize(("name", "make", "words"), [r[1:] for r in CHECKPOINTS], ids=[r[0] for r in CHECKPOINTS])
def test_checkpoint(name: str, make: Callable[[Path], bytes], words: str, folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / name).write_bytes(make(outside))
    with untouched(outside), pytest.raises(ValueError, match=words):
        open_weights(folder / name)
