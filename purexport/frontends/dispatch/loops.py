"""Loops of Python over an axis, of which a capture has each step: they become loops of the graph, if they are such.

`core/rolled` finds steps that are alike.  Whether there are as many as the axis is long, and whether they do the same,
other captures show, at other sizes of the axis: with loops they must be the very same graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenGraph, Block, Call, Input, ScalarType, TensorType, Value
from purexport.errors import ExportError
from purexport.frontends.core.rolled import rolled

Again = Callable[[Mapping[str, int]], AtenGraph]


def in_loops(graph: AtenGraph, sizes: Mapping[str, int], axes: Collection[str], again: Again) -> AtenGraph | None:
    """The graph with the steps along these axes as loops; None where they are no loops.

    `again` captures the model at other sizes.
    """
    found = rolled(_sizes_first(graph))
    if found is None:
        return None
    for other in ({axis: sizes[axis] + 1 for axis in axes}, {axis: 2 * sizes[axis] + 3 for axis in axes}):
        try:
            there = rolled(_sizes_first(again({**sizes, **other})), least=2)
        except ExportError:
            return None
        if there is None or not _Pairs(found, there).are_alike():
            return None
    return found


def steps_in(graph: AtenGraph) -> Iterator[str]:
    """A note for each loop."""
    for call in graph.calls:
        if call.target == "prim::Scan":
            yield f"the steps at {call.source} are a Loop of the file, as many as the axis is long"


def _sizes_first(graph: AtenGraph) -> AtenGraph:
    """The graph with each number right behind what it is computed from: the recorder emits it once, in the first step
    that needs it, and the steps would not be alike.
    """
    slots: dict[Value, int] = {}
    kept: list[Call] = []
    numbers: dict[int, list[Call]] = {}
    for call in graph.calls:
        if _is_of_sizes(call):
            place = max((slots.get(value, -1) for value in call.inputs()), default=-1)
            numbers.setdefault(place, []).append(call)
        else:
            place = len(kept)
            kept.append(call)
        slots.update(dict.fromkeys(call.outputs, place))
    calls = [*numbers.get(-1, ())]
    for place, call in enumerate(kept):
        calls += [call, *numbers.get(place, ())]
    return dataclasses.replace(graph, calls=calls)


def _is_of_sizes(call: Call) -> bool:
    if not call.outputs or not all(isinstance(value.type, ScalarType) for value in call.outputs):
        return False
    return call.target == "aten::size.int" or all(isinstance(value.type, ScalarType) for value in call.inputs())


class _Pairs:
    """The values of two graphs that stand for each other."""

    def __init__(self, one: AtenGraph, other: AtenGraph) -> None:
        self.one = one
        self.other = other
        self.inputs = {item.value: item for item in (*one.inputs, *other.inputs)}
        self.pairs: dict[Value, Value] = {}

    def are_alike(self) -> bool:
        """Whether both graphs make the same calls."""
        one, other = self.one, self.other
        written = [(item.input.name, item.value) for item in one.assigned]
        others = [(item.input.name, item.value) for item in other.assigned]
        return (
            self._calls(one.calls, other.calls)
            and self._same(one.outputs, other.outputs)
            and [name for name, _ in written] == [name for name, _ in others]
            and self._same([value for _, value in written], [value for _, value in others])
        )

    def _calls(self, one: Sequence[Call], other: Sequence[Call]) -> bool:
        return len(one) == len(other) and all(map(self._call, one, other))

    def _call(self, one: Call, other: Call) -> bool:
        if one.target != other.target or one.args.keys() != other.args.keys():
            return False
        if not all(self._same(one.args[name], other.args[name]) for name in one.args):
            return False
        return (
            len(one.blocks) == len(other.blocks)
            and all(map(self._block, one.blocks, other.blocks))
            and self._bind(one.outputs, other.outputs)
        )

    def _block(self, one: Block, other: Block) -> bool:
        return (
            self._bind(one.inputs, other.inputs)
            and self._calls(one.calls, other.calls)
            and self._same(one.outputs, other.outputs)
        )

    def _bind(self, one: Sequence[Value], other: Sequence[Value]) -> bool:
        self.pairs.update(zip(one, other, strict=False))
        return len(one) == len(other) and all(map(_is_like, one, other))

    def _same(self, one: Any, other: Any) -> bool:
        if isinstance(one, (list, tuple)):
            return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(self._same, one, other))
        if not isinstance(one, Value):
            return type(one) is type(other) and repr(one) == repr(other)  # NaN is itself here
        if one not in self.pairs and one in self.inputs and other in self.inputs:
            return _is_same_input(self.inputs[one], self.inputs[other])
        return self.pairs.get(one) is other


def _is_like(one: Value, other: Value) -> bool:
    if not isinstance(one.type, TensorType) or not isinstance(other.type, TensorType):
        return type(one.type) is type(other.type)
    return (one.type.dtype, one.type.rank) == (other.type.dtype, other.type.rank)


def _is_same_input(one: Input, other: Input) -> bool:
    if one.kind != other.kind or one.kind != "constant" or one.tensor is None or other.tensor is None:
        return (one.kind, one.name) == (other.kind, other.name)
    if (one.tensor.dtype, one.tensor.shape) != (other.tensor.dtype, other.tensor.shape):
        return False
    return one.tensor is other.tensor or torch.equal(one.tensor, other.tensor)
