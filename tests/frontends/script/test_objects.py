"""Scripts with attributes, objects, texts, enums, assertions, and values that are None on some path."""

# ruff: noqa: UP006, UP035, UP045, SIM108, B007  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

import pytest
import torch
from torch import Tensor, nn

from tests.frontends.script.scripted import Program, Programs, i64, run_program

programs = Programs()
X = torch.arange(6.0).reshape(2, 3) - 2
COUNTS = [(X, i64(n)) for n in (0, 1, 2, 5)]
SIGNS = [(X,), (-X,), (torch.zeros(2, 3),)]


# Attributes -----------------------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS, remark="the script assigns count")
class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 2
        self.last = torch.ones(2, 3)

    def forward(self, x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
        for i in range(int(n)):
            self.count += i
            self.last = self.last + x
        return self.last * self.count, self.count


@programs.row(X, others=SIGNS)
class SetInABranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = False
        self.scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            self.seen = True
            self.scale = 2.5
        if self.seen:
            x = x + 100
        return x * self.scale


@programs.row(X, others=SIGNS)
class BufferInABranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.max() > 2):
            self.mean = 0.5 * self.mean + x.mean(0)
        return x - self.mean


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
class ListAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(2, 3)]

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for i in range(int(n)):
            self.kept.append(x + i)
        return torch.stack(self.kept)


@programs.row(X)
class KnownAttributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.names = {"a": 2, "b": 3}
        self.sizes = (4, 0.5)
        self.steps = [1, 2, 3]

    def forward(self, x: Tensor) -> Tensor:
        for name, value in self.names.items():
            x = x * value + len(name)
        for step in self.steps:
            x = x + step
        return x * self.sizes[0] + self.sizes[1] + self.helper(x)

    def helper(self, x: Tensor) -> Tensor:
        return x.sum() if self.training else x.mean()


