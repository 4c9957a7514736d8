"""onnx.shape_inference: `proto_schema.shape_inference`, with messages as protobuf has them."""

from __future__ import annotations

from proto_schema import shape_inference as ours
from proto_schema.compat.crossing import crossed

globals().update(crossed(ours))
