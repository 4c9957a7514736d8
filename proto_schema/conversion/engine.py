"""Conversion of a model: every node goes to the target, one change of its operator after another.

Strategy: one inference over the model says what is known of every value. Then each node is looked at once, in the order
of the graph. Where its operator did not change and takes the node's types, it stays. Otherwise the rows of the changes
are applied. What a row writes is converted at once in its turn. Graphs inside of nodes are converted before their
nodes, and functions before the graph. A function whose conversion depends on its calls is written out at these, and the
conversion begins anew.

Invariants: values that were there before stay, with their names, and no name is made twice. Tensors are shared, never
copied. All nodes that cannot be converted are in one error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema import operators
from proto_schema.conversion import narrowing, rows, steps
from proto_schema.conversion.complete import lacking
from proto_schema.conversion.errors import ConversionError, ParameterError, Refusal, RefusedError, listed
from proto_schema.conversion.versioned import VersionedNode, set_attributes, trimmed
from proto_schema.conversion.writer import Writer
from proto_schema.errors import CheckError
from proto_schema.graphs.calls import FunctionId, callee, function_id
from proto_schema.inference import rows as inference
from proto_schema.inference.site import ABSENT, Misfit, Site
from proto_schema.inference.types import Tensor, Type
from proto_schema.inference.walk import stored_content
from proto_schema.ir import Function, Graph, Node, Value, from_message
from proto_schema.ir.model import infer_by
from proto_schema.ir.naming import names_in
from proto_schema.onnx import ModelProto, NodeProto, TensorProto
from proto_schema.operators import OpSchema
from proto_schema.tensors.dtypes import DTYPES

_NO_INPUTS = 4
"""Since this IR version an initializer need not be an input."""
_ANY_CONSTANT = 9
_NEW_CONSTANTS = frozenset(
    row.code for row in DTYPES.values() if row.name.startswith(("INT", "UINT", "BOOL")) and row.bits >= 8
)
"""The data types that Constant takes since opset 9, but for text and complex numbers."""
DEEPEST = 200
"""Changes inside of changes: more is a row that goes round in circles."""


class _Place:
    """Where nodes are written: a graph, the node behind which the next one comes, and what was written here."""

    def __init__(self, graph: Graph, outer: _Place | None, *, is_read: bool) -> None:
        """`is_read`: the graph is one of the file, which may hold tensors."""
        self.graph = graph
        self.outer = outer
        self.holds_tensors = is_read and not isinstance(graph, Function)
        self.last: Node | None = None
        self.written: list[Node] = []
        self.constants: dict[tuple[Any, ...], Value] = {}

    def add(self, node: Node) -> None:
        """The node comes next."""
        if node.graph is not self.graph:
            self.graph.nodes.insert_after(self.last, node)
        self.last = node
        self.written.append(node)


class Engine:
    """One conversion of one model in one domain."""

    def __init__(self, model: ModelProto, target: int, domain: str = "") -> None:
        """Raises ConversionError for a model that is not complete."""
        self.target = target
        self.domain = domain
        self.newest = operators.newest_opset(domain)
        try:
            self.model = from_message(model)
        except CheckError as error:
            raise ConversionError(f"the model is not valid: {error}") from error
        incomplete = lacking(self.model, domain)
        if incomplete:
            raise ConversionError(f"the model is not complete: {listed(incomplete)}", incomplete)
        walk = infer_by(self.model, model)
        self.scope, self.functions = walk.scope, walk.functions
        self.count = 0
        self.depth = 0
        self.held: dict[Value, Tensor] = {}
        self.refusals: list[Refusal] = []
        self.dropped: dict[Value, None] = {}
        self.function: str = ""
        self.place = _Place(self.model.graph, None, is_read=True)
        self.ir_version = model.ir_version

    # -- the model

    def run(self) -> tuple[ModelProto | None, set[FunctionId]]:
        """The converted model; None and the functions that must be written out first, where there are any."""
        model = self.model
        functions = zip(model.functions, model.message.functions, strict=True)
        outside = {function_id(message) for item, message in functions if not self._convert_function(item)}
        if outside:
            return None, outside
        self.refusals = []
        self.graph(model.graph, None, next((model.opsets[name] for name in self._named(model.opsets)), 0))
        if self.refusals:
            raise self._error()
        self._clean()
        self._declare(model.opsets)
        made = model.to_message()
        made.ir_version = self.ir_version
        return made, set()

    def _named(self, opsets: Mapping[str, int]) -> list[str]:
        """The names by which the domain is imported."""
        return [name for name in opsets if operators.canonical(name) == self.domain]

    def _declare(self, opsets: dict[str, int]) -> None:
        opsets.update(dict.fromkeys(self._named(opsets), self.target))

    def _error(self) -> ConversionError:
        known = [item.needs for item in self.refusals]
        opset = f"opset {self.target}" + (f" of {self.domain}" if self.domain else "")
        count = f" {len(self.refusals)} nodes" if len(self.refusals) > 1 else ""
        text = f"cannot convert{count} to {opset}:{'' if count else ' '}{listed(self.refusals)}"
        error = ConversionError(text, self.refusals)
        error.needs = max(known) if all(known) else 0
        return error

    def _convert_function(self, function: Function) -> bool:
        """Convert a function; False for one whose conversion depends on its calls."""
        imported = next((function.opsets[name] for name in self._named(function.opsets)), 0)
        if not imported:
            return True
        self.function, self.refusals = function.name, []
        try:
            self.graph(function, None, imported)
        except ParameterError:
            return False
        finally:
            self.function = ""
        if self.refusals:
            return False
        self._declare(function.opsets)
        return True

    # -- graphs

    @contextmanager
    def _at(self, place: _Place) -> Iterator[None]:
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @contextmanager
    def inside(self) -> Iterator[Graph]:
        """A graph that a row writes."""
        graph = Graph()
        with self._at(_Place(graph, self.place, is_read=False)):
            yield graph

    def graph(self, graph: Graph, outer: _Place | None, opset: int) -> None:
        """Convert the nodes of a graph of the file. What cannot be goes to `refusals`."""
        with self._at(_Place(graph, outer, is_read=True)):
            for node in list(graph.nodes):
                assert node.message is not None  # it was read from a file
                self.node(node, node.message, opset)

    def node(self, node: Node, message: NodeProto, opset: int) -> None:
        """Convert one node of the file."""
        for body in node.bodies:
            self.graph(body, self.place, opset)
        key = callee(message)
        if key in self.functions or operators.canonical(node.domain) != self.domain:
            self.place.add(node)
            return
        schema = operators.schema(node.op_type, opset, self.domain)
        inputs = node.inputs
        try:
            if schema is None:
                raise RefusedError(f"opset {opset} has no operator {node.op_type!r}")
            self.convert(VersionedNode(node, schema), opset)
        except RefusedError as error:
            if self.function and isinstance(error, ParameterError):
                raise
            title = f"node {message.name!r}" if message.name else "the"
            title += f" ({message.op_type})" if message.name else f" {message.op_type} that makes {message.output[:1]}"
            self.refusals.append(Refusal(title, error.reason, error.needs))
        left = node.inputs
        self.dropped.update(dict.fromkeys(value for value in inputs if value is not None and value not in left))

    # -- values

    def type_of(self, value: Value) -> Type | None:
        """What is known of a value, with the elements of a small tensor of the file."""
        held = value.constant
        if held is None:
            return value.type
        if value not in self.held:
            self.held[value] = _tensor_type(held)
        return self.held[value]

    @cached_property
    def taken(self) -> set[str]:
        """All names of values and nodes."""
        return {name for graph in (self.model.graph, *self.model.functions) for name in names_in(graph)}

    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        while True:
            name = f"{base}_{self.count}"
            self.count += 1
            if name not in self.taken:
                self.taken.add(name)
                return name

    def constant(self, array: npt.NDArray[Any], dtype: int) -> Value:
        """A constant in the graph that is being converted."""
        from proto_schema.tensors.tensor_helper import make_tensor

        if not dtype:
            from proto_schema.numpy_helper import from_array

            tensor = from_array(np.ascontiguousarray(array).reshape(array.shape))
        else:
            row = DTYPES[dtype]
            if row.native and dtype != TensorProto.STRING:
                from proto_schema.numpy_helper import from_array

                tensor = from_array(np.ascontiguousarray(array.astype(row.numpy)).reshape(array.shape))
            else:
                tensor = make_tensor("", dtype, list(array.shape), list(array.reshape(-1).tolist()))
        key = (
            tensor.data_type,
            tuple(tensor.dims),
            array.tobytes() if array.dtype.kind != "O" else str(array.tolist()),
        )
        constants = self.place.constants
        if key not in constants:
            value = self._initializer(tensor)
            if value is None:
                value = self.write("Constant", "", None, [], {"value": tensor}, 1)[0]
                value.learn(_tensor_type(tensor))
            constants[key] = value
            self.dropped[value] = None
        return constants[key]

    def _initializer(self, tensor: TensorProto, value: Value | None = None) -> Value | None:
        """The constant as an initializer, where a Constant of the target cannot hold its type and a graph can.

        `value` is what a Constant of the file makes.
        """
        if self.domain or self.target >= _ANY_CONSTANT or tensor.data_type not in _NEW_CONSTANTS:
            return None
        place: _Place | None = self.place
        while place is not None and not place.holds_tensors:
            place = place.outer  # a graph that a row writes sees those around it
        if place is None or value in place.graph.outputs:
            return None
        self.ir_version = max(self.ir_version or 0, _NO_INPUTS)
        return place.graph.add_initializer(tensor, "" if value is not None else self.fresh("Constant_value"), value)

    # -- what rows write

    def write(
        self,
        op_type: str,
        domain: str,
        version: int | None,
        inputs: list[Value | None],
        attributes: Mapping[str, Any],
        outputs: int,
        types: list[Type | None] | None = None,
    ) -> list[Value]:
        """Write a node in the form of an opset (the newest one by default), and convert it. Raises RefusedError."""
        opset = version or operators.newest_opset(domain)
        schema = operators.schema(op_type, opset, domain)
        if schema is None:
            raise TypeError(f"opset {opset} has no operator {op_type!r}")
        if schema.deprecated:  # then its last form
            return self.write(op_type, domain, schema.since_version - 1, inputs, attributes, outputs, types)
        made = [Value() for _ in range(outputs)]
        node = Node(op_type, trimmed(inputs), outputs=made, domain=domain)
        set_attributes(node, attributes)
        for place, type_ in enumerate(self._inferred(node, schema) if types is None else types):
            formal = schema.outputs[min(place, len(schema.outputs) - 1)]
            made[place].name = self.fresh(f"{op_type}_{formal.name}")
            made[place].learn(type_)
        self._convert_written(node, schema, opset)
        return made

    def _convert_written(self, node: Node, schema: OpSchema, opset: int) -> None:
        if schema.domain == self.domain:
            self.convert(VersionedNode(node, schema), opset)
        else:
            self.place.add(node)

    def _inferred(self, node: Node, schema: OpSchema) -> list[Type | None]:
        given = [ABSENT if value is None else self.type_of(value) for value in node.inputs]
        try:
            return inference.infer(Site(schema, given, dict(node.attributes), len(node.outputs), self.scope))
        except Misfit as problem:
            raise RefusedError(f"it is written with {schema.name}, where {problem}") from None

    def inlined(self, graph: Graph, items: Sequence[Value]) -> list[Value]:
        """The nodes of a body that is converted already move into the current graph, on values for its inputs."""
        for value, item in zip(graph.inputs, items, strict=True):
            value.replace_uses(item)
        for value in graph.initializers:
            held, name = value.tensor, self.fresh(value.name or "held")
            made = self._initializer(held) if isinstance(held, TensorProto) else None
            if made is None:
                node = Node("Constant", attributes={"value": held})
                self.place.add(node)
                made = node.output
            made.name = name
            value.replace_uses(made)
        for node in list(graph.nodes):
            for output in node.outputs:
                if output is not None:
                    output.name, output.declared = self.fresh(output.name), None
            self.place.add(node)
        return list(graph.outputs)

    # -- one node through its changes

    def convert(self, node: VersionedNode, opset: int) -> None:
        """Convert a node that has the form of `opset`, and put it in its place. Raises RefusedError."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise RefusedError(f"the rows of {node.schema.name} go round in circles")
        try:
            self._convert(node, opset)
        finally:
            self.depth -= 1

    def _convert(self, node: VersionedNode, opset: int) -> None:
        upward = self.target > opset
        name = node.schema.name
        for version in steps.changes(self.domain, name, opset, self.target):
            try:
                row = rows.find(self.domain, name, version, upward)
                mark = len(self.place.written)
                made = row(node, Writer(self, self.domain)) if row is not None else None
                if made is not None and not isinstance(made, VersionedNode):
                    self._bind(node, [made] if isinstance(made, Value) else list(made), mark)
                    return
                at = version if upward else version - 1
                into = operators.schema(node.node.op_type, at, self.domain)
                if node.node.op_type != name:
                    if into is None:
                        raise RefusedError(f"opset {at} has no operator {node.node.op_type!r}")
                    self.convert(VersionedNode(node.node, into), at)
                    return
                if into is None:
                    raise RefusedError(f"the operator {name} does not exist before opset {version}")
                if into.deprecated:
                    raise RefusedError(f"the operator {name} was withdrawn in opset {at}")
                steps.fit(node, into, at)
            except RefusedError as error:
                error.needs = error.needs or (0 if upward else version)
                raise
        schema = operators.schema(name, self.target, self.domain)
        assert schema is not None  # each change was left or reached
        self._finish(VersionedNode(node.node, schema), opset)

    def _bind(self, call: VersionedNode, made: Sequence[Value | None], mark: int) -> None:
        """Let the nodes that a row wrote make the outputs of the node, which goes."""
        node = call.node
        written = self.place.written[mark:]
        own = set(written)
        bound: dict[Value, Value] = {}
        copied: list[tuple[Value, Value]] = []
        for place, old in enumerate(node.outputs):
            if old is None:
                continue
            value = made[place] if place < len(made) else None
            if value is None:
                what = call.schema.outputs[min(place, len(call.schema.outputs) - 1)].name
                raise RefusedError(f"its output {what!r} is not there in older operators")
            if old.type is None:
                old.learn(value.type)
            maker = value.producer
            if maker in own and maker is not None and maker.op_type != "Constant":
                value.replace_uses(old)
                maker.set_output(value.place, old)
                bound[value] = old
            else:
                copied.append((value, old))
        for item in written if node.name else ():
            item.name = item.name or self.fresh(f"{node.name}/{item.op_type}")
        for value, old in copied:
            opset = operators.newest_opset("")
            schema = operators.schema("Identity", opset)
            assert schema is not None
            self._convert_written(_making("Identity", bound.get(value, value), old), schema, opset)
        _abandon(node)

    # -- the last step: types

    def _finish(self, call: VersionedNode, opset: int) -> None:
        node, schema, bad = call.node, call.schema, {}
        if self.target < max(opset, _ANY_CONSTANT):  # what older versions take, newer ones take, too
            bad = narrowing.unfit(schema, [None if value is None else value.type for value in node.inputs], call.types)
        held = call.attribute("value") if bad and schema.name == "Constant" else None
        if held is not None and self._initializer(held, node.output) is not None:
            _abandon(node)
        elif bad and self.target < opset:
            ways = narrowing.through(schema, bad, self.target)
            if ways is None:
                variable, text = next(iter(bad.items()))
                needs = narrowing.needed(schema, variable, text, self.target)
                raise RefusedError(f"opset {self.target} has no {schema.name} of {text}", needs)
            self._narrow(call, ways)
        elif self.function and self.target < opset and _unsure(call, self.target, opset):
            raise ParameterError("its types differ from one call of the function to the next")
        else:
            self.place.add(node)

    def _narrow(self, call: VersionedNode, ways: Mapping[str, tuple[int, int]]) -> None:
        """The node on wider types, between casts."""
        op, node, schema = Writer(self, self.domain), call.node, call.schema
        inputs: list[Value | None] = []
        for place, value in enumerate(node.inputs):
            way = ways.get(schema.inputs[min(place, len(schema.inputs) - 1)].type)
            inputs.append(op.cast(value, way[1]) if way is not None and value is not None else value)
        back: list[tuple[Value, Value, int]] = []
        for place, value in enumerate(node.outputs):
            way = ways.get(schema.outputs[min(place, len(schema.outputs) - 1)].type)
            if way is not None and value is not None:
                wide = Value(self.fresh(f"{schema.name}_wide"))
                wide.learn(narrowing.tensors_of(way[1], value.type))
                node.set_output(place, wide)
                back.append((wide, value, way[0]))
        self.place.add(call.with_(inputs=inputs).node)
        cast = operators.schema("Cast", self.newest)
        assert cast is not None
        for wide, value, dtype in back:
            value.learn(narrowing.tensors_of(dtype, wide.type))
            made = _making("Cast", wide, value)
            set_attributes(made, {"to": dtype})
            self.convert(VersionedNode(made, cast), self.newest)

    def _clean(self) -> None:
        """Constants that the conversion read or made, and that nobody reads any more, go."""
        for value in self.dropped:
            graph, node = value.graph, value.producer
            if graph is None or value.uses:
                continue
            if node is not None and node.op_type == "Constant":
                graph.nodes.remove(node)
            elif value.constant is not None:
                graph.remove_initializer(value)


