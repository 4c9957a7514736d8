"""Lists of numbers that a size counts, `list(range(n))`, stay symbolic as far as a model asks for parts of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import purexport


def pooled(x: torch.Tensor) -> Any:
    """Every second position, with one that stands apart."""
    places = list(range(x.shape[1]))
    found = [-1] + places[1:-1][::2]  # noqa: RUF005  a list and another sequence
    ends = torch.arange(found[0] - places[0] + 2 * len(found), found[0] - places[-1] - 1, -2)
    return torch.tensor(found), torch.tensor([-3] + found[1:-1][::2], dtype=torch.float32), ends  # noqa: RUF005


def counted(x: torch.Tensor) -> torch.Tensor:
    return x * sum(list(range(x.shape[1])))


def first_of(x: torch.Tensor) -> torch.Tensor:
    return x[:, range(3, x.shape[1] + 1)[0]] + range(x.shape[1])[-1] + len(range(0, x.shape[1], 3))


STATIC = "'n' was declared dynamic, .* fixes it at 9"
ROWS: dict[str, tuple[Callable[[torch.Tensor], Any], Sequence[int], str]] = {
    "backwards": (lambda x: x + torch.tensor(list(range(x.shape[1]))[::-1]), (8, 30), ""),
    "from a number": (lambda x: torch.tensor(range(2, x.shape[1])), (8, 30), ""),
    "in steps": (lambda x: torch.tensor(range(x.shape[1], 0, -2)), (8, 30), ""),
    "with others": (lambda x: torch.tensor([7, *list(range(x.shape[1]))[2:], 5]), (), STATIC),
    "between others": (lambda x: torch.tensor([7] + list(range(x.shape[1] - 2))[2:] + [5]), (8, 30), ""),  # noqa: RUF005
    "positions": (lambda x: x[:, list(range(x.shape[1]))[::-1]], (8, 30), ""),
    "parts": (first_of, (8, 30), ""),
    "pooled": (pooled, (8, 30), ""),
    "none": (lambda x: x * 2 if list(range(x.shape[1] - 1)) else x, (), "for 1 the model goes another way"),
    "all": (counted, (), STATIC),
    "its middle": (lambda x: x * list(range(x.shape[1]))[2:7:2][1], (8, 30), ""),
}


@pytest.mark.parametrize("name", ROWS)
def test_range(name: str) -> None:
    model, sizes, remark = ROWS[name]
    args = (torch.randn(3, 9),)
    others = [(torch.randn(3, size),) for size in sizes] if not remark else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        captured = purexport.capture(model, args, capture="trace", dynamic_axes={"x": {1: "n"}})
        captured.to_onnx(verify=[args, *others])
    said = [str(item.message) for item in caught if item.category is UserWarning]
    assert len(said) == bool(remark), said
    assert re.search(remark, said[0] if said else "")


def test_what_asks_for_all_numbers_gets_pythons() -> None:
    found: list[bool] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        places = list(range(x.shape[1]))
        whole = [*places]
        found.append(whole == places and places == whole and 1 in places and bool(places))
        found.append([*(places + [3])] == [*whole, 3] and [*([3] + places)] == [3, *whole])  # noqa: RUF005
        found.append([*reversed(places)] == whole[::-1] and places[1:-1:2][0] == 1 and places[-2] == whole[-2])
        with pytest.raises(IndexError):
            places[len(whole)]
        return x + len(places)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        purexport.capture(model, (torch.randn(2, 5),), capture="trace", dynamic_axes={"x": {1: "n"}})
    assert len(found) > 3 and all(found)
