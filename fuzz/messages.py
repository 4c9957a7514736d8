"""Invariant: every message of right values encodes, decodes to itself, and to what the official runtime writes.

The input is a stream of choices, from which `build` makes a message of any class by the field table, sometimes with
one wrong value.
Right: FromString(SerializeToString(m)) is m, ByteSize is the length, both encoders agree, and so does the official
runtime where onnx is installed. Wrong: EncodeError, with the same words from both encoders.
"""

from __future__ import annotations

from importlib.util import find_spec

import proto_schema as ps
from fuzz.build import Choices, build, spoil
from fuzz.differential import rewritten
from fuzz.harness import CLASSES, Harness, Violation, difference
from fuzz.seeds import streams
from proto_schema.wire import interpret
from proto_schema.wire.fields import Message

HAVE_OFFICIAL = find_spec("onnx") is not None


def check(data: bytes) -> str:
    choices = Choices(data)
    cls = CLASSES[choices.below(len(CLASSES))]
    wrong = choices.below(8) == 7
    message = build(cls, choices)
    if wrong and spoil(message, choices):
        return _refused(message)
    try:
        encoded = message.SerializeToString()
    except ps.EncodeError as error:
        raise Violation("a message of right values is refused") from error
    if message.ByteSize() != len(encoded):
        raise Violation("ByteSize is not the length of the encoding")
    if interpret.encode(message) != encoded:
        raise Violation("the generated encoder and the interpreter differ")
    found = difference(message, cls.FromString(encoded))
    if found:
        raise Violation(f"encoding and decoding changed {found}")
    if HAVE_OFFICIAL and rewritten(cls, encoded) != encoded:
        raise Violation("the official runtime refuses it or writes other bytes")
    return f"{cls.__qualname__} {len(encoded).bit_length()}"


def _refused(message: Message) -> str:
    texts = []
    for encode in (Message.SerializeToString, interpret.encode):
        try:
            encode(message)
        except ps.EncodeError as error:
            texts.append(str(error))
    if len(texts) < 2 or texts[0] != texts[1]:
        raise Violation("a wrong value is not refused by both encoders with the same words")
    return "refused"


HARNESS = Harness(
    "messages", "a message built from the field table survives", ps.EncodeError, check, streams, longest=1024
)
