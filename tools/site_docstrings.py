"""An extension of griffe: the lists in docstrings become lists of Markdown.

Docstrings list arguments as lines that are indented by two and begin with a name in backticks, which reads well in
`help()`. Markdown would join such lines to a paragraph.

    What the file says:                       What the file says:
      `opset_version`: exactly this one.
      `dynamic_axes`: axes that                - `opset_version`: exactly this one.
        may vary.                              - `dynamic_axes`: axes that
                                                 may vary.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"  (?=`)")


class Lists(griffe.Extension):
    """Every docstring, before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(text: str) -> str:
    """The docstring with its lists as Markdown."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        entry = ENTRY.match(line) is not None
        if entry and not inside:
            lines.append("")
        if inside and not line.startswith("  "):
            lines.append("")
        inside = entry or (inside and line.startswith("  "))
        lines.append(f"- {line[2:]}" if entry else line)
    return "\n".join(lines)
