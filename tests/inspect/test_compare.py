"""What differs between two models: each row changes one thing, and diff names it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.tensors.dtypes import DTYPES
from purexport.cli.main import main
from purexport.inspect.compare import compare, compare_files

FLOAT = ps.TensorProto.FLOAT


def model() -> Any:
    weight = ps.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    bias = ps.helper.make_tensor("b", FLOAT, [3], [1.0, 2.0, 3.0])
    nodes = [
        ps.helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        ps.helper.make_node("Add", ["h", "b"], ["s"], name="add"),
        ps.helper.make_node("LeakyRelu", ["s"], ["y"], name="act", alpha=0.5, doc_string="a word"),
    ]
    x, y = (ps.helper.make_tensor_value_info(name, FLOAT, [1, size]) for name, size in (("x", 4), ("y", 3)))
    made = ps.helper.make_model(ps.helper.make_graph(nodes, "net", [x], [y], [weight, bias]), producer_name="p")
    made.metadata_props.append(ps.StringStringEntryProto(key="k", value="v"))
    return made


def raw_bias(m: Any) -> None:
    m.graph.initializer[1] = ps.numpy_helper.from_array(np.float32([1, 2, 3]), "b")


def nan_weight(m: Any) -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    array[0, 0] = np.nan
    m.graph.initializer[0] = ps.numpy_helper.from_array(array, "w")


def changed(**values: Any) -> Callable[[Any], None]:
    return lambda m: [setattr(m, name, value) for name, value in values.items()] and None


# what changes, the change, [(path, kind, part of the text)], what ignored makes them equal
ROWS: list[tuple[str, Callable[[Any], Any], list[tuple[str, str, str]], str]] = [
    ("nothing", lambda m: None, [], ""),
    ("producer", changed(producer_name="q"), [("producer_name", "value", "'p' -> 'q'")], "metadata"),
    (
        "metadata",
        lambda m: setattr(m.metadata_props[0], "value", "w"),
        [('metadata_props["k"].value', "value", "'v' -> 'w'")],
        "metadata",
    ),
    (
        "doc string",
        lambda m: setattr(m.graph.node[2], "doc_string", None),
        [('graph.node["act"].doc_string', "value", "-> nothing")],
        "doc_string",
    ),
    (
        "attribute",
        lambda m: setattr(m.graph.node[2].attribute[0], "f", 0.25),
        [('graph.node["act"].attribute["alpha"].f', "value", "0.5 -> 0.25")],
        "-",
    ),
    ("a node less", lambda m: m.graph.node.pop(1), [('graph.node["add"]', "only in a", "Add(h, b) -> s")], "-"),
    (
        "a node more",
        lambda m: m.graph.node.append(ps.helper.make_node("Relu", ["y"], ["r"])),
        [('graph.node["r"]', "only in b", "Relu(y) -> r")],
        "-",
    ),
    (
        "a node renamed",
        lambda m: setattr(m.graph.node[0], "name", "fc2"),
        [('graph.node["fc"].name', "value", "'fc' -> 'fc2'")],
        "names",
    ),
    (
        "a value",
        lambda m: m.graph.initializer[1].float_data.__setitem__(1, 2.5),
        [('graph.initializer["b"]', "tensor", "1 of 3 values differ, at most by 0.5 (relative 0.2)")],
        "-",
    ),
    ("a NaN", nan_weight, [('graph.initializer["w"]', "tensor", "1 are NaN or infinite in one")], "-"),
    (
        "storage",
        raw_bias,
        [('graph.initializer["b"]', "storage", "stored in float_data -> raw_data")],
        "storage",
    ),
    ("order", lambda m: m.graph.initializer.reverse(), [("graph.initializer", "order", "another order")], "-"),
    (
        "a dimension",
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "n"),
        [
            ('graph.input["x"].type.tensor_type.shape.dim[0].dim_value', "value", "1 -> nothing"),
            ('graph.input["x"].type.tensor_type.shape.dim[0].dim_param', "value", "nothing -> 'n'"),
        ],
        "-",
    ),
]


@pytest.mark.parametrize(("name", "change", "expected", "ignore"), ROWS, ids=[row[0] for row in ROWS])
def test_compare(
    name: str,
    change: Callable[[Any], Any],
    expected: list[tuple[str, str, str]],
    ignore: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = model()
    change(other)
    found = compare(model(), other)
    assert [(item.path, item.kind) for item in found] == [row[:2] for row in expected]
    for item, row in zip(found, expected, strict=True):
        assert row[2] in item.text
    a, b = str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")
    ps.save(model(), a)
    ps.save(other, b)
    assert main(["diff", a, b]) == (1 if expected else 0)
    text = capsys.readouterr().out
    assert all(row[0] in text for row in expected) and text.isascii()
    assert main(["diff", a, b, "--json"]) == (1 if expected else 0)
    assert json.loads(capsys.readouterr().out)["equal"] is (not expected)
    for what in ("metadata", "doc_string", "names", "storage"):
        assert main(["diff", a, b, "--ignore", what]) == (0 if what == ignore or not expected else 1), what


def test_consistent_renaming_is_ignored() -> None:
    other = model()
    other.graph.node[0].output, other.graph.node[1].input = ["z"], ["z", "c"]
    other.graph.initializer[1].name = "c"
    assert compare(model(), other)
    assert compare(model(), other, frozenset({"names"})) == []
    other.graph.node[1].input.reverse()
    assert compare(model(), other, frozenset({"names"}))


def test_bytes_are_the_last_thing(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(ps.dumps(model()))
    (tmp_path / "b.onnx").write_bytes(ps.dumps(model()).replace(b"\x12\x01p", b"\x12\x81\x00p", 1))
    [item] = compare_files(str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"))
    assert (item.path, item.kind) == ("producer_name", "bytes")


def test_elements_that_share_a_key_are_compared_in_their_order() -> None:
    first, second = model(), model()
    for made in (first, second):
        made.graph.input.append(ps.helper.make_tensor_value_info("x", FLOAT, [7]))
        made.metadata_props += [ps.StringStringEntryProto(key=key, value="w") for key in ("k", "", "")]
    assert compare(first, second) == []
    second.graph.input[1].type.tensor_type.elem_type = 7
    second.metadata_props.pop()
    assert [(item.path, item.kind) for item in compare(first, second)] == [
        ('graph.input["x"].type.tensor_type.elem_type', "value"),
        ("metadata_props[3]", "only in a"),
    ]


def test_the_same_data_file_is_not_read(tmp_path: Path) -> None:
    made = model()
    tensor = made.graph.initializer[0]
    tensor.dims, tensor.raw_data = [1 << 28], None
    ps.external.set_entries(tensor, "w.bin", 0, 1 << 30)
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(1 << 30)
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(ps.dumps(made))
    assert compare_files(str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")) == []


# where tensors of 50 bytes begin in the data files of 100 of both sides, how many places are compared, how many are not
SHARED: list[tuple[str, list[int], list[int], int, int]] = [
    ("apart", [0, 50], [50, 0], 2, 0),
    ("at one place", [50] * 9, [50] * 9, 1, 0),
    ("that overlap", list(range(9)), list(range(9)), 8, 1),
    ("that overlap on one side", list(range(9)), [50 * at for at in range(9)], 9, 0),
]


@pytest.mark.parametrize(("name", "mine", "theirs", "reads", "left"), SHARED, ids=[row[0] for row in SHARED])
def test_tensors_that_share_bytes(
    name: str,
    mine: list[int],
    theirs: list[int],
    reads: int,
    left: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    module: Any = sys.modules[compare.__module__]
    read = Mock(wraps=module._values_text)
    monkeypatch.setattr(module, "_values_text", read)
    for side, starts in enumerate((mine, theirs)):
        folder = tmp_path / str(side)
        folder.mkdir()
        (folder / "w.bin").write_bytes(bytes([side]) * max(100, starts[-1] + 50))
        graph = ps.GraphProto()
        for at, start in enumerate(starts):
            tensor = ps.TensorProto(name=f"w{at}", data_type=ps.TensorProto.UINT8, dims=[50])
            ps.external.set_entries(tensor, "w.bin", start, 50)
            graph.initializer.append(tensor)
        (folder / "m.onnx").write_bytes(ps.dumps(ps.ModelProto(graph=graph)))
        made.append(str(folder / "m.onnx"))
    texts = [item.text for item in compare_files(*made) if item.kind == "tensor"]
    assert [text.startswith("50 of 50 values differ") for text in texts] == [True] * (len(mine) - left) + [False] * left
    assert all(text.startswith("not compared: it shares bytes") for text in texts[len(mine) - left :])
    assert read.call_count == reads


@pytest.mark.parametrize("code", sorted(set(DTYPES) - {8}))
def test_every_dtype(code: int) -> None:
    length = DTYPES[code].nbytes(48)
    pair = []
    for last in (b"\x00", b"\x01"):
        tensor = ps.TensorProto(name="t", data_type=code, dims=[48], raw_data=last + bytes(length - 1))
        pair.append(ps.ModelProto(graph=ps.GraphProto(initializer=[tensor])))
    [item] = compare(*pair)
    assert item.kind == "tensor" and item.text.startswith("1 of 48 values differ")


def test_what_cannot_be_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ps.save(model(), tmp_path / "a.onnx")
    assert main(["diff", str(tmp_path / "a.onnx"), str(tmp_path / "a.onnx"), "--ignore", "weights"]) == 2
    assert "cannot ignore weights; known are metadata" in capsys.readouterr().err
