"""Short-time Fourier transforms, and the windows that go with them.

One Gather cuts a signal into frames, and each frame is transformed. The inverse adds up overlapping frames: that is one
ConvTranspose, whose kernel is the inverse transform times the window. The number of frames may be dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from proto_schema.legalization.sizes import minus, numbers_below, plus, times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_complex
from purexport.lowering.fft.fourier import dft, half_dft_matrices
from purexport.lowering.special.functions import bessel_i0
from purexport.lowering.support import fields
from purexport.lowering.support.common import full, swap_last
from purexport.lowering.support.fields import Operand, map_parts
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.pairs import Pair, to_interleaved
from purexport.lowering.tensor.create import iota
from purexport.lowering.tensor.padding import constant_pad_nd, pad
from purexport.lowering.tensor.slices import slice_axis


def _window(op: Emitter, window: Any, points: int, length: int | None, dtype: int) -> Value | None:
    """The window, padded with zeros to the length of a frame; None where it is all ones."""
    if isinstance(window, Pair):
        raise UnsupportedForm("with a complex window has no rule", code="complex-tensor")
    length = points if length is None else length
    if window is None and length == points:
        return None
    value = full(op, [length], 1, dtype) if window is None else op.cast(window, dtype)
    if length == points:
        return value
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
    """aten::stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None,
    bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor

    The result is [..., frequencies, frames]. Without `return_complex` a last axis of size 2 holds the real and the
    imaginary part.
    """
    half = not isinstance(self, Pair) if onesided is None else onesided
    hop = n_fft // 4 if hop_length is None else hop_length
    shaped = _window(op, window, n_fft, win_length, self.dtype or dtypes.FLOAT)
    frames = map_parts(self, lambda part: _frames(op, part, n_fft, hop, shaped))
    found = dft(op, frames, n_fft, onesided=half)
    turned = found.map(lambda part: swap_last(op, part))
    result = (
        fields.mul(op, turned, op.const(1 / math.sqrt(n_fft), found.dtype or dtypes.FLOAT)) if normalized else turned
    )
    assert isinstance(result, Pair), "a transform is complex"
    return result if op.result.dtype.is_complex else to_interleaved(op, result)


def _shape(value: Operand) -> tuple[Any, ...]:
    return value.shape or ()


def _frames(op: Emitter, value: Value, points: int, hop: int, window: Value | None) -> Value:
    """The frames of a signal times the window, [..., frames, points]."""
    left = minus(op, op.dim(value, -1), points)
    count = left // hop + 1 if isinstance(left, int) else plus(op, op.Div(left, op.const(hop)), 1)
    begin = op.Mul(iota(op, count), op.const(hop))
    places = op.Add(op.Unsqueeze(begin, [1]), op.Unsqueeze(iota(op, points), [0]))
    frames = op.Gather(value, places, axis=value.rank - 1)
    return frames if window is None else op.Mul(frames, window)


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
    """aten::stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None,
    bool center=True, str pad_mode="reflect", bool normalized=False, bool? onesided=None, bool? return_complex=None,
    bool? align_to_window=None) -> Tensor
    """
    if center:
        self = map_parts(self, lambda part: _padded(op, part, n_fft // 2, pad_mode))
    return stft(op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)


def _padded(op: Emitter, value: Value, width: int, mode: str) -> Value:
    return pad(op, value, [width, width], mode)


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
    """aten::istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None,
    bool center=True, bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False)
    -> Tensor

    Each frame is transformed back and multiplied by the window. The frames are added up and divided by the sum of the
    squared windows.
    """
    if return_complex:
        raise UnsupportedForm("with return_complex=True has no rule; take the real signal", code="complex-tensor")
    hop = n_fft // 4 if hop_length is None else hop_length
    dtype = self.dtype or dtypes.FLOAT
    shaped = _window(op, window, n_fft, win_length, dtype)
    batched = self if self.rank == 3 else self.map(lambda part: op.Unsqueeze(part, [0]))
    if onesided is False or (onesided is None and _shape(batched)[1] == n_fft):
        # the other half follows for a real signal
        batched = batched.map(lambda part: slice_axis(op, part, 1, 0, n_fft // 2 + 1))
    kernel = _kernel(op, n_fft, shaped, dtype, normalized=normalized)
    signal = op.ConvTranspose(op.Concat(batched.real, batched.imag, axis=1), kernel, strides=[hop])
    frames = op.dim(self.real, -1)
    square = full(op, [n_fft], 1, dtype) if shaped is None else op.Mul(shaped, shaped)
    weight = op.ConvTranspose(full(op, [1, 1, frames], 1, dtype), op.Unsqueeze(square, [0, 1]), strides=[hop])
    total = plus(op, times(op, minus(op, frames, 1), hop), n_fft)
    start = n_fft // 2 if center else 0
    end = plus(op, length, start) if length is not None else minus(op, total, start)
    parts = [slice_axis(op, item, 2, start, end) for item in (signal, weight)]
    result = _lengthened(op, op.Squeeze(op.Div(*parts), [1]), total, start, length)
    return result if self.rank == 3 else op.Squeeze(result, [0])


def _kernel(op: Emitter, points: int, window: Value | None, dtype: int, *, normalized: bool) -> Value:
    """[2 frequencies, 1, points]: the inverse transform of the real and of the imaginary part, times the window."""
    cosine, sine = half_dft_matrices(op, points, dtype)
    factor = op.const(1 / (math.sqrt(points) if normalized else points), dtype)
    matrix = op.Mul(op.Concat(cosine, op.Neg(sine), axis=0), factor if window is None else op.Mul(window, factor))
    return op.Unsqueeze(matrix, [1])


def _lengthened(op: Emitter, value: Value, total: Any, start: int, length: Any) -> Value:
    """`value` padded with zeros at the end, where `length` asks for more than there is."""
    known = None if length is None else op.known(length)
    if known is None or (isinstance(known, int) and isinstance(total, int) and known + start <= total):
        return value
    if isinstance(known, int) and isinstance(total, int):
        return constant_pad_nd(op, value, [0, known + start - total], 0)
    missing = largest(op, value_of(op, minus(op, plus(op, known, start), total)), op.const(0))
    return constant_pad_nd(op, value, [0, missing], 0)


# Windows ------------------------------------------------------------------------------------------------------------


def _cosines(op: Emitter, window_length: Any, periodic: bool, first: float, *factors: float) -> Value:
    """`first` and each of the factors times the cosine of one, two, ... turns over the window."""

    def window(place: Value) -> Value:
        result = op.const(first, dtypes.DOUBLE)
        for turns, factor in enumerate(factors, 1):
            wave = op.Cos(op.Mul(place, op.const(2 * math.pi * turns, dtypes.DOUBLE)))
            result = op.Add(result, op.Mul(wave, op.const(factor, dtypes.DOUBLE)))
        return result

    return _over_places(op, window_length, periodic, window)


def _over_places(op: Emitter, window_length: Any, periodic: bool, window: Callable[[Value], Value]) -> Value:
    """A window of a computed length: a function of 0 to 1, in double.  A window of one element is 1."""
    length = value_of(op, window_length)
    last = length if periodic else op.Sub(length, op.const(1))
    steps = op.cast(numbers_below(op, length), dtypes.DOUBLE)
    place = op.Div(steps, op.cast(largest(op, last, op.const(1)), dtypes.DOUBLE))
    found = window(place)
    alone = op.Equal(length, op.const(1))
    return op.cast(op.Where(alone, op.const(1.0, dtypes.DOUBLE), found), op.result_dtype)


def _made(op: Emitter, function: Any, window_length: int, *arguments: Any) -> Value:
    return op.const(function(window_length, *arguments, dtype=dtypes.torch_dtype(op.result_dtype)))


@lower("aten::hann_window", "aten::hann_window.periodic")
def hann_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    """aten::hann_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    length = op.known(window_length)
    if isinstance(length, Value):
        return _cosines(op, length, periodic, 0.5, -0.5)
    return _made(op, torch.hann_window, length, periodic)


