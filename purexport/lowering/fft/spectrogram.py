"""Short-time Fourier transforms, and the windows that go with them.

A signal is cut into frames by one Gather, and each frame transformed.  The way back adds up overlapping frames: one
ConvTranspose, whose kernel is the inverse transform times the window.  The number of frames may be dynamic.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import Operand, scaled
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_complex
from purexport.lowering.fft.fourier import each, forward, half_turns
from purexport.lowering.support.common import full, swap_last
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.pairs import Pair, join
from purexport.lowering.support.positions import as_value, times
from purexport.lowering.tensor.create import positions
from purexport.lowering.tensor.padding import constant_pad_nd, pad
from purexport.lowering.tensor.slices import minus, plus, slice_axis


def _window(op: Emitter, window: Any, points: int, length: int | None, dtype: int) -> Value | None:
    """The window in the middle of a frame; None where it is all ones."""
    if isinstance(window, Pair):
        raise UnsupportedForm("with a complex window has no rule", code="complex-tensor")
    length = points if length is None else length
    if window is None and length == points:
        return None
    value = full(op, [length], 1, dtype) if window is None else op.cast(window, dtype)
    if length == points:
        return value
    value.shape = value.shape or (length,)
    left = (points - length) // 2
    return constant_pad_nd(op, value, [left, points - length - left], 0)


@lower("aten::stft")
@lower_complex("aten::stft")
def stft(
    op: Emitter,
    self: Operand,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Operand:
    """stft(self, ...): [.., frequencies, frames]; without return_complex a last axis holds both parts."""
    half = not isinstance(self, Pair) if onesided is None else onesided
    hop = n_fft // 4 if hop_length is None else hop_length
    shaped = _window(op, window, n_fft, win_length, self.dtype or dtypes.FLOAT)
    frames = each(self, lambda part: _frames(op, part, n_fft, hop, shaped))
    found = forward(op, frames, n_fft, onesided=half)
    bins = n_fft // 2 + 1 if half else n_fft
    for part in (found.real, found.imag):
        part.shape = (*_shape(frames)[:-1], bins)
    turned = found.map(lambda part: swap_last(op, part))
    result = scaled(op, turned, op.const(1 / math.sqrt(n_fft), found.dtype or dtypes.FLOAT)) if normalized else turned
    assert isinstance(result, Pair), "a transform is complex"
    result.real.shape = result.imag.shape = turned.shape
    return result if op.result.dtype.is_complex else join(op, result)


def _shape(value: Operand) -> tuple[Any, ...]:
    return value.shape or ()


def _frames(op: Emitter, value: Value, points: int, hop: int, window: Value | None) -> Value:
    """[.., frames, points]"""
    left = minus(op, op.dim(value, -1), points)
    count = left // hop + 1 if isinstance(left, int) else plus(op, op.Div(left, op.const(hop)), 1)
    begin = op.Mul(positions(op, count), op.const(hop))
    places = op.Add(op.Unsqueeze(begin, [1]), op.Unsqueeze(positions(op, points), [0]))
    frames = op.Gather(value, places, axis=value.rank - 1)
    result = frames if window is None else op.Mul(frames, window)
    result.shape = (*_shape(value)[:-1], count if isinstance(count, int) else None, points)
    return result


@lower("aten::stft.center")
@lower_complex("aten::stft.center")
def stft_center(
    op: Emitter,
    self: Operand,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Operand:
    if center:
        self = each(self, lambda part: _bordered(op, part, n_fft // 2, pad_mode))
    return stft(op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)


def _bordered(op: Emitter, value: Value, width: int, mode: str) -> Value:
    size = op.dim(value, -1)
    result = pad(op, value, [width, width], mode)
    result.shape = (*_shape(value)[:-1], size + 2 * width if isinstance(size, int) else None)
    return result


@lower_complex("aten::istft")
def istft(
    op: Emitter,
    self: Pair,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Value:
    """istft(self, ...): frames, each times the window, added up and divided by what the squared windows add up to."""
    if return_complex:
        raise UnsupportedForm("with return_complex=True has no rule; take the real signal", code="complex-tensor")
    hop = n_fft // 4 if hop_length is None else hop_length
    dtype = self.dtype or dtypes.FLOAT
    shaped = _window(op, window, n_fft, win_length, dtype)
    batched = self if self.rank == 3 else self.map(lambda part: _unsqueezed(op, part))
    if onesided is False or (onesided is None and _shape(batched)[1] == n_fft):
        batched = batched.map(lambda part: slice_axis(op, part, 1, 0, n_fft // 2 + 1))  # a real signal's other half
    kernel = _kernel(op, n_fft, shaped, dtype, normalized=normalized)
    signal = op.ConvTranspose(op.Concat(batched.real, batched.imag, axis=1), kernel, strides=[hop])
    frames = op.dim(self.real, -1)
    square = full(op, [n_fft], 1, dtype) if shaped is None else op.Mul(shaped, shaped)
    weight = op.ConvTranspose(full(op, [1, 1, frames], 1, dtype), op.Unsqueeze(square, [0, 1]), strides=[hop])
    total = plus(op, times(op, minus(op, frames, 1), hop), n_fft)
    start = n_fft // 2 if center else 0
    end = plus(op, length, start) if length is not None else minus(op, total, start)
    parts = [slice_axis(op, _of_rank_3(item), 2, start, end) for item in (signal, weight)]
    result = op.Squeeze(op.Div(*parts), [1])
    result.shape = (_shape(batched)[0], None)
    result = _lengthened(op, result, total, start, length)
    return result if self.rank == 3 else op.Squeeze(result, [0])


def _of_rank_3(value: Value) -> Value:
    value.shape = (None, 1, None)
    return value


def _unsqueezed(op: Emitter, value: Value) -> Value:
    result: Value = op.Unsqueeze(value, [0])
    result.shape = (1, *_shape(value))
    return result


def _kernel(op: Emitter, points: int, window: Value | None, dtype: int, *, normalized: bool) -> Value:
    """[2 frequencies, 1, points]: the inverse transform of the real and of the imaginary parts, times the window."""
    cosine, sine = half_turns(op, points, dtype)
    factor = op.const(1 / (math.sqrt(points) if normalized else points), dtype)
    matrix = op.Mul(op.Concat(cosine, op.Neg(sine), axis=0), factor if window is None else op.Mul(window, factor))
    return op.Unsqueeze(matrix, [1])


def _lengthened(op: Emitter, value: Value, total: Any, start: int, length: Any) -> Value:
    """Zeros behind, where ``length`` asks for more than there is."""
    known = None if length is None else op.known(length)
    if known is None or (isinstance(known, int) and isinstance(total, int) and known + start <= total):
        return value
    if isinstance(known, int) and isinstance(total, int):
        return constant_pad_nd(op, value, [0, known + start - total], 0)
    missing = largest(op, as_value(op, minus(op, plus(op, known, start), total)), op.const(0))
    return constant_pad_nd(op, value, [0, missing], 0)


# Windows ------------------------------------------------------------------------------------------------------------


def _made(op: Emitter, function: Any, window_length: Any, *arguments: Any) -> Value:
    length = op.known(window_length)
    if not isinstance(length, int):
        raise UnsupportedForm("of a dynamic length has no rule; give its length as a number", code="size-not-known")
    return op.const(function(length, *arguments, dtype=dtypes.torch_dtype(op.result_dtype)))


@lower("aten::hann_window", "aten::hann_window.periodic")
def hann_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    return _made(op, torch.hann_window, window_length, periodic)


@lower("aten::blackman_window", "aten::blackman_window.periodic")
def blackman_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    return _made(op, torch.blackman_window, window_length, periodic)


@lower("aten::bartlett_window", "aten::bartlett_window.periodic")
def bartlett_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    return _made(op, torch.bartlett_window, window_length, periodic)


@lower(
    "aten::hamming_window",
    "aten::hamming_window.periodic",
    "aten::hamming_window.periodic_alpha",
    "aten::hamming_window.periodic_alpha_beta",
)
def hamming_window(
    op: Emitter, window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: Any = None
) -> Value:
    return _made(op, torch.hamming_window, window_length, periodic, alpha, beta)


@lower("aten::kaiser_window", "aten::kaiser_window.periodic", "aten::kaiser_window.beta")
def kaiser_window(
    op: Emitter, window_length: Any, periodic: bool = True, beta: float = 12.0, dtype: Any = None
) -> Value:
    return _made(op, torch.kaiser_window, window_length, periodic, beta)
