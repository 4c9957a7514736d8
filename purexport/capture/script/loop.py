"""Loops of a script whose number of steps depends on tensor data: ``prim::Loop``.

The body is interpreted until what it carries has the same types before and after.  Each carried variable begins as a
constant of the loop; what a step changes becomes a value of the graph, in the form that the change shows (``Slot``):
a number or tensor, a tuple or list element by element, a list that grows, something that is None at first.  Lists,
dicts and attributes from outside that the body changes are carried in the same way, by their content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from purexport.aten.graph import Block, Call, ScalarType, Source, Value
from purexport.capture.script.lists import as_dynamic, column, element_of, joined_elements, sequence_fake, width_of
from purexport.capture.script.record import fake_kind, joined, kind_of, number_kind
from purexport.capture.script.scope import Scope, recording, scope, touch
from purexport.capture.script.values import (
    Columns,
    FakeSequence,
    Maybe,
    ScriptDict,
    ScriptList,
    Uninitialized,
    is_plain,
    same,
    split,
)
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.interpreter import Interpreter

_ROUNDS = 12
_ENDLESS = 2**63 - 1


def loop(run: Interpreter, node: Any, most: Any, condition: Any, items: list[Any]) -> list[Any]:
    """``prim::Loop`` whose number of steps only the run knows.

    ``items`` are the number of steps that are done already, and the carried items.
    """
    done, *initial = items
    (block,) = node.blocks()
    this = _Loop(run, run.source(node), done, initial)
    for _ in range(_ROUNDS):
        this.interpret(block)
        if not this.changed:
            return this.finish(most, condition)
    raise ExportError(
        f"what the loop at {this.source} carries changes its type at every step, which ONNX cannot say",
        code="loop-changes-type",
    )


class _Loop:
    """One loop: the slots of what it carries, and of the outer objects that it changes; the last round of its body.

    ``changed`` says that the last round changed a slot, so that another one has to follow.
    """

    def __init__(self, run: Interpreter, source: Source, done: int, initial: list[Any]) -> None:
        self.run = run
        self.source = source
        self.done = done
        self.slots: list[Any] = [_Leaf(self, item) for item in initial]
        self.objects: dict[int, tuple[Any, Any]] = {}
        self.changed = False
        self.body = Scope()
        self.before = 0  # the number of values that exist when a step begins
        self.step = Value(ScalarType(int))
        self.again: Any = True
        self.results: list[Any] = []

    def interpret(self, block: Any) -> None:
        """One round: the body on what the slots hold, and the slots widened by what it gives."""
        run = self.run
        remembered, written = run.machine.remembered(), run.written_state()
        with scope(run) as self.body:
            self.step = number = run.value(run.machine.unknown_size())
            if self.done:
                args = {"a": self.step, "b": self.done}
                number = run.emit("aten::add.int", args, run.machine.unknown_size(), self.source)
            for item, slot in self.objects.values():
                touch(run, item, self.source)
                item.become(slot.enter())
            entered = [slot.enter() for slot in self.slots]
            self.before = len(run.fakes)
            self.again, *self.results = run.body(block, [number, *entered])
        # what a step writes to is unknown at the next one
        self.changed = not remembered <= run.machine.remembered() or written != run.written_state()
        self._widen()

    def _widen(self) -> None:
        self.slots = [slot.widen(result) for slot, result in zip(self.slots, self.results, strict=True)]
        for key, (item, content) in self.body.after.items():
            if key not in self.objects:
                self.changed = True
            slot = self.objects[key][1] if key in self.objects else _content_slot(self, item.clone())
            self.objects[key] = (item, slot.widen(content))

    def finish(self, most: Any, condition: Any) -> list[Any]:
        """Record the call; what the loop carries, after it."""
        run = self.run
        with recording(run, self.body):
            pairs = [pair for slot, result in zip(self.slots, self.results, strict=True) for pair in slot.pairs(result)]
            for key, (_, slot) in self.objects.items():
                pairs += slot.pairs(self.body.after[key][1])
        run.memory.refuse_writes_of_earlier_steps(self.body.calls, run.fakes, self.before)
        inputs = [self.step, *(leaf.inner for leaf, _ in pairs)]
        block = Block(self.body.calls, [self.again, *(result for _, result in pairs)], inputs)
        carried = [leaf.start() for leaf, _ in pairs]
        outputs = [run.value(leaf.fake) for leaf, _ in pairs]
        args = {"most": _bound(most, self.done), "condition": condition, "carried": carried}
        run.add(Call("prim::Loop", args, outputs, self.source, [block]))
        run.remarks.extend(self.body.remarks)
        return self._leave(iter(outputs))

    def _leave(self, found: Iterator[Value]) -> list[Any]:
        left = [slot.leave(found) for slot in self.slots]
        for item, slot in self.objects.values():
            content = slot.leave(found)
            touch(self.run, item, self.source)
            item.become(content)
        return left

    def refuse(self, one: Any, other: Any) -> ExportError:
        return ExportError(
            f"the loop at {self.source} carries {self.run.describe(one)} into its first step and "
            f"{self.run.describe(other)} into a later one, which has no form in ONNX; make both of one type",
            code="loop-changes-type",
        )


def _bound(most: Any, done: int) -> Any:
    if not isinstance(most, int):
        return most
    return None if most >= _ENDLESS else most - done


def _content_slot(this: _Loop, content: Any) -> Any:
    """The slot of what a list or dict from outside holds."""
    if isinstance(content, ScriptDict):
        return _Dict(this, content)
    return _grown(this, content, content) if content.value is not None else _List(this, content)


def _grown(this: _Loop, initial: ScriptList, like: ScriptList) -> Any:
    """The slot of a list whose length changes; ``like`` is what it becomes."""
    width = width_of(initial, like)
    return _Columns(this, initial, like, width) if width else _Grown(this, initial)


class _Leaf:
    """A number or tensor: a constant of the loop (``fake`` None) until it is seen to change.

    Every slot has: ``enter``, the item at the begin of a step; ``widen``, which takes the result of a step into account
    and returns the slot that can hold it; ``pairs``, the carried values with what a step gives for them; ``leave``, the
    item after the loop, from the loop's outputs in the order of ``pairs``.
    """

    def __init__(self, this: _Loop, initial: Any) -> None:
        self.this = this
        self.initial = initial
        self.inner: Any = None
        self.free: set[str] = set()  # sizes that were seen to change
        is_tensor = isinstance(initial, Value) and isinstance(kind_of(initial), tuple)
        self.fake = this.run.machine.forget(this.run.fakes[initial]) if is_tensor else None

    def enter(self) -> Any:
        if self.fake is None:
            return self.initial
        self.inner = self.this.run.value(self.fake)
        return self.inner

    def widen(self, result: Any) -> Any:
        if isinstance(result, Uninitialized):
            return self
        if self.fake is None:
            return self if same(result, self.initial) else self._changed(result)
        if result is None or isinstance(result, Maybe):
            self.this.changed = True
            return _Optional(self.this, self.initial).widen(result)
        if kind_of(result) != fake_kind(self.fake):
            raise self.this.refuse(self._first(), result)
        if not isinstance(self.fake, torch.Tensor):
            return self
        wider = self.this.run.machine.joined(self.fake, self.this.run.fakes[result], self.free)
        self.this.run.memory.share(wider, self.fake)
        self.this.run.memory.share(wider, self.this.run.fakes[result])
        new = {str(b) for a, b in zip(self.fake.shape, wider.shape, strict=True) if str(a) != str(b)}
        if new:
            self.this.changed, self.fake = True, wider
            self.free |= new
        return self

    def _first(self) -> Any:
        return self.inner if isinstance(self.initial, Uninitialized) else self.initial

    def _changed(self, result: Any) -> Any:
        """The slot for a constant that a step changed."""
        this, initial = self.this, self.initial
        this.changed = True
        unset = isinstance(initial, Uninitialized)
        if isinstance(result, tuple) and (unset or (isinstance(initial, tuple) and len(initial) == len(result))):
            return _Tuple(this, (initial,) * len(result) if unset else initial).widen(result)
        if isinstance(result, ScriptList) and (unset or isinstance(initial, ScriptList)):
            if unset:
                initial = ScriptList(() if result.value is not None else [initial] * len(result), result.kind)
            return _content_slot(this, initial).widen(result)
        if isinstance(result, ScriptDict) and (unset or isinstance(initial, ScriptDict)):
            return _Dict(this, type(result)(dict.fromkeys(result, initial)) if unset else initial).widen(result)
        if isinstance(result, Maybe) or result is None or initial is None or isinstance(initial, Maybe):
            return _Optional(this, initial).widen(result)
        if not unset:
            self.fake = joined(this.run, initial, result, this.source) if kind_of(initial) == kind_of(result) else None
        elif isinstance(result, Value):
            self.fake = this.run.machine.forget(this.run.fakes[result])
        elif number_kind(result) is not None:
            self.fake = this.run.machine.unknown(number_kind(result))
        elif is_plain(result):
            self.initial = result
            return self
        if self.fake is None:
            raise this.refuse(initial, result)
        return self

    def pairs(self, result: Any) -> list[tuple[Any, Any]]:
        if self.fake is None:
            return []
        return [(self, self.inner if isinstance(result, Uninitialized) else result)]

    def start(self) -> Any:
        """The item before the first step."""
        unset = isinstance(self.initial, Uninitialized)
        return self.this.run.filler(self.inner, self.this.source) if unset else self.initial

    def leave(self, found: Iterator[Value]) -> Any:
        return self.initial if self.fake is None else next(found)


class _Parts:
    """Something of a fixed number of parts, each a slot of its own."""

    def __init__(self, this: _Loop, initial: Any) -> None:
        self.this = this
        self.initial = initial
        self.slots: list[Any] = [_Leaf(this, item) for item in self.items(initial)]

    def items(self, whole: Any) -> list[Any]:
        raise NotImplementedError

    def whole(self, items: list[Any]) -> Any:
        raise NotImplementedError

    def fits(self, result: Any) -> bool:
        raise NotImplementedError

    def enter(self) -> Any:
        return self.whole([slot.enter() for slot in self.slots])

    def widen(self, result: Any) -> Any:
        if isinstance(result, Uninitialized):
            return self
        if not self.fits(result):
            return self.other(result)
        self.slots = [slot.widen(item) for slot, item in zip(self.slots, self.items(result), strict=True)]
        return self

    def other(self, result: Any) -> Any:
        if result is None or isinstance(result, Maybe):
            self.this.changed = True
            return _Optional(self.this, self.initial).widen(result)
        raise self.this.refuse(self.initial, result)

    def pairs(self, result: Any) -> list[tuple[Any, Any]]:
        unset = isinstance(result, Uninitialized)
        items = [result] * len(self.slots) if unset else self.items(result)
        return [pair for slot, item in zip(self.slots, items, strict=True) for pair in slot.pairs(item)]

    def leave(self, found: Iterator[Value]) -> Any:
        return self.this.run.own(self.whole([slot.leave(found) for slot in self.slots]))


class _Tuple(_Parts):
    def items(self, whole: Any) -> list[Any]:
        return list(whole)

    def whole(self, items: list[Any]) -> Any:
        return tuple(items)

    def fits(self, result: Any) -> bool:
        return isinstance(result, tuple) and len(result) == len(self.slots)


class _List(_Parts):
    """A list of a fixed length, until a step gives it another."""

    def items(self, whole: Any) -> list[Any]:
        return list(whole)

    def whole(self, items: list[Any]) -> Any:
        return _carried(ScriptList(items, self.initial.kind), self.this)

    def fits(self, result: Any) -> bool:
        return isinstance(result, ScriptList) and result.value is None and len(result) == len(self.slots)

    def other(self, result: Any) -> Any:
        if not isinstance(result, ScriptList):
            return super().other(result)
        self.this.changed = True
        return _grown(self.this, self.initial, result).widen(result)

    def leave(self, found: Iterator[Value]) -> Any:
        made = super().leave(found)
        made.frozen = ""
        return made


class _Dict(_Parts):
    def items(self, whole: Any) -> list[Any]:
        return list(whole.values())

    def whole(self, items: list[Any]) -> Any:
        return _carried(type(self.initial)(zip(self.initial, items, strict=True)), self.this)

    def fits(self, result: Any) -> bool:
        if not isinstance(result, ScriptDict):
            return False
        if list(result) != list(self.initial):
            raise ExportError(
                f"the loop at {self.this.source} changes the keys of a dict from {list(self.initial)} to "
                f"{list(result)}, and its steps depend on data; give the dict all its keys before the loop",
                code="loop-changes-type",
            )
        return True

    def leave(self, found: Iterator[Value]) -> Any:
        made = super().leave(found)
        made.frozen = ""
        return made


def _carried(made: Any, this: _Loop) -> Any:
    # at the first step it is the list from before the loop, later the one that the step before made
    made.frozen = f"the loop at {this.source}, which carries it"
    return made


class _Grown(_Leaf):
    """A list whose length changes from step to step."""

    def __init__(self, this: _Loop, initial: ScriptList) -> None:
        super().__init__(this, initial)
        self.element = element_of(this.run, initial, this.source)

    def enter(self) -> Any:
        self.fake = sequence_fake(self.this.run, self.element)
        self.inner = self.this.run.value(self.fake)
        return _carried(ScriptList((), self.initial.kind, self.inner), self.this)

    def widen(self, result: Any) -> Any:
        if isinstance(result, Uninitialized):
            return self
        if not isinstance(result, ScriptList):
            raise self.this.refuse(self.initial, result)
        run, source = self.this.run, self.this.source
        wider = joined_elements(run, self.element, element_of(run, result, source), source)
        if _text(wider) != _text(self.element):
            self.this.changed, self.element = True, wider
        return self

    def pairs(self, result: Any) -> list[tuple[Any, Any]]:
        if isinstance(result, Uninitialized):
            return [(self, self.inner)]
        return [(self, as_dynamic(self.this.run, result, self.element, self.this.source))]

    def start(self) -> Any:
        return as_dynamic(self.this.run, self.initial, self.element, self.this.source)

    def leave(self, found: Iterator[Value]) -> Any:
        return self.this.run.own(ScriptList((), self.initial.kind, next(found)))


class _Columns(_Parts):
    """A list of tuples whose length changes: a list for each part."""

    def __init__(self, this: _Loop, initial: ScriptList, like: ScriptList, width: int) -> None:
        self.this = this
        self.initial = initial
        self.width = width
        pairs = [(column(initial, place), column(like, place)) for place in range(width)]
        self.slots = [_grown(this, one, other) for one, other in pairs]

    def items(self, whole: Any) -> list[Any]:
        return [column(whole, place) for place in range(self.width)]

    def whole(self, items: list[Any]) -> Any:
        return _carried(ScriptList((), self.initial.kind, Columns(tuple(items))), self.this)

    def fits(self, result: Any) -> bool:
        return isinstance(result, ScriptList) and width_of(result) in (0, self.width)

    def leave(self, found: Iterator[Value]) -> Any:
        made = super().leave(found)
        made.frozen = ""
        return made


def _text(element: Any) -> Any:
    if isinstance(element, FakeSequence):
        return element.element.dtype, tuple(map(str, element.element.shape)), element.free
    return element


class _Optional:
    """What is None at some steps: a flag, and the item, which is a filler where the flag says so."""

    def __init__(self, this: _Loop, initial: Any) -> None:
        self.this = this
        flag, item = split(initial)
        self.flag, self.item = _Leaf(this, flag), _Leaf(this, item)

    def enter(self) -> Any:
        flag, item = self.flag.enter(), self.item.enter()
        if isinstance(flag, Value):
            return Maybe(flag, item, self.this.source)
        return item if flag else None

    def widen(self, result: Any) -> Any:
        if not isinstance(result, Uninitialized):
            flag, item = split(result)
            self.flag, self.item = self.flag.widen(flag), self.item.widen(item)
        return self

    def pairs(self, result: Any) -> list[tuple[Any, Any]]:
        flag, item = (result, result) if isinstance(result, Uninitialized) else split(result)
        return [*self.flag.pairs(flag), *self.item.pairs(item)]

    def leave(self, found: Iterator[Value]) -> Any:
        flag, item = self.flag.leave(found), self.item.leave(found)
        if isinstance(flag, Value):
            return Maybe(flag, item, self.this.source)
        return item if flag else None
