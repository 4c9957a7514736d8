"""What the tests of pages share: a page of a model, and what is in its block of data."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proto_schema as ps
from purexport.inspect import html
from tests.inspect import browser
from tests.inspect.browser import Browser

HOSTILE = "</script><img src=x onerror=window.hacked=1><!--<script>\u2028&amp;\"'`${window.hacked=2}"
Opened = Callable[[bytes | ps.ModelProto], Browser]
"""A function that opens the page of a model; the fixture `opened`."""

needs_browser = pytest.mark.skipif(not (browser.CHROMIUM and browser.DRIVER), reason=browser.MISSING)


def unpacked(page: Path) -> tuple[dict[str, Any], bytes, str]:
    """(what the page is told, the bytes of the model that it has, the page without its data)."""
    text = page.read_text(encoding="ascii")
    [block] = re.findall(r'<script type="application/octet-stream" id="data">([A-Za-z0-9+/=]*)</script>', text)
    data = zlib.decompress(base64.b64decode(block))
    [size] = struct.unpack("<I", data[:4])
    return json.loads(data[4 : 4 + size]), data[4 + size :], text.replace(block, "")


def made(folder: Path, data: bytes | ps.ModelProto, **options: Any) -> Path:
    """The page of a model."""
    path = folder / "m.onnx"
    path.write_bytes(data if isinstance(data, bytes) else ps.dumps(data))
    html(path, folder / "m.html", **options)
    return folder / "m.html"
