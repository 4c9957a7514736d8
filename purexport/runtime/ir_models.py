"""Programs as `onnx_ir.Model`, as torch.onnx's newer exporter has them, and back.

Large weights are never copied: the model holds numpy views of them, and what is a view of ours becomes our tensor
again on the way back.
"""

from __future__ import annotations

import math
from typing import Any

import proto_schema as ps
from proto_schema.external.payload import nbytes
from purexport.runtime.forms import with_graph
from purexport.runtime.packages import package

_SMALL = 1024  # bytes; smaller tensors go through the message


class IrModel:
    """An `onnx_ir.Model`, which its owner may change, beside the tensors that it was made of."""

    def __init__(self, model: Any, tensors: dict[int, tuple[Any, ps.TensorProto]] | None = None) -> None:
        self.model = model
        self._tensors = tensors or {}  # by the identity of the model's tensor, which is kept beside ours

    @classmethod
    def of(cls, proto: ps.ModelProto) -> IrModel:
        """The model of a message.  Raises ImportError without onnx_ir."""
        ir: Any = package("onnx_ir", "ONNXProgram.model")
        onnx: Any = package("onnx", "ONNXProgram.model")
        large = {item.name: item for item in proto.graph.initializer if _is_large(item)}
        empty = [
            ps.TensorProto(name=item.name, data_type=item.data_type, dims=[0]) if item.name in large else item
            for item in proto.graph.initializer
        ]
        made = ir.serde.deserialize_model(onnx.ModelProto.FromString(ps.dumps(with_graph(proto, initializer=empty))))
        tensors = {}
        for name, item in large.items():
            dtype = ir.DataType(item.data_type)
            array = ps.numpy_helper.to_codes(item).view(dtype.numpy())
            value = made.graph.initializers[name]
            value.const_value = ir.Tensor(array, dtype=dtype, name=name)
            value.shape = ir.Shape(item.dims)
            tensors[id(value.const_value)] = value.const_value, item
        return cls(made, tensors)

    def message(self) -> ps.ModelProto:
        """The model as a message, with all that its owner changed."""
        ir: Any = package("onnx_ir", "ONNXProgram.model")
        graph = self.model.graph
        held = dict(graph.initializers)
        graph.initializers.clear()
        try:
            proto = ps.loads(ir.serde.serialize_model(self.model).SerializeToString())
        finally:
            graph.initializers.update(held)
        proto.graph.initializer = [self._tensor(ir, name, value.const_value) for name, value in held.items()]
        return proto

    def _tensor(self, ir: Any, name: str, tensor: Any) -> ps.TensorProto:
        kept, ours = self._tensors.get(id(tensor), (None, None))
        if kept is tensor and ours is not None:
            return ps.TensorProto(name=name, data_type=ours.data_type, dims=ours.dims, raw_data=ours.raw_data)
        made = ps.TensorProto.FromString(ir.serde.serialize_tensor(tensor).SerializeToString())
        made.name = name
        return made


def _is_large(tensor: ps.TensorProto) -> bool:
    """Whether a tensor's bytes are elements of whole bytes each, and many."""
    if tensor.raw_data is None or nbytes(tensor.raw_data) <= _SMALL:
        return False
    return nbytes(tensor.raw_data) >= math.prod(tensor.dims)
