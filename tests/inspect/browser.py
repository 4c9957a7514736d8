"""A headless Chromium for tests, driven by the WebDriver protocol (https://www.w3.org/TR/webdriver2/) with urllib.

`Browser` is one window; it loads pages from files, runs scripts, clicks, types, and takes pictures.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "no chromium and chromedriver here (apt-get install -y chromium chromium-driver)"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


LEAST_WIDTH = 600  # of a window; below it the browser plays a telephone


class Browser:
    """One window of `width` by `height`. A context manager: it ends the processes that it started."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="purexport-browser-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._base = f"http://127.0.0.1:{self._port()}"
        flags = [*_FLAGS, f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}"]
        options: dict[str, Any] = {"binary": CHROMIUM, "args": flags}
        if width < LEAST_WIDTH:
            metrics = {"width": width, "height": height, "pixelRatio": 1}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._process.terminate()
            self._process.wait(10)
            self._profile.cleanup()

    def open(self, page: Path, seconds: float = 60) -> None:
        """Loads a page and waits until it says that it is ready."""
        self._call("POST", "/url", {"url": page.resolve().as_uri()})
        self.wait("return document.documentElement.dataset.ready === 'yes'", seconds)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; it has `arguments`, and `page`, which is the page's own object."""
        script = f"const page = window.page; {script}"
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 10) -> None:
        """Until a script returns something true. TimeoutError otherwise, with what the console says."""
        stop = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > stop:
                raise TimeoutError(f"{script}: not within {seconds} s; the console: {self.console()}")
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Keys to an element; \\ue007 is Enter."""
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def press(self, x: float, y: float) -> None:
        """A click of the pointer at a place of the window."""
        moves = [
            {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def text(self, selector: str) -> str:
        found: str = self._call("GET", f"/element/{self._find(selector)}/text")
        return found

    def picture(self, target: Path) -> None:
        target.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def console(self) -> list[str]:
        """What the page logged since the last time, errors and what its policy refused included."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def _find(self, selector: str) -> str:
        found: str = self._call("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        return found

    def _port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found[1])
        raise RuntimeError("chromedriver ended before it said its port")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {json.load(error)['value']['message']}") from None
