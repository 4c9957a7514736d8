"""Both ways of the decisions of Python code, as Ifs of the file, where the two ways come together again.

The model runs again for each question, with the other answer to this one.  What both runs call before the question is
the same.  What both call at the end, of values that correspond, stands once behind the If, and what is left between
are its branches.  A decision keeps one way where the other way raises, or asks more than the first, or never comes
together with it, or where it is not known which value a later call would take.
Invariant: nothing is guessed about the other way, because it ran.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from purexport.aten.graph import (
    AtenGraph,
    Block,
    Call,
    Input,
    ScalarType,
    TensorType,
    map_values,
    values_in,
    with_values,
)
from purexport.aten.graph import AtenValue as Value
from purexport.frontends.trace.loops import are_same, is_number, numbers_first
from purexport.frontends.trace.questions import Asked

MOST = 48
"""Questions for which the model runs again."""

_LARGEST = 256  # calls of a branch


class Way(NamedTuple):
    """One run: its graph, what it asked, and the sizes of values, with None for those that can change."""

    graph: AtenGraph
    asked: Sequence[Asked]
    sizes: Mapping[Value, tuple[int | None, ...]]


class _Ordered(NamedTuple):
    """A graph with each number right behind what it follows from; `starts` are the positions of the questions."""

    graph: AtenGraph
    conditions: list[Any]
    starts: list[int]


class _Fork(NamedTuple):
    """Two ways between `start` and `end` of the first: the calls of the other, and which values correspond behind.

    `inner` are the forks that the first way has between.  `skips` is whether the other way does not come to some
    questions of the first.
    """

    start: int
    end: int
    condition: Value
    holds: bool
    other: Sequence[Call]
    pairs: Sequence[tuple[Value, Any, Any]]  # of the first way, of the other, and the type of both
    constants: Sequence[Input]
    inner: Sequence[_Fork] = ()
    skips: bool = False


def with_branches(
    first: Way, run: Callable[[Collection[int]], Way | None], live: Callable[[AtenGraph], AtenGraph]
) -> tuple[AtenGraph, list[Asked]]:
    """The graph with Ifs, and the questions that they answer.

    `run` gives the way for other answers to some questions, `live` a graph without numbers that nothing takes.
    """
    ordered = _ordered(first)
    forks: dict[int, _Fork] = {}  # those that are in no other
    answered = []
    for place in reversed(range(len(first.asked[:MOST]))):
        other = run([place])
        if other is None or not _asks_no_more(first.asked[place + 1 :], other.asked[place + 1 :]):
            continue
        skipped = len(first.asked) - len(other.asked)  # questions that the other way does not come to
        inner = {at: fork for at, fork in forks.items() if at <= place + skipped}
        fork = _forked(ordered, _ordered(other), place, (first, other), list(inner.values()))
        if fork is None:
            continue
        fork = fork._replace(skips=bool(skipped))
        behind = {at: item for at, item in forks.items() if at not in inner}
        if any(item.start < fork.end for item in behind.values()):
            continue
        unsure = {place: fork, **{at: item for at, item in behind.items() if _may_take(item, fork)}}
        if len(unsure) > 1 and not _are_taken(ordered.graph, unsure, run, live):
            continue
        forks = {place: fork, **{at: item for at, item in forks.items() if at not in inner}}
        answered.append(first.asked[place])
    return (_merged(ordered.graph, list(forks.values())) if forks else first.graph), answered[::-1]


def remarks_on(asked: Sequence[Asked], answered: Sequence[Asked]) -> list[str]:
    """A sentence for each line of whose questions both ways are in the file."""
    both, all_ = (Counter(item.line for item in items) for items in (answered, asked))
    return [f"both ways of {_some(count, all_[line])} at {line} are in the file, as If" for line, count in both.items()]


def _some(both: int, all_: int) -> str:
    if all_ == 1:
        return "the decision"
    return f"the {all_} decisions" if both == all_ else f"{both} of the {all_} decisions"


def _asks_no_more(first: Sequence[Asked], other: Sequence[Asked]) -> bool:
    """Whether the other way asks nothing that the first does not ask, whose answer would be that of the example."""
    lines = [item.line for item in first]
    return all([item.line for item in other].count(line) <= lines.count(line) for line in {item.line for item in other})


def _ordered(way: Way) -> _Ordered:
    graph = way.graph
    count = len(graph.outputs)
    conditions = [item.condition for item in way.asked]
    found = numbers_first(dataclasses.replace(graph, outputs=[*graph.outputs, *conditions]))
    others = [at for at, call in enumerate(found.calls) if not is_number(call)] + [len(found.calls)]
    starts = [others[sum(not is_number(call) for call in graph.calls[: item.place])] for item in way.asked]
    outputs = found.outputs
    return _Ordered(dataclasses.replace(found, outputs=outputs[:count]), list(outputs[count:]), starts)


# Two ways -------------------------------------------------------------------------------------------------------------


def _forked(
    first: _Ordered, other: _Ordered, place: int, ways: tuple[Way, Way], inner: Sequence[_Fork]
) -> _Fork | None:
    """Where the two runs differ, `inner` forks included; None where that is not to be written as an If."""
    known, constants = _inputs(first.graph.inputs, other.graph.inputs)
    start = first.starts[place]
    more = _same_before(first.graph.calls[:start], other.graph.calls[: other.starts[place]], known)
    if more is None:
        return None
    pairs = _Pairs(known)
    if not pairs.add(_results(first.graph), _results(other.graph)):
        return None
    mine, theirs = list(first.graph.calls[start:]), list(other.graph.calls[other.starts[place] :])
    least = max((fork.end for fork in inner), default=start) - start
    while len(mine) > least and theirs and pairs.match(mine[-1], theirs[-1]):
        del mine[-1], theirs[-1]
    if len(mine) > _LARGEST or len(theirs) > _LARGEST:
        return None
    if any(at < other.starts[place] + len(theirs) for at in other.starts[place + 1 :]):
        return None  # a question inside of the other way, which would have the answer of the example
    crossing = pairs.open()
    if crossing is None:
        return None
    typed = []
    for value, its in crossing:
        type_ = _common(value, its, *ways)
        if type_ is None:
            return None
        typed.append((value, its, type_))
    end = start + len(mine)
    condition, holds = first.conditions[place], ways[0].asked[place].holds
    calls = [with_values(call, lambda value: known.get(value, value)) for call in [*more, *theirs]]
    renamed = [(value, map_values(its, lambda item: known.get(item, item)), type_) for value, its, type_ in typed]
    return _Fork(start, end, condition, holds, calls, renamed, constants, inner)


def _results(graph: AtenGraph) -> list[Any]:
    return [list(graph.outputs), [item.value for item in graph.assigned]]


def _inputs(mine: Sequence[Input], theirs: Sequence[Input]) -> tuple[dict[Value, Value], list[Input]]:
    """The inputs of one run by those of the other, and the constants that it alone has."""
    named = {(item.kind, item.name): item.value for item in mine if item.kind != "constant"}
    constants = [item for item in mine if item.kind == "constant"]
    known, others = {}, []
    for item in theirs:
        if item.kind != "constant":
            known[item.value] = named[item.kind, item.name]
            continue
        same = next((one for one in constants if _is_same(one.tensor, item.tensor)), None)
        if same is None:
            others.append(item)
        else:
            known[item.value] = same.value
    return known, others


def _is_same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def _same_before(mine: Sequence[Call], theirs: Sequence[Call], known: dict[Value, Value]) -> list[Call] | None:
    """The numbers that the other run alone computes before the question; None where it calls something else."""
    numbers = {_key(call, {}): call.outputs[0] for call in mine if is_number(call)}
    left = [call for call in mine if not is_number(call)]
    more = []
    for call in theirs:
        if is_number(call):
            same = numbers.get(_key(call, known))
            if same is None:
                more.append(call)
            else:
                known[call.outputs[0]] = same
            continue
        if not left or _key(left[0], {}) != _key(call, known) or left[0].blocks:
            return None
        known.update(zip(call.outputs, left.pop(0).outputs, strict=True))
    return None if left else more


def _key(call: Call, known: Mapping[Value, Value]) -> Any:
    return call.target, len(call.outputs), *((name, _part(item, known)) for name, item in call.args.items())


def _part(item: Any, known: Mapping[Value, Value]) -> Any:
    if isinstance(item, (list, tuple)):
        return tuple(_part(one, known) for one in item)
    if isinstance(item, Value):
        return known.get(item, item)
    return type(item), repr(item)


class _Pairs:
    """Which values of the other run stand for those of the first, behind the branches; `known` is that before them."""

    def __init__(self, known: Mapping[Value, Value]) -> None:
        self.known = known
        self._theirs: dict[Value, dict[Value, None]] = {}
        self._mine: dict[Value, dict[Value, None]] = {}

    def add(self, mine: Any, theirs: Any) -> bool:
        """Note that arguments correspond; False where they cannot."""
        found = list(self._leaves(mine, theirs))
        if None in found:
            return False
        for value, its in found:  # type: ignore[misc]
            self._theirs.setdefault(value, {})[its] = None
            self._mine.setdefault(its, {})[value] = None
        return True

    def match(self, mine: Call, theirs: Call) -> bool:
        """Whether the two are one call behind the branches; then their arguments correspond."""
        if mine.target != theirs.target or len(mine.outputs) != len(theirs.outputs) or mine.blocks or theirs.blocks:
            return False
        if mine.args.keys() != theirs.args.keys():
            return False
        for value, its in zip(mine.outputs, theirs.outputs, strict=True):
            if self._theirs.get(value, {its: None}).keys() != {its}:
                return False
            if self._mine.get(its, {value: None}).keys() != {value}:
                return False
        if not self.add(list(mine.args.values()), [theirs.args[name] for name in mine.args]):
            return False
        for value, its in zip(mine.outputs, theirs.outputs, strict=True):
            self._theirs.pop(value, None)
            self._mine.pop(its, None)
        return True

    def open(self) -> list[tuple[Value, Value]] | None:
        """The values that differ where the ways come together; None where one stands for several."""
        found = []
        for value, several in self._theirs.items():
            its = next(iter(several))
            if self.known.get(its) is value and len(several) == 1:
                continue
            if len(several) > 1:
                return None
            found.append((value, its))
        return found

    def _leaves(self, mine: Any, theirs: Any) -> Iterator[tuple[Value, Value] | None]:
        if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(mine) == len(theirs):
            for one, other in zip(mine, theirs, strict=True):
                yield from self._leaves(one, other)
        elif isinstance(mine, Value) and isinstance(theirs, Value):
            yield mine, theirs
        elif isinstance(mine, (Value, list, tuple)) or type(mine) is not type(theirs) or repr(mine) != repr(theirs):
            yield None


def _common(mine: Value, theirs: Value, one: Way, two: Way) -> Any:
    """The type of a value that comes from one of two ways; None where they are of two kinds."""
    first, other = mine.type, theirs.type
    if isinstance(first, ScalarType) or isinstance(other, ScalarType):
        return first if first == other else None
    if not (isinstance(first, TensorType) and isinstance(other, TensorType)) or first.dtype != other.dtype:
        return None
    sizes, others = one.sizes.get(mine, first.shape), two.sizes.get(theirs, other.shape)
    if sizes is None or others is None or len(sizes) != len(others):
        return None
    shape = tuple(size if size == its else None for size, its in zip(sizes, others, strict=True))
    return TensorType(first.dtype, shape)


# One graph ------------------------------------------------------------------------------------------------------------


def _may_take(fork: _Fork, earlier: _Fork) -> bool:
    """Whether the other way of a fork takes a value that an earlier fork may replace, or the one that it replaces."""
    taken = {value for call in fork.other for value in call.inputs()}
    taken |= {value for _, its, _ in fork.pairs for value in values_in([its])}
    return not taken.isdisjoint(value for value, _, _ in earlier.pairs)


def _are_taken(
    graph: AtenGraph,
    forks: Mapping[int, _Fork],
    run: Callable[[Collection[int]], Way | None],
    live: Callable[[AtenGraph], AtenGraph],
) -> bool:
    """Whether the model does what the other ways of all these forks behind each other would do."""
    other = None if any(fork.skips for fork in forks.values()) else run(list(forks))
    if other is None:
        return False
    found = _merged(graph, list(forks.values()), turned=True)
    constants = {id(item.tensor): item for item in found.inputs}
    ordered = [
        *(item for item in found.inputs if item.kind != "constant"),
        *(constants.get(id(item.tensor), item) for item in other.graph.inputs if item.kind == "constant"),
    ]
    return are_same(live(numbers_first(found.with_inputs(ordered))), live(numbers_first(other.graph)))


def _merged(graph: AtenGraph, forks: Sequence[_Fork], turned: bool = False) -> AtenGraph:
    """The graph with Ifs, or with the other ways where it is `turned`."""
    renamed: dict[Value, Any] = {}
    calls = _written(graph.calls, 0, len(graph.calls), forks, renamed, turned)

    def other(item: Any) -> Any:
        return map_values(item, lambda value: renamed.get(value, value))

    constants = {id(item): item for fork in _every(forks) for item in fork.constants}
    assigned = [dataclasses.replace(item, value=other(item.value)) for item in graph.assigned]
    outputs, inputs = other(list(graph.outputs)), [*graph.inputs, *constants.values()]
    return dataclasses.replace(graph, inputs=inputs, calls=calls, outputs=outputs, assigned=assigned)


def _every(forks: Sequence[_Fork]) -> Iterator[_Fork]:
    for fork in forks:
        yield fork
        yield from _every(fork.inner)


def _written(
    calls: Sequence[Call], start: int, end: int, forks: Sequence[_Fork], renamed: dict[Value, Any], turned: bool = False
) -> list[Call]:
    """The calls between two positions, with the forks there as Ifs; `renamed` gets the values that these replace."""
    found: list[Call] = []

    def now(value: Value) -> Any:
        return renamed.get(value, value)

    for fork in sorted(forks, key=lambda fork: fork.start):
        found += [with_values(call, now) for call in calls[start : fork.start]]
        start = fork.end
        own = dict(renamed)
        mine = _written(calls, fork.start, fork.end, fork.inner, own)
        theirs = [with_values(call, now) for call in fork.other]
        if turned:
            found += theirs
            renamed.update({value: map_values(its, now) for value, its, _ in fork.pairs})
            continue
        if not (mine or theirs or fork.pairs):  # both ways do the same
            continue
        first = Block(mine, [own.get(value, value) for value, _, _ in fork.pairs])
        other = Block(theirs, [map_values(its, now) for _, its, _ in fork.pairs])
        made = [Value(type_) for _, _, type_ in fork.pairs]
        source = (mine or theirs or calls[fork.start - 1 :])[0].source
        blocks = (first, other) if fork.holds else (other, first)
        found.append(Call("prim::If", {"condition": now(fork.condition)}, made, source, blocks))
        renamed.update(zip([value for value, _, _ in fork.pairs], made, strict=True))
    return found + [with_values(call, now) for call in calls[start:end]]
