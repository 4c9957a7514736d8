"""`purexport.capture`: the model runs once, and each file is that of an export of its own, byte for byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purexport
from tests.harness import check_file, run_ort

OPSETS = (9, 11, 13, 17, 20, 23, 26)
TARGETS = ("onnx", "onnxruntime")
X = torch.linspace(-1, 1, 12).reshape(3, 4)


RUNS: list[int] = []


class Counted(nn.Module):
    """Counts how often it runs, in a list that an export does not put back."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor, *more: Any) -> Any:
        RUNS.append(1)
        return self.function(self.inner(x), *more)


class Writes(nn.Module):
    """A buffer that is written to, and a squeeze of an axis that may be 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += x.sum(0)
        return x[:1].squeeze(0) * self.seen


@torch.jit.script
def chunks(x: torch.Tensor, n: int) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for index in range(n):
        found.append(x[index] * 2)
    return found


@torch.jit.script
def long(x: torch.Tensor) -> torch.Tensor:
    """Older opsets carry no lists in a loop, so that its steps are written out."""
    found: list[torch.Tensor] = []
    for index in range(40):
        found.append(x[index % 3] * index)
    return torch.stack(found)


BATCH: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}

# name: (model, arguments, options of the capture, opsets that take it)
ROWS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = {
    "static": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)), (X,), {}, OPSETS),
    "batch": (lambda: Counted(lambda x: x.flatten(1).softmax(-1)), (X,), BATCH, OPSETS),
    "by torch.export": (lambda: Counted(torch.relu), (X,), {**BATCH, "capture": "export"}, OPSETS),
    "decomposed": (lambda: lambda x: torch.special.i0e(x) + torch.logaddexp2(x, x), (X,), {}, OPSETS),
    "any size": (lambda: lambda x: x.reshape(-1).cumsum(0), (X,), {"dynamic": True}, OPSETS[1:]),
    "a number": (lambda: lambda x, n: x * n, (X, 3), {}, OPSETS),
    "a number that is a size": (lambda: lambda x, n: x.expand(n, 3, 4) + n, (X, 3), {}, OPSETS),
    "a buffer": (Writes, (X,), {**BATCH, "mutated_state": "io"}, OPSETS),
    "a script": (lambda: chunks, (X, torch.tensor(3)), {}, (13, 20)),
    "a long script": (lambda: long, (X,), {}, (11, 20)),
    "attention": (
        lambda: lambda q: nn.functional.scaled_dot_product_attention(q, q, q),
        (torch.randn(1, 2, 3, 8),),
        {},
        (13, 20, 23),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.full)], ids=["two opsets", "every opset"]
)
@pytest.mark.parametrize("name", ROWS)
def test_each_file_is_that_of_an_export(name: str, every: bool) -> None:
    """In an order in which what one lowering learnt would show in the next."""
    make, args, options, opsets = ROWS[name]
    opsets = opsets if every else (opsets[0], opsets[-1])
    torch.manual_seed(0)
    model = make()
    captured = purexport.capture(model, args, **options)
    for opset in (*opsets[::-1], opsets[0]):
        for target in TARGETS:
            program = captured.to_onnx(opset_version=opset, target=target)
            alone = purexport.export(model, args, opset_version=opset, target=target, **options)
            data = program.model_proto.SerializeToString()
            assert data == alone.model_proto.SerializeToString(), (opset, target)
            assert program.report == alone.report
    check_file(captured.to_onnx(opset_version=opsets[-1]).model_proto.SerializeToString(), opsets[-1])


@pytest.mark.parametrize("route", ["trace", "export"])
def test_the_model_runs_once(route: str) -> None:
    RUNS.clear()
    model = Counted(lambda x: x.relu())
    captured = purexport.capture(model, (X,), capture=route, **BATCH)
    runs = len(RUNS)
    for opset in OPSETS:
        for target in TARGETS:
            captured.to_onnx(opset_version=opset, target=target)
    assert 0 < len(RUNS) == runs
    assert (captured.route, captured.reason) == (route, "asked for")


def test_a_refusal_is_remembered() -> None:
    """A number that the model must know is asked for once."""
    model = Counted(lambda x, n: x.expand(n, 3, 4))
    captured = purexport.capture(model, (X, 3))
    captured.to_onnx()
    runs = len(RUNS)
    captured.to_onnx(opset_version=13)
    assert 0 < len(RUNS) == runs


def test_parameters_are_those_at_the_time_of_writing() -> None:
    model = nn.Linear(4, 4)
    captured = purexport.capture(model, (X,))
    with torch.no_grad():
        model.weight.zero_()
        model.bias.fill_(2)
    (found,) = run_ort(captured.to_onnx().model_proto.SerializeToString(), [X.numpy()])
    assert (found == 2).all()


def test_it_is_written_verified_and_quantized(tmp_path: Any) -> None:
    captured = purexport.capture(nn.Linear(64, 64), (torch.randn(2, 64),))
    captured.to_onnx(tmp_path / "m.onnx", 17, verify=True)
    buffer = io.BytesIO()
    captured.to_onnx(buffer, quantize="int8", verify=True, metadata=True)
    assert (tmp_path / "m.onnx").stat().st_size > len(buffer.getvalue())


def test_what_people_see() -> None:
    captured = purexport.capture(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (X,))
    assert repr(captured) == "CapturedModel(Sequential, by trace: 1 inputs, 2 calls)"
    assert "aten::linear" in str(captured) and "aten::relu" in str(captured)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: purexport.capture(nn.Linear(3, 4), (X,)), purexport.ExportError, "does not run"),
    (lambda: purexport.capture(torch.relu, (X,), capture="guess"), ValueError, "'trace', 'export'"),
    (lambda: purexport.capture(torch.relu, (X,), input_names=["x"] * 2), ValueError, "differ"),
    (lambda: purexport.capture(torch.relu, (X,)).to_onnx(opset_version=8), ValueError, "opset_version=8"),
    (lambda: purexport.capture(torch.relu, (X,)).to_onnx(target="tvm"), ValueError, "is not a target"),
    (
        lambda: purexport.capture(torch.relu, (X,)).to_onnx(input_names=["x"]),
        TypeError,
        "'input_names' belongs to the capture; give it to purexport.capture",
    ),
    (lambda: purexport.capture(torch.relu, (X,)).to_onnx(meta_data=True), TypeError, "did you mean 'metadata'"),
    (
        lambda: purexport.capture(chunks, (X, torch.tensor(3))).to_onnx(opset_version=9),
        purexport.UnsupportedOperatorError,
        "test_captured.py:[0-9]+.*needs opset 11",
    ),
]


@pytest.mark.parametrize(("ask", "error", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_refused(ask: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ask()


def test_every_option_of_export_belongs_to_one_of_the_two() -> None:
    import dataclasses
    import inspect

    from purexport.driver import OF_THE_CAPTURE, CapturedModel
    from purexport.options import Options

    taken = set(inspect.signature(purexport.capture).parameters) - {"model", "args", "kwargs"}
    assert taken == set(OF_THE_CAPTURE)
    explicit = set(inspect.signature(CapturedModel.to_onnx).parameters) - {"self", "f", "options"}
    assert explicit <= {field.name for field in dataclasses.fields(Options)} - taken
