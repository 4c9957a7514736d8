"""Rows of the checker's tests: tensors, functions, types; where we are stricter; odd models that are valid.

A row is (what is wrong, the change that breaks the valid model, the start of the message).
"""

from __future__ import annotations

from typing import Any

import proto_schema as ps
from proto_schema import helper
from tests.proto_schema.checker_models import (
    A,
    Change,
    T,
    add,
    attribute,
    both,
    external,
    floats,
    function,
    initializer,
    loop,
    node,
    opset,
    put,
    sparse,
    then_branch,
    typed,
    value,
)

call = helper.make_node
Row = tuple[str, Change, str]

TENSORS: list[Row] = [
    ("no data type", initializer(ps.TensorProto(name="n", dims=[0])), "graph.initializer[2].data_type: is required"),
    ("undefined data type", typed(0, [0]), "graph.initializer[2].data_type: 0 is not a data type"),
    ("unknown data type", typed(99, [1], int32_data=[1]), "graph.initializer[2].data_type: 99 is not a data type"),
    ("no data", typed(T.FLOAT, [2]), "graph.initializer[2]: its values must be in one field, not in none"),
    (
        "data in two fields",
        typed(T.FLOAT, [1], float_data=[1.0], raw_data=b"1234"),
        "graph.initializer[2]: its values must be in",
    ),
    (
        "data in another field",
        typed(T.FLOAT, [1], int32_data=[1]),
        "graph.initializer[2].int32_data: FLOAT values are stored in float",
    ),
    (
        "data without elements",
        typed(T.FLOAT, [0], float_data=[1.0]),
        "graph.initializer[2].float_data: the shape [0] has no elements",
    ),
    (
        "raw strings",
        typed(T.STRING, [1], raw_data=b"a"),
        "graph.initializer[2].raw_data: strings must be stored in string_data",
    ),
    (
        "raw data too short",
        typed(T.FLOAT, [2], raw_data=b"1234"),
        "graph.initializer[2].raw_data: has 4 bytes; FLOAT [2] needs 8",
    ),
    (
        "raw 4-bit data too short",
        typed(T.INT4, [3], raw_data=b"1"),
        "graph.initializer[2].raw_data: has 1 bytes; INT4 [3] needs 2",
    ),
    (
        "raw 6-bit data with a rest",
        typed(T.FLOAT6E2M3, [1], raw_data=b"\xff"),
        "graph.initializer[2].raw_data: has non-zero padding bits",
    ),
    (
        "6-bit value too large",
        typed(T.FLOAT6E2M3, [1], int32_data=[64]),
        "graph.initializer[2].int32_data: has a value of more",
    ),
    (
        "floats too few",
        typed(T.FLOAT, [2], float_data=[1.0]),
        "graph.initializer[2].float_data: has 1 entries; FLOAT [2] needs 2",
    ),
    (
        "complex parts too few",
        typed(T.COMPLEX64, [1], float_data=[1.0]),
        "graph.initializer[2].float_data: has 1 entries; COMPLEX64",
    ),
    ("doubles too few", typed(T.DOUBLE, [2], double_data=[1.0]), "graph.initializer[2].double_data: has 1 entries"),
    ("halves too few", typed(T.FLOAT16, [2], int32_data=[1]), "graph.initializer[2].int32_data: has 1 entries"),
    ("int64 too few", typed(T.INT64, [2], int64_data=[1]), "graph.initializer[2].int64_data: has 1 entries"),
    ("uint32 too few", typed(T.UINT32, [2], uint64_data=[1]), "graph.initializer[2].uint64_data: has 1 entries"),
    (
        "4-bit entries too few",
        typed(T.UINT4, [9], int32_data=[1]),
        "graph.initializer[2].int32_data: has 1 entries; UINT4 [9] needs 5",
    ),
    ("strings too few", typed(T.STRING, [2], string_data=[b"a"]), "graph.initializer[2].string_data: has 1 entries"),
    ("negative dim", typed(T.FLOAT, [-1], float_data=[1.0]), "graph.initializer[2].dims[0]: -1 is negative"),
    (
        "dims overflow",
        typed(T.FLOAT, [2**62, 4], raw_data=b"1234"),
        "graph.initializer[2].dims: the shape [4611686018427387904, 4] is",
    ),
    (
        "external without a location",
        initializer(external(offset="0")),
        "graph.initializer[2].external_data: tensor 'n': its data is",
    ),
    (
        "external with data",
        lambda m: (
            m.graph.initializer.append(external(location="a"))
            or setattr(m.graph.initializer[2], "raw_data", b"12345678")
        ),
        "graph.initializer[2].raw_data: must be empty, because the data is external",
    ),
    (
        "absolute location",
        initializer(external(location="/etc/passwd")),
        "graph.initializer[2].external_data: tensor 'n': the external",
    ),
    (
        "location outside",
        initializer(external(location="../a")),
        "graph.initializer[2].external_data: tensor 'n': the external",
    ),
    (
        "sparse without values",
        add("graph.sparse_initializer", ps.SparseTensorProto(dims=[1])),
        "graph.sparse_initializer[0].values: is",
    ),
    (
        "sparse values of rank 2",
        lambda m: (
            m.graph.sparse_initializer.append(sparse()) or setattr(m.graph.sparse_initializer[0].values, "dims", [2, 1])
        ),
        "graph.sparse_initializer[0].values.dims: must have rank 1, not 2",
    ),
    (
        "sparse scalar",
        add("graph.sparse_initializer", sparse(dims=())),
        "graph.sparse_initializer[0].dims: a sparse tensor has",
    ),
    (
        "sparse dim of 0",
        add("graph.sparse_initializer", sparse(dims=(5, 0))),
        "graph.sparse_initializer[0].dims[1]: 0 is not positive",
    ),
    (
        "sparse without indices",
        lambda m: (
            m.graph.sparse_initializer.append(sparse()) or setattr(m.graph.sparse_initializer[0], "indices", None)
        ),
        "graph.sparse_initializer[0].indices: is required",
    ),
    (
        "sparse indices of int32",
        lambda m: (
            m.graph.sparse_initializer.append(sparse())
            or setattr(m.graph.sparse_initializer[0], "indices", helper.make_tensor("i", T.INT32, [2], [0, 1]))
        ),
        "graph.sparse_initializer[0].indices.data_type: must be INT64",
    ),
    (
        "sparse indices too few",
        add("graph.sparse_initializer", sparse(2, (0,))),
        "graph.sparse_initializer[0].indices.dims: [1] is neither",
    ),
    (
        "sparse rank of indices",
        add("graph.sparse_initializer", sparse(2, ((0, 0, 0), (0, 0, 1)), (5, 5))),
        "graph.sparse_initializer[0].indices.dims: [2, 3] is neither [2] nor [2, 2]",
    ),
    (
        "sparse index outside",
        add("graph.sparse_initializer", sparse(2, (0, 5))),
        "graph.sparse_initializer[0].indices: index 1 is 5, outside",
    ),
    (
        "sparse row outside",
        add("graph.sparse_initializer", sparse(2, ((0, 0), (0, 9)), (5, 5))),
        "graph.sparse_initializer[0].indices: index 1 is [0, 9], outside the shape [5, 5]",
    ),
    (
        "sparse indices unsorted",
        add("graph.sparse_initializer", sparse(2, (3, 0))),
        "graph.sparse_initializer[0].indices: index 1 is not",
    ),
    (
        "sparse rows unsorted",
        add("graph.sparse_initializer", sparse(2, ((1, 0), (0, 4)), (5, 5))),
        "graph.sparse_initializer[0].indices: index 1 is not greater",
    ),
]

