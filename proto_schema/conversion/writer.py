"""`Writer`: what rows write nodes and constants with.

    half = op.Mul(x, 0.5)                        # a number becomes a constant of the data type of x
    y, count = op.multi("TopK", x, [3], outputs=2, axis=1)
    z = op.Reshape(y, [0, -1])                   # a list becomes an int64 constant of one axis

An operator is written in the form of its newest version; `op.at(12).Softmax(x)` writes that of opset 12. Whatever is
written is converted to the target in its turn, so a row need not know which opset that is. Types and shapes are
inferred as nodes are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np

from proto_schema import operators
from proto_schema.inference.types import SequenceOf, Tensor, Type
from proto_schema.ir import Graph, Value
from proto_schema.ir.operands import Operands
from proto_schema.legalization.operators import is_float, is_integer, is_unsigned
from proto_schema.onnx import TensorProto
from proto_schema.operators import OpSchema

Operand: TypeAlias = "Value | int | float | bool | list[int] | None"

INT64, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT


class Target(Protocol):
    """Where nodes are written to: the engine."""

    target: int

    def write(
        self,
        op_type: str,
        domain: str,
        version: int | None,
        inputs: list[Value | None],
        attributes: Mapping[str, Any],
        outputs: int,
        types: list[Type | None] | None = None,
    ) -> list[Value]: ...

    def constant(self, array: Any, dtype: int) -> Value: ...

    def fresh(self, base: str) -> str: ...

    def inside(self) -> AbstractContextManager[Graph]: ...

    def inlined(self, graph: Graph, items: Sequence[Value]) -> list[Value]: ...


class Writer(Operands):
    """Writes nodes into the graph that is being converted."""

    def __init__(self, graphs: Target, domain: str, version: int | None = None) -> None:
        self._graphs = graphs
        self._domain = domain
        self._version = version

    def at(self, version: int) -> Writer:
        """A writer of the forms that operators have at an opset."""
        return Writer(self._graphs, self._domain, version)

    def of(self, domain: str) -> Writer:
        """A writer of the operators of another domain."""
        return Writer(self._graphs, domain)

    @property
    def target(self) -> int:
        """The opset that is converted to. A row asks it only where several forms are exact and differ in cost."""
        return self._graphs.target

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        return super().__getattr__(op_type)

    def multi(self, op_type: str, *operands: Operand, outputs: int, **attributes: Any) -> list[Value]:
        """An operator of several outputs. Attributes that are None are left out."""
        return self._graphs.write(op_type, self._domain, self._version, self.values(operands), attributes, outputs)

    # -- constants

    def values(self, operands: Sequence[Operand]) -> list[Value | None]:
        """The operands as values: a number takes the data type of the first that has one."""
        model = next((item for item in operands if isinstance(item, Value)), None)
        found: list[Value | None] = []
        for item in operands:
            if item is None or isinstance(item, Value):
                found.append(item)
            elif isinstance(item, (list, tuple)):
                found.append(self.ints(item))
            elif model is None:
                raise TypeError("an operator of numbers alone has no data type")
            else:
                found.append(self.like(item, model))
        return found

    def scalar(self, number: int) -> Value:
        """An int64 constant without axes."""
        return self.const(np.array(number, np.int64))

    def const(self, array: Any, dtype: int = 0) -> Value:
        """A constant of an array, rounded to the data type `dtype`, or to the array's own."""
        return self._graphs.constant(np.asarray(array), dtype)

    # -- sizes

    def in_force(self, op_type: str) -> OpSchema | None:
        """The version of an operator at the target."""
        return operators.schema(op_type, self.target, self._domain)

    def size(self, value: Value, axis: int) -> Value:
        """One size of a value, as an int64 tensor of one element; a constant where it is known."""
        known = value.dim(axis)
        if isinstance(known, int):
            return self.ints([known])
        if axis < 0:
            if value.rank is None:
                return self.Slice(self.Shape(value), [axis], [axis + 1 or 1 << 62], [0])
            axis += value.rank
        return self.Slice(self.Shape(value), [axis], [axis + 1], [0])

    # -- graphs inside of nodes

    @contextmanager
    def body(self, *inputs: tuple[str, Type | None]) -> Iterator[Graph]:
        """The graph of a Loop, Scan or If, whose outputs the block sets: names for its inputs, and their types."""
        with self._graphs.inside() as graph:
            graph.inputs = [Value(self._graphs.fresh(name), type_) for name, type_ in inputs]
            yield graph
            graph.outputs = [
                self.Identity(item) if item.is_input or item.graph is not graph else item for item in graph.outputs
            ]
            graph.name = self._graphs.fresh("body")

    def loop(
        self, count: Value, going: Value, step: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> tuple[Value, ...]:
        """A Loop of at most `count` steps while `going`: `going, *carried = step(op, at, going, *carried)`."""
        types = [Tensor(item.dtype, item.shape) for item in carried]
        named = [("step", Tensor(INT64, ())), ("condition", Tensor(BOOL, ())), *(("carried", kind) for kind in types)]
        with self.body(*named) as body:
            number, *inner = body.inputs
            body.outputs = list(step(self, self.Unsqueeze(number, [0]), *inner))
        return tuple(self.looped("Loop", [count, going, *carried], types, body=body))

    def inlined(self, graph: Graph, items: Sequence[Value]) -> list[Value]:
        """The nodes of a graph of the file, which is converted, on values for its inputs."""
        return self._graphs.inlined(graph, items)

    def looped(
        self, op_type: str, operands: Sequence[Value | None], types: Sequence[Type | None], **attributes: Any
    ) -> list[Value]:
        """A node with bodies that were written here, and the types of its outputs."""
        return self._graphs.write(
            op_type, self._domain, self._version, list(operands), attributes, len(types), list(types)
        )


def sequence_of(dtype: int) -> SequenceOf:
    """The type of a sequence of tensors of any shapes."""
    return SequenceOf(Tensor(dtype))


__all__ = ["BOOL", "FLOAT", "INT64", "Operand", "Writer", "is_float", "is_integer", "is_unsigned", "operators"]
