"""Codes of which each makes up for the errors of those before it, as GPTQ finds them.

A product sums over K elements of an input x. The error of an element, e, changes the sum by e * x; the elements behind
it can be moved so that most of that is taken back, as far as the inputs go together. How far is in the inverse of
X.T @ X of the inputs that samples show: in U, the upper triangle with U.T @ U = inv(X.T @ X). After element i has its
code, the elements j behind it lose e / U[i, i] * U[i, j].

Frantar, Ashkboos, Hoefler, Alistarh: GPTQ, 2022, algorithm 1; elements keep their order, as the file has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.quantization.codes.integers import Blocks, Floats, Rules, Search, extremes, numbers

Doubles = npt.NDArray[np.float64]

_STEP = 128  # elements whose errors are spread together
_CHANNELS = 512  # that are worked on at once
_DAMPING = 0.01  # of the mean of the diagonal
_MOST_DAMPING = 1.0


def spread_of(moments: Floats) -> Floats:
    """The upper triangle U of U.T @ U = inv(X.T @ X), of X.T @ X that is damped as far as it must be.

    Raises ValueError where the numbers are not finite.
    """
    exact: Doubles = moments.astype(np.float64)
    if not np.isfinite(exact).all():
        raise ValueError("samples make inputs of it that hold a NaN or an infinity")
    diagonal = np.einsum("ii->i", exact)
    diagonal[diagonal == 0] = 1  # an input that is always 0: nothing is known, nothing is spread
    mean, damping = float(diagonal.mean()), _DAMPING
    while True:
        damped = exact.copy()
        np.einsum("ii->i", damped)[:] += damping * mean
        try:
            lower = np.linalg.inv(np.linalg.cholesky(damped))
            return np.ascontiguousarray(np.linalg.cholesky(lower.T @ lower).T.astype(np.float32))
        except np.linalg.LinAlgError:
            if damping >= _MOST_DAMPING:
                raise ValueError("the inputs that samples show have no inverse") from None
            damping *= 10


def compensated(blocks: Floats, axis: int, spread: Floats, rules: Rules, search: Search | None) -> Blocks:
    """The blocks along `axis` of an array, [channels, blocks, block] or [blocks, block, channels].

    What the array has beyond the rows of `spread` are zeros that fill the last block.
    """
    values = np.moveaxis(blocks, 0, 2) if axis == 2 else blocks  # [blocks, block, channels]
    count, block, channels = values.shape
    codes = np.empty((count * block, channels), np.uint8)
    scales, zeros = np.empty((count, channels), np.float32), np.empty((count, channels), np.float32)
    for first in range(0, channels, _CHANNELS):
        at = slice(first, first + _CHANNELS)
        slab = np.ascontiguousarray(values[:, :, at]).reshape(count * block, -1)
        codes[:, at], scales[:, at], zeros[:, at] = _in_slab(slab, block, spread, rules, search)
    shaped = codes.reshape(count, block, channels)
    if axis == 1:
        return Blocks(shaped, scales, zeros)
    return Blocks(np.ascontiguousarray(np.moveaxis(shaped, 2, 0)), scales.T.copy(), zeros.T.copy())


def _in_slab(slab: Floats, block: int, spread: Floats, rules: Rules, search: Search | None) -> tuple[Any, Any, Any]:
    """(codes, scales, zeros) of the columns of a matrix that is written over."""
    length, size = len(spread), len(slab)
    codes = np.empty(slab.shape, np.uint8)
    scales, zeros = [], []
    at: tuple[Floats, Floats] | None = None
    step = max(_STEP // block, 1) * block if block < length else _STEP
    for first in range(0, size, step):
        end = min(first + step, size)
        errors = np.zeros((end - first, slab.shape[1]), np.float32)
        for row in range(first, end):
            if row % block == 0:
                at = _ranges(slab[row : row + block], rules, search)
                scales.append(at[0])
                zeros.append(at[1])
            assert at is not None
            codes[row] = rules.encoded(slab[row], *at)
            if row < length:
                apart = slab[row] - (numbers(codes[row], rules.grid) - at[1]) * at[0]
                errors[row - first] = apart / spread[row, row]
                behind = min(end, length)
                slab[row + 1 : behind] -= spread[row, row + 1 : behind, None] * errors[row - first]
        if end < length:
            inside = spread[first:end, end:]
            slab[end:length] -= inside.T @ errors
    return codes, np.stack(scales), np.stack(zeros)


def _ranges(rows: Floats, rules: Rules, search: Search | None) -> tuple[Floats, Floats]:
    """The scales and zero points of a block of each column."""
    limits = extremes(rows, 0)
    usual = rules.ranges(limits)
    return usual if search is None else search(rows, 0, limits, usual, rules)
