"""Write the commands of pip in the pages anew, as `purexport/errors/requirements.py` has them.

python -m tools.install_lines [--write]        without --write: the pages that would change

A command for a checkout alone has `-c constraints.txt` or `-e`, and stays as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from purexport.errors.requirements import command

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"pip install '?(?:\.|purexport)(?:\[(\w+)\])?'?(?![\w./\[])")
"""A command that installs purexport from a checkout or from an index, and its extra."""


def pages() -> list[Path]:
    """What a user reads."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(text: str) -> str:
    """The text with today's commands."""
    return COMMAND.sub(lambda found: command(found[1] or ""), text)


def main() -> int:
    changed = [page for page in pages() if written(page.read_text()) != page.read_text()]
    for page in changed:
        print(page.relative_to(ROOT))
        if "--write" in sys.argv:
            page.write_text(written(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
