"""Tensors to lists: pieces of an axis whose size only the run knows, and the numbers of ``tolist``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from purexport.aten.graph import Source, TensorType, Value
from purexport.capture.script.record import NUMBER_DTYPES
from purexport.capture.script.values import FakeSequence, ScriptList
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.record import Recorder


def is_cut_by_data(run: Recorder, kind: str, operands: list[Any]) -> bool:
    """True where a tensor is cut along an axis of unknown size into pieces of a known one, so that their number is
    unknown."""
    tensor, *rest = operands
    if not isinstance(tensor, Value) or not isinstance(tensor.type, TensorType):
        return False
    dim = rest[0] if kind == "aten::unbind" else rest[1]
    known = kind == "aten::unbind" or isinstance(rest[0], int)
    return known and not isinstance(run.fakes[tensor].shape[dim], int)


def _unbound(run: Recorder, source: Source, tensor: Value, dim: int = 0) -> Any:
    fake = run.fakes[tensor]
    at = dim % fake.dim()
    sizes = [size for axis, size in enumerate(fake.shape) if axis != at]
    element = FakeSequence(torch.empty(sizes, dtype=fake.dtype))
    return _pieces(run, source, tensor, element, {"size": None, "dim": at})


def _split(run: Recorder, source: Source, tensor: Value, size: int, dim: int = 0) -> Any:
    fake = run.fakes[tensor]
    at, piece = dim % fake.dim(), run.machine.unknown_size()  # the last piece may be smaller
    sizes = [piece if axis == at else size for axis, size in enumerate(fake.shape)]
    element = FakeSequence(torch.empty(sizes, dtype=fake.dtype), frozenset([str(piece)]))
    return _pieces(run, source, tensor, element, {"size": size, "dim": at})


def _pieces(run: Recorder, source: Source, tensor: Value, element: FakeSequence, how: dict[str, Any]) -> Any:
    run.memory.put(element, run.fakes[tensor], source)
    value = run.emit("sequence::split", {"self": tensor, **how}, element, source)
    return run.own(ScriptList((), "Tensor", value))


PIECES = {"aten::unbind": _unbound, "aten::split": _split}


def to_list(run: Recorder, tensor: Value, kind: type, source: Source) -> Any:
    """``tensor.tolist()``: nested lists of numbers where the sizes are known."""
    fake = run.fakes[tensor]
    if fake.dim() == 0:
        return run.to_number(kind, tensor, source)
    if isinstance(fake.shape[0], int):
        rows = [run.record("aten::select.int", {"self": tensor, "dim": 0, "index": i}, source)
                for i in range(fake.shape[0])]  # fmt: skip
        return run.own(ScriptList([to_list(run, row, kind, source) for row in rows]))
    if fake.dim() > 1:
        raise ExportError(
            f"tolist at {source} makes nested lists of unknown lengths; use the tensor itself",
            code="list-of-unknown-length",
        )
    return run.own(ScriptList((), kind.__name__, run.cast(tensor, NUMBER_DTYPES[kind], source)))
