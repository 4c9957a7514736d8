"""Which function of the model a node calls, if any.

A node whose domain and name are those of an operator of the standard computes the operator, at every opset, also where
the model has a function of that name: ONNX Runtime and onnx's evaluator look for operators first.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto_schema import operators
from proto_schema.onnx import FunctionProto, NodeProto

FunctionId = tuple[str, str, str]
"""Domain, name, overload."""


def domain_of(domain: str | None) -> str:
    """The domain as the operator history names it: "ai.onnx" is another name of ""."""
    return "" if domain is None or domain == "ai.onnx" else domain


def callee(node: NodeProto) -> FunctionId:
    """The model-local function that the node calls, if the model has it and it can be called."""
    return domain_of(node.domain), node.op_type or "", node.overload or ""


def function_id(function: FunctionProto) -> FunctionId:
    """What nodes call the function by."""
    return domain_of(function.domain), function.name or "", function.overload or ""


def is_shadowed(name: FunctionId) -> bool:
    """Whether the standard has an operator of the name, so that no node calls the function."""
    return bool(operators.versions(name[1], name[0]))


def callable_functions(functions: Iterable[FunctionProto]) -> dict[FunctionId, FunctionProto]:
    """The functions that nodes can call, by what they call them; of several with one name the last."""
    named = {function_id(function): function for function in functions}
    return {name: function for name, function in named.items() if not is_shadowed(name)}
