"""onnx.onnx_pb, onnx_ml_pb2 and the others that hold the message classes: each name of the schema."""

from __future__ import annotations

from proto_schema.compat.descriptors import descriptor_of
from proto_schema.compat.messages import PROTOS
from proto_schema.onnx import ModelProto

globals().update(PROTOS)
globals().update((name, number) for name, number in PROTOS["Version"].items())
globals().update((name, number) for name, number in PROTOS["OperatorStatus"].items())
DESCRIPTOR = descriptor_of(ModelProto).file
