"""Axes whose size Python takes as a number (`for i in range(x.shape[1])`), and which stay dynamic as Loops of the file.

The model is captured at further sizes, where the steps can be told from each other; that costs little, because nothing
is computed.  Each graph is written with its loops (`core/rolled`).  Where all are the same graph, no number in it
follows from the size, so it holds for all sizes.
Invariant: at the sizes of the capture and at the user's, Python must have decided alike.  Else nothing is known, and
the axis becomes static.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from proto_schema.sizes import Size
from purexport.aten.graph import AtenGraph, Block, Call, Input, ScalarType, map_values, values_in
from purexport.aten.graph import AtenValue as Value
from purexport.frontends.core.rolled import rolled
from purexport.frontends.trace.decisions import Decisions

_LEAST = 4  # steps that show what they count, of which the first may differ
_FAR = (5000,)  # further numbers at which nothing may repeat either
_FARTHEST = 4096  # elements beyond the example's in which such a size is looked for

Capture = Callable[[Mapping[str, int]], tuple[AtenGraph, Decisions]]


def in_loops(
    capture: Capture, sizes: Mapping[str, int], required: Sequence[Size]
) -> tuple[AtenGraph, Decisions] | None:
    """The graph with loops for the numbers that were `required`, and what was decided; None where it has others.

    `capture` captures the model at other sizes, in which no axis becomes static.
    """
    first = _sizes_of(required, sizes, [_LEAST] * len(required))
    if first is None:
        return None
    graph, decisions = capture(sizes)
    if first != sizes:
        asked = decisions.said()
        graph, decisions = capture(first)
        if decisions.said() != asked:
            return None
    loops = _in_loops(graph, _values(required, first))
    few = max(_values(required, first)) + _LEAST
    # where nothing repeats so far, steps may be of many elements each
    for more in (1, few) if any(call.target == "prim::Scan" for call in loops.calls) else (1, few, *_FAR):
        far = {name for size in required for name in size.symbols} if more in _FAR else set()
        larger = {name: size + (more if name in far else 1) for name, size in first.items()}
        others = _sizes_of(required, larger, [value + more for value in _values(required, first)])
        if others is None:
            return None
        graph, other = capture(others)
        if other.said() != decisions.said() or not are_same(loops, _in_loops(graph, _values(required, others))):
            return None
    return loops, decisions


def _values(required: Sequence[Size], sizes: Mapping[str, int]) -> list[int]:
    return [size.at(sizes) for size in required]


def _sizes_of(required: Sequence[Size], sizes: Mapping[str, int], least: Sequence[int]) -> dict[str, int] | None:
    """The first sizes from these on at which the numbers are at least so large."""
    found = dict(sizes)
    for size, wanted in zip(required, least, strict=True):
        for name in sorted(size.symbols):
            other = next((value for value in _larger(found, name) if size.at(found | {name: value}) >= wanted), None)
            if other is None:
                return None
            found[name] = other
    return found


def _larger(sizes: Mapping[str, int], name: str) -> range:
    return range(sizes[name], sizes[name] + _FARTHEST)


def _in_loops(graph: AtenGraph, steps: Sequence[int]) -> AtenGraph:
    """The graph with its loops of so many steps, of which the first or the last may differ from the others."""
    counts = {count - fewer for count in steps for fewer in (0, 1)}
    graph = _rows_stacked(numbers_first(graph))
    return _pieces_selected(rolled(graph, _LEAST - 1, counts) or graph)


def _pieces_selected(graph: AtenGraph) -> AtenGraph:
    """The graph with one position of an axis taken, where a step stands alone that takes a piece of all of it."""
    apart = {call.outputs[0]: call for call in graph.calls if call.target == "aten::unbind.int"}
    calls = []
    for call in graph.calls:
        whole = apart.get(call.args.get("list")) if call.target == "prim::getitem" else None  # type: ignore[arg-type]
        if whole is not None:
            args = {"self": whole.args["self"], "dim": whole.args["dim"], "index": call.args["index"]}
            calls.append(Call("aten::select.int", args, call.outputs, call.source))
        else:
            calls.append(call)
    used = {value for call in calls for value in call.inputs()} | set(values_in(graph.outputs))
    unused = apart.keys() - used
    return dataclasses.replace(graph, calls=[call for call in calls if unused.isdisjoint(call.outputs)])


# Two graphs -----------------------------------------------------------------------------------------------------------


def are_same(one: AtenGraph, other: AtenGraph) -> bool:
    """Whether the graphs compute the same of the same inputs."""
    known: dict[Value, Value] = {}
    if len(one.inputs) != len(other.inputs):
        return False
    for mine, theirs in zip(one.inputs, other.inputs, strict=True):
        known[mine.value] = theirs.value
        if (mine.kind, mine.name) != (theirs.kind, theirs.name) or not _same_content(mine, theirs):
            return False
    return (
        _same_calls(one.calls, other.calls, known)
        and _same_args(list(one.outputs), list(other.outputs), known)
        and _same_args([i.value for i in one.assigned], [i.value for i in other.assigned], known)
    )


def _same_content(one: Input, other: Input) -> bool:
    if one.kind != "constant" or one.tensor is None or other.tensor is None or one.tensor is other.tensor:
        return True
    return one.tensor.dtype == other.tensor.dtype and torch.equal(one.tensor, other.tensor)


def _same_calls(one: Sequence[Call], other: Sequence[Call], known: dict[Value, Value]) -> bool:
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        if mine.target != theirs.target or len(mine.outputs) != len(theirs.outputs):
            return False
        if not _same_args(list(mine.args.values()), list(theirs.args.values()), known):
            return False
        for inner, others in zip(mine.blocks, theirs.blocks, strict=True):
            if not _same_blocks(inner, others, known):
                return False
        known.update(zip(mine.outputs, theirs.outputs, strict=True))
    return True


def _same_blocks(one: Block, other: Block, known: dict[Value, Value]) -> bool:
    if len(one.inputs) != len(other.inputs):
        return False
    known.update(zip(one.inputs, other.inputs, strict=True))
    return _same_calls(one.calls, other.calls, known) and _same_args(list(one.outputs), list(other.outputs), known)


def _same_args(one: Any, other: Any, known: Mapping[Value, Value]) -> bool:
    if isinstance(one, (list, tuple)):
        same = isinstance(other, (list, tuple)) and len(one) == len(other)
        return same and all(_same_args(mine, theirs, known) for mine, theirs in zip(one, other, strict=True))
    if isinstance(one, Value):
        return isinstance(other, Value) and known.get(one) is other
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


def pruned(graph: AtenGraph) -> AtenGraph:
    """The graph without numbers and pieces of lists that nothing takes."""
    live = set(values_in([*graph.outputs, *(item.value for item in graph.assigned)]))
    kept: list[Call] = []
    for call in reversed(graph.calls):
        passing = call.target == "prim::getitem" or all(isinstance(item.type, ScalarType) for item in call.outputs)
        if passing and call.outputs and not live.intersection(call.outputs):
            continue
        live.update(call.inputs())
        kept.append(call)
    return dataclasses.replace(graph, calls=kept[::-1])


# What steps consist of ------------------------------------------------------------------------------------------------


def numbers_first(graph: AtenGraph) -> AtenGraph:
    """The graph with each number once, right after what it follows from: a step asks for it or finds it asked for."""
    made: dict[Value, int] = {value: at for at, call in enumerate(graph.calls) for value in call.outputs}
    same: dict[Any, Value] = {}
    renamed: dict[Value, Value] = {}
    numbers: dict[int, list[Call]] = {}
    calls: list[tuple[int, Call]] = []
    for at, given in enumerate(graph.calls):
        call = _with_args(given, renamed)
        if not is_number(call):
            calls.append((at, call))
            continue
        key = (call.target, *((name, _key(item)) for name, item in call.args.items()))
        if key in same:
            renamed[call.outputs[0]] = same[key]
            continue
        same[key] = call.outputs[0]
        place = max((made.get(value, -1) for value in call.inputs()), default=-1)
        made.update(dict.fromkeys(call.outputs, place))
        numbers.setdefault(place, []).append(call)
    found = list(numbers.get(-1, ()))
    for at, call in calls:
        found.append(call)
        found += numbers.get(at, ())
    return _renamed(graph, found, renamed)


def is_number(call: Call) -> bool:
    """Whether a call gives a number that follows from sizes alone."""
    if len(call.outputs) != 1 or not isinstance(call.outputs[0].type, ScalarType) or call.blocks:
        return False
    return call.target == "aten::size.int" or all(isinstance(item.type, ScalarType) for item in call.inputs())


def _key(item: Any) -> Any:
    return tuple(map(_key, item)) if isinstance(item, (list, tuple)) else (type(item), item)


def _with_args(call: Call, renamed: Mapping[Value, Value]) -> Call:
    if not any(value in renamed for value in call.inputs()):
        return call
    args = {name: map_values(item, lambda value: renamed.get(value, value)) for name, item in call.args.items()}
    return Call(call.target, args, call.outputs, call.source, call.blocks)


def _renamed(graph: AtenGraph, calls: Sequence[Call], renamed: Mapping[Value, Value]) -> AtenGraph:
    def other(item: Any) -> Any:
        return map_values(item, lambda value: renamed.get(value, value))

    assigned = [dataclasses.replace(item, value=other(item.value)) for item in graph.assigned]
    return dataclasses.replace(graph, calls=calls, outputs=other(list(graph.outputs)), assigned=assigned)


def _rows_stacked(graph: AtenGraph) -> AtenGraph:
    """The graph with a stack of rows for each tensor whose rows are written one by one (`y[:, i] = row`), and all."""
    users: dict[Value, list[int]] = {}
    for at, call in enumerate(graph.calls):
        for value in dict.fromkeys(call.inputs()):
            users.setdefault(value, []).append(at)
    for value in dict.fromkeys(values_in([*graph.outputs, *(item.value for item in graph.assigned)])):
        users.setdefault(value, []).append(len(graph.calls))
    stacks = [made for at in range(len(graph.calls)) if (made := _stack_of(graph, users, at)) is not None]
    if not stacks:
        return graph
    dropped = set[int]().union(*(made.dropped for made in stacks))
    ends = {value: made.end for made in stacks for value in made.renamed}
    renamed = {value: other for made in stacks for value, other in made.renamed.items()}
    needed: dict[int, list[Call]] = {}
    for made in stacks:
        needed.setdefault(made.needed, []).append(made.stack)
    calls: list[Call] = []
    for at in range(len(graph.calls) + 1):
        calls += [_with_args(stack, renamed) for stack in needed.get(at, ())]
        if at < len(graph.calls) and at not in dropped:
            call = graph.calls[at]
            passed = {value: renamed[value] for value in call.inputs() if value in ends and ends[value] < at}
            calls.append(_with_args(call, passed))
    return _renamed(graph, calls, renamed)


class _Stack(NamedTuple):
    """The stack for a tensor: the positions of its rows' calls, and of the last one and of the first that reads it."""

    stack: Call
    dropped: set[int]
    renamed: dict[Value, Value]
    end: int
    needed: int


