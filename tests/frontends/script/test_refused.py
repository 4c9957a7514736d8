"""Scripts that TorchScript takes and ONNX cannot express: each is refused with its line, nothing is guessed."""

# ruff: noqa: UP006, UP035, UP045, SIM108, B007  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

import purexport
from purexport.frontends.script import machine
from tests.frontends.script.scripted import i64

X = torch.arange(6.0).reshape(2, 3) - 2
ROWS: list[tuple[Any, tuple[Any, ...], str]] = []


def refused(message: str, *args: Any) -> Callable[[Any], Any]:
    """A script, its arguments, and what the error says; `LINE` stands for a line of this file."""

    def register(script: Any) -> Any:
        ROWS.append((script, args, message))
        return script

    return register


@refused(r"the script enters torch.amp.autocast_mode.autocast at .*LINE.*by trace", X)
def autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y + 1


# Types that ONNX has no place for -------------------------------------------------------------------------------------


@refused(
    r"LINE\) a variable is .*float32\[2, 3\] \(made at .*LINE\)\) on one path and .*float32\[3\] \(made at .*LINE", X
)
def ranks_of_two_paths(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        y = x + 1
    else:
        y = x.sum(0)
    return y


@refused(r"LINE\) a variable is .*float32\[2, 3\].* on one path and .*int64\[2, 3\] \(made at .*LINE", X)
def dtypes_of_two_paths(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        y = x + 1
    else:
        y = x.long()
    return y


@refused(
    r"the loop at .*LINE\) carries .*float32\[2, 3\] \('x'\) into its first step and .*float32\[3\] \(made at",
    X,
    i64(3),
)
def rank_that_a_loop_changes(x: Tensor, n: Tensor) -> Tensor:
    y = x
    for i in range(int(n)):
        y = y.sum(0) if y.dim() == 2 else y
    return y


@refused(r"the loop at .*LINE\) carries .*int64\[\].* into its first step and .*float32\[\] \(made at", X, i64(3))
def dtype_that_a_loop_changes(x: Tensor, n: Tensor) -> Tensor:
    total = torch.tensor(0)
    for i in range(int(n)):
        total = total + x.sum()
    return total


@refused(r"LINE\) a variable is '[ab]' on one path and '[ab]' on the other", X)
def text_of_two_paths(x: Tensor) -> Tensor:
    name = "a"
    if bool(x.sum() > 0):
        name = "b"
    return x + 1 if name == "a" else x


# Lists ----------------------------------------------------------------------------------------------------------------


@refused(r"LINE\) a list whose length .* holds a tensor float32\[2, 3\] and a tensor float32\[3\]", X, i64(3))
def elements_of_two_ranks(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out.append(x.sum(0))
    return out[-1]


@refused(r"LINE\) a list whose length .* holds a tensor float32\[2, 3\] and a tensor int64\[2, 3\]", X, i64(3))
def elements_of_two_dtypes(x: Tensor, n: Tensor) -> Tensor:
    out = [x]
    for i in range(int(n)):
        out.append(x.long())
    return out[-1]


@refused(r"returns a list of tuples whose length depends on data", X, i64(3))
def tuples_returned(x: Tensor, n: Tensor) -> List[Tuple[Tensor, int]]:
    out: List[Tuple[Tensor, int]] = []
    for i in range(int(n)):
        out.append((x, i))
    return out


@refused(r"LINE\) a list whose length .* holds 'a'", X, i64(3))
def texts_in_tuples_appended(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tuple[Tensor, str]] = []
    for i in range(int(n)):
        out.append((x, "a"))
    return out[-1][0]


@refused(r"LINE\) a list of tuples, whose length depends on data, is used as a whole", X, i64(3))
def tuples_sorted(x: Tensor, n: Tensor) -> int:
    out: List[Tuple[int, int]] = []
    for i in range(int(n)):
        out.append((-i, i))
    return sorted(out)[0][1]


@refused(r"LINE\) a list whose length .* holds a list", X, i64(3))
def lists_appended(x: Tensor, n: Tensor) -> Tensor:
    out: List[List[Tensor]] = []
    for i in range(int(n)):
        out.append([x])
    return out[-1][0]


@refused(r"LINE\) a list whose length .* holds 'a'", X, i64(3))
def texts_appended(x: Tensor, n: Tensor) -> int:
    out: List[str] = []
    for i in range(int(n)):
        out.append("a")
    return len(out)


@refused(r"aten::view at .*LINE\) takes a list whose length depends on data", X, i64(3))
def sizes_of_unknown_number(x: Tensor, n: Tensor) -> Tensor:
    out = [6]
    for i in range(int(n)):
        out.append(1)
    return x.view(out)


@refused(r"aten::eq at .*LINE\) takes a list whose length depends on data", X, i64(3))
def lists_compared(x: Tensor, n: Tensor) -> bool:
    out: List[int] = []
    for i in range(int(n)):
        out.append(i)
    return out == [0, 1]


@refused(r"LINE\) a list is sliced at a position that depends on data", X, i64(3))
def list_cut_by_data(x: Tensor, n: Tensor) -> List[Tensor]:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x)
    return out[: int(n) - 1]


@refused(r"writes in place to a tensor that may be an element of the list at .*LINE", X, i64(3))
def element_written_afterwards(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        y = x * i
        out.append(y)
        y += 1
    return torch.stack(out)


@refused(r"writes in place to a tensor that may be an element of the list at .*LINE", X, i64(3))
def carried_tensor_appended_and_written(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    h = x.clone()
    for i in range(int(n)):
        h += x
        out.append(h)
    return torch.stack(out)


@refused(r"writes in place to a tensor that may be an element of the list at .*LINE", X, i64(3))
def element_taken_and_written(x: Tensor, n: Tensor) -> Tensor:
    out: List[Tensor] = []
    for i in range(int(n)):
        out.append(x * i)
    out[0][1] += 1
    return torch.stack(out)


@refused(r"changes a list or dict at .*LINE\) that may or may not be the one of another name, because of the branch", X)
def one_of_two_lists(x: Tensor) -> Tensor:
    first, second = [x], [x + 1]
    chosen = first
    if bool(x.sum() > 0):
        chosen = second
    chosen.append(x)
    return torch.stack(first + second + chosen)


@refused(r"changes a list or dict at .*LINE\) that may or may not be .* because of the loop", X, i64(3))
def carried_list_changed(x: Tensor, n: Tensor) -> Tensor:
    items = [x]
    same = items
    for i in range(int(n)):
        items.append(x)
        items = [items[0]]
    return torch.stack(same)


@refused(r"changes a list or dict at .*LINE\) that may or may not be .* because of the branch", X, i64(3))
def buffer_that_is_emptied(x: Tensor, n: Tensor) -> Tensor:
    buffer: List[Tensor] = []
    for i in range(int(n)):
        buffer.append(x)
        if len(buffer) == 2:
            x = torch.stack(buffer).sum(0)
            buffer = []
    return x


# Dicts and objects ----------------------------------------------------------------------------------------------------


@refused(r"aten::_set_item at .*LINE\) takes a key that depends on data", X, i64(3))
def dict_keyed_by_data(x: Tensor, n: Tensor) -> Tensor:
    found: Dict[int, Tensor] = {}
    found[int(n)] = x
    return found[3]


@refused(r"makes a dict with a key that depends on data, computed at .*LINE", X, i64(3))
def dict_made_with_keys_of_data(x: Tensor, n: Tensor) -> Tensor:
    found = {int(n): x}
    return found[3]


@refused(r"the loop at .*LINE\) changes the keys of a dict from \[\] to \['y'\]", X, i64(3))
def dict_that_a_loop_fills(x: Tensor, n: Tensor) -> Tensor:
    found: Dict[str, Tensor] = {}
    for i in range(int(n)):
        found["y"] = x
    return found["y"]


@refused(r"LINE\) a dict has the keys \['y'\] on one path and \[\] on the other", X)
def dict_filled_on_one_side(x: Tensor) -> Dict[str, Tensor]:
    found: Dict[str, Tensor] = {}
    if bool(x.sum() > 0):
        found["y"] = x
    return found


@refused(r"returns what is None on one path at .*LINE\) and a value on the other", X)
def none_returned(x: Tensor) -> Optional[Tensor]:
    y: Optional[Tensor] = None
    if bool(x.sum() > 0):
        y = x
    return y


@refused(r"aten::linear at .*LINE\) takes a value that is None on one path at .*LINE\); test it", X)
def none_passed_on(x: Tensor) -> Tensor:
    bias: Optional[Tensor] = None
    if bool(x.sum() > 0):
        bias = x[0]
    return torch.nn.functional.linear(x, torch.ones(3, 3), bias)


@refused(r"takes a text that depends on data", X, i64(3))
def text_of_a_number(x: Tensor, n: Tensor) -> Tensor:
    if f"{int(n)}" == "3":
        x = x + 1
    return x


# What raises ----------------------------------------------------------------------------------------------------------


@refused(r"the script raises at .*LINE\) on these args: .*needs two", X)
def known_assertion(x: Tensor) -> Tensor:
    assert x.dim() == 3, "needs two axes"
    return x


@refused(r"the script raises at .*LINE\) on these args: IndexError", X)
def index_out_of_range(x: Tensor) -> Tensor:
    items = [x]
    return items[3]


@refused(r"the script raises at .*LINE\) on these args: KeyError: 'b'", X)
def missing_key(x: Tensor) -> Tensor:
    found = {"a": x}
    return found["b"]


@refused(r"the script raises at .*LINE\) .*: [ab]", X)
def both_sides_raise(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        raise ValueError("b")
    raise ValueError("a")
    return x


@refused(r"raises at .*LINE\) .*, in a loop whose number of steps depends on data", X, i64(0))
def every_step_raises(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        raise ValueError("never")
    return x


@refused(r"the step of a range at .*LINE\) depends on data", X, i64(2))
def stride_of_data(x: Tensor, n: Tensor) -> Tensor:
    for i in range(0, 6, int(n)):
        x = x + i
    return x


@pytest.mark.parametrize(("script", "args", "message"), ROWS, ids=[row[0].__name__ for row in ROWS])
def test_refused(script: Any, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(purexport.ExportError, match=message.replace("LINE", r"\S*test_refused\.py:\d+")):
        purexport.export(torch.jit.script(script), args)


def endless(x: Tensor) -> Tensor:
    n = 0
    seen: Dict[int, Tensor] = {}
    while n >= 0:
        seen[n] = x
        n += 1
    return seen[0]


def test_a_loop_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_STEPS", 500)
    message = r"more than 500 steps at export, at .*test_refused\.py:\d+.*a loop cannot stay one: .* keys of a dict"
    with pytest.raises(purexport.ExportError, match=message):
        purexport.export(torch.jit.script(endless), (X,))
