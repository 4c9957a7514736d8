"""Where a pattern is in a graph: the values that its parameters stand for, and the nodes that are its calls.

A match is refused where a value inside of it is read from outside, at any depth of bodies, where its nodes are in
several graphs, and where a node has a body or refers to attributes of the function around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from proto_schema.ir import Graph, Node, User, Value
from proto_schema.ir.calls import has_attributes
from proto_schema.ir.constants import tensor_of
from proto_schema.onnx import AttributeProto, TensorProto
from proto_schema.operators import canonical
from proto_schema.rewrite.forms import OperatorForm, form_of, plain
from proto_schema.rewrite.pattern import GraphPattern, Made, Parameter, PatternCall
from proto_schema.tensors.dtypes import DTYPES

Read: TypeAlias = Callable[[Value], Any]


def small_constant(value: Value) -> Any:
    """The elements of a constant of at most 1 MiB; None for other values."""
    return value.array()


class Match:
    """One place of a pattern: `nodes` are those that go, `outputs` the values that others are made for.

    `values` has what the parameters stand for by name: values of the graph, attributes, None.
    """

    __slots__ = ("_read", "nodes", "outputs", "values")

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Value], values: Mapping[str, Any], read: Read) -> None:
        self._read = read
        self.nodes = nodes
        self.outputs = outputs
        self.values = values

    @property
    def output(self) -> Value:
        """The first value that is made anew."""
        return self.outputs[0]

    def array(self, value: Value) -> Any:
        """The elements of a small constant, None for other values."""
        return self._read(value)


class Matcher:
    """Looks for patterns in a graph whose operators have these versions."""

    def __init__(self, opsets: Mapping[str, int], read: Read) -> None:
        self.opsets = {canonical(domain): version for domain, version in opsets.items()}
        self.read = read
        self._forms: dict[PatternCall, OperatorForm] = {}

    def matches(self, pattern: GraphPattern, node: Node, shared: bool = False) -> Iterator[Match]:
        """The matches of a pattern whose first anchor is the node. `shared` values inside may be read elsewhere."""
        first = pattern.anchors[0]
        if node.op_type != first.op_type or not first.may_be(node):
            return
        if pattern.is_one_call:
            reads = self._form(first).inputs(node)
            for order in (reads, reads[1::-1]) if first.commutes and len(reads) > 1 else (reads,):
                match = self._single(pattern, first, node, order)
                if match is not None:
                    yield match
            return
        for values, nodes in self._anchored(first, node, {}, {}, pattern.anchors[1:], node.graph):
            match = _complete(pattern, values, nodes, shared, self.read)
            if match is not None:
                yield match

    def _single(self, pattern: GraphPattern, call: PatternCall, node: Node, reads: Sequence[Any]) -> Match | None:
        """The match of a pattern of one call, which most are: the same as below in fewer steps."""
        form = self._form(call)
        count = len(call.inputs)
        if not form.is_known or node.bodies or any(item is not None for item in reads[count:]):
            return None
        values: dict[str, Any] = {}
        for place, spec in enumerate(call.inputs):
            value = reads[place] if place < len(reads) else None
            if spec.__class__ is Parameter:
                if value.__class__ is Value and spec.name not in values:
                    values[spec.name] = value
                elif not _bind(spec, value, values, self.read):
                    return None
            elif not self._is_constant(spec, value, node):
                return None
        if (call.says_more or has_attributes(node)) and not _attributes(call, form, node, values):
            return None
        if len(node.outputs) == 1 == len(pattern.results):
            return Match((node,), (node.output,), values, self.read)
        return _complete(pattern, values, {call: node}, False, self.read)

    def _anchored(
        self,
        call: PatternCall,
        node: Node,
        values: dict[str, Any],
        nodes: dict[PatternCall, Node],
        others: Sequence[PatternCall],
        graph: Graph | None,
    ) -> Iterator[tuple[dict[str, Any], dict[PatternCall, Node]]]:
        for bound, found in self._call(call, node, values, nodes, [], graph):
            if not others:
                yield bound, found
                continue
            following, *rest = others
            for candidate in _candidates(following, bound, found, graph):
                yield from self._anchored(following, candidate, bound, found, rest, graph)

    def _call(
        self,
        call: PatternCall,
        node: Node,
        values: dict[str, Any],
        nodes: dict[PatternCall, Node],
        todo: list[tuple[Any, Any, Node]],
        graph: Graph | None,
    ) -> Iterator[tuple[dict[str, Any], dict[PatternCall, Node]]]:
        """The ways in which a node is a call; `todo` are inputs that are still to be compared."""
        if node.op_type != call.op_type or canonical(node.domain) != call.domain or node.graph is not graph:
            return
        form = self._form(call)
        if not form.is_known or node.bodies:
            return
        reads = form.inputs(node)
        if len(reads) > len(call.inputs):
            reads_more = any(item is not None for item in reads[len(call.inputs) :])
            if reads_more:
                return
        values = dict(values)
        if not _attributes(call, form, node, values):
            return
        nodes = {**nodes, call: node}
        reads += [None] * (len(call.inputs) - len(reads))
        pairs = [(spec, item, node) for spec, item in zip(call.inputs, reads, strict=False)]
        yield from self._inputs([*todo, *reversed(pairs)], values, nodes, graph)
        if call.commutes and reads[0] is not reads[1]:
            swapped = [(call.inputs[0], reads[1], node), (call.inputs[1], reads[0], node)]
            yield from self._inputs([*todo, *reversed(swapped)], values, nodes, graph)

    def _inputs(
        self,
        todo: list[tuple[Any, Any, Node]],
        values: dict[str, Any],
        nodes: dict[PatternCall, Node],
        graph: Graph | None,
    ) -> Iterator[tuple[dict[str, Any], dict[PatternCall, Node]]]:
        values = dict(values)
        while todo:
            spec, value, reader = todo.pop()
            if isinstance(spec, Parameter):
                if not _bind(spec, value, values, self.read):
                    return
            elif isinstance(spec, Made):
                node = value.producer if isinstance(value, Value) else None
                if node is None or value.place != spec.place:
                    return
                known = nodes.get(spec.call)
                if known is not None:
                    if known is not node:
                        return
                    continue
                yield from self._call(spec.call, node, values, nodes, todo, graph)
                return
            elif not self._is_constant(spec, value, reader):
                return
        yield values, nodes

    def _form(self, call: PatternCall) -> OperatorForm:
        found = self._forms.get(call)
        if found is None:
            found = self._forms[call] = form_of(call.op_type, call.domain, self.opsets.get(call.domain, 0))
        return found

    def _is_constant(self, spec: Any, value: Any, reader: Node) -> bool:
        """Whether a value is these numbers. A number alone is a constant of any shape that does not change others'."""
        if spec is None or value is None:
            return spec is None and value is None
        array = self.read(value) if isinstance(value, Value) else value
        if array is None or array.dtype == object:
            return False
        if np.ndim(spec) == 0:
            if not array.size or ((array.size > 1 or array.ndim) and not _keeps_shape(value, reader)):
                return False
        elif np.shape(spec) != array.shape:
            return False
        try:
            wanted = tensor_of(np.asarray(spec), _code(array))
        except ValueError:
            return False
        from proto_schema.numpy_helper import to_array

        numbers = np.broadcast_to(to_array(wanted), array.shape)
        if array.dtype.kind == "f" and not (np.signbit(array) == np.signbit(numbers)).all() and _is_float(spec):
            return False  # 0.0 and -0.0
        return bool((array == numbers).all())


