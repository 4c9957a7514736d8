"""Where the bytes go: every byte counted once, and external data judged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema.wire import varint
from purexport.cli.main import main
from purexport.inspect.elements import Bytes
from purexport.inspect.sizes import duplicates, module_of, sizes

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = [*sorted(SHIPPED.rglob("*.onnx"))[::90], *sorted((SHIPPED / "light").glob("*squeezenet*.onnx"))]


def model_of(*weights: ps.TensorProto) -> ps.ModelProto:
    """A MatMul with each of the weights."""
    nodes = [ps.helper.make_node("MatMul", ["x", str(tensor.name)], [f"y{at}"]) for at, tensor in enumerate(weights)]
    x = ps.helper.make_tensor_value_info("x", ps.TensorProto.FLOAT, [4])
    return ps.helper.make_model(ps.helper.make_graph(nodes, "net", [x], [], list(weights)))


def weight(name: str, fill: float = 0.0, rows: int = 25) -> ps.TensorProto:
    return ps.numpy_helper.from_array(np.full((rows, 4), fill, np.float32), name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_byte_is_counted_once(path: Path) -> None:
    found = sizes(path)
    assert sum(found.by_use.values()) == sum(found.by_message.values()) == found.file == path.stat().st_size
    assert len(found.weights) == len(ps.external.tensors(ps.load(path)))
    assert sum(found.by_dtype.values()) == sum(found.by_module.values()) == sum(row.nbytes for row in found.weights)


@pytest.mark.parametrize("odd", [b"", b"\x40\x80\x00"], ids=["whole", "an overlong varint"])
def test_long_lists_are_counted_as_their_values_are(tmp_path: Path, odd: bytes) -> None:
    made = ps.AttributeProto(name="a", ints=range(0, 30_000, 7), strings=[b"ab"] * 900, floats=[0.5] * 900)
    attribute = made.SerializeToString() + odd
    node = b"\x2a" + varint(len(attribute)) + attribute
    graph = b"\x0a" + varint(len(node)) + node
    data = b"\x3a" + varint(len(graph)) + graph
    (tmp_path / "m.onnx").write_bytes(data)
    found = sizes(tmp_path / "m.onnx")
    leaves = [element for element in Bytes(data).walk() if element.message is None and element.step != "name"]
    assert found.by_use["attributes"] == sum(element.payload for element in leaves)
    assert sum(found.by_use.values()) == sum(found.by_message.values()) == len(data)


def test_what_it_says_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    model = model_of(weight("body.0.fc.weight", 1), weight("body.0.again.weight", 1), weight("head.weight", 2, 50))
    ps.save(model, path)
    found = sizes(path)
    assert found.by_operator == {"MatMul": 1600} and found.by_dtype == {"FLOAT": 1600}
    assert found.by_module == {"head": 800, "body.0": 800} and found.by_use["weights"] == 1600
    assert found.weights[0].name == "head.weight" and found.weights[0].dims == (50, 4)
    assert duplicates(path) == [(["body.0.fc.weight", "body.0.again.weight"], 400)]
    assert main(["stat", str(path), "--duplicates"]) == 0
    text = capsys.readouterr().out
    for part in ("bytes by use", "head.weight", "1 group, 400 B more than needed", "#####"):
        assert part in text
    assert text.isascii() and max(map(len, text.splitlines())) <= 100 + len(str(path))
    assert main(["stat", str(path), "--json", "--duplicates"]) == 0
    assert json.loads(capsys.readouterr().out)["duplicates"][0]["bytes"] == 400


@pytest.mark.parametrize(
    ("name", "module"),
    [("a.b.c.weight", "a.b"), ("a/b", "a"), ("weight", "(no module)"), ("onnx::MatMul_1", "onnx"), ("", "(no module)")],
)
def test_module_of(name: str, module: str) -> None:
    assert module_of(name) == module


# the ranges of tensors in a data file of zeros, the groups of equal ones
DUPLICATES: list[tuple[str, Sequence[tuple[int, int]], list[list[str]]]] = [
    ("apart", [(0, 100), (100, 100)], [["w0", "w1"]]),
    ("tied", [(0, 100), (0, 100)], [["w0", "w1"]]),
    ("overlapping", [(0, 100), (50, 100)], []),
    ("overlapping and apart", [(0, 100), (50, 100), (200, 100), (300, 100)], [["w2", "w3"]]),
    ("one inside others", [(0, 300), (0, 100), (200, 100)], []),
]


@pytest.mark.parametrize(("name", "ranges", "groups"), DUPLICATES, ids=[row[0] for row in DUPLICATES])
def test_duplicates(name: str, ranges: Sequence[tuple[int, int]], groups: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(500))
    weights = []
    for at, (start, size) in enumerate(ranges):
        tensor = ps.TensorProto(name=f"w{at}", data_type=ps.TensorProto.UINT8, dims=[size])
        ps.external.set_entries(tensor, "w.bin", start, size)
        weights.append(tensor)
    (tmp_path / "m.onnx").write_bytes(ps.dumps(model_of(*weights)))
    assert [names for names, _ in duplicates(tmp_path / "m.onnx")] == groups


# what it is, the ranges of tensors, size of the file (None: missing), what the audit says, whether it is sound
AUDITS: list[tuple[str, Sequence[tuple[int, int]], int | None, dict[str, object], bool]] = [
    ("complete", [(0, 100), (100, 50)], 150, {"covered": 150, "gaps": 0, "tail": 0}, True),
    ("gaps and a tail", [(10, 100), (120, 50)], 180, {"covered": 150, "gaps": 20, "tail": 10}, True),
    ("tied", [(0, 100), (0, 100)], 100, {"covered": 100, "overlaps": []}, True),
    ("overlapping", [(0, 100), (50, 100)], 150, {"covered": 150, "overlaps": ["w1"]}, False),
    ("too short", [(0, 100), (100, 50)], 120, {"beyond": ["w1"]}, False),
    ("missing", [(0, 100)], None, {"size": None}, False),
]


@pytest.mark.parametrize(("name", "ranges", "size", "facts", "sound"), AUDITS, ids=[row[0] for row in AUDITS])
def test_audit(
    name: str,
    ranges: Sequence[tuple[int, int]],
    size: int | None,
    facts: dict[str, object],
    sound: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = model_of(*[weight(f"w{at}") for at in range(len(ranges))])
    assert model.graph is not None
    for tensor, (offset, length) in zip(model.graph.initializer, ranges, strict=True):
        ps.external.set_entries(tensor, "w.bin", offset, length)
    path = tmp_path / "m.onnx"
    path.write_bytes(ps.dumps(model))
    if size is not None:
        (tmp_path / "w.bin").write_bytes(bytes(size))
    [found] = sizes(path).data_files
    assert {key: getattr(found, key) for key in facts} == facts
    assert found.sound is sound
    assert main(["stat", str(path)]) == (0 if sound else 1)
    assert ("w.bin" in capsys.readouterr().out) and found.tensors == len(ranges)


def test_an_unsafe_location_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(weight("w"))
    assert model.graph is not None
    ps.external.set_entries(model.graph.initializer[0], "../w.bin", 0, 4)
    (tmp_path / "m.onnx").write_bytes(ps.dumps(model))
    assert main(["stat", str(tmp_path / "m.onnx")]) == 1
    assert "leaves the model's folder" in capsys.readouterr().out
