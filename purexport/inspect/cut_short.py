"""Whether a file merely ends too early, inside of a field: every length agrees with those around it.

Nothing lies behind such a field, and its bytes may be weights, which read like anything. Lengths that disagree are
damage of another kind, behind which fields may follow.
"""

from __future__ import annotations

from proto_schema.errors import DecodeError
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.wire import read_tag, read_varint
from proto_schema.wire.codec import decode
from purexport.inspect.elements import Bytes, Element

_SAYS_WHAT_IT_IS = ("dims", "data_type", "name")


def announced_stop(source: Bytes, element: Element) -> int:
    """Where a field of bytes ends by its own length, which may be behind the end of the file."""
    _, at = read_tag(source.view, element.start, source.size)
    length, body = read_varint(source.view, at, source.size)
    return body + length


def is_cut_short(source: Bytes, child: Element, limit: int | None) -> bool:
    """Whether only the end of the file is missing from a field that must end by `limit` (None: anywhere)."""
    if not child.problem.startswith("cut off"):
        return False
    stop = announced_stop(source, child)
    if limit is not None and stop > limit:
        return False
    inner = list(source.children(child))
    if not inner:
        return True
    last = inner[-1]
    if any(found.problem or found.field is None for found in inner[:-1]) or not _has_its_size(source, child, last):
        return False
    if not last.problem:
        return last.field is not None
    if not last.wire_name:  # the file ends in a tag, in a length or in a number
        return last.problem.startswith("truncated")
    return is_cut_short(source, last, stop)


def _has_its_size(source: Bytes, child: Element, last: Element) -> bool:
    """Whether the bytes that `raw_data` announces are as many as the tensor's sizes and type need."""
    if child.message is not TensorProto or last.field is None or last.field.name != "raw_data":
        return True
    header = tensor_header(source, child)
    row = DTYPES.get(header.data_type or 0)
    return row is None or announced_stop(source, last) - last.body == row.nbytes(element_count(header.dims))


def tensor_header(source: Bytes, element: Element) -> TensorProto:
    """The name, type and sizes of a damaged tensor, as far as they stand before the damage."""
    header = TensorProto()
    for inner in source.children(element):
        if inner.problem or inner.field is None or inner.field.name not in _SAYS_WHAT_IT_IS:
            break
        try:
            read = decode(TensorProto, source.view[inner.start : inner.stop])
        except DecodeError:
            break
        header.dims += read.dims
        header.data_type = read.data_type if read.data_type is not None else header.data_type
        header.name = read.name if read.name is not None else header.name
    return header