FUNCTIONS: list[Row] = [
    (
        "too many",
        lambda m: m.functions.extend([m.functions[0]] * 10_000),
        "functions: 10001 functions are more than the limit of 10000",
    ),
    ("no name", put("functions[0]", name=""), "functions[0].name: is required"),
    ("no domain", put("functions[0]", domain=None), "functions[0].domain: is required"),
    (
        "two of a name",
        lambda m: m.functions.append(m.functions[0]),
        "functions[1]: another function is called my::Twice as well",
    ),
    ("input twice", put("functions[0]", input=["a", "a"]), "functions[0].input[1]: 'a' appears more than once"),
    ("output twice", put("functions[0]", output=["b", "b"]), "functions[0].output[1]: 'b' appears more than once"),
    (
        "attribute twice",
        put("functions[0]", attribute=["alpha", "alpha"]),
        "functions[0].attribute[1]: 'alpha' appears more than",
    ),
    (
        "undefined input",
        put("functions[0].node[0]", input=["a", "x"]),
        "functions[0].node[0].input[1]: 'x' is not defined",
    ),
    (
        "assigned twice",
        put("functions[0].node[1]", output=["s"]),
        "functions[0].node[1].output[0]: 's' is defined already",
    ),
    (
        "domain not imported",
        put("functions[0]", opset_import=[]),
        "functions[0].node[0].domain: the function imports no opset of the domain",
    ),
    (
        "operator of another version",
        put("functions[0].opset_import[0]", version=7),
        "functions[0].node[0].op_type: Add differs between opset 7 of the function and 20 of the model",
    ),
    (
        "unknown operator",
        put("functions[0].node[0]", op_type="Plus"),
        "functions[0].node[0].op_type: there is no operator 'Plus'",
    ),
    (
        "calls itself",
        function(call("F", ["a"], ["b"], domain="my")),
        "functions[1]: functions must not be recursive: my::F -> my::F",
    ),
    (
        "call each other",
        both(function(call("G", ["a"], ["b"], domain="my")), function(call("F", ["a"], ["b"], domain="my"), name="G")),
        "functions[1]: functions must not be recursive: my::F -> my::G -> my::F",
    ),
    (
        "calls itself in a subgraph",
        function(
            call(
                "If",
                ["a"],
                ["b"],
                then_branch=helper.make_graph([call("F", ["a"], ["t"], domain="my")], "t", [], [value("t")]),
                else_branch=helper.make_graph([call("Neg", ["a"], ["e"])], "e", [], [value("e")]),
            )
        ),
        "functions[1]: functions must not be",
    ),
]