def _is_float(spec: Any) -> bool:
    return np.asarray(spec).dtype.kind == "f"


def _code(array: Any) -> int:
    return next(code for code, row in DTYPES.items() if row.array == array.dtype.name)


def _keeps_shape(value: Any, reader: Node) -> bool:
    """Whether the node's result has the shape of another of its inputs, whatever the shape of this one is."""
    shape = reader.output.shape
    others = [item for item in reader._reads if item is not None and item is not value]
    return shape is not None and any(item.shape == shape for item in others)


def _bind(spec: Parameter, value: Any, values: dict[str, Any], read: Read) -> bool:
    if value is None and not spec.is_optional:
        return False
    if isinstance(value, np.ndarray):
        value = Value(tensor=tensor_of(value, _code(value)))
    if spec.name not in values:
        values[spec.name] = value
        return True
    known = values[spec.name]
    return known is value or _same_constant(known, value, read)


def _same_constant(one: Any, other: Any, read: Read) -> bool:
    if not isinstance(one, Value) or not isinstance(other, Value) or one.dtype != other.dtype:
        return False
    mine, theirs = read(one), read(other)
    return mine is not None and theirs is not None and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def _attributes(call: PatternCall, form: OperatorForm, node: Node, values: dict[str, Any]) -> bool:
    """Whether the attributes are those of the call; parameters among them are bound."""
    held = has_attributes(node)
    if held and any(row.ref_attr_name for row in node.attributes.messages()):
        return False
    for name, spec in call.attributes.items():
        value = form.attribute(node, name)
        if isinstance(spec, Parameter):
            if spec.name in values and plain(values[spec.name]) != plain(value):
                return False
            values[spec.name] = value
        elif not _equal(spec, value, form, node, name):
            return False
    if call.rest is None:
        return not (held or form.is_softmax) or form.has_defaults(node, call.attributes)
    found = {name: value for name, value in node.attributes.items() if name not in call.attributes} if held else {}
    known = values.setdefault(call.rest.name, found)
    return known is found or {k: plain(v) for k, v in known.items()} == {k: plain(v) for k, v in found.items()}


