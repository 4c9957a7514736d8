"""The elements of a payload with the axes of its tensor in another order, made when they are written.

A range of a file is gathered (`strided`), and memory is viewed in another order. A source that can only be read from
its beginning is held in memory if it is small, and in a temporary file otherwise. A transposition of a cast becomes a
cast of a transposition, and that of parts behind each other one of each part, or their rows in turns, so that the rules
above apply to the innermost source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from proto_schema.derived.cast import CastPayload
from proto_schema.derived.joined import JoinedPayload, TurnsPayload
from proto_schema.derived.strided import Array, StridedPayload, blocks, fill, is_contiguous, row_major
from proto_schema.external.payload import CHUNK, BytesLike, FileRange, MemoryPayload, Payload, pieces
from proto_schema.tensors.dtypes import DTYPES

HELD = 1 << 24  # bytes of a source that is held in memory to be read in another order


def permuted(source: Payload, width: int, shape: tuple[int, ...], axes: tuple[int, ...]) -> Payload:
    """A tensor of items of `width` bytes, in row-major order of `shape`, with axis `i` being its axis `axes[i]`."""
    if isinstance(source, CastPayload):
        inner = permuted(source.source, DTYPES[source.before].bits // 8, shape, axes)
        return CastPayload(inner, source.before, source.after)
    own: Callable[[Sequence[int]], Payload] | None = getattr(source, "permuted", None)
    if own is not None and getattr(source, "shape", None) == shape:
        return own(axes)
    steps = row_major(shape)
    if is_contiguous([shape[axis] for axis in axes], [steps[axis] for axis in axes]):
        return source
    if isinstance(source, JoinedPayload):
        found = _of_parts(source, width, shape, axes)
        if found is not None:
            return found
    if isinstance(source, FileRange) and isinstance(source.source, str):
        return StridedPayload(source, width, shape, steps).permuted(axes)
    return TransposedPayload(source, width, shape, axes)


def _of_parts(source: JoinedPayload, width: int, shape: tuple[int, ...], axes: tuple[int, ...]) -> Payload | None:
    """The parts in another order each, or row by row in turns; None where neither says it."""
    first, size = shape[0], source.nbytes // max(shape[0], 1)
    if axes[0] == 0 and size:
        groups: list[list[Payload]] = []
        left = 0  # bytes that the last group lacks
        for part in source.parts:
            if not left:
                groups.append([])
                left = -(-part.nbytes // size) * size
            groups[-1].append(part)
            left -= part.nbytes
            if left < 0:
                return None
        made = []
        for group in groups if len(groups) > 1 else ():
            whole = group[0] if len(group) == 1 else JoinedPayload(group)
            made.append(permuted(whole, width, (whole.nbytes // size, *shape[1:]), axes))
        if made:
            return JoinedPayload(made)
        if first == 1 and len(shape) > 2:
            return permuted(source, width, shape[1:], tuple(axis - 1 for axis in axes[1:]))
        return None
    alike = len(source.parts) == first and all(part.nbytes == size for part in source.parts)
    if alike and size and len(shape) > 2 and axes == (1, 0, *range(2, len(axes))):
        return TurnsPayload(source.parts, size // shape[1])
    return None


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

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source,)

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
            block = np.empty(shape, items.dtype)
            fill(block, items[cut])
            if block.size:
                yield from pieces(block.reshape(-1).view(np.uint8).data, limit)
