"""Repeated fields as attributes: what lies in a slot becomes the list that everybody has, when somebody asks for it.

Two threads that ask first get the same list. A list that is text (of a message that was read on demand) is made alone,
or with those of the messages around, when some of these were asked for (`lists.Siblings`).
"""

from __future__ import annotations

import os
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any

from proto_schema.wire.collection import paused_collection
from proto_schema.wire.lists import MessageList, Unread, UnreadList

if TYPE_CHECKING:
    from proto_schema.wire.fields import Field, Message

_first = RLock()  # held while a list is made; a fork waits until nobody makes one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_first.acquire, after_in_parent=_first.release, after_in_child=_first.release)


@cache
def list_type(owner: type[Message], name: str, unread: bool = False) -> type[MessageList[Any]]:
    """The class of the lists of one field, so that a list needs no memory for what it holds."""

    def made(**fields: Any) -> Message:
        from proto_schema.wire.fields import message_class

        field = next(field for field in owner.FIELDS if field.name == name)
        return message_class(owner, field)(**fields)

    space = {"__slots__": (), "MAKE": staticmethod(made)}
    return type("MessageList", (UnreadList if unread else MessageList,), space)


def list_property(field: Field) -> property:
    """What reads and assigns a repeated field."""
    slot, name = field.slot, field.name
    readers: list[Any] = []
    classes: list[Any] = []  # of the field's lists; a message class has no subclasses

    def of_text(self: Any, text: str) -> list[Any]:
        if not readers:
            from proto_schema.wire.reading import filler, values

            readers.extend([values(self.__class__, field), filler(self.__class__, field)])
        if self._siblings is not None:
            more = self._siblings.to_fill(name)
            if more:
                with paused_collection():
                    readers[1](more)
                return getattr(self, slot)  # type: ignore[no-any-return]
        return readers[0](text)  # type: ignore[no-any-return]

    def read(self: Any) -> list[Any]:
        found: Any = getattr(self, slot)
        if found.__class__ is list:
            return found
        with _first:
            found = getattr(self, slot)
            if found.__class__ is not list:
                found = of_text(self, found) if found.__class__ is str else found.values() if found else []
                object.__setattr__(self, slot, found)
        return found  # type: ignore[no-any-return]

    def assign(self: Any, values: Any) -> None:
        object.__setattr__(self, slot, values if values.__class__ is list else as_list(values))

    def messages(self: Any) -> MessageList[Any]:
        found: Any = getattr(self, slot)
        if isinstance(found, MessageList):
            return found
        with _first:
            found = getattr(self, slot)
            if not isinstance(found, MessageList):
                if isinstance(found, Unread):
                    found = found.values()
                else:  # decoders make plain lists, as most are never looked at
                    found = of_text(self, found) if found.__class__ is str else found or ()
                    if not isinstance(found, MessageList):
                        if not classes:
                            classes.append(list_type(self.__class__, name))
                        found = classes[0](found)
                object.__setattr__(self, slot, found)
        return found  # type: ignore[no-any-return]

    def assign_messages(self: Any, values: Any) -> None:
        object.__setattr__(self, slot, list_type(self.__class__, name)(as_list(values)))

    return property(messages, assign_messages) if field.message else property(read, assign)


def as_list(values: Any) -> list[Any]:
    """A new list of the values of any iterable but text, which is surely meant as one value; None is no values."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"a repeated field takes a list, not {type(values).__name__} {values!r}")
    return [] if values is None else list(values)


__all__ = ["as_list", "list_property", "list_type"]
