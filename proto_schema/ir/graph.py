"""Graphs of ONNX as objects: values, the nodes that make and read them, graphs, functions.

Invariants. A value has one producer: a node, or the graph whose input or initializer it is. Its uses are always true:
each place of a node or of a graph's outputs that reads it is among them, at any depth of bodies, because only
`User._set` writes such a place. A body reads values of the graphs around it as they are, without names. Names are
optional until a model is written, and need not be unique before. Nodes are a linked list, so that they come, go and
move in constant time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, KeysView, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from proto_schema.inference.types import Shape, Sparse, Tensor, Type, known_shape, to_proto
from proto_schema.ir.elements import READ_AT_MOST, declared, implied, stored
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorAnnotation,
    TensorProto,
    ValueInfoProto,
)
from proto_schema.sizes import Dim
from proto_schema.tensors.attributes import get_attribute_value, make_attribute
from proto_schema.tensors.dtypes import DTYPES

if TYPE_CHECKING:
    import numpy.typing as npt

Held: TypeAlias = "TensorProto | SparseTensorProto"


class User:
    """What reads values: a node by its inputs, a graph by its outputs."""

    __slots__ = ("_reads",)
    _reads: list[Value | None]

    def _set(self, place: int, value: Value | None) -> None:
        """Read another value at a place."""
        old = self._reads[place]
        if old is not None:
            del old._uses[self, place]
        self._reads[place] = value
        if value is not None:
            value._uses[self, place] = None

    def _declare(self, place: int) -> None:
        """The value at a place is declared anew."""

    def _set_all(self, values: Iterable[Value | None]) -> None:
        given = list(values)
        for place in range(len(self._reads)):
            self._set(place, None)
        self._reads = [None] * len(given)
        for place, value in enumerate(given):
            self._set(place, value)


Use: TypeAlias = "tuple[User, int]"
"""Who reads a value, and at which place of its inputs or outputs."""


class Value:
    """A value of a graph: what makes it, who reads it, and what is known of its type.

    `producer` is the node that makes it, `place` the place among that node's outputs. `tensor` is what the file holds
    for an initializer; for an input it is the default. `declared` is the message of the file that says its type, with
    documentation and metadata.
    """

    __slots__ = ("_graph", "_outputs", "_type", "_uses", "declared", "is_input", "name", "place", "producer", "tensor")

    def __init__(self, name: str = "", type: Type | None = None, *, tensor: Held | None = None) -> None:
        self.name = name
        self.tensor = tensor
        self.declared: ValueInfoProto | None = None
        self.producer: Node | None = None
        self.place = 0
        self.is_input = False
        self._graph: Graph | None = None
        self._outputs = 0
        self._type: Type | None = None
        self._uses: dict[Use, None] = {}
        if type is not None:
            self.type = type

    def __repr__(self) -> str:
        return f"<Value {self.name!r}: {self.type}>"

    # -- who makes and reads it

    @property
    def graph(self) -> Graph | None:
        """The graph that it belongs to; None for one that nothing makes."""
        return self.producer.graph if self.producer is not None else self._graph

    @property
    def uses(self) -> KeysView[Use]:
        """Who reads it: pairs of a node and the place among its inputs, or of a graph and the place of its outputs."""
        return self._uses.keys()

    @property
    def is_output(self) -> bool:
        """Whether it is among the outputs of a graph or of a body."""
        return self._outputs > 0

    def replace_uses(self, by: Value, uses: Iterable[Use] | None = None) -> None:
        """Let all that reads this value, or these of its uses, read another one.

        Raises ValueError for the value itself.
        """
        if by is self:
            raise ValueError(f"the value {self.name!r} cannot be replaced by itself")
        for user, place in list(self._uses if uses is None else uses):
            user._set(place, by)

    def stand_for(self, other: Value) -> None:
        """Take the place of a value that goes: its uses, its name, and what the file declares of it."""
        other.replace_uses(self)
        self.name, self.declared = other.name, other.declared

    # -- what is known of it

    @property
    def constant(self) -> TensorProto | None:
        """The tensor that the file holds for it, where no input can replace it."""
        return self.tensor if isinstance(self.tensor, TensorProto) and not self.is_input else None

    @property
    def type(self) -> Type | None:
        """Its type as the file declares it, or as `Model.infer` found it last; None where nothing is known."""
        held = self.tensor
        if held is None and self._type is not None:
            return self._type
        if held is not None and not self.is_input:
            if isinstance(held, TensorProto):
                return Tensor(held.data_type or 0, tuple(held.dims))
            return Sparse((held.values.data_type if held.values is not None else 0) or 0, tuple(held.dims))
        if self._type is None and self.declared is not None:
            self._type = declared(self.declared.type, self.name)
        return self._type

    @type.setter
    def type(self, type: Type | None) -> None:
        self._type = type
        made = ValueInfoProto() if self.declared is None else copy.copy(self.declared)
        made.type = to_proto(type)
        self.declared = made
        for user, place in self._uses if self._outputs else ():
            user._declare(place)

    @property
    def dtype(self) -> int:
        """The code of its data type; 0 where that is not known, or the value is no tensor."""
        known = self.type
        return known.dtype if isinstance(known, Tensor) and known.dtype in DTYPES else 0

    @property
    def shape(self) -> Shape:
        """Its sizes, which may be expressions; None where not even the rank is known."""
        known = self.type
        return known.shape if isinstance(known, Tensor) else None

    @property
    def rank(self) -> int | None:
        """The number of axes, None where it is not known."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Its sizes if all are numbers, else None."""
        return known_shape(self.shape)

    def dim(self, axis: int) -> Dim | None:
        """One size of the shape; None where the rank is not known."""
        shape = self.shape
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]

    def learn(self, type: Type | None) -> None:
        """Its type is known now, and is not declared in the file."""
        self._type = type

    def array(self, limit: int = READ_AT_MOST) -> npt.NDArray[Any] | None:
        """Its elements, where the file holds them or all follow from what it holds; None past `limit` bytes.

        Raises UnreadableDataError where the machine does not let the data be read.
        """
        held, node = self.constant, self.producer
        if node is not None and node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            value = node.attributes.get("value")
            held = value if isinstance(value, TensorProto) else None
        return implied(self.type, limit) if held is None else stored(held, limit)

    def ints(self) -> list[int] | None:
        """Its elements, where they are integers and all are known."""
        found = self.array()
        return None if found is None or found.dtype.kind not in "iub" else [int(item) for item in found.reshape(-1)]

    def number(self) -> float | None:
        """Its only element, where there is one and it is a number that is known."""
        found = self.array()
        return None if found is None or found.size != 1 or found.dtype.kind not in "iufb" else found.reshape(-1)[0]