def _stack_of(graph: AtenGraph, users: Mapping[Value, Sequence[int]], maker: int) -> _Stack | None:
    """The stack for the tensor that a call makes, if its rows are written before anything reads it.

    Only the calls that use the tensor are looked at.
    """
    made = graph.calls[maker]
    if not made.target.startswith(_MAKERS) or len(made.outputs) != 1:
        return None
    buffer = made.outputs[0]
    whole, rows, written, dropped = {buffer}, {}, {}, set()  # type: ignore[var-annotated]
    axis, end = None, maker
    asked: list[tuple[int, Any]] = []  # who takes a size, and of what
    places = list(users.get(buffer, ()))  # those that are still to be looked at, as a heap
    seen = -1
    while places and places[0] < len(graph.calls):
        at = heapq.heappop(places)
        if at == seen:
            continue
        call, seen = graph.calls[at], at
        source = call.args.get("self")
        if call.outputs and all(isinstance(item.type, ScalarType) for item in call.outputs):
            asked.append((at, source))
            continue
        if source in whole and _is_whole(call):
            whole.add(call.outputs[0])
        elif call.target == "aten::select.int" and source in whole and axis in (None, call.args["dim"]):
            axis = call.args["dim"]
            rows[call.outputs[0]] = call.args["index"]
        elif source in rows and _is_whole(call):
            rows[call.outputs[0]] = rows[source]
        elif call.target == "aten::copy_" and source in rows and rows[source] == len(written):
            if call.args["src"] in whole or call.args["src"] in rows or _differ(source, call.args["src"]):
                return None
            written[rows[source]] = call.args["src"]
            end = at
        else:
            break
        dropped.add(at)
        for value in call.outputs:
            for place in users.get(value, ()):
                heapq.heappush(places, place)
    count = len(written)
    shape = buffer.tensor.shape or ()
    if axis is None or axis < 0 or count < _LEAST or count != shape[axis]:
        return None
    behind = {at for value in whole for at in users.get(value, ()) if at > end}
    if any(at not in dropped for value in rows for at in users.get(value, ())):
        return None
    if any(at < len(graph.calls) and graph.calls[at].blocks for at in behind):
        return None
    before = [source for at, source in asked if at < end]
    if any(source is not buffer for source in before):
        return None
    stack = Value(buffer.type)
    args = {"tensors": list(written.values()), "dim": axis}
    if not before:
        dropped.add(maker)
    needed = min(behind, default=len(graph.calls))  # where it is needed, which is not within the last step
    made_of = Call("aten::stack", args, [stack], graph.calls[end].source)
    return _Stack(made_of, dropped, dict.fromkeys(whole, stack), end, needed)


_MAKERS = ("aten::zeros", "aten::empty", "aten::ones", "aten::full", "aten::new_")


def _is_whole(call: Call) -> bool:
    """Whether the result is the tensor itself, or a slice of all of it."""
    if call.target in ("aten::detach", "aten::alias"):
        return True
    if call.target != "aten::slice.Tensor":
        return False
    source = call.args["self"]
    size = (source.tensor.shape or ())[call.args["dim"]]
    start, end = call.args["start"], call.args["end"]
    return start in (0, None) and call.args["step"] == 1 and (end is None or (type(end) is int and end >= size))


def _differ(row: Any, source: Any) -> bool:
    if not isinstance(source, Value):
        return True
    mine, theirs = row.tensor, source.tensor
    return (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape)
