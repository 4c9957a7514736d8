"""Scripts to the neutral graph: TorchScript is interpreted, once, on what is known at export.

Everything that does not depend on tensor data (numbers, strings, lists, dicts, module attributes, trip counts,
conditions on sizes that cannot change) is computed here, as Python would.  Tensor operators are recorded as calls, and
run on fake tensors for their types, so that implicit casts follow torch's promotion.  Loops whose trip count is known
are unrolled, branches whose condition is known are taken.  Lists are Python lists, shared as in the script: what is
appended through one name is seen through the other.

A branch or a loop that depends on tensor data becomes a call with blocks (``script_control``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from purexport import scalars
from purexport.capture.aten import (
    AtenGraph,
    Call,
    Frame,
    Input,
    ListType,
    ScalarType,
    Source,
    TensorType,
    Value,
    same_bytes,
    tensor_type,
)
from purexport.capture.bind import bind, dtype_from_code, is_wrapped_number
from purexport.capture.script_control import Scope, Uninitialized, branch, loop
from purexport.capture.script_objects import CHANGING, STRUCTURAL, is_structural
from purexport.errors import ExportError
from purexport.fakes import Axes, FakeMachine

_FRAME = re.compile(r'^\s*File "(.*)", line (\d+)', re.MULTILINE)
_MOST_STEPS = 100_000
_TO_NUMBER: dict[str, Any] = {"aten::Int": int, "aten::Float": float, "aten::Bool": bool, "aten::item": None}
_TO_NUMBER |= {"aten::IntImplicit": int, "aten::FloatImplicit": float, "aten::ScalarImplicit": None}


@dataclass(frozen=True)
class _Module:
    """A script module and the path that leads to it."""

    module: Any
    path: str

    def join(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass
class Script:
    """The graph, and the result as the script nests it, with values of the graph for tensors."""

    graph: AtenGraph
    result: Any
    remarks: list[str]


def interpret(
    model: Any,
    inputs: Sequence[tuple[str, torch.Tensor]],
    arguments: Callable[[Sequence[Value]], Sequence[Any]],
    axes: Mapping[str, Axes],
) -> Script:
    """Interpret a script module's ``forward``, or a script function.

    ``inputs`` are the tensors among the arguments with their names; ``arguments`` makes the positional arguments from
    their values.  Raises ExportError with the script's own line.
    """
    is_function = isinstance(model, torch.jit.ScriptFunction)
    graph = (model if is_function else model.forward).graph.copy()

    def given(run: Interpreter) -> list[Any]:
        values = [run.input(name, tensor_type(tensor), axes.get(name, {})) for name, tensor in inputs]
        return list(arguments(values)) if is_function else [_Module(model, ""), *arguments(values)]

    return _interpret(graph, given, bool(axes))


def interpret_trace(
    graph: Any, inputs: Sequence[Input], types: Sequence[TensorType], axes: Mapping[str, Axes]
) -> Script:
    """Interpret a trace that calls scripted functions.  ``types`` are those of the traced tensors, in order."""

    def given(run: Interpreter) -> list[Any]:
        return [
            run.input(item.name, type_, axes.get(item.name, {}))
            if item.tensor is None
            else run.state(item.tensor, item.name, item.kind)
            for item, type_ in zip(inputs, types, strict=True)
        ]

    return _interpret(graph, given, bool(axes))


def _interpret(graph: Any, given: Callable[[Interpreter], list[Any]], dynamic: bool) -> Script:
    torch._C._jit_pass_inline(graph)
    machine = FakeMachine(distinct=True)
    try:
        found = Interpreter(graph, machine).run(given)
        if not machine.fixed():
            return found
    except ExportError:
        if not dynamic:
            raise
    # sizes that equal nothing else may be too large for a table of positions; the example's are not
    return Interpreter(graph, FakeMachine(distinct=False)).run(given)


class Interpreter:
    """One interpretation.  ``scope`` is set inside a branch or loop that depends on data."""

    def __init__(self, script: Any, machine: FakeMachine) -> None:
        self.script = script
        self.machine = machine
        self.graph = AtenGraph()
        self.fakes: dict[Value, Any] = {}
        self.owned: dict[tuple[Any, ...], Value] = {}
        self.assigned: dict[tuple[str, str], Any] = {}
        self.env: dict[int, Any] = {}
        self.numbers: dict[str, Value] = {}
        self.scope: Scope | None = None
        self.steps = 0

    def run(self, given: Callable[[Interpreter], list[Any]]) -> Script:
        """Interpret the graph on the inputs that ``given`` makes."""
        with self.machine.running():
            results = self.body(self.script, given(self))
        return Script(self.graph, results[0] if len(results) == 1 else tuple(results), self._said())

    def input(self, name: str, type_: TensorType, axes: Axes) -> Value:
        """A graph input."""
        fake = self.machine.tensor(type_, axes)
        value = Value(self.machine.type(fake))
        self.fakes[value] = fake
        self.graph.inputs.append(Input(value, name, "user"))
        return value

    def _said(self) -> list[str]:
        written = [
            f"the script assigns {path + '.' if path else ''}{name}; the value is right inside the file, and not kept"
            for path, name in self.assigned
        ]
        fixed = [
            f"axis {axis!r} was declared dynamic, but the script holds it at {size}; the file takes that size only"
            for axis, size in self.machine.fixed().items()
        ]
        return [*written, *fixed]

    # -- blocks

    def _block(self, block: Any) -> list[Any]:
        for node in block.nodes():
            self._node(node)
        return [self.env[value.unique()] for value in block.outputs()]

    def _node(self, node: Any) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise ExportError(f"the script takes more than {_MOST_STEPS} steps at export, at {self._source(node, [])}")
        kind = node.kind()
        operands = [self.env[value.unique()] for value in node.inputs()]
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, node, operands)
        else:
            self._store(node, self._operator(node, kind, operands))

    @staticmethod
    def _outputs(node: Any) -> list[int]:
        return [value.unique() for value in node.outputs()]

    def _store(self, node: Any, result: Any) -> None:
        slots = self._outputs(node)
        results = [] if not slots else [result] if len(slots) == 1 else result
        for slot, item in zip(slots, results, strict=True):
            self.env[slot] = self._made(item)

    def _made(self, item: Any) -> Any:
        if self.scope is not None and isinstance(item, (list, dict)):
            self.scope.made.append(item)
        return item

    def _source(self, node: Any, operands: Sequence[Any]) -> Source:
        path = node.scopeName().rpartition("/")[2].removeprefix("__module.")
        scope = "" if path in ("(root)", "__module") else path
        scope = scope or next(
            (self._owner(item) for item in operands if isinstance(item, Value) and self._owner(item)), ""
        )

        script = self.script  # the node lives as long as its graph

        def frames() -> list[Frame]:
            assert script is not None
            return [(path, int(line)) for path, line in reversed(_FRAME.findall(node.sourceRange()))]

        return Source(scope, frames)

    def _owner(self, value: Value) -> str:
        """The path of the module that a parameter belongs to."""
        found = next((item.name for item in self.graph.inputs if item.value is value and item.kind == "parameter"), "")
        return found.rpartition(".")[0]

    # -- control

    def _if(self, node: Any, operands: list[Any]) -> None:
        condition = operands[0]
        if isinstance(condition, Value):
            branch(self, node, condition)
            return
        first, second = node.blocks()
        self.store_all(node, self._block(first if condition else second))

    def _loop(self, node: Any, operands: list[Any]) -> None:
        most, condition, *carried = operands
        (body,) = node.blocks()
        step = 0
        while not isinstance(condition, Value) and not isinstance(most, Value) and step < most and condition:
            condition, *carried = self.body(body, [step, *carried])
            step += 1
        if isinstance(condition, Value) or isinstance(most, Value):
            # what was unrolled until the condition became one of data stays unrolled
            carried = loop(self, node, most, condition, [step, *carried])
        self.store_all(node, carried)

    def body(self, block: Any, items: Sequence[Any]) -> list[Any]:
        """Run a block on its inputs."""
        for value, item in zip(block.inputs(), items, strict=True):
            self.env[value.unique()] = item
        return self._block(block)

    def source(self, node: Any) -> Source:
        """Where a node stands."""
        return self._source(node, [])

    def store_all(self, node: Any, results: Sequence[Any]) -> None:
        """Bind a node's outputs."""
        for slot, item in zip(self._outputs(node), results, strict=True):
            self.env[slot] = item

    def _raise(self, node: Any, operands: list[Any]) -> None:
        raise ExportError(f"the script raises at {self._source(node, [])} on these args: {operands[0]}")

    # -- objects

    def _constant(self, node: Any, operands: list[Any]) -> None:
        output = node.output()
        if output.type().kind() == "TensorType" and node.hasAttribute("value"):
            tensor = node.t("value")
            with self.machine.outside():
                number = tensor.item() if is_wrapped_number(tensor) else None
            self.env[output.unique()] = self._tensor_constant(tensor, "constant") if number is None else number
        else:
            self.env[output.unique()] = output.toIValue()

    def _tensor_constant(self, tensor: torch.Tensor, name: str) -> Value:
        value = self.graph.constant(tensor, name)
        self.fakes[value] = self.machine.tensor(tensor_type(tensor), {})
        return value

    def _get_attribute(self, node: Any, operands: list[Any]) -> None:
        owner, name = operands[0], node.s("name")
        if not isinstance(owner, _Module):
            raise ExportError(f"the script reads {name!r} of an object at {self._source(node, [])}; only modules work")
        if (owner.path, name) in self.assigned:
            found = self.assigned[owner.path, name]
        else:
            found = self._owned(getattr(owner.module, name), owner.join(name))
        self.env[node.output().unique()] = found

    def _owned(self, found: Any, path: str) -> Any:
        if isinstance(found, (torch.nn.Module, torch.jit.ScriptModule, torch._C.ScriptModule)):
            return _Module(found, path)
        if isinstance(found, torch.Tensor):
            kind = "parameter" if isinstance(found, torch.nn.Parameter) or found.requires_grad else "buffer"
            return self.state(found, path, kind)
        if isinstance(found, (list, tuple)):
            return type(found)(self._owned(item, f"{path}.{index}") for index, item in enumerate(found))
        if isinstance(found, dict):
            return {key: self._owned(item, f"{path}.{key}") for key, item in found.items()}
        return found

    def state(self, tensor: torch.Tensor, path: str, kind: str) -> Value:
        """A tensor that the model owns, once for all its names."""
        key = same_bytes(tensor)
        if key not in self.owned:
            value = Value(tensor_type(tensor))
            self.graph.inputs.append(Input(value, path, kind, tensor))
            self.fakes[value] = self.machine.tensor(tensor_type(tensor), {})
            self.owned[key] = value
        return self.owned[key]

    def _set_attribute(self, node: Any, operands: list[Any]) -> None:
        owner, item = operands
        if self.scope is not None:
            raise ExportError(
                f"the script assigns an attribute at {self.source(node)}, inside a branch or loop that depends on "
                "data; this cannot be exported yet"
            )
        self.assigned[owner.path, node.s("name")] = item

    def _list(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = self._made(list(operands))

    def _tuple(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = tuple(operands)

    def _dict(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = self._made(dict(zip(operands[::2], operands[1::2], strict=True)))

    def _unpack(self, node: Any, operands: list[Any]) -> None:
        self.store_all(node, list(operands[0]))

    def _tuple_index(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = operands[0][operands[1]]

    def _tuple_slice(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = operands[0][node.i("beg") : node.i("end")]

    def _same(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = operands[0]

    def _uninitialized(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = Uninitialized()

    def _nothing(self, node: Any, operands: list[Any]) -> None:
        for slot in self._outputs(node):
            self.env[slot] = None

    def _is_instance(self, node: Any, operands: list[Any]) -> None:
        kinds = [str(type_) for type_ in node.tys("types")]
        self.env[node.output().unique()] = any(_matches(operands[0], kind) for kind in kinds)

    def _grad_enabled(self, node: Any, operands: list[Any]) -> None:
        # attention layers ask this to choose between a fused operator without another form, and the plain ones
        self.env[node.output().unique()] = True

    def _requires_grad(self, node: Any, operands: list[Any]) -> None:
        self.env[node.output().unique()] = bool(self._owner(operands[0]))

    def _property(self, node: Any, operands: list[Any]) -> None:
        """``prim::dtype`` and its like: what is known of a tensor without its data."""
        name = node.kind().removeprefix("prim::")
        of = self.fakes[operands[0]] if isinstance(operands[0], Value) else operands[0]
        self.env[node.output().unique()] = _dtype_code(of.dtype) if name == "dtype" else getattr(of, name)

    # -- operators

    def _operator(self, node: Any, kind: str, operands: list[Any]) -> Any:
        source = self._source(node, operands)
        if any(isinstance(item, _Module) for item in operands) or node.schema() == "(no schema)":
            raise ExportError(f"{kind} at {source} cannot be exported from a script yet")
        if is_structural(kind, operands):
            if kind in CHANGING and self.scope is not None and not self.scope.owns(operands[0]):
                raise ExportError(
                    f"the script changes a list or dict at {source}, inside a branch or loop that depends on data; "
                    "this cannot be exported yet"
                )
            return STRUCTURAL[kind](*operands)
        if kind in _TO_NUMBER:
            return self._to_number(kind, operands[0], source)
        schema = node.schema()
        target = schema[: schema.index("(")]
        if target == "aten::size":
            return [
                self.record("aten::size.int", {"self": operands[0], "dim": dim}, source)
                for dim in range(self.fakes[operands[0]].dim())
            ]
        if kind in ("aten::tensor", "aten::as_tensor") and not isinstance(operands[0], Value):
            return self._literal(operands, source)
        if scalars.is_scalar_operator(kind) and not any(map(_is_value, operands)):
            return scalars.evaluate(kind, _unnamed(operands))
        if not target.startswith("aten::") and not any(map(_holds_value, operands)):
            raise ExportError(f"{target} at {source} cannot be exported from a script yet")
        return self.record(target, bind(target, operands, {}), source)

    def record(self, target: str, args: dict[str, Any], source: Source) -> Any:
        """Record a call and run it on fakes; what needs no data comes back as a plain number."""
        call = Call(target, args, [Value(ListType())], source)
        if scalars.is_scalar_operator(call.base) and not any(self._is_tensor(arg) for arg in args.values()):
            call.outputs[0].type = ScalarType(int)
        try:
            results = self.machine.evaluate(call, self.fakes.__getitem__)
        except ExportError:
            raise
        except Exception as error:
            reason = self.machine.named(str(error).strip().partition("\n")[0]) or type(error).__name__
            raise ExportError(f"{target} at {source} does not run: {reason}") from error
        result = results[0]
        if isinstance(result, tuple):
            call.outputs = [self.value(item) for item in result]
            self.graph.calls.append(call)
            return tuple(call.outputs)
        if isinstance(result, list) and result and isinstance(result[0], torch.Tensor):
            self.graph.calls.append(call)
            self.fakes[call.outputs[0]] = result
            return [self._take(call.outputs[0], index, item, source) for index, item in enumerate(result)]
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(call, result)
        if not isinstance(result, torch.Tensor):
            return result
        call.outputs = [self.value(result)]
        self.graph.calls.append(call)
        return call.outputs[0]

    def _number(self, call: Call, result: Any) -> Any:
        """A symbolic number: plain where it is known, and one value for all sizes that are equal by their symbols."""
        known = self.machine.known(result)
        if known is not None:
            return known
        key = str(result.node.expr)
        if key not in self.numbers:
            call.outputs = [self.value(result)]
            self.graph.calls.append(call)
            self.numbers[key] = call.outputs[0]
        return self.numbers[key]

    def _is_tensor(self, arg: Any) -> bool:
        return isinstance(arg, Value) and isinstance(arg.type, TensorType)

    def value(self, fake: Any) -> Value:
        """A value of the type of ``fake``."""
        value = Value(self.machine.type(fake))
        self.fakes[value] = fake
        return value

    def _take(self, items: Value, index: int, fake: Any, source: Source) -> Value:
        value = self.value(fake)
        self.graph.calls.append(Call("prim::getitem", {"list": items, "index": index}, [value], source))
        return value

    def _to_number(self, kind: str, operand: Any, source: Source) -> Any:
        """int(), float(), bool() and item() of a tensor or number."""
        cast = _TO_NUMBER[kind]
        if not isinstance(operand, Value):
            return operand if cast is None else cast(operand)
        if isinstance(operand.type, ScalarType) and cast in (None, operand.type.kind):
            return operand
        known = next((item.tensor for item in self.graph.inputs if item.value is operand), None)
        if known is not None:
            with self.machine.outside():
                found = known.item()
            return found if cast is None else cast(found)
        fake = self.fakes[operand]
        number = _converted(fake.item() if isinstance(fake, torch.Tensor) else fake, cast)
        if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return number
        value = self.value(number)
        assert isinstance(value.type, ScalarType)
        name = {int: "aten::Int.Tensor", float: "aten::Float.Tensor", bool: "aten::Bool.Tensor"}[value.type.kind]
        self.graph.calls.append(Call(name, {"a": operand}, [value], source))
        return value

    def _literal(self, operands: list[Any], source: Source) -> Any:
        """torch.tensor of numbers: a constant when they are known."""
        data, dtype = operands[0], operands[1] if len(operands) > 1 else None
        if _holds_value(data):
            raise ExportError(
                f"torch.tensor of computed numbers at {source} cannot be exported from a script yet; use torch.stack"
            )
        wanted = dtype_from_code(dtype) if isinstance(dtype, int) else dtype
        with self.machine.outside():
            made = torch.tensor(data, dtype=wanted)
        return self._tensor_constant(made, "constant")


def _converted(number: Any, cast: Any) -> Any:
    if cast is bool:
        return number if isinstance(number, (bool, torch.SymBool)) else number != 0
    if cast is float:
        return torch.sym_float(number)  # type: ignore[no-untyped-call]
    return torch.sym_int(number) if cast is int else number  # type: ignore[no-untyped-call]


def _unnamed(operands: list[Any]) -> dict[str, Any]:
    """Operands under names of no meaning, for operators that take them by position."""
    return {f"operand_{index}": operand for index, operand in enumerate(operands)}


def _is_value(item: Any) -> bool:
    return isinstance(item, Value)


def _holds_value(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return any(map(_holds_value, item))
    return isinstance(item, Value)


def _dtype_code(dtype: torch.dtype) -> int:
    return next(code for code in range(64) if dtype_from_code(code) is dtype)


def _type_name(value: Value) -> str:
    return "Tensor" if isinstance(value.type, TensorType) else getattr(value.type, "kind", type(None)).__name__


def _matches(item: Any, kind: str) -> bool:
    """Whether an operand is of a TorchScript type, by the type's text."""
    simple = {"int": int, "float": float, "bool": bool, "str": str, "NoneType": type(None)}
    if isinstance(item, Value):
        return kind == _type_name(item)
    if kind in simple:
        return type(item) is simple[kind]
    if kind.startswith("List["):
        return isinstance(item, list) and all(_matches(part, kind[5:-1]) for part in item)
    if kind.startswith("Tuple["):
        return isinstance(item, tuple)
    if kind.startswith("Dict["):
        return isinstance(item, dict)
    return False


_Handler = Callable[[Interpreter, Any, list[Any]], None]
_HANDLERS: dict[str, _Handler] = {
    "prim::Constant": Interpreter._constant,
    "prim::GetAttr": Interpreter._get_attribute,
    "prim::SetAttr": Interpreter._set_attribute,
    "prim::ListConstruct": Interpreter._list,
    "prim::TupleConstruct": Interpreter._tuple,
    "prim::DictConstruct": Interpreter._dict,
    "prim::ListUnpack": Interpreter._unpack,
    "prim::TupleUnpack": Interpreter._unpack,
    "prim::TupleIndex": Interpreter._tuple_index,
    "prim::TupleSlice": Interpreter._tuple_slice,
    "prim::If": Interpreter._if,
    "prim::Loop": Interpreter._loop,
    "prim::RaiseException": Interpreter._raise,
    "prim::Print": Interpreter._nothing,
    "aten::warn": Interpreter._nothing,
    "prim::unchecked_cast": Interpreter._same,
    "prim::unchecked_unwrap_optional": Interpreter._same,
    "aten::_unwrap_optional": Interpreter._same,
    "prim::NumToTensor": Interpreter._same,
    "prim::data": Interpreter._same,
    "prim::Uninitialized": Interpreter._uninitialized,
    "prim::isinstance": Interpreter._is_instance,
    "aten::is_grad_enabled": Interpreter._grad_enabled,
    "prim::requires_grad": Interpreter._requires_grad,
    **dict.fromkeys(
        (
            "prim::dtype",
            "prim::device",
            "prim::layout",
            "prim::is_cuda",
            "prim::is_mkldnn",
            "prim::is_quantized",
            "prim::is_sparse",
            "prim::ndim",
            "prim::type",
        ),
        Interpreter._property,
    ),
}
