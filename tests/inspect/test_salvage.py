"""What is kept of damaged models: all nodes and tensors before the damage, and after it where reading can go on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.wire.codec import encode
from purexport.cli.main import main
from purexport.inspect import Bytes, find
from purexport.inspect.salvage import salvage

NODES = 12


def whole_model() -> Any:
    """A chain of Add nodes, a weight each; each weight is 400 bytes."""
    nodes = [ps.helper.make_node("Add", [f"v{at}", f"w{at}"], [f"v{at + 1}"], name=f"add{at}") for at in range(NODES)]
    weights = [ps.numpy_helper.from_array(np.full(100, at + 0.5, np.float32), f"w{at}") for at in range(NODES)]
    x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [100]) for name in ("v0", f"v{NODES}"))
    return ps.helper.make_model(ps.helper.make_graph(nodes, "chain", [x], [y], weights), producer_name="tests")


WHOLE = ps.dumps(whole_model())
NODE_NAMES = [f"add{at}" for at in range(NODES)]
WEIGHT_NAMES = [f"w{at}" for at in range(NODES)]


def at_of(path: str, part: str = "start") -> int:
    return int(getattr(find(Bytes(WHOLE), path)[0], part))


def patched(at: int, octets: bytes) -> bytes:
    return WHOLE[:at] + octets + WHOLE[at + len(octets) :]


def without(names: list[str], *lost: int) -> list[str]:
    return [name for at, name in enumerate(names) if at not in lost]


def _by_windows(data: bytes) -> bytes:
    """The bytes as browsers and Windows read them as text; bytes that are no character there are controls."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in data).encode()


def _two_lengths_too_long() -> bytes:
    """Weight 2 announces 3,000 bytes more, twice, the file ends in weight 6: lengths agree, but not with the sizes."""
    data = WHOLE
    for path in ("graph.initializer[2]", "graph.initializer[2].raw_data"):
        at, body = at_of(path), at_of(path, "body")
        length = ps.wire.varint(at_of(path, "stop") - body + 3000)
        data = data[: at + 1] + length + data[at + 1 + len(length) :]
    return data[: at_of("graph.initializer[6]") + 99]


# what happened, the bytes, the nodes that are kept, the weights, part of the likely cause
ROWS: list[tuple[str, bytes, list[str], list[str], str]] = [
    ("nothing", WHOLE, NODE_NAMES, WEIGHT_NAMES, ""),
    ("cut in node 7", WHOLE[: at_of("graph.node[7]", "stop") - 1], NODE_NAMES[:7], [], "cut off"),
    ("cut in weight 5", WHOLE[: at_of("graph.initializer[5]") + 99], NODE_NAMES, WEIGHT_NAMES[:5], "cut off"),
    (
        "a bad tag in node 3",
        patched(at_of("graph.node[3].op_type"), b"\x07"),
        without(NODE_NAMES, 3),
        WEIGHT_NAMES,
        "damaged",
    ),
    (
        "a length of node 4 that is too long",
        patched(at_of("graph.node[4]") + 1, b"\x7f"),
        without(NODE_NAMES, 4),
        WEIGHT_NAMES,
        "damaged",
    ),
    (
        "zeros over the end of node 2 and the start of node 3",
        patched(at_of("graph.node[3]") - 4, bytes(8)),
        without(NODE_NAMES, 2, 3),
        WEIGHT_NAMES,
        "damaged",
    ),
    (
        "a wrong length of the name of weight 6",
        patched(at_of("graph.initializer[6].name") + 1, b"\x40"),
        NODE_NAMES,
        without(WEIGHT_NAMES, 6),
        "",
    ),
    ("lengths of weight 2", _two_lengths_too_long(), NODE_NAMES, ["w0", "w1", "w3", "w4", "w5"], "cut off"),
    ("junk at the end", WHOLE + b"\x00junk", NODE_NAMES, WEIGHT_NAMES, ""),
    ("line ends changed", WHOLE.replace(b"\n", b"\r\n"), NODE_NAMES, WEIGHT_NAMES, "line ends"),
    ("read as Latin-1", WHOLE.decode("latin-1").encode(), NODE_NAMES, WEIGHT_NAMES, "written as UTF-8"),
    ("read as Windows-1252", _by_windows(WHOLE), NODE_NAMES, WEIGHT_NAMES, "written as UTF-8"),
]
UNDONE = ("nothing", "line ends changed", "read as Latin-1", "read as Windows-1252")


