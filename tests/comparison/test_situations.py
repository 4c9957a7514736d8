"""Where no single node is wrong: small changes, ties, captures that differ from the model, quantization, rounding.

Each model is small and has the situation by construction.  What is named, and what is not, is the test.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proto_schema as ps
import purexport
from purexport.comparison import compared, conditioning, file_values
from purexport.comparison.measures import measures, numbers_table


def with_weights(seed: int, kind: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind().eval()


def data_of(model: nn.Module, *args: Tensor, **options: Any) -> bytes:
    return bytes(purexport.export(model, args, **options).model_proto.SerializeToString())


def changed(data: bytes, change: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> bytes:
    """The file with other numbers in its initializers of floats."""
    model = ps.loads(data)
    for tensor in model.graph.initializer:
        array = np.array(ps.numpy_helper.to_array(tensor))
        if array.dtype.kind == "f":
            tensor.CopyFrom(
                ps.numpy_helper.from_array(change(tensor.name or "", array).astype(array.dtype), tensor.name)
            )
    return bytes(model.SerializeToString())


class Deep(nn.Module):
    """Layers, and an end that makes small differences large."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) * 1.5
        return torch.exp(x * 12)


DEEP, X = with_weights(0, Deep), torch.linspace(-2, 2, 64).sin().reshape(4, 16)


def a_little(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All weights by rounding, one by a little."""
    made = array * np.float32(1 + 3e-7)
    return made * np.float32(1 + 4e-4) if "layers.3.weight" in name else made


def test_one_weight_that_changed_a_little_among_rounding() -> None:
    """All weights differ, and the first of them is not the one to blame."""
    data = data_of(DEEP, X)
    for model in (DEEP, data):
        found = purexport.compare(model, (X,), changed(data, a_little))
        assert (found.node_name, found.at_fault) == ("layers.3/Gemm", "file"), found.as_text()
        assert "its input 'layers.3.weight', a tensor of the file, is " in found.why
    bounds = {"rtol": 1e-2, "atol": 100.0}
    exponent = changed(data, lambda name, array: array * np.float32(1 + 4e-5) if "layers.2.weight" in name else array)
    assert purexport.compare(DEEP, (X,), exponent, **bounds)
    found = purexport.compare(DEEP, (X,), exponent, rtol=2e-4, atol=0.0)
    assert (found.node_name, found.at_fault) == ("layers.2/Gemm", "file"), found.as_text()
    assert "computed alone on the values of torch, the result 'layers.2/Gemm_output' is off by " in found.why
    assert found.torchs.startswith("aten::linear at layers.2 (")


@pytest.mark.full
def test_the_same_in_a_file_of_another_exporter() -> None:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(DEEP, (X,), buffer, dynamo=False)  # type: ignore[arg-type]
    found = purexport.compare(DEEP, (X,), changed(buffer.getvalue(), a_little))
    assert (found.node_name, found.at_fault) == ("/layers.3/Gemm", "file"), found.as_text()
    assert found.torchs.startswith("aten::linear at layers.3 (")


class Best(nn.Module):
    """The rows with the best scores, chosen by an operator."""

    def __init__(self, choose: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.bias, self.choose = nn.Parameter(torch.zeros(6)), choose

    def forward(self, x: Tensor) -> Tensor:
        index = self.choose(x[..., 0].clamp(1, 1) + self.bias)
        return torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, 4))


CHOICES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "topk": (lambda scores: torch.topk(scores, 3).indices, "TopK"),
    "sort": (lambda scores: torch.sort(scores, stable=True).indices, "TopK"),
    "argmax": (lambda scores: scores.argmax(1, keepdim=True), "ArgMax"),
}


@pytest.mark.parametrize("name", list(CHOICES))
@pytest.mark.parametrize("files", [False, True])
def test_scores_that_tie(name: str, files: bool) -> None:
    """The bias of one row is larger by a rounding, so it is chosen in the file."""
    choose, operator = CHOICES[name]
    model, x = Best(choose).eval(), torch.linspace(-3, 3, 48).cos().reshape(2, 6, 4)
    data = data_of(model, x)
    for more, at_fault, op_type in ((2e-7, "ties", operator), (0.1, "file", "Add")):
        bias = np.float32(more) * (np.arange(6) == 4)
        made = changed(data, lambda name, array, bias=bias: array + bias if name == "bias" else array)
        found = purexport.compare(data if files else model, (x,), made)
        assert (found.at_fault, found.op_type) == (at_fault, op_type), found.as_text()
        assert found.reproducible
        assert ("Either choice is right" in found.why) is (at_fault == "ties")


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.topk(x, 3).indices


def test_a_choice_that_no_tie_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are far apart, and the runtime says them in another order."""
    x = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    real, outputs = file_values.all_values, file_values.outputs_of

    def turned(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value if value.is_floating_point() else value.flip(-1) for name, value in values.items()}

    def wrong(*given: Any, **more: Any) -> Any:
        found = real(*given, **more)
        found.values = turned(found.values)
        return found

    def wrong_outputs(*given: Any, **more: Any) -> Any:
        found = outputs(*given, **more)
        found.values = turned(found.values)
        return found

    monkeypatch.setattr(compared, "all_values", wrong)
    monkeypatch.setattr(compared, "outputs_of", wrong_outputs)
    found = purexport.compare(Chosen(), (x,), data_of(Chosen(), x))
    assert (found.at_fault, found.op_type) == ("runtime", "TopK"), found.as_text()


class Asks(nn.Module):
    """A block whose own code depends on who runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        captured = torch.jit.is_tracing() or torch.compiler.is_compiling()
        return self.inner(x) * (2 if captured else 3)


class Masked(nn.Module):
    """A model that makes a mask otherwise while it is captured, and gives it to its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Weighs()

    def forward(self, x: Tensor) -> Tensor:
        captured = torch.jit.is_tracing() or torch.compiler.is_compiling()
        mask = torch.ones(16) if captured else torch.linspace(0, 1, 16)
        return self.block(x, mask)


class Weighs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.inner(torch.relu(x) * mask)


CAPTURES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "own code": (
        lambda: nn.Sequential(nn.Linear(16, 16), Asks(), nn.Linear(16, 4)),
        "from module '1' (Asks) on, at ",
    ),
    "what a part is given": (
        lambda: nn.Sequential(nn.Linear(16, 16), Masked(), nn.Linear(16, 4)),
        "from module '1' (Masked) on, before its part '1.block'",
    ),
    "random numbers": (
        lambda: nn.Sequential(nn.Linear(16, 16), Draws()),
        "two calls of the model on the same arguments",
    ),
}


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


