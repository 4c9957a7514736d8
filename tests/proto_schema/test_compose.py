"""Models put together: as the official package does, where that is right, and better where its result is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import proto_schema as ps
from proto_schema import compose
from proto_schema.parser import parse_graph, parse_model

HEAD = '<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]> '
FIRST = (
    HEAD + "one (float[N, M] a, float[N, M] b) => (float[N, M] c, float[N, M] d) { [add] c = Add(a, b) d = Mul(c, b) }"
)
SECOND = (
    HEAD + "two (float[N, M] x, float[N, M] y) => (float[N, M] z) <float[1] w = {2}> { t = Mul(x, w) z = Sub(t, y) }"
)
BRANCHES = HEAD + (
    "g (bool q, float[2] x, float[2] y) => (float[2] z) { s = Add(x, y) z = If <then_branch = t () => (float[2] r) "
    "{ r = Relu(s) }, else_branch = e () => (float[2] r) { s2 = Neg(x) r = Relu(s2) }> (q) }"
)


def official(message: Any) -> Any:
    return getattr(onnx, type(message).__name__).FromString(message.SerializeToString())


def ours(message: Any) -> Any:
    return getattr(ps, type(message).__name__).FromString(message.SerializeToString())


def same(result: Any, theirs: Any) -> bool:
    """Equal but for opset imports that the official package writes twice, and names that it makes present but empty."""
    theirs = ours(theirs)
    if isinstance(theirs, ps.ModelProto):
        theirs.opset_import = list({row.domain: row for row in theirs.opset_import}.values())
        for node in theirs.graph.node:
            node.name = node.name or None
    return bool(result.SerializeToString() == theirs.SerializeToString())


MERGES: list[tuple[str, str, list[tuple[str, str]], dict[str, Any]]] = [
    (FIRST, SECOND, [("c", "x"), ("d", "y")], {}),
    (FIRST, SECOND, [("c", "x"), ("c", "y")], {}),
    (FIRST, SECOND, [("c", "x")], {"name": "n", "doc_string": "d", "producer_name": "p", "model_version": 7}),
    (FIRST, SECOND, [("c", "x"), ("c", "y")], {"outputs": ["z"]}),
    (FIRST, FIRST, [("c", "a")], {"prefix1": "1/", "prefix2": "2/"}),
    (SECOND, SECOND, [("z", "x"), ("z", "y")], {"prefix2": "p"}),
]


@pytest.mark.parametrize(("first", "second", "io_map", "options"), MERGES)
def test_merges_as_the_official_package(first: str, second: str, io_map: Any, options: Any) -> None:
    m1, m2 = parse_model(first), parse_model(second)
    before = m1.SerializeToString(), m2.SerializeToString()
    result = compose.merge_models(m1, m2, io_map, **options)
    theirs = onnx.compose.merge_models(official(m1), official(m2), io_map, **options)
    if "outputs" in options:  # there the values of the extracted part are declared twice
        assert [node.op_type for node in result.graph.node] == [node.op_type for node in theirs.graph.node]
    else:
        assert same(result, theirs)
    assert (m1.SerializeToString(), m2.SerializeToString()) == before
    onnx.checker.check_model(official(result), full_check=True)


FLAGS = ["nodes", "edges", "inputs", "outputs", "initializers", "value_infos"]


@pytest.mark.parametrize("off", [None, *FLAGS])
@pytest.mark.parametrize("text", [FIRST, SECOND])
def test_prefixes_as_the_official_package(text: str, off: str | None) -> None:
    model = parse_model(text)
    flags = {f"rename_{off}": False} if off else {}
    assert same(compose.add_prefix(model, "p/", **flags), onnx.compose.add_prefix(official(model), "p/", **flags))


def test_in_place() -> None:
    model = parse_model(FIRST)
    assert compose.add_prefix(model, "p/", inplace=True) is model
    assert [value.name for value in model.graph.input] == ["p/a", "p/b"]
    assert compose.expand_out_dim(model, 0, inplace=True) is model
    assert compose.add_prefix_graph(model.graph, "q", inplace=True) is model.graph


def test_what_is_given_shares_no_nodes_with_the_result() -> None:
    first, second = parse_model(FIRST).graph, parse_model(SECOND).graph
    before = first.SerializeToString(), second.SerializeToString()
    made = compose.merge_graphs(first, second, [("c", "x")])
    prefixed = compose.add_prefix_graph(first, "p")
    for node in (*made.node, *prefixed.node):
        node.op_type, node.input[0] = "Changed", "changed"
    assert (first.SerializeToString(), second.SerializeToString()) == before


def test_names_in_branches_follow_their_scope() -> None:
    """The official package leaves names in branches as they are where nodes keep theirs, which breaks the model."""
    model = parse_model(BRANCHES)
    for flags in ({}, {"rename_nodes": False}):
        made = compose.add_prefix(model, "p/", **flags)
        then = made.graph.node[1].attribute[0].g
        assert then is not None
        assert then.node[0].input == ["p/s"]
        onnx.checker.check_model(official(made), full_check=True)
    merged = compose.merge_models(parse_model(FIRST.replace("[N, M]", "[2]")), model, [("c", "x")], prefix2="2/")
    other = merged.graph.node[-1].attribute[1].g
    assert other is not None
    assert other.node[0].input == ["c"]
    onnx.checker.check_model(official(merged), full_check=True)


def test_a_branch_may_hide_a_name() -> None:
    """The inner x is the branch's own: what feeds the outer one does not reach it."""
    graph = parse_graph(
        "g (bool q, float x) => (float z) { z = If <then_branch = t () => (float r) <float x = {3}> { r = Neg(x) }, "
        "else_branch = e () => (float r) { r = Neg(x) }> (q) }"
    )
    merged = compose.merge_graphs(parse_graph("f (float a) => (float b) { b = Neg(a) }"), graph, [("b", "x")])
    then, other = (attribute.g for attribute in merged.node[-1].attribute)
    assert then is not None and other is not None
    assert (then.node[0].input, other.node[0].input) == (["x"], ["b"])


