"""The constant that Reshape takes where sizes are expressions: `(b, t, 8)` to `(b, t, 4, 2)` is `[0, 0, 4, 2]`.

In the shape of a Reshape, 0 is the size of the input at the same place, and -1 the size that is left.  A 0 is right for
all sizes.  A -1 is right unless the other sizes have the product 0: then any size would do, and runtimes refuse.
"""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.sizes.size import Dim, bounds

Sizes = Sequence["Dim | None"]
"""The sizes of a tensor; None is a size of which nothing is known."""


def constant_shape(old: Sizes, new: Sizes, left_over: int | None = None) -> list[int] | None:
    """The shape from `old` to `new` as numbers, right for all sizes; None where there is none.

    At the place `left_over` a -1 may stand even where it is ambiguous, because whoever asks for it refuses that too.
    """
    found: list[int] = []
    copied: list[int] = []
    for place, size in enumerate(new):
        if isinstance(size, int) and size < 1:
            return None  # a 0 would be the size of the input
        if is_copied(old, place, size):
            copied.append(place)
        found.append(size if isinstance(size, int) else 0 if place in copied else -1)
    left = [place for place, size in enumerate(found) if size == -1]
    if not left and len(copied) == 1:
        found[copied[0]] = -1
    if len(left) > 1 or (left and left[0] != left_over and any(may_be_zero(new[place]) for place in copied)):
        return None
    return found


def is_copied(old: Sizes, place: int, size: Dim | None) -> bool:
    """Whether the size at a place of the new shape can change, and is the one that the old shape has there."""
    return size is not None and not isinstance(size, int) and place < len(old) and size == old[place]


def what_is_left(old: Sizes, new: Sizes, place: int) -> Dim | None:
    """The size at `place` of the new shape, which has as many elements as the old one; None where it is not known."""
    others = [size for other, size in enumerate(new) if other != place]
    total: Dim = 1
    for size in old:
        if size is None:
            return None
        if size in others:
            others.remove(size)
        else:
            total = total * size
    rest: Dim = 1
    for other in others:
        if other is None:
            return None
        rest = rest * other
    return None if rest == 0 or total % rest != 0 else total // rest


def may_be_zero(size: Dim | None) -> bool:
    """Whether a size is not known to be 1 or more."""
    low = None if size is None else bounds(size)[0]
    return low is None or low < 1
