"""Rows of the checker's tests: structure, names, operators, attributes.

A row is (what is wrong, the change that breaks the valid model, the start of the message).
"""

from __future__ import annotations

import proto_schema as ps
from proto_schema import helper
from tests.proto_schema.checker_models import (
    A,
    Change,
    add,
    attribute,
    both,
    floats,
    initializer,
    node,
    opset,
    put,
    sparse,
    then_branch,
    value,
)

call = helper.make_node
Row = tuple[str, Change, str]

STRUCTURE: list[Row] = [
    ("no IR version", put("", ir_version=None), "ir_version: is required"),
    ("IR version 0", put("", ir_version=0), "ir_version: is required, but absent or 0"),
    ("newer IR version", put("", ir_version=99), "ir_version: 99 is newer than 14, the newest known"),
    ("no opset import", put("", opset_import=[]), "opset_import: is empty"),
    (
        "imports in IR version 2",
        both(put("", ir_version=2), opset(20)),
        "opset_import: IR version 2 has no opset imports",
    ),
    (
        "opset out of range",
        put("opset_import[0]", version=2**31),
        "opset_import[0]: the version 2147483648 is out of range",
    ),
    (
        "opset of a function out of range",
        put("functions[0].opset_import[0]", version=-(2**31) - 1),
        "functions[0].opset_import[0]: the version -2147483649 is out of range",
    ),
    (
        "metadata twice",
        lambda m: helper.set_model_props(m, {"k": "v"}) or m.metadata_props.append(m.metadata_props[0]),
        "metadata_props[1]: the key 'k' appears more than once",
    ),
    ("no graph", put("", graph=None), "graph: is required"),
    ("graph without a name", put("graph", name=""), "graph.name: is required, but absent or empty"),
    (
        "subgraph without a name",
        lambda m: setattr(then_branch(m), "name", None),
        'graph.node[2].attribute["then_branch"].g.name: is required',
    ),
    ("input without a name", put("graph.input[0]", name=""), "graph.input[0].name: is required"),
    ("input without a type", put("graph.input[0]", type=None), "graph.input[0].type: is required"),
    ("empty type", put("graph.input[0]", type=ps.TypeProto()), "graph.input[0].type: says nothing"),
    (
        "no element type",
        put("graph.input[0].type.tensor_type", elem_type=None),
        "graph.input[0].type.tensor_type.elem_type: is",
    ),
    (
        "no shape",
        put("graph.output[0].type.tensor_type", shape=None),
        "graph.output[0].type.tensor_type.shape: is required",
    ),
    (
        "sequence of nothing",
        put("graph.input[0].type", sequence_type=ps.TypeProto.Sequence()),
        "graph.input[0].type.sequence_type.elem_type: is required",
    ),
    (
        "optional of nothing",
        put("graph.input[0].type", optional_type=ps.TypeProto.Optional()),
        "graph.input[0].type.optional_type.elem_type: is required",
    ),
    (
        "map without a key type",
        put("graph.input[0].type", map_type=ps.TypeProto.Map(value_type=ps.TypeProto())),
        "graph.input[0].type.map_type.key_type: is required",
    ),
    (
        "map without a value type",
        put("graph.input[0].type", map_type=ps.TypeProto.Map(key_type=7)),
        "graph.input[0].type.map_type.value_type: is required",
    ),
    (
        "opaque without a name",
        put("graph.input[0].type", opaque_type=ps.TypeProto.Opaque(domain="d")),
        "graph.input[0].type.opaque_type.name: is required",
    ),
]

