"""The bytes of a tensor as a payload, from where they are: memory, a range of a file, or numbers in a list."""

from __future__ import annotations

from proto_schema.external.datafiles import payload_of
from proto_schema.external.payload import MemoryPayload, Payload, as_payload, file_range
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import to_array


def source_of(tensor: TensorProto) -> Payload:
    """The bytes of a tensor, from where they are. Raises what `to_array` raises where there are none."""
    data = payload_of(tensor)
    if data is None:
        return MemoryPayload(to_array(tensor).data)
    return file_range(data) or as_payload(data)