def _input(shape: Any, code: int = T.FLOAT) -> Change:
    """The initializer `w` of the valid model, [4, 3, 3, 3], is an input as well."""
    return add("graph.input", value("w", shape, code))


def _values(name: str, shape: Any) -> Change:
    return add("graph.input", value(name, shape))


def _sparse_output(shape: Any, code: int = T.FLOAT) -> Change:
    """A sparse initializer of [5] that is an output, declared as a sparse tensor."""
    return both(
        add("graph.sparse_initializer", sparse()),
        add("graph.output", helper.make_sparse_tensor_value_info("s", code, shape)),
    )


TYPES: list[Row] = [
    (
        "initializer of another shape than its input",
        _input([4, 3, 3, 9]),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [4, 3, 3, 9] of the input 'w'",
    ),
    (
        "initializer of another rank than its input",
        _input([108]),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [108] of the input 'w'",
    ),
    (
        "initializer of a rank where its input has none",
        _input([]),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [] of the input 'w'",
    ),
    (
        "initializer of another size than its input, beside an open one",
        _input(["N", 0, 3, 3]),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape ['N', 0, 3, 3] of the input 'w'",
    ),
    (
        "initializer of another type than its input",
        _input([4, 3, 3, 3], T.DOUBLE),
        "graph.initializer[0]: is declared as tensor(double), but the initializer holds tensor(float)",
    ),
    (
        "initializer of another shape than its output",
        add("graph.output", value("w", [9])),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [9] of the output 'w'",
    ),
    (
        "initializer of another shape than its value info",
        add("graph.value_info", value("w", [9])),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [9] of the value_info 'w'",
    ),
    (
        "initializer of another type than its value info",
        add("graph.value_info", value("w", [4, 3, 3, 3], T.DOUBLE)),
        "graph.initializer[0]: is declared as tensor(double), but the initializer holds tensor(float)",
    ),
    (
        "initializer of a branch",
        lambda m: then_branch(m).initializer.append(floats("k")) or then_branch(m).value_info.append(value("k", [3])),
        'graph.node[2].attribute["then_branch"].g.initializer[0].dims: [2] is not the shape [3] of the value_info',
    ),
    (
        "sparse output of another type",
        _sparse_output([5], T.DOUBLE),
        "graph.sparse_initializer[0]: is declared as sparse_tensor(double), but the initializer holds tensor(float)",
    ),
    (
        "sparse output of another shape",
        _sparse_output([6]),
        "graph.sparse_initializer[0].dims: [5] is not the shape [6] of the output 's'",
    ),
    (
        "sparse initializer of another type than its input",
        both(add("graph.sparse_initializer", sparse()), add("graph.input", value("s", [5], T.DOUBLE))),
        "graph.sparse_initializer[0]: is declared as tensor(double), but the initializer holds tensor(float)",
    ),
    (
        "sparse constant of another type",
        both(node("Constant", [], ["k"], sparse_value=sparse()), add("graph.output", value("k", [5], T.DOUBLE))),
        "graph.node[5].output[0]: is declared as tensor(double), but Constant makes tensor(float)",
    ),
    (
        "sparse constant as a sparse tensor",
        both(
            node("Constant", [], ["k"], sparse_value=sparse()),
            add("graph.output", helper.make_sparse_tensor_value_info("k", T.FLOAT, [5])),
        ),
        "graph.node[5].output[0]: is declared as sparse_tensor(float), but Constant makes tensor(float)",
    ),
    (
        "type that the operator cannot make",
        node("EyeLike", ["x"], ["a"], dtype=T.STRING),
        "graph.node[5].output[0]: is tensor(string); EyeLike makes tensor(bool), tensor(double), tensor(float), ...",
    ),
    (
        "branch with an input",
        lambda m: then_branch(m).input.append(value("free")),
        'graph.node[2].attribute["then_branch"].g.input: has 1 inputs; If passes 0',
    ),
    (
        "branches of two sizes",
        lambda m: then_branch(m).output.append(value("t")),
        'graph.node[2].attribute["then_branch"].g.output: has 2 outputs; If takes 1',
    ),
    (
        "loop body with too few inputs",
        loop("c"),
        'graph.node[5].attribute["body"].g.input: has 2 inputs; Loop passes 3',
    ),
    (
        "sequence of another type",
        both(
            typed(T.INT64, [1], int64_data=[1]),
            node("SequenceConstruct", ["x"], ["a"]),
            node("SequenceInsert", ["a", "n"], ["b"]),
        ),
        "graph.node[6].input[1]: is tensor(int64), but the sequence holds tensor(float)",
    ),
    (
        "type that the operator does not take",
        node("Relu", ["c"], ["a"]),
        "graph.node[5].input[0]: is tensor(bool); Relu takes tensor(bfloat16), tensor(double), tensor(float), ...",
    ),
    (
        "two types for one variable",
        both(typed(T.INT64, [1], int64_data=[1]), node("Add", ["x", "n"], ["a"])),
        "graph.node[5].input[1]: is tensor(int64), but input[0] is tensor(float); both must be of the type T",
    ),
    (
        "literal type",
        both(initializer(floats("n")), node("Reshape", ["x", "n"], ["a"])),
        "graph.node[5].input[1]: is tensor(float); Reshape takes tensor(int64)",
    ),
    (
        "output declared otherwise",
        put("graph.output[1].type.tensor_type", elem_type=T.INT64),
        "graph.node[1].output[0]: is declared as tensor(int64), but Relu makes tensor(float)",
    ),
    (
        "value info says otherwise",
        add("graph.value_info", value("h", code=T.DOUBLE)),
        "graph.node[0].output[0]: is declared as tensor(double), but Conv makes tensor(float)",
    ),
    (
        "cast elsewhere",
        both(node("Cast", ["x"], ["a"], to=T.INT64), node("Add", ["a", "x"], ["b"])),
        "graph.node[6].input[1]: is tensor(float), but input[0] is tensor(int64)",
    ),
    (
        "constant of another type",
        both(node("Constant", [], ["a"], value_int=1), node("Add", ["x", "a"], ["b"])),
        "graph.node[6].input[1]: is tensor(int64), but input[0] is tensor(float)",
    ),
    (
        "branches of two types",
        lambda m: (
            then_branch(m).node.__setitem__(0, call("Cast", ["r"], ["t"], to=T.INT64))
            or then_branch(m).output.__setitem__(0, value("t", code=T.INT64))
        ),
        "graph.node[2].output[0]: is tensor(int64) from then_branch, but tensor(float)",
    ),
    (
        "output of a branch of a type that does not exist",
        put("graph.node[2].attribute[0].g.output[0].type.tensor_type", elem_type=99),
        'graph.node[2].attribute["else_branch"].g.node[0].output[0]: is declared as tensor(99), but Neg makes',
    ),
    (
        "condition that is not a bool",
        put("graph.node[2]", input=["x"]),
        "graph.node[2].input[0]: is tensor(float); If takes tensor(bool)",
    ),
    (
        "initializer of another type than its input",
        add("graph.input", value("top", [], T.INT64)),
        "graph.initializer[1]: is declared as tensor(int64), but the initializer holds tensor(float)",
    ),
    (
        "inside a subgraph",
        lambda m: setattr(then_branch(m).node[0], "op_type", "Not"),
        'graph.node[2].attribute["then_branch"].g.node[0].input[0]: is tensor(float); Not takes tensor(bool)',
    ),
    (
        "opaque value for a tensor",
        put("graph.input[0].type", opaque_type=ps.TypeProto.Opaque(domain="d", name="n")),
        "graph.node[0].input[0]: is opaque(d,n); Conv takes tensor(double) or tensor(float) or tensor(float16)",
    ),
    (
        "sequence for a tensor",
        both(node("SequenceConstruct", ["x"], ["a"]), node("Relu", ["a"], ["b"])),
        "graph.node[6].input[0]: is seq(tensor(float)); Relu takes",
    ),
]

