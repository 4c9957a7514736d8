"""Which weights of a model can be quantized, and how each is read: along which axis a product sums.

A weight is a float initializer of the main graph; `hoisted` brings those of other places there. All that reads it, in
branches and bodies too, must sum along the same axis: a `MatMul` or `Gemm` whose second operand it is (a `Transpose` of
a matrix and a `Cast` to float32 between them are seen through), a `Conv`, a `Gather` of rows, or a mixture of experts
(`MoE`), of which both weights are taken or none. What else reads it keeps it as it is, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from proto_schema.external.payload import nbytes
from proto_schema.graphs.names import bodies
from proto_schema.inlining.versions import all_nodes
from proto_schema.ir import Graph, Model, Node, Value
from proto_schema.onnx import NodeProto, TensorProto
from proto_schema.quantization import experts
from proto_schema.quantization.codes.elements import FLOATS
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.dtypes import DTYPES, element_count, type_name
from proto_schema.wire.records import dataclass

STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class Use:
    """A node that reads a weight. `kind` is its operator; `axis` the one that it sums along, None for a `Conv`.

    `between` are the `Transpose` and the `Cast` that the weight goes through before; `place` is that of a weight of
    experts among the inputs.
    """

    node: Node
    kind: str
    axis: int | None
    between: tuple[Node, ...] = ()
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
    value: Value
    uses: list[Use] = field(default_factory=list)
    home: Graph | None = None

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
    model: Model, scheme: Scheme, target: str, taken: frozenset[str] = frozenset()
) -> tuple[list[Weight], list[Left]]:
    """The weights that the scheme takes, in the order of the initializers, and those of its size that it leaves.

    `target` is that of `quantize`. `taken` are names of weights that patterns have let pass.
    """
    nodes = [item for node in model.graph.nodes if (item := node.message) is not None]
    known = _Known(set(model.graph.outputs), experts.routers(nodes), set(_declared_inside(model)))
    found: list[Weight] = []
    left: list[Left] = []
    for value in model.graph.initializers:
        tensor = value.tensor
        if not isinstance(tensor, TensorProto) or len(tensor.dims) < 2:
            continue
        if element_count(tensor.dims) < scheme.smallest:
            continue
        weight = Weight(tensor, value)
        reason = "is left out by the patterns"
        if weight.name in taken or scheme.takes(weight.name):
            reason = _refusal(weight, scheme, target, known)
        if reason:
            left.append(Left(tensor, reason))
        else:
            found.append(weight)
    return _paired(found, left, scheme)


@dataclass(frozen=True)
class _Known:
    """Outputs of the model, names of weights that decide between experts, and what bodies say the types of."""

    outputs: set[Value]
    routers: set[str]
    declared: set[str]


def _declared_inside(model: Model) -> Iterator[str]:
    if model.message.graph is not None:
        for node in all_nodes(model.message.graph.node):
            for graph in bodies(node):
                yield from (item.name or "" for item in graph.value_info)


def message_of(node: Node) -> NodeProto:
    """The message of a node that was not changed."""
    assert node.message is not None
    return node.message


def _paired(found: list[Weight], left: list[Left], scheme: Scheme) -> tuple[list[Weight], list[Left]]:
    """The same, without weights of experts whose other weights are not taken."""
    of_experts = [weight for weight in found if weight.is_expert and scheme.kind.family != "cast"]
    reads = [(message_of(weight.uses[0].node), weight.uses[0].place, weight.shape) for weight in of_experts]
    alone = experts.unpaired(reads)
    gone = {id(weight) for weight, read in zip(of_experts, reads, strict=True) if id(read[0]) in alone}
    reason = "is read by MoE, whose other weight stays as it is"
    left += [Left(weight.tensor, reason) for weight in of_experts if id(weight) in gone]
    return [weight for weight in found if id(weight) not in gone], left


def _refusal(weight: Weight, scheme: Scheme, target: str, known: _Known) -> str:
    """Why a weight stays as it is; empty where it is taken, and then it has its uses."""
    tensor, value = weight.tensor, weight.value
    if tensor.data_type not in FLOATS[:3]:
        return f"is {type_name(tensor.data_type or 0)}, not float, float16 or bfloat16"
    if isinstance(tensor.name, bytes):
        return "has a name that is not UTF-8"
    if tensor.raw_data is not None and nbytes(tensor.raw_data) != bytes_of(tensor):
        return f"has {nbytes(tensor.raw_data)} bytes, and its shape asks for {bytes_of(tensor)}"
    if value.is_input or value in known.outputs:
        return "is an input or output of the model"
    if not value.uses:
        return "is read by no node"
    for user, place in value.uses:
        if not isinstance(user, Node):
            return "is given back by a graph inside"
        uses = _uses(user, place, len(weight.shape), known)
        if uses is None:
            return f"is read by {user.op_type or 'a node'} {user.name}".rstrip()
        weight.uses.extend(uses)
    if any(use.kind == "MoE" for use in weight.uses):
        use = weight.uses[0]
        if len(weight.uses) > 1:
            return "is read by several nodes, one of them MoE"
        return experts.refusal(message_of(use.node), use.place, weight.shape, weight.dtype, scheme, target)
    if len({use.axis for use in weight.uses}) > 1:
        return "is read along several axes"
    if any(use.kind == "Conv" for use in weight.uses) and scheme.kind.bits < 8:
        return f"is read by Conv, which has no {scheme.type} in blocks (type='int8' takes it)"
    if weight.name in known.routers and not scheme.include and scheme.kind.family != "cast":
        return "decides between experts, where a small error chooses others (a pattern of include takes it)"
    if weight.is_table and not scheme.embeddings:
        return "is a table of embeddings (embeddings=True takes it)"
    return ""


def _uses(node: Node, place: int, rank: int, known: _Known, between: tuple[Node, ...] = ()) -> list[Use] | None:
    """How a node reads a weight of that rank, or what `between` makes of it; None where nothing is known of that."""
    if experts.reads_experts(message_of(node), place):
        return [Use(node, "MoE", rank - 1, between, place)]
    if node.domain not in STANDARD:
        return None
    turned = any(item.op_type == "Transpose" for item in between)
    if node.op_type == "MatMul" and place == 1:
        return [Use(node, "MatMul", 1 if turned else rank - 2, between)]
    if node.op_type == "Gemm" and place == 1 and rank == 2:
        return [Use(node, "Gemm", 1 if bool(node.attributes.get("transB", 0)) != turned else 0, between)]
    if _passes(node, rank) and all(item.op_type != node.op_type for item in between):
        return _uses_behind(node, rank, known, (*between, node))
    if between:
        return None
    if node.op_type == "Conv" and place == 1:
        return [Use(node, "Conv", None)]
    if node.op_type == "Gather" and place == 0 and rank == 2 and node.attributes.get("axis", 0) in (0, -2):
        return [Use(node, "Gather", 1)]
    return None


def _uses_behind(node: Node, rank: int, known: _Known, between: tuple[Node, ...]) -> list[Use] | None:
    """How the result of a node is read, where nothing else needs it."""
    result = node.outputs[0] if node.outputs else None
    if result is None or result.name in known.declared or not result.uses:
        return None
    found: list[Use] = []
    for user, place in result.uses:
        uses = _uses(user, place, rank, known, between) if isinstance(user, Node) else None
        if uses is None:
            return None
        found.extend(uses)
    return found


def _passes(node: Node, rank: int) -> bool:
    """Whether a node is the transposition of a matrix, or a cast that keeps every number."""
    if node.op_type == "Cast":
        return node.attributes.get("to") == TensorProto.FLOAT
    return node.op_type == "Transpose" and rank == 2 and node.attributes.get("perm", [1, 0]) == [1, 0]


def bytes_of(tensor: TensorProto) -> int:
    """The size of a tensor's data; 0 for a type that does not exist."""
    row = DTYPES.get(tensor.data_type or 1)
    return 0 if row is None else row.nbytes(element_count(tensor.dims))