class Attributes(MutableMapping[str, Any]):
    """The attributes of a node by name: numbers, bytes, lists, tensors as messages, bodies as graphs.

    A value that refers to an attribute of the function around it is its AttributeProto. What a list holds is changed by
    assigning another list.
    """

    __slots__ = ("_bodies", "_node", "_rows", "is_changed")

    def __init__(self, node: Node, rows: Iterable[AttributeProto]) -> None:
        self._node = node
        self._rows = {row.name or "": row for row in rows}
        self._bodies: dict[str, list[Graph]] = {}
        self.is_changed = False

    def __getitem__(self, name: str) -> Any:
        row = self._rows[name]
        if name in self._bodies:
            return self._bodies[name][0] if row.type == AttributeProto.GRAPH else list(self._bodies[name])
        return row if row.ref_attr_name else get_attribute_value(row)

    def __setitem__(self, name: str, value: Any) -> None:
        graphs = [value] if isinstance(value, Graph) else value if isinstance(value, (list, tuple)) else ()
        if graphs and all(isinstance(item, Graph) for item in graphs):
            code = AttributeProto.GRAPH if isinstance(value, Graph) else AttributeProto.GRAPHS
            self._leave(name)
            self._rows[name] = AttributeProto(name=name, type=code)
            self._hold(name, graphs)
        else:
            made = value if isinstance(value, AttributeProto) else make_attribute(name, value)
            self._leave(name)
            self._rows[name] = made
        self.is_changed = True

    def __delitem__(self, name: str) -> None:
        del self._rows[name]
        self._leave(name)
        self.is_changed = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def messages(self) -> list[AttributeProto]:
        """The messages of all attributes. Those of bodies are without them, or as they were read."""
        return list(self._rows.values())

    def bodies(self) -> Iterator[Graph]:
        """The graphs among the values."""
        for graphs in self._bodies.values():
            yield from graphs

    def _hold(self, name: str, graphs: Sequence[Graph]) -> None:
        self._bodies[name] = list(graphs)
        for graph in graphs:
            graph.node = self._node

    def _leave(self, name: str) -> None:
        for graph in self._bodies.pop(name, ()):
            if graph.node is self._node:  # it may be the body of another one by now
                graph._clear()


