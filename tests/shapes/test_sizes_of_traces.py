"""Sizes of traces: every result has its sizes as expressions of the names of the axes, and the file takes other sizes.

A row says what the sizes of the first result are, what is found about the axes, and other arguments on which the file
must give torch's numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import purexport
from tests.shapes.test_dynamic_shapes import dims_of


def f32(*shape: int) -> torch.Tensor:
    return torch.linspace(-2, 3, max(1, torch.Size(shape).numel()))[: torch.Size(shape).numel()].reshape(shape)


@dataclass(frozen=True)
class Row:
    name: str
    function: Callable[..., Any]
    args: Sequence[torch.Tensor]
    axes: dict[str, dict[int, str]]
    dims: list[Any]
    others: Sequence[Sequence[torch.Tensor]]
    found: str = ""  # in the only remark


ONE = {"x": {0: "n"}}
BOTH = {"x": {0: "n", 1: "m"}}
TWO = {"x": {0: "n", 1: "m"}, "y": {0: "k", 1: "l"}}
DECLARED_APART = "were declared apart; the model takes them for one size"

ROWS = [
    Row(
        "arange-to-a-fraction",
        lambda x: torch.arange(0, x.shape[0] * 0.5),
        [f32(4, 3)],
        ONE,
        ["range_length"],
        [[f32(9, 3)]],
    ),
    Row("linspace", lambda x: torch.linspace(0, 1, x.shape[0]), [f32(4, 3)], ONE, ["n"], [[f32(9, 3)]]),
    Row(
        "slice-to-the-size-of-another",
        lambda x, y: x[:, : y.shape[1]] + 1,
        [f32(4, 6), f32(2, 3)],
        TWO,
        ["n", "min(l, m)"],
        [[f32(9, 8), f32(2, 5)], [f32(2, 3), f32(2, 9)]],
    ),
    Row(
        "halves",
        lambda x: x.view(x.shape[0] // 2, 2, -1).sum(2),
        [f32(4, 6)],
        BOTH,
        ["n//2", 2],
        [[f32(8, 3)], [f32(2, 1)]],
    ),
    Row(
        "kron",
        torch.kron,
        [f32(2, 3), f32(3, 2)],
        {"x": {0: "batch-size"}, "y": {0: "n+1"}},
        ["'batch-size'*'n+1'", 6],
        [[f32(1, 3), f32(5, 2)]],
    ),
    Row(
        "block-diag",
        torch.block_diag,
        [f32(2, 3), f32(3, 2)],
        {"x": {0: "batch-size"}, "y": {0: "lambda"}},
        ["'batch-size' + 'lambda'", 5],
        [[f32(1, 3), f32(4, 2)]],
    ),
    Row(
        "labels-with-quotes-and-operators",
        lambda x, y: torch.cat([x, y]).reshape(-1),
        [f32(2, 3), f32(5, 3)],
        {"x": {0: "past + seq"}, "y": {0: "it's two words"}},
        ["3*\"it's two words\" + 3*'past + seq'"],
        [[f32(1, 3), f32(4, 3)]],
    ),
    Row(
        "product",
        lambda x, y: (x @ y).softmax(-1),
        [f32(4, 6), f32(6, 2)],
        TWO,
        ["n", "l"],
        [[f32(9, 8), f32(8, 4)]],
        DECLARED_APART,
    ),
    Row(
        "sum-of-one-size",
        lambda x, y: x + y,
        [f32(4, 6), f32(4, 6)],
        {"x": {0: "n"}, "y": {0: "k"}},
        ["k", 6],
        [[f32(3, 6), f32(3, 6)]],
        DECLARED_APART,
    ),
    Row(
        "one-beside-many",
        lambda x, y: x + y,
        [f32(1, 6), f32(5, 6)],
        {"x": {0: "n"}, "y": {0: "k"}},
        ["k", 6],
        [[f32(1, 6), f32(3, 6)]],
        "axis 'n' was declared dynamic, but the model fixes it at 1",
    ),
    Row(
        "one-size-of-a-weight",
        lambda x: x @ torch.ones(6, 2),
        [f32(4, 6)],
        BOTH,
        ["n", 2],
        [[f32(3, 6)]],
        "axis 'm' was declared dynamic, but the model fixes it at 6",
    ),
    Row(
        "filter",
        lambda x: x[x > 0].reshape(-1, 1).expand(-1, 3),
        [f32(4, 6)],
        BOTH,
        ["nonzero_count", 3],
        [[f32(7, 2)]],
    ),
    Row(
        "scale",
        lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2.0)[0],
        [f32(4, 6)],
        BOTH,
        ["n", "2*m"],
        [[f32(3, 5)]],
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_row(row: Row) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(
            row.function,
            tuple(row.args),
            input_names=["x", "y"][: len(row.args)],
            dynamic_axes=row.axes,
            capture="trace",
        )
    dims = dims_of(program.model_proto.graph.output[0])
    assert dims == row.dims
    assert [row.found in text for text in program.report.warnings] == [True] * bool(row.found)
    for other in (row.args, *row.others):
        (made,) = program(*other)
        wanted = row.function(*other)
        torch.testing.assert_close(torch.as_tensor(made), wanted, check_stride=False)
