"""The textual syntax read back: the same messages as the official parser makes, and errors that show the place."""

from __future__ import annotations

import math
import pickle
from typing import Any

import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

import proto_schema as ps
from proto_schema.parser import ParseError, parse_function, parse_graph, parse_model, parse_node
from proto_schema.printer import to_text
from tests.proto_schema.test_bundled import FILES

NODES = [  # as the official parser takes them
    "y = Relu (x)",
    "out1, out2 = some.domain.Op <a = 1> (in1, in2)",
    "y = f.g:over()",
    "[the_name] y = A()",
    '["n n"] y = A()',
    "[] y = A()",
    "= ()",
    "x, = Op (y,)",
    ",x = Op (,y)",
    '"",x = Op ("",y)',
    "y = A(x) <a = 1>",
    "y = A # a comment <\n <a = 1> # and another\n (x)",
    "y=A<a=-3, b=2.5, c=1., d=1e-3, e=-1E+3, f=1e-50, g=-0.0>()",
    "y=A<a=inf, b=-inf, c=infinity, d=-Infinity>()",
    "y=A<a: float = 2, b: float = -0, c: floats = [1, 2.5, -inf]>()",
    'y=A<a="x\\"y\\\\z\\n", b=["p", "q"], c: string = "">()',
    "y=A<a=[1,2,3], b=[1.5, 2], c: ints = [], d: int = [1]>()",
    "y=A<a=@b, c: int = @d>()",
    "y=A<a=float[2], b=float[N,?,3], c=int64, d=float[]>()",
    "y=A<a=seq(float[2]), b=map(int64, seq(string)), c=optional(float), d=sparse_tensor(float[3])>()",
    "y=A<a=opaque(), b=opaque(n), c=opaque(a.b, n)>()",
    "y=A<a=float[2] {1, 2.5}, b=float[2] name {0.1, -1e30}, c=float[2] = {1,2}, d=float {3}, e=float[0] {}>()",
    "y=A<a=float[2]{nan, -inf}, b=double[2]{0.1, 1e300}, c=complex64[1]{1, 2}>()",
    "y=A<a=int8[3]{1,-1,-128}, b=uint64[1]{18446744073709551615}, c=uint32[1]{7}, d=bool[2]{1, 0}, e=int64[1]{-9}>()",
    "y=A<a=float16[2]{15360,49152}, b=bfloat16[1]{16256}, c=float8e4m3fn[1]{56}, d=int4[1]{0}, e=uint2[1]{3}>()",
    'y=A<a=string[2]{"p", "q\\"r"}, b=float[2] w ["location": "w.bin", "offset": "3"]>()',
    "y=A<a=g (float x) => (z) { z = B(x) }>()",
]
GRAPHS = [
    "g () => () {}",
    '"a graph" (float["M + N", ?] x, y) => (float["M + N"] "z z") { "z z" = Identity(x) }',
    'g (float[1] x = {1}) => (float[1] y) <float[2] w = {1, 2}, float[N] t, int64[1] e = ["location": "f"]> {}',
    "g (float x) => (float y) <> { y = If <then_branch = t () => (y) { y = A(x) }, else_branch = e () => (y) {}> (x) }",
]
FUNCTIONS = [
    '<domain: "d", opset_import: ["" : 17, "d" : 1], doc_string: "text", overload: "o"> f (x, float[N] y) => (z) {}',
    "f <a, b: float = 1.5, c, d: ints = [1]> (x) => (int64[2] y) <float[3] t> { y = A <a: int = @a> (x) }",
    "f () => () {}",
]
MODELS = [
    '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1], producer_name: "p", producer_version: "1", '
    'domain: "d", model_version: 3, doc_string: "a \\"b\\"\nc", metadata_props: ["k": "v", "k2": ""]> g () => () {}',
    "g () => () {}",
    '<opset_import: [], metadata_props: []> g () => () {} <domain: "d"> f (x) => (y) { y = A(x) } h () => () {}',
]


@pytest.mark.parametrize("text", NODES)
def test_nodes(text: str) -> None:
    assert (
        parse_node(text) == ps.NodeProto.FromString(onnx.parser.parse_node(text).SerializeToString()) or "nan" in text
    )


@pytest.mark.parametrize("text", GRAPHS)
def test_graphs(text: str) -> None:
    assert parse_graph(text) == ps.GraphProto.FromString(onnx.parser.parse_graph(text).SerializeToString())


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions(text: str) -> None:
    assert parse_function(text) == ps.FunctionProto.FromString(onnx.parser.parse_function(text).SerializeToString())


@pytest.mark.parametrize("text", MODELS)
def test_models(text: str) -> None:
    assert parse_model(text) == ps.loads(onnx.parser.parse_model(text).SerializeToString())
    assert parse_model(text.encode()) == parse_model(text)


# -- what the printer writes -------------------------------------------------------------------------------------------


