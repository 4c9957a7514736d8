"""A Python loop over a dynamic length: a trace makes one Loop of it where it can (`test_rolled`).

Else, and by torch.export, it is unrolled: the axis is static, and said so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import purexport
from tests.harness import CAPTURES


def by_number(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        state = torch.tanh(state + x[:, step])
    return state


def by_unbind(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    for row in x.unbind(1):
        state = torch.tanh(state + row)
    return state


def by_pairs(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    for row, other in zip(x.transpose(0, 1), x.flip(1).transpose(0, 1), strict=True):
        state = torch.tanh(state + row * other)
    return state


def by_chunk(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, :1])
    for row in x.chunk(x.shape[1], 1):
        state = torch.tanh(state + row)
    return state


def by_while(x: Tensor) -> Tensor:
    state, step = torch.zeros_like(x[:, 0]), 0
    while step < x.shape[1]:
        state, step = torch.tanh(state + x[:, step]), step + 1
    return state


SCANS = [by_number, by_unbind, by_pairs, by_chunk, by_while]
AXES = {"x": {0: "batch", 1: "length"}}


@pytest.mark.parametrize(
    "scan", [by_pairs, *(pytest.param(scan, marks=pytest.mark.full) for scan in (by_number, by_unbind, by_while))]
)
@pytest.mark.filterwarnings("ignore")
def test_a_length_that_a_trace_counts_stays(scan: Callable[[Tensor], Tensor]) -> None:
    program = purexport.export(scan, (torch.randn(2, 6, 3),), input_names=["x"], dynamic_axes=AXES, capture="trace")
    for batch, length in ((4, 6), (1, 1), (3, 9)):
        other = torch.randn(batch, length, 3)
        torch.testing.assert_close(program(other)[0], scan(other))


@pytest.mark.parametrize(
    ("scan", "route"), [(scan, route) for scan in SCANS for route in CAPTURES if scan is by_chunk or route != "trace"]
)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_length_that_a_loop_runs_over_is_held(scan: Callable[[Tensor], Tensor], route: str) -> None:
    with pytest.warns(UserWarning, match="axis 'length' was declared dynamic, but the model fixes it at 6"):
        program = purexport.export(scan, (torch.randn(2, 6, 3),), input_names=["x"], dynamic_axes=AXES, capture=route)
    other = torch.randn(4, 6, 3)
    torch.testing.assert_close(program(other)[0], scan(other))
    with pytest.raises(Exception, match="invalid dimensions"):
        program(torch.randn(2, 7, 3))