@programs.row(X, i64(3), others=COUNTS)
class BuffersReadAfterAWrite(nn.Module):
    """The numbers of a buffer are not those of the model once the script has written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        x = x + int(self.count)
        self.count.add_(1)
        for i in range(int(n)):
            x = x * int(self.steps)
            self.steps[0] += 2
        return x + int(self.count)


# None on one path -----------------------------------------------------------------------------------------------------


@programs.row(X, others=SIGNS)
def none_on_one_path(x: Tensor) -> Tensor:
    extra: Optional[Tensor] = None
    if bool(x.sum() > 0):
        extra = x * 2
    if extra is not None:
        x = x + extra
    return x


@programs.row(X, others=SIGNS)
def none_is_asked_for_twice(x: Tensor) -> Tensor:
    extra: Optional[Tensor] = x
    if bool(x.sum() > 0):
        extra = None
    if extra is None:
        extra = torch.ones(2, 3)
    else:
        extra = extra * 2
    return x + extra


@programs.row(X, i64(3), others=COUNTS)
def none_at_the_first_step(x: Tensor, n: Tensor) -> Tensor:
    h: Optional[Tensor] = None
    for i in range(int(n)):
        if h is None:
            h = x
        else:
            h = torch.tanh(h + x)
    if h is None:
        return x - 100
    return h


@programs.row(X, i64(3), others=COUNTS)
def optional_pair(x: Tensor, n: Tensor) -> Tensor:
    state: Optional[Tuple[Tensor, int]] = None
    for i in range(int(n)):
        if state is None:
            state = (x, i)
        else:
            h, count = state
            state = (h + 1, count + 2)
    if state is not None:
        h, count = state
        return h * count
    return x


@programs.row(X, others=SIGNS)
def optional_number(x: Tensor) -> Tuple[Tensor, int]:
    best: Optional[int] = None
    for i in range(2):
        if bool(x[i].sum() > 0) and best is None:
            best = i
    if best is None:
        return x[0] * 5, -1
    return x[best], best


@programs.row(X, i64(3), others=COUNTS)
def best_so_far(x: Tensor, n: Tensor) -> Tensor:
    best: Optional[Tensor] = None
    for i in range(int(n)):
        x = x * -1.5 + i
        if best is None or bool(x.sum() > best.sum()):
            best = x
    assert best is not None or int(n) == 0
    return x if best is None else best


@programs.row(X, None)
def optional_argument(x: Tensor, mask: Optional[Tensor]) -> Tensor:
    if mask is not None:
        x = x * mask
    return x + 1


# Assertions -----------------------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS, remark="the check is not in the file")
def assertion_on_data(x: Tensor, n: Tensor) -> Tensor:
    assert int(n) >= 0, f"{int(n)} steps"
    for i in range(int(n)):
        assert bool(x.sum() < 1e6), "too large"
        x = x + i
    return x


@programs.row(X, others=[(X + 1,)], remark="too small: ?")
def raise_on_data(x: Tensor) -> Tensor:
    if bool(x.sum() < -50):
        raise ValueError(f"too small: {float(x.sum())}")
    if bool(x.sum() > 0):
        x = x * 2
    return x + 1


@programs.row(X, others=SIGNS[:1], remark="unknown mode")
def raise_on_the_last_side(x: Tensor) -> Tensor:
    if bool(x.max() > 2):
        y = x + 1
    elif bool(x.max() > 1):
        y = x + 2
    else:
        raise RuntimeError("unknown mode")
    return y


# Objects and texts ----------------------------------------------------------------------------------------------------


class Mode(Enum):
    ADD = 1
    MULTIPLY = 2


class Pair(NamedTuple):
    value: Tensor
    weight: float = 2.0


@torch.jit.script
class Mean:
    def __init__(self, start: Tensor) -> None:
        self.total = start
        self.count = 0

    def add(self, x: Tensor) -> None:
        self.total = self.total + x
        self.count += 1

    def value(self) -> Tensor:
        return self.total / (self.count + 1)


@programs.row(X, i64(3), others=COUNTS)
def object_changed_in_a_loop(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    mean = Mean(x)
    for i in range(int(n)):
        mean.add(x * i)
    return mean.value(), mean.count


@programs.row(X, others=SIGNS)
def object_changed_in_a_branch(x: Tensor) -> Tensor:
    mean = Mean(torch.zeros(2, 3))
    same = mean
    if bool(x.sum() > 0):
        same.add(x)
    mean.add(x * 2)
    return mean.value()


@programs.row(X)
class Enums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.MULTIPLY

    def forward(self, x: Tensor) -> Tensor:
        if self.mode == Mode.ADD:
            x = x + 1
        elif self.mode.name == "MULTIPLY":
            x = x * self.mode.value
        return x


@programs.row(X, others=SIGNS)
def named_tuple_with_default(x: Tensor) -> Tensor:
    pair = Pair(x)
    if bool(x.sum() > 0):
        pair = Pair(x + 1, 3.0)
    return pair.value * pair.weight


@programs.row(X)
def texts(x: Tensor) -> Tensor:
    name = "layer_" + str(3)
    if name.startswith("layer") and f"{name}!" == "layer_3!":
        x = x + len(name)
    for part in ["a", "b", "c"]:
        if part in ["a", "c"]:
            x = x * 2
    return x + float("0.5")


@programs.row(X)
def kinds(x: Tensor) -> Tensor:
    numbers = [1, 2, 3]
    value = torch.jit.annotate(Optional[int], None)
    if isinstance(numbers, List[int]) and value is None and isinstance(x, Tensor):
        x = x + sum(numbers)
    if x.dtype == torch.float32 and x.device == torch.device("cpu") and x.is_floating_point():
        x = x * x.dim()
    return x


@programs.row(X)
def comprehensions(x: Tensor) -> Tensor:
    weights = [float(i) * 0.5 for i in range(3)]
    squares = {i: i * i for i in range(3)}
    total = sum([squares[key] for key in squares])
    ranked = sorted([3, 1, 2])
    for i, (weight, rank) in enumerate(zip(weights, ranked)):  # noqa: B905
        x = x * (weight + 1) + rank * i
    return x + total + max(weights) + min(ranked)


@programs.row(X)
def nested_containers(x: Tensor) -> Dict[str, List[Tensor]]:
    parts: Dict[str, List[Tensor]] = {"a": [x], "b": []}
    parts["b"].append(x * 2)
    parts["a"].append(parts["b"][0] + 1)
    return parts


def _scaled(x: Tensor, by: float = 2.0, shift: int = 0) -> Tensor:
    return x * by + shift


@programs.row(X, others=SIGNS)
def functions_that_call_functions(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        x = _scaled(x, 3.0, shift=1)
    return _scaled(x)


# Numbers of data ------------------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS)
def tensors_of_computed_numbers(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    count, first = int(n), float(x[0, 0])
    matrix = torch.tensor([[count, 1], [2, count * count]])
    return (
        torch.tensor([first, 1.5]) + torch.tensor(first),
        matrix,
        torch.tensor([count, 2], dtype=torch.float32),
        torch.as_tensor(x, dtype=torch.float64),
    )


@programs.row(X, others=[(torch.rand(k, 3),) for k in (1, 5)], axes={"x": {0: "rows"}})
def sizes_as_numbers(x: Tensor) -> Tuple[Tensor, int, Tensor]:
    rows, columns = x.shape
    return torch.tensor([rows, columns]), len(x) * 2, x.new_zeros([rows + 1, 2]) + x.numel()


@programs.row(X, i64(3), others=COUNTS)
def casts(x: Tensor, n: Tensor) -> Tuple[float, int, bool, float]:
    value = float(n) / 2
    return value, int(value), bool(n), x[0, 0].item() * 2.0


@programs.row(X, i64(3), others=COUNTS)
def implicit_casts(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor]:
    y = x + 2
    z = n + 3
    return y + 3 * z, z / 2 + 1.5


@programs.row(X, i64(3), others=COUNTS)
def largest_and_smallest(x: Tensor, n: Tensor) -> Tuple[float, float, int, int]:
    a = float(n) * 0.5
    return max(a, 1.25), min([a, 2.0, 0.75]), max([int(n), 2]), abs(-int(n))


@programs.row(X, i64(3), others=COUNTS)
def powers_and_roots(x: Tensor, n: Tensor) -> Tuple[float, float, int]:

    a = float(n)
    return a**0.5, a**2, int(a // 2)


@programs.row(X, i64(3), others=COUNTS)
def integer_arithmetic(x: Tensor, n: Tensor) -> Tuple[int, int, int, bool, int]:
    k = int(n)
    return k // 2, k % 2, -k, k == 3, int(k**2)


@pytest.mark.parametrize(("program", "opset"), programs.params())
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)
