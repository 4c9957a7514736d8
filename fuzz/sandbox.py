"""A model's folder with everything that a location could lead to, and a watch on every file that is opened.

What lies outside the folder has content of its own, so that a byte of it is known wherever it turns up.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.bounds import folder

DATA = bytes(range(64))
SECRET = b"SECRET-." * 8
_PLACES: list[str] = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
CODE = tuple(os.path.realpath(place) for place in (*_PLACES, str(Path(__file__).parent.parent)))


class Sandbox:
    """`model` is the folder of the model, beside `outside`, which is not to be opened, and `out`, for results."""

    def __init__(self) -> None:
        self._folder = folder("external")
        self.root = Path(os.path.realpath(self._folder.name))
        self.model, self.outside, self.out = (self.root / name for name in ("model", "outside", "out"))
        self.file = self.model / "m.onnx"
        (self.outside / "sub").mkdir(parents=True)
        for name in ("w.bin", "sub/w.bin", "secret"):
            (self.outside / name).write_bytes(SECRET)
        self.out.mkdir()
        self.model.mkdir()
        self._fill(self.model)
        self._stamps = self._stamped()

    def _fill(self, here: Path) -> None:
        for name in ("sub/w.bin", "w.bin", "a..b.bin", "\u00e9.bin", "C:w.bin", "sub\\w.bin", "%2e%2e", "twin"):
            (here / name).parent.mkdir(exist_ok=True)
            (here / name).write_bytes(DATA)
        (here / "empty.bin").write_bytes(b"")
        os.link(here / "twin", here / "twin2")
        os.link(self.outside / "secret", here / "hard")
        for name, target in (
            ("link", self.outside / "w.bin"),
            ("linked", "../outside"),
            ("inner", "w.bin"),
            ("within", "sub"),
            ("dangling", "nowhere"),
            ("loop", "loop"),
            ("null", "/dev/null"),
            ("up", ".."),
        ):
            (here / name).symlink_to(target)
        os.mkfifo(here / "pipe")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(here / "socket"))

    def _stamped(self) -> dict[str, tuple[int, ...]]:
        """What is in all folders, but for the model and for what is called as nothing was at first."""
        found: dict[str, tuple[int, ...]] = {}
        for place in (self.model, self.model / "sub", self.outside, self.outside / "sub"):
            for entry in os.scandir(place):
                status = entry.stat(follow_symlinks=False)
                content = () if stat.S_ISDIR(status.st_mode) else (status.st_mtime_ns, status.st_size)
                found[entry.path] = (status.st_ino, *content)
        return {path: stamp for path, stamp in found.items() if path != str(self.file)}

    def tidy(self) -> str:
        """Removes what was written since; the name of a file that was changed or removed, or was written outside."""
        now = self._stamped()
        fresh = now.keys() - self._stamps.keys()
        for path in (*fresh, *(entry.path for entry in os.scandir(self.out))):
            os.unlink(path)
        changed = [path for path, stamp in self._stamps.items() if now.get(path) != stamp]
        return next((path for path in (*changed, *fresh) if path in changed or str(self.outside) in path), "")


class Watch:
    """The files that are opened or mapped, in this process, while it watches: by descriptor, so without a doubt."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.foreign: list[str] = []  # mapped files that have names elsewhere, too
        self._on = False
        self._open = os.open
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "open" and arguments[1] is not None and not isinstance(arguments[0], int):  # open(), not os.open
            self.opened.append(os.path.realpath(os.fsdecode(arguments[0])))
        elif event == "mmap.__new__" and arguments[0] >= 0:
            status = os.fstat(arguments[0])
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                self.foreign.append(os.readlink(f"/proc/self/fd/{arguments[0]}"))

    def _opening(self, *arguments: Any, **more: Any) -> int:
        descriptor = self._open(*arguments, **more)
        self.opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return descriptor

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Watches what is inside."""
        self.opened, self.foreign = [], []
        os.open, self._on = self._opening, True
        try:
            yield
        finally:
            os.open, self._on = self._open, False

    def strangers(self, *allowed: Path) -> list[str]:
        """What was opened and lies neither beneath one of these folders nor is code that was imported."""
        roots = [*map(str, allowed), *CODE]
        return [path for path in self.opened if not any(path == root or path.startswith(f"{root}/") for root in roots)]
