"""Loops over the length of an axis (`for i in range(x.shape[1])`), found in a trace, which has each step written out.

`rolled` looks for calls that come again and again, step by step, and writes them as one `prim::Scan`.  A step may use
what the step before made, values from outside, and its number.  What the steps make may be stacked or concatenated, and
the last step's may be used.
Invariant: a loop is taken only where each step makes the same calls with the same constants, but for numbers that count
the steps; where these count an axis of a tensor from outside to its end; and where nothing from outside is written to.
So the steps follow from the size of that axis.  Whether they do at other sizes, traces at these must show.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.graph import (
    AtenGraph,
    AtenValue,
    Block,
    Call,
    Dim,
    ScalarType,
    TensorType,
    every_call,
    map_values,
    values_in,
)
from purexport.aten.schema import signature
from purexport.facts.fact import Aliases
from purexport.facts.table import fact_of
from purexport.frontends.core.repeats import ALONE, Largest, Repeats

_LEAST = 3  # steps of an example: of two, everything seems to count


class _NoLoopError(Exception):
    """The calls are no loop that can be written as one."""


def rolled(graph: AtenGraph, least: int = _LEAST, counts: Container[int] | None = None) -> AtenGraph | None:
    """The graph with each loop of at least so many steps as a `prim::Scan`; None where there is none.

    With `counts`, only loops of as many steps are looked for.
    """
    calls, outputs, at = list(graph.calls), list(graph.outputs), 0
    keys, known = _keys(graph), _Known.of(graph, calls)
    repeats = Repeats(keys, least)
    found = False
    while at < len(calls):
        made = None
        for period, count in repeats.at(at):
            if counts is not None and count not in counts:
                repeats.note_failure(at, period, count)
                continue
            if not known.may_be_loop(at, period, count):
                repeats.note_failure(at, period, count)
                continue
            try:
                made = _RolledLoop(known, calls, outputs, at, period, count).written()
                break
            except _NoLoopError:
                repeats.note_failure(at, period, count, was_tried=True)
        if made is None:
            at += 1
            continue
        found = True
        of = {value: key for call, key in zip(calls, keys, strict=True) for value in call.outputs[:1]}
        before, after, outputs = made
        keys = [*keys[:at], *[ALONE] * len(before), *(of.get(call.outputs[0], ALONE) for call in after)]
        calls = [*calls[:at], *before, *after]
        known, repeats = _Known.of(graph, calls), Repeats(keys, least)
        at += len(before)
    if not found:
        return None
    return AtenGraph(graph.inputs, used_calls(calls, outputs), outputs, graph.output_names, graph.assigned)


def used_calls(calls: Sequence[Call], outputs: Sequence[Any]) -> list[Call]:
    """The calls without those that nothing takes, such as the taking apart of a list."""
    used, found = set(values_in(outputs)), []
    for call in reversed(calls):
        if call.blocks or writes_of(call) or not used.isdisjoint(call.outputs):
            found.append(call)
            used.update(call.inputs())
    return found[::-1]


# Which calls come again ----------------------------------------------------------------------------------------------


def _keys(graph: AtenGraph) -> list[int]:
    """One number for all calls that may be the same call of several steps: they differ in values and numbers only."""

    def form(arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return tuple(map(form, arg))
        if isinstance(arg, AtenValue) or type(arg) is int:
            return type(arg)
        return repr(arg)

    known: dict[Any, int] = {}
    found = []
    for call in graph.calls:
        args = tuple((name, form(arg)) for name, arg in call.args.items())
        key = call.target, call.source.scope, call.source.line, args
        found.append(ALONE if call.blocks else known.setdefault(key, len(known)))
    return found


# One loop ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    """What the same step makes: the position of the call in a step, and that of the result."""

    call: int
    place: int


@dataclass(frozen=True)
class _Before:
    """What the step before made, and at first a value from outside."""

    made: _Made
    start: AtenValue


@dataclass(frozen=True)
class _Counted:
    """A number that counts steps: `first + by * step`, or, towards the front, from the last step on."""

    first: int
    by: int

    @property
    def is_backward(self) -> bool:
        """Whether it ends at the same number for any number of steps, and begins where an axis ends."""
        return self.by < 0 <= self.first


@dataclass(frozen=True)
class _Piece:
    """A piece of a tensor that was taken apart along an axis, another one at each step."""

    tensor: AtenValue
    axis: int
    index: _Counted
    first: AtenValue


@dataclass
class _Scan:
    """The parts of the call: carried values and those that are stacked, in order."""

    carried: dict[_Before, AtenValue] = field(default_factory=dict)
    ends: dict[_Before, AtenValue] = field(default_factory=dict)
    stacked: dict[_Made, AtenValue] = field(default_factory=dict)


@dataclass(frozen=True)
class _Known:
    """What every loop that is tried asks of all calls, so it is found once: there may be thousands of tries."""

    calls: dict[AtenValue, Call]  # the call that made a value
    contents: dict[AtenValue, torch.Tensor]
    roots: dict[AtenValue, AtenValue]  # the value whose memory a value may be, if that is another one
    distances: Largest  # by position: how far in front the tensor was made that the call writes to
    writes: Largest  # by position: the last call that writes to what the call makes
    takers: list[int]  # by position: how many calls before it take a position of an axis, or a piece of it

    @classmethod
    def of(cls, graph: AtenGraph, calls: Sequence[Call]) -> _Known:
        made = {value: call for call in calls for value in call.outputs}
        places = {value: at for at, call in enumerate(calls) for value in call.outputs}
        roots: dict[AtenValue, AtenValue] = {}
        distances, writes, takers = [0] * len(calls), [-1] * len(calls), [0]
        for at, call in enumerate(calls):
            for inner in every_call([call]):
                source = _source(inner)
                of = None if source is None else inner.args[source]
                if isinstance(of, AtenValue):
                    roots.update(dict.fromkeys(inner.outputs, roots.get(of, of)))
                for name in writes_of(inner):
                    written = inner.args[name]
                    root = places.get(roots.get(written, written)) if isinstance(written, AtenValue) else None
                    distances[at] = max(distances[at], len(calls) if root is None else at - root)
                    if root is not None:
                        writes[root] = at
            pieces = (made.get(value) for value in call.inputs())
            takes = call.target in _TAKING or any(piece is not None and piece.target == _PIECE for piece in pieces)
            takers.append(takers[-1] + takes)
        contents = {i.value: i.tensor for i in graph.inputs if i.kind == "constant" and i.tensor is not None}
        return cls(made, contents, roots, Largest(distances), Largest(writes), takers)

    def may_be_loop(self, at: int, period: int, count: int) -> bool:
        """Whether a step takes a position of an axis, and nothing is written that another step makes, or the outside.

        It takes no longer for longer steps.
        """
        end = at + period * count
        return (
            self.takers[at + period] > self.takers[at]
            and self.distances.between(at, end) < period
            and self.writes.between(at, end) < end
        )


_PIECE = "prim::getitem"
_TAKING = frozenset(["aten::select.int", "aten::slice.Tensor"])


class _RolledLoop:
    """`count` steps of `period` calls each, from the position `at` on."""

    def __init__(
        self, known: _Known, calls: Sequence[Call], outputs: Sequence[Any], at: int, period: int, count: int
    ) -> None:
        self.steps = [calls[at + step * period : at + (step + 1) * period] for step in range(count)]
        self.end = at + period * count
        self.all = calls
        self.outputs = outputs
        self.count = count
        self.makers = {
            value: (step, _Made(position, place))
            for step, made in enumerate(self.steps)
            for position, call in enumerate(made)
            for place, value in enumerate(call.outputs)
        }
        self.calls, self.contents, self.roots = known.calls, known.contents, known.roots
        self.source = self.steps[0][0].source
        self.scan = _Scan()
        self.numbers: dict[_Counted, AtenValue] = {}
        self.size = AtenValue(ScalarType(int))  # the number of steps
        # the arguments of each call of a step, in which the classes above stand for what differs between steps
        self.plans = [self._plan([step[position] for step in self.steps]) for position in range(period)]
        self.fixed = self._fixed()

    def written(self) -> tuple[list[Call], list[Call], list[Any]]:
        """The calls of the loop, those behind it, and the results of the graph.  Raises _NoLoopError."""
        self._refuse_writes()
        hoisted = [self.steps[0][position] for position in sorted(self.fixed)]
        self.size, begins = self._length()
        number = self.numbers[_Counted(0, 1)] = AtenValue(ScalarType(int))
        body = self._body()
        behind, outputs = self._behind()
        scan = self.scan
        carried = [self._inner(item.made) for item in scan.carried]
        block = Block(body, [*carried, *map(self._inner, scan.stacked)], [*scan.carried.values(), number])
        results = [*scan.ends.values(), *scan.stacked.values()]
        args = {"init": [item.start for item in scan.carried], "rows": [], "count": self.size}
        return [*hoisted, *begins, Call("prim::Scan", args, results, self.source, [block])], behind, outputs

    # -- what a step takes

    def _plan(self, calls: Sequence[Call]) -> dict[str, Any]:
        return {name: self._taken([call.args[name] for call in calls]) for name in calls[0].args}

    def _taken(self, items: Sequence[Any]) -> Any:
        """One argument of all steps as one: a constant, a value from outside, or one of the classes above."""
        first = items[0]
        if isinstance(first, (list, tuple)):
            if any(len(item) != len(first) for item in items):
                raise _NoLoopError
            return [self._taken(parts) for parts in zip(*items, strict=True)]
        if isinstance(first, AtenValue):
            return self._taken_value(items)
        if all(type(item) is type(first) and item == first for item in items):
            return first
        by = items[1] - first if type(first) is int else 0
        if not by or any(item != first + by * step for step, item in enumerate(items)):
            raise _NoLoopError
        return _Counted(first, by)

    def _taken_value(self, items: Sequence[AtenValue]) -> Any:
        found = [self.makers.get(item) for item in items]
        if all(item is None for item in found):
            if all(item is items[0] or self._same_content(item, items[0]) for item in items):
                return items[0]
            return self._piece(items)
        made = next(item[1] for item in reversed(found) if item is not None)
        if all(item == (step, made) for step, item in enumerate(found)):
            return made
        if found[0] is not None or any(item != (step, made) for step, item in enumerate(found[1:])):
            raise _NoLoopError
        return _Before(made, items[0])

    def _piece(self, items: Sequence[AtenValue]) -> _Piece:
        calls = [self.calls.get(item) for item in items]
        taken = [call for call in calls if call is not None and call.target == "prim::getitem"]
        lists = {call.args["list"] for call in taken}
        apart = self.calls.get(lists.pop()) if len(taken) == len(items) and len(lists) == 1 else None
        if apart is None or apart.target != "aten::unbind.int":
            raise _NoLoopError
        index = self._taken([call.args["index"] for call in taken])
        if not isinstance(index, _Counted):
            raise _NoLoopError
        return _Piece(apart.args["self"], apart.args["dim"], index, items[0])

    def _same_content(self, one: AtenValue, other: AtenValue) -> bool:
        mine, theirs = self.contents.get(one), self.contents.get(other)
        return mine is not None and theirs is not None and mine.dtype == theirs.dtype and torch.equal(mine, theirs)

    def _fixed(self) -> set[int]:
        """The positions of views of what comes from outside, which are the same at each step."""
        found: set[int] = set()
        for position, plan in enumerate(self.plans):
            if _source(self.steps[0][position]) is None or any(writes_of(self.steps[0][position])):
                continue
            kinds = list(_kinds(plan.values()))
            if all(not isinstance(item, (_Before, _Counted, _Piece)) for item in kinds) and all(
                item.call in found for item in kinds if isinstance(item, _Made)
            ):
                found.add(position)
        return found

    # -- writes

    def _refuse_writes(self) -> None:
        """Raise where a step writes to what is not its own."""
        for step in self.steps[:2]:  # all others are as the second one
            for call in step:
                for name in writes_of(call):
                    root = self.roots.get(call.args[name], call.args[name])
                    if root not in self.makers or self.makers[root][0] != self.makers[call.outputs[0]][0]:
                        raise _NoLoopError

    # -- how many steps there are

    def _length(self) -> tuple[AtenValue, list[Call]]:
        """The number of steps, and the calls that compute it from the size of an axis that the steps count."""
        for tensor, axis, index in self._counted_axes():
            less = _left_out(index, (tensor.tensor.shape or ())[axis], self.count)
            if less is None:
                continue
            found = AtenValue(ScalarType(int))
            calls = [Call("aten::size.int", {"self": tensor, "dim": axis}, [found], self.source)]
            if less:
                rest = AtenValue(ScalarType(int))
                calls.append(Call("aten::sub.int", {"a": found, "b": less}, [rest], self.source))
                found = rest
            return found, calls
        raise _NoLoopError

    def _counted_axes(self) -> Iterator[tuple[AtenValue, int, _Counted]]:
        """The axes of tensors from outside of which the steps take one position after the other."""
        for position, plan in enumerate(self.plans):
            for item in _kinds(plan.values()):
                if isinstance(item, _Piece):
                    yield item.tensor, item.axis, item.index
            target, index = self.steps[0][position].target, plan.get("index", plan.get("start"))
            if not isinstance(index, _Counted) or target not in ("aten::select.int", "aten::slice.Tensor"):
                continue
            if target == "aten::slice.Tensor" and (plan["step"] != 1 or not _is_next(plan["end"], index)):
                continue
            tensor = plan["self"]
            if isinstance(tensor, _Made) and tensor.call in self.fixed:
                tensor = self.steps[0][tensor.call].outputs[tensor.place]
            if isinstance(tensor, AtenValue):
                yield tensor, plan["dim"], index

    # -- the body

    def _body(self) -> list[Call]:
        """The calls of a step, with the values of the second one."""
        calls: list[Call] = []
        for position, plan in enumerate(self.plans):
            if position in self.fixed:
                continue
            args = {name: self._argument(item, calls) for name, item in plan.items()}
            mine = self.steps[1][position]
            calls.append(Call(mine.target, args, mine.outputs, mine.source))
        return calls

    def _inner(self, made: _Made) -> AtenValue:
        step = 0 if made.call in self.fixed else 1
        return self.steps[step][made.call].outputs[made.place]

    def _argument(self, item: Any, calls: list[Call]) -> Any:
        if isinstance(item, list):
            return [self._argument(part, calls) for part in item]
        if isinstance(item, _Made):
            return self._inner(item)
        if isinstance(item, _Before):
            return self._carried(item)
        if isinstance(item, _Counted):
            return self._number(item, calls)
        if isinstance(item, _Piece):
            args = {"dim": item.axis, "index": self._number(item.index, calls)}
            return self._derived("aten::select.int", item.tensor, args, item.first.tensor.shape, calls)
        return item

    def _carried(self, item: _Before) -> AtenValue:
        if item not in self.scan.carried:
            values = [item.start, *(step[item.made.call].outputs[item.made.place] for step in self.steps)]
            self._one_type(values)
            self.scan.carried[item] = _new(item.start)
            self.scan.ends[item] = _new(item.start)
        return self.scan.carried[item]

    def _one_type(self, values: Sequence[AtenValue]) -> None:
        """Raise where the values are not tensors of one dtype and shape."""
        types = {(item.type.dtype, item.type.shape) for item in values if isinstance(item.type, TensorType)}
        if len(types) != 1 or not all(isinstance(item.type, TensorType) for item in values):
            raise _NoLoopError

    def _number(self, item: _Counted, calls: list[Call]) -> AtenValue:
        if item in self.numbers:
            return self.numbers[item]
        found, first = self.numbers[_Counted(0, 1)], item.first
        if item.is_backward:
            found = self._computed("aten::sub.int", self.size, found, calls)
            found = self._computed("aten::sub.int", found, 1, calls)
            first += item.by * (self.count - 1)
        by = -item.by if item.is_backward else item.by
        if by != 1:
            found = self._computed("aten::mul.int", found, by, calls)
        if first:
            found = self._computed("aten::add.int", found, first, calls)
        self.numbers[item] = found
        return found

    def _computed(self, target: str, one: AtenValue, other: Any, calls: list[Call]) -> AtenValue:
        result = AtenValue(ScalarType(int))
        calls.append(Call(target, {"a": one, "b": other}, [result], self.source))
        return result

    # -- what comes after

    def _behind(self) -> tuple[list[Call], list[Any]]:
        calls: list[Call] = []
        for call in self.all[self.end :]:
            joined = self._joined(call, calls)
            if joined is None:
                args = {name: self._last_of(arg, calls) for name, arg in call.args.items()}
                if call.blocks and any(value in self.makers for block in call.blocks for value in block.outer()):
                    raise _NoLoopError
                joined = Call(call.target, args, call.outputs, call.source, call.blocks)
            calls.append(joined)
        outputs = [self._last_of(item, calls) for item in self.outputs]
        return calls, outputs

    def _last_of(self, arg: Any, calls: list[Call]) -> Any:
        return map_values(arg, lambda value: self._last(value, calls))

    def _last(self, value: AtenValue, calls: list[Call]) -> AtenValue:
        """What stands behind the loop for a value that a step made: only the last step's can be had."""
        found = self.makers.get(value)
        if found is None:
            return value
        step, made = found
        if made.call in self.fixed:
            return self.steps[0][made.call].outputs[made.place]
        if step != self.count - 1:
            raise _NoLoopError
        end = next((end for item, end in self.scan.ends.items() if item.made == made), None)
        if end is None:
            end = _new(value)
            args = {"self": self._stacked(made, value), "dim": 0, "index": -1}
            calls.append(Call("aten::select.int", args, [end], self.source))
        return end

    def _stacked(self, made: _Made, value: AtenValue) -> AtenValue:
        if made not in self.scan.stacked:
            self._one_type([step[made.call].outputs[made.place] for step in self.steps])
            self.scan.stacked[made] = _new(value, (self.count, *(value.tensor.shape or ())))
        return self.scan.stacked[made]

    def _joined(self, call: Call, calls: list[Call]) -> Call | None:
        """A stack or concatenation of what all steps made, of the stacked result; None for another call."""
        tensors = call.args.get("tensors")
        if call.target not in ("aten::stack", "aten::cat") or not isinstance(tensors, list):
            return None
        found = [self.makers.get(item) if isinstance(item, AtenValue) else None for item in tensors]
        start = next((place for place, item in enumerate(found) if item is not None), None)
        if start is None:
            return None
        made, run = found[start][1], found[start : start + self.count]  # type: ignore[index]
        steps = [(step, made) for step in range(self.count)]
        if run not in (steps, steps[::-1]) or made.call in self.fixed:
            return None
        value = self._stacked(made, tensors[start])
        axis = call.args["dim"] % ((value.tensor.rank or 0) - (call.target == "aten::cat"))
        if run != steps:
            value = self._derived("aten::flip", value, {"dims": [0]}, value.tensor.shape, calls)
        sizes = list(value.tensor.shape or ())
        sizes.insert(axis, sizes.pop(0))
        value = self._derived("aten::movedim.int", value, {"source": 0, "destination": axis}, sizes, calls)
        if call.target == "aten::cat":
            sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
            ends = {"start_dim": axis, "end_dim": axis + 1}
            value = self._derived("aten::flatten.using_ints", value, ends, sizes, calls)
        before, after = (self._last_of(items, calls) for items in (tensors[:start], tensors[start + self.count :]))
        if call.target == "aten::stack":
            sizes[axis] = 1
            before, after = (
                [self._derived("aten::unsqueeze", item, {"dim": axis}, sizes, calls) for item in items]
                for items in (before, after)
            )
        joined = [*before, value, *after]
        return Call("aten::cat", {"tensors": joined, "dim": axis}, call.outputs, call.source)

    def _derived(self, target: str, of: AtenValue, args: dict[str, Any], shape: Any, calls: list[Call]) -> AtenValue:
        made = _new(of, tuple(shape))
        calls.append(Call(target, {"self": of, **args}, [made], self.source))
        return made


