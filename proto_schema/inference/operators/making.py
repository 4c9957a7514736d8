"""Rows of operators that make tensors from numbers, and of those whose results have a size that the data decides."""

from __future__ import annotations

import math

import numpy as np

from proto_schema.inference.given import (
    array_of,
    given,
    listed,
    only,
    quotient_up,
    size_or_fresh,
    size_or_none,
)
from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import MOST, Element, Type, known_shape, product
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim, maximum

# From numbers --------------------------------------------------------------------------------------------------------


@row("ConstantOfShape")
def constant_of_shape(site: Site) -> Type | None:
    """One value everywhere, the float 0 where none is given."""
    from proto_schema.inference.walk import stored_content

    value = site.attribute("value")
    dtype = (value.data_type or 0) if value is not None else TensorProto.FLOAT
    if site.dtype(0) not in (0, TensorProto.INT64):
        site.fail("input 'input' has another data type than int64")
    asked = given(site, "", 0)
    if asked is None:
        return site.out(None, dtype)
    if any(isinstance(item, int) and item < 0 for item in asked):
        site.fail(f"shape {listed(asked)} has a negative size")
    made = tuple([size_or_fresh(site, item) for item in asked])
    sizes = known_shape(made)
    if sizes is None or math.prod(sizes) > MOST:
        return site.out(made, dtype)
    content = stored_content(value, tuple(value.dims)) if value is not None else (0.0,)
    return site.out(made, dtype, content * math.prod(sizes) if content is not None and len(content) == 1 else None)


@row("Range")
def range_(site: Site) -> Type | None:
    """The numbers from a start up to a limit, which is not reached."""
    for place in range(3):
        shape = site.shape(place)
        if shape is not None and len(shape) > 1:
            site.fail(f"input {place} has shape {listed(shape)}, and must be a number")
    start, limit, delta = (only(site, "", place) for place in range(3))
    sizes = [size_or_none(item) for item in (start, limit, delta)]
    if sizes[2] == 0 and isinstance(sizes[2], int):
        site.fail("delta is 0")
    if None not in sizes:
        count = _steps(*[size for size in sizes if size is not None])
        first, step = sizes[0], sizes[2]
        if not isinstance(count, int):
            return site.out((site.fresh() if count is None else count,))
        content = None
        if count <= MOST and first is not None and step is not None:
            content = tuple([first + step * place for place in range(count)])
        return site.out((count,), content=content)
    if isinstance(start, (int, float)) and isinstance(limit, (int, float)) and isinstance(delta, (int, float)):
        return site.out((_float_steps(site, start, limit, delta),))
    return site.out((site.fresh(),))


def _steps(start: Dim, limit: Dim, delta: Dim) -> Dim | None:
    """The number of steps of a size that reach from start to limit; None where the direction is not known."""
    low, high = (delta, delta) if isinstance(delta, int) else (delta.low, delta.high)
    if low is not None and low > 0:
        return quotient_up(maximum(limit - start, 0), delta)
    if high is not None and high < 0:
        return quotient_up(maximum(start - limit, 0), -delta)
    return None


def _float_steps(site: Site, start: float, limit: float, delta: float) -> Dim:
    # the difference is rounded to the dtype, the quotient is computed in double precision
    single = site.dtype(0) != TensorProto.DOUBLE
    reach = float(np.float32(limit) - np.float32(start)) if single else limit - start
    steps = reach / delta
    return max(math.ceil(steps), 0) if math.isfinite(steps) else site.fresh()


@row("BlackmanWindow", "HammingWindow", "HannWindow")
def window(site: Site) -> Type | None:
    """A vector of the size that is given."""
    return site.out((size_or_fresh(site, only(site, "", 0)),), site.attribute("output_datatype", 1))


