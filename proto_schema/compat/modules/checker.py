"""onnx.checker: `proto_schema.checker`, with messages as protobuf has them."""

from __future__ import annotations

from proto_schema import checker as ours
from proto_schema.compat.crossing import crossed
from proto_schema.errors import CheckError

MAXIMUM_PROTOBUF = (1 << 31) - 1
ValidationError = CheckError
globals().update(crossed(ours))
