"""On which bytes readers disagree, judged by the readers themselves; what is canonical; rewriting into that form."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.inspect.elements import Bytes
from purexport.inspect.forms import DISAGREE, FORM, REFUSED, canonicalize, findings

h = onnx.helper
GRAPH = h.make_graph(
    [h.make_node("Relu", ["x"], ["y"])],
    "g",
    [h.make_tensor_value_info("x", 1, [2])],
    [h.make_tensor_value_info("y", 1, [2])],
)
MODEL = h.make_model(GRAPH, ir_version=10, opset_imports=[h.make_opsetid("", 20)]).SerializeToString()
GOOD, NO, SPLIT = {True}, {False}, {True, False}

# what is unusual, what follows the model, the kinds of findings, what the readers say
ROWS: list[tuple[str, bytes, set[str], set[bool]]] = [
    ("nothing", b"", set(), GOOD),
    ("a field number 0", b"\x00junk", {DISAGREE}, SPLIT),
    ("the end of a group", b"\x0cjunk", {DISAGREE}, SPLIT),
    ("field number 2**29", b"\x80\x80\x80\x80\x10\x01", {DISAGREE}, SPLIT),
    ("field number 0 in a group", b"\xeb\x04\x00\x01\xec\x04", {DISAGREE}, SPLIT),
    ("an unknown field", b"\xe8\x04\x05", set(), GOOD),
    ("an unknown group", b"\xeb\x04\x08\x01\xec\x04", set(), GOOD),
    ("a wrong wire type", b"\x0a\x01a", set(), GOOD),
    ("an unknown field in between", b"\xe8\x04\x05\xa2\x01\x00", {FORM}, GOOD),
    ("text that is no UTF-8", b"\x72\x06\x0a\x01a\x12\x01\xff", set(), GOOD),
    ("a tag of 5 bytes", b"\xf2\x80\x80\x80\x00\x04\x0a\x00\x12\x00", {FORM}, GOOD),
    ("a tag of 6 bytes", b"\xa8\x80\x80\x80\x80\x00\x01", {REFUSED}, NO),
    ("a length of 5 bytes", b"\x72\x84\x80\x80\x80\x00\x0a\x00\x12\x00", {FORM}, GOOD),
    ("a varint with bits past 64", b"\x28" + b"\xff" * 9 + b"\x7f", {FORM}, GOOD),
    ("a varint of 11 bytes", b"\x28" + b"\xff" * 10 + b"\x01", {REFUSED}, NO),
    ("a scalar twice", b"\x28\x01\x28\x02", {FORM}, GOOD),
    ("a message twice", b"\x3a\x04\x12\x02ab", {FORM}, GOOD),
    ("a cut end", b"\x72\x05\x0a", {REFUSED}, NO),
]


def readers() -> list[Callable[[bytes], object]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession
    return [onnx.ModelProto.FromString, onnx.checker.check_model, lambda data: session(data, options)]


def takes(reader: Callable[[bytes], object], data: bytes) -> bool:
    try:
        reader(data)
    except Exception:  # each has classes of its own
        return False
    return True


@pytest.mark.parametrize(("name", "extra", "kinds", "verdicts"), ROWS, ids=[row[0] for row in ROWS])
def test_readers(name: str, extra: bytes, kinds: set[str], verdicts: set[bool], tmp_path: Path) -> None:
    data = MODEL + extra
    assert {takes(reader, data) for reader in readers()} == verdicts
    found = list(findings(Bytes(data)))
    assert {finding.kind for finding in found} == kinds
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    status = main(["check", str(path), "--parsers", "--json"])
    assert status == (0 if verdicts == GOOD else 1)


def is_canonical(data: bytes) -> bool:
    return ps.dumps(ps.loads(data)) == data


@pytest.mark.parametrize(("name", "extra", "kinds", "verdicts"), ROWS, ids=[row[0] for row in ROWS])
def test_findings_are_what_rewriting_changes(
    name: str, extra: bytes, kinds: set[str], verdicts: set[bool], tmp_path: Path
) -> None:
    data = MODEL + extra
    found = list(findings(Bytes(data)))
    if kinds & {REFUSED, DISAGREE}:
        return
    assert is_canonical(data) is not bool(found)
    (tmp_path / "m.onnx").write_bytes(data)
    size = canonicalize(tmp_path / "m.onnx", tmp_path / "out.onnx")
    written = (tmp_path / "out.onnx").read_bytes()
    assert len(written) == size and is_canonical(written) and list(findings(Bytes(written))) == []
    assert ps.loads(written) == ps.loads(data)


# a message with the form inside, and whether it is canonical
TENSORS: list[tuple[str, str, bool]] = [
    ("packed ints", "3a 02 01 05", True),
    ("unpacked where packed is declared", "38 01 38 05", False),
    ("in two pieces", "3a 01 01 3a 01 05", False),
    ("empty", "3a 00", False),
    ("an overlong number", "3a 02 81 00", False),
    ("int32 of 5 bytes", "2a 05 ff ff ff ff 0f", False),
    ("dims packed", "0a 02 01 05", False),
    ("dims", "08 01 08 05", True),
    ("floats", "22 04 00 00 80 3f", True),
    ("an enum's unknown number", "70 09", True),
    ("the same before a known field", "70 09 7a 00", True),
    ("out of order", "4a 00 42 00", False),
]


@pytest.mark.parametrize(("name", "octets", "canonical"), TENSORS, ids=[row[0] for row in TENSORS])
def test_form_of_a_tensor(name: str, octets: str, canonical: bool) -> None:
    data = bytes.fromhex(octets)
    assert (ps.TensorProto.FromString(data).SerializeToString() == data) is canonical
    assert (not list(findings(Bytes(data, ps.TensorProto)))) is canonical


def test_oneof_members() -> None:
    data = bytes.fromhex("08 01 12 01 61")  # dim_value, then dim_param
    [finding] = findings(Bytes(data, ps.TensorShapeProto.Dimension))
    assert "takes the place of dim_value" in finding.text


@pytest.mark.parametrize("seed", range(80))
def test_damaged_copies(seed: int) -> None:
    """What is refused is what the decoder refuses; what is canonical is what encodes to itself."""
    random_ = random.Random(seed)
    data = bytearray(MODEL)
    for _ in range(1 + seed % 3):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    found = list(findings(Bytes(bytes(data))))
    refused = any(f.kind == REFUSED or (f.kind == DISAGREE and "refuse the file" in f.text) for f in found)
    try:
        model = ps.loads(bytes(data))
    except ps.DecodeError:
        assert refused
        return
    assert not refused
    if not any(finding.kind == DISAGREE for finding in found):
        assert (ps.dumps(model) == bytes(data)) is not bool(found)


# The verbs ------------------------------------------------------------------------------------------------------------


def test_check_speaks_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(MODEL)
    assert main(["check", str(path), "--full", "--parsers"]) == 0
    text = capsys.readouterr().out
    assert "m.onnx: valid" in text and "it is in canonical form" in text
    path.write_bytes(MODEL + b"\x28\x01\x00junk")
    assert main(["check", str(path), "--parsers"]) == 1
    text = capsys.readouterr().out
    for part in ("readers disagree: 1 place", "onnx.load and ONNX Runtime refuse", "not the canonical form"):
        assert part in text
    assert main(["check", str(path)]) == 2


def test_check_says_what_it_covers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--full` the types and the shapes that nodes compute, too: two operands that do not fit are found."""
    info = ps.helper.make_tensor_value_info
    a, b, y = info("a", 1, [2, 3]), info("b", 1, ["n", 5]), info("y", 1, [2, 5])
    graph = ps.helper.make_graph([ps.helper.make_node("MatMul", ["a", "b"], ["y"])], "g", [a, b], [y])
    path = tmp_path / "m.onnx"
    ps.save(ps.helper.make_model(graph), path)
    always = ["structure", "names", "operators", "attributes", "data"]
    for options, said, covers in (
        ([], "valid", always),
        (["--full"], "valid, types and shapes included", [*always, "types", "shapes"]),
    ):
        assert main(["check", str(path), *options]) == 0
        assert capsys.readouterr().out == f"{path}: {said}\n"
        assert main(["check", str(path), *options, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["covers"] == covers
    graph.input[1] = info("b", 1, [4, 5])
    ps.save(ps.helper.make_model(graph), path)
    assert main(["check", str(path)]) == 0
    assert main(["check", str(path), "--full"]) == 1
    assert "graph.node[0]" in capsys.readouterr().out


def test_check_says_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ps.loads(MODEL)
    assert model.graph is not None
    model.graph.node[0].input[0] = "nowhere"
    path = tmp_path / "m.onnx"
    path.write_bytes(ps.dumps(model))
    assert main(["check", str(path), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["valid"] is False and "nowhere" in facts["error"]


def test_external_data_is_checked_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ps.loads(MODEL)
    assert model.graph is not None
    tensor = ps.TensorProto(name="w", data_type=ps.TensorProto.FLOAT, dims=[1 << 28])
    ps.external.set_entries(tensor, "w.bin", 0, 1 << 30)
    model.graph.initializer.append(tensor)
    path = tmp_path / "m.onnx"
    path.write_bytes(ps.dumps(model))
    assert main(["check", str(path)]) == 1
    assert "w.bin" in capsys.readouterr().out
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(1 << 30)
    assert main(["check", str(path)]) == 0
    assert main(["canonicalize", str(path), "-o", str(path), "--json"]) == 0
    assert (tmp_path / "w.bin").stat().st_size == 1 << 30
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.onnx", "w.bin"]
    capsys.readouterr()
    (tmp_path / "other").mkdir()
    assert main(["canonicalize", str(path), "-o", str(tmp_path / "other" / "m.onnx")]) == 2
    assert "same folder" in capsys.readouterr().err
