"""The errors of the package: each says where, what is wrong and what to do next.

All are `ValueError`s, so code that guards a parse with `except ValueError` keeps working.
Names and values from a file stand in them, and a file may have such of a gigabyte: their texts are cut in the middle.
`code` names the kind of error for programs, and stays the same when the texts change.
"""

from __future__ import annotations

LONGEST = 2000  # characters of a text


def bounded(text: str) -> str:
    """The text, or its beginning, which says where and what, and its end, which says what next."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters] {text[-half:]}"


class DecodeError(ValueError):
    """The bytes are not the message that was asked for.

    `path` is the field path from the outermost message (`graph.node[3].attribute[0]`, empty for that message itself),
    `offset` the byte offset from its first byte (None where no byte is to blame), `reason` the cause alone,
    `file` the file that was read, where there was one.
    """

    code = "malformed"

    def __init__(self, reason: str, offset: int | None = None, path: str = "", file: str = "") -> None:
        self.reason = reason
        self.offset = offset
        self.path = path
        self.file = file
        place = path if offset is None else f"{path} @{offset:#x}".lstrip()
        super().__init__(bounded(": ".join(part for part in (file, place, reason) if part)))

    def __reduce__(self) -> tuple[type[DecodeError], tuple[str, int | None, str, str]]:
        return type(self), (self.reason, self.offset, self.path, self.file)

    def inside(self, step: str) -> DecodeError:
        """The same error, seen from the message that holds the failing one in its field `step`."""
        return DecodeError(self.reason, self.offset, f"{step}.{self.path}" if self.path else step, self.file)


class EncodeError(ValueError):
    """A message holds a value that the format cannot express, or a file cannot be written as asked.

    `path` is the field path from the outermost message, `reason` the cause alone.
    """

    code = "not-encodable"

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(bounded(f"{path}: {reason}" if path else reason))

    def __reduce__(self) -> tuple[type[EncodeError], tuple[str, str]]:
        return type(self), (self.reason, self.path)

    def inside(self, step: str) -> EncodeError:
        """The same error, seen from the message that holds the failing one in its field `step`."""
        return EncodeError(self.reason, f"{step}.{self.path}" if self.path else step)


class ExternalDataError(ValueError):
    """A tensor's external data is missing, unsafe to open, or not what the tensor says it is."""

    code = "external-data"

    def __init__(self, text: str) -> None:
        super().__init__(bounded(text))


class UnreadableDataError(ExternalDataError):
    """The machine does not let the data be read, or somebody changed the file: which says nothing about the model."""


class CheckError(ValueError):
    """A model breaks a rule of the ONNX specification; the message names the place in the model."""

    code = "invalid-model"

    def __init__(self, text: str) -> None:
        super().__init__(bounded(text))
