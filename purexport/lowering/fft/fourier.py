"""Discrete Fourier transforms of torch.fft, one axis after the other.

Up to `_LARGEST_MATRIX` points a transform is a product with a matrix of cosines and sines, which works at every opset
and is more accurate. The matrix is gathered from a table of one period, so that the file holds n numbers, not n
squared. Beyond that, and where the number of points is dynamic, it is ONNX DFT (opset 17). The DFT of ONNX Runtime is
wrong in the second digit for float32 where the number of points is not a power of two, so those are computed in double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import minus, plus, times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import result_code
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_complex
from purexport.lowering.support import fields
from purexport.lowering.support.common import axis_of, beside_product, permute
from purexport.lowering.support.fields import Operand, conj, giving_parts, map_parts
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.pairs import Pair, from_interleaved, operand, pair_of, to_interleaved
from purexport.lowering.tensor.concat import flip
from purexport.lowering.tensor.create import iota
from purexport.lowering.tensor.padding import constant_pad_nd, roll
from purexport.lowering.tensor.slices import slice_axis

_LARGEST_MATRIX = 512
_NORMS = {None: 0, "backward": 0, "ortho": 1, "forward": 2}


# One axis -----------------------------------------------------------------------------------------------------------


def dft_matrices(op: Emitter, rows: Any, columns: Any, points: Any, dtype: int) -> tuple[Value, Value]:
    """cos and sin of 2 pi j k / points, each of shape [rows, columns]."""
    double = Value(dtypes.DOUBLE)
    if isinstance(points, int):
        angles = torch.arange(points, dtype=torch.float64) * (2 * math.pi / max(points, 1))
        tables = [op.const(function(angles).to(dtypes.torch_dtype(dtype))) for function in (torch.cos, torch.sin)]
    else:
        step = op.Div(op.like(2 * math.pi, double), op.cast(points, dtypes.DOUBLE))
        angle = op.Mul(op.cast(iota(op, points), dtypes.DOUBLE), step)
        tables = [op.cast(function(angle), dtype) for function in (op.Cos, op.Sin)]
    products = op.Mul(op.Unsqueeze(iota(op, rows), [1]), op.Unsqueeze(iota(op, columns), [0]))
    count = value_of(op, points)
    places = op.Sub(products, op.Mul(op.Div(products, count), count))
    cosine, sine = (op.Gather(table, places, axis=0) for table in tables)
    return cosine, sine


def _half(op: Emitter, points: Any) -> Any:
    """The number of frequencies that a real signal has."""
    return points // 2 + 1 if isinstance(points, int) else op.Add(op.Div(points, op.const(2)), op.const(1))


def _by_matrix(op: Emitter, points: Any) -> bool:
    return not op.has("DFT") or (isinstance(points, int) and points <= _LARGEST_MATRIX)


def dft(op: Emitter, value: Operand, points: Any, *, onesided: bool = False) -> Pair:
    """The transform along the last axis, whose size is `points`; with `onesided` the first half of the frequencies
    only.
    """
    if not _by_matrix(op, points):
        return _by_operator(op, value, points, onesided=onesided)
    dtype = value.dtype or dtypes.FLOAT
    cosine, sine = dft_matrices(op, points, _half(op, points) if onesided else points, points, dtype)
    if not isinstance(value, Pair):
        return Pair(op.MatMul(value, cosine), op.Neg(op.MatMul(value, sine)))
    real = op.Add(op.MatMul(value.real, cosine), op.MatMul(value.imag, sine))
    return Pair(real, op.Sub(op.MatMul(value.imag, cosine), op.MatMul(value.real, sine)))


def _by_operator(op: Emitter, value: Operand, points: Any, *, onesided: bool) -> Pair:
    dtype = value.dtype or dtypes.FLOAT
    rank = value.rank
    exact = dtype == dtypes.FLOAT and isinstance(points, int) and points & (points - 1) == 0
    packed = to_interleaved(op, value) if isinstance(value, Pair) else op.Unsqueeze(value, [rank])
    packed = op.cast(packed if rank > 1 else op.Unsqueeze(packed, [0]), dtype if exact else dtypes.DOUBLE)
    found = op.DFT(packed, axis=max(rank - 1, 1), onesided=int(onesided))
    return from_interleaved(op, op.cast(found if rank > 1 else op.Squeeze(found, [0]), dtype))


def inverse_dft(op: Emitter, value: Pair, points: Any) -> Pair:
    """The inverse transform along the last axis, not yet divided by the number of points."""
    return conj(op, dft(op, _turned(op, value), points))


def _turned(op: Emitter, value: Pair) -> Pair:
    return Pair(value.real, op.Neg(value.imag))


def inverse_real_dft(op: Emitter, value: Operand, points: Any) -> Value:
    """The real signal of `points` points whose first half of the frequencies is on the last axis, not yet divided by
    `points`.
    """
    pair = pair_of(op, value, value.dtype or dtypes.FLOAT)
    if not _by_matrix(op, points):
        return dft(op, _turned(op, _completed(op, pair, points)), points).real
    cosine, sine = half_dft_matrices(op, points, pair.dtype or dtypes.FLOAT)
    return op.Sub(op.MatMul(pair.real, cosine), op.MatMul(pair.imag, sine))


def half_dft_matrices(op: Emitter, points: Any, dtype: int) -> tuple[Value, Value]:
    """`dft_matrices` with a row for each frequency of the first half and a column for each point.

    Each frequency is counted twice, since its mirror image is left out. The exceptions are the first, and the middle
    one of an even number of points.
    """
    count = _half(op, points)
    cosine, sine = dft_matrices(op, count, points, points, dtype)
    place = iota(op, count)
    middle = op.Equal(op.Add(place, place), value_of(op, points))
    once = op.Or(op.Equal(place, op.const(0)), middle)
    weight = op.Unsqueeze(op.Sub(op.const(2.0, dtype), op.cast(once, dtype)), [1])
    return op.Mul(cosine, weight), op.Mul(sine, weight)


def _completed(op: Emitter, value: Pair, points: Any) -> Pair:
    """All frequencies of a real signal: the first half, and its mirror image, conjugated."""
    axis = value.rank - 1
    end = plus(op, minus(op, points, _half(op, points)), 1)
    mirrored = value.map(lambda part: flip(op, slice_axis(op, part, axis, 1, end), [axis]))
    real = op.Concat(value.real, mirrored.real, axis=axis)
    imag = op.Concat(value.imag, op.Neg(mirrored.imag), axis=axis)
    return Pair(real, imag)


def _along(op: Emitter, value: Operand, axis: int, points: Any, transform: Any) -> Operand:
    """`transform` along any axis. Of a longer axis the first `points` are taken, a shorter one is padded with zeros."""
    order = [*(place for place in range(value.rank) if place != axis), axis]
    back = [order.index(place) for place in range(value.rank)]
    last = map_parts(value, lambda part: _sized(op, permute(op, part, order), points))
    result: Operand = map_parts(transform(last), lambda part: permute(op, part, back))
    return result


def _sized(op: Emitter, value: Value, points: Any) -> Value:
    """The first `points` elements of the last axis, padded with zeros where there are fewer; all of it for None."""
    axis, size = value.rank - 1, op.dim(value, -1)
    if points is None or points is size or (isinstance(points, int) and points == size):
        return value
    if isinstance(points, int) and isinstance(size, int):
        if points < size:
            return slice_axis(op, value, axis, 0, points)
        return constant_pad_nd(op, value, [0, points - size], 0)
    missing = largest(op, value_of(op, minus(op, points, size)), op.const(0))
    padded = constant_pad_nd(op, value, [0, missing], 0)
    return slice_axis(op, padded, axis, 0, points)


def normalize_dft(op: Emitter, value: Operand, sizes: Sequence[Any], power: int) -> Operand:
    """`value` divided by the product of `sizes` (power 2) or by its square root (power 1); unchanged for power 0."""
    if power == 0:
        return value
    total = times(op, *sizes)
    dtype = value.dtype or dtypes.FLOAT
    if isinstance(total, int):
        factor = op.const(1 / (total if power == 2 else math.sqrt(total)), dtype)
        return fields.mul(op, value, beside_product(op, factor, value.real if isinstance(value, Pair) else value))
    divisor = op.cast(total, dtype)
    return fields.mul(op, value, op.Reciprocal(divisor if power == 2 else op.Sqrt(divisor)))


def _power(norm: str | None, inverse: bool) -> int:
    return 2 - _NORMS[norm] if inverse else _NORMS[norm]


# Several axes -------------------------------------------------------------------------------------------------------


def _complex_axes(op: Emitter, value: Operand, axes: Sequence[int], points: Sequence[Any], *, inverse: bool) -> Operand:
    for axis, count in zip(axes, points, strict=True):
        if inverse:
            pair = pair_of(op, value, value.dtype or dtypes.FLOAT)
            value = _along(op, pair, axis, count, lambda last, count=count: inverse_dft(op, last, count))
        else:
            value = _along(op, value, axis, count, lambda last, count=count: dft(op, last, count))
    return value


def _c2c(op: Emitter, value: Operand, axes: Sequence[int], points: Sequence[Any], power: int, *, inverse: bool) -> Pair:
    value = operand(op, value, result_code(op))
    found = normalize_dft(op, _complex_axes(op, value, axes, points, inverse=inverse), points, power)
    return pair_of(op, found, result_code(op))


def _r2c(op: Emitter, value: Value, axes: Sequence[int], points: Sequence[Any], power: int) -> Operand:
    value = op.like(value, Value(result_code(op)))
    last = points[-1]
    half = _along(op, value, axes[-1], last, lambda item: dft(op, item, last, onesided=True))
    found = _complex_axes(op, half, axes[:-1], points[:-1], inverse=False)
    return normalize_dft(op, found, points, power)


def _c2r(
    op: Emitter, value: Operand, axes: Sequence[int], points: Sequence[Any], power: int, *, whole: bool = False
) -> Value:
    """The transform to real numbers on the last of `axes`. With `whole` all frequencies of that axis are given,
    otherwise the first half.
    """
    value = operand(op, value, result_code(op))
    others = _complex_axes(op, value, axes[:-1], points[:-1], inverse=True)
    last, count = points[-1], None if whole else _half(op, points[-1])
    found = _along(op, others, axes[-1], count, lambda item: inverse_real_dft(op, item, last))
    result = normalize_dft(op, found, points, power)
    assert isinstance(result, Value), "what is real stays one value"
    return result


def _axes(op: Emitter, value: Operand, sizes: Any, dim: Any) -> tuple[list[int], list[Any]]:
    """The axes that `dim` names, or all, or the last ones as many as `sizes`, and the points of each. -1 points means
    the size of the axis.
    """
    rank = value.rank
    if dim is None:
        dim = list(range(rank)) if sizes is None else list(range(rank - len(sizes), rank))
    axes = [axis_of(item, rank) for item in dim]
    points = [-1] * len(axes) if sizes is None else [op.known(item) for item in sizes]
    whole = value.real if isinstance(value, Pair) else value
    return axes, [op.dim(whole, axis) if _is_whole(count) else count for axis, count in zip(axes, points, strict=True)]


def _is_whole(count: Any) -> bool:
    return isinstance(count, int) and count == -1


def _to_real(op: Emitter, value: Operand, sizes: Any, dim: Any, power: int) -> Value:
    """`_c2r`, where the last axis has 2 * (frequencies - 1) points unless a size is given."""
    axes, points = _axes(op, value, sizes, dim)
    whole = sizes is None or _is_whole(op.known(sizes[-1]))
    if whole:
        points[-1] = times(op, minus(op, points[-1], 1), 2)
    return _c2r(op, value, axes, points, power, whole=whole)


def _one(n: Any) -> Any:
    return None if n is None else [n]


@lower_complex("aten::fft_fft")
def fft_fft(op: Emitter, self: Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """aten::fft_fft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor

    A longer axis is cut to `n` points, a shorter one is padded with zeros. `norm` is "forward", "backward" (default) or
    "ortho".
    """
    return fft_fftn(op, self, _one(n), [dim], norm)


@lower_complex("aten::fft_ifft")
def fft_ifft(op: Emitter, self: Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """aten::fft_ifft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"""
    return fft_ifftn(op, self, _one(n), [dim], norm)


@lower_complex("aten::fft_fftn", "aten::fft_fft2")
def fft_fftn(op: Emitter, self: Operand, s: Any = None, dim: Any = None, norm: str | None = None) -> Pair:
    """aten::fft_fftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor"""
    return _c2c(op, self, *_axes(op, self, s, dim), _power(norm, False), inverse=False)


@lower_complex("aten::fft_ifftn", "aten::fft_ifft2")
def fft_ifftn(op: Emitter, self: Operand, s: Any = None, dim: Any = None, norm: str | None = None) -> Pair:
    """aten::fft_ifftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor"""
    return _c2c(op, self, *_axes(op, self, s, dim), _power(norm, True), inverse=True)


@lower_complex("aten::fft_rfft")
def fft_rfft(op: Emitter, self: Value, n: Any = None, dim: int = -1, norm: str | None = None) -> Operand:
    """aten::fft_rfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"""
    return fft_rfftn(op, self, _one(n), [dim], norm)


@lower_complex("aten::fft_rfftn", "aten::fft_rfft2")
def fft_rfftn(op: Emitter, self: Value, s: Any = None, dim: Any = None, norm: str | None = None) -> Operand:
    """aten::fft_rfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor"""
    return _r2c(op, self, *_axes(op, self, s, dim), _power(norm, False))


@lower("aten::fft_irfft")
@lower_complex("aten::fft_irfft")
def fft_irfft(op: Emitter, self: Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Value:
    """aten::fft_irfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor

    Without `n` the result has 2 * (frequencies - 1) points.
    """
    return fft_irfftn(op, self, _one(n), [dim], norm)


@lower("aten::fft_irfftn", "aten::fft_irfft2")
@lower_complex("aten::fft_irfftn", "aten::fft_irfft2")
def fft_irfftn(op: Emitter, self: Operand, s: Any = None, dim: Any = None, norm: str | None = None) -> Value:
    """aten::fft_irfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor

    Without `s` the last axis of the result has 2 * (frequencies - 1) points.
    """
    return _to_real(op, self, s, dim, _power(norm, True))


@lower("aten::fft_hfft")
@lower_complex("aten::fft_hfft")
def fft_hfft(op: Emitter, self: Operand, n: Any = None, dim: int = -1, norm: str | None = None) -> Value:
    """aten::fft_hfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor

    The transform of a signal of which the first half is given; the other half is its conjugated mirror image.
    """
    return fft_hfftn(op, self, _one(n), [dim], norm)


@lower("aten::fft_hfftn", "aten::fft_hfft2")
@lower_complex("aten::fft_hfftn", "aten::fft_hfft2")
def fft_hfftn(op: Emitter, self: Operand, s: Any = None, dim: Any = None, norm: str | None = None) -> Value:
    """aten::fft_hfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor

    The transform of a signal of which the first half of the last axis is given; the other half is its conjugated mirror
    image. It is the inverse real transform with the opposite sign in the exponent.
    """
    turned = _turned(op, self) if isinstance(self, Pair) else self
    return _to_real(op, turned, s, dim, _power(norm, False))


@lower_complex("aten::fft_ihfft")
def fft_ihfft(op: Emitter, self: Value, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """aten::fft_ihfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"""
    return fft_ihfftn(op, self, _one(n), [dim], norm)


@lower_complex("aten::fft_ihfftn", "aten::fft_ihfft2")
def fft_ihfftn(op: Emitter, self: Value, s: Any = None, dim: Any = None, norm: str | None = None) -> Pair:
    """aten::fft_ihfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor"""
    found = _r2c(op, self, *_axes(op, self, s, dim), _power(norm, True))
    assert isinstance(found, Pair), "a transform is complex"
    return _turned(op, found)


# What torch.fft is made of ------------------------------------------------------------------------------------------


@lower_complex("aten::_fft_c2c")
def _fft_c2c(op: Emitter, self: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    """aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor

    `normalization` is 0 for none, 1 for division by the square root of the number of points, 2 for division by the
    number.
    """
    return _c2c(op, self, *_axes(op, self, None, dim), normalization, inverse=not forward)


@lower_complex("aten::_fft_r2c")
def _fft_r2c(op: Emitter, self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Operand:
    """aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor"""
    axes, points = _axes(op, self, None, dim)
    if onesided:
        return _r2c(op, self, axes, points, normalization)
    return _c2c(op, self, axes, points, normalization, inverse=False)


@lower_complex("aten::_fft_c2r")
def _fft_c2r(op: Emitter, self: Pair, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Value:
    """aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor"""
    axes, points = _axes(op, self, None, dim)
    return _c2r(op, self, axes, [*points[:-1], op.known(last_dim_size)], normalization)


# Helpers ------------------------------------------------------------------------------------------------------------


@lower("aten::fft_fftshift")
@lower_complex("aten::fft_fftshift")
def fft_fftshift(op: Emitter, self: Operand, dim: Any = None) -> Operand:
    """aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor"""
    return _rolled(op, self, dim, 0)


@lower("aten::fft_ifftshift")
@lower_complex("aten::fft_ifftshift")
def fft_ifftshift(op: Emitter, self: Operand, dim: Any = None) -> Operand:
    """aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor"""
    return _rolled(op, self, dim, 1)


def _rolled(op: Emitter, value: Operand, dim: Any, more: int) -> Operand:
    axes, sizes = _axes(op, value, None, dim)
    shifts = [_halved(op, plus(op, size, more)) for size in sizes]
    of_parts = giving_parts(op)
    result: Operand = map_parts(value, lambda part: roll(of_parts, part, shifts, axes))
    return result


def _halved(op: Emitter, size: Any) -> Any:
    return size // 2 if isinstance(size, int) else op.Div(size, op.const(2))


@lower("aten::fft_fftfreq")
def fft_fftfreq(op: Emitter, n: Any, d: float = 1.0, dtype: Any = None) -> Value:
    """aten::fft_fftfreq(int n, float d=1., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return op.const(torch.fft.fftfreq(_known(op, n), d, dtype=dtypes.torch_dtype(op.result_dtype)))


@lower("aten::fft_rfftfreq")
def fft_rfftfreq(op: Emitter, n: Any, d: float = 1.0, dtype: Any = None) -> Value:
    """aten::fft_rfftfreq(int n, float d=1., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return op.const(torch.fft.rfftfreq(_known(op, n), d, dtype=dtypes.torch_dtype(op.result_dtype)))


def _known(op: Emitter, size: Any) -> int:
    known = op.known(size)
    if not isinstance(known, int):
        raise UnsupportedForm(
            "of a dynamic number of points has no rule; divide torch.arange by that number", code="size-not-known"
        )
    return known