def _new(like: AtenValue, shape: tuple[Dim, ...] | None = None) -> AtenValue:
    """A tensor of that dtype, and of that shape where no other is given."""
    return AtenValue(TensorType(like.tensor.dtype, like.tensor.shape if shape is None else shape))


def _kinds(items: Any) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list):
            yield from _kinds(item)
        else:
            yield item


def _is_next(end: Any, start: _Counted) -> bool:
    return isinstance(end, _Counted) and end == _Counted(start.first + 1, start.by)


def _left_out(index: _Counted, size: Any, count: int) -> int | None:
    """How many positions of an axis the steps leave out at its front; None where they do not take all others."""
    last = index.first + index.by * (count - 1)
    if index.by == 1 and index.first >= 0 and last == size - 1:
        return index.first
    if index.by == -1 and index.first == size - 1 and last >= 0:
        return last
    return 0 if index.by == -1 and index.first == -1 and count == size else None


def writes_of(call: Call) -> tuple[str, ...]:
    return () if call.blocks or not _has_schema(call) else signature(call.target).writes


def _source(call: Call) -> str | None:
    """The argument whose memory the result may be; None where the result has memory of its own."""
    if call.target == "prim::getitem":
        return "list"
    if call.blocks or not _has_schema(call):
        return None
    found = signature(call.target).aliased()
    if found is None and fact_of(call.target).aliases in (Aliases.MAYBE, Aliases.ALWAYS, Aliases.UNKNOWN):
        return next(iter(call.args), None)
    return found


def _has_schema(call: Call) -> bool:
    if call.target.startswith("prim::"):
        return False
    try:
        signature(call.target)
    except LookupError:
        return False
    return True