def test_functions_are_called_by_domain_and_name() -> None:
    text = HEAD.replace("]>", ', "d": 1]>') + (
        "g (bool q, float x) => (float y) { r = Relu(x) y = If <then_branch = t () => (float s) { s = d.Relu(r) }, "
        'else_branch = e () => (float s) { s = d.f(r) }> (q) } <domain: "d", opset_import: ["": 17, "d": 1]> '
        'Relu (x) => (y) { y = Neg(x) } <domain: "d", opset_import: ["": 17, "d": 1]> f (x) => (y) { y = d.Relu(x) }'
    )
    made = compose.add_prefix(parse_model(text), "p_")
    assert [function.name for function in made.functions] == ["p_Relu", "p_f"]
    assert made.functions[1].node[0].op_type == "p_Relu"
    assert [node.op_type for node in made.graph.node] == ["Relu", "If"]
    calls = [attribute.g.node[0].op_type for attribute in made.graph.node[1].attribute if attribute.g is not None]
    assert calls == ["p_Relu", "p_f"]
    merged = compose.merge_models(made, compose.add_prefix(made, "2", rename_functions=False), [("p_y", "2p_x")])
    assert [function.name for function in merged.functions] == ["p_Relu", "p_f"]  # the same functions once
    assert [row.domain for row in merged.opset_import] == ["", "com.microsoft", "d"]


