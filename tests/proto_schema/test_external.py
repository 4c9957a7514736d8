"""External data that must not be opened, one row a trick; and what is fine though it looks odd."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import external
from proto_schema.numpy_helper import to_array

DATA = bytes(range(64))


def tensor(*entries: tuple[str | None, str | bytes | None], dims: tuple[int, ...] = (8,)) -> ps.TensorProto:
    made = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries]  # type: ignore[arg-type]
    return ps.TensorProto(name="w", data_type=1, dims=dims, data_location=1, external_data=made)  # type: ignore[arg-type]


def at(location: str, *more: tuple[str, str]) -> ps.TensorProto:
    return tensor(("location", location), *more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with w.bin and sub/w.bin, beside an outside folder with a secret."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "w.bin").write_bytes(DATA)
    (inside / "a..b.bin").write_bytes(DATA)
    (inside / "sub/w.bin").write_bytes(DATA)
    (tmp_path / "secret").write_bytes(DATA)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/w.bin").write_bytes(DATA)
    return inside


def loaded(folder: Path, found: ps.TensorProto, trust_root: Path | None = None) -> ps.TensorProto:
    """The tensor as a file of the folder gives it."""
    model = ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=[found]))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    again = ps.load(folder / "m.onnx", trust_root=trust_root)
    assert again.graph is not None
    return again.graph.initializer[0]


LENGTH = ("length", "32")
ACCEPTED = [  # why it might look odd, the tensor, the offset of its first byte
    ("plain", at("w.bin", LENGTH), 0),
    ("offset", at("w.bin", ("offset", "32"), LENGTH), 32),
    ("no length: what type and dims need", at("w.bin", ("offset", "8")), 8),
    ("subfolder", at("sub/w.bin", LENGTH), 0),
    ("dot steps", at("./sub/./w.bin", LENGTH), 0),
    ("two dots within a name", at("a..b.bin", LENGTH), 0),
    ("checksum and basepath are known keys", at("w.bin", LENGTH, ("checksum", "ab"), ("basepath", "/etc")), 0),
    ("leading zeros are digits", at("w.bin", ("offset", "008"), LENGTH), 8),
]


@pytest.mark.parametrize(("found", "offset"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_accepted(found: ps.TensorProto, offset: int, folder: Path) -> None:
    expected = np.frombuffer(DATA, "<f4", 8, offset)
    np.testing.assert_array_equal(to_array(loaded(folder, found)), expected)
    np.testing.assert_array_equal(to_array(found, base_dir=folder), expected)


def links(kind: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        outside = folder.parent / "outside"
        match kind:
            case "symlink out":
                (folder / "link").symlink_to(outside / "w.bin")
            case "symlink within":
                (folder / "link").symlink_to("w.bin")
            case "folder symlink":
                (folder / "linked").symlink_to(outside)
            case "hard link out":
                os.link(outside / "w.bin", folder / "link")
            case "fifo":
                os.mkfifo(folder / "link")
            case "socket":
                socket.socket(socket.AF_UNIX).bind(os.path.relpath(folder / "link"))
            case "dangling":
                (folder / "link").symlink_to("nowhere")

    return prepare


def nothing(_: Path) -> None:
    pass


REFUSED: list[tuple[str, Callable[[Path], None], ps.TensorProto, str]] = [
    ("absolute path", nothing, at("/etc/passwd", LENGTH), "not a relative path"),
    ("windows drive", nothing, at("C:w.bin", LENGTH), "not a relative path"),
    ("windows path", nothing, at("sub\\w.bin", LENGTH), "not a relative path"),
    ("network path", nothing, at("\\\\host\\w.bin", LENGTH), "not a relative path"),
    ("parent", nothing, at("../secret", LENGTH), "leaves the model's folder"),
    ("parent in the middle", nothing, at("sub/../../secret", LENGTH), "leaves the model's folder"),
    ("parent that stays inside", nothing, at("sub/../w.bin", LENGTH), "leaves the model's folder"),
    ("parent at the end", nothing, at("sub/..", LENGTH), "leaves the model's folder"),
    ("empty", nothing, at("", LENGTH), "not a relative path"),
    ("NUL", nothing, at("w.bin\0x", LENGTH), "not a relative path"),
    ("the folder itself", nothing, at(".", LENGTH), "regular file"),
    ("a folder", nothing, at("sub", LENGTH), "regular file"),
    ("a file as folder", nothing, at("w.bin/x", LENGTH), "cannot open"),
    ("not there", nothing, at("gone.bin", LENGTH), "cannot open"),
    ("symbolic link to the outside", links("symlink out"), at("link", LENGTH), "link out of the model's folder"),
    ("symbolic link to the inside", links("symlink within"), at("link", LENGTH), "link"),
    ("symbolic link as folder", links("folder symlink"), at("linked/w.bin", LENGTH), "link out of the model's folder"),
    ("hard link to the outside", links("hard link out"), at("link", LENGTH), "link out of the model's folder"),
    ("dangling link", links("dangling"), at("link", LENGTH), "link"),
    ("named pipe, which must not block", links("fifo"), at("link", LENGTH), "regular file"),
    ("socket", links("socket"), at("link", LENGTH), "cannot open"),
    ("underscore in a number", nothing, at("w.bin", ("offset", "1_0"), LENGTH), "plain digits"),
    ("plus", nothing, at("w.bin", ("offset", "+4"), LENGTH), "plain digits"),
    ("minus", nothing, at("w.bin", ("offset", "-4"), LENGTH), "plain digits"),
    ("spaces", nothing, at("w.bin", ("length", " 32 ")), "plain digits"),
    ("line break", nothing, at("w.bin", ("length", "32\n")), "plain digits"),
    ("arabic-indic digits", nothing, at("w.bin", ("length", "\u0663\u0662")), "plain digits"),
    ("superscript", nothing, at("w.bin", ("length", "\u00b2")), "plain digits"),
    ("hexadecimal", nothing, at("w.bin", ("length", "0x20")), "plain digits"),
    ("decimal point", nothing, at("w.bin", ("length", "32.0")), "plain digits"),
    ("beyond 64 bits", nothing, at("w.bin", ("offset", "1" * 20), LENGTH), "plain digits"),
    ("offset beyond the file", nothing, at("w.bin", ("offset", "65"), LENGTH), "which has 64"),
    ("length beyond the file", nothing, at("w.bin", ("offset", "40"), LENGTH), "bytes 40 to 72"),
    ("a promise of exabytes", nothing, at("w.bin", ("length", str(2**62))), "which has 64"),
    ("offset plus length beyond 64 bits", nothing, at("w.bin", ("offset", str(2**63 - 1)), LENGTH), "which has 64"),
    ("shorter than the shape", nothing, at("w.bin", ("length", "28")), "need 32"),
    ("longer than the shape", nothing, at("w.bin", ("length", "36")), "need 32"),
    ("unknown key", nothing, at("w.bin", LENGTH, ("url", "http://x")), "unknown key 'url'"),
    ("no key", nothing, tensor(("location", "w.bin"), (None, "x")), "unknown key None"),
    ("two locations", nothing, tensor(("location", "gone"), ("location", "w.bin"), LENGTH), "the key 'location' twice"),
    ("the same twice", nothing, at("w.bin", LENGTH, LENGTH), "external_data has the key 'length' twice"),
    ("two offsets", nothing, at("w.bin", ("offset", ""), ("offset", "8"), LENGTH), "the key 'offset' twice"),
    ("two checksums", nothing, at("w.bin", LENGTH, ("checksum", ""), ("checksum", "ab")), "the key 'checksum' twice"),
    ("no value", nothing, tensor(("location", None)), "no readable value"),
    ("a location that is not text", nothing, tensor(("location", b"\xff.bin")), "no readable value"),
    ("no location", nothing, tensor(LENGTH), "no location"),
    ("no entries", nothing, tensor(), "no location"),
]


@pytest.mark.parametrize(("prepare", "found", "part"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(
    prepare: Callable[[Path], None],
    found: ps.TensorProto,
    part: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(folder)
    for call in (lambda: to_array(loaded(folder, found)), lambda: to_array(found, base_dir=folder)):
        with pytest.raises(ps.ExternalDataError) as caught:
            call()
        assert part in str(caught.value) and "tensor 'w'" in str(caught.value)
    with pytest.raises(ps.ExternalDataError):  # saving must not follow it either
        target = tmp_path / "out.onnx"
        model = ps.ModelProto(graph=ps.GraphProto(initializer=[loaded(folder, found)]))
        ps.save(model, target)
    assert not target.exists()


TRUSTED = [
    ("symbolic link beneath the root", "symlink out", "link"),
    ("folder link beneath the root", "folder symlink", "linked/w.bin"),
    ("hard link", "hard link out", "link"),
    ("link within the folder", "symlink within", "link"),
]


@pytest.mark.parametrize(("kind", "location"), [row[1:] for row in TRUSTED], ids=[row[0] for row in TRUSTED])
def test_a_trust_root_allows_links(kind: str, location: str, folder: Path) -> None:
    links(kind)(folder)
    found = loaded(folder, at(location, LENGTH), trust_root=folder.parent)
    np.testing.assert_array_equal(to_array(found), np.frombuffer(DATA[:32], "<f4"))


def test_a_trust_root_ends_at_its_edge(folder: Path, tmp_path: Path) -> None:
    links("symlink out")(folder)
    for root in (tmp_path / "out", tmp_path / "model", tmp_path / "outside/sub"):
        found = loaded(folder, at("link", LENGTH), trust_root=root)
        with pytest.raises(ps.ExternalDataError, match="outside the trust root"):
            to_array(found)
    for location in ("../secret", "/etc/passwd"):
        with pytest.raises(ps.ExternalDataError, match=r"folder|relative"):
            to_array(loaded(folder, at(location, LENGTH), trust_root=tmp_path))


def test_the_way_a_model_hub_caches(tmp_path: Path) -> None:
    """snapshots/x/m.onnx and its data are links to ../../blobs/...: refused by default, fine with the cache as root."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/x"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "abc").write_bytes(DATA)
    (snapshot / "w.bin").symlink_to("../../blobs/abc")
    found = at("w.bin", LENGTH)
    with pytest.raises(ps.ExternalDataError, match="trust_root="):
        to_array(loaded(snapshot, found))
    assert to_array(loaded(snapshot, found, trust_root=tmp_path)).shape == (8,)


