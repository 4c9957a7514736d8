"""Branches and loops of a script that depend on tensor data: both sides are interpreted, and their results joined.

A branch becomes ``prim::If``: what both sides give alike needs no output; sizes that differ become unknown; what
differs in dtype or rank is refused.  A loop becomes ``prim::Loop``: the body is interpreted until what it carries has
the same types before and after; numbers that change become values of the graph, sizes that change become unknown.
Lists, attributes and other objects from outside may be read in a body, not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from purexport.capture.aten import Block, Call, ScalarType, Source, TensorType, Value
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script import Interpreter

_ROUNDS = 8


class Uninitialized:
    """What a variable holds on a path that never reads it."""


@dataclass
class Scope:
    """One body being interpreted: its calls, and the objects that it made itself and may therefore change."""

    calls: list[Call] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)

    def owns(self, item: Any) -> bool:
        """True when ``item`` was made in this body."""
        return any(item is own for own in self.made)


@contextmanager
def scope(run: Interpreter) -> Iterator[Scope]:
    """Record into a body.  Numbers computed in it are not seen outside."""
    outer_calls, outer_scope, outer_numbers = run.graph.calls, run.scope, run.numbers
    run.scope = Scope()
    run.graph.calls, run.numbers = run.scope.calls, dict(outer_numbers)
    try:
        yield run.scope
    finally:
        run.graph.calls, run.scope, run.numbers = outer_calls, outer_scope, outer_numbers


def branch(run: Interpreter, node: Any, condition: Value) -> None:
    """``prim::If`` on a condition that only the run knows."""
    source = run.source(node)
    bodies, results = [], []
    for block in node.blocks():
        with scope(run) as inner:
            results.append(run.body(block, []))
            bodies.append(inner)
    join = _Join(run, source, bodies)
    merged = [join.items(one, other) for one, other in zip(*results, strict=True)]
    blocks = [Block(body.calls, outputs) for body, outputs in zip(bodies, join.outputs, strict=True)]
    run.graph.calls.append(Call("prim::If", {"condition": condition}, join.results, source, blocks))
    run.store_all(node, merged)


class _Join:
    """Pairs of results of two branches to one result each."""

    def __init__(self, run: Interpreter, source: Source, bodies: Sequence[Scope]) -> None:
        self.run = run
        self.source = source
        self.bodies = bodies
        self.results: list[Value] = []
        self.outputs: tuple[list[Any], list[Any]] = ([], [])

    def items(self, one: Any, other: Any) -> Any:
        if one is other or (_is_plain(one) and type(one) is type(other) and one == other):
            return one
        if isinstance(one, Uninitialized) or isinstance(other, Uninitialized):
            return self._half(one, other)
        if isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
            return type(one)([self.items(a, b) for a, b in zip(one, other, strict=True)])
        return self._output(one, other, _joined(self.run, one, other, self.source))

    def _half(self, one: Any, other: Any) -> Any:
        """A variable that only one side sets, and that is read only after that side."""
        known = other if isinstance(one, Uninitialized) else one
        if not isinstance(known, Value):
            return known
        fake = self.run.fakes[known]
        with _recording(self.run, self.bodies[0 if known is other else 1]):
            filler = _filler(self.run, known, self.source)
        return self._output(filler, known, fake) if known is other else self._output(known, filler, fake)

    def _output(self, one: Any, other: Any, fake: Any) -> Value:
        value = self.run.value(fake)
        self.results.append(value)
        self.outputs[0].append(one)
        self.outputs[1].append(other)
        return value


@contextmanager
def _recording(run: Interpreter, body: Scope) -> Iterator[None]:
    outer, run.graph.calls = run.graph.calls, body.calls
    try:
        yield
    finally:
        run.graph.calls = outer


def _filler(run: Interpreter, like: Value, source: Source) -> Any:
    """Something of the type of ``like`` that nobody reads."""
    if isinstance(like.type, ScalarType):
        return like.type.kind(0)
    type_ = like.tensor
    size = [dim if isinstance(dim, int) else 1 for dim in type_.shape or ()]
    args = {"size": size, "dtype": type_.dtype, "layout": None, "device": None, "pin_memory": None}
    filler = run.record("aten::zeros", args, source)
    run.graph.calls[-1].target = "prim::Uninitialized"
    return filler


def _is_plain(item: Any) -> bool:
    return item is None or isinstance(item, (bool, int, float, str))


def _joined(run: Interpreter, one: Any, other: Any, source: Source) -> Any:
    """The fake of a value that may be either.  Raises ExportError when ONNX has no type for both."""
    kinds = [_kind(item) for item in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] is None:
        raise ExportError(
            f"at {source} a variable is {_describe(one)} on one path and {_describe(other)} on the other, which has no "
            "form in ONNX; make both of one type"
        )
    if not isinstance(kinds[0], tuple):
        return run.machine.unknown(kinds[0])
    return run.machine.joined(run.fakes[one], run.fakes[other])


def _kind(item: Any) -> Any:
    """What must agree: dtype and rank of a tensor, the type of a number; None for what ONNX cannot carry."""
    if isinstance(item, Value):
        return (
            (item.type.dtype, item.type.rank) if isinstance(item.type, TensorType) else getattr(item.type, "kind", None)
        )
    return type(item) if isinstance(item, (bool, int, float)) else None


def _describe(item: Any) -> str:
    if isinstance(item, Value):
        return f"a tensor {item.type}" if isinstance(item.type, TensorType) else f"a computed {item.type}"
    return f"{item!r}" if _is_plain(item) else f"a {type(item).__name__}"


def loop(run: Interpreter, node: Any, most: Any, condition: Any, items: list[Any]) -> list[Any]:
    """``prim::Loop`` whose number of steps only the run knows.  ``items`` are the first step and the carried items."""
    source = run.source(node)
    first, *initial = items
    if first:
        raise ExportError(f"the loop at {source} ends on data only after its first step, which is not supported yet")
    (block,) = node.blocks()
    state = [_Carried(run, item) for item in initial]
    for _ in range(_ROUNDS):
        with scope(run) as inner:
            step = run.value(run.machine.unknown_size())
            inside = [item.enter() for item in state]
            again, *results = run.body(block, [step, *inside])
        if not [True for item, result in zip(state, results, strict=True) if item.widen(result, source)]:
            break
    else:
        raise ExportError(f"what the loop at {source} carries changes its type at every step, which ONNX cannot say")
    kept = [(item, result) for item, result in zip(state, results, strict=True) if item.fake is not None]
    body = Block(inner.calls, [again, *(result for _, result in kept)], [step, *(item.inner for item, _ in kept)])
    carried = [item.start(source) for item, _ in kept]
    bound = None if isinstance(most, int) and most >= 2**63 - 1 else most
    args = {"most": bound, "condition": condition, "carried": carried}
    outputs = [run.value(item.fake) for item, _ in kept]
    run.graph.calls.append(Call("prim::Loop", args, outputs, source, [body]))
    found = iter(outputs)
    return [item.initial if item.fake is None else next(found) for item in state]


class _Carried:
    """One carried variable: a constant of the loop (``fake`` None) until it is seen to change, then a value."""

    def __init__(self, run: Interpreter, initial: Any) -> None:
        self.run = run
        self.initial = initial
        self.inner = Value(ScalarType(int))
        self.free: set[str] = set()  # sizes that were seen to change
        is_tensor = isinstance(initial, Value) and isinstance(initial.type, TensorType)
        self.fake = run.fakes[initial] if is_tensor else None

    def enter(self) -> Any:
        """The variable at the begin of a step."""
        if self.fake is None:
            return self.initial
        self.inner = self.run.value(self.fake)
        return self.inner

    def widen(self, result: Any, source: Source) -> bool:
        """Take the type of the result of a step into account; True when the type changed."""
        if self.fake is None:
            if result is self.initial or (_is_plain(result) and result == self.initial):
                return False
            if isinstance(self.initial, Uninitialized):
                self.fake = self.run.fakes[result] if isinstance(result, Value) else self._number(result, source)
            else:
                self.fake = _joined(self.run, self.initial, result, source)
            return True
        if not isinstance(self.fake, torch.Tensor):
            if _kind(result) is not _kind(self.inner):
                _joined(self.run, self.inner, result, source)
            return False
        if not isinstance(result, Value) or _kind(result) != _kind(self.inner):
            _joined(self.run, self.inner, result, source)
        wider = self.run.machine.joined(self.fake, self.run.fakes[result], self.free)
        new = {str(b) for a, b in zip(self.fake.shape, wider.shape, strict=True) if str(a) != str(b)}
        self.free |= new
        self.fake = wider if new else self.fake
        return bool(new)

    def _number(self, result: Any, source: Source) -> Any:
        if _kind(result) is None:
            raise ExportError(f"the loop at {source} carries {_describe(result)}, which has no form in ONNX")
        return self.run.machine.unknown(_kind(result))

    def start(self, source: Source) -> Any:
        """The variable before the first step."""
        return _filler(self.run, self.inner, source) if isinstance(self.initial, Uninitialized) else self.initial