@pytest.mark.parametrize("name", list(CAPTURES))
@pytest.mark.parametrize("route", ["trace", pytest.param("export", marks=pytest.mark.full)])
def test_a_capture_that_differs_from_the_model(name: str, route: str) -> None:
    kind, text = CAPTURES[name]
    model = with_weights(0, kind)
    found = purexport.compare(model, (X,), data_of(model, X, capture=route))
    assert (found.at_fault, found.node) == ("capture", None), found.as_text()
    assert text in found.why


def quantized(scheme: dict[str, Any], target: str = "onnx") -> ps.ModelProto:
    return ps.quantization.quantize(ps.loads(data_of(DEEP, X)), {"smallest": 1, **scheme}, target=target)  # type: ignore[arg-type]


QUANTIZED: dict[str, Callable[[], ps.ModelProto]] = {
    "codes": lambda: quantized({"type": "int4", "block_size": 16}),
    "products of codes": lambda: quantized({"type": "int8", "block_size": 16}, "onnxruntime"),
    "casts": lambda: quantized({"type": "bfloat16"}),
    "activations": lambda: ps.quantization.quantize(
        ps.loads(data_of(DEEP, X)), activations="uint8", calibration=[{"x": X.numpy()}]
    ),
}


@pytest.mark.parametrize(
    "name", ["codes", *(pytest.param(name, marks=pytest.mark.full) for name in QUANTIZED if name != "codes")]
)
def test_quantized_files(name: str) -> None:
    """The part that costs most is named, and what the results cost is told in numbers."""
    made = QUANTIZED[name]()
    for model in (DEEP, data_of(DEEP, X)):
        found = purexport.compare(model, (X,), made, rtol=1e-4, atol=1e-6)
        assert found.at_fault == "quantization", found.as_text()
        assert "it works with numbers in fewer bits" in found.why and "is off by " in found.why
        (output,) = found.outputs
        assert output.measures is not None
        assert 0 < output.measures.snr < 70 and 0.8 < output.measures.cosine < 1
    if name in ("codes", "casts"):
        damaged = changed(bytes(made.SerializeToString()), lambda name, a: a * 3 if name == "layers.2.bias" else a)
        found = purexport.compare(DEEP, (X,), damaged)
        assert (found.at_fault, found.node_name) == ("file", "layers.2/Gemm"), found.as_text()
        assert "its input 'layers.2.bias', a tensor of the file, is " in found.why


def test_rounding_that_adds_up_blames_nobody() -> None:
    found = purexport.compare(DEEP, (X,), data_of(DEEP, X), rtol=1e-9, atol=1e-12)
    assert (found.at_fault, found.node) == ("rounding", None), found.as_text()
    assert found.why.startswith("no node stands out: ")


