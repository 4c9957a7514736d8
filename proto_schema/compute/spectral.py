"""Rows of Fourier transforms and what goes with them. Double is computed in double, and
everything else in float32, as far as numpy's transforms know it.

A complex tensor has a last axis of two numbers, a real one has one there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import WIDE, made, sizes_in
from proto_schema.compute.rows import row
from proto_schema.tensors.dtypes import dtype_of


def _complex(call: Call, data: Array) -> Array:
    """The numbers of a tensor with a last axis of 1 or 2."""
    if not data.ndim or data.shape[-1] not in (1, 2):
        call.fail(f"the last axis of shape {data.shape} is neither one of real numbers (1) nor of complex ones (2)")
    values = data if data.dtype == np.float64 else data.astype(np.float32)
    return values[..., 0] if data.shape[-1] == 1 else _joined(values)


def _joined(values: Array) -> Array:
    kind = np.complex128 if values.dtype == np.float64 else np.complex64
    return np.ascontiguousarray(values).view(kind)[..., 0]


def _pairs(values: Array, like: Array) -> Array:
    made = np.stack([values.real, values.imag], axis=-1)
    return made if like.dtype == np.float64 else made.astype(np.float32)


def _scalar(values: Array | None) -> int | None:
    return None if values is None else int(values.reshape(()))


def _transform_cost(call: Call, data: Array, length: Array | None = None, axis: Array | None = None) -> Cost:
    chosen = _scalar(axis)
    if chosen is None:
        chosen = call.attribute("axis", 1) if call.version < 20 else -2
    size = max(1, data.shape[call.axis(chosen, data.ndim)])
    count = 2 * size if length is None else max(0, _scalar(length) or 0)
    whole = data.size // size * count + data.size
    return Cost(whole * (20 + 10 * count.bit_length()), 2 * WIDE * whole, 10 * WIDE * whole)


@row("DFT", cost=_transform_cost)
def discrete_fourier(call: Call, data: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    """The transform along an axis, cut or filled with zeros to the length; inverse or one-sided if asked.

    The axis is an attribute in opset 17 (default 1), and an input later (default -2).
    """
    chosen = _scalar(axis)
    if chosen is None:
        chosen = call.attribute("axis", 1) if call.version < 20 else -2
    place = call.axis(chosen, data.ndim)
    if place == data.ndim - 1:
        call.fail(f"axis {chosen} is that of the real and imaginary parts")
    values, count = _complex(call, data), _scalar(length)
    one_sided, inverse = bool(call.attribute("onesided", 0)), bool(call.attribute("inverse", 0))
    if one_sided and inverse:
        count = 2 * (values.shape[place] - 1) if count is None else count
        real = np.fft.irfft(values, n=count, axis=place)[..., None]
        return real if data.dtype == np.float64 else real.astype(np.float32)
    count = values.shape[place] if count is None else count
    if inverse:
        return _pairs(np.fft.ifft(values, n=count, axis=place), data)
    if not one_sided:
        return _pairs(np.fft.fft(values, n=count, axis=place), data)
    if values.dtype.kind == "c":
        cut = (slice(None),) * place + (slice(0, count // 2 + 1),)
        return _pairs(np.fft.fft(values, n=count, axis=place)[cut], data)
    return _pairs(np.fft.rfft(values, n=count, axis=place), data)


def _frames_cost(
    call: Call, data: Array, step: Array, window: Array | None = None, length: Array | None = None
) -> Cost:
    count = _scalar(length)
    if count is None:
        count = (data.shape[1] if data.ndim > 1 else 1) if window is None else window.size
    hop = max(1, _scalar(step) or 1)
    batch, signal = (data.shape[0], data.shape[1]) if data.ndim > 1 else (1, 1)
    whole = batch * max(0, (signal - count) // hop + 1) * max(0, count)
    held = whole + data.size
    return Cost(held * (20 + 10 * max(0, count).bit_length()), 2 * WIDE * held, 10 * WIDE * held)


@row("STFT", cost=_frames_cost)
def short_time_fourier(
    call: Call, data: Array, step: Array, window: Array | None = None, length: Array | None = None
) -> Array:
    """(batch, length, 1 or 2) to (batch, frames, bins, 2): each frame times the window, transformed."""
    values, hop = _complex(call, data), int(step.reshape(()))
    count = _scalar(length)
    if count is None:
        count = values.shape[1] if window is None else window.shape[0]
    if values.ndim != 2 or hop < 1 or not 1 <= count <= values.shape[1]:
        call.fail(f"frames of {count} every {hop} do not fit a signal of shape {data.shape}")
    if window is not None and window.shape != (count,):
        call.fail(f"the window has shape {window.shape}, and the frames have length {count}")
    frames = sliding_window_view(values, count, axis=1)[:, ::hop]
    if window is not None:
        frames = frames * window.astype(np.float64 if data.dtype == np.float64 else np.float32)
    if not call.attribute("onesided", 1):
        return _pairs(np.fft.fft(frames, axis=-1), data)
    if values.dtype.kind == "c":
        return _pairs(np.fft.fft(frames, axis=-1)[..., : count // 2 + 1], data)
    return _pairs(np.fft.rfft(frames, axis=-1), data)


_COSINES = {  # the factors of cos(2 pi k n / N)
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, 25 / 46 - 1),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def _window_cost(call: Call, size: Array) -> Cost:
    return made(sizes_in(size), WIDE, times=100, scratch=6)


def _bands_cost(call: Call, bands: Array, length: Array, *others: Array) -> Cost:
    count, size = max(0, _scalar(bands) or 0), max(0, _scalar(length) or 0)
    found = made([count, size // 2 + 1], WIDE, times=20, scratch=10)
    return Cost(found.work, found.results, found.scratch + 16 * WIDE * (count + size + 2))


@row(*_COSINES, cost=_window_cost)
def window(call: Call, size: Array) -> Typed:
    """A sum of cosines over `size` places; the period is one less where it is symmetric."""
    count = int(size.reshape(()))
    period = count if call.attribute("periodic", 1) else count - 1
    angles = np.arange(count) * (2 * np.pi / period) if period else np.zeros(count)
    total: Any = sum(factor * np.cos(times * angles) for times, factor in enumerate(_COSINES[call.schema.name]))
    return _typed(call, total)


def _typed(call: Call, values: Array) -> Typed:
    code = call.attribute("output_datatype", 1)
    return Typed(values.astype(dtype_of(code).numpy), code)


@row("MelWeightMatrix", cost=_bands_cost)
def mel_weights(call: Call, bands: Array, length: Array, rate: Array, low: Array, high: Array) -> Typed:
    """(length // 2 + 1, bands): a triangle a band, whose corners are evenly spaced on the mel scale."""
    count, size, samples = (int(item.reshape(())) for item in (bands, length, rate))
    lowest, highest = (2595 * np.log10(1 + float(item.reshape(())) / 700) for item in (low, high))
    mels = np.arange(count + 2) * ((highest - lowest) / (count + 2)) + lowest
    corners = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // samples).astype(np.int64)
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    bins = np.arange(size // 2 + 1)[:, None]
    rising = np.where(centre > left, (bins - left) / np.maximum(centre - left, 1), 1.0)
    rising = np.where((bins >= left) & (bins <= centre), rising, 0.0)
    falling = (right - bins) / np.maximum(right - centre, 1)
    found = np.where((bins >= centre) & (bins < right) & (right > centre), falling, rising)
    return _typed(call, found)
