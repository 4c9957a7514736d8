"""The types of values (`full_check`): carried through the graph as far as they are determined, checked at each node.

A type is a string in the canonical form of the operator history: "tensor(float)", "seq(tensor(int64))". A node's inputs
bind its type variables; outputs follow from these, from a constraint with a single type, or from a rule in `RULES` for
the operators whose output type an attribute or a subgraph says. What is not determined is None and is not checked.
Function bodies are checked without the types of their inputs, and a call's outputs are not determined.

Shapes are those of the inference, which runs after this walk. The shape of an initializer is compared here with the
declarations of its name.
A sparse initializer may stand for a tensor, as in ONNX Runtime; official inference takes it for a sparse one only.
Stricter than that: an initializer must fit the input of its name also where an output of the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from typing import TypeAlias

from proto_schema import operators
from proto_schema.checking.context import callee, domain_of, function_id, imported
from proto_schema.checking.place import Problem, inside
from proto_schema.onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.operators import Formal, OpSchema

Type: TypeAlias = "str | None"


def check_types(model: ModelProto) -> None:
    """Every node of the graph and of the functions has inputs, outputs and declared values of types that fit."""
    functions = {function_id(function) for function in model.functions}
    if model.graph is not None:
        with inside("graph"):
            _Types(imported(model.opset_import) or {"": 1}, functions).graph(model.graph, None)
    for place, function in enumerate(model.functions):
        with inside("functions", place):
            values = dict.fromkeys(function.input)
            types = _Types(imported(function.opset_import), functions)
            types.nodes(function.node, _Values(None, values), _declared(function.value_info))


class _Values:
    """Name -> type of a graph's values; a name that is not here is looked up in the graph around it."""

    def __init__(self, outer: _Values | None, types: dict[str, Type]) -> None:
        self.outer = outer
        self.types = types

    def __getitem__(self, name: str) -> Type:
        scope: _Values | None = self
        while scope is not None:
            if name in scope.types:
                return scope.types[name]
            scope = scope.outer
        return None


