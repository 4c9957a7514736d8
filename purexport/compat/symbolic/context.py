"""`g`, with which a symbolic function writes nodes: `g.op("Foo", x, alpha_f=1.0, shape_i=[1, 2], outputs=2)`.

An operator of ONNX goes through the emitter.  So a call written for an old opset takes the form of the asked opset, and
is checked when it is made.  Any other operator, with a domain or without, is written as it is.
The suffix of a keyword says the attribute's type: `_i` int, `_f` float, `_s` text, `_t` tensor, `_g` graph;
the first three take lists too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch

import proto_schema as ps
from proto_schema import operators
from purexport import dtypes
from purexport.compat.symbolic.values import SymbolicValue
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Graph, Node
from purexport.graph.ir import Value as Tensor
from purexport.lowering.core.emitter import Emitter

ATEN_DOMAIN = "org.pytorch.aten"  # where torch.onnx puts ATen operators
_ATTRIBUTE = re.compile(r"(.+)_([a-z]+)")
_LISTS = (ps.AttributeProto.INTS, ps.AttributeProto.FLOATS, ps.AttributeProto.STRINGS)
_NUMBERS = (bool, int, float)
# operators whose inputs have one dtype: a number takes the dtype of the others, as in torch.onnx
_ONE_DTYPE = {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Mean", "Gemm", "MatMul", "Where"}
_ONE_DTYPE |= {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
_CONSTANT = {"value_float": float, "value_int": int, "value_floats": float, "value_ints": int}


class GraphContext:
    """Writes nodes for the call that is being lowered.  `opset` is the opset of the file."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self.opset = emitter.opset

    def op(self, opname: str, *args: Any, outputs: int = 1, **attributes: Any) -> Any:
        """A node `opname`, or `domain::opname`; returns its value, or a tuple of them for several `outputs`.

        `args` are values, None for an optional input that is left out, tensors or Python numbers.
        Raises ValueError for an attribute without a known suffix, TypeError for a value that its suffix does not fit.
        """
        domain, _, name = opname.rpartition("::")
        if domain == "prim":
            return self._primitive(name, args, attributes)
        named = dict(_attribute(key, value) for key, value in attributes.items() if value is not None)
        if name == "Constant" and domain in ("", "onnx"):
            return self._constant(named)
        if domain == "aten" and name == "ATen":
            domain = ATEN_DOMAIN
        inputs = [self._input(arg) for arg in args]
        if domain in ("", "onnx") and operators.versions(name):
            self._check_lists(name, named)
            if name in _ONE_DTYPE:
                inputs = self._numbers_fitted(inputs)
            if outputs == 1:
                return SymbolicValue(self._emitter.emit(name, *inputs, **named))
            return tuple(map(SymbolicValue, self._emitter.multi(name, *inputs, outputs=outputs, **named)))
        made = self._custom(name, "" if domain == "onnx" else domain, inputs, named, outputs)
        return made[0] if outputs == 1 else made

    def at(self, operator: str, *args: Any, overload_name: str = "", **attributes: Any) -> Any:
        """An ATen operator as a node `ATen` of torch's domain, for runtimes that know it."""
        return self.op("aten::ATen", *args, operator_s=operator, overload_name_s=overload_name, **attributes)

    @contextmanager
    def block(self) -> Iterator[SymbolicBlock]:
        """The body of an If or Loop: nodes written inside go to it, and `block.graph` is the attribute.

        `with g.block() as body: body.outputs(g.op("Relu", x))`, then `then_branch_g=body.graph`.
        """
        outside = self._emitter
        self._emitter = outside.subgraph()
        try:
            yield SymbolicBlock(self._emitter.graph)
        finally:
            self._emitter = outside

    def _primitive(self, name: str, args: Sequence[Any], attributes: Mapping[str, Any]) -> SymbolicValue:
        if name in ("ListConstruct", "TupleConstruct"):
            return SymbolicValue(
                items=[arg if isinstance(arg, SymbolicValue) else SymbolicValue(known=arg) for arg in args]
            )
        if name == "Constant":
            return SymbolicValue(known=next((value for value in attributes.values()), None))
        raise UnsupportedForm(
            f"has a symbolic function that writes prim::{name}, which is not an operator of a file",
            code="symbolic-refuses",
        )

    def _constant(self, named: Mapping[str, Any]) -> SymbolicValue:
        """A constant becomes an initializer, whatever form `Constant` has in the opset."""
        if len(named) != 1:
            raise TypeError(f"Constant takes one value, and got {', '.join(named) or 'none'}")
        name, value = next(iter(named.items()))
        if name in _CONSTANT:
            value = torch.tensor(value, dtype=torch.float32 if _CONSTANT[name] is float else torch.int64)
        if not isinstance(value, (torch.Tensor, *_NUMBERS, list)):
            raise TypeError(f"Constant takes a tensor (value_t) or numbers, not {type(value).__name__}")
        return SymbolicValue(self._tensor(value))

    def _tensor(self, value: Any) -> Tensor:
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
        return self._emitter.const(tensor.detach())

    def _input(self, arg: Any) -> Any:
        """An argument in the form that the emitter takes as an input."""
        if isinstance(arg, SymbolicValue):
            if arg.items is not None:
                raise TypeError(
                    "a list of tensors is not an input of a node; take it apart with symbolic_helper._unpack_list"
                )
            arg = arg.operand()
        if arg is None or isinstance(arg, (Tensor, *_NUMBERS)):
            return arg
        if isinstance(arg, (torch.Tensor, list, tuple)):
            return self._tensor(arg)
        raise TypeError(f"a node takes values and numbers, not {type(arg).__name__}; pass it as an attribute")

    def _numbers_fitted(self, inputs: Sequence[Any]) -> list[Any]:
        """Zero-dim constants in the dtype of the tensors beside them, if torch's promotion keeps that dtype."""
        found = {item.dtype for item in inputs if isinstance(item, Tensor) and not _is_number(item)}
        codes = [code for code in found - {dtypes.BOOL} if code is not None]
        if len(codes) != 1:
            return list(inputs)
        dtype = dtypes.torch_dtype(codes[0])
        fits = torch.empty(1, dtype=dtype)
        return [
            self._tensor(item.const.to(dtype))
            if isinstance(item, Tensor)
            and _is_number(item)
            and item.const is not None
            and item.const.dtype is not torch.bool
            and torch.result_type(fits, item.const) == dtype
            else item
            for item in inputs
        ]

    def _check_lists(self, name: str, named: Mapping[str, Any]) -> None:
        """Raises TypeError for a list if the operator wants one number, and for a number if it wants a list."""
        schema = operators.schema(name, self.opset)
        for key in named.keys() & (schema.attributes.keys() if schema is not None else set()):
            wants_list = schema is not None and schema.attributes[key].type in _LISTS
            if isinstance(named[key], list) != wants_list:
                wanted = "a list" if wants_list else "one value"
                raise TypeError(f"{name} takes {wanted} as {key!r}, not {named[key]!r}")

    def _custom(
        self, name: str, domain: str, inputs: Sequence[Any], named: Mapping[str, Any], outputs: int
    ) -> tuple[SymbolicValue, ...]:
        if not domain:
            close = get_close_matches(name, operators.operators(self.opset), 1, 0.8)
            near = f"did you mean {close[0]}? If not, " if close else ""
            self._emitter.warn(
                f"{name} is not an operator of ONNX; {near}name its domain, as in g.op('domain::{name}', ...)"
            )
        values = [self._tensor(item) if isinstance(item, _NUMBERS) else item for item in inputs]
        node = Node(name, values, [], dict(named), domain)
        node.source = self._emitter.source
        node.outputs = [Tensor(node=node) for _ in range(outputs)]
        self._emitter.graph.nodes.append(node)
        return tuple(map(SymbolicValue, node.outputs))


