"""How integers are found: each algorithm by what it makes less than the nearest numbers do, and beside its definition.

The data is skewed as that of trained models is: few weights are large, few inputs are large, and inputs go together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.quantization import Scheme, dequantized, inputs, measured, planned, quantize
from proto_schema.quantization.codes import compensated, integers, searching, streams
from proto_schema.sensitivity.measuring import outputs_differ
from purexport.cli.main import main

Array = np.ndarray[Any, Any]
K, N = 72, 40  # the last block of 16 or 32 is not whole


def skewed(count: int, seed: int) -> Array:
    """Inputs of which few elements are large, and that go together."""
    made, random = np.random.default_rng(1), np.random.default_rng(seed)
    basis, sizes = made.normal(size=(K // 6, K)), np.exp(made.normal(size=K) * 1.5)
    shared = random.normal(size=(count, K // 6)) @ basis
    return ((shared + random.normal(size=(count, K))) * sizes).astype(np.float32)


def weights(*shape: int, seed: int = 2) -> Array:
    return (np.random.default_rng(seed).standard_t(4, shape) / 8).astype(np.float32)


def network(form: str = "MatMul", dtype: Any = np.float32) -> ps.ModelProto:
    """Two products that read the input, as queries and keys do, and one behind them."""
    first, second, third = (weights(*shape, seed=seed) for seed, shape in enumerate([(K, N), (K, N), (N, K)], 2))
    turned = form == "Gemm"
    held = {"a": first, "b": second, "c": third}
    tensors = [
        ps.numpy_helper.from_array((w.T if turned else w).astype(dtype).copy(), name) for name, w in held.items()
    ]
    more = {"transB": 1} if turned else {}
    nodes = [
        helper.make_node(form, ["x", "a"], ["p"], **more),
        helper.make_node(form, ["x", "b"], ["q"], **more),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node(form, ["t", "c"], ["y"], **more),
    ]
    kind = tensors[0].data_type or 1
    ends = [helper.make_tensor_value_info(name, kind, ["n", K]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


SAMPLES = [{"x": skewed(64, seed)} for seed in range(4)]
OTHERS = [{"x": skewed(64, 99)}]
EVEN = [{"x": np.random.default_rng(5).normal(size=(64, K)).astype(np.float32)}]  # for those that see weights alone

# scheme, target, form, and the most that the error may be, as a share of that of the nearest numbers
BETTER: list[tuple[dict[str, Any], Any, str, float]] = [
    ({"algorithm": "gptq", "type": "int4", "block_size": 16}, "onnx", "MatMul", 0.8),
    ({"algorithm": "gptq", "type": "uint4"}, "onnxruntime", "Gemm", 0.8),
    ({"algorithm": "awq", "type": "int4", "block_size": 16}, "onnxruntime", "MatMul", 0.8),
    ({"algorithm": "awq", "type": "int8"}, "onnx", "MatMul", 0.8),
    ({"algorithm": "k-quant", "type": "uint4"}, "onnxruntime", "MatMul", 0.97),
    ({"algorithm": "hqq", "type": "int4", "block_size": 0}, "onnx", "Gemm", 0.99),
    ({"algorithm": "hqq", "type": "uint2"}, "onnxruntime", "MatMul", 0.9),
    ({"algorithm": "hqq", "type": "uint4"}, "onnxruntime", "Gemm", 0.92),
]


@pytest.mark.parametrize(("scheme", "target", "form", "share"), BETTER)
def test_results_on_other_data(scheme: dict[str, Any], target: Any, form: str, share: float) -> None:
    """The error of the results is less on data that no sample has, and the file reads the codes as they are meant."""
    model, scheme = network(form), {**scheme, "smallest": 1}
    samples, others = (SAMPLES, OTHERS) if scheme["algorithm"] in ("gptq", "awq") else (None, EVEN)
    made = quantize(model, scheme, target=target, calibration=samples)
    meant = dequantized(model, scheme, target=target, calibration=samples)
    nearest = dequantized(model, {**scheme, "algorithm": "rtn"}, target=target)
    assert outputs_differ(model, meant, others) < share * outputs_differ(model, nearest, others)
    if "2" not in scheme["type"]:  # ONNX Runtime rounds what codes of 2 bits are multiplied with
        assert outputs_differ(meant, made, others) < 1e-5


def test_inputs_are_balanced_once() -> None:
    """Two weights that read an input share its factors, and there is one product more for each input."""
    made = quantize(network(), {"type": "int4", "algorithm": "awq", "smallest": 1}, calibration=SAMPLES)
    assert made.graph is not None
    nodes = [(node.op_type, list(node.input)) for node in made.graph.node if node.op_type != "DequantizeLinear"]
    assert nodes[:3] == [
        ("Mul", ["x", "x_balance"]),
        ("MatMul", ["x_balanced", "a"]),
        ("MatMul", ["x_balanced", "b"]),
    ]
    assert [kind for kind, _ in nodes].count("Mul") == 2
    ps.checker.check_model(made)


def by_definition(weight: Array, moments: Array, bits: int) -> Array:
    """GPTQ as its paper derives it: after each element, those behind it move by the inverse of what is left."""
    left = weight.astype(np.float64)
    damped = moments.astype(np.float64) + 0.01 * np.diag(moments).mean() * np.eye(len(moments))
    scales = np.abs(weight).max(0) / (2 ** (bits - 1) - 1)
    meant = np.empty_like(left)
    for row in range(len(left)):
        inverse = np.linalg.inv(damped[row:, row:])
        meant[row] = np.clip(np.rint(left[row] / scales), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scales
        left[row:] -= inverse[:, :1] / inverse[0, 0] * (left[row] - meant[row])
    return meant


def test_errors_are_made_up_for_as_the_paper_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensated, "_STEP", 16)  # several steps
    found = np.concatenate([feed["x"] for feed in SAMPLES])
    weight, moments = weights(K, 8), found.T @ found
    rules = integers.Rules(integers.Grid(8, True), "even", False, lambda scales: scales)
    blocks = compensated.compensated(weight[None].copy(), 1, compensated.spread_of(moments), rules, None)
    mine = integers.numbers(blocks.codes[0], rules.grid) * blocks.scales
    apart = mine - by_definition(weight, moments, 8)
    assert (np.abs(apart) > 1e-3 * blocks.scales).mean() < 0.01  # of ties that float32 decides


@pytest.mark.parametrize("name", ["k-quant", "hqq", "clip"])
@pytest.mark.parametrize("zero_points", [False, True])
def test_searches_make_no_block_worse(name: str, zero_points: bool) -> None:
    values = weights(8, 32, 6)
    values[0, :, 0], values[1, :, 1] = 0, 2.5  # blocks of one number
    rules = integers.Rules(integers.Grid(4, not zero_points), "outside", zero_points, lambda scales: scales)
    errors: dict[str, Any] = {
        "clip": np.square,
        "k-quant": lambda apart: (np.sqrt(np.square(values).mean(1, keepdims=True)) + np.abs(values)) * apart**2,
        "hqq": lambda apart: np.abs(apart) ** 0.7,
    }
    sums = []
    for search in (None, searching.SEARCHES[name]):
        found = integers.in_blocks(values.copy(), 1, rules, search)
        meant = (integers.numbers(found.codes, rules.grid) - found.zeros[:, None]) * found.scales[:, None]
        sums.append(errors[name](meant - values).sum(1))
    assert (sums[1] <= sums[0] * 1.0001).all() and sums[1].sum() < 0.99 * sums[0].sum()


@pytest.mark.parametrize("algorithm", ["gptq", "awq"])
def test_bytes_do_not_depend_on_pieces_and_groups(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on how many inputs are looked at together, which is one at a time in a large model."""
    scheme = {"type": "int4", "algorithm": algorithm, "smallest": 1}
    found = set()
    for piece, together in ((1 << 18, 1 << 30), (1 << 9, 1)):
        monkeypatch.setattr(streams, "PIECE", piece)
        monkeypatch.setattr(inputs, "_TOGETHER", together)
        found.add(ps.dumps(quantize(network("Gemm"), scheme, target="onnxruntime", calibration=SAMPLES)))
    assert len(found) == 1


