"""Mixtures of experts: a `MoE` of ONNX Runtime becomes a `QMoE`, which reads the codes of both of its weights.

    MoE(x, router, up [e, f n, k], bias, down [e, k, n], bias)
    QMoE(x, router, up, scales, bias, down, scales, bias, "", "", "", zero points, zero points)

Codes lie along the rows, low bits first, as those of MatMulNBits, and scales are `[e, rows]` or `[e, rows, blocks]`.
The facts below are those of the kernels for a CPU in ONNX Runtime 1.31, found by running them:

- One block size serves both weights, and must divide k and n. Without one a row has one scale.
- The weights of the chosen experts always sum up to 1; `normalize_routing_weights` and `use_sparse_mixer` change
  nothing. Where MoE takes them as they are, QMoE is given them as `router_weights`.
- With blocks of 8 and of 2 bits, and those of 4 bits with `accuracy_level` 4, the kernel rounds the other operand to
  int8. Whole rows do without, and take ten times as long for a token.
- A third product (fc3), SwiGLU in another order than in turns, and bfloat16 are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proto_schema.ir import Node, Value
from proto_schema.onnx import NodeProto, TensorProto
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.attributes import get_attribute_value

MICROSOFT = "com.microsoft"
PLACES = (2, 4)  # of the weights among the inputs of MoE
_THIRD = 6
_SHORTEST, _USUAL = 16, 32  # blocks


def reads_experts(node: NodeProto, place: int) -> bool:
    """Whether an input of a node is a weight of a mixture of experts."""
    return node.domain == MICROSOFT and node.op_type == "MoE" and place in PLACES and place < len(node.input)


def sizes_of(node: NodeProto, place: int, shape: Sequence[int]) -> tuple[int, int, int] | None:
    """(experts, size of a token, size inside), by the shape of one weight; None for a shape that none has."""
    if len(shape) != 3 or min(shape) < 1:
        return None
    count, rows, length = shape
    if place == PLACES[1]:
        return count, rows, length
    halves = 2 if _attributes(node).get("activation_type") == "swiglu" else 1
    return None if rows % halves else (count, length, rows // halves)


def refusal(node: NodeProto, place: int, shape: Sequence[int], dtype: int, scheme: Scheme, target: str) -> str:
    """Why codes cannot stand for a weight of experts; empty where they can."""
    if scheme.kind.family == "cast":
        return ""
    if target == "onnx":
        return "is read by MoE, which has codes for the target onnxruntime only"
    if scheme.kind.family != "integer":
        return f"is read by MoE, whose form for codes has no {scheme.type}"
    if dtype == TensorProto.BFLOAT16:
        return "is read by MoE in bfloat16, for which ONNX Runtime's form for codes has no kernel"
    if len(node.input) > _THIRD and node.input[_THIRD]:
        return "is read by MoE with a third product, which ONNX Runtime's form for codes lacks"
    given = _attributes(node)
    if given.get("activation_type") == "swiglu" and given.get("swiglu_fusion", 0) != 1:
        return "is read by MoE with a gate that is not in turns, which ONNX Runtime's form for codes lacks"
    sizes = sizes_of(node, place, shape)
    if sizes is None:
        return f"is read by MoE, which takes no weight of shape {list(shape)}"
    _, hidden, inside = sizes
    if not block_of(hidden, inside, scheme) and (hidden * scheme.kind.bits % 8 or inside * scheme.kind.bits % 8):
        return f"is read by MoE, whose rows of {hidden} and {inside} elements do not fill whole bytes in {scheme.type}"
    return ""


def block_of(hidden: int, inside: int, scheme: Scheme) -> int:
    """The block size of both weights, 0 for whole rows: the scheme's, or the largest below it that fits."""
    size = scheme.block if scheme.block_size == 0 else scheme.block or _USUAL
    while size >= _SHORTEST and (hidden % size or inside % size):
        size //= 2
    return size if size >= _SHORTEST else 0


def router_weights(node: NodeProto, experts: int) -> bool:
    """Whether the weights of the experts that a MoE chose do not sum up to 1."""
    given = _attributes(node)
    chosen = given.get("k", 1)
    return not given.get("normalize_routing_weights", 0) and isinstance(chosen, int) and chosen < experts


def attributes_of(block: int, scheme: Scheme) -> dict[str, int]:
    """What a QMoE says of its codes."""
    found = {"expert_weight_bits": scheme.kind.bits}
    if block:
        found["block_size"] = block
    if scheme.accuracy_level:
        found["accuracy_level"] = scheme.accuracy_level
    return found


def inputs_of(node: Node, codes: Sequence[Sequence[Value]], weights: Value | None) -> list[Value | None]:
    """The inputs of the QMoE; `codes` has codes, scales and perhaps zero points of both weights."""
    given = [*node.inputs, None, None, None][:6]
    inputs = [given[0], given[1], *codes[0][:2], given[3], *codes[1][:2], given[5], None, None, None]
    return [*inputs, *(items[2] if len(items) > 2 else None for items in codes), None, weights]


def routers(nodes: Sequence[NodeProto]) -> set[str]:
    """The names of values that are weights of products which decide between the experts of `MoE` nodes."""
    makers = {name: node for node in nodes for name in node.output}
    waiting = [node.input[1] for node in nodes if reads_experts(node, PLACES[0])]
    seen, found = set(waiting), set[str]()
    while waiting:
        node = makers.get(waiting.pop())
        if node is None or node.op_type in ("Shape", "Size"):
            continue
        names = list(node.input)
        if node.op_type in ("MatMul", "Gemm"):
            names = names[1:2]
            found.update(names)
        elif node.output[0] in found:  # what turns or casts such a weight
            found.update(names)
        waiting += [name for name in names if name not in seen]
        seen.update(names)
    return found


def _attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes by name, texts as str."""
    found = {item.name or "": get_attribute_value(item) for item in node.attribute}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in found.items()
    }


def unpaired(reads: Iterable[tuple[NodeProto, int, Sequence[int]]]) -> set[int]:
    """The ids of nodes of which not both weights are taken, or whose shapes contradict each other.

    `reads` are (node, place, shape) of all weights of experts that are taken.
    """
    found: dict[int, list[tuple[NodeProto, int, Sequence[int]]]] = {}
    for item in reads:
        found.setdefault(id(item[0]), []).append(item)
    return {
        number
        for number, items in found.items()
        if len(items) != len(PLACES) or len({sizes_of(*item) for item in items}) != 1
    }
