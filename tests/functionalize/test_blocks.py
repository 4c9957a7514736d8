"""Writes in place inside branches and loops that depend on data, as scripts; what cannot be followed is refused.

Each program is a row: run with its example and with others that take the other branch and other numbers of steps.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, List, Tuple  # noqa: UP035  TorchScript knows these

import onnx
import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.harness import run_ort
from tests.tiers import in_turn
from tests.tolerances import assert_near

OPSETS = (11, 13, 17, 20, 23)


@dataclass(frozen=True)
class Program:
    """A script's source, its example, other inputs, and dynamic axes."""

    make: Callable[..., Any]
    example: tuple[Tensor, ...]
    others: tuple[tuple[Tensor, ...], ...]
    axes: dict[str, dict[int, str]] | None


PROGRAMS: dict[str, Program] = {}
X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
BOTH_SIGNS = ((X,), (-X,))
COUNTS = tuple((X, torch.tensor(count)) for count in (3, 0, 1, 6))
ROWS = {"x": {0: "rows"}}


def program(*inputs: tuple[Tensor, ...], axes: Any = None) -> Callable[[Any], Any]:
    """Adds the decorated function or module class; the first of `inputs` is the example."""

    def add(make: Any) -> Any:
        PROGRAMS[make.__name__] = Program(make, inputs[0], inputs[1:], axes)
        return make

    return add


# branches -------------------------------------------------------------------------------------------------------------


