"""Results of a graph that go to the model's outputs alone, directly or by way of elementwise operators.

Nothing needs the rank of such a result.  So a squeeze of an axis whose size only the run knows can be what torch
computes there: the file has the axis or not.  Everywhere else the rank must be known, and is that of the example.
"""

from __future__ import annotations

from collections.abc import Sequence

from purexport.aten.graph import AtenGraph, AtenValue, Call, TensorType

# of one tensor, with rules that take it whatever its rank
_NAMES = "abs add alias clone contiguous detach div exp log mul neg relu rsub sigmoid sqrt sub tanh to _to_copy"
_ELEMENTWISE = frozenset(f"aten::{name}" for name in _NAMES.split())


class Tails:
    """What becomes of the results of a graph's calls.  The graph is looked at when first asked."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph
        self._users: dict[AtenValue, list[Call]] | None = None

    def without_rank(self, value: AtenValue) -> Sequence[AtenValue]:
        """The result and all that follows from it, where nobody needs its rank; empty where an operator may need it."""
        users = self._all_users()
        found, left = [], [value]
        while left:
            item = left.pop()
            if item not in users or not isinstance(item.type, TensorType):
                return ()
            found.append(item)
            for call in users[item]:
                if not call.outputs:  # an assertion, which is not written
                    continue
                if call.base not in _ELEMENTWISE or call.blocks or list(call.inputs()) != [item]:
                    return ()
                left += call.outputs
        return found

    def _all_users(self) -> dict[AtenValue, list[Call]]:
        """The calls that use each result of a call; results of calls in blocks are left out."""
        if self._users is None:
            self._users = {value: [] for call in self.graph.calls for value in call.outputs}
            for call in self.graph.calls:
                for value in dict.fromkeys(call.inputs()):
                    self._users.get(value, []).append(call)
        return self._users
