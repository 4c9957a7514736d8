"""Calls without a rule, expanded by torch's own decomposition: writes in it, lists, sizes that change."""

from __future__ import annotations

import pytest
import torch

import purexport
from tests.harness import Row, f32, values
from tests.row_plans import Plan, row_params, run_row

WIDTH = {0: {1: "width"}}
NAN = float("nan")
FEW = (13, 20)

ROWS = [
    Row("gradient", lambda x: torch.gradient(x), f32(4, 3), opsets=FEW, trap="one list is the result"),
    Row("gradient-axis", lambda x: torch.gradient(x, dim=1)[0], f32(4, 3), opsets=FEW),
    Row("block-diag-dynamic", lambda x: torch.block_diag(x, x), f32(3, 4), opsets=FEW, dynamic="batch"),
    Row("trapezoid-dynamic", lambda x: torch.trapezoid(x, dim=1), f32(3, 4), opsets=FEW, dynamic=WIDTH),
    Row("cumulative-dynamic", lambda x: torch.cumulative_trapezoid(x), f32(3, 4), opsets=FEW, dynamic="batch"),
    Row(
        "nanquantile",
        lambda x: torch.nanquantile(x, 0.3, dim=1),
        values([[1.0, NAN, 3.0], [2.0, 5.0, 4.0]]),
        opsets=FEW,
    ),
    Row("nanquantile-dynamic", lambda x: torch.nanquantile(x, 0.3, dim=1), f32(4, 6), opsets=FEW, dynamic=WIDTH),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_the_report_says_which_calls_were_decomposed() -> None:
    program = purexport.export(torch.trapezoid, torch.ones(3, 6), capture="trace")
    assert "aten::trapezoid.dx" in program.report.decomposed


@pytest.mark.parametrize("label", ["n", "batch size", "2x"])
def test_any_name_of_an_axis(label: str) -> None:
    """What does not read as an expression of names is a name of its own."""
    program = purexport.export(lambda x: torch.diff(x, dim=0), (torch.ones(3, 2),), dynamic_axes={"x": {0: label}})
    x = torch.rand(5, 2)
    torch.testing.assert_close(program(x)[0], torch.diff(x, dim=0))
