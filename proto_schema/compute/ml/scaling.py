"""Rows of ai.onnx.ml that change numbers element by element or row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import passes
from proto_schema.compute.rows import row

_DOMAIN = "ai.onnx.ml"


@row("Binarizer", domain=_DOMAIN, cost=passes(32))
def binarizer(call: Call, data: Array) -> Array:
    """1 above the threshold, else 0."""
    return np.asarray(data > call.attribute("threshold", 0.0)).astype(data.dtype)


@row("Scaler", domain=_DOMAIN, cost=passes(32))
def scaler(call: Call, data: Array) -> Array:
    """(x - offset) * scale, by column or with one number for all."""
    offset = np.array(call.attribute("offset") or [0.0], np.float32)
    scale = np.array(call.attribute("scale") or [1.0], np.float32)
    for name, numbers in (("offset", offset), ("scale", scale)):
        if len(numbers) != 1 and (not data.ndim or len(numbers) != data.shape[-1]):
            call.fail(f"{name} has {len(numbers)} numbers, and the data has shape {data.shape}")
    return np.asarray((data.astype(np.float32) - offset) * scale)


@row("Imputer", domain=_DOMAIN, cost=passes(32))
def imputer(call: Call, data: Array) -> Array:
    """What equals the replaced value (NaN too) becomes the imputed one, of its column or of all."""
    whole = data.dtype.kind in "iu"
    values = call.attribute("imputed_value_int64s" if whole else "imputed_value_floats")
    replaced: Any = call.attribute("replaced_value_int64" if whole else "replaced_value_float", 0)
    if not values or len(values) not in (1, data.shape[-1] if data.ndim else 1):
        call.fail(f"{len(values or ())} imputed values do not fit data of shape {data.shape}")
    missing = np.isnan(data) if not whole and np.isnan(replaced) else data == data.dtype.type(replaced)
    return np.where(missing, np.array(values, data.dtype), data)


@row("Normalizer", domain=_DOMAIN, cost=passes(32))
def normalizer(call: Call, data: Array) -> Array:
    """Each row divided by its maximum, its sum of absolute values, or its length; a norm of 0 counts as 1."""
    values = data.astype(np.float32)
    norm = call.text("norm", "MAX")
    if norm == "MAX":
        found = values.max(axis=-1, keepdims=True)
    elif norm == "L1":
        found = np.abs(values).sum(axis=-1, keepdims=True)
    elif norm == "L2":
        found = np.sqrt(np.square(values).sum(axis=-1, keepdims=True))
    else:
        call.fail(f"norm is {norm!r}, and may be MAX, L1 or L2")
    return np.asarray(values / np.where(found == 0, np.float32(1), found))
