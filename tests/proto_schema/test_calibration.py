"""Activations in eight bits: scales, zero points, codes and results equal those of ONNX Runtime's quantizer.

Each row of `ROWS` is a small graph, which both quantize by the same samples with the default settings.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import EntropyCalibrater

import proto_schema as ps
from proto_schema import helper
from proto_schema.calibration import calibrated, codes
from proto_schema.calibration.options import CalibrationOptions
from proto_schema.calibration.ranges import collected
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Samples

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
METHODS = {"minmax": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces for small weights, too."""
    monkeypatch.setattr(codes, "PIECE", 1 << 6)


class Row(NamedTuple):
    """Nodes from x to y as (operator, inputs, outputs, attributes); sizes of weights, or their values."""

    shape: Sequence[int]
    nodes: Sequence[tuple[str, str, str, dict[str, Any]]]
    weights: Mapping[str, Any] = {}
    outputs: str = "y"


IMAGE = (1, 3, 8, 8)
CONV = ("Conv", "x w b", "h", {"pads": [1, 1, 1, 1]})
FILTERS = {"w": (4, 3, 3, 3), "b": (4,)}
# numbers for which the scale of the bias must be larger than that of its product
TINY = {"w": np.full((4, 3, 1, 1), 1e-7, np.float32), "b": np.full(4, 30, np.float32)}


def behind(*nodes: tuple[str, str, str, dict[str, Any]], **weights: Any) -> Row:
    """Nodes behind a convolution, from h to y."""
    return Row(IMAGE, [CONV, *nodes], {**FILTERS, **weights})


ROWS: dict[str, Row] = {
    "conv": Row(IMAGE, [("Conv", "x w b", "y", {})], FILTERS),
    "conv without bias": Row(IMAGE, [("Conv", "x w", "y", {"strides": [2, 2]})], {"w": (4, 3, 3, 3)}),
    "groups": Row(IMAGE, [("Conv", "x w b", "y", {"group": 3})], {"w": (6, 1, 3, 3), "b": (6,)}),
    "transposed": Row(IMAGE, [("ConvTranspose", "x w b", "y", {})], {"w": (3, 4, 3, 3), "b": (4,)}),
    "bias too large": Row(IMAGE, [("Conv", "x w b", "y", {})], TINY),
    "matmul": Row((5, 16), [("MatMul", "x w", "y", {})], {"w": (16, 24)}),
    "weight on the left": Row((16, 5), [("MatMul", "w x", "y", {})], {"w": (8, 16)}),
    "no weight": Row((5, 5), [("MatMul", "x x", "y", {})]),
    "gemm": Row((5, 16), [("Gemm", "x w b", "y", {"transB": 1})], {"w": (24, 16), "b": (24,)}),
    "gemm, columns": Row((5, 16), [("Gemm", "x w b", "y", {})], {"w": (16, 24), "b": (24,)}),
    "relu": behind(("Relu", "h", "y", {})),
    "relu of two": behind(("Relu", "h", "r", {}), ("Add", "h r", "y", {})),
    "relu of the input": Row(IMAGE, [("Relu", "x", "r", {}), ("Conv", "r w b", "y", {})], FILTERS),
    "relu twice": behind(("Relu", "h", "r", {}), ("Relu", "r", "y", {})),
    "clip": behind(("Clip", "h least most", "y", {}), least=np.float32(0), most=np.float32(1)),
    "leaky relu": behind(("LeakyRelu", "h", "y", {})),
    "sigmoid": behind(("Sigmoid", "h", "y", {})),
    "softmax": behind(("Softmax", "h", "y", {"axis": 1})),
    "add of a constant": behind(("Add", "h c", "y", {}), c=(4, 1, 1)),
    "mul": behind(("Mul", "h h", "y", {})),
    "concat": behind(("Concat", "h x", "y", {"axis": 1})),
    "max pool": behind(("MaxPool", "h", "y", {"kernel_shape": [2, 2]})),
    "average pool": behind(("AveragePool", "h", "y", {"kernel_shape": [2, 2]})),
    "global average pool": behind(("GlobalAveragePool", "h", "y", {})),
    "moves": behind(("Transpose", "h", "t", {"perm": [0, 2, 3, 1]}), ("Flatten", "t", "f", {}), ("Relu", "f", "y", {})),
    "reshape": behind(("Reshape", "h s", "y", {}), s=np.array([4, -1])),
    "resize": behind(("Resize", "h - scales", "y", {}), scales=np.array([1, 1, 2, 2], np.float32)),
    "split": behind(("Split", "h", "p q", {"axis": 1, "num_outputs": 2}), ("Mul", "p q", "y", {})),
    "pad with zeros": behind(("Pad", "h n", "y", {}), n=np.array([0, 0, 1, 1, 0, 0, 1, 1])),
    "pad with ones": behind(("Pad", "h n one", "y", {}), n=np.array([0, 0, 1, 1, 0, 0, 1, 1]), one=np.float32(1)),
    "slice": behind(("Slice", "h from to", "y", {}), **{"from": np.array([0, 1]), "to": np.array([1, 3])}),
    "table": Row(
        (2, 8),
        [("Gather", "table i", "g", {}), ("MatMul", "x w", "h", {}), ("Add", "g h", "y", {})],
        {"table": (9, 8), "i": np.array([3, 7]), "w": (8, 8)},
    ),
    "where": behind(("Where", "c h h", "y", {}), c=np.array([True, False] * 4)),
    "layer normalization": Row((5, 16), [("LayerNormalization", "x s b", "y", {"axis": -1})], {"s": (16,), "b": (16,)}),
    "instance normalization": Row(IMAGE, [("InstanceNormalization", "x s b", "y", {})], {"s": (3,), "b": (3,)}),
    "a weight of two": Row(
        (5, 16),
        [("Gemm", "x w b", "h", {}), ("Gemm", "h w b", "y", {})],
        {"w": (16, 16), "b": (16,)},
    ),
    "two outputs": Row(
        IMAGE, [CONV, ("Relu", "h", "r", {}), ("MaxPool", "r", "y", {"kernel_shape": [2, 2]})], FILTERS, "y r"
    ),
    "no integer form": behind(("Erf", "h", "e", {}), ("Tanh", "e", "y", {})),
}


