"""In what a node of the file differs from the same node of a new export, or of another file, in words."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.units import counted

TORCH = "torch"


PLACE = "place"
"""What differs where the other graph has no node."""


@dataclass(frozen=True)
class NodeDifference:
    """What differs: `attribute 'axis'`, with what the file has and what an export writes."""

    what: str
    mine: str
    theirs: str

    def against(self, other: str) -> str:
        """In words; `other` is what the file is compared with."""
        exported = other == TORCH
        if self.what == PLACE:
            return f"{'an export of the model' if exported else other} has no node in its place"
        writes = "an export of the model writes" if exported else f"{other} has"
        return f"its {self.what} is {self.mine}, and {writes} {self.theirs}"


_IN_FEWER_BITS = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
        *("MatMulInteger", "ConvInteger", "MatMulNBits", "GatherBlockQuantized", "QMoE", "QGemm"),
    }
)


def in_fewer_bits(file: ps.ModelProto, other: ps.ModelProto | None) -> frozenset[int]:
    """The places of nodes that read or make numbers in fewer bits, where the other file has floats.

    Such a node is of an operator for quantized numbers that the other file does not have, or makes with a `Cast` what
    is a tensor of the other file.
    """
    theirs = set() if other is None else {node.op_type for node in other.graph.node}
    tensors = set() if other is None else {item.name for item in other.graph.initializer}
    return frozenset(
        place
        for place, node in enumerate(file.graph.node)
        if (node.op_type in _IN_FEWER_BITS and node.op_type not in theirs)
        or (node.op_type == "Cast" and node.output[0] in tensors)
    )


def change_of(
    node: ps.NodeProto,
    other: ps.NodeProto | None,
    constants: Mapping[str, ps.TensorProto],
    others: Mapping[str, ps.TensorProto],
    made: Container[str] = (),
) -> NodeDifference | None:
    """The first thing in which `node` is not `other`, the tensors of the file that it takes included; else None.

    `made` are names of values that nodes of the file make, and which are no difference of this node.
    """
    if other is None:
        return NodeDifference(PLACE, "a node", "no node")
    if (node.op_type, node.domain or "") != (other.op_type, other.domain or ""):
        return NodeDifference("operator", _operator(node), _operator(other))
    if _names(node.input) != _names(other.input):
        return NodeDifference("list of inputs", _listed(node.input), _listed(other.input))
    mine = {item.name or "": item for item in node.attribute}
    theirs = {item.name or "": item for item in other.attribute}
    for name in dict.fromkeys([*theirs, *mine]):
        one, another = mine.get(name), theirs.get(name)
        if one is None or another is None or one.SerializeToString() != another.SerializeToString():
            return NodeDifference(f"attribute {name!r}", _attribute(one), _attribute(another))
    for name in node.input:
        if name in constants or (name in others and name not in made):
            said = _tensors_differ(constants.get(name), others.get(name))
            if said is not None:
                return NodeDifference(f"input {name!r}, a tensor of the file,", *said)
    return None


def _names(names: list[str]) -> list[str]:
    """Without the empty names at the end, which say nothing."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _operator(node: ps.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type or ""


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) if name else "none" for name in names) or "empty"


def _attribute(attribute: ps.AttributeProto | None) -> str:
    if attribute is None:
        return "absent"
    value: Any = get_attribute_value(attribute)
    if isinstance(value, ps.TensorProto):
        return _tensor(value)
    if isinstance(value, ps.GraphProto):
        return f"a graph of {counted(len(value.node), 'node')}"
    text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tensors_differ(mine: ps.TensorProto | None, theirs: ps.TensorProto | None) -> tuple[str, str] | None:
    if mine is None or theirs is None:
        return ("absent" if mine is None else _tensor(mine), "absent" if theirs is None else _tensor(theirs))
    if (mine.data_type, list(mine.dims)) != (theirs.data_type, list(theirs.dims)):
        return _tensor(mine), _tensor(theirs)
    one, other = ps.numpy_helper.to_array(mine), ps.numpy_helper.to_array(theirs)
    if one.dtype.kind not in "biufc":
        return None if np.array_equal(one, other) else ("another text", "this text")
    apart = (_bits(one) != _bits(other)).any(axis=1).reshape(one.shape)
    if not apart.any():
        return None
    place = tuple(int(at) for at in np.argwhere(apart)[0]) if one.ndim else ()
    at = f" at {place}" if place else ""
    return f"{one[place]}{at} ({int(apart.sum())} of {one.size} elements differ)", f"{other[place]}"


def _bits(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)


def _tensor(tensor: ps.TensorProto) -> str:
    array = ps.numpy_helper.to_array(tensor)
    return f"{array.tolist()}" if array.size <= 8 else f"{array.dtype}{list(array.shape)}"