STRICTER_FULL: list[Row] = [
    (
        "initializer like the output of its name, but not like the input",
        both(_input([9]), add("graph.output", value("w", [4, 3, 3, 3]))),
        "graph.initializer[0].dims: [4, 3, 3, 3] is not the shape [9] of the input 'w'",
    ),
]

STRICTER: list[Row] = [
    (
        "a function that no node calls, because the standard has an operator of its name",
        lambda m: m.functions.append(helper.make_function("", "Relu", ["a"], ["a"], [], [helper.make_opsetid("", 21)])),
        "functions[1]: Relu is an operator of the standard: nodes compute that, and never call this function",
    ),
    ("name that is no UTF-8", put("graph", name=b"\xff"), "graph.name: is not UTF-8: b'\\xff'"),
    (
        "key type 0",
        put("graph.input[0].type", map_type=ps.TypeProto.Map(key_type=0, value_type=ps.TypeProto())),
        "graph.input[0].type.map_type.key_type: 0 is not a data type",
    ),
    (
        "strings in a file",
        both(initializer(external(location="a.bin")), put("graph.initializer[2]", data_type=T.STRING)),
        "graph.initializer[2].data_location: strings must be stored in string_data, not in a file",
    ),
    (
        "segment of indices",
        both(
            add("graph.sparse_initializer", sparse()),
            put("graph.sparse_initializer[0].indices", segment=ps.TensorProto.Segment()),
        ),
        "graph.sparse_initializer[0].indices: tensor 'i' is a segment of a tensor",
    ),
    (
        "calls too deep",
        both(*(function(call(f"F{i + 1}", ["a"], ["b"], domain="my"), name=f"F{i}") for i in range(101))),
        "functions[1]: calls are nested more than 100 deep",
    ),
    (
        "calls too deep, found from the inside",
        both(*(function(call(f"F{i - 1}", ["a"], ["b"], domain="my"), name=f"F{i}") for i in range(101))),
        "functions[101]: calls are nested more than 100 deep",
    ),
    (
        "functions of an old IR version",
        put("", ir_version=7),
        "functions: IR version 7 has no functions; they came with 8",
    ),
    (
        "raw data too long",
        typed(T.FLOAT, [1], raw_data=bytes(8)),
        "graph.initializer[2].raw_data: has 8 bytes; FLOAT [1] needs 4",
    ),
    ("entries too many", typed(T.FLOAT, [1], float_data=[1.0, 2.0]), "graph.initializer[2].float_data: has 2 entries"),
    (
        "4-bit entries, eight in one",
        typed(T.UINT4, [8], int32_data=[1]),
        "graph.initializer[2].int32_data: has 1 entries; UINT4 [8] needs",
    ),
    (
        "element type 0",
        put("graph.input[0].type.tensor_type", elem_type=0),
        "graph.input[0].type.tensor_type.elem_type: 0 is not",
    ),
    (
        "reference outside a function",
        lambda m: (
            setattr(m.graph.node[3].attribute[0], "ref_attr_name", "k")
            or setattr(m.graph.node[3].attribute[0], "f", None)
        ),
        'graph.node[3].attribute["alpha"].ref_attr_name: refers to an attribute of a function',
    ),
    (
        "value and reference",
        lambda m: setattr(m.functions[0].node[1].attribute[0], "f", 1.0),
        'functions[0].node[1].attribute["alpha"]: has a value, although it refers to the function',
    ),
    (
        "function output that nobody makes",
        put("functions[0]", output=["q"]),
        "functions[0].output[0]: 'q' is not made in this function",
    ),
    (
        "attribute with and without a default",
        add("functions[0].attribute_proto", helper.make_attribute("alpha", 1.0)),
        "functions[0].attribute[1]: 'alpha' appears more than once",
    ),
    (
        "too many inputs of a call",
        put("graph.node[3]", input=["y", "y"]),
        "graph.node[3].input: the call has 2 inputs; the function",
    ),
    (
        "too many outputs of a call",
        put("graph.node[3]", output=["z", "z2"]),
        "graph.node[3].output: the call has 2 outputs; the function",
    ),
    (
        "unknown attribute of a call",
        add("graph.node[3].attribute", helper.make_attribute("beta", 1)),
        'graph.node[3].attribute["beta"]: the function Twice has no such attribute',
    ),
    (
        "missing attribute of a call",
        put("graph.node[3]", attribute=[]),
        'graph.node[3].attribute["alpha"]: is required by the function',
    ),
    (
        "external length that does not fit",
        initializer(external(location="a.bin", length="7")),
        "graph.initializer[2].external_data: the length is 7; the shape needs 8 bytes",
    ),
    (
        "external number that int() takes",
        initializer(external(location="a.bin", offset="1_0")),
        "graph.initializer[2].external_data: tensor 'n': the external offset is '1_0'",
    ),
]

