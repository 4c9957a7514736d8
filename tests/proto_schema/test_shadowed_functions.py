"""A function that is named like an operator of the standard: every tool takes a node of that name for the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator as OfficialEvaluator

import proto_schema as ps
from proto_schema.conversion.ir import convert_ir
from proto_schema.graphs.calls import callable_functions

X, Y = np.array([5, 6], np.float32), np.array([1, 2], np.float32)
helper = ps.helper


def model(domain: str = "", called: str = "", overload: str = "", op_type: str = "Add") -> ps.ModelProto:
    """x + y, beside a function of that name which subtracts; `Twice`, a function of the model, uses it too."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    subtracts = helper.make_function(
        domain, op_type, ["a", "b"], ["c"], [helper.make_node("Sub", ["a", "b"], ["c"])], opsets[:1], overload=overload
    )
    add = helper.make_node(op_type, ["a", "b"], ["c"], domain=called, overload=overload)
    twice = helper.make_function("own", "Twice", ["a", "b"], ["c"], [add], opsets)
    nodes = [
        helper.make_node(op_type, ["x", "y"], ["s"], domain=called, overload=overload),
        helper.make_node("Twice", ["s", "y"], ["z"], domain="own"),
    ]
    values = [helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [2]) for name in "xyz"]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:])
    made = helper.make_model(graph, functions=[subtracts, twice], opset_imports=opsets)
    made.ir_version = 10 if overload else 9
    return made


# the domain of the function, the domain that nodes name, the overload
ROWS = [("", "", ""), ("ai.onnx", "", ""), ("", "ai.onnx", ""), ("ai.onnx", "ai.onnx", ""), ("", "", "o")]


def computed(given: ps.ModelProto) -> list[float]:
    found: list[float] = ps.reference.ReferenceEvaluator(given).run(None, {"x": X, "y": Y})[0].tolist()
    return found


def inlined(given: ps.ModelProto) -> ps.ModelProto:
    made = ps.inliner.inline_local_functions(given)
    assert made.functions == []
    return made


def inlined_for_old_readers(given: ps.ModelProto) -> ps.ModelProto:
    made = ps.version_converter.convert_version(given, 13)
    made = convert_ir(made, 7)
    assert made.functions == []
    return made


def selected(given: ps.ModelProto) -> ps.ModelProto:
    return ps.inliner.inline_selected_functions(given, [("", "Add"), ("own", "Twice")])


def extracted(given: ps.ModelProto) -> ps.ModelProto:
    made = ps.utils.Extractor(given).extract_model(["x", "y"], ["z"])
    assert [function.name for function in made.functions] == ["Twice"]
    return made


TOOLS: dict[str, Callable[[ps.ModelProto], ps.ModelProto]] = {
    "as it is": lambda given: given,
    "inlined": inlined,
    "some inlined": selected,
    "written out for old readers": inlined_for_old_readers,
    "to a newer opset": lambda given: ps.version_converter.convert_version(given, 22),
    "with a prefix": lambda given: ps.compose.add_prefix(given, "p_", rename_inputs=False, rename_outputs=False),
    "extracted": extracted,
    "simplified": ps.simplify,
}


CROSSED = [(tool, *row) for row in ROWS for tool in TOOLS if not (row[2] and "old" in tool)]  # IR 7 has no overloads


@pytest.mark.parametrize(("tool", "domain", "called", "overload"), CROSSED)
def test_a_node_computes_the_operator(tool: str, domain: str, called: str, overload: str) -> None:
    made = TOOLS[tool](model(domain, called, overload))
    assert computed(made) == (X + Y + Y).tolist()


@pytest.mark.parametrize(("domain", "overload"), [(row[0], row[2]) for row in ROWS if not row[1]])
def test_runtimes_take_the_operator(domain: str, overload: str) -> None:
    """Which is why we do. In functions they do not know `ai.onnx` as another name of the domain."""
    octets = ps.dumps(model(domain, "", overload))
    session: Any = onnxruntime.InferenceSession(octets, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": X, "y": Y})[0].tolist() == (X + Y + Y).tolist()
    official: Any = OfficialEvaluator(onnx.load_from_string(octets))
    assert official.run(None, {"x": X, "y": Y})[0].tolist() == (X + Y + Y).tolist()


def test_shapes_are_those_of_the_operator() -> None:
    given = model(op_type="ReduceSum")
    given.functions[0].node[0].op_type = "Add"
    given.graph.node = given.graph.node[:1]
    given.graph.output[0] = ps.ValueInfoProto(name="s")
    given.graph.node[0].input = ["x"]
    made = ps.shape_inference.infer_shapes(given)
    assert made.graph is not None
    assert made.graph.output[0].type == helper.make_tensor_type_proto(ps.TensorProto.FLOAT, [1])


def test_a_conversion_asks_for_the_inputs_of_the_operator() -> None:
    given = model()
    given.graph.node[0].input = ["x"]
    with pytest.raises(ps.version_converter.ConversionError, match="'B' is missing"):
        ps.version_converter.convert_version(given, 13)


@pytest.mark.parametrize(("domain", "called", "overload"), ROWS)
def test_the_checker_says_so(domain: str, called: str, overload: str) -> None:
    with pytest.raises(ps.CheckError, match=r"functions\[0\].*Add is an operator of the standard"):
        ps.checker.check_model(model(domain, called, overload))


@pytest.mark.parametrize(
    ("domain", "name", "expected"),
    [
        ("", "Add", False),
        ("ai.onnx", "Add", False),
        ("", "Upsample", False),  # no opset has it any more, and older ones do
        ("ai.onnx.ml", "Scaler", False),
        ("ai.onnx.ml", "Add", True),
        ("", "Mine", True),
        ("own", "Add", True),
    ],
)
def test_which_functions_can_be_called(domain: str, name: str, expected: bool) -> None:
    function: Any = helper.make_function(domain, name, [], [], [], [])
    assert bool(callable_functions([function])) is expected


def test_a_function_that_uses_the_operator_of_its_name_does_not_call_itself() -> None:
    given = model()
    given.functions[0].node[0].op_type = "Add"
    assert computed(inlined(given)) == (X + Y + Y).tolist()
