"""Frozen scripts and traces: weights as constants of the graph, no mode, and the operators of oneDNN."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.frontends.script.scripted import Program, Programs, run_program

programs = Programs()
IMAGES = torch.rand(2, 3, 6, 6)
OTHERS = [(torch.rand(2, 3, 6, 6),)]


def loaded(script: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(torch.jit.freeze(script), file)
    file.seek(0)
    return torch.jit.load(file)


def traced(script: Any) -> Any:
    return torch.jit.freeze(torch.jit.trace(script, IMAGES))


@programs.row(IMAGES, others=[(torch.rand(5, 3, 6, 6),)], axes={"input": {0: "batch"}}, finish=loaded)
@programs.row(IMAGES, others=OTHERS, finish=torch.jit.freeze)
@programs.row(IMAGES, others=OTHERS, finish=traced)
@programs.row(IMAGES, others=OTHERS, finish=torch.jit.optimize_for_inference)
class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Dropout()

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(self.drop(self.norm(self.conv(input))))


@programs.row(IMAGES, others=OTHERS, finish=torch.jit.optimize_for_inference)
class Activations(nn.Module):
    """Each activation twice: in place, and beside another reader of its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 4, 3, 2, 1)] + [nn.Conv2d(4, 4, 1) for _ in range(9)])

    def forward(self, x: Tensor) -> Tensor:
        c = self.convs
        y = nn.functional.hardswish(c[0](x))
        z = c[1](y)
        y = nn.functional.hardswish(z) + z
        y = c[2](nn.functional.hardsigmoid(c[3](y)))
        y = nn.functional.hardsigmoid(y) + y
        y = c[4](nn.functional.hardtanh(c[5](y), -0.5, 0.75))
        y = nn.functional.hardtanh(y, -0.25, 0.5) + y
        y = c[6](torch.clamp(c[7](y), -0.5, 0.5))
        y = torch.clamp(y, -0.25, 0.5) + y
        y = c[8](y * 1.5) * 2.0
        y = y * 0.5 + y
        y = c[8](c[8](y) * 2.0)
        return c[9](y * y.mean([2, 3], keepdim=True))


@programs.row(IMAGES, others=OTHERS, finish=torch.jit.optimize_for_inference)
class Gated(nn.Module):
    """A product of two shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.gate(torch.sigmoid(self.gate(nn.functional.adaptive_avg_pool2d(y, [1, 1]))) * y)


@pytest.mark.parametrize(("program", "opset"), programs.params())
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)


@pytest.mark.parametrize("hold", [lambda frozen: frozen, lambda frozen: nn.Sequential(frozen)], ids=["alone", "inside"])
def test_a_frozen_script_gets_no_mode(hold: Callable[[Any], Any]) -> None:
    frozen = torch.jit.freeze(torch.jit.script(Normed().eval()))
    model = hold(frozen)
    with purexport.select_model_mode_for_export(model, True):
        pass
    assert not hasattr(frozen, "training")


def test_a_frozen_script_inside_a_module_is_exported() -> None:
    """torch's tracer refuses it."""
    frozen = torch.jit.freeze(torch.jit.script(Normed().eval()))
    model = nn.Sequential(frozen, nn.ReLU())
    assert purexport.export(model, (IMAGES,), verify=True).report.route == "trace"
