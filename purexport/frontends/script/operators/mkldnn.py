"""What torch.jit.optimize_for_inference writes into a frozen script: oneDNN's layout, and operators on it.

The layout is one of memory: a tensor holds the same numbers in it.  So conversions are no calls, and each operator is
the one of ATen that it came from (torch/csrc/jit/passes/frozen_ops_to_mkldnn.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenValue
from purexport.aten.schema import bind
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import Handlers, ScriptNode

handles = Handlers()
_SAME = {"HardSwish": "aten::hardswish", "HardSigmoid": "aten::hardsigmoid"}
_BOUNDED = {"HardTanh": "aten::hardtanh", "Clamp": "aten::clamp"}  # their bounds are attributes of the node


@handles("aten::to_mkldnn", "aten::to_dense")
def _converted(machine: Machine, node: ScriptNode, tensor: AtenValue, *_: Any) -> AtenValue:
    return tensor


@handles("prim::ConstantMKLDNNTensor")
def _constant(machine: Machine, node: ScriptNode) -> AtenValue:
    with machine.shapes.outside():
        return machine.constant(node.torch.t("value").to_dense())


@handles("prim::mkldnn_convolution")
def _convolution(machine: Machine, node: ScriptNode, *operands: Any) -> Any:
    tensor, weight, bias, stride, padding, dilation, groups = operands
    flipped, output_padding = False, [0] * len(stride)
    args = [tensor, weight, bias, stride, padding, dilation, flipped, output_padding, groups]
    return machine.record("aten::convolution", bind("aten::convolution", args, {}), node.source)


@handles(*(f"prim::MKLDNN{name}{ending}" for name in (*_SAME, *_BOUNDED) for ending in ("", "_")))
def _activation(machine: Machine, node: ScriptNode, tensor: AtenValue) -> Any:
    name = node.kind.removeprefix("prim::MKLDNN")
    plain = name.rstrip("_")
    bounds = [node.torch.f(key) for key in ("min_val", "max_val")] if plain in _BOUNDED else []
    target = (_SAME | _BOUNDED)[plain] + name[len(plain) :]
    return machine.record(target, bind(target, [tensor, *bounds], {}), node.source)


@handles("prim::MKLDNNScalarMul", "prim::MKLDNNScalarMul_")
def _scaled(machine: Machine, node: ScriptNode, tensor: AtenValue, number: Any) -> Any:
    target = "aten::mul_.Scalar" if node.kind.endswith("_") else "aten::mul.Scalar"
    return machine.record(target, {"self": tensor, "other": number}, node.source)


@handles("prim::BroadcastMKLDNNTensors")
def _broadcast(machine: Machine, node: ScriptNode, one: AtenValue, other: AtenValue) -> list[Any]:
    """Both in the shape of their sum; a tensor that has it already is the same object, a later write goes to it."""
    shape = torch.broadcast_shapes(*(machine.fakes[item].shape for item in (one, other)))  # type: ignore[no-untyped-call]
    return [_expanded(machine, node, item, shape) for item in (one, other)]


def _expanded(machine: Machine, node: ScriptNode, tensor: AtenValue, shape: Sequence[int]) -> Any:
    if tuple(machine.fakes[tensor].shape) == tuple(shape):
        return tensor
    args = {"self": tensor, "size": list(shape), "implicit": False}
    view = machine.record("aten::expand", args, node.source)
    return machine.record("aten::clone", {"self": view, "memory_format": None}, node.source)