class SymbolicBlock:
    """The body of a control operator while it is written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def outputs(self, *values: SymbolicValue) -> None:
        """Sets the results of the body, in order."""
        self.graph.outputs += [value.tensor for value in values]


def _is_number(item: Tensor) -> bool:
    """Whether a value is a zero-dim constant that the model does not own."""
    return item.const is not None and item.shape == () and not item.name


def _attribute(key: str, value: Any) -> tuple[str, Any]:
    """The name and value of an attribute, by its suffix."""
    match = _ATTRIBUTE.fullmatch(key)
    if match is None or match.group(2) not in _SUFFIXES:
        raise ValueError(
            f"the attribute {key!r} has no suffix that says its type: {', '.join('_' + item for item in _SUFFIXES)}"
        )
    name, suffix = match.groups()
    if isinstance(value, SymbolicValue):
        if not value.is_known:
            raise TypeError(f"the attribute {key!r} is a value that the graph computes; an attribute must be known")
        value = value.known.tolist() if isinstance(value.known, torch.Tensor) and suffix != "t" else value.known
    return name, _SUFFIXES[suffix](key, value)


def _each(convert: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    def converted(key: str, value: Any) -> Any:
        try:
            if isinstance(value, torch.Tensor):
                value = value.tolist()
            return [convert(item) for item in value] if isinstance(value, (list, tuple)) else convert(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the attribute {key!r} does not take {value!r}: {error}") from None

    return converted


def _integer(value: Any) -> int:
    if isinstance(value, torch.dtype):
        return dtypes.onnx_code(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("it is not an integer")
    return int(value)


def _text(value: Any) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise TypeError("it is not text")
    return value


def _as_tensor(key: str, value: Any) -> torch.Tensor:
    return torch.as_tensor(value).detach()


def _graph(key: str, value: Any) -> Graph:
    if not isinstance(value, Graph):
        raise TypeError(f"the attribute {key!r} is a graph, as g.block() makes it, not {type(value).__name__}")
    return value


_SUFFIXES: Mapping[str, Callable[[str, Any], Any]] = {
    "i": _each(_integer),
    "f": _each(float),
    "s": _each(_text),
    "t": _as_tensor,
    "g": _graph,
}
