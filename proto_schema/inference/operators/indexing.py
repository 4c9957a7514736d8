"""Rows of operators that take elements from places, and put them there.

The content of small integer tensors goes along where the places are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.inference.given import array_of, content_from, listed
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import MOST, Content, Shape, Type, known_shape
from proto_schema.sizes import Dim


@row("Gather")
def gather(site: Site) -> Type | None:
    """Slices of an axis; the axes of the indices stand in its place."""
    shape, indices = site.shape(0), site.shape(1)
    if shape is None:
        return site.out(None)
    axis = site.axis(site.attribute("axis", 0), len(shape))
    if indices is None:
        return site.out(None)
    return site.out((*shape[:axis], *indices, *shape[axis + 1 :]), content=_gathered(site, axis))


def _gathered(site: Site, axis: int) -> Content:
    content, places, rank = site.content(0), site.content(1), site.rank(0)
    if content is None or places is None:
        return None
    if rank == 1:
        size = len(content)
        return tuple([content[at] if isinstance(at, int) and -size <= at < size else None for at in places])
    array = array_of(site, 0)
    size = 0 if array is None else array.shape[axis]
    known = [at for at in places if isinstance(at, int) and -size <= at < size]
    if array is None or len(known) < len(places) or array.size // max(size, 1) * len(places) > MOST:
        return None
    return content_from(array.take(known, axis))


@row("GatherElements")
def gather_elements(site: Site) -> Type | None:
    """An element for each index."""
    shape, indices = site.shape(0), site.shape(1)
    if shape is not None:
        site.axis(site.attribute("axis", 0), len(shape))
    if shape is not None and indices is not None and len(shape) != len(indices):
        site.fail(f"the data has rank {len(shape)}, and the indices have rank {len(indices)}")
    if indices is None and shape is not None:
        return site.out(site.unknown(len(shape)))
    return site.out(indices)


@row("GatherND")
def gather_nd(site: Site) -> Type | None:
    """A slice for each row of indices."""
    shape, indices, batch = site.shape(0), site.shape(1), site.attribute("batch_dims", 0)
    if shape is None or indices is None:
        return site.out(None)
    if not indices or len(indices) <= batch or len(shape) <= batch:
        site.fail(f"data of rank {len(shape)} and indices of rank {len(indices)} do not go with batch_dims {batch}")
    for place in range(batch):
        site.same(shape[place], indices[place], f"sizes of axis {place} of the data and the indices")
    count = indices[-1]
    if not isinstance(count, int):
        return site.out(None)
    if count > len(shape) - batch:
        site.fail(f"the indices have {count} coordinates, and the data has {len(shape) - batch} axes")
    return site.out((*indices[:-1], *shape[batch + count :]))


@row("Scatter", "ScatterElements")
def scatter_elements(site: Site) -> Type | None:
    """The data, with other elements at some places."""
    shape, indices, updates = site.shape(0), site.shape(1), site.shape(2)
    if shape is not None:
        site.axis(site.attribute("axis", 0), len(shape))
        if indices is not None and len(shape) != len(indices):
            site.fail(f"the data has rank {len(shape)}, and the indices have rank {len(indices)}")
    _fit(site, updates, indices)
    return site.out(shape)


@row("ScatterND")
def scatter_nd(site: Site) -> Type | None:
    """The data, with other slices at some places."""
    shape, indices, updates = site.shape(0), site.shape(1), site.shape(2)
    if shape is None or indices is None:
        return site.out(shape)
    if not indices:
        site.fail("the indices have rank 0")
    count = indices[-1]
    if isinstance(count, int):
        if count > len(shape):
            site.fail(f"the indices have {count} coordinates, and the data has rank {len(shape)}")
        _fit(site, updates, (*indices[:-1], *shape[count:]))
    return site.out(shape)


def _fit(site: Site, updates: Shape, wanted: Shape) -> None:
    """Refuse updates of another shape than there are places for."""
    if updates is None or wanted is None or updates == wanted:
        return
    text = f"updates have shape {listed(updates)}, and there are places for {listed(wanted)}"
    if len(updates) != len(wanted):
        site.fail(text)
    for one, other in zip(updates, wanted, strict=True):
        if isinstance(one, int) and isinstance(other, int) and one != other:
            site.fail(text)
        site.same(one, other, f"{text}: sizes")


@row("TensorScatter")
def tensor_scatter(site: Site) -> Type | None:
    """The cache, with the update written into it."""
    return site.out(site.shape(0))


@row("Compress")
def compress(site: Site) -> Type | None:
    """What a condition chooses of an axis, or of all elements."""
    shape, axis = site.shape(0), site.attribute("axis")
    chosen: Dim = _number_chosen(site)
    if axis is None:
        return site.out((chosen,))
    if shape is None:
        return site.out(None)
    axis = site.axis(axis, len(shape))
    return site.out((*shape[:axis], chosen, *shape[axis + 1 :]))


def _number_chosen(site: Site) -> Dim:
    site.shape_of_rank(1, 1)
    condition: Sequence[object] = site.content(1) or (None,)
    whole = known_shape(site.shape(0))
    if any(not isinstance(item, bool) for item in condition) or whole is None:
        return site.fresh()
    return sum(map(bool, condition))
