"""A quantized weight as payloads: codes, scales and zero points out of one pass over the source.

The source is read in order, in pieces of whole blocks. Some threads compute them (numpy lets go of the interpreter),
and the results are taken in order. So the bytes do not depend on the number of threads, and memory holds few pieces. A
pass for the codes keeps the scales and zero points, which a file has right behind the codes, until they are written.
Where only they are asked for, the source is read again.

A block lies along the rows of a matrix, or across them, as in the [K, N] of a MatMul. Where one scale serves a whole
column, or a scale of the scales is wanted, the source is read once before. An algorithm that looks at whole columns
has the whole of a weight that lies across as one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.errors import UnreadableDataError
from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view, pieces
from proto_schema.external.threads import in_order
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes import floats, integers
from proto_schema.quantization.codes.compensated import compensated
from proto_schema.quantization.codes.elements import cut, extended, filled, packed, singles, stored
from proto_schema.quantization.codes.integers import Grid, Rounding, Rules
from proto_schema.quantization.codes.searching import SEARCHES
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.records import dataclass

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]

PIECE = 1 << 18  # elements of a piece: some of them fit into a cache
_WIDER = 3  # and where an algorithm goes through a row element by element, more rows at once are quicker

CODES, SCALES, ZEROS = range(3)


@dataclass(frozen=True)
class Layout:
    """How a weight lies and what becomes of it.

    `rows` of `length` elements, and behind each other `batches` of these matrices. With `across` a block goes across
    the rows, else along them. `block` elements have a scale, or with 0 a whole channel; with batches across rows it is
    not 0. `padded`: codes are unsigned, each row of codes and of zero points begins a byte of its own, and codes go on
    to the end of the last block, as MatMulNBits wants it. Zero points of whole channels lie behind each other, as QMoE
    has them.
    """

    rows: int
    length: int
    block: int
    rounding: Rounding
    across: bool = False
    batches: int = 1
    padded: bool = False

    @property
    def summed(self) -> int:
        """The number of elements that a product sums over."""
        return self.rows if self.across else self.length

    @property
    def blocks(self) -> int:
        """The number of blocks of one output channel."""
        return -(-self.summed // self.block) if self.block else 0

    @property
    def channels(self) -> int:
        """The number of output channels of all batches."""
        return self.batches * (self.length if self.across else self.rows)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return self.batches * self.rows * self.length


@dataclass(frozen=True)
class _Piece:
    """What became of a piece of the source; codes are elements where a piece may end within a byte."""

    codes: bytes | Array
    scales: Array
    zeros: Array | None
    error: float = 0.0  # the sum of the squared differences
    power: float = 0.0  # the sum of the squares
    numbers: Floats | None = None  # what the codes stand for, where it was asked for


@dataclass(frozen=True)
class WeightFit:
    """What an algorithm has for a weight; functions know its inputs, and are called when the weight is read.

    `factors` multiply what a product sums over (AWQ). `spread` spreads the error of an element over those behind it
    (GPTQ): the upper triangle U of U.T @ U = inv(X.T @ X). `exact_zeros`: zero points are floats, of the type of the
    scales (HQQ).
    """

    factors: Callable[[], Floats] | None = None
    spread: Callable[[], Floats] | None = None
    exact_zeros: bool = False


class Quantized:
    """A weight in a scheme: `codes`, `scales` and `zeros` are payloads; `whole` the scale of the scales, or None."""

    def __init__(
        self,
        name: str,
        source: Payload,
        dtype: int,
        layout: Layout,
        scheme: Scheme,
        scale_dtype: int,
        fit: WeightFit | None = None,
    ) -> None:
        """`dtype` is that of the source, `scale_dtype` that of integers' scales (FLOAT, FLOAT16 or BFLOAT16)."""
        self.fit = fit
        self.name = name
        self.source = source
        self.dtype = dtype
        self.layout = layout
        self.scheme = scheme
        self.scale_dtype = scheme.kind.scales or scale_dtype
        self._kept: dict[int, list[bytes]] = {}
        count = layout.channels * (layout.blocks or 1)
        self.codes: Payload = QuantizedPart(self, CODES, self._codes_size())
        self.scales: Payload = QuantizedPart(self, SCALES, DTYPES[self.scale_dtype].nbytes(count))
        # where no zero point is written, DequantizeLinear takes 0, which is not the middle of an unsigned type
        written = scheme.has_zero_points or not (scheme.kind.signed or layout.padded)
        self.zeros: Payload | None = QuantizedPart(self, ZEROS, self._zeros_size(count)) if written else None
        self._grid = Grid(scheme.kind.bits, scheme.kind.signed and not layout.padded)
        self._limits: integers.Extremes | None = None
        self._whole: float | None = None
        self._factors: Floats | None = None
        self._spread: Floats | None = None

    @property
    def exact_zeros(self) -> bool:
        """Whether zero points are floats."""
        return self.fit is not None and self.fit.exact_zeros

    # -- sizes

    def _codes_size(self) -> int:
        layout, bits = self.layout, self.scheme.kind.bits
        if layout.padded:
            return layout.channels * ((layout.blocks * layout.block or layout.length) * bits // 8)
        return (layout.elements * bits + 7) // 8

    def _zeros_size(self, count: int) -> int:
        layout, bits = self.layout, self.scheme.kind.bits
        if self.exact_zeros:
            return DTYPES[self.scale_dtype].nbytes(count)
        if layout.padded and layout.block:
            return layout.channels * ((layout.blocks * bits + 7) // 8)
        return (count * bits + 7) // 8

    # -- passes

    @property
    def whole(self) -> float | None:
        """The scale of the scales, for which the source is read; None where they need none."""
        if self.scheme.kind.scales != floats.E4M3:
            return None
        if self._whole is None:
            self._whole = floats.whole_scale(self._magnitude(), self.scheme.kind.code)
        return self._whole

    def error(self) -> float:
        """The root of the squared differences over that of the squares, of all elements; 0 for a weight of zeros."""
        differences = powers = 0.0
        for piece in self._run(measured=True):
            differences += piece.error
            powers += piece.power
        return float(np.sqrt(differences / powers)) if powers else 0.0

    def numbers(self) -> Iterator[Floats]:
        """What the codes stand for, in the order of the source."""
        for piece in self._run(measured=True):
            if piece.numbers is not None:
                yield piece.numbers

    def parts(self, wanted: int) -> Iterator[bytes]:
        """The bytes of codes, scales or zero points."""
        if wanted != CODES and wanted in self._kept:
            yield from self._kept.pop(wanted)
            return
        codes, zeros = _Joined(self.scheme.kind.bits), _Joined(self.scheme.kind.bits)
        kept: dict[int, list[bytes]] = {SCALES: [], ZEROS: []}
        for piece in self._run():
            parts = (
                (CODES, piece.codes if isinstance(piece.codes, bytes) else codes.bytes_of(piece.codes)),
                (SCALES, self._scale_bytes(piece.scales)),
                (ZEROS, b"" if piece.zeros is None else self._zero_bytes(piece.zeros, zeros)),
            )
            for part, data in parts:
                if part == wanted:
                    yield data
                elif wanted == CODES:
                    kept[part].append(data)
        rest = zeros.rest()
        if wanted == ZEROS:
            yield rest
        elif wanted == CODES:
            yield codes.rest()
            kept[ZEROS].append(rest)
            self._kept = kept

    def _scale_bytes(self, scales: Array) -> bytes:
        """Those of blocks of floats may be codes already."""
        return (scales if scales.dtype == np.uint8 else stored(scales, self.scale_dtype)).tobytes()

    def _zero_bytes(self, zeros: Array, joined: _Joined) -> bytes:
        if self.exact_zeros:
            return stored(zeros, self.scale_dtype).tobytes()
        if not (self.layout.padded and self.layout.block):
            return joined.bytes_of(zeros)
        bits = self.scheme.kind.bits
        return packed(filled(zeros, 8 // bits, 1 << bits - 1), bits)

    def _run(self, *, measured: bool = False) -> Iterator[_Piece]:
        layout = self.layout
        whole = self.whole
        if self.fit is not None:
            self._factors = None if self.fit.factors is None else self.fit.factors()
            self._spread = None if self.fit.spread is None else self.fit.spread()
        if layout.across and not layout.block and not self._is_one_piece:
            self._limits = self._column_extremes()

        def work(data: memoryview, first: int) -> _Piece:
            return self._piece(data, first, whole, measured)

        try:
            yield from in_order(self._pieces(), work, self.scheme.threads)
        except UnreadableDataError:
            raise
        except ValueError as error:
            raise ValueError(
                f"weight {self.name!r} cannot be quantized: {error}; leave it out with exclude={self.name!r}"
            ) from error
        finally:
            self._factors = self._spread = None

    @property
    def _is_one_piece(self) -> bool:
        """Whether whole columns are looked at."""
        fit = self.fit is not None and self.fit.spread is not None
        return self.layout.across and (fit or (not self.layout.block and self._search is not None))

    @property
    def _search(self) -> integers.Search | None:
        return SEARCHES.get("clip" if self.scheme.clip else self.scheme.algorithm)

    def slabs(self) -> Iterator[Floats]:
        """The weight as [summed elements, some output channels], in order."""
        layout = self.layout
        if not layout.across:
            for data, _ in self._pieces():
                yield np.ascontiguousarray(singles(data, self.dtype).reshape(-1, layout.length).T)
            return
        values = singles(memoryview(self.source.tobytes()), self.dtype).reshape(-1, layout.length)
        step = max(PIECE // max(layout.rows, 1), 1)
        for first in range(0, layout.length, step):
            yield np.ascontiguousarray(values[:, first : first + step])

    def rounded(self, slab: Floats) -> Floats:
        """What the codes of a slab stand for, without the algorithm."""
        block = self.layout.block or len(slab)
        blocks = extended(slab, 0, block).reshape(-1, block, slab.shape[1])
        found = integers.in_blocks(blocks.copy(), 1, self._rules)
        wide = found.scales[:, None], found.zeros[:, None]
        made: Floats = (integers.numbers(found.codes, self._grid) - wide[1]) * wide[0]
        return made.reshape(-1, slab.shape[1])[: len(slab)]

    @property
    def _rules(self) -> Rules:
        scheme = self.scheme
        return Rules(self._grid, self.layout.rounding, scheme.has_zero_points, self._rounded_scales, self.exact_zeros)

    def _pieces(self) -> Iterator[tuple[memoryview, int]]:
        """The bytes of pieces, and the number of the row that each begins with, of its own matrix where across."""
        layout, width = self.layout, DTYPES[self.dtype].bits // 8
        if not layout.across:
            unit = 1 if layout.padded else 8 // min(self.scheme.kind.bits, 8)
            most = PIECE if self._spread is None else PIECE << _WIDER
            rows = max(most // max(layout.length, 1) // unit, 1) * unit
            size, total = rows * layout.length * width, self.source.nbytes
            sizes = [min(size, total - at) for at in range(0, total, size)] if size else []
            for number, data in enumerate(cut(self.source.chunks(), sizes)):
                yield data, number * rows
            return
        step = layout.block or 8
        rows = layout.rows if self._is_one_piece else max(PIECE // max(layout.length, 1) // step, 1) * step
        matrix = layout.rows * layout.length * width
        sizes = [min(rows, layout.rows - first) for first in range(0, layout.rows, rows)]
        stream = cut(self.source.chunks(), [size * layout.length * width for size in sizes] * layout.batches)
        if matrix:
            for number, data in enumerate(stream):
                yield data, number % len(sizes) * rows

    def _piece(self, data: memoryview, first: int, whole: float | None, measured: bool) -> _Piece:
        values = singles(data, self.dtype).reshape(-1, self.layout.length)
        original = values.copy() if measured else None
        factors = self._factors_at(first, len(values))
        if factors is not None:
            values *= factors
        blocks, axis = self._arranged(values)
        if self.scheme.kind.family == "float":
            codes, scales, zeros, numbers = self._in_floats(blocks, axis, whole or 0.0, measured)
        else:
            codes, scales, zeros, numbers = self._in_integers(blocks, axis, measured)
        error = power = 0.0
        found: Floats | None = None
        if original is not None and numbers is not None:
            found = self._flat(numbers, original.shape)
            found = found if factors is None else found / factors
            error = float(np.square(found - original, dtype=np.float64).sum())
            power = float(np.square(original, dtype=np.float64).sum())
        if self.layout.across and not self.layout.block and first:  # the first piece of rows has told them
            scales, zeros = scales[:0], None if zeros is None else zeros[:0]
        return _Piece(self._packed(codes, values.shape), scales, zeros, error, power, found)

    def _factors_at(self, first: int, rows: int) -> Floats | None:
        """The factors of a piece, which broadcast against it."""
        if self._factors is None:
            return None
        return self._factors[first : first + rows, None] if self.layout.across else self._factors[None]

    def _arranged(self, values: Floats) -> tuple[Floats, int]:
        """The piece with its blocks along an axis; what a last block lacks is zeros, which change no range."""
        layout = self.layout
        rows, length = values.shape
        if layout.across:
            block = layout.block or rows
            full = extended(values, 0, block)
            return full.reshape(-1, block, length), 1
        block = layout.block or length
        return extended(values, 1, block).reshape(rows, -1, block), 2

    def _flat(self, blocks: Array, shape: tuple[int, ...]) -> Array:
        """The piece again as it lies in the source, without what was added."""
        rows, length = shape
        if self.layout.across:
            return blocks.reshape(-1, length)[:rows]
        return blocks.reshape(rows, -1)[:, :length]

    def _in_integers(
        self, blocks: Floats, axis: int, measured: bool
    ) -> tuple[npt.NDArray[np.uint8], Array, Array | None, Floats | None]:
        limits = self._limits if self.layout.across and not self.layout.block else None
        search = self._search if limits is None else None
        if self._spread is not None:
            found = compensated(blocks, axis, self._spread, self._rules, search)
        else:
            whole = None if limits is None else (limits[0][None], limits[1][None])
            found = integers.in_blocks(blocks, axis, self._rules, search, whole)
        zeros = found.zeros if self.exact_zeros else integers.as_codes(found.zeros, self._grid)
        numbers = None
        if measured:
            wide = np.expand_dims(found.scales, axis), np.expand_dims(found.zeros, axis)
            numbers = (integers.numbers(found.codes, self._grid) - wide[1]) * wide[0]
        return found.codes, found.scales, None if self.zeros is None else zeros, numbers

    def _in_floats(
        self, blocks: Floats, axis: int, whole: float, measured: bool
    ) -> tuple[npt.NDArray[np.uint8], Array, None, Floats | None]:
        kind = self.scheme.kind
        magnitudes = np.abs(blocks).max(axis)
        if self.layout.across and not self.layout.block and self._limits is not None:
            magnitudes = np.maximum(-self._limits[0], self._limits[1])[None]
        kept, scales = floats.scales_of(magnitudes, kind.code, kind.scales, whole)
        if not kind.scales:
            kept = scales = self._rounded_scales(scales)
        wide = np.expand_dims(scales, axis)
        codes = floats.encoded(blocks, wide, kind.code)
        return codes, kept, None, floats.values_of(codes, kind.code) * wide if measured else None

    def _rounded_scales(self, scales: Floats) -> Floats:
        """The scales as the file holds them."""
        if self.scale_dtype == TensorProto.BFLOAT16:
            kept = memoryview(stored(scales, self.scale_dtype).tobytes())
            return singles(kept, self.scale_dtype).reshape(scales.shape)
        return scales.astype(DTYPES[self.scale_dtype].numpy).astype(np.float32)

    def _packed(self, codes: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> bytes | Array:
        bits = self.scheme.kind.bits
        if self.layout.batches > 1 and bits < 8:
            return self._flat(codes, shape).reshape(-1)  # the next matrix may begin within a byte
        if not self.layout.padded:
            return packed(self._flat(codes, shape).reshape(-1), bits)
        rows, length = shape
        flat = codes.reshape(rows, -1)
        flat[:, length:] = 0  # ONNX Runtime's quantizer leaves anything in the rest of the last byte
        return packed(flat, bits)

    def _column_extremes(self) -> integers.Extremes:
        """The least and the greatest of each column of all rows."""
        least = np.full(self.layout.length, np.inf, np.float32)
        greatest = np.full(self.layout.length, -np.inf, np.float32)

        def work(data: memoryview, first: int) -> integers.Extremes:
            values = singles(data, self.dtype).reshape(-1, self.layout.length)
            factors = self._factors_at(first, len(values))
            return integers.extremes(values if factors is None else values * factors, 0)

        for low, high in in_order(self._pieces(), work, self.scheme.threads):
            least, greatest = np.minimum(least, low), np.maximum(greatest, high)
        return least, greatest

    def _magnitude(self) -> float:
        def work(data: memoryview, first: int) -> float:
            return float(np.abs(singles(data, self.dtype)).max())

        return max(in_order(self._pieces(), work, self.scheme.threads), default=0.0)


class QuantizedPart(Payload):
    """One of the three payloads."""

    def __init__(self, owner: Quantized, part: int, size: int) -> None:
        self.owner = owner
        self.part = part
        self.size = size

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def identity(self) -> object:
        owner = self.owner
        by_samples = owner.fit is not None and not owner.fit.exact_zeros
        source = None if by_samples else owner.source.identity
        return (
            None
            if source is None
            else (source, owner.dtype, owner.layout, owner.scheme, owner.scale_dtype, owner.exact_zeros, self.part)
        )

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.owner.source,)

    @property
    def together(self) -> object:
        return id(self.owner)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises ValueError, with the weight's name, for numbers that cannot be quantized."""
        for data in self.owner.parts(self.part):
            if data:
                yield from pieces(byte_view(data), limit)


class _Joined:
    """Elements of less than a byte that come in pieces: what does not fill a byte waits for the next piece."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.waiting = np.empty(0, np.uint8)

    def bytes_of(self, elements: Array) -> bytes:
        if self.bits >= 8:
            return elements.tobytes()
        together = np.concatenate([self.waiting, elements.reshape(-1)])
        end = together.size // (8 // self.bits) * (8 // self.bits)
        self.waiting = together[end:]
        return packed(together[:end], self.bits)

    def rest(self) -> bytes:
        return packed(self.waiting, self.bits)
