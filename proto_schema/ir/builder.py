"""`ir.Builder`: operators as methods that write nodes.

    b = ps.ir.Builder(model.graph, opset=model.opsets)
    y = b.Relu(b.Conv(x, w, pads=[1, 1, 1, 1]))

The caller writes the newest form of an operator; `calls` has what an older opset makes of it. Each node is checked by
the operator's schema when it is written, and its outputs get their types from inference. Types of inputs that are not
known are not checked. `b.before(node)`, `b.after(node)` and `b.instead_of(node)` write elsewhere.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from proto_schema import operators
from proto_schema.inference import rows
from proto_schema.inference.site import ABSENT, Misfit, Scope, Site
from proto_schema.inference.types import Tensor, Type, text_of
from proto_schema.inference.walk import stored_content
from proto_schema.ir.calls import Bound, BuildError, bind, newest_form, schema_of, short, typed_attribute, untyped
from proto_schema.ir.constants import array_of, natural_dtype, tensor_of
from proto_schema.ir.functions import Function
from proto_schema.ir.graph import Graph, Node, Value
from proto_schema.ir.operands import Operands
from proto_schema.legalization import Row
from proto_schema.legalization import rows as older_forms
from proto_schema.legalization.operators import RefusedError
from proto_schema.onnx import AttributeProto, NodeProto, TensorProto
from proto_schema.operators import Formal, OpSchema
from proto_schema.operators.changes import newest
from proto_schema.sizes import Equations, Size
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.tensors.dtypes import DTYPES

Outputs: TypeAlias = "int | Sequence[str | None] | None"
_Kind = AttributeProto.AttributeType
_SHOWN = 8  # types that an error lists


class _Sizes(Scope):
    """Names of sizes of which nothing is known, which no file and no other builder has."""

    def __init__(self) -> None:
        super().__init__("")

    def fresh(self) -> Size:
        self.prefix = self.prefix or f"new:{uuid.uuid4().hex[:12]}:"
        return super().fresh()

    def for_node(self) -> Scope:
        """What is learnt of sizes at a node holds for that node alone: it may be in a body."""
        made = copy.copy(self)
        made.equations = Equations()
        return made


class Builder(Operands):
    """Writes nodes into a graph: `b.Relu(x)`, for any operator of the standard; `b.op` is for other domains, too.

    Numbers, lists and numpy arrays as inputs become constants of the data type that the other inputs have. An optional
    input that is left out is None. The result is a value, and a tuple of values where there are several outputs.
    """

    def __init__(self, graph: Graph, opset: int | Mapping[str, int] | None = None) -> None:
        """`opset` is a number, or numbers by domain, as `Model.opsets`; a `Function` has its own.

        Raises ValueError where it is not known.
        """
        held = graph.opsets if opset is None and isinstance(graph, Function) else opset
        if held is None:
            raise ValueError("the opset of the graph is not known; say opset=, such as model.opsets")
        found = {"": held} if isinstance(held, int) else held
        self.graph = graph
        self.opsets = {operators.canonical(domain): version for domain, version in found.items()}
        self._sizes = _Sizes()
        self._in_function = isinstance(_root(graph), Function)
        self._before: Node | None = None
        self._last: Node | None = None
        self._follows = False
        self._origin: Node | None = None
        self._trial: list[Node | Value] | None = None  # what a form writes

    def __repr__(self) -> str:
        return f"<Builder of {self.graph!r}, opsets {self.opsets}>"

    # -- where nodes are written

    def before(self, node: Node) -> Builder:
        """A builder that writes in front of a node."""
        return self._at(node.graph, before=node)

    def after(self, node: Node | None) -> Builder:
        """A builder that writes behind a node, each node behind the last one; None is the beginning of the graph."""
        return self._at(self.graph if node is None else node.graph, last=node, follows=True)

    def instead_of(self, node: Node) -> Builder:
        """A builder that writes in front of a node, with what the file says about that: documentation, metadata."""
        return self._at(node.graph, before=node, origin=node)

    def body(self, name: str = "", inputs: Sequence[Value] = ()) -> Builder:
        """The builder of a new graph, for an attribute of If, Loop or Scan; `.graph` is the graph."""
        return self._at(Graph(name, inputs))

    def _at(
        self,
        graph: Graph | None,
        *,
        before: Node | None = None,
        last: Node | None = None,
        follows: bool = False,
        origin: Node | None = None,
    ) -> Builder:
        if graph is None:
            raise ValueError(f"{before or last!r} is in no graph, so nothing can be written beside it")
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.graph, made._before, made._last, made._follows, made._origin = graph, before, last, follows, origin
        return made

    # -- nodes

    def op(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        outputs: Outputs = None,
        name: str = "",
        overload: str = "",
        **attributes: Any,
    ) -> Any:
        """A node of any operator; `attributes` may name inputs, too.

        `outputs`: how many, or their names, where None leaves one out; by default those that the operator always has.
        `name` is that of the node. What the opset lacks is written by older operators where these can say it. Raises
        BuildError for what the operator does not take at this opset.
        """
        try:
            return self._written(op_type, inputs, attributes, domain, outputs, name, overload)
        except BuildError:
            found = None if domain else self._older(op_type, inputs, attributes, outputs)
            if found is None:
                raise
            return found[0] if len(found) == 1 else found

    def _written(
        self,
        op_type: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        domain: str,
        outputs: Outputs,
        name: str,
        overload: str,
    ) -> Any:
        """The node in the version that is in force."""
        opset = self.opsets.get(operators.canonical(domain), 0)
        if not opset and operators.canonical(domain) in operators.domains():
            raise BuildError(f"{op_type}: the graph imports no opset of {domain or 'ai.onnx'}; say it in opset=")
        schema = schema_of(op_type, domain, opset)
        constants: list[Value] = []
        try:
            if schema is None:
                reads = [self._constant(f"{op_type}: an input", item, constants) for item in inputs]
                rows_ = {key: untyped(op_type, key, item) for key, item in attributes.items() if item is not None}
                node = Node(op_type, reads, rows_, outputs=_named(outputs, 1), domain=domain, overload=overload)
            else:
                node = self._checked(schema, opset, inputs, attributes, outputs, constants)
                node.domain, node.overload = domain, overload
        except BuildError:
            for value in constants:
                self._take_back(value)
            raise
        node.name = name
        self._insert(node)
        return node.outputs[0] if len(node.outputs) == 1 else node.outputs

    def _older(
        self, op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: Outputs
    ) -> tuple[Value, ...] | None:
        """The values of an operator that the opset lacks, by older ones; None where these cannot say it."""
        left = [row for row in older_forms().get(op_type, ()) if row.before > self.opsets.get("", 0)]
        schema, latest = newest(op_type) if left else None, operators.newest_opset()
        if schema is None:
            return None
        given, rest, plain = newest_form(schema, inputs, attributes)
        outer, self._trial, standing = self._trial, [], tuple[Value, ...]()
        constants: list[Value] = []
        fixed = [formal for formal in schema.inputs if formal.option != "variadic"]
        bound = [(given.get(formal.name), formal) for formal in fixed] + [(item, schema.inputs[-1]) for item in rest]
        try:
            values = self._values(schema, latest, bound, constants)
            typed = {key: typed_attribute(schema, key, item) for key, item in plain.items()}
            count = outputs if isinstance(outputs, int) else _count(schema, typed, values)
            made = Node(op_type, values, typed, outputs=_named(outputs, count))
            self._infer(schema, made)
            made.inputs = ()
            arguments: dict[str, Any] = {schema.inputs[-1].name: values[len(fixed) :]} if rest else {}
            named = zip(fixed, values, strict=False)
            arguments |= {formal.name: value for formal, value in named if value is not None}
            found = _by_rows(left, self, {**arguments, **plain}, len(made.outputs))
            pairs = zip(found or (), made.outputs, strict=False)
            standing = tuple(self._standing(value, item) for value, item in pairs if item is not None)
            return standing if found is not None else None
        finally:
            self._clean(standing)
            if outer is not None:
                outer += self._trial
            self._trial = outer

    def _clean(self, kept: Sequence[Value]) -> None:
        """What a form wrote and nobody reads goes."""
        for item in reversed(self._trial or ()):
            made = item.outputs if isinstance(item, Node) else (item,)
            if item.graph is None or any(
                value is not None and (value.uses or value.is_output or value in kept) for value in made
            ):
                continue
            if isinstance(item, Node):
                item.graph.nodes.remove(item)
            else:
                item.graph.remove_initializer(item)

    def _standing(self, value: Value, known: Value) -> Value:
        """A value of a form, with the name and type that the operator's own would have."""
        if value.producer is None or (known.name and value.name):
            value = self.Identity(value)
        value.learn(known.type)
        value.name = known.name or value.name
        return value

    def _checked(
        self,
        schema: OpSchema,
        opset: int,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: Outputs,
        constants: list[Value],
    ) -> Node:
        """The node as this opset has it, with the types of its outputs."""
        count = outputs if isinstance(outputs, int) or outputs is None else len(outputs)
        if schema.name == "Split" and count is None:
            count = attributes.get("num_outputs")
        bound, given = bind(schema, opset, inputs, attributes, count)
        rows_ = {key: typed_attribute(schema, key, item) for key, item in given.items()}
        missing = [key for key, row in schema.attributes.items() if row.required and key not in rows_]
        if missing:
            raise BuildError(f"{schema.name}: the attribute {missing[0]!r} is missing; give it as {missing[0]}=")
        reads = self._values(schema, opset, bound, constants)
        node = Node(schema.name, reads, rows_, outputs=_named(outputs, count or _count(schema, rows_, reads)))
        try:
            self._infer(schema, node)
        except BuildError:
            node.inputs = ()
            raise
        return node

    def constant(self, value: Any, dtype: int | None = None, name: str = "") -> Value:
        """A constant: a number, list, array or TensorProto; without `dtype` that of the array, float32 or int64."""
        if isinstance(value, TensorProto):
            tensor = value
        else:
            array = array_of(value)
            if array is None:
                raise BuildError(f"{value!r} is no constant; give numbers, a numpy array or a TensorProto")
            code = natural_dtype(value, array) if dtype is None else dtype
            try:
                tensor = tensor_of(array, code)
            except ValueError as error:
                raise BuildError(f"the constant {short(value)} {error}; give another dtype=") from None
        if not self._in_function:
            made = self.graph.add_initializer(tensor, name)
            if self._trial is not None:
                self._trial.append(made)
            return made
        node = self._insert(Node("Constant", attributes={"value": tensor}))
        node.output.name = name
        node.output._type = _known(tensor)
        return node.output

    # -- what forms write with, beside operators

    def multi(self, op_type: str, *inputs: Any, outputs: int, **attributes: Any) -> tuple[Value, ...]:
        """An operator of several outputs."""
        found = self.op(op_type, *inputs, outputs=outputs, **attributes)
        return (found,) if isinstance(found, Value) else found

    def _single(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return self.op(op_type, *inputs, **attributes)

    def const(self, array: Any, dtype: int = 0) -> Value:
        """A constant of an array, rounded to the data type `dtype`, or to the array's own."""
        array = np.asarray(array)
        row = DTYPES.get(dtype)
        return self.constant(array if row is None else array.astype(row.numpy), dtype or None)

    def in_force(self, op_type: str) -> OpSchema | None:
        """The version of an operator at the opset of the graph."""
        return operators.schema(op_type, self.opsets.get("", 0))

    def loop(
        self, count: Value, going: Value, step: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> tuple[Value, ...]:
        """A Loop of at most `count` steps while `going`: `going, *carried = step(op, at, going, *carried)`."""
        types = [Tensor(TensorProto.INT64, ()), Tensor(TensorProto.BOOL, ())]
        types += [Tensor(item.dtype, item.shape) for item in carried]
        inner = self.body("body", [Value("", type_) for type_ in types])
        number, *inside = inner.graph.inputs
        made: list[Value] = []
        for item in step(inner, inner.Unsqueeze(number, [0]), *inside):
            own = item.graph is inner.graph and not item.is_input and item not in made
            made.append(item if own else inner.Identity(item))
        inner.graph.outputs = made
        return self.multi("Loop", count, going, *carried, outputs=len(carried), body=inner.graph)

    def replace(self, node: Node, *values: Value) -> None:
        """Let values stand for what a node makes, which goes."""
        for mine, other in zip(values, node.outputs, strict=False):
            if other is not None:
                self._at(node.graph, before=node).stand_in(mine, other)
        (node.graph or self.graph).nodes.remove(node)

    def stand_in(self, value: Value, other: Value) -> None:
        """Let a value be read instead of another one. The name of an output of the graph stays its name."""
        if other.is_output and not can_take_name(value, other):
            self.Identity(value).stand_for(other)
        elif other.is_output or not (value.name or value.tensor):
            value.stand_for(other)
        else:
            other.replace_uses(value)

    # -- parts of a node

    def _insert(self, node: Node) -> Node:
        if self._trial is not None:
            self._trial.append(node)
        said = self._origin.message if self._origin is not None else None
        if said is not None and (said.doc_string or said.metadata_props):
            node.message = NodeProto(doc_string=said.doc_string or None, metadata_props=said.metadata_props)
        if self._follows:
            self._last = self.graph.nodes.insert_after(self._last, node)
            return node
        return self.graph.nodes.insert(self._before, node)

    def _take_back(self, value: Value) -> None:
        if value.producer is not None:
            self.graph.nodes.remove(value.producer)
        else:
            self.graph.remove_initializer(value)

    def _values(self, schema: OpSchema, opset: int, bound: Bound, constants: list[Value]) -> list[Value | None]:
        """The inputs, whose types are what the operator takes; numbers become constants of these types."""
        name = schema.name
        if len(bound) < schema.min_input or any(
            value is None and formal.option == "single" for value, formal in bound[: schema.min_input]
        ):
            wanted = ", ".join(formal.name for formal in schema.inputs if formal.option != "optional")
            raise BuildError(f"{name} takes the inputs {wanted}, and one of them is missing; give all of these")
        types: dict[str, tuple[str, Formal]] = {}
        for value, formal in bound:
            text = text_of(value.type) if isinstance(value, Value) else None
            if text is None:
                continue
            if not _allows(schema, formal, text):
                raise BuildError(_refusal(schema, opset, formal, text))
            if formal.option == "variadic" and not formal.homogeneous:
                continue
            first, other = types.setdefault(formal.type, (text, formal))
            if first != text:
                raise BuildError(
                    f"{name}: input {formal.name!r} is {text}, and {other.name!r} is {first}, which must be the same; "
                    "cast one of them: b.Cast(value, to=...)"
                )
        found: list[Value | None] = []
        for value, formal in bound:
            dtype = None if value is None or isinstance(value, Value) else _wanted(schema, formal, value, types)
            beside = types.get(formal.type)
            made = self._constant(f"{name}: input {formal.name!r}", value, constants, dtype, beside)
            text = text_of(made.type) if made is not None and made is not value else None
            if text is not None:
                if not _allows(schema, formal, text):
                    raise BuildError(_refusal(schema, opset, formal, text))
                if formal.option != "variadic" or formal.homogeneous:
                    types.setdefault(formal.type, (text, formal))
            found.append(made)
        return found

    def _constant(
        self,
        title: str,
        value: Any,
        constants: list[Value],
        dtype: int | None = None,
        beside: tuple[str, Formal] | None = None,
    ) -> Value | None:
        """A value as it is, and a constant of anything else; `constants` gets those that are new."""
        if isinstance(value, Value):
            if value.tensor is None or value.graph is not None or value.is_input:
                return value
            value, name = value.tensor, value.name  # of no graph yet
        elif value is None:
            return None
        else:
            name = ""
        if not isinstance(value, TensorProto):
            array = array_of(value)
            if array is None:
                raise BuildError(f"{title} is a {type(value).__name__}; give a Value, numbers or a numpy array")
            code = natural_dtype(value, array) if dtype is None else dtype
            if code not in DTYPES:
                raise BuildError(f"{title} is an array of {array.dtype}, which ONNX lacks; cast the array first")
            try:
                value = tensor_of(array, code)
            except ValueError as error:
                other = f", and {beside[1].name!r} is {beside[0]}" if beside is not None else ""
                raise BuildError(
                    f"{title} {short(value)} {error}{other}; give other numbers, or cast: b.Cast(value, to=...)"
                ) from None
        constants.append(self.constant(value, name=name))
        return constants[-1]

    def _infer(self, schema: OpSchema, node: Node) -> None:
        inputs = [ABSENT if value is None else type_with_content(value) for value in node.inputs]
        attributes = {}
        for row in node.attributes.messages():
            if not row.ref_attr_name:
                attributes[row.name or ""] = node.attributes[row.name or ""]
        if not (len(schema.outputs) and node.outputs):
            return

        def body(graph: Graph, *_: object) -> list[Type | None]:
            return [type_with_content(value) for value in graph.outputs]

        site = Site(schema, inputs, attributes, len(node.outputs), self._sizes.for_node(), body)
        try:
            found = rows.infer(site)
        except Misfit as problem:
            shown = ", ".join(
                f"{value.name or formal.name!r} {_type_text(value)}"
                for value, formal in zip(node.inputs, _formals(schema, len(node.inputs)), strict=True)
                if value is not None
            )
            raise BuildError(f"{schema.name}: {problem}; its inputs are {shown}; change one of them") from None
        for value, type_ in zip(node.outputs, found, strict=True):
            if value is not None:
                value._type = type_


def _by_rows(rows_: Sequence[Row], op: Builder, arguments: Mapping[str, Any], count: int) -> tuple[Value, ...] | None:
    for row in rows_:
        try:
            found = row.write(op, arguments, count)
        except (BuildError, RefusedError):
            continue
        if found is not None:
            return found
    return None


def type_with_content(value: Value) -> Type | None:
    """What is known of a value, with the elements of small constants."""
    tensor = value.constant
    return value.type if tensor is None else _known(tensor)


def _known(tensor: TensorProto) -> Tensor:
    shape = tuple(tensor.dims)
    return Tensor(tensor.data_type or 0, shape, stored_content(tensor, shape))


def _root(graph: Graph) -> Graph:
    while graph.node is not None and graph.node.graph is not None:
        graph = graph.node.graph
    return graph


def can_take_name(value: Value, output: Value) -> bool:
    """Whether a value can take the name of an output of its graph."""
    return value.producer is not None and not value.is_output and value.graph is output.graph


def _named(outputs: Outputs, count: int) -> list[Value | None]:
    names: Sequence[str | None] = [""] * count if outputs is None or isinstance(outputs, int) else outputs
    return [None if name is None else Value(name) for name in names]


def _count(schema: OpSchema, attributes: Mapping[str, Any], values: Sequence[Value | None]) -> int:
    """How many outputs a node has that says nothing of them. Raises BuildError where it must say it."""
    bodies = [item for item in attributes.values() if isinstance(item, Graph)]
    if bodies:
        return len(bodies[0].outputs) - (schema.name == "Loop")
    if schema.name == "Split":
        sizes = values[1].array() if len(values) > 1 and values[1] is not None else None
        told = {name: get_attribute_value(row) for name, row in attributes.items()}
        found = told.get("num_outputs") or len(told.get("split", ())) or (0 if sizes is None else sizes.size)
        if not found:
            raise BuildError("Split: the number of parts is not known; say outputs=")
        return int(found)
    return max(1, schema.min_output)


def _formals(schema: OpSchema, count: int) -> list[Formal]:
    return [schema.inputs[min(place, len(schema.inputs) - 1)] for place in range(count)]


# -- types


def _allowed(schema: OpSchema, formal: Formal) -> frozenset[str] | tuple[str]:
    return schema.constraints.get(formal.type, (formal.type,))


def _allows(schema: OpSchema, formal: Formal, text: str) -> bool:
    allowed = _allowed(schema, formal)
    return text in allowed or any(item.replace(", ", ",") == text for item in allowed)


def _refusal(schema: OpSchema, opset: int, formal: Formal, text: str) -> str:
    taken = sorted(_allowed(schema, formal))
    shown = ", ".join(taken[:_SHOWN]) + (", ..." if len(taken) > _SHOWN else "")
    place = schema.inputs.index(formal)
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if version <= opset or later is None or place >= len(later.inputs):
            continue
        if _allows(later, later.inputs[place], text):
            return (
                f"{schema.name}: input {formal.name!r} is {text}, which it takes from opset {version} on; cast it "
                "(b.Cast(value, to=...)), or convert the model (ps.version_converter.convert_version)"
            )
    return (
        f"{schema.name}: input {formal.name!r} is {text}, which it does not take; it takes {shown}: cast the input: "
        "b.Cast(value, to=...)"
    )


_PLAIN = {f"tensor({row.text})": row.code for row in DTYPES.values()}


def _wanted(schema: OpSchema, formal: Formal, value: Any, types: Mapping[str, tuple[str, Formal]]) -> int | None:
    """The data type of a constant: of the other inputs, if the operator takes it; None for its own."""
    if isinstance(value, TensorProto):
        return None
    bound = types.get(formal.type)
    if bound is not None:
        return _PLAIN.get(bound[0])
    allowed = [code for code in map(_PLAIN.get, sorted(_allowed(schema, formal))) if code is not None]
    if len(allowed) == 1:
        return allowed[0]
    array = array_of(value)
    if array is None:
        return None
    own = natural_dtype(value, array)
    if isinstance(value, (Value, TensorProto)) or hasattr(value, "dtype"):
        return own
    first = next((_PLAIN.get(text) for text, _ in types.values()), None)
    for code in (first, own, int(TensorProto.FLOAT)):
        if code in allowed and code is not None and _fits(array, code):
            return code
    return own


def _fits(array: Any, code: int) -> bool:
    try:
        tensor_of(array, code)
    except ValueError:
        return False
    return True


def _type_text(value: Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return f"{text_of(value.type) or 'of no known type'}{shape}"
