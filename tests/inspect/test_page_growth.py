"""The page's own code takes steps in proportion to the file: it runs without a browser, in node, and is counted.

`page_steps.js` counts the elements that it reads and the items that methods of arrays look at, up to the layout of
every graph, as it opens and with all modules unfolded. What else a click does is not run.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from fuzz.counted import steep
from fuzz.patterns import PATTERNS
from purexport.inspect import html

NODE = shutil.which("node")
HERE = Path(__file__).parent
NAMES = ("bytes", "model", "families", "modules", "frames", "layout")
SCRIPTS = [HERE.parents[1] / "purexport" / "inspect" / "page" / f"{name}.js" for name in NAMES]
OFTEN = ("graphs in one attribute", "merged graphs", "cycles", "chain")


def steps(pattern: str, size: int, folder: Path) -> int:
    (folder / "m.onnx").write_bytes(PATTERNS[pattern](size))
    html(folder / "m.onnx", folder / "m.html", "none")
    [block] = re.findall(r'id="data">([A-Za-z0-9+/=]*)<', (folder / "m.html").read_text(encoding="ascii"))
    (folder / "data").write_bytes(zlib.decompress(base64.b64decode(block)))
    command = [str(NODE), str(HERE / "page_steps.js"), *map(str, SCRIPTS), str(folder / "data")]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(NODE is None, reason="the page's code runs in node, which is not here")
@pytest.mark.parametrize(
    "pattern", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.sweep) for name in PATTERNS]
)
def test_steps_of_the_page(pattern: str, tmp_path: Path) -> None:
    counts = [steps(pattern, size, tmp_path) for size in (100, 200, 400)]
    assert not steep(counts), counts
