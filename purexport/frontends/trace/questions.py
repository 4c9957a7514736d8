"""The questions of Python code that have no answer for all sizes and all data, for those who ask for both ways."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch

from purexport.aten.graph import Arg
from purexport.aten.graph import AtenValue as Value
from purexport.frontends.trace.tensors import Layout, Recorded


class Asked(NamedTuple):
    """A question: how many calls were before it, its answer as a value of the graph and for the example.

    `said` is what the user is told while there is one way only.
    """

    place: int
    condition: Value
    holds: bool
    line: str
    said: str


class Questions:
    """Those of one run; `owner` is the recorder.

    With `both` they are kept in `asked`, and in `sizes` those of values, with None for one that can change.  The
    questions whose numbers are `turned` have the other answer than for the example.
    """

    def __init__(self, owner: Any, both: bool, turned: Collection[int]) -> None:
        self.owner = owner
        self.both = both
        self.turned = turned
        self.asked: list[Asked] = []
        self.sizes: dict[Value, tuple[int | None, ...]] = {}

    def truth(self, tensor: Recorded) -> bool:
        """The truth value of the element of a tensor."""
        said = self.owner.note_data(tensor, "a truth value")
        found = bool(self.owner.elements.number_of(tensor))
        if said is None:
            return found

        def condition() -> Arg:
            if tensor.dtype == torch.bool:
                return tensor.value
            made: Recorded = self.owner.recorded(torch.ops.aten.ne.Scalar, (tensor, 0), {})
            return made.value

        return found is not self.is_turned(condition, found, said)

    def is_turned(self, condition: Callable[[], Arg], holds: bool, said: str) -> bool:
        """Note a question; whether it has the other answer in this run."""
        if not self.both or self.owner.depth or self.owner.rows.runs:
            return False
        value = condition()
        if not isinstance(value, Value):
            return False
        self.asked.append(Asked(len(self.owner.graph.calls), value, holds, self.owner.line(), said))
        return len(self.asked) - 1 in self.turned

    def note_sizes(self, value: Value, layout: Layout) -> None:
        """Note the sizes of a new value."""
        if self.both:
            self.sizes[value] = tuple(size if isinstance(size, int) else None for size in layout.sizes)
