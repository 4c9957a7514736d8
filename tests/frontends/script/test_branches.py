"""What a branch or loop learns of sizes holds in its body: two axes that a body wants equal stay two axes of the file.

Each row has sizes at which that body does not run; some have an example at which it does not.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from tests.frontends.script.scripted import Programs, run_program

programs = Programs()
AXES = {"x": {1: "n"}, "y": {0: "m"}}


def sized(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.arange(2.0 * n).view(2, n) / 8, torch.arange(4.0 * m).view(m, 4) / 8 - 1


OTHERS = [sized(3, 5), sized(7, 7), sized(1, 4), sized(4, 1), sized(4, 4)]


@programs.row(*sized(3, 3), others=OTHERS, axes=AXES)
def one_side_multiplies(x: Tensor, y: Tensor) -> Tensor:
    if x.size(1) == y.size(0):
        return torch.mm(x, y)
    return x + 1.0


@programs.row(*sized(3, 3), others=OTHERS, axes=AXES)
def sizes_after_it(x: Tensor, y: Tensor) -> Tensor:
    """The sizes are read before, in and after the branch."""
    count = x.size(1)
    z = x * float(count) if x.size(1) != y.size(0) else torch.mm(x, y) + count
    return torch.cat([z, z], 1) * z.size(1) + y.size(0) * 100 + x.size(1)


@programs.row(*sized(3, 3), others=[(-x, y) for x, y in OTHERS], axes=AXES, remark="on one path")
def of_data(x: Tensor, y: Tensor) -> Tensor:
    """The condition says nothing of sizes, and the report says what the side takes for granted."""
    if bool(x.sum() > 0):
        x = torch.mm(x, y)
    return x * y.size(0) + x.size(1)


@programs.row(*sized(3, 5), others=OTHERS, axes=AXES)
def held_size(x: Tensor, y: Tensor) -> Tensor:
    if x.size(1) == 4:
        return x.view(2, 2, 2).sum(0)
    return x + y.sum()


@programs.row(*sized(3, 5), others=OTHERS, axes=AXES)
def two_conditions(x: Tensor, y: Tensor) -> Tensor:
    if bool(x.sum() > 0) and x.size(1) == y.size(0):
        return torch.mm(x, y)
    return torch.cat([x, y.sum(1)[None].expand(2, -1)], 1) * x.size(1)


@programs.row(*sized(3, 5), others=OTHERS, axes=AXES)
def branch_in_a_branch(x: Tensor, y: Tensor) -> Tensor:
    if x.size(1) == y.size(0):
        if bool(x.sum() > 3):
            x = torch.mm(x, y)
        return x * x.size(1)
    return x - y.sum()


@programs.row(
    *sized(3, 3),
    torch.tensor(1),
    others=[(*sized(3, 5), torch.tensor(0)), (*sized(7, 7), torch.tensor(2)), (*sized(1, 1), torch.tensor(0))],
    axes=AXES,
    remark="in the loop",
)
def steps_that_may_be_none(x: Tensor, y: Tensor, steps: Tensor) -> Tensor:
    for _ in range(int(steps)):
        x = torch.mm(x, y)[:, :1].expand(2, x.size(1)) + x
    return x * y.size(0) + x.size(1)


@programs.row(
    *sized(3, 5),
    torch.tensor(0),
    others=[(*sized(7, 4), torch.tensor(1)), (*sized(4, 4), torch.tensor(2)), (*sized(1, 6), torch.tensor(0))],
    axes=AXES,
)
def steps_that_change_a_size(x: Tensor, y: Tensor, steps: Tensor) -> Tensor:
    """The first step gives the axis the size of another, with which it is one size inside only."""
    for _ in range(int(steps)):
        if x.size(1) == y.size(0):
            x = torch.mm(x, y[:, : x.size(1)])
            x = x + x.size(1)
        else:
            x = x.sum(1, keepdim=True).expand(2, y.size(0)) / 8
    return x + y.size(0)


@pytest.mark.parametrize(("row", "opset"), programs.params())
def test_branch(row: Any, opset: int) -> None:
    run_program(row, opset)


def labels(program: Any) -> list[list[Any]]:
    shapes = [item.type.tensor_type.shape.dim for item in program.model_proto.graph.input]
    return [[dim.dim_param or dim.dim_value for dim in shape] for shape in shapes]


def test_the_axes_keep_their_names() -> None:
    program = purexport.export(torch.jit.script(one_side_multiplies), sized(3, 3), dynamic_axes=AXES)
    assert labels(program) == [[2, "n"], ["m", 4]]
    assert not program.report.warnings


def test_a_side_that_always_runs_says_what_it_learnt() -> None:
    """The other side raises, so the check of the script holds in the whole file."""

    def checked(x: Tensor, y: Tensor) -> Tensor:
        if x.size(1) != y.size(0):
            raise ValueError("sizes differ")
        return torch.mm(x, y)

    with pytest.warns(UserWarning, match="the model takes them for one size"):
        program = purexport.export(torch.jit.script(checked), sized(3, 3), dynamic_axes=AXES)
    first, second = labels(program)
    assert first[1] == second[0]
