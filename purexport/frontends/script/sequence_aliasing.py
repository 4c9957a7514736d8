"""Which tensors may be elements of a list that is a value of the graph.

The elements of an ONNX sequence are copies, but the elements of a script's list are the tensors themselves.  An
in-place write to one of them would be visible in the script's list and not in the sequence.  Such a write is refused.
Tensors that may alias each other form a group.  A group stays marked once one of its tensors was put into such a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from purexport.aten.graph import AtenValue, Call, Source
from purexport.aten.memory import storage_of, written_by
from purexport.errors import ExportError
from purexport.frontends.script.values import FakeSequence


class SequenceAliasing:
    """Groups of tensors, by the storages of their fakes (which live as long as the interpretation)."""

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}
        self._places: dict[int, Source] = {}
        self.written: set[int | None] = set()  # storages

    def _group(self, fake: Any) -> int:
        tensor = fake.element if isinstance(fake, FakeSequence) else fake
        group = storage_of(tensor) or 0
        while group in self._groups:
            group = self._groups[group]
        return group

    def share(self, one: Any, other: Any) -> None:
        """Note that tensors with these fakes may alias each other."""
        mine, theirs = self._group(one), self._group(other)
        if mine != theirs:
            self._groups[theirs] = mine
            if theirs in self._places:
                self._places.setdefault(mine, self._places[theirs])

    def put(self, sequence: FakeSequence, item: Any, place: Source) -> None:
        """Note that an element is put into a list."""
        self.share(sequence, item)
        self._places.setdefault(self._group(sequence), place)

    def refuse_writes_of_earlier_steps(
        self, calls: Sequence[Call], fakes: Mapping[AtenValue, Any], before: int
    ) -> None:
        """Refuse writes in the body of a loop: an earlier step may have put the written tensor into a list.

        `before` is the number of values that existed when the body began; values made in the body are new at each step.
        """
        old = {storage_of(fake) for fake in islice(fakes.values(), before)} if self._places else set()
        for call in calls if old else ():
            if any(storage_of(fakes[value]) in old for value in written_by(call)):
                self.refuse_writes(call, fakes)
            for block in call.blocks:
                self.refuse_writes_of_earlier_steps(block.calls, fakes, before)

    def is_written(self, fake: Any) -> bool:
        """True when a call wrote to this tensor's storage."""
        return storage_of(fake) in self.written

    def note_writes(self, call: Call, fakes: Mapping[AtenValue, Any]) -> None:
        """Remember the storages that a call writes to.  Raises the errors of `refuse_writes`."""
        self.written.update(storage_of(fakes[value]) for value in written_by(call))
        self.refuse_writes(call, fakes)

    def refuse_writes(self, call: Call, fakes: Mapping[AtenValue, Any]) -> None:
        """Raise ExportError where a call writes in place to a tensor that may be an element of a list."""
        for value in written_by(call) if self._places else ():
            place = self._places.get(self._group(fakes[value]))
            if place is not None:
                raise ExportError(
                    f"{call.target} at {call.source} writes in place to a tensor that may be an element of the list at "
                    f"{place}, whose length depends on data; put a .clone() into the list, or assign a new tensor",
                    code="write-to-list-element",
                )
