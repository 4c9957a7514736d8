"""The page folds nodes into modules: which module a node is of, and that folding loses no node, edge or type."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import onnx
import pytest

import proto_schema as ps
from tests.inspect.browser import Browser
from tests.inspect.pages import HOSTILE, Opened, needs_browser

pytestmark = needs_browser
node = ps.helper.make_node
SCOPES = "pkg.torch.onnx.name_scopes"
ENTER, LEFT, DOWN, HOME = "\ue007", "\ue012", "\ue015", "\ue011"


def model_of(nodes: list[Any], outputs: list[str], types: bool = True) -> ps.ModelProto:
    """Nodes on an input `x`; all values are float32[2, 3] where `types`."""

    def info(name: str) -> Any:
        return ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [2, 3])

    inside = [info(name) for one in nodes for name in one.output if name not in outputs] if types else []
    graph = ps.helper.make_graph(nodes, "g", [info("x")], list(map(info, outputs)), value_info=inside)
    return ps.helper.make_model(graph)


def chain(names: list[str]) -> ps.ModelProto:
    """Relus behind each other, with these names."""
    nodes = [node("Relu", [f"v{at - 1}" if at else "x"], [f"v{at}"], name=name) for at, name in enumerate(names)]
    return model_of(nodes, [f"v{len(names) - 1}"])


def layers(count: int) -> ps.ModelProto:
    """Layers of ten nodes in the manner of an encoder, with a head of two and an embedding of one."""
    names = ["embed/Gather"]
    for at in range(count):
        names += [f"encoder.layer.{at}.attention/{step}" for step in range(6)]
        names += [f"encoder.layer.{at}.mlp/{step}" for step in range(3)] + [f"encoder.layer.{at}/Add"]
    return chain([*names, "head/MatMul", "head/Add"])


# the name of a node or its scopes, the path of its module
PATHS: list[tuple[str, str, list[str]]] = [
    ("ours", "layer1.0.conv1/Conv", ["layer1", "0", "conv1"]),
    ("torch.onnx, dynamo=False", "/layer1/layer1.0/conv1/Conv", ["layer1", "0", "conv1"]),
    ("a list in a list", "/blocks.0/blocks.0.1/Add", ["blocks", "0", "1"]),
    ("a name that begins alike", "/layer1/layer10/Conv", ["layer1", "layer10"]),
    ("TensorFlow", "model/dense/MatMul", ["model", "dense"]),
    ("no module", "Conv_12", []),
    ("a dot is none", "p2o.Conv.0", []),
    ("only slashes", "///", []),
    ("deep", "/".join("abcdefghijklmnopqrstuvwxyz"), list("abcdefghijklmnopqrstuvwx")),
    ("scopes", "['', 'layer1', 'layer1.0', 'layer1.0.act1', 'relu_1']", ["layer1", "0", "act1"]),
    ("scopes of the model itself", "['', 'add']", []),
    ("quotes in scopes", "['', \"it's\", 'relu']", ["it's"]),
]


def test_which_module_a_node_is_of(opened: Opened) -> None:
    model = chain([text for _, text, _ in PATHS])
    for one in model.graph.node:
        if one.name and one.name.startswith("["):
            one.metadata_props.append(ps.StringStringEntryProto(key=SCOPES, value=one.name))
            one.name = "node_relu"
    window = opened(model)
    window.run("page.graph.graph.nodes.forEach((node) => { node.inputs = ['x']; })")  # none lies between two others
    found = window.run("return new page.graph.modules.constructor(page.graph.graph).paths")
    assert dict(zip((name for name, _, _ in PATHS), found, strict=True)) == {name: path for name, _, path in PATHS}


# What is drawn --------------------------------------------------------------------------------------------------------

STATE = """
const { view, layout, modules } = page.graph, drawn = [];
layout.preds.forEach((list, to) => list.forEach((from) => {
  let at = layout.ups[to], found = false;
  while (at.length && !found) {
    found = at.includes(from);
    const bend = at.find((one) => layout.kind[one] === 3 && layout.source[one] === from);
    at = bend === undefined ? [] : layout.ups[bend];
  }
  if (found || (layout.stubs.get(to) ?? []).includes(from)) drawn.push([from, to]);
}));
for (const [to, list] of layout.stubs) for (const from of list) drawn.push([from, to]);
const boxes = [], inFrames = [];
for (const row of layout.rows) {
  for (const vertex of row) if (layout.kind[vertex] !== 3) boxes.push(vertex);
}
for (const frame of layout.frames) {
  for (const vertex of boxes.filter((one) => one < view.count)) {
    const at = layout.layer[vertex] - frame.first, reach = frame.rows[at];
    const own = vertex >= frame.from && vertex < frame.to, half = layout.widths[vertex] / 2, x = layout.x[vertex];
    if (reach === undefined) inFrames.push(own);
    else if (own) inFrames.push(x - half < reach[0] || x + half > reach[1]);
    else inFrames.push(x + half > reach[0] && x - half < reach[1] && reach[0] < reach[1]);
  }
}
const wrong = inFrames.filter(Boolean).length, frames = layout.frames.length;
boxes.sort((a, b) => a - b);
const doubled = layout.preds.filter((list) => new Set(list).size < list.length).length;
const names = (group) => modules.nodesIn(group).map((node) => node.name);
const groups = view.groups.map((group) => [group.isRange ? "" : group.path, names(group)]).filter(Boolean);
return { vertexOf: [...view.vertexOf], drawn, boxes, wrong, frames, doubled, groups, count: view.count };
"""


def random_model(seed: int) -> tuple[ps.ModelProto, list[list[int]]]:
    """Nodes with modules that nest and come back, and for each node the nodes that it takes from."""
    random_ = random.Random(seed)
    nodes, feeds, path = [], [], ["a"]
    for at in range(70):
        if random_.random() < 0.4:
            path = path[: random_.randrange(len(path) + 1)] + random_.choices("abc", k=random_.randrange(3))
        sources = sorted({random_.randrange(max(0, at - 12), at) for _ in range(random_.randrange(4))}) if at else []
        feeds.append(sources)
        name = f"{'.'.join(path)}/{at}" if path else ""
        nodes.append(node("Sum", [f"v{one}" for one in sources] or ["x"], [f"v{at}"], name=name))
    return model_of(nodes, ["v69"], types=False), feeds


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))])
def test_folding_keeps_every_node_and_every_edge(seed: int, opened: Opened) -> None:
    """However modules are folded: each node is in a box, and boxes are joined where their nodes are."""
    model, feeds = random_model(seed)
    window = opened(model)
    sizes = []
    for state in range(6):
        window.run("""
            let number = arguments[0] * 7919 + 13;
            const visit = (group) => page.graph.modules.kids(group).forEach((kid) => {
              if (typeof kid === "number") return;
              number = (number * 1103515245 + 12345) % 2147483648;
              kid.open = arguments[0] === 0 || (arguments[0] > 1 && number % 3 > 0);
              visit(kid);
            });
            visit(page.graph.modules.root);
            page.graph.folded(null);
        """, state)  # fmt: skip
        found = window.run(STATE)
        box, count = found["vertexOf"], found["count"]
        assert sorted(set(box[:70])) == list(range(count))
        assert found["boxes"] == list(range(count + 2))  # the input and the output, too
        wanted = {(box[one], box[at]) for at, sources in enumerate(feeds) for one in sources if box[one] != box[at]}
        wanted |= {(box[70], box[at]) for at, sources in enumerate(feeds) if not sources} | {(box[69], count + 1)}
        assert {tuple(edge) for edge in found["drawn"]} == wanted and found["doubled"] == 0
        for path, names in found["groups"]:
            assert all(f"{name.split('/')[0]}.".startswith(f"{path}." if path else "") for name in names if "/" in name)
        assert found["wrong"] == 0 and (found["frames"] > 0) == (state != 1)
        sizes.append(count)
    assert sizes[0] == 70 and sizes[1] == min(sizes) < 40


def test_no_cycle_comes_of_folding(opened: Opened) -> None:
    """A module that is called twice, with others between, is two boxes."""
    names = ["a/1", "a/2", "act/0", "a/3", "a/4", "act/1", "act/2", "b/1", "b/2", "act/3", "act/4", "c/1"]
    window = opened(chain(names))
    window.run("page.graph.foldAll(false)")
    titles = "return page.graph.view.groups.map((group) => [group.title, group.size]).filter(Boolean)"
    assert window.run(titles) == [["a", 2], ["a", 2], ["act", 2], ["b", 2], ["act", 2]]
    assert window.run("return page.graph.layout.stubs.size") == 0


def test_what_tools_put_between_stays_in_its_module(opened: Opened) -> None:
    """A constant beside its user, and a node without a name between two of one module."""
    nodes = [
        node("Constant", [], ["c"], value_float=1.0),
        node("Relu", ["x"], ["a"], name="m.0/Relu"),
        node("Cast", ["a"], ["b"], to=1),
        node("Add", ["b", "c"], ["y"], name="m.0/Add"),
        node("Add", ["y", "x"], ["z"], name="Add"),
    ]
    window = opened(model_of(nodes, ["z"]))
    window.run("page.graph.foldAll(false)")
    assert window.run("return [...page.graph.view.vertexOf]") == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("count", "least", "most"),
    [(9, 90, 95), (20, 4, 40), *(pytest.param(count, 4, 40, marks=pytest.mark.full) for count in (200, 1000))],
)
def test_a_large_network_opens_as_few_boxes(count: int, least: int, most: int, opened: Opened) -> None:
    """Up to a hundred nodes all are there. Many layers side by side are ranges."""
    window = opened(layers(count))
    assert least <= window.run("return page.graph.view.count") <= most
    window.run("page.graph.foldAll(false); page.graph.fold(page.graph.modules.chain(2)[0], true)")
    assert window.run("return page.graph.view.count") == {9: 11, 20: 22, 200: 202, 1000: 34}[count]
    window.run("page.graph.foldAll(true)")
    assert window.run("return page.graph.view.count") == 10 * count + 3
    assert window.run("return page.graph.modules.kids(page.graph.modules.root).length") == 3


def test_types_beside_a_folded_module(opened: Opened) -> None:
    """What leads out of a folded module has its type; several kinds are counted, and the tip names each value."""
    nodes = [
        node("Relu", ["x"], ["a"], name="m/Relu"),
        node("Shape", ["a"], ["s"], name="m/Shape"),
        node("Neg", ["a"], ["inside"], name="m/Neg"),
        node("Abs", ["inside"], ["b"], name="m/Abs"),
        node("Reshape", ["b", "s"], ["c"], name="n/Reshape"),
        node("Add", ["c", "a"], ["y"], name="n/Add"),
    ]
    model = model_of(nodes, ["y"])
    info = next(item for item in model.graph.value_info if item.name == "s")
    info.type = ps.helper.make_tensor_type_proto(ps.TensorProto.INT64, [2])
    window = opened(model)
    window.run("page.graph.foldAll(false)")
    assert window.run("return page.graph.given(0).sort()") == ["a", "b", "s"]
    assert window.run("return page.graph.shapeOf(0)") == "FLOAT[2, 3] and 1 more"
    assert window.run("return page.graph.lineText(0, 1).sort()")[:3] == [
        "",
        "a: FLOAT[2, 3]",
        "b: FLOAT[2, 3]",
    ]
    assert window.run("return page.graph.shapeOf(1)") == "FLOAT[2, 3]"


# What people do -------------------------------------------------------------------------------------------------------

PLACE = """
const { graph } = page, { layout, view } = graph, box = graph.canvas.getBoundingClientRect();
const at = (x, y) => [box.left + (x - graph.x) * graph.scale, box.top + (y - graph.y) * graph.scale];
"""
BOX = (
    PLACE
    + """
