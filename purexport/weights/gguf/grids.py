"""The blocks of llama.cpp's IQ formats as float32: codes are places in tables of vectors, with signs beside them.

The tables were found by search and follow no formula, so they are data (`grids.json`, made by
`tools/make_grids.py`): for each format the values that occur, and which of them each element is, as base64.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from purexport.weights.gguf.bits import Array, Blocks, Floats, Parts, columns, halves, lanes, numbers

_UNEVEN = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
_DELTA = np.float32(0.125)


@cache
def grid(name: str) -> Floats:
    """The table of a format: a row for each code."""
    row = json.loads(Path(__file__).with_name("grids.json").read_text(encoding="ascii"))[name]
    octets = np.frombuffer(base64.b64decode(row["codes"]), np.uint8)
    places = lanes(octets[None], row["bits"], 1).reshape(-1, row["width"])
    found: Floats = np.array(row["values"], np.float32)[places]
    found.flags.writeable = False
    return found


def _signs(octets: Array) -> Floats:
    """-1 where a bit is set, eight for each byte, in an axis of their own."""
    bits = octets[..., None] >> np.arange(8, dtype=np.uint8) & 1
    found: Floats = np.float32(1) - np.float32(2) * bits.astype(np.float32)
    return found


def _parity_signs(codes: Array) -> Floats:
    """As `_signs` of seven bits; the eighth makes their number even."""
    folded = codes ^ codes >> 4
    folded = folded ^ folded >> 2
    parity = (folded ^ folded >> 1) & 1
    return _signs((codes | parity << 7).astype(np.uint8))


def _scaled(steps: Array, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Elements in groups that share a step."""
    found: Floats = steps[..., None] * values.reshape(len(values), *shape, -1)
    return found.reshape(len(values), -1)


def iq2_xxs(blocks: Blocks) -> Floats:
    """Eight runs of 32: four codes of 8 elements, then four signs of 7 bits and a scale of 4 in a word."""
    scale, rest = columns(blocks, 2, 64)
    words = numbers(rest, "<u4").reshape(-1, 8, 2)
    codes = np.ascontiguousarray(words[..., 0]).view(np.uint8)
    packed = np.ascontiguousarray(words[..., 1])
    steps = halves(scale) * (np.float32(0.5) + (packed >> 28).astype(np.float32)) * np.float32(0.25)
    signs = _parity_signs(lanes(packed, 7, 1, 4).reshape(-1, 32))
    return _scaled(steps, grid("iq2_xxs")[codes] * signs, (8,))


def _two_nibbles(field: Blocks) -> Floats:
    """The halves of bytes, the low one first."""
    return lanes(field, 4, 1).reshape(len(field), -1).astype(np.float32)


def iq2_xs(blocks: Blocks) -> Floats:
    """Codes of nine bits with signs of seven; a scale of four bits for 16 elements."""
    scale, rest, packed = columns(blocks, 2, 64, 8)
    codes = numbers(rest, "<u2")
    steps = halves(scale) * (np.float32(0.5) + _two_nibbles(packed)) * np.float32(0.25)
    return _scaled(steps, grid("iq2_xs")[codes & 511] * _parity_signs(codes >> 9), (16,))


def iq2_s(blocks: Blocks) -> Floats:
    """Codes of ten bits, two of them apart; all signs; a scale of four bits for 16 elements."""
    scale, low, signs, high, packed = columns(blocks, 2, 32, 32, 8, 8)
    codes = low | lanes(high, 2, 1).reshape(-1, 32).astype(np.uint16) << 8
    steps = halves(scale) * (np.float32(0.5) + _two_nibbles(packed)) * np.float32(0.25)
    return _scaled(steps, grid("iq2_s")[codes] * _signs(signs), (16,))


def iq3_xxs(blocks: Blocks) -> Floats:
    """Codes of 4 elements; for each run of 32 four signs of 7 bits and a scale of 4."""
    scale, codes, rest = columns(blocks, 2, 64, 32)
    packed = numbers(rest, "<u4")
    steps = halves(scale) * (np.float32(0.5) + (packed >> 28).astype(np.float32)) * np.float32(0.5)
    signs = _parity_signs(lanes(packed, 7, 1, 4).reshape(-1, 32))
    return _scaled(steps, grid("iq3_xxs")[codes].reshape(-1, 32, 8) * signs, (8,))


def iq3_s(blocks: Blocks) -> Floats:
    """Codes of nine bits for 4 elements, one of them apart; all signs; a scale of four bits for 32 elements."""
    scale, low, high, signs, packed = columns(blocks, 2, 64, 8, 32, 4)
    codes = low | lanes(high, 1, 1).reshape(-1, 64).astype(np.uint16) << 8
    steps = halves(scale) * (1 + 2 * _two_nibbles(packed))
    return _scaled(steps, grid("iq3_s")[codes].reshape(-1, 32, 8) * _signs(signs), (8,))


def iq1_s(blocks: Blocks) -> Floats:
    """Codes of eleven bits for 8 elements; for each run of 32 a scale of three bits and the sign of an offset."""
    scale, low, rest = columns(blocks, 2, 32, 16)
    packed = numbers(rest, "<u2")
    steps = halves(scale) * (2 * (packed >> 12 & 7) + 1).astype(np.float32)
    offsets = np.where(packed & 0x8000, -_DELTA, _DELTA)[..., None, None]
    codes = low | lanes(packed, 3, 1, 4).reshape(-1, 32) << 8
    return _scaled(steps, grid("iq1")[codes].reshape(-1, 8, 4, 8) + offsets, (8,))


def iq1_m(blocks: Blocks) -> Floats:
    """As IQ1_S with an offset for 8 elements and a scale for 16; the float16 lies in the high bits of four words."""
    low, high, rest = columns(blocks, 32, 16, 8)
    words = numbers(rest, "<u2")
    parts = words >> 12 << np.array([0, 4, 8, 12], np.uint16)
    whole: npt.NDArray[np.uint16] = np.bitwise_or.reduce(parts, axis=1)
    scale = whole.astype("<u2").view("<f2").astype(np.float32)[:, None]
    steps = scale * (2 * lanes(words, 3, 1, 4).reshape(-1, 16) + 1).astype(np.float32)
    packed = lanes(high, 4, 1).reshape(-1, 32)
    codes = low | (packed & 7).astype(np.uint16) << 8
    offsets = np.where(packed & 8, -_DELTA, _DELTA)[..., None]
    return _scaled(steps, grid("iq1")[codes] + offsets, (16,))


def iq4_nl(blocks: Blocks) -> Parts:
    """A scale, and places in a table of 16 uneven numbers."""
    scale, codes = columns(blocks, 2, 16)
    return _UNEVEN[lanes(codes, 4, 16)].reshape(len(blocks), -1), halves(scale)


def iq4_xs(blocks: Blocks) -> Parts:
    """As IQ4_NL, with a scale of six bits for 32 elements; 32 is zero."""
    scale, high, low, codes = columns(blocks, 2, 2, 4, 128)
    upper = lanes(numbers(high, "<u2"), 2, 1).reshape(-1, 8)
    steps = halves(scale) * (_two_nibbles(low) + 16 * upper.astype(np.float32) - 32)
    return _UNEVEN[lanes(codes, 4, 16)].reshape(len(blocks), -1), steps
