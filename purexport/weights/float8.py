"""Weights in floats of 8 bits with scales, as transformers (`fp8`), compressed-tensors, ModelOpt and vLLM write them.

    P [rows, columns] of FLOAT8E4M3FN, P_scale_inv [ceil(rows / 128), ceil(columns / 128)]   a scale for each block
    P.weight [rows, columns], P.weight_scale [], [1], [rows] or [rows, 1], or blocks          for all, or for each row

A number is its code's, times the scale, in float32; the name says inverse, because the weight was divided by the scale
when it was written. Stacks of such matrices have an axis more in both. The blocks are those of the config
(`weight_block_size`), or of 128 x 128; where neither fits, those that cut the matrix into equal parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.external.payload import Payload, whole
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.coded import CodedFloats, Codes, Floats
from proto_schema.quantization.codes.elements import FLOATS, singles
from proto_schema.quantization.codes.floats import values_of
from proto_schema.tensors.dtypes import element_count, type_name
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, shown

FLOAT8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
BLOCKS, WHOLE = "_scale_inv", ".weight_scale"  # endings of the names of scales
_USUAL = (128, 128)
_STEP = 1 << 18  # elements that are made at once


def scaled(found: Mapping[str, Stored], name: str, config: Mapping[str, Any]) -> Stored | None:
    """The weight of these scales, None where there is none in floats of 8 bits. WeightsError for what does not fit."""
    weight = found.get(name.removesuffix(BLOCKS) if name.endswith(BLOCKS) else name.removesuffix("_scale"))
    if weight is None or weight.dtype not in FLOAT8:
        return None
    scales = found[name]
    if scales.dtype not in (*FLOATS[:3], TensorProto.FLOAT8E8M0):
        raise _error(scales, f"must be floats, and is {type_name(scales.dtype)}")
    grid = _grid(weight, scales)
    block = _block(weight, scales, grid, config)
    made = Scaled(weight, scales, grid, block)
    return Stored(weight.name, TensorProto.FLOAT, weight.shape, made, weight.origin)


def _grid(weight: Stored, scales: Stored) -> tuple[int, int]:
    """How many scales a matrix has along its rows and columns."""
    shape, rank = scales.shape, len(weight.shape)
    if element_count(shape) == 1:
        return 1, 1
    if rank < 2:
        raise _error(scales, f"has the shape {list(shape)}, and its weight {list(weight.shape)}")
    if scales.name.endswith(WHOLE) and shape in (weight.shape[:-1], (*weight.shape[:-1], 1)):
        return weight.shape[-2], 1
    if len(shape) != rank or shape[:-2] != weight.shape[:-2] or not all(shape):
        raise _error(scales, f"has the shape {list(shape)}, and its weight {list(weight.shape)}")
    return shape[-2], shape[-1]


def _block(weight: Stored, scales: Stored, grid: tuple[int, int], config: Mapping[str, Any]) -> tuple[int, int]:
    sizes = (1, *weight.shape)[-2:]
    if grid == (1, 1) and element_count(scales.shape) == 1:
        return max(sizes[0], 1), max(sizes[1], 1)
    given = config.get("weight_block_size")
    told = isinstance(given, Sequence) and len(given) == 2 and all(type(size) is int and size > 0 for size in given)
    for rows, columns in (*([tuple(given or ())] if told else []), _USUAL):
        if (-(-sizes[0] // rows), -(-sizes[1] // columns)) == grid:
            return rows, columns
    if sizes[0] % grid[0] or sizes[1] % grid[1]:
        raise _error(scales, f"has {grid[0]} x {grid[1]} scales, which do not fit the weight {list(weight.shape)}")
    return max(sizes[0] // grid[0], 1), max(sizes[1] // grid[1], 1)


class Scaled(CodedFloats):
    """The numbers of such a weight as float32, made some rows at a time; matrices of a stack lie behind each other."""

    def __init__(self, weight: Stored, scales: Stored, grid: tuple[int, int], block: tuple[int, int]) -> None:
        self._matrix = (1, *weight.shape)[-2:]
        count = element_count(weight.shape)
        super().__init__(count // max(self._matrix[1], 1), self._matrix[1], weight.dtype, block[1])
        self._weight, self._scale = weight, scales
        self._grid, self._block = grid, block

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self._weight.payload, self._scale.payload)

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self._grid, self._block)

    def codes(self) -> Iterator[Codes]:
        if self.rows and self.length:
            step = max(_STEP // self.length, 1) * self.length
            for part in whole(self._weight.payload, step, self.length):
                yield np.frombuffer(part, np.uint8).reshape(-1, self.length)

    def scales(self) -> Floats:
        data, places, rows = self._scale.payload.tobytes(), np.arange(self.rows), max(self._matrix[0], 1)
        if self._scale.dtype == TensorProto.FLOAT8E8M0:
            found = values_of(np.frombuffer(data, np.uint8), self._scale.dtype).reshape(-1, self._grid[1])
        else:
            found = singles(memoryview(data), self._scale.dtype).reshape(-1, self._grid[1])
        at = (places // rows) * self._grid[0] + places % rows // self._block[0]
        made: Floats = found[at % len(found)]
        return made


def _error(item: Stored, reason: str) -> WeightsError:
    again = "write the checkpoint again with the library that quantized it"
    return WeightsError(f"{item.origin}: tensor {shown(item.name)} {reason}; {again}", code="weights-do-not-fit")
