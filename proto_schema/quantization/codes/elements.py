"""Elements of pieces: bytes to float32 and back, codes packed into bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.minifloat import bfloat16_codes

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


def singles(data: memoryview, dtype: int) -> Floats:
    """A copy of elements as float32; `dtype` is one of `FLOATS`. A DOUBLE beyond its range becomes infinite."""
    row = DTYPES[dtype]
    if dtype == TensorProto.BFLOAT16:
        bits = np.frombuffer(data, row.codes).astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    with np.errstate(over="ignore"):
        return np.frombuffer(data, row.numpy).astype(np.float32)


def stored(values: Floats, dtype: int) -> Array:
    """Values as the elements that a file holds: of numpy's type, or codes where numpy has none."""
    if dtype == TensorProto.BFLOAT16:
        return bfloat16_codes(values).astype("<u2", copy=False)
    return values.astype(DTYPES[dtype].numpy, copy=False)


def packed(codes: npt.NDArray[np.uint8], bits: int) -> bytes:
    """Codes, which have no higher bits, in their bytes, low bits first; the last byte is filled with zeros."""
    if bits == 8:
        return codes.tobytes()
    apiece = 8 // bits
    words: Array = np.ascontiguousarray(filled(codes.reshape(-1), apiece, 0)).view(f"<u{apiece}")
    octets = words.copy()  # each byte of a word has a code; they are moved into its first byte
    for place in range(1, apiece):
        octets |= words >> (8 - bits) * place
    made: bytes = octets.astype(np.uint8).tobytes()
    return made


def filled(elements: Array, multiple: int, filler: int) -> Array:
    """The array with its last axis made longer, to a multiple."""
    missing = -elements.shape[-1] % multiple
    if not missing:
        return elements
    tail = np.full((*elements.shape[:-1], missing), filler, elements.dtype)
    return np.concatenate([elements, tail], axis=-1)


def extended(values: Floats, axis: int, multiple: int) -> Floats:
    """The matrix with rows or columns of zeros up to a multiple."""
    missing = -values.shape[axis] % multiple if multiple else 0
    if not missing:
        return values
    shape = list(values.shape)
    shape[axis] = missing
    return np.concatenate([values, np.zeros(shape, np.float32)], axis=axis)


def cut(chunks: Iterable[memoryview], sizes: Iterable[int]) -> Iterator[memoryview]:
    """The bytes of chunks in pieces of these sizes; a piece that a chunk holds is a view. They must sum up alike."""
    source = iter(chunks)
    rest = memoryview(b"")
    for size in sizes:
        if rest.nbytes < size:
            held = bytearray(rest)
            while len(held) < size:
                chunk = next(source)
                missing = size - len(held)
                if not held and chunk.nbytes >= size:
                    rest, piece = chunk[size:], chunk[:size]
                    break
                held += chunk[:missing]
                rest = chunk[missing:]
            else:
                piece = memoryview(held)
        else:
            piece, rest = rest[:size], rest[size:]
        yield piece
    next(source, None)  # behind its last chunk a source looks whether it is the one that it was