def test_half_precision() -> None:
    """Inputs of float16 are looked at, too."""
    model = network(dtype=np.float16)
    samples = [{"x": feed["x"].astype(np.float16) / 8} for feed in SAMPLES]
    rows = [{"type": "int8", "algorithm": name, "smallest": 1} for name in ("rtn", "gptq")]
    given = (None, samples)
    errors = [measured(model, row, calibration=samples).entries[0] for row, samples in zip(rows, given, strict=True)]
    assert [entry.algorithm for entry in errors] == ["rtn", "gptq"]
    assert errors[0].error != errors[1].error


def test_weights_that_are_rounded_to_the_nearest() -> None:
    """Algorithms by samples are for products of one value; the report says what the others get."""
    nodes = [
        helper.make_node("Gemm", ["x", "turned"], ["p"], transA=1),
        helper.make_node("MatMul", ["x", "twice"], ["q"]),
        helper.make_node("MatMul", ["q", "twice"], ["r"]),
        helper.make_node("MatMul", ["r", "stack"], ["s"]),
        helper.make_node("MatMul", ["r", "plain"], ["t"]),
    ]
    held = {name: weights(16, 16, seed=3) for name in ("turned", "twice", "plain")} | {"stack": weights(2, 16, 16)}
    tensors = [ps.numpy_helper.from_array(value, name) for name, value in held.items()]
    made = [helper.make_tensor_value_info(name, 1, None) for name in "pst"]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [16, 16])], made, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    report = planned(model, {"type": "int8", "algorithm": "gptq", "smallest": 1})
    assert {entry.name: entry.algorithm for entry in report.entries} == {
        **dict.fromkeys(("turned", "twice", "stack"), "rtn"),
        "plain": "gptq",
    }
    assert next(line for line in report.lines() if "by gptq" in line).startswith("plain ")


