"""Rows of operators that give the elements of a tensor another shape or order, and of those that join and part tensors.

The content of small integer tensors goes along.  The open size of a Reshape is a quotient of products from which common
factors are gone, so that it is exact for all values of the symbols for which the node runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.inference.given import (
    array_of,
    content_from,
    given,
    is_given,
    listed,
    numbers,
    only,
    quotient_up,
    same_elements,
    size_or_fresh,
    size_or_none,
)
from proto_schema.inference.rows import row
from proto_schema.inference.site import LARGEST, Outputs, Site
from proto_schema.inference.types import MOST, Content, Element, Type, known_shape, product
from proto_schema.sizes import Dim, Size
from proto_schema.sizes.size import equals

# The same elements in another shape ----------------------------------------------------------------------------------


@row("Reshape")
def reshape(site: Site) -> Type | None:
    """The sizes that are asked for; 0 stands for the size of the input, -1 for what is left."""
    asked = given(site, "shape", 1)
    if asked is None:
        return site.out(None)
    data = site.shape(0)
    sizes: list[Dim | None] = []
    for place, element in enumerate(asked):
        size = size_or_none(element)
        if isinstance(size, int) and size < -1:
            site.fail(f"shape {listed(asked)} has a negative size that is not -1")
        if isinstance(size, int) and size == 0 and not site.attribute("allowzero", 0):
            if data is None:
                size = site.fresh()
            elif place >= len(data):
                site.fail(f"shape {listed(asked)} has a 0 at place {place}, where the input has rank {len(data)}")
            else:
                size = data[place]
        sizes.append(None if isinstance(size, int) and size == -1 else size)
    open_ = [place for place, element in enumerate(asked) if isinstance(element, int) and element == -1]
    if len(open_) > 1:
        site.fail(f"shape {listed(asked)} has more than one -1")
    if open_ and site.attribute("allowzero", 0) and any(isinstance(item, int) and item == 0 for item in asked):
        site.fail(f"shape {listed(asked)} has a 0 and a -1, and allowzero is set")
    return same_elements(site, _with_what_is_left(site, data, asked, sizes, open_))


def _with_what_is_left(
    site: Site, data: Sequence[Dim] | None, asked: Sequence[Element], sizes: list[Dim | None], open_: Sequence[int]
) -> tuple[Dim, ...]:
    """The shape, with the one size filled in that follows from the number of elements; `open_` is the place of -1."""
    missing = [place for place, size in enumerate(sizes) if size is None]
    last = open_[0] if open_ else missing[0] if len(missing) == 1 else None
    known = [site.fresh() if size is None and place != last else size for place, size in enumerate(sizes)]
    shape = [1 if size is None else size for size in known]
    if data is None:
        return tuple([site.fresh() if place == last else size for place, size in enumerate(shape)])
    total, rest = map(product, _without_common(data, shape))
    if last is None:
        if not missing and total != rest:
            _same_count(site, data, asked, shape)
        return tuple(shape)
    if isinstance(rest, int) and rest == 0:
        shape[last] = site.fresh()
        return tuple(shape)
    shape[last] = total // rest
    over = total - shape[last] * rest
    if equals(over, 0) is False:
        site.fail(f"{listed(data)} has {product(data)} elements, which shape {listed(asked)} does not divide")
    if isinstance(over, Size):  # what was learnt may make it exact
        resolved = site.scope.equations.resolved
        total, rest = resolved(total), resolved(rest)
        if rest != 0 and total % rest == 0:
            shape[last] = total // rest
    return tuple(shape)


def _same_count(site: Site, data: Sequence[Dim], asked: Sequence[Element], shape: Sequence[Dim]) -> None:
    """Refuse a shape of another number of elements; a size that both have may be 0, so it takes part."""
    old, new = product(data), product(shape)
    if equals(old, new) is False:
        site.fail(f"{listed(data)} has {old} elements, and shape {listed(asked)} has {new}")
    site.same(old, new, "the numbers of elements")


def _without_common(one: Sequence[Dim], other: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Both shapes without the sizes that both have; a size that is known to be 0 stays."""
    left, kept = list(other), []
    for size in one:
        if size in left and (isinstance(size, Size) or size):
            left.remove(size)
        else:
            kept.append(size)
    return kept, left


@row("Flatten")
def flatten(site: Site) -> Type | None:
    """A matrix: the axes before `axis`, and the others."""
    shape = site.shape(0)
    if shape is None:
        return site.out(site.unknown(2))
    axis = site.axis(site.attribute("axis", 1), len(shape), past_end=True)
    return same_elements(site, (product(shape[:axis]), product(shape[axis:])))


