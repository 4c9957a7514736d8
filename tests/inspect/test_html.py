"""The page of a model: what is in it, what is not, and in a real browser what it shows."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
import purexport
from proto_schema.wire.fields import Message
from purexport.cli.main import main
from purexport.inspect import Bytes, Element, Histogram, histogram, html, text_of
from tests.inspect.browser import Browser
from tests.inspect.pages import HOSTILE, Opened, made, needs_browser, unpacked
from tests.inspect.test_tree import FILES, SAMPLE, SAMPLE_BYTES, damaged_copies, sample_model, sparse_external
from tests.tiers import dealt

PAGE_FILES = sorted((Path(__file__).parents[2] / "purexport" / "inspect" / "page").iterdir())

# What is in a page ----------------------------------------------------------------------------------------------------


def test_it_has_the_structure_and_no_weights(tmp_path: Path) -> None:
    facts, data, _ = unpacked(made(tmp_path, SAMPLE_BYTES))
    assert (facts["file"], facts["size"], facts["damage"]) == ("m.onnx", len(SAMPLE_BYTES), None)
    starts, sizes = facts["ranges"][::2], facts["ranges"][1::2]
    there = b"".join(SAMPLE_BYTES[at : at + size] for at, size in zip(starts, sizes, strict=True))
    assert there == data and len(SAMPLE_BYTES) - len(data) == 16384 - 64 - 16
    [raw] = [e for e in Bytes(SAMPLE_BYTES).walk() if e.step == "raw_data" and e.payload == 16384]
    assert starts == [0, raw.stop - 16] and sizes[0] == raw.body + 64


def test_script_and_style_are_the_only_ones_that_may_run(tmp_path: Path) -> None:
    _, _, text = unpacked(made(tmp_path, SAMPLE_BYTES))
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    for tag in ("script", "style"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert not re.findall(r"""(?:src|href)\s*=|url\(|@import|https?://|\son\w+="|style=""", text)


def test_no_name_of_a_file_is_markup(tmp_path: Path) -> None:
    model = sample_model()
    assert model.graph is not None
    model.graph.node[0].name = model.graph.node[0].op_type = model.producer_name = HOSTILE
    model.graph.initializer[0].name = model.graph.input[0].name = HOSTILE
    path = tmp_path / "<img src=x onerror=alert(1)>.onnx"
    path.write_bytes(ps.dumps(model))
    html(path, tmp_path / "m.html")
    text = (tmp_path / "m.html").read_text(encoding="ascii")
    assert "hacked" not in text and "<img" not in text
    assert text.count("<script") == text.count("</script>") == 2


@pytest.mark.parametrize("seed", range(12))
def test_damaged_copies(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every copy has a page, with the place that `inspect` names."""
    (tmp_path / "m.onnx").write_bytes(damaged_copies(seed))
    status = main(["html", str(tmp_path / "m.onnx")])
    said = capsys.readouterr().out
    facts, _, _ = unpacked(tmp_path / "m.html")
    assert status == (facts["damage"] is not None) == ("first bad byte" in said)
    if status:
        main(["inspect", str(tmp_path / "m.onnx")])
        assert f"first bad byte: {facts['damage']['at']:#x}, in {facts['damage']['path']}" in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"version https://git-lfs.github.com/spec/v1\n", b"<!doctype html>", b"PK\3\4"])
def test_what_is_no_model_has_a_page_too(data: bytes, tmp_path: Path) -> None:
    facts, _, _ = unpacked(made(tmp_path, data))
    assert facts["size"] == len(data) and (facts["damage"] is None) == (not data)


def test_weights_in_files_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gigabyte is sampled; where it is missing the page says so."""
    path = sparse_external(tmp_path)
    assert main(["html", str(path), "-o", str(tmp_path / "m.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sampled"] == 1
    facts, data, _ = unpacked(tmp_path / "m.html")
    assert facts["files"][0]["size"] == 4096 + (1 << 30) and facts["files"][0]["sound"]
    [row] = [row for row in facts["histograms"].values() if row and row[7] == 1 << 28]
    assert 0 < row[6] < 1 << 19 and "of samples" in facts["note"] and len(data) < 2000
    (tmp_path / "w.bin").unlink()
    assert main(["html", str(path)]) == 0
    facts, _, _ = unpacked(tmp_path / "m.html")
    assert facts["files"][0]["size"] is None and "the values of 1 tensor cannot be read" in facts["note"]


# where tensors of 50 bytes begin in a data file of 100, what mode, how many of them get histograms
SHARED: list[tuple[str, list[int], str, int]] = [
    ("apart", [0, 50], "auto", 2),
    ("at one place", [50] * 9, "auto", 9),
    ("that overlap", list(range(9)), "auto", 4),
    ("that overlap, all asked for", list(range(9)), "all", 9),
]


@pytest.mark.parametrize(("name", "starts", "mode", "count"), SHARED, ids=[row[0] for row in SHARED])
def test_tensors_that_share_bytes(name: str, starts: list[int], mode: str, count: int, tmp_path: Path) -> None:
    """What lies at one place is counted once; what overlaps is read within bounds, and the page says what is left."""
    values = np.arange(100, dtype=np.uint8)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    graph = ps.GraphProto()
    for at in starts:
        tensor = ps.TensorProto(name=f"w{at}", data_type=ps.TensorProto.UINT8, dims=[50])
        ps.external.set_entries(tensor, "w.bin", at, 50)
        graph.initializer.append(tensor)
    facts, _, _ = unpacked(made(tmp_path, ps.ModelProto(graph=graph), histograms=mode))
    rows = [row for row in facts["histograms"].values() if row]
    assert [row[:2] for row in rows] == [[at, at + 49] for at in starts[:count]]
    assert (f"{len(starts) - count} more are left out" in facts["note"]) is (count < len(starts))


def test_no_histograms(tmp_path: Path) -> None:
    facts, _, _ = unpacked(made(tmp_path, SAMPLE_BYTES, histograms="none"))
    assert set(facts["histograms"].values()) == {None} and facts["note"] == "made without histograms"


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(SAMPLE_BYTES)
    with pytest.raises(FileExistsError, match=r"it is read by the same command; choose another name"):
        html(path, path, overwrite=True)
    with pytest.raises(ValueError, match=r"histograms='some' is not one of auto, all, none"):
        html(path, tmp_path / "m.html", "some")
    (tmp_path / "empty").touch()
    with pytest.raises(ps.DecodeError, match=r"empty: the file is empty"):
        html(tmp_path / "empty", tmp_path / "m.html")
    (tmp_path / "empty").unlink()
    assert sorted(tmp_path.iterdir()) == [path] and path.read_bytes() == SAMPLE_BYTES


@pytest.mark.parametrize("path", PAGE_FILES, ids=lambda path: path.name)
def test_sources_of_the_page(path: Path) -> None:
    """The house rules; and no way from text to markup or code."""
    text = path.read_text(encoding="ascii")
    lines = text.splitlines()
    assert len(lines) <= 500 and max(map(len, lines)) <= 120 and not any(line != line.rstrip() for line in lines)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|setAttribute\(.on", text
    )
    # all text passes `plain`, which escapes what would move other text
    shows = [line.strip() for line in lines if re.search(r"textContent =|(fill|stroke)Text\(", line)]
    own = ["element.textContent = plain(text);"]
    own += [f"context.{way}Text(plain(text), x, y);" for way in ("fill", "stroke")]  # no width: it would squeeze them
    assert shows == (own if path.name == "lists.js" else [])


# Histograms -----------------------------------------------------------------------------------------------------------


def random_values(dtype: str, *shape: int) -> Any:
    generator = np.random.default_rng(5)
    if dtype == "bool":
        return generator.random(shape) < 0.25
    if np.dtype(dtype).kind in "iu":
        return generator.integers(0, 100, shape).astype(dtype)
    return generator.normal(3, 2, shape).astype(dtype)


WHOLE = ["float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]


@pytest.mark.parametrize("dtype", WHOLE)
def test_histogram_is_that_of_numpy(dtype: str) -> None:
    values = random_values(dtype, 150, 200)
    found = histogram(ps.numpy_helper.from_array(values, "w"))
    assert found is not None and (found.seen, found.total, found.odd) == (30000, 30000, 0)
    wide = values.astype(np.float64)
    assert (found.low, found.high, found.zeros) == (wide.min(), wide.max(), int((wide == 0).sum()))
    assert found.mean == pytest.approx(wide.mean()) and found.std == pytest.approx(wide.std())
    if dtype == "bool":
        assert found.counts == (int((~values).sum()), int(values.sum()))
    else:
        official = np.histogram(wide, len(found.counts), (found.low, found.high))[0]
        assert len(found.counts) == 40 and sum(found.counts) == 30000
        assert np.abs(np.subtract(found.counts, official)).max() <= (2 if np.dtype(dtype).kind == "f" else 800)


# what, the tensor, (least, greatest, zeros, NaN or infinite, counts)
ODD: list[tuple[str, ps.TensorProto, tuple[float, float, int, int, tuple[int, ...]] | None]] = [
    ("a number", ps.numpy_helper.from_array(np.float32(7)), (7, 7, 0, 0, (1,))),
    ("NaN among them", ps.numpy_helper.from_array(np.float32([0, np.nan, 1, np.inf])), None),
    ("only NaN", ps.numpy_helper.from_array(np.float32([np.nan] * 3)), (0, 0, 0, 3, ())),
    ("few whole numbers", ps.numpy_helper.from_array(np.int64([-1, 2, 2])), (-1, 2, 0, 0, (1, 0, 0, 2))),
    ("typed", ps.helper.make_tensor("t", ps.TensorProto.INT32, [3], [0, 0, 1]), (0, 1, 2, 0, (2, 1))),
    ("bfloat16", ps.helper.make_tensor("t", ps.TensorProto.BFLOAT16, [2], [1.0, 1.0]), (1, 1, 0, 0, (2,))),
    ("int4", ps.helper.make_tensor("t", ps.TensorProto.INT4, [3], [-8, 7, 7]), (-8, 7, 0, 0, (1, *[0] * 14, 2))),
]


@pytest.mark.parametrize(("name", "tensor", "facts"), ODD, ids=[row[0] for row in ODD])
def test_odd_histograms(name: str, tensor: ps.TensorProto, facts: Any) -> None:
    found = histogram(tensor)
    assert isinstance(found, Histogram)
    if name == "NaN among them":
        assert (found.low, found.high, found.zeros, found.odd, sum(found.counts)) == (0, 1, 1, 2, 2)
    else:
        assert (found.low, found.high, found.zeros, found.odd, found.counts) == facts


@pytest.mark.parametrize("values", [np.float32([]), np.array(["a", "b"], object), np.complex64([1j])], ids=str)
def test_no_histogram(values: Any) -> None:
    assert histogram(ps.numpy_helper.from_array(values)) is None


def test_a_signalling_nan_is_no_warning() -> None:
    tensor = ps.TensorProto(name="w", data_type=1, dims=[2], raw_data=bytes.fromhex("0100807f0000803f"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = histogram(tensor)
    assert found is not None and sum(found.counts) == 1


def test_a_sample_is_spread_over_the_tensor() -> None:
    values = np.repeat(np.arange(10, dtype=np.float32), 200_000)
    found = histogram(ps.numpy_helper.from_array(values), 1 << 20)
    assert found is not None and found.total == 2_000_000 and 200_000 < found.seen <= 1 << 18
    assert (found.low, found.high) == (0, 9) and found.mean == pytest.approx(4.5, abs=0.3)
    with pytest.raises(ValueError, match=r"4 bytes of data, but its type and dims need 8"):
        histogram(ps.TensorProto(data_type=1, dims=[2], raw_data=b"1234"))


# In a browser ---------------------------------------------------------------------------------------------------------

WALK = """
const found = [];
const visit = (element) => {
  for (const kid of page.bytes.kids(element)) {
    found.push([kid.path, kid.start, kid.body, kid.stop, kid.message ?? "", kid.problem, kid.bad]);
    visit(kid);
  }
};
visit(page.bytes.root);
return found;
"""


def rows_of(source: Bytes) -> list[list[Any]]:
    def row(e: Element, message: type[Message] | None) -> list[Any]:
        return [e.path, e.start, e.body, e.stop, message.__qualname__ if message else "", e.problem, e.bad]

    return [row(element, element.message) for element in source.walk()]


DIFFERENT = [*[(path.stem, path.read_bytes()) for path in SAMPLE[::4]], ("sample", SAMPLE_BYTES)]
DIFFERENT += [(f"damaged {seed}", damaged_copies(seed)) for seed in range(12)]


@needs_browser
@pytest.mark.parametrize("data", dealt([data for _, data in DIFFERENT], 4, [name for name, _ in DIFFERENT]))
def test_the_page_reads_bytes_as_inspect_does(data: bytes, opened: Opened) -> None:
    assert opened(data).run(WALK) == rows_of(Bytes(data))


def wire_bytes(seed: int) -> bytes:
    """Fields at random, most of them of a model, with groups, overlong varints and lengths that do not fit."""
    random_ = random.Random(seed)
    data = bytearray()
    for _ in range(random_.randrange(1, 12)):
        number, wire = random_.choice([1, 2, 5, 7, 8, 14, 20, 77]), random_.choice([0, 0, 1, 2, 2, 2, 3, 4, 5, 6])
        data += ps.wire.varint(number << 3 | wire)
        if wire == 0:
            data += bytes([random_.randrange(128, 256)] * random_.randrange(0, 11)) + b"\1"
        elif wire == 2:
            inner = wire_bytes(random_.randrange(1 << 30)) if random_.random() < 0.3 else random_.randbytes(5)
            data += ps.wire.varint(len(inner) + random_.choice([0, 0, 0, 0, 9])) + inner
        elif wire == 3:
            data += b"\x08\x01" + ps.wire.varint(number << 3 | random_.choice([4, 4, 3]))
        else:
            data += random_.randbytes({1: 8, 5: 4}.get(wire, 0))
    return bytes(data)


@needs_browser
def test_the_page_reads_any_bytes_as_inspect_does(opened: Opened) -> None:
    """Many small files in one page: each is put in the place of the page's own bytes."""
    window = opened(SAMPLE_BYTES)
    swap = """
    const octets = Uint8Array.from(arguments[0]), size = octets.length;
    const facts = { ...page.facts, ranges: [0, size], size };
    page.bytes = new page.bytes.constructor(facts, octets);
    """
    for seed in range(75):
        data = wire_bytes(seed)
        assert window.run(swap + WALK, list(data)) == rows_of(Bytes(data)), data.hex()


@needs_browser
def test_numbers_and_texts_are_those_of_inspect(opened: Opened) -> None:
    window, source = opened(SAMPLE_BYTES), Bytes(SAMPLE_BYTES)
    show = "return arguments[0].map((path) => page.select(page.bytes.find(path)) ?? "
    paths = [element.path for element in source.walk() if element.wire_name == "varint"]
    said = window.run(show + "document.querySelector('.value-text').textContent)", paths)
    assert said == [text_of(source, element) for element in source.walk() if element.wire_name == "varint"]
    wanted = {
        "graph.node[1].attribute[2].f": "0.1",
        "graph.initializer[1].int64_data": "[1, 300, -1]",
        "graph.initializer[0].raw_data": "16,384 bytes",
        "producer_name": "'tests'",
        "graph.node[0]": "MatMul 'fc'",
        "graph.initializer[0]": "'fc.weight' FLOAT[64, 64]",
        "metadata_props[0]": "'who' = 'we'",
    }
    assert window.run(show + "document.querySelector('.value-text').textContent)", list(wanted)) == list(
        wanted.values()
    )


FIRST_NODE = """
const { graph } = page, { layout } = graph, box = graph.canvas.getBoundingClientRect();
const x = (layout.x[0] - graph.x) * graph.scale, y = (layout.top(0) + 20 - graph.y) * graph.scale;
return [box.left + x, box.top + y];
"""
IN_SIGHT = """
const seen = (id) => {
  const box = document.getElementById(id).getBoundingClientRect();
  const at = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(box.height / 2, 8));
  return box.width > 0 && at !== null && document.getElementById(id).contains(at);
};
const names = ["tab-left", "tab-graph", "tab-sizes", "tab-tensors", "tab-hex", "outline", "tree", "side", "search",
  "theme"];
return names.filter(seen).concat(document.documentElement.scrollWidth > innerWidth ? ["too wide"] : []);
"""


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("width", [390, 700])
def test_a_narrow_window_shows_one_part_at_a_time(width: int, tmp_path: Path) -> None:
    tabs = ["tab-left", "tab-graph", "tab-sizes", "tab-tensors", "tab-hex"]
    with Browser(width, 844) as window:
        window.open(made(tmp_path, SAMPLE_BYTES))
        assert window.run(IN_SIGHT) == [*tabs, "search", "theme"]
        window.run("page.graph.home()")
        window.press(*window.run(FIRST_NODE))
        assert window.run(IN_SIGHT) == [*tabs, "side", "search", "theme"]
        assert "MatMul 'fc'" in window.text("#details")
        window.click("#side-close")
        window.click("#tab-left")
        assert window.run(IN_SIGHT) == [*tabs, "outline", "search", "theme"]
        window.click("#left-tree")
        assert window.run(IN_SIGHT) == [*tabs, "tree", "search", "theme"]
        window.click("#tab-hex")
        assert window.run(IN_SIGHT) == [*tabs, "search", "theme"] and window.console() == []


@needs_browser
def test_colors_and_shapes_are_explained(opened: Opened) -> None:
    """The legend has each color that the graph has; a line leads on from a box beside the type of what it gives."""
    window = opened(SAMPLE_BYTES)
    legend = window.run("return [...document.querySelectorAll('#legend-families div')].map((one) => one.className)")
    source = (Path(purexport.inspect.__file__).parent / "page" / "families.js").read_text()
    assert sorted(legend) == sorted([*re.findall(r'^  (\w+): "', source, re.MULTILINE), "element", "outside", "module"])
    [graph] = [item for item in [ps.loads(SAMPLE_BYTES).graph] if item is not None]
    found = window.run("return page.graph.graph.nodes.map((node, at) => page.graph.shapeOf(at))")
    wanted = {info.name: info for info in (*graph.value_info, *graph.output)}
    assert [bool(text) for text in found] == [node.output[0] in wanted for node in graph.node]
    assert any(found)


@pytest.mark.full
@needs_browser
def test_search_click_and_see_the_bytes(opened: Opened) -> None:
    window = opened(SAMPLE_BYTES)
    [pad] = [element for element in Bytes(SAMPLE_BYTES).walk() if element.path == "graph.node[1]"]
    window.type("#search", "pad\ue007")
    assert "Pad 'pad'" in window.text("#details") and window.text("#outline .chosen") == "Pad\npad"
    window.click("#left-tree")
    assert "node[1]" in window.text("#tree .chosen")
    octets = SAMPLE_BYTES[pad.start : pad.start + 2].hex(" ")
    assert octets in window.text("table.hex tr:first-child")
    window.click("#tab-hex")
    marked = window.run("return [...document.querySelectorAll('#hex-list .octets .head, #hex-list .octets .value')]"
                        ".map((one) => one.textContent).join(' ')")  # fmt: skip
    assert marked == SAMPLE_BYTES[pad.start : pad.stop].hex(" ")

    window.click("#tab-graph")
    window.press(*window.run(FIRST_NODE))
    assert "MatMul 'fc'" in window.text("#details") and "'fc.weight'" in window.text("#details")
    assert window.run("return page.chosen.path") == "graph.node[0]"

    window.run("document.activeElement.blur()")
    for text, path in (("0x2", "producer_name"), ("graph.node[0].op_type", "graph.node[0].op_type")):
        window.run("document.getElementById('search').value = ''")
        window.type("#search", text + "\ue007")
        assert window.run("return page.chosen.path") == path


@pytest.mark.full
@needs_browser
def test_tensors_sizes_and_light(opened: Opened) -> None:
    window = opened(SAMPLE_BYTES)
    window.click("#tab-tensors")
    assert "fc.weight\nFLOAT\n[64, 64]" in window.text("#tensors-list .row")
    assert window.text("#tensors-head").split() == ["name", "type", "shape", "size", "min", "max", "std", "values"]
    style = "const [cell] = document.querySelectorAll('#tensors-list .cell.name'); return getComputedStyle(cell)."
    assert window.run(style + "direction") == "rtl" and window.run(style + "textOverflow") == "ellipsis"
    assert window.text("#strip-legend").split("\n") == [
        "Where the bytes of the file are:",
        "nodes",
        "weights",
        "types of values",
        "anything else",
    ]
    window.click("#tensors-head .size")  # they are in the order of size already: the other way round
    assert window.run("return page.tensors.rows.map((one) => one.name)") == ["shift", "fc.weight"]
    window.click("#tab-sizes")
    window.wait("return page.sizes.rectangles.length > 0")  # drawn when the canvas has a size
    names = "return page.sizes.rectangles.map((one) => [one.name, one.part.size])"
    assert ["fc.weight", 16384] in window.run(names)
    for by, name in (("operator", "MatMul.fc.weight"), ("dtype", "FLOAT.fc.weight"), ("fields", "graph")):
        window.run("document.getElementById('sizes-by').value = arguments[0]; page.sizes.show(null)", by)
        assert name in [row[0] for row in window.run(names)]
    before = window.run("return getComputedStyle(document.body).backgroundColor")
    window.click("#theme")
    assert window.run("return getComputedStyle(document.body).backgroundColor") != before


@needs_browser
def test_a_damaged_file_shows_the_place(opened: Opened) -> None:
    window = opened(SAMPLE_BYTES[:5000])
    assert "First bad byte: 0x1388, in graph.initializer[0].raw_data: cut off" in window.text("#damage")
    window.click("#damage button")
    assert window.run("return page.chosen.path") == "graph.initializer[0].raw_data"
    assert "cut off" in window.text("#details .problem")


@pytest.mark.full
@needs_browser
def test_the_field_under_the_pointer(opened: Opened) -> None:
    """Over the strip of bytes: the field, what it says, and of a weight which value it is."""
    window = opened(SAMPLE_BYTES)
    [raw] = [element for element in Bytes(SAMPLE_BYTES).walk() if element.payload == 16384]
    box = window.run("const box = page.strip.canvas.getBoundingClientRect(); return [box.left, box.top, box.width]")
    offset = raw.body + 8000
    window.press(box[0] + box[2] * offset / len(SAMPLE_BYTES), box[1] + 20)
    assert window.run("return page.chosen.path") == "graph.initializer[0].raw_data"
    said = window.text("#tip").splitlines()
    assert said[0].endswith(" graph.initializer[0].raw_data") and said[1] == "16,384 bytes"
    [number] = re.findall(r"value ([\d,]+) of FLOAT\[64, 64\]", said[2])
    assert abs(int(number.replace(",", "")) - 2000) < 10
    assert "graph.initializer[0].raw_data" in window.text("#status")


@needs_browser
def test_names_do_not_run(opened: Opened) -> None:
    model = sample_model()
    assert model.graph is not None
    model.graph.node[0].name = model.graph.node[0].op_type = model.producer_name = HOSTILE
    model.graph.node[1].op_type, model.graph.initializer[0].name = "constructor", "__proto__"
    model.graph.input[0].name = model.graph.node[0].output[0] = HOSTILE
    window = opened(model)
    window.type("#search", "onerror\ue007")
    for tab in ("hex", "tensors", "sizes", "graph"):
        window.click(f"#tab-{tab}")
    assert HOSTILE[:40] in window.text("#details") and window.run("return window.hacked ?? 'no'") == "no"
    assert window.run("return document.querySelectorAll('img').length") == 0
    window.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 3'}))")
    assert window.run("return window.hacked ?? 'no'") == "no" and "Content Security Policy" in window.console()[0]


@pytest.mark.full
@needs_browser
def test_names_do_not_turn_other_text_around(opened: Opened) -> None:
    model = sample_model()
    assert model.graph is not None
    model.graph.node[0].name = "abc\u202edef\u2066\U000e0041\x07"
    window = opened(model)
    window.type("#search", "abc\ue007")
    said = window.run("return document.body.textContent")
    assert r"abc\u202edef\u2066\u{e0041}\x07" in said
    assert all(char.isprintable() or char == "\n" for char in said)


def chain_of(count: int) -> ps.ModelProto:
    """Blocks of ten nodes, each with a residual edge."""
    nodes = []
    for at in range(count):
        inputs = [f"v{at - 1}" if at else "x", *([f"v{at - 9}"] if at % 10 == 9 else [])]
        nodes.append(
            ps.helper.make_node("Add" if at % 10 == 9 else "Relu", inputs, [f"v{at}"], name=f"block.{at // 10}/{at}")
        )
    x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [4]) for name in ("x", f"v{count - 1}"))
    return ps.helper.make_model(ps.helper.make_graph(nodes, "chain", [x], [y]))


def scrolled(window: Browser, count: int) -> dict[str, float]:
    """Opens all nodes in the tree, goes through list and graph, and says what was drawn, in rows and milliseconds."""
    found: dict[str, float] = window.run("""
        const tree = page.tree, group = () => tree.rows.findIndex((row) => row.name === "node");
        tree.toggle(group());
        tree.list.refresh();
        let rows = 0, list = 0;
        for (let at = 0; at < 100; at++) {
          const start = performance.now();
          tree.list.goTo(at / 100 * tree.rows.length);
          tree.box.getBoundingClientRect();
          list = Math.max(list, performance.now() - start);
          rows = Math.max(rows, document.querySelectorAll("#tree .row").length);
        }
        const times = [];
        for (let at = 0; at < 100; at++) {
          const start = performance.now();
          page.graph.y = at / 100 * page.graph.layout.depth * 84;
          page.graph.draw();
          times.push(performance.now() - start);
        }
        const start = performance.now();
        page.graph.fit();
        page.graph.draw();
        const all = performance.now() - start;
        times.sort((a, b) => a - b);
        return { rows, list, graph: times[50], worst: times[99], all, ...page.timings };
    """)
    assert found["rows"] < 100
    window.run("document.getElementById('search').value = ''")
    window.type("#search", f"block.{count // 20}/{count // 2 + 7}\ue007")
    assert window.run("return page.chosen.path") == f"graph.node[{count // 2 + 7}]"
    return found


@pytest.mark.full
@needs_browser
def test_only_what_is_in_sight_is_drawn(opened: Opened) -> None:
    scrolled(opened(chain_of(1000)), 1000)


@needs_browser
@pytest.mark.sweep
def test_a_hundred_thousand_nodes(opened: Opened, record_property: Callable[[str, object], None]) -> None:
    """`pytest -m sweep tests/inspect/test_html.py --junit-xml=times.xml` keeps the times, which are no test."""
    for name, value in scrolled(opened(chain_of(100_000)), 100_000).items():
        record_property(name, value)


@pytest.mark.full
@needs_browser
def test_cycles_and_graphs_inside(opened: Opened) -> None:
    """A broken order of nodes is drawn, with stubs; the graphs of an If are graphs of their own, and feed it."""
    node = ps.helper.make_node
    then = ps.helper.make_graph([node("Relu", ["outer"], ["t"])], "then", [], [])
    other = ps.helper.make_graph([node("If", ["c"], ["i"], then_branch=then, else_branch=then)], "else", [], [])
    nodes = [
        node("Add", ["b", "x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="second"),
        node("Relu", ["self"], ["self"]),
        node("Neg", ["x"], ["outer"]),
        node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    x, c = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, []) for name in "xc")
    window = opened(ps.helper.make_model(ps.helper.make_graph(nodes, "g", [x, c], [])))
    titles = window.run("return page.model.graphs.map((graph) => graph.title)")
    assert titles == [
        "main graph",
        "If if: else_branch",
        "If if: then_branch",
        "If i: else_branch",
        "If i: then_branch",
    ]
    layout = "const { layout } = page.graph; return "
    assert window.run(layout + "layout.preds[4]") == [6, 3]  # its condition, and what the graphs in it take
    assert window.run(layout + "[...layout.stubs].map(([to, from]) => [to, ...from])") == [[0, 1]]
    window.run("page.select(page.bytes.find('graph.node[4]'))")
    window.click(".ports > button.link")
    assert window.run("return page.graph.graph.title") == "If if: else_branch"


@pytest.mark.full
@needs_browser
def test_keys(opened: Opened) -> None:
    window = opened(SAMPLE_BYTES)
    for key, tab in (("2", "sizes"), ("3", "tensors"), ("4", "hex"), ("1", "graph")):
        window.type("body", key)
        assert window.run("return page.current") == tab
    before = window.run("return page.graph.scale")
    window.type("#graph-canvas", "+")
    assert window.run("return page.graph.scale") > before
    window.run("page.select(page.bytes.find('graph'))")
    window.type("body", "f")
    window.type("#tree", "\ue015")  # down, past the fields above it: the first node
    assert window.run("return page.chosen.path") == "graph.node[0]"
    window.type("#tree", "\ue014\ue015")  # right opens it, down goes in
    assert window.run("return page.chosen.path") == "graph.node[0].input[0]"
    window.type("body", "z")
    assert window.run("return page.strip.high - page.strip.low") < 200
    window.type("body", "/")
    assert window.run("return document.activeElement.id") == "search"


@needs_browser
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_every_part_takes_damaged_models(seed: int, opened: Opened) -> None:
    """Chooses fields, shows every tab and graph; `opened` and the last line see what went wrong."""
    random_ = random.Random(seed)
    data = bytearray(random_.choice([path for path in FILES if path.stat().st_size < 400_000]).read_bytes())
    for _ in range(1 + seed % 6):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    window = opened(bytes(data if seed % 3 else data[: random_.randrange(len(data))]))
    window.run("""
        const all = [], visit = (element) => page.bytes.kids(element).forEach((kid) => {
          all.push(kid);
          visit(kid);
        });
        visit(page.bytes.root);
        for (let at = 0; at < all.length; at += Math.max(1, Math.floor(all.length / 40))) page.select(all[at]);
        for (const by of ["operator", "dtype", "fields"]) {
          document.getElementById("sizes-by").value = by;
          page.sizes.show(null);
        }
        for (const tab of ["sizes", "tensors", "hex", "graph"]) page.tab(tab);
        for (const graph of page.model.graphs) {
          page.graph.open(graph);
          page.graph.fit();
          page.graph.draw();
        }
    """)
    assert window.console() == []


GRAPHS = [path for path in sorted(Path(onnx.__file__).parent.rglob("*.onnx")) if "light" in path.parts]


@needs_browser
@pytest.mark.parametrize(
    "path",
    [*GRAPHS[:1], *(pytest.param(path, marks=pytest.mark.full) for path in GRAPHS[1:4])],
    ids=lambda path: path.stem,
)
def test_the_drawing_is_a_layered_one(path: Path, opened: Opened) -> None:
    """Each node below all that feed it, none on another, and every edge is a line or a stub."""
    window = opened(path.read_bytes())
    layers, overlaps, edges, drawn = window.run("""
        const { layout } = page.graph, wrong = [];
        let edges = 0, drawn = 0, overlaps = 0;
        layout.preds.forEach((list, to) => list.forEach((from) => {
          edges++;
          if (layout.layer[from] >= layout.layer[to]) wrong.push([from, to]);
          let at = layout.ups[to], found = false;
          while (at.length && !found) {
            found = at.includes(from);
            const bend = at.find((one) => layout.kind[one] === 3 && layout.source[one] === from);
            at = bend === undefined ? [] : layout.ups[bend];
          }
          if (found || (layout.stubs.get(to) ?? []).includes(from)) drawn++;
        }));
        for (const row of layout.rows) {
          for (let at = 1; at < row.length; at++) {
            const apart = layout.x[row[at]] - layout.x[row[at - 1]];
            if (apart < (layout.widths[row[at]] + layout.widths[row[at - 1]]) / 2) overlaps++;
          }
        }
        return [wrong, overlaps, edges, drawn];
    """)
    assert (layers, overlaps) == ([], 0) and edges == drawn > 0
