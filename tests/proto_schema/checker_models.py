"""Models for the checker's tests: a valid one with a bit of everything, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proto_schema as ps
from proto_schema import helper

Change = Callable[[ps.ModelProto], Any]

T = ps.TensorProto
A = ps.AttributeProto


def value(name: str, shape: Any = ("N", "C", "H", "W"), code: int = T.FLOAT) -> ps.ValueInfoProto:
    """A tensor of that name."""
    return helper.make_tensor_value_info(name, code, shape)


def floats(name: str, count: int = 2) -> ps.TensorProto:
    """A tensor of that many floats."""
    return helper.make_tensor(name, T.FLOAT, [count], [0.5] * count)


def sparse(count: int = 2, indices: Any = (0, 3), dims: Any = (5,)) -> ps.SparseTensorProto:
    """A sparse tensor called `s`."""
    flat = [index for row in indices for index in (row if isinstance(row, tuple) else (row,))]
    shape = [len(indices), len(indices[0])] if indices and isinstance(indices[0], tuple) else [len(indices)]
    return helper.make_sparse_tensor(floats("s", count), helper.make_tensor("i", T.INT64, shape, flat), list(dims))


def valid() -> ps.ModelProto:
    """Nodes 0 Conv 'conv', 1 Relu, 2 If with two branches, 3 the call of the function my::Twice, 4 Clip."""
    then = helper.make_graph([helper.make_node("Identity", ["r"], ["t"])], "then", [], [value("t")])
    other = helper.make_graph([helper.make_node("Neg", ["r"], ["e"])], "else", [], [value("e")])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other),
        helper.make_node("Twice", ["y"], ["z"], "call", domain="my", alpha=1.0),
        helper.make_node("Clip", ["z", "", "top"], ["q"]),
    ]
    weights = helper.make_tensor("w", T.FLOAT, [4, 3, 3, 3], bytes(4 * 108), raw=True)
    top = helper.make_tensor("top", T.FLOAT, [], [6.0])
    inputs = [value("x"), value("c", [], T.BOOL)]
    graph = helper.make_graph(nodes, "main", inputs, [value("q"), value("r")], [weights, top])
    elu = helper.make_node("Elu", ["s"], ["b"])
    elu.attribute.append(helper.make_attribute_ref("alpha", A.FLOAT))
    body = [helper.make_node("Add", ["a", "a"], ["s"]), elu]
    imports = [helper.make_opsetid("", 20)]
    function = helper.make_function("my", "Twice", ["a"], ["b"], body, imports, ["alpha"])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def then_branch(model: ps.ModelProto) -> ps.GraphProto:
    """The subgraph in node 2's second attribute."""
    graph = model.graph.node[2].attribute[1].g if model.graph is not None else None
    assert graph is not None and graph.name == "then"
    return graph


def put(path: str, **fields: Any) -> Change:
    """Sets fields of the message at a path such as `graph.node[0]`."""

    def change(model: ps.ModelProto) -> None:
        for name, content in fields.items():
            setattr(at(model, path), name, content)

    return change


def add(path: str, *items: Any) -> Change:
    """Appends to the list at a path."""
    return lambda model: at(model, path).extend(items)


def at(message: Any, path: str) -> Any:
    """The value at a path of plain fields and indices."""
    for step in filter(None, path.split(".")):
        name, _, index = step.partition("[")
        message = getattr(message, name)
        if index:
            message = message[int(index.rstrip("]"))]
    return message


def node(op_type: str, inputs: list[str], outputs: list[str], domain: str | None = None, **attributes: Any) -> Change:
    """Appends a node to the graph."""
    return add("graph.node", helper.make_node(op_type, inputs, outputs, domain=domain, **attributes))


def opset(version: int) -> Change:
    """The graph's opset; the function is dropped, as is its call."""

    def change(model: ps.ModelProto) -> None:
        model.opset_import[0].version = version
        model.functions.clear()
        assert model.graph is not None
        model.graph.node[3] = helper.make_node("Identity", ["y"], ["z"])

    return change


def both(*changes: Change) -> Change:
    """One change after the other."""
    return lambda model: [change(model) for change in changes]


def initializer(tensor: ps.TensorProto) -> Change:
    """One more initializer: `graph.initializer[2]`."""
    return add("graph.initializer", tensor)


def typed(code: int, dims: list[int], **data: Any) -> Change:
    """One more initializer, field by field."""
    return initializer(ps.TensorProto(name="n", data_type=code, dims=dims, **data))


def attribute(**fields: Any) -> Change:
    """One more attribute of node 1, which has none."""
    return add("graph.node[1].attribute", A(**fields))


def function(*nodes: ps.NodeProto, name: str = "F", **more: Any) -> Change:
    """One more function of the domain my: `functions[1]`, or the next."""
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    fields = {"inputs": ["a"], "outputs": ["b"], "domain": "my", "opset_imports": imports, "fname": name, **more}
    return lambda model: model.functions.append(helper.make_function(nodes=list(nodes), **fields))


def external(**entries: str) -> ps.TensorProto:
    """Eight bytes in a file."""
    pairs = [ps.StringStringEntryProto(key=key, value=text) for key, text in entries.items()]
    return ps.TensorProto(name="n", data_type=T.FLOAT, dims=[2], data_location=T.EXTERNAL, external_data=pairs)


def loop(*inputs: str) -> Change:
    """A Loop over `x` whose body has these inputs behind its counter, without types."""
    made = [helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Neg", ["x"], ["next"])]
    infos = [ps.ValueInfoProto(name=name) for name in ("count", *inputs)]
    body = helper.make_graph(made, "body", infos, [value("go", [], T.BOOL), value("next")])
    return node("Loop", ["", "c", "x"], ["last"], body=body)