class Steep(nn.Module):
    """A unit in the last place of the input becomes one in the third digit of the result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.sin(x) * 1e5)


STEEP_X = torch.linspace(0.1, 1.4, 500).reshape(20, 25)


def test_what_rounding_of_the_inputs_explains_is_no_fault() -> None:
    data = data_of(Steep(), STEEP_X)
    for model in (Steep(), data):
        found = purexport.compare(model, (STEEP_X,), data)
        assert not found.outputs[0].difference.close and found.outputs[0].difference.wrong > 10
        assert found and found.explained is not None and found.explained < 4
        assert (found.at_fault, found.as_dict()["explained"]) == ("rounding", found.explained)
        assert "is within what rounding of the inputs explains, not within the tolerance: at (" in str(found)
    assert not purexport.compare(Steep(), (STEEP_X,), data, rtol=1e-3)  # bounds that were given are kept


@pytest.mark.parametrize(
    ("model", "x"), [(Steep(), STEEP_X), (with_weights(1, lambda: nn.Linear(16, 4)), X)], ids=["steep", "flat"]
)
def test_a_fault_of_the_size_of_rounding_is_still_seen(
    model: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the runtime, everywhere, and in a tensor of the file."""
    data = data_of(model, x)
    assert purexport.compare(model, (x,), data)
    other = changed(data, lambda _, array: array * np.float32(1.004) if array.dtype == np.float32 else array)
    found = purexport.compare(model, (x,), other)
    assert not found and found.at_fault == "file" and found.explained is None
    real = file_values.outputs_of

    def wrong(file: ps.ModelProto, feed: Any, by: str = "", level: str = "", budget: Any = None) -> Any:
        found = real(file, feed, by, level, budget)
        found.values = {name: value + 0.004 for name, value in found.values.items()}
        return found

    monkeypatch.setattr(compared, "outputs_of", wrong)
    monkeypatch.setattr(conditioning, "outputs_of", wrong)
    found = purexport.compare(model, (x,), data)
    assert not found and found.explained is None


def test_a_comparison_past_the_budget_says_so() -> None:
    data = data_of(DEEP, X)
    assert purexport.compare(data, (X,), data, budget=1 << 24)
    with pytest.raises(purexport.ExportError, match=r"the first file cannot be run: .* is past the budget: .*--budget"):
        purexport.compare(data, (X,), data, budget=10_000)


def test_a_runtime_is_blamed_only_with_our_evaluator_and_torch_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All levels of the runtime are wrong, and each node alone is right."""
    model = with_weights(1, lambda: nn.Linear(16, 4))
    data, other = data_of(model, X), changed(data_of(model, X), lambda _, array: array + np.float32(0.25))
    real = file_values.outputs_of

    def wrong(file: ps.ModelProto, feed: Any, by: str = "", level: str = "", budget: Any = None) -> Any:
        found = real(file, feed, by, level, budget)
        if by != file_values.EVALUATOR:
            found.values = {name: value + 1 for name, value in found.values.items()}
        return found

    monkeypatch.setattr(compared, "outputs_of", wrong)
    found = purexport.compare(model, (X,), data)
    assert found.at_fault == "runtime"
    assert found.why.endswith("every node alone the right one, and our evaluator and torch agree on it")
    found = purexport.compare(data, (X,), data)
    assert found.at_fault == "disputed" and "torch" not in found.why
    with monkeypatch.context() as patched:
        patched.setattr(file_values, "EVALUATOR", "nobody")  # our evaluator is wrong, too
        assert purexport.compare(model, (X,), data).at_fault == "rounding"
    monkeypatch.setattr(compared, "outputs_of", real)
    assert purexport.compare(model, (X,), other).at_fault == "file"


def test_names_of_inputs() -> None:
    data = data_of(DEEP, X)
    with pytest.raises(ValueError, match=r"there is no input 'xx'; the inputs are 'x'; did you mean 'x'\?"):
        purexport.compare(data, {"xx": X}, data)
    with pytest.raises(ValueError, match="the input 'x' is missing; the inputs are 'x'"):
        purexport.compare(data, {}, data)


MEASURED = {
    "equal": ([1.0, 2.0], [1.0, 2.0], (0.0, 0.0, 0.0, 1.0, math.inf)),
    "a tenth": ([1.1, 0.0], [1.0, 0.0], (0.1, 0.05, 0.1, 1.0, 20.0)),
    "turned": ([-1.0, 0.0], [1.0, 0.0], (2.0, 1.0, 2.0, -1.0, -10 * math.log10(4))),
    "of nothing": ([1.0, 0.0], [0.0, 0.0], (1.0, 0.5, math.inf, 0.0, -math.inf)),
    "the same NaN": ([math.nan, 1.0], [math.nan, 1.0], (0.0, 0.0, 0.0, 1.0, math.inf)),
    "another NaN": ([math.nan, 1.0], [1.0, 1.0], (math.inf, math.inf, math.inf, 0.0, -math.inf)),
}


@pytest.mark.parametrize("name", list(MEASURED))
def test_measures(name: str) -> None:
    mine, theirs, wanted = MEASURED[name]
    found = measures(torch.tensor(mine, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64))
    assert found is not None
    assert tuple(found.as_dict().values()) == pytest.approx(wanted, rel=1e-6)
    assert measures(torch.zeros(2), torch.zeros(3)) is None


def test_the_table_shows_the_worst_of_many_outputs() -> None:
    rows = []
    for place in range(30):
        found = measures(torch.full((3,), 1 + 0.001 * (30 - place)), torch.ones(3))
        assert found is not None
        rows.append((f"out{place}", found))
    lines = numbers_table(rows)
    assert len(lines) == 21 and lines[1].startswith("out0 ") and lines[-1] == "and 11 outputs more, whose SNR is higher"
    assert numbers_table([]) == []
