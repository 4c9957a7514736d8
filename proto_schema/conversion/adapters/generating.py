"""Rows of operators that make numbers: ranges, windows of signals, random numbers."""

from __future__ import annotations

import math

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, Row, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, FLOAT, INT64, Writer
from proto_schema.onnx import TensorProto

LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@down("Range", version=27)
def low_precision(node: VersionedNode, op: Writer) -> Result:
    """Half precision, computed in the stash type."""
    dtype, stash = node.need_dtype(0), node.attribute("stash_type")
    if dtype not in LOW:
        return node.with_(drop="stash_type")
    if stash != FLOAT:
        raise RefusedError("it counts in half precision")
    made = op.Range(*[op.cast(node[place], FLOAT) for place in range(3)])
    return op.cast(made, dtype)


# Windows of signals ---------------------------------------------------------------------------------------------------


def _window(terms: tuple[float, ...]) -> Row:
    """A sum of cosines: of the place among all places, or among all but one."""

    def row(node: VersionedNode, op: Writer) -> Result:
        wanted = node.attribute("output_datatype")
        size = node[0].number()
        if size is not None:
            count = int(size)
            last = count if node.attribute("periodic") else count - 1
            angles = 2 * np.pi * np.arange(count) / last
            total = sum(factor * np.cos(place * angles) for place, factor in enumerate(terms))
            return op.const(np.asarray(total, np.float64), wanted)
        steps = op.Range(op.scalar(0), op.cast(node[0], INT64), op.scalar(1))
        last_value = op.cast(node[0], FLOAT)
        if not node.attribute("periodic"):
            last_value = op.Sub(last_value, 1.0)
        angle = op.Div(op.Mul(op.cast(steps, FLOAT), 2 * math.pi), last_value)
        made = op.Add(op.Mul(op.Cos(angle), terms[1]), terms[0])
        if len(terms) > 2:
            made = op.Add(made, op.Mul(op.Cos(op.Mul(angle, 2.0)), terms[2]))
        return op.cast(made, wanted)

    return row


down("HannWindow", version=17)(_window((0.5, -0.5)))
down("HammingWindow", version=17)(_window((25 / 46, -21 / 46)))
down("BlackmanWindow", version=17)(_window((0.42, -0.5, 0.08)))


# Random numbers -------------------------------------------------------------------------------------------------------


@down("Bernoulli", version=15)
def bernoulli(node: VersionedNode, op: Writer) -> Result:
    """A uniform number below the probability."""
    x = node[0]
    wanted = node.attribute("dtype") or node.need_dtype(0)
    seed = node.attribute("seed")
    drawn = op.RandomUniformLike(x, dtype=FLOAT if node.need_dtype(0) != TensorProto.DOUBLE else x.dtype, seed=seed)
    hit = op.Less(drawn, op.cast(x, drawn.dtype))
    return op.cast(hit, wanted) if wanted != BOOL else hit
