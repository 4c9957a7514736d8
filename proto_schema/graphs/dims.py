"""What a file declares of the size of an axis."""

from __future__ import annotations

from proto_schema.onnx import TensorShapeProto

__all__ = ["known_size"]


def known_size(dim: TensorShapeProto.Dimension) -> int | None:
    """The number that an axis has; None for one with a name or nothing, and for a negative number.

    Some exporters (paddle2onnx) write -1 for a size that is not known. Official inference and runtimes take it so.
    """
    size = dim.dim_value
    return size if size is not None and size >= 0 else None
