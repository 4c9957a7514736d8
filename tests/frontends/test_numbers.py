"""Python numbers among the arguments: by trace they are zero-dim inputs of the file, as torch.onnx has them.

Each row has an argument list and another one for the same file.  A number that the model must know at the export is a
constant, with a remark; one that has no effect is none, without.  torch.onnx is asked for the types of its inputs.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from torch.nn import functional

import purexport

FLOAT, INT, BOOL, DOUBLE = 1, 7, 9, 11
X = torch.arange(12.0).reshape(3, 4) / 7 - 0.5


class Case(NamedTuple):
    """`inputs` are the names and types in the file; `peer` is True where those of torch.onnx have the same types."""

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    others: tuple[Any, ...]
    inputs: dict[str, int]
    remark: str = ""
    peer: bool = True


class Named(NamedTuple):
    a: Any
    b: Any


TAKEN = r"Python numbers \('n' at .*test_numbers.py:\d+\)"
CASES = [
    Case("an int", lambda x, n: x * n, (X, 2), (X, 5), {"x": FLOAT, "n": INT}),
    Case("a float", lambda x, n: x * n, (X, 2.5), (X, 0.5), {"x": FLOAT, "n": DOUBLE}),
    Case("an int for a float", lambda x, n: x * n, (X, 2.5), (X, 3), {"x": FLOAT, "n": DOUBLE}),
    Case("a bool", lambda x, n: x * n, (X, True), (X, True), {"x": FLOAT}, peer=False),
    Case("before a tensor", lambda n, x: x + n, (2, X), (3, X), {"n": INT, "x": FLOAT}),
    Case("after None", lambda x, y, n: x * n, (X, None, 3), (X, None, 4), {"x": FLOAT, "n": INT}),
    Case("by keyword", lambda x, n=1: x - n, (X, {"n": 3}), (X, {"n": 9}), {"x": FLOAT, "n": INT}),
    Case("in a tuple", lambda x, p: x * p[0] + p[1], (X, (2, 3.5)), (X, (4, 0.5)), {"x": 1, "p_0": INT, "p_1": DOUBLE}),
    Case(
        "beside a tensor in a list",
        lambda x, p: p[0] + x * p[1],
        (X, [X, 2]),
        (X, [-X, 3]),
        {"x": 1, "p_0": 1, "p_1": 7},
    ),
    Case(
        "in a named tuple",
        lambda x, p: x * p.a + p.b,
        (X, Named(2, 3)),
        (X, Named(4, 5)),
        {"x": 1, "p_a": 7, "p_b": 7},
        peer=False,
    ),
    Case("as a size", lambda x, n: x.view(n, -1), (X, 2), (X, 4), {"x": FLOAT, "n": INT}),
    Case(
        "as sizes",
        lambda x, n: functional.interpolate(x[None, None], n),
        (X, (4, 8)),
        (X, (6, 6)),
        {"x": 1, "n_0": 7, "n_1": 7},
    ),
    Case("as the end of a slice", lambda x, n: x[:n], (X, 2), (X, 1), {"x": FLOAT, "n": INT}),
    Case("as a count", lambda x, n: torch.topk(x, n)[0], (X, 2), (X, 3), {"x": FLOAT, "n": INT}),
    Case("as the end of a range", lambda x, n: torch.arange(n) * x.sum(), (X, 3), (X, 5), {"x": FLOAT, "n": INT}),
    Case("returned", lambda x, n: n, (X, 3), (X, 5), {"x": FLOAT, "n": INT}, peer=False),
    # constants, without a remark where nothing is lost
    Case("not used", lambda x, n: x + 1, (X, 3), (X, 4), {"x": FLOAT}),
    Case("a flag", lambda x, n: x if n else -x, (X, True), (X, True), {"x": FLOAT}),
    Case("a number of steps", lambda x, n: sum(x + i for i in range(n)), (X, 3), (X, 3), {"x": FLOAT}, TAKEN),
    # constants that torch.onnx does not export, or gets wrong
    Case(
        "steps and a factor",
        lambda x, n: sum(x for _ in range(n)) * n,
        (X, 3),
        (X, 3),
        {"x": FLOAT},
        "takes numbers",
        False,
    ),
    Case("an axis", lambda x, n, m: x.softmax(n) * m, (X, 1, 2), (X, 1, 5), {"x": FLOAT, "m": INT}, TAKEN, False),
    Case(
        "a slope", lambda x, n: functional.leaky_relu(x, n), (X, 0.2), (X, 0.4), {"x": FLOAT, "n": DOUBLE}, peer=False
    ),
    Case(
        "a factor of sizes",
        lambda x, n: functional.interpolate(x[None], scale_factor=n),
        (X, 2.0),
        (X, 2.0),
        {"x": FLOAT},
        TAKEN,
        False,
    ),
    Case(
        "a kind",
        lambda x, n: x * n if isinstance(n, int) else x - n,
        (X, 3),
        (X, 3),
        {"x": FLOAT},
        "something else",
        False,
    ),
    Case(
        "a float and whole numbers",
        lambda x, n: x.long() * n,
        (X, 0.5),
        (X, 1.5),
        {"x": FLOAT, "n": DOUBLE},
        peer=False,
    ),
]


ASKED = [
    Case("asked and taken", lambda x, n: x * n if n == 3 else x, (X, 3), (X, 3), {"x": 1, "n": 7}, "which n == 3 at"),
    Case("asked", lambda x, n: x * 2 if n > 2 else x, (X, 3), (X, 3), {"x": FLOAT}, "takes numbers among"),
    Case("a text", lambda x, n: x * len(f"{n}"), (X, 3), (X, 3), {"x": FLOAT}, "takes numbers among"),
    Case(
        "in a tensor", lambda x, n: x + torch.tensor([n, 4, 2, 1]), (X, 3), (X, 5), {"x": FLOAT, "n": INT}, peer=False
    ),
    Case("a whole part", lambda x, n: x[:, : int(n / 2)], (X, 3.5), (X, 5.0), {"x": FLOAT, "n": DOUBLE}, peer=False),
    Case("of an object", lambda x, n: torch.full((n,), x.shape[0]) / n, (X, 3), (X, 5), {"x": 1, "n": 7}, peer=False),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in [*CASES, *ASKED]])
def test_a_number_is_an_input(case: Case) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = purexport.export(case.model, case.args, capture="trace", opset_version=17, verify=True)
    assert _inputs(program.model_proto.SerializeToString()) == case.inputs
    remarks = [str(item.message) for item in caught if item.category is UserWarning]
    assert len(remarks) == bool(case.remark), remarks
    assert all(re.search(case.remark, text) and text in program.report.warnings for text in remarks)
    for args in (case.args, case.others):
        *given, last = args
        positional, named = (given, last) if isinstance(last, dict) else (args, {})
        (got,) = program(*positional, **named)
        torch.testing.assert_close(got, torch.as_tensor(case.model(*positional, **named)))
    if case.peer:
        assert sorted(_peers(case)) == sorted(case.inputs.values())


def test_another_bool_than_that_of_the_file_is_refused() -> None:
    program = purexport.export(lambda x, n: x * n if n else -x, (X, True), capture="trace")
    with pytest.raises(ValueError, match="for the number True, and False was given"):
        program(X, False)


def _inputs(data: bytes) -> dict[str, int]:
    return {item.name: item.type.tensor_type.elem_type for item in onnx.load_from_string(data).graph.input}


def _peers(case: Case) -> list[int]:
    """The types of the inputs of torch.onnx's file."""

    class Model(torch.nn.Module):
        forward = staticmethod(case.model)

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Model(), case.args, buffer, dynamo=False, opset_version=17)
    return list(_inputs(buffer.getvalue()).values())


