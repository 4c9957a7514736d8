"""Source lines: those that torch's tracer records for its nodes, and the one that is running."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from purexport.aten.graph import INSIDE_TORCH, Frame, users_frame

_FRAME = re.compile(r"^(.*)\((\d+)\): .*$", re.MULTILINE)


def traced_frames(place: str) -> Iterator[Frame]:
    """The frames of a traced node's `sourceRange()`, innermost first."""
    return ((found[1], int(found[2])) for found in _FRAME.finditer(place))


def users_line() -> Frame:
    """The line of the model that is running."""
    return users_frame(_frames(sys._getframe(1))) or ("", 0)


def caller_of(builtin: str) -> dict[str, Any] | None:
    """The namespace of the model's module that is calling a builtin by its name; None for other code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and any(part in frame.f_code.co_filename for part in INSIDE_TORCH):
        frame = frame.f_back
    return frame.f_globals if frame is not None and builtin in frame.f_code.co_names else None


def _frames(frame: FrameType | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
