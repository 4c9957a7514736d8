"""Which weights of a model can be quantized, and how each is read: along which axis a product sums.

A weight is a float initializer of the main graph. All that reads it, in branches and bodies too, must sum along the
same axis: a `MatMul` or `Gemm` whose second operand it is (a `Transpose` of a matrix between them is seen through), a
`Conv`, or a `Gather` of rows. What else reads it keeps it as it is, and the reason is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from proto_schema.attributes import get_attribute_value
from proto_schema.dtypes import DTYPES, element_count, type_name
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.quantization.elements import FLOATS
from proto_schema.quantization.scheme import Scheme

STANDARD = ("", "ai.onnx")


Reader: TypeAlias = "tuple[NodeProto, int]"
"""A node, and the place of the input."""
Reading: TypeAlias = "tuple[NodeProto, int, list[Reader]]"
"""What reads a weight, and what reads the results of that."""


@dataclass(frozen=True)
class Use:
    """A node that reads a weight. `kind` is its operator; `axis` the one that it sums along, None for a `Conv`."""

    node: NodeProto
    kind: str
    axis: int | None


@dataclass
class Weight:
    """A weight that can be quantized: all its uses sum along `axis`, or, for None, along all but the first."""

    tensor: TensorProto
    uses: list[Use] = field(default_factory=list)

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
    def is_table(self) -> bool:
        """Whether nothing but `Gather` reads it."""
        return all(use.kind == "Gather" for use in self.uses)


@dataclass(frozen=True)
class Left:
    """A large tensor that stays as it is, and why."""

    tensor: TensorProto
    reason: str


def candidates(
    model: ModelProto, scheme: Scheme, taken: frozenset[str] = frozenset()
) -> tuple[list[Weight], list[Left]]:
    """The weights that the scheme takes, in the order of the initializers, and those of its size that it leaves.

    `taken` are names of weights that patterns have let pass.
    """
    graph = model.graph
    if graph is None:
        return [], []
    readers, hidden = _readers(graph)
    fixed = {item.name for item in (*graph.input, *graph.output)}
    found: list[Weight] = []
    left: list[Left] = []
    for tensor in graph.initializer:
        if element_count(tensor.dims) < scheme.smallest or len(tensor.dims) < 2:
            continue
        weight = Weight(tensor, [])
        reason = "is left out by the patterns"
        if weight.name in taken or scheme.takes(weight.name):
            reason = _refusal(weight, scheme, readers.get(weight.name, []), weight.name in hidden, weight.name in fixed)
        if reason:
            left.append(Left(tensor, reason))
        else:
            found.append(weight)
    return found, left


def _refusal(
    weight: Weight,
    scheme: Scheme,
    readers: Sequence[Reading],
    hidden: bool,
    fixed: bool,
) -> str:
    """Why a weight stays as it is; empty where it is taken, and then it has its uses."""
    tensor = weight.tensor
    if tensor.data_type not in FLOATS[:3]:
        return f"is {type_name(tensor.data_type or 0)}, not float, float16 or bfloat16"
    if fixed:
        return "is an input or output of the model"
    if hidden:
        return "has a name that a graph inside gives to another value"
    if not readers:
        return "is read by no node"
    for node, place, behind in readers:
        use = _use(node, place, len(weight.shape), behind)
        if use is None:
            return f"is read by {node.op_type or 'a node'} {node.name or ''}".rstrip()
        weight.uses.extend(use)
    if len({use.axis for use in weight.uses}) > 1:
        return "is read along several axes"
    if any(use.kind == "Conv" for use in weight.uses) and scheme.kind.bits < 8:
        return f"is read by Conv, which has no {scheme.type} in blocks"
    if weight.is_table and not scheme.embeddings:
        return "is a table of embeddings (embeddings=True takes it)"
    return ""


def _use(node: NodeProto, place: int, rank: int, behind: Sequence[Reader]) -> list[Use] | None:
    """How a node reads a weight of that rank; `behind` are the readers of its result."""
    if (node.domain or "") not in STANDARD:
        return None
    if node.op_type == "MatMul" and place == 1:
        return [Use(node, "MatMul", rank - 2)]
    if node.op_type == "Gemm" and place == 1 and rank == 2:
        return [Use(node, "Gemm", 1 if _number(node, "transB") else 0)]
    if node.op_type == "Conv" and place == 1:
        return [Use(node, "Conv", None)]
    if node.op_type == "Gather" and place == 0 and rank == 2 and _number(node, "axis") in (0, -2):
        return [Use(node, "Gather", 1)]
    products = [item.op_type == "MatMul" and at == 1 and (item.domain or "") in STANDARD for item, at in behind]
    if node.op_type == "Transpose" and rank == 2 and products and all(products):
        return [Use(node, "Transpose", 1)]
    return None


def _number(node: NodeProto, name: str) -> int:
    """An integer attribute whose default is 0."""
    for attribute in node.attribute:
        if attribute.name == name:
            return int(get_attribute_value(attribute))
    return 0


def _readers(graph: GraphProto) -> tuple[dict[str, list[Reading]], set[str]]:
    """For each initializer of the graph what reads it, and what reads the results of that; names hidden inside."""
    names = {tensor.name or "" for tensor in graph.initializer}
    read: dict[str, list[Reader]] = defaultdict(list)
    hidden: set[str] = set()
    for inner, node in nodes_of(graph):
        for place, name in enumerate(node.input):
            read[name].append((node, place))
        if inner is not graph:
            hidden.update(name for name in node.output if name in names)
    for inner in graphs_inside(graph):
        given = [item.name or "" for item in inner.input] + [item.name or "" for item in inner.initializer]
        hidden.update(names.intersection(given))
        for item in inner.output:
            if item.name in names:
                hidden.add(item.name or "")
    found: dict[str, list[Reading]] = {}
    for name in names:
        found[name] = [
            (node, place, [reader for output in node.output for reader in read.get(output, [])])
            for node, place in read.get(name, [])
        ]
    return found, hidden


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
    """The size of a tensor's data."""
    return DTYPES[tensor.data_type or 1].nbytes(element_count(tensor.dims))
