"""Messages as Python objects: presence, oneofs, equality, copies, the protobuf names, errors that name the field."""

from __future__ import annotations

import array
import copy
import linecache
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import proto_schema as ps
from proto_schema.wire import codec, generate, interpret
from proto_schema.wire.fields import MESSAGE

NODE = b"\n\x01x\x12\x01y\x22\x04Relu"


def relu() -> ps.NodeProto:
    return ps.NodeProto(op_type="Relu", input=["x"], output=["y"])


def test_construct_and_encode() -> None:
    assert relu().SerializeToString() == NODE
    assert relu().ByteSize() == len(NODE)
    assert ps.NodeProto.FromString(NODE) == relu()
    assert ps.NodeProto().input == [] and ps.NodeProto().name is None
    assert repr(relu()) == "NodeProto(input=['x'], output=['y'], op_type='Relu')"


def test_a_list_given_to_the_constructor_is_copied() -> None:
    names = ["x"]
    node = ps.NodeProto(input=names)
    names.append("y")
    assert node.input == ["x"]


def test_repeated_fields_are_plain_lists() -> None:
    node = ps.NodeProto()
    held = node.input
    held.append("x")
    assert node.input is held and type(held) is list and node.SerializeToString() == b"\n\x01x"
    node.output = ("a", "b")  # type: ignore[assignment]
    assert node.output == ["a", "b"] and type(node.output) is list
    mine = ["q"]
    node.output = mine
    assert node.output is mine
    node.output = None  # type: ignore[assignment]
    assert node.output == [] and node == ps.NodeProto(input=["x"])
    untouched, read = ps.NodeProto(), ps.NodeProto()
    assert read.attribute == [] and untouched == read and repr(read) == "NodeProto()"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: setattr(ps.NodeProto(), "input", "xyz"), TypeError),
        (lambda: ps.NodeProto(op_typ="Relu"), TypeError),
        (lambda: ps.NodeProto("Relu"), TypeError),
        (lambda: ps.NodeProto(input="xyz"), TypeError),
        (lambda: setattr(ps.NodeProto(), "op_typ", "Relu"), AttributeError),
        (lambda: ps.NodeProto().HasField("input"), ValueError),
        (lambda: ps.NodeProto().HasField("nothing"), ValueError),
        (lambda: ps.NodeProto().ClearField("nothing"), ValueError),
        (lambda: ps.TypeProto().WhichOneof("denotation"), ValueError),
        (lambda: ps.NodeProto().CopyFrom(ps.GraphProto()), TypeError),
        (lambda: hash(ps.NodeProto()), TypeError),
        (lambda: type("Mine", (ps.NodeProto,), {}), TypeError),
    ],
)
def test_misuse(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_presence() -> None:
    attribute = ps.AttributeProto(i=0, name="")
    assert attribute.HasField("i") and attribute.HasField("name") and not attribute.HasField("f")
    attribute.ClearField("i")
    assert attribute.i is None
    attribute.ints = [1]
    attribute.ClearField("ints")
    assert attribute.ints == []
    attribute.Clear()
    assert attribute == ps.AttributeProto()


def test_oneof() -> None:
    dim = ps.TensorShapeProto.Dimension(dim_value=3)
    dim.dim_param = "N"
    assert dim.dim_value is None and dim.WhichOneof("value") == "dim_param" and dim.HasField("value")
    dim.dim_param = None
    assert dim.WhichOneof("value") is None and not dim.HasField("value")
    dim.dim_value = 0
    dim.ClearField("value")
    assert dim == ps.TensorShapeProto.Dimension()
    dim.ClearField("value")
    kind = ps.TypeProto(tensor_type=ps.TypeProto.Tensor(elem_type=1), denotation="IMAGE")
    kind.sequence_type = ps.TypeProto.Sequence()
    assert kind.tensor_type is None and kind.denotation == "IMAGE"
    assert ps.TypeProto.FromString(kind.SerializeToString()) == kind


def test_copies_are_deep_and_share_payloads() -> None:
    payload = memoryview(bytes(100))
    model = ps.ModelProto(
        graph=ps.GraphProto(node=[relu()], initializer=[ps.TensorProto(raw_data=payload, dims=[100])])
    )
    other = ps.ModelProto()
    other.CopyFrom(model)
    for made in (other, copy.deepcopy(model)):
        assert made == model and made.graph is not None and model.graph is not None
        assert made.graph.node[0] is not model.graph.node[0]
        assert made.graph.initializer[0].raw_data is payload
        made.graph.node[0].input.append("z")
        made.graph.initializer[0].dims.append(1)
        assert made != model
    shallow = copy.copy(model)
    assert shallow.graph is model.graph
    assert model.graph is not None
    graph = model.graph
    model.CopyFrom(model)
    assert model.graph is graph
    assert pickle.loads(pickle.dumps(model)) == model


def test_copies_know_where_external_data_lies(tmp_path: Path) -> None:
    tensor = ps.TensorProto(name="w", dims=[4], data_type=2, raw_data=b"abcd")
    model = ps.ModelProto(graph=ps.GraphProto(initializer=[tensor]))
    ps.save(model, tmp_path / "m", external_data=True, size_threshold=0)
    loaded: Any = ps.load(tmp_path / "m")
    external = loaded.graph.initializer[0]
    assert ps.numpy_helper.to_array(external).tobytes() == b"abcd"
    taken = ps.TensorProto()
    taken.CopyFrom(external)
    for made in (taken, copy.copy(external), copy.deepcopy(external)):
        assert ps.numpy_helper.to_array(made).tobytes() == b"abcd"


def test_equality() -> None:
    assert relu() != ps.NodeProto() and relu() != 3 and (relu() == NODE) is False
    assert ps.NodeProto(name="") != ps.NodeProto()
    assert ps.NodeProto.FromString(bytes.fromhex("a00601")) != ps.NodeProto()
    assert ps.TensorProto(raw_data=b"ab") == ps.TensorProto(raw_data=memoryview(b"ab"))


def test_parse_and_merge() -> None:
    node = ps.NodeProto(name="old", input=["a"])
    assert node.ParseFromString(NODE) == len(NODE)
    assert node == relu()
    with pytest.raises(ps.DecodeError):
        node.ParseFromString(NODE[:-1])
    assert node == relu()
    assert node.MergeFromString(NODE + bytes.fromhex("a00601")) == len(NODE) + 3
    assert node.input == ["x", "x"] and node.unknown_fields == bytes.fromhex("a00601")
    model = ps.ModelProto(graph=ps.GraphProto(name="g"))
    model.MergeFrom(ps.ModelProto(graph=ps.GraphProto(doc_string="d"), ir_version=3))
    assert model == ps.ModelProto(graph=ps.GraphProto(name="g", doc_string="d"), ir_version=3)


def test_no_field_is_required() -> None:
    assert ps.ModelProto().IsInitialized() and relu().IsInitialized()
    assert relu().SerializePartialToString() == NODE


def test_list_fields_ascend() -> None:
    node = ps.NodeProto(doc_string="d", attribute=[ps.AttributeProto()], input=["x"])
    assert [field.name for field, _ in node.ListFields()] == ["input", "attribute", "doc_string"]


def test_repr_is_bounded() -> None:
    tensor = ps.TensorProto(raw_data=bytes(10**6), int64_data=range(10**6))
    assert len(repr(tensor)) < 300
    assert "<1000000 bytes>" in repr(tensor) and "... 999984 more" in repr(tensor)
    shown = [repr(ps.AttributeProto(s=bytes(size), ints=[0] * count)) for size, count in ((64, 16), (65, 17))]
    assert "..." not in shown[0] and "bytes>" not in shown[0]
    assert "s=<65 bytes>" in shown[1] and "0, ... 1 more]" in shown[1]
    floats = memoryview(array.array("f", [0.0] * 20))
    assert repr(ps.TensorProto(raw_data=floats)) == "TensorProto(raw_data=<80 bytes>)"
    assert "unknown_fields=b'" in repr(ps.NodeProto.FromString(bytes.fromhex("a00601")))


def model_of(**attribute: Any) -> ps.ModelProto:
    nodes = [relu(), ps.NodeProto(attribute=[ps.AttributeProto(), ps.AttributeProto(**attribute)])]
    return ps.ModelProto(graph=ps.GraphProto(node=nodes))


ENCODE_ERRORS = [  # a wrong field of the attribute graph.node[1].attribute[1], the step of the path, the reason
    (model_of(name=3), "name", "3: expected str, not int"),
    (model_of(name="\ud800"), "name", "surrogates not allowed"),
    (model_of(i=1.5), "i", "'float' object cannot be interpreted as an integer"),
    (model_of(i="1"), "i", "cannot be interpreted as an integer"),
    (model_of(i=2**63), "i", "does not fit an int64 field"),
    (model_of(i=-(2**63) - 1), "i", "does not fit an int64 field"),
    (model_of(type=99), "type", "99 is not a value of AttributeProto.AttributeType"),
    (model_of(f="x"), "f", "must be real number"),
    (model_of(s="text"), "s", "expected bytes, not str"),
    (model_of(s=object()), "s", "a bytes-like object is required"),
    (model_of(t=ps.GraphProto()), "t", "expected TensorProto, not GraphProto"),
    (model_of(ints=[1, None]), "ints[1]", "None: "),
    (model_of(floats=[1.0, "x"]), "floats[1]", "'x': "),
    (model_of(strings=[b"a", 5]), "strings[1]", "5: "),
    (model_of(tensors=[None]), "tensors[0]", "expected TensorProto, not NoneType"),
    (model_of(t=ps.TensorProto(int32_data=[1, 2**31])), "t.int32_data", "2147483648 does not fit an int32 field"),
    (model_of(t=ps.TensorProto(int32_data=[0] * 99 + [2**31])), "t.int32_data", "2147483648 does not fit an int32"),
    (model_of(t=ps.TensorProto(int64_data=[0] * 99 + [0.5])), "t.int64_data", "cannot be interpreted"),
    (model_of(t=ps.TensorProto(uint64_data=[-1])), "t.uint64_data", "does not fit an uint64 field"),
    (model_of(t=ps.TensorProto(float_data=["x"])), "t.float_data", "'x'"),
    (model_of(t=ps.TensorProto(data_type=2**31)), "t.data_type", "does not fit an int32 field"),
]


@pytest.mark.parametrize(
    ("model", "step", "reason"), ENCODE_ERRORS, ids=[f"{row[1]}: {row[2]}" for row in ENCODE_ERRORS]
)
def test_encode_errors_name_the_field(model: ps.ModelProto, step: str, reason: str) -> None:
    with pytest.raises(ps.EncodeError) as caught:
        model.SerializeToString()
    assert caught.value.path == f"graph.node[1].attribute[1].{step}"
    assert str(caught.value).startswith(f"{caught.value.path}: ") and reason in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_has_no_size_is_refused_with_the_same_words() -> None:
    refused = 0
    for model, _, _ in ENCODE_ERRORS:
        with pytest.raises(ps.EncodeError) as caught:
            model.SerializeToString()
        try:
            model.ByteSize()  # numbers are counted, not checked
        except ps.EncodeError as error:
            assert str(error) == str(caught.value)
            refused += 1
    assert refused == 13


def test_numbers_of_other_kinds_encode() -> None:
    import numpy as np

    attribute = ps.AttributeProto(
        i=np.int64(-5), f=np.float32(1.5), ints=[np.uint8(3), True], floats=[1, 1e300, -1e300]
    )
    again = ps.AttributeProto.FromString(attribute.SerializeToString())
    assert (again.i, again.f, again.ints, again.floats) == (-5, 1.5, [3, 1], [1.0, float("inf"), float("-inf")])
    beyond = ps.TensorProto(float_data=[1e300, 1.0, -1e300])
    assert ps.TensorProto.FromString(beyond.SerializeToString()).float_data == [float("inf"), 1.0, float("-inf")]
    long = ps.TensorProto(int64_data=np.arange(-100, 100), uint64_data=[2**64 - 1] * 70, float_data=np.ones(99))
    assert ps.TensorProto.FromString(long.SerializeToString()) == long


DECODE_ERRORS = [  # hex of a ModelProto, the message
    ("08", "@0x1: truncated varint"),
    ("3a04" + "0a022a80", "graph.node[0] @0x5: truncated length"),
    ("3a06" + "0a042a020a05", "graph.node[0].attribute[0] @0x7: truncated: a length of 5 bytes, but 0 are left here"),
    ("3a08" + "0a001200" + "0a022aff", "graph.node[1] @0x9: truncated length"),
    ("3a02" + "0a0100", "graph @0x3: truncated: a length of 1 bytes, but 0 are left here"),
    ("3a05" + "2a032a0180", "graph.initializer[0].int32_data @0x6: truncated varint in a packed field"),
    (
        "3a0a" + "2a08" + "2206" + "000000000000",
        "graph.initializer[0].float_data @0x6: a packed float field of 6 bytes",
    ),
    (
        "3a4d2a4b2a49" + "01" * 64 + "80" * 9,
        "graph.initializer[0].int32_data @0x46: truncated varint in a packed field",
    ),
    ("3a4e2a4c2a4a" + "01" * 64 + "80" * 10, "graph.initializer[0].int32_data @0x46: varint of more than 10 bytes"),
    ("0b", "@0x1: group 1 is not closed"),
    ("ff", "@0x0: truncated tag"),
    ("0c", "@0x1: end of group 1, which is not open here"),
    ("0e", "@0x1: wire type 6 does not exist"),
]


@pytest.mark.parametrize(("data", "message"), DECODE_ERRORS)
def test_decode_errors_name_path_and_offset(data: str, message: str) -> None:
    with pytest.raises(ps.DecodeError) as caught:
        ps.ModelProto.FromString(bytes.fromhex(data))
    assert str(caught.value).startswith(message)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.offset == caught.value.offset and again.path == caught.value.path


def test_too_deep_to_encode() -> None:
    kind = ps.TypeProto()
    for _ in range(51):
        kind = ps.TypeProto(optional_type=ps.TypeProto.Optional(elem_type=kind))
    with pytest.raises(ps.EncodeError, match="more than 100 nested messages"):
        kind.SerializeToString()
    loop = ps.GraphProto(node=[ps.NodeProto(attribute=[ps.AttributeProto()])])
    loop.node[0].attribute[0].g = loop
    with pytest.raises(ps.EncodeError, match="more than 100 nested messages"):
        loop.SerializeToString()


@pytest.mark.parametrize("part", [32, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("unit", ["5a00", "5200"])
def test_a_budget_bounds_what_small_bytes_make(unit: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes that each make an object of some hundred bytes: refused long before memory is the matter."""
    monkeypatch.setattr(codec, "BUDGET_BASE", codec.BUDGET_BASE // part)
    data = bytes.fromhex(unit) * (codec.BUDGET_BASE // 100)
    with pytest.raises(ps.DecodeError, match="hostile"):
        ps.AttributeProto.FromString(data)


def test_many_unknown_fields_take_linear_time() -> None:
    data = bytes.fromhex("a00601") * 60_000
    assert ps.NodeProto.FromString(data).unknown_fields == data


def test_views_of_the_input_are_not_copied() -> None:
    data = bytearray(ps.TensorProto(raw_data=bytes(range(100))).SerializeToString())
    tensor = ps.TensorProto.FromString(data)
    assert isinstance(tensor.raw_data, memoryview)
    data[-1] = 7
    assert tensor.raw_data[-1] == 7


def test_generated_source_shows_in_tracebacks() -> None:
    relu().SerializeToString()
    assert linecache.getline("<proto_schema encode NodeProto>", 1).startswith("def encode_NodeProto(")


def test_errors_have_no_noise_before_them() -> None:
    with pytest.raises(ps.DecodeError) as caught:
        ps.NodeProto.FromString(b"\x00")
    assert caught.value.__context__ is None
    with pytest.raises(ps.EncodeError) as refused:
        ps.NodeProto(name=3).SerializeToString()  # type: ignore[arg-type]
    assert refused.value.__context__ is None or isinstance(refused.value.__context__, (TypeError, ps.EncodeError))


def test_an_error_in_a_huge_model_reads_no_payload() -> None:
    def never() -> bytes:
        raise AssertionError("read")

    tensor = ps.TensorProto(raw_data=ps.LazyPayload(1 << 40, never), doc_string=3)  # type: ignore[arg-type]
    with pytest.raises(ps.EncodeError, match=r"^doc_string: 3"):
        tensor.SerializeToString()


@pytest.mark.parametrize("write", [ps.AttributeProto.SerializeToString, ps.AttributeProto.ByteSize])
def test_memory_that_runs_out_is_no_fault_of_a_field(write: Any) -> None:
    class Spent:
        def __index__(self, *_: Any) -> int:
            raise MemoryError

        __ge__ = __and__ = __index__

    with pytest.raises(MemoryError):
        write(ps.AttributeProto(i=Spent()))  # type: ignore[arg-type]


def test_lists_of_messages_have_add() -> None:
    """As protobuf's have it; all else is a list's."""
    graph = ps.GraphProto()
    node = graph.node.add(op_type="Relu", input=["x"])
    graph.node.extend([ps.NodeProto(op_type="Tanh")])
    assert graph.node[0] is node and [item.op_type for item in graph.node] == ["Relu", "Tanh"]
    assert (
        isinstance(graph.node, list)
        and graph.node == list(graph.node)
        and ps.GraphProto.FromString(graph.SerializeToString()) == graph
    )
    graph.node[0].attribute.add(name="alpha").ints.append(1)
    shape = ps.TensorShapeProto()
    shape.dim.add(dim_param="n")
    assert graph.node[0].attribute[0].ints == [1] and shape.dim[0].dim_param == "n"
    with pytest.raises(TypeError, match="op_typ"):
        graph.node.add(op_typ="Relu")
    assert type(pickle.loads(pickle.dumps(graph.node))) is list and len(graph.node) == 2


def test_what_is_assigned_to_a_list_of_messages_is_copied() -> None:
    graph, nodes = ps.GraphProto(), [relu()]
    graph.node = nodes
    nodes.append(relu())
    assert len(graph.node) == 1 and graph.node[0] is nodes[0]


def test_a_repr_has_few_characters_whatever_is_inside() -> None:
    deep = ps.GraphProto(name="inner")
    for _ in range(60):
        deep = ps.GraphProto(
            node=[ps.NodeProto(name="n" * 500, attribute=[ps.AttributeProto(name="body", g=deep)])] * 40
        )
    model = ps.ModelProto(graph=deep, doc_string="d" * 10**6)
    assert len(repr(model)) < 600 and "999840 more characters" in repr(model)
    assert "node: 40" in repr(ps.ModelProto(graph=deep))
    assert repr(ps.AttributeProto(type=7)) == "AttributeProto(type=INTS)"
    assert repr(ps.ModelProto(graph=5)) == "ModelProto(graph=5)"  # type: ignore[arg-type]


def test_html_escapes_what_a_file_says() -> None:
    graph = ps.GraphProto(name="<b>", input=[ps.ValueInfoProto(name="<script>")], node=[ps.NodeProto(op_type="<i>")])
    for message in (ps.ModelProto(graph=graph), graph, graph.node[0], graph.input[0], ps.TensorProto(name="<script>")):
        page = message._repr_html_()
        assert not re.search("<(script|i|b>[^A-Z])", page), page


def test_dir_shows_fields_and_methods() -> None:
    assert {"op_type", "input", "ByteSize"} <= {*dir(relu())} and not [name for name in dir(relu()) if name[0] == "_"]
    assert dir(ps) == sorted({*ps.__all__})


# (what it shows, attribute): two that are alike are decoded once, and have nothing in common afterwards
ALIKE = [
    ("ints", ps.AttributeProto(name="pads", ints=[1, 1], type=7)),
    ("strings", ps.AttributeProto(name="s", strings=[b"a", b"b"], type=8)),
    ("floats with a NaN", ps.AttributeProto(name="f", floats=[math.nan, 1.0], type=6)),
    ("a number", ps.AttributeProto(name="axis", i=-1, type=2)),
    ("a tensor", ps.AttributeProto(name="t", t=ps.TensorProto(dims=[1], data_type=1), type=4)),
    ("graphs", ps.AttributeProto(name="g", graphs=[ps.GraphProto(name="g")], type=10)),
    ("unknown fields", ps.AttributeProto.FromString(bytes.fromhex("0a01754003a00601"))),
    ("an unknown value of an enum", ps.AttributeProto.FromString(bytes.fromhex("0a0161a00163"))),
    ("nothing", ps.AttributeProto()),
]


@pytest.mark.parametrize("attribute", [row[1] for row in ALIKE], ids=[row[0] for row in ALIKE])
def test_attributes_that_are_alike_are_apart(attribute: ps.AttributeProto) -> None:
    node = ps.NodeProto(attribute=[attribute] * 3)
    data = node.SerializeToString()
    read = ps.NodeProto.FromString(data)
    assert read.SerializeToString() == data
    first, second, third = read.attribute
    expected = second.SerializeToString()
    if attribute.floats:
        assert first != second  # lists with a NaN are equal only to themselves
    else:
        assert first == second == third == attribute
    for field in ps.AttributeProto.FIELDS:
        mine, other = getattr(first, field.name), getattr(second, field.name)
        if field.repeated:
            assert mine is not other
            mine.clear()
        elif field.kind is MESSAGE and mine is not None:
            assert mine is not other
            mine.Clear()
    first.name, first.unknown_fields = "changed", b""
    assert second.SerializeToString() == third.SerializeToString() == expected


def test_attributes_that_are_alike_count_for_the_budget() -> None:
    """Each of them, as in the interpreter; and few are remembered, however many there are."""
    node = ps.NodeProto(attribute=[ps.AttributeProto(name="axis", i=1)] * 9)
    data = node.SerializeToString()
    enough = interpret.footprint(ps.NodeProto) + 9 * interpret.footprint(ps.AttributeProto)
    for spare in (0, -1):
        budgets = [interpret.Allowance(enough + spare) for _ in range(2)]
        routes = [
            lambda budget: interpret.decode(ps.NodeProto, memoryview(data), 0, len(data), budget),
            lambda budget: generate.decoder(ps.NodeProto, False)(memoryview(data), data, 0, len(data), 0, budget, 9),
        ]
        for route, budget in zip(routes, budgets, strict=True):
            if spare < 0:
                with pytest.raises((ps.DecodeError, generate.MalformedError)):
                    route(budget)
            else:
                assert route(budget) == node
                assert budget.left == 0
    many = ps.NodeProto(attribute=[ps.AttributeProto(i=at) for at in range(generate.SEEN + 100)]).SerializeToString()
    budget = interpret.Allowance(1 << 30)
    found = generate.decoder(ps.NodeProto, False)(memoryview(many), many, 0, len(many), 0, budget, 9)
    assert len(budget.seen) == generate.SEEN
    assert found.SerializeToString() == many
