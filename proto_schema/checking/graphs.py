"""Graphs, their nodes with the attributes, and functions: names, single assignment, topological order, scopes.

As in the official checker a subgraph's inputs and initializers may hide outer names, a node's outputs may not.
Stricter than it: an element type must be a known one, a function's outputs must be made in it, and a reference to a
function's attribute is refused outside a function and beside a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from proto_schema.checking.context import Context, NameScope, imported
from proto_schema.checking.nodes import EXPERIMENTAL, check_definition, title
from proto_schema.checking.place import Problem, inside, require, require_text
from proto_schema.checking.tensors import check_sparse_tensor, check_tensor
from proto_schema.graphs.calls import domain_of
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.operators import schema
from proto_schema.tensors.attributes import FIELD_OF_TYPE
from proto_schema.wire.fields import listed

_CODES = TensorProto.DataType._value2member_map_
_Type = AttributeProto.AttributeType
_VALUES = {code: field for code, name in FIELD_OF_TYPE.items() for field in AttributeProto.FIELDS if field.name == name}
_SINGLE = frozenset(code for code, field in _VALUES.items() if not field.repeated)
_value_slots = attrgetter(*(field.slot for field in _VALUES.values()))  # which are None where nothing is


# -- value infos -------------------------------------------------------------------------------------------------------


def check_value_info(value: ValueInfoProto, context: Context) -> None:
    """A name and, in a main graph, a complete type."""
    require_text(value, "name")
    if not context.main_graph:
        return
    require(value, "type")
    if value.type is not None:
        with inside("type"):
            check_type(value.type)


def check_type(proto: TypeProto) -> None:
    """One of the six forms, with the fields it needs."""
    which = proto.WhichOneof("value")
    if which is None:
        raise Problem("says nothing: one of tensor_type, sequence_type, map_type, ... is required")
    form = getattr(proto, which)
    with inside(which):
        _FORMS[which](form)


def _check_tensor_type(form: TypeProto.Tensor | TypeProto.SparseTensor) -> None:
    require(form, "elem_type", "shape")
    _check_code(form.elem_type, "elem_type")


def _check_map_type(form: TypeProto.Map) -> None:
    require(form, "key_type", "value_type")
    _check_code(form.key_type, "key_type")


def _check_code(code: int | None, field: str) -> None:
    if not code or code not in _CODES:
        raise Problem(f"{code} is not a data type", field)


_FORMS: dict[str, Callable[..., None]] = {
    "tensor_type": _check_tensor_type,
    "sparse_tensor_type": _check_tensor_type,
    "sequence_type": lambda form: require(form, "elem_type"),
    "optional_type": lambda form: require(form, "elem_type"),
    "map_type": _check_map_type,
    "opaque_type": lambda form: require_text(form, "name"),
}


# -- graphs ------------------------------------------------------------------------------------------------------------


def check_graph(graph: GraphProto, context: Context, outer: NameScope | None) -> None:
    """The graph, with the names of the graphs around it."""
    require_text(graph, "name")
    for side, values in (("input", graph.input), ("output", graph.output)):
        for place, value in enumerate(values):
            with inside(side, place):
                check_value_info(value, context)
    scope = NameScope(outer)
    for place, value in enumerate(graph.input):
        if value.name in scope.names:
            raise Problem(f"the name {value.name!r} is given to another input as well", "input", place)
        scope.names.add(value.name or "")
    _check_initializers(graph, context, scope)
    check_nodes(graph.node, context, scope)
    for place, value in enumerate(graph.output):
        if value.name not in scope.names:
            raise Problem(f"{value.name!r} is not made in this graph{_outer_hint(value.name, outer)}", "output", place)


def _outer_hint(name: str | None, outer: NameScope | None) -> str:
    return "; pass the outer value through an Identity node" if outer is not None and outer.sees(name or "") else ""


def _check_initializers(graph: GraphProto, context: Context, scope: NameScope) -> None:
    seen: set[str] = set()
    for place, tensor in enumerate(graph.initializer):
        with inside("initializer", place):
            _claim(tensor, seen)
            check_tensor(tensor)
            if context.ir_version <= 3 and tensor.name not in scope.names:
                raise Problem(f"{tensor.name!r} must be a graph input as well, up to IR version 3", "name")
        scope.names.add(tensor.name or "")
    for place, sparse in enumerate(graph.sparse_initializer):
        with inside("sparse_initializer", place):
            require(sparse, "values")
            if sparse.values is not None:
                with inside("values"):
                    _claim(sparse.values, seen)
                scope.names.add(sparse.values.name or "")
            check_sparse_tensor(sparse)


def _claim(tensor: TensorProto, seen: set[str]) -> None:
    require_text(tensor, "name")
    if tensor.name in seen:
        raise Problem(f"{tensor.name!r} is the name of another initializer as well", "name")
    seen.add(tensor.name or "")


def check_nodes(nodes: list[NodeProto], context: Context, scope: NameScope) -> None:
    """Each node after those that make its inputs, each name made once; adds the names to `scope`."""
    for place, node in enumerate(nodes):
        try:
            for index, name in enumerate(node.input):
                if name and not scope.sees(name):
                    raise Problem(_undefined(name, nodes, place), "input", index)
            check_node(node, context, scope)
            for index, name in enumerate(node.output):
                if name and scope.sees(name):
                    raise Problem(f"{name!r} is defined already; a value is assigned only once", "output", index)
                if name:
                    scope.names.add(name)
        except Problem as problem:
            problem.within("node", place)
            raise


def _undefined(name: str, nodes: list[NodeProto], place: int) -> str:
    maker = next((index for index, node in enumerate(nodes[place:], place) if name in node.output), None)
    if maker is None:
        return f"{name!r} is not defined: no input, initializer or earlier node has this name"
    if maker == place:
        return f"{name!r} is an output of the same node"
    return f"{name!r} is made only later, by node[{maker}]; nodes must be in topological order"


# -- attributes --------------------------------------------------------------------------------------------------------


def check_attribute(attribute: AttributeProto, context: Context, scope: NameScope) -> None:
    """A name, a type, at most one value, in the field of that type; what the value holds."""
    require_text(attribute, "name")
    if context.ir_version >= 2:
        require(attribute, "type")
    _check_value_field(attribute)
    if attribute.ref_attr_name is not None and not context.in_function:
        raise Problem("refers to an attribute of a function, but is not in one", "ref_attr_name")
    _check_inner(attribute, context, scope)


def _check_value_field(attribute: AttributeProto) -> None:
    used = [
        code
        for code, value in zip(_VALUES, _value_slots(attribute), strict=True)
        if (value is not None if code in _SINGLE else value)
    ]
    for code in used:
        if attribute.type is not None and attribute.type != code:
            field = FIELD_OF_TYPE[code]
            raise Problem(
                f"is of type {_Type(attribute.type).name}, but holds a value of type {_Type(code).name}", field
            )
    if len(used) > 1:
        raise Problem(f"holds more than one value: {', '.join(FIELD_OF_TYPE[code] for code in used)}")
    if used and attribute.ref_attr_name is not None:
        raise Problem(f"has a value, although it refers to the function's attribute {attribute.ref_attr_name!r}")


def _check_inner(attribute: AttributeProto, context: Context, scope: NameScope) -> None:
    if attribute.t is not None:
        with inside("t"):
            check_tensor(attribute.t)
    if attribute.sparse_tensor is not None:
        with inside("sparse_tensor"):
            check_sparse_tensor(attribute.sparse_tensor)
    for place, tensor in enumerate(listed(attribute, "tensors")):
        with inside("tensors", place):
            check_tensor(tensor)
    for place, sparse in enumerate(listed(attribute, "sparse_tensors")):
        with inside("sparse_tensors", place):
            check_sparse_tensor(sparse)
    graphs = listed(attribute, "graphs")
    if attribute.g is None and not graphs:
        return
    inner = replace(context, main_graph=False)
    if attribute.g is not None:
        with inside("g"):
            check_graph(attribute.g, inner, scope)
    for place, graph in enumerate(graphs):
        with inside("graphs", place):
            check_graph(graph, inner, scope)


# -- nodes -------------------------------------------------------------------------------------------------------------


def check_node(node: NodeProto, context: Context, scope: NameScope) -> None:
    """The node by itself, its attributes, and what its operator's schema, or the function it calls, says."""
    require_text(node, "op_type")
    if not node.input and not node.output:
        raise Problem(f"{title(node)} has neither inputs nor outputs")
    domain = domain_of(node.domain)
    if domain not in context.opsets:
        raise Problem(f"no opset of the domain {domain!r} is imported; add one to opset_import", "domain")
    seen: set[str | None] = set()
    for place, attribute in enumerate(listed(node, "attribute")):
        try:
            if attribute.name in seen:
                raise Problem("appears more than once")
            seen.add(attribute.name)
            check_attribute(attribute, context, scope)
        except Problem as problem:
            problem.within("attribute", attribute.name or place)
            raise
    if not (domain == "" and node.op_type in EXPERIMENTAL):
        check_definition(node, domain, context)


