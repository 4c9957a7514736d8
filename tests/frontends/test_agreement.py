"""A trace agrees with its model at other sizes only where it makes every call of the model with the same numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from purexport.frontends.trace import agreement, torchscript

WEIGHTS = [torch.ones(4), torch.full((4,), 2.0)]
STATE = [("buffer", str(place), tensor) for place, tensor in enumerate(WEIGHTS)]


def padded(x: Tensor) -> Tensor:
    return functional.pad(x, (0, 0, 0, (4 - x.shape[0] % 4) % 4)).reshape(-1, 16)


def copied_where_long(x: Tensor) -> Tensor:
    return (x.t().contiguous() if x.shape[0] > 6 else x.t()) + 1


def masked(x: Tensor) -> Tensor:
    rows = torch.arange(int(x.shape[0]))
    return x + (rows[:, None] >= rows[None, :]).sum(1, keepdim=True)


def scaled(x: Tensor) -> Tensor:
    return x * (2.0 if x.shape[0] > 4 else 1.0)


def divided(x: Tensor) -> Tensor:
    return x / float(x.shape[0])


def another_weight(x: Tensor) -> Tensor:
    return x + WEIGHTS[int(x.shape[0] > 4)]


def another_row(x: Tensor) -> Tensor:
    y, z = x + 1, x + 1
    return (y if x.shape[0] > 4 else z) * 2 + (y - z)


def another_result(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x + 1, x + 1
    return y if x.shape[0] > 4 else z, y, z


def another_table(x: Tensor) -> Tensor:
    return x * _table(x.shape[0] > 4)


@functools.cache
def _table(long: bool) -> Tensor:
    return torch.tensor([float(long)] * 4)


def steps(x: Tensor) -> Tensor:
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def written_to_a_copy(x: Tensor) -> Tensor:
    y = x + 1
    z = y.clone() if x.shape[0] > 4 else y
    z.add_(1)
    return y * 2


def written_to_one_of_two(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    z = y.clone()
    (z if x.shape[0] > 4 else y).add_(1)
    return y * 2, z * 2


def written_after_a_copy_of_another(x: Tensor) -> Tensor:
    y = (x.t().contiguous() if x.shape[0] > 6 else x.t()) + 1
    return y.add_(1)


def written_last(x: Tensor) -> Tensor:
    y = x * 2
    if x.shape[0] > 4:
        y.add_(1)
    return y


def scaled_by_a_tensor(x: Tensor) -> Tensor:
    return x * torch.tensor(2.0 if x.shape[0] > 4 else 1.0)


def of_elements(x: Tensor) -> Tensor:
    return x[: int(x.shape[0])][x[:, 0] > 2.0] * 2


def fails(x: Tensor) -> Tensor:
    assert x.shape[0] < 8
    return x * float(int(x.shape[0]) > 0)


# at 9 rows, of a trace at 3; the numbers that Python gets differ in each
ROWS: dict[str, tuple[Callable[[Tensor], Any], bool]] = {
    "padding by what a size lacks": (padded, True),
    "a copy that nothing is written to": (copied_where_long, True),
    "another constant": (scaled, False),
    "a number of a size": (divided, False),
    "another weight": (another_weight, False),
    "another operand that was made alike": (another_row, False),
    "another result that was made alike": (another_result, False),
    "another table that was made before": (another_table, False),
    "more steps": (steps, False),
    "a copy that something is written to": (written_to_a_copy, False),
    "a write to the copy or to what was copied": (written_to_one_of_two, False),
    "a write to another tensor than what was copied": (written_after_a_copy_of_another, True),
    "a write at the end": (written_last, False),
    "another constant tensor": (scaled_by_a_tensor, False),
    "a number of rows that elements decide": (of_elements, False),
    "a model that fails": (fails, False),
    "a number that the trace holds": (masked, False),
}


# which are not known at any sizes
UNCLEAR = ["a number of rows that elements decide", "a write to the copy or to what was copied"]


def _agrees(function: Callable[[Tensor], Any], rows: int) -> bool:
    def results(*tensors: Tensor) -> list[Tensor]:
        found = function(tensors[0])
        return [found] if isinstance(found, Tensor) else list(found)

    _table(True), _table(False)
    recorded = torchscript.trace(results, [torch.ones(3, 4)], ["x"], STATE, [], True)
    tensors = [torch.arange(4.0 * rows).reshape(rows, 4)]
    return agreement.compared(recorded.script, results, tensors, WEIGHTS).same


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", ROWS)
def test_at_other_sizes(name: str) -> None:
    function, agrees = ROWS[name]
    assert _agrees(function, 9) is agrees


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in ROWS if name not in UNCLEAR])
def test_at_the_sizes_of_the_example(name: str) -> None:
    assert _agrees(ROWS[name][0], 3)
