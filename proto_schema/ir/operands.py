"""What those who write nodes into a graph make of numbers, lists and sizes: `Builder`, and the converter's `Writer`.

With `multi` and `const`, which they have themselves, this is the protocol of `legalization.operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from proto_schema.inference.types import Tensor
from proto_schema.ir.graph import Value
from proto_schema.legalization.operators import RefusedError
from proto_schema.operators import OpSchema
from proto_schema.sizes import Size
from proto_schema.tensors.dtypes import DTYPES


class Operands:
    """Values, and Python numbers in their place."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            name = type(self).__name__
            raise AttributeError(f"{name} has no {op_type!r}; names of operators begin with a capital letter")
        return partial(self._single, op_type)

    def _single(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return self.multi(op_type, *inputs, outputs=1, **attributes)[0]

    def multi(self, op_type: str, *inputs: Any, outputs: int, **attributes: Any) -> Sequence[Value]:
        """An operator of several outputs. Attributes that are None are left out."""
        raise NotImplementedError

    def const(self, array: Any, dtype: int = 0) -> Value:
        """A constant of an array, rounded to the data type `dtype`, or to the array's own."""
        raise NotImplementedError

    def in_force(self, op_type: str) -> OpSchema | None:
        """The version of an operator at the opset that is written."""
        raise NotImplementedError

    # -- constants

    def ints(self, items: Sequence[Any]) -> Value:
        """Numbers and int64 values without axes as a list; an int64 constant of one axis where all are numbers."""
        if any(isinstance(item, Value) for item in items):
            return self.joined(*[self.Reshape(item, [1]) if isinstance(item, Value) else item for item in items])
        return self.const(np.array(list(items), np.int64))

    def like(self, number: float, value: Value) -> Value:
        """A constant without axes, of the data type of a value. Raises RefusedError where that is not known."""
        if not value.dtype:
            raise RefusedError(f"the data type of {value.name!r} is not known")
        return self.const(np.array(number), value.dtype)

    # -- data types and sizes

    def takes(self, op_type: str, dtype: int) -> bool:
        """Whether the version at the opset that is written takes that data type as the first input."""
        schema = self.in_force(op_type)
        text = f"tensor({DTYPES[dtype].text})"
        return schema is not None and text in schema.constraints.get(schema.inputs[0].type, (schema.inputs[0].type,))

    runs = takes  # a file is for any runtime

    def cast(self, value: Value, dtype: int) -> Value:
        """The value in another data type; itself where it has that."""
        return value if value.dtype == dtype else self.Cast(value, to=dtype)

    def dim(self, value: Value, axis: int) -> int | Value:
        """One size of a value: a number where it is known, else an int64 value without axes."""
        known = value.dim(axis)
        return known if isinstance(known, int) else self.Gather(self.Shape(value), self.const(np.array(axis)), axis=0)

    def shape(self, value: Value) -> Value:
        """The shape of a value, a constant where it is known."""
        sizes = value.sizes
        return self.Shape(value) if sizes is None else self.ints(sizes)

    @staticmethod
    def is_at_least(value: Value, least: int) -> bool:
        """True where no element of a whole number or size can be below `least`."""
        content = (value.type.content if isinstance(value.type, Tensor) else None) or (None,)
        lows = [item.low if isinstance(item, Size) else item for item in content]
        return all(isinstance(low, int) and low >= least for low in lows)

    @staticmethod
    def of_shape(value: Value, other: Value) -> Value:
        """The value, of which inference does not know that it has the shape of another one."""
        value.learn(Tensor(value.dtype, other.shape))
        return value

    def joined(self, *parts: Any) -> Value:
        """A list of sizes: numbers, lists, and int64 values of one axis, one after the other."""
        flat: list[Value | list[int]] = []
        for part in parts:
            items = part if isinstance(part, list) else [part] if isinstance(part, int) else None
            known = part.ints() if isinstance(part, Value) else items
            if known is not None and flat and isinstance(flat[-1], list):
                flat[-1].extend(known)
            elif known is not None:
                flat.append(list(known))
            elif isinstance(part, Value):
                flat.append(part)
        values = [self.ints(item) if isinstance(item, list) else item for item in flat]
        return values[0] if len(values) == 1 else self.Concat(*values, axis=0)
