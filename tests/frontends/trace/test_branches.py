"""`branches="both"`: a file with both ways of an `if` gives what the model gives on either side, and is no guess.

Each row has a model, its example, and inputs for which the model goes other ways.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purexport

rand = torch.rand


def padded(x: Tensor) -> Tensor:
    length = x.shape[1]
    if length < 6:
        x = functional.pad(x, (0, 6 - length))
    return x.cumsum(1) * 2


def by_data(x: Tensor) -> Tensor:
    y = x * 2
    if x.sum() > 0:
        y = y + 1
    return y.relu()


def number_of_data(x: Tensor) -> Tensor:
    y = x * 2
    if x.long().sum():
        y = y - y.mean()
    return y.relu()


def written(x: Tensor) -> Tensor:
    counts = (x * 2).long()
    if counts.sum() == 0:
        counts[counts.sum(1).eq(0)] = 1
    return counts + 1


def to_a_multiple(x: Tensor) -> Tensor:
    height, width = x.shape[-2:]
    if height % 4 != 0 or width % 4 != 0:
        x = functional.interpolate(x, size=(-(-height // 4) * 4, -(-width // 4) * 4), mode="bilinear")
    return x.reshape(*x.shape[:2], -1, 4).sum(-1)


def one_in_another(x: Tensor) -> Tensor:
    if x.shape[0] > 4:
        x = x + 1
        if x.shape[1] > 4:
            x = x * 3
        x = x - 0.5
    return x.sqrt()


def several_behind_each_other(x: Tensor) -> Tensor:
    for least in (3, 5, 7):
        if x.shape[1] < least:
            x = torch.cat([x, x[:, -1:]], 1)
    return x * 2


def a_number_of_either_way(x: Tensor) -> Tensor:
    length, more = x.shape[1], 1
    if length > 4:
        more = length - 3
    return functional.pad(x, (0, more)) + more


class Reflected(nn.Module):
    """A pad of a short input, as EnCodec has it."""

    def forward(self, x: Tensor) -> Tensor:
        length, more = x.shape[-1], 0
        if length <= 4:
            more = 4 - length + 1
            x = functional.pad(x, (0, more))
        x = functional.pad(x, (4, 0), mode="reflect")
        return x[..., : x.shape[-1] - more]


PAIR = {0: "batch", 1: "length"}
IMAGES = {0: "batch", 2: "height", 3: "width"}
ROWS: dict[str, tuple[Callable[..., Tensor], Tensor, dict[int, str], list[Tensor]]] = {
    "a-pad-that-the-example-lacks": (padded, rand(2, 8), PAIR, [rand(3, 5), rand(1, 2), rand(2, 12)]),
    "a-pad-of-the-example": (padded, rand(2, 4), PAIR, [rand(3, 5), rand(1, 2), rand(2, 12)]),
    "data": (by_data, rand(2, 4), {}, [-rand(2, 4)]),
    "data-and-an-axis": (by_data, rand(2, 4), {0: "batch"}, [-rand(5, 4), rand(3, 4)]),
    "a-number-of-the-data": (number_of_data, rand(2, 4), {0: "batch"}, [rand(3, 4) * 5]),
    "a-write": (written, rand(2, 4) + 0.5, {0: "batch"}, [rand(5, 4) * 0.1, rand(3, 4) * 5]),
    "or-neither": (to_a_multiple, rand(2, 3, 8, 8), IMAGES, [rand(1, 3, 7, 8), rand(1, 3, 8, 9), rand(2, 3, 5, 6)]),
    "or-the-second": (to_a_multiple, rand(2, 3, 8, 7), IMAGES, [rand(1, 3, 7, 8), rand(1, 3, 8, 12), rand(2, 3, 5, 6)]),
    "one-in-another": (one_in_another, rand(7, 7), PAIR, [rand(7, 3), rand(3, 7), rand(3, 3), rand(9, 9)]),
    "several": (several_behind_each_other, rand(2, 8), PAIR, [rand(2, n) for n in (2, 3, 4, 5, 6, 9)]),
    "numbers": (a_number_of_either_way, rand(2, 8), PAIR, [rand(3, 4), rand(1, 2), rand(2, 12)]),
    "reflected": (Reflected(), rand(2, 1, 9), {0: "batch", 2: "length"}, [rand(1, 1, n) for n in (2, 3, 4, 5, 20)]),
}


def exported(model: Any, x: Tensor, axes: dict[int, str]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = purexport.export(
            model, (x,), input_names=["x"], dynamic_axes={"x": axes}, capture="trace", branches="both"
        )
    return program, [str(item.message) for item in caught]


@pytest.mark.parametrize("name", ROWS)
def test_both_ways(name: str) -> None:
    model, x, axes, others = ROWS[name]
    program, said = exported(model, x, axes)
    assert said
    assert all(item.startswith("both ways of ") for item in said), said
    for other in (x, *others):
        (found,) = program(other)
        torch.testing.assert_close(torch.as_tensor(found), model(other.clone()))


def refuses(x: Tensor) -> Tensor:
    if x.shape[1] > 4:
        raise ValueError("too long")
    return x * 2


def asks_more(x: Tensor) -> Tensor:
    if x.shape[0] > 4:
        x = x + 1
        if x.shape[1] > 4:
            x = x * 3
    return x


def original_too(x: Tensor) -> Tensor:
    y = x
    if x.shape[1] > 4:
        y = x * 2
    return y.cumsum(1) * x


KEPT: dict[str, tuple[Callable[..., Tensor], str]] = {
    "the-other-raises": (refuses, r"goes the way of the example, for which not length > 4 at .*test_branches.py"),
    "the-other-asks-more": (asks_more, r"goes the way of the example, for which not batch > 4 at .*test_branches.py"),
    "one-value-for-two": (original_too, r"goes the way of the example, for which not length > 4 at .*test_branches.py"),
}


@pytest.mark.parametrize("name", KEPT)
def test_one_way_with_a_remark(name: str) -> None:
    """What cannot be an If keeps the example's way, and is told as without the option."""
    model, message = KEPT[name]
    program, said = exported(model, rand(3, 3), PAIR)
    assert "If" not in {node.op_type for node in program.model_proto.graph.node}
    assert len(said) == 1
    assert re.search(message, said[0]), said


def whole_and_first(x: Tensor) -> Tensor:
    y = x
    if x.shape[1] < 5:
        y = torch.cat([y, y], 1)
    if x.shape[1] < 7:
        y = torch.cat([y, x], 1)
    return y * 2


def test_a_value_that_may_be_one_of_two_is_not_guessed() -> None:
    """In the example `y` is `x`; only a run with both answers shows that the second way takes both of them."""
    program, said = exported(whole_and_first, rand(2, 8), PAIR)
    assert [item.partition(" at ")[0] for item in said] == [
        "both ways of the decision",
        "the file goes the way of the example, for which not length < 5",
    ]
    for other in (rand(2, 6), rand(3, 9)):
        torch.testing.assert_close(torch.as_tensor(program(other)[0]), whole_and_first(other))
