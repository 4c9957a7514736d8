"""The page of `compare --html`: nodes in the color of their error, the first wrong one marked and chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.inspect import html
from purexport.inspect.errors import Apart, Errors
from tests.inspect.browser import Browser
from tests.inspect.pages import HOSTILE, needs_browser, unpacked

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network, its file, and a copy of the file with another epsilon."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "net.py").write_text(NET)
    scope: dict[str, Any] = {"__name__": "net_of_test"}
    exec(compile(NET, "net.py", "exec"), scope)
    purexport.export(scope["Net"]().eval(), (torch.ones(3, 4),), "good.onnx")
    model = ps.load("good.onnx")
    norm = next(one for one in model.graph.node if one.op_type == "LayerNormalization")
    next(item for item in norm.attribute if item.name == "epsilon").f = 0.5
    ps.save(model, "bad.onnx")
    return tmp_path


def compared(name: str) -> int:
    return main(["compare", "net.py:Net", f"{name}.onnx", "--input", "x=float32[3,4]", "--html", f"{name}.html"])


def test_what_the_page_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared("bad") == 1
    said = capsys.readouterr().out
    assert "wrote bad.html, " in said
    facts = unpacked(folder / "bad.html")[0]["errors"]
    names = [one.output[0] for one in ps.load("bad.onnx").graph.node]
    wrong = [name for name in names if name in facts["values"] and not facts["values"][name]["close"]]
    assert facts["first"] == wrong[0] == names[facts["fault"]] == "norm/LayerNormalization_output"
    assert facts["text"] == said.splitlines()[: len(facts["text"])] and "epsilon" in facts["why"]
    assert facts["values"][wrong[0]]["origin"].startswith("aten::layer_norm at norm (")
    assert facts["layers"]["norm"] == facts["values"][wrong[0]]["error"] > 0.1


def test_a_file_that_agrees_has_a_page_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared("good") == 0
    facts = unpacked(folder / "good.html")[0]["errors"]
    assert facts["agrees"] and facts["fault"] == -1 and facts["first"] == facts["why"] == ""
    assert len(facts["values"]) >= 4 and all(item["close"] for item in facts["values"].values())
    words = ["compare", "net.py:Net", "good.onnx", "--input", "x=float32[3,4]", "--html", "good.html", "--json"]
    capsys.readouterr()
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["page"] == "good.html"


def test_values_inside_on_request() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.ones(2, 3)
    file = purexport.export(model, (x,))
    assert purexport.compare(model, (x,), file).judged == []
    found = purexport.compare(model, (x,), file, inside=True)
    assert found.agrees and found.node is None and found.values == len(found.judged) > 1 and found.layers


@needs_browser
def test_the_first_wrong_node_is_shown(folder: Path, window: Browser) -> None:
    compared("bad")
    window.open(folder / "bad.html")
    assert window.console() == []
    assert "LayerNormalization 'norm/LayerNormalization'" in window.text("#details")
    assert "outside of the bounds" in window.text("#details") and "aten::layer_norm at norm" in window.text("#details")
    assert "at fault: node 'norm/LayerNormalization'" in window.text("#compared")
    assert "1e-8" in window.text("#legend") and "not compared" in window.text("#legend")
    marks = "return page.graph.graph.nodes.map((node) => page.errors.markOf(node)).filter(Boolean)"
    assert window.run(marks) == ["at fault"]
    ranks = dict(window.run("return page.graph.graph.nodes.map((node) => [node.name, page.errors.rankOf(node) ?? -1])"))
    assert ranks["first/MatMul" if "first/MatMul" in ranks else "first/Gemm"] < 0.3
    assert min(ranks[name] for name in ranks if name.startswith(("norm", "last"))) > 2  # wrong from there on
    before = window.run("return page.graph.paintOf(0)")
    window.click("#graph-errors")
    assert window.run("return page.graph.paintOf(0)") is None and before.startswith("rgb(")
    assert "weights: products" in window.text("#legend")
    window.type("body", "e")
    assert window.run("return page.graph.paintOf(0)") == before
    window.run("page.tab('sizes')")
    window.click("#compared button")
    assert (
        window.run("return page.current + page.chosen.path")
        == "graphgraph.node[" + str(window.run("return page.facts.errors.fault")) + "]"
    )


@needs_browser
def test_the_scale_of_colors(tmp_path: Path, window: Browser) -> None:
    """From the least to the largest; infinite is the end; a module has the color of its worst node."""
    errors = {"a": 0.0, "b": 1e-9, "c": 1e-4, "d": 1.0, "e": None}
    nodes = [
        ps.helper.make_node("Relu", ["x"], [name], name=f"{'m' if name in 'abc' else name}/{name}")
        for name in [*errors, "f"]
    ]
    x = ps.helper.make_tensor_value_info("x", 1, [2])
    ps.save(ps.helper.make_model(ps.helper.make_graph(nodes, "g", [x], [])), tmp_path / "m.onnx")
    values = {name: Apart(error, name != "d", HOSTILE, HOSTILE) for name, error in errors.items()}
    found = Errors(False, "torch", [HOSTILE], values, {HOSTILE: 1.0}, fault=5, why=HOSTILE, first="d")
    html(tmp_path / "m.onnx", tmp_path / "m.html", errors=found)
    window.open(tmp_path / "m.html")
    colors = window.run("return page.graph.graph.nodes.map((_, at) => page.graph.paintOf(at))")
    ends = ["rgb(47, 127, 134)", "rgb(47, 127, 134)", "rgb(138, 109, 27)", "rgb(179, 18, 63)", "rgb(179, 18, 63)"]
    assert colors == [*ends, window.run("return page.colors.unknown")]
    edges = "return page.graph.graph.nodes.map((_, at) => page.errors.edgeOf(page.graph.rankOf(at)) !== null)"
    assert window.run(edges) == [False, False, False, True, False, False]
    of_last = window.run("return page.errors.rowsOf(page.graph.graph.nodes[5])")
    assert of_last == [["at fault", HOSTILE]]  # which was not compared
    marks = window.run("return page.graph.graph.nodes.map((node) => page.errors.markOf(node))")
    assert marks == ["", "", "", "first wrong", "", "at fault"]
    window.run("page.graph.foldAll(false)")
    assert window.run("return page.graph.paintOf(0)") == "rgb(138, 109, 27)"
    assert "onerror" in window.text("#compared") and window.run("return window.hacked ?? 'no'") == "no"
    assert window.run("return document.querySelectorAll('img').length") == 0 and window.console() == []
