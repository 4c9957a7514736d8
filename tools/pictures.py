"""Make the pictures of README and of the site: the page of `purexport html`, and `purexport show` in a terminal.

python -m tools.pictures        needs chromium (or the program that CHROMIUM names), torch and rich
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text
from torch import Tensor, nn

import purexport
from purexport.cli.main import main

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = (1200, 700)
"""Width and height of the page's picture."""
WIDTH = 132
"""Columns of the terminal."""


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Net(nn.Module):
    """Pictures of three channels to ten scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.block = Block(16)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.pool(self.block(torch.relu(self.stem(image)))).flatten(1))


def pictures() -> None:
    """Writes all of them, each for light and dark paper."""
    torch.manual_seed(0)
    names = {"input_names": ["image"], "output_names": ["scores"], "dynamic_axes": {"image": {0: "batch"}}}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        purexport.export(Net().eval(), (torch.randn(1, 3, 224, 224),), "net.onnx", **names)
        main(["html", "net.onnx", "-o", "net.html"])
        for scheme, name in ((1, "page.png"), (0, "page-dark.png")):
            screenshot(f"file://{folder}/net.html", IMAGES / name, scheme)
        printed = terminal(["show", "net.onnx"])
        for theme, name in ((DEFAULT_TERMINAL_THEME, "show.svg"), (SVG_EXPORT_THEME, "show-dark.svg")):
            (IMAGES / name).write_text(drawn(printed, theme))
        os.chdir(IMAGES)


def screenshot(page: str, target: Path, scheme: int) -> None:
    """The page in a window; `scheme` 1 is light, 0 dark."""
    program = os.environ.get("CHROMIUM", "chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={SIZE[0]},{SIZE[1]}"]
    subprocess.run([program, *options, f"--screenshot={target}", page], check=True, stderr=subprocess.DEVNULL)


def terminal(words: list[str]) -> str:
    """What a verb prints on a terminal, with the command above it."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "purexport", *words]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs) as process:
        os.close(theirs)
        printed = "".join(iter(lambda: _read(ours), ""))
    assert process.returncode == 0, printed
    os.close(ours)
    return f"$ purexport {' '.join(words)}\n" + printed.replace("\r\n", "\n").rstrip()


def drawn(printed: str, theme: TerminalTheme) -> str:
    """The text of a terminal as a picture without fonts from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi(printed))
    picture = console.export_svg(title="purexport", unique_id="show", theme=theme)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 1 << 16).decode()
    except OSError:  # so a terminal says on Linux that nobody writes to it any more
        return ""


if __name__ == "__main__":
    pictures()
