"""Rows of operators on images: resizing, sampling, regions, boxes.

A size that is scaled is rounded down.  The scale is a float32, and so is its product with the size; the result is an
exact expression where a quotient of small numbers gives the same for all sizes up to `_WIDEST`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from proto_schema.inference.given import given, is_given, listed, size_or_fresh, size_or_none
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import Content, Element, Type, known_shape
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim, Size

_WIDEST = 2**20


@row("Resize")
def resize(site: Site) -> Type | None:
    """The axes scaled, or with the sizes that are given."""
    shape = site.shape(0)
    if shape is None:
        return site.out(None)
    chosen = site.attribute("axes")
    axes = list(range(len(shape))) if chosen is None else site.axes(chosen, len(shape))
    scales, sizes = _given(site, "scales", 1 if site.version < 11 else 2), _given(site, "sizes", 3)
    policy = site.text("keep_aspect_ratio_policy", "stretch")
    for name, items in (("scales", scales), ("sizes", sizes)):
        if items is not None and len(items) != len(axes):
            site.fail(f"{name} has {len(items)} elements, and there are {len(axes)} axes")
    made: list[Dim] = list(shape)
    for axis, size in zip(axes, _resized(site, [shape[axis] for axis in axes], scales, sizes, policy), strict=True):
        made[axis] = size
    return site.out(tuple(made))


def _given(site: Site, name: str, place: int) -> Content:
    """Scales or sizes; an empty tensor stands for none."""
    found = given(site, name, place) if is_given(site, name, place) else None
    return found or None


def _resized(site: Site, old: Sequence[Dim], scales: Content, sizes: Content, policy: str) -> list[Dim]:
    if sizes is None:
        factors = scales if scales is not None else (None,) * len(old)
        return [_scaled(site, size, factor) for size, factor in zip(old, factors, strict=True)]
    if policy == "stretch" or len(old) == 1:
        return [size_or_fresh(site, size) for size in sizes]
    before, after = known_shape(tuple(old)), [size for size in sizes if isinstance(size, int)]
    if before is None or len(after) != len(before) or 0 in before:
        return [site.fresh() for _ in old]
    ratios = [new / size for new, size in zip(after, before, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(ratio * size + 0.5) for size in before]


@row("Upsample")
def upsample(site: Site) -> Type | None:
    """The axes scaled; in the first version the two axes of an image."""
    if site.version < 7:
        shape = site.shape_of_rank(0, 4)
        scales: Content = (1.0, 1.0, site.attribute("height_scale"), site.attribute("width_scale"))
    else:
        shape, scales = site.shape(0), given(site, "scales", 1)
    if shape is None:
        return site.out(None if scales is None else site.unknown(len(scales)))
    if scales is None:
        return site.out(site.unknown(len(shape)))
    if len(scales) != len(shape):
        site.fail(f"scales has {len(scales)} elements, and the input has rank {len(shape)}")
    return site.out(tuple([_scaled(site, size, scale) for size, scale in zip(shape, scales, strict=True)]))


def _scaled(site: Site, size: Dim, scale: Element) -> Dim:
    whole = size_or_none(scale)
    if whole is not None:
        if isinstance(whole, int) and whole <= 0:
            site.fail(f"a scale is {whole}")
        return size * whole
    if not isinstance(scale, float):
        return site.fresh()
    if not scale > 0 or not math.isfinite(scale):
        site.fail(f"a scale is {scale}")
    if not isinstance(size, Size):
        return int(np.float32(size) * np.float32(scale))
    exact = _quotient(scale)
    return site.fresh() if exact is None else size * exact.numerator // exact.denominator


@cache
def _quotient(scale: float) -> Fraction | None:
    """The quotient of small numbers by which each size is scaled as by the float; None where there is none."""
    found = Fraction(scale).limit_denominator(64)
    if found == scale:  # the product is exact, too
        return found
    sizes = np.arange(_WIDEST, dtype=np.int64)
    scaled = (sizes.astype(np.float32) * np.float32(scale)).astype(np.int64)
    return found if np.array_equal(scaled, sizes * found.numerator // found.denominator) else None


@row("GridSample")
def grid_sample(site: Site) -> Type | None:
    """Batch and channels of the input, and the sizes of the grid."""
    shape, grid = site.shape(0), site.shape(1)
    if shape is None and grid is None:
        return site.out(None)
    rank = len(shape if shape is not None else grid or ())
    if rank < 3:
        site.fail(f"the input has rank {rank}, and must have 3 or more")
    shape = site.unknown(rank) if shape is None else shape
    grid = (shape[0], *site.unknown(rank - 2), rank - 2) if grid is None else grid
    if len(shape) != len(grid):
        site.fail(f"the input has rank {len(shape)}, and the grid has rank {len(grid)}")
    site.same(grid[-1], rank - 2, "the last size of the grid and the number of spatial axes")
    return site.out((site.same(shape[0], grid[0], "the batches of input and grid"), shape[1], *grid[1:-1]))


@row("AffineGrid")
def affine_grid(site: Site) -> Type | None:
    """A grid of coordinates for an image, or a volume, of that size."""
    theta, asked = site.shape_of_rank(0, 3), given(site, "size", 1)
    rank = len(asked) if asked is not None else None
    if rank is None and theta is not None and isinstance(theta[1], int):
        rank = theta[1] + 2
    if rank is None:
        return site.out(None)
    if rank not in (4, 5):
        site.fail(f"size has {rank} elements, and must have 4 or 5")
    sizes = [size_or_fresh(site, item) for item in asked or (None,) * rank]
    batch = sizes[0] if theta is None else site.same(sizes[0], theta[0], "the batch in size and that of theta")
    return site.out((batch, *sizes[2:], rank - 2))


@row("RoiAlign")
def roi_align(site: Site) -> Type | None:
    """A small image for each region."""
    shape, rois, batch = site.shape_of_rank(0, 4), site.shape_of_rank(1, 2), site.shape_of_rank(2, 1)
    channels = site.fresh() if shape is None else shape[1]
    count = site.fresh() if rois is None else rois[0]
    if batch is not None:
        count = site.same(count, batch[0], "the numbers of regions and of batch indices")
    return site.out((count, channels, site.attribute("output_height", 1), site.attribute("output_width", 1)))


@row("MaxRoiPool")
def max_roi_pool(site: Site) -> Type | None:
    """A small image for each region."""
    shape, rois = site.shape_of_rank(0, 4), site.shape_of_rank(1, 2)
    pooled = site.attribute("pooled_shape") or ()
    if len(pooled) != 2:
        site.fail(f"pooled_shape is {listed(pooled)}, and must have 2 sizes")
    count = site.fresh() if rois is None else rois[0]
    return site.out((count, site.fresh() if shape is None else shape[1], *pooled))


@row("NonMaxSuppression")
def non_max_suppression(site: Site) -> Type | None:
    """Batch, class and box of each that stays."""
    boxes, scores = site.shape_of_rank(0, 3), site.shape_of_rank(1, 3)
    if boxes is not None:
        site.same(boxes[2], 4, "the last size of the boxes and 4")
    if boxes is not None and scores is not None:
        site.same(boxes[0], scores[0], "the batches of boxes and scores")
        site.same(boxes[1], scores[2], "the numbers of boxes and of scores")
    return site.out((site.fresh(), 3))


@row("ImageDecoder")
def image_decoder(site: Site) -> Type | None:
    """Height, width and channels of an encoded image."""
    channels = 1 if site.text("pixel_format", "RGB") == "Grayscale" else 3
    return site.out((site.fresh(), site.fresh(), channels), TensorProto.UINT8)
