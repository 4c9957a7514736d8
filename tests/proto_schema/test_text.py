"""The printed forms, character by character as the official package prints the same bytes."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import helper, text
from proto_schema.printer import to_text

T = ps.TensorProto


def _info(name: str, shape: Any = ("N", 3, None), code: int = T.FLOAT) -> ps.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def _weights(name: str, **more: Any) -> ps.TensorProto:
    return helper.make_tensor(name, T.FLOAT, [2], [0.1, 1e30], **more)


def _graph(*nodes: ps.NodeProto, name: str = "g", **more: Any) -> ps.GraphProto:
    return helper.make_graph(nodes, name, [_info("x")], [_info("y", [])], **more)


def _branches() -> ps.NodeProto:
    inner = helper.make_node("If", ["c"], ["z"], then_branch=_graph(name="t t"), else_branch=_graph(name="e"))
    return helper.make_node("If", ["c"], ["y", "z"], "if", then_branch=_graph(inner), else_branch=_graph(), k=1)


def _kinds(odd: bytes = b"\xff\xfea\x00") -> ps.NodeProto:
    kind = helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.INT64, ["a b", 2]))
    sparse = helper.make_sparse_tensor(_weights("v"), helper.make_tensor("i", T.INT64, [2], [0, 1]), [5])
    scalar = helper.make_tensor("s", T.FLOAT, [], [0.1])
    raw_scalar = helper.make_tensor("s", T.FLOAT, [], b"\x00\x00\x80\x3f", raw=True)
    values = {
        "f": 0.1,
        "i": -5,
        "s": 'it\'s "q"\n\\',
        "long": "x" * 70,
        "b": odd,
        "t": _weights("w"),
        "t0": scalar,
        "t00": raw_scalar,
        "floats": [0.1, 1e-7, 1e20, 16777216.0, 3.0],
        "ints": [1, 2],
        "strings": ["a", "b c"],
        "tensors": [scalar, scalar],
        "tp": kind,
        "tps": [kind, kind],
        "sp": sparse,
        "sps": [sparse],
    }
    return helper.make_node("Kinds", ["x", ""], ["y"], **values)


def _unset() -> ps.NodeProto:
    undefined = [ps.AttributeProto(name="u"), helper.make_attribute("k", [], attr_type=7)]
    return ps.NodeProto(op_type="Any", output=["y"], attribute=[*undefined, helper.make_attribute_ref("r", 1)])


GRAPHS: dict[str, Callable[[], ps.GraphProto]] = {
    "plain": lambda: _graph(helper.make_node("Relu", ["x"], ["y"])),
    "every kind of attribute": lambda: _graph(_kinds()),
    "nothing set": lambda: _graph(_unset()),
    "no outputs": lambda: helper.make_graph([helper.make_node("Sink", ["x"], [])], "g", [_info("x")], []),
    "no inputs": lambda: helper.make_graph([], "g", [], [_info("y")], [_weights("w")]),
    "initializers": lambda: _graph(initializer=[_weights("w"), helper.make_tensor("s s", T.INT64, [], [1])]),
    "defaulted inputs": lambda: _graph(initializer=[_weights("x")]),
    "both": lambda: _graph(initializer=[_weights("x"), _weights("w")]),
    "subgraphs": lambda: _graph(_branches()),
    "types": lambda: helper.make_graph(
        [],
        "my graph",
        [
            _info("a", []),
            _info("b", None),
            helper.make_tensor_sequence_value_info("c", T.INT8, [1]),
            helper.make_sparse_tensor_value_info("d", T.BOOL, ["q-r"]),
            helper.make_value_info("e", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None))),
            helper.make_value_info("f", ps.TypeProto(opaque_type=ps.TypeProto.Opaque(domain="d", name="n"))),
            helper.make_value_info("g", ps.TypeProto(opaque_type=ps.TypeProto.Opaque())),
            helper.make_empty_tensor_value_info("h"),
            helper.make_value_info("i", helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))),
            helper.make_sparse_tensor_value_info("j", T.BOOL, None),
        ],
        [_info("\u00e9"), _info("1st")],
    ),
}


def _official(message: Any) -> Any:
    return getattr(onnx, type(message).__name__).FromString(message.SerializeToString())


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS.keys())
def test_printable_graph_is_the_same(build: Callable[[], ps.GraphProto]) -> None:
    graph = build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = onnx.helper.printable_graph(_official(graph), "    ")
    assert text.printable_graph(graph, "    ") == expected


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS.keys())
def test_text_format_is_the_same(build: Callable[[], ps.GraphProto]) -> None:
    assert text.text_format(build()) == str(_official(build()))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (helper.make_tensor("d", T.DOUBLE, [4], [0.1, 1e300, math.nan, -math.inf]), None),
        (helper.make_tensor("\u00e9\n\t\"'\\\x7f\x01", T.FLOAT, [2], [1 / 3, 123456.79]), None),
        (ps.TensorProto(raw_data=bytes(range(0, 256, 5)), data_location=1, dims=[-1, 0]), None),
        (ps.ModelProto(), ""),
        (ps.StringStringEntryProto.FromString(b"\n\x01k\x98\x06\x01"), 'key: "k"\n'),
    ],
)
def test_text_format_of_odd_values(message: ps.Message, expected: str | None) -> None:
    assert text.text_format(message) == (str(_official(message)) if expected is None else expected)


def test_a_single_node_and_attribute() -> None:
    node = _branches()
    line, graphs = text.printable_node(node, "> ", subgraphs=True)
    assert (line, [graph.name for graph in graphs]) == (
        "> %y, %z = If[else_branch = <graph g>, k = 1, then_branch = <graph g>](%c)",
        ["g", "g"],
    )
    assert text.printable_node(node) == line[2:]
    assert text.printable_attribute(node.attribute[0]) == "else_branch = <graph g>"


def test_a_data_type_without_a_name_is_a_number() -> None:
    odd = ps.TensorProto(name="w", data_type=99, dims=[2])
    assert text.printable_tensor_proto(odd) == "%w[99, 2]"
    assert to_text(_graph(initializer=[odd])).splitlines()[1] == "   <undefined[2] w = ...>"


# -- the syntax of onnx.printer ----------------------------------------------------------------------------------------


def _function() -> ps.FunctionProto:
    reference = helper.make_attribute_ref("alpha", ps.AttributeProto.FLOAT, ref_attr_name="a")
    node = ps.NodeProto(op_type="Elu", input=["x"], output=["y"], attribute=[reference])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    return helper.make_function("my.domain", "my_fn", ["x"], ["y"], [node], imports, ["a", "b"], overload="o")


def _model() -> ps.ModelProto:
    call = helper.make_node("my_fn", ["x"], ["y"], domain="my.domain", overload="o")
    model = helper.make_model(
        _graph(call),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)],
        functions=[_function(), helper.make_function("d", "f", [], [], [], [])],
        producer_name='me "q"',
        producer_version="",
        domain="d",
        model_version=3,
        doc_string="back\\slash",
    )
    helper.set_model_props(model, {"k": "v", "l": "w"})
    return model


def _of_type(code: int, raw: bool) -> ps.TensorProto:
    if raw:
        data = np.arange(8, dtype=np.uint8) * 31
        width = {1: 4, 11: 8, 4: 2, 5: 2, 10: 2, 16: 2, 6: 4, 12: 4, 7: 8, 13: 8}.get(code, 1)
        return helper.make_tensor("w", code, [8 // width], data.tobytes(), raw=True)
    values: list[Any] = ["a", 'b"', ""] if code == T.STRING else [0, 1, 1]
    return helper.make_tensor("w", code, [3], values)


SINGLE_BYTES = (2, 3, 9, 17, 18, 19, 20, 24)
TYPED = range(1, 27)
RAW = [*SINGLE_BYTES, 1, 4, 5, 6, 7, 10, 11, 12, 13, 16]
TEXTS: dict[str, Callable[[], Any]] = {
    **{f"graph, {name}": build for name, build in GRAPHS.items()},
    "model": _model,
    "model, bare": ps.ModelProto,
    "function": _function,
    "graph, every kind of attribute": lambda: _graph(_kinds(b"text")),  # the official printer fails on other bytes
    "node": lambda: _kinds(b"text"),
    "node, subgraphs": _branches,
    "value infos": lambda: _graph(value_info=[_info("v"), _info("w w")], initializer=[_weights("w")]),
    "typed data": lambda: _graph(initializer=[_of_type(code, False) for code in TYPED]),
    "raw data": lambda: _graph(initializer=[_of_type(code, True) for code in RAW]),
    "empty strings": lambda: _graph(initializer=[helper.make_tensor("s", T.STRING, [0], [])]),
    "external": lambda: _graph(initializer=[_external()]),
    "graphs attribute": lambda: helper.make_node("Any", [], ["y"], gs=[_graph(_branches()), _graph()]),
}


def _external() -> ps.TensorProto:
    location = ps.StringStringEntryProto(key="location", value="a.bin")
    return ps.TensorProto(name="e", data_type=1, dims=[1], data_location=T.EXTERNAL, external_data=[location])


@pytest.mark.parametrize("build", TEXTS.values(), ids=TEXTS.keys())
def test_to_text_is_the_same(build: Callable[[], Any]) -> None:
    message = build()
    assert to_text(message) == onnx.printer.to_text(_official(message))


def test_numbers_are_printed_the_same() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 20_000, dtype=np.uint32)
    powers = np.float32(10.0) ** np.arange(-45, 39)
    whole = np.array([1, 10, 100, 12345, 99999, 100000, 123456, 1234567, 16777216, 16777218, 2**31, 2**53, 10**15])
    floats = np.concatenate([bits.view(np.float32), powers.astype(np.float32), whole.astype(np.float32)])
    doubles = np.concatenate(
        [random.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64), whole, 10.0 ** -whole[:7]]
    )
    tensors = [
        helper.make_tensor("f", T.FLOAT, floats.shape, floats, raw=True),
        helper.make_tensor("d", T.DOUBLE, doubles.shape, doubles.astype(np.float64), raw=True),
    ]
    graph = _graph(initializer=tensors)
    ours, theirs = to_text(graph).split(","), onnx.printer.to_text(_official(graph)).split(",")
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []


def test_raw_data_of_another_size_is_refused() -> None:
    short = ps.TensorProto(name="w", data_type=T.FLOAT, dims=[2], raw_data=b"1234")
    with pytest.raises(ValueError, match=re.escape("tensor 'w': raw_data has 4 bytes, its shape [2] needs 8")):
        to_text(_graph(initializer=[short]))


def test_other_messages_have_no_textual_syntax() -> None:
    with pytest.raises(TypeError, match="not a TensorProto"):
        to_text(ps.TensorProto())  # type: ignore[arg-type]
