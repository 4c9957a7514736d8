"""What forms write nodes with, whichever graph they write into, and what they ask of values.

A builder is the `op` of the exporter's rules or the `Writer` of the version converter. The caller of an operator gives
it in its newest form, and the builder writes what the opset of its graph has, by the rows of `table` where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from proto_schema.tensors.dtypes import DTYPES

Value: TypeAlias = Any
"""A value of the graph: `dtype`, `shape`, and of constants `array()`, `ints()` and `number()`."""

UINT8, INT8, UINT32, UINT64, DOUBLE, FLOAT16, BFLOAT16 = 2, 3, 12, 13, 11, 10, 16
FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9
FLOATS = frozenset((FLOAT, DOUBLE, FLOAT16, BFLOAT16))


class RefusedError(Exception):
    """Older operators cannot say the node; never leaves the package.

    `needs` is the opset that can, 0 where that is not known.
    """

    def __init__(self, reason: str, needs: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.needs = needs


class Operators(Protocol):
    """Operators are methods: `op.Mul(x, 0.5)`. A number takes the data type of the other inputs, a list is int64."""

    def __getattr__(self, op_type: str, /) -> Callable[..., Value]: ...

    def multi(self, op_type: str, *inputs: Any, outputs: int, **attributes: Any) -> Any:
        """An operator of several outputs."""

    def const(self, value: Any, dtype: int = ..., /) -> Value:
        """A constant: an array as it is, an integer as int64, or numbers rounded to the data type `dtype`."""

    def like(self, number: Any, value: Value, /) -> Value:
        """A constant without axes, of the data type of a value."""

    def cast(self, value: Value, dtype: int, /) -> Value:
        """The value in another data type; itself where it has that."""

    def dim(self, value: Value, axis: int, /) -> Any:
        """A size: a number where it cannot change, else an int64 value without axes."""

    def shape(self, value: Value, /) -> Value:
        """The shape as an int64 value of one axis."""

    def ints(self, items: Any, /) -> Any:
        """A list of sizes, as operators take it as an input."""

    def loop(self, count: Value, going: Value, step: Callable[..., Any], carried: Any, /) -> tuple[Value, ...]:
        """A Loop of at most `count` steps while `going`: `going, *carried = step(op, at, going, *carried)`."""

    def takes(self, op_type: str, dtype: int, /) -> bool:
        """Whether the version of the graph's opset takes that data type as the first input."""

    def runs(self, op_type: str, dtype: int, /) -> bool:
        """Whether it `takes` the data type, and the runtime has a kernel for it, where the graph is for one."""

    def is_at_least(self, value: Value, least: int, /) -> bool:
        """True where no element of a whole number or size can be below `least`."""

    def of_shape(self, value: Value, other: Value, /) -> Value:
        """The value, of which inference does not know that it has the shape of another one."""


def dtype_of(value: Value) -> int:
    """The data type of a value. Raises RefusedError where it is not known."""
    if not value.dtype:
        raise RefusedError("the data type of its input is not known")
    return int(value.dtype)


def rank_of(value: Value) -> int:
    """The rank of a value. Raises RefusedError where it is not known."""
    if value.shape is None:
        raise RefusedError("the rank of its input is not known")
    return len(value.shape)


def is_float(dtype: int) -> bool:
    """Whether a data type is a floating-point one of 16 bits or more."""
    return dtype in FLOATS


def is_integer(dtype: int) -> bool:
    """Whether a data type is an integer."""
    return dtype in DTYPES and "INT" in DTYPES[dtype].name


def is_unsigned(dtype: int) -> bool:
    """Whether a data type is an unsigned integer."""
    return dtype in DTYPES and DTYPES[dtype].name.startswith("UINT")
