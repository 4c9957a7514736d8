"""The types of tensors in GGUF, one row each: how many elements a block has, its bytes, and what it stands for.

Source: the enum ggml_type of llama.cpp. Codes that are missing here were removed there, or never given.
"""

from __future__ import annotations

from collections.abc import Callable

from proto_schema.onnx import TensorProto
from proto_schema.wire.records import dataclass
from purexport.weights.gguf import blocks, grids
from purexport.weights.gguf.bits import Blocks, Floats, Parts


@dataclass(frozen=True)
class GgufType:
    """A type: its elements are in the file as `dtype` has them, or in blocks that `decode` makes float32 of.

    `parts` gives the integers and the scales of blocks that consist of these alone. The integers need `bits`, or fewer.
    """

    code: int
    name: str
    elements: int
    size: int
    dtype: int = TensorProto.FLOAT
    decode: Callable[[Blocks], Floats] | None = None
    parts: Callable[[Blocks], Parts] | None = None
    bits: int = 0


def _parted(code: int, name: str, elements: int, size: int, parts: Callable[[Blocks], Parts], bits: int) -> GgufType:
    def decode(held: Blocks) -> Floats:
        return blocks.scaled(parts(held))

    return GgufType(code, name, elements, size, decode=decode, parts=parts, bits=bits)


_ROWS = (
    GgufType(0, "F32", 1, 4),
    GgufType(1, "F16", 1, 2, TensorProto.FLOAT16),
    _parted(2, "Q4_0", 32, 18, blocks.q4_0, 4),
    GgufType(3, "Q4_1", 32, 20, decode=blocks.q4_1),
    _parted(6, "Q5_0", 32, 22, blocks.q5_0, 8),
    GgufType(7, "Q5_1", 32, 24, decode=blocks.q5_1),
    _parted(8, "Q8_0", 32, 34, blocks.q8_0, 8),
    GgufType(10, "Q2_K", 256, 84, decode=blocks.q2_k),
    _parted(11, "Q3_K", 256, 110, blocks.q3_k, 4),
    GgufType(12, "Q4_K", 256, 144, decode=blocks.q4_k),
    GgufType(13, "Q5_K", 256, 176, decode=blocks.q5_k),
    _parted(14, "Q6_K", 256, 210, blocks.q6_k, 8),
    _parted(15, "Q8_K", 256, 292, blocks.q8_k, 8),
    GgufType(16, "IQ2_XXS", 256, 66, decode=grids.iq2_xxs),
    GgufType(17, "IQ2_XS", 256, 74, decode=grids.iq2_xs),
    GgufType(18, "IQ3_XXS", 256, 98, decode=grids.iq3_xxs),
    GgufType(19, "IQ1_S", 256, 50, decode=grids.iq1_s),
    _parted(20, "IQ4_NL", 32, 18, grids.iq4_nl, 8),
    GgufType(21, "IQ3_S", 256, 110, decode=grids.iq3_s),
    GgufType(22, "IQ2_S", 256, 82, decode=grids.iq2_s),
    _parted(23, "IQ4_XS", 256, 136, grids.iq4_xs, 8),
    GgufType(24, "I8", 1, 1, TensorProto.INT8),
    GgufType(25, "I16", 1, 2, TensorProto.INT16),
    GgufType(26, "I32", 1, 4, TensorProto.INT32),
    GgufType(27, "I64", 1, 8, TensorProto.INT64),
    GgufType(28, "F64", 1, 8, TensorProto.DOUBLE),
    GgufType(29, "IQ1_M", 256, 56, decode=grids.iq1_m),
    GgufType(30, "BF16", 1, 2, TensorProto.BFLOAT16),
    _parted(34, "TQ1_0", 256, 54, blocks.tq1_0, 2),
    _parted(35, "TQ2_0", 256, 66, blocks.tq2_0, 4),
    GgufType(39, "MXFP4", 32, 17, decode=blocks.mxfp4),
    GgufType(40, "NVFP4", 64, 36, decode=blocks.nvfp4),
)
TYPES = {row.code: row for row in _ROWS}

# types that are known and not read, and why
REFUSED = {
    9: "Q8_1, which llama.cpp makes while it multiplies and puts in no file",
    41: "Q1_0, which is too new: no reference gives its numbers yet",
}
