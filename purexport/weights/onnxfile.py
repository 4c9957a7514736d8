"""The initializers of an ONNX model as weights of another model, from inside the file or from external data beside it.

The model is mapped while its graph is read. Weights that lie unchanged in a file become ranges of it, checked as
`proto_schema` checks external data (`arrays.of_tensor`).
"""

from __future__ import annotations

from proto_schema.errors import DecodeError
from proto_schema.files.models import load
from proto_schema.onnx import TensorProto
from purexport.weights.arrays import of_tensor
from purexport.weights.stored import CheckpointFile, Stored, shown


def read(file: CheckpointFile) -> list[Stored]:
    """The initializers of the model's graph, without texts. WeightsError where the model is malformed or unsafe."""
    try:
        model = load(file.path)
    except DecodeError as error:
        raise file.error(f"it is not a readable ONNX model: {error}") from None
    found: dict[str, Stored] = {}
    for tensor in model.graph.initializer if model.graph is not None else ():
        name = tensor.name
        if not isinstance(name, str) or name in found:
            what = "comes twice" if isinstance(name, str) else "has no readable name"
            raise file.error(f"the initializer {shown(name)} {what}; check the model with `purexport check`")
        if tensor.data_type != TensorProto.STRING:
            found[name] = of_tensor(name, tensor, file.label)
    return list(found.values())
