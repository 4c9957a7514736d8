"""Interpolation: ONNX Resize where it computes what torch computes, tables where it does not.

torch scales coordinates by the given factor, or by the ratio of sizes where none is given; Resize does so with `scales`
and `sizes`. Where the sizes are known, everything else is a table. Interpolation along one axis is linear, so its
matrix is what torch's own operator gives for the identity, and the nearest neighbours are what it gives for 0, 1, 2,
... Tables serve opsets before 11, dtypes without a kernel, antialiasing, and the rare factor that rounds to another
size. Where the sizes are not known, the places and shares of these are computed in the graph.

Bytes are interpolated in whole numbers, as torch does it: the shares are multiplied by a power of two and rounded, and
each axis gives bytes again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import numbers_below, value_of
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.names import operator_of
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import dims_of, permute

_KERNELS = (dtypes.FLOAT, dtypes.FLOAT16, dtypes.BFLOAT16)  # dtypes that runtimes resize


@dataclass(frozen=True)
class Method:
    """How one family interpolates: its name in ONNX, the coordinates, and torch's operator for tables."""

    mode: str
    coordinates: str
    operator: str  # for two axes, or for one where torch has none for two
    nearest: str = ""
    cubic: float | None = None
    antialias: bool = False

    @property
    def is_nearest(self) -> bool:
        """True when each element of the result is a copy of an element of the input."""
        return self.mode == "nearest"


_NEAREST = Method("nearest", "asymmetric", "upsample_nearest1d", nearest="floor")
_EXACT = Method("nearest", "half_pixel", "_upsample_nearest_exact1d", nearest="round_prefer_ceil")


def _linear(align_corners: bool, antialias: bool = False) -> Method:
    operator = "_upsample_bilinear2d_aa" if antialias else "upsample_bilinear2d"
    return Method("linear", _coordinates(align_corners), operator, antialias=antialias)


def _cubic(align_corners: bool, antialias: bool = False) -> Method:
    operator = "_upsample_bicubic2d_aa" if antialias else "upsample_bicubic2d"
    return Method("cubic", _coordinates(align_corners), operator, cubic=-0.75, antialias=antialias)


