"""What a row is given as numbers: attributes in some versions and inputs in others, and contents as arrays.

An element of which nothing is known is None; so is the whole where not even the number of elements is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from proto_schema.inference.site import Site
from proto_schema.inference.types import MOST, Content, Element, Shape, Tensor, is_size, known_shape
from proto_schema.sizes import Dim, Size

Array: TypeAlias = "np.ndarray[Any, Any]"


def is_given(site: Site, name: str, place: int) -> bool:
    """Whether the node has the attribute `name`, or the input `place` in versions where it is an input."""
    return name in site.attributes or (name not in site.schema.attributes and site.has(place))


def given(site: Site, name: str, place: int) -> Content:
    """The elements of what is an attribute in some versions and the input `place` in others."""
    if name in site.attributes or name in site.schema.attributes:
        value = site.attribute(name)
        return None if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
    content = site.content(place)
    if content is not None:
        return content
    shape = known_shape(site.shape(place))
    count = math.prod(shape) if shape is not None else MOST + 1
    return (None,) * count if count <= MOST else None


def only(site: Site, name: str, place: int) -> Element:
    """The one element of what is a number."""
    found = given(site, name, place)
    return found[0] if found is not None and len(found) == 1 else None


def numbers(items: Content) -> list[int] | None:
    """The elements, where all are integers; else None."""
    if items is None:
        return None
    found = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    return found if len(found) == len(items) else None


def same_elements(site: Site, shape: Shape) -> Tensor:
    """The first input in another shape, with its content."""
    content, sizes = site.content(0), known_shape(shape)
    fits = content is not None and sizes is not None and math.prod(sizes) == len(content)
    return site.out(shape, content=content if fits else None)


def size_or_none(element: Element) -> Dim | None:
    """An element as a size: a whole number in floating point is one."""
    if isinstance(element, float) and element.is_integer():
        return int(element)
    return element if isinstance(element, (int, Size)) and is_size(element) else None


def size_or_fresh(site: Site, element: Element) -> Dim:
    """An element as a size, a new symbol where nothing is known of it."""
    size = size_or_none(element)
    return site.fresh() if size is None else size


def quotient_up(size: Dim, by: Dim) -> Dim:
    """The quotient, rounded up."""
    return -(-size // by) if isinstance(by, int) else (size + by - 1) // by


def array_of(site: Site, place: int, *, holes: bool = False) -> Array | None:
    """The content of an input in its shape; None where it is large, and without `holes` where nothing is known."""
    content, shape = site.content(place), known_shape(site.shape(place))
    if shape is None or (content is None and not holes) or math.prod(shape) > MOST:
        return None
    array = np.full(shape, None, dtype=object)
    if content is not None:
        array.reshape(-1)[:] = content
    return array


def content_from(array: Array | None) -> Content:
    """The elements of such an array."""
    return None if array is None or array.size > MOST else tuple(array.reshape(-1).tolist())


def listed(sizes: Iterable[object]) -> str:
    """A shape as it stands in errors."""
    return "[" + ", ".join(map(str, sizes)) + "]"
