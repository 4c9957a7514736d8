"""A trace that is replayed at other sizes gives the numbers that Python would get there, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purexport.capture.trace import torchscript
from purexport.capture.trace.replay import Asked, UnfitError

OWNED = torch.ones(4)


def _asked(function: Callable[[Tensor], Tensor]) -> Asked:
    def results(*tensors: Tensor) -> list[Tensor]:
        return [function(tensors[0])]

    recorded = torchscript.trace(results, [torch.ones(3, 4)], ["x"], [("buffer", "owned", OWNED)], [], True)
    assert recorded.asked is not None
    return recorded.asked


def of_product(x: Tensor) -> Tensor:
    return x * int((x @ x.T).shape[1] + 1)


def checked(x: Tensor) -> Tensor:
    return -x if x.shape[0] > 4 else x


def of_elements(x: Tensor) -> Tensor:
    return x * int((x @ x.T).nonzero().shape[0])


NUMBERS: dict[str, tuple[Callable[[Tensor], Tensor], int, list[Any]]] = {
    "a number of a product": (of_product, 7, [8]),
    "a product that is not computed": (of_product, 9000, [9001]),
    "a decision": (checked, 5, [True]),
    "the same decision": (checked, 4, [False]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    function, rows, wanted = NUMBERS[name]
    assert _asked(function).at([torch.ones(rows, 4)]) == wanted


def test_what_follows_from_elements_that_were_not_computed_is_not_known() -> None:
    asked = _asked(of_elements)
    assert asked.at([torch.ones(5, 4)]) == [25]
    with pytest.raises(UnfitError):
        asked.at([torch.ones(9000, 4)])


def of_what_it_writes(x: Tensor) -> Tensor:
    return x * int(OWNED.mul_(1.0).repeat(x.shape[0]).shape[0])


def test_what_the_model_owns_is_not_written_to() -> None:
    before = OWNED._version
    asked = _asked(of_what_it_writes)
    assert OWNED._version == before + 1  # the trace itself
    with pytest.raises(UnfitError, match="mul_"):
        asked.at([torch.ones(5, 4)])
    assert OWNED._version == before + 1
