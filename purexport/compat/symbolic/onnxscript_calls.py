"""Functions written with onnxscript, as nodes of our graph.  Nothing here imports onnxscript.

An operator of an onnxscript opset that is called from Python asks onnxscript's evaluator for its results.  For a while
that evaluator is ours, and writes a node.  A function that onnxscript compiled gives a message: its nodes are written
one by one in place of a call.  Operators of ONNX take the form of the asked opset, whichever opset the function names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

import proto_schema as ps
from proto_schema import operators
from proto_schema.tensors.attributes import get_attribute_value
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Graph, Node, Value
from purexport.lowering.core.emitter import Emitter

_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "matmul": "MatMul", "pow": "Pow", "mod": "Mod"}
_COMPARED = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


class Operand:
    """A tensor of the graph as such a function sees it, with arithmetic and the attribute names of onnx_ir."""

    __hash__ = object.__hash__

    def __init__(self, op: Emitter, value: Value) -> None:
        self.op = op
        self.value = value

    @property
    def dtype(self) -> ps.TensorProto.DataType | None:
        return None if self.value.dtype is None else ps.TensorProto.DataType(self.value.dtype)

    @property
    def type(self) -> Operand:
        """Its type, of which functions read `dtype`."""
        return self

    @property
    def const_value(self) -> torch.Tensor | None:
        """What is known of the tensor's elements, for `.numpy()`."""
        return self.value.const

    @property
    def shape(self) -> tuple[Any, ...] | None:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.rank

    def __neg__(self) -> Operand:
        return Operand(self.op, self.op.Neg(self.value))

    def __ne__(self, other: object) -> Any:
        return Operand(self.op, self.op.Not(self.op.Equal(self.value, _value(other))))


def _method(op_type: str, *, swapped: bool = False) -> Any:
    def method(self: Operand, other: Any) -> Operand:
        operands = (_value(other), self.value) if swapped else (self.value, _value(other))
        return Operand(self.op, self.op.emit(op_type, *operands))

    return method


for _name, _op_type in _BINARY.items():
    setattr(Operand, f"__{_name}__", _method(_op_type))
    setattr(Operand, f"__r{_name}__", _method(_op_type, swapped=True))
for _name, _op_type in _COMPARED.items():
    setattr(Operand, f"__{_name}__", _method(_op_type))


def _value(item: Any) -> Any:
    """An argument as the emitter takes it."""
    if isinstance(item, Operand):
        return item.value
    if isinstance(item, (list, tuple)):
        return [_value(part) for part in item]
    return torch.from_numpy(item) if isinstance(item, np.ndarray) else item


@contextmanager
def handed_to(op: Emitter) -> Iterator[None]:
    """Inside, operators of onnxscript's opsets that Python calls are written by `op`, if onnxscript is loaded."""
    package = sys.modules.get("onnxscript")
    if package is None:
        yield
        return
    evaluator: Any = import_module(f"{package.__name__}.evaluator")
    with evaluator.default_as(_Evaluator(op)):
        yield


class _Evaluator:
    """What onnxscript asks for the results of operators and functions."""

    def __init__(self, op: Emitter) -> None:
        self.op = op

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found = _written(self.op, op.name, op.domain, [_value(item) for item in args], kwargs)
        operands = [Operand(self.op, value) for value in found]
        return operands[0] if len(operands) == 1 else tuple(operands)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands = function_written(self.op, function, args, kwargs)
        return operands[0] if len(operands) == 1 else tuple(operands)


def function_written(op: Emitter, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Operand]:
    """The results of a function that onnxscript compiled: the nodes of its message.

    Raises TypeError for arguments that do not fit, UnsupportedForm for a loop in it.
    """
    message = ps.FunctionProto.FromString(function.to_function_proto().SerializeToString())
    names = [*message.input, *message.attribute, *(item.name or "" for item in message.attribute_proto)]
    order = _order(function, names)
    if len(args) > len(order) or kwargs.keys() - set(order):
        raise TypeError(f"it takes {', '.join(order)}")
    given = {**dict(zip(order, args, strict=False)), **kwargs}
    attributes = {item.name or "": _plain(get_attribute_value(item)) for item in message.attribute_proto}
    attributes |= {name: given[name] for name in names[len(message.input) :] if name in given}
    env: dict[str, Any] = {name: _as_value(op, given.get(name)) for name in message.input}
    _nodes_written(op, message.node, env, attributes)
    return [Operand(op, env[name]) for name in message.output]


