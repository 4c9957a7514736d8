"""as_strided, by the memory of its tensor."""

from __future__ import annotations

import pytest
import torch

import purexport
from tests.harness import Row, f32
from tests.row_plans import Plan, row_params, run_row

ROWS = [
    Row("windows", lambda x: x.as_strided((3, 2), (1, 2), 1), f32(8)),
    Row("transposed", lambda x: x.t().contiguous().t().as_strided((2, 3), (1, 2)), f32(3, 4), trap="memory order"),
    Row("computed", lambda x: (x * 2).as_strided((2, 2), (1, 3)), f32(3, 3)),
    Row("copy", lambda x: torch.as_strided_copy(x, (2, 2), (2, 1)), f32(3, 3)),
    Row("scatter", lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 3), 1), f32(3, 3), f32(2, 2)),
    Row("scatter-number", lambda x, y: torch.as_strided_scatter(x, y, (), ()), f32(4), f32()),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


REFUSED = [
    ("a part", lambda x: torch.as_strided_copy(x[1:], (2, 2), (1, 3), 0), "of a slice of a tensor"),
    ("a column", lambda x: torch.as_strided_copy((x + 1)[:, 1], (2,), (1,)), "of a slice of a tensor"),
]


@pytest.mark.parametrize(("what", "model", "text"), REFUSED, ids=[what for what, *_ in REFUSED])
def test_memory_outside_is_refused(what, model, text) -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match=text):
        purexport.export(model, torch.ones(3, 3), capture="trace")


def test_a_view_of_a_part_has_no_known_beginning() -> None:
    with pytest.raises(purexport.ExportError, match="where its argument begins in memory is not known"):
        purexport.export(
            lambda x: (x + 1)[1:].as_strided((2, x.size(1)), (x.size(1), 1)),
            torch.ones(3, 3),
            input_names=["x"],
            dynamic_axes={"x": {1: "n"}},
            capture="export",
        )


def test_another_order_in_memory_is_not_taken_for_that_of_the_elements() -> None:
    with pytest.raises(purexport.ExportError, match="does not lie in memory in the order"):
        purexport.export(
            lambda x: (x.t() + 1).as_strided((2, x.size(0)), (x.size(0), 1)),
            torch.ones(1, 3),
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
            capture="trace",
        )


def test_dynamic_sizes_are_refused() -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match="declare its axes static"):
        purexport.export(
            lambda x: torch.as_strided_copy(x, (2, 2), (1, 1)),
            torch.ones(3, 3),
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )


def test_an_argument_that_is_part_of_a_larger_tensor_is_refused() -> None:
    with pytest.raises(purexport.ExportError, match="part of a larger tensor"):
        purexport.export(lambda x: x.as_strided((2,), (1,), 0), torch.arange(6.0)[2:], capture="trace")
