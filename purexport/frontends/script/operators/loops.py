"""Loops of a script: they are unrolled where their trip count is known, and become `prim::Loop` where data decides it.

A loop of more known steps than `machine.MOST_COPIES` becomes a `prim::Loop` too, where its body allows that.

The body is interpreted again and again, until all carried variables have the same types before and after a step.  Each
carried variable begins as a constant of the loop.  A variable that a step changes becomes a value of the graph, in a
form that fits the change (`loop_slots`).  Lists, dicts and attributes from outside that the body changes are carried in
the same way, by their content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from purexport.aten.graph import AtenValue, Block, Call, ScalarType, Source
from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.operators.loop_slots import Carrier, Leaf, content_slot
from purexport.frontends.script.registry import Handlers, ScriptNode
from purexport.frontends.script.state import ScriptState
from purexport.frontends.script.values import Raised

handles = Handlers()
_ROUNDS = 12
_ENDLESS = 2**63 - 1


@handles("prim::Loop")
def loop(machine: Machine, node: ScriptNode, most: Any, condition: Any, *initial: Any) -> Any:
    """`prim::Loop` with its bound, its first condition and its carried variables.

    Steps that were unrolled before the condition became data-dependent stay unrolled.  A loop of many known steps is
    recorded as one that depends on data.
    """
    (body,) = node.torch.blocks()
    key = next(body.inputs()).unique()
    stays = machine.kept is not None and key in machine.kept
    step, carried = 0, list(initial)
    while (
        not stays
        and not isinstance(condition, AtenValue)
        and not isinstance(most, AtenValue)
        and step < most
        and condition
    ):
        machine.count_copy(key, step)
        condition, *carried = machine.run_block(body, [step, *carried])
        step += 1
    if isinstance(condition, AtenValue) or (condition and (isinstance(most, AtenValue) or step < most)):
        try:
            carried = _by_data(machine, node, most, condition, _Loop(machine, node.source, step, carried))
        except Raised as error:
            # a loop without steps does not raise
            raise ExportError(
                f"{error}, in a loop whose number of steps depends on data", code="script-raises"
            ) from error
    return node.packed(carried)


def _by_data(machine: Machine, node: ScriptNode, most: Any, condition: Any, this: _Loop) -> list[Any]:
    """Record the loop as a call; returns the carried variables after the loop."""
    (block,) = node.torch.blocks()
    for _ in range(_ROUNDS):
        this.interpret(block)
        if not this.changed:
            return this.finish(most, condition)
    raise ExportError(
        f"a variable of the loop at {this.source} changes its type at every step, which ONNX cannot express",
        code="loop-changes-type",
    )


class _Loop(Carrier):
    """One loop: the slots of its carried variables and of outer objects that it changes; the last round of its body.

    `changed` says that the last round changed a slot, so that another one has to follow.
    """

    def __init__(self, machine: Machine, source: Source, done: int, initial: list[Any]) -> None:
        super().__init__(machine, source)
        self.machine: Machine = machine
        self.done = done
        self.slots: list[Any] = [Leaf(self, item) for item in initial]
        self.objects: dict[int, tuple[Any, Any]] = {}
        self.body = ScriptState()
        self.before = 0  # the number of values that exist when a step begins
        self.step = AtenValue(ScalarType(int))
        self.again: Any = True
        self.results: list[Any] = []

    def interpret(self, block: Any) -> None:
        """One round: interpret the body on the items of the slots, and widen the slots by its results."""
        machine = self.machine
        remembered, written = machine.shapes.remembered(), machine.written_tensors()
        with machine.body() as self.body:
            self.step = number = machine.value(machine.shapes.unknown_size())
            if self.done:
                args = {"a": self.step, "b": self.done}
                number = machine.emit("aten::add.int", args, machine.shapes.unknown_size(), self.source)
            for item, slot in self.objects.values():
                machine.change(item, slot.enter(), self.source)
            entered = [slot.enter() for slot in self.slots]
            self.before = len(machine.fakes)
            self.again, *self.results = machine.run_block(block, [number, *entered])
        # what a step writes to is unknown at the next one
        self.changed = not remembered <= machine.shapes.remembered() or written != machine.written_tensors()
        self._widen()

    def _widen(self) -> None:
        self.slots = [slot.widen(result) for slot, result in zip(self.slots, self.results, strict=True)]
        for key, (item, content) in self.body.after.items():
            if key not in self.objects:
                self.changed = True
            slot = self.objects[key][1] if key in self.objects else content_slot(self, item.clone())
            self.objects[key] = (item, slot.widen(content))

    def finish(self, most: Any, condition: Any) -> list[Any]:
        """Record the call; returns the carried variables after the loop."""
        machine = self.machine
        with machine.resumed(self.body):
            pairs = [pair for slot, result in zip(self.slots, self.results, strict=True) for pair in slot.pairs(result)]
            for key, (_, slot) in self.objects.items():
                pairs += slot.pairs(self.body.after[key][1])
        machine.aliasing.refuse_writes_of_earlier_steps(self.body.calls, machine.fakes, self.before)
        inputs = [self.step, *(leaf.inner for leaf, _ in pairs)]
        block = Block(self.body.calls, [self.again, *(result for _, result in pairs)], inputs)
        carried = [leaf.start() for leaf, _ in pairs]
        outputs = [machine.value(leaf.fake) for leaf, _ in pairs]
        args = {"most": _bound(most, self.done), "condition": condition, "carried": carried}
        machine.add(Call("prim::Loop", args, outputs, self.source, [block]))
        machine.remark(*self.body.remarks, *(f"in the loop at {self.source}: {text}" for text in self.body.merged))
        return self._leave(iter(outputs))

    def _leave(self, found: Iterator[AtenValue]) -> list[Any]:
        left = [slot.leave(found) for slot in self.slots]
        for item, slot in self.objects.values():
            self.machine.change(item, slot.leave(found), self.source)
        return left


def _bound(most: Any, done: int) -> Any:
    if not isinstance(most, int):
        return most
    return None if most >= _ENDLESS else most - done
