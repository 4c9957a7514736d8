"""The error that a verb raises for bad usage."""

from __future__ import annotations


class UsageError(Exception):
    """The command line, or a file it names, cannot be used.  Its text is one line: what is wrong and what to write."""
