"""Source lines that torch's tracer recorded for the nodes of a traced script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from purexport.aten.graph import Frame

_FRAME = re.compile(r"^(.*)\((\d+)\): .*$", re.MULTILINE)


def traced_frames(place: str) -> Iterator[Frame]:
    """The frames of a traced node's `sourceRange()`, innermost first."""
    return ((found[1], int(found[2])) for found in _FRAME.finditer(place))
