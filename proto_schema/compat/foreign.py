"""Errors that code written for protobuf catches: `google.protobuf.message.DecodeError` and `text_format.ParseError`.

Where a program has imported these, what is raised is one of them as well as our own error. Nothing is imported here.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from proto_schema.errors import DecodeError


class TextError(ValueError):
    """A text is no message in protobuf's text format or in JSON; the text names line and column."""


@cache
def _both(ours: Any, theirs: Any) -> type[Exception]:
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__, "__doc__": ours.__doc__})


def _theirs(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def decode_error(error: DecodeError) -> Exception:
    """The error for bytes that are no message."""
    theirs = _theirs("google.protobuf.message", "DecodeError")
    if theirs is None or isinstance(error, theirs):
        return error
    kind: Any = DecodeError
    both: Any = _both(kind, theirs)
    made: Exception = both(error.reason, error.offset, error.path, error.file)
    return made


def text_error(text: str, module: str) -> Exception:
    """The error for a text that is no message; `module` is text_format or json_format."""
    theirs: Any = _theirs(f"google.protobuf.{module}", "ParseError")
    return TextError(text) if theirs in (None, TextError) else _both(TextError, theirs)(text)
