"""One budget of work and memory for all that computes what a file says: inference, folding, the evaluator, calibration.

A few bytes of a file can ask for any amount of either. So whoever computes states the `Cost` first, and `Budget.charge`
is the one place that compares it with what is left. Past the budget inference knows nothing of a value, folding leaves
a node as it is, and the evaluator raises an error that names the node and `--budget`.

A unit of work is about a nanosecond of a processor: one simple operation on one element. A budget is given by its
memory; work is `RATE` units for each byte.
"""

from __future__ import annotations

from typing import TypeAlias

from proto_schema.wire.records import dataclass

__all__ = ["EVALUATION", "FOLDING", "INFERENCE", "NODE", "Budget", "BudgetLike", "Cost", "ExceededError", "budget_of"]

RATE = 64
NODE = 250_000
"""Units of a node, whatever it computes: all that is done around it."""

EVALUATION = 16 << 30
"""Bytes of a run of the evaluator, which no ordinary model needs."""
FOLDING = 128 << 20
"""Bytes for all that one simplification folds: what is cheap."""
INFERENCE = 256 << 20
"""Bytes for all nodes that one inference meets again, in calls of functions and in loops. The first time is free."""


class ExceededError(ValueError):
    """A cost is above what is left of a budget; the text says which of the two, and how much there is."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a node asks for before it runs: units of work, bytes of its results, and bytes that it needs meanwhile."""

    work: int = 0
    results: int = 0
    scratch: int = 0


class Budget:
    """How much work and memory may be asked for, and what is left of it.

    `memory` bounds the bytes that are held at a time, `work` all units together (None: 64 for each byte).
    """

    __slots__ = ("held", "left", "memory", "work")

    def __init__(self, memory: int = EVALUATION, work: int | None = None) -> None:
        """Raises ValueError for what is below 1."""
        self.memory = int(memory)
        self.work = self.memory * RATE if work is None else int(work)
        if self.memory < 1 or self.work < 1:
            raise ValueError(f"a budget is 1 byte or more, not {min(self.memory, self.work)}")
        self.left = self.work
        self.held = 0

    def fresh(self) -> Budget:
        """The same budget with nothing spent."""
        return Budget(self.memory, self.work)

    def charge(self, cost: Cost) -> None:
        """Spend the work of a cost. Raises ExceededError, and spends nothing, where the work or the memory is above
        what is left."""
        if cost.work > self.left:
            raise ExceededError(f"it needs {_shown(cost.work)} units of work, and {_shown(self.left)} are left")
        needed = self.held + cost.results + cost.scratch
        if needed > self.memory:
            raise ExceededError(f"it needs {_size(needed)} of memory, and the budget is {_size(self.memory)}")
        self.left -= cost.work

    def hold(self, size: int) -> None:
        """So many bytes are held from now on. Raises ExceededError where that is more than the memory."""
        if self.held + size > self.memory:
            raise ExceededError(
                f"{_size(self.held + size)} of results would be held, and the budget is {_size(self.memory)}"
            )
        self.held += size

    def release(self, size: int) -> None:
        """So many bytes are not held any more."""
        self.held -= size


BudgetLike: TypeAlias = "Budget | int | None"


def budget_of(given: BudgetLike, default: int = EVALUATION) -> Budget:
    """A budget, of so many bytes of memory if it is a number. None is the default. Raises ValueError."""
    return given if isinstance(given, Budget) else Budget(default if given is None else given)


def _shown(units: int) -> str:
    return str(units) if units < 10_000 else f"{float(min(units, 10**300)):.2g}"


def _size(size: int) -> str:
    if size < 1 << 20:
        return f"{size} bytes"
    unit, name = (1 << 30, "GiB") if size >= 1 << 30 else (1 << 20, "MiB")
    return f"{min(size, 10**30) / unit:.3g} {name}"
