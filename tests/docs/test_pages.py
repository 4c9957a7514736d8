"""Every code block of README and of the pages runs, or stands in a table that says why it does not.

`tests/docs/blocks.py` says what running a block means. A block is named by its first line. Commands that are not run are
parsed at least, so that a verb or an option that is gone is found.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from purexport.cli.main import build_parser
from tests.docs.blocks import PAGES, ROOT, Block, blocks, run


@dataclass(frozen=True)
class Page:
    """A page whose blocks run, first to last, in one folder."""

    name: str
    set_up: Callable[[], None] = lambda: None
    needs: str = ""


RUN = [
    Page("docs/tutorial.md"),
    Page("docs/custom-operators.md"),
    Page("docs/quantizing.md"),
    Page("docs/minimal-environment.md"),
    Page("docs/cookbook.md"),
]


def _network() -> None:
    """The class that docs/comparing.md speaks of, with the arguments of its second command."""
    Path("net.py").write_text(
        "import torch\n\n\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))\n\n\n"
        "def step():\n"
        "    return (torch.ones(3, 4),)\n"
    )
