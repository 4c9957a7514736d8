"""The bodies of branches and loops: what is recorded in them, and what they change outside of them.

A body may change lists, dicts, objects and attributes that were made before it.  Their content is saved at the first
change and put back after the body, so that the other side of a branch, or the next round of a loop, starts from it;
``Scope.after`` holds what the body left, for the join.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from purexport.aten.graph import Call, Source, Value
from purexport.capture.script.values import Changeable
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.record import Recorder


@dataclass
class Scope:
    """One body: its calls, the objects that it made itself, and those from outside with their content around it.

    ``first`` is the number of values that existed when it began.
    """

    calls: list[Call] = field(default_factory=list)
    made: dict[int, Any] = field(default_factory=dict)
    before: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    after: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    numbers: dict[str, Value] = field(default_factory=dict)
    first: int = 0

    def owns(self, item: Any) -> bool:
        """True when ``item`` was made in this body."""
        return id(item) in self.made


@contextmanager
def scope(run: Recorder, condition: Value | None = None, holds: bool = True) -> Iterator[Scope]:
    """Record into a body.  Numbers computed in it are not seen outside.

    ``condition`` is known in it to be ``holds``.
    """
    outer = run.graph.calls, run.scope, run.numbers, run.facts, run.remarks
    run.scope = inner = Scope(numbers=dict(run.numbers), first=len(run.fakes))
    run.graph.calls, run.numbers, run.remarks = inner.calls, inner.numbers, inner.remarks
    run.facts = dict(run.facts)
    if condition is not None:
        _learn(run, condition, holds)
    try:
        yield inner
    finally:
        run.graph.calls, run.scope, run.numbers, run.facts, run.remarks = outer
        for key, (item, content) in inner.before.items():
            inner.after[key] = (item, item.clone())
            item.become(content)


def _learn(run: Recorder, condition: Value, holds: bool) -> None:
    """Note a condition, and what it is made of: ``not a``, ``a and b`` that holds, ``a or b`` that does not."""
    run.facts[condition] = holds
    call = run.producers.get(condition)
    base = call.base if call is not None else ""
    if call is None or base not in ("aten::__not__", "aten::__and__", "aten::__or__"):
        return
    if base == "aten::__not__" or (base == "aten::__and__" and holds) or (base == "aten::__or__" and not holds):
        for operand in call.args.values():
            if isinstance(operand, Value):
                _learn(run, operand, holds is not (base == "aten::__not__"))


@contextmanager
def recording(run: Recorder, body: Scope) -> Iterator[None]:
    """Record further calls at the end of a body that is interpreted already."""
    outer, run.graph.calls = run.graph.calls, body.calls
    try:
        yield
    finally:
        run.graph.calls = outer


def touch(run: Recorder, item: Changeable, source: Source | str) -> None:
    """To be called before ``item`` changes.  Raises ExportError when it must not change."""
    if item.frozen:
        raise ExportError(
            f"the script changes a list or dict at {source} that may or may not be the one of another name, because of "
            f"{item.frozen}; change a copy (list(...)), or assign a new one",
            code="alias-unknown",
        )
    if run.scope is not None and not run.scope.owns(item):
        run.scope.before.setdefault(id(item), (item, item.clone()))


def adopt(run: Recorder, body: Scope, source: Source) -> None:
    """Make a body part of what surrounds it."""
    run.graph.calls.extend(body.calls)
    run.remarks.extend(body.remarks)
    run.numbers.update(body.numbers)
    if run.scope is not None:
        run.scope.made.update(body.made)
    for item, content in body.after.values():
        touch(run, item, source)
        item.become(content)
