"""`quantize=` of an export: the file runs, its weights are few bits, and `verify` compares it with the usual bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from purexport.cli.main import main
from tests.tiers import in_turn


class Net(nn.Module):
    """A table, a convolution's rival in size, and two products, of which one is of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 64)
        self.first = nn.Linear(64, 96)
        self.head = nn.Linear(96, 32, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(self.table(ids)))).sum(1)


IDS = torch.arange(12).reshape(2, 6)


def made() -> Net:
    torch.manual_seed(3)
    return Net().eval()


def operators(model: ps.ModelProto) -> list[str]:
    assert model.graph is not None
    return [node.op_type or "" for node in model.graph.node]


# (quantize, options, the opset that the file says, an operator of it and how often, how far it may be from the model)
ROWS: list[tuple[Any, dict[str, Any], int, tuple[str, int], float]] = [
    ("int4", {}, 21, ("DequantizeLinear", 2), 0.25),
    ("int4", {"capture": "export"}, 21, ("DequantizeLinear", 2), 0.25),
    ("int8", {}, 20, ("DequantizeLinear", 2), 0.02),
    ("int8", {"opset_version": 17}, 17, ("DequantizeLinear", 2), 0.02),
    ("float16", {"dynamic": True}, 20, ("Cast", 2), 0.002),
    ({"type": "int4", "target": "onnxruntime"}, {}, 20, ("MatMulNBits", 2), 0.25),
    ({"type": "uint4", "exclude": "head*"}, {}, 21, ("DequantizeLinear", 1), 0.25),
    (ps.quantization.Scheme("int4", embeddings=True), {}, 21, ("DequantizeLinear", 3), 0.3),
]


@pytest.mark.parametrize(
    ("asked", "options", "opset", "operator", "near"), ROWS, ids=[str(number) for number, _ in enumerate(ROWS)]
)
def test_export(
    asked: Any, options: dict[str, Any], opset: int, operator: tuple[str, int], near: float, tmp_path: Path
) -> None:
    net, seen = made(), []

    def stages(stage: str, number: int, of: int) -> None:
        seen.append(stage)

    program = purexport.export(
        net, (IDS,), tmp_path / "m.onnx", quantize=asked, verify=True, progress=stages, **options
    )
    written = ps.load(tmp_path / "m.onnx")
    assert next(item.version for item in written.opset_import if not item.domain) == opset
    assert operators(written).count(operator[0]) == operator[1]
    assert seen[-3:] == ["verify", "quantize", "save"]
    wanted = net(IDS).detach()
    error = float((program(IDS)[0] - wanted).norm() / wanted.norm())
    assert 0 < error < near


def test_weights_of_a_checkpoint(tmp_path: Path) -> None:
    """A model without values: each weight goes from the checkpoint through the scheme to the file."""
    torch.save(made().state_dict(), tmp_path / "w.pt")
    with torch.device("meta"):
        empty = Net().eval()
    purexport.export(empty, (IDS,), tmp_path / "a.onnx", quantize="int4", weights=tmp_path / "w.pt")
    purexport.export(made(), (IDS,), tmp_path / "b.onnx", quantize="int4")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_verify_finds_codes_that_are_read_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by one in every scale is less than the quantization itself costs, and is found."""

    right = ps.quantization.quantize

    def wrong(model: ps.ModelProto, *args: Any, **options: Any) -> ps.ModelProto:
        found = right(model, *args, **options)
        assert found.graph is not None
        for tensor in found.graph.initializer:
            if (tensor.name or "").endswith("_scale"):
                values = ps.numpy_helper.to_array(tensor) * 1.02
                tensor.raw_data = values.astype("float32").tobytes()
        return found

    monkeypatch.setattr(ps.quantization, "quantize", wrong)
    words = "in the quantized file, .* in the file of the same numbers as floats"
    with pytest.raises(purexport.errors.VerificationError, match=words):
        purexport.export(made(), (IDS,), quantize="int4", verify=True)


# (quantize, options, words of the error)
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("int3", {}, "there is no quantization 'int3'; it can be int4, "),
    (4, {}, "quantize=4 is neither a type as in 'int4', nor a mapping"),
    ({"type": "int4", "target": "tensorrt"}, {}, "there is no target 'tensorrt'; it can be 'onnx' or 'onnxruntime'"),
    ({"typ": "int4"}, {}, "a quantization has no 'typ'"),
    ("int4", {"export_params": False}, "quantize needs the weights in the file; leave export_params=False out"),
    (
        "int4",
        {"opset_version": 20},
        "opset_version=20 lacks what quantize to int4 needs; give 21 or none",
    ),
]


@pytest.mark.parametrize(("asked", "options", "words"), REFUSED, ids=[str(number) for number, _ in enumerate(REFUSED)])
def test_refused(asked: Any, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        purexport.export(made(), (IDS,), tmp_path / "m.onnx", quantize=asked, **options)
    assert words in str(caught.value) and not (tmp_path / "m.onnx").exists()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--input", "ids=int64[2,6]:0..63", "--quantize", "int4", "--verify", "-o", str(tmp_path / "m.onnx")]
    assert main(["export", "tests/test_quantized_export.py:Net", *options]) == 0
    assert operators(ps.load(tmp_path / "m.onnx")).count("DequantizeLinear") == 2
    assert (
        main(["export", "tests/test_quantized_export.py:Net", *options[:2], "--quantize", "int3", *options[-2:]]) == 2
    )
    assert "there is no quantization 'int3'" in capsys.readouterr().err


class Pair(nn.Module):
    """Two inputs, in another order in the file than in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor, factor: torch.Tensor | None = None) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.second(hidden if factor is None else hidden * factor)


