"""The blocks of llama.cpp's plain formats and of its K formats: `rounded scale * small integer (+ offset)`.

A function takes blocks as rows of bytes and gives their elements as float32, a row for each. Those of formats without
an offset give the integers and the scales instead (`Parts`), of which `scaled` makes the elements. The order of the
roundings to float32 is that of llama.cpp, so that the numbers are equal bit by bit.
Source: the layouts and formulas of ggml (ggml-common.h and ggml-quants.c say them).
"""

from __future__ import annotations

import numpy as np

from purexport.weights.gguf.bits import Array, Blocks, Floats, Parts, columns, halves, lanes, numbers

# twice the numbers of FLOAT4E2M1, so that they are integers
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _rows(values: Array) -> Array:
    """One row per block."""
    return values.reshape(len(values), -1)


def scaled(parts: Parts) -> Floats:
    """The elements: each scale is for as many integers of its row as any other."""
    integers, scales = parts
    found: Floats = scales[..., None] * integers.reshape(*scales.shape, -1).astype(np.float32)
    return found.reshape(len(scales), -1)


def q4_0(blocks: Blocks) -> Parts:
    """A scale; the low halves of 16 bytes, then the high ones; 8 is zero."""
    scale, codes = columns(blocks, 2, 16)
    return _rows(lanes(codes, 4, 16)).view(np.int8) - np.int8(8), halves(scale)


def q4_1(blocks: Blocks) -> Floats:
    """As Q4_0, with the least value in place of a zero."""
    scale, least, codes = columns(blocks, 2, 2, 16)
    return halves(scale) * _rows(lanes(codes, 4, 16)).astype(np.float32) + halves(least)


def _five(high: Blocks, low: Blocks) -> Floats:
    """Numbers of five bits: the highest bits lie in a word of their own."""
    fifth = _rows(lanes(numbers(high, "<u4"), 1, 1)).astype(np.uint8)
    found: Floats = (_rows(lanes(low, 4, 16)) | fifth << 4).astype(np.float32)
    return found


def q5_0(blocks: Blocks) -> Parts:
    """As Q4_0 with a fifth bit; 16 is zero."""
    scale, high, low = columns(blocks, 2, 4, 16)
    return _five(high, low) - 16, halves(scale)


def q5_1(blocks: Blocks) -> Floats:
    """As Q4_1 with a fifth bit."""
    scale, least, high, low = columns(blocks, 2, 2, 4, 16)
    return halves(scale) * _five(high, low) + halves(least)


def q8_0(blocks: Blocks) -> Parts:
    """A scale and 32 bytes with signs."""
    scale, codes = columns(blocks, 2, 32)
    return numbers(codes, "i1"), halves(scale)


def q8_k(blocks: Blocks) -> Parts:
    """A scale in float32, 256 bytes with signs, and sums of 16, which only products use."""
    scale, codes, _ = columns(blocks, 4, 256, 32)
    return numbers(codes, "i1"), numbers(scale, "<f4")


def q2_k(blocks: Blocks) -> Floats:
    """16 pairs of a scale and an offset in four bits each, and the two scales of these."""
    pairs, codes, scale, least = columns(blocks, 16, 64, 2, 2)
    steps = (halves(scale) * (pairs & 15).astype(np.float32))[..., None]
    offsets = (halves(least) * (pairs >> 4).astype(np.float32))[..., None]
    return _rows(steps * lanes(codes, 2, 32).reshape(-1, 16, 16).astype(np.float32) - offsets)


def q3_k(blocks: Blocks) -> Parts:
    """16 scales in six bits; the third bit of each number, where it is not set, takes 4 away."""
    mask, codes, packed, scale = columns(blocks, 32, 64, 12, 2)
    low = _rows(lanes(packed[:, :8], 4, 8))
    high = _rows(lanes(packed[:, 8:], 2, 4))
    steps = halves(scale) * ((low | high << 4).astype(np.float32) - 32)
    whole = _rows(lanes(codes, 2, 32)) | _rows(lanes(mask, 1, 32)) << 2
    return whole.view(np.int8) - np.int8(4), steps


