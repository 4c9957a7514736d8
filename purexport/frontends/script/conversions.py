"""Explicit and implicit conversions in a script: tensors to numbers, numbers to tensors, one dtype to another."""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import AtenValue, Call, ScalarType, SequenceType, Source, TensorType
from purexport.errors import ExportError
from purexport.frontends.script.kinds import NUMBER_DTYPES, number_kind
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.values import ScriptList, holds_value

_CAST_NAMES = {int: "aten::Int.Tensor", float: "aten::Float.Tensor", bool: "aten::Bool.Tensor"}


def to_number(machine: ScriptRecorder, cast: Any, operand: Any, source: Source) -> Any:
    """int(), float(), bool() (`cast` None: item()) of a tensor or number."""
    if not isinstance(operand, AtenValue):
        return operand if cast is None else cast(operand)
    if isinstance(operand.type, ScalarType) and cast in (None, operand.type.kind):
        return operand
    known = next((item.tensor for item in machine.graph.inputs if item.value is operand), None)
    written = machine.aliasing.is_written(machine.fakes[operand])
    if known is not None and known.numel() == 1 and not known.is_meta and not written:
        with machine.shapes.outside():
            found = known.item()
        return found if cast is None else cast(found)
    fake = machine.fakes[operand]
    number = _converted(fake.item() if isinstance(fake, torch.Tensor) else fake, cast)
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return number
    value = machine.value(number)
    assert isinstance(value.type, ScalarType)
    machine.add(Call(_CAST_NAMES[value.type.kind], {"a": operand}, [value], source))
    return value


def to_tensor(machine: ScriptRecorder, number: Any, source: Source, exact: bool = False) -> AtenValue:
    """A zero-dim tensor of a number; with `exact` a float is a float64, and not the default dtype."""
    kind = number_kind(number)
    dtype = torch.float64 if exact and kind is float else NUMBER_DTYPES[kind]
    args = {"s": number, "dtype": dtype, "layout": None, "device": None, "pin_memory": None}
    return machine.emit("aten::scalar_tensor", args, torch.empty((), dtype=dtype), source)


def literal(machine: ScriptRecorder, data: Any, dtype: torch.dtype | None, source: Source) -> AtenValue:
    """`torch.tensor` of numbers, nested lists included: a constant when they are known."""
    if not holds_value(data):
        with machine.shapes.outside():
            made = torch.tensor(_plain(data), dtype=dtype)
        return machine.constant(made)
    # a number is rounded once: 28.999999999999996 is 28 as an int64, and as a float32 it is 29
    value = _stacked(machine, data, source, exact=dtype is not None)
    return value if dtype is None else cast(machine, value, dtype, source)


def _stacked(machine: ScriptRecorder, data: Any, source: Source, exact: bool) -> AtenValue:
    if isinstance(data, ScriptList) and data.value is not None:
        if not isinstance(data.value, AtenValue) or not isinstance(data.value.type, TensorType):
            raise ExportError(
                f"torch.tensor of a list of tensors at {source} has no form here; use torch.stack",
                code="script-operator",
            )
        return data.value
    if not isinstance(data, (list, tuple)):
        return to_tensor(machine, data, source, exact) if number_kind(data) is not None else data
    items = [_stacked(machine, item, source, exact) for item in data]
    dtypes = {item.tensor.dtype for item in items}
    order = (torch.float64, *(NUMBER_DTYPES[kind] for kind in (float, int, bool)), *dtypes)
    widest = next(kind for kind in order if kind in dtypes)
    items = [cast(machine, item, widest, source) for item in items]
    stacked: AtenValue = machine.record("aten::stack", {"tensors": items, "dim": 0}, source)
    return stacked


def cast(machine: ScriptRecorder, value: AtenValue, dtype: torch.dtype, source: Source) -> AtenValue:
    """`value.to(dtype)`."""
    if value.tensor.dtype is dtype:
        return value
    args = {"self": value, "dtype": dtype, "non_blocking": False, "copy": False, "memory_format": None}
    made: AtenValue = machine.record("aten::to.dtype", args, source)
    return made


def filler(machine: ScriptRecorder, like: AtenValue, source: Source) -> Any:
    """A filler: an item with the type of `like` that is never read."""
    if isinstance(like.type, ScalarType):
        return like.type.kind(0)
    if isinstance(like.type, SequenceType):
        args: dict[str, Any] = {"items": [], "dtype": like.type.element.dtype}
        return machine.emit("sequence::construct", args, machine.fakes[like], source)
    sizes = [size if isinstance(size, int) else 1 for size in like.tensor.shape or ()]
    args = {"size": sizes, "dtype": like.tensor.dtype, "layout": None, "device": None, "pin_memory": None}
    unread: AtenValue = machine.record("aten::zeros", args, source)
    machine.retarget(unread, "prim::Uninitialized")
    return unread


def _plain(data: Any) -> Any:
    return [_plain(item) for item in data] if isinstance(data, (list, tuple)) else data


def _converted(number: Any, cast: Any) -> Any:
    if cast is bool:
        return number if isinstance(number, (bool, torch.SymBool)) else number != 0
    if cast is float:
        return torch.sym_float(number)  # type: ignore[no-untyped-call]
    if cast is int and isinstance(number, torch.SymBool):
        return torch.sym_ite(number, 1, 0)  # type: ignore[no-untyped-call]  # sym_int takes the example's answer
    return torch.sym_int(number) if cast is int else number  # type: ignore[no-untyped-call]
