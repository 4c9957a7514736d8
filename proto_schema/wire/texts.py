"""Lists that are text from the start: who makes many messages writes their short lists at once, as the encoder would.

Such a list is what lies in the slot of a message that was read on demand, so nothing walks it again to write it, and
Python's garbage collector has nothing to walk in it. It becomes a list when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from proto_schema.wire import varint
from proto_schema.wire.fields import Message, field_of
from proto_schema.wire.generate import head, heads

LONGEST = 1 << 10  # bytes of a message in a list that is text


@cache
def short_texts(cls: type[Message], name: str) -> Callable[[list[Any]], Any]:
    """The function that makes what lies in the slot of a field of a list of texts: text if all are short and ASCII.

    Everything else is a copy of the list, which the encoder may refuse.
    """
    field = field_of(cls, name)
    assert field is not None
    before = heads(field.tag)

    def written(values: list[Any]) -> Any:
        text = ""
        try:
            for value in values:
                if value.__class__ is not str:
                    return [*values]
                text += before[len(value)] + value
        except IndexError:  # 128 characters or more
            return [*values]
        return text if text.isascii() else [*values]

    return written


def framed(cls: type[Message], name: str, message: Message) -> str | None:
    """A message as the text that it is in the list of a field; None where it is long."""
    field = field_of(cls, name)
    assert field is not None
    text = message.SerializeToString().decode("latin-1")
    return head(varint(field.tag).decode("latin-1"), len(text)) + text if len(text) <= LONGEST else None


__all__ = ["framed", "short_texts"]
