"""Recording: calls into the graph or the body at hand, run on fakes for their types."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from purexport.aten import scalars
from purexport.aten.graph import (
    AtenGraph,
    Call,
    Input,
    ListType,
    ScalarType,
    SequenceType,
    Source,
    TensorType,
    Value,
    map_values,
    same_bytes,
    tensor_type,
)
from purexport.aten.schema import changes_shape, signature
from purexport.capture.script.memory import Memory
from purexport.capture.script.scope import Scope
from purexport.capture.script.values import FakeSequence, ScriptDict, ScriptList, holds_value
from purexport.errors import ExportError
from purexport.shapes.failures import code_of
from purexport.shapes.fakes import FakeMachine

_CAST_NAMES = {int: "aten::Int.Tensor", float: "aten::Float.Tensor", bool: "aten::Bool.Tensor"}
_QUANTIZING = ("quantized::", "aten::quantize_per")
_FLOAT_RESULT = re.compile("^quantized::.*_dynamic|^quantized::embedding|^aten::dequantize|^aten::int_repr")
NUMBER_DTYPES = {int: torch.int64, float: torch.float32, bool: torch.bool}


class Recorder:
    """The graph being recorded.  ``scope`` is set inside a branch or loop that depends on data.

    ``facts`` are conditions whose side is known where the interpretation stands.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.graph = AtenGraph()
        self.fakes: dict[Value, Any] = {}
        self.sizes: dict[Value, tuple[Any, ...]] = {}  # of tensors that have symbolic ones, as they are made
        self.producers: dict[Value, Call] = {}
        self.owned: dict[tuple[Any, ...], Value] = {}
        self.owners: dict[Value, str] = {}  # parameters, by the path of their module
        self.numbers: dict[str, Value] = {}
        self.facts: dict[Value, bool] = {}
        self.quantized: set[Value] = set()  # what may be a quantized tensor, of which the fakes are plain
        self.remarks: list[str] = []
        self.memory = Memory()
        self.scope: Scope | None = None

    # -- values

    def value(self, fake: Any) -> Value:
        """A value of the type of ``fake``."""
        if isinstance(fake, FakeSequence):
            value = Value(SequenceType(self.machine.type(fake.element)))
        else:
            value = Value(self.machine.type(fake))
        self.fakes[value] = fake
        if isinstance(value.type, TensorType) and any(isinstance(size, str) for size in value.type.shape or ()):
            self.sizes[value] = tuple(fake.shape)  # the fake may be given another shape in place
        return value

    def settle_sizes(self) -> None:
        """Sizes of axes that the script holds by now, or takes for one, are said so, also of what came before."""
        settled = self.machine.fixed() or self.machine.merged()
        for value, sizes in self.sizes.items() if settled else ():
            now = self.machine.type(torch.empty(sizes, dtype=value.tensor.dtype))
            value.type = replace(value.tensor, shape=now.shape)

    def constant(self, tensor: torch.Tensor, name: str = "constant") -> Value:
        """A tensor that is known."""
        value = self.graph.constant(tensor, name)
        self.fakes[value] = self.machine.constant(tensor)
        return value

    def state(self, tensor: torch.Tensor, path: str, kind: str) -> Value:
        """A tensor that the model owns, once for all its names."""
        key = same_bytes(tensor)
        if key not in self.owned:
            value = Value(tensor_type(tensor))
            self.graph.inputs.append(Input(value, path, kind, tensor))
            if kind == "parameter":
                self.owners[value] = path.rpartition(".")[0]
            self.fakes[value] = self.machine.tensor(tensor_type(tensor), {})
            self.owned[key] = value
        return self.owned[key]

    def written_state(self) -> set[Value]:
        """The tensors of the model that the script has written to in place."""
        return {value for value in self.owned.values() if self.memory.is_written(self.fakes[value])}

    def own(self, item: Any) -> Any:
        """A list or dict that the script makes here, and may therefore change here."""
        if type(item) is list:
            item = ScriptList(item)
        elif type(item) is dict:
            item = ScriptDict(item)
        if self.scope is not None and isinstance(item, (ScriptList, ScriptDict)):
            self.scope.made[id(item)] = item
        return item

    def describe(self, item: Any) -> str:
        """A value for people: what it is, and the line that made it."""
        call = self.producers.get(item) if isinstance(item, Value) else None
        made = f" (made at {call.source})" if call is not None else self._given(item)
        if isinstance(item, Value):
            return (f"a tensor {item.type}" if isinstance(item.type, TensorType) else f"a computed {item.type}") + made
        names = {list: "a list", tuple: "a tuple", dict: "a dict"}
        return next((name for kind, name in names.items() if isinstance(item, kind)), f"{item!r}")

    def _given(self, item: Any) -> str:
        name = next((f" ({given.name!r})" for given in self.graph.inputs if given.value is item), "")
        return name if isinstance(item, Value) else ""

    # -- calls

    def add(self, call: Call) -> None:
        """Put a call into the graph."""
        self.graph.calls.append(call)
        for value in call.outputs:
            self.producers[value] = call
        if call.target.startswith(_QUANTIZING) or (self.quantized and any(v in self.quantized for v in call.inputs())):
            self.quantized.update(call.outputs if not _FLOAT_RESULT.search(call.target) else ())
        self.memory.note_writes(call, self.fakes)

    def emit(self, target: str, args: dict[str, Any], fake: Any, source: Source) -> Value:
        """Record a call whose result is known to be of the type of ``fake``."""
        value = self.value(fake)
        self.add(Call(target, args, [value], source))
        return value

    def record(self, target: str, args: dict[str, Any], source: Source, kind: Any = None) -> Any:
        """Record a call and run it on fakes; what needs no data comes back as a plain number.

        ``kind`` is the type of a result that is a number, where the script says so.
        """
        args = {name: map_values(arg, lambda value: value) for name, arg in args.items()}  # lists may change later
        call = Call(target, args, [Value(ListType())], source)
        self._refuse_new_shape(call)
        if scalars.is_scalar_operator(call.base) and not any(_is_tensor(arg) for arg in args.values()):
            call.outputs[0].type = ScalarType(int)
        try:
            results = self.machine.evaluate(call, self.fakes.__getitem__)
        except ExportError:
            raise
        except Exception as error:
            if kind is not None and not any(_is_tensor(arg) for arg in args.values()):
                return self.emit(target, args, self.machine.unknown(kind), source)
            reason = self.machine.named(str(error).strip().partition("\n")[0]) or type(error).__name__
            raise ExportError(
                f"{target} at {source} does not run: {reason}", code=code_of(error, "call-does-not-run")
            ) from error
        result = results[0]
        if isinstance(result, tuple):
            call.outputs = [self.value(item) for item in result]
            self.add(call)
            return tuple(call.outputs)
        if isinstance(result, list) and result and isinstance(result[0], torch.Tensor):
            self.add(call)
            self.fakes[call.outputs[0]] = result
            return [self._take(call.outputs[0], index, item, source) for index, item in enumerate(result)]
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(call, torch.sym_float(result) if kind is float else result)  # type: ignore[no-untyped-call]
        if result is None and signature(target).writes:  # it gives nothing, and does something
            call.outputs = []
            self.add(call)
        if not isinstance(result, torch.Tensor):
            return result
        call.outputs = [self.value(result)]
        self.add(call)
        return call.outputs[0]

    def _refuse_new_shape(self, call: Call) -> None:
        """A tensor from outside of a body keeps its shape in it: what follows knows one shape of it only."""
        changed = call.args.get("self")
        if self.scope is None or not isinstance(changed, Value) or not changes_shape(call.target):
            return
        place = next(place for place, value in enumerate(self.fakes) if value is changed)
        # what the model owns is read where it is first needed
        if place < self.scope.first or any(item.value is changed for item in self.graph.inputs):
            raise ExportError(
                f"{call.target} at {call.source} changes the shape of a tensor in place, inside a branch or loop that "
                "depends on data; use the form that is not in place",
                code="shape-changed-in-place",
            )

    def _number(self, call: Call, result: Any) -> Any:
        """A symbolic number: plain where it is known, and one value for all sizes that are equal by their symbols."""
        known = self.machine.known(result)
        if known is not None:
            return known
        key = str(result.node.expr)
        if key not in self.numbers:
            call.outputs = [self.value(result)]
            self.add(call)
            self.numbers[key] = call.outputs[0]
        return self.numbers[key]

    def _take(self, items: Value, index: int, fake: Any, source: Source) -> Value:
        return self.emit("prim::getitem", {"list": items, "index": index}, fake, source)

    # -- numbers and tensors

    def to_number(self, cast: Any, operand: Any, source: Source) -> Any:
        """int(), float(), bool() (``cast`` None: item()) of a tensor or number."""
        if not isinstance(operand, Value):
            return operand if cast is None else cast(operand)
        if isinstance(operand.type, ScalarType) and cast in (None, operand.type.kind):
            return operand
        known = next((item.tensor for item in self.graph.inputs if item.value is operand), None)
        written = self.memory.is_written(self.fakes[operand])
        if known is not None and known.numel() == 1 and not known.is_meta and not written:
            with self.machine.outside():
                found = known.item()
            return found if cast is None else cast(found)
        fake = self.fakes[operand]
        number = _converted(fake.item() if isinstance(fake, torch.Tensor) else fake, cast)
        if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return number
        value = self.value(number)
        assert isinstance(value.type, ScalarType)
        self.add(Call(_CAST_NAMES[value.type.kind], {"a": operand}, [value], source))
        return value

    def to_tensor(self, number: Any, source: Source) -> Value:
        """A zero-dim tensor of a number."""
        kind = number_kind(number)
        args = {"s": number, "dtype": NUMBER_DTYPES[kind], "layout": None, "device": None, "pin_memory": None}
        return self.emit("aten::scalar_tensor", args, torch.empty((), dtype=NUMBER_DTYPES[kind]), source)

    def literal(self, data: Any, dtype: torch.dtype | None, source: Source) -> Value:
        """``torch.tensor`` of numbers, nested lists included: a constant when they are known."""
        if not holds_value(data):
            with self.machine.outside():
                made = torch.tensor(_plain(data), dtype=dtype)
            return self.constant(made)
        value = self._stacked(data, source)
        return value if dtype is None else self.cast(value, dtype, source)

    def _stacked(self, data: Any, source: Source) -> Value:
        if isinstance(data, ScriptList) and data.value is not None:
            if not isinstance(data.value, Value) or not isinstance(data.value.type, TensorType):
                raise ExportError(
                    f"torch.tensor of a list of tensors at {source} has no form here; use torch.stack",
                    code="script-operator",
                )
            return data.value
        if not isinstance(data, (list, tuple)):
            return self.to_tensor(data, source) if number_kind(data) is not None else data
        items = [self._stacked(item, source) for item in data]
        dtypes = {item.tensor.dtype for item in items}
        widest = next(kind for kind in (torch.float32, torch.int64, torch.bool, *dtypes) if kind in dtypes)
        items = [self.cast(item, widest, source) for item in items]
        stacked: Value = self.record("aten::stack", {"tensors": items, "dim": 0}, source)
        return stacked

    def cast(self, value: Value, dtype: torch.dtype, source: Source) -> Value:
        """``value.to(dtype)``."""
        if value.tensor.dtype is dtype:
            return value
        args = {"self": value, "dtype": dtype, "non_blocking": False, "copy": False, "memory_format": None}
        made: Value = self.record("aten::to.dtype", args, source)
        return made

    def filler(self, like: Value, source: Source) -> Any:
        """Something of the type of ``like`` that nobody reads."""
        if isinstance(like.type, ScalarType):
            return like.type.kind(0)
        if isinstance(like.type, SequenceType):
            args: dict[str, Any] = {"items": [], "dtype": like.type.element.dtype}
            return self.emit("sequence::construct", args, self.fakes[like], source)
        sizes = [size if isinstance(size, int) else 1 for size in like.tensor.shape or ()]
        args = {"size": sizes, "dtype": like.tensor.dtype, "layout": None, "device": None, "pin_memory": None}
        filler = self.record("aten::zeros", args, source)
        self.graph.calls[-1].target = "prim::Uninitialized"
        return filler


