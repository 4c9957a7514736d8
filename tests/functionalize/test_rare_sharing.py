"""What copies at some sizes and shares memory at others: the file is right at usual sizes, and says where it is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport

SIZES = ((4, 5), (1, 5), (4, 1), (3, 2), (1, 1), (6, 3))
AT_ONE = "copied for the example, but not where a size is 1;"
OR_WHOLE = "copied for the example, but not where a size is 1 or a slice takes all of an axis;"
REFUSED = "may or may not have copied; call .clone() there"


@dataclass(frozen=True)
class Case:
    """`said` is what the warning says of an example of (4, 5), `wrong` the sizes that it means."""

    function: Callable[[Tensor], Any]
    said: str = ""
    wrong: tuple[tuple[int, int], ...] = ()
    refused: tuple[tuple[int, int], ...] = ()  # the examples with an axis of size 1 that are


def written_base(x: Tensor) -> Tensor:
    y = x.clone()
    z = y.permute(1, 0).contiguous()
    y.fill_(0)
    return z


def written_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    z = y.t().reshape(-1)
    z.mul_(2)
    return y, z


def of_sizes(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    z = y.t().reshape(x.shape[0] * x.shape[1])
    z.mul_(2)
    return y, z


def cut(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    z = y[:, :2].contiguous()
    z.mul_(2)
    return y, z


def not_read_again(x: Tensor) -> Tensor:
    y = x.clone()
    z = y.t().contiguous()
    y.fill_(0)
    return y + 0 * len(z.shape)


def shared_everywhere(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    z = y.reshape(-1)
    z.mul_(2)
    return y, z


ONES = ((1, 5), (4, 1), (1, 1))
CASES = {
    "the base is written": Case(written_base, AT_ONE, ONES, ONES),
    "the copy is written": Case(written_copy, AT_ONE, ONES, ONES),
    "to sizes of the argument": Case(of_sizes, AT_ONE, ONES, ONES),
    "a part of an axis": Case(cut, OR_WHOLE, (*ONES, (3, 2)), (*ONES, (3, 2))),
    "not read after the write": Case(not_read_again),
    "shared at all sizes": Case(shared_everywhere),
}


def exported(function: Any, shape: tuple[int, int]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(
            function, (drawn(shape),), capture="trace", input_names=["x"], dynamic_axes={"x": {0: "n", 1: "m"}}
        )
    return program, [text for text in program.report.warnings if "share memory at a few sizes" in text]


def drawn(shape: tuple[int, int]) -> Tensor:
    return torch.arange(1.0, 1 + shape[0] * shape[1]).reshape(shape)


def differs(program: Any, function: Any, shape: tuple[int, int]) -> bool:
    expected, found = function(drawn(shape)), program(drawn(shape))
    pairs = zip(*((item if isinstance(item, (tuple, list)) else [item]) for item in (expected, found)), strict=True)
    return not all(torch.equal(right, torch.as_tensor(mine)) for right, mine in pairs)


@pytest.mark.parametrize("name", CASES)
def test_usual_sizes_are_right_and_others_said(name: str) -> None:
    case = CASES[name]
    program, said = exported(case.function, (4, 5))
    assert [shape for shape in SIZES if differs(program, case.function, shape)] == [
        shape for shape in SIZES if shape in case.wrong
    ]
    assert len(said) == bool(case.said)
    assert all(case.said in text and "the file is right for other sizes" in text for text in said)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", SIZES[1:5])
def test_a_small_example_is_refused_or_right(name: str, shape: tuple[int, int]) -> None:
    """What the example shares and usual sizes copy is known of neither."""
    case = CASES[name]
    if shape in case.refused:
        with pytest.raises(purexport.ExportError, match=re.escape(REFUSED)):
            exported(case.function, shape)
    else:
        program, said = exported(case.function, shape)
        wrong = [other for other in SIZES if differs(program, case.function, other)]
        assert not wrong or (said and set(wrong) <= set(case.wrong))
