"""Invariant: any bytes at all are a message or a DecodeError, and what was decoded survives being encoded.

`loads(x)` returns a model or raises DecodeError whose offset lies in x. Then `dumps` of it is `ByteSize()` bytes, which
decode to the same model and encode to themselves. (Time and memory in proportion to the input: see `growth`.)
"""

from __future__ import annotations

import proto_schema as ps
from fuzz.harness import Harness, Violation, difference, reason_of
from fuzz.seeds import models


def check(data: bytes) -> str:
    try:
        message = ps.loads(data)
    except ps.DecodeError as error:
        if error.offset is None or not 0 <= error.offset <= len(data):
            raise Violation("the offset of a DecodeError lies outside the input") from error
        return reason_of(error)
    encoded = ps.dumps(message)
    if message.ByteSize() != len(encoded):
        raise Violation("ByteSize is not the length of the encoding")
    try:
        again = ps.loads(encoded)
    except ps.DecodeError as error:
        raise Violation("what dumps wrote does not decode") from error
    found = difference(message, again)
    if found:
        raise Violation(f"dumps and loads changed {found}")
    if ps.dumps(again) != encoded:
        raise Violation("the second encoding differs from the first")
    return f"accepted {len(data).bit_length()}"


HARNESS = Harness(
    "decoder", "loads(any bytes) is a model that survives dumps, or a DecodeError", ps.DecodeError, check, models
)
