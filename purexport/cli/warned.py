"""Python's warnings as lines on stderr, for people at a command line: in few words, with the line of their code, once.

Filters (`python -W`, PYTHONWARNINGS) count as ever.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proto_schema.errors import bounded
from purexport.cli.source import is_library
from purexport.cli.terminal import paint, shown


@contextmanager
def told(verb: str) -> Iterator[None]:
    """Inside, a warning is one line, `purexport export: warning: net.py:9: ...`; the same line is written once."""
    written: set[str] = set()

    def show(
        message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        said = " ".join(str(message).split()).replace(os.path.join(os.getcwd(), ""), "")  # places, as in the first word
        text = bounded(shown(f"{_place(filename, lineno)}{said}"))
        if text not in written:
            written.add(text)
            head = paint(f"purexport {verb}: warning:", "yellow", sys.stderr)
            sys.stderr.write(f"{head} {text}\n")

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit")  # that it is deprecated; nobody asked for it by name
        warnings.showwarning = show
        yield


def _place(filename: str, lineno: int) -> str:
    """`net.py:9: ` for a line of the model; nothing for one of a library or our script, which tells a user nothing."""
    file = os.path.realpath(filename)
    if is_library(file) or file == os.path.realpath(sys.argv[0]) or not os.path.isfile(filename):
        return ""
    here = os.path.relpath(filename)
    return f"{filename if here.startswith(os.pardir) else here}:{lineno}: "
