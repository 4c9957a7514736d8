"""onnx.helper: `proto_schema.helper`, with messages as protobuf has them, and what onnx does otherwise."""

from __future__ import annotations

from typing import Any

from proto_schema import helper as ours
from proto_schema.compat.crossing import crossed



globals().update(crossed(ours))
__all__ = [*ours.__all__]
