"""What was changed in a model, counted by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proto_schema.ir.model import Model
    from proto_schema.onnx import ModelProto


class Changes(Mapping[str, int]):
    """How often each thing was done, by the name of the rule or pass: `changes["unused"]`. False if nothing was.

    `model` is the changed model: a `ps.ir.Model` that was given, changed in place, or a new message for a message or
    path. It shares with the message that was given what did not change.
    """

    __slots__ = ("_counts", "model")

    def __init__(self, model: Model | ModelProto, counts: Mapping[str, int]) -> None:
        self.model = model
        self._counts = {name: count for name, count in counts.items() if count}

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Changes({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in self._counts.items()) or "nothing"

    @property
    def total(self) -> int:
        """How many changes there are in all."""
        return sum(self._counts.values())