class _Types:
    """The walk, at one set of opset imports."""

    def __init__(self, opsets: dict[str, int], functions: set[tuple[str, str, str]]) -> None:
        self.opsets = opsets
        self.functions = functions

    def graph(self, graph: GraphProto, outer: _Values | None, given: Iterable[Type] = ()) -> list[Type]:
        """The types of the graph's outputs. `given`: those of its inputs, where an operator passes them."""
        values = _Values(outer, {})
        for place, (value, passed) in enumerate(zip_longest(graph.input, given)):
            values.types[value.name or ""] = _agreed(_type_of(value), passed, "input", place, "the operator passes")
        self.constants(graph, values)
        self.nodes(graph.node, values, _declared([*graph.value_info, *graph.output]))
        return [
            _agreed(_type_of(value), values[value.name or ""], "output", place, "the graph makes")
            for place, value in enumerate(graph.output)
        ]

    def constants(self, graph: GraphProto, values: _Values) -> None:
        """Adds the types of the initializers to `values`, after a comparison with what is declared of their names."""
        declared = _declarations(graph)
        for place, tensor in enumerate(graph.initializer):
            name, stored = tensor.name or "", _tensor_type(tensor.data_type)
            values.types[name] = _agreed(values.types.get(name), stored, "initializer", place, "the initializer holds")
            for kind, value in declared.get(name, ()):
                if kind == "value_info":
                    _agreed(_type_of(value), stored, "initializer", place, "the initializer holds")
                _check_shape(kind, value, tensor.dims, "initializer", place)
        for place, sparse in enumerate(graph.sparse_initializer):
            name = (sparse.values.name if sparse.values is not None else None) or ""
            stored = _tensor_type(sparse.values.data_type) if sparse.values is not None else None
            values.types[name] = stored
            for kind, value in declared.get(name, ()):
                said = _type_of(value)
                if said is not None and said == f"sparse_{stored}":
                    values.types[name] = said
                else:
                    _agreed(said, stored, "sparse_initializer", place, "the initializer holds")
                _check_shape(kind, value, sparse.dims, "sparse_initializer", place)

    def nodes(self, nodes: list[NodeProto], values: _Values, declared: dict[str, Type]) -> None:
        """Adds the types of the nodes' outputs to `values`."""
        for place, node in enumerate(nodes):
            with inside("node", place):
                made = self.node(node, values)
                for index, name in enumerate(node.output):
                    if name:
                        found = made[index] if index < len(made) else None
                        verb = f"{node.op_type} makes"
                        values.types[name] = _agreed(declared.get(name), found, "output", index, verb)

    def node(self, node: NodeProto, values: _Values) -> list[Type]:
        """The types of the node's outputs, after a check of its inputs."""
        domain = domain_of(node.domain)
        inputs = [values[name] if name else None for name in node.input]
        schema = operators.schema(node.op_type or "", self.opsets.get(domain, 0), domain)
        rule = RULES.get(node.op_type or "") if domain == "" else None
        if rule is None or schema is None:
            self._inner_graphs(node, values)
        if schema is None or callee(node) in self.functions:
            return [None] * len(node.output)
        bound = _bind(schema, inputs)
        special = rule(self, node, inputs, values) if rule else []
        return [
            self._output(schema, place, special[place] if place < len(special) else None, bound)
            for place in range(len(node.output))
        ]

    def _output(self, schema: OpSchema, place: int, special: Type, bound: dict[str, str]) -> Type:
        formal = _formal(schema.outputs, place)
        allowed = _allowed(schema, formal.type)
        found = special or (bound.get(formal.type) if formal.homogeneous else None)
        if found is None and len(allowed) == 1:
            found = next(iter(allowed))
        if found is not None and found not in allowed:
            raise Problem(f"is {found}; {schema.name} makes {_listed(allowed)}", "output", place)
        return found

    def _inner_graphs(self, node: NodeProto, values: _Values) -> None:
        for attribute in node.attribute:
            with inside("attribute", attribute.name):
                if attribute.g is not None:
                    with inside("g"):
                        self.graph(attribute.g, values)
                for place, graph in enumerate(attribute.graphs):
                    with inside("graphs", place):
                        self.graph(graph, values)

    def inner(self, node: NodeProto, name: str, values: _Values, given: list[Type], outputs: int) -> list[Type]:
        """The output types of the subgraph in the node's attribute `name`, which gets `given` and makes `outputs`."""
        attribute = _attribute(node, name)
        if attribute is None or attribute.g is None:
            return []
        graph = attribute.g
        with inside("attribute", name), inside("g"):
            if len(graph.input) != len(given):
                raise Problem(f"has {len(graph.input)} inputs; {node.op_type} passes {len(given)}", "input")
            if len(graph.output) != outputs:
                raise Problem(f"has {len(graph.output)} outputs; {node.op_type} takes {outputs}", "output")
            return self.graph(graph, values, given)


# -- type variables ----------------------------------------------------------------------------------------------------


def _bind(schema: OpSchema, inputs: list[Type]) -> dict[str, str]:
    """Type variable -> type, from the inputs whose type is known."""
    bound: dict[str, str] = {}
    first: dict[str, int] = {}
    for place, found in enumerate(inputs):
        if found is None:
            continue
        formal = _formal(schema.inputs, place)
        allowed = _allowed(schema, formal.type)
        if found not in allowed:
            raise Problem(f"is {found}; {schema.name} takes {_listed(allowed)}", "input", place)
        if not formal.homogeneous:
            continue
        if bound.setdefault(formal.type, found) != found:
            other = f"input[{first[formal.type]}] is {bound[formal.type]}"
            raise Problem(f"is {found}, but {other}; both must be of the type {formal.type}", "input", place)
        first.setdefault(formal.type, place)
    return bound


