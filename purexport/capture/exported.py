"""``torch.export`` programs to the neutral graph.

The program is read as ``torch.export.export`` leaves it, before ``run_decompositions``: in-place operators and views
are still there under the names that a trace records, and our own functionalization removes them.
Arithmetic on sizes arrives as Python operators on symbolic integers and becomes the same scalar calls that a trace
records.  Symbols take the names of the declared axes; expressions are written in those names.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from purexport.capture import whole
from purexport.capture.aten import (
    AtenGraph,
    Call,
    Dim,
    Frame,
    Input,
    ListType,
    ScalarType,
    Source,
    TensorType,
    Type,
    Value,
    same_bytes,
)
from purexport.capture.bind import bind
from purexport.capture.higher_order import read_higher_order
from purexport.capture.quiet import quiet_torch
from purexport.errors import ExportError

_FRAME = re.compile(r'^\s*File "(.*)", line (\d+), in .*$', re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

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

# These return the very tensor that they get, and change nothing but how gradients flow.
_SAME = frozenset([torch.ops.aten.detach_.default, torch.ops.aten.requires_grad_.default])


class Symbols:
    """Names of the program's symbolic sizes: what the user declared, else what torch calls them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.texts: dict[Any, str] = {}

    def dim(self, size: Any) -> Dim:
        """A size as the neutral graph writes it."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        return self.text(expression)

    def text(self, expression: Any) -> str:
        """An expression of symbols in their names, its terms in the order of these."""
        found = self.texts.get(expression)
        if found is None:
            named = {
                symbol: type(symbol)(self.names[str(symbol)], **symbol.assumptions0)
                for symbol in expression.free_symbols
                if str(symbol) in self.names
            }
            found = self.texts[expression] = str(expression.xreplace(named))
        return found

    def type(self, value: Any) -> Type:
        """The type of what torch.export recorded for a node."""
        if isinstance(value, torch.Tensor):
            return TensorType(value.dtype, tuple(map(self.dim, value.shape)), _strides(value))
        if isinstance(value, (bool, torch.SymBool)):
            return ScalarType(bool)
        if isinstance(value, (int, torch.SymInt)):
            return ScalarType(int)
        if isinstance(value, (float, torch.SymFloat)):
            return ScalarType(float)
        return ListType()


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    strides = tensor.stride() if tensor.layout == torch.strided else ()
    return tuple(strides) if all(type(stride) is int for stride in strides) else None


def read(
    program: torch.export.ExportedProgram, names: Sequence[str] | None, axes: Mapping[str, Mapping[int, str]]
) -> AtenGraph:
    """The neutral graph of a program.

    ``names`` are those of the user's tensor inputs, in order (None: torch's own); ``axes`` gives the names of dynamic
    axes by input name.
    """
    program = _resolved(program)
    symbols = Symbols(axis_names(program, names, axes))
    reader = Reader(AtenGraph(), symbols)
    env = _placeholders(program, names, symbols, reader.graph)
    outputs = reader.body(program.graph_module, env)
    specs = program.graph_signature.output_specs
    reader.graph.outputs = []
    for output, spec in zip(outputs, specs, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            reader.graph.outputs.append(output)
        elif spec.kind.name in _MUTATIONS:
            args = {"self": _written(program, spec, env), "src": output, "non_blocking": False}
            reader.graph.calls.append(Call("aten::copy_", args, [Value(output.type)]))
        else:
            raise ExportError(f"the program has an output of kind {spec.kind.name}, and ONNX has no place for it")
    return reader.graph


# What the program of a decomposed model gives back beside its results: new values of what it writes to.
_MUTATIONS = ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION")


def _written(program: torch.export.ExportedProgram, spec: Any, env: Mapping[torch.fx.Node, Any]) -> Any:
    """The input whose new value an output is."""
    names = {item.target: item.arg.name for item in program.graph_signature.input_specs if item.target is not None}
    wanted = names.get(spec.target, spec.target)
    return next(value for node, value in env.items() if node.name == wanted)


def _resolved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program without ``vmap`` and ``autocast``, which change what the calls inside them mean.

    torch itself resolves them, and writes in place with them; nothing else is decomposed.
    """
    bodies = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    targets = [node.target for body in bodies for node in body.graph.nodes if node.op == "call_function"]
    if not any(str(target) == "wrap_with_autocast" or "predispatch" in _home(target) for target in targets):
        return program
    try:
        with quiet_torch(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            resolved: torch.export.ExportedProgram = program.run_decompositions({})
            return resolved
    except Exception as error:
        raise ExportError(
            f"torch cannot resolve vmap or autocast in the program: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _home(target: Any) -> str:
    return str(getattr(target, "__module__", ""))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def user_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """What torch recorded of the program's tensor inputs, in order."""
    users = set(program.graph_signature.user_inputs)
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in users)
    return [node.meta["val"] for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]


def shape_env(program: torch.export.ExportedProgram) -> Any:
    """torch's book of what it assumed of symbolic sizes; None for a program without such."""
    modes = (getattr(tensor, "fake_mode", None) for tensor in user_tensors(program))
    return next((mode.shape_env for mode in modes if mode is not None), None)


def axis_names(
    program: torch.export.ExportedProgram, names: Sequence[str] | None, axes: Mapping[str, Mapping[int, str]]
) -> dict[str, str]:
    """The name of each of torch's symbols: as declared, else after the first input and axis that has this size."""
    tensors = user_tensors(program)
    labelled = list(zip(names or tensor_names(program), tensors, strict=False))
    found: dict[str, str] = {}
    for name, tensor in labelled:
        for axis, label in axes.get(name, {}).items():
            size = tensor.shape[axis]
            if not isinstance(size, torch.SymInt):
                continue
            symbols = [str(symbol) for symbol in size.node.expr.free_symbols]
            roots = _IDENTIFIER.findall(label)
            if size.node.expr.is_Symbol:
                found.setdefault(symbols[0], label)
            elif len(symbols) == len(roots) == 1 and roots[0] != label:  # a derived dimension, such as "2*batch"
                found.setdefault(symbols[0], roots[0])
    for name, tensor in labelled:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(str(size.node.expr), f"{name}_dim_{axis}")
    return found


def tensor_names(program: torch.export.ExportedProgram) -> list[str]:
    """torch's own names of the program's tensor inputs, in order."""
    users = set(program.graph_signature.user_inputs)
    return [
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in users and isinstance(node.meta["val"], torch.Tensor)
    ]


def read_module(module: torch.fx.GraphModule, graph: AtenGraph) -> None:
    """Read ``module`` into ``graph``, whose inputs stand for the module's placeholders, in order."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    env = {node: item.value for node, item in zip(placeholders, graph.inputs, strict=True)}
    graph.outputs = Reader(graph, Symbols({})).body(module, env)


def _placeholders(
    program: torch.export.ExportedProgram, names: Sequence[str] | None, symbols: Symbols, graph: AtenGraph
) -> dict[torch.fx.Node, Any]:
    """The graph's inputs, and what each placeholder stands for.  Tied weights become one input."""
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    state = {**program.constants, **dict(program.state_dict)}
    env: dict[torch.fx.Node, Any] = {}
    owned: dict[tuple[Any, ...], Value] = {}
    users = iter(names) if names is not None else None
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        kind = spec.kind.name
        if kind == "USER_INPUT":
            recorded = node.meta["val"]
            if not isinstance(recorded, torch.Tensor) and not isinstance(recorded, torch.SymInt):
                env[node] = recorded
                continue
            value = Value(symbols.type(recorded))
            name = next(users) if users is not None else node.name
            graph.inputs.append(Input(value, name, "user"))
        else:
            tensor = state.get(spec.target)
            if not isinstance(tensor, torch.Tensor):
                raise ExportError(f"the program's input {spec.target!r} is no tensor, and ONNX has no place for it")
            key = same_bytes(tensor)
            value = owned.get(key) or Value(symbols.type(tensor))
            if key not in owned:
                owned[key] = value
                name = {"PARAMETER": "parameter", "BUFFER": "buffer"}.get(kind, "constant")
                graph.inputs.append(Input(value, spec.target, name, tensor))
        env[node] = value
    return env


class Reader:
    """Reads the graphs of a program, one after the other, into ``graph``."""

    def __init__(self, graph: AtenGraph, symbols: Symbols) -> None:
        self.graph = graph
        self.symbols = symbols

    def body(self, module: torch.fx.GraphModule, env: dict[torch.fx.Node, Any]) -> list[Any]:
        """Read the calls of ``module``, whose placeholders stand for ``env``; returns its outputs."""
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
            schema = target._schema
            name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
            name = re.sub(rf"^{whole.NAMESPACE}::", "aten::", name)
            return self._emit(node, name, bind(name, args, kwargs))
        name = f"python::{getattr(target, '__name__', target)}"
        return self._emit(node, name, {str(position): arg for position, arg in enumerate(args)})

    def _round(self, node: torch.fx.Node, args: list[Any]) -> Any:
        """Python's round gives an integer where ATen's gives a float; ties go to the even number in both."""
        if any(arg is not None for arg in args[1:]):
            raise ExportError(f"round() to digits at {self.source(node)} has no form in ONNX; write it on tensors")
        rounded = Value(ScalarType(float))
        self.graph.calls.append(Call("aten::round.float", {"a": args[0]}, [rounded], self.source(node)))
        return self._emit(node, "aten::Int.Scalar", {"a": rounded})

    def _getitem(self, node: torch.fx.Node, container: Any, index: int) -> Any:
        if isinstance(container, list):
            return container[index]
        return self._emit(node, "prim::getitem", {"list": container, "index": index})

    def _emit(self, node: torch.fx.Node, target: str, args: dict[str, Any]) -> Any:
        recorded = node.meta.get("val")
        several = recorded if isinstance(recorded, tuple) else () if recorded is None else (recorded,)
        outputs = [Value(self.symbols.type(item)) for item in several]
        self.graph.calls.append(Call(target, args, outputs, self.source(node)))
        return outputs if isinstance(recorded, tuple) else outputs[0] if outputs else None


def module_path(scope: str) -> str:
    """``L['self'].layer1`` and plain paths alike become ``layer1``."""
    return re.sub(r"^L\['self'\]\.?", "", scope)
