"""Invariant: the generated codec and the interpreter of the field table agree on verdict, message and error text.

The first byte chooses the message class. Five generated routes run: `FromString`, which is what users call, and under
it the functions for a small input (narrow) and for a mapped file (wide), which small inputs would never reach, each
with all lists of messages that can be on demand read when they are looked at. Some fields are looked at in any order,
and the messages that they hold changed; what is written in between must be what the interpreter writes.
"""

from __future__ import annotations

import copy
from functools import partial
from itertools import product
from random import Random

import proto_schema as ps
from fuzz.harness import Harness, Violation, difference, reason_of, split
from fuzz.seeds import long_messages
from proto_schema.wire import MAX_DEPTH, interpret, lists
from proto_schema.wire.fields import MESSAGE, STRING, Message
from proto_schema.wire.generate import decoder

PLENTY = 1 << 30


def generated(cls: type[Message], data: bytes, wide: bool, shortest: int = lists.SHORTEST) -> Message | None:
    """The message, or None: generated code says only that it refuses, by raising anything at all."""
    view = memoryview(data)
    budget = interpret.Allowance(PLENTY)
    try:
        message: Message = decoder(cls, wide, shortest)(
            view, view if wide else data, 0, len(data), 0, budget, MAX_DEPTH
        )
        budget.settle()
    except Exception:
        return None
    return message


def touch(rng: Random, message: Message) -> None:
    """Asks for some fields of a message and of those in it, in any order: lists are made when they are asked for."""
    fields = list(type(message).FIELDS)
    for field in rng.sample(fields, rng.randrange(len(fields) + 1)):
        value = getattr(message, field.name)
        if field.kind is MESSAGE and value is not None:
            for child in _some(rng, value) if field.repeated else [value]:
                touch(rng, child)


def _some(rng: Random, items: list[Message]) -> list[Message]:
    """All of them, by a walk, or some, one by one."""
    if rng.random() < 0.3:
        return list(items)
    return [items[at] for at in rng.sample(range(len(items)), rng.randrange(min(4, len(items)) + 1))]


def change(rng: Random, message: Message) -> None:
    """Changes something in the message or in one inside of it; equal messages are changed alike."""
    inside = [field for field in type(message).FIELDS if field.kind is MESSAGE and getattr(message, field.name)]
    if inside:
        field = rng.choice(inside)
        value = getattr(message, field.name)
        at = rng.randrange(len(value)) if field.repeated else 0
        match rng.randrange(9) if field.repeated else 0:
            case 1:
                del value[at]
            case 2:
                value.append(copy.deepcopy(value[at]))
            case 3:
                value[at] = type(value[-1])()
            case 4:
                value.reverse()
            case 5:
                value[at:] = value[: at // 2]
            case 6:
                setattr(message, field.name, value[at:])
            case _:
                change(rng, value[at] if field.repeated else value)
    else:
        plain = [field for field in type(message).FIELDS if field.kind is STRING and not field.repeated]
        for field in plain[:1]:
            setattr(message, field.name, "changed")


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
        ("narrow, on demand", generated(cls, data, False, 1)),
        ("wide, on demand", generated(cls, data, True, 1)),
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
    one, other = cls.FromString(data), generated(cls, data, False, 1)
    assert other is not None
    for seed in (rng.random(), rng.random(), rng.random()):
        change(Random(seed), one)
        change(Random(seed), other)
        if other.SerializeToString() != interpret.encode(one):
            raise Violation("a message on demand, changed, is written otherwise than one that was read")
    if difference(one, other):
        raise Violation("a message on demand, changed, is another than one that was read")
    return f"{cls.__qualname__} accepted"


def _both_refuse(cls: type[Message], data: bytes, error: ps.DecodeError) -> str:
    for wide, shortest in product((False, True), (1, lists.SHORTEST)):
        if generated(cls, data, wide, shortest) is not None:
            raise Violation(f"only generated code ({'wide' if wide else 'narrow'}, from {shortest} bytes) accepts it")
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
