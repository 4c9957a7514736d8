"""What the blocks of all formats consist of: half floats, and small unsigned numbers packed into bytes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Blocks: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Parts: TypeAlias = "tuple[Array, Floats]"
"""Small integers and scales, a row for each block: [blocks, elements], [blocks, scales]."""


def columns(blocks: Blocks, *widths: int) -> list[Blocks]:
    """The blocks cut into fields of these numbers of bytes; they must sum up to a block."""
    ends = np.cumsum(widths)
    assert ends[-1] == blocks.shape[1]
    return [blocks[:, end - width : end] for end, width in zip(ends, widths, strict=True)]


def numbers(field: Blocks, kind: str) -> Array:
    """A field as little-endian numbers of numpy's type, one row per block."""
    return np.ascontiguousarray(field).view(kind)


def halves(field: Blocks) -> Floats:
    """A field of float16 as float32."""
    return numbers(field, "<f2").astype(np.float32)


def lanes(field: Array, bits: int, run: int, count: int | None = None) -> Array:
    """Numbers of `bits`, low bits first, of which each run of `run` elements has one part: all low ones come first.

    [blocks, runs, lanes, run]. With a run of 1 the parts of one element follow each other. `count` is how many parts an
    element has, where it is not full.
    """
    width = field.dtype.itemsize * 8
    shifts = np.arange(0, bits * (count or width // bits), bits).astype(field.dtype)
    split = field.reshape(len(field), -1, 1, run) >> shifts[:, None]
    found: Array = split & field.dtype.type((1 << bits) - 1)
    return found