def test_annotations_metadata_and_sparse_initializers_stay() -> None:
    model = parse_model(SECOND)
    graph = model.graph
    entry = ps.StringStringEntryProto(key="SCALE_TENSOR", value="w")
    graph.quantization_annotation = [ps.TensorAnnotation(tensor_name="t", quant_parameter_tensor_names=[entry])]
    graph.metadata_props = [ps.StringStringEntryProto(key="k", value="v")]
    values = ps.helper.make_tensor("v", 1, [1], [1.0])
    graph.sparse_initializer = [ps.helper.make_sparse_tensor(values, ps.helper.make_tensor("i", 7, [1], [0]), [4])]
    graph.node[0].input[1] = "v"
    made = compose.merge_models(parse_model(FIRST), model, [("c", "x")], prefix2="2/").graph
    annotation = made.quantization_annotation[0]
    assert (annotation.tensor_name, annotation.quant_parameter_tensor_names[0].value) == ("2/t", "2/w")
    assert made.metadata_props == graph.metadata_props
    sparse = made.sparse_initializer[0]
    assert sparse.values is not None and sparse.indices is not None
    assert (sparse.values.name, sparse.indices.name) == ("2/v", "2/i")


def test_an_input_that_is_an_output_gets_a_node() -> None:
    first, second = parse_graph("f (float a) => (float b) { b = Neg(a) }"), parse_graph("g (float x) => (float x) {}")
    merged = compose.merge_graphs(first, second, [("b", "x")])
    assert [(node.op_type, node.input, node.output) for node in merged.node] == [
        ("Neg", ["a"], ["b"]),
        ("Identity", ["b"], ["x"]),
    ]


@pytest.mark.parametrize(("axis", "shape"), [(0, "[1,N,M]"), (2, "[N,M,1]"), (-1, "[N,M,1]"), (-3, "[1,N,M]")])
@pytest.mark.parametrize("opset", [11, 17])
def test_new_axes(axis: int, shape: str, opset: int) -> None:
    """The declared shape is the one that Unsqueeze gives; sizes keep their names."""
    made = compose.expand_out_dim(parse_model(FIRST.replace("17", str(opset))), axis)
    assert [f"float{shape} {value.name}" in ps.printer.to_text(made) for value in made.graph.output] == [True, True]
    onnx.checker.check_model(official(made), full_check=True)
    twice = compose.expand_out_dim(made, 0)
    onnx.checker.check_model(official(twice), full_check=True)


