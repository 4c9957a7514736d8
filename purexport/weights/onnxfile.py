"""The initializers of an ONNX model, as weights of another: inside the file, or external data beside it.

The model is mapped while its graph is read; weights that lie in a file as they are become ranges of it, checked as
`proto_schema` checks external data. The few values that a model may hold as lists of numbers are converted at once.
"""

from __future__ import annotations

from proto_schema.datafiles import payload_of
from proto_schema.dtypes import DTYPES, type_name
from proto_schema.errors import DecodeError, ExternalDataError
from proto_schema.files import load
from proto_schema.onnx import TensorProto
from proto_schema.payload import BytesLike, Payload, file_range
from proto_schema.tensors import from_codes, to_codes
from purexport.errors import WeightsError
from purexport.weights.arrays import MemoryPayload
from purexport.weights.stored import CheckpointFile, Stored, shown


def read(file: CheckpointFile) -> list[Stored]:
    """The initializers of the model's graph, without texts. WeightsError where the model is malformed or unsafe."""
    try:
        model = load(file.path)
    except DecodeError as error:
        raise file.error(f"it is no ONNX model that can be read: {error}") from None
    found: dict[str, Stored] = {}
    for tensor in model.graph.initializer if model.graph is not None else ():
        name = tensor.name
        if not isinstance(name, str) or name in found:
            what = "comes twice" if isinstance(name, str) else "has no readable name"
            raise file.error(f"the initializer {shown(name)} {what}; check the model with `purexport check`")
        if tensor.data_type != TensorProto.STRING:
            found[name] = of_tensor(name, tensor, file.label)
    return list(found.values())


def of_tensor(name: str, tensor: TensorProto, origin: str) -> Stored:
    """A tensor of a model, loaded or made. WeightsError where its data is not what it says, or unsafe to open."""
    row = DTYPES.get(tensor.data_type or 0)
    if row is None or not row.bits:
        what = f"has the data type {type_name(tensor.data_type)}, which is no number"
        raise WeightsError(f"{origin}: the tensor {shown(name)} {what}")
    try:
        data: BytesLike | None = payload_of(tensor)
        if data is None:
            data = from_codes(to_codes(tensor), row.code).raw_data
        payload: Payload = data if isinstance(data, Payload) else MemoryPayload(data or b"")
        return Stored(name, row.code, tuple(tensor.dims), file_range(data or b"") or payload, origin)
    except (DecodeError, ExternalDataError, WeightsError) as error:
        raise WeightsError(f"{origin}: the tensor {shown(name)} cannot be read: {error}") from None
