"""Invariant: the generated codec and the interpreter of the field table agree on verdict, message and error text.

The first byte chooses the message class. Three generated routes run: `FromString`, which is what users call, and under
it the functions for a small input (narrow) and for a mapped file (wide), which small inputs would never reach.
"""

from __future__ import annotations

import proto_schema as ps
from fuzz.harness import Harness, Violation, difference, reason_of, split
from fuzz.seeds import long_messages
from proto_schema import interpret
from proto_schema.fields import Message
from proto_schema.generate import decoder
from proto_schema.wire import MAX_DEPTH

PLENTY = 1 << 30


def generated(cls: type[Message], data: bytes, wide: bool) -> Message | None:
    """The message, or None: generated code says only that it refuses, by raising anything at all."""
    view = memoryview(data)
    budget = interpret.Allowance(PLENTY)
    try:
        message: Message = decoder(cls, wide)(view, view if wide else data, 0, len(data), 0, budget, MAX_DEPTH)
        budget.settle()
    except Exception:
        return None
    return message


def check(data: bytes) -> str:
    cls, data = split(data)
    try:
        reference = interpret.decode(cls, memoryview(data), 0, len(data), interpret.Allowance(PLENTY))
    except ps.DecodeError as error:
        return _both_refuse(cls, data, error)
    encoded = interpret.encode(reference)
    for name, message in (
        ("FromString", cls.FromString(data)),
        ("narrow", generated(cls, data, False)),
        ("wide", generated(cls, data, True)),
    ):
        found = "the verdict" if message is None else difference(reference, message)
        if found or message is None:
            raise Violation(f"{name} and the interpreter differ in {found}")
        if message.SerializeToString() != encoded or message.ByteSize() != len(encoded):
            raise Violation(f"{name}: the generated encoder or sizer differs from the interpreted")
    return f"{cls.__qualname__} accepted"


def _both_refuse(cls: type[Message], data: bytes, error: ps.DecodeError) -> str:
    for wide in (False, True):
        if generated(cls, data, wide) is not None:
            raise Violation(f"only generated code ({'wide' if wide else 'narrow'}) accepts it")
    try:
        cls.FromString(data)
    except ps.DecodeError as shown:
        if (str(shown), shown.path, shown.offset) != (str(error), error.path, error.offset):
            raise Violation("FromString and the interpreter word the refusal differently") from shown
        return f"{cls.__qualname__} {reason_of(error)}"
    raise Violation("FromString accepts what the interpreter refuses")


HARNESS = Harness(
    "codecs",
    "generated and interpreted codec agree on verdict, message, encoding and error text",
    ps.DecodeError,
    check,
    long_messages,
    longest=1 << 15,
    head=1,
)
