"""The fewest nodes in float32 with which the outputs stay within a tolerance.

Our evaluator runs both models: it rounds every result to its type, as a runtime with kernels of that type does, where
ONNX Runtime's CPU provider computes in float32. Nodes are ordered by how much of the difference comes with them, and
the shortest beginning of that order is found by halving. Then parts of it, from halves to single nodes (of a long one
to a 32nd), change back as long as the outputs allow it. A smaller answer of other nodes may exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.onnx import ModelProto
from proto_schema.reference import ReferenceEvaluator
from proto_schema.wire.records import dataclass

_PARTS = 32  # the least part of the answer that is tried alone, so that a search ends

Convert = Callable[[Sequence[int]], ModelProto]
Feeds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Found:
    """The numbers of the nodes of the main graph that stay, the difference with them, that without, and the runs."""

    nodes: tuple[int, ...]
    difference: float
    before: float
    runs: int


class Search:
    """One search over one model. `convert` gives the model with these nodes kept, its inputs as they are."""

    def __init__(
        self, model: ModelProto, convert: Convert, feeds: Feeds, tolerance: float, budget: BudgetLike = None
    ) -> None:
        self.model = model
        self.convert = convert
        self.feeds = feeds
        self.tolerance = tolerance
        self.budget = budget
        self.runs = 0
        self.wanted = [ReferenceEvaluator(model, budget=budget).run(None, dict(feed)) for feed in feeds]

    def run(self) -> Found:
        """Raises ValueError where the outputs are not within the tolerance, though all nodes stay."""
        before = self.difference(())
        if before <= self.tolerance:
            return Found((), before, before, self.runs)
        order = self._order()
        low, high = 0, len(order)  # `low` nodes are too few
        all_kept = self.difference(order)
        if all_kept > self.tolerance:
            raise ValueError(
                f"no choice of nodes brings the outputs within {self.tolerance:g} of their largest element: with all "
                f"of them in float32 the difference is {all_kept:.3g}; raise the tolerance"
            )
        while high - low > 1:
            middle = (low + high) // 2
            if self.difference(order[:middle]) <= self.tolerance:
                high = middle
            else:
                low = middle
        kept = self._without_idle(order[:high])
        return Found(tuple(sorted(kept)), self.difference(kept), before, self.runs)

    def _without_idle(self, nodes: list[int]) -> list[int]:
        """The nodes without those that are not needed, tried in parts."""
        size, least = len(nodes) // 2, max(len(nodes) // _PARTS, 1)
        while size >= least:
            place = 0
            while place < len(nodes):
                rest = nodes[:place] + nodes[place + size :]
                if self.difference(rest) <= self.tolerance:
                    nodes = rest
                else:
                    place += size
            size //= 2
        return nodes

    def difference(self, nodes: Sequence[int]) -> float:
        """The largest difference of an output with these nodes kept, as a part of its largest element.

        Past the tolerance the feeds that are left do not run.
        """
        self.runs += 1
        other = ReferenceEvaluator(self.convert(nodes), budget=self.budget)
        worst = 0.0
        for feed, wanted in zip(self.feeds, self.wanted, strict=True):
            for one, two in zip(wanted, other.run(None, dict(feed)), strict=True):
                worst = max(worst, apart(one, two))
            if worst > self.tolerance:
                break
        return worst

    def _order(self) -> list[int]:
        """The nodes of the main graph, those first whose results differ most beyond what they read."""
        graph = self.model.graph
        assert graph is not None  # a model that ran
        mine, theirs = self._inside(self.model), self._inside(self.convert(()))
        off = {name: apart(array, theirs[name]) for name, array in mine.items() if name in theirs}

        def brought(number: int) -> float:
            node = graph.node[number]
            read = max((off.get(name, 0.0) for name in node.input), default=0.0)
            return max((off.get(name, 0.0) for name in node.output), default=0.0) - read

        return sorted(range(len(graph.node)), key=brought, reverse=True)

    def _inside(self, model: ModelProto) -> dict[str, Any]:
        found: dict[str, Any] = {}
        evaluator = ReferenceEvaluator(model, budget=self.budget)
        evaluator.run(None, dict(self.feeds[0]), intermediate=found.__setitem__)
        return found


def apart(one: Any, two: Any) -> float:
    """The largest difference as a part of the largest element; 1 for results that are no floats and differ."""
    if isinstance(one, list) and isinstance(two, list):
        return max((apart(*pair) for pair in zip(one, two, strict=False)), default=0.0)
    if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray) or one.shape != two.shape:
        return 0.0 if one is two or np.array_equal(one, two) else 1.0
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, two) else 1.0
    mine, theirs = one.astype(np.float64), two.astype(np.float64)
    finite = np.isfinite(mine)
    if not np.array_equal(finite, np.isfinite(theirs)):
        return float("inf")
    largest = float(np.abs(mine[finite]).max(initial=0.0))
    worst = float(np.abs(mine[finite] - theirs[finite]).max(initial=0.0))
    return worst / largest if largest else worst
