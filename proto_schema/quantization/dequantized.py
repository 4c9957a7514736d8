"""What a quantized model stands for: the model itself, its weights rounded to the numbers that the codes mean.

It has no code and no new operator. So a runtime that reads the codes well gives the same results for both, up to
rounding, whatever the quantization costs in accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proto_schema.budget import BudgetLike
from proto_schema.derived.cast import CastPayload
from proto_schema.derived.source import source_of
from proto_schema.derived.transposed import permuted
from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view, pieces
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.quantization.candidates import Weight
from proto_schema.quantization.codes.elements import stored
from proto_schema.quantization.codes.kept import Kept
from proto_schema.quantization.codes.streams import Quantized
from proto_schema.quantization.model import Rewriting, Target, forget_types
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.dtypes import DTYPES, element_count


def dequantized(
    model: ModelProto,
    scheme: str | Mapping[str, Any] | Scheme = "int4",
    *,
    target: Target = "onnx",
    calibration: Any = None,
    budget: BudgetLike = None,
) -> ModelProto:
    """The model with the numbers that `quantize` with the same arguments stores, in the types in which they are read.

    `model` does not change, and the numbers are computed when they are read. Raises ValueError as `quantize` does.
    """
    work = Rewriting.of(model, Scheme.of(scheme), target).with_samples(calibration, budget)
    if not work.weights:
        return model
    for weight in work.weights:
        weight.value.tensor = _rounded(work, weight)
    forget_types(work.weights)
    return work.model.to_message()


def _rounded(work: Rewriting, weight: Weight) -> TensorProto:
    tensor, code = weight.tensor, work.scheme.kind.code
    dtype = tensor.data_type or TensorProto.FLOAT
    if work.form(weight) == "Cast":
        if DTYPES[dtype].bits <= DTYPES[code].bits:
            return tensor
        payload: Payload = CastPayload(CastPayload(source_of(tensor), dtype, code), code, dtype)
    else:
        made = work.quantized(weight)
        if isinstance(made, Kept):
            return tensor
        dtype = weight.dtype
        payload = _Numbers(made, dtype, DTYPES[dtype].nbytes(element_count(weight.shape)))
        if made.layout.padded and weight.axis == 0:  # its codes lie in the order of the transposed matrix
            payload = permuted(payload, DTYPES[dtype].bits // 8, weight.shape[::-1], (1, 0))
    return TensorProto(name=tensor.name, data_type=dtype, dims=list(weight.shape), raw_data=payload)


class _Numbers(Payload):
    """The numbers of a quantized weight as elements of a float type."""

    def __init__(self, owner: Quantized, dtype: int, size: int) -> None:
        self.owner = owner
        self.dtype = dtype
        self.size = size

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.owner.source,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        for numbers in self.owner.numbers():
            yield from pieces(byte_view(stored(numbers, self.dtype).tobytes()), limit)
