"""onnx.numpy_helper: `proto_schema.numpy_helper`, with messages as protobuf has them, and ml_dtypes where it is there."""

from __future__ import annotations

from typing import Any

from proto_schema import numpy_helper as ours
from proto_schema.compat.crossing import crossed

globals().update(crossed(ours))
