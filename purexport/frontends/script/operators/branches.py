"""Branches of a script that depend on tensor data: both sides are interpreted, and their results are joined.

A branch becomes `prim::If`.  A result that is equal on both sides needs no output.  Sizes that differ become unbacked.
Results that differ in dtype or rank are refused, and the error names the lines that made them.  Tuples, lists and dicts
are joined element by element.  Lists of two lengths become a list whose length is known only at run time.  An item that
is None on one side only becomes a `Maybe`.  Objects from outside that a side changed keep their identity and get the
joined content.

A run that succeeds never takes a side that raises.  So the other side is taken, whatever the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from purexport.aten.graph import AtenValue, Block, Call, Source
from purexport.errors import ExportError
from purexport.frontends.script.conversions import filler
from purexport.frontends.script.kinds import joined
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import Handlers, ScriptNode
from purexport.frontends.script.sequences import (
    as_dynamic,
    column,
    element_of,
    joined_elements,
    sequence_fake,
    width_of,
)
from purexport.frontends.script.state import ScriptState
from purexport.frontends.script.values import Columns, Maybe, Raised, ScriptDict, ScriptList, Uninitialized, same, split

handles = Handlers()


@dataclass
class _Side:
    body: ScriptState
    results: list[Any]


@handles("prim::If")
def branch(machine: Machine, node: ScriptNode, condition: Any) -> Any:
    """`prim::If`: one side where the condition is known, otherwise both."""
    if isinstance(condition, AtenValue):
        condition = machine.state.assumptions.get(condition, condition)
    if isinstance(condition, AtenValue):
        return node.packed(_both_sides(machine, node, condition))
    first, second = node.torch.blocks()
    return node.packed(machine.run_block(first if condition else second, []))


def _both_sides(machine: Machine, node: ScriptNode, condition: AtenValue) -> list[Any]:
    sides: list[_Side] = []
    raised: list[Raised] = []
    for block, holds in zip(node.torch.blocks(), (True, False), strict=True):
        try:
            with machine.body(condition, holds) as body:
                results = machine.run_block(block, [])
        except Raised as error:
            raised.append(error)
        else:
            sides.append(_Side(body, results))
    if not sides:
        raise raised[0]
    if raised:
        check = f"the script checks at {raised[0].place}: {raised[0].reason}"
        machine.remark(f"{check}; the check is not in the file")
        machine.adopt(sides[0].body, node.source)
        return sides[0].results
    return _joined(machine, node.source, condition, sides)


def _joined(machine: Machine, source: Source, condition: AtenValue, sides: list[_Side]) -> list[Any]:
    bodies = [side.body for side in sides]
    join = _Join(machine, source, bodies)
    merged = [join.items(one, other) for one, other in zip(sides[0].results, sides[1].results, strict=True)]
    changed = []
    for key in {**bodies[0].after, **bodies[1].after}:
        item = next(body.after[key][0] for body in bodies if key in body.after)
        one, other = (body.after[key][1] if key in body.after else item.clone() for body in bodies)
        changed.append((item, join.contents(one, other)))
    blocks = [Block(body.calls, outputs) for body, outputs in zip(bodies, join.outputs, strict=True)]
    machine.add(Call("prim::If", {"condition": condition}, join.results, source, blocks))
    for body in bodies:
        machine.remark(*body.remarks, *(f"on one path from {source}: {text}" for text in body.merged))
    for item, content in changed:
        machine.change(item, content, source)
    return merged


class _Join:
    """Joins pairs of results of the two sides into one result each."""

    def __init__(self, machine: Machine, source: Source, bodies: Sequence[ScriptState]) -> None:
        self.machine = machine
        self.source = source
        self.bodies = bodies
        self.results: list[AtenValue] = []
        self.outputs: tuple[list[Any], list[Any]] = ([], [])
        self.lists: dict[tuple[int, int], Any] = {}

    def items(self, one: Any, other: Any) -> Any:
        if same(one, other):
            return one
        if isinstance(one, Uninitialized):
            return other if isinstance(other, Uninitialized) else self._half(other, first=False)
        if isinstance(other, Uninitialized):
            return self._half(one, first=True)
        if one is None or other is None or isinstance(one, Maybe) or isinstance(other, Maybe):
            return self._maybe(one, other)
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return tuple(self.items(a, b) for a, b in zip(one, other, strict=True))
        if isinstance(one, (ScriptList, ScriptDict)) and isinstance(other, (ScriptList, ScriptDict)):
            return self._object(one, other)
        return self._output(one, other, joined(self.machine, one, other, self.source))

    def _object(self, one: Any, other: Any) -> Any:
        """Join two lists or dicts into one; the same pair always gives the same object."""
        key = (id(one), id(other))
        if key not in self.lists:
            made = self.machine.own(self.contents(one, other))
            if not (self.bodies[0].owns(one) and self.bodies[1].owns(other)):
                one.frozen = other.frozen = made.frozen = f"the branch at {self.source}"
            self.lists[key] = made
        return self.lists[key]

    def contents(self, one: Any, other: Any) -> Any:
        """A new list or dict that holds what `one` holds on the first path and `other` on the second."""
        if isinstance(one, ScriptDict) and isinstance(other, ScriptDict):
            if list(one) != list(other):
                raise ExportError(
                    f"at {self.source} a dict has the keys {list(one)} on one path and {list(other)} on the other, "
                    "which has no form in ONNX; give it the same keys, in one order",
                    code="paths-disagree",
                )
            return type(one)({key: self.items(item, other[key]) for key, item in one.items()})
        if not isinstance(one, ScriptList) or not isinstance(other, ScriptList):
            raise ExportError(
                f"at {self.source} a variable is a list on one path and a dict on the other", code="paths-disagree"
            )
        if one.value is None and other.value is None and len(one) == len(other):
            return ScriptList([self.items(a, b) for a, b in zip(one, other, strict=True)], one.kind or other.kind)
        return self._dynamic(one, other)

    def _dynamic(self, one: ScriptList, other: ScriptList) -> ScriptList:
        if one.value is not None and one.value is other.value:
            return one.clone()
        width = width_of(one, other)
        if width:
            parts = [self._dynamic(column(one, place), column(other, place)) for place in range(width)]
            return ScriptList((), one.kind or other.kind, Columns(tuple(parts)))
        elements = [element_of(self.machine, item, self.source) for item in (one, other)]
        element = joined_elements(self.machine, elements[0], elements[1], self.source)
        values = []
        for body, item in zip(self.bodies, (one, other), strict=True):
            with self.machine.resumed(body):
                values.append(as_dynamic(self.machine, item, element, self.source))
        value = self._output(values[0], values[1], sequence_fake(self.machine, element))
        return ScriptList((), one.kind or other.kind, value)

    def _maybe(self, one: Any, other: Any) -> Any:
        flags, items = zip(*(split(item) for item in (one, other)), strict=True)
        present = self.items(*flags)
        item = self.items(*items)
        return Maybe(present, item, self.source) if isinstance(present, AtenValue) else item

    def _half(self, known: Any, first: bool) -> Any:
        """A variable that only one side sets (the first one for `first`), and that is read only after that side."""
        if isinstance(known, Maybe):
            return Maybe(self._half(known.present, first), self._half(known.item, first), known.source)
        if isinstance(known, tuple):
            return tuple(self._half(part, first) for part in known)
        if isinstance(known, Columns):
            return Columns(tuple(ScriptList((), part.kind, self._half(part.value, first)) for part in known.lists))
        if isinstance(known, (ScriptList, ScriptDict)):
            return self._half_object(known, first)
        if not isinstance(known, AtenValue):
            return known
        with self.machine.resumed(self.bodies[1 if first else 0]):
            unread = filler(self.machine, known, self.source)
        one, other = (known, unread) if first else (unread, known)
        return self._output(one, other, self.machine.fakes[known])

    def _half_object(self, known: Any, first: bool) -> Any:
        if not self.bodies[0 if first else 1].owns(known):
            return known
        key = (id(known), first)
        if key not in self.lists:
            made = known.clone()
            if isinstance(known, ScriptDict):
                made.update({name: self._half(item, first) for name, item in known.items()})
            elif known.value is not None:
                made.value = self._half(known.value, first)
            else:
                made[:] = [self._half(item, first) for item in known]
            self.lists[key] = self.machine.own(made)
        return self.lists[key]

    def _output(self, one: Any, other: Any, fake: Any) -> AtenValue:
        value = self.machine.value(fake)
        self.results.append(value)
        self.outputs[0].append(one)
        self.outputs[1].append(other)
        return value
