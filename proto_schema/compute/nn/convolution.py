"""Rows of convolutions.

A convolution is one product of matrices: the weight (M, C * kernel) by the columns (C * kernel, places), which are
copied from a strided view of the padded data (im2col), some places at a time so that the copy stays small. A kernel of
one element needs no copy. With one channel a group (depthwise) a product would have a single row: there each element
of the kernel is multiplied with the data that it sees, and added.

Integer convolutions are computed in floats that hold all sums exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, pieces, products
from proto_schema.compute.nn.numbers import exact, rounded_to, wide
from proto_schema.compute.nn.windows import KernelWindows, behind, offsets, windows
from proto_schema.compute.rows import row

__all__ = ["biased", "checked_kernel", "convolve"]

_COLUMNS = 1 << 19
"""The most elements of the copied columns: 2 MiB of float32, which a cache holds."""
_DEPTHWISE = 1 << 16
"""The elements that a depthwise step works on, so that they stay in a cache."""


def _cost(call: Call, data: Array, weight: Array, zero: bool = False) -> Cost:
    """The padded data, the columns of at least one step along the first axis, and a product for each element of the
    kernel. Where strides are long, the data of a depthwise convolution is split into many phases."""
    kernel = checked_kernel(call, data, weight)
    window = windows(call, data.shape[2:], kernel)
    width = WIDE if zero else max(4, data.itemsize)
    padded = prod(data.shape[:2]) * max(prod(window.reach), prod(data.shape[2:]))
    results = data.shape[0] * weight.shape[0] * prod(window.places)
    columns = max(_COLUMNS, prod(window.places[1:]) * data.shape[1] * prod(kernel))
    depthwise = weight.shape[1] == 1 < data.shape[1]
    turns = prod(window.strides) + prod(kernel) * (1 + padded // _DEPTHWISE) if depthwise else 0
    work = 2 * padded + products(results * weight.shape[1] * prod(kernel), np.float32) + pieces(5 * turns)
    work += results + data.shape[0] * (columns if prod(kernel) > 1 else 0) + pieces(data.shape[0] * window.places[0])
    return Cost(work, results * width, (3 * padded + columns + weight.size * 3 + 2 * results) * width)


def _conv_cost(call: Call, data: Array, weight: Array, bias: Array | None = None) -> Cost:
    return _cost(call, data, weight)


@row("Conv", cost=_conv_cost)
def convolution(call: Call, data: Array, weight: Array, bias: Array | None = None) -> Array:
    """(N, C, sizes) with (M, C / group, kernel) gives (N, M, places)."""
    kernel = checked_kernel(call, data, weight)
    return biased(_convolved(call, wide(data), wide(weight), kernel), bias)


def _convolved(call: Call, data: Array, weight: Array, kernel: Sequence[int]) -> Array:
    group = call.attribute("group", 1)
    if group < 1 or data.shape[1] != weight.shape[1] * group or weight.shape[0] % group:
        call.fail(f"data of {data.shape[1]} channels and a weight of shape {weight.shape} do not fit group {group}")
    return convolve(data, weight, group, windows(call, data.shape[2:], kernel))


def checked_kernel(call: Call, data: Array, weight: Array) -> tuple[int, ...]:
    """The kernel's sizes. The ranks must agree, and so must `kernel_shape`."""
    if data.ndim != weight.ndim or data.ndim < 3:
        call.fail(f"data of rank {data.ndim} and a weight of rank {weight.ndim}: equal ranks of 3 or more are needed")
    kernel, said = weight.shape[2:], call.attribute("kernel_shape")
    if said and tuple(said) != kernel:
        call.fail(f"kernel_shape is {list(said)}, and the weight's is {list(kernel)}")
    return kernel


def biased(result: Array, bias: Array | None) -> Array:
    """The bias added to the channels, in place: `result` is ours."""
    if bias is not None:
        result += wide(bias).reshape(-1, *(1,) * (result.ndim - 2))
    return result


def convolve(data: Array, weight: Array, group: int, window: KernelWindows) -> Array:
    """The convolution of floats: (N, M, places)."""
    batch, filters = data.shape[0], weight.shape[0]
    if not (batch * filters * prod(window.places) and weight.size):
        return np.zeros((batch, filters, *window.places), data.dtype)
    data = window.padded(data)
    if group > 1 and weight.shape[1] == 1:
        return _depthwise(data, weight, window)
    if prod(window.kernel) == 1:
        return _pointwise(data, weight, group, window)
    return _by_columns(data, weight, group, window)


