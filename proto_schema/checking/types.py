"""The types of values (`full_check`): carried through the graph as far as they are determined, checked at each node.

A type has no shape here, and its text is in the canonical form of the operator history: "tensor(float)",
"seq(tensor(int64))". A node's inputs bind its type variables; outputs follow from these, from a constraint with a
single type, or else from the operator's inference row. Of operators with subgraphs, `RULES` says how types go in and
come out.
What is not determined is None and is not checked. Function bodies are checked without the types of their inputs, and a
call's outputs are not determined. This walk stays apart from that of the inference, because it names the input or
output of a node, goes into functions that nothing calls, and takes sparse initializers as runtimes do.

Shapes are those of the inference, which runs after this walk. The shape of an initializer is compared here with the
declarations of its name.
A sparse initializer may stand for a tensor, as in ONNX Runtime; official inference takes it for a sparse one only.
Stricter than that: an initializer must fit the input of its name also where an output of the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, TypeAlias

from proto_schema import operators
from proto_schema.checking.context import SchemaSource, imported
from proto_schema.checking.place import Problem, inside
from proto_schema.graphs.calls import callee, domain_of, function_id
from proto_schema.graphs.dims import known_size
from proto_schema.inference import rows
from proto_schema.inference.site import ABSENT, Misfit, Scope, Site
from proto_schema.inference.types import MapOf, OptionalOf, SequenceOf, Sparse, Tensor, from_proto, text_of
from proto_schema.inference.types import Type as Known
from proto_schema.onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
)
from proto_schema.operators import Formal, OpSchema
from proto_schema.tensors.attributes import get_attribute_value

Type: TypeAlias = "Known | None"
"""A type without shapes, all of whose parts are said."""


def check_types(model: ModelProto, registry: SchemaSource | None = None) -> None:
    """Every node of the graph and of the functions has inputs, outputs and declared values of types that fit."""
    functions = {function_id(function) for function in model.functions}
    if model.graph is not None:
        with inside("graph"):
            _Types(imported(model.opset_import) or {"": 1}, functions, registry).graph(model.graph, None)
    for place, function in enumerate(model.functions):
        with inside("functions", place):
            values = dict.fromkeys(function.input)
            types = _Types(imported(function.opset_import), functions, registry)
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

    def __init__(
        self, opsets: dict[str, int], functions: set[tuple[str, str, str]], registry: SchemaSource | None
    ) -> None:
        self.opsets = opsets
        self.functions = functions
        self.registry = registry

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
            name, stored = tensor.name or "", _plain(Tensor(tensor.data_type or 0))
            values.types[name] = _agreed(values.types.get(name), stored, "initializer", place, "the initializer holds")
            for kind, value in declared.get(name, ()):
                if kind == "value_info":
                    _agreed(_type_of(value), stored, "initializer", place, "the initializer holds")
                _check_shape(kind, value, tensor.dims, "initializer", place)
        for place, sparse in enumerate(graph.sparse_initializer):
            name = (sparse.values.name if sparse.values is not None else None) or ""
            dtype = sparse.values.data_type or 0 if sparse.values is not None else 0
            stored = values.types[name] = _plain(Tensor(dtype))
            for kind, value in declared.get(name, ()):
                said = _type_of(value)
                if said is not None and said == Sparse(dtype):
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
        opset = self.opsets.get(domain, 0)
        schema = operators.schema(node.op_type or "", opset, domain)
        if schema is None and self.registry is not None:
            schema = self.registry.find(node.op_type or "", opset, domain)
        rule = RULES.get(node.op_type or "") if domain == "" else None
        if rule is None or schema is None:
            self._inner_graphs(node, values)
        if schema is None or callee(node) in self.functions:
            return [None] * len(node.output)
        bound = _bind(schema, inputs)
        made = rule(self, node, inputs, values) if rule is not None else None
        found: list[Type] = []
        for place in range(len(node.output)):
            formal = _formal(schema.outputs, place)
            known = bound.get(formal.type) if formal.homogeneous else None
            if known is None or rule is not None:
                made = _by_row(schema, node, inputs) if made is None else made
                known = _checked(schema, formal, made[place] if place < len(made) else None, place) or known
            found.append(known)
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


def _by_row(schema: OpSchema, node: NodeProto, inputs: list[Type]) -> list[Type]:
    """The types of the outputs as inferred from those of the inputs; what contradicts is left to the inference."""
    nothing: list[Type] = [None] * len(node.output)
    if any(attribute.ref_attr_name for attribute in node.attribute):
        return nothing
    attributes: dict[str, Any] = {item.name or "": get_attribute_value(item) for item in node.attribute}
    given = [found if name else ABSENT for name, found in zip(node.input, inputs, strict=True)]
    try:
        return [_plain(item) for item in rows.infer(Site(schema, given, attributes, len(node.output), Scope()))]
    except Misfit:
        return nothing


def _checked(schema: OpSchema, formal: Formal, found: Type, place: int) -> Type:
    """The type of an output, which must be one that the operator makes."""
    allowed = _allowed(schema, formal.type)
    if found is not None and text_of(found) not in allowed:
        raise Problem(f"is {text_of(found)}; {schema.name} makes {_listed(allowed)}", "output", place)
    return found


def _bind(schema: OpSchema, inputs: list[Type]) -> dict[str, Known]:
    """Type variable -> type, from the inputs whose type is known."""
    bound: dict[str, Known] = {}
    first: dict[str, int] = {}
    for place, found in enumerate(inputs):
        if found is None:
            continue
        formal = _formal(schema.inputs, place)
        allowed = _allowed(schema, formal.type)
        if text_of(found) not in allowed:
            raise Problem(f"is {text_of(found)}; {schema.name} takes {_listed(allowed)}", "input", place)
        if not formal.homogeneous:
            continue
        if bound.setdefault(formal.type, found) != found:
            other = f"input[{first[formal.type]}] is {text_of(bound[formal.type])}"
            raise Problem(f"is {text_of(found)}, but {other}; both must be of the type {formal.type}", "input", place)
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
        raise Problem(f"is declared as {text_of(declared)}, but {who} {text_of(found)}", field, place)
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
    sizes = [known_size(dim) for dim in shape.dim]
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
    return _plain(from_proto(value.type, lambda _: 0))


def _plain(found: Type) -> Type:
    """The type without shapes, or None where any part is not said."""
    return _shapeless(found) if text_of(found) else None


def _shapeless(found: Type) -> Type:
    if isinstance(found, (Tensor, Sparse)):
        return type(found)(found.dtype)
    if isinstance(found, (SequenceOf, OptionalOf)):
        return type(found)(_shapeless(found.element))
    return MapOf(found.key, _shapeless(found.value)) if isinstance(found, MapOf) else found


# -- operators with subgraphs, and those that say more of their inputs than constraints --------------------------------

Rule: TypeAlias = "Callable[[_Types, NodeProto, list[Type], _Values], list[Type]]"


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _if(types: _Types, node: NodeProto, _: list[Type], values: _Values) -> list[Type]:
    chosen = types.inner(node, "then_branch", values, [], len(node.output))
    other = types.inner(node, "else_branch", values, [], len(node.output))
    for place, (mine, theirs) in enumerate(zip(chosen, other, strict=False)):
        if mine and theirs and mine != theirs:
            raise Problem(
                f"is {text_of(mine)} from then_branch, but {text_of(theirs)} from else_branch", "output", place
            )
    return [mine or theirs for mine, theirs in zip_longest(chosen, other)]


def _loop(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    carried = inputs[2:]
    given = [Tensor(TensorProto.INT64), Tensor(TensorProto.BOOL), *carried]
    made = types.inner(node, "body", values, given, len(node.output) + 1)[1:]
    for place, (before, after) in enumerate(zip(carried, made, strict=False)):
        tensors = isinstance(before, Tensor) and isinstance(after, Tensor)
        if tensors and before != after:  # an optional may become its value
            raise Problem(f"is {text_of(before)} at first, but {text_of(after)} after an iteration", "input", place + 2)
    return made


def _scan(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    with_lengths = types.opsets.get("", 0) < 9  # the first input is sequence_lens
    return types.inner(node, "body", values, inputs[1:] if with_lengths else inputs, len(node.output))


def _sequence_insert(_: _Types, __: NodeProto, inputs: list[Type], ___: _Values) -> list[Type]:
    held = _element(inputs[0] if inputs else None)
    if len(inputs) > 1 and held and inputs[1] and inputs[1] != held:
        raise Problem(f"is {text_of(inputs[1])}, but the sequence holds {text_of(held)}", "input", 1)
    return inputs[:1]


def _sequence_map(types: _Types, node: NodeProto, inputs: list[Type], values: _Values) -> list[Type]:
    made = types.inner(node, "body", values, [_element(given) for given in inputs], len(node.output))
    return [_plain(SequenceOf(item)) for item in made]


def _element(given: Type) -> Type:
    return given.element if isinstance(given, SequenceOf) else given


RULES: dict[str, Rule] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceInsert": _sequence_insert,
    "SequenceMap": _sequence_map,
}
