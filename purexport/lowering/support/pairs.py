"""Complex tensors as pairs of real ones, since ONNX Runtime computes no complex numbers.

While the graph is built, a complex tensor is a `Pair`: its real and its imaginary part, two values of its shape. No
axis is added, so axes, broadcasting and sizes are those of torch, and an operator that moves elements moves those of
each part. A complex input or output of the graph is one real tensor with a last axis of size 2: torch's `view_as_real`.

A pair is not a `Value`: an ordinary rule cannot take one by accident, and the lowering never gives it one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.graph import Dim
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import dims_of, full


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A complex tensor: two values of one shape and one real dtype."""

    real: Value
    imag: Value

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape of both parts."""
        return self.real.shape

    @property
    def rank(self) -> int:
        """The number of dimensions. Raises ValueError when it is unknown."""
        return self.real.rank

    @property
    def dtype(self) -> int | None:
        """The dtype of each part, as an ONNX code."""
        return self.real.dtype

    def map(self, function: Callable[[Value], Value]) -> Pair:
        """The pair of `function` applied to each part."""
        return Pair(function(self.real), function(self.imag))


def part_code(dtype: torch.dtype) -> int:
    """The ONNX code of the parts of a complex dtype, FLOAT for complex64; for a real dtype its own code.

    Raises UnsupportedDtypeError for complex32, which torch itself has almost no kernels for.
    """
    return dtypes.onnx_code(dtype.to_real() if dtype in (torch.complex64, torch.complex128) else dtype)


def from_interleaved(op: Emitter, interleaved: Value) -> Pair:
    """The pair from a real value whose last axis holds the real and the imaginary part."""
    axis = interleaved.rank - 1
    return Pair(*(op.Gather(interleaved, op.const(place), axis=axis) for place in (0, 1)))


def to_interleaved(op: Emitter, pair: Pair) -> Value:
    """A pair as one real value with a last axis of size 2."""
    rank = pair.rank
    return op.Concat(*[op.Unsqueeze(part, [rank]) for part in (pair.real, pair.imag)], axis=rank)


def pair_of_constant(op: Emitter, tensor: torch.Tensor, name: str = "") -> Pair:
    """A complex tensor that the graph holds: one initializer with the bytes of the tensor itself."""
    return from_interleaved(op, op.const(torch.view_as_real(tensor.detach().resolve_conj()), name=name))


def pair_of_number(op: Emitter, value: complex, dtype: int) -> Pair:
    """A Python number as a pair of zero-dim constants."""
    value = complex(value)
    return Pair(op.const(value.real, dtype), op.const(value.imag, dtype))


def zero_part(op: Emitter, value: Value) -> Value:
    """Zeros in the shape and dtype of `value`."""
    return full(op, dims_of(op, value), 0, value.dtype or dtypes.FLOAT)


def operand(op: Emitter, item: Any, dtype: int) -> Pair | Value:
    """An operand of arithmetic, with parts of `dtype`. A real operand stays one value, so no zeros are
    computed for it.
    """
    if isinstance(item, Pair):
        return item.map(lambda part: op.cast(part, dtype))
    if isinstance(item, complex):
        return pair_of_number(op, item, dtype)
    return op.like(item, Value(dtype))


def pair_of(op: Emitter, item: Any, dtype: int) -> Pair:
    """A number, a real or a complex tensor as a pair with parts of `dtype`."""
    if isinstance(item, (bool, int, float, complex)):
        return pair_of_number(op, item, dtype)
    found = operand(op, item, dtype)
    return found if isinstance(found, Pair) else Pair(found, zero_part(op, found))
