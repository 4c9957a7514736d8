"""The same construction scripts through onnx.helper and through ours: equal bytes, equal refusals."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.tensors import attributes

Script = Callable[[Any, Any], Any]
"""(helper module, module with the message classes) -> a message, or a list of values."""

T = onnx.TensorProto
NUMBERS = [0, 1, -1.5, 2.25, 6.0, 100.0, -3e5, 1e-3]


def _info(h: Any, name: str = "x", shape: Any = ("N", 3)) -> Any:
    return h.make_tensor_value_info(name, T.FLOAT, shape)


def _graph(h: Any, *nodes: Any, **more: Any) -> Any:
    made = nodes or (h.make_node("Relu", ["x"], ["y"]),)
    return h.make_graph(made, "g", [_info(h)], [_info(h, "y")], **more)


def _attributes(h: Any, p: Any) -> list[Any]:
    graph, tensor = _graph(h), h.make_tensor("t", T.INT64, [2], [1, -2])
    kind = h.make_tensor_type_proto(T.FLOAT, [1])
    sparse = h.make_sparse_tensor(h.make_tensor("v", T.FLOAT, [1], [2.0]), h.make_tensor("i", T.INT64, [1], [3]), [4])
    values = [
        1,
        True,
        -(2**63),
        np.int32(5),
        1.5,
        0.1,
        math.inf,
        1e300,
        -1e300,
        np.float64(0.1),
        np.float16(2),
        Fraction(1, 3),
    ]
    values += ["text", b"bytes", "", "\u00e9", graph, tensor, kind, sparse, [1, 2], (4, 5), range(3)]
    values += [
        [1, 2.5],
        [0.1],
        np.array([1, 2]),
        np.array([0.5, 1e-40]),
        ["a", b"b"],
        [tensor, tensor],
        [graph],
        [kind],
        [sparse],
    ]
    values += [{"b": 1, "a": 2}, {3}]
    return [h.make_attribute("key", value) for value in values]


def _typed_lists(h: Any, p: Any) -> list[Any]:
    kinds = p.AttributeProto
    empty = [h.make_attribute("k", [], attr_type=kinds.INTS), h.make_attribute("k", (), "doc", kinds.TYPE_PROTOS)]
    return [
        *empty,
        h.make_attribute("k", [1, 2], attr_type=kinds.FLOATS),
        h.make_attribute("k", 3, attr_type=kinds.INT),
    ]


def _model(h: Any, p: Any, **more: Any) -> Any:
    function = h.make_function(
        "my",
        "Twice",
        ["a"],
        ["b"],
        [h.make_node("Add", ["a", "a"], ["b"])],
        [h.make_opsetid("", 20)],
        attributes=["k"],
        attribute_protos=[h.make_attribute("alpha", 1.0)],
        doc_string="doc",
        overload="v2",
        value_info=[_info(h, "b")],
    )
    node = h.make_node("Twice", ["x"], ["y"], domain="my", overload="v2", k=1)
    opsets = [h.make_opsetid("", 20), h.make_operatorsetid("my", 1)]
    return h.make_model(_graph(h, node), opset_imports=opsets, functions=[function], producer_name="me", **more)


def _with_metadata(h: Any, p: Any) -> list[Any]:
    model = _model(h, p, ir_version=10)
    h.set_model_props(model, {"a": "1", "b": "2"})
    h.set_model_props(model, {"c": "3"})
    for part in (model.graph, model.graph.node[0], model.functions[0], model.graph.input[0]):
        h.set_metadata_props(part, {"k": "v"})
    return [model]


def _types(h: Any, p: Any) -> list[Any]:
    tensor = h.make_tensor_type_proto(T.FLOAT16, ["N", 3, None, 0], ["B", "C", "H", "W"])
    sequence = h.make_sequence_type_proto(tensor)
    return [
        tensor,
        sequence,
        h.make_tensor_type_proto(T.FLOAT, None),
        h.make_tensor_type_proto(T.FLOAT, ()),
        h.make_sparse_tensor_type_proto(T.INT64, [3, "M"], ["a", "b"]),
        h.make_sparse_tensor_type_proto(T.INT64, None),
        h.make_optional_type_proto(sequence),
        h.make_map_type_proto(T.STRING, sequence),
        h.make_value_info("v", sequence, "doc"),
        h.make_value_info("v", tensor),
        h.make_empty_tensor_value_info("v"),
        h.make_tensor_value_info("v", T.BOOL, [], "doc"),
        h.make_sparse_tensor_value_info("v", T.BOOL, [2], "doc", ["d"]),
        h.make_tensor_sequence_value_info("v", T.BOOL, ["a"], "doc", ["d"]),
        h.make_tensor_sequence_value_info("v", T.BOOL, None),
    ]


def _values(h: Any, p: Any) -> list[Any]:
    tensor = h.make_tensor("t", T.FLOAT, [1], [1.0])
    sequence = h.make_sequence("s", 1, [tensor, tensor])
    mapping = h.make_map("m", T.STRING, [b"a", b"b"], sequence)
    optional = h.make_optional("o", 1, tensor)
    return [
        sequence,
        mapping,
        optional,
        h.make_sequence("s", 0, []),
        h.make_sequence("s", 3, [sequence]),
        h.make_sequence("s", 4, [mapping]),
        h.make_sequence("s", 5, [optional]),
        h.make_map("m", T.INT64, [1, -1], sequence),
        h.make_map("m", T.UINT8, [], h.make_sequence("s", 0, [])),
        h.make_optional("o", 0, None),
        h.make_optional("o", 3, sequence),
        h.make_optional("o", 4, mapping),
        h.make_optional("o", 5, optional),
    ]


def _training(h: Any, p: Any) -> list[Any]:
    with_initialization = h.make_training_info(_graph(h), [("w", "w2"), ("b", "b2")], _graph(h), [("w", "i")])
    return [with_initialization, h.make_training_info(_graph(h), [], None, None)]


def _read_back(h: Any, p: Any) -> list[Any]:
    node = h.make_node(
        "Any",
        ["x"],
        ["y"],
        i=3,
        f=0.1,
        s="s",
        ints=[1, 2],
        floats=[0.1],
        strings=["a"],
        t=h.make_tensor("t", 1, [], [1]),
    )
    names = ("i", "f", "s", "ints", "floats", "strings")
    values = [h.get_node_attr_value(node, name) for name in names]
    empty = [p.AttributeProto(type=code) for code in (1, 2, 3, 6, 7, 8)]
    undefined = [p.AttributeProto(), h.make_attribute("k", [], attr_type=p.AttributeProto.TENSORS)]
    return [*values, h.get_node_attr_value(node, "t"), *map(h.get_attribute_value, [*empty, *undefined])]


def _versions(h: Any, p: Any) -> list[Any]:
    rows = [[("", 9)], [("", 20), ("ai.onnx.ml", 1)], [("", 1), ("ai.onnx.ml", 5)], [("ai.onnx", 24)], []]
    lists = [[h.make_opsetid(*pair) for pair in row] for row in rows]
    unknown = [h.make_opsetid("mine", 1), h.make_opsetid("", 18)]
    return [*map(h.find_min_ir_version_for, lists), h.find_min_ir_version_for(unknown, ignore_unknown=True)]


SCRIPTS: dict[str, Script] = {
    "node": lambda h, p: h.make_node(
        "Conv", ["x", "w", ""], ["y"], "n", "doc", "d", "o", pads=[1, 1], group=1, auto_pad="VALID"
    ),
    "node, bare": lambda h, p: h.make_node("Relu", ("x",), iter(["y"])),
    "node, empty texts": lambda h, p: h.make_node("Relu", "xy", [], name="", doc_string="", domain="", overload=""),
    "node, None is left out": lambda h, p: h.make_node("Relu", [], [], b=None, a=1),
    "graph": lambda h, p: _graph(
        h, doc_string="doc", value_info=[_info(h, "z")], initializer=[h.make_tensor("w", 1, [], [1])]
    ),
    "graph, sparse": lambda h, p: _graph(
        h,
        sparse_initializer=[h.make_sparse_tensor(h.make_tensor("v", 1, [0], []), h.make_tensor("i", 7, [0], []), [9])],
    ),
    "model": _model,
    "model, default opset": lambda h, p: h.make_model(_graph(h)),
    "model, no opset": lambda h, p: h.make_model(_graph(h), opset_imports=[]),
    "model, version by opset": lambda h, p: h.make_model_gen_version(_graph(h), opset_imports=[h.make_opsetid("", 13)]),
    "model, version given": lambda h, p: h.make_model_gen_version(_graph(h), ir_version=5, model_version=2**40),
    "attributes": _attributes,
    "typed lists": _typed_lists,
    "references": lambda h, p: [
        h.make_attribute_ref("a", p.AttributeProto.INT, "doc"),
        h.make_attribute_ref("a", p.AttributeProto.INTS, ref_attr_name="b"),
    ],
    "metadata": _with_metadata,
    "types": _types,
    "values": _values,
    "training": _training,
    "read back": _read_back,
    "IR versions": _versions,
}


def _comparable(made: Any) -> Any:
    if isinstance(made, (list, tuple)):
        return [_comparable(item) for item in made]
    return made.SerializeToString() if hasattr(made, "SerializeToString") else made


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_makes_the_same_bytes(script: Script) -> None:
    expected = _comparable(script(onnx.helper, onnx))
    assert expected is not None
    assert _comparable(script(helper, ps)) == expected


# -- tensors: every data type, from plain numbers, arrays and bytes ----------------------------------------------------

FLOATS = [code for code in range(1, 29) if T.DataType.Name(code).startswith(("FLOAT", "DOUBLE", "BFLOAT"))]
INTEGERS = [code for code in range(1, 29) if T.DataType.Name(code).startswith(("INT", "UINT"))]

TENSORS: dict[str, tuple[list[int], Script]] = {
    "floats": (FLOATS, lambda h, code: h.make_tensor("t", code, [8], NUMBERS)),
    "nested": (FLOATS, lambda h, code: h.make_tensor("t", code, (2, 2), [[0.5, 1], [2, 3]])),
    "special": ([1, 10, 11, 16], lambda h, code: h.make_tensor("t", code, [4], [math.inf, -math.inf, math.nan, -0.0])),
    "out of range": (FLOATS, lambda h, code: h.make_tensor("t", code, [2], np.array([3e38, -3e38], np.float32))),
    "integers": (INTEGERS, lambda h, code: h.make_tensor("t", code, [3], [0, 1, 1])),
    "odd number": (INTEGERS, lambda h, code: h.make_tensor("t", code, [5], np.array([1, 0, 1, 1, 0]))),
    "empty": ([*FLOATS, *INTEGERS, 8, 9], lambda h, code: h.make_tensor("t", code, [0, 3], [])),
    "scalar": ([*FLOATS, *INTEGERS, 9], lambda h, code: h.make_tensor("", code, [], [1])),
    "negative": ([3, 5, 6, 7, 22, 26], lambda h, code: h.make_tensor("t", code, [4], [-1, -2, 1, 0])),
    "largest": (
        [6, 7, 13],
        lambda h, code: h.make_tensor("t", code, [2], [2**31 - 1, {6: -(2**31), 7: -(2**63), 13: 2**64 - 1}[code]]),
    ),
    "bool": ([9], lambda h, code: h.make_tensor("t", code, [4], [True, False, 1, 0])),
    "complex": ([14, 15], lambda h, code: h.make_tensor("t", code, [2], [1 + 2j, -0.5])),
    "strings": ([8], lambda h, code: h.make_tensor("t", code, [2, 2], [["a", "\u00e9"], ["", "long" * 9]])),
    "bytes": ([8], lambda h, code: h.make_tensor("t", code, [2], [b"a", b"b"])),
    "ml_dtypes": ([16], lambda h, code: h.make_tensor("t", code, [2], np.array([1.5, 2], ml_dtypes.bfloat16))),
    "ml_dtypes int4": ([22], lambda h, code: h.make_tensor("t", code, [3], np.array([1, -8, 7], ml_dtypes.int4))),
    "raw bytes": ([2, 3, 9, 17, 24], lambda h, code: h.make_tensor("t", code, [3], b"\x00\x01\xff", raw=True)),
    "raw 16": ([4, 5, 10, 16], lambda h, code: h.make_tensor("t", code, [1], b"\x00\x3c", raw=True)),
    "raw packed": ([21, 22, 23], lambda h, code: h.make_tensor("t", code, [3], b"\x21\x03", raw=True)),
    "raw array": (
        [1],
        lambda h, code: h.make_tensor("t", code, [2, 3], np.arange(6, dtype=np.float32).reshape(2, 3), raw=True),
    ),
    "raw strided": ([7], lambda h, code: h.make_tensor("t", code, [3], np.arange(6)[::2], raw=True)),
    "raw big-endian": ([6], lambda h, code: h.make_tensor("t", code, [2], np.array([1, 2], ">i4"), raw=True)),
    "raw small array": (
        [21, 22, 23, 25, 26, 27, 28],
        lambda h, code: h.make_tensor("t", code, [8], np.arange(8, dtype=np.uint8), raw=True),
    ),
}
ROWS = [(name, code, script) for name, (types, script) in TENSORS.items() for code in types]


@pytest.mark.parametrize(("name", "code", "script"), ROWS, ids=[f"{n}-{T.DataType.Name(c)}" for n, c, _ in ROWS])
def test_a_tensor_has_the_same_bytes(name: str, code: int, script: Script) -> None:
    with np.errstate(all="ignore"):
        expected = script(onnx.helper, code)
        ours = script(helper, code)
    assert ours.SerializeToString() == expected.SerializeToString()


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, Script, type[Exception], str]] = [
    (
        "empty list",
        lambda h, p: h.make_attribute("k", []),
        ValueError,
        "'k': an empty list has no type; pass attr_type",
    ),
    (
        "mixed list",
        lambda h, p: h.make_attribute("k", [1, "a"]),
        ValueError,
        "'k': a list of int, str has no attribute type",
    ),
    ("no value", lambda h, p: h.make_attribute("k", None), TypeError, "'k': a NoneType is not an attribute value"),
    ("decimal", lambda h, p: h.make_attribute("k", Decimal(1)), TypeError, "a Decimal is not"),
    ("other type", lambda h, p: h.make_attribute("k", 1, attr_type=3), TypeError, "of type INT, not STRING"),
    (
        "list for one",
        lambda h, p: h.make_attribute("k", [1], attr_type=3),
        (TypeError, AssertionError),
        "a list, not of type STRING",
    ),
    ("floats for ints", lambda h, p: h.make_attribute("k", [1.5], attr_type=7), TypeError, "float"),
    ("no reference", lambda h, p: h.make_attribute_ref("", 1), ValueError, "must name an attribute"),
    (
        "value of a reference",
        lambda h, p: h.get_attribute_value(h.make_attribute_ref("a", 1)),
        ValueError,
        "refers to 'a'",
    ),
    (
        "no such attribute",
        lambda h, p: h.get_node_attr_value(h.make_node("Relu", [], []), "a"),
        ValueError,
        "node 'Relu' has 0 attributes named 'a'",
    ),
    ("dimension", lambda h, p: h.make_tensor_type_proto(1, [1.5]), ValueError, "not 1.5"),
    (
        "denotations",
        lambda h, p: h.make_tensor_type_proto(1, [1], ["a", "b"]),
        ValueError,
        "has 2 entries for a shape of rank 1",
    ),
    (
        "too few values",
        lambda h, p: h.make_tensor("t", 1, [3], [1.0]),
        ValueError,
        "tensor 't': 1 values for the shape [3]",
    ),
    (
        "too few bytes",
        lambda h, p: h.make_tensor("t", 1, [3], b"1234", raw=True),
        ValueError,
        "4 bytes for FLOAT [3], which needs 12",
    ),
    (
        "raw strings",
        lambda h, p: h.make_tensor("t", 8, [1], b"a", raw=True),
        TypeError,
        "strings cannot be stored in raw_data",
    ),
    ("raw list", lambda h, p: h.make_tensor("t", 1, [1], [1.0], raw=True), TypeError, "not a list"),
    ("out of range", lambda h, p: h.make_tensor("t", 2, [1], [300]), OverflowError, "300"),
    ("unknown opset", lambda h, p: h.find_min_ir_version_for([h.make_opsetid("", 999)]), ValueError, "opset 999"),
    ("unknown domain", lambda h, p: h.find_min_ir_version_for([h.make_opsetid("mine", 1)]), ValueError, "'mine'"),
    ("strip a list", lambda h, p: h.strip_doc_string([]), TypeError, "not a list"),
    ("kind of sequence", lambda h, p: h.make_sequence("s", 9, []), TypeError, "9 is not a kind"),
    ("kind of optional", lambda h, p: h.make_optional("s", 9, None), TypeError, "9 is not a kind"),
    ("numpy type", lambda h, p: h.np_dtype_to_tensor_dtype(np.dtype("M8[s]")), ValueError, "datetime64"),
]


@pytest.mark.parametrize(("script", "kind", "message"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_a_refusal_is_the_same_and_says_why(script: Script, kind: Any, message: str) -> None:
    with pytest.raises(kind):
        script(onnx.helper, onnx)
    with pytest.raises(kind, match=re.escape(message)):
        script(helper, ps)


def test_an_unknown_data_type_is_refused() -> None:
    with pytest.raises(TypeError, match="data type 99"):
        helper.make_tensor("t", 99, [1], [1.0])


# -- data types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", range(1, 29), ids=T.DataType.Name)
def test_the_facts_about_a_data_type_are_the_same(code: int) -> None:
    for name in ("tensor_dtype_to_string", "tensor_dtype_to_storage_tensor_dtype", "tensor_dtype_to_field"):
        assert getattr(helper, name)(code) == getattr(onnx.helper, name)(code)
    official = onnx.helper.tensor_dtype_to_np_dtype(code)
    assert helper.np_dtype_to_tensor_dtype(official) == code
    if official.kind != "V" and official.type.__module__ == "numpy":
        assert helper.tensor_dtype_to_np_dtype(code) == official


def test_all_data_types_are_there() -> None:
    assert helper.get_all_tensor_dtypes() == onnx.helper.get_all_tensor_dtypes()
    assert helper.np_dtype_to_tensor_dtype(np.dtype("<U3")) == T.STRING


# -- what is ours alone ------------------------------------------------------------------------------------------------


def _public(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if callable(value) and value.__module__ == module.__name__ and name[0] != "_"
    }


def test_every_function_of_the_official_helper_is_here() -> None:
    assert _public(onnx.helper) - set(helper.__all__) == set()


# attributes of one node after another: equal values of other types, signs of zeros, what is at the edge of a limit
VALUES: list[Any] = [
    *(1, True, 1.0, np.int64(1), np.float32(1), "1", b"1", [1], (1,), [True], [1.0], ["1"], [b"1"], [1, 2.5]),
    *(0, False, 0.0, -0.0, [0.0], [-0.0], -1, 2**63 - 1, -(2**63), 0.1, 1e300, float("inf"), 127, 128, 300),
    *("", "\u00e9", "n" * 127, "n" * 256, "n" * 257, list(range(16)), list(range(17)), ["ab", ""], ["x" * 500] * 16),
]
NAMES: list[list[Any]] = [[], [""], ["a", "b"], ["n" * 127], ["n" * 128, "a"], ["\u00e9"], ["a", "\x7f"], ["a"] * 300]


def _twins() -> list[tuple[ps.NodeProto, ps.NodeProto]]:
    """For each value and each list of names: a node of make_node, and one that was made of lists of objects."""
    some = [(["x"], [], value) for value in VALUES] + [(names, names[:1], 5) for names in NAMES]
    return [
        (
            helper.make_node("A", inputs, outputs, k=value, b=1),
            ps.NodeProto(
                op_type="A",
                input=inputs,
                output=outputs,
                attribute=[helper.make_attribute("b", 1), helper.make_attribute("k", value)],
            ),
        )
        for inputs, outputs, value in [*some, *reversed(some)]
    ]


def test_a_node_that_is_made_as_text_is_the_same() -> None:
    assert sum(type(node._input) is type(node._attribute) is str for node, _ in _twins()) == 2 * 27
    for node, whole in _twins():
        assert node.SerializeToString() == whole.SerializeToString()
        assert node.ByteSize() == whole.ByteSize()
        copied = copy.deepcopy(node)
        assert repr(node.attribute[1]) == repr(whole.attribute[1])
        assert node.attribute[1] is node.attribute[1]
        assert (node.input, node.output) == (whole.input, whole.output)
        assert node == whole == copied
        assert node.SerializeToString() == whole.SerializeToString()


@pytest.mark.parametrize(
    ("inputs", "attributes", "place"),
    [
        (["x", None], {}, "input[1]"),
        (["x", "\ud800"], {}, "input[1]"),
        (["x"], {"a": 1, "k": 2**63}, "attribute[1].i"),
        (["x"], {"a": 1, "k": [1, -(2**63) - 1]}, "attribute[1].ints"),
        (["x"], {"a\ud800": 1}, "attribute[0].name"),
    ],
)
def test_what_cannot_be_written_is_refused_when_it_is_written(inputs: Any, attributes: Any, place: str) -> None:
    node = helper.make_node("A", inputs, [], **attributes)
    with pytest.raises(ps.EncodeError, match=re.escape(place)):
        ps.GraphProto(node=[node]).SerializeToString()
    with pytest.raises(ps.EncodeError, match=re.escape(place)):
        node.SerializeToString()


def test_an_input_is_the_object_that_was_given_where_it_is_no_str() -> None:
    class Name(str):
        __slots__ = ()

    name = Name("x")
    assert helper.make_node("A", [name], []).input[0] is name


def test_what_is_long_is_not_kept() -> None:
    before = attributes._attribute_text.cache_info().currsize
    made = [helper.make_node("A", [], ["y"], k=value) for value in (["x" * 10000], 10**1000, [10**1000], "y" * 10000)]
    assert all(isinstance(node._attribute, list) for node in made)
    assert attributes._attribute_text.cache_info().currsize == before


def test_two_nodes_of_one_list_share_nothing() -> None:
    names, axes = ["x"], [1, 2]
    one, other = (helper.make_node("A", names, names, axes=axes) for _ in range(2))
    names.append("y")
    axes.append(3)
    one.input.append("z")
    one.attribute[0].ints.append(4)
    assert (one.input, one.output, other.input) == (["x", "z"], ["x"], ["x"])
    assert (one.attribute[0].ints, other.attribute[0].ints) == ([1, 2, 4], [1, 2])


def test_nothing_is_copied() -> None:
    weights = np.zeros(1 << 16, np.float32)
    tensor = helper.make_tensor("w", T.FLOAT, [1 << 16], weights, raw=True)
    graph = helper.make_graph([], "g", [], [], [tensor])
    assert helper.make_model(graph).graph is graph
    assert graph.initializer[0] is tensor
    weights[0] = 1.0
    assert bytes(memoryview(tensor.raw_data)[:4]) == b"\x00\x00\x80\x3f"


def test_a_payload_may_be_raw_data() -> None:
    payload = ps.LazyPayload(8, lambda: b"12345678")
    tensor = helper.make_tensor("w", T.FLOAT, [2], payload, raw=True)
    assert tensor.raw_data is payload


def test_a_reference_takes_name_and_type_of_an_attribute() -> None:
    made = helper.make_attribute_ref_name(helper.make_attribute("alpha", 1.0), "beta")
    assert made == helper.make_attribute_ref("alpha", ps.AttributeProto.FLOAT, ref_attr_name="beta")


def test_doc_strings_are_stripped_at_every_depth() -> None:  # the official one fails with the pinned protobuf
    def build(doc: str | None) -> ps.ModelProto:
        inner = helper.make_graph([helper.make_node("Relu", ["x"], ["z"], doc_string=doc)], "i", [], [], doc_string=doc)
        node = helper.make_node("If", ["c"], ["y"], doc_string=doc, then_branch=inner, else_branch=inner)
        value = helper.make_tensor_value_info("y", T.FLOAT, [], doc or "")
        return helper.make_model(helper.make_graph([node], "g", [], [value], doc_string=doc), doc_string=doc)

    model = build("words")
    helper.strip_doc_string(model)
    assert model == build(None)


def test_booleans_in_a_list_are_integers() -> None:  # onnx.helper takes a single bool, but fails on a list of them
    assert helper.make_attribute("k", [True, False]).ints == [1, 0]