def _formal(formals: tuple[Formal, ...], place: int) -> Formal:
    """The formal of that place; beyond the last it is the last, a variadic one: the arity has been checked."""
    return formals[min(place, len(formals) - 1)]


def _allowed(schema: OpSchema, name: str) -> frozenset[str]:
    return _canonical_set(schema.constraints.get(name) or frozenset([name]))


@cache
def _canonical_set(types: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_canonical, types))


def _canonical(text: str) -> str:
    """`map(int64, float)` of the schemas is `map(int64,tensor(float))`."""
    if "map(" not in text:
        return text
    start, inner = text.split("map(", 1)
    key, value = inner.split(",", 1)
    value = value.strip()
    end = value[value.index(")") :]
    value = value[: value.index(")")]
    return f"{start}map({key},{value}{end}" if "(" in value else f"{start}map({key},tensor({value}){end}"


def _listed(types: frozenset[str]) -> str:
    """The types in a stable order, abridged."""
    names = sorted(types)
    return " or ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])}, ... ({len(names)} types)"


# -- types of messages -------------------------------------------------------------------------------------------------


def _agreed(declared: Type, found: Type, field: str, place: int, who: str) -> Type:
    if declared and found and declared != found:
        raise Problem(f"is declared as {declared}, but {who} {found}", field, place)
    return declared or found


def _declarations(graph: GraphProto) -> dict[str, list[tuple[str, ValueInfoProto]]]:
    """What is declared of the graph's initializers, by name: inputs and outputs, and value infos of other names."""
    names = {tensor.name or "" for tensor in graph.initializer}
    names |= {sparse.values.name or "" for sparse in graph.sparse_initializer if sparse.values is not None}
    found: dict[str, list[tuple[str, ValueInfoProto]]] = {}
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if value.name in names:
                found.setdefault(value.name or "", []).append((kind, value))
    for value in graph.value_info:
        if value.name in names:
            found.setdefault(value.name or "", [("value_info", value)])
    return found


def _check_shape(kind: str, value: ValueInfoProto, dims: Sequence[int], field: str, place: int) -> None:
    """The dims of an initializer are those that an input, an output or a value info of its name says."""
    shape = _shape_of(value)
    if shape is None:
        return
    sizes = [dim.dim_value for dim in shape.dim]
    if len(sizes) != len(dims) or any(size not in (None, known) for size, known in zip(sizes, dims, strict=True)):
        with inside(field, place):
            said = [dim.dim_param or None if dim.dim_value is None else dim.dim_value for dim in shape.dim]
            raise Problem(f"{list(dims)} is not the shape {said} of the {kind} {value.name!r}", "dims")


def _shape_of(value: ValueInfoProto) -> TensorShapeProto | None:
    proto = value.type
    form = None if proto is None else proto.tensor_type or proto.sparse_tensor_type
    return None if form is None else form.shape


def _declared(values: Iterable[ValueInfoProto]) -> dict[str, Type]:
    return {value.name or "": _type_of(value) for value in values}


def _type_of(value: ValueInfoProto) -> Type:
    return _text(value.type) if value.type is not None else None


def _text(proto: TypeProto | None) -> Type:
    """The canonical string, or None where any part is not said."""
    if proto is None:
        return None
    if proto.tensor_type is not None:
        return _tensor_type(proto.tensor_type.elem_type)
    if proto.sparse_tensor_type is not None:
        return _wrapped("sparse_tensor", _dtype(proto.sparse_tensor_type.elem_type))
    if proto.sequence_type is not None:
        return _wrapped("seq", _text(proto.sequence_type.elem_type))
    if proto.optional_type is not None:
        return _wrapped("optional", _text(proto.optional_type.elem_type))
    if proto.map_type is not None:
        key, value = _dtype(proto.map_type.key_type), _text(proto.map_type.value_type)
        return f"map({key},{value})" if key and value else None
    if proto.opaque_type is not None:
        return f"opaque({proto.opaque_type.domain or ''},{proto.opaque_type.name or ''})"
    return None


