"""The carried variables of a loop: each has a slot, which is generalized until it can hold the result of every step.

A slot is for a number or tensor, for a tuple, list or dict element by element, for a list that grows, or for an item
that is None at first.  Every slot has these methods:

- `enter` gives the item at the start of a step.
- `widen` takes the result of a step and returns a slot that can hold it.
- `pairs` gives the carried values, each with its value after a step.
- `leave` gives the item after the loop, from the loop's outputs in the order of `pairs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Source
from purexport.errors import ExportError
from purexport.frontends.script.conversions import filler
from purexport.frontends.script.kinds import fake_kind, joined, kind_of, number_kind
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.sequences import (
    as_dynamic,
    column,
    element_of,
    joined_elements,
    sequence_fake,
    width_of,
)
from purexport.frontends.script.values import (
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


class Carrier:
    """The loop that slots belong to.  A slot that changes sets `changed`, so that another round has to follow."""

    def __init__(self, machine: ScriptRecorder, source: Source) -> None:
        self.machine = machine
        self.source = source
        self.changed = False

    def refuse(self, one: Any, other: Any) -> ExportError:
        """The error for a variable that no slot can hold; it names the first item and the result of a step."""
        return ExportError(
            f"the loop at {self.source} carries {self.machine.describe(one)} into its first step and "
            f"{self.machine.describe(other)} into a later one, which has no form in ONNX; make both of one type",
            code="loop-changes-type",
        )


def content_slot(this: Carrier, content: Any) -> Any:
    """The slot for the content of a list or dict from outside."""
    if isinstance(content, ScriptDict):
        return _Dict(this, content)
    return _grown(this, content, content) if content.value is not None else _List(this, content)


def _grown(this: Carrier, initial: ScriptList, like: ScriptList) -> Any:
    """The slot of a list whose length changes; `like` is the list after a step."""
    width = width_of(initial, like)
    return _Columns(this, initial, like, width) if width else _Grown(this, initial)


class Leaf:
    """A number or tensor.  It is a constant of the loop (`fake` is None) until a step changes it.

    The methods are those of every slot; the docstring of the module describes them.
    """

    def __init__(self, this: Carrier, initial: Any) -> None:
        self.this = this
        self.initial = initial
        self.inner: Any = None
        self.free: set[str] = set()  # sizes that were seen to change
        is_tensor = isinstance(initial, AtenValue) and isinstance(kind_of(initial), tuple)
        self.fake = this.machine.shapes.forget(this.machine.fakes[initial]) if is_tensor else None

    def enter(self) -> Any:
        if self.fake is None:
            return self.initial
        self.inner = self.this.machine.value(self.fake)
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
        wider = self.this.machine.shapes.joined(self.fake, self.this.machine.fakes[result], self.free)
        self.this.machine.aliasing.share(wider, self.fake)
        self.this.machine.aliasing.share(wider, self.this.machine.fakes[result])
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
            return content_slot(this, initial).widen(result)
        if isinstance(result, ScriptDict) and (unset or isinstance(initial, ScriptDict)):
            return _Dict(this, type(result)(dict.fromkeys(result, initial)) if unset else initial).widen(result)
        if isinstance(result, Maybe) or result is None or initial is None or isinstance(initial, Maybe):
            return _Optional(this, initial).widen(result)
        if not unset:
            self.fake = (
                joined(this.machine, initial, result, this.source) if kind_of(initial) == kind_of(result) else None
            )
        elif isinstance(result, AtenValue):
            self.fake = this.machine.shapes.forget(this.machine.fakes[result])
        elif number_kind(result) is not None:
            self.fake = this.machine.shapes.unknown(number_kind(result))
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
        return filler(self.this.machine, self.inner, self.this.source) if unset else self.initial

    def leave(self, found: Iterator[AtenValue]) -> Any:
        return self.initial if self.fake is None else next(found)


class _Parts:
    """An item with a fixed number of parts; each part has its own slot."""

    def __init__(self, this: Carrier, initial: Any) -> None:
        self.this = this
        self.initial = initial
        self.slots: list[Any] = [Leaf(this, item) for item in self.items(initial)]

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

    def leave(self, found: Iterator[AtenValue]) -> Any:
        return self.this.machine.own(self.whole([slot.leave(found) for slot in self.slots]))


class _Tuple(_Parts):
    def items(self, whole: Any) -> list[Any]:
        return list(whole)

    def whole(self, items: list[Any]) -> Any:
        return tuple(items)

    def fits(self, result: Any) -> bool:
        return isinstance(result, tuple) and len(result) == len(self.slots)


class _List(_Parts):
    """A list of a fixed length, until a step changes the length."""

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

    def leave(self, found: Iterator[AtenValue]) -> Any:
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

    def leave(self, found: Iterator[AtenValue]) -> Any:
        made = super().leave(found)
        made.frozen = ""
        return made


def _carried(made: Any, this: Carrier) -> Any:
    # at the first step it is the list from before the loop, later the one that the step before made
    made.frozen = f"the loop at {this.source}, which carries it"
    return made


class _Grown(Leaf):
    """A list whose length changes from step to step."""

    def __init__(self, this: Carrier, initial: ScriptList) -> None:
        super().__init__(this, initial)
        self.element = element_of(this.machine, initial, this.source)

    def enter(self) -> Any:
        self.fake = sequence_fake(self.this.machine, self.element)
        self.inner = self.this.machine.value(self.fake)
        return _carried(ScriptList((), self.initial.kind, self.inner), self.this)

    def widen(self, result: Any) -> Any:
        if isinstance(result, Uninitialized):
            return self
        if not isinstance(result, ScriptList):
            raise self.this.refuse(self.initial, result)
        machine, source = self.this.machine, self.this.source
        wider = joined_elements(machine, self.element, element_of(machine, result, source), source)
        if _text(wider) != _text(self.element):
            self.this.changed, self.element = True, wider
        return self

    def pairs(self, result: Any) -> list[tuple[Any, Any]]:
        if isinstance(result, Uninitialized):
            return [(self, self.inner)]
        return [(self, as_dynamic(self.this.machine, result, self.element, self.this.source))]

    def start(self) -> Any:
        return as_dynamic(self.this.machine, self.initial, self.element, self.this.source)

    def leave(self, found: Iterator[AtenValue]) -> Any:
        return self.this.machine.own(ScriptList((), self.initial.kind, next(found)))


class _Columns(_Parts):
    """A list of tuples whose length changes: one list for each position in the tuples."""

    def __init__(self, this: Carrier, initial: ScriptList, like: ScriptList, width: int) -> None:
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

    def leave(self, found: Iterator[AtenValue]) -> Any:
        made = super().leave(found)
        made.frozen = ""
        return made


def _text(element: Any) -> Any:
    if isinstance(element, FakeSequence):
        return element.element.dtype, tuple(map(str, element.element.shape)), element.free
    return element


class _Optional:
    """An item that is None at some steps: a flag, and the item, which is a filler where the flag is false."""

    def __init__(self, this: Carrier, initial: Any) -> None:
        self.this = this
        flag, item = split(initial)
        self.flag, self.item = Leaf(this, flag), Leaf(this, item)

    def enter(self) -> Any:
        flag, item = self.flag.enter(), self.item.enter()
        if isinstance(flag, AtenValue):
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

    def leave(self, found: Iterator[AtenValue]) -> Any:
        flag, item = self.flag.leave(found), self.item.leave(found)
        if isinstance(flag, AtenValue):
            return Maybe(flag, item, self.this.source)
        return item if flag else None
