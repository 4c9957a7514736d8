"""Scripts whose arguments have no annotation, and so are declared tensors, exported with a Python number for one.

torch's interpreter refuses the number; old code gives it, because the body uses it as one.  The number is a constant of
the file.  The same script takes a tensor of one element, which is an input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import purexport
from tests.tolerances import assert_near

X = torch.arange(12.0).reshape(3, 4) - 5


def a_count(x, k):
    return torch.topk(x, k)[0]


def an_end(x, k):
    return torch.arange(k) + x[:k].sum()


def a_size(x, k):
    return x.reshape(k, -1), x.expand(k, 3, 4)


def an_index(x, k):
    return x[k] + x[:, k][0], x[0, k]


def a_place_to_write(x, k):
    x = x.clone()
    x[k] = 7.0
    x[0, k] += 1.0
    return x


def a_factor(x, k):
    return x * k - k, torch.where(x > k, x, k), k + 1


def a_condition(x, k):
    if k > 1:
        x = x * 2
    return x


def a_tensor(x, k):
    return torch.cat([x.reshape(-1), k.view(1)]), k.float() * x, k.dtype == torch.int64, x.index_select(0, k)


FUNCTIONS = [a_count, an_end, a_size, an_index, a_place_to_write, a_factor, a_condition, a_tensor]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_number_is_a_constant(function: Callable[..., Any], number: int) -> None:
    """As for a tensor of that number."""
    script = torch.jit.script(function)
    program = purexport.export(script, (X, number))
    assert [item.name for item in program.model_proto.graph.input] == ["x"]
    _compare(program(X, number), script(X, torch.tensor(number)))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_tensor_is_an_input(function: Callable[..., Any]) -> None:
    script = torch.jit.script(function)
    program = purexport.export(script, (X, torch.tensor(2)))
    assert [item.name for item in program.model_proto.graph.input] == ["x", "k"]
    for number in (torch.tensor(2), torch.tensor(1)):
        _compare(program(X, number), script(X, number))


def _compare(found: Any, wanted: Any) -> None:
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        assert_near(got, torch.as_tensor(want))
