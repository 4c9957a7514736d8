"""The tree of fields: it agrees with the official parser, covers every byte once, and holds on broken files."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.inspect import Bytes, find, locate, owners, text_of, value_of

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = sorted(SHIPPED.rglob("*.onnx"))
SAMPLE = [*FILES[::60], *sorted((SHIPPED / "light").glob("*squeezenet*.onnx"))]


def sample_model() -> ps.ModelProto:
    """A model with a bit of everything; its weights are 16 kB."""
    weight = ps.numpy_helper.from_array(np.arange(4096, dtype=np.float32).reshape(64, 64), "fc.weight")
    small = ps.helper.make_tensor("shift", ps.TensorProto.INT64, [3], [1, 300, -1])
    node = ps.helper.make_node("MatMul", ["x", "fc.weight"], ["h"], name="fc")
    pad = ps.helper.make_node("Pad", ["h"], ["y"], name="pad", pads=[1, 2, 300, 4], mode="edge", value=0.1)
    x = ps.helper.make_tensor_value_info("x", ps.TensorProto.FLOAT, ["batch", 64])
    y = ps.helper.make_tensor_value_info("y", ps.TensorProto.FLOAT, None)
    graph = ps.helper.make_graph([node, pad], "net", [x], [y], [weight, small])
    model = ps.helper.make_model(graph, producer_name="tests")
    model.metadata_props.append(ps.StringStringEntryProto(key="who", value="we"))
    return model


SAMPLE_BYTES = ps.dumps(sample_model())


def covered(source: Bytes) -> list[int]:
    """How often each byte is in the header of a message or in a leaf."""
    seen = [0] * source.size
    for element in source.walk():
        for at in range(element.start, element.body if element.message is not None else element.stop):
            seen[at] += 1
    return seen


def official_leaves(message: Any, path: str = "") -> Counter[tuple[str, str]]:
    """(path without indices, value) of every leaf as protobuf's parser has it."""
    found: Counter[tuple[str, str]] = Counter()
    for field, value in message.ListFields():
        name = f"{path}.{field.name}" if path else field.name
        repeated = hasattr(value, "append") or hasattr(value, "add")
        for item in value if repeated else [value]:
            if field.message_type is not None:
                found += official_leaves(item, name)
            else:
                found[name, repr(item)] += 1
    return found


def our_leaves(source: Bytes) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for element in source.walk():
        if element.message is None:
            name = ".".join(step.partition("[")[0] for step in element.path.split("."))
            value = value_of(source, element, None)
            for item in value if isinstance(value, list) else [value]:
                found[name, repr(item)] += 1
    return found


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_agrees_with_the_official_parser(path: Path) -> None:
    source = Bytes(path)
    assert our_leaves(source) == official_leaves(onnx.ModelProto.FromString(path.read_bytes()))
    assert set(covered(source)) == {1}
    assert not any(element.problem for element in source.walk())


@pytest.mark.sweep
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_agrees_on_every_bundled_model(path: Path) -> None:
    test_agrees_with_the_official_parser(path)


# path, the values at it
PATHS: list[tuple[str, Sequence[Any]]] = [
    ("producer_name", ["tests"]),
    ("graph.node.op_type", ["MatMul", "Pad"]),
    ("graph.node[*].op_type", ["MatMul", "Pad"]),
    ("graph.node[-1].name", ["pad"]),
    ('graph.node["pad"].attribute["pads"].ints[2]', [300]),
    ("graph.node['y'].op_type", ["Pad"]),
    ('graph.initializer["fc.weight"].dims', [64, 64]),
    ('graph.initializer["shift"].int64_data', [[1, 300, -1]]),
    ('graph.initializer["shift"].int64_data[1]', [300]),
    ('graph.initializer["shift"].int64_data[-1]', [-1]),
    ('metadata_props["who"].value', ["we"]),
    ("graph.*[0].name", ["fc"]),
    ("graph.input[0].type.tensor_type.shape.dim.dim_param", ["batch"]),
    ('graph.initializer["fc.weight"].raw_data', [None]),  # large: never read
]


@pytest.mark.parametrize(("path", "values"), PATHS, ids=[path for path, _ in PATHS])
def test_paths(path: str, values: Sequence[Any]) -> None:
    source = Bytes(SAMPLE_BYTES)
    found = find(source, path)
    assert [value_of(source, element) for element in found] == list(values)
    for element in found:
        assert locate(source, element.start).offset == element.start
        assert text_of(source, element).isascii()


