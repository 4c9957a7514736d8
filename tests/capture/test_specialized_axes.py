"""Numbers that a trace holds although they follow from a dynamic axis: that axis is static in the file, as it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from tests.harness import run_ort
from tests.tolerances import assert_near

X = torch.arange(12.0).reshape(3, 4)


@dataclass(frozen=True)
class Case:
    """A function of one tensor with a dynamic first axis; `held` says whether a number follows from its size."""

    function: Callable[[Tensor], Any]
    held: bool


def steps(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def long_or_short(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 4 else x


def checked(x: Tensor) -> Tensor:
    assert x.shape[0] % 1 == 0
    return x.reshape(x.shape[0] * 2, -1)


CASES = {
    "a root of the size": Case(lambda x: x * math.sqrt(x.shape[0]), True),
    "a root of another size": Case(lambda x: x * math.sqrt(x.shape[1]), False),
    "a rest of the size, which is 0 for its multiples, too": Case(lambda x: x * float(x.shape[0] % 3 + 1), True),
    "a loop over the rows": Case(steps, True),
    "a tensor of that length": Case(lambda x: x + torch.arange(int(x.shape[0]))[:, None], True),
    "a literal of the size": Case(lambda x: x / torch.tensor(float(x.shape[0])), True),
    "the larger of two sizes": Case(lambda x: x * max(x.shape[0], x.shape[1]), True),
    "a branch on the size": Case(long_or_short, True),
    "a check of the size": Case(checked, False),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_held(name: str) -> None:
    case = CASES[name]
    program = purexport.export(case.function, (X,), dynamic_axes={"x": {0: "n"}}, capture="trace")
    remark = "axis 'n' was declared dynamic, but the model holds it at 3 at"
    said = [text for text in program.report.warnings if remark in text]
    assert len(said) == case.held
    assert all("test_specialized_axes.py:" in text for text in said)
    data = program.model_proto.SerializeToString()
    for rows in (3, 5, 6):
        x = torch.rand(rows, 4)
        if case.held and rows != 3:
            with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
                run_ort(data, [x.numpy()])
        else:
            assert_near(run_ort(data, [x.numpy()])[0], case.function(x))
