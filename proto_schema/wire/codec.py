"""Bytes <-> messages: runs the generated functions, and the interpreter where they refuse, for an error with its place.

A payload in the result of `decode` is a view of the caller's bytes: they stay alive as long as it does, and a
later change of a bytearray shows in it. `encode_parts` never touches the bytes of a payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from proto_schema.errors import DecodeError, EncodeError
from proto_schema.external.payload import BytesLike, FileMap, Payload, byte_view, chunks
from proto_schema.wire import MAX_DEPTH, MAX_LENGTH, interpret
from proto_schema.wire.collection import paused_collection
from proto_schema.wire.fields import Message
from proto_schema.wire.generate import decoder, encoder, sizer

MARK = "\u0100"  # no byte: it stands in the text for an object
WHOLE = 1 << 23  # input up to this size is decoded from one bytes object
GC_PAUSE = 1 << 16  # input from this size on is decoded with the cyclic collector paused: it would find nothing
BUDGET_BASE, BUDGET_RATE = 1 << 28, 32  # bytes of message objects: this many, and this many more an input byte

M = TypeVar("M", bound=Message)


def decode(cls: type[M], data: Any) -> M:
    """The message of class `cls` that a bytes-like object holds. Raises DecodeError with field path and offset.

    The memory for message objects is bounded by 256 MiB and 32 bytes an input byte; real models stay far below.
    """
    return decode_noting(cls, data)[0]


def decode_noting(cls: type[M], data: Any) -> tuple[M, list[Message]]:
    """As `decode`, and with the message every message in it whose class has notes, in the order of decoding."""
    view = byte_view(data)
    buf = data if isinstance(data, bytes) else bytes(view) if len(view) <= WHOLE else None
    function = decoder(cls, buf is None)
    end = len(view)
    limit = BUDGET_BASE + BUDGET_RATE * end
    budget = interpret.Allowance(limit)
    try:
        with paused_collection(end >= GC_PAUSE):
            payloads = _Payloads(view, view.obj) if isinstance(view.obj, FileMap) else view
            message: M = function(payloads, view if buf is None else buf, 0, end, 0, budget, MAX_DEPTH)
            budget.settle()
            return message, budget.noted
    except MemoryError:
        raise
    except Exception as error:
        refusal = error.with_traceback(None)  # lets go of what was decoded so far
    if budget.left < 0:
        raise DecodeError(f"its messages need more than {limit >> 20} MiB: hostile, or no model at all")
    interpret.decode(cls, view, 0, end, interpret.Allowance(limit))
    raise AssertionError("the interpreter accepts what the generated decoder refuses") from refusal


class _Payloads:
    """The input as payloads are cut from it: a mapped file hears of each, so that few of its pages stay resident."""

    def __init__(self, view: memoryview, mapping: FileMap) -> None:
        self.view = view
        self.mapping = mapping

    def __getitem__(self, part: slice) -> memoryview:
        found = self.view[part]
        self.mapping.went_past(len(found))
        return found


class Wholes:
    """What is encoded as the object it is, in the order of the text; and how many bytes more than characters it has."""

    __slots__ = ("extra", "parts")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.extra = 0

    def take(self, data: Any, size: int) -> str:
        """The character that stands for an object of so many bytes."""
        self.parts.append(data)
        self.extra += size - 1
        return MARK


def encode_parts(message: Message) -> tuple[list[BytesLike], int]:
    """(pieces in order, their total size): small bytes objects, and every payload as the object that the field holds.

    Raises EncodeError, which names the field. A message may be larger than protobuf's 2 GiB: the caller decides.
    """
    wholes = Wholes()
    try:
        text = encoder(type(message))(message, wholes, MAX_DEPTH)
        return _parts(text, wholes.parts), len(text) + wholes.extra
    except MemoryError:
        raise
    except Exception as error:
        refusal = error
    raise _located(message, refusal)


def _parts(text: str, wholes: list[BytesLike]) -> list[BytesLike]:
    """The text between objects as bytes, and the objects."""
    first, *others = text.split(MARK) if wholes else [text]
    parts: list[BytesLike] = [first.encode("latin-1")] if first else []
    for data, after in zip(wholes, others, strict=True):
        parts.append(data)
        if after:
            parts.append(after.encode("latin-1"))
    return parts


def encode(message: Message) -> bytes:
    """The encoding, joined once. Raises EncodeError, also where it would pass 2 GiB, which no parser reads."""
    parts, size = encode_parts(message)
    if size > MAX_LENGTH:
        raise EncodeError(f"{size} bytes pass protobuf's limit of 2 GiB: save it with external_data=True")
    maps = {id(part.obj): part.obj for part in parts if isinstance(part, memoryview) and isinstance(part.obj, FileMap)}
    for mapping in maps.values():
        mapping.expect_unchanged()
    joined = b"".join(flattened(parts))
    for mapping in maps.values():
        mapping.expect_unchanged()
    return joined


def size(message: Message) -> int:
    """The size of the encoding. Raises EncodeError where a value has none; numbers are counted, not checked."""
    try:
        return sizer(type(message))(message)
    except MemoryError:
        raise
    except Exception as error:
        refusal = error
    raise _located(message, refusal)


def _located(message: Message, refusal: Exception) -> Exception:
    """The interpreter's error for a message that generated code refused; else that refusal (a payload's, say)."""
    try:
        interpret.encode(message, dry=True)
    except EncodeError as error:
        return error
    return refusal


def flattened(parts: Iterable[BytesLike]) -> Iterator[bytes | bytearray | memoryview]:
    """The parts with every Payload replaced by its chunks."""
    for part in parts:
        if isinstance(part, Payload):
            yield from chunks(part)
        else:
            yield part