# path, what the error must say
BAD_PATHS = [
    ("graph.nod", "has no field 'nod'; it has node"),
    ("graph..node", "no path"),
    ("graph.", "no path"),
    ("graph.node[x]", "at character 7"),
    ("graph.node[9].name", "graph.node[9] is not in this file; it has 2 of them"),
    ('graph.node["pat"]', "as 'pad'"),
    ("ir_version.x", "ir_version is not a message"),
    ("functions", "functions is not in this file"),
]


@pytest.mark.parametrize(("path", "text"), BAD_PATHS, ids=[path for path, _ in BAD_PATHS])
def test_bad_paths(path: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        find(Bytes(SAMPLE_BYTES), path)
    assert text in str(caught.value)


# what is wrong, the bytes of a ModelProto, the path of the first problem, its text, the bad byte
NODE = bytes.fromhex("3a0a 0a08 2206 4d61744d756c".replace(" ", ""))
BROKEN: list[tuple[str, bytes, str, str, int]] = [
    ("cut in a string", NODE[:-2], "graph.node[0].op_type", "cut off: 6 bytes announced, 4 are here", 10),
    ("cut in a length", b"\x08\x08\x12", "(unreadable)", "truncated length", 3),
    ("field number 0", b"\x08\x08\x00\x00", "(unreadable)", "field number 0", 2),
    ("wire type 7", b"\x08\x08\x0f", "(unreadable)", "wire type 7 does not exist", 3),
    ("varint of 11 bytes", b"\x08" + b"\xff" * 11, "(unreadable)", "varint of more than 10 bytes", 1),
    ("end of a group", b"\x0c", "(unreadable)", "end of group 1", 1),
    ("inside, after a good node", b"\x3a\x06\x0a\x02\x1a\x00\x00\x00", "graph.(unreadable)", "field number 0", 6),
    ("packed floats of 5 bytes", bytes.fromhex("3a092a0722050000000000"), "graph.initializer[0].float_data", "4", 11),
]


@pytest.mark.parametrize(("name", "data", "path", "text", "bad"), BROKEN, ids=[row[0] for row in BROKEN])
def test_broken(name: str, data: bytes, path: str, text: str, bad: int, tmp_path: Path, capsys: Any) -> None:
    source = Bytes(data)
    problems = [element for element in source.walk() if element.problem]
    deepest = min(problems, key=lambda element: (element.bad, -element.depth))
    assert (deepest.path, deepest.bad) == (path, bad)
    assert text in deepest.problem
    assert set(covered(source)) == {1}
    file = tmp_path / "m.onnx"
    file.write_bytes(data)
    assert main(["inspect", str(file)]) == 1
    assert f"first bad byte: {bad:#x}, in {path}: " in capsys.readouterr().out
    assert main(["inspect", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_bad"]["offset"] == bad


# what, the bytes, the steps of the outer level
STRANGE = [
    ("an unknown field", b"\xe8\x04\x05\xe8\x04\x06", ["?77", "?77#2"]),
    ("a wrong wire type", b"\x0a\x01\x61", ["?1"]),
    ("a field twice", b"\x08\x01\x08\x02", ["ir_version", "ir_version#2"]),
    ("a group", b"\xeb\x04\x08\x01\xec\x04", ["?77"]),
    ("an overlong tag", b"\x88\x80\x00\x05", ["ir_version"]),
    ("nothing", b"", []),
]


@pytest.mark.parametrize(("name", "data", "steps"), STRANGE, ids=[row[0] for row in STRANGE])
def test_strange_but_not_broken(name: str, data: bytes, steps: list[str]) -> None:
    source = Bytes(data)
    assert [element.step for element in source.walk()] == steps
    for step in steps:
        assert [element.step for element in find(source, step)][-1:] == [step] or "#" not in step
    assert not any(element.problem for element in source.walk())


def test_what_is_said_of_a_node_is_ascii_on_one_line() -> None:
    node = ps.NodeProto(op_type="R\u00e9lu\n\x1b[2J", name="\u00e9")
    source = Bytes(ps.ModelProto(graph=ps.GraphProto(node=[node])).SerializeToString())
    assert text_of(source, find(source, "graph.node[0]")[0]) == "R\\xe9lu\\n\\x1b[2J '\\xe9'"


def damaged_copies(seed: int) -> bytes:
    """A copy that is cut, has bits flipped, or a piece of itself spliced in."""
    random_ = random.Random(seed)
    data = bytearray(SAMPLE_BYTES[:600] + SAMPLE_BYTES[-600:])
    kind = seed % 3
    if kind == 0:
        del data[random_.randrange(len(data)) :]
    elif kind == 1:
        for _ in range(1 + seed % 5):
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    else:
        at, start = random_.randrange(len(data)), random_.randrange(len(data))
        data[at:at] = data[start : start + 40]
    return bytes(data)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_copies(seed: int) -> None:
    """No exception on any bytes; every byte is in one element; every element has its line."""
    source = Bytes(damaged_copies(seed))
    assert set(covered(source)) <= {1}
    for element in source.walk():
        assert text_of(source, element).isascii()
    for offset in range(0, source.size, 37):
        found = locate(source, offset)
        assert found.chain[-1].start <= offset < found.chain[-1].stop


# Locate ---------------------------------------------------------------------------------------------------------------


def test_locate_a_byte_of_a_weight() -> None:
    source = Bytes(SAMPLE_BYTES)
    [raw] = find(source, 'graph.initializer["fc.weight"].raw_data')
    found = locate(source, raw.body + 4 * 130 + 3)
    assert found.chain[-1].path == "graph.initializer[0].raw_data" and found.part == "value"
    assert found.detail == "value 130 (byte 3 of 4), index [2, 2] of FLOAT[64, 64]"
    assert locate(source, raw.start).part == "tag"
    assert locate(source, raw.start + 1).part == "length"
    with pytest.raises(ValueError, match="outside the file"):
        locate(source, source.size)


def sparse_external(folder: Path, size: int = 1 << 30) -> Path:
    """A model whose weight is a hole of a gigabyte in a file of its own."""
    model = sample_model()
    tensor = model.graph.initializer[0]  # type: ignore[union-attr]
    tensor.dims, tensor.raw_data = [size // 4], None
    ps.external.set_entries(tensor, "w.bin", 4096, size)
    with open(folder / "w.bin", "wb") as file:
        file.truncate(4096 + size)
    (folder / "m.onnx").write_bytes(ps.dumps(model))
    return folder / "m.onnx"


def test_locate_in_a_data_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sparse_external(tmp_path)
    [owner] = owners(str(path), "w.bin", 4096 + 42)
    assert (owner.path, owner.offset, owner.length) == ("fc.weight", 4096, 1 << 30)
    assert owner.detail.startswith("value 10 (byte 2 of 4)")
    assert owners(str(path), "w.bin", 5) == []
    for name in ("w.bin", str(path.parent / "w.bin")):
        assert main(["locate", str(path), "4138", "--data", name]) == 0
    assert "fc.weight" in capsys.readouterr().out
    assert main(["locate", str(path), "5", "--data", "w.bin"]) == 1
    assert main(["locate", str(path), "5", "--data", "v.bin"]) == 2
    assert "the files it names: w.bin" in capsys.readouterr().err


# The verbs ------------------------------------------------------------------------------------------------------------


def test_inspect_speaks_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(SAMPLE_BYTES)
    assert main(["inspect", str(file)]) == 0
    text = capsys.readouterr().out
    for part in ("producer_name = 'tests'", "node[1]  Pad 'pad'", "initializer[0]  'fc.weight' FLOAT[64, 64]"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 120
    assert main(["inspect", str(file), "graph.initializer[0]"]) == 0
    assert "raw_data = <16,384 bytes>" in capsys.readouterr().out
    assert main(["inspect", str(file), "graph.node[1]", "--hex", "--depth", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("mode'") or "f = 0.1" in line for line in lines) >= 1
    assert all(line[10:45].strip() for line in lines)


def test_inspect_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(SAMPLE_BYTES)
    assert main(["inspect", str(file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["size"], facts["root"], facts["first_bad"]) == (len(SAMPLE_BYTES), "ModelProto", None)
    [pads] = [field for field in facts["fields"] if field.get("value") == 300]
    assert pads["path"].startswith("graph.node[1].attribute[") and pads["path"].endswith(".ints[2]")
    spans = [
        (field["offset"], field["header"] if "message" in field else field["header"] + field["payload"])
        for field in facts["fields"]
    ]
    at = 0
    for offset, size in spans:
        assert offset == at
        at += size
    assert at == len(SAMPLE_BYTES)


def test_other_roots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.pb"
    file.write_bytes(ps.numpy_helper.from_array(np.float64([1, 2]), "t").SerializeToString())
    assert main(["inspect", str(file), "dims", "--root", "TensorProto", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fields"][0]["value"] == 2
    assert main(["inspect", str(file), "--root", "TensorProt"]) == 2
    assert "there is no such message" in capsys.readouterr().err
