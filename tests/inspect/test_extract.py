"""Parts of models as files: what numpy, a reader of the format, and ONNX Runtime find in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.inspect.extract import LONGEST_HEADER, SAFETENSORS, subgraph
from purexport.weights import open_weights, safetensors

FLOAT = ps.TensorProto.FLOAT
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)


def model() -> Any:
    """x @ w -> h, h + b -> s, If(c) s else b -> y; and LeakyRelu(s) -> z."""
    weight = ps.numpy_helper.from_array(WEIGHT, "w")
    bias = ps.helper.make_tensor("b", FLOAT, [1, 3], [1.0, 2.0, 3.0])
    branches = {
        f"{name}_branch": ps.helper.make_graph(
            [ps.helper.make_node("Identity", [value], [f"{name}_y"])],
            name,
            [],
            [ps.helper.make_tensor_value_info(f"{name}_y", FLOAT, None)],
        )
        for name, value in (("then", "s"), ("else", "b"))
    }
    nodes = [
        ps.helper.make_node("MatMul", ["x", "w"], ["h"]),
        ps.helper.make_node("Add", ["h", "b"], ["s"]),
        ps.helper.make_node("If", ["c"], ["y"], **branches),
        ps.helper.make_node("LeakyRelu", ["s"], ["z"], alpha=0.5),
        ps.helper.make_node("Constant", [], ["k"], value=ps.numpy_helper.from_array(np.int64([7, 8]), "")),
    ]

    def info(name: str, sizes: Sequence[int]) -> Any:
        return ps.helper.make_tensor_value_info(name, FLOAT, sizes)

    condition = ps.helper.make_tensor_value_info("c", ps.TensorProto.BOOL, [])
    graph = ps.helper.make_graph(
        nodes,
        "net",
        [info("x", [1, 4]), condition],
        [info("y", [1, 3]), info("z", [1, 3])],
        [weight, bias],
        value_info=[info("s", [1, 3])],
    )
    return ps.helper.make_model(graph, ir_version=10, opset_imports=[ps.helper.make_opsetid("", 20)])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ps.save(model(), "m.onnx")
    return tmp_path / "m.onnx"


# outputs, inputs, operators of the subgraph, its inputs, its initializers
CUTS: list[tuple[str, str | None, list[str], list[str], list[str]]] = [
    ("s", None, ["MatMul", "Add"], ["x"], ["w", "b"]),
    ("z", "s", ["LeakyRelu"], ["s"], []),
    ("z", "x", ["MatMul", "Add", "LeakyRelu"], ["x"], ["w", "b"]),
    ("y", "s,c", ["If"], ["s", "c"], ["b"]),
    ("y,z", None, ["MatMul", "Add", "If", "LeakyRelu"], ["x", "c"], ["w", "b"]),
    ("s", "x,b", ["MatMul", "Add"], ["x", "b"], ["w"]),
    ("z", "s,x", ["LeakyRelu"], ["s"], []),
    ("z", "h", ["Add", "LeakyRelu"], ["h"], ["b"]),  # the file does not say the type of h
]


@pytest.mark.parametrize(("outputs", "inputs", "operators", "starts", "weights"), CUTS)
def test_subgraph(
    outputs: str, inputs: str | None, operators: list[str], starts: list[str], weights: list[str], path: Path
) -> None:
    options = ["--inputs", inputs] if inputs else []
    assert main(["extract", str(path), "--outputs", outputs, *options, "-o", "sub.onnx"]) == 0
    made = onnx.load("sub.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == operators
    assert [value.name for value in made.graph.input] == starts
    assert [tensor.name for tensor in made.graph.initializer] == weights
    feeds = {"x": np.ones((1, 4), np.float32), "c": np.array(True), "b": np.float32([[1, 2, 3]])}
    feeds["h"] = feeds["x"] @ WEIGHT
    feeds["s"] = onnxruntime.InferenceSession(str(path)).run(["z"], {"x": feeds["x"], "c": feeds["c"]})[0]
    session = onnxruntime.InferenceSession("sub.onnx")
    results = session.run(None, {name: feeds[name] for name in starts})
    np.testing.assert_allclose(results[-1], feeds["x"] @ WEIGHT + feeds["b"])  # positive: LeakyRelu leaves it


def test_subgraph_shares_weights() -> None:
    whole = model()
    assert subgraph(whole, ["s"]).graph.initializer[0] is whole.graph.initializer[0]  # type: ignore[union-attr]


def test_a_kept_node_that_also_makes_an_input(path: Path) -> None:
    """One result of Split is where the part begins, and another is needed: the first has another name then."""
    nodes = [
        ps.helper.make_node("Split", ["x"], ["a,1", "b"], axis=0),
        ps.helper.make_node("Add", ["a,1", "b"], ["y"]),
    ]
    x, a, y = (ps.helper.make_tensor_value_info(name, FLOAT, [2 * (name == "x") or 1]) for name in ("x", "a,1", "y"))
    graph = ps.helper.make_graph(nodes, "g", [x], [y], value_info=[a])
    opset = ps.helper.make_opsetid("", 13)
    ps.save(ps.helper.make_model(graph, ir_version=8, opset_imports=[opset]), "split.onnx")
    assert main(["extract", "split.onnx", "--inputs", "a\\,1,x", "--outputs", "y", "-o", "part.onnx"]) == 0
    part = ps.load("part.onnx")
    onnx.checker.check_model(onnx.load("part.onnx"), full_check=True)
    assert [item.name for item in part.graph.input] == ["a,1", "x"]
    assert part.graph.node[0].output == ["a,1_0", "b"]
    assert ps.load("split.onnx").graph.node[0].output == ["a,1", "b"]


def test_a_type_that_nothing_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model()
    whole.graph.node[0].domain, whole.graph.node[0].op_type = "mine", "Mystery"
    whole.opset_import.append(ps.helper.make_opsetid("mine", 1))
    ps.save(whole, path)
    assert main(["extract", str(path), "--outputs", "h", "-o", "o"]) == 2
    said = "does not say the type of 'h': infer shapes first, or where an operator is not known cut at another value"
    assert said in capsys.readouterr().err
    assert main(["extract", str(path), "--outputs", "z", "--inputs", "s", "-o", "o"]) == 0


# the command line after the file, what the error says
MISTAKES = [
    (["-o", "o"], "one of --tensor NAME, --tensors, --outputs"),
    (["--tensor", "w", "--tensors", "-o", "o"], "one of --tensor"),
    (["--tensors", "--inputs", "x", "-o", "o"], "--inputs goes with --outputs"),
    (["--tensor", "wight", "-o", "o"], "no tensor is called 'wight'; there is w"),
    (["--tensor", "w", "-o", "none/o.npy"], "none"),
    (["--outputs", "q", "-o", "o"], "the graph has no value 'q'"),
    (["--outputs", "y", "--inputs", "s", "-o", "o"], "y also need c: name it among the inputs"),
]


@pytest.mark.parametrize(("argv", "text"), MISTAKES, ids=[" ".join(argv) for argv, _ in MISTAKES])
def test_mistakes(argv: list[str], text: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", str(path), *argv]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1 and "--traceback" not in error
    assert [entry.name for entry in path.parent.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(("name", "array"), [("w", WEIGHT), ("b", np.float32([[1, 2, 3]])), ("k", np.int64([7, 8]))])
def test_npy(name: str, array: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", str(path), "--tensor", name, "-o", "t.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == list(array.shape)
    found = np.load("t.npy")
    assert found.dtype == array.dtype and np.array_equal(found, array)


def test_npy_of_strings(path: Path) -> None:
    whole = model()
    whole.graph.initializer.append(ps.numpy_helper.from_array(np.array(["a", "bc"], object), "t"))
    ps.save(whole, path)
    assert main(["extract", str(path), "--tensor", "t", "-o", "t.npy"]) == 0
    assert np.load("t.npy").tolist() == ["a", "bc"]
    whole.graph.initializer[-1].string_data[0] = b"\xff"
    ps.save(whole, path)
    assert main(["extract", str(path), "--tensor", "t", "-o", "t.npy"]) == 2


def read_safetensors(path: str) -> tuple[dict[str, Any], bytes]:
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def test_safetensors(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model()
    whole.graph.initializer += [
        ps.helper.make_tensor("half", ps.TensorProto.BFLOAT16, [2], [1.0, -2.0]),
        ps.helper.make_tensor("four", ps.TensorProto.INT4, [2], [1, 2]),
        ps.helper.make_tensor("scalar", ps.TensorProto.DOUBLE, [], [0.5]),
        ps.helper.make_tensor("wave", ps.TensorProto.COMPLEX64, [1], [1 + 2j]),
        ps.TensorProto(name="pairs", dims=[2, 2], data_type=ps.TensorProto.FLOAT4E2M1, int32_data=[0x21, 0x73]),
        ps.TensorProto(name="odd", dims=[3], data_type=ps.TensorProto.FLOAT4E2M1, raw_data=b"\x21\x07"),
        ps.numpy_helper.from_array(np.zeros((0, 3), np.int8), "empty"),
    ]
    ps.save(whole, path, external_data=True, size_threshold=0)
    assert main(["extract", str(path), "--tensors", "-o", "t.safetensors", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tensors"] == 7
    assert facts["left_out"] == ["four: the format has no INT4", "odd: the format has no FLOAT4E2M1 of 3 elements"]
    head, data = read_safetensors("t.safetensors")
    by_name = {tensor.name: tensor for tensor in whole.graph.initializer}
    at = 0
    for name, row in head.items():
        start, stop = row["data_offsets"]
        assert start == at and row["shape"] == list(by_name[name].dims)
        assert row["dtype"] == SAFETENSORS[ps.TensorProto.DataType(by_name[name].data_type).name]
        array = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(by_name[name].SerializeToString()))
        assert data[start:stop] == (b"\x21\x73" if name == "pairs" else array.tobytes()), name
        at = stop
    assert at == len(data)


def _sparse(graph: ps.GraphProto) -> None:
    values, indices = (ps.helper.make_tensor(name, 7, [1], [1]) for name in ("sparse", "i"))
    graph.sparse_initializer.append(ps.SparseTensorProto(values=values, indices=indices, dims=[9]))


T = ps.TensorProto
# what is odd about the tensors, what is said of it: with the other tensors written, or else without a file
ODD: list[tuple[str, Callable[[ps.GraphProto], object], str, bool]] = [
    (
        "the format's own name",
        lambda graph: put(graph, name="__metadata__"),
        "left out  __metadata__: the format",
        True,
    ),
    ("sparse", _sparse, "left out  sparse: the format has no sparse tensors", True),
    (
        "text",
        lambda graph: put(graph, dims=[1], data_type=T.STRING, string_data=[b"a"]),
        "the format has no STRING",
        True,
    ),
    ("no type", lambda graph: put(graph, dims=[1], data_type=99), "the format has no 99", True),
    ("no name", lambda graph: put(graph, dims=[1], data_type=T.INT8, raw_data=b"1", name=""), "3 tensors", True),
    ("a negative size", lambda graph: put(graph, dims=[-1]), "tensor 'odd': dims [-1] has a negative dimension", False),
    ("a long name", lambda graph: put(graph, dims=[0], name="n" * 100_000_000), "the format allows 100000000", False),
]


def put(graph: ps.GraphProto, **fields: Any) -> None:
    given = {"name": "odd", "data_type": T.FLOAT, "dims": [1], "raw_data": bytes(4)} if len(fields) == 1 else fields
    graph.initializer.append(T(**{"name": "odd", "data_type": T.FLOAT, **given, **fields}))


@pytest.mark.parametrize(("change", "said", "written"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_what_is_written_is_read_again(
    change: Callable[[ps.GraphProto], object],
    said: str,
    written: bool,
    path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By our own reader of checkpoints, with all tensors that are not said to be left out."""
    whole = model()
    assert whole.graph is not None
    change(whole.graph)
    ps.save(whole, path)
    status = main(["extract", str(path), "--tensors", "-o", "t.safetensors"])
    streams = capsys.readouterr()
    assert said in streams.out + streams.err and len(streams.out + streams.err) < 5000
    assert status == (0 if written else 2) and os.path.exists("t.safetensors") == written
    if written:
        names = {tensor.name for tensor in whole.graph.initializer}
        left = {line.split()[2].rstrip(":") for line in streams.out.splitlines() if line.startswith("left out")}
        assert set(open_weights("t.safetensors")) == names - left


def test_the_longest_header_is_that_of_the_reader() -> None:
    assert LONGEST_HEADER == safetensors.LONGEST_HEADER


def test_strings_of_very_different_length(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """.npy gives each text as much room as the longest needs."""
    texts = [b"x" * 100_000, *[b""] * 100_000]
    whole = ps.ModelProto(
        graph=ps.GraphProto(initializer=[T(name="s", data_type=T.STRING, dims=[len(texts)], string_data=texts)])
    )
    ps.save(whole, path)
    assert main(["extract", str(path), "--tensor", "s", "-o", "s.npy"]) == 2
    assert "s: as .npy it would have 40,000,400,000 bytes" in capsys.readouterr().err


def test_safetensors_needs_names_that_differ(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model()
    whole.graph.initializer.append(whole.graph.initializer[0])
    ps.save(whole, path)
    assert main(["extract", str(path), "--tensors", "-o", "t.safetensors"]) == 2
    assert "two tensors are called 'w'" in capsys.readouterr().err