@lower("aten::blackman_window", "aten::blackman_window.periodic")
def blackman_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    """aten::blackman_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    length = op.known(window_length)
    if isinstance(length, Value):
        return _cosines(op, length, periodic, 0.42, -0.5, 0.08)
    return _made(op, torch.blackman_window, length, periodic)


@lower("aten::bartlett_window", "aten::bartlett_window.periodic")
def bartlett_window(op: Emitter, window_length: Any, periodic: bool = True, dtype: Any = None) -> Value:
    """aten::bartlett_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    length = op.known(window_length)
    if isinstance(length, Value):
        one, two = op.const(1.0, dtypes.DOUBLE), op.const(2.0, dtypes.DOUBLE)
        return _over_places(op, length, periodic, lambda place: op.Sub(one, op.Abs(op.Sub(op.Mul(place, two), one))))
    return _made(op, torch.bartlett_window, length, periodic)


@lower(
    "aten::hamming_window",
    "aten::hamming_window.periodic",
    "aten::hamming_window.periodic_alpha",
    "aten::hamming_window.periodic_alpha_beta",
)
def hamming_window(
    op: Emitter, window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: Any = None
) -> Value:
    """aten::hamming_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    length = op.known(window_length)
    if isinstance(length, Value):
        return _cosines(op, length, periodic, alpha, -beta)
    return _made(op, torch.hamming_window, length, periodic, alpha, beta)


@lower("aten::kaiser_window", "aten::kaiser_window.periodic", "aten::kaiser_window.beta")
def kaiser_window(
    op: Emitter, window_length: Any, periodic: bool = True, beta: float = 12.0, dtype: Any = None
) -> Value:
    """aten::kaiser_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    length = op.known(window_length)
    if isinstance(length, Value):
        return _over_places(op, length, periodic, lambda place: _kaiser(op, place, beta))
    return _made(op, torch.kaiser_window, length, periodic, beta)


def _kaiser(op: Emitter, place: Value, beta: float) -> Value:
    """I0(beta sqrt(1 - (2 place - 1)^2)) / I0(beta): the root is 2 sqrt(place (1 - place))."""
    one = op.const(1.0, dtypes.DOUBLE)
    inside = op.Sqrt(op.Max(op.Mul(place, op.Sub(one, place)), op.const(0.0, dtypes.DOUBLE)))
    wave = bessel_i0(op, op.Mul(inside, op.const(2 * beta, dtypes.DOUBLE)))
    largest_value = torch.special.i0(torch.tensor(beta, dtype=torch.float64))
    return op.Div(wave, op.const(largest_value))
