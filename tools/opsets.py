"""The page of the cases that need a later opset, and of the operators that older ones replace.

python -m tools.opsets --write    writes docs/opsets.md
python -m tools.opsets            prints it

Each example of `EXAMPLES` is exported at the opset below the one that it names, which must refuse it, and at that one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List  # noqa: UP035  TorchScript knows this form

import torch
from torch import Tensor

import purexport
from proto_schema import legalization

PAGE = Path(__file__).parents[1] / "docs" / "opsets.md"

_INTRODUCTION = """\
# Opsets

Written by `python -m tools.opsets --write`, which exports the examples; do not edit.

A file has exactly the opset that you asked for, from 9 to the newest. If the opset lacks an ONNX operator, or has only
a version that cannot express a call, older operators replace it. The second table lists the replaced operators. A model
needs a later opset only in the cases of the first table. The error then names the lowest opset that works.

A file with older forms has more nodes. Sums and products at equal positions (`index_add`, `scatter_reduce`) are sorted
first and then combined in log2(n) rounds. So they take longer than the operator of opset 16, and they add in another
order. The bitwise operators make an axis of bits. If your runtime supports a later opset, use that opset.

## What needs a later opset

| case | lowest opset | why | the error one opset below |
|---|---|---|---|
"""

_FORMS = """
## Operators that older ones replace

| ONNX operator | below opset | the replacement |
|---|---|---|
"""


@dataclass(frozen=True)
class Example:
    """Something that needs an opset: what it is, why no older operators do, and a model with its arguments."""

    what: str
    why: str
    lowest: int
    model: Callable[..., Any]
    args: tuple[Tensor, ...]


def _split(x: Tensor) -> Tensor:
    return x.split(2, 0)[-1]


def _collected(x: Tensor, n: Tensor) -> Tensor:
    items: List[Tensor] = []  # noqa: UP006
    for i in range(int(n)):
        items.append(x + i)
    return torch.stack(items)


def _chosen(x: Tensor, n: Tensor) -> Tensor:
    rows = [x, x * 2]
    return rows[int(n)]


def _branches(x: Tensor, n: Tensor) -> Tensor:
    return x[:1] if bool(n > 0) else x


def _example(what: str, why: str, lowest: int, model: Callable[..., Any], *args: Tensor) -> Example:
    return Example(what, why, lowest, model, args)


X, N = torch.ones(4, 3), torch.tensor(1)
_NO_LISTS = "Before, ONNX has only tensors, and no type for lists."
_NO_DTYPE = "Before, ONNX does not have this dtype."

EXAMPLES = (
    _example(
        "a list in a script whose length is known only when the file runs (`split`, `unbind`, `append`)",
        _NO_LISTS,
        11,
        _split,
        X,
    ),
    _example(
        "an element of a list of tensors, at a computed index",
        f"{_NO_LISTS} The tensors may have different shapes.",
        11,
        _chosen,
        X,
        N,
    ),
    _example(
        "such a list in a loop or a branch", "Before, If and Loop have only tensors as outputs.", 13, _collected, X, N
    ),
    _example(
        "branches that give tensors of different shapes",
        "Before, both branches of If must give the same shape.",
        11,
        _branches,
        X,
        N,
    ),
    _example("bfloat16", _NO_DTYPE, 13, lambda x: x.to(torch.bfloat16), X),
    _example("float8 (four kinds)", _NO_DTYPE, 19, lambda x: x.to(torch.float8_e4m3fn), X),
)


def reason_of(example: Example, opset: int) -> str:
    """What the error says at that opset, without the opset that it needs; "" where it is exported."""
    scripted = not example.model.__name__.startswith("<")
    model = torch.jit.script(example.model) if scripted else example.model
    names = ["x", "n"][: len(example.args)]
    try:
        purexport.export(model, example.args, input_names=names, dynamic_axes={"x": {0: "rows"}}, opset_version=opset)
    except purexport.UnsupportedOperatorError as error:
        assert set(error.codes) == {"opset-too-low"}, error
        return error.gaps[0].reason.partition(": ")[2]
    return ""


def page() -> str:
    """The page.  Raises AssertionError where an example does not need the opset that it names."""
    text = _INTRODUCTION
    for example in EXAMPLES:
        says = reason_of(example, example.lowest - 1)
        assert says, f"{example.what}: is exported at opset {example.lowest - 1}"
        assert not reason_of(example, example.lowest), f"{example.what}: is refused at opset {example.lowest}"
        text += f"| {example.what} | {example.lowest} | {example.why} | {says} |\n"
    text += "| `export_modules_as_functions` | 15 | Before, models cannot have functions. | a ValueError |\n"
    text += (
        "| an ONNX operator that the model names (`torch.onnx.ops.symbolic`) | its own "
        "| The table below may not have a replacement for it. | ONNX Col2Im does not exist at opset 17 |\n"
    )
    text += _FORMS
    for op_type, rows in sorted(legalization.rows().items()):
        for row in rows:
            first = (inspect.getdoc(row.form) or "").partition("\n")[0]
            text += f"| {op_type} | {row.before} | {first} |\n"
    return text


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page(), end="")