def built(row: Row, opset: int = 18) -> ps.ModelProto:
    draw = np.random.default_rng(5)
    weights = [
        ps.numpy_helper.from_array(
            np.asarray(item) if not isinstance(item, tuple) else draw.standard_normal(item).astype(np.float32), name
        )
        for name, item in row.weights.items()
    ]
    nodes = [
        helper.make_node(kind, read.replace("-", "").split(" "), made.split(), f"n{at}", **attributes)
        for at, (kind, read, made, attributes) in enumerate(row.nodes)
    ]
    given = helper.make_tensor_value_info("x", 1, row.shape)
    results = [helper.make_tensor_value_info(name, 1, None) for name in row.outputs.split()]
    graph = helper.make_graph(nodes, "g", [given], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ps.shape_inference.infer_shapes(model)


def feeds(row: Row, count: int = 3) -> list[dict[str, Array]]:
    draw = np.random.default_rng(6)
    return [{"x": draw.standard_normal(row.shape).astype(np.float32)} for _ in range(count)]


class Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, given: Sequence[dict[str, Array]]) -> None:
        self.rest: Iterator[dict[str, Array]] = iter(given)

    def get_next(self) -> Any:
        return next(self.rest, None)


def by_onnxruntime(model: ps.ModelProto, given: Any, folder: Path, kind: str, method: str, channels: bool) -> bytes:
    source, target = folder / "m.onnx", folder / "q.onnx"
    source.write_bytes(ps.dumps(model))
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            quantize_static(
                str(source),
                str(target),
                Reader(given),
                quant_format=QuantFormat.QDQ,
                per_channel=channels,
                activation_type=TYPES[kind],
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[method],
            )
    finally:
        logging.disable(logging.NOTSET)
    return target.read_bytes()