@row("Squeeze")
def squeeze(site: Site) -> Type | None:
    """Without the axes, or without all axes of size 1 where none are given."""
    shape = site.shape(0)
    if not is_given(site, "axes", 1):
        # a size that may be 1 leaves the rank open
        if shape is None or any(isinstance(size, Size) and size.equals(1) is not False for size in shape):
            return site.out(None)
        return same_elements(site, tuple([size for size in shape if size != 1]))
    asked = given(site, "axes", 1)
    if shape is None or asked is None:
        return site.out(None)
    values = numbers(asked)
    if values is None:
        if len(asked) > len(shape):
            site.fail(f"{len(asked)} axes are to be left out of rank {len(shape)}")
        return site.out(site.unknown(len(shape) - len(asked)))
    axes = site.axes(values, len(shape))
    for axis in axes:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            site.fail(f"axis {axis} of {listed(shape)} has size {shape[axis]}, and is to be left out")
        site.same(shape[axis], 1, f"the size of axis {axis}, which is left out, and 1")
    return same_elements(site, tuple([size for axis, size in enumerate(shape) if axis not in axes]))


@row("Unsqueeze")
def unsqueeze(site: Site) -> Type | None:
    """With axes of size 1, counted in the output."""
    shape, asked = site.shape(0), given(site, "axes", 1)
    if shape is None or asked is None:
        return site.out(None)
    values = numbers(asked)
    rank = len(shape) + len(asked)
    if values is None:
        return site.out(site.unknown(rank))
    axes = site.axes(values, rank)
    left = iter(shape)
    return same_elements(site, tuple([1 if axis in axes else next(left) for axis in range(rank)]))


# Other orders --------------------------------------------------------------------------------------------------------


@row("Transpose")
def transpose(site: Site) -> Type | None:
    """The axes in the order `perm`, the reverse one where it is not given."""
    shape, perm = site.shape(0), site.attribute("perm")
    if shape is None:
        return site.out(None if perm is None else site.unknown(len(perm)))
    order = list(range(len(shape)))[::-1] if perm is None else list(perm)
    if sorted(order) != list(range(len(shape))):
        site.fail(f"perm {listed(order)} is not an order of the axes of rank {len(shape)}")
    array = array_of(site, 0)
    content = None if array is None else content_from(array.transpose(order))
    return site.out(tuple([shape[axis] for axis in order]), content=content)


@row("DepthToSpace", "SpaceToDepth")
def depth_and_space(site: Site) -> Type | None:
    """Blocks of an image become channels, or channels blocks."""
    block = site.attribute("blocksize", 0)
    if block < 1:
        site.fail(f"blocksize is {block}")
    _check_size(site, block * block, f"blocks of {block} x {block}")
    shape = site.shape_of_rank(0, 4)
    if shape is None:
        return site.out(site.unknown(4))
    batch, depth, height, width = shape
    if site.schema.name == "DepthToSpace":
        return site.out((batch, _parted(site, depth, block * block), height * block, width * block))
    return site.out((batch, depth * (block * block), _parted(site, height, block), _parted(site, width, block)))


def _check_size(site: Site, size: Dim | None, what: str) -> None:
    if isinstance(size, int) and size > LARGEST:
        site.fail(f"{what} are {size} elements, which overflows int64")


def _parted(site: Site, size: Dim, count: int) -> Dim:
    if equals(size % count, 0) is False:
        site.fail(f"size {size} cannot be divided by {count}")
    return size // count


@row("Trilu", "ReverseSequence")
def keep_matrix(site: Site) -> Type | None:
    """The shape of the input, which has two axes at least."""
    shape = site.shape(0)
    if shape is not None and len(shape) < 2:
        site.fail(f"the input has rank {len(shape)}, and must have 2 or more")
    if site.schema.name == "ReverseSequence" and shape is not None:
        lengths = site.shape_of_rank(1, 1)
        if lengths is not None:
            batch = shape[site.axis(site.attribute("batch_axis", 1), len(shape))]
            site.same(batch, lengths[0], "the batch and the number of lengths")
    return site.out(shape)


# More of the same ----------------------------------------------------------------------------------------------------


