"""Operators that compute each element by itself, with numpy's broadcasting."""

from __future__ import annotations

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.rows import row


@row("Relu")
def relu(call: Call, x: Array) -> Array:
    """max(x, 0), which keeps NaN."""
    result: Array = np.maximum(x, x.dtype.type(0))
    return result
