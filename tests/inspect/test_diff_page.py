"""The page of two models: which nodes differ and how, a list that jumps to them, and names that stay text."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.inspect import Bytes, compare_files, find
from tests.inspect.browser import Browser
from tests.inspect.pages import HOSTILE, needs_browser, unpacked

node = ps.helper.make_node


def model() -> Any:
    """Two layers and an If, with weights; each node is of a module."""
    inner = ps.helper.make_graph([node("Neg", ["s0"], ["t"], name="inner")], "then", [], [])
    other = ps.helper.make_graph([node("Abs", ["s0"], ["e"], name="abs")], "else", [], [])
    nodes = [
        node("MatMul", ["x", "w0"], ["h0"], name="a.0/MatMul"),
        node("Add", ["h0", "b0"], ["s0"], name="a.0/Add"),
        node("MatMul", ["s0", "w1"], ["h1"], name="a.1/MatMul"),
        node("LeakyRelu", ["h1"], ["s1"], name="a.1/LeakyRelu", alpha=0.5),
        node("If", ["c"], ["y"], name="b/If", then_branch=inner, else_branch=other),
    ]
    x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [2, 2]) for name in "xy")
    c = ps.helper.make_tensor_value_info("c", ps.TensorProto.BOOL, [])
    weights = [ps.numpy_helper.from_array(np.eye(2, dtype=np.float32), name) for name in ("w0", "b0", "w1")]
    return ps.helper.make_model(ps.helper.make_graph(nodes, "g", [x, c], [y], weights))


def renamed(m: Any) -> None:
    m.graph.node[1].name = "other"


def weight(m: Any) -> None:
    m.graph.initializer[2].raw_data = np.ones((2, 2), np.float32).tobytes()


def inside(m: Any) -> None:
    m.graph.node[4].attribute[0].g.node[0].op_type = "Sqrt"


SAME, WEIGHTS, CHANGED, ONLY = range(4)
# what, the change, the differing nodes of the first and of the second with how: names and ranks
ROWS: list[tuple[str, Callable[[Any], Any], dict[str, int], dict[str, int]]] = [
    ("nothing", lambda m: None, {}, {}),
    (
        "attribute",
        lambda m: setattr(m.graph.node[3].attribute[0], "f", 0.25),
        {"a.1/LeakyRelu": CHANGED},
        {"a.1/LeakyRelu": CHANGED},
    ),
    ("a node less", lambda m: m.graph.node.pop(1), {"a.0/Add": ONLY}, {}),
    (
        "a node more",
        lambda m: m.graph.node.insert(2, node("Relu", ["s0"], ["r"], name="a.1/Relu")),
        {},
        {"a.1/Relu": ONLY},
    ),
    ("a node renamed", renamed, {"a.0/Add": CHANGED}, {"other": CHANGED}),
    ("a weight", weight, {"a.1/MatMul": WEIGHTS}, {"a.1/MatMul": WEIGHTS}),
    ("inside of an If", inside, {"b/If": CHANGED, "abs": CHANGED}, {"b/If": CHANGED, "abs": CHANGED}),
    ("metadata", lambda m: setattr(m, "producer_name", "me"), {}, {}),
]


def page_of(folder: Path, change: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]) -> Path:
    """The page of the model and a changed one, by the command line."""
    other = model()
    change(other)
    ps.save(model(), folder / "a.onnx")
    ps.save(other, folder / "b.onnx")
    paths = str(folder / "a.onnx"), str(folder / "b.onnx")
    status = main(["diff", *paths, "--html", str(folder / "d.html"), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert status == (0 if facts["equal"] else 1)
    assert facts["page"]["bytes"] == (folder / "d.html").stat().st_size
    return folder / "d.html"


@pytest.mark.parametrize(("name", "change", "mine", "theirs"), ROWS, ids=[row[0] for row in ROWS])
def test_places_by_number(
    name: str, change: Callable[[Any], Any], mine: Any, theirs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each difference has the path in both files that `inspect` takes."""
    facts = unpacked(page_of(tmp_path, change, capsys))[0]
    found = compare_files(str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"))
    assert facts["differences"] == [[one.kind, one.path, one.text, one.at_a, one.at_b] for one in found]
    sources = [Bytes(tmp_path / "a.onnx"), Bytes(tmp_path / "b.onnx")]
    for item in found:
        for source, path, absent in zip(sources, (item.at_a, item.at_b), ("only in b", "only in a"), strict=True):
            assert bool(path) == (item.kind != absent)
            if path and not (item.kind == "value" and "nothing" in item.text):
                assert find(source, path)


def test_a_page_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(import_module("purexport.inspect.diff_page"), "MOST", 2)

    def rename_all(m: Any) -> None:
        for one in m.graph.node:
            one.name = "n" * 5000 + (one.name or "")

    facts = unpacked(page_of(tmp_path, rename_all, capsys))[0]
    assert (len(facts["differences"]), facts["total"]) == (2, 5)
    assert max(len(text) for row in facts["differences"] for text in row) <= 1000


def test_names_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(m: Any) -> None:
        m.graph.node[0].name = m.producer_name = m.graph.initializer[0].name = HOSTILE

    text = page_of(tmp_path, change, capsys).read_text(encoding="ascii")
    assert "hacked" not in text and "<img" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert "default-src 'none'; script-src 'sha256-" in text and "unsafe" not in text


RANKS = """
return [page.a, page.b].map((side) => Object.fromEntries([...side.ranks].map(([node, rank]) => [node.name, rank])));
"""
COLORS = """
const boxes = (side) => side.graph.view.starts.slice(0, -1).map((_, vertex) => side.graph.paintOf(vertex));
const { same, otherWeights, changed, removed, added } = page.colors;
const names = { [same]: "same", [otherWeights]: "weights", [changed]: "changed", [removed]: "removed" };
names[added] = "added";
return [boxes(page.a), boxes(page.b)].map((list) => list.map((color) => names[color]));
"""


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize(("name", "change", "mine", "theirs"), ROWS, ids=[row[0] for row in ROWS])
def test_what_differs_is_colored(
    name: str,
    change: Callable[[Any], Any],
    mine: dict[str, int],
    theirs: dict[str, int],
    window: Browser,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    window.open(page_of(tmp_path, change, capsys))
    assert window.console() == []
    assert window.run(RANKS) == [mine, theirs]
    window.run("for (const side of [page.a, page.b]) side.graph.open(side.model.graphs[0])")
    words = {SAME: "same", WEIGHTS: "weights", CHANGED: "changed"}
    for side, ranks, only, found in zip("ab", (mine, theirs), ("removed", "added"), window.run(COLORS), strict=True):
        names = window.run(f"return page.{side}.model.graphs[0].nodes.map((node) => node.name)")
        assert found == [{**words, ONLY: only}[ranks.get(name, SAME)] for name in names]
    window.run("for (const side of [page.a, page.b]) side.graph.foldAll(false)")
    folded = [[words.get(rank, "only") for rank in ranks.values()] for ranks in (mine, theirs)]
    for colors, wanted in zip(window.run(COLORS), folded, strict=True):
        assert len([color for color in colors if color != "same"]) <= len(wanted)
        assert any(color != "same" for color in colors) == bool(wanted)


def several(m: Any) -> None:
    m.graph.node[3].attribute[0].f = 0.25
    m.graph.node.insert(1, node("Relu", ["h0"], ["r"], name="a.0/Relu"))
    weight(m)
    m.producer_name = HOSTILE
    m.graph.node[0].name = HOSTILE


CHOSEN = """
return [page.a, page.b].map(({ graph }) => graph.chosen < 0 ? null : graph.nodeOf(graph.chosen).name);
"""


@pytest.mark.full
@needs_browser
def test_the_list_jumps_to_the_places(window: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window.open(page_of(tmp_path, several, capsys))
    assert "5 differences" in window.text("#info")
    rows = window.run("return page.rows.map(([kind, path]) => [kind, path])")
    at = {path: index for index, (_, path) in enumerate(rows)}
    assert window.run(CHOSEN) == ["a.0/MatMul", HOSTILE]  # the first that is in the graph
    for path, wanted in (
        ('graph.node["a.1/LeakyRelu"].attribute["alpha"].f', ["a.1/LeakyRelu", "a.1/LeakyRelu"]),
        ('graph.node["a.0/Relu"]', ["a.0/MatMul", "a.0/Relu"]),  # beside it, what comes before
        ('graph.initializer["w1"]', ["a.1/MatMul", "a.1/MatMul"]),
    ):
        window.run("for (const { graph } of [page.a, page.b]) { graph.foldAll(false); graph.choose(-1); }")
        window.click(f"#difference-{at[path]}")
        assert window.run(CHOSEN) == wanted
        assert path in window.text("#difference")
    window.run("page.take(0)")
    window.type("#differences", "\ue015")
    assert window.run("return page.at") == 1
    for name, count in (("added", 1), ("nodes", 3), ("weights", 1), ("others", 1), ("removed", 0)):
        window.run("document.getElementById('shown').value = arguments[0]; page.filter(arguments[0])", name)
        assert window.run("return page.rows.length") == count, name
    window.run(
        "page.filter('all'); page.b.graph.foldAll(true); page.b.graph.take(3)"
    )  # a node of the second is clicked: the first shows it, too
    assert window.run(CHOSEN) == ["a.1/MatMul", "a.1/MatMul"] and "w1" in window.text("#difference")
    assert window.run("return window.hacked ?? 'no'") == "no" and window.console() == []
    assert window.run("return document.querySelectorAll('img').length") == 0


@needs_browser
@pytest.mark.full
def test_a_narrow_window_shows_one_part_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = """return ["list-box", "a-side", "b-side", "difference"].filter((id) => {
        const box = document.getElementById(id).getBoundingClientRect();
        return box.width > 0 && box.right <= innerWidth && box.bottom <= innerHeight; })"""
    with Browser(390, 844) as narrow:
        narrow.open(page_of(tmp_path, several, capsys))
        assert narrow.run(seen) == ["list-box"]
        narrow.click("#difference-1")
        assert narrow.run(seen) == ["a-side", "difference"]
        narrow.click("#tab-b")
        assert narrow.run(seen) == ["b-side", "difference"]
        narrow.wait("return page.b.graph.awaited < 0")
        assert narrow.console() == []