@row("MelWeightMatrix")
def mel_weights(site: Site) -> Type | None:
    """A row for each frequency up to half of the length, a column for each mel bin."""
    length, bins = size_or_fresh(site, only(site, "", 1)), size_or_fresh(site, only(site, "", 0))
    return site.out((length // 2 + 1, bins), site.attribute("output_datatype", 1))


# Random numbers, and what is like an input ---------------------------------------------------------------------------


@row("RandomNormal", "RandomUniform")
def random(site: Site) -> Type | None:
    """A tensor of the shape in the attribute."""
    return site.out(tuple(site.attribute("shape") or ()), site.attribute("dtype", TensorProto.FLOAT))


@row("RandomNormalLike", "RandomUniformLike")
def random_like(site: Site) -> Type | None:
    """The shape of the input, and its dtype where none is given."""
    return site.out(site.shape(0), site.attribute("dtype", 0) or site.dtype(0))


@row("EyeLike")
def eye_like(site: Site) -> Type | None:
    """A matrix of the shape of the input, and its dtype where none is given."""
    shape = site.shape_of_rank(0, 2)
    return site.out(site.unknown(2) if shape is None else shape, site.attribute("dtype", 0) or site.dtype(0))


@row("Multinomial")
def multinomial(site: Site) -> Type | None:
    """Samples for each row."""
    shape = site.shape_of_rank(0, 2)
    rows = site.fresh() if shape is None else shape[0]
    return site.out((rows, site.attribute("sample_size", 1)), site.attribute("dtype", TensorProto.INT32))


# What the data decides -----------------------------------------------------------------------------------------------


_INDICES_FROM_THE_END = 11


@row("OneHot")
def one_hot(site: Site) -> Type | None:
    """The indices with an axis of `depth` more."""
    shape, depth = site.shape(0), site.shape(1)
    if depth is not None and (len(depth) > 1 or (depth and isinstance(depth[0], int) and depth[0] != 1)):
        site.fail(f"input 'depth' has shape {listed(depth)}, and must be a number")
    values = site.shape_of_rank(2, 1)
    if values is not None and isinstance(values[0], int) and values[0] != 2:
        site.fail(f"input 'values' has {values[0]} elements, and must have 2")
    if site.version < _INDICES_FROM_THE_END and any(place < 0 for place in site.ints(0) or ()):
        site.fail("indices are negative, which came with opset 11")
    if shape is None:
        return site.out(None)
    axis = site.axis(site.attribute("axis", -1), len(shape) + 1)
    return site.out((*shape[:axis], size_or_fresh(site, only(site, "", 1)), *shape[axis:]))


@row("NonZero")
def non_zero(site: Site) -> Type | None:
    """A column with the place of each element that is not 0."""
    rank = site.rank(0)
    array = array_of(site, 0)
    if array is None or rank is None or any(not _is_number(item) for item in array.reshape(-1).tolist()):
        return site.out((site.fresh() if rank is None else rank, site.fresh()))
    places = np.argwhere(array.astype(bool)).transpose()
    return site.out((rank, places.shape[1]), content=tuple(places.reshape(-1).tolist()))


def _is_number(item: Element) -> bool:
    return isinstance(item, (bool, int, float))


@row("Unique")
def unique(site: Site) -> Outputs:
    """The elements, or slices of an axis, that differ; where they are first; where each came to; how often."""
    shape, axis = site.shape(0), site.attribute("axis")
    count = site.fresh()
    if axis is None:
        whole = site.fresh() if shape is None else product(shape)
        return [site.out((count,)), site.out((count,)), site.out((whole,)), site.out((count,))]
    if shape is None:
        return [site.out(None), site.out((count,)), site.out((site.fresh(),)), site.out((count,))]
    axis = site.axis(axis, len(shape))
    made = (*shape[:axis], count, *shape[axis + 1 :])
    return [site.out(made), site.out((count,)), site.out((shape[axis],)), site.out((count,))]


@row("TopK")
def top_k(site: Site) -> Outputs:
    """The largest elements along an axis, and where they were."""
    shape, asked = site.shape(0), only(site, "k", 1)
    if isinstance(asked, int) and asked < 0:
        site.fail(f"k is {asked}")
    if shape is None:
        return [site.out(None), site.out(None)]
    axis = site.axis(site.attribute("axis", -1), len(shape))
    size = shape[axis]
    if isinstance(asked, int) and isinstance(size, int) and asked > size:
        site.fail(f"k is {asked}, and axis {axis} has size {size}")
    made = (*shape[:axis], size_or_fresh(site, asked), *shape[axis + 1 :])
    return [site.out(made), site.out(made)]
