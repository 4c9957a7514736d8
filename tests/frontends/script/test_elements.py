"""Scripts with lists of numbers and of tuples that grow by data, and lists that several names share."""

# ruff: noqa: UP006, UP035, B007  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from typing import List, Tuple

import pytest
import torch
from torch import Tensor

from tests.frontends.script.scripted import Program, Programs, i64, run_program
from tests.tiers import dealt

programs = Programs()
X = torch.arange(6.0).reshape(2, 3) - 2
COUNTS = [(X, i64(n)) for n in (0, 1, 2, 5)]
SOME = [(X, i64(n)) for n in (1, 2, 5)]
SIGNS = [(X,), (-X,), (torch.zeros(2, 3),)]


# Numbers of tensors ---------------------------------------------------------------------------------------------------


@programs.row(torch.tensor([2.5]), torch.tensor([[3]]), others=[(torch.tensor([-1.5]), torch.tensor([[0]]))])
def numbers_of_any_rank(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    numbers = torch.tensor([float(x), 1.0])
    return numbers, torch.tensor([[int(n), int(x)]]), torch.tensor([bool(n), bool(x > 0)])


@programs.row(torch.rand(2, 3, 4), others=[(torch.rand(5, k, 4),) for k in (1, 6)], axes={"x": {0: "n", 1: "m"}})
def strides_of_computed_sizes(x: Tensor) -> Tensor:
    rows = x.stride()
    return torch.tensor([rows[0] + rows[2], x.stride(1)])


@programs.row(torch.rand(4, 3), others=[(torch.rand(n, 3),) for n in (2, 3, 5)], axes={"x": {0: "n"}})
def comparisons_of_sizes_as_numbers(x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    many = x.size(0) > 3
    return x * int(many), x.masked_fill(x > 0.5, many), x + many + torch.full((3,), many)


@programs.row(X, (X > 0).to(torch.uint8), others=[(-X, (X > 1).to(torch.uint8))])
def masks_of_bytes(x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
    return torch.where(mask, x, -x), torch.where(mask, x, 0.5)


# Lists of numbers -----------------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS)
def numbers_appended(x: Tensor, n: Tensor) -> Tensor:
    out: List[int] = []
    for i in range(int(n)):
        out.append(i * i)
    return torch.tensor(out, dtype=torch.int64)


@programs.row(X, i64(3), others=COUNTS)
def floats_appended(x: Tensor, n: Tensor) -> Tensor:
    out = [0.5]
    for i in range(int(n)):
        out.append(float(x[0, 0]) + i)
    return torch.tensor(out)


@programs.row(X, i64(3), others=COUNTS)
def flags_appended(x: Tensor, n: Tensor) -> Tensor:
    out = [True]
    for i in range(int(n)):
        out.append(bool(x.sum() > i))
    return torch.tensor(out)


@programs.row(X, i64(3), others=COUNTS)
def numbers_read(x: Tensor, n: Tensor) -> Tuple[int, int, int]:
    out = [3, 4]
    for i in range(int(n)):
        out.append(out[-1] + out[i])
    return out[-1], out[len(out) - 2], len(out)


@programs.row(X, i64(3), others=COUNTS)
def numbers_changed(x: Tensor, n: Tensor) -> Tensor:
    out = [3, 4, 5]
    for i in range(int(n)):
        out.insert(1, i)
        out[i] = out[0] + 1
        out[-1] = 9 + i
        out.append(out.pop(0))
        out.append(out.pop() + 1)
    return torch.tensor(out)


@programs.row(X, i64(3), others=COUNTS)
def numbers_found(x: Tensor, n: Tensor) -> Tuple[bool, bool, int, int, int]:
    out = [3]
    for i in range(int(n)):
        out.append(7 - i)
    return 5 in out, int(n) in out, sum(out), max(out), min(out)


@programs.row(X, i64(3), others=COUNTS)
def numbers_sorted(x: Tensor, n: Tensor) -> Tensor:
    out = [3, 5]
    for i in range(int(n)):
        out.append(4 - i)
    first = sorted(out)
    out.sort(reverse=True)
    return torch.tensor(first + out[1:])


@programs.row(X, i64(3), others=COUNTS)
def numbers_sliced(x: Tensor, n: Tensor) -> Tensor:
    out = [3, 5]
    for i in range(int(n)):
        out.append(4 - i)
    return torch.tensor(out[1:] + out[:-1] + out[::2])


@programs.row(X, i64(1), others=[(X, i64(n)) for n in (0, 2, -1, -3)], min_opset=11)
def known_list_at_a_computed_place(x: Tensor, n: Tensor) -> Tuple[Tensor, float]:
    rows = [x, x * 2, x * 3]
    weights = [0.5, 1.5, 2.5]
    return rows[int(n)], weights[int(n)]


@programs.row(X, i64(1), others=[(X, i64(n)) for n in (0, 2, -1, -3)])
def number_put_at_a_computed_place(x: Tensor, n: Tensor) -> Tensor:
    marks = [1, 2, 3]
    marks[int(n)] = 9
    return torch.tensor(marks)


@programs.row(X, i64(1), others=[(X, i64(n)) for n in (0, 2, -1, -3)])
def tensor_put_at_a_computed_place(x: Tensor, n: Tensor) -> Tensor:
    rows = [x, x * 2, x * 3]
    rows[int(n)] = -x
    return torch.stack(rows)


@programs.row(X, i64(3), others=SOME)
def list_repeated_by_data(x: Tensor, n: Tensor) -> Tensor:
    marks = [0] * int(n)
    marks[0] = 5
    return torch.tensor(marks)


@programs.row(torch.rand(6, 3), others=[(torch.rand(k, 3),) for k in (2, 4, 7)], axes={"x": {0: "n"}})
def split_of_a_dynamic_axis(x: Tensor) -> Tensor:
    t = torch.zeros(3)
    for part in x.split(2, 0):
        t = t * 0.5 + part.sum(0)
    return t


@programs.row(torch.rand(6, 3), others=[(torch.rand(k, 3),) for k in (1, 4, 7)], axes={"x": {0: "n"}})
def unbound_dynamic_axis(x: Tensor) -> Tensor:
    t = torch.zeros(3)
    for part in x.unbind(0):
        t = t * 0.5 + part
    return t


@programs.row(X, i64(3), others=SOME, min_opset=13)
def sizes_of_elements(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    i = 0
    while i < int(n):
        out.append(torch.arange(i + 1))
        i += 1
    sizes = [o.size(0) for o in out]
    return torch.cat(out) + sum(sizes)


@programs.row(X, i64(3), others=SOME)
def known_tolist(x: Tensor, n: Tensor) -> Tensor:
    k: List[int] = torch.arange(4).tolist()
    return x * k[2]


@programs.row(X, i64(3, 1, 2), others=[(X, i64(0, 4, 4))])
def tolist_of_data(x: Tensor, n: Tensor) -> Tensor:
    k: List[int] = n.tolist()
    t = x
    for i in k:
        t = t + i
    return t


@programs.row(X, others=SIGNS)
def any_and_all(x: Tensor) -> int:
    flags = [bool(x[0, 0] > 0), bool(x[1, 1] > 0)]
    if any(flags) and not all(flags):
        return 1
    return 2


# Lists of tuples ------------------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=SOME, min_opset=13)
def tuples_appended(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tuple[Tensor, int]] = []
    for i in range(int(n)):
        out.append((x * i, i))
    total = x
    for item, mark in out:
        total = total + item * mark
    return total + out[-1][0]


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def tuples_changed(x: Tensor, n: Tensor) -> Tuple[Tensor, int, int]:
    out = [(x, 0.5), (x + 1, 1.5)]
    for i in range(int(n)):
        out.insert(1, (x * i, float(i)))
        out[0] = (out[0][0] + 1, out[-1][1])
        out.append(out[i])
        last, weight = out.pop()
        out += [(last * weight, weight)]
    return out[-1][0] + out[0][1], len(out), len(out[1:] + out)


@programs.row(X, others=SIGNS, min_opset=13)
def tuple_appended_on_one_side(x: Tensor) -> Tensor:
    out = [(x, (1, True))]
    if bool(x.sum() > 0):
        out.append((x * 2, (5, False)))
    item, (mark, flag) = out[-1]
    return item * mark if flag else item - mark


@programs.row(X, i64(1), others=[(X, i64(n)) for n in (0, 2, -1, -3)])
def tuple_at_a_computed_place(x: Tensor, n: Tensor) -> Tensor:
    item, weight = [(x, 1.0), (x * 2, 0.5), (x - 3, 2.0)][int(n)]
    return item * weight


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def best_of_a_beam(x: Tensor, n: Tensor) -> Tuple[Tensor, float]:
    kept: List[Tuple[Tensor, float]] = [(x, 0.0)]
    for i in range(int(n)):
        grown: List[Tuple[Tensor, float]] = []
        for state, score in kept:
            grown.append((state + i, score + float(state.sum())))
            if bool(state.max() > 3):
                grown.append((state * -0.5, score - 1.0))
        kept = grown
    best = kept[0]
    for candidate in kept:
        if candidate[1] > best[1]:
            best = candidate
    return best


# Who shares what with whom --------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def grown_through_two_names(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    a = [x]
    b = a
    d = {"k": a}
    for i in range(int(n)):
        b[0] = b[0] + 1
        a.append(x * i)
    d["k"].append(x)
    return torch.stack(b), len(d["k"])


@programs.row(X, others=SIGNS)
def list_in_a_list_and_a_tuple(x: Tensor) -> Tensor:
    inner = [x]
    outer = [inner, [x + 1]]
    t = (inner, 1)
    if bool(x.sum() > 0):
        outer[0][0] = x * 5
    else:
        outer[1][0] = x * 7
    t[0][0] = t[0][0] + 1
    return inner[0] + 10 * outer[1][0] + outer[0][0]


@programs.row(X, others=SIGNS)
def lists_swapped_in_a_branch(x: Tensor) -> Tensor:
    a, b = [x], [x + 1]
    if bool(x.sum() > 0):
        a, b = b, a
    return a[0] * 10 + b[0]


@programs.row(X, i64(3), others=COUNTS)
def list_of_a_step_that_leaves_the_loop(x: Tensor, n: Tensor) -> Tensor:
    last = [x]
    for i in range(int(n)):
        row = [x * i]
        row[0] = row[0] + 1
        last = row
    last[0] = last[0] * 2
    return last[0]


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def queue_of_work(x: Tensor, n: Tensor) -> Tensor:
    todo = [x]
    total = torch.zeros(2, 3)
    steps = 0
    while len(todo) > 0 and steps < int(n):
        item = todo[0]
        todo = todo[1:]
        total = total + item
        if bool(item.sum() > 1):
            todo = todo + [item - 1, item * 0.5]  # noqa: RUF005
        steps += 1
    return total + len(todo)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def grown_by_an_inner_loop(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    marks: List[int] = []
    for i in range(int(n)):
        for j in range(i):
            if bool(x.sum() + j > 4):
                out.append(x * j)
            marks.append(i * j)
        out.append(x + i)
    out.append(x)
    return torch.stack(out).sum(0) + len(marks) + sum(marks)


@programs.row(X, others=SIGNS)
def dict_chosen_by_a_branch(x: Tensor) -> Tensor:
    a = {"v": x}
    b = a
    if bool(x.sum() > 0):
        b = {"v": x + 1}
    return a["v"] + 10 * b["v"]


@programs.row(X, i64(3), others=COUNTS)
def lists_swapped_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    a, b = [x], [x + 1]
    for i in range(int(n)):
        a, b = b, a
    return a[0] * 10 + b[0]


@programs.row(X, i64(3), others=COUNTS)
def tuple_beside_a_tensor_written_in_place(x: Tensor, n: Tensor) -> Tensor:
    h = x.clone()
    st = (h, x + 1)
    for i in range(int(n)):
        st = (st[1] + 1, st[0] * 2)
        h += 1
    return h + st[0] * 10 + st[1] * 100


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def written_in_place_before_it_is_appended(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        y = x.clone()
        y[0] += i
        y.mul_(2)
        out.append(y)
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS)
def list_that_may_be_none(x: Tensor, n: Tensor) -> Tensor:
    best: List[int] | None = None
    for i in range(int(n)):
        if best is None or bool(x.sum() + i > 4):
            best = [i, i + 1]
    if best is not None:
        return x * best[0] + best[1]
    return x


@programs.row(X, i64(3), others=COUNTS)
def one_of_two_tensors(x: Tensor, n: Tensor) -> Tensor:
    a, b = x.clone(), x + 1
    for i in range(int(n)):
        c = a if bool(a.sum() > b.sum()) else b
        a = a + 1
        b = c * 0.5
    return a + b


@pytest.mark.parametrize(("program", "opset"), dealt(programs.params(), 2))
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)