NAMES: list[Row] = [
    ("two inputs of a name", add("graph.input", value("x")), "graph.input[2]: the name 'x' is given to another input"),
    (
        "initializer without a name",
        initializer(floats("")),
        "graph.initializer[2].name: is required, but absent or empty",
    ),
    ("two initializers of a name", initializer(floats("w")), "graph.initializer[2].name: 'w' is the name of another"),
    (
        "sparse initializer of a taken name",
        both(initializer(floats("s")), add("graph.sparse_initializer", sparse())),
        "graph.sparse_initializer[0].values.name: 's' is the name of another",
    ),
    (
        "sparse initializer without a name",
        lambda m: (
            m.graph.sparse_initializer.append(sparse()) or setattr(m.graph.sparse_initializer[0].values, "name", None)
        ),
        "graph.sparse_initializer[0].values.name: is required",
    ),
    (
        "initializer that is not an input, IR 3",
        both(put("", ir_version=3), opset(20)),
        "graph.initializer[0].name: 'w' must be a graph input as well, up to IR version 3",
    ),
    (
        "undefined input",
        put("graph.node[1]", input=["nowhere"]),
        "graph.node[1].input[0]: 'nowhere' is not defined: no input",
    ),
    (
        "wrong order",
        lambda m: m.graph.node.insert(0, m.graph.node.pop(1)),
        "graph.node[0].input[0]: 'h' is made only later, by node[1]",
    ),
    ("own output", put("graph.node[1]", input=["r"]), "graph.node[1].input[0]: 'r' is an output of the same node"),
    ("assigned twice", node("Relu", ["x"], ["h"]), "graph.node[5].output[0]: 'h' is defined already"),
    (
        "assigned twice in a node",
        node("Split", ["x"], ["a", "a"], num_outputs=2),
        "graph.node[5].output[1]: 'a' is defined",
    ),
    ("an input assigned", node("Relu", ["x"], ["c"]), "graph.node[5].output[0]: 'c' is defined already"),
    ("an initializer assigned", node("Relu", ["x"], ["w"]), "graph.node[5].output[0]: 'w' is defined already"),
    (
        "output that nobody makes",
        add("graph.output", value("nowhere")),
        "graph.output[2]: 'nowhere' is not made in this graph",
    ),
    (
        "subgraph sees no later name",
        lambda m: setattr(then_branch(m).node[0], "input", ["z"]),
        "graph.node[2].attribute[\"then_branch\"].g.node[0].input[0]: 'z' is not defined",
    ),
    (
        "subgraph assigns an outer name",
        lambda m: setattr(then_branch(m).node[0], "output", ["h"]),
        "graph.node[2].attribute[\"then_branch\"].g.node[0].output[0]: 'h' is defined already",
    ),
    (
        "subgraph returns an outer value",
        lambda m: then_branch(m).output.append(value("r")),
        "graph.node[2].attribute[\"then_branch\"].g.output[1]: 'r' is not made in this graph; pass the outer",
    ),
]

OPERATORS: list[Row] = [
    ("no op_type", put("graph.node[1]", op_type=""), "graph.node[1].op_type: is required"),
    (
        "no inputs and outputs",
        add("graph.node", ps.NodeProto(op_type="Relu")),
        "graph.node[5]: Relu has neither inputs nor",
    ),
    ("domain not imported", node("Any", ["x"], ["a"], "other"), "graph.node[5].domain: no opset of the domain 'other'"),
    (
        "misspelt operator",
        put("graph.node[1]", op_type="Rellu"),
        "graph.node[1].op_type: there is no operator 'Rellu' in opset 20; is Relu meant?",
    ),
    (
        "operator of a later opset",
        both(opset(19), node("Gelu", ["x"], ["a"])),
        "graph.node[5].op_type: Gelu does not exist in opset 19; it does from opset 20",
    ),
    ("operator of no opset", both(opset(0)), "graph.node[0].op_type: Conv does not exist in opset 0"),
    (
        "ml operator that does not exist",
        both(add("opset_import", helper.make_opsetid("ai.onnx.ml", 5)), node("Forest", ["x"], ["a"], "ai.onnx.ml")),
        "graph.node[5].op_type: there is no operator 'Forest' in opset 5 of",
    ),
    (
        "deprecated operator",
        node("Upsample", ["x", "w"], ["a"]),
        "graph.node[5].op_type: Upsample is deprecated since opset 10",
    ),
    (
        "too few inputs",
        node("Conv", ["x"], ["a"]),
        "graph.node[5].input: Conv (as of opset 11) has 1 inputs; it takes 2 to 3",
    ),
    (
        "too many inputs",
        node("Relu", ["x", "x"], ["a"]),
        "graph.node[5].input: Relu (as of opset 14) has 2 inputs; it takes 1",
    ),
    (
        "too few for a variadic",
        node("Concat", [], ["a"], axis=0),
        "graph.node[5].input: Concat (as of opset 13) has 0 inputs",
    ),
    ("too many outputs", node("Relu", ["x"], ["a", "b"]), "graph.node[5].output: Relu (as of opset 14) has 2 outputs"),
    ("no output", node("Relu", ["x"], []), "graph.node[5].output: Relu (as of opset 14) has 0 outputs; it takes 1"),
    (
        "number of outputs between",
        node("BatchNormalization", ["x", "w", "w", "w", "w"], ["a", "b"]),
        "graph.node[5].output: BatchNormalization (as of opset 15) has 2 outputs; it takes 1 or 3",
    ),
    (
        "needed input left out",
        node("Conv", ["x", ""], ["a"]),
        "graph.node[5].input[1]: 'W' is not optional, but its name is",
    ),
    (
        "needed output left out",
        node("Relu", ["x"], [""]),
        "graph.node[5].output[0]: 'Y' is not optional, but its name is",
    ),
    (
        "unknown operator asked for",
        node("Clip", ["x"], ["a"], min=0.0),
        'graph.node[5].attribute["min"]: Clip as of opset 13 has no such attribute; it had it in',
    ),
]

