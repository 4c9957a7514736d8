"""What inference says of every value, kept for a conversion.

The graph of the model and those inside of its nodes are recorded as inference leaves them. The body of a function is
inferred once for each kind of call; what all calls have in common is known of its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema.inference.types import OptionalOf, SequenceOf, Tensor, Type
from proto_schema.inference.walk import Values, Walk
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
from proto_schema.wire.collection import paused_collection


class Recorder(Walk):
    """Inference that keeps what it finds, by the identity of the list of nodes."""

    def __init__(self, model: ModelProto) -> None:
        super().__init__(model, strict=False, check=False, propagate=True)
        self.kept: dict[int, list[Values]] = {}

    def run(self) -> None:
        """Infer the whole model."""
        with paused_collection():
            super().run()

    def nodes(
        self,
        nodes: Sequence[NodeProto],
        values: Values,
        declared: Mapping[str, ValueInfoProto],
        opsets: Mapping[str, int],
        references: Mapping[str, Any],
        depth: int,
        declare: bool,
    ) -> None:
        """The same, recorded. Only the last of several tries of a body counts."""
        super().nodes(nodes, values, declared, opsets, references, depth, declare)
        if depth:
            self.kept.setdefault(id(nodes), []).append(values)
        elif declare:
            self.kept[id(nodes)] = [values]
        else:
            self.kept.setdefault(id(nodes), [values])

    @staticmethod
    def _declare_values(graph: GraphProto, values: Values) -> None:
        """A conversion declares nothing that was not declared."""


def frame_type(known: Sequence[Values], name: str) -> Type | None:
    """What all calls have in common of a value's type."""
    first = known[0].get(name)
    for values in known[1:]:
        first = common(first, values.get(name))
    return first


def common(one: Type | None, other: Type | None) -> Type | None:
    """What is known of a value that is of one type in one call and of the other in the next."""
    if one is None or other is None or one == other:
        return one if one == other else None
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype:
            return None
        shape = None
        if one.shape is not None and other.shape is not None and one.shape == other.shape:
            shape = one.shape
        return Tensor(one.dtype, shape)
    if isinstance(one, SequenceOf) and isinstance(other, SequenceOf):
        return SequenceOf(common(one.element, other.element))
    if isinstance(one, OptionalOf) and isinstance(other, OptionalOf):
        return OptionalOf(common(one.element, other.element))
    return None
