"""Edits that fail or are refused: each says why, and the file stays as it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.inspect import Bytes
from purexport.inspect.edit import Edited, append_durably, edit
from purexport.inspect.orders import Edits
from tests.inspect.edited import WHOLE, Entry, model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(WHOLE)
    return path


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="cannot save"):
        edit(file, Edits(fields={"producer_name": "me"}))
    assert file.read_bytes() == WHOLE and os.listdir(file.parent) == ["m.onnx"]


def test_a_short_append_is_undone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(OSError, match="disk is full"):
        append_durably(str(file), b"\x12\x05abcde", Bytes(file).stamp)
    assert file.read_bytes() == WHOLE


def test_a_torn_append_is_found_and_cut_off(file: Path) -> None:
    """What a crash of the machine could leave: part of the record at the end."""
    with open(file, "ab") as end:
        end.write(b"\x12\x05ab")
    with pytest.raises(ps.DecodeError, match=r"truncated.*salvage"):
        edit(file, Edits(fields={"domain": "d"}))
    assert main(["salvage", str(file), "-o", str(file)]) == 2
    kept = file.with_name("kept.onnx")
    assert main(["salvage", str(file), "-o", str(kept)]) == 1
    assert kept.read_bytes() == WHOLE


@pytest.mark.parametrize("name", ["m.onnx", "m.bin"])
def test_a_damaged_file_of_any_name(name: str, tmp_path: Path) -> None:
    """What is wrong with its bytes says more than that it is there already."""
    (tmp_path / name).write_bytes(WHOLE[:-3])
    with pytest.raises(ps.DecodeError, match="salvage"):
        edit(tmp_path / name, Edits(fields={"producer_name": "me"}))
    assert (tmp_path / name).read_bytes() == WHOLE[:-3]


@pytest.mark.parametrize("append", [False, True])
def test_somebody_else_changes_the_file(file: Path, append: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    other = WHOLE + b"\x2a\x01d"

    def late(*_: object) -> None:
        file.write_bytes(other)

    monkeypatch.setattr(sys.modules[Edited.__module__], "_refuse_target", late)
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced since it was opened"):
        edit(file, Edits(fields={"producer_name": "me"}), append=append)
    assert file.read_bytes() == other and os.listdir(file.parent) == ["m.onnx"]


def unknown_rows() -> list[tuple[str, Edits, str]]:
    return [
        ("an input", Edits(inputs={"y": "z"}), "the graph has no input 'y'; there is 'c', 'x'"),
        ("an output", Edits(outputs={"x": "z"}), "the graph has no output 'x'; there is 'h', 'y'"),
        ("a value", Edits(values={"hh": "z"}), "no value is called 'hh'; there is 'h'"),
        ("a node", Edits(nodes={"fcc": "z"}), "no node is called 'fcc'; there is 'fc'"),
        ("a dimension", Edits(dims={"bach": "z"}), "no dim is called 'bach'; there is 'batch'"),
        ("metadata", Edits(metadata={"auhtor": None}), "no metadata is called 'auhtor'; there is 'author'"),
        ("a field", Edits(fields={"producer": "z"}), "producer cannot be set; what can: ir_version"),
        ("a field below", Edits(fields={"graph.node[9].name": "z"}), "graph.node\\[9\\] is not in this file"),
        ("no path", Edits(fields={"graph..name": "z"}), "no path"),
        ("an empty path", Edits(fields={"": "z"}), "has no name; what can: ir_version"),
    ]


def taken_rows() -> list[tuple[str, Edits, str]]:
    return [
        ("a value's name", Edits(values={"x": "w"}), "cannot rename a value to 'w': another value is called so"),
        ("a subgraph's name", Edits(values={"x": "t"}), "a subgraph has a value of its own of that name"),
        ("an outer name", Edits(values={"t": "x"}), "cannot rename a value to 'x'"),
        ("a node's name", Edits(nodes={"fc": "call"}), "cannot rename a node to 'call': another node"),
        ("a node's name, by place", Edits(fields={"graph.node[0].name": "add"}), "cannot rename a node to 'add'"),
        ("a dimension in an expression", Edits(dims={"batch": "N"}), "cannot rename a dim"),
        ("one name for two", Edits(values={"x": "a1", "c": "a1"}), "two names would become 'a1'"),
        ("two names for one", Edits(inputs={"x": "a1"}, values={"x": "a2"}), "'x' is to be called both 'a1' and 'a2'"),
        ("one name for all nodes", Edits(fields={"graph.node[*].name": "n"}), "4 nodes would have one name"),
        ("an empty name", Edits(values={"x": ""}), "a name has at least one character"),
    ]


def other_rows() -> list[tuple[str, Edits, str]]:
    return [
        (
            "a field that says more than a name",
            Edits(fields={"graph.node[0].op_type": "Add"}),
            "cannot be set; what can",
        ),
        ("a message", Edits(fields={"graph": "x"}), "graph cannot be set"),
        ("no number", Edits(fields={"model_version": "one"}), "model_version is a whole number, not 'one'"),
        ("too large a number", Edits(fields={"model_version": 2**63}), "is a whole number"),
        ("no IR version", Edits(fields={"ir_version": None}), "can be set but not removed"),
        ("an opset below the operators", Edits(opsets={"": 8}), "with these versions the model is not valid"),
        ("an opset that does not exist", Edits(opsets={"": 999}), "opset 999 of the domain '' is newer than"),
        ("an IR version without functions", Edits(fields={"ir_version": 7}), "IR version 7 has no functions"),
    ]


REFUSED = [*unknown_rows(), *taken_rows(), *other_rows()]


@pytest.mark.parametrize(("name", "edits", "text"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(name: str, edits: Edits, text: str, file: Path) -> None:
    with pytest.raises(ValueError, match=text):
        edit(file, edits)
    assert file.read_bytes() == WHOLE and os.listdir(file.parent) == ["m.onnx"]


def test_refused_models(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    twice = model()
    twice.graph.node[3].name = "fc"
    ps.save(twice, path)
    with pytest.raises(ValueError, match=r"2 nodes are called 'fc': set graph\.node"):
        edit(path, Edits(nodes={"fc": "z"}))
    trained = model()
    trained.training_info.append(ps.TrainingInfoProto())
    ps.save(trained, path)
    with pytest.raises(ValueError, match="training_info"):
        edit(path, Edits(values={"x": "z"}))
    path.write_bytes(WHOLE[:-3])
    with pytest.raises(ps.DecodeError, match=r"cut off.*purexport salvage"):
        edit(path, Edits(values={"x": "z"}))
    path.write_bytes(b"\x08\x0a")
    with pytest.raises(ps.DecodeError, match="has no graph"):
        edit(path, Edits(values={"x": "z"}))


def test_versions_of_a_model_that_was_not_valid(tmp_path: Path) -> None:
    """A wrong declaration can be set right; another fault stays and is named."""
    path = tmp_path / "m.onnx"
    m = model()
    m.opset_import[0].version = m.functions[0].opset_import[0].version = 8
    ps.save(m, path)
    assert all("not valid" not in note for note in edit(path, Edits(opsets={"": 20})).notes)
    assert path.read_bytes() == WHOLE
    m = model()
    m.metadata_props.append(Entry(key="task", value="y"))
    ps.save(m, path)
    done = edit(path, Edits(opsets={"": 21}))
    assert done.notes[0].startswith("not valid, as before: metadata_props[2]")
    edit(path, Edits(metadata={"task": "z"}))
    ps.checker.check_model(path)


def test_paths_that_are_left_alone(file: Path) -> None:
    wanted = Edits(fields={"producer_name": "me"})
    link, hard, out = (file.with_name(name) for name in ("link.onnx", "hard.onnx", "out.onnx"))
    link.symlink_to(file)
    with pytest.raises(ValueError, match="is a link to"):
        edit(link, wanted)
    edit(link, wanted, out)
    assert ps.load(out).producer_name == "me"
    with pytest.raises(ValueError, match=r"is a link to .*choose another name"):
        edit(out, wanted, link)
    os.link(file, hard)
    with pytest.raises(ValueError, match="2 names"):
        edit(file, wanted)
    hard.unlink()
    file.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        edit(file, wanted)
    file.chmod(0o640)
    edit(file, wanted)
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match="is not a regular file"):
        edit(file, wanted, os.devnull)
    with pytest.raises(ValueError, match="leave out the name"):
        edit(file, wanted, out, append=True)
