"""An extension of griffe: the lists in docstrings become lists of Markdown, and messages list their fields.

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


FIELD = re.compile(r"(optional|repeated)\(")


class Lists(griffe.Extension):
    """Every docstring, before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        rows = [field for field in cls.attributes.values() if field.value and FIELD.match(str(field.value))]
        if rows and cls.docstring is not None:
            fields = "\n".join(f"- `{field.name}`: `{_shown(field)}`" for field in rows)
            cls.docstring.value += f"\n\nFields:\n\n{fields}"


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


def _shown(field: griffe.Attribute) -> str:
    """The type of a field. Messages on the way to nodes and sizes are typed as `X | Any`, and can be absent, too."""
    return str(field.annotation).replace(" | Any", " | None")
