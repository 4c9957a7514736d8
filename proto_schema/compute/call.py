"""`Call`: what a row of the table sees of one node beside the values of its inputs.

A tensor is a numpy array of the type that `dtypes.DTYPES[code].numpy` names: the type itself where numpy has it, else
a wider one that holds every value exactly (float32 for bfloat16 and the smaller floats, int8 or uint8 for the 4- and
2-bit integers). The code of the type goes beside the array (`dtype`), and whoever runs the row rounds its results to
the type that the operator's constraints say. So a row computes with plain arrays, and only an operator whose output
type no constraint tells (Cast, Constant, ...) returns `Typed`. A string tensor is an array of objects that are str.
A sequence is a list of values (`Typed` where an array does not tell its type), a map a dict, and an optional
without an element is `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.budget import Budget, Cost
from proto_schema.onnx import GraphProto
from proto_schema.operators import Occurrence, OpSchema
from proto_schema.tensors.dtypes import DTYPES

__all__ = ["NOTHING", "Array", "Body", "Call", "MisuseError", "Nothing", "Typed", "Value"]

Array: TypeAlias = npt.NDArray[Any]


class Nothing:
    """The value of an optional that has no element."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True)
class Typed:
    """A result with the code of its data type, for operators whose type constraints do not tell it."""

    array: Array
    dtype: int


Value: TypeAlias = "Array | Typed | list[Any] | dict[Any, Any] | Nothing | None"
Body: TypeAlias = Callable[[GraphProto, Sequence[Value]], list[Value]]
"""Runs the graph of an attribute on values for its inputs, in the scope of the node, and gives its outputs."""


class MisuseError(ValueError):
    """The inputs or attributes of a node contradict its specification. Whoever runs the row adds the node's name."""


class Call(Occurrence):
    """One node that is being computed: its operator's version, its attributes, and the types of its inputs."""

    __slots__ = ("attributes", "body", "budget", "dtypes", "kept", "outputs", "schema")

    def __init__(
        self,
        schema: OpSchema,
        attributes: Mapping[str, Any],
        dtypes: Sequence[int],
        outputs: Sequence[bool],
        body: Body | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`attributes` holds Python values: numbers, bytes, lists, TensorProto, GraphProto, TypeProto.

        `dtypes` has the code of each input, 0 for one that is absent or no tensor. `outputs` says for each output of
        the node whether it is wanted (its name is not empty). `budget` is what is left of the run.
        """
        self.schema = schema
        self.attributes = attributes
        self.dtypes = dtypes
        self.outputs = outputs
        self.body = body
        self.budget = budget
        self.kept = 0

    def dtype(self, place: int) -> int:
        """The code of an input's data type, 0 where it is absent or no tensor."""
        return self.dtypes[place] if place < len(self.dtypes) else 0

    def typed(self, place: int, value: Value) -> Value:
        """An input with its code where its array does not tell the type: for bodies, sequences and optionals."""
        code = self.dtype(place)
        if isinstance(value, np.ndarray) and code and not DTYPES[code].native and DTYPES[code].bits:
            return Typed(value, code)
        return value

    def wants(self, place: int) -> bool:
        """Whether the node names that output."""
        return place < len(self.outputs) and self.outputs[place]

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front. Raises MisuseError for one outside of the rank."""
        if not -rank <= value < rank:
            self.fail(f"axis {value} is outside of a tensor of rank {rank}")
        return value % rank if rank else 0

    def run(self, name: str, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of the graph in attribute `name` for these inputs."""
        graph = self.attribute(name)
        if self.body is None or not isinstance(graph, GraphProto):
            self.fail(f"{self.schema.name} needs a graph in its attribute {name!r}")
        return self.body(graph, inputs)

    def spend(self, work: int) -> None:
        """Units that only the values tell. Raises ExceededError where that is more than is left."""
        if self.budget is not None:
            self.budget.charge(Cost(work))

    def keep(self, size: int) -> None:
        """So many bytes more are held until the row returns. Raises ExceededError where that is more than is left."""
        if self.budget is not None:
            self.budget.hold(size)
            self.kept += size

    def fail(self, why: str) -> NoReturn:
        """Raise MisuseError: the node contradicts its specification."""
        raise MisuseError(why)
