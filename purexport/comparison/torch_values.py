"""The neutral graph, run in torch: the value that torch computes for everything that a rule has a result for.

Invariant: a value is torch's own, or it is missing.  A call that cannot be run here, and what follows from it, has no
value; nothing stands in for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from proto_schema.external.payload import contiguous
from purexport.aten import scalars
from purexport.aten.graph import AtenGraph, AtenValue, Block, Call, Source, TensorType, map_values
from purexport.aten.names import operator_of, packet_of
from purexport.graph import ir

_NUMBER = (bool, int, float)
_NUMBERS = ("number", "int", "float", "bool")  # types of the schemas
_MOST_STEPS = 100_000  # of a loop; one that runs longer has no value here


@dataclass(frozen=True)
class Anchor:
    """A value of the file that stands for a value of torch: its name, what torch computes, and by which call."""

    name: str
    tensor: torch.Tensor
    call: str = ""
    source: Source = field(default_factory=Source)


def torch_values(graph: AtenGraph, given: Sequence[torch.Tensor]) -> dict[AtenValue, Any]:
    """What torch computes for the values of `graph`; `given` are the tensors of its inputs of kind "user", in order."""
    known: dict[AtenValue, Any] = {}
    tensors = iter(given)
    for item in graph.inputs:
        if item.tensor is not None:
            known[item.value] = item.tensor.detach()
        elif item.stored is not None:
            type_ = item.value.tensor
            shape = [size for size in type_.shape or () if isinstance(size, int)]
            known[item.value] = torch.frombuffer(bytearray(contiguous(item.stored)), dtype=type_.dtype).reshape(shape)
        else:
            known[item.value] = next(tensors, None)
    with torch.no_grad():
        _calls(graph.calls, known)
    return known


def anchors(graph: AtenGraph, known: Mapping[AtenValue, Any], stands: Mapping[AtenValue, Any]) -> list[Anchor]:
    """The named values of the file that `stands` has for the results of calls, in the order of the calls."""
    found: list[Anchor] = []
    seen: set[str] = set()
    for call in graph.calls:
        for output in call.outputs:
            if output in known:
                _anchored(known[output], stands.get(output), call, found, seen)
    for output in graph.outputs:
        if isinstance(output, AtenValue) and output in known:
            _anchored(known[output], stands.get(output), None, found, seen)
    return found


def _anchored(tensor: Any, stands: Any, call: Call | None, found: list[Anchor], seen: set[str]) -> None:
    if isinstance(tensor, (list, tuple)) and isinstance(stands, (list, tuple)):
        for one, other in zip(tensor, stands, strict=False):
            _anchored(one, other, call, found, seen)
        return
    if isinstance(tensor, _NUMBER):
        tensor = torch.tensor(tensor)
    usable = isinstance(tensor, torch.Tensor) and not tensor.is_quantized and not tensor.is_complex()
    if not usable or not isinstance(stands, ir.Value) or not stands.name or stands.is_constant or stands.name in seen:
        return
    if stands.node is None:
        return
    seen.add(stands.name)
    source = call.source if call is not None else stands.node.source
    found.append(Anchor(stands.name, tensor, call.target if call is not None else "", source))


def _calls(calls: Sequence[Call], known: dict[AtenValue, Any]) -> None:
    for call in calls:
        if any(value not in known for value in call.inputs()):
            continue
        try:
            results = _results(call, known)
            outputs = [results] if len(call.outputs) == 1 else list(results)
        except Exception:
            # an operator that torch cannot run on these values here has no value, and neither has what follows
            continue
        known.update(zip(call.outputs, outputs, strict=False))


def _results(call: Call, known: dict[AtenValue, Any]) -> Any:
    given = {name: map_values(arg, known.__getitem__) for name, arg in call.args.items()}
    if call.target == "prim::getitem":
        return given["list"][given["index"]]
    if call.blocks:
        return _BLOCKS[call.target](call.blocks, given, known)
    if scalars.is_scalar_operator(call.base) and all(isinstance(item, (*_NUMBER, str)) for item in given.values()):
        return scalars.evaluate(call.base, given)
    operator = operator_of(call.target) or packet_of(call.base)
    if operator is None:
        raise LookupError(call.target)
    tensors = {name: _as_parameter(call.outputs, name, item) for name, item in given.items()}
    schema = getattr(operator, "_schema", None)
    numbers = {item.name for item in schema.arguments if str(item.type) in _NUMBERS} if schema is not None else ()
    return operator(
        **{name: item.item() if name in numbers and _is_number(item) else item for name, item in tensors.items()}
    )


def _is_number(item: Any) -> bool:
    """Whether a number is recorded as a tensor, as a number that follows from data is."""
    return isinstance(item, torch.Tensor) and item.dim() == 0


def _as_parameter(outputs: Sequence[AtenValue], name: str, item: Any) -> Any:
    """A number where the schema takes `self` as a tensor: a trace records sizes as numbers."""
    tensor = name in ("self", "other", "input") and isinstance(item, _NUMBER)
    types = [value.type for value in outputs]
    return torch.tensor(item) if tensor and all(isinstance(type_, TensorType) for type_ in types) else item


def _branch(blocks: Sequence[Block], given: Mapping[str, Any], known: dict[AtenValue, Any]) -> Any:
    taken = blocks[0] if bool(given["condition"]) else blocks[1]
    return _single(_body(taken, [], known))


def _loop(blocks: Sequence[Block], given: Mapping[str, Any], known: dict[AtenValue, Any]) -> Any:
    most = _MOST_STEPS if given["most"] is None else int(given["most"])
    going, carried, step = bool(given["condition"]), list(given["carried"]), 0
    while going and step < most:
        if step == _MOST_STEPS:
            raise LookupError("a loop that runs too long")
        going, *carried = _body(blocks[0], [step, *carried], known)
        step += 1
    return _single(carried)


def _body(block: Block, inputs: Sequence[Any], known: dict[AtenValue, Any]) -> list[Any]:
    inner = dict(known)
    inner.update(zip(block.inputs, inputs, strict=False))
    _calls(block.calls, inner)
    return [map_values(output, inner.__getitem__) for output in block.outputs]


def _single(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else results


_BLOCKS = {"prim::If": _branch, "prim::Loop": _loop}
