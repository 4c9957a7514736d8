"""Functions of a model: graphs that nodes call by their name."""

from __future__ import annotations

from collections.abc import Iterable

from proto_schema.ir.graph import Graph, Value


class Function(Graph):
    """A function of the model. `opsets` are the versions that its body is written for."""

    __slots__ = ("domain", "opsets", "overload")

    def __init__(
        self,
        name: str = "",
        inputs: Iterable[Value] = (),
        outputs: Iterable[Value] = (),
        *,
        domain: str = "",
        overload: str = "",
    ) -> None:
        super().__init__(name, inputs, outputs)
        self.domain = domain
        self.overload = overload
        self.opsets: dict[str, int] = {}
