"""Rows of Fourier transforms: an axis that became an input, and products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto

LARGEST = 1 << 24
"""Elements of a matrix that a row writes."""


@up("DFT", version=20)
def axis_as_input(node: VersionedNode, op: Writer) -> Result:
    """The axis becomes an input, with another default."""
    axis = op.scalar(node.attribute("axis"))
    return node.with_(inputs=[node[0], node.input(1), axis], drop="axis")


@down("DFT", version=20)
def axis_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """A known axis as an attribute."""
    axis = node.need_ints(2)[0] if node.has(2) else -2
    if axis < 0:
        axis = positive([axis], node[0].rank)[0] if node[0].rank is not None else axis
    return node.with_(inputs=[node[0], node.input(1)], axis=axis)


@down("DFT", version=17)
def transform(node: VersionedNode, op: Writer) -> Result:
    """A product with matrices of cosines and sines."""
    x, rank = node[0], node.need_rank(0)
    axis = positive([node.attribute("axis")], rank)[0]
    size = x.dim(axis)
    inverse, onesided = bool(node.attribute("inverse")), bool(node.attribute("onesided"))
    if not isinstance(size, int):
        raise RefusedError("the length of its signal is not known")
    length = node.need_ints(1)[0] if node.has(1) else 2 * (size - 1) if inverse and onesided else size
    if inverse and onesided:
        return _from_half(op, x, axis, size, length)
    return _transformed(op, x, axis, size, length, inverse, onesided)


def _from_half(op: Writer, x: Value, axis: int, size: int, length: int) -> Value:
    """The real signal of which this is the first half of the spectrum: what is left out is the mirror of it."""
    if length < 1:
        raise RefusedError(f"it makes a signal of length {length}")
    if length * length > LARGEST:
        raise RefusedError("the matrix of its transform would be large")
    rank = len(x.shape or ())
    if x.dim(rank - 1) != 2:
        raise RefusedError("whether its spectrum is complex is not known")
    used = min(size, length // 2 + 1)
    if used < size:
        x = op.Slice(x, [0], [used], [axis])
    angles = 2 * np.pi * (np.outer(np.arange(used), np.arange(length)) % length) / length
    places = np.arange(used)
    # the mean is there once, and so is the last one of an even length
    weights = np.where((places == 0) | (2 * places == length), 1.0, 2.0)[:, None] / length
    order = [place for place in range(rank - 1) if place != axis] + [axis]
    total = None
    for part, matrix in enumerate((np.cos(angles) * weights, -np.sin(angles) * weights)):
        piece = op.Squeeze(op.Slice(x, [part], [part + 1], [rank - 1]), [rank - 1])
        piece = op.cast(op.Transpose(piece, perm=order), TensorProto.DOUBLE)
        term = op.MatMul(piece, op.const(matrix, TensorProto.DOUBLE))
        total = term if total is None else op.Add(total, term)
    assert total is not None
    back = np.argsort([*order, rank - 1]).tolist()
    return op.Transpose(op.cast(op.Unsqueeze(total, [rank - 1]), x.dtype), perm=back)


def _transformed(op: Writer, x: Value, axis: int, size: int, length: int, inverse: bool, onesided: bool) -> Value:
    """The transform along an axis; the last axis has the real part, and the imaginary one if there is any."""
    if length * length > LARGEST:
        raise RefusedError("the matrix of its transform would be large")
    rank = len(x.shape or ())
    used = min(size, length)
    if used < size:
        x = op.Slice(x, [0], [used], [axis])
    parts = x.dim(rank - 1)
    if parts not in (1, 2):
        raise RefusedError("whether its signal is complex is not known")
    count = length // 2 + 1 if onesided else length
    angles = 2 * np.pi * (np.outer(np.arange(used), np.arange(count)) % length) / length
    sign = 1.0 if inverse else -1.0
    cos, sin = np.cos(angles), sign * np.sin(angles)
    if inverse:
        cos, sin = cos / length, sin / length
    # the axis goes last, before the parts: (..., used) @ (used, count)
    order = [place for place in range(rank - 1) if place != axis] + [axis]
    back = np.argsort([*order, rank - 1]).tolist()
    pieces = [
        op.Squeeze(op.Slice(x, [part], [part + 1], [rank - 1]), [rank - 1]) for part in range(2 if parts == 2 else 1)
    ]
    # the sums in double precision, as good as a fast transform in single precision
    pieces = [op.cast(op.Transpose(item, perm=order), TensorProto.DOUBLE) for item in pieces]
    first, second = (op.const(matrix, TensorProto.DOUBLE) for matrix in (cos, sin))
    real, imaginary = op.MatMul(pieces[0], first), op.MatMul(pieces[0], second)
    if parts == 2:
        real = op.Sub(real, op.MatMul(pieces[1], second))
        imaginary = op.Add(imaginary, op.MatMul(pieces[1], first))
    both = op.Concat(op.Unsqueeze(real, [rank - 1]), op.Unsqueeze(imaginary, [rank - 1]), axis=rank - 1)
    return op.Transpose(op.cast(both, x.dtype), perm=back)


@down("STFT", version=17)
def short_time(node: VersionedNode, op: Writer) -> Result:
    """Frames of the signal, by Gather, times the window; then the transform of each."""
    signal, step = node[0], node.need_ints(1)[0]
    window = node.input(2)
    length = node.need_ints(3)[0] if node.has(3) else window.dim(0) if window is not None else None
    size = signal.dim(1)
    if not isinstance(length, int) or not isinstance(size, int):
        raise RefusedError("the length of its signal or of its frames is not known")
    x = signal
    if x.rank == 2:
        x = op.Unsqueeze(x, [2])
    if x.dim(2) not in (1, 2):
        raise RefusedError("whether its signal is complex is not known")
    count = (size - length) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    frames = op.Gather(x, op.const(places.astype(np.int64)), axis=1)
    if window is not None:
        frames = op.Mul(frames, op.Reshape(window, [1, 1, -1, 1]))
    return _transformed(op, frames, 2, length, length, False, bool(node.attribute("onesided")))


@down("MelWeightMatrix", version=17)
def mel_weights(node: VersionedNode, op: Writer) -> Result:
    """Known inputs: a constant."""
    bins, length, rate, lower, upper = (node[place].number() for place in range(5))
    if bins is None or length is None or rate is None or lower is None or upper is None:
        raise RefusedError("its inputs are computed when the model runs")
    wanted = node.attribute("output_datatype")
    columns = int(bins)
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (float(lower), float(upper)))
    mels = low + np.arange(columns + 2) * ((high - low) / (columns + 2))
    edges = np.floor((int(length) + 1) * (700 * (10 ** (mels / 2595) - 1)) / int(rate)).astype(np.int64)
    made = np.zeros((int(length) // 2 + 1, columns))
    for column in range(columns):
        left, middle, right = edges[column : column + 3]
        if middle == left:
            made[middle, column] = 1
        else:
            for row in range(left, middle + 1):
                made[row, column] = (row - left) / (middle - left)
        if right > middle:
            for row in range(middle, right):
                made[row, column] = (right - row) / (right - middle)
    return op.const(made, wanted)