@pytest.mark.parametrize(("name", "data", "nodes", "weights", "cause"), ROWS, ids=[row[0] for row in ROWS])
def test_salvage(name: str, data: bytes, nodes: list[str], weights: list[str], cause: str, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.onnx", tmp_path / "out.onnx"
    bad.write_bytes(data)
    found = salvage(bad, out)
    graph = ps.load(out).graph
    assert graph is not None
    assert [node.name for node in graph.node] == nodes
    assert [tensor.name for tensor in graph.initializer] == weights
    original = {tensor.name: tensor for tensor in whole_model().graph.initializer}
    assert all(tensor == original[tensor.name] for tensor in graph.initializer)
    assert cause in found.cause and (found.first_bad < 0) == (name == "nothing")
    if name in UNDONE:
        assert out.read_bytes() == WHOLE
    ps.checker.check_model(out, full_check=True)
    assert found.invalid == ""


def test_nothing_of_a_sound_file_is_lost(tmp_path: Path) -> None:
    """Fields that the schema does not know count as damage only where there is damage."""
    whole = whole_model()
    for message in (whole, whole.graph, whole.graph.node[3], whole.graph.initializer[2]):
        message.unknown_fields = b"\xe8\x04\x05"
    (tmp_path / "a.onnx").write_bytes(ps.dumps(whole))
    assert salvage(tmp_path / "a.onnx", tmp_path / "b.onnx").dropped == []
    assert (tmp_path / "b.onnx").read_bytes() == ps.dumps(whole)


@pytest.mark.parametrize("seed", range(40))
def test_cut_anywhere(seed: int, tmp_path: Path) -> None:
    """Every node and weight that lies before the cut is kept, and nothing else."""
    stop = random.Random(seed).randrange(at_of("graph.node[0]", "stop"), len(WHOLE))
    (tmp_path / "bad.onnx").write_bytes(WHOLE[:stop])
    salvage(tmp_path / "bad.onnx", tmp_path / "out.onnx")
    graph = ps.load(tmp_path / "out.onnx").graph
    assert graph is not None
    source = Bytes(WHOLE)
    for kind, kept in (("node", graph.node), ("initializer", graph.initializer)):
        names = [add.step for add in find(source, f"graph.{kind}") if add.stop <= stop]
        assert len(kept) == len(names)
    ps.checker.check_model(tmp_path / "out.onnx", full_check=True)


# Bytes of weights that read like fields of a graph or of a model: whole nodes, names, opsets.
LIKE_FIELDS = b"".join(
    encode(ps.GraphProto(node=[ps.helper.make_node("Fake", ["x"], [f"z{at}"])], name="fake", doc_string="d"))
    for at in range(200)
)


def _ending_in_weights(where: str, data: bytes = LIKE_FIELDS) -> bytes:
    """A model whose last field of many bytes reads like nodes, cut off inside of these bytes."""
    node = ps.helper.make_node
    fake = ps.TensorProto(name="w", data_type=ps.TensorProto.INT8, dims=[len(data)], raw_data=data)
    texts = ps.TensorProto(name="w", data_type=ps.TensorProto.STRING, dims=[1], string_data=[data])
    floats = np.frombuffer(data[: len(data) // 4 * 4], np.float32)
    packed = ps.TensorProto(name="w", data_type=ps.TensorProto.FLOAT, dims=[len(floats)], float_data=floats.tolist())
    constant = node("Constant", [], ["c"], value=fake)
    inner = ps.GraphProto(name="then", initializer=[fake], output=[ps.ValueInfoProto(name="w")])
    last: dict[str, Any] = {
        "an initializer": fake,
        "an initializer of texts": texts,
        "an initializer of floats in a list": packed,
        "a tensor of a node": constant,
        "an initializer of a branch": node("If", ["x"], ["y"], then_branch=inner, else_branch=inner),
        "a text of a node": node("Blob", ["x"], ["y"], domain="com.acme", blob=data),
        "a doc string": None,
    }
    graph = ps.GraphProto(node=[node("Relu", ["x"], ["a"], name="only")], name="real")
    if isinstance(last[where], ps.NodeProto):
        graph.node.append(last[where])
    elif last[where] is None:
        graph.doc_string = data.decode("latin-1")
    else:
        graph.initializer.append(last[where])
    return ps.dumps(ps.ModelProto(ir_version=8, graph=graph))[: -len(data) // 3]


@pytest.mark.parametrize(
    "where",
    [
        "an initializer",
        "an initializer of texts",
        "an initializer of floats in a list",
        "a tensor of a node",
        "an initializer of a branch",
        "a text of a node",
        "a doc string",
    ],
)
def test_what_ends_in_the_bytes_of_a_weight_gives_no_nodes(where: str, tmp_path: Path) -> None:
    """Every length agrees with those around it and only the end is missing, so nothing is looked for inside."""
    (tmp_path / "bad.onnx").write_bytes(_ending_in_weights(where))
    found = salvage(tmp_path / "bad.onnx", tmp_path / "out.onnx")
    graph = ps.load(tmp_path / "out.onnx").graph
    assert graph is not None
    assert [node.name for node in graph.node] == ["only"]
    assert graph.name in ("real", "salvaged") and len(found.dropped) == 1


def test_a_cut_between_two_fields_is_a_loss_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that is there is dropped, but the rest of the file is missing."""
    (tmp_path / "bad.onnx").write_bytes(WHOLE[: at_of("graph.node[3]", "stop")])
    assert main(["salvage", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out.onnx")]) == 1
    said = capsys.readouterr().out
    assert "dropped nothing, but the file is damaged: something may be missing" in said
    assert main(["salvage", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "new.onnx"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["dropped"] == []


def _net(*nodes: Any, weights: dict[str, tuple[int, ...]], opset: int = 17, kind: int = 1) -> bytes:
    """A model whose inputs, outputs and opset stand behind the weights, where a cut loses them."""
    tensors = [ps.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    x, y = (ps.helper.make_tensor_value_info(name, kind, ["n", 3, 8, 8]) for name in "xy")
    graph = ps.helper.make_graph(list(nodes), "net", [x], [y], tensors)
    imports = [ps.helper.make_opsetid("", opset), ps.helper.make_opsetid("com.acme", 1)]
    return ps.dumps(ps.helper.make_model(graph, opset_imports=imports, ir_version=8))


def _adding(outer: str) -> Any:
    y = ps.ValueInfoProto(name="z")
    return ps.helper.make_graph([ps.helper.make_node("Add", [outer, outer], ["z"])], "branch", [], [y])


node = ps.helper.make_node
# what is left, which lines say what was added
ADDED: list[tuple[str, bytes, list[str]]] = [
    (
        "a convolution",
        _net(node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"]), weights={"w": (4, 3, 3, 3)}),
        [
            "opset ai.onnx 18: the newest that all its nodes fit, or a guess",
            "input x: FLOAT[?, ?, ?, ?]; nothing makes this value",
            "output y: FLOAT[?, 4, ?, ?]; no node uses this value",
        ],
    ),
    (
        "indices",
        _net(node("Gather", ["w", "x"], ["y"]), weights={"w": (9, 4)}),
        ["input x: INT64[?, ?]; nothing makes this value"],
    ),
    (
        "an attribute that newer opsets lack",
        _net(node("ReduceSum", ["x"], ["s"], axes=[1]), node("Add", ["s", "w"], ["y"]), weights={"w": (4,)}),
        ["opset ai.onnx 12: the newest that all its nodes fit, or a guess"],
    ),
    (
        "an attribute that newer opsets lack, beside a branch that uses outer values",
        _net(
            node("ReduceMean", ["x"], ["s"], axes=[1]),
            node("If", ["c"], ["y"], then_branch=_adding("s"), else_branch=_adding("w")),
            weights={"w": (4,)},
            opset=13,
        ),
        ["opset ai.onnx 17: the newest that all its nodes fit, or a guess"],
    ),
    (
        "an attribute that newer opsets lack, beside a node that fits none",
        _net(
            node("ReduceMean", ["x"], ["s"], axes=[1]),
            node("Add", ["s", "w", "w"], ["y"]),
            weights={"w": (4,)},
            opset=13,
        ),
        ["opset ai.onnx 17: the newest that most of its nodes fit, or a guess"],
    ),
    (
        "operators of somebody's own",
        _net(node("Mix", ["x", "w"], ["y"], domain="com.acme"), weights={"w": (4,)}),
        ["opset com.acme 1: the newest that all its nodes fit, or a guess", "output y: FLOAT[?]"],
    ),
    (
        "a weight whose data is cut off",
        _net(node("MatMul", ["x", "v"], ["y"]), weights={"v": (3, 50), "w": (900,)})[:-800],
        ["input x: FLOAT[?, ?]"],
    ),
]


@pytest.mark.parametrize(("name", "data", "lines"), ADDED, ids=[row[0] for row in ADDED])
def test_what_is_lost_behind_the_weights_is_added(name: str, data: bytes, lines: list[str], tmp_path: Path) -> None:
    """What is written passes the check, and what was added is told."""
    source = Bytes(data)
    inputs = find(source, "graph.input") if "cut off" not in name else []
    (tmp_path / "bad.onnx").write_bytes(data[: inputs[0].start + 1] if inputs else data)
    found = salvage(tmp_path / "bad.onnx", tmp_path / "out.onnx")
    if "fits none" in name:
        assert "Add" in found.invalid
    else:
        ps.checker.check_model(tmp_path / "out.onnx", full_check=True)
        assert found.invalid == ""
    for line in lines:
        assert any(note.startswith(line) for note in found.added), (line, found.added)


# what a transfer as text did, and what every tool says of it
TRANSFERS = [
    (WHOLE.replace(b"\n", b"\r\n"), "line ends were changed from LF to CR LF by a transfer as text"),
    (WHOLE.decode("latin-1").encode(), "its bytes were read as text (Latin-1 or Windows-1252) and written as UTF-8"),
    (WHOLE.decode("utf-8", "replace").encode(), "that are none were replaced by EF BF BD: they are lost; copy or"),
    (
        bytes([8, 9]) + bytes(random.Random(0).randbytes(1 << 21)).replace(b"\r\n", b"\n"),
        "perhaps line ends were changed from CR LF to LF",
    ),
]


@pytest.mark.parametrize("verb", ["check", "inspect", "show", "stat"])
@pytest.mark.parametrize(("data", "cause"), TRANSFERS, ids=["crlf", "latin-1", "utf-8", "lf"])
def test_a_transfer_as_text_is_named(
    data: bytes, cause: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.onnx").write_bytes(data)
    assert main([verb, str(tmp_path / "bad.onnx")]) in (1, 2)
    assert cause in "".join(capsys.readouterr())


def test_salvage_speaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, out = tmp_path / "bad.onnx", tmp_path / "out.onnx"
    bad.write_bytes(patched(at_of("graph.node[3].op_type"), b"\x07"))
    assert main(["salvage", str(bad), "-o", str(out)]) == 1
    text = capsys.readouterr().out
    for part in (
        "first bad byte: ",
        "in graph.node[3].",
        "likely cause: ",
        "11 nodes",
        "12 weights",
        "in 1 place",
        "bytes  graph.node[3]",
    ):
        assert part in text
    assert main(["salvage", str(out), "-o", str(bad), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"]["node"] == 11


def test_what_was_not_valid_before_is_said_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.onnx").write_bytes(ps.dumps(ps.ModelProto(ir_version=8, graph=ps.GraphProto())))
    assert main(["salvage", str(tmp_path / "a.onnx"), "-o", str(tmp_path / "b.onnx")]) == 0
    assert "the new file is not valid: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"PK\x03\x04junk", "a zip archive"),
        (b"", "empty"),
    ],
)
def test_what_is_no_model(data: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.onnx").write_bytes(data)
    assert main(["salvage", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out.onnx")]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()
