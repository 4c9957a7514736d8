"""Invariant: the generated codec and the interpreter of the field table agree on verdict, message and error text.

The first byte chooses the message class. Three generated routes run: `FromString`, which is what users call, and under
it the functions for a small input (narrow) and for a mapped file (wide), which small inputs would never reach.
"""

from __future__ import annotations

from functools import partial
from random import Random

import proto_schema as ps
from fuzz.harness import Harness, Violation, difference, reason_of, split
from fuzz.seeds import long_messages
from proto_schema.wire import MAX_DEPTH, interpret
from proto_schema.wire.fields import MESSAGE, Message
from proto_schema.wire.generate import decoder

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


def touch(rng: Random, message: Message) -> None:
    """Asks for some fields of a message and of those in it, in any order: lists are made when they are asked for."""
    fields = list(type(message).FIELDS)
    for field in rng.sample(fields, rng.randrange(len(fields) + 1)):
        value = getattr(message, field.name)
        if field.kind is MESSAGE:
            for child in value if field.repeated else [value]:
                if child is not None:
                    touch(rng, child)


def _nothing(message: Message) -> None:
    """Looks at nothing."""


def check(data: bytes) -> str:
    cls, data = split(data)
    try:
        reference = interpret.decode(cls, memoryview(data), 0, len(data), interpret.Allowance(PLENTY))
    except ps.DecodeError as error:
        return _both_refuse(cls, data, error)
    encoded = interpret.encode(reference)
    rng = Random(data)
    for name, message in (
        ("FromString", cls.FromString(data)),
        ("narrow", generated(cls, data, False)),
        ("wide", generated(cls, data, True)),
    ):
        if message is None:
            raise Violation(f"{name} and the interpreter differ in the verdict")
        for what, look in (("untouched", _nothing), ("touched in part", partial(touch, rng)), ("read", _nothing)):
            look(message)
            found = difference(reference, message) if what == "read" else ""
            if found:
                raise Violation(f"{name} and the interpreter differ in {found}")
            if message.SerializeToString() != encoded or message.ByteSize() != len(encoded):
                raise Violation(f"{name}, {what}: the generated encoder or sizer differs from the interpreted")
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