def test_by_torch_export_numbers_are_constants() -> None:
    for capture in ("export", "auto"):
        shapes = {"dynamic_shapes": ({0: torch.export.Dim.AUTO}, None)} if capture == "auto" else {}
        program = purexport.export(lambda x, n: x * n, (X, 2), capture=capture, **shapes)
        assert list(_inputs(program.model_proto.SerializeToString())) == ["x"]
        torch.testing.assert_close(program(X, 2)[0], X * 2)


def test_names_and_axes() -> None:
    def model(x: torch.Tensor, size: tuple[int, int], unused: int, factor: float) -> torch.Tensor:
        return functional.interpolate(x, size) * factor

    image = torch.rand(1, 1, 3, 4)
    given = (image, (2, 4), 1, 2.5)
    names = ["image", "height", "width", "factor"]
    axes = {"image": {2: "rows"}}
    program = purexport.export(model, given, capture="trace", input_names=names, dynamic_axes=axes)
    assert list(_inputs(program.model_proto.SerializeToString())) == names
    other = (torch.rand(1, 1, 5, 4), (6, 3), 2, 0.5)
    torch.testing.assert_close(program(*other)[0], model(*other))
    free = purexport.export(model, given, capture="trace", dynamic=True)
    assert set(free.report.dynamic) == {"x"}
    torch.testing.assert_close(free(*other)[0], model(*other))


def test_another_number_than_that_of_the_file_is_refused() -> None:
    with pytest.warns(UserWarning, match=r"Python numbers \('dim' at"):
        program = purexport.export(lambda x, dim, n: x.softmax(dim) * n, (X, 1, 2), capture="trace")
    with pytest.raises(ValueError, match="for the number 1, and 0 was given"):
        program(X, 0, 2)


def test_a_random_model_is_compared_with_the_same_random_numbers() -> None:
    program = purexport.export(lambda x, n: torch.rand_like(x) * n, (X, 2), capture="trace")
    assert list(_inputs(program.model_proto.SerializeToString())) == ["x", "n"]


def test_an_error_of_the_model_is_its_own() -> None:
    with pytest.raises(purexport.ExportError, match=r"does not run on these args.*no such thing"):
        purexport.export(_failing, (X, 2), capture="trace")


def _failing(x: torch.Tensor, n: int) -> torch.Tensor:
    raise RuntimeError("no such thing")