def pair() -> tuple[Pair, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(5)
    return Pair().eval(), [(torch.randn(4, 16), torch.rand(4, 24)) for _ in range(6)]


def _files(folder: Path, samples: list[tuple[torch.Tensor, torch.Tensor]]) -> Path:
    for number, (x, factor) in enumerate(samples):
        np.savez(folder / f"{number}.npz", x=x.numpy(), factor=factor.numpy())
    return folder


# what samples are, by the tuples of arguments and a folder to write to
SAMPLES: dict[str, Callable[[Any, Path], Any]] = {
    "arguments": lambda samples, _: samples,
    "keywords": lambda samples, _: [(x, {"factor": factor}) for x, factor in samples],
    "feeds": lambda samples, _: [{"factor": factor.numpy(), "x": x} for x, factor in samples],
    "stacked": lambda samples, _: {
        "x": torch.cat([x for x, _ in samples]),
        "factor": torch.cat([f for _, f in samples]),
    },
    "an iterator": lambda samples, _: iter(samples),
    "a function": lambda samples, _: lambda: iter(samples),
    "a folder": lambda samples, folder: _files(folder, samples),
}


@pytest.mark.parametrize(("kind", "method"), in_turn(SAMPLES, ("minmax", "percentile")))
def test_activations(kind: str, method: str, tmp_path: Path) -> None:
    """The file is that of the calibration of the float file; a method that looks twice sees all samples twice."""
    net, samples = pair()
    (tmp_path / "samples").mkdir()
    options: dict[str, Any] = {"input_names": ["x", "factor"], "opset_version": 17}
    given = SAMPLES[kind](samples, tmp_path / "samples")
    asked = {"activations": "uint8", "calibration": given, "method": method}
    program = purexport.export(net, samples[0], tmp_path / "m.onnx", quantize=asked, verify=True, **options)
    feeds = [{"x": x.numpy(), "factor": factor.numpy()} for x, factor in samples]
    floats = purexport.export(net, samples[0], **options).model_proto
    wanted = ps.quantization.quantize(floats, activations="uint8", calibration=feeds, method=method)
    assert (tmp_path / "m.onnx").read_bytes() == ps.dumps(wanted)
    assert operators(program.model_proto).count("QuantizeLinear") >= 4
    told = [text for text in program.report.warnings if "the results are" in text]
    apart = float(told[0].split("the results are ")[1].split()[0])
    assert len(told) == 1 and (0 < apart < 0.05 or "session.x64quantprecision is 1" in told[0])


def test_activations_with_a_checkpoint(tmp_path: Path) -> None:
    """The model has no values; the calibration runs with those of the checkpoint."""
    net, samples = pair()
    torch.save(net.state_dict(), tmp_path / "w.pt")
    with torch.device("meta"):
        empty = Pair().eval()
    asked = {"type": "int8", "activations": "uint8", "calibration": samples, "per_channel": True, "exclude": "second*"}
    purexport.export(empty, samples[0], tmp_path / "a.onnx", quantize=asked, weights=tmp_path / "w.pt")
    purexport.export(net, samples[0], tmp_path / "b.onnx", quantize=asked)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


X = torch.ones(4, 16)
# (quantize, options, words of the error)
REFUSED_ACTIVATIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"activations": "uint8"}, {}, "activations need 'calibration', samples that show their ranges"),
    ({"calibration": [X]}, {}, "'calibration' is of activations; give 'activations': 'uint8', too"),
    ({"activations": "uint8", "calibration": [X], "type": "int4"}, {}, "with activations weights are int8, not int4"),
    ({"activations": "uint4", "calibration": [X]}, {}, "activations can be int8 or uint8, not 'uint4'"),
    ({"activations": "uint8", "calibration": [X], "target": "onnxruntime"}, {}, "leave target out"),
    ({"activations": "uint8", "calibration": [X], "block_size": 32}, {}, "block_size is of weights alone"),
    ({"activations": "uint8", "calibration": [X]}, {"opset_version": 9}, "quantize to int8 needs; give 10 or none"),
    ({"activations": "uint8", "calibration": []}, {}, "there are no samples for the calibration"),
    ({"activations": "uint8", "calibration": 3}, {}, "calibration is a list of arguments of the model, a folder"),
    ({"activations": "uint8", "calibration": [(X, X, X)]}, {}, "the file takes 1 tensors, x, and 3 were given"),
    ({"activations": "uint8", "calibration": [X * float("nan")]}, {}, "NaN"),
]


@pytest.mark.parametrize(
    ("asked", "options", "words"),
    REFUSED_ACTIVATIONS,
    ids=[str(number) for number, _ in enumerate(REFUSED_ACTIVATIONS)],
)
def test_activations_refused(asked: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, purexport.ExportError)) as caught:
        purexport.export(pair()[0], (X,), tmp_path / "m.onnx", quantize=asked, **options)
    assert words in str(caught.value) and not (tmp_path / "m.onnx").exists()
