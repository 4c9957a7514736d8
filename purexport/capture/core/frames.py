"""The source lines that torch's tracer records for its nodes."""

from __future__ import annotations

import re

from purexport.aten.graph import Frame

_FRAME = re.compile(r"^(.*)\((\d+)\): .*$", re.MULTILINE)


def traced_frames(place: str) -> list[Frame]:
    """The frames of a traced node's `sourceRange()`, innermost first."""
    return [(path, int(line)) for path, line in _FRAME.findall(place)]
