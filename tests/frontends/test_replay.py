"""A trace that is replayed at other sizes gives the numbers that Python would get there, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purexport.frontends.core.shape_functions import UnfitError
from purexport.frontends.trace import torchscript
from purexport.frontends.trace.replay import SHAPES, Asked, Kernels

OWNED = torch.ones(4)
aten = torch.ops.aten


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


IMAGE, ROWS = torch.ones(2, 8, 4, 6), torch.ones(2, 5, 6)
# calls of each operator whose shape is a row of ours
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.native_group_norm.default, (IMAGE, torch.ones(8), torch.ones(8), 2, 8, 24, 4, 1e-5)),
    (aten.native_group_norm.default, (IMAGE.double(), None, None, 2, 8, 24, 2, 1e-5)),
    (aten.native_group_norm.default, (ROWS, None, None, 2, 5, 6, 1, 1e-5)),
    (aten.native_layer_norm.default, (ROWS, [6], torch.ones(6), torch.ones(6), 1e-5)),
    (aten.native_layer_norm.default, (ROWS, [5, 6], None, None, 1e-5)),
    (aten.addmm.default, (torch.ones(5), torch.ones(3, 4), torch.ones(5, 4).t())),
    (aten.addmm.default, (torch.ones(3, 1), torch.ones(3, 4), torch.ones(4, 5))),
    (aten.gelu.default, (IMAGE,)),
    (aten.gelu.default, (torch.ones(5, 4).t(),)),
]


@pytest.mark.parametrize(("overload", "args"), CALLS, ids=range(len(CALLS)))
def test_shapes_are_those_of_the_kernels(overload: Any, args: tuple[Any, ...]) -> None:
    assert _described(SHAPES[overload](*args)) == _described(overload(*args))


def _described(result: Any) -> list[Any]:
    several = result if isinstance(result, tuple) else (result,)
    return [(item.shape, item.stride(), item.dtype) for item in several]


def test_every_shape_has_a_call() -> None:
    assert {overload for overload, _ in CALLS} == set(SHAPES)


LARGE = torch.ones(2, 128, 64)
# operands that are costly and not plain, which torch itself is asked for
OTHERWISE: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.native_layer_norm.default, (LARGE.transpose(1, 2), [128], None, None, 1e-5)),
    (aten.native_layer_norm.default, (LARGE.bfloat16(), [64], torch.ones(64), torch.ones(64), 1e-5)),
]


@pytest.mark.parametrize(("overload", "args"), OTHERWISE, ids=range(len(OTHERWISE)))
def test_operands_that_are_not_plain(overload: Any, args: tuple[Any, ...]) -> None:
    assert _described(Kernels(()).run(overload, args, {})) == _described(overload(*args))


def test_the_numbers_up_to_one_are_fewer_nodes() -> None:
    def many(x: Tensor) -> Tensor:
        for step in range(8):
            x = x * int((x @ x.T).shape[0] + step)
        return x

    asked = _asked(many)
    few = asked.up_to(1)
    assert few is not None
    assert len(list(few.graph.nodes())) < len(list(asked.graph.nodes()))
    assert few.at([torch.ones(5, 4)]) == asked.at([torch.ones(5, 4)])[:2] == [5, 6]
    assert asked.up_to(2) is None
