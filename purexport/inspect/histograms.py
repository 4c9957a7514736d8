"""How the values of a tensor of any size are distributed, without holding the tensor.

Strategy: blocks of a few thousand values are read twice, once for the range and once for the counts. Beyond a limit of
bytes the blocks are an evenly spread sample, and the result says how many values were seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import proto_schema as ps
from proto_schema.external.datafiles import payload_of
from proto_schema.external.payload import contiguous
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, DType, element_count

BINS = 40
_BLOCK = 3 << 14  # bytes; a multiple of the bytes of 128-bit values and of 6-bit values


@dataclass(frozen=True)
class Histogram:
    """Of `total` values `seen` were read; `odd` of these are NaN or infinite and count in nothing else.

    `counts` are bins of equal width from `low` to `high`, both included; for a few whole numbers, one bin per number.
    """

    low: float
    high: float
    mean: float
    std: float
    zeros: int
    odd: int
    seen: int
    total: int
    counts: tuple[int, ...]


def histogram(tensor: TensorProto, limit: int | None = None) -> Histogram | None:
    """The distribution of a tensor's values; None for texts, complex numbers, unknown types and tensors without values.

    About `limit` bytes of raw or external data are read at most, unless it is None. Raises ValueError
    (ExternalDataError) or TypeError if the values cannot be read.
    """
    import numpy as np

    row = DTYPES.get(tensor.data_type or 0)
    total = element_count(tensor.dims)
    if row is None or not row.bits or row.numpy.startswith("<c") or not total:
        return None
    seen = zeros = odd = 0
    low, high, sums, squares = math.inf, -math.inf, 0.0, 0.0
    for block in _blocks(tensor, row, total, limit):
        finite = block[np.isfinite(block)]
        seen, odd = seen + block.size, odd + block.size - finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            zeros += int(finite.size - np.count_nonzero(finite))
            with np.errstate(over="ignore"):
                sums, squares = sums + float(finite.sum()), squares + float((finite * finite).sum())
    kept = seen - odd
    if not kept:
        return Histogram(0.0, 0.0, 0.0, 0.0, 0, odd, seen, total, ())
    mean = sums / kept
    spread = math.sqrt(max(0.0, squares / kept - mean * mean)) if math.isfinite(squares) else math.inf
    whole = row.numpy.lstrip("<")[0] in "iub" and high - low < BINS
    bins = int(high - low) + 1 if whole else BINS if high > low else 1
    counts = np.zeros(bins, np.int64)
    for block in _blocks(tensor, row, total, limit):
        finite = block[np.isfinite(block)]
        counts += np.bincount(_bins(finite, low, high, bins), minlength=bins)
    return Histogram(low, high, mean, spread, zeros, odd, seen, total, tuple(counts.tolist()))


def _bins(values: Any, low: float, high: float, bins: int) -> Any:
    """The number of the bin that each value falls into."""
    import numpy as np

    if bins == 1:
        return np.zeros(values.size, np.int64)
    width = high / bins - low / bins  # each divided first, because high - low may be too large for a float
    with np.errstate(over="ignore"):
        return np.clip((values / width - low / width).astype(np.int64), 0, bins - 1)


def _blocks(tensor: TensorProto, row: DType, total: int, limit: int | None) -> Iterator[Any]:
    """The values as float64, block by block."""
    import numpy as np

    data = payload_of(tensor)
    if data is None:
        values = ps.numpy_helper.to_array(tensor).reshape(-1)
        for at in range(0, values.size, _BLOCK):
            yield values[at : at + _BLOCK].astype("<f8")
        return
    view = contiguous(data)
    if len(view) != row.nbytes(total):
        raise ValueError(f"{len(view)} bytes of data, but its type and dims need {row.nbytes(total)}")
    per_block = _BLOCK * 8 // row.bits
    blocks = -(-total // per_block)
    wanted = blocks if limit is None else max(1, min(blocks, limit // _BLOCK))
    for step in range(wanted):
        at = step * blocks // wanted
        count = min(per_block, total - at * per_block)
        raw = view[at * _BLOCK : at * _BLOCK + row.nbytes(count)]
        part = TensorProto(data_type=tensor.data_type, dims=[count], raw_data=raw)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            values = ps.numpy_helper.to_array(part).astype("<f8")
        yield values


__all__ = ["BINS", "Histogram", "histogram"]