@program(*BOTH_SIGNS)
def two_results_that_are_never_one(x: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    if bool(x.sum() > 0):
        a, b = x + 1, x + 2
    else:
        a, b = x - 1, x - 2
    a.add_(1)
    return a, b


@program(*BOTH_SIGNS)
def in_one_branch(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y[0] += 1
    return y


@program(*BOTH_SIGNS)
def in_both_branches(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y[:, 1:] *= 2
    else:
        y.neg_()
        y[1].zero_()
    return y * 3


@program(*BOTH_SIGNS)
def through_a_view_from_outside(x: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    y = x.clone()
    v = y[1:]
    if bool(x.sum() > 0):
        v.mul_(2)
    return y, v


@program(*BOTH_SIGNS)
def a_view_read_afterwards(x: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    y = x.clone()
    v = y.t()
    w = v[1]
    if bool(x.sum() > 0):
        y.add_(10)
        w.add_(1)
    else:
        v[0, 0] = 7.0
    return v + 0, w


@program(*BOTH_SIGNS, (X * 0,))
def nested_branches(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[0]
    if bool(x.sum() > 0):
        y += 1
        if bool(row[0] > 1):
            row.fill_(9)
    elif bool(x.sum() < 0):
        y.sub_(1)
    y[1, 1] = row[0]
    return y


@program(*BOTH_SIGNS)
def a_name_that_both_keep(x: Tensor) -> Tensor:
    y = x.clone()
    z = y.add_(1) if bool(x.sum() > 0) else y
    z.mul_(2)
    return y


@program(*BOTH_SIGNS)
def through_a_list(x: Tensor) -> Tensor:
    y = x.clone()
    items: List[Tensor] = [y, x]  # noqa: UP006
    if bool(x.sum() > 0):
        items[0].add_(1)
    return y * items[0]


@program(*BOTH_SIGNS)
def masks(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y[y > 2] = 0.0
    else:
        y.masked_fill_(y < 0, 5.0)
    return y


@program(*BOTH_SIGNS)
def early_return(x: Tensor) -> Tensor:
    y = x.clone()
    y[0, 0] = 100.0
    if bool(x.sum() > 0):
        y[1] = 1.0
        return y
    y.mul_(2)
    return y - 1


@program(*BOTH_SIGNS)
def out_argument(x: Tensor) -> Tensor:
    y = torch.zeros(2, 3)
    if bool(x.sum() > 0):
        torch.add(x, x, out=y)
    return y + 1


@program(*BOTH_SIGNS)
def dtypes_stay(x: Tensor) -> Tensor:
    y = torch.zeros(2, 3, dtype=torch.int32)
    if bool(x.sum() > 0):
        y += 3
        y[0] = x[0].to(torch.int32)
    return y


@program(*BOTH_SIGNS, (torch.ones(5, 3),), (torch.ones(1, 3),), axes=ROWS)
def rows_of_any_number(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y[1:, :2] += 1
    return y


@program(*BOTH_SIGNS)
class BufferInBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            self.seen.add_(x[0])
        return self.seen * 2 + x


# loops ----------------------------------------------------------------------------------------------------------------


@program(*COUNTS)
def rows_written(x: Tensor, times: Tensor) -> Tensor:
    out = torch.zeros(8, 3)
    for i in range(int(times)):
        out[i] = x[0] * i
    return out


@program(*COUNTS)
def rows_that_follow_from_rows(x: Tensor, times: Tensor) -> Tensor:
    out = torch.ones(10)
    for i in range(int(times)):
        out[i + 2] = out[i + 1] + out[i]
    return out + x[0, 0]


@program(*COUNTS)
def carried_in_place(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(times)):
        y += i
        y.mul_(0.5)
    return y


@program(*COUNTS)
def a_view_of_what_a_loop_writes(x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    y = x.clone()
    v = y[:, 1]
    for _ in range(int(times)):
        v.add_(1)
        y[0] += v[1]
    v.sub_(1)
    return y, v


@program(*COUNTS)
def written_then_new(x: Tensor, times: Tensor) -> Tensor:
    h = x.clone()
    for _ in range(int(times)):
        h.mul_(2)
        h = h + 1
    return h


@program(*COUNTS)
def new_then_written(x: Tensor, times: Tensor) -> Tensor:
    h = x
    for _ in range(int(times)):
        h = h + x
        h[0].clamp_(max=5.0)
    return h + x


@program(*COUNTS)
def state_copied_into(x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    state = torch.zeros(2, 3)
    total = torch.zeros(2, 3)
    for _ in range(int(times)):
        state.copy_(torch.tanh(state + x))
        total += state
    return state, total


@program(*COUNTS)
def branch_in_a_loop(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(times)):
        if bool(y.sum() > 6):
            y[0] -= 2
        else:
            y[1] += i + 1
    return y


@program(*((x, torch.tensor(n)) for x in (X, -X) for n in (2, 0, 3)))
def loop_in_a_branch(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        for i in range(int(times)):
            y[:, i] = x[0, 0] * i
    else:
        y.zero_()
    return y


@program(*((X, torch.tensor(n), torch.tensor(m)) for n, m in ((2, 3), (0, 2), (1, 0), (2, 1))))
def loop_in_a_loop(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(rows)):
        for j in range(int(columns)):
            y[i, j] = y[i, j] * 10 + i + j
        y[i] += 0.5
    return y


@program((X,), (X * 100,), (X * 0,))
def while_on_what_it_writes(x: Tensor) -> Tensor:
    y = x.clone()
    while bool(y.max() < 50):
        y.mul_(3).add_(1)
    return y


@program(*COUNTS)
def breaks_and_continues(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(times)):
        y += 1
        if i == 1:
            continue
        y[0] *= 2
        if bool(y.sum() > 40):
            break
        y[1] -= 1
    return y


@program(*COUNTS)
def flags(x: Tensor, times: Tensor) -> Tensor:
    done = torch.zeros(2, dtype=torch.bool)
    count = torch.zeros(2, dtype=torch.long)
    for i in range(int(times)):
        done |= x[:, 0] < i
        count[~done] += 1
    return count


@program(*COUNTS)
def positions_from_tensors(x: Tensor, times: Tensor) -> Tensor:
    y = torch.zeros(4, 3)
    for i in range(int(times)):
        place = (x[0, 0].long() + i) % 4
        y[place] = y[place] + x[1]
    return y


@program(*COUNTS)
def through_transposed_and_reshaped(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    for _ in range(int(times)):
        y.t()[0] += 1
        y.view(6)[2:4] *= 2
        y.diagonal().sub_(0.5)
    return y


@program(*COUNTS)
class Cache(nn.Module):
    """Rows written at a position that moves on; the buffer is the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 3))
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        for i in range(int(times)):
            self.rows[i] = self.layer(x[0] + self.rows.sum(0))
        return self.rows


@program(*((torch.arange(12.0).reshape(n, -1), torch.tensor(n)) for n in (4, 1, 6, 3)), axes={"x": {0: "n", 1: "m"}})
def sizes_of_any_number(x: Tensor, times: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(times)):
        y[i] = y[i].flip(0)
        y[:, 0] += 1
    return y


@program(*COUNTS)
def sorted_by_swapping(x: Tensor, times: Tensor) -> Tensor:
    y = x.reshape(6).clone()
    for _ in range(int(times)):
        for j in range(5):
            if bool(y[j] > y[j + 1]):
                low = y[j + 1].clone()
                y[j + 1] = y[j]
                y[j] = low
    return y


@pytest.mark.parametrize(("name", "opset"), in_turn(PROGRAMS, OPSETS))
def test_program(name: str, opset: int) -> None:
    row = PROGRAMS[name]
    torch.manual_seed(0)
    module = row.make() if isinstance(row.make, type) else None

    def make() -> Any:  # a module that counts its calls starts anew each time
        return torch.jit.script(row.make if module is None else copy.deepcopy(module))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        exported = purexport.export(make(), row.example, dynamic_axes=row.axes, opset_version=opset)
    data = exported.model_proto.SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    for args in (row.example, *row.others):
        got = run_ort(data, [arg.numpy() for arg in args])
        expected = make()(*(arg.clone() for arg in args))
        leaves = expected if isinstance(expected, tuple) else (expected,)
        for mine, theirs in zip(got, leaves, strict=True):
            assert_near(mine, theirs)


def test_a_buffer_written_in_a_branch_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"writes to its buffer 'seen' at .*test_blocks\.py:\d+"):
        purexport.export(torch.jit.script(BufferInBranch()), (X,))


# what is refused ------------------------------------------------------------------------------------------------------


def either_name(x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:  # noqa: UP006
    a, b = x.clone(), x.clone()
    c = a if bool(x.sum() > 0) else b
    c.add_(1)
    return a, b, c


def perhaps_one(x: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    if bool(x.sum() > 0):
        a = x + 1
        b = a
    else:
        a, b = x + 1, x + 2
    a.add_(1)
    return a, b


def swapped(x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    a, b = x.clone(), x.clone()
    for _ in range(int(times)):
        a.add_(1)
        a, b = b, a
    return a, b


def first_step_writes_outside(x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    y = x.clone()
    h = y
    for _ in range(int(times)):
        h.add_(1)
        h = h * 2
    return h, y


def may_write_to_its_input(x: Tensor, times: Tensor) -> Tensor:
    h = x
    for _ in range(int(times)):
        h.add_(1)
        h = h * 2
    return h


def transposed_inside(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y.transpose_(0, 1)
    return y.sum(0)


def read_at_the_next_step(x: Tensor, times: Tensor) -> Tensor:
    """Whether `flat` is a view of `y` is not known where sizes are not."""
    y = x * 2
    flat = y.reshape(-1)
    total = flat.sum()
    for _ in range(int(times)):
        total = total + flat.sum()
        y.add_(1)
    return total


TIMES = torch.tensor(2)
REFUSED = {
    "a tensor with either of two names": (either_name, (X,), r"aten::add_.* the branch at .* another name"),
    "two results of a branch that may be one": (perhaps_one, (X,), r"aten::add_.* the branch at .* another name"),
    "tensors that swap their names": (swapped, (X, TIMES), r"aten::add_.* the loop at .* another name"),
    "a write outside at the first step only": (first_step_writes_outside, (X, TIMES), r"aten::add_.* the loop at"),
    "a write to an input at the first step only": (may_write_to_its_input, (X, TIMES), r"aten::add_.*input 'x'"),
    "a shape that changes in a branch": (transposed_inside, (X,), r"aten::transpose_ at .*test_blocks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, args, message = REFUSED[name]
    with pytest.raises(purexport.ExportError, match=message):
        purexport.export(torch.jit.script(function), args)


def test_a_write_is_refused_that_the_next_step_may_read() -> None:
    script, axes = torch.jit.script(read_at_the_next_step), {"x": {0: "n"}}
    with pytest.raises(purexport.ExportError, match=r"aten::reshape .* may or may not have copied"):
        purexport.export(script, (X, TIMES), input_names=["x", "times"], dynamic_axes=axes)