class Node(User):
    """One call of an operator or function. `message` is what the file has for it, with all that is not named here."""

    __slots__ = (
        "_attributes",
        "_next",
        "_previous",
        "domain",
        "graph",
        "message",
        "name",
        "op_type",
        "outputs",
        "overload",
    )

    def __init__(
        self,
        op_type: str,
        inputs: Iterable[Value | None] = (),
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int | Sequence[Value | None] = 1,
        domain: str = "",
        name: str = "",
        overload: str = "",
    ) -> None:
        """`outputs` are new values, or how many there are; None stands for one that is left out."""
        self.op_type = op_type
        self.domain = domain
        self.overload = overload
        self.name = name
        self.message: NodeProto | None = None
        self.graph: Graph | None = None
        self._next: Node | None = None
        self._previous: Node | None = None
        self._attributes: Attributes | None = None
        self._reads = []
        self.inputs = tuple(inputs)
        self.outputs = tuple(Value() for _ in range(outputs)) if isinstance(outputs, int) else tuple(outputs)
        for place, value in enumerate(self.outputs):
            if value is not None:
                value.producer, value.place = self, place
        for key, item in (attributes or {}).items():
            self.attributes[key] = item

    def __repr__(self) -> str:
        names = [", ".join(value.name if value else "" for value in values) for values in (self.outputs, self.inputs)]
        return f"<Node {names[0]} = {self.op_type}({names[1]})>"

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """What it reads; None for an optional input that is left out."""
        return tuple(self._reads)

    @inputs.setter
    def inputs(self, values: Iterable[Value | None]) -> None:
        self._set_all(values)

    def input(self, place: int) -> Value | None:
        """An input, None where the node leaves it out."""
        return self._reads[place] if place < len(self._reads) else None

    def set_input(self, place: int, value: Value | None) -> None:
        """Read another value at a place."""
        self._set(place, value)

    @property
    def output(self) -> Value:
        """The first output. Raises ValueError where the node has none."""
        if not self.outputs or self.outputs[0] is None:
            raise ValueError(f"the node {self.name or self.op_type!r} has no first output")
        return self.outputs[0]

    def set_output(self, place: int, value: Value | None) -> None:
        """Make another value at a place; the node that made it makes it no more."""
        before = self.outputs[place]
        if before is not None:
            before.producer = None
        if value is not None:
            if value.producer is not None:
                value.producer.set_output(value.place, None)
            value.producer, value.place = self, place
        self.outputs = (*self.outputs[:place], value, *self.outputs[place + 1 :])

    @property
    def attributes(self) -> Attributes:
        """Its attributes by name."""
        if self._attributes is None:
            self._attributes = Attributes(self, self.message.attribute if self.message is not None else ())
        return self._attributes

    @property
    def bodies(self) -> list[Graph]:
        """The graphs among its attributes."""
        held = self._attributes
        return list(held.bodies()) if held is not None and held._bodies else []


class Nodes:
    """The nodes of a graph in their order.

    A loop over them may remove the node at which it is, and insert others anywhere.
    """

    __slots__ = ("_count", "_first", "_graph", "_last")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Node]:
        node, graph = self._first, self._graph
        while node is not None:
            yield node
            node = node._next
            while node is not None and node.graph is not graph:  # removed in the meantime
                node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node, graph = self._last, self._graph
        while node is not None:
            yield node
            node = node._previous
            while node is not None and node.graph is not graph:
                node = node._previous

    def append(self, node: Node) -> Node:
        """The node comes to the end, from another place where it has one."""
        return self.insert(None, node)

    def insert(self, before: Node | None, node: Node) -> Node:
        """The node comes before another one, or to the end; from another place where it has one."""
        if before is not None and before.graph is not self._graph:
            raise ValueError(f"{before!r} is not in the graph {self._graph.name!r}")
        if before is node:
            return node
        if node.graph is not None:
            node.graph.nodes._unlink(node)
        previous = self._last if before is None else before._previous
        node._previous, node._next, node.graph = previous, before, self._graph
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if before is None:
            self._last = node
        else:
            before._previous = node
        self._count += 1
        return node

    def insert_after(self, after: Node | None, node: Node) -> Node:
        """The node comes behind another one, or to the beginning; from another place where it has one."""
        return self.insert(self._first if after is None else after._next, node)

    def remove(self, node: Node) -> None:
        """The node goes, and reads nothing any more. Raises ValueError where something reads what it makes."""
        if node.graph is not self._graph:
            raise ValueError(f"{node!r} is not in the graph {self._graph.name!r}")
        for value in node.outputs:
            if value is not None and value._uses:
                raise ValueError(f"{node!r} cannot be removed: {value.name!r} is read; replace its uses first")
        self._unlink(node)
        _drop(node)

    def _unlink(self, node: Node) -> None:
        """Out of the list; its own links stay for loops that are at it."""
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        node.graph = None
        self._count -= 1