const vertex = view.groups.findIndex((group) => group !== undefined && group.path === arguments[0]);
return at(layout.x[vertex], layout.top(vertex) + 20);
"""
)
TITLE = (
    PLACE
    + """
const [left, right, top] = graph.titleOf(layout.frames.find((one) => one.group.path === arguments[0]));
return at(left + 20, top + 10);
"""
)
OPEN = """
const found = [], visit = (group) => page.graph.modules.kids(group).forEach((kid) => {
  if (typeof kid === "number") return;
  if (kid.open) found.push(kid.path);
  visit(kid);
});
visit(page.graph.modules.root);
return found;
"""


@pytest.fixture
def folded(opened: Opened) -> Browser:
    """A page of which all modules are folded."""
    window = opened(layers(12))
    window.run("page.graph.foldAll(false)")
    assert window.run(OPEN) == []
    return window


def test_a_click_unfolds_and_folds_in_place(folded: Browser) -> None:
    before = folded.run(BOX, "encoder.layer")
    folded.press(*before)
    assert folded.run(OPEN) == ["encoder.layer"] and "encoder.layer" in folded.text("#details h2")
    x, y = folded.run(BOX, "encoder.layer.0")
    assert abs(x - before[0]) < 3 and abs(y - before[1]) < 3  # what was its upper edge has not moved
    assert folded.text("#said") == "encoder.layer is unfolded, 120 nodes"
    folded.press(x, y)
    assert folded.run(OPEN) == ["encoder.layer", "encoder.layer.0"]
    folded.press(*folded.run(TITLE, "encoder.layer"))
    assert folded.run(OPEN) == ["encoder.layer.0"]  # inside it is as it was
    assert folded.run("return page.graph.textOf(page.graph.chosen)").startswith(
        "Module encoder.layer, folded, 120 nodes"
    )


@pytest.mark.full
def test_keys_of_the_graph(folded: Browser) -> None:
    folded.type("#graph-canvas", "nn")  # the node of the embedding, then the encoder
    label = "return document.getElementById('graph-canvas').getAttribute('aria-label')"
    assert folded.run(label) == "The graph. Module encoder.layer, folded, 120 nodes. Enter unfolds it."
    folded.type("#graph-canvas", ENTER)
    assert folded.run(OPEN) == ["encoder.layer"]
    folded.type("#graph-canvas", "p" + ENTER)  # the embedding is in no module: nothing happens
    assert folded.run(OPEN) == ["encoder.layer"]
    folded.type("#graph-canvas", "]")
    assert len(folded.run(OPEN)) == 38
    folded.type("#graph-canvas", "nn" + ENTER)  # from a node back to its module
    assert "encoder.layer.0.attention" not in folded.run(OPEN)
    folded.type("#graph-canvas", "[")
    assert folded.run(OPEN) == []


@pytest.mark.full
def test_the_list_of_modules(folded: Browser) -> None:
    rows = """return [...document.querySelectorAll("#outline .row")].slice(0, arguments[0]).map((row) => [
        row.querySelector(".name").textContent,
        ...["aria-level", "aria-expanded"].map((name) => row.getAttribute(name)),
    ])"""
    assert folded.run(rows, 9) == [
        ["Inputs", "1", "true"],
        ["x", "2", None],
        ["Outputs", "1", "true"],
        ["v122", "2", None],
        ["Modules", "1", "true"],
        ["encoder.layer", "2", "false"],
        ["head", "2", "false"],
        ["Nodes", "1", "true"],
        ["Relu", "2", None],
    ]
    folded.type("#outline", 6 * DOWN + ENTER + DOWN)
    assert folded.run(OPEN) == ["encoder.layer"]
    assert folded.run(rows, 7)[6] == ["layer.0", "3", "false"]
    at = "const box = document.getElementById('outline'); return box.getAttribute('aria-activedescendant')"
    assert folded.run(at) == "outline-6"
    folded.type("#outline", LEFT + LEFT)  # to the module about it, and fold that
    assert folded.run(OPEN) == []
    folded.type("#outline", 3 * DOWN + ENTER)
    assert folded.run("return page.graph.nodeOf(page.graph.chosen).name") == "embed/Gather"
    folded.type("#outline", HOME + DOWN + ENTER)
    assert folded.run("return page.graph.textOf(page.graph.chosen)") == "Input x"
    folded.type("#outline", HOME + ENTER)  # a section closes
    assert folded.run(rows, 2) == [["Inputs", "1", "false"], ["Outputs", "1", "true"]]


@pytest.mark.full
def test_search_and_the_fields_unfold_what_they_show(folded: Browser) -> None:
    folded.type("#search", "layer.7.mlp/1" + ENTER)
    assert folded.run(OPEN) == ["encoder.layer", "encoder.layer.7", "encoder.layer.7.mlp"]
    assert folded.run("return page.graph.nodeOf(page.graph.chosen).name") == "encoder.layer.7.mlp/1"
    assert folded.text("#details .modules") == "module encoder.layer \u203a 7 \u203a mlp"
    folded.click("#details .modules button:nth-of-type(2)")
    assert folded.run(OPEN) == ["encoder.layer", "encoder.layer.7.mlp"]
    folded.run("page.graph.foldAll(false); page.select(page.bytes.find('graph.node[25].name'))")
    assert "encoder.layer.2" in folded.run(OPEN)


@pytest.mark.full
def test_search_by_operator(opened: Opened) -> None:
    names = [("Conv", "a.0/1"), ("Relu", "a.0/2"), ("Conv", "a.1/1"), ("ConvTranspose", "a.1/2"), ("Relu", "Conv")]
    nodes = [node(op, [f"v{at - 1}" if at else "x"], [f"v{at}"], name=name) for at, (op, name) in enumerate(names)]
    window = opened(model_of(nodes, ["v4"]))
    window.run("page.graph.foldAll(false)")
    found = "return page.search.results.map((one) => one.element.index)"
    for text, wanted in (("op:conv", [0, 2]), ("Conv", [0, 2]), ("op:convt", [3]), ("op: Relu", [1, 4]), ("op:x", [])):
        window.run("document.getElementById('search').value = ''")
        window.type("#search", text)
        assert window.run(found) == wanted, text
        assert window.text("#found") == (f"{len(wanted)} found" if wanted else "nothing")
    window.run("document.getElementById('search').value = ''")
    window.type("#search", "op:conv")
    assert window.run("return page.graph.holdsFound(0) && !page.graph.holdsFound(1)")  # the folded module, marked
    chosen = "return [page.chosen.index, document.getElementById('found').textContent]"
    for keys, wanted in ((ENTER, [0, "1 of 2"]), (ENTER, [2, "2 of 2"]), (ENTER, [0, "1 of 2"])):
        window.type("#search", keys)
        assert window.run(chosen) == wanted
    window.click("#search-next")
    assert window.run(chosen) == [2, "2 of 2"]
    window.click("#search-back")
    assert window.run(chosen) == [0, "1 of 2"]


@pytest.mark.full
def test_names_of_modules_are_text(opened: Opened) -> None:
    window = opened(chain([f"{HOSTILE}.\u202eb/{at}" for at in range(3)] + ["__proto__/a", "__proto__/b"]))
    window.run("page.graph.foldAll(false)")
    window.type("#graph-canvas", "nn" + ENTER)
    window.run("page.showModule(page.graph.modules.kids(page.graph.modules.root)[0])")
    said = window.run("return document.body.textContent")
    assert "onerror" in said and "\u202e" not in said and "__proto__" in said
    assert window.run("return window.hacked ?? 'no'") == "no" and window.console() == []
    assert window.run("return document.querySelectorAll('img').length") == 0


def test_frames_are_bounded(opened: Opened) -> None:
    """Modules of two nodes that are far from each other: their frames take no more than the graph in all."""
    nodes = []
    for at in range(700):
        nodes.append(node("Relu", [f"a{at - 1}" if at else "x"], [f"a{at}"], name=f"m{at}/far"))
        nodes.append(node("Relu", ["x"], [f"b{at}"], name=f"m{at}/near"))
    window = opened(model_of(nodes, ["a699"], types=False))
    window.run("page.graph.foldAll(true)")
    rows, boxes = window.run("""
        const { layout } = page.graph;
        return [layout.frames.reduce((sum, frame) => sum + frame.rows.length, 0), layout.layer.length];
    """)
    assert 0 < rows <= 40 * boxes and boxes < 10_000


LIGHT = [path for path in sorted(Path(onnx.__file__).parent.rglob("*.onnx")) if "light" in path.parts]


@pytest.mark.sweep
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_frames_of_networks(path: Path, opened: Opened) -> None:
    window = opened(path.read_bytes())
    for state in ("true", "false"):
        window.run(f"page.graph.foldAll({state})")
        assert window.run(STATE)["wrong"] == 0


# What a person sees first ---------------------------------------------------------------------------------------------


FURTHER = [f"{name}_of_all_the_tokens" for name in ("mask", "position", "segment", "language")]


def decoder(count: int) -> ps.ModelProto:
    """Layers with keys and values of the past as inputs and of the present as outputs, and nodes that make a mask."""
    nodes = [node("Relu", ["x" if not at else f"mask{at - 1}"], [f"mask{at}"], name=f"m/{at}") for at in range(14)]
    nodes.append(node("Sum", ["x", *FURTHER], ["h0"], name="m.embed/0"))
    for at in range(count):
        made = [f"present.{at}.key", f"present.{at}.value"]
        past = [f"past_key_values.{at}.key", f"past_key_values.{at}.value"]
        name = f"m.layers.{at}.attention/Sum"
        nodes += [node("Sum", [f"h{at}", "mask13", one], [two], name=name) for one, two in zip(past, made, strict=True)]
        nodes += [node("Sum", made, [f"a{at}"], name=name), node("Relu", [f"a{at}"], [f"r{at}"], name=name)]
        nodes.append(node("Add", [f"r{at}", f"h{at}"], [f"h{at + 1}"], name=f"m.layers.{at}/Add"))
    nodes.append(node("Relu", [f"h{count}"], ["y"], name="head/Relu"))
    model = model_of(nodes, ["y", *(f"present.{at}.{one}" for at in range(count) for one in ("key", "value"))])
    given = model.graph.input[0].type
    model.graph.input += [ps.ValueInfoProto(name=name, type=given) for name in FURTHER]
    for at in range(count):
        model.graph.input += [
            ps.ValueInfoProto(name=f"past_key_values.{at}.{one}", type=given) for one in ("key", "value")
        ]
    return model


def test_a_decoder_opens_as_its_layers(opened: Opened) -> None:
    """The layers are boxes, all folded or none. Inputs of one layer share a box, and so do many nodes of no module."""
    window = opened(decoder(20))
    titles = "return page.graph.view.groups.map((group) => group.title).filter(Boolean)"
    assert window.run(titles) == ["Relu ... Sum", *(f"layers.{at}" for at in range(20))]
    boxes = window.run("return [...page.graph.view.inputs, ...page.graph.view.outputs]")
    past, present = (
        [[f"{name}.{at}.key", f"{name}.{at}.value"] for at in range(20)] for name in ("past_key_values", "present")
    )
    assert boxes == [["x"], *([name] for name in FURTHER), *past, ["y"], *present]
    assert window.run("return page.graph.lines(page.graph.view.portOf('past_key_values.3.value', false), 1)") == [
        "past_key_values.3",
        "2 inputs",
    ]
    notched = """
        const isWhole = (frame) => frame.rows.every(([left, right]) => left === frame.left && right === frame.right);
        return page.graph.layout.frames.filter((frame) => !isWhole(frame)).length;
    """
    assert window.run(notched) == 0  # inputs and outputs cut nothing out of the frames
    scale, left, right, width = window.run("""
        const { graph } = page;
        graph.home();
        const [from, to] = graph.reach((graph.canvas.clientHeight - 52) / graph.scale);
        return [graph.scale, (from - graph.x) * graph.scale, (to - graph.x) * graph.scale, graph.canvas.clientWidth];
    """)
    assert scale >= 0.48 and left >= 0 and right <= width  # what is in sight is whole
    window.run("page.graph.foldAll(false)")
    assert window.run("return page.graph.view.inputs.length + page.graph.view.outputs.length") == 8
    window.run("page.graph.choose(page.graph.view.portOf('past_key_values.0.key', false)); page.graph.foldAll(true)")
    assert window.run("return page.graph.textOf(page.graph.chosen)") == "Input past_key_values.0.key"
    rows = "return [...document.querySelectorAll('#outline .row .name')].map((one) => one.textContent)"
    assert window.run(rows)[:9] == ["Inputs", "x", *FURTHER, "past_key_values", "Outputs", "y"]


def test_texts_are_cut_and_not_squeezed(opened: Opened) -> None:
    """A type that has no room has shorter names of sizes; a name keeps its end; what is drawn has its own width."""
    window = opened(decoder(2))
    drawn = """
        const { graph } = page, { fillText } = CanvasRenderingContext2D.prototype, drawn = [];
        CanvasRenderingContext2D.prototype.fillText = function noted(...args) { drawn.push(args); };
        graph.typeOf = () => arguments[0];
        graph.renew();
        graph.draw();
        CanvasRenderingContext2D.prototype.fillText = fillText;
        return drawn.map(([text, , , ...width]) => [text, width.length]);
    """
    texts = window.run(drawn, "FLOAT[batch_size, past_sequence_length + sequence_length, 64]")
    assert {width for _, width in texts} == {0}  # the width that would squeeze them
    shorter = {"[batch_\u2026, past_s\u2026 + sequen\u2026, 64]", "[bat\u2026, pas\u2026 + seq\u2026, 64]"}
    assert {text for text, _ in texts} & shorter
    digits = "1234567, " * 12
    assert not [text for text, _ in window.run(drawn, f"FLOAT[{digits}]") if "1234567" in text]
