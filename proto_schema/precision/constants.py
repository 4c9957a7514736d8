"""What a constant loses in another float type, and the constant in that type.

A number at or beyond `INFINITE` stands for infinity, as in masks; with operators that select or add, `MASK` is enough.
Such a number becomes the largest of the type. Any other number beyond the type's largest cannot be in it, and a
constant whose numbers are mostly too small for it loses more than `LOSS` of its norm. Both are found in one pass over
the elements, in bounded pieces, and a second one where the first cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.derived.cast import STEP, CastPayload
from proto_schema.derived.source import source_of
from proto_schema.external.payload import whole
from proto_schema.external.threads import in_order
from proto_schema.onnx import TensorProto
from proto_schema.precision.options import LARGEST
from proto_schema.quantization.codes.elements import singles, stored
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.wire.records import dataclass

INFINITE, MASK = 1e30, 1e9
LOSS = 0.03
_UNIT = {TensorProto.FLOAT16: 2.0**-11, TensorProto.BFLOAT16: 2.0**-8}  # of the relative error of a normal number
_TINY = {TensorProto.FLOAT16: 2.0**-25, TensorProto.BFLOAT16: 2.0**-133}  # of the absolute error of the others
_SMALL = 4 * STEP  # elements for which threads do not pay

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Fit:
    """How numbers fit into a type: `over` is the largest beyond it that does not stand for infinity, 0 where there is
    none, `masks` how many stand for infinity, `loss` the norm of the errors of all others over their norm.
    """

    over: float = 0.0
    masks: int = 0
    loss: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the numbers can be in the type."""
        return not self.over and self.loss <= LOSS


def fit_of(array: npt.NDArray[Any], code: int, infinite: float = INFINITE) -> Fit:
    """How the numbers of an array fit into a type."""
    return _joined([_exact(np.ravel(array).astype(np.float32, copy=False), code, infinite)])


def fit_of_tensor(tensor: TensorProto, code: int, infinite: float = INFINITE) -> Fit:
    """The same for a float32 tensor of any size. Raises what `source_of` raises where its data is not there."""
    source = source_of(tensor)

    def parts() -> Iterator[tuple[memoryview, int]]:
        return ((part, 0) for part in whole(source, STEP * 4, 4))

    alone = 1 if source.nbytes <= _SMALL * 4 else None
    largest, square, count = 0.0, 0.0, 0
    for top, norm, size in in_order(parts(), _quick, alone):
        largest, square, count = max(largest, top), square + norm, count + size
    kind = TensorProto.DataType(code)
    if largest <= LARGEST[kind]:
        bound = _UNIT[kind] * math.sqrt(square) + _TINY[kind] * math.sqrt(count)
        if not square or bound <= LOSS * math.sqrt(square):
            return Fit()

    def work(part: memoryview, _: int) -> tuple[float, int, float, float]:
        return _exact(singles(part, TensorProto.FLOAT), code, infinite)

    return _joined(list(in_order(parts(), work, alone)))


def _quick(part: memoryview, _: int) -> tuple[float, float, int]:
    """The largest magnitude (infinite for a NaN), the sum of squares, and how many elements there are."""
    values = np.frombuffer(part, "<f4")
    if not values.size:
        return 0.0, 0.0, 0
    largest = float(max(values.max(), -values.min()))
    if math.isnan(largest) or largest > INFINITE:
        return math.inf, 0.0, values.size
    with np.errstate(over="ignore"):
        return largest, float(np.dot(values, values)), values.size


def _exact(values: Floats, code: int, infinite: float) -> tuple[float, int, float, float]:
    """The largest beyond the type, how many stand for infinity, and the squares of errors and numbers."""
    finite = np.isfinite(values)
    sizes = np.abs(values)
    most = LARGEST[TensorProto.DataType(code)]
    beyond = finite & (sizes > most)
    masks = beyond & (sizes >= infinite)
    over = sizes[beyond & ~masks]
    inside = values[finite & ~beyond].astype(np.float64)
    errors = inside - rounded(inside.astype(np.float32), code)
    return (
        float(over.max(initial=0.0)),
        int(masks.sum()),
        float(np.dot(errors, errors)),
        float(np.dot(inside, inside)),
    )


def _joined(parts: list[tuple[float, int, float, float]]) -> Fit:
    errors, squares = (math.fsum(part[place] for part in parts) for place in (2, 3))
    loss = math.sqrt(errors / squares) if squares else 0.0
    return Fit(max((part[0] for part in parts), default=0.0), sum(part[1] for part in parts), loss)


def rounded(values: Floats, code: int) -> Floats:
    """Numbers as the type has them, in float32."""
    with np.errstate(over="ignore"):
        return singles(memoryview(stored(values, code).tobytes()), code)


def converted(tensor: TensorProto, code: int) -> TensorProto:
    """A float32 tensor in another type, whose bytes are made when they are written; numbers beyond it are its ends."""
    largest = LARGEST[TensorProto.DataType(code)]
    before = int(TensorProto.FLOAT)
    if element_count(tensor.dims) <= 64:
        values = singles(memoryview(source_of(tensor).tobytes()), before)
        values = np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(np.float32)
        data: Any = stored(values, code).tobytes()
    else:
        data = CastPayload(source_of(tensor), before, code, largest)
    return TensorProto(name=tensor.name, data_type=code, dims=list(tensor.dims), raw_data=data)


def nbytes(tensor: TensorProto) -> int:
    """The bytes of a tensor's elements."""
    row = DTYPES.get(tensor.data_type or 0)
    return 0 if row is None else row.nbytes(element_count(tensor.dims))
