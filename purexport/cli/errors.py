"""The error that a verb raises for bad usage."""

from __future__ import annotations

from collections.abc import Sequence


class UsageError(Exception):
    """The command line, or a file it names, cannot be used.

    Its text is one line: what is wrong and what to write.  `more` are the further lines of what a model's code raised.
    """

    def __init__(self, text: str, more: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.more = tuple(more)
