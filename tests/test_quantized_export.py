"""`quantize=` of an export: the file runs, its weights are few bits, and `verify` compares it with the usual bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.stages import quantize as stage


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
    assert seen[-2:] == ["verify", "save"]
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

    def wrong(model: ps.ModelProto, *args: Any, **options: Any) -> ps.ModelProto:
        found = ps.quantization.quantize(model, *args, **options)
        assert found.graph is not None
        for tensor in found.graph.initializer:
            if (tensor.name or "").endswith("_scale"):
                values = ps.numpy_helper.to_array(tensor) * 1.02
                tensor.raw_data = values.astype("float32").tobytes()
        return found

    monkeypatch.setattr(stage, "quantize", wrong)
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