ATTRIBUTES: list[Row] = [
    ("no name", attribute(type=A.INT, i=1), "graph.node[1].attribute[0].name: is required"),
    ("no type", attribute(name="k", i=1), 'graph.node[1].attribute["k"].type: is required'),
    (
        "unknown attribute",
        attribute(name="k", type=A.INT, i=1),
        'graph.node[1].attribute["k"]: Relu as of opset 14 has no such',
    ),
    (
        "appears twice",
        lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0]),
        'graph.node[0].attribute["kernel_shape"]: appears more than once',
    ),
    (
        "value of another type",
        attribute(name="k", type=A.INT, f=1.0),
        'graph.node[1].attribute["k"].f: is of type INT, but holds a value of type FLOAT',
    ),
    ("two values", attribute(name="k", type=A.INT, i=1, ints=[1]), 'graph.node[1].attribute["k"].ints: is of type INT'),
    (
        "wrong type",
        node("Concat", ["x"], ["a"], axis=1.0),
        'graph.node[5].attribute["axis"].type: is of type FLOAT; Concat takes INT',
    ),
    (
        "list for one",
        node("Concat", ["x"], ["a"], axis=[1]),
        'graph.node[5].attribute["axis"].type: is of type INTS; Concat takes',
    ),
    (
        "required one absent",
        node("Concat", ["x"], ["a"]),
        'graph.node[5].attribute["axis"]: is required by Concat, but absent',
    ),
    ("required graph absent", node("If", ["c"], ["a"]), 'graph.node[5].attribute["else_branch"]: is required by If'),
    (
        "tensor attribute without its tensor",
        add("graph.node", ps.NodeProto(op_type="Constant", output=["a"], attribute=[A(name="value", type=A.TENSOR)])),
        'graph.node[5].attribute["value"].t: is required',
    ),
    (
        "bad tensor inside",
        node("Constant", [], ["a"], value=ps.TensorProto(data_type=1, dims=[2], float_data=[1.0])),
        'graph.node[5].attribute["value"].t.float_data: has 1 entries; FLOAT [2] needs 2',
    ),
    (
        "two values without a type, IR 1",
        both(
            put("", ir_version=1, opset_import=[], functions=[]),
            put("graph", node=[], initializer=[], output=[]),
            add("graph.node", ps.NodeProto(op_type="Relu", output=["a"], attribute=[A(name="k", i=1, f=1.0)])),
        ),
        'graph.node[0].attribute["k"]: holds more than one value: i, f',
    ),
    (
        "attribute of a later version",
        both(opset(13), node("Reshape", ["x", "w"], ["a"], allowzero=1)),
        'graph.node[5].attribute["allowzero"]: Reshape as of opset 13 has no such attribute; it has it from opset 14',
    ),
    *(
        (f"bad {field} inside", node("Any", ["x"], ["a"], "my", k=bad), f'graph.node[5].attribute["k"].{place}: is')
        for field, bad, place in (
            ("sparse tensor", ps.SparseTensorProto(), "sparse_tensor.values"),
            ("tensors", [ps.TensorProto(data_type=1, dims=[0]), ps.TensorProto()], "tensors[1].data_type"),
            ("sparse tensors", [ps.SparseTensorProto()], "sparse_tensors[0].values"),
            ("graph", ps.GraphProto(), "g.name"),
            ("graphs", [ps.GraphProto()], "graphs[0].name"),
        )
    ),
    (
        "reference with a value, in a subgraph",
        lambda m: then_branch(m).node[0].attribute.append(A(name="k", type=A.INT, i=1, ref_attr_name="r")),
        'graph.node[2].attribute["then_branch"].g.node[0].attribute["k"]: has a value',
    ),
]
