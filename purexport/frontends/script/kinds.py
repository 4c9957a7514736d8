"""Kinds: properties in which two values must agree to be one variable, and the fake of a value that may be either."""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import AtenValue, ScalarType, Source, TensorType
from purexport.errors import ExportError
from purexport.frontends.script.recorder import ScriptRecorder

NUMBERS: dict[str, type] = {"int": int, "float": float, "bool": bool}  # by the names of TorchScript
NUMBER_DTYPES = {int: torch.int64, float: torch.float32, bool: torch.bool}


def number_kind(item: Any) -> Any:
    """int, float or bool of a number, known or computed; None for anything else."""
    if isinstance(item, AtenValue):
        return item.type.kind if isinstance(item.type, ScalarType) else None
    return type(item) if isinstance(item, (bool, int, float)) else None


def kind_of(item: Any) -> Any:
    """The kind of a value: dtype and rank of a tensor, the type of a number, and None for anything else.

    Two values can be carried as one variable only if their kinds are equal.
    """
    if isinstance(item, AtenValue) and isinstance(item.type, TensorType):
        return item.type.dtype, item.type.rank
    return number_kind(item)


def fake_kind(fake: Any) -> Any:
    """`kind_of` for a value with this fake."""
    if isinstance(fake, torch.Tensor):
        return fake.dtype, fake.dim()
    return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(fake)]


def joined(machine: ScriptRecorder, one: Any, other: Any, source: Source) -> Any:
    """The fake of a value that may be either.  Raises ExportError when ONNX has no type for both."""
    kinds = [kind_of(item) for item in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] is None:
        raise ExportError(
            f"at {source} a variable is {machine.describe(one)} on one path and {machine.describe(other)} on the "
            "other, which has no form in ONNX; make both of one type",
            code="paths-disagree",
        )
    if not isinstance(kinds[0], tuple):
        return machine.shapes.unknown(kinds[0])
    ranks = [machine.fakes[item].dim() for item in (one, other)]
    if ranks[0] != ranks[1]:  # one path has changed the shape in place
        raise ExportError(
            f"at {source} a tensor has {ranks[0]} axes on one path and {ranks[1]} on the other, which has no form in "
            "ONNX; make both of one type",
            code="paths-disagree",
        )
    fake = machine.shapes.joined(machine.fakes[one], machine.fakes[other])
    machine.aliasing.share(fake, machine.fakes[one])
    machine.aliasing.share(fake, machine.fakes[other])
    return fake
