"""`ps.ir`: nothing is lost between messages and graphs, uses are always true, and names mean what they should.

`test_bundled.py` has all models of the official package there and back, `test_simplification.py` counts uses anew after
every node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import ir
from proto_schema.parser import parse_model
from proto_schema.printer import to_text
from tests.proto_schema.graph_uses import uses_that_are_wrong

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
BODY = (
    "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) y = If (c) <then_branch = t () => (float[2] p) "
    "{ n = Neg(a) p = Exp(n) }, else_branch = e () => (float[2] q) { q = Abs(a) }> }"
)


def read(text: str) -> ir.Model:
    return ir.from_message(parse_model(HEAD + text))


def node(model: ir.Model, op_type: str) -> ir.Node:
    """The first node of an operator, bodies included."""
    todo = [model.graph]
    while todo:
        graph = todo.pop(0)
        for item in graph.nodes:
            if item.op_type == op_type:
                return item
            todo += item.bodies
    raise LookupError(op_type)


def _replace_by_input(model: ir.Model) -> None:
    node(model, "Relu").output.replace_uses(model.graph.inputs[0])
    model.graph.nodes.remove(node(model, "Relu"))


def _no_names(model: ir.Model) -> None:
    for graph in (model.graph, *node(model, "If").bodies):
        for item in graph.nodes:
            for value in item.outputs:
                if value is not None and value not in model.graph.outputs:
                    value.name = ""


def _hide(model: ir.Model) -> None:
    """The body reads `a` of the graph around it, and gets an `a` of its own."""
    node(model, "Neg").output.name = "a"
    made = node(model, "Exp").graph.nodes.append(
        ir.Node("Add", [node(model, "Exp").output, node(model, "Relu").output])
    )
    made.graph.outputs = [made.output]


def _hide_unread(model: ir.Model) -> None:
    """The checker takes no body that has a name of the graph around it, be it read or not."""
    node(model, "Relu").output.name = "n"


def _same_name(model: ir.Model) -> None:
    node(model, "Relu").output.name = "y"


def _move_out(model: ir.Model) -> None:
    model.graph.nodes.insert(node(model, "If"), node(model, "Neg"))


def _insert(model: ir.Model) -> None:
    relu = node(model, "Relu")
    weight = model.graph.add_initializer(ps.numpy_helper.from_array(np.ones(2, np.float32), "x"))
    made = ir.Node("Mul", [relu.output, weight], outputs=[ir.Value("a")])
    relu.output.replace_uses(made.output)
    made.set_input(0, relu.output)
    model.graph.nodes.insert(node(model, "If"), made)


def _without_branch(model: ir.Model) -> None:
    """All readers of `a` in the other branch go with it."""
    choice = node(model, "If")
    (body, _) = choice.bodies
    for item in list(body.nodes):
        model.graph.nodes.insert(choice, item)
    made, body.outputs = body.outputs[0], ()
    made.stand_for(choice.output)
    model.graph.nodes.remove(choice)


def _new_body(model: ir.Model) -> None:
    body = ir.Graph("t")
    made = body.nodes.append(ir.Node("Sin", [model.graph.inputs[0]]))
    body.outputs = [made.output]
    node(model, "If").attributes["then_branch"] = body


# what is done to BODY, and the text that is written
EDITS: list[tuple[Callable[[ir.Model], None], str]] = [
    (
        _replace_by_input,
        "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p) "
        "{ n = Neg(x) p = Exp(n) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }",
    ),
    (
        _no_names,
        "g (float[2] x, bool c) => (float[2] y) { Relu = Relu(x) y = If (c) <then_branch = t () => (float[2] Exp) "
        "{ Neg = Neg(Relu) Exp = Exp(Neg) }, else_branch = e () => (float[2] Abs) { Abs = Abs(Relu) }> }",
    ),
    (
        _hide,
        "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) y = If (c) <then_branch = t () => (Add) "
        "<float[2] p> { a_0 = Neg(a) p = Exp(a_0) Add = Add(p, a) }, else_branch = e () => (float[2] q) "
        "{ q = Abs(a) }> }",
    ),
    (
        _hide_unread,
        "g (float[2] x, bool c) => (float[2] y) { n = Relu(x) y = If (c) <then_branch = t () => (float[2] p) "
        "{ n_0 = Neg(n) p = Exp(n_0) }, else_branch = e () => (float[2] q) { q = Abs(n) }> }",
    ),
    (
        _same_name,
        "g (float[2] x, bool c) => (float[2] y) { y_0 = Relu(x) y = If (c) <then_branch = t () => (float[2] p) "
        "{ n = Neg(y_0) p = Exp(n) }, else_branch = e () => (float[2] q) { q = Abs(y_0) }> }",
    ),
    (
        _move_out,
        "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) n = Neg(a) y = If (c) <then_branch = t () => "
        "(float[2] p) { p = Exp(n) }, else_branch = e () => (float[2] q) { q = Abs(a) }> }",
    ),
    (
        _insert,
        "g (float[2] x, bool c) => (float[2] y) <float[2] x_0 = {1, 1}> { a = Relu(x) a_0 = Mul(a, x_0) y = If (c) "
        "<then_branch = t () => (float[2] p) { n = Neg(a_0) p = Exp(n) }, else_branch = e () => (float[2] q) "
        "{ q = Abs(a_0) }> }",
    ),
    (
        _without_branch,
        "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) n = Neg(a) y = Exp(n) }",
    ),
    (
        _new_body,
        "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) y = If (c) <then_branch = t () => (Sin) "
        "{ Sin = Sin(x) }, else_branch = e () => (float[2] q) { q = Abs(a) }> }",
    ),
]


@pytest.mark.parametrize(("edit", "text"), EDITS, ids=[edit.__name__[1:] for edit, _ in EDITS])
def test_edits(edit: Callable[[ir.Model], None], text: str) -> None:
    given = parse_model(HEAD + BODY)
    before = given.SerializeToString()
    model = ir.from_message(given)
    edit(model)
    assert uses_that_are_wrong(model) == []
    made = model.to_message()
    assert " ".join(to_text(made).split()) == " ".join(to_text(parse_model(HEAD + text)).split())
    assert uses_that_are_wrong(model) == []
    assert model.to_message() == made
    assert given.SerializeToString() == before


def _full() -> ps.ModelProto:
    """Everything that a file can say beside nodes and values."""
    entry = ps.StringStringEntryProto
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}, float s = {0.5}, float[2] a> "
    model = parse_model(HEAD + text + "{ a = Mul(x, w) y = Relu(a) }")
    graph = model.graph
    for item in (model, graph, graph.node[0], graph.input[0], graph.value_info[0], graph.initializer[0]):
        item.doc_string = "what it is for"
        item.metadata_props = [entry(key="k", value="v")]
        item.unknown_fields = bytes.fromhex("a2ff0103616263")
    graph.node[1].device_configurations = [
        ps.NodeDeviceConfigurationProto(configuration_id="d", sharding_spec=[ps.ShardingSpecProto(tensor_name="a")])
    ]
    graph.value_info += [ps.ValueInfoProto(name="nothing has it"), ps.ValueInfoProto(name="w"), *graph.value_info]
    indices, values = np.array([1]), np.array([3], np.float32)
    graph.sparse_initializer = [
        ps.SparseTensorProto(
            dims=[2], values=ps.numpy_helper.from_array(values, "sp"), indices=ps.numpy_helper.from_array(indices)
        )
    ]
    graph.quantization_annotation = [
        ps.TensorAnnotation(tensor_name="a", quant_parameter_tensor_names=[entry(key="SCALE_TENSOR", value="s")]),
        ps.TensorAnnotation(tensor_name="nothing", quant_parameter_tensor_names=[entry(key="k", value="missing")]),
    ]
    model.opset_import += [ps.OperatorSetIdProto(domain="ai.onnx", version=20), ps.OperatorSetIdProto(version=20)]
    model.training_info = [ps.TrainingInfoProto(algorithm=graph)]
    return model


def test_nothing_is_lost() -> None:
    given = _full()
    model = ir.from_message(given)
    assert model.to_message().SerializeToString() == given.SerializeToString()
    assert model.to_message().graph.initializer[0] is given.graph.initializer[0]


def test_names_that_a_body_hides_in_the_file_stay() -> None:
    text = BODY.replace("n = Neg(a) p = Exp(n)", "a = Neg(x) p = Exp(a)")
    given = parse_model(HEAD + text)
    model = ir.from_message(given)
    assert node(model, "Exp").inputs[0] is node(model, "Neg").output
    assert model.to_message().SerializeToString() == given.SerializeToString()


def test_names_go_along() -> None:
    """Where a value has another name, everything that names it has, and what has no name of its own here stays."""
    given = _full()
    model = ir.from_message(given)
    for value in (*model.graph.initializers, node(model, "Mul").output):
        if not value.is_input:
            value.name = f"new_{value.name}"
    graph, before = model.to_message().graph, given.graph
    assert [list(item.input) for item in graph.node] == [["x", "w"], ["new_a"]]
    assert [item.name for item in graph.initializer] == ["w", "new_s"]
    assert graph.sparse_initializer[0].values.name == "new_sp"
    assert graph.node[1].device_configurations[0].sharding_spec[0].tensor_name == "new_a"
    assert graph.quantization_annotation[0].tensor_name == "new_a"
    assert graph.quantization_annotation[0].quant_parameter_tensor_names[0].value == "new_s"
    assert [item.name for item in graph.value_info] == ["new_a", "nothing has it", "w", "a"]
    assert graph.node[0].metadata_props == before.node[0].metadata_props
    assert graph.value_info[0].doc_string == "what it is for"
    assert graph.node[0].unknown_fields == before.node[0].unknown_fields


def test_what_goes_away_is_declared_no_more() -> None:
    model = ir.from_message(_full())
    mul = node(model, "Mul")
    mul.output.replace_uses(model.graph.inputs[0])
    model.graph.nodes.remove(mul)
    graph = model.to_message().graph
    assert [item.name for item in graph.value_info] == ["nothing has it", "w", "a"]  # `a` is said twice in the file
    assert [item.tensor_name for item in graph.quantization_annotation] == ["nothing"]


def test_types() -> None:
    model = read("g (float[n, m, 3] x) => (y) <float[2] w = {1, 2}> { a = Transpose<perm = [2, 0, 1]>(x) y = Relu(a) }")
    value = model.graph.inputs[0]
    assert (value.dtype, value.rank, value.sizes, str(value.dim(1))) == (1, 3, None, "m")
    assert (node(model, "Transpose").output.type, node(model, "Transpose").output.rank) == (None, None)
    (weight,) = model.graph.initializers
    assert weight.sizes == (2,)
    assert weight.array(8).tolist() == [1, 2]
    assert weight.array(7) is None
    model.infer()
    assert [str(size) for size in node(model, "Transpose").output.shape] == ["3", "n", "m"]
    assert model.to_message().graph.value_info == []  # what is inferred is not declared
    node(model, "Transpose").output.type = value.type
    assert model.to_message().graph.value_info[0].type == value.declared.type


def test_types_inside_of_bodies_and_functions() -> None:
    model = read(BODY)
    model.infer()
    assert node(model, "Neg").output.sizes == (2,)


def test_attributes() -> None:
    model = read(BODY.replace("Relu(x)", 'Conv<pads = [0, 1], auto_pad = "NOTSET", group = 1>(x)'))
    attributes = node(model, "Conv").attributes
    assert dict(attributes) == {"pads": [0, 1], "auto_pad": b"NOTSET", "group": 1}
    attributes["pads"] = [2, 3]
    del attributes["group"]
    written = model.to_message().graph.node[0].attribute
    assert [(item.name, item.ints) for item in written] == [("pads", [2, 3]), ("auto_pad", [])]
    assert isinstance(node(model, "If").attributes["then_branch"], ir.Graph)
    del node(model, "If").attributes["then_branch"]
    assert uses_that_are_wrong(model) == []


def test_a_loop_may_remove_and_insert() -> None:
    model = read("g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) c = Exp(b) y = Abs(c) }")
    seen = []
    for item in model.graph.nodes:
        seen.append(item.op_type)
        if item.op_type in ("Relu", "Exp"):
            made = model.graph.nodes.insert(item, ir.Node("Sin", item.inputs))
            item.output.replace_uses(made.output)
            model.graph.nodes.remove(item)
    assert seen == ["Relu", "Neg", "Exp", "Abs"]
    assert [item.op_type for item in model.graph.nodes] == ["Sin", "Neg", "Sin", "Abs"]
    assert uses_that_are_wrong(model) == []


def test_some_uses_alone_are_replaced() -> None:
    model = read(BODY)
    relu, before = node(model, "Relu"), node(model, "Relu").output
    made = model.graph.nodes.insert_after(relu, ir.Node("Sin", [before]))
    before.replace_uses(made.output, [use for use in before.uses if use[0] is node(model, "Abs")])
    assert [item.op_type for item in model.graph.nodes] == ["Relu", "Sin", "If"]
    assert [user.op_type for user, _ in before.uses if isinstance(user, ir.Node)] == ["Neg", "Sin"]
    assert model.graph.nodes.insert_after(None, ir.Node("Cos", [model.graph.inputs[0]])) is next(
        iter(model.graph.nodes)
    )
    assert len(list(model.graph.nested())) == 3
    assert uses_that_are_wrong(model) == []


def test_another_node_makes_a_value() -> None:
    model = read(BODY)
    branch = node(model, "If")
    made = ir.Node("If", branch.inputs, branch.attributes)  # the bodies move along
    model.graph.nodes.insert(branch, made)
    made.set_output(0, branch.output)
    model.graph.nodes.remove(branch)
    constant = ir.Node("Constant", attributes={"value": ps.helper.make_tensor("", 7, [1], [3])})
    model.graph.nodes.insert(made, constant)
    found = constant.output
    assert (found.ints(), found.number()) == ([3], 3)
    found.learn(ps.inference.types.Tensor(7, (1,)))
    found.name = "three"
    held = model.graph.add_initializer(constant.attributes["value"], value=found)
    model.graph.nodes.remove(constant)
    assert held is found and list(model.graph.initializers) == [found] and (found.rank, found.ints()) == (1, [3])
    assert uses_that_are_wrong(model) == []
    ps.checker.check_model(model.to_message())


def test_imports_keep_their_places() -> None:
    model = read("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.opsets = {"": 21, "own": 3}
    made = model.to_message()
    made.opset_import.reverse()
    again = ir.from_message(made)
    again.opsets[""] = 22
    assert [(item.domain, item.version) for item in again.to_message().opset_import] == [("own", 3), ("", 22)]


def test_a_model_from_nothing() -> None:
    image = ir.Value("x", ps.inference.types.Tensor(1, (2,)))
    model = ir.Model(ir.Graph("g", [image]), {"": 20})
    result = model.graph.nodes.append(ir.Node("Relu", [image])).output
    result.name, result.type = "y", image.type
    model.graph.outputs = [result]
    ps.checker.check_model(model.to_message(), full_check=True)


def _removed_too_early(model: ir.Model) -> None:
    model.graph.nodes.remove(node(model, "Relu"))


def _nowhere(model: ir.Model) -> None:
    node(model, "If").set_input(0, ir.Node("Not", [model.graph.inputs[1]]).output)
    model.to_message()


def _itself(model: ir.Model) -> None:
    node(model, "Relu").output.replace_uses(node(model, "Relu").output)


def _elsewhere(model: ir.Model) -> None:
    model.graph.nodes.insert(node(model, "Neg"), ir.Node("Relu", model.graph.inputs[:1]))


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (_removed_too_early, r"<Node a = Relu\(x\)> cannot be removed: 'a' is read; replace its uses first"),
        (_nowhere, r"<Node y = If\(\)> reads a value of which the graph has no node; insert the node that makes it"),
        (_itself, "the value 'a' cannot be replaced by itself"),
        (_elsewhere, r"<Node n = Neg\(a\)> is not in the graph 'g'"),
    ],
)
def test_errors(edit: Callable[[ir.Model], None], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        edit(read(BODY))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("g (float x) => (float y) { a = Relu(x) a = Neg(x) y = Exp(a) }", r"graph.node\[1\].output: 'a' is defined"),
        ("g (float x) => (float y) { x = Relu(x) y = Exp(x) }", r"graph.node\[0\].output: 'x' is defined already"),
        (
            BODY.replace("p = Exp(n)", "n = Exp(n)"),
            r'graph.node\[1\].attribute\["then_branch"\].g.node\[1\].output: \'n',
        ),
    ],
)
def test_a_value_is_made_once(text: str, error: str) -> None:
    with pytest.raises(ps.CheckError, match=error):
        read(text)


def test_nodes_out_of_order_are_followed() -> None:
    model = read("g (float x) => (float y) { y = Relu(a) a = Neg(x) }")
    assert node(model, "Relu").inputs[0] is node(model, "Neg").output
    assert uses_that_are_wrong(model) == []