def _six(packed: Blocks) -> tuple[Floats, Floats]:
    """Eight scales and eight offsets of six bits each in 12 bytes: four whole ones each, and the others in parts."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6 << 4)], axis=1)
    offsets = np.concatenate([second & 63, (rest >> 4) | (second >> 6 << 4)], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def q4_k(blocks: Blocks) -> Floats:
    """Eight runs of 32 numbers, each with a scale and an offset."""
    scale, least, packed, codes = columns(blocks, 2, 2, 12, 128)
    scales, offsets = _six(packed)
    found = lanes(codes, 4, 32).reshape(-1, 8, 32).astype(np.float32)
    return _rows((halves(scale) * scales)[..., None] * found - (halves(least) * offsets)[..., None])


def q5_k(blocks: Blocks) -> Floats:
    """As Q4_K with a fifth bit: bit `i` of a byte belongs to run `i`."""
    scale, least, packed, high, codes = columns(blocks, 2, 2, 12, 32, 128)
    scales, offsets = _six(packed)
    fifth = lanes(high, 1, 32).reshape(-1, 8, 32)
    found = (lanes(codes, 4, 32).reshape(-1, 8, 32) | fifth << 4).astype(np.float32)
    return _rows((halves(scale) * scales)[..., None] * found - (halves(least) * offsets)[..., None])


def q6_k(blocks: Blocks) -> Parts:
    """16 scales in a byte each; four low bits and two high ones; 32 is zero."""
    low, high, scales, scale = columns(blocks, 128, 64, 16, 2)
    steps = halves(scale) * numbers(scales, "i1").astype(np.float32)
    codes = _rows(lanes(low, 4, 64)) | _rows(lanes(high, 2, 32)) << 4
    return codes.view(np.int8) - np.int8(32), steps


def _ternary(field: Blocks, run: int, count: int) -> Array:
    """Digits to the base of three, the first the most significant; a byte is the fraction `digits / 3**5` of 256."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count]
    turned = field.reshape(len(field), -1, 1, run) * powers[:, None]  # modulo 256: drops the digits before
    return _rows(turned.astype(np.uint16) * 3 >> 8)


def tq1_0(blocks: Blocks) -> Parts:
    """Five numbers of -1, 0 and 1 in a byte; four in each of the last four."""
    first, second, last, scale = columns(blocks, 32, 16, 4, 2)
    digits = [_ternary(first, 32, 5), _ternary(second, 16, 5), _ternary(last, 4, 4)]
    return np.concatenate(digits, axis=1).astype(np.int8) - np.int8(1), halves(scale)


def tq2_0(blocks: Blocks) -> Parts:
    """Four numbers of -1, 0, 1 and 2 in a byte."""
    codes, scale = columns(blocks, 64, 2)
    return _rows(lanes(codes, 2, 32)).view(np.int8) - np.int8(1), halves(scale)


def mxfp4(blocks: Blocks) -> Floats:
    """FLOAT4E2M1 with a power of two: exponent `e` scales the doubled numbers by 2**(e - 128)."""
    exponent, codes = columns(blocks, 1, 16)
    scale = np.ldexp(np.float32(1), exponent.astype(np.int32) - 128)
    found: Floats = scale * _E2M1[_rows(lanes(codes, 4, 16))]
    return found


def nvfp4(blocks: Blocks) -> Floats:
    """Four runs of 16 FLOAT4E2M1, each with a scale in E4M3, whose sign counts for nothing; 127, its NaN, is zero."""
    scales, codes = columns(blocks, 4, 32)
    exponent, fraction = (scales >> 3 & 15).astype(np.int32), (scales & 7).astype(np.float32)
    raw = np.where(exponent == 0, np.ldexp(fraction, -9), np.ldexp(1 + fraction / 8, exponent - 7))
    steps = np.where((scales == 0) | (scales == 127), np.float32(0), raw * np.float32(0.5)).astype(np.float32)
    return _rows(steps[..., None] * _E2M1[lanes(codes, 4, 8).reshape(-1, 4, 16)])
