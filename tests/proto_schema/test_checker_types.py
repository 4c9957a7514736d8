"""The types that the full check carries through a graph, beside those of the official inference."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import onnx
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.checking.context import imported
from proto_schema.checking.types import RULES, _Types
from proto_schema.inference.types import from_proto, text_of
from tests.proto_schema.checker_models import A, T, floats, value

call = helper.make_node
half = helper.make_tensor_type_proto(T.FLOAT16, [2])

INPUTS = [
    value("x", [2]),
    value("n", [2], T.INT64),
    value("c", [], T.BOOL),
    value("h", [2], T.FLOAT16),
    value("u", [], T.UINT8),
    helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(T.FLOAT, [2]))),
    helper.make_value_info("o", helper.make_optional_type_proto(half)),
]


def _body(inputs: Sequence[str], nodes: Sequence[ps.NodeProto], outputs: Sequence[str]) -> ps.GraphProto:
    infos = [[ps.ValueInfoProto(name=name) for name in names] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *infos)


_LOOPED = [call("Identity", ["go"], ["g2"]), call("Neg", ["v"], ["v2"]), call("Shape", ["v2"], ["z"])]
LOOP = _body(["i", "go", "v"], _LOOPED, ["g2", "v2", "z"])
SCAN = _body(["v", "e"], [call("Add", ["v", "v"], ["v2"]), call("Cast", ["e"], ["k"], to=T.INT64)], ["v2", "k"])
EACH = _body(["e"], [call("Cast", ["e"], ["k"], to=T.INT32)], ["k"])
THEN = _body([], [call("Cast", ["x"], ["t"], to=T.DOUBLE)], ["t"])
ELSE = _body([], [call("Cast", ["n"], ["e"], to=T.DOUBLE)], ["e"])

ROWS: list[tuple[ps.NodeProto, list[str | None]]] = [
    (call("Relu", ["h"], ["a"]), ["tensor(float16)"]),
    (call("Shape", ["x"], ["a"]), ["tensor(int64)"]),
    (call("Cast", ["x"], ["a"], to=T.INT8), ["tensor(int8)"]),
    (call("CastLike", ["x", "h"], ["a"]), ["tensor(float16)"]),
    (call("BitCast", ["x"], ["a"], to=T.INT32), ["tensor(int32)"]),
    (call("Constant", [], ["a"], value=floats("w")), ["tensor(float)"]),
    (call("Constant", [], ["a"], value_ints=[1]), ["tensor(int64)"]),
    (call("Constant", [], ["a"], value_string="s"), ["tensor(string)"]),
    (call("ConstantOfShape", ["n"], ["a"]), ["tensor(float)"]),
    (call("ConstantOfShape", ["n"], ["a"], value=helper.make_tensor("w", T.BOOL, [1], [1])), ["tensor(bool)"]),
    (call("EyeLike", ["m"], ["a"]), ["tensor(float)"]),
    (call("EyeLike", ["m"], ["a"], dtype=T.INT32), ["tensor(int32)"]),
    (call("Bernoulli", ["x"], ["a"]), ["tensor(float)"]),
    (call("Multinomial", ["m"], ["a"]), ["tensor(int32)"]),
    (call("RandomNormal", [], ["a"], shape=[2]), ["tensor(float)"]),
    (call("RandomUniform", [], ["a"], shape=[2], dtype=T.DOUBLE), ["tensor(double)"]),
    (call("RandomNormalLike", ["h"], ["a"]), ["tensor(float16)"]),
    (call("RandomUniformLike", ["h"], ["a"], dtype=T.FLOAT), ["tensor(float)"]),
    (call("HannWindow", ["u1"], ["a"]), ["tensor(float)"]),
    (call("HammingWindow", ["u1"], ["a"], output_datatype=T.DOUBLE), ["tensor(double)"]),
    (call("QuantizeLinear", ["x", "x0"], ["a"]), ["tensor(uint8)"]),
    (call("QuantizeLinear", ["x", "x0"], ["a"], output_dtype=T.INT8), ["tensor(int8)"]),
    (call("QuantizeLinear", ["x", "x0", "u"], ["a"]), ["tensor(uint8)"]),
    (call("DequantizeLinear", ["u", "x0"], ["a"]), ["tensor(float)"]),
    (call("DequantizeLinear", ["u", "x0"], ["a"], output_dtype=T.FLOAT16), ["tensor(float16)"]),
    (call("DynamicQuantizeLinear", ["x"], ["a", "b", "d"]), ["tensor(uint8)", "tensor(float)", "tensor(uint8)"]),
    (call("SequenceEmpty", [], ["a"]), ["seq(tensor(float))"]),
    (call("SequenceEmpty", [], ["a"], dtype=T.INT64), ["seq(tensor(int64))"]),
    (call("SequenceConstruct", ["n", "n"], ["a"]), ["seq(tensor(int64))"]),
    (call("SequenceInsert", ["s", "x"], ["a"]), ["seq(tensor(float))"]),
    (call("SequenceAt", ["s", "n0"], ["a"]), ["tensor(float)"]),
    (call("SequenceErase", ["s", "n0"], ["a"]), ["seq(tensor(float))"]),
    (call("SplitToSequence", ["x"], ["a"]), ["seq(tensor(float))"]),
    (call("ConcatFromSequence", ["s"], ["a"], axis=0), ["tensor(float)"]),
    (call("SequenceMap", ["s"], ["a"], body=EACH), ["seq(tensor(int32))"]),
    (call("Optional", ["x"], ["a"]), ["optional(tensor(float))"]),
    (call("Optional", [], ["a"], type=half), ["optional(tensor(float16))"]),
    (call("OptionalGetElement", ["o"], ["a"]), ["tensor(float16)"]),
    (call("OptionalGetElement", ["s"], ["a"]), ["seq(tensor(float))"]),
    (call("If", ["c"], ["a"], then_branch=THEN, else_branch=ELSE), ["tensor(double)"]),
    (call("Loop", ["", "c", "x"], ["a", "b"], body=LOOP), ["tensor(float)", "tensor(int64)"]),
    (call("Scan", ["x0", "x"], ["a", "b"], body=SCAN, num_scan_inputs=1), ["tensor(float)", "tensor(int64)"]),
    (call("Dropout", ["h"], ["a", "b"]), ["tensor(float16)", "tensor(bool)"]),
    (call("LayerNormalization", ["h", "h"], ["a", "b", "d"]), ["tensor(float16)", "tensor(float)", "tensor(float)"]),
    (call("TopK", ["x", "n1"], ["a", "b"]), ["tensor(float)", "tensor(int64)"]),
]

SCALARS = [
    value("x0", []),
    value("n0", [], T.INT64),
    value("n1", [1], T.INT64),
    value("u1", [], T.INT64),
    value("m", [2, 2]),
]


def _model(node: ps.NodeProto) -> ps.ModelProto:
    outputs = [ps.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "g", [*INPUTS, *SCALARS], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)])


def _carried(model: ps.ModelProto) -> list[str | None]:
    assert model.graph is not None
    return [text_of(found) for found in _Types(imported(model.opset_import), set(), None).graph(model.graph, None)]


def _text(proto: ps.TypeProto | None) -> str | None:
    return text_of(from_proto(proto, lambda _: 0))


def _inferred(model: ps.ModelProto) -> list[str | None]:
    """The official inference's types of the graph's outputs."""
    official = onnx.ModelProto.FromString(model.SerializeToString())
    found = onnx.shape_inference.infer_shapes(official, check_type=True, strict_mode=True)
    outputs = ps.loads(found.SerializeToString()).graph
    assert outputs is not None
    return [_text(output.type) for output in outputs.output]


@pytest.mark.parametrize(("node", "types"), ROWS, ids=[f"{row[0].op_type}-{place}" for place, row in enumerate(ROWS)])
def test_the_types_of_a_node(node: ps.NodeProto, types: list[str | None]) -> None:
    model = _model(node)
    assert _carried(model) == types
    assert _inferred(model) == types


def test_every_rule_has_a_row() -> None:
    assert set(RULES) <= {node.op_type for node, _ in ROWS}


UNDETERMINED = [  # the attribute is one of the function's, or missing; the operator is unknown
    ps.NodeProto(op_type="Cast", input=["x"], output=["a"], attribute=[helper.make_attribute_ref("to", A.INT)]),
    call("Constant", [], ["a"]),
    call("Optional", [], ["a"]),
    call("Any", ["x"], ["a"], domain="mine"),
]


@pytest.mark.parametrize("node", UNDETERMINED)
def test_what_is_not_determined_has_no_type(node: ps.NodeProto) -> None:
    assert _carried(_model(node)) == [None]


FLOAT = helper.make_tensor_type_proto(T.FLOAT, None)
TEXTS: list[tuple[ps.TypeProto | None, str | None]] = [
    (FLOAT, "tensor(float)"),
    (helper.make_tensor_type_proto(T.FLOAT8E4M3FN, []), "tensor(float8e4m3fn)"),
    (helper.make_sparse_tensor_type_proto(T.INT64, []), "sparse_tensor(int64)"),
    (helper.make_sequence_type_proto(FLOAT), "seq(tensor(float))"),
    (helper.make_optional_type_proto(helper.make_sequence_type_proto(FLOAT)), "optional(seq(tensor(float)))"),
    (helper.make_map_type_proto(T.STRING, FLOAT), "map(string,tensor(float))"),
    (helper.make_map_type_proto(T.STRING, ps.TypeProto()), None),
    (helper.make_sequence_type_proto(ps.TypeProto()), None),
    (helper.make_tensor_type_proto(99, []), "tensor(99)"),
    (ps.TypeProto(opaque_type=ps.TypeProto.Opaque(name="n")), "opaque(,n)"),
    (ps.TypeProto(sequence_type=ps.TypeProto.Sequence()), None),
]


@pytest.mark.parametrize(("proto", "text"), TEXTS)
def test_the_canonical_text_of_a_type(proto: ps.TypeProto, text: str | None) -> None:
    assert _text(proto) == text


def test_a_map_type_of_the_schemas_is_understood() -> None:
    keyed = helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.FLOAT, []))
    node = call("DictVectorizer", ["m"], ["a"], domain="ai.onnx.ml", string_vocabulary=["k"])
    graph = helper.make_graph([node], "g", [helper.make_value_info("m", keyed)], [ps.ValueInfoProto(name="a")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])
    assert _carried(model) == ["tensor(float)"]
    ps.checker.check_node(node, ps.checker.CheckerContext(opset_imports={"ai.onnx.ml": 1}))


@pytest.mark.sweep
def test_the_types_of_the_official_test_cases_are_carried() -> None:
    """Without the declared types of the outputs, ours are the same; of at least 98 in 100 there is one."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in collect_testcases(None) if case.model is not None]
    found = total = 0
    for case in cases:
        model = ps.loads(case.model.SerializeToString())
        assert model.graph is not None
        declared = [_text(output.type) for output in model.graph.output]
        for output in model.graph.output:
            output.type = None
        for ours, theirs in zip(_carried(model), declared, strict=True):
            total += 1
            found += ours is not None
            assert ours in (None, theirs), case.name
    assert found > 0.98 * total