def test_the_file_is_mapped_once_and_nothing_is_read_before(folder: Path) -> None:
    origin = external.Folder(folder)
    first, second = origin.view(at("w.bin", LENGTH)), origin.view(at("w.bin", ("offset", "32"), LENGTH))
    assert first.obj is second.obj
    assert loaded(folder, at("gone.bin", LENGTH)).name == "w"


def test_a_swap_between_check_and_open_is_harmless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced by a link right before the system opens it: what is opened is what is checked."""
    real = os.open

    def swapped(path: str, *args: int, **kwargs: int) -> int:
        if path == "w.bin":
            (folder / "w.bin").unlink()
            (folder / "w.bin").symlink_to(folder.parent / "secret")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(ps.ExternalDataError, match="link"):
        external.Folder(folder).view(at("w.bin", LENGTH))


def test_an_empty_file_and_an_empty_tensor(folder: Path) -> None:
    (folder / "empty.bin").write_bytes(b"")
    empty = tensor(("location", "empty.bin"), dims=(0, 3))
    assert to_array(loaded(folder, empty)).shape == (0, 3)


def test_a_tensor_that_was_not_loaded_is_looked_for_in_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert to_array(at("w.bin", LENGTH)).shape == (8,)
    copied = ps.TensorProto()
    copied.CopyFrom(loaded(folder, at("w.bin", LENGTH)))
    monkeypatch.chdir("/")
    assert to_array(copied).shape == (8,)


def test_the_path_is_as_safe_where_folders_cannot_be_held_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "_BENEATH", False)
    assert to_array(loaded(folder, at("sub/w.bin", LENGTH))).shape == (8,)
    links("symlink out")(folder)
    links("folder symlink")(folder)
    for location in ("link", "linked/w.bin"):
        with pytest.raises(ps.ExternalDataError, match="link"):
            to_array(loaded(folder, at(location, LENGTH)))