def _pointwise(data: Array, weight: Array, group: int, window: KernelWindows) -> Array:
    batch = data.shape[0]
    if any(stride > 1 for stride in window.strides):
        data = data[behind(window.at((0,) * (data.ndim - 2)))]
    columns = data.reshape(batch, group, weight.shape[1], -1)
    result: Array = np.matmul(weight.reshape(group, -1, weight.shape[1]), columns)
    return result.reshape(batch, -1, *window.places)


def _by_columns(data: Array, weight: Array, group: int, window: KernelWindows) -> Array:
    batch, filters = data.shape[0], weight.shape[0]
    rows = weight.reshape(group, filters // group, -1)
    result = np.empty((batch, filters, *window.places), data.dtype)
    across = prod(window.places[1:])  # the places of one step along the first axis
    count = min(window.places[0], max(1, _COLUMNS // (across * group * rows.shape[2])))
    below = window.below(data)
    first = 2 + len(window.kernel)  # the first axis of the places
    for item in range(batch):
        into = result[item].reshape(group, filters // group, -1)
        for start in range(0, window.places[0], count):
            stop = min(start + count, window.places[0])
            part = below[item][(slice(None),) * (first - 1) + (slice(start, stop),)]
            columns = part.reshape(group, rows.shape[2], -1)
            np.matmul(rows, columns, out=into[:, :, start * across : stop * across])
    return result


def _depthwise(data: Array, weight: Array, window: KernelWindows) -> Array:
    """One channel a group. The data is split by stride into phases; then every element of the kernel sees data that
    lies in one piece, rows and what is between them: a few places too many are computed, and left out at the end."""
    batch, channels = data.shape[:2]
    times = weight.shape[0] // channels
    result = np.empty((batch, channels, times, *window.places), data.dtype)
    phases, sizes = _phases(data, window.strides)
    steps = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]  # of the flattened sizes
    length = sum((count - 1) * step for count, step in zip(window.places, steps, strict=True)) + 1
    terms = []
    for place in offsets(window.kernel):
        at = [index * dilation for index, dilation in zip(place, window.dilations, strict=True)]
        phase = tuple(start % stride for start, stride in zip(at, window.strides, strict=True))
        starts = zip(at, window.strides, steps, strict=True)
        terms.append((phase, sum(start // stride * step for start, stride, step in starts)))
    factors = weight.reshape(channels, times, -1)
    count, cut = max(1, _DEPTHWISE // length), behind([slice(0, places) for places in window.places])
    for item in range(batch):
        for start in range(0, channels, count):
            stop = min(start + count, channels)
            total = np.empty((stop - start, prod(sizes)), data.dtype)
            product = np.empty((stop - start, length), data.dtype)
            for multiple in range(times):
                for term, (phase, shift) in enumerate(terms):
                    seen = phases[phase][item, start:stop, shift : shift + length]
                    factor = factors[start:stop, multiple, term, None]
                    if term:
                        np.multiply(seen, factor, out=product)
                        total[:, :length] += product
                    else:
                        np.multiply(seen, factor, out=total[:, :length])
                result[item, start:stop, multiple] = total.reshape(-1, *sizes)[cut]
    return result.reshape(batch, channels * times, *window.places)


def _phases(data: Array, strides: Sequence[int]) -> tuple[dict[tuple[int, ...], Array], tuple[int, ...]]:
    """Every stride-th element, from each start, flattened to (N, C, elements); and the sizes before that."""
    sizes = tuple(-(-size // stride) for size, stride in zip(data.shape[2:], strides, strict=True))
    found = {}
    for phase in offsets(strides):
        part = data[behind([slice(start, None, stride) for start, stride in zip(phase, strides, strict=True)])]
        if part.shape[2:] != sizes:
            whole = np.zeros((*data.shape[:2], *sizes), data.dtype)
            whole[behind([slice(0, size) for size in part.shape[2:]])] = part
            part = whole
        found[phase] = np.ascontiguousarray(part).reshape(*data.shape[:2], -1)
    return found, sizes


def _transposed_cost(call: Call, data: Array, weight: Array, bias: Array | None = None) -> Cost:
    kernel, count = checked_kernel(call, data, weight), data.ndim - 2
    _, sizes = _spread(call, windows(call, (2**31,) * count, kernel), data.shape[2:])
    filters = weight.shape[1] * max(1, call.attribute("group", 1))
    results = data.shape[0] * filters * prod(max(0, size) for size in sizes)
    spread = data.size // max(1, data.shape[1]) * filters * prod(kernel)
    width = max(4, data.itemsize)
    columns = min(spread, max(_COLUMNS, spread // max(1, data.shape[0] * weight.shape[1])))
    work = products(spread * data.shape[1], np.float32) + spread + results + pieces(10 * prod(kernel) * data.shape[0])
    return Cost(work, results * width, (2 * columns + data.size + weight.size + results) * width)


@row("ConvTranspose", cost=_transposed_cost)
def convolution_transpose(call: Call, data: Array, weight: Array, bias: Array | None = None) -> Array:
    """(N, C, sizes) with (C, M / group, kernel): each element adds its multiple of the kernel to the output."""
    kernel, count = checked_kernel(call, data, weight), data.ndim - 2
    group, sizes = call.attribute("group", 1), data.shape[2:]
    if group < 1 or data.shape[1] != weight.shape[0] or data.shape[1] % group:
        call.fail(f"data of {data.shape[1]} channels and a weight of shape {weight.shape} do not fit group {group}")
    moving = windows(call, (2**31,) * count, kernel)  # strides, dilations, pads as they are given
    before, made = _spread(call, moving, sizes)
    data, weight = wide(data), wide(weight)
    per_group, taken = weight.shape[1], data.shape[1] // group
    result = np.zeros((data.shape[0], group, per_group, *made), data.dtype)
    if data.size and weight.size and result.size:
        rows = weight.reshape(group, taken, per_group, -1)
        chunk = max(1, _COLUMNS // max(1, group * rows.shape[3] * prod(sizes)))
        for item in range(data.shape[0]):
            columns = data[item].reshape(group, taken, -1)
            for start in range(0, per_group, chunk):
                part = np.ascontiguousarray(rows[:, :, start : start + chunk])
                values = np.matmul(part.reshape(group, taken, -1).transpose(0, 2, 1), columns)
                values = values.reshape(group, part.shape[2], *kernel, *sizes)
                added(result[item, :, start : start + chunk], values, moving, before)
    return biased(result.reshape(data.shape[0], group * per_group, *made), bias)


def _spread(call: Call, moving: KernelWindows, sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """What is cut off in front, and the sizes of the output."""
    count = len(sizes)
    extra = call.attribute("output_padding") or [0] * count
    asked, automatic = call.attribute("output_shape"), call.text("auto_pad", "NOTSET")
    if len(extra) != count or (asked and len(asked) not in (count, count + 2)):
        call.fail(f"output_padding and output_shape need {count} numbers, one for each spatial axis")
    before, made = [], []
    for axis, size in enumerate(sizes):
        stride, width = moving.strides[axis], moving.widths[axis]
        whole = (size - 1) * stride + extra[axis] + width
        if asked:
            wanted = asked[axis - count]
            total = max(0, whole - wanted)
        elif automatic in ("SAME_UPPER", "SAME_LOWER"):
            wanted = size * stride
            total = max(0, whole - wanted)
            wanted = min(wanted, whole)
        else:
            front, back = moving.before[axis], moving.after[axis]
            before.append(front)
            made.append(max(0, whole - front - back))
            continue
        less = total // 2
        before.append(less if automatic == "SAME_UPPER" else total - less)
        made.append(wanted)
    return before, made


def added(result: Array, values: Array, moving: KernelWindows, before: Sequence[int]) -> None:
    """Add (..., kernel, sizes) to (..., output): each element of the kernel where it falls, less what is cut."""
    count = len(before)
    sizes, outs = values.shape[-count:], result.shape[-count:]
    for place in offsets(moving.kernel):
        into, out_of = [], []
        for axis, index in enumerate(place):
            stride, start = moving.strides[axis], index * moving.dilations[axis] - before[axis]
            low = -(-max(0, -start) // stride)
            high = min(sizes[axis], -(-(outs[axis] - start) // stride))
            if high <= low:
                break
            into.append(slice(start + low * stride, start + (high - 1) * stride + 1, stride))
            out_of.append(slice(low, high))
        else:
            result[behind(into)] += values[behind([*place, *out_of])]


def _integers_cost(call: Call, data: Array, weight: Array, *zeros: Array | None) -> Cost:
    return _cost(call, data, weight, zero=True)


def _quantized_cost(call: Call, data: Array, scale: Array, zero: Array, weight: Array, *others: Array | None) -> Cost:
    return _cost(call, data, weight, zero=True)


@row("ConvInteger", cost=_integers_cost)
def convolution_integer(
    call: Call, data: Array, weight: Array, zero: Array | None = None, weight_zero: Array | None = None
) -> Array:
    """The convolution of 8-bit integers less their zero points, as int32."""
    kernel = checked_kernel(call, data, weight)
    return _of_integers(call, data, zero, weight, weight_zero, kernel).astype(np.int32)


def _of_integers(
    call: Call, data: Array, zero: Array | None, weight: Array, weight_zero: Array | None, kernel: Sequence[int]
) -> Array:
    """The convolution of integers less their zero points (one, or for the weight one a filter), in floats."""
    single: Array = data.astype(np.float32)
    if zero is not None:
        single -= zero.astype(np.float32).reshape(())
    filters: Array = weight.astype(np.float32)
    if weight_zero is not None:
        filters -= weight_zero.astype(np.float32).reshape(-1, *(1,) * (weight.ndim - 1))
    return _convolved(call, *exact(single, filters, tuple(range(1, weight.ndim))), kernel)


@row("QLinearConv", cost=_quantized_cost)
def convolution_quantized(
    call: Call,
    data: Array,
    scale: Array,
    zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array,
    made_scale: Array,
    made_zero: Array,
    bias: Array | None = None,
) -> Array:
    """The convolution of quantized tensors. The bias is int32 of scale `scale * weight_scale`."""
    kernel = checked_kernel(call, data, weight)
    sums: Array = _of_integers(call, data, zero, weight, weight_zero, kernel).astype(np.float64)
    sums = biased(sums, None if bias is None else bias.astype(np.float64))
    factor = scale.reshape(()) * weight_scale / made_scale.reshape(())
    factor = factor.reshape(-1, *(1,) * (sums.ndim - 2)) if factor.size > 1 else factor.reshape(())
    values = np.rint(sums.astype(np.float32) * factor) + made_zero.reshape(()).astype(np.float32)
    return rounded_to(values, made_zero.dtype)


def _causal_cost(call: Call, data: Array, weight: Array, bias: Array | None = None, past: Array | None = None) -> Cost:
    size = weight.shape[-1] if weight.ndim else 1
    seen = data.size + prod(data.shape[:2]) * size
    width = max(4, data.itemsize)
    return Cost(2 * seen + data.size * size + pieces(5 * size), 2 * seen * width, 8 * seen * width)


@row("CausalConvWithState", cost=_causal_cost)
def causal_convolution(
    call: Call, data: Array, weight: Array, bias: Array | None = None, past: Array | None = None
) -> tuple[Array, Array]:
    """A depthwise convolution of (N, C, length) that looks back; the state is the end of what it has seen."""
    if data.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (data.shape[1], 1):
        call.fail(f"data of shape {data.shape} and a weight of shape {weight.shape} are not (N, C, L) and (C, 1, k)")
    held = weight.shape[2] - 1
    front = np.zeros((*data.shape[:2], held), data.dtype) if past is None else past
    seen = np.concatenate([front, data], axis=2)
    window = KernelWindows((held + 1,), (1,), (1,), (0,), (0,), (data.shape[2],))
    result = biased(convolve(wide(seen), wide(weight), data.shape[1], window), bias)
    activation = call.text("activation", "none")
    if activation in ("silu", "swish"):
        with np.errstate(over="ignore"):
            result = result / (1 + np.exp(-result))
    elif activation not in ("none", ""):
        call.fail(f"activation is {activation!r}, and may be silu, swish or none")
    return result, seen[:, :, seen.shape[2] - held :]