@row("Expand")
def expand(site: Site) -> Type | None:
    """The input and a shape broadcast to one another."""
    asked, shape = given(site, "shape", 1), site.shape(0)
    if asked is None or shape is None:
        return site.out(None)
    if any(isinstance(item, int) and item < 0 for item in asked):
        site.fail(f"shape {listed(asked)} has a negative size")
    made = site.broadcast(shape, tuple([size_or_fresh(site, item) for item in asked]))
    array, sizes = array_of(site, 0), known_shape(made)
    if array is None or sizes is None or math.prod(sizes) > MOST:
        return site.out(made)
    return site.out(made, content=content_from(np.broadcast_to(array, sizes)))


@row("Tile")
def tile(site: Site) -> Type | None:
    """Each axis repeated; in the first version one axis only."""
    shape = site.shape(0)
    if site.version < 6:
        axis, count = size_or_none(only(site, "axis", 2)), only(site, "tiles", 1)
        if shape is None or not isinstance(axis, int):
            return site.out(None if shape is None else site.unknown(len(shape)))
        times: list[Element] = [1] * len(shape)
        times[site.axis(axis, len(shape))] = size_or_none(count)
    else:
        asked = given(site, "repeats", 1)
        if shape is None:
            return site.out(None if asked is None else site.unknown(len(asked)))
        if asked is None:
            return site.out(site.unknown(len(shape)))
        times = list(asked)
    if len(times) != len(shape):
        site.fail(f"repeats has {len(times)} elements, and the input has rank {len(shape)}")
    if any(isinstance(count, int) and count < 0 for count in times):
        site.fail(f"repeats {listed(times)} has a negative number")
    made = tuple([_times(site, size, count) for size, count in zip(shape, times, strict=True)])
    array, repeats, sizes = array_of(site, 0), numbers(tuple(times)), known_shape(made)
    if array is None or repeats is None or sizes is None or math.prod(sizes) > MOST:
        return site.out(made)
    return site.out(made, content=content_from(np.tile(array, repeats)))


def _times(site: Site, size: Dim, count: Element) -> Dim:
    if isinstance(size, int) and size == 0:
        return 0
    return size * size_or_fresh(site, count)


