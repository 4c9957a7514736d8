"""Invariant: on every input the official parser (upb, below onnx) gives our verdict, and writes the same bytes back.

The first byte chooses the message class. What may differ is listed in KNOWN with its reason; nothing else is excused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import proto_schema as ps
from fuzz.codecs import generated, touch
from fuzz.harness import Harness, Violation, reason_of, split
from fuzz.seeds import messages, runs
from proto_schema.wire.fields import Message

# (whether a refusal of ours that upb does not share is this one, its reason)
KNOWN: list[tuple[Callable[[ps.DecodeError], bool], str]] = [
    (
        lambda error: error.offset is None and error.reason.startswith("its messages need more than"),
        "a budget bounds the memory of messages (256 MiB, and 32 bytes an input byte); upb takes what it is asked for",
    ),
]


@cache
def official(cls: type[Message]) -> Any:
    """The official class of the same name."""
    import onnx
    from onnx import onnx_data_pb2, onnx_operators_ml_pb2

    first, *rest = cls.__qualname__.split(".")
    places = (onnx, onnx_data_pb2, onnx_operators_ml_pb2)
    found = next(getattr(place, first) for place in places if hasattr(place, first))
    for step in rest:
        found = getattr(found, step)
    return found


def rewritten(cls: type[Message], data: bytes) -> bytes | None:
    """What the official runtime writes back, or None where it refuses."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        written: bytes = official(cls).FromString(data).SerializeToString()
    except DecodeError:
        return None
    return written


def check(data: bytes) -> str:
    cls, data = split(data)
    expected = rewritten(cls, data)
    try:
        message = cls.FromString(data)
    except ps.DecodeError as error:
        if expected is not None and not any(excused(error) for excused, _ in KNOWN):
            raise Violation(f"only upb accepts it; ours: {reason_of(error)}") from error
        return f"{cls.__qualname__} {reason_of(error)}"
    if expected is None:
        raise Violation("only ours accepts it")
    if message.SerializeToString() != expected:
        raise Violation("the two write different bytes back")
    for read in (message, generated(cls, data, False, 1)):
        if read is None:
            raise Violation("what is read on demand is refused")
        touch(Random(data), read)
        if read.SerializeToString() != expected:
            raise Violation("the two write different bytes back once some fields were read")
    return f"{cls.__qualname__} accepted"


HARNESS = Harness(
    "differential",
    "our verdict and our re-encoding are the official parser's",
    ps.DecodeError,
    check,
    lambda: messages() + runs(),
    longest=1 << 14,
    head=1,
)