def _there_and_back(model: ps.ModelProto) -> None:
    text = to_text(model)
    read = parse_model(text)
    assert read.SerializeToString() == onnx.parser.parse_model(text).SerializeToString()
    assert to_text(read) == text


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".onnx"][::5], ids=str)
def test_printed_models(path: Any) -> None:
    _there_and_back(ps.load(path))


@pytest.mark.sweep
def test_all_printed_node_cases() -> None:
    cases = [case.model for case in collect_testcases(None) if case.model is not None]
    assert len(cases) > 1_800
    for model in cases:
        _there_and_back(ps.loads(model.SerializeToString()))


NAMES = ["float", "seq", "nan", "inf", "a b", 'q"q', "back\\slash", "\u00e9", "1x", "a.b", "x-y", "new\nline", "#"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_all_kinds_come_back(name: str) -> None:
    inner = ps.GraphProto(name=name, node=[ps.NodeProto(op_type=name, domain=f"d.{name}", output=[name], input=[""])])
    attribute = ps.AttributeProto(name=name, type=ps.AttributeProto.GRAPH, g=inner)
    reference = ps.AttributeProto(name=name, type=ps.AttributeProto.INT, ref_attr_name=name)
    node = ps.NodeProto(name=name, op_type=name, domain="", overload=name, output=[name, "b"], attribute=[attribute])
    graph = ps.GraphProto(name=name, node=[node, ps.NodeProto(op_type="A", domain="", attribute=[reference])])
    assert parse_graph(to_text(graph)) == graph


def test_float32_is_rounded_once() -> None:
    """0.5000000298023224 lies halfway between two float32; the digits after it decide."""
    halfway = "0.50000002980232238769531250"
    rows = {halfway: 0.5, halfway + "0" * 30 + "1": math.ldexp(8388609, -24), halfway[:-2] + "49": 0.5}
    assert [parse_node(f"y=A<a={text}>()").attribute[0].f for text in rows] == list(rows.values())
    listed = parse_node(f"y=A<a=float[3]{{{','.join(rows)}}}>()").attribute[0].t
    assert listed is not None
    assert listed.float_data == list(rows.values())
    assert [parse_node(f"y=A<a=float[1]{{ {text} , inf}}>()").attribute[0].t.float_data[0] for text in rows] == [  # type: ignore[union-attr]
        *rows.values()
    ]


# -- beyond the official parser ----------------------------------------------------------------------------------------


def test_lists_that_the_official_parser_loses() -> None:
    node = parse_node("y=A<a=[float[2], int64], b=[float[1]{1}], c=[g () => () {}], d=[1, 2.5]>()")
    types, tensors, graphs, mixed = node.attribute
    assert [len(types.type_protos), len(tensors.tensors), len(graphs.graphs)] == [2, 1, 1]
    assert [types.type, tensors.type, graphs.type] == [14, 9, 10]
    assert (mixed.type, mixed.floats) == (ps.AttributeProto.FLOATS, [1.0, 2.5])
    assert onnx.parser.parse_node("y=A<a=[float[2], int64]>()").attribute[0].type_protos == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("int4[3] {1, -2, 3}", [1, -2, 3]),
        ("int4[2] {1, 15}", [1, -1]),
        ("int4[1] {-1}", [-1]),
        ("int4[4] {33, 67}", [1, 2, 3, 4]),  # as bytes
        ("uint4[5] {1, 2, 3, 4, 15}", [1, 2, 3, 4, 15]),
        ("uint2[5] {3, 2, 1, 0, 3}", [3, 2, 1, 0, 3]),
        ("float4e2m1[2] {1, 2}", [0.5, 1.0]),
    ],
)
def test_elements_below_a_byte_are_packed(text: str, values: list[float]) -> None:
    tensor = parse_node(f"y=A<a={text}>()").attribute[0].t
    assert tensor is not None
    assert ps.numpy_helper.to_array(tensor).tolist() == values


def test_unnamed_external_tensors_come_back() -> None:
    entry = ps.StringStringEntryProto(key="location", value="w")
    for dims in ([], [2]):
        tensor = ps.TensorProto(dims=dims, data_type=1, name="", data_location=1, external_data=[entry])
        node = ps.NodeProto(op_type="A", domain="", attribute=[ps.AttributeProto(name="a", type=4, t=tensor)])
        assert parse_node(to_text(node)) == node


# -- errors ------------------------------------------------------------------------------------------------------------