def _equal(spec: Any, value: Any, form: OperatorForm, node: Node, name: str) -> bool:
    if isinstance(value, TensorProto):
        from proto_schema.numpy_helper import to_array

        array = to_array(value)
        return np.shape(spec) == array.shape and bool((array == np.asarray(spec)).all())
    if isinstance(value, (AttributeProto, Graph)):
        return False
    if name == "axis" and isinstance(spec, int) and isinstance(value, int) and form.has_axis and not form.is_softmax:
        rank = node._reads[0].rank if node._reads and node._reads[0] is not None else None
        spec = spec % rank if rank else spec
    if isinstance(value, float) and isinstance(spec, (int, float)):
        return bool(np.float32(spec) == np.float32(value))
    return bool(plain(spec) == plain(value))


def _candidates(
    call: PatternCall, values: Mapping[str, Any], nodes: Mapping[PatternCall, Node], graph: Graph | None
) -> list[Node]:
    """Nodes that may be a call: those that read what it reads."""
    for spec in call.inputs:
        known: Any = None
        if isinstance(spec, Parameter):
            known = values.get(spec.name)
        elif isinstance(spec, Made) and spec.call in nodes:
            known = nodes[spec.call].outputs[spec.place]
        if isinstance(known, Value):
            taken = set(nodes.values())
            users = dict.fromkeys(user for user, _ in known.uses if isinstance(user, Node))
            return [user for user in users if user.graph is graph and user not in taken]
    return []


def _complete(
    pattern: GraphPattern, values: dict[str, Any], nodes: Mapping[PatternCall, Node], shared: bool, read: Read
) -> Match | None:
    """The match, unless something outside of it reads a value inside of it."""
    going: dict[User, None] = dict.fromkeys(nodes.values())
    results: list[Value] = []
    for item in pattern.results:
        made = nodes[item.call].outputs
        value = made[item.place] if item.place < len(made) else None
        if value is None:
            return None
        results.append(value)
    for node in () if shared else nodes.values():
        for value in node.outputs:
            if value is not None and value not in results and any(user not in going for user, _ in value._uses):
                return None
    for value in values.values():
        if isinstance(value, Value) and value.producer is not None and value.producer in going:
            return None
    for parameter in pattern.parameters:
        values.setdefault(parameter.name, None)
    return Match(tuple(dict.fromkeys(nodes.values())), results, values, read)
