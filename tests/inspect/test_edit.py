"""Edits of a model's bytes: each row is an edit and the same change made on messages; the files must be equal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema.wire import varint
from proto_schema.wire.fields import STRING, reachable
from purexport.cli.main import main
from purexport.inspect import Bytes, compare, compare_files, find, findings
from purexport.inspect.edit import edit
from purexport.inspect.orders import Edits
from purexport.inspect.rewrite import NAMES
from tests.inspect.edited import FLOAT, WHOLE, Entry, make_node, model, value_info


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(WHOLE)
    return path


# Edits, and the same on messages --------------------------------------------------------------------------------------


def subgraphs(m: Any) -> list[Any]:
    return [attribute.g for attribute in m.graph.node[1].attribute]


def rename_x(m: Any) -> None:
    m.graph.node[0].input[0] = m.graph.input[0].name = "image"
    m.graph.node[0].device_configurations[0].sharding_spec[0].tensor_name = "image"


def rename_h(m: Any) -> None:
    m.graph.node[0].output[0] = m.graph.output[1].name = "hidden"
    m.graph.quantization_annotation[0].tensor_name = "hidden"
    for graph in subgraphs(m):
        for node in graph.node:
            node.input = ["hidden" if name == "h" else name for name in node.input]


def rename_w(m: Any) -> None:
    m.graph.node[0].input[1] = m.graph.initializer[0].name = "weight"
    m.graph.quantization_annotation[0].quant_parameter_tensor_names[0].value = "weight"


def swap_h_s(m: Any) -> None:
    m.graph.node[0].output[0] = m.graph.output[1].name = m.graph.quantization_annotation[0].tensor_name = "s"
    m.graph.node[1].output[0] = m.graph.node[2].input[0] = m.graph.value_info[0].name = "h"
    for graph in subgraphs(m):
        for node in graph.node:
            node.input = ["s" if name == "h" else name for name in node.input]


def rename_t(m: Any) -> None:
    then = next(graph for graph in subgraphs(m) if graph.name == "then")
    then.node[0].output[0] = then.node[1].input[0] = "r"


def rename_batch(m: Any) -> None:
    for value in [m.graph.input[0], *m.graph.output, *(graph.output[0] for graph in subgraphs(m))]:
        value.type.tensor_type.shape.dim[0].dim_param = "B"
    m.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param = "2*B + N"
    m.graph.node[0].device_configurations[0].sharding_spec[0].sharded_dim[0].simple_sharding[0].dim_param = "B"


def no_doc_strings(m: Any) -> None:
    m.doc_string = m.graph.doc_string = m.graph.initializer[0].doc_string = m.graph.node[0].doc_string = None
    m.functions[0].node[0].doc_string = m.functions[0].doc_string = None
    for graph in subgraphs(m):
        graph.doc_string = None
        for node in graph.node:
            node.doc_string = None


def opset_21(m: Any) -> None:
    m.opset_import[0].version = m.functions[0].opset_import[0].version = 21


def changed(path: str, name: str, value: Any) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        for step in path.split(".") if path else []:
            m = m[int(step)] if step.isdigit() else getattr(m, step)
        setattr(m, name, value)

    return change


ROWS: list[tuple[str, Edits, Callable[[Any], Any]]] = [
    ("nothing that changes", Edits(fields={"producer_name": "tests"}, metadata={"task": "x"}), lambda m: None),
    ("a field set", Edits(fields={"producer_name": "me"}), changed("", "producer_name", "me")),
    ("a field added", Edits(fields={"producer_version": "1.0"}), changed("", "producer_version", "1.0")),
    ("a field removed", Edits(fields={"producer_name": None}), changed("", "producer_name", None)),
    ("a removed field that is not there", Edits(fields={"domain": None}), lambda m: None),
    ("a number added", Edits(fields={"model_version": 3}), changed("", "model_version", 3)),
    ("a number as text, below 0", Edits(fields={"model_version": "-3"}), changed("", "model_version", -3)),
    ("an IR version", Edits(fields={"ir_version": 12}), changed("", "ir_version", 12)),
    ("text that is not ASCII", Edits(fields={"doc_string": "f\u00fcr"}), changed("", "doc_string", "f\u00fcr")),
    ("long text", Edits(fields={"doc_string": "d" * 20000}), changed("", "doc_string", "d" * 20000)),
    ("the graph's name", Edits(fields={"graph.name": "g"}), changed("graph", "name", "g")),
    (
        "a doc string of a node",
        Edits(fields={'graph.node["fc"].doc_string': "d"}),
        changed("graph.node.0", "doc_string", "d"),
    ),
    (
        "a doc string deep below",
        Edits(fields={'graph.node["if"].attribute["else_branch"].g.node[0].doc_string': None}),
        lambda m: setattr(subgraphs(m)[[g.name for g in subgraphs(m)].index("else")].node[0], "doc_string", None),
    ),
    (
        "doc strings of many nodes",
        Edits(fields={"graph.node[*].doc_string": "d"}),
        lambda m: [setattr(node, "doc_string", "d") for node in m.graph.node],
    ),
    ("a node's name by its place", Edits(fields={"graph.node[2].name": "n"}), changed("graph.node.2", "name", "n")),
    ("metadata set", Edits(metadata={"author": "me"}), changed("metadata_props.0", "value", "me")),
    ("metadata added", Edits(metadata={"k": "v"}), lambda m: m.metadata_props.append(Entry(key="k", value="v"))),
    ("metadata removed", Edits(metadata={"author": None}), lambda m: m.metadata_props.pop(0)),
    (
        "metadata of each kind",
        Edits(metadata={"author": None, "task": "y", "k": ""}),
        changed("", "metadata_props", [Entry(key="task", value="y"), Entry(key="k", value="")]),
    ),
    ("an input", Edits(inputs={"x": "image"}), rename_x),
    ("an output that is used further", Edits(outputs={"h": "hidden"}), rename_h),
    ("an initializer", Edits(values={"w": "weight"}), rename_w),
    ("two values swapped", Edits(values={"h": "s", "s": "h"}), swap_h_s),
    ("a value of a subgraph only", Edits(values={"t": "r"}), rename_t),
    ("a value to its own name", Edits(values={"h": "h"}), lambda m: None),
    ("a node", Edits(nodes={"fc": "dense"}), changed("graph.node.0", "name", "dense")),
    ("a node called as a value is", Edits(nodes={"h": "const"}), changed("graph.node.3", "name", "const")),
    ("a node of a function", Edits(nodes={"add": "plus"}), changed("functions.0.node.0", "name", "plus")),
    ("a dimension", Edits(dims={"batch": "B"}), rename_batch),
    ("doc strings dropped", Edits(drop_doc_strings=True), no_doc_strings),
    ("an opset, with the functions that had the same", Edits(opsets={"": 21}), opset_21),
    ("an opset by its other name", Edits(opsets={"ai.onnx": 21}), opset_21),
    (
        "an opset added",
        Edits(opsets={"ai.onnx.ml": 3}),
        lambda m: m.opset_import.append(ps.helper.make_opsetid("ai.onnx.ml", 3)),
    ),
    (
        "everything at once",
        Edits(fields={"producer_name": "me"}, inputs={"x": "image"}, dims={"batch": "B"}, drop_doc_strings=True),
        lambda m: (changed("", "producer_name", "me")(m), rename_x(m), rename_batch(m), no_doc_strings(m)),
    ),
]


@pytest.mark.parametrize(("name", "edits", "change"), ROWS, ids=[row[0] for row in ROWS])
def test_edit(name: str, edits: Edits, change: Callable[[Any], Any], file: Path) -> None:
    """The file equals the encoding of the changed message, is canonical and valid, and computes the same."""
    expected = model()
    change(expected)
    target = file.with_name("out.onnx")
    before = onnxruntime_results(file)
    planned = edit(file, edits, target, dry_run=True)
    assert not target.exists()
    assert edit(file, edits, target) == planned
    assert target.read_bytes() == ps.dumps(expected)
    assert (planned.bytes_before, planned.bytes_after) == (len(WHOLE), len(ps.dumps(expected)))
    assert planned.copied + planned.made == planned.bytes_after
    assert list(findings(Bytes(target))) == []
    ps.checker.check_model(target, full_check=True)
    if "IR version" not in name:
        for mine, theirs in zip(onnxruntime_results(target), before, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert bool(planned.changes) == (ps.dumps(expected) != WHOLE)
    edit(file, edits)
    assert file.read_bytes() == target.read_bytes()
    assert sorted(os.listdir(file.parent)) == ["m.onnx", "out.onnx"]


def onnxruntime_results(path: Path) -> list[Any]:
    session = onnxruntime.InferenceSession(path)
    x, c = session.get_inputs()
    feeds = {x.name: np.ones((2, 4), np.float32), c.name: np.array(True)}
    return list(session.run(None, feeds))


def test_diff_shows_only_what_was_asked(file: Path) -> None:
    target = file.with_name("out.onnx")
    edit(file, Edits(metadata={"author": "me"}, dims={"N": "rows"}), target)
    shown = [(row.path, row.text) for row in compare_files(str(file), str(target))]
    assert shown == [
        ('graph.value_info["s"].type.tensor_type.shape.dim[0].dim_param', "'2*batch + N' -> '2*batch + rows'"),
        ('metadata_props["author"].value', "'Ada' -> 'me'"),
    ]


def test_report(file: Path) -> None:
    done = edit(file, Edits(values={"h": "hidden"}, drop_doc_strings=True), dry_run=True)
    (value, docs) = done.changes
    assert (value.what, value.old, value.new) == ("value", "h", "hidden")
    assert value.places == {
        "NodeProto.output": 1,
        "NodeProto.input": 3,
        "ValueInfoProto.name": 1,
        "TensorAnnotation.tensor_name": 1,
    }
    assert docs.places == {"ModelProto.doc_string": 1, "GraphProto.doc_string": 3, "TensorProto.doc_string": 1} | {
        "NodeProto.doc_string": 3
    }


SHIPPED = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))


def bundled() -> list[Any]:
    """The official package's models: every fifth by default."""
    small = [path for path in SHIPPED if path.stat().st_size < 200_000]
    return [
        pytest.param(path, id=f"{path.parent.name}-{path.stem}", marks=[] if at % 5 == 0 else [pytest.mark.sweep])
        for at, path in enumerate(small)
    ]


