"""Scripts with branches and loops of all shapes: nested, left early, begun at export, of other sizes at each step."""

# ruff: noqa: UP006, UP035, B007  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.frontends.script.scripted import Program, Programs, i64, run_program
from tests.tiers import dealt

programs = Programs()
X = torch.arange(6.0).reshape(2, 3) - 2
COUNTS = [(X, i64(n)) for n in (0, 1, 2, 5)]
SOME = [(X, i64(n)) for n in (1, 2, 5)]
SIGNS = [(X,), (-X,), (torch.zeros(2, 3),), (X * 10,)]
ROWS = {"x": {0: "rows"}}


@programs.row(X, i64(3), others=COUNTS)
def nested_loops(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        for j in range(i + 1):
            x = x + j * 0.5
        x = x - 1
    return x


@programs.row(X, i64(3), others=COUNTS)
def loop_in_a_branch_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        if bool(x.sum() < 10):
            for j in range(int(n)):
                x = x + 1
        else:
            x = x * 0.5
    return x


@programs.row(X, i64(3), others=COUNTS)
def while_with_a_counter(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    steps = 0
    while bool(x.max() < 20) and steps < int(n):
        x = x * 2 + 1
        steps += 1
    return x, steps


@programs.row(X, others=SIGNS)
def while_true_with_break(x: Tensor) -> Tuple[Tensor, int]:
    steps = 0
    while True:
        x = x + 1
        steps += 2
        if bool(x.min() > 3):
            break
    return x, steps


@programs.row(X, i64(3), others=COUNTS)
def continued(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        if i % 2 == 1:
            continue
        x = x + i
    return x


@programs.row(X, i64(3), others=COUNTS)
def continued_and_broken(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        if bool(x[0, 0] > 1):
            x = x - 5
            continue
        x = x + i
        if bool(x.sum() > 12):
            break
        x = x * 1.5
    return x


@programs.row(X, i64(3), others=COUNTS)
def broken_out_of_two_loops(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        for j in range(3):
            x = x + j
            if bool(x.sum() > 15):
                break
        if bool(x.sum() > 20):
            break
    return x


@programs.row(X, i64(3), others=COUNTS)
def returned_from_a_loop(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        x = x + i
        if bool(x.sum() > 5):
            return x * 100
    return x


@programs.row(X, others=SIGNS)
def returned_from_nested_branches(x: Tensor) -> Tuple[Tensor, int]:
    if bool(x.sum() > 0):
        if bool(x.max() > 5):
            return x, 1
        x = x + 1
    elif bool(x.min() < -2):
        return x * 2, 2
    return x - 1, 3


@programs.row(X, others=SIGNS)
def known_count_left_early(x: Tensor) -> Tensor:
    for i in range(4):
        x = x + i
        if bool(x.sum() > 8):
            break
    return x


@programs.row(X, others=SIGNS)
def known_count_left_early_with_a_state(x: Tensor) -> Tuple[Tensor, int, float]:
    found, weight = -1, 1.0
    for i in range(5):
        weight = weight * 0.5
        if bool(x.sum() > i * 2):
            found = i
            break
        x = x + 1
    return x, found, weight


@programs.row(X, i64(3), others=COUNTS)
def counted_down(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n), 0, -1):
        x = x * i
    return x


@programs.row(X, i64(7), others=[(X, i64(k)) for k in (0, 1, 2, 3, 6)])
def counted_in_strides(x: Tensor, n: Tensor) -> Tensor:
    for i in range(1, int(n), 3):
        x = x + i
    return x


@programs.row(X, others=[(torch.rand(k, 3),) for k in (0, 1, 5)], axes=ROWS)
def counted_by_a_dynamic_axis(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for i in range(x.size(0)):
        total = total * 0.5 + x[i]
    return total


@programs.row(X, others=[(torch.rand(k, 3),) for k in (0, 1, 5)], axes=ROWS)
def iterated_tensor(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x:
        total = torch.maximum(total, row)
    return total


@programs.row(X, others=[(torch.rand(k, 3),) for k in (1, 2, 5)], axes=ROWS)
def branch_on_a_dynamic_size(x: Tensor) -> Tensor:
    if x.size(0) > 2:
        return x[:2] * 2
    return x


@programs.row(X, i64(3), others=COUNTS)
def size_that_shrinks(x: Tensor, n: Tensor) -> Tensor:
    y = torch.arange(8.0)
    for i in range(int(n)):
        y = y[1:] + y[:-1]
    return y


@programs.row(X, i64(3), others=COUNTS)
def fibonacci(x: Tensor, n: Tensor) -> Tuple[int, int]:
    a, b = 0, 1
    for _ in range(int(n)):
        a, b = b, a + b
    return a, b


@programs.row(X, i64(12), i64(18), others=[(X, i64(a), i64(b)) for a, b in ((7, 3), (5, 5), (9, 0))])
def greatest_common_divisor(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    while bool(b != 0):
        a, b = b, a % b
    return x * a


@programs.row(X, others=SIGNS)
def numbers_and_flags_from_branches(x: Tensor) -> Tuple[Tensor, int, float, bool]:
    count, scale, seen = 0, 1.0, False
    if bool(x.sum() > 0):
        count, scale, seen = 3, 2.5, True
    if seen and bool(x.max() > 2):
        count += 1
    return x * scale * count, count, scale, seen


@programs.row(X, others=SIGNS)
def conditional_expression(x: Tensor) -> Tensor:
    y = x + 1 if bool(x.sum() > 0) else x - 1
    return y * (2 if bool(y.max() > 3) else 3)


@programs.row(X, others=SIGNS)
def not_and_or(x: Tensor) -> Tensor:
    low, high = bool(x.min() < -1), bool(x.max() > 2)
    if not low or (high and bool(x.sum() > 1)):
        x = x + 10
    if not (low or high):
        x = x * 2
    return x


@programs.row(X, i64(3), others=COUNTS)
def number_becomes_a_tensor_size(x: Tensor, n: Tensor) -> Tensor:
    rows = 1
    for i in range(int(n)):
        rows += i
    return torch.ones(rows, 2).cumsum(0)


@programs.row(X, i64(3), others=COUNTS)
def sum_of_powers(x: Tensor, n: Tensor) -> Tensor:
    term, total = torch.ones_like(x), torch.zeros_like(x)
    for i in range(int(n)):
        total = total + term
        term = term * x / (i + 1)
    return total


@programs.row(X, others=SIGNS)
def newton_until_it_is_near(x: Tensor) -> Tensor:
    target = x.abs() + 1
    guess = target
    while bool((guess * guess - target).abs().max() > 1e-3):
        guess = 0.5 * (guess + target / guess)
    return guess


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.LSTMCell(3, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        h, c = torch.zeros(x.size(1), 4), torch.zeros(x.size(1), 4)
        for i in range(int(lengths.max())):
            h, c = self.step(x[i], (h, c))
        return self.out(h), c


programs.row(
    torch.rand(5, 2, 3),
    i64(3, 2),
    others=[(torch.rand(5, 2, 3), i64(k, 1)) for k in (1, 4, 5)],
)(Cell)


class Layers(nn.Module):
    """A module list walked in a loop on data, and a layer chosen by it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.names = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            for name, layer in self.names.items():
                if name == "a" or bool(x.sum() > 0):
                    x = layer(x)
        return x


programs.row(X, i64(2), others=COUNTS)(Layers)


@programs.row(X, i64(3), others=COUNTS)
def written_in_place_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    y = torch.zeros(6, 3)
    for i in range(int(n)):
        y[i] = x[0] * i
        y[:, 1] += 1
    return y


@programs.row(X, others=SIGNS)
def written_in_place_in_a_branch(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[0]
    if bool(x.sum() > 0):
        row += 5
        y[1].zero_()
    return y


@programs.row(X, i64(3), others=COUNTS)
def what_nobody_reads(x: Tensor, n: Tensor) -> Tensor:
    unread = x
    for i in range(int(n)):
        unread = unread * 2 + i
        x = x + 1
    return x


# Sizes that follow from data ------------------------------------------------------------------------------------------


@programs.row(torch.rand(6, 3), i64(3), others=[(torch.rand(6, 3), i64(n)) for n in (0, 1, 6, -2)])
def cut_at_data(x: Tensor, n: Tensor) -> Tensor:
    return x[: int(n)] * 2


@programs.row(torch.rand(6, 3), i64(3), others=[(torch.rand(6, 3), i64(n)) for n in (0, 1, 4)])
def window_at_data(x: Tensor, n: Tensor) -> Tensor:
    k = int(n)
    return x[k : k + 2].sum(0) + x[:, 1:].sum()


@programs.row(X, i64(3), others=COUNTS)
def range_of_data(x: Tensor, n: Tensor) -> Tensor:
    return torch.arange(int(n)) * 2 + torch.zeros(int(n), dtype=torch.int64)


@programs.row(X, i64(3), others=SOME)
def view_of_data(x: Tensor, n: Tensor) -> Tensor:
    y = torch.ones(int(n) * 6).view(int(n), 6)
    return y.reshape(-1, 3).t() + 1


@programs.row(X, i64(1), others=[(X, i64(0)), (X, i64(-1))])
def picked_by_data(x: Tensor, n: Tensor) -> Tensor:
    return x[int(n)] + x[n] + x.select(0, int(n))


@programs.row(X, i64(3), others=COUNTS)
def rows_added_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    y = x[:0]
    for i in range(int(n)):
        y = torch.cat([y, x * i])
    return y.sum(1)


@programs.row(X, i64(3), others=SOME)
def mask_of_data(x: Tensor, n: Tensor) -> Tensor:
    m = torch.arange(int(n)).unsqueeze(0) < torch.arange(int(n)).unsqueeze(1)
    return m.float().softmax(1)


@programs.row(X, others=SIGNS)
def loop_over_nonzero(x: Tensor) -> Tensor:
    places = torch.nonzero(x > 0)
    total = torch.zeros(1)
    for i in range(places.size(0)):
        total = total + x[places[i, 0], places[i, 1]] * i
    return total


@programs.row(X, others=SIGNS)
def branch_on_the_size_of_a_mask(x: Tensor) -> Tensor:
    y = x[x > 0]
    if y.numel() > 0:
        return y.max().reshape(1)
    return torch.full((1,), -1.0)


@programs.row(X, i64(3), others=COUNTS)
def padded_by_data(x: Tensor, n: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, [0, int(n)])


@programs.row(X, others=SIGNS)
def rotated_to_the_largest(x: Tensor) -> Tensor:
    k = int(x.argmax())
    y = x.flatten()
    return torch.cat([y[k:], y[:k]])


@programs.row(torch.rand(4, 3, 2), i64(2, 1, 3, 0), others=[(torch.rand(4, 3, 2), i64(1, 1, 1, 2))])
def mean_of_each_length(x: Tensor, lengths: Tensor) -> Tensor:
    out = torch.zeros(x.size(0), x.size(2))
    for i in range(x.size(0)):
        n = int(lengths[i])
        if n > 0:
            out[i] = x[i, :n].mean(0)
    return out


@programs.row(X, i64(3), others=COUNTS)
def while_a_flag_is_not_set(x: Tensor, n: Tensor) -> Tensor:
    done = False
    k = 0
    while not done:
        k += 1
        x = x + k
        done = k >= int(n) or bool(x.sum() > 30)
    return x * k


@programs.row(X, i64(3), others=COUNTS, remark="the script checks at")
def raise_inside_of_a_branch(x: Tensor, n: Tensor) -> Tensor:
    y = x
    if int(n) > 1:
        y = x + 1
        if int(n) > 100:
            raise ValueError("no")
        y = y * 2
    return y


# Loops of many known steps --------------------------------------------------------------------------------------------

STAYING: List[Tuple[Any, int]] = []  # with the number of nodes of the file, bodies not counted


def stays(nodes: int) -> Any:
    def register(script: Any) -> Any:
        STAYING.append((script, nodes))
        return script

    return register


@stays(1)
@programs.row(X, others=SIGNS, axes=ROWS)
def many_known_steps(x: Tensor) -> Tensor:
    for i in range(5000):
        x = x * 0.999 + i * 0.001
    return x


@stays(1)
@programs.row(X, others=SIGNS)
def many_steps_of_a_while(x: Tensor) -> Tensor:
    i, scale = 0, 1.0
    while i < 300:
        x = x * 0.99 + scale
        scale *= 0.9
        i += 1
    return x


@stays(3)
@programs.row(torch.rand(80, 3), others=[(torch.rand(80, 3),)])
def many_rows(x: Tensor) -> Tensor:
    parts: List[Tensor] = []
    for i in range(x.size(0)):
        parts.append(x[i] * i)
    return torch.stack(parts)


@stays(1)
@programs.row(X, others=SIGNS)
def few_steps_of_many(x: Tensor) -> Tensor:
    """65 steps of 20: the inner loop alone is unrolled too often."""
    for i in range(65):
        for j in range(20):
            x = x * 0.999 + (i - j)
    return x


@stays(10)
@programs.row(X, others=SIGNS)
def left_before_many_steps(x: Tensor) -> Tensor:
    for i in range(1000):
        if i == 5:
            break
        x = x * 2 + i
    return x


@stays(3)
@programs.row(X, others=SIGNS)
def many_steps_that_must_be_unrolled(x: Tensor) -> Tensor:
    """The keys of a dict must be known at export."""
    sums: Dict[int, Tensor] = {}
    for i in range(80):
        sums[i] = x + i
    return sums[79] + sums[3]


@pytest.mark.parametrize(("script", "nodes"), dealt(STAYING, 2, [script.__name__ for script, _ in STAYING]))
def test_many_steps_stay_a_loop(script: Any, nodes: int) -> None:
    program = purexport.export(torch.jit.script(script), (torch.rand(80, 3),))
    assert len(program.model_proto.graph.node) == nodes


@pytest.mark.parametrize(("program", "opset"), dealt(programs.params(), 3))
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)


def test_what_nobody_reads_is_not_carried() -> None:
    program = purexport.export(torch.jit.script(what_nobody_reads), (X, i64(3)))
    (node,) = [node for node in program.model_proto.graph.node if node.op_type == "Loop"]
    assert len(node.output) == 1