def numbers(data: bytes) -> dict[str, list[Array]]:
    """Scale, zero point and codes (of constants) of each tensor that is quantized."""
    graph = onnx.load_from_string(data).graph
    held = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    found: dict[str, list[Array]] = {}
    for node in graph.node:
        constant = node.op_type == "DequantizeLinear" and node.input[0] in held
        if node.op_type != "QuantizeLinear" and not constant:
            continue
        name = node.output[0] if constant else node.input[0]
        for ending in ("_QuantizeLinear_Input", "_DequantizeLinear_Output", "_unquantized", "_dequantized"):
            name = name.removesuffix(ending)
        zero = held[node.input[2]] if len(node.input) > 2 else np.zeros((), np.int32)
        codes = [held[node.input[0]]] if constant else []
        found[name] = [held[node.input[1]].reshape(-1), np.unique(zero), *codes]
    return found


def run(data: bytes, feed: Mapping[str, Array], *, wide: bool = False) -> list[Array]:
    """Where `wide`, sums do not overflow on processors without VNNI."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", str(int(wide)))
    found: list[Array] = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, dict(feed))
    return found


def same_as_theirs(row: Row, folder: Path, kind: str, method: str, channels: bool) -> None:
    model, given = built(row), feeds(row)
    theirs = by_onnxruntime(model, given, folder, kind, method, channels)
    made = ps.quantization.quantize(model, activations=kind, calibration=given, method=method, per_channel=channels)
    ps.checker.check_model(made, full_check=True)
    mine = ps.dumps(made)
    wanted, found = numbers(theirs), numbers(mine)
    wanted = {{"b0": "b_dequantized_0"}.get(item, item): parts for item, parts in wanted.items()}  # of a shared bias
    assert set(found) == set(wanted)
    for name, parts in found.items():
        for ours, others in zip(parts, wanted[name], strict=True):
            np.testing.assert_array_equal(ours, others, name)
    for ours, others in zip(run(mine, given[0]), run(theirs, given[0]), strict=True):
        np.testing.assert_array_equal(ours, others)


@pytest.mark.parametrize("name", list(ROWS))
def test_rows(name: str, tmp_path: Path) -> None:
    number = list(ROWS).index(name)
    kind, method = ("uint8", "int8")[number % 2], ("minmax", "percentile")[number % 3 == 2]
    same_as_theirs(ROWS[name], tmp_path, kind, method, channels=False)


@pytest.mark.parametrize("name", ["conv", "groups", "bias too large", "matmul", "gemm", "gemm, columns", "table"])
def test_a_scale_for_each_channel(name: str, tmp_path: Path) -> None:
    same_as_theirs(ROWS[name], tmp_path, "uint8", "minmax", channels=True)


# ---- where equal numbers would be wrong


def quantized(model: ps.ModelProto, given: Any, **more: Any) -> bytes:
    return ps.dumps(ps.quantization.quantize(model, **{"activations": "uint8", "calibration": given, **more}))


def test_a_bias_keeps_its_factor() -> None:
    row = Row((5, 16), [("Gemm", "x w b", "y", {"beta": 0.25, "alpha": 2.0})], {"w": (16, 24), "b": (24,)})
    model, given = built(row), feeds(row)
    wanted, found = run(ps.dumps(model), given[0])[0], run(quantized(model, given), given[0])[0]
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 0.02


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_relu_that_was_always_zero_is_kept(kind: str) -> None:
    """The integers of a range of nothing would cut nothing; a tensor of zeros stays in floats."""
    weights = {"w": np.full((4, 3, 1, 1), 1, np.float32), "b": np.full(4, -100, np.float32)}
    row = Row(IMAGE, [("Conv", "x w b", "h", {}), ("Relu", "h", "y", {})], weights)
    model = built(row)
    data = quantized(model, feeds(row), activations=kind)
    assert {"h", "x"} < set(numbers(data)) and "y" not in numbers(data)
    far = {"x": np.linspace(-50, 20, 192, dtype=np.float32).reshape(IMAGE)}
    assert run(data, far)[0].min() == 0


def test_a_limit_inside_of_the_range_is_kept() -> None:
    """Integers of the range [0, 2] would not cut at 0.5."""
    row = behind(("Clip", "h least most", "y", {}), least=np.float32(0.5), most=np.float32(2))
    found = run(quantized(built(row), feeds(row)), feeds(row)[0])[0]
    assert 0.49 < found.min() < 0.51


def test_an_output_that_a_relu_reads_keeps_its_range() -> None:
    row = Row(IMAGE, [CONV, ("Relu", "h", "y", {})], FILTERS, "h y")
    wanted, found = (
        run(ps.dumps(built(row)), feeds(row)[0])[0],
        run(quantized(built(row), feeds(row)), feeds(row)[0], wide=True)[0],
    )
    assert wanted.min() < -1 and np.abs(found - wanted).max() < 0.2


@pytest.mark.parametrize("low", [-np.inf, -3.4e38])
@pytest.mark.parametrize("constant", [True, False])
def test_a_mask_stays(low: float, constant: bool) -> None:
    """A scale for it would make all other numbers zero."""
    mask = np.where(np.arange(8) < 5, 0, low).astype(np.float32)
    made_in_the_graph: list[Any] = [] if constant else [("Identity", "mask", "seen", {})]
    add = ("Add", "h mask" if constant else "h seen", "m", {})
    row = Row(IMAGE, [CONV, *made_in_the_graph, add, ("Softmax", "m", "y", {"axis": -1})], {**FILTERS, "mask": mask})
    model, given = built(row), feeds(row)
    data = quantized(model, given)
    assert set(numbers(data)) == {"x", "w", "b", "h", "y"}
    wanted, found = run(ps.dumps(model), given[0])[0], run(data, given[0])[0]
    assert np.abs(wanted - found)[np.isfinite(wanted)].max() < 0.05
    made = calibrated(model, CalibrationOptions("uint8"), given)
    assert any(line.startswith("m ") and "stays: it reaches -" in line for line in made.lines()), list(made.lines())


# ---- ranges


@pytest.mark.parametrize("spread", ["normal", "long tail", "small"])
def test_entropy(spread: str, tmp_path: Path) -> None:
    row = Row((4, 64), [("Sigmoid", "x", "s", {}), ("Mul", "x s", "y", {})])
    draw = np.random.default_rng(8)
    given = [{"x": draw.standard_normal(row.shape).astype(np.float32)} for _ in range(4)]
    for feed in given:
        feed["x"] = {"normal": feed["x"], "long tail": feed["x"] ** 3, "small": feed["x"] * np.float32(1e-6)}[spread]
    model = built(row)
    (tmp_path / "m.onnx").write_bytes(ps.dumps(model))
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = EntropyCalibrater(str(tmp_path / "m.onnx"), None, str(tmp_path / "a.onnx"), num_bins=192)
        theirs.augment_graph()
        theirs.create_inference_session()
        theirs.collect_data(Reader(given))
        wanted = theirs.compute_data()
    with Runner(model, {"x", "s", "y"}) as runner:
        found = collected(runner, Samples(model, given), CalibrationOptions("uint8", "entropy", bins=192))
    assert {name: (item.low, item.high) for name, item in found.items()} == {
        name: tuple(wanted[name].range_value) for name in ("x", "s", "y")
    }
    assert spread != "long tail" or found["y"].high < max(run(ps.dumps(model), feed)[0].max() for feed in given)


def test_the_evaluator_where_onnxruntime_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS["two outputs"]
    wanted = numbers(quantized(built(row), feeds(row)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ort, "InferenceSession", None)
    found = numbers(quantized(built(row), feeds(row)))
    assert set(found) == set(wanted)
    for name, (scale, zero, *_) in found.items():
        np.testing.assert_allclose(scale, wanted[name][0], 1e-5, err_msg=name)
        np.testing.assert_array_equal(zero, wanted[name][1], name)


# ---- samples

ARRAY = np.random.default_rng(9).standard_normal((4, 3, 8, 8)).astype(np.float32)


def in_files(folder: Path) -> Path:
    for number, part in enumerate(ARRAY):
        np.save(folder / f"{number}.npy", part[None])
    return folder


def in_archives(folder: Path) -> list[Path]:
    paths = [folder / "a.npz", folder / "b.npz"]
    for path, part in zip(paths, (ARRAY[:2], ARRAY[2:]), strict=True):
        np.savez(path, x=part[:, None])
    return paths


FORMS: dict[str, Callable[[Path], Any]] = {
    "a folder": in_files,
    "files of several samples": in_archives,
    "names of files": lambda folder: [str(path) for path in in_archives(folder)],
    "a dict of arrays": lambda folder: {"x": ARRAY},
    "a dict with the axis of samples in front": lambda folder: {"x": ARRAY[:, None]},
    "an array": lambda folder: ARRAY,
    "feeds": lambda folder: [{"x": part[None]} for part in ARRAY],
    "a generator": lambda folder: ({"x": part[None]} for part in ARRAY),
    "a function": lambda folder: lambda: ({"x": part[None]} for part in ARRAY),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_forms_of_samples(name: str, tmp_path: Path) -> None:
    model = built(ROWS["conv"])
    given = FORMS[name](tmp_path)
    data = quantized(model, given, method="percentile", percentile=99.0)
    assert data == quantized(model, [{"x": part[None]} for part in ARRAY], method="percentile", percentile=99.0)


def test_batches_of_the_size_that_the_model_has() -> None:
    model = built(Row((2, 3, 8, 8), *ROWS["conv"][1:]))
    assert [feed["x"].shape[0] for _, feed in Samples(model, {"x": ARRAY})] == [2, 2]


ZEROS = np.zeros(IMAGE, np.float32)
NAN = np.full(IMAGE, np.nan, np.float32)

# what is given (samples, and options), and what the error says
MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown name": ([{"X": ZEROS}], {}, "sample 0: the model has no input 'X'; its inputs are 'x'"),
    "missing name": ([{"x": ZEROS}, {}], {}, "sample 1: the input 'x' is missing"),
    "type": ([{"x": ZEROS.astype(np.float64)}], {}, "'x' is float64, and the model takes float32; convert it"),
    "shape": ([{"x": ZEROS[:, :2]}], {}, r"'x' has shape \[1, 2, 8, 8\], and the model takes \[1, 3, 8, 8\]"),
    "rank": ([{"x": ZEROS[0]}], {}, r"'x' has shape \[3, 8, 8\]"),
    "no samples": ([], {}, "there are no samples for the calibration; give at least one"),
    "no file": ("missing.npz", {}, "missing.npz"),
    "empty folder": (".", {}, r"has no .npz and no .npy file; a sample is one of these"),
    "not samples": (7, {}, "not a int"),
    "nan": ([{"x": ZEROS}, {"x": NAN}], {}, "sample 1: the activation 'x' holds a NaN.*exclude='x'"),
    "zeros": ({"x": ZEROS}, {"exclude": ["y", "h"]}, "no activation can be quantized"),
    "no calibration": (None, {}, "by the ranges that samples show; give some as calibration="),
    "method": ([], {"method": "mean"}, "there is no method 'mean'; it can be minmax, percentile, entropy"),
    "percentile": ([], {"percentile": 0.999}, "percentile is above 50 and at most 100"),
    "bins": ([], {"bins": 100}, "bins is an even number from 128 to 8192, not 100"),
    "type of activations": ([], {"activations": "int4"}, "activations can be int8 or uint8, not 'int4'"),
    "type of weights": ([], {"scheme": "int4"}, "with activations weights are int8, not int4"),
    "blocks": ([], {"scheme": {"type": "int8", "block_size": 32}}, "block_size is of weights alone"),
    "target": ([], {"target": "onnxruntime"}, "leave target out"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given, options, text = MISTAKES[name]
    exclude = options.pop("exclude", None) if (options := dict(options)) else None
    scheme = {"type": "int8", "exclude": exclude} if exclude else None
    with pytest.raises((ValueError, FileNotFoundError), match=text):
        quantized(built(ROWS["relu"]), given, **{"scheme": scheme, **options})


def test_a_file_that_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy is not an .npz or .npy file of plain arrays: .*'\|O'.*write"):
        quantized(built(ROWS["conv"]), path)


@pytest.mark.parametrize(("opset", "channels", "text"), [(9, False, "needs opset 10"), (12, True, "needs opset 13")])
def test_an_opset_without_the_operators(opset: int, channels: bool, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        quantized(built(ROWS["conv"], opset), feeds(ROWS["conv"]), per_channel=channels)


@pytest.mark.parametrize("bad", ["w", "b"])
def test_a_weight_without_a_scale(bad: str) -> None:
    row = ROWS["gemm"]
    values = {"w": np.ones((24, 16), np.float32), "b": np.ones(24, np.float32)}
    values[bad].flat[0] = np.nan
    given = [{"x": np.zeros((5, 16), np.float32)}]
    with pytest.raises(ValueError, match="'y' holds a NaN"):
        quantized(built(Row(row.shape, row.nodes, values)), given)
    with pytest.raises(ValueError, match=f"'{bad}'.*holds a NaN or an infinity.*exclude='{bad}'"):
        given[0]["x"][:] = 1
        quantized(built(Row(row.shape, row.nodes, values)), given, scheme={"type": "int8", "exclude": "y"})


def test_patterns() -> None:
    row = behind(("Conv", "h v", "y", {}), v=(2, 4, 3, 3))
    everything = set(numbers(quantized(built(row), feeds(row))))
    assert everything == {"x", "w", "b", "h", "v", "y"}
    for pattern, left in {"v": {"v", "y"}, "n1": {"v", "y"}, "h": {"h", "v", "y"}, "b": {"b"}}.items():
        found = set(numbers(quantized(built(row), feeds(row), scheme={"type": "int8", "exclude": pattern})))
        assert found == everything - left, pattern
    assert set(numbers(quantized(built(row), feeds(row), scheme={"type": "int8", "include": "n1"}))) == {"h", "v", "y"}


# ---- large weights


def test_memory_is_that_of_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 64 MB, mapped, which the model's run reads through a file, too."""
    monkeypatch.setattr(codes, "PIECE", 1 << 18)
    count = 4096 * 4096

    def lines() -> Iterator[bytes]:
        for at in range(0, count, 1 << 16):
            yield (np.arange(at, at + (1 << 16)) / count - 0.5).astype(np.float32).tobytes()

    model = built(Row((1, 4096), [("MatMul", "x w", "y", {})], {"w": (4096, 4)}))
    assert model.graph is not None
    tensor, output = model.graph.initializer[0], model.graph.output[0]
    tensor.dims, tensor.raw_data = [4096, 4096], ps.LazyPayload(4 * count, lines)
    model.graph.output[0] = helper.make_tensor_value_info(output.name or "", 1, [1, 4096])
    ps.save(model, tmp_path / "m.onnx", external_data=True)
    given = [{"x": np.ones((1, 4096), np.float32)}]
    tracemalloc.start()
    for channels in (False, True):
        made = ps.quantization.quantize(
            ps.load(tmp_path / "m.onnx"),
            {"type": "int8", "threads": 2},
            activations="uint8",
            calibration=given,
            per_channel=channels,
        )
        ps.save(made, tmp_path / "q.onnx", external_data=True, overwrite=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    assert count < (tmp_path / "q.onnx.data").stat().st_size < count + (1 << 16)