@pytest.mark.parametrize("rotated", [False, True], ids=["fresh", "rotated"])
@pytest.mark.parametrize("path", bundled())
def test_all_names_of_what_others_wrote(path: Path, rotated: bool, tmp_path: Path) -> None:
    """With all values renamed, to new names or to each other's, it is the same model but for names."""
    before, target = ps.load(path), tmp_path / "out.onnx"
    graph: Any = before.graph
    names = sorted(
        {value.name for value in graph.input}
        | {tensor.name for tensor in graph.initializer}
        | {name for node in graph.node for name in node.output if name}
    )
    fresh = [*names[1:], names[0]] if rotated else [f"v/{at}" for at in range(len(names))]
    edit(path, Edits(values=dict(zip(names, fresh, strict=True)), drop_doc_strings=True), target)
    after: Any = ps.load(target)
    assert compare(before, after, frozenset({"names", "doc_string"})) == []
    assert [value.name for value in after.graph.input] == [fresh[names.index(value.name)] for value in graph.input]
    assert valid(before) == valid(after)
    assert path.read_bytes() != ps.dumps(before) or target.read_bytes() == ps.dumps(after)


def valid(model: Any) -> bool:
    try:
        ps.checker.check_model(model)
    except ps.CheckError:
        return False
    return True