def number_kind(item: Any) -> Any:
    """int, float or bool of a number, known or computed; None for anything else."""
    if isinstance(item, Value):
        return item.type.kind if isinstance(item.type, ScalarType) else None
    return type(item) if isinstance(item, (bool, int, float)) else None


def kind_of(item: Any) -> Any:
    """What two values must share to be carried as one: dtype and rank of a tensor, the type of a number; else None."""
    if isinstance(item, Value) and isinstance(item.type, TensorType):
        return item.type.dtype, item.type.rank
    return number_kind(item)


def fake_kind(fake: Any) -> Any:
    """``kind_of`` a value with this fake."""
    if isinstance(fake, torch.Tensor):
        return fake.dtype, fake.dim()
    return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(fake)]


def joined(run: Recorder, one: Any, other: Any, source: Source) -> Any:
    """The fake of a value that may be either.  Raises ExportError when ONNX has no type for both."""
    kinds = [kind_of(item) for item in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] is None:
        raise ExportError(
            f"at {source} a variable is {run.describe(one)} on one path and {run.describe(other)} on the other, which "
            "has no form in ONNX; make both of one type",
            code="paths-disagree",
        )
    if not isinstance(kinds[0], tuple):
        return run.machine.unknown(kinds[0])
    ranks = [run.fakes[item].dim() for item in (one, other)]
    if ranks[0] != ranks[1]:  # one path has changed its shape in place
        raise ExportError(
            f"at {source} a tensor has {ranks[0]} axes on one path and {ranks[1]} on the other, which has no form in "
            "ONNX; make both of one type",
            code="paths-disagree",
        )
    fake = run.machine.joined(run.fakes[one], run.fakes[other])
    run.memory.share(fake, run.fakes[one])
    run.memory.share(fake, run.fakes[other])
    return fake


def _plain(data: Any) -> Any:
    return [_plain(item) for item in data] if isinstance(data, (list, tuple)) else data


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TensorType)


def _converted(number: Any, cast: Any) -> Any:
    if cast is bool:
        return number if isinstance(number, (bool, torch.SymBool)) else number != 0
    if cast is float:
        return torch.sym_float(number)  # type: ignore[no-untyped-call]
    return torch.sym_int(number) if cast is int else number  # type: ignore[no-untyped-call]
