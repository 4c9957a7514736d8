"""Scripts whose lists, dicts and tuples change inside loops and branches that depend on data."""

# ruff: noqa: UP006, UP035, SIM108, B007, B905  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from typing import Dict, List, Tuple

import onnx
import pytest
import torch
from torch import Tensor

import purexport
from purexport.api import verify
from tests.scripted import Program, Programs, i64, run_program

programs = Programs()
ONES = torch.ones(2, 3)
X = torch.arange(6.0).reshape(2, 3) - 2
COUNTS = [(X, i64(n)) for n in (0, 1, 2, 5)]
SOME = [(X, i64(n)) for n in (1, 2, 5)]
SIGNS = [(X,), (-X,), (torch.zeros(2, 3),)]


# Tuples and lists that a loop carries ---------------------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS)
def tuple_carried(x: Tensor, n: Tensor) -> Tensor:
    state = (x, x * 2)
    for i in range(int(n)):
        state = (state[1], state[0] + state[1])
    return state[0] + state[1]


@programs.row(X, i64(3), others=COUNTS)
def tuple_of_tuples_carried(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    state = ((x, 0), x.sum())
    for i in range(int(n)):
        (h, count), total = state
        state = ((h + total, count + i), h.sum())
    return state[0][0] + state[1], state[0][1]


@programs.row(X, i64(3), others=COUNTS)
def pair_of_names_carried(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor]:
    h, c = torch.zeros(2, 3), torch.ones(2, 3)
    for i in range(int(n)):
        h, c = torch.tanh(x + c), h + c
    return h, c


@programs.row(X, i64(3), others=COUNTS)
def list_rebound_at_one_length(x: Tensor, n: Tensor) -> Tensor:
    items = [x, x + 1]
    for i in range(int(n)):
        items = [items[1], items[0] * 2]
    return items[0] - items[1]


@programs.row(X, i64(3), others=COUNTS)
def lists_in_a_tuple_carried(x: Tensor, n: Tensor) -> Tensor:
    state = ([x, x], 1.5)
    for i in range(int(n)):
        rows, scale = state
        state = ([rows[1] * scale, rows[0]], scale + 1.0)
    return state[0][0] + state[0][1] * state[1]


@programs.row(X, others=SIGNS)
def tuple_joined(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        pair = (x, 2)
    else:
        pair = (-x, 3)
    return pair[0] * pair[1]


# Lists and dicts from outside that a body changes ---------------------------------------------------------------------


@programs.row(X, i64(3), others=COUNTS)
def element_replaced_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    items = [x, x * 2]
    for i in range(int(n)):
        items[0] = items[0] + items[1]
        items[-1] = items[1] - 1
    return items[0] * items[1]


@programs.row(X, others=SIGNS)
def element_replaced_in_a_branch(x: Tensor) -> Tensor:
    items = [x, x * 2]
    if bool(x.sum() > 0):
        items[0] = x * 5
    else:
        items[1] = x * 7
    return items[0] + 2 * items[1]


@programs.row(X, others=SIGNS)
def change_seen_through_the_other_name(x: Tensor) -> Tensor:
    items = [x]
    same = items
    if bool(x.sum() > 0):
        same[0] = x + 10
    same.append(x)
    return items[0] + items[1]


@programs.row(X, others=SIGNS)
def both_sides_append(x: Tensor) -> Tensor:
    items = [x]
    if bool(x.sum() > 0):
        items.append(x * 2)
    else:
        items.append(x * 3)
    return torch.stack(items)


@programs.row(X, i64(3), others=COUNTS)
def dict_value_replaced_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    found = {"h": x, "c": x * 2}
    for i in range(int(n)):
        found["h"] = found["h"] + found["c"]
    return found["h"]


@programs.row(X, others=SIGNS)
def dict_filled_on_both_sides(x: Tensor) -> Dict[str, Tensor]:
    found: Dict[str, Tensor] = {}
    if bool(x.sum() > 0):
        found["y"] = x
    else:
        found["y"] = -x
    return found


@programs.row(X, others=SIGNS)
def nested_branches_change_one_list(x: Tensor) -> Tensor:
    items = [x, x]
    if bool(x.sum() > 0):
        items[0] = x + 1
        if bool(x.max() > 2):
            items[1] = x + 2
    elif bool(x.min() < -2):
        items[1] = x + 3
    return items[0] * 10 + items[1]


@programs.row(X, i64(3), others=COUNTS)
def numbers_in_a_list_change(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    counts = [0, 10]
    for i in range(int(n)):
        counts[i % 2] = counts[0] + counts[1] + i
    return x * counts[0], counts[1]


@programs.row(X, i64(3), others=COUNTS)
def list_in_a_dict_changes(x: Tensor, n: Tensor) -> Tensor:
    found = {"a": [x, x], "b": [x]}
    for i in range(int(n)):
        found["a"][1] = found["a"][0] + found["b"][0]
        found["b"][0] = found["a"][1]
    return found["a"][1] + found["b"][0]


@programs.row(X, i64(3), others=COUNTS)
def a_call_takes_the_list_as_it_was(x: Tensor, n: Tensor) -> Tensor:
    items = [x]
    before = torch.cat(items)
    items.append(x)
    return torch.cat([before, torch.cat(items)])


# Lists that grow by data ----------------------------------------------------------------------------------------------


@programs.row(X, i64(3), others=SOME, min_opset=13)
def appended_and_stacked(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x * i)
    return torch.stack(out)


@programs.row(X, i64(3), others=SOME, min_opset=13)
def stacked_in_the_middle(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out.append(x - i)
    return torch.stack(out, dim=1) + torch.stack(out, -2)


@programs.row(X, i64(3), others=SOME, min_opset=13)
def appended_and_concatenated(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x[:, : i + 1])
    return torch.cat(out, dim=-1)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def returned_as_a_list(x: Tensor, n: Tensor) -> List[Tensor]:
    out = [x]
    for i in range(int(n)):
        out.append(x + i)
    return out


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def list_by_addition(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out = out + [out[-1] * 2, x]  # noqa: RUF005
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def length_and_elements(x: Tensor, n: Tensor) -> Tuple[Tensor, int]:
    out = [x, x + 1]
    for i in range(int(n)):
        out.append(out[-1] + out[0])
    return out[-1] + out[len(out) - 2] + out[1], len(out)


@programs.row(X, others=SIGNS, min_opset=13)
def appended_on_one_side(x: Tensor) -> Tensor:
    out = [x]
    if bool(x.sum() > 0):
        out.append(x * 2)
    return torch.stack(out)


@programs.row(X, others=SIGNS, min_opset=13)
def more_on_one_side(x: Tensor) -> Tuple[Tensor, int]:
    out: List[Tensor] = []
    if bool(x.sum() > 0):
        out += [x, x * 2, x * 3]
    else:
        out.append(-x)
    return torch.cat(out), len(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def read_back_by_a_second_loop(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x * i)
    total = torch.zeros_like(x)
    for item in out:
        total = total + item
    return total


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def enumerated(x: Tensor, n: Tensor) -> Tensor:
    out = [x, x]
    for i in range(int(n)):
        out.append(x + i)
    total = torch.zeros_like(x)
    for i, item in enumerate(out):
        total = total + item * i
    return total


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def zipped(x: Tensor, n: Tensor) -> Tensor:
    rows: List[Tensor] = []
    marks: List[int] = []
    for i in range(int(n)):
        rows.append(x)
        marks.append(i * 3)
    total = torch.zeros_like(x)
    for row, mark in zip(rows, marks):
        total = total + row * mark
    return total


@programs.row(X, i64(3), others=SOME, min_opset=13)
def comprehension_over_a_grown_list(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x + i)
    return torch.stack([item * 2 for item in out])


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def element_replaced_in_a_grown_list(x: Tensor, n: Tensor) -> Tensor:
    out = [x, x]
    for i in range(int(n)):
        out.append(x + i)
        out[0] = out[0] + 1
        out[-1] = out[-1] * 2
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def inserted_and_deleted(x: Tensor, n: Tensor) -> Tensor:
    out = [x, x + 1]
    for i in range(int(n)):
        out.insert(1, x * i)
        out.insert(0, x - i)
        del out[-1]
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def extended(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    other = [x * 2]
    for i in range(int(n)):
        out.extend([x, x + i])
        other.append(x)
    out.extend(other)
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def sliced(x: Tensor, n: Tensor) -> Tensor:
    out = [x, x + 1]
    for i in range(int(n)):
        out.append(x * i)
    return torch.stack(out[1:] + out[:-1] + out[::2] + out[-2:] + out[:1])


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def reversed_and_copied(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out.append(x * i)
    backwards = out.copy()
    backwards.reverse()
    backwards.append(x)
    return torch.stack(backwards) + torch.stack(out + [x])  # noqa: RUF005


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def popped(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor]:
    out = [x, x + 1, x + 2]
    for i in range(int(n)):
        out.append(x * i)
        out.append(-x)
        x = x + out.pop(0)
    last = out.pop()
    return torch.stack(out), last


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def cleared(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        if i == 2:
            out.clear()
        out.append(x + i)
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def list_of_a_step_inside_a_loop(x: Tensor, n: Tensor) -> Tensor:
    total = x
    for i in range(int(n)):
        row: List[Tensor] = [x]
        for j in range(i):
            row.append(x * j)
        total = total + torch.stack(row).sum(0)
    return total


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def appended_in_a_branch_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        if bool((x.sum() + i) > 4):
            out.append(x + i)
        elif i % 2 == 0:
            out[0] = out[0] + 1
    return torch.stack(out)


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def last_element_if_any(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        if len(out) > 0:
            x = x + out[-1]
        out.append(x)
    return x


@programs.row(X, i64(3), others=COUNTS, min_opset=13)
def elements_of_other_sizes(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out.append(torch.cat([out[-1], x]))
    return out[-1] + out[-1].size(0)


@programs.row(X, i64(3), others=[(torch.ones(k, 3), i64(k)) for k in (1, 2, 5)], axes={"x": {0: "rows"}}, min_opset=13)
def elements_of_a_dynamic_size(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x * i)
    return torch.cat(out) + x.repeat(len(out), 1)


@programs.row(X, i64(3), others=COUNTS)
def unpacked(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    if int(n) > 2:
        out.append(x)
    else:
        out.append(x * 2)
        out.append(x * 3)
        out.pop()
    out.append(x)
    one, other = out
    return one - 2 * other


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


@pytest.mark.parametrize(("program", "opset"), programs.params())
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)


def test_verify_takes_lists_as_outputs() -> None:
    """A sequence is compared element by element, a list of numbers number by number."""

    def both(x: Tensor, n: Tensor) -> Tuple[List[Tensor], List[int], Tensor]:
        tensors = [x]
        numbers = [3]
        for i in range(int(n)):
            tensors.append(x * i)
            numbers.append(i)
        return tensors, numbers, x

    script = torch.jit.script(both)
    program = purexport.export(script, (X, i64(2)), verify=True)
    tensors, numbers, last = program(X, i64(2))
    assert len(tensors) == 3 and numbers.tolist() == [3, 0, 1] and torch.equal(last, X)
    kinds = [item.type for item in program.model_proto.graph.output]
    assert kinds[0].sequence_type.elem_type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    wrong = purexport.export(torch.jit.script(shorter), (X, i64(2)))
    with pytest.raises(purexport.VerificationError, match="onnxruntime gives 4 tensors in all, torch 7"):
        verify(wrong, script, (X, i64(2)), {}, rtol=1e-4, atol=1e-5)


def shorter(x: Tensor, n: Tensor) -> Tuple[List[Tensor], List[int], Tensor]:
    tensors = [x]
    for i in range(int(n) - 1):
        tensors.append(x)
    return tensors, [3], x