def _tensor_type(code: int | None) -> Type:
    return _wrapped("tensor", _dtype(code))


def _wrapped(form: str, inner: Type) -> Type:
    return f"{form}({inner})" if inner else None


def _dtype(code: int | None) -> Type:
    """The name of a data type; the number of one that does not exist, which fits no other."""
    known = TensorProto.DataType._value2member_map_
    return (TensorProto.DataType(code).name.lower() if code in known else str(code)) if code else None


# -- operators whose output types are said elsewhere -------------------------------------------------------------------

Rule: TypeAlias = "Callable[[_Types, NodeProto, list[Type], _Values], list[Type]]"


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _dtype_attribute(name: str, default: int | None = None, form: str = "tensor") -> Rule:
    """The element type is in an attribute; else it is `default`; else that of the first input."""

    def rule(_: _Types, node: NodeProto, inputs: list[Type], __: _Values) -> list[Type]:
        attribute = _attribute(node, name)
        if attribute is not None and attribute.ref_attr_name:
            return [None]
        code = attribute.i if attribute is not None and attribute.i else default
        if code is None:
            return [inputs[0] if inputs else None]
        made = _tensor_type(code)
        return [_wrapped(form, made) if form != "tensor" else made]

    return rule


def _constant(_: _Types, node: NodeProto, __: list[Type], ___: _Values) -> list[Type]:
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.t is not None:
            return [_tensor_type(attribute.t.data_type)]
        if attribute.name == "sparse_value" and attribute.sparse_tensor is not None:
            held = attribute.sparse_tensor.values
            return [_tensor_type(held.data_type) if held is not None else None]
        if attribute.name in _CONSTANTS:
            return [_CONSTANTS[attribute.name]]
    return [None]


_CONSTANTS = {
    "value_float": "tensor(float)",
    "value_floats": "tensor(float)",
    "value_int": "tensor(int64)",
    "value_ints": "tensor(int64)",
    "value_string": "tensor(string)",
    "value_strings": "tensor(string)",
}


def _constant_of_shape(_: _Types, node: NodeProto, __: list[Type], ___: _Values) -> list[Type]:
    value = _attribute(node, "value")
    if value is None:
        return ["tensor(float)"]
    return [_tensor_type(value.t.data_type) if value.t is not None else None]


def _quantize(_: _Types, node: NodeProto, inputs: list[Type], __: _Values) -> list[Type]:
    asked = _attribute(node, "output_dtype")
    if len(inputs) > 2 and node.input[2]:
        return [inputs[2]]
    return [_tensor_type(asked.i) if asked is not None and asked.i else "tensor(uint8)"]


def _dequantize(_: _Types, node: NodeProto, inputs: list[Type], __: _Values) -> list[Type]:
    asked = _attribute(node, "output_dtype")
    if asked is not None and asked.i:
        return [_tensor_type(asked.i)]
    return [inputs[1] if len(inputs) > 1 else None]


def _layer_normalization(_: _Types, node: NodeProto, __: list[Type], ___: _Values) -> list[Type]:
    """Mean and deviation are of the type that the computation stashes."""
    asked = _attribute(node, "stash_type")
    stashed = _tensor_type(asked.i if asked is not None and asked.i else TensorProto.FLOAT)
    return [None, stashed, stashed]


def _first_as(form: str) -> Rule:
    """`form` of the first input."""
    return lambda _, __, inputs, ___: [_wrapped(form, inputs[0] if inputs else None)]


def _held_by(form: str) -> Rule:
    """What the first input, a sequence or an optional, holds; an optional's value may come without its wrapping."""
    return lambda _, __, inputs, ___: [_unwrapped(form, inputs[0] if inputs else None)]


