"""The page opens: it unpacks its data at once, its first paint has the graph, and very many nodes are few boxes."""

from __future__ import annotations

import base64
import random
import zlib

from tests.inspect.pages import Opened, needs_browser
from tests.inspect.test_html import PAGE_FILES, chain_of
from tests.inspect.test_tree import SAMPLE_BYTES

pytestmark = needs_browser

# data, and how it is deflated
DEFLATED = {
    "nothing": (b"", {}),
    "stored": (SAMPLE_BYTES, {"level": 0}),
    "codes of the standard": (SAMPLE_BYTES[:300], {"strategy": zlib.Z_FIXED}),
    "codes of its own": (SAMPLE_BYTES, {"level": 9}),
    "no copies": (SAMPLE_BYTES, {"strategy": zlib.Z_HUFFMAN_ONLY}),
    "copies that overlap": (b"ab" * 40_000, {}),
    "several blocks": (random.Random(1).randbytes(90_000) + b"a" * 70_000, {}),
}


def test_deflated_data(opened: Opened) -> None:
    """The page unpacks what zlib packs, and refuses what is damaged."""
    window = opened(SAMPLE_BYTES)
    source = next(path for path in PAGE_FILES if path.name == "inflate.js").read_text(encoding="ascii")
    script = (
        source
        + """
        const octets = Uint8Array.from(atob(arguments[0]), (one) => one.charCodeAt(0));
        try {
          return btoa(Array.from(inflated(octets), (one) => String.fromCharCode(one)).join(""));
        } catch (error) { return error.message; }
    """
    )
    for name, (data, options) in DEFLATED.items():
        packer = zlib.compressobj(**options)
        packed = base64.b64encode(packer.compress(data) + packer.flush()).decode()
        assert base64.b64decode(window.run(script, packed)) == data, name
    no_kind = bytearray(zlib.compress(SAMPLE_BYTES, 9))
    no_kind[2] |= 0b110  # the kind of the first block
    for damaged in (zlib.compress(SAMPLE_BYTES)[:400], no_kind, b"\x78\x9c\x01\x08\0"):
        assert window.run(script, base64.b64encode(damaged).decode()) == "its data are damaged"


def test_the_first_paint_has_the_graph(opened: Opened) -> None:
    """Nothing is painted before it, unless that takes so long that a person is told to wait."""
    window = opened(SAMPLE_BYTES)
    painted = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    window.wait(painted)
    assert window.run(painted) >= min(window.run("return page.timings.shown") - 1, 300)
    drawn = "const { frames } = page.graph, before = frames.length; page.graph.resize(); return frames.length - before"
    assert window.run(drawn) == 1  # at once, not a frame later
    hidden = "delete document.documentElement.dataset.made; return getComputedStyle(document.getElementById('left'))"
    assert window.run(hidden + ".visibility") == "hidden"


def test_many_nodes_of_no_module_open_as_ranges(opened: Opened) -> None:
    model = chain_of(2500)
    assert model.graph is not None
    for one in model.graph.node:
        one.name = ""
    window = opened(model)
    assert window.run("return page.graph.view.groups.map((group) => group.title).slice(0, 2)") == [
        "nodes 0 ... 49",
        "nodes 50 ... 99",
    ]
    assert window.run("return page.graph.view.count") == 50
    window.run("page.graph.foldAll(true)")
    assert window.run("return page.graph.view.count") == 2500
    window.run("page.graph.modules.setAll(false); page.select(page.bytes.find('graph.node[60]'))")
    assert window.run("return page.graph.view.count") == 99 and "module nodes 50 ... 99" in window.text("#details")