@row("Pad")
def pad(site: Site) -> Type | None:
    """Each axis with what is added, or taken, at its ends."""
    name = "paddings" if site.version < 2 else "pads"
    shape, pads = site.shape(0), given(site, name, 1)
    if shape is None:
        count = None if pads is None or is_given(site, "axes", 3) else len(pads)
        return site.out(None if count is None else site.unknown(count // 2))
    axes = numbers(given(site, "axes", 3)) if is_given(site, "axes", 3) else list(range(len(shape)))
    if axes is None or pads is None:
        return site.out(site.unknown(len(shape)))
    axes = site.axes(axes, len(shape))
    if len(pads) != 2 * len(axes):
        site.fail(f"{name} has {len(pads)} elements, and there are {len(axes)} axes to pad")
    made = list(shape)
    for place, axis in enumerate(axes):
        ends = size_or_none(pads[place]), size_or_none(pads[place + len(axes)])
        if isinstance(ends[0], int) and isinstance(ends[1], int):
            _check_size(site, ends[0] + ends[1], f"the pads of axis {axis}")
        made[axis] = site.fresh() if ends[0] is None or ends[1] is None else shape[axis] + ends[0] + ends[1]
        if _is_negative(made[axis]):
            site.fail(f"axis {axis} of {listed(shape)} would get size {made[axis]}")
    return site.out(tuple(made))


def _is_negative(size: Dim) -> bool:
    high = size if isinstance(size, int) else size.high
    return high is not None and high < 0


@row("CenterCropPad")
def center_crop_pad(site: Site) -> Type | None:
    """The axes with the sizes that are asked for."""
    shape, asked = site.shape(0), given(site, "shape", 1)
    if shape is None:
        return site.out(None)
    axes = site.axes(site.attribute("axes") or range(len(shape)), len(shape))
    if asked is None:
        asked = (None,) * len(axes)
    if len(asked) != len(axes):
        site.fail(f"shape has {len(asked)} elements, and there are {len(axes)} axes")
    made = list(shape)
    for axis, size in zip(axes, asked, strict=True):
        made[axis] = size_or_fresh(site, size)
    return site.out(tuple(made))


@row("Col2Im")
def columns_to_image(site: Site) -> Type | None:
    """Batch, channels and the image; a column holds a block of each channel."""
    shape = site.shape_of_rank(0, 3)
    image, block = given(site, "image_shape", 1), given(site, "block_shape", 2)
    spatial = image if image is not None else block and (None,) * len(block)
    if spatial is None:
        return site.out(None)
    sizes = [size_or_none(item) for item in block or (None,)]
    area = product([size for size in sizes if size is not None]) if None not in sizes else None
    _check_size(site, area, "blocks of block_shape")
    batch = site.fresh() if shape is None else shape[0]
    known = shape is not None and area is not None and area != 0
    channels = shape[1] // area if shape is not None and area is not None and known else site.fresh()
    return site.out((batch, channels, *[size_or_fresh(site, item) for item in spatial]))


# Joining and parting -------------------------------------------------------------------------------------------------


@row("Concat")
def concat(site: Site) -> Type | None:
    """The inputs one after the other along an axis."""
    shapes = [site.shape(place) for place in range(len(site.inputs))]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return site.out(None)
    ranks = [len(shape) for shape in known]
    if len(set(ranks)) > 1:
        site.fail(f"inputs of ranks {listed(ranks)} cannot be joined")
    axis = site.axis(site.attribute("axis", 1), ranks[0])
    made: list[Dim] = []
    for place, sizes in enumerate(zip(*known, strict=True)):
        if place == axis:
            made.append(sum(sizes) if len(known) == len(shapes) else site.fresh())
            continue
        size = sizes[0]
        for other in sizes[1:]:
            if other != size:
                size = site.same(size, other, f"sizes of axis {place}, beside the axis {axis} that is joined,")
        made.append(size)
    return site.out(tuple(made), content=_joined(site, axis, len(ranks) and ranks[0]))


def _joined(site: Site, axis: int, rank: int) -> Content:
    if all(site.content(place) is None for place in range(len(site.inputs))):
        return None
    if rank == 1:
        parts = [given(site, "", place) for place in range(len(site.inputs))]
        return None if None in parts else tuple([item for part in parts for item in part or ()])
    arrays = [array_of(site, place, holes=True) for place in range(len(site.inputs))]
    found = [array for array in arrays if array is not None and array.ndim == rank]
    if len(found) != len(arrays) or sum(array.size for array in found) > MOST:
        return None
    return content_from(np.concatenate(found, axis))


@row("Split")
def split(site: Site) -> Outputs:
    """Parts along an axis: of the sizes that are given, or equal ones, of which the last may be smaller."""
    shape, axis = site.shape(0), site.attribute("axis", 0)
    if shape is None:
        return [site.out(None) for _ in range(site.outputs)]
    axis = site.axis(axis, len(shape))
    if not site.outputs:
        site.fail("it has at least one output, and here none")
    sizes = _part_sizes(site, shape[axis])
    if len(sizes) != site.outputs:
        site.fail(f"there are {len(sizes)} parts, and {site.outputs} outputs")
    array, numbers_ = array_of(site, 0), known_shape(tuple(sizes))
    parts: list[Any] = [None] * len(sizes)
    if array is not None and numbers_ is not None:
        parts = np.split(array, np.cumsum(numbers_)[:-1].tolist(), axis)
    return [
        site.out((*shape[:axis], size, *shape[axis + 1 :]), content=content_from(part))
        for size, part in zip(sizes, parts, strict=True)
    ]


def _part_sizes(site: Site, whole: Dim) -> list[Dim]:
    if is_given(site, "split", 1):
        asked = given(site, "split", 1)
        if asked is None:
            return [site.fresh() for _ in range(site.outputs)]
        open_ = [place for place, item in enumerate(asked) if size_or_none(item) is None]
        sizes = [size_or_none(item) for item in asked]
        known = [size for size in sizes if size is not None]
        if any(map(_is_negative, known)):
            site.fail(f"split {listed(asked)} has a negative size")
        if len(open_) == 1:  # what the others leave
            return [whole - sum(known) if size is None else size for size in sizes]
        if not open_:
            total = sum(known)
            if equals(total, whole) is False:
                site.fail(f"split {listed(asked)} has the sum {total}, and the axis has size {whole}")
            site.same(whole, total, "the size of the axis and the sum of the parts")
        return [site.fresh() if size is None else size for size in sizes]
    count = site.attribute("num_outputs") or site.outputs
    if count != site.outputs:
        site.fail(f"there are {count} parts, and {site.outputs} outputs")
    if site.version < 18:
        return [_parted(site, whole, count)] * count
    part = quotient_up(whole, count)
    last = whole - part * (count - 1)
    if _is_negative(last):
        site.fail(f"an axis of size {whole} has no {count} parts of size {part}")
    return [*[part] * (count - 1), last]