def _unwrapped(form: str, outer: Type) -> Type:
    return outer[len(form) + 1 : -1] if outer and outer.startswith(f"{form}(") else outer


def _optional(_: _Types, node: NodeProto, inputs: list[Type], __: _Values) -> list[Type]:
    asked = _attribute(node, "type")
    inner = inputs[0] if inputs else (_text(asked.tp) if asked is not None else None)
    return [_wrapped("optional", inner)]


def _if(types: _Types, node: NodeProto, _: list[Type], values: _Values) -> list[Type]:
    chosen = types.inner(node, "then_branch", values, [], len(node.output))
    other = types.inner(node, "else_branch", values, [], len(node.output))
    for place, (mine, theirs) in enumerate(zip(chosen, other, strict=False)):
        if mine and theirs and mine != theirs:
            raise Problem(f"is {mine} from then_branch, but {theirs} from else_branch", "output", place)
    return [mine or theirs for mine, theirs in zip_longest(chosen, other)]


def _loop(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    carried = inputs[2:]
    given = ["tensor(int64)", "tensor(bool)", *carried]
    made = types.inner(node, "body", values, given, len(node.output) + 1)[1:]
    for place, (before, after) in enumerate(zip(carried, made, strict=False)):
        tensors = before and after and before.startswith("tensor(") and after.startswith("tensor(")
        if tensors and before != after:  # an optional may become its value
            raise Problem(f"is {before} at first, but {after} after an iteration", "input", place + 2)
    return made


def _scan(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    with_lengths = types.opsets.get("", 0) < 9  # the first input is sequence_lens
    return types.inner(node, "body", values, inputs[1:] if with_lengths else inputs, len(node.output))


def _sequence_insert(_: _Types, __: NodeProto, inputs: list[Type], ___: _Values) -> list[Type]:
    held = _unwrapped("seq", inputs[0] if inputs else None)
    if len(inputs) > 1 and held and inputs[1] and inputs[1] != held:
        raise Problem(f"is {inputs[1]}, but the sequence holds {held}", "input", 1)
    return inputs[:1]


def _sequence_map(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    given = [_unwrapped("seq", held) for held in inputs]
    return [_wrapped("seq", made) for made in types.inner(node, "body", values, given, len(node.output))]


RULES: dict[str, Rule] = {
    "Bernoulli": _dtype_attribute("dtype"),
    "BitCast": _dtype_attribute("to"),
    "BlackmanWindow": _dtype_attribute("output_datatype", TensorProto.FLOAT),
    "Cast": _dtype_attribute("to"),
    "ConcatFromSequence": _held_by("seq"),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DequantizeLinear": _dequantize,
    "EyeLike": _dtype_attribute("dtype"),
    "HammingWindow": _dtype_attribute("output_datatype", TensorProto.FLOAT),
    "HannWindow": _dtype_attribute("output_datatype", TensorProto.FLOAT),
    "If": _if,
    "LayerNormalization": _layer_normalization,
    "Loop": _loop,
    "MelWeightMatrix": _dtype_attribute("output_datatype", TensorProto.FLOAT),
    "Multinomial": _dtype_attribute("dtype", TensorProto.INT32),
    "Optional": _optional,
    "OptionalGetElement": _held_by("optional"),
    "QuantizeLinear": _quantize,
    "RandomNormal": _dtype_attribute("dtype", TensorProto.FLOAT),
    "RandomNormalLike": _dtype_attribute("dtype"),
    "RandomUniform": _dtype_attribute("dtype", TensorProto.FLOAT),
    "RandomUniformLike": _dtype_attribute("dtype"),
    "Scan": _scan,
    "SequenceAt": _held_by("seq"),
    "SequenceConstruct": _first_as("seq"),
    "SequenceEmpty": _dtype_attribute("dtype", TensorProto.FLOAT, "seq"),
    "SequenceInsert": _sequence_insert,
    "SequenceMap": _sequence_map,
    "SplitToSequence": _first_as("seq"),
}