# -- functions ---------------------------------------------------------------------------------------------------------


def check_function(function: FunctionProto, context: Context, model_opsets: dict[str, int]) -> None:
    """The function on its own: its interface, its nodes at its own opsets, and those against the model's."""
    require_text(function, "name")
    if context.ir_version >= 8:
        require(function, "domain")
    scope = NameScope()
    _check_interface(function)
    scope.names.update(function.input)
    own = imported(function.opset_import)
    inner = replace(context, opsets=own, in_function=True)
    if not context.skip_opset_compatibility_check:
        for place, node in enumerate(function.node):
            with inside("node", place):
                _check_compatible(node, own, model_opsets)
    check_nodes(function.node, inner, scope)
    for place, name in enumerate(function.output):
        if name not in scope.names:
            raise Problem(f"{name!r} is not made in this function", "output", place)


def _check_interface(function: FunctionProto) -> None:
    attributes = [*function.attribute, *(attribute.name or "" for attribute in function.attribute_proto)]
    for field, names in (("input", function.input), ("output", function.output), ("attribute", attributes)):
        seen: set[str] = set()
        for place, name in enumerate(names):
            if name in seen:
                raise Problem(f"{name!r} appears more than once", field, place)
            seen.add(name)


def _check_compatible(node: NodeProto, own: dict[str, int], model: dict[str, int]) -> None:
    """Where function and model import different versions of a domain, the operator must be the same in both."""
    domain = domain_of(node.domain)
    mine = own.get(domain)
    if mine is None:
        raise Problem(f"the function imports no opset of the domain {domain!r}", "domain")
    theirs = model.get(domain, mine)
    if mine == theirs:
        return
    found = [schema(node.op_type or "", version, domain) for version in (mine, theirs)]
    versions = [entry.since_version if entry else None for entry in found]
    if versions[0] != versions[1]:
        raise Problem(
            f"{node.op_type} differs between opset {mine} of the function and {theirs} of the model", "op_type"
        )
