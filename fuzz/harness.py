"""What the harnesses share: the invariant's form, the choice of a message class, and a comparison down to the bits."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import proto_schema as ps
from proto_schema.external.payload import byte_view
from proto_schema.wire.fields import DOUBLE, FLOAT, MESSAGE, PAYLOAD, Field, Message


class Violation(AssertionError):  # noqa: N818 -- it is the finding, not an error of the harness
    """The invariant does not hold; the text says in which way, without the particulars of the input."""


@dataclass(frozen=True)
class Harness:
    """One invariant. `check` returns a short word for what the input did, which the plain engine explores by.

    `told`: the steps of an input as lines, where it has steps; `done`: how many of its `unit` this process has done,
    which are counted then instead of inputs; `drawn`: a fresh input, where a change to an old one would often be the
    same thing again.
    """

    name: str
    invariant: str
    allowed: type[Exception]
    check: Callable[[bytes], str]
    seeds: Callable[[], list[bytes]]
    longest: int = 4096  # bytes of a mutated input
    head: int = 0  # bytes before the encoding, which are choices: the encoding is mutated as one
    timed: bool = False  # it measures time, which instrumentation would distort: always the plain engine
    told: Callable[[bytes], list[str]] | None = None
    done: Callable[[], int] | None = None
    unit: str = "executions"
    drawn: Callable[[Random], bytes] | None = None


def _classes() -> tuple[type[Message], ...]:
    """ModelProto first, so that an input whose first byte is 0 is a model; then every other message by name."""
    found = sorted(Message.__subclasses__(), key=lambda cls: cls.__qualname__)
    return (
        ps.ModelProto,
        *[cls for cls in found if cls is not ps.ModelProto and cls.__module__ == ps.ModelProto.__module__],
    )


CLASSES = _classes()


def split(data: bytes) -> tuple[type[Message], bytes]:
    """(class, encoding) of an input: its first byte chooses the class."""
    return (CLASSES[data[0] % len(CLASSES)], data[1:]) if data else (ps.ModelProto, b"")


def joined(cls: type[Message], encoding: bytes) -> bytes:
    """The input that `split` takes apart."""
    return bytes([CLASSES.index(cls)]) + encoding


def reason_of(error: ps.DecodeError) -> str:
    """The cause of a refusal without its numbers: inputs refused for the same cause look the same."""
    return "".join(character for character in error.reason if not character.isdigit())


def difference(mine: Any, theirs: Any, path: str = "message") -> str:
    """Where two messages differ, or "": stricter than ==, since types and the bits of NaNs count too."""
    if type(mine) is not type(theirs):
        return f"{path}: {type(mine).__qualname__} and {type(theirs).__qualname__}"
    for field in type(mine).FIELDS:
        first, second = getattr(mine, field.name), getattr(theirs, field.name)
        if first is second or (field.repeated and first == [] == second):
            continue  # most fields are absent
        found = _field_difference(field, first, second, f"{path}.{field.name}")
        if found:
            return found
    return "" if mine.unknown_fields == theirs.unknown_fields else f"{path}.unknown_fields"


def _field_difference(field: Field, mine: Any, theirs: Any, path: str) -> str:
    if not field.repeated or mine is None or theirs is None:
        return _value_difference(field, mine, theirs, path)
    if len(mine) != len(theirs):
        return f"{path}: the lengths"
    return next(
        (found for a, b in zip(mine, theirs, strict=True) if (found := _value_difference(field, a, b, path))), ""
    )


def _value_difference(field: Field, mine: Any, theirs: Any, path: str) -> str:
    if mine is None or theirs is None:
        same = mine is theirs
    elif field.kind is MESSAGE:
        return difference(mine, theirs, path)
    elif field.kind in (FLOAT, DOUBLE):
        same = struct.pack("<d", mine) == struct.pack("<d", theirs)
    elif field.kind is PAYLOAD:
        same = byte_view(mine) == byte_view(theirs)
    else:
        same = type(mine) is type(theirs) and mine == theirs
    return "" if same else path
