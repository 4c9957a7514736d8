"""Python's warnings as lines on stderr, for people at a command line: in few words, with the line of their code, once.

Strategy: what torch's tracer warns of is said in our words, because its own say what the tracer cannot do and not what
the file does.  Any other text is kept.  Filters (`python -W`, PYTHONWARNINGS) count as ever.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proto_schema.errors import bounded
from purexport.cli.source import is_library
from purexport.cli.terminal import paint, shown

# (how the tracer's text begins, what becomes of the file)
_TRACERS = (
    (
        r"Converting a tensor to a Python boolean",
        "the code decides on the content of a tensor, and the file has only the way that the example took "
        "(torch.where, torch.cond or a script keeps both)",
    ),
    (
        r"Converting a tensor to a ((?:Python|NumPy) .*?) might",
        r"the code takes a \1 out of a tensor, and the file holds the example's",
    ),
    (
        r"Iterating over a tensor",
        "the code loops over the rows of a tensor, and the file has as many steps as the example has rows",
    ),
    (
        r"(\S+) results are registered as constants",
        r"\1 makes a constant here: if it depends on the inputs, the file holds the example's value",
    ),
)


@contextmanager
def told(verb: str) -> Iterator[None]:
    """Inside, a warning is one line, `purexport export: warning: net.py:9: ...`; the same line is written once."""
    written: set[str] = set()

    def show(
        message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        text = bounded(shown(f"{_place(filename, lineno)}{in_our_words(str(message))}"))
        if text not in written:
            written.add(text)
            head = paint(f"purexport {verb}: warning:", "yellow", sys.stderr)
            sys.stderr.write(f"{head} {text}\n")

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit")  # that it is deprecated; nobody asked for it by name
        warnings.showwarning = show
        yield


def in_our_words(text: str) -> str:
    """What a warning of torch's tracer means for the file; another text as it is, in one line."""
    for beginning, ours in _TRACERS:
        found = re.match(beginning, text)
        if found:
            return found.expand(ours)
    return " ".join(text.split())


def _place(filename: str, lineno: int) -> str:
    """`net.py:9: ` for a line of the model; nothing for a line of a library, which says nothing to its user."""
    if is_library(os.path.realpath(filename)) or not os.path.isfile(filename):
        return ""
    here = os.path.relpath(filename)
    return f"{filename if here.startswith(os.pardir) else here}:{lineno}: "