NO_NAMES = {
    *("AttributeProto.name", "AttributeProto.ref_attr_name", "DeviceConfigurationProto.name"),
    *("DeviceConfigurationProto.device", "FunctionProto.name", "FunctionProto.attribute", "FunctionProto.domain"),
    *("FunctionProto.overload", "GraphProto.name", "ModelProto.producer_name", "ModelProto.producer_version"),
    *("ModelProto.domain", "NodeDeviceConfigurationProto.configuration_id", "NodeProto.op_type", "NodeProto.domain"),
    *("NodeProto.overload", "OperatorSetIdProto.domain", "StringStringEntryProto.key", "TypeProto.denotation"),
    *("TensorShapeProto.Dimension.denotation", "TypeProto.Opaque.domain", "TypeProto.Opaque.name"),
}
"""Fields of text that name no value, node or dimension; doc strings aside."""


def test_every_field_of_text_is_a_name_or_is_not() -> None:
    """A field that a new version of the format brings must be put on one side."""
    every = {
        f"{cls.__qualname__}.{row.name}"
        for cls in reachable(ps.ModelProto)
        for row in cls.FIELDS
        if row.kind is STRING and row.name != "doc_string"
    }
    names = {f"{cls.__qualname__}.{name}" for cls, name in NAMES}
    assert names | NO_NAMES == every and not names & NO_NAMES


