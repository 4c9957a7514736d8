"""Conversion of a model: every node goes to the target, one change of its operator after another.

Strategy: one inference over the model says what is known of every value (`recorded`). Then each node is looked at once,
in the order of the graph. Where its operator did not change and takes the node's types, the node's message itself goes
into the result. Otherwise the rows of the changes are applied. What a row writes is converted at once in its turn.
Graphs inside of nodes are converted before their nodes, and functions before the graph. A function whose conversion
depends on its calls is written out at these, and the conversion begins anew.

Invariants: names of values that were there before stay, and no name is made twice. Tensors are shared, never copied.
All nodes that cannot be converted are in one error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema import operators
from proto_schema.attributes import make_attribute
from proto_schema.conversion import narrowing, rows, steps
from proto_schema.conversion.drafts import ConversionError, Draft, ParameterError, Refusal, RefusedError, Value, listed
from proto_schema.conversion.messages import attribute_of, note_uses, note_uses_of, plain_value, remove, rename
from proto_schema.conversion.writer import Writer
from proto_schema.dtypes import DTYPES
from proto_schema.graphs.calls import callee, function_id
from proto_schema.graphs.sharing import sharing
from proto_schema.inference import rows as inference
from proto_schema.inference.site import ABSENT, Misfit, Site
from proto_schema.inference.types import Tensor, Type, from_proto
from proto_schema.inference.walk import Values, stored_content
from proto_schema.ir.inferred import Recorder, frame_type, opset_of
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.operators import OpSchema

_NO_INPUTS = 4
"""Since this IR version an initializer need not be an input."""
_ANY_CONSTANT = 9
_NEW_CONSTANTS = frozenset(
    row.code for row in DTYPES.values() if row.name.startswith(("INT", "UINT", "BOOL")) and row.bits >= 8
)
"""The data types that Constant takes since opset 9, but for text and complex numbers."""
DEEPEST = 200
"""Changes inside of changes: more is a row that goes round in circles."""


class Frame:
    """One graph that is being converted: what is known of its values, and the nodes of the result."""

    def __init__(self, known: Sequence[Values], outer: Frame | None) -> None:
        self.known = known
        self.outer = outer
        self.types: dict[str, Type | None] = {}
        self.held: dict[str, TensorProto] = {}
        self.nodes: list[NodeProto] = []
        self.made: set[str] = set()
        self.constants: dict[tuple[Any, ...], Value] = {}
        self.tensors: list[TensorProto] | None = None
        """Initializers of the result, where the frame is a graph: what a Constant of the target cannot hold."""
        self.outputs: set[str] = set()


class Engine:
    """One conversion of one model in one domain."""

    def __init__(self, model: ModelProto, target: int, domain: str = "") -> None:
        self.model = sharing(model)
        self.target = target
        self.domain = domain
        self.newest = operators.newest_opset(domain)
        self.walk = Recorder(self.model)
        self.walk.run()
        self.taken = self.walk.names_of_values()
        self.count = 0
        self.depth = 0
        self.frame: Frame = Frame((), None)
        self.refusals: list[Refusal] = []
        self.dropped: set[str] = set()
        self.function: str = ""
        self.outside: set[tuple[str, str, str]] = set()

    # -- the model

    def run(self) -> tuple[ModelProto, set[tuple[str, str, str]]]:
        """The converted model, and the functions that must be written out first, where there are any."""
        made = self.model
        functions = []
        for function in made.functions:
            converted = self._function(function)
            if converted is not None:
                functions.append(converted)
        if self.outside:
            return made, self.outside
        made.functions = functions
        if made.graph is not None:
            made.graph = self.graph(made.graph, None, opset_of(made.opset_import, self.domain))
        if self.refusals:
            raise self._error()
        if made.graph is not None:
            self._clean(made)
        self._declare(made)
        return made, set()

    def _declare(self, holder: Any) -> None:
        """Write the target into the opset imports of a model or function."""
        found = []
        for item in holder.opset_import:
            changed = copy.copy(item)
            if operators.canonical(item.domain or "") == self.domain:
                changed.version = self.target
            found.append(changed)
        holder.opset_import = found

    def _error(self) -> ConversionError:
        known = [item.needs for item in self.refusals]
        opset = f"opset {self.target}" + (f" of {self.domain}" if self.domain else "")
        count = f" {len(self.refusals)} nodes" if len(self.refusals) > 1 else ""
        text = f"cannot convert{count} to {opset}:{'' if count else ' '}{listed(self.refusals)}"
        error = ConversionError(text, self.refusals)
        error.needs = max(known) if all(known) else 0
        return error

    def _function(self, function: FunctionProto) -> FunctionProto | None:
        key = function_id(function)
        imported = opset_of(function.opset_import, self.domain)
        if not imported:
            return function
        made = copy.copy(function)
        self.function = key[1]
        before = len(self.refusals)
        frame = Frame(self.walk.kept.get(id(function.node), ()), None)
        try:
            with self._in(frame):
                for node in function.node:
                    self.node(node, imported)
        except ParameterError:
            self.outside.add(key)
            return None
        finally:
            self.function = ""
        if len(self.refusals) > before:
            del self.refusals[before:]
            self.outside.add(key)
            return None
        made.node = self._alive(frame.nodes, set(function.output))
        self._declare(made)
        return made

    # -- graphs

    @contextmanager
    def _in(self, frame: Frame) -> Iterator[Frame]:
        before, self.frame = self.frame, frame
        try:
            yield frame
        finally:
            self.frame = before

    @contextmanager
    def inside(self) -> Iterator[Frame]:
        """A graph that a row writes."""
        with self._in(Frame((), self.frame)) as frame:
            yield frame

    def graph(self, graph: GraphProto, outer: Frame | None, opset: int) -> GraphProto:
        """The graph with its nodes converted. What cannot be goes to `refusals`."""
        frame = Frame(self.walk.kept.get(id(graph.node), ()), outer)
        inputs = {item.name for item in graph.input} if (self.model.ir_version or 0) >= 4 else set()
        frame.held = {item.name or "": item for item in graph.initializer if item.name not in inputs}
        frame.tensors, frame.outputs = [], {item.name or "" for item in graph.output}
        with self._in(frame):
            for node in graph.node:
                self.node(node, opset)
        made = copy.copy(graph)
        made.node = frame.nodes
        if frame.tensors:
            made.initializer = [*graph.initializer, *frame.tensors]
            self.model.ir_version = max(self.model.ir_version or 0, _NO_INPUTS)
        return made

    def node(self, node: NodeProto, opset: int) -> None:
        """Convert one node of the file."""
        key = callee(node)
        node = self._with_graphs(node, opset)
        domain = operators.canonical(node.domain or "")
        if key in self.walk.functions or domain != self.domain:
            self.frame.nodes.append(node)
            return
        schema = operators.schema(key[1], opset, domain)
        if schema is None:
            self._refuse(node, RefusedError(f"opset {opset} has no operator {key[1]!r}"))
            return
        try:
            draft = self._draft(node, schema)
            if key[1] == "Constant":
                self._hold(node)
            self.place(draft, opset)
        except ParameterError as error:
            if self.function:
                raise
            self._refuse(node, error)
        except RefusedError as error:
            self._refuse(node, error)

    def _refuse(self, node: NodeProto, error: RefusedError) -> None:
        name = (
            f"node {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {node.output[:1]}"
        )
        self.refusals.append(Refusal(name, error.reason, error.needs))

    def _with_graphs(self, node: NodeProto, opset: int) -> NodeProto:
        if not any(item.g is not None for item in node.attribute):
            return node
        made = copy.copy(node)
        made.attribute = [copy.copy(item) for item in node.attribute]
        for item in made.attribute:
            if item.g is not None:
                item.g = self.graph(item.g, self.frame, opset)
        return made

    def _draft(self, node: NodeProto, schema: OpSchema) -> Draft:
        inputs = [self.value(name) if name else None for name in node.input]
        outputs = list(node.output)
        types = [self.type_of(name) if name else None for name in outputs]
        attributes = {item.name or "": item for item in node.attribute}
        return Draft(schema, inputs, dict(attributes), outputs, types, node)

    def _hold(self, node: NodeProto) -> None:
        """Remember what a Constant of the file holds."""
        for item in node.attribute:
            if item.name == "value" and item.t is not None:
                self.frame.held[node.output[0]] = item.t

    # -- values

    def value(self, name: str) -> Value:
        """What is known of a name."""
        return Value(name, self.type_of(name), self._held(name))

    def type_of(self, name: str) -> Type | None:
        """The type of a name in the graph that is being converted, or in those around it."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.types:
                return frame.types[name]
            found = frame_type(frame.known, name) if frame.known else None  # it looks into the graphs around, too
            if found is not None:
                return found
            frame = frame.outer
        return None

    def _held(self, name: str) -> TensorProto | None:
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.held:
                return frame.held[name]
            if name in frame.types or any(name in item.types for item in frame.known):
                return None  # a value of this graph, which hides one of the same name outside
            frame = frame.outer
        return None

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
        from proto_schema.tensor_helper import make_tensor

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
        known = self.frame.constants.get(key)
        if known is not None:
            return known
        made = self._initializer(tensor) or self.write("Constant", "", None, [], {"value": tensor}, 1)[0]
        content = stored_content(tensor, tuple(tensor.dims)) if tensor.data_type != TensorProto.STRING else None
        held = Value(made.name, Tensor(tensor.data_type or 0, tuple(tensor.dims), content), tensor)
        self.frame.types[made.name] = held.type
        self.frame.held[made.name] = tensor
        self.dropped.add(made.name)
        self.frame.constants[key] = held
        return held

    def _initializer(self, tensor: TensorProto, name: str = "") -> Value | None:
        """The constant as an initializer, where a Constant of the target cannot hold its type and a graph can."""
        if self.domain or self.target >= _ANY_CONSTANT or tensor.data_type not in _NEW_CONSTANTS:
            return None
        frame: Frame | None = self.frame
        while frame is not None and frame.tensors is None:
            frame = frame.outer  # a graph that a row writes sees those around it
        if frame is None or frame.tensors is None or name in frame.outputs:
            return None
        made = copy.copy(tensor)
        made.name = name or self.fresh("Constant_value")
        frame.tensors.append(made)
        frame.made.add(made.name)
        return Value(made.name, Tensor(made.data_type or 0, tuple(made.dims)))

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
        while inputs and inputs[-1] is None:
            inputs.pop()
        kept = {name: value for name, value in attributes.items() if value is not None}
        if types is None:
            types = self._inferred(schema, inputs, kept, outputs)
        names = [
            self.fresh(f"{op_type}_{schema.outputs[min(place, len(schema.outputs) - 1)].name}")
            for place in range(outputs)
        ]
        for name, type_ in zip(names, types, strict=True):
            self.frame.types[name] = type_
        self.frame.made.update(names)
        draft = Draft(schema, inputs, kept, names, list(types), None, changed=True)
        if domain == self.domain:
            self.place(draft, opset)
        else:
            self._append(draft, schema)
        return [Value(name, self.frame.types.get(name)) for name in names]

    def _inferred(
        self, schema: OpSchema, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int
    ) -> list[Type | None]:
        given = [ABSENT if item is None else item.type for item in inputs]
        values = {name: plain_value(value) for name, value in attributes.items()}
        try:
            return inference.infer(Site(schema, given, values, outputs, self.walk.scope))
        except Misfit as problem:
            raise RefusedError(f"it is written with {schema.name}, where {problem}") from None

    def inlined(self, graph: GraphProto, items: Sequence[Value]) -> list[Value]:
        """The nodes of a graph that is converted already, in the current one, on values for its inputs."""
        names = {item.name or "": value.name for item, value in zip(graph.input, items, strict=True)}
        for tensor in graph.initializer:
            name = names[tensor.name or ""] = self.fresh(tensor.name or "held")
            if self._initializer(tensor, name) is None:
                value = make_attribute("value", tensor)
                self.frame.nodes.append(NodeProto(op_type="Constant", output=[name], attribute=[value]))
        for node in graph.node:
            made = copy.deepcopy(node)
            for name in node.output:
                if name:
                    names[name] = self.fresh(name)
                    self.frame.made.add(names[name])
            rename(made, names)
            self.frame.nodes.append(made)
        found = []
        for item in graph.output:
            type_ = from_proto(item.type, lambda _: self.walk.scope.fresh())
            name = names.get(item.name or "", item.name or "")
            self.frame.types[name] = type_
            found.append(Value(name, type_))
        return found

    # -- one node through its changes

    def place(self, draft: Draft, opset: int) -> None:
        """Convert a node that has the form of `opset`, and write it. Raises RefusedError."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise RefusedError(f"the rows of {draft.schema.name} go round in circles")
        try:
            self._place(draft, opset)
        finally:
            self.depth -= 1

    def _place(self, draft: Draft, opset: int) -> None:
        upward = self.target > opset
        name = draft.schema.name
        for version in steps.changes(self.domain, name, opset, self.target):
            try:
                row = rows.find(self.domain, name, version, upward)
                mark = len(self.frame.nodes)
                made = row(draft, Writer(self, self.domain)) if row is not None else None
                if made is not None and not isinstance(made, Draft):
                    self._bind(draft, [made] if isinstance(made, Value) else list(made), mark)
                    return
                if made is not None:
                    self._note(draft, made)
                    draft = made
                at = version if upward else version - 1
                into = operators.schema(draft.schema.name, at, self.domain)
                if draft.schema.name != name:
                    if into is None:
                        raise RefusedError(f"opset {at} has no operator {draft.schema.name!r}")
                    draft.schema = into
                    self.place(draft, at)
                    return
                if into is None:
                    raise RefusedError(f"the operator {name} does not exist before opset {version}")
                if into.deprecated:
                    raise RefusedError(f"the operator {name} was withdrawn in opset {at}")
                draft = self._fit(draft, into, at)
            except RefusedError as error:
                error.needs = error.needs or (0 if upward else version)
                raise
        schema = operators.schema(name, self.target, self.domain)
        assert schema is not None  # each change was left or reached
        self._finish(draft, schema, opset)

    def _fit(self, draft: Draft, into: OpSchema, opset: int) -> Draft:
        fitted = steps.fitted(draft, into, opset)
        if fitted is draft:
            fitted = copy.copy(draft)
        fitted.schema = into
        return fitted

    def _note(self, draft: Draft, made: Draft) -> None:
        """Inputs that a node reads no more: constants among them may go."""
        left = {item.name for item in made.inputs if item is not None}
        self.dropped.update(item.name for item in draft.inputs if item is not None and item.name not in left)

    def _bind(self, draft: Draft, made: Sequence[Value | None], mark: int) -> None:
        """Give the outputs that a row made the names of the node's outputs."""
        self.dropped.update(item.name for item in draft.inputs if item is not None)
        fresh = {name for node in self.frame.nodes[mark:] for name in node.output}
        names: dict[str, str] = {}
        copies: list[tuple[Value, str, Type | None]] = []
        for place, name in enumerate(draft.outputs):
            if not name:
                continue
            value = made[place] if place < len(made) else None
            if value is None:
                what = draft.schema.outputs[min(place, len(draft.schema.outputs) - 1)].name
                raise RefusedError(f"its output {what!r} is not there in older operators")
            self.frame.types[name] = draft.types[place] if draft.types[place] is not None else value.type
            if value.held is None and value.name in fresh and value.name not in names:
                names[value.name] = name
            else:
                copies.append((value, name, draft.types[place]))
        if names:
            for node in self.frame.nodes[mark:]:
                rename(node, names)
        if draft.source is not None and draft.source.name:
            for node in self.frame.nodes[mark:]:
                if not node.name:
                    node.name = self.fresh(f"{draft.source.name}/{node.op_type}")
        for value, name, type_ in copies:
            schema = operators.schema("Identity", self.newest if not self.domain else operators.newest_opset(""), "")
            assert schema is not None
            renamed = Value(names.get(value.name, value.name), value.type)
            copied = Draft(schema, [renamed], {}, [name], [type_], None, changed=True)
            if self.domain:
                self._append(copied, schema)
            else:
                self.place(copied, self.newest)

    # -- the last step: types, and the message

    def _finish(self, draft: Draft, schema: OpSchema, opset: int) -> None:
        inputs = [None if item is None else item.type for item in draft.inputs]
        bad = narrowing.unfit(schema, inputs, draft.types)
        held = draft.attribute("value") if bad and schema.name == "Constant" else None
        if held is not None and self._initializer(held, draft.outputs[0]) is not None:
            return
        if bad and self.target < opset:
            ways = narrowing.through(draft, schema, bad, self.target)
            if ways is None:
                variable, text = next(iter(bad.items()))
                needs = narrowing.needed(schema, variable, text, self.target)
                raise RefusedError(f"opset {self.target} has no {schema.name} of {text}", needs)
            draft = self._narrowed(draft, schema, ways)
        elif self.function and self.target < opset and _unsure(draft, self.target, opset):
            raise ParameterError("its types differ from one call of the function to the next")
        else:
            self._append(draft, schema)

    def _narrowed(self, draft: Draft, schema: OpSchema, ways: Mapping[str, tuple[int, int]]) -> Draft:
        op = Writer(self, self.domain)
        inputs: list[Value | None] = []
        for place, value in enumerate(draft.inputs):
            formal = schema.inputs[min(place, len(schema.inputs) - 1)]
            way = ways.get(formal.type)
            inputs.append(op.cast(value, way[1]) if way is not None and value is not None else value)
        made = draft.with_(inputs=inputs)
        back: list[tuple[Value, str, int]] = []
        made.outputs, made.types = list(draft.outputs), list(draft.types)
        for place, name in enumerate(draft.outputs):
            formal = schema.outputs[min(place, len(schema.outputs) - 1)]
            way = ways.get(formal.type)
            if way is not None and name:
                wide = self.fresh(f"{schema.name}_wide")
                made.outputs[place] = wide
                made.types[place] = narrowing.tensors_of(way[1], draft.types[place])
                self.frame.types[wide] = made.types[place]
                back.append((Value(wide, made.types[place]), name, way[0]))
        self._append(made, schema)
        cast = operators.schema("Cast", self.newest)
        assert cast is not None
        for value, name, dtype in back:
            self.place(
                Draft(
                    cast, [value], {"to": dtype}, [name], [narrowing.tensors_of(dtype, value.type)], None, changed=True
                ),
                self.newest,
            )
        return made

    def _append(self, draft: Draft, schema: OpSchema) -> None:
        if draft.source is not None and not draft.changed:
            self.frame.nodes.append(draft.source)
            return
        source = draft.source
        made = NodeProto(op_type=schema.name)
        if schema.domain:
            made.domain = schema.domain
        if source is not None:
            made = copy.copy(source)
            made.op_type = schema.name
            self._note(Draft(schema, [self.value(name) for name in source.input if name], {}, [], []), draft)
        made.input = [item.name if item is not None else "" for item in draft.inputs]
        made.output = list(draft.outputs)
        while made.output and not made.output[-1] and len(made.output) > 1:
            made.output.pop()
        made.attribute = [attribute_of(name, value, schema) for name, value in draft.attributes.items()]
        self.frame.nodes.append(made)

    # -- constants that nobody reads any more

    def _clean(self, model: ModelProto) -> None:
        graph = model.graph
        if graph is None or not self.dropped:
            return
        used: set[str] = set()
        note_uses(graph, used)
        gone = self.dropped - used
        if gone:
            remove(graph, gone)

    def _alive(self, nodes: Sequence[NodeProto], outputs: set[str]) -> list[NodeProto]:
        used = set(outputs)
        for node in nodes:
            note_uses_of(node, used)
        return [
            node
            for node in nodes
            if node.op_type != "Constant" or not self.dropped.issuperset(node.output) or used & {*node.output}
        ]


@cache
def _narrower(name: str, domain: str, target: int, opset: int) -> bool:
    """Whether the version at the target takes fewer types than that at the opset."""
    old, new = operators.schema(name, target, domain), operators.schema(name, opset, domain)
    if old is None or new is None:
        return True
    return any(not old.constraints.get(variable, types) >= types for variable, types in new.constraints.items())


def _unsure(draft: Draft, target: int, opset: int) -> bool:
    """Whether an input has a type that is not known where the types decide."""
    return any(
        (item is not None and item.type is None)
        or (item is not None and isinstance(item.type, Tensor) and not item.dtype)
        for item in draft.inputs
    ) and _narrower(draft.schema.name, draft.schema.domain, target, opset)