# what both full checks refuse, because of shapes that are inferred
SHAPES: list[tuple[str, Change, str]] = [
    (
        "product",
        both(_values("a", [2, 3]), _values("b", [4, 5]), node("MatMul", ["a", "b"], ["ab"])),
        "graph.node[5]: the MatMul that makes 'ab': shapes [2, 3] and [4, 5] have no matrix product",
    ),
    (
        "convolution of another rank",
        both(_values("a", [1, 3, 8]), node("Conv", ["a", "w"], ["ab"])),
        "graph.node[5]: the Conv that makes 'ab': the data has rank 3, and the weight tensor rank 4",
    ),
    (
        "axis out of range",
        both(_values("a", [2, 3]), node("Concat", ["a", "a"], ["ab"], axis=9)),
        "graph.node[5]: the Concat that makes 'ab': axis 9 is out of range for rank 2",
    ),
    (
        "declared output",
        both(_values("a", [2]), node("Relu", ["a"], ["ab"]), add("graph.output", value("ab", [3]))),
        "graph.node[5].output[0]: the Relu that makes 'ab': output 'ab': is declared with shape [3]",
    ),
    (
        "sparse initializer where a tensor is taken",
        both(add("graph.sparse_initializer", sparse()), node("Relu", ["s"], ["k"])),
        "graph.node[5]: the Relu that makes 'k': input 'X' is sparse_tensor(float)",
    ),
    (
        "sparse output",
        both(add("graph.sparse_initializer", sparse()), add("graph.output", value("s", [5]))),
        "graph.output[2]: output 's': is declared with another kind of type",
    ),
]

