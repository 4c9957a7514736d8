"""Scripts whose lists, dicts and tuples change inside loops and branches that depend on data."""

# ruff: noqa: UP006, UP035, SIM108, B007, B905  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from typing import Dict, List, Tuple

import onnx
import pytest
import torch
from torch import Tensor

import purexport
from purexport.runtime.verification import tolerance, verify
from tests.frontends.script.scripted import Program, Programs, i64, run_program
from tests.tiers import dealt

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
def grows_by_plus(x: Tensor, n: Tensor) -> Tensor:
    parts: List[Tensor] = []
    for i in range(int(n)):
        parts += [x * i, x + i]
    return torch.stack(parts)


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


@pytest.mark.parametrize(("program", "opset"), dealt(programs.params(), 2))
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
        verify(wrong, script, (X, i64(2)), {}, tolerance(wrong.model_proto))


def shorter(x: Tensor, n: Tensor) -> Tuple[List[Tensor], List[int], Tensor]:
    tensors = [x]
    for i in range(int(n) - 1):
        tensors.append(x)
    return tensors, [3], x