def _order(function: Any, names: Sequence[str]) -> list[str]:
    """The names of inputs and attributes in the order of the Python function."""
    code = getattr(getattr(function, "function", None), "__code__", None)
    if code is None:
        return list(names)
    return [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name in names]


def _nodes_written(
    op: Emitter, nodes: Sequence[Any], env: dict[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    for node in nodes:
        if node.op_type in ("Loop", "Scan"):
            raise UnsupportedForm(
                "has a function of onnxscript with a loop in it; write it without", code="symbolic-refuses"
            )
        named: dict[str, Any] = {}
        for item in node.attribute:
            if item.ref_attr_name:
                named[item.name] = attributes.get(item.ref_attr_name)
            elif item.type == ps.AttributeProto.GRAPH:
                named[item.name] = _branch(op, item.g, env, attributes)
            else:
                named[item.name] = _plain(get_attribute_value(item))
        inputs = [env[name] if name else None for name in node.input]
        results = _written(op, node.op_type, node.domain or "", inputs, named, len(node.output))
        env.update(zip(node.output, results, strict=True))
    return env


def _branch(op: Emitter, graph: Any, env: Mapping[str, Any], attributes: Mapping[str, Any]) -> Graph:
    inside = op.subgraph()
    found = _nodes_written(inside, graph.node, dict(env), attributes)
    inside.graph.outputs = [found[item.name] for item in graph.output]
    return inside.graph


def _written(
    op: Emitter, name: str, domain: str, inputs: Sequence[Any], named: Mapping[str, Any], outputs: int | None = None
) -> list[Value]:
    """The results of one node."""
    attributes = {key: _plain(_value(item)) for key, item in named.items() if item is not None}
    outputs = attributes.pop("_outputs", outputs)
    domain = "" if domain == "ai.onnx" else domain
    if domain:
        node = Node(name, [_as_value(op, item) for item in inputs], [], attributes, domain, op.source)
        node.outputs = [Value(node=node) for _ in range(outputs or 1)]
        op.graph.nodes.append(node)
        return node.outputs
    if name == "Constant":
        return [_constant(op, attributes)]
    outputs = _outputs(op, name, attributes) if outputs is None else outputs
    if outputs == 1:
        return [op.emit(name, *inputs, **attributes)]
    return list(op.multi(name, *inputs, outputs=outputs, **attributes))


def _outputs(op: Emitter, name: str, attributes: Mapping[str, Any]) -> int:
    """How many results a call from Python has, where it does not say so: all that the operator has."""
    if name == "BatchNormalization":
        return 3 if attributes.get("training_mode") else 1
    if name == "Split":
        return int(attributes["num_outputs"])
    schema = operators.schema(name, op.opset)
    return 1 if schema is None else len(schema.outputs)


def _constant(op: Emitter, attributes: Mapping[str, Any]) -> Value:
    ((name, item),) = attributes.items()
    if isinstance(item, torch.Tensor):
        return op.const(item)
    return op.const(torch.tensor(item, dtype=torch.float32 if "float" in name else torch.int64))


def _as_value(op: Emitter, item: Any) -> Value | None:
    """A known number or tensor as a constant."""
    item = _value(item)
    if item is None or isinstance(item, Value):
        return item
    return op.const(torch.as_tensor(item))


def _plain(item: Any) -> Any:
    """An attribute's value as the emitter takes it: messages of tensors and numpy's arrays as tensors."""
    if isinstance(item, (list, tuple)):
        return [_plain(part) for part in item]
    if isinstance(item, bytes):
        return item.decode()
    if isinstance(item, np.ndarray):
        return torch.from_numpy(item.copy())
    if hasattr(item, "SerializeToString"):
        message = ps.TensorProto.FromString(item.SerializeToString())
        return torch.from_numpy(np.array(ps.numpy_helper.to_array(message)))
    return int(item) if isinstance(item, int) else item
