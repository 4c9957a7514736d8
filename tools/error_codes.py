"""The page of the error codes, made of the table.

python -m tools.error_codes --write    writes docs/error-codes.md
python -m tools.error_codes            prints it
"""

from __future__ import annotations

import sys
from pathlib import Path

from purexport.errors.code import Code
from purexport.errors.codes import FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "error-codes.md"

_INTRODUCTION = """\
# Error codes

Written by `python -m tools.error_codes --write` from the tables in `purexport/errors/`; do not edit.

Each error that purexport raises on purpose has a `code`, which names its cause. The words of a message may change from
one version to the next, and the code does not:

```python
try:
    purexport.export(model, args, "model.onnx")
except purexport.ExportError as error:
    if error.code == "opset-too-low":
        ...
```

- `error.code` is the cause. `error.codes` are the causes of all that the error sums up: the gaps of an
  `UnsupportedOperatorError`, or the errors of both routes.
- `error.gaps` of an `UnsupportedOperatorError` lists the calls that cannot be exported, each with its own `code`.
- The command line shows the code in brackets at the end of an error's first line. With `--json` the last line on
  standard error is an object: `{"error": {"code": ..., "type": ..., "message": ..., "gaps": [...]}}`.
- A mistake in an option is a plain `ValueError` or `TypeError`, which has no code.
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [_INTRODUCTION]
    for title, rows in FAMILIES:
        parts.append(f"## {title}\n")
        parts += [_section(row) for row in rows]
    return "\n".join(parts)


def _section(row: Code) -> str:
    lines = [f"### `{row.name}`\n", row.meaning, "", f"What to do: {row.remedy}\n"]
    if row.example:
        lines += ["```text", row.example, "```\n"]
    return "\n".join(lines)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