def _drop(node: Node) -> None:
    node.inputs = ()
    for body in node.bodies:
        if body.node is node:
            body._clear()


class Graph(User):
    """A graph, or the body of a node. `node` is the node whose body it is; `message` is what the file has for it."""

    __slots__ = (
        "_declared",
        "_declared_outputs",
        "_hiding",
        "_initializers",
        "_inputs",
        "annotations",
        "message",
        "name",
        "node",
        "nodes",
    )

    def __init__(self, name: str = "", inputs: Iterable[Value] = (), outputs: Iterable[Value] = ()) -> None:
        self.name = name
        self.node: Node | None = None
        self.nodes = Nodes(self)
        self.message: GraphProto | FunctionProto | None = None
        self.annotations: list[Annotation] = []
        self._inputs: list[Value] = []
        self._initializers: dict[Value, None] = {}
        self._declared: list[Value | ValueInfoProto] = []  # the entries of `value_info`, in their order
        self._declared_outputs: list[ValueInfoProto | None] = []  # where they differ from what the values declare
        self._hiding: set[Value] = set()  # values that had the name of one around the graph in the file, too
        self._reads = []
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self.nodes)} nodes>"

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Its inputs, those with a default among them."""
        return tuple(self._inputs)

    @inputs.setter
    def inputs(self, values: Iterable[Value]) -> None:
        for value in self._inputs:
            value.is_input = False
        self._inputs = list(values)
        for value in self._inputs:
            value.is_input, value._graph = True, self

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Its outputs."""
        return tuple(value for value in self._reads if value is not None)

    @outputs.setter
    def outputs(self, values: Iterable[Value]) -> None:
        given = list(values)
        before = [*self._declared_outputs, *[None] * len(given)]
        self._declared_outputs = [
            old if place < len(self._reads) and self._reads[place] is value else None
            for place, (value, old) in enumerate(zip(given, before, strict=False))
        ]
        self._set_all(given)

    def set_output(self, place: int, value: Value) -> None:
        """Give another value at a place."""
        self._set(place, value)

    def _set(self, place: int, value: Value | None) -> None:
        old = self._reads[place]
        if old is not None:
            old._outputs -= 1
        super()._set(place, value)
        if value is not None:
            value._outputs += 1

    def _declare(self, place: int) -> None:
        self._declared_outputs[place] = None

    @property
    def initializers(self) -> KeysView[Value]:
        """The values that the file holds, the defaults of inputs among them."""
        return self._initializers.keys()

    def add_initializer(self, tensor: Held, name: str = "", value: Value | None = None) -> Value:
        """A value that the file holds; its name is that of the tensor unless another one is given.

        `value` is one that a node made until now; it is the file's instead.
        """
        held = tensor if isinstance(tensor, TensorProto) else tensor.values
        value = Value(name or (held.name if held is not None else "") or "") if value is None else value
        if value.producer is not None:
            value.producer.set_output(value.place, None)
        value.tensor, value._graph = tensor, self
        self._initializers[value] = None
        return value

    def remove_initializer(self, value: Value) -> None:
        """The file holds it no more. Raises ValueError where something reads it."""
        if value._uses and not value.is_input:
            raise ValueError(f"the initializer {value.name!r} cannot be removed: it is read; replace its uses first")
        del self._initializers[value]
        value.tensor = None
        if not value.is_input:
            value._graph = None

    def nested(self) -> Iterator[Graph]:
        """The graph and all bodies in it."""
        yield self
        for node in self.nodes:
            for body in node.bodies:
                yield from body.nested()

    def _clear(self) -> None:
        """Nothing in it reads anything any more."""
        for node in self.nodes:
            _drop(node)
        self._set_all(())


class Annotation:
    """What the file says of the quantization of a value: other values by what they are for ("SCALE_TENSOR").

    It is written as long as all these values are in the graph. Names that mean nothing are in the message alone.
    """

    __slots__ = ("message", "parameters", "value")

    def __init__(self, message: TensorAnnotation, value: Value | None, parameters: dict[str, Value]) -> None:
        self.message = message
        self.value = value
        self.parameters = parameters