def _tensor_type(tensor: TensorProto) -> Tensor:
    """The type of a tensor of the file, with its elements where they are few."""
    shape = tuple(tensor.dims)
    return Tensor(tensor.data_type or 0, shape, stored_content(tensor, shape))


def _making(op_type: str, value: Value, made: Value) -> Node:
    """A node that makes a value, which another one made until now, of one value."""
    node = Node(op_type, [value])
    node.set_output(0, made)
    return node


def _abandon(node: Node) -> None:
    """Others make what the node made."""
    if node.graph is not None:
        node.graph.nodes.remove(node)
    else:
        node.inputs = ()


@cache
def _narrower(name: str, domain: str, target: int, opset: int) -> bool:
    """Whether the version at the target takes fewer types than that at the opset."""
    old, new = operators.schema(name, target, domain), operators.schema(name, opset, domain)
    if old is None or new is None:
        return True
    return any(not old.constraints.get(variable, types) >= types for variable, types in new.constraints.items())


def _unsure(call: VersionedNode, target: int, opset: int) -> bool:
    """Whether an input has a type that is not known where the types decide."""
    return any(
        (item is not None and item.type is None)
        or (item is not None and isinstance(item.type, Tensor) and not item.dtype)
        for item in call.inputs
    ) and _narrower(call.schema.name, call.schema.domain, target, opset)
