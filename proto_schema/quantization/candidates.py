"""Which weights of a model can be quantized, and how each is read: along which axis a product sums.

A weight is a float initializer of the main graph; `hoisted` brings those of other places there. All that reads it, in
branches and bodies too, must sum along the same axis: a `MatMul` or `Gemm` whose second operand it is (a `Transpose` of
a matrix and a `Cast` to float32 between them are seen through), a `Conv`, a `Gather` of rows, or a mixture of experts
(`MoE`), of which both weights are taken or none. What else reads it keeps it as it is, and the reason is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from proto_schema.attributes import get_attribute_value
from proto_schema.dtypes import DTYPES, element_count, type_name
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.payload import nbytes
from proto_schema.quantization import experts
from proto_schema.quantization.elements import FLOATS
from proto_schema.quantization.scheme import Scheme
from proto_schema.records import dataclass

STANDARD = ("", "ai.onnx")


Reader: TypeAlias = "tuple[NodeProto, int]"
"""A node, and the place of the input."""


@dataclass(frozen=True)
class Use:
    """A node that reads a weight. `kind` is its operator; `axis` the one that it sums along, None for a `Conv`.

    `between` are the `Transpose` and the `Cast` that the weight goes through before; `place` is that of a weight of
    experts among the inputs.
    """

    node: NodeProto
    kind: str
    axis: int | None
    between: tuple[NodeProto, ...] = ()
    place: int = 0

    @property
    def is_cast(self) -> bool:
        """Whether the node reads the weight as float32."""
        return any(node.op_type == "Cast" for node in self.between)


@dataclass
class Weight:
    """A weight that can be quantized: all its uses sum along `axis`, or, for None, along all but the first.

    `home` is the graph at whose beginning floats are made of its codes, None for the main graph.
    """

    tensor: TensorProto
    uses: list[Use] = field(default_factory=list)
    home: GraphProto | None = None

    @property
    def name(self) -> str:
        """Its name in the graph."""
        return self.tensor.name or ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.tensor.dims)

    @property
    def axis(self) -> int | None:
        """The axis that all uses sum along."""
        return self.uses[0].axis

    @property
    def dtype(self) -> int:
        """The type in which it is read: float32 behind a `Cast` for all that reads it, otherwise its own."""
        cast = bool(self.uses) and all(use.is_cast for use in self.uses)
        return TensorProto.FLOAT if cast else self.tensor.data_type or TensorProto.FLOAT

    @property
    def is_expert(self) -> bool:
        """Whether a mixture of experts reads it, and nothing else."""
        return self.uses[0].kind == "MoE"

    @property
    def is_table(self) -> bool:
        """Whether nothing but `Gather` reads it."""
        return all(use.kind == "Gather" for use in self.uses)


@dataclass(frozen=True)
class Left:
    """A large tensor that stays as it is, and why."""

    tensor: TensorProto
    reason: str


def candidates(
    model: ModelProto, scheme: Scheme, target: str, taken: frozenset[str] = frozenset()
) -> tuple[list[Weight], list[Left]]:
    """The weights that the scheme takes, in the order of the initializers, and those of its size that it leaves.

    `target` is that of `quantize`. `taken` are names of weights that patterns have let pass.
    """
    graph = model.graph
    if graph is None:
        return [], []
    readers = _Readers(graph)
    found: list[Weight] = []
    left: list[Left] = []
    for tensor in graph.initializer:
        if element_count(tensor.dims) < scheme.smallest or len(tensor.dims) < 2:
            continue
        weight = Weight(tensor, [])
        reason = "is left out by the patterns"
        if weight.name in taken or scheme.takes(weight.name):
            reason = _refusal(weight, scheme, target, readers)
        if reason:
            left.append(Left(tensor, reason))
        else:
            found.append(weight)
    return _paired(found, left, scheme)


def _paired(found: list[Weight], left: list[Left], scheme: Scheme) -> tuple[list[Weight], list[Left]]:
    """The same, without weights of experts whose other weights are not taken."""
    of_experts = [weight for weight in found if weight.is_expert and scheme.kind.family != "cast"]
    alone = experts.unpaired((weight.uses[0].node, weight.uses[0].place, weight.shape) for weight in of_experts)
    gone = {id(weight) for weight in of_experts if id(weight.uses[0].node) in alone}
    reason = "is read by MoE, whose other weight stays as it is"
    left += [Left(weight.tensor, reason) for weight in of_experts if id(weight) in gone]
    return [weight for weight in found if id(weight) not in gone], left


def _refusal(weight: Weight, scheme: Scheme, target: str, readers: _Readers) -> str:
    """Why a weight stays as it is; empty where it is taken, and then it has its uses."""
    tensor = weight.tensor
    if tensor.data_type not in FLOATS[:3]:
        return f"is {type_name(tensor.data_type or 0)}, not float, float16 or bfloat16"
    if isinstance(tensor.name, bytes):
        return "has a name that is not UTF-8"
    if tensor.raw_data is not None and nbytes(tensor.raw_data) != bytes_of(tensor):
        return f"has {nbytes(tensor.raw_data)} bytes, and its shape asks for {bytes_of(tensor)}"
    if weight.name in readers.fixed:
        return "is an input or output of the model"
    if weight.name in readers.hidden:
        return "has a name that a graph inside gives to another value"
    if not readers.read[weight.name]:
        return "is read by no node"
    for node, place in readers.read[weight.name]:
        uses = _uses(node, place, len(weight.shape), readers)
        if uses is None:
            return f"is read by {node.op_type or 'a node'} {node.name or ''}".rstrip()
        weight.uses.extend(uses)
    if any(use.kind == "MoE" for use in weight.uses):
        use = weight.uses[0]
        if len(weight.uses) > 1:
            return "is read by several nodes, one of them MoE"
        return experts.refusal(use.node, use.place, weight.shape, weight.dtype, scheme, target)
    if len({use.axis for use in weight.uses}) > 1:
        return "is read along several axes"
    if any(use.kind == "Conv" for use in weight.uses) and scheme.kind.bits < 8:
        return f"is read by Conv, which has no {scheme.type} in blocks (type='int8' takes it)"
    if weight.name in readers.routers and not scheme.include and scheme.kind.family != "cast":
        return "decides between experts, where a small error chooses others (a pattern of include takes it)"
    if weight.is_table and not scheme.embeddings:
        return "is a table of embeddings (embeddings=True takes it)"
    return ""


def _uses(
    node: NodeProto, place: int, rank: int, readers: _Readers, between: tuple[NodeProto, ...] = ()
) -> list[Use] | None:
    """How a node reads a weight of that rank, or what `between` makes of it; None where nothing is known of that."""
    if experts.reads_experts(node, place):
        return [Use(node, "MoE", rank - 1, between, place)]
    if (node.domain or "") not in STANDARD:
        return None
    turned = any(item.op_type == "Transpose" for item in between)
    if node.op_type == "MatMul" and place == 1:
        return [Use(node, "MatMul", 1 if turned else rank - 2, between)]
    if node.op_type == "Gemm" and place == 1 and rank == 2:
        return [Use(node, "Gemm", 1 if bool(_number(node, "transB")) != turned else 0, between)]
    if _passes(node, rank) and all(item.op_type != node.op_type for item in between):
        return _uses_behind(node, rank, readers, (*between, node))
    if between:
        return None
    if node.op_type == "Conv" and place == 1:
        return [Use(node, "Conv", None)]
    if node.op_type == "Gather" and place == 0 and rank == 2 and _number(node, "axis") in (0, -2):
        return [Use(node, "Gather", 1)]
    return None


def _uses_behind(node: NodeProto, rank: int, readers: _Readers, between: tuple[NodeProto, ...]) -> list[Use] | None:
    """How the result of a node is read, where nothing else needs it."""
    result = node.output[0]
    if result in readers.fixed or result in readers.given or not readers.read[result]:
        return None
    found: list[Use] = []
    for reader, place in readers.read[result]:
        uses = _uses(reader, place, rank, readers, between)
        if uses is None:
            return None
        found.extend(uses)
    return found


def _passes(node: NodeProto, rank: int) -> bool:
    """Whether a node is the transposition of a matrix, or a cast that keeps every number."""
    if node.op_type == "Cast":
        return _number(node, "to") == TensorProto.FLOAT
    orders = [list(item.ints) for item in node.attribute if item.name == "perm"]
    return node.op_type == "Transpose" and rank == 2 and orders in ([], [[1, 0]])


def _number(node: NodeProto, name: str) -> int:
    """An integer attribute whose default is 0."""
    for attribute in node.attribute:
        if attribute.name == name:
            return int(get_attribute_value(attribute))
    return 0


class _Readers:
    """What reads each value of a graph, in graphs inside too.

    `fixed` are inputs and outputs, `routers` weights that decide between experts, `hidden` initializers whose name a
    graph inside gives to another value, `given` what a graph inside gives back, or says the type of.
    """

    def __init__(self, graph: GraphProto) -> None:
        names = {tensor.name or "" for tensor in graph.initializer}
        self.read: dict[str, list[Reader]] = defaultdict(list)
        self.fixed = {item.name for item in (*graph.input, *graph.output)}
        self.hidden: set[str] = set()
        self.given: set[str] = set()
        self.routers = experts.routers(graph.node)
        for inner, node in nodes_of(graph):
            for place, name in enumerate(node.input):
                self.read[name].append((node, place))
            if inner is not graph:
                self.hidden.update(name for name in node.output if name in names)
        for inner in graphs_inside(graph):
            inside = [item.name or "" for item in inner.input] + [item.name or "" for item in inner.initializer]
            self.hidden.update(names.intersection(inside))
            self.given.update(item.name or "" for item in (*inner.output, *inner.value_info))
            self.hidden.update(item.name or "" for item in inner.output if item.name in names)


def nodes_of(graph: GraphProto) -> Iterator[tuple[GraphProto, NodeProto]]:
    """All nodes, those of graphs inside of them too, with the graph that each is in."""
    waiting = [graph]
    while waiting:
        here = waiting.pop()
        for node in here.node:
            yield here, node
            waiting.extend(graphs_of(node))


def graphs_inside(graph: GraphProto) -> Iterator[GraphProto]:
    """The graphs in attributes of nodes, at any depth."""
    for _, node in nodes_of(graph):
        yield from graphs_of(node)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.g is not None:
            yield attribute.g
        yield from attribute.graphs


def names_of(model: ModelProto) -> set[str]:
    """All names of values and nodes, in graphs inside too."""
    graph = model.graph
    if graph is None:
        return set()
    names = {item.name or "" for item in (*graph.input, *graph.output)}
    names.update(item.name or "" for item in graph.initializer)
    for _, node in nodes_of(graph):
        names.update((*node.input, *node.output, node.name or ""))
        for inner in graphs_of(node):
            names.update(item.name or "" for item in inner.input)
            names.update(item.name or "" for item in inner.initializer)
    return names


def bytes_of(tensor: TensorProto) -> int:
    """The size of a tensor's data; 0 for a type that does not exist."""
    row = DTYPES.get(tensor.data_type or 1)
    return 0 if row is None else row.nbytes(element_count(tensor.dims))
