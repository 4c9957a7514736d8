"""Source lines: those that torch's tracer records for its nodes, and the one that is running."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType

from purexport.aten.graph import Frame, users_frame

_FRAME = re.compile(r"^(.*)\((\d+)\): .*$", re.MULTILINE)


def traced_frames(place: str) -> Iterator[Frame]:
    """The frames of a traced node's `sourceRange()`, innermost first."""
    return ((found[1], int(found[2])) for found in _FRAME.finditer(place))


def users_line() -> Frame:
    """The line of the model that is running."""
    return users_frame(_frames(sys._getframe(1))) or ("", 0)


def _frames(frame: FrameType | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