def _coordinates(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


def interpolate(op: Emitter, value: Value, method: Method, sizes: Sequence[Any] | None, scales: Sequence[Any]) -> Value:
    """`value` [N, C, ...] interpolated to `sizes`, or by `scales` where there are none.

    `scales` holds a factor for each axis, or None where the ratio of the sizes is the factor.
    """
    before = (value.shape or ())[2:]
    after = [
        size if isinstance(size, int) else _known_size(old, None if sizes is None else sizes[place], scales[place])
        for place, (old, size) in enumerate(zip(before, (op.result.shape or ())[2:], strict=True))
    ]
    known = [
        (old, new, scale)
        for old, new, scale in zip(before, after, scales, strict=True)
        if isinstance(old, int) and isinstance(new, int)
    ]
    by_shares = not method.is_nearest and not dtypes.is_floating(value.dtype)
    if len(known) == len(before) and not by_shares and not _is_native(op, value, method, known):
        return _by_tables(op, value, method, known)
    if by_shares:
        return _of_bytes(op, value, method, after, sizes, scales)
    return _native(op, value, method, list(after) if len(known) == len(before) else sizes, scales)


def _known_size(old: Any, size: Any, scale: Any) -> int | None:
    """The size of an axis after interpolation, where it cannot change."""
    if size is not None or not isinstance(old, int) or not isinstance(scale, (int, float)):
        return size if isinstance(size, int) else None
    return math.floor(old * scale)


# Native -------------------------------------------------------------------------------------------------------------


def _is_native(op: Emitter, value: Value, method: Method, axes: Sequence[tuple[int, int, Any]]) -> bool:
    """True when Resize of this opset gives torch's numbers."""
    if value.dtype not in _KERNELS or method.antialias:
        return False
    if not op.has("Resize", "coordinate_transformation_mode") and method is not _NEAREST:
        return False
    if not op.has("Resize", "coordinate_transformation_mode") and any(new < old for old, new, _ in axes):
        return False  # Upsample does not shrink, and Resize 10 does not specify which neighbours it takes then
    return all(_same_sizes(*axis) and (not method.is_nearest or _same_nearest(method, *axis)) for axis in axes)


def _same_sizes(old: int, new: int, scale: float | None) -> bool:
    """True when the ratio of sizes is the given factor."""
    return scale is None or old * scale == new


def _same_nearest(method: Method, old: int, new: int, scale: float | None) -> bool:
    """True when ONNX's arithmetic in float32 finds the same neighbours as torch."""
    steps = torch.arange(new, dtype=torch.float32)
    ratio = torch.tensor(new, dtype=torch.float32) / torch.tensor(old, dtype=torch.float32)
    middle = 0.0 if method is _NEAREST else 0.5
    found = torch.floor((steps + middle) / ratio - middle + middle)
    return torch.equal(found.clamp(0, old - 1).long(), _neighbours(method, old, new, scale))


def _native(op: Emitter, value: Value, method: Method, sizes: Sequence[Any] | None, scales: Sequence[Any]) -> Value:
    if not op.has("Resize", "coordinate_transformation_mode") and _is_repeated(op, value, method, sizes, scales):
        factors = op.const([1.0, 1.0, *scales], dtypes.FLOAT)
        return op.emit("Resize" if op.has("Resize") else "Upsample", value, factors, mode="nearest")
    is_new = op.has("Resize", "antialias" if method.antialias else "coordinate_transformation_mode")
    apart = method.antialias and method.coordinates == "align_corners"  # torch's centers are not those of ONNX
    if value.dtype == dtypes.DOUBLE or not is_new or apart:
        return _written_out(op, value, method, sizes, scales)
    options: dict[str, Any] = {"mode": method.mode, "coordinate_transformation_mode": method.coordinates}
    if method.nearest:
        options["nearest_mode"] = method.nearest
    if method.cubic is not None:
        options["cubic_coeff_a"] = -0.5 if method.antialias else method.cubic
    if method.antialias:
        # torch distributes the weights of pixels outside the image over the others
        options |= {"antialias": 1, "exclude_outside": 1}
    by_sizes = sizes is not None and (method.coordinates == "align_corners" or not all(scales) or _all_known(sizes))
    nothing = None if op.optional("Resize", "roi") else op.const(torch.empty(0))
    if by_sizes:
        assert sizes is not None
        return op.Resize(value, nothing, nothing, op.ints([*dims_of(op, value)[:2], *sizes]), **options)
    return op.Resize(value, nothing, op.const([1.0, 1.0, *scales], dtypes.FLOAT), **options)


def _is_repeated(op: Emitter, value: Value, method: Method, sizes: Sequence[Any] | None, scales: Sequence[Any]) -> bool:
    """True where Upsample (opset 9) or Resize 10 says it: nearest neighbours by factors that do not shrink."""
    grows = all(scale is not None and scale >= 1 for scale in scales)
    by_factors = sizes is None or _all_known(sizes)
    return method is _NEAREST and value.dtype in _KERNELS and grows and by_factors


# Doubles, of which runtimes have no kernel, and opsets before there are such coordinates: written out ----------------


def _written_out(
    op: Emitter, value: Value, method: Method, sizes: Sequence[Any] | None, scales: Sequence[Any]
) -> Value:
    """One axis after the other, where its size is not known: places and shares are computed in the graph."""
    rank, dtype = value.rank, value.dtype
    if dtype in (dtypes.FLOAT16, dtypes.BFLOAT16) and not method.is_nearest:
        value = op.cast(value, dtypes.FLOAT)
    for axis, scale in enumerate(scales, 2):
        old = op.dim(value, axis)
        new = _scaled_size(op, old, scale) if sizes is None else op.known(sizes[axis - 2])
        if method.is_nearest:
            value = op.Gather(value, _places(op, method, old, new, scale), axis=axis)
        elif method.antialias:
            shares = _filter(op, method, old, new, _step(op, method, old, new, scale))
            value = _along(op, value, axis, rank, op.cast(shares, value.dtype))
        else:
            value = _mixed(op, value, axis, method, new, scale)
    return op.cast(value, dtype)


def _places(op: Emitter, method: Method, old: Any, new: Any, scale: float | None) -> Value:
    """For each of the `new` elements the position of its nearest neighbour among the `old` ones, in float32 as torch
    computes it.
    """
    sizes = [op.cast(value_of(op, size), dtypes.FLOAT) for size in (old, new)]
    step = op.Div(sizes[0], sizes[1]) if scale is None else op.const(1 / scale, dtypes.FLOAT)
    steps = op.cast(numbers_below(op, new), dtypes.FLOAT)
    if method is not _NEAREST:
        steps = op.Add(steps, op.const(0.5, dtypes.FLOAT))
    found = op.Floor(op.Mul(steps, step))
    return op.Cast(op.Min(found, op.Sub(sizes[0], op.const(1.0, dtypes.FLOAT))), to=dtypes.INT64)


def _scaled_size(op: Emitter, old: Any, scale: float) -> Any:
    if isinstance(old, int):
        return int(old * scale)
    return op.Cast(op.Floor(op.Mul(op.cast(old, dtypes.DOUBLE), op.const(scale, dtypes.DOUBLE))), to=dtypes.INT64)


def _step(op: Emitter, method: Method, old: Any, new: Any, scale: float | None) -> Value:
    """How far apart in the input the neighbours of the output are, as torch computes it for doubles."""
    one = op.const(1.0, dtypes.DOUBLE)
    if method.coordinates != "align_corners" and scale is not None:
        return op.const(1 / scale, dtypes.DOUBLE)
    before, after = (op.cast(value_of(op, size), dtypes.DOUBLE) for size in (old, new))
    if method.coordinates != "align_corners":
        return op.Div(before, after)
    # a single one is the first
    step = op.Div(op.Sub(before, one), op.Max(op.Sub(after, one), one))
    return op.Where(op.Greater(after, one), step, op.const(0.0, dtypes.DOUBLE))


def _mixed(op: Emitter, value: Value, axis: int, method: Method, new: Any, scale: float | None) -> Value:
    """Two or four neighbours along `axis`, each by its share."""
    old = op.dim(value, axis)
    behind = list(range(1, value.rank - axis))
    parts = []
    for at, share in _taps(op, method, old, new, _step(op, method, old, new, scale)):
        read = op.Gather(value, at, axis=axis)
        weight = op.cast(share, value.dtype)
        parts.append(op.Mul(read, op.Unsqueeze(weight, behind) if behind else weight))
    return functools.reduce(op.Add, parts)


def _taps(op: Emitter, method: Method, old: Any, new: Any, step: Value) -> Iterator[tuple[Value, Value]]:
    """Positions of two or four neighbours, [new], and their shares; those beyond the ends are the last ones."""
    half = op.const(0.5, dtypes.DOUBLE)
    place = op.cast(numbers_below(op, new), dtypes.DOUBLE)
    if method.coordinates == "align_corners":
        place = op.Mul(place, step)
    else:
        place = op.Sub(op.Mul(op.Add(place, half), step), half)
    if method.cubic is None:
        place = op.Max(place, op.const(0.0, dtypes.DOUBLE))
    first = op.Floor(place)
    share = op.Sub(place, first)
    last = op.Sub(op.cast(value_of(op, old), dtypes.DOUBLE), op.const(1.0, dtypes.DOUBLE))
    for tap in (0, 1) if method.cubic is None else (-1, 0, 1, 2):
        at = op.Max(op.Min(op.Add(first, op.const(float(tap), dtypes.DOUBLE)), last), op.const(0.0, dtypes.DOUBLE))
        weight = _weight(op, op.Sub(share, op.const(float(tap), dtypes.DOUBLE)), method.cubic)
        yield op.Cast(at, to=dtypes.INT64), weight


def _weight(op: Emitter, distance: Value, cubic: float | None) -> Value:
    """The share of a neighbour at that distance: a triangle, or Keys' cubic convolution (1981) of that parameter."""
    far, zero = op.Abs(distance), op.const(0.0, dtypes.DOUBLE)

    def number(constant: float) -> Value:
        return op.const(constant, dtypes.DOUBLE)

    if cubic is None:
        return op.Max(op.Sub(number(1.0), far), zero)
    near = op.Mul(op.Sub(op.Mul(number(cubic + 2), far), number(cubic + 3)), op.Mul(far, far))
    beyond = op.Sub(op.Mul(op.Add(op.Mul(op.Sub(far, number(5.0)), far), number(8.0)), far), number(4.0))
    beyond = op.Where(op.Less(far, number(2.0)), op.Mul(beyond, number(cubic)), zero)
    return op.Where(op.Greater(far, number(1.0)), beyond, op.Add(near, number(1.0)))


def _filter(op: Emitter, method: Method, old: Any, new: Any, step: Value) -> Value:
    """[new, old]: the shares of antialiasing, whose kernel is as wide as a step where that is more than one."""
    half = op.const(0.5, dtypes.DOUBLE)
    centers = op.Unsqueeze(op.Mul(op.Add(op.cast(numbers_below(op, new), dtypes.DOUBLE), half), step), [1])
    pixels = op.Unsqueeze(op.Add(op.cast(numbers_below(op, old), dtypes.DOUBLE), half), [0])
    distance = op.Div(op.Sub(pixels, centers), op.Max(step, op.const(1.0, dtypes.DOUBLE)))
    shares = _weight(op, distance, None if method.cubic is None else -0.5)
    return op.Div(shares, op.ReduceSum(shares, axes=[1], keepdims=1))


def _all_known(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in sizes)


# Tables -------------------------------------------------------------------------------------------------------------


def _by_tables(op: Emitter, value: Value, method: Method, axes: Sequence[tuple[int, int, Any]]) -> Value:
    for axis, (old, new, scale) in enumerate(axes, 2):
        if method.is_nearest:
            value = op.Gather(value, op.const(_neighbours(method, old, new, scale)), axis=axis)
        elif not (old == new and scale in (None, 1)):
            value = _along(op, value, axis, 2 + len(axes), _matrix(method, old, new, scale))
    return value


def _along(op: Emitter, value: Value, axis: int, rank: int, matrix: torch.Tensor | Value) -> Value:
    """The product of `matrix` [new, old] with one axis of `value`."""
    weights = matrix
    if isinstance(weights, torch.Tensor):
        weights = op.const(weights.to(dtypes.torch_dtype(value.dtype or dtypes.FLOAT)))
    if axis == rank - 1:
        return op.MatMul(value, op.Transpose(weights, perm=[1, 0]))
    order = list(range(rank))
    order[axis], order[-2] = order[-2], order[axis]
    return permute(op, op.MatMul(weights, permute(op, value, order)), order)


def _neighbours(method: Method, old: int, new: int, scale: float | None) -> torch.Tensor:
    """For each element of the output the position of its neighbour in the input."""
    operator: Any = operator_of(f"aten::{method.operator}")
    found: torch.Tensor = operator(torch.arange(old, dtype=torch.float32).reshape(1, 1, old), [new], scale)
    return found.reshape(new).long()


def _matrix(method: Method, old: int, new: int, scale: float | None) -> torch.Tensor:
    """[new, old]: what torch gives for each unit vector along one axis."""
    operator: Any = operator_of(f"aten::{method.operator}")
    # along the last axis: torch's antialiasing gives wrong numbers where the last axis has size 1
    units = torch.eye(old, dtype=torch.float64).reshape(1, old, 1, old)
    found: torch.Tensor = operator(units, [1, new], method.coordinates == "align_corners", None, scale)
    return found.reshape(old, new).t().contiguous()


# Bytes --------------------------------------------------------------------------------------------------------------

_MOST_BITS, _SHARE_BITS = 22, 15  # of the power of two, and of the largest share times it


def _of_bytes(
    op: Emitter, value: Value, method: Method, after: Sequence[Any], sizes: Sequence[Any] | None, scales: Sequence[Any]
) -> Value:
    """The last axis first, then the one before it, of whole numbers in doubles; an axis that keeps its size stays.

    Where torch gives another result, a width of 1 of more than 4 channels, its own depends on the layout in memory.
    """
    found, zero, most = op.cast(value, dtypes.DOUBLE), op.const(0.0, dtypes.DOUBLE), op.const(255.0, dtypes.DOUBLE)
    for place in (1, 0):
        axis, scale = place + 2, scales[place]
        old, new = op.dim(found, axis), after[place]
        if isinstance(old, int) and old == new:
            continue
        if isinstance(old, int) and isinstance(new, int):
            shares, unit = _whole_shares(_matrix(method, old, new, scale))
            weights, one = op.const(shares), op.const(unit, dtypes.DOUBLE)
        else:
            wanted = _scaled_size(op, old, scale) if sizes is None else op.known(sizes[place])
            weights, one = _computed_shares(op, method, old, wanted, scale)
        sums = op.Add(_along(op, found, axis, value.rank, weights), op.Mul(one, op.const(0.5, dtypes.DOUBLE)))
        found = op.Max(op.Min(op.Floor(op.Div(sums, one)), most), zero)
    return op.cast(found, value.dtype)


def _whole_shares(shares: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The shares times the largest power of two that leaves them below 2**15, rounded, and that power."""
    bits = sum(int(0.5 + float(shares.max()) * 2**bits) < 2**_SHARE_BITS for bits in range(1, _MOST_BITS + 1))
    scaled = shares * 2.0**bits
    return torch.trunc(scaled + torch.where(scaled < 0, -0.5, 0.5)), 2.0**bits


def _computed_shares(op: Emitter, method: Method, old: Any, new: Any, scale: float | None) -> tuple[Value, Value]:
    """`_whole_shares` of the matrix [new, old] of sizes that are not known."""
    half, zero, one = (op.const(number, dtypes.DOUBLE) for number in (0.5, 0.0, 1.0))
    stays = op.Equal(value_of(op, old), value_of(op, new))
    step = op.Where(stays, one, _step(op, method, old, new, scale))
    if method.antialias:
        shares = _filter(op, method, old, new, step)
    else:
        columns = op.Unsqueeze(numbers_below(op, old), [0])
        shares = functools.reduce(
            op.Add,
            [
                op.Where(op.Equal(op.Unsqueeze(at, [1]), columns), op.Unsqueeze(weight, [1]), zero)
                for at, weight in _taps(op, method, old, new, step)
            ],
        )
    powers = op.const([2.0**bits for bits in range(1, _MOST_BITS + 1)], dtypes.DOUBLE)
    largest = op.ReduceMax(shares, axes=[0, 1], keepdims=0)
    fits = op.Less(op.Floor(op.Add(op.Mul(largest, powers), half)), op.const(2.0**_SHARE_BITS, dtypes.DOUBLE))
    unit = op.ReduceMax(op.Where(fits, powers, one), axes=[0], keepdims=0)
    scaled = op.Mul(shares, unit)
    rounded = op.Floor(op.Add(op.Abs(scaled), half))
    return op.Where(op.Less(scaled, zero), op.Neg(rounded), rounded), unit


# Rules --------------------------------------------------------------------------------------------------------------


def _register_nearest(name: str, rank: int, method: Method) -> None:
    @lower(f"aten::{name}{rank}d.vec")
    def by_list(op: Emitter, input: Value, output_size: Any, scale_factors: Any) -> Value:
        return interpolate(op, input, method, output_size, scale_factors or [None] * rank)

    if rank == 1:

        @lower(f"aten::{name}1d")
        def of_one(op: Emitter, self: Value, output_size: Any, scales: Any = None) -> Value:
            return interpolate(op, self, method, output_size, [scales])
    elif rank == 2:

        @lower(f"aten::{name}2d")
        def of_two(op: Emitter, self: Value, output_size: Any, scales_h: Any = None, scales_w: Any = None) -> Value:
            return interpolate(op, self, method, output_size, [scales_h, scales_w])
    else:

        @lower(f"aten::{name}3d")
        def of_three(
            op: Emitter, self: Value, output_size: Any, scales_d: Any = None, scales_h: Any = None, scales_w: Any = None
        ) -> Value:
            return interpolate(op, self, method, output_size, [scales_d, scales_h, scales_w])


for _rank in (1, 2, 3):
    _register_nearest("upsample_nearest", _rank, _NEAREST)
    _register_nearest("_upsample_nearest_exact", _rank, _EXACT)


@lower("aten::upsample_linear1d")
def upsample_linear1d(op: Emitter, self: Value, output_size: Any, align_corners: bool, scales: Any = None) -> Value:
    """aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor"""
    return interpolate(op, self, _linear(align_corners), output_size, [scales])


@lower("aten::upsample_trilinear3d")
def upsample_trilinear3d(
    op: Emitter,
    self: Value,
    output_size: Any,
    align_corners: bool,
    scales_d: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Value:
    """aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None,
    float? scales_h=None, float? scales_w=None) -> Tensor
    """
    return interpolate(op, self, _linear(align_corners), output_size, [scales_d, scales_h, scales_w])


@lower("aten::upsample_linear1d.vec", "aten::upsample_bilinear2d.vec", "aten::upsample_trilinear3d.vec")
def upsample_linear(op: Emitter, input: Value, output_size: Any, align_corners: bool, scale_factors: Any) -> Value:
    """aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors)
    -> Tensor
    """
    return interpolate(op, input, _linear(align_corners), output_size, scale_factors or [None] * (input.rank - 2))


def _register_planes(name: str, method: Callable[[bool], Method], vector: bool = True) -> None:
    @lower(f"aten::{name}")
    def by_size(
        op: Emitter, self: Value, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None
    ) -> Value:
        return interpolate(op, self, method(align_corners), output_size, [scales_h, scales_w])

    if vector:

        @lower(f"aten::{name}.vec")
        def by_list(op: Emitter, input: Value, output_size: Any, align_corners: bool, scale_factors: Any) -> Value:
            return interpolate(op, input, method(align_corners), output_size, scale_factors or [None, None])


_register_planes("upsample_bilinear2d", _linear, vector=False)
_register_planes("upsample_bicubic2d", _cubic)
_register_planes("_upsample_bilinear2d_aa", lambda align_corners: _linear(align_corners, antialias=True))
_register_planes("_upsample_bicubic2d_aa", lambda align_corners: _cubic(align_corners, antialias=True))