def test_new_axes_of_values_that_branches_use() -> None:
    text = BRANCHES.replace("(float[2] z)", "(float[2] z, float[2] s)", 1)
    onnx.checker.check_model(official(compose.expand_out_dim(parse_model(text), 0)), full_check=True)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda one, two: compose.merge_models(one, two, [("q", "x")]), ValueError, "first graph has no output 'q'"),
        (lambda one, two: compose.merge_models(one, two, [("c", "xx")]), ValueError, "no input 'xx'; it has 'x'"),
        (lambda one, two: compose.merge_models(one, two, [("c", "x"), ("d", "x")]), ValueError, "'x' .* fed twice"),
        (lambda one, two: compose.merge_models(one, two, [("c", "x")], outputs=["zz"]), ValueError, "none .* 'zz'"),
        (lambda one, two: compose.merge_models(one, one, [("c", "a")]), ValueError, "edge names: .*prefix2="),
        (lambda one, two: compose.merge_models(one, two.graph, []), TypeError, "m2 must be a ModelProto, not a Graph"),
        (lambda one, two: compose.merge_graphs(one, two, []), TypeError, "g1 must be a GraphProto, not a Model"),
        (lambda one, two: compose.add_prefix(one.graph, "p"), TypeError, "model must be a ModelProto"),
        (lambda one, two: compose.expand_out_dim(one, 4), ValueError, "'c' has 2 axes: none can be inserted at 4"),
        (
            lambda one, two: compose.expand_out_dim_graph(parse_graph("g (float x) => (float x) {}"), 0),
            ValueError,
            "'x' is not the result of a node",
        ),
        (
            lambda one, two: compose.expand_out_dim_graph(parse_graph("g () => (seq(float) x) { x = A() }"), 0),
            ValueError,
            "'x' is not a tensor",
        ),
        (
            lambda one, two: (
                compose.add_prefix_graph(parse_graph("g (x, px) => () {}"), "p", rename_inputs=False)
                and compose.add_prefix_graph(parse_graph("g (x) => (y) { px = A(x) y = A() }"), "p", rename_edges=False)
            ),
            ValueError,
            "with the prefix 'p', names of values would equal other names: px",
        ),
    ],
)
def test_errors(call: Callable[..., Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(parse_model(FIRST), parse_model(SECOND))


DIFFERING = [
    ("ir_version: 10", "ir_version: 8", "IR versions 10 and 8: set `ir_version`"),
    ('"": 17', '"": 21', r"different opsets: ai.onnx 17 and 21.*convert_version\(model, 21\)"),
    ("]>", '], metadata_props: ["k": "2"]>', "the metadata 'k' is '1' in one model and '2' in the other"),
]


@pytest.mark.parametrize(("old", "new", "text"), DIFFERING)
def test_models_that_differ(old: str, new: str, text: str) -> None:
    first = parse_model(FIRST.replace("]>", '], metadata_props: ["k": "1"]>'))
    with pytest.raises(ValueError, match=text):
        compose.merge_models(first, parse_model(SECOND.replace(old, new)), [("c", "x")])


def test_names_that_are_no_text() -> None:
    """What is not UTF-8 stays bytes when a file is read."""
    first, second = parse_model(FIRST), parse_model(SECOND)
    assert first.graph is not None and second.graph is not None
    for graph in (first.graph, second.graph):
        graph.name, graph.node[0].name = b"\xff", b"\xfe"
    assert "\\xff" in str(compose.merge_graphs(first.graph, second.graph, [("c", "x")]).doc_string)
    with pytest.raises(ValueError, match="none of the graphs has 'k'"):
        first.graph.output[0].name = b"\xfd"
        compose.merge_graphs(first.graph, second.graph, [], outputs=["k"])


def test_functions_that_differ() -> None:
    text = "g{0} (float x{0}) => (float y{0}) {{ y{0} = d.f(x{0}) }} "
    text += '<domain: "d", opset_import: ["": 17]> f (x) => (y) {{ y = {1}(x) }}'
    head = HEAD.replace("]>", ', "d": 1]>')
    first, second = parse_model(head + text.format(1, "Neg")), parse_model(head + text.format(2, "Relu"))
    with pytest.raises(ValueError, match=r"functions of these names, and they differ: d::f.*prefix2="):
        compose.merge_models(first, second, [("y1", "x2")])


def test_overlapping_names() -> None:
    one, two = parse_model(FIRST).graph, parse_model(SECOND).graph
    assert compose.check_overlapping_names(one, two) == []
    assert compose.check_overlapping_names(two, two) == [("edge", ["x", "w", "t", "y", "z"]), ("initializer", ["w"])]
    assert compose.check_overlapping_names(two, two, [("z", "x")])[0] == ("edge", ["w", "t", "y", "z"])


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
HUGE = """
import proto_schema as ps
first, second = (ps.load(name) for name in ("a.onnx", "b.onnx"))
merged = ps.compose.merge_models(first, second, [("ya", "xb")])
ps.save(merged, "m.onnx", external_data="reference")
ps.checker.check_model("m.onnx")
ps.utils.extract_model("m.onnx", "part.onnx", ["ya"], ["hb"])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_models_of_30_gb(tmp_path: Path) -> None:
    """Two models with 30 GB of external data each (holes in their files): nothing of it is read, nor written again."""
    side = 86_000
    for name in "ab":
        text = f"g{name} (float[1, {side}] x{name}) => (float[1, {side}] y{name}) <float[{side}, {side}] w{name} = "
        text += f'["location": "{name}.data"]> {{ h{name} = Relu(x{name}) y{name} = MatMul(h{name}, w{name}) }}'
        (tmp_path / f"{name}.onnx").write_bytes(parse_model(HEAD + text).SerializeToString())
        with open(tmp_path / f"{name}.data", "wb") as file:
            file.truncate(4 * side * side)
    done = subprocess.run(
        [sys.executable, "-c", HUGE], cwd=tmp_path, capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert int(done.stdout) < 400 * 1024
    assert (tmp_path / "m.onnx").stat().st_size < 10_000
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".data") == ["a.data", "b.data"]
