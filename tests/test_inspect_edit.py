"""Edits of a model's bytes: each row is an edit and the same change made on messages; the files must be equal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema.fields import STRING, reachable
from proto_schema.wire import varint
from purexport.cli.main import main
from purexport.inspect import Bytes, compare, compare_files, find, findings
from purexport.inspect.edit import Edited, append_durably, edit
from purexport.inspect.orders import Edits
from purexport.inspect.rewrite import NAMES

FLOAT, BOOL = ps.TensorProto.FLOAT, ps.TensorProto.BOOL
make_node, value_info = ps.helper.make_node, ps.helper.make_tensor_value_info
Entry = ps.StringStringEntryProto


def branch(name: str, nodes: list[Any], inner: str) -> Any:
    made = ps.helper.make_graph(nodes, name, [], [value_info(inner, FLOAT, ["batch", 3])])
    made.doc_string = "a branch"
    return made


def model() -> Any:
    """Names in every place that has some: subgraphs (one with a value of its own called `t`), a function, value infos,
    annotations, sharding, a sparse initializer that nothing uses, dimensions that are expressions."""
    weight = ps.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    weight.doc_string = "the weight"
    then = branch("then", [make_node("HardSwish", ["h"], ["t"], name="act"), make_node("Add", ["t", "h"], ["a"])], "a")
    orelse = branch("else", [make_node("Neg", ["h"], ["e"], name="neg", doc_string="minus")], "e")
    nodes = [
        make_node("MatMul", ["x", "w"], ["h"], name="fc", doc_string="x times w"),
        make_node("If", ["c"], ["s"], name="if", then_branch=then, else_branch=orelse),
        make_node("Twice", ["s"], ["y"], name="call", domain="local"),
        make_node("Constant", [], ["k"], name="h", value=ps.numpy_helper.from_array(np.float32([1]), "h")),
    ]
    spec = ps.ShardingSpecProto(tensor_name="x", device=[0])
    spec.sharded_dim.append(ps.ShardedDimProto(axis=0, simple_sharding=[ps.SimpleShardedDimProto(dim_param="batch")]))
    nodes[0].device_configurations.append(ps.NodeDeviceConfigurationProto(configuration_id="two", sharding_spec=[spec]))
    inputs = [value_info("x", FLOAT, ["batch", 4]), value_info("c", BOOL, [])]
    outputs = [value_info("y", FLOAT, ["batch", 3]), value_info("h", FLOAT, ["batch", 3])]
    graph = ps.helper.make_graph(nodes, "net", inputs, outputs, [weight], doc_string="the graph")
    graph.value_info.append(value_info("s", FLOAT, ["2*batch + N", 3]))
    graph.quantization_annotation.append(
        ps.TensorAnnotation(tensor_name="h", quant_parameter_tensor_names=[Entry(key="w", value="w")])
    )
    graph.metadata_props.append(Entry(key="h", value="h"))
    values = ps.helper.make_tensor("z", FLOAT, [1], [2.0])
    graph.sparse_initializer.append(ps.helper.make_sparse_tensor(values, ps.helper.make_tensor("z", 7, [1], [1]), [4]))
    inner = [make_node("Add", ["x", "x"], ["h"], name="add", doc_string="twice")]
    function = ps.helper.make_function("local", "Twice", ["x"], ["h"], inner, [ps.helper.make_opsetid("", 20)])
    opsets = [ps.helper.make_opsetid("", 20), ps.helper.make_opsetid("local", 1)]
    made = ps.helper.make_model(graph, producer_name="tests", functions=[function], opset_imports=opsets, ir_version=11)
    made.configuration.append(ps.DeviceConfigurationProto(name="two", num_devices=2, device=["a", "b"]))
    made.metadata_props = [Entry(key="author", value="Ada"), Entry(key="task", value="x")]
    made.doc_string = "the model"
    return made


WHOLE = ps.dumps(model())


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
    with pytest.raises(ValueError, match="own data is there"):
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
    assert main(["salvage", str(file), "-o", str(file)]) == 1
    assert file.read_bytes() == WHOLE


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
    with pytest.raises(ValueError, match="no regular file"):
        edit(file, wanted, os.devnull)
    with pytest.raises(ValueError, match="leave out the name"):
        edit(file, wanted, out, append=True)


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
