"""The protocol of passes: `run(model) -> Changes`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping

from proto_schema.graphs.order import check_order
from proto_schema.ir import Changes, Model
from proto_schema.ir.opened import Given, message_of, opened


class Pass(ABC):
    """Something that is done to a model."""

    @abstractmethod
    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place; how often each thing was done, by name. Types of values may not be known yet."""

    def run(self, model: Given) -> Changes:
        """Run over a model. A `ps.ir.Model` is changed in place; of a message, bytes or a path `.model` is a new one.

        Raises CheckError for a message whose nodes are out of order or make a value twice, and what `ps.load` raises.
        """
        if not isinstance(model, Model):
            model = message_of(model)
            if model.graph is not None:
                check_order(model.graph)
        work, result = opened(model)
        counts = self.change(work)
        return Changes(result(), counts)


class Sequence(Pass):
    """Passes one after another, once each, or with `until_done` until none of them changes anything."""

    def __init__(self, passes: Iterable[Pass], *, until_done: bool = False) -> None:
        self.passes = tuple(passes)
        self.until_done = until_done

    def change(self, model: Model) -> Mapping[str, int]:
        """What all of them did. Raises RuntimeError where they undo each other's work for ever."""
        counts: Counter[str] = Counter()
        for _ in range(_ROUNDS if self.until_done else 1):
            before = counts.total()
            for item in self.passes:
                counts.update(item.change(model))
            if not self.until_done or counts.total() == before:
                return counts
        names = ", ".join(type(item).__name__ for item in self.passes)
        raise RuntimeError(f"the passes {names} still change the model after {_ROUNDS} rounds; run them once each")


_ROUNDS = 100