# Odd bytes ------------------------------------------------------------------------------------------------------------


def overlong(data: bytes, path: str) -> bytes:
    """The length of one field on five bytes, and the lengths around it."""
    element = find(Bytes(data), path)[0]
    length = bytearray(varint(element.payload | 1 << 28))
    length[-1] = 0
    if "." in path:
        raise AssertionError("only an outermost field")
    return data[: element.start + 1] + bytes(length) + data[element.body :]


UNKNOWN = varint(77 << 3 | 2) + b"\x03abc" + varint(78 << 3 | 3) + varint(5 << 3) + b"\x01" + varint(78 << 3 | 4)
META = b"r" + varint(len(Entry(key="task", value="x").SerializeToString()))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("unknown fields", WHOLE + UNKNOWN),
        ("unknown fields first", UNKNOWN + WHOLE),
        ("a length on five bytes", overlong(WHOLE, "graph")),
        (
            "fields in another order",
            WHOLE[find(Bytes(WHOLE), "graph")[0].start :] + WHOLE[: find(Bytes(WHOLE), "graph")[0].start],
        ),
        ("a field there twice", WHOLE + b"\x12\x02ab" + b"\x12\x05tests"),
    ],
)
def test_odd_bytes_survive(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    edit(path, Edits(fields={"producer_name": "somebody"}))
    once = data.replace(b"\x12\x02ab\x12\x05tests", b"")
    assert path.read_bytes() == once.replace(b"\x12\x05tests", b"\x12\x08somebody")


def test_a_graph_in_two_pieces(tmp_path: Path) -> None:
    """Readers merge them: a name that one defines and the other uses is one name."""
    m = model()
    rest = ps.ModelProto(graph=ps.GraphProto(output=m.graph.output, value_info=m.graph.value_info))
    m.graph.output = m.graph.value_info = []
    path = tmp_path / "m.onnx"
    path.write_bytes(ps.dumps(m) + ps.dumps(rest))
    edit(path, Edits(outputs={"h": "hidden"}))
    expected = model()
    rename_h(expected)
    assert ps.load(path) == expected


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    m = model()
    m.graph.node[0].name = b"\xff\xfe"
    path = tmp_path / "m.onnx"
    ps.save(m, path)
    done = edit(path, Edits(nodes={"\udcff\udcfe": "fc"}))
    assert path.read_bytes() == WHOLE and done.changes[0].old == "\\xff\\xfe"


# Where the bytes lie --------------------------------------------------------------------------------------------------


def large(path: Path, external: bool) -> Any:
    """A model with 4 MiB of weights."""
    weights = [ps.numpy_helper.from_array(np.full((1 << 19,), at, np.float32), f"w{at}") for at in range(2)]
    nodes = [make_node("Add", ["x", "w0"], ["h"]), make_node("Add", ["h", "w1"], ["y"])]
    ends = [[value_info(name, FLOAT, [1 << 19])] for name in "xy"]
    made = ps.helper.make_model(ps.helper.make_graph(nodes, "g", *ends, weights), producer_name="p", ir_version=10)
    made.opset_import[0].version = 20
    ps.save(made, path, external_data=external)
    return made


def test_external_data_stays(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    large(path, True)
    before = (data.stat().st_ino, data.stat().st_mtime_ns)
    done = edit(path, Edits(inputs={"x": "image"}, metadata={"k": "v"}))
    assert (data.stat().st_ino, data.stat().st_mtime_ns) == before
    assert done.untouched == ["m.onnx.data"] and done.bytes_after < 1000
    ps.checker.check_model(path)
    assert onnxruntime.InferenceSession(path).get_inputs()[0].name == "image"
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match="write it to the same folder"):
        edit(path, Edits(drop_doc_strings=True), other / "m.onnx")
    with pytest.raises(FileExistsError, match="it is read by the same command"):
        edit(path, Edits(fields={"domain": "d"}), data)


def test_inline_weights_are_left_to_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    made = large(path, False)
    done = edit(path, Edits(outputs={"y": "scores"}))
    made.graph.node[1].output[0] = made.graph.output[0].name = "scores"
    assert path.read_bytes() == ps.dumps(made)
    assert done.by_kernel > 4 << 20 and done.by_kernel + 1000 > done.bytes_after


# Appending ------------------------------------------------------------------------------------------------------------

APPENDS: list[tuple[str, Edits, Callable[[Any], Any]]] = [
    ("a field set again", Edits(fields={"producer_name": "me"}), changed("", "producer_name", "me")),
    ("a field added", Edits(fields={"model_version": 4}), changed("", "model_version", 4)),
    ("metadata added", Edits(metadata={"k": "v"}), lambda m: m.metadata_props.append(Entry(key="k", value="v"))),
    (
        "a domain added",
        Edits(opsets={"ai.onnx.ml": 3}),
        lambda m: m.opset_import.append(ps.helper.make_opsetid("ai.onnx.ml", 3)),
    ),
]


@pytest.mark.parametrize(("name", "edits", "change"), APPENDS, ids=[row[0] for row in APPENDS])
def test_append(name: str, edits: Edits, change: Callable[[Any], Any], file: Path) -> None:
    expected = model()
    change(expected)
    done = edit(file, edits, append=True)
    assert file.read_bytes()[: len(WHOLE)] == WHOLE and file.stat().st_size == done.bytes_after
    assert done.way == "append" and done.made == done.bytes_after - len(WHOLE) < 50
    assert ps.load(file) == expected
    assert onnx.load(file).SerializeToString() == ps.dumps(expected)
    onnxruntime_results(file)
    assert edit(file, edits, append=True, dry_run=True).way == "nothing"


@pytest.mark.parametrize(
    "edits",
    [
        Edits(fields={"producer_name": None}),
        Edits(fields={"graph.name": "g"}),
        Edits(metadata={"author": "me"}),
        Edits(metadata={"author": None}),
        Edits(opsets={"": 21}),
        Edits(inputs={"x": "image"}),
        Edits(nodes={"fc": "dense"}),
        Edits(drop_doc_strings=True),
    ],
    ids=str,
)
def test_what_appending_cannot_do(edits: Edits, file: Path) -> None:
    with pytest.raises(ValueError, match="append only sets fields"):
        edit(file, edits, append=True)
    assert file.read_bytes() == WHOLE


def test_a_field_that_was_appended_is_one_after_the_next_edit(file: Path) -> None:
    edit(file, Edits(fields={"producer_name": "me"}), append=True)
    edit(file, Edits(fields={"producer_name": "you"}))
    expected = model()
    expected.producer_name = "you"
    assert file.read_bytes() == ps.dumps(expected)


# The verb -------------------------------------------------------------------------------------------------------------


def test_verb(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["edit", str(file), "--set", "producer_name=me", "--rename-input", "x=image", "--opset", "21"]
    assert main([*argv, "--dry-run"]) == 0
    assert "would write" in capsys.readouterr().out and file.read_bytes() == WHOLE
    assert main(argv) == 0
    text = capsys.readouterr().out
    for part in (
        "producer_name: 'tests' -> 'me'",
        "value: 'x' -> 'image', in 3 places: 1 NodeProto.input, 1 ShardingSpecProto.tensor_name, 1 ValueInfoProto.name",
        'opset_import["ai.onnx"]: 20 -> 21',
        "note: opsets are declared numbers",
        f"wrote {file}, ",
        " copied by the kernel",
    ):
        assert part in text
    assert main(argv[:4]) == 0
    assert "like that already; nothing to write" in capsys.readouterr().out
    assert main(["edit", str(file), "--metadata", "a\\=b=c=d", "--append", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["way"] == "append" and facts["changes"][0]["new"] == "c=d" and not facts["dry_run"]
    assert ps.load(file).metadata_props[-1] == Entry(key="a=b", value="c=d")
    assert main(["edit", str(file), "--opset", "1"]) == 1
    assert "with these versions the model is not valid" in capsys.readouterr().err
    assert main(["edit", str(file), "--set", 'graph.node["fc"].doc_string=a=b', "--remove", "producer_name"]) == 0
    assert ps.load(file).graph.node[0].doc_string == "a=b"