# what both full checks take
FULLY_VALID: list[tuple[str, Change]] = [
    ("initializer and input", _input([4, 3, 3, 3])),
    ("initializer and an input of open sizes", _input(["N", 3, None, "M"])),
    ("initializer and an input, both of a name for two sizes", _input(["N", "N", 3, 3])),
    ("initializer and output", add("graph.output", value("w", [4, "N", 3, 3]))),
    ("initializer and its value info", add("graph.value_info", value("w", [4, 3, 3, 3]))),
    ("input goes before value info", both(_input([4, 3, 3, 3]), add("graph.value_info", value("w", [9])))),
    ("sparse output", _sparse_output([5])),
    ("sparse output of open size", _sparse_output(["N"])),
    (
        "sparse input and output",
        both(_sparse_output([5]), add("graph.input", helper.make_sparse_tensor_value_info("s", T.FLOAT, [5]))),
    ),
    ("sparse constant", both(node("Constant", [], ["k"], sparse_value=sparse()), add("graph.output", value("k", [5])))),
]

VALID: list[tuple[str, Change]] = [
    ("nothing changed", both()),
    (
        "100 nested calls",
        both(*(function(call(f"F{i + 1}", ["a"], ["b"], domain="my"), name=f"F{i}") for i in range(100))),
    ),
    (
        "graphs in a custom operator",
        node("Any", ["x"], ["a"], "my", k=helper.make_graph([], "k", [], []), ks=[helper.make_graph([], "k", [], [])]),
    ),
    (
        "function with branches from its attributes",
        function(
            ps.NodeProto(
                op_type="If",
                input=["a"],
                output=["b"],
                attribute=[
                    helper.make_attribute_ref("then_branch", A.GRAPH, ref_attr_name="t"),
                    helper.make_attribute_ref("else_branch", A.GRAPH, ref_attr_name="e"),
                ],
            ),
            attributes=["t", "e"],
            name="Choose",
        ),
    ),
    ("linear sparse indices", add("graph.sparse_initializer", sparse())),
    (
        "unknown operator of a custom domain",
        both(add("opset_import", helper.make_opsetid("z", 3)), node("Any", ["x"], ["a"], "z")),
    ),
    (
        "operator of a preview domain",
        both(
            add("opset_import", helper.make_opsetid("ai.onnx.preview", 1)), node("Any", ["x"], ["a"], "ai.onnx.preview")
        ),
    ),
    ("experimental operator", node("ATen", ["x"], ["a"], k=1)),
    ("opset of the future", opset(999)),
    ("input hides an initializer", add("graph.input", value("top", []))),
    ("subgraph inputs without types hide outer names", loop("c", "x")),
    ("attribute of our own", attribute(name="__note", type=A.INT, i=1)),
    ("any attribute of LayerNormalization", node("LayerNormalization", ["x", "w"], ["a"], k=1)),
    ("no attribute value", attribute(name="__k", type=A.INTS)),
    (
        "no IR 3 imports",
        both(put("", ir_version=2, opset_import=[], functions=[]), put("graph", node=[], initializer=[], output=[])),
    ),
    ("metadata", lambda m: helper.set_model_props(m, {"a": "1", "b": "1"})),
    (
        "sparse",
        add(
            "graph.sparse_initializer",
            helper.make_sparse_tensor(floats("s0", 0), helper.make_tensor("i", T.INT64, [0], []), [3]),
            sparse(2, ((0, 1), (1, 0)), (5, 5)),
        ),
    ),
    ("scalar and empty tensors", both(initializer(floats("empty", 0)), typed(T.BOOL, [], int32_data=[1]))),
]
