"""Which tensors may be elements of a list that is a value of the graph.

The elements of an ONNX sequence are copies, those of a script's list are the tensors themselves: a write in place to
one of them would be seen in the script's list, and not in the sequence.  Such a write is refused.  Tensors that may
share storage are of one group; a group stays listed once one of its tensors was put into such a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from purexport.aten.graph import Call, Source, Value
from purexport.aten.memory import storage_of, written_by
from purexport.capture.script.values import FakeSequence
from purexport.errors import ExportError


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
        """Tensors with these fakes may share storage."""
        mine, theirs = self._group(one), self._group(other)
        if mine != theirs:
            self._groups[theirs] = mine
            if theirs in self._places:
                self._places.setdefault(mine, self._places[theirs])

    def put(self, sequence: FakeSequence, item: Any, place: Source) -> None:
        """An element is put into a list."""
        self.share(sequence, item)
        self._places.setdefault(self._group(sequence), place)

    def refuse_writes_of_earlier_steps(self, calls: Sequence[Call], fakes: Mapping[Value, Any], before: int) -> None:
        """The same for the body of a loop: what a step writes, the step before may have put into a list.

        `before` is the number of values that existed when the body began; what the body makes is new at every step.
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

    def note_writes(self, call: Call, fakes: Mapping[Value, Any]) -> None:
        """Remember what a call writes to.  Raises as `refuse_writes`."""
        self.written.update(storage_of(fakes[value]) for value in written_by(call))
        self.refuse_writes(call, fakes)

    def refuse_writes(self, call: Call, fakes: Mapping[Value, Any]) -> None:
        """Raise ExportError where a call writes in place to what may be an element of a list."""
        for value in written_by(call) if self._places else ():
            place = self._places.get(self._group(fakes[value]))
            if place is not None:
                raise ExportError(
                    f"{call.target} at {call.source} writes in place to a tensor that may be an element of the list at "
                    f"{place}, whose length depends on data; put a .clone() into the list, or assign a new tensor",
                    code="write-to-list-element",
                )
