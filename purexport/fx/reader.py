"""torch.fx graphs to the neutral graph, one call per node.

The graphs still contain in-place operators and views, under the names that a trace records, and our own
functionalization removes them.  Arithmetic on sizes arrives as Python operators on symbolic integers.  It becomes the
same scalar calls that a trace records.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from purexport.aten.graph import OWN_NAMESPACE, AtenGraph, AtenValue, Call, Frame, Input, Recording, ScalarType, Source
from purexport.aten.names import name_of
from purexport.aten.schema import bind
from purexport.errors import ExportError
from purexport.fx.higher_order import read_higher_order
from purexport.shapes.symbols import Symbols

_FRAME = re.compile(r'^\s*File "(.*)", line (\d+), in .*$', re.MULTILINE)

_PYTHON: dict[Any, str] = {
    operator.add: "aten::add.int",
    operator.sub: "aten::sub.int",
    operator.mul: "aten::mul.int",
    operator.floordiv: "aten::floordiv.int",
    operator.truediv: "aten::div.int",
    operator.mod: "aten::remainder.int",
    operator.pow: "aten::pow.int",
    operator.neg: "aten::neg.int",
    operator.abs: "prim::abs.int",
    abs: "prim::abs.int",
    operator.and_: "aten::__and__.bool",
    operator.or_: "aten::__or__.bool",
    math.trunc: "aten::Int.Scalar",
    math.floor: "aten::floor.float",
    math.ceil: "aten::ceil.float",
    torch.sym_sqrt: "aten::sqrt.float",
    operator.eq: "aten::eq.int",
    operator.ne: "aten::ne.int",
    operator.lt: "aten::lt.int",
    operator.le: "aten::le.int",
    operator.gt: "aten::gt.int",
    operator.ge: "aten::ge.int",
    torch.sym_int: "aten::Int.Scalar",
    torch.sym_float: "aten::Float.Scalar",
    torch.sym_not: "aten::__not__",
    torch.sym_max: "prim::max.int",
    torch.sym_min: "prim::min.int",
}

# These return the argument object itself, and change nothing but how gradients flow.
_SAME = frozenset([torch.ops.aten.detach_.default, torch.ops.aten.requires_grad_.default])


def python_target(function: Any) -> str | None:
    """The name under which a graph has calls of a Python function; None for a class or another object."""
    if function in _PYTHON:
        return _PYTHON[function]
    return None if isinstance(function, type) or not hasattr(function, "__name__") else f"python::{function.__name__}"


def read_module(module: torch.fx.GraphModule, inputs: Sequence[Input], symbols: Symbols | None = None) -> AtenGraph:
    """The graph of `module`; `inputs` stand for its placeholders, in order."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    env = {node: item.value for node, item in zip(placeholders, inputs, strict=True)}
    graph = Recording(list(inputs))
    return graph.graph(FxReader(graph, symbols or Symbols({})).body(module, env))


class FxReader:
    """Reads the graphs of a program, one after another, into `graph`."""

    def __init__(self, graph: Recording, symbols: Symbols) -> None:
        self.graph = graph
        self.symbols = symbols
        self._computed: dict[torch.fx.Node, Any] = {}

    def body(self, module: torch.fx.GraphModule, env: dict[torch.fx.Node, Any]) -> list[Any]:
        """Read the calls of `module` and return its outputs; `env` gives the value of each placeholder."""
        outputs: list[Any] = []
        for node in module.graph.nodes:
            if node.op == "get_attr":
                attribute = functools.reduce(getattr, node.target.split("."), module)
                env[node] = attribute
                if isinstance(attribute, torch.Tensor):
                    env[node] = self.graph.constant(attribute, node.target)
            elif node.op == "call_function":
                env[node] = self._call(node, env)
            elif node.op == "output":
                result = self._resolve(node.args[0], env)
                outputs = result if isinstance(result, list) else [result]
        return outputs

    @staticmethod
    def source(node: torch.fx.Node) -> Source:
        """The user's line and module of a node."""
        stack = node.meta.get("nn_module_stack") or {}
        scope = next(reversed(stack.values()))[0] if stack else ""

        def frames() -> list[Frame]:
            found = _FRAME.findall(node.meta.get("stack_trace") or "")
            return [(path, int(line)) for path, line in reversed(found)]

        return Source(module_path(scope), frames)

    def _resolve(self, arg: Any, env: dict[torch.fx.Node, Any]) -> Any:
        if isinstance(arg, torch.fx.Node):
            return env[arg]
        if isinstance(arg, (list, tuple)):
            return [self._resolve(item, env) for item in arg]
        return arg

    def _call(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
        args = self._resolve(list(node.args), env)
        kwargs = {name: self._resolve(arg, env) for name, arg in node.kwargs.items()}
        target = node.target
        if target in _SAME:
            return args[0]
        if target is operator.getitem:
            return self._getitem(node, args[0], args[1])
        if target in _PYTHON:
            return self._emit(node, _PYTHON[target], {"ab"[i]: arg for i, arg in enumerate(args)})
        if target is round:
            return self._round(node, args)
        if target is torch.sym_sum:
            return functools.reduce(lambda a, b: self._emit(node, "aten::add.int", {"a": a, "b": b}), args[0])
        if isinstance(target, torch._ops.HigherOrderOperator):
            return read_higher_order(self, node, args)
        if isinstance(target, torch._ops.OpOverload):
            name = re.sub(rf"^{OWN_NAMESPACE}::", "aten::", name_of(target._schema))
            return self._emit(node, name, bind(name, args, kwargs))
        name = f"python::{getattr(target, '__name__', target)}"
        return self._emit(node, name, {str(position): arg for position, arg in enumerate(args)})

    def _round(self, node: torch.fx.Node, args: list[Any]) -> Any:
        """Python's round gives an integer where ATen's gives a float; both round ties to the even number."""
        if any(arg is not None for arg in args[1:]):
            raise ExportError(
                f"round() to digits at {self.source(node)} has no form in ONNX; write it on tensors",
                code="no-onnx-form",
            )
        rounded = AtenValue(ScalarType(float))
        self.graph.calls.append(Call("aten::round.float", {"a": args[0]}, [rounded], self.source(node)))
        return self._emit(node, "aten::Int.Scalar", {"a": rounded})

    def _getitem(self, node: torch.fx.Node, container: Any, index: int) -> Any:
        if isinstance(container, list):
            return container[index]
        return self._emit(node, "prim::getitem", {"list": container, "index": index})

    def _recorded(self, node: torch.fx.Node) -> Any:
        """What torch recorded as the result; a call that was put into the graph later runs on its fake arguments."""
        if "val" in node.meta or not isinstance(node.target, torch._ops.OpOverload):
            return node.meta.get("val")
        if node not in self._computed:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._recorded)
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            modes = (leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor))
            with next(modes, None) or nullcontext():
                self._computed[node] = node.target(*args, **kwargs)
        return self._computed[node]

    def _emit(self, node: torch.fx.Node, target: str, args: dict[str, Any]) -> Any:
        recorded = self._recorded(node)
        several = recorded if isinstance(recorded, tuple) else () if recorded is None else (recorded,)
        outputs = [AtenValue(self.symbols.type(item)) for item in several]
        self.graph.calls.append(Call(target, args, outputs, self.source(node)))
        return outputs if isinstance(recorded, tuple) else outputs[0] if outputs else None


def module_path(scope: str) -> str:
    """`L['self'].layer1` and plain paths alike become `layer1`."""
    return re.sub(r"^L\['self'\]\.?", "", scope)
