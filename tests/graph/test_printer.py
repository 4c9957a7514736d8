"""The printed graph: the form of the documents of 2018 to 2020, whole texts as rows."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

import purexport


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x).mean() + torch.tensor([1.5, 2.0])


@torch.jit.script
def counted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for i in range(int(y)):
        x = x + i
    return x


@torch.jit.script
def chosen(x: torch.Tensor) -> torch.Tensor:
    return x.relu() if bool(x.sum() > 0) else x.neg()


class Calling(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return counted(x, y)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[1]


NET = """\
graph(%image : Float(1, 3, 4, 4),
      %learned : Float(2, 3, 3, 3),
      %features.0.bias : Float(2)):
  %3 : Float(1, 2, 4, 4) = onnx::Conv[dilations=[1, 1], group=1, kernel_shape=[3, 3], pads=[1, 1, 1, 1], \
strides=[1, 1]](%image, %learned, %features.0.bias), scope: Net/Sequential[features]/Conv2d[0]
  %4 : Float(1, 2, 4, 4) = onnx::Relu(%3), scope: Net/Sequential[features]/ReLU[1]
  %5 : Float() = onnx::ReduceMean[keepdims=0](%4), scope: Net
  %6 : Float(2) = onnx::Constant[value= 1.5  2 [ CPUFloatType{2} ]](), scope: Net
  %y : Float(2) = onnx::Add(%5, %6), scope: Net
  return (%y)
"""
LOOP = """\
graph(%input_data : Long(2, 3),
      %loop_range : Long()):
  %2 : Bool() = onnx::Constant[value={1}](), scope: Calling # test_printer.py:LINE
  %output : Long(2, 3) = onnx::Loop(%loop_range, %2, %input_data), scope: Calling # test_printer.py:LINE
    block0(%3 : Long(), %4 : bool, %5 : Long(2, 3)):
      %6 : Long(2, 3) = onnx::Add(%5, %3), scope: Calling # test_printer.py:LINE
      %7 : Bool() = onnx::Identity(%2), scope: Calling # test_printer.py:LINE
      -> (%7, %6)
  return (%output)
"""
IF = """\
graph(%x : Float(2)):
  %1 : Float() = onnx::ReduceSum[keepdims=0](%x), scope: chosen # test_printer.py:LINE
  %2 : Float() = onnx::Constant[value={0}](), scope: chosen # test_printer.py:LINE
  %3 : Bool() = onnx::Greater(%1, %2), scope: chosen # test_printer.py:LINE
  %output : Float(2) = onnx::If(%3), scope: chosen # test_printer.py:LINE
    block0():
      %4 : Float(2) = onnx::Relu(%x), scope: chosen # test_printer.py:LINE
      -> (%4)
    block1():
      %5 : Float(2) = onnx::Neg(%x), scope: chosen # test_printer.py:LINE
      -> (%5)
  return (%output)
"""
DYNAMIC = """\
graph(%input : Half(rows, 3)):
  %output : Half(rows, 3) = onnx::LeakyRelu[alpha=0.01](%input), scope: LeakyReLU
  return (%output)
"""
WITHOUT_PARAMETERS = """\
graph(%input : Float(1, 2),
      %weight : Float(2, 2),
      %bias : Float(2)):
  %output : Float(1, 2) = onnx::Gemm[transB=1](%input, %weight, %bias), scope: Linear
  return (%output)
"""
COUNT = (torch.ones(2, 3, dtype=torch.long), torch.tensor(5))
ROWS: list[tuple[str, Any, tuple[torch.Tensor, ...], dict[str, Any], str]] = [
    ("scopes", Net(), (torch.ones(1, 3, 4, 4),), {"input_names": ["image", "learned"], "output_names": ["y"]}, NET),
    ("loop", Calling(), COUNT, {"input_names": ["input_data", "loop_range"]}, LOOP),
    ("if", chosen, (torch.ones(2),), {}, IF),
    ("dynamic", nn.LeakyReLU(), (torch.ones(2, 3).half(),), {"dynamic_axes": {"input": {0: "rows"}}}, DYNAMIC),
    ("parameters-are-inputs", nn.Linear(2, 2), (torch.ones(1, 2),), {"export_params": False}, WITHOUT_PARAMETERS),
    (
        "initializers-are-inputs",
        nn.Linear(2, 2),
        (torch.ones(1, 2),),
        {"keep_initializers_as_inputs": True},
        WITHOUT_PARAMETERS,
    ),
]


def without_lines(text: str) -> str:
    """Line numbers of this file change with it."""
    return "\n".join(
        line[: line.rindex(":")] + ":LINE" if " # test_printer.py:" in line else line for line in text.split("\n")
    )


@pytest.mark.parametrize(("model", "args", "options", "text"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_text(model: Any, args: tuple[torch.Tensor, ...], options: dict[str, Any], text: str) -> None:
    assert without_lines(purexport.export_to_pretty_string(model, args, **options)) == text


def test_an_absent_input_and_a_large_constant() -> None:
    text = purexport.export_to_pretty_string(Recurrent(), (torch.ones(2, 12, 1),))
    assert " : None = prim::Constant(), scope: Recurrent/RNN[rnn]\n" in text
    assert " : Float(1, 12, 1) = onnx::Constant[value=<Tensor>](), scope: Recurrent/RNN[rnn]\n" in text
    assert '= onnx::RNN[activations=["Tanh"], direction="forward", hidden_size=1](' in text


def test_scopes_by_torch_export() -> None:
    text = purexport.export_to_pretty_string(Net(), (torch.ones(1, 3, 4, 4),), capture="export")
    assert ", scope: Net/Sequential[features]/Conv2d[0]\n" in text


@pytest.mark.parametrize("positions", [(), (True,), (True, True), ("unused.onnx",), ("unused.onnx", True, False)])
def test_positions_of_older_signatures(positions: tuple[Any, ...]) -> None:
    """`f`, which is not written, stood in the third place up to torch 1.9."""
    text = purexport.export_to_pretty_string(nn.Linear(2, 2), (torch.ones(1, 2),), *positions, opset_version=13)
    assert text == WITHOUT_PARAMETERS


def test_verbose_logs_the_graph_and_shows_it_without_a_logger(capsys: pytest.CaptureFixture[str]) -> None:
    def export() -> None:
        purexport.export(nn.Linear(2, 2), (torch.ones(1, 2),), verbose=True)

    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("purexport")
    state = logger.level, logger.propagate
    try:
        logger.propagate = False  # pytest may have handlers at the root
        export()
        assert capsys.readouterr().err == WITHOUT_PARAMETERS + "\n"
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        export()
        assert seen == [WITHOUT_PARAMETERS]
        assert capsys.readouterr().err == ""
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = state
