"""What a script does with texts, lists, dicts and properties of tensors: Python at export, on what is known there."""

# ruff: noqa: UP006, UP007, UP035, UP045, SIM118, UP032  TorchScript's forms are what is tested

from __future__ import annotations

import warnings
from typing import Dict, List, Optional, Tuple, Union

import pytest
import torch
from torch import Tensor

from tests.frontends.script.scripted import Program, Programs, i64, run_program

X = torch.arange(6.0).reshape(2, 3) - 2
programs = Programs()

# Texts ----------------------------------------------------------------------------------------------------------------


@programs.row(X)
def texts(x: Tensor) -> Tensor:
    names = [" Left,right "]  # of a constant the compiler would know all this
    name = names[0].strip().lower().replace("left", "up")
    parts = name.upper().split(",")
    if name.startswith("up") and name.endswith("right") and "-".join(parts) == "UP-RIGHT":
        x = x + len(parts)
    return x + len("{}:{}".format(parts[0], 3) + str(len(parts)))


@programs.row(X, i64(2), others=[(X, i64(3))])
def messages_with_computed_numbers(x: Tensor, n: Tensor) -> Tensor:
    count = int(n)
    said = "steps: {}".format(count) + " of " + str(count)
    said = str("{}!".format(said)).join(["one", "two"])
    print(said)
    warnings.warn(said, stacklevel=1)
    if count > 9:
        raise ValueError(said)
    return x * count


# Lists, tuples and dicts ----------------------------------------------------------------------------------------------


@programs.row(X)
def lists(x: Tensor) -> Tensor:
    items = [3, 1, 2, 1] * 2
    items.remove(3)
    items.reverse()
    items.insert(1, 7)
    items.sort()
    other = items.copy()
    if other != items or other == [1, 2]:
        x = x * 100
    other.extend(list(items))
    del other[0]
    return x + other.index(7) + other.count(1) * 100 + sorted(other)[-1] + sum(other)


@programs.row(X)
def dicts(x: Tensor) -> Tensor:
    items: Dict[str, int] = {"a": 1}
    items.update({"b": 2})
    items.setdefault("c", 3)
    copied = dict(items.items())
    copied = dict(copied)
    copied.popitem()
    total = 0
    for value in list(copied.values()):
        total += value
    for key in items.keys():
        total += len(key)
    missing = items.get("z")
    return x + total + items.copy()["c"] + (0 if missing is None else 1) + items.pop("a") + len(items)


@programs.row((X, X + 1, X + 2))
def tuple_sliced(items: Tuple[Tensor, Tensor, Tensor]) -> Tensor:
    first, second = items[1:]
    return first * second


# Numbers that only the run knows, in lists of known length ------------------------------------------------------------


@programs.row(X, i64(2), others=[(X, i64(0)), (X, i64(5))])
def lists_of_computed_numbers(x: Tensor, n: Tensor) -> Tuple[Tensor, bool, bool, bool]:
    a, b = int(n), int(n * 2) - 3
    items = [a, 4, b]
    total = sum(items) + max(items) * 10 + min(items) * 100
    ordered = sorted(items)
    items.sort()
    return x + total + ordered[0] + items[2], 4 in [a, b], [a, b] == [2, 1], [a, b] != [0, -3]


@programs.row(X, i64(1), others=[(X, i64(0)), (X, i64(2))])
def changed_at_a_computed_place(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor, int]:
    place = int(n)
    items, others, more = [x, x + 1, x + 2], [x, x - 1, x - 2], [1, 2, 3]
    items.insert(place, x * 5)
    del others[place]
    taken = more.pop(place)
    return torch.stack(items), torch.stack(others), taken + more[0]


# Lists whose length only the run knows --------------------------------------------------------------------------------


@programs.row(X, i64(2), others=[(X, i64(1)), (X, i64(4))])
def grown_list_of_numbers(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    items = [1]
    for i in range(int(n)):
        items.append(i)
    maybe: Optional[List[int]] = items
    if maybe is None:
        x = x + 1
    if maybe is not None:
        x = x + 2
    return x, torch.as_tensor(items * 2), torch.tensor(list(items))


@programs.row(X, i64(2), others=[(X * 2, i64(2))], min_opset=13)
def grown_list_of_tensors(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor]:
    items = [x]
    for i in range(int(n) - 1):
        items.append(x + i + 1)
    first, second = items
    return torch.concat(items, 0), first - second


# Tensors and types ----------------------------------------------------------------------------------------------------


@programs.row(X)
def properties(x: Tensor) -> Tensor:
    plain = not (x.is_cuda or x.is_sparse or x.is_quantized or x.is_mkldnn)
    if plain and x.layout == torch.strided and x.dtype == torch.float32 and x.device == torch.device("cpu"):
        return x.data + x.ndim
    return x


@programs.row(X, i64(3), others=[(X, i64(4))])
def numbers_of_tensors(x: Tensor, n: Tensor) -> Tensor:
    near = torch.isclose(x, x + 0.25, 0.0, torch.tensor(0.5))
    last = torch.tensor(1)
    return torch.full([2, 3], n) + x.unsqueeze(last).squeeze(last) + near


@programs.row(X, others=[(X * 2,)])
def compared_as_a_whole(x: Tensor) -> Tuple[Tensor, bool]:
    y = x.clone()
    y[0, 0] = -2
    if torch.equal(x, y) and not torch.equal(x, x[0]):
        y = y.cpu() + 1
    return y, torch.allclose(x, y, atol=1.0)


@programs.row(X)
def types(x: Tensor) -> Tensor:
    item: Union[int, List[int]] = [1, 2]
    if isinstance(item, list):
        x = x + len(item)
    pair: Union[Tuple[int, int], Tuple[str, int]] = ("a", 2)
    if isinstance(pair, Tuple[int, int]):
        x = x * 10
    named: Union[Dict[str, int], Dict[str, str]] = {"a": "b"}
    if isinstance(named, Dict[str, int]):
        x = x * 7
    either: Union[int, Tuple[int, int]] = (1, 2)
    if isinstance(either, tuple):
        x = x * 3
    maybe: Optional[Tensor] = x
    return torch.jit._unwrap_optional(maybe) * 2


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("program", "opset"), programs.params())
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)