REFUSED = [
    ("y = MatMul[X, W]", 1, 11, "expected '(' before the inputs of MatMul, found '['"),
    ("y = A(x) z", 1, 10, "expected the end of the text after the node, found 'z'"),
    ("y = A(\n  x,\n  z", 3, 4, "expected ')' after the inputs of A, or a comma and the next one, found the end"),
    ("y = A.(x)", 1, 7, "expected the rest of the operator's name"),
    ("y = A<>()", 1, 7, "expected the name of an attribute"),
    ("y = A<a=>()", 1, 9, "expected the value of the attribute 'a', found '>'"),
    ("y = A<a=- 5>()", 1, 9, "expected the value of the attribute 'a'"),
    ("y = A<a: int = 2.5>()", 1, 16, "expected the value of the attribute 'a', an int, found 2.5"),
    ("y = A<a: ints = 2>()", 1, 17, "expected '[' before the ints of the attribute 'a'"),
    ("y = A<a: number = 2>()", 1, 10, "'number' is not a type of attributes: these are float, int,"),
    ("y = A<a = []>()", 1, 12, "an empty list says no type"),
    ('y = A<a = [1, "b"]>()', 1, 15, "a string in a list of ints"),
    ("y = A<a: type_proto = 1>()", 1, 23, "expected a type"),
    ("y = A<a: sparse_tensor = 1>()", 1, 26, "the syntax has no form for the values of a sparse_tensor attribute"),
    ("y = A<a = 1e>()", 1, 11, "1e is not a number"),
    ("y = A<a = 1e39>()", 1, 11, "1e39 is beyond the range of float32"),
    ("y = A<a = float[2] {1, 1e39}>()", 1, 24, "1e39 is beyond the range of float32"),
    ("y = A<a = double[1] {1e999}>()", 1, 22, "1e999 is beyond the range of float64"),
    ("y = A<a = 9223372036854775808>()", 1, 11, "9223372036854775808 is not from -9223372036854775808 to"),
    ("y = A<a = uint8[2] {1, 300}>()", 1, 24, "300 is not from 0 to 255"),
    ("y = A<a = uint64[1] {-1}>()", 1, 22, "-1 is not from 0 to"),
    ("y = A<a = float16[1] {1.5}>()", 1, 23, "the bits of a float16 as an integer, found 1.5"),
    ("y = A<a = int4[5] {1, 2}>()", 1, 20, "2 numbers for 5 elements of type int4"),
    ("y = A<a = float[2] {1, 2,}>()", 1, 26, "expected an element of the tensor"),
    ("y = A<a = seq(int)>()", 1, 15, "expected a type"),
    ("y = A<a = map(seq(int64), int64)>()", 1, 15, "expected a data type for the keys of a map"),
    ('y = A<a = "b>()', 1, 11, "has no closing quote"),
    ("y = A<a = not_a_graph>()", 1, 22, "expected '=>' between inputs and outputs"),
    ("y = A<a = inf1>()", 1, 15, "expected '=>'"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_errors(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_node(text)
    error = caught.value
    assert isinstance(error, ValueError)
    assert reason in str(error)
    assert (error.line, error.column) == (line, column)
    head, shown, caret = str(error).split("\n")
    assert head.startswith(f"line {line}, column {column}: ")
    assert shown == "    " + text.split("\n")[line - 1]
    assert caret == " " * (column + 3) + "^"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.reason) == (str(error), line, error.reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<ir_version: 7, opset_import: ["" : 10   "a" : 1]> g () => () {}', "expected ']' after the domains and ver"),
        ("<ir_version: 7.5> g () => () {}", "expected the number of ir_version, found 7.5"),
        ("<version: 7> g () => () {}", "a model has no field 'version' in its header"),
        ('<overload: "a"> g () => () {}', "a model has no field 'overload' in its header"),
        ("g (x) = > () {}", "expected '=>' between inputs and outputs"),
        ("g (x) => (y) { y = A(x)", "expected a node, or '}' after the last one, found the end of the text"),
        ("g (float[N] x = {1}) => () {}", "the tensor 'x' needs numbers as its sizes"),
        ("g (float[] x = {1}) => () {}", "the tensor 'x' needs a shape"),
        ("g (x = {1}) => () {}", "the tensor 'x' needs a data type and a shape"),
    ],
)
def test_errors_of_models(text: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_model(text)
    assert reason in str(caught.value)


def test_a_long_line_is_cut_around_the_place() -> None:
    text = f"y = A({'x,' * 5000} %{'z' * 5000})"
    with pytest.raises(ParseError) as caught:
        parse_node(text)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) < 140
    assert shown[len(caret) - 1] == "%"


@pytest.mark.parametrize(
    "text",
    [
        "y = A<a = " + "g () => () { y = A<a = " * 40 + "1>()" + "}>()" * 40,
        "y = A<a = " + "seq(" * 60 + "float" + ")" * 60 + ">()",
    ],
    ids=["graphs", "types"],
)
def test_nesting_is_bounded(text: str) -> None:
    with pytest.raises(ParseError, match="nested too deeply: a file holds at most 100 messages"):
        parse_node(text)


def test_what_a_file_can_hold_can_be_read() -> None:
    node = parse_node("y = A<a = " + "g () => () { y = A<a = " * 32 + "1>()" + "}>()" * 32)
    assert ps.NodeProto.FromString(node.SerializeToString()) == node


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="the textual syntax is a str, not a int"):
        parse_model(3)  # type: ignore[arg-type]
