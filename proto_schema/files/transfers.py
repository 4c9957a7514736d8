"""Models that were transferred as text: what was done to their bytes, and the bytes before it where it can be undone.

Strategy: each kind of damage leaves a sign that a sound model has only by chance.  Where it can be undone, it is,
and it counts only if a model comes out.
- LF became CR LF: no LF is without a CR.
- CR LF became LF: the bytes have both CR and LF often enough that some must stand together, and none do.
- The bytes were read as Latin-1 or Windows-1252, and written as UTF-8: all of them are valid UTF-8.
- They were read as UTF-8, and what was none became U+FFFD: the same, with EF BF BD among them.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

from proto_schema.errors import DecodeError
from proto_schema.external.payload import byte_view
from proto_schema.onnx import ModelProto
from proto_schema.wire.codec import decode

_LARGEST = 1 << 28  # bytes that are undone at most
_LOOK = 1 << 20  # bytes that tell whether more of them are worth a look
_EXPECTED = 10  # pairs of CR and LF, from which on it is no chance that there are none
_REPLACED = "\ufffd".encode()
_AGAIN = "copy or download it again in binary mode"
_SALVAGE = "`purexport salvage` changes them back"


def _of_windows() -> dict[int, int]:
    """Characters of Windows-1252 by the bytes for which it has others than Latin-1."""
    table = {}
    for byte in range(0x80, 0xA0):
        character = bytes([byte]).decode("cp1252", "ignore")
        if character:
            table[ord(character)] = byte
    return table


_WINDOWS = _of_windows()


@dataclass(frozen=True)
class Transfer:
    """What was done to the bytes, what to do about it, and the bytes before it where they are known."""

    what: str
    remedy: str
    restored: bytes | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def as_text(data: Any) -> Transfer | None:
    """What a transfer as text did to the bytes of a damaged model; None where there is no sign of it."""
    view = byte_view(data)
    return _line_ends(view) or _utf8(view)


def _line_ends(view: memoryview) -> Transfer | None:
    start = bytes(view[:_LOOK])
    ends, pairs = start.count(b"\n"), start.count(b"\r\n")
    if ends and pairs == ends - start.startswith(b"\n"):
        what = "line ends were changed from LF to CR LF by a transfer as text"
        undone = _model(bytes(view).replace(b"\r\n", b"\n")) if len(view) <= _LARGEST else None
        if undone is not None:
            return Transfer(what, f"{_SALVAGE}, or {_AGAIN}", undone)
        return Transfer(f"perhaps {what}", _AGAIN) if ends > _EXPECTED and len(view) > _LARGEST else None
    if not pairs and ends * start.count(b"\r") > _EXPECTED * len(start):
        return Transfer("perhaps line ends were changed from CR LF to LF by a transfer as text", _AGAIN)
    return None


def _utf8(view: memoryview) -> Transfer | None:
    if not view or view[0] >= 0x20 or bytes(view[:_LOOK]).isascii():
        return None  # a model begins with the tag of a field, and text does not
    try:
        codecs.getincrementaldecoder("utf-8")().decode(bytes(view[:_LOOK]))
        text = bytes(view[:_LARGEST]).decode("utf-8") if len(view) <= _LARGEST else ""
    except UnicodeDecodeError:
        return None
    lost = text.count("\ufffd") or bytes(view[:_LOOK]).count(_REPLACED)
    if lost:
        what = f"its bytes were read as UTF-8 text, and {lost:,} that are none were replaced by EF BF BD"
        return Transfer(what, f"they are lost; {_AGAIN}")
    what = "its bytes were read as text (Latin-1 or Windows-1252) and written as UTF-8"
    if not text:
        return Transfer(f"perhaps {what}", _AGAIN)
    try:
        undone = _model(text.translate(_WINDOWS).encode("latin-1"))
    except UnicodeEncodeError:
        return None
    return None if undone is None else Transfer(what, f"{_SALVAGE}, or {_AGAIN}", undone)


def _model(data: bytes) -> bytes | None:
    """The bytes, if they are a model."""
    try:
        return data if decode(ModelProto, data).graph is not None else None
    except DecodeError:
        return None
