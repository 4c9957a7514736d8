"""Arithmetic on numbers that the graph computes: sizes of dynamic axes, and elements of tensors."""

from __future__ import annotations

import math

import pytest
import torch

from tests.harness import Row, check_export, f32
from tests.row_plans import Plan, row_params, run_row

FEW = (9, 13, 20)
AXES = {0: {0: "rows", 1: "columns"}}


def size(name, model, **options):
    """A row whose model computes with the sizes of its input; they change at run time."""
    return Row(name, model, f32(5, 3), dynamic=AXES, opsets=FEW, **options)


def functions_of_numbers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    half = x.shape[0] * 0.5
    return x + math.exp(half * 0.1), x * math.log(half), x - math.fabs(-half), x * abs(-half) + math.sqrt(half)


ROWS = [
    size("add", lambda x: torch.ones(x.shape[0] + x.shape[1])),
    size("add-number", lambda x: torch.ones(x.shape[0] + 2)),
    size("sub", lambda x: torch.ones(2 * x.shape[0] - x.shape[1])),
    size("mul", lambda x: torch.ones(x.shape[0] * x.shape[1])),
    size("floordiv", lambda x: torch.ones((x.shape[0] + 3) // 2, (x.shape[1] + 4) // 2)),
    size("floordiv-negative", lambda x: torch.ones(1) * (-x.shape[0] // 2), trap="towards minus infinity"),
    size("mod", lambda x: torch.ones(x.shape[0] % 4)),
    size("mod-negative", lambda x: torch.ones(1) * (-x.shape[0] % 4), trap="the sign of the divisor"),
    size("neg", lambda x: torch.ones(1) * -x.shape[0]),
    size("div", lambda x: torch.ones(1) * (x.shape[0] / x.shape[1])),
    size("scale", lambda x: x * (x.shape[1] ** -0.5)),
    size("scale-by-root", lambda x: x / (x.shape[1] ** 0.5)),
    size("integer-power", lambda x: torch.ones(x.shape[1] ** 2), traced="found type 'float'"),
    # a trace holds which of the two is larger, so that its axes are static (tests/frontends/test_specialized_axes.py)
    size("max", lambda x: torch.ones(max(x.shape[0], x.shape[1] + 1)), routes=("export",)),
    size("min", lambda x: torch.ones(min(x.shape[0], x.shape[1])), routes=("export",)),
    size("compare", lambda x: x * torch.tensor(x.shape[0])),
    size("fill", lambda x: torch.full((2,), x.shape[0])),
    size("item-arithmetic", lambda x: x + x.shape[0] * 0.5 - 1),
    # torch.jit.script alone takes these of a number that follows from a size
    Row(
        "functions-of-numbers",
        functions_of_numbers,
        f32(5, 3),
        dynamic=AXES,
        opsets=FEW,
        routes=("script",),
        trap="torch's symbolic numbers would be the example's",
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_abs_of_a_number_in_a_trace() -> None:
    check_export(
        lambda x: x * abs(-(x.shape[0] * 0.5)) + math.sqrt(x.shape[0]),
        (torch.randn(5, 3),),
        opset=20,
        dynamic_axes={"x0": {0: "rows"}},
    )
