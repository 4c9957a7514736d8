"""A stored tensor in another data type or with its axes in another order, made when it is written, in bounded pieces.

A cast goes through the source piece by piece. A transposed tensor needs its source at many places. A range of a file is
gathered (`strided`), and memory is viewed in another order. A source that can only be read from its beginning is held
in memory if it is small, and in a temporary file otherwise. A transposition of a cast becomes a cast of a
transposition, so that the rules above apply to the innermost source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from proto_schema.dtypes import DTYPES, type_name
from proto_schema.minifloat import FORMATS, bfloat16_codes
from proto_schema.onnx import TensorProto
from proto_schema.payload import CHUNK, FileRange, Payload, pieces
from proto_schema.tensors import to_array
from purexport.errors import WeightsError
from purexport.weights.arrays import MemoryPayload
from purexport.weights.stored import Stored, listed, shown
from purexport.weights.strided import Array, StridedPayload, blocks, is_contiguous, row_major

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
TARGETS = (FLOAT, FLOAT16, DOUBLE, BFLOAT16)
SOURCES = (*TARGETS, *(code for code in FORMATS if DTYPES[code].bits == 8))
STEP = 1 << 18  # elements that are converted at once
HELD = 1 << 24  # bytes of a source that is held in memory to be read in another order


def cast(stored: Stored, dtype: int) -> Stored:
    """The tensor's values as another float type, rounded to nearest, ties to even; NaN stays NaN.

    dtype: FLOAT, FLOAT16, BFLOAT16 or DOUBLE; the tensor must be of one of these or an 8-bit float type. As in torch, a
    value that the type cannot hold becomes infinite, and DOUBLE is rounded to FLOAT before a smaller type.
    Raises WeightsError for other types.
    """
    if dtype == stored.dtype:
        return stored
    if dtype not in TARGETS or stored.dtype not in SOURCES:
        pair = f"{type_name(stored.dtype)} to {type_name(dtype)}"
        known = listed([type_name(code) for code in TARGETS]).replace("'", "")
        raise WeightsError(
            f"tensor {shown(stored.name)}: {pair} is no cast between floats; it can become {known}",
            code="weights-do-not-fit",
        )
    payload = CastPayload(stored.payload, stored.dtype, dtype)
    return Stored(stored.name, dtype, stored.shape, payload, stored.origin)


def transposed(stored: Stored, permutation: Sequence[int]) -> Stored:
    """The tensor with its axes in another order: axis `i` of the result is axis `permutation[i]`.

    Raises WeightsError for what is no permutation of the axes, and for types of less than a byte.
    """
    axes = tuple(permutation)
    if sorted(axes) != list(range(len(stored.shape))):
        raise WeightsError(
            f"tensor {shown(stored.name)}: {shown(axes)} is no order of the axes of {list(stored.shape)}",
            code="weights-do-not-fit",
        )
    bits = DTYPES[stored.dtype].bits
    if bits < 8:
        raise WeightsError(
            f"tensor {shown(stored.name)}: {type_name(stored.dtype)} shares bytes between elements",
            code="weights-do-not-fit",
        )
    shape = tuple(stored.shape[axis] for axis in axes)
    payload = _transposed(stored.payload, bits // 8, stored.shape, axes)
    return Stored(stored.name, stored.dtype, shape, payload, stored.origin)


class CastPayload(Payload):
    """The elements of a payload, each as another type; as many bytes at a time as `STEP` elements have."""

    def __init__(self, source: Payload, before: int, after: int) -> None:
        self.source = source
        self.before = before
        self.after = after

    @property
    def nbytes(self) -> int:
        return self.source.nbytes // (DTYPES[self.before].bits // 8) * (DTYPES[self.after].bits // 8)

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self.source), source, self.before, self.after)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        width = DTYPES[self.before].bits // 8
        for part in _whole(self.source, STEP * width, width):
            yield from pieces(_converted(part, self.before, self.after), limit)


def _converted(data: memoryview, before: int, after: int) -> memoryview:
    count = data.nbytes // (DTYPES[before].bits // 8)
    values = to_array(TensorProto(data_type=before, dims=[count], raw_data=data))
    with np.errstate(over="ignore", invalid="ignore"):
        if after == BFLOAT16:
            return bfloat16_codes(values).astype("<u2", copy=False).view(np.uint8).data
        if values.dtype.itemsize == 8 and after == FLOAT16:
            values = values.astype(np.float32)
        return values.astype(DTYPES[after].numpy, copy=False).view(np.uint8).data


def _whole(source: Payload, size: int, width: int) -> Iterator[memoryview]:
    """The bytes of a payload in pieces of at most `size` that hold whole elements, however the source cuts them."""
    rest = b""
    for chunk in source.chunks(size):
        data = memoryview(rest + bytes(chunk)) if rest else chunk
        end = data.nbytes // width * width
        if end:
            yield data[:end]
        rest = bytes(data[end:])


def _transposed(source: Payload, width: int, shape: tuple[int, ...], axes: tuple[int, ...]) -> Payload:
    if isinstance(source, CastPayload):
        inner = _transposed(source.source, DTYPES[source.before].bits // 8, shape, axes)
        return CastPayload(inner, source.before, source.after)
    permuted: Callable[[Sequence[int]], Payload] | None = getattr(source, "permuted", None)
    if permuted is not None and getattr(source, "shape", None) == shape:
        return permuted(axes)
    steps = row_major(shape)
    if is_contiguous([shape[axis] for axis in axes], [steps[axis] for axis in axes]):
        return source
    if isinstance(source, FileRange) and isinstance(source.source, str):
        return StridedPayload(source, width, shape, steps).permuted(axes)
    return TransposedPayload(source, width, shape, axes)


class TransposedPayload(Payload):
    """The elements of a payload that is read from its beginning, with the axes of `shape` in another order."""

    def __init__(self, source: Payload, width: int, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
        self.source = source
        self.width = width
        self.source_shape = shape
        self.axes = axes

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.source_shape[axis] for axis in self.axes)

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self.source), source, self.width, self.source_shape, self.axes)

    def permuted(self, permutation: Sequence[int]) -> TransposedPayload:
        """The same with its axes in another order once more."""
        axes = tuple(self.axes[axis] for axis in permutation)
        return TransposedPayload(self.source, self.width, self.source_shape, axes)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        held = self.source.view if isinstance(self.source, MemoryPayload) else None
        if held is None and self.nbytes <= HELD:
            held = memoryview(self.source.tobytes())
        if held is not None:
            items = np.frombuffer(held, f"V{self.width}")
            yield from self._in_order(items.reshape(self.source_shape).transpose(self.axes), limit)
            return
        with tempfile.NamedTemporaryFile(prefix="purexport-") as file:
            for chunk in self.source.chunks():
                file.write(chunk)
            file.flush()
            base = FileRange(file.name, 0, self.nbytes)
            whole = StridedPayload(base, self.width, self.source_shape, row_major(self.source_shape))
            yield from whole.permuted(self.axes).chunks(limit)

    def _in_order(self, items: Array, limit: int) -> Iterator[memoryview]:
        for corner, shape in blocks(items.shape, max(limit // self.width, 1)):
            cut = tuple(slice(at, at + extent) for at, extent in zip(corner, shape, strict=True))
            block = np.ascontiguousarray(items[cut])
            if block.size:
                yield from pieces(block.reshape(-1).view(np.uint8).data, limit)
