"""The state of an interpretation, as a value: what is recorded and what is known in the current body.

The body of a branch or loop that depends on data is interpreted on a fork of the state.  The state around it does not
change until the handler of the branch or loop joins the results of the bodies.

Lists, dicts, objects and attributes have an identity, as in the script, so a fork cannot copy them.  Instead a fork
keeps an undo log: the content of an object is saved at the first change and restored at the end of the body.  So the
other side of a branch, or the next round of a loop, starts from the same content.  `after` keeps the content at the end
of the body for the join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from purexport.aten.graph import AtenValue, Call
from purexport.frontends.script.values import Changeable
from purexport.shapes.knowledge import Known


@dataclass
class ScriptState:
    """The environment (what each value of TorchScript holds), the calls of the body at hand, and what is known in it.

    `numbers` holds the computed numbers by the text of their symbols, `assumptions` the conditions whose side is known.
    The rest describes the body of a fork: `first` is the number of values that existed when it began, `made` are the
    objects that it made itself, `before` and `after` those from outside that it changed, with their content.
    `learnt` is what was known of sizes at its end, and `merged` says which axes were taken for one size in it.
    """

    env: dict[int, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    numbers: dict[str, AtenValue] = field(default_factory=dict)
    assumptions: dict[AtenValue, bool] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    is_fork: bool = False
    first: int = 0
    made: dict[int, Changeable] = field(default_factory=dict)
    before: dict[int, tuple[Changeable, Any]] = field(default_factory=dict)
    learnt: Known | None = None  # of sizes, in a body that may not run
    merged: list[str] = field(default_factory=list)
    after: dict[int, tuple[Changeable, Any]] = field(default_factory=dict)

    def fork(self, first: int) -> ScriptState:
        """The state at the start of a body: it knows all that is known here, and nothing is recorded yet."""
        return ScriptState(
            dict(self.env), [], dict(self.numbers), dict(self.assumptions), remarks=[], is_fork=True, first=first
        )

    def owns(self, item: Any) -> bool:
        """True when `item` was made in this body."""
        return id(item) in self.made

    def make(self, item: Changeable) -> None:
        """Note an object that is new here; in a fork it may change without an undo log."""
        if self.is_fork:
            self.made[id(item)] = item

    def save(self, item: Changeable) -> None:
        """Save the content of `item` in the undo log.  This must be called before `item` changes."""
        if self.is_fork and not self.owns(item):
            self.before.setdefault(id(item), (item, item.clone()))

    def put_back(self) -> None:
        """End the body: objects from outside get their former content back, and `after` keeps their final content."""
        for key, (item, content) in self.before.items():
            self.after[key] = (item, item.clone())
            item.become(content)

    def assume(self, condition: AtenValue, holds: bool, producers: Mapping[AtenValue, Call]) -> None:
        """Note a known condition, and the parts that follow: of `not a`, of a true `a and b`, of a false `a or b`."""
        self.assumptions[condition] = holds
        call = producers.get(condition)
        if call is not None and call.target == "prim::If":
            self._assume_sides(call, condition, holds, producers)
        base = call.base if call is not None else ""
        if call is None or base not in ("aten::__not__", "aten::__and__", "aten::__or__"):
            return
        if base == "aten::__not__" or (base == "aten::__and__" and holds) or (base == "aten::__or__" and not holds):
            for operand in call.args.values():
                if isinstance(operand, AtenValue):
                    self.assume(operand, holds is not (base == "aten::__not__"), producers)

    def _assume_sides(self, call: Call, condition: AtenValue, holds: bool, producers: Mapping[AtenValue, Call]) -> None:
        """Of a condition that a branch gave (Python's `and` and `or`): a side that gives the opposite did not run."""
        place = call.outputs.index(condition)
        given = [block.outputs[place] for block in call.blocks]
        for mine, other, side in ((given[0], given[1], True), (given[1], given[0], False)):
            if other is (not holds):
                self.assume(call.args["condition"], side, producers)
                if isinstance(mine, AtenValue):
                    self.assume(mine, holds, producers)