MISTAKES: list[tuple[dict[str, Any], Any, str]] = [
    ({"algorithm": "best"}, None, "there is no algorithm 'best'; it can be rtn, k-quant, hqq, gptq, awq"),
    ({"type": "nvfp4", "algorithm": "gptq"}, SAMPLES, "nvfp4 has no algorithm 'gptq', which is of integers"),
    ({"algorithm": "hqq", "clip": True}, None, "searches for ranges itself; leave clip out"),
    ({"algorithm": "awq"}, None, "'awq' rounds by samples of the inputs; give some as calibration="),
    (
        {"algorithm": "hqq"},
        SAMPLES,
        "calibration is of activations; say activations='uint8' or 'int8', too, or algorithm=",
    ),
    ({"algorithm": "gptq"}, [{"z": SAMPLES[0]["x"]}], "the model has no input 'z'"),
    ({"algorithm": "gptq"}, [], "there are no samples"),
    ({"algorithm": "awq"}, [{"x": SAMPLES[0]["x"] * np.inf}], "sample 0: the numbers of 'x' hold a NaN or an infinity"),
]


@pytest.mark.parametrize(("scheme", "samples", "text"), MISTAKES)
def test_mistakes(scheme: dict[str, Any], samples: Any, text: str) -> None:
    with pytest.raises(ValueError) as error, np.errstate(invalid="ignore"):
        quantize(network(), {"smallest": 1, **scheme}, calibration=samples)
    assert text in str(error.value)


def test_an_input_that_no_sample_shows() -> None:
    """A value that is no tensor of floats when the model runs has no numbers to look at."""
    seen = inputs.Inputs(network(), SAMPLES, {"x": K, "y": N}, moments=False)
    assert seen.of("x").count == 256
    with pytest.raises(ValueError, match="no sample shows its input 'y' as float32 or float16"):
        seen.of("y")  # its last axis has another size


def test_rows_that_are_kept_are_spread_over_all() -> None:
    seen = inputs.Seen(None, np.zeros(1, np.float32), [])
    for first in range(0, 3000, 100):
        seen.add(np.arange(first, first + 100, dtype=np.float32)[:, None])
    kept = [float(row[0]) for row in seen.rows]
    assert kept == [16.0 * place for place in range(188)] and seen.magnitudes[0] == sum(range(3000))


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.save(network(), "m.onnx")
    Path("samples").mkdir()
    for number, feed in enumerate(SAMPLES):
        np.save(f"samples/{number}.npy", feed["x"])
    words = ["quantize", "m.onnx", "--type", "int4", "--algorithm"]
    assert main([*words, "gptq", "-o", "q.onnx", "--calibrate", "samples"]) == 0
    assert capsys.readouterr().out.count("DequantizeLinear by gptq") == 3
    assert ps.dumps(ps.load("q.onnx")) == ps.dumps(
        quantize(network(), {"type": "int4", "algorithm": "gptq"}, calibration="samples")
    )
    assert main([*words, "hqq", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["algorithm"] == "hqq"
    for more, text in (
        (["awq"], "--algorithm awq needs samples: --calibrate FOLDER"),
        (["best"], "there is no --algorithm 'best'"),
        (["hqq", "--clip"], "leave --clip out"),
        (["gptq", "--plan", "p.json"], "--algorithm gptq does not go with a plan; hqq and k-quant do"),
    ):
        Path("p.json").write_text('{"weights": {}}')
        assert main([*words[:2], *words[4:], *more, "-o", "w.onnx"]) == 2
        assert text in " ".join(capsys.readouterr().err.split())


def test_scheme_is_a_value() -> None:
    assert Scheme.of({"algorithm": "awq"}).needs_samples and not Scheme.of({"algorithm": "hqq"}).needs_samples
