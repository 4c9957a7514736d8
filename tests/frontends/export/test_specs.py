"""What may be declared of dynamic axes by torch.export: every form, any labels, and sizes that follow from others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import purexport
from tests.harness import compare_with_torch, run_ort
from tests.shapes.test_dynamic_shapes import dims_of
from tests.tiers import dealt
from tests.tolerances import CHAIN, assert_near


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


# A cache: one axis is the sum of two others ---------------------------------------------------------------------------


def attend(x: Tensor, mask: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """x [batch, seq, 2], mask [batch, total], keys and values [batch, past, 2]."""
    if keys.shape[1] + x.shape[1] > mask.shape[1]:
        raise ValueError("the mask is too short")
    keys, values = torch.cat([keys, x], 1), torch.cat([values, x * 2], 1)
    scores = (x @ keys.mT).masked_fill(mask[:, None, :] == 0, -1e4)
    return scores.softmax(-1) @ values, keys, values


def attend_args(batch: int, seq: int, past: int) -> tuple[Tensor, ...]:
    mask = torch.ones(batch, past + seq)
    mask[:, : past // 2] = 0
    return _random(batch, seq, 2), mask, _random(batch, past, 2), _random(batch, past, 2) * 2


STEPS = [(3, 7, 0), (3, 1, 7), (1, 1, 1), (2, 1, 0), (1, 4, 2)]
LABELS = [
    ("batch", "seq", "past", "total"),
    ("batch size", "seq-len", "past.length", "n+1"),
    ("2*b", "//", "Max(a, b)", "past + seq"),
]
EXAMPLES = [(2, 3, 5), (1, 1, 5), (1, 4, 0)]


@pytest.mark.parametrize(
    ("labels", "example"),
    dealt([*((labels, EXAMPLES[0]) for labels in LABELS), *((LABELS[0], e) for e in EXAMPLES[1:])], 2),
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sum_of_axes_has_its_own_label(labels: Sequence[str], example: tuple[int, int, int]) -> None:
    """With an example of one token, with an empty cache, and with labels that look like expressions."""
    batch, seq, past, total = labels
    axes = {"x": {0: batch, 1: seq}, "mask": {0: batch, 1: total}}
    axes |= {name: {0: batch, 1: past} for name in ("keys", "values")}
    program = purexport.export(attend, attend_args(*example), dynamic_axes=axes, capture="export")
    data = program.model_proto.SerializeToString()
    graph = program.model_proto.graph
    assert graph is not None
    found = [dims_of(value) for value in (*graph.input, *graph.output)]
    cache = [[batch, past, 2]] * 2
    assert found == [[batch, seq, 2], [batch, total], *cache, [batch, seq, 2], *[[batch, total, 2]] * 2]
    for sizes in STEPS:
        compare_with_torch(attend, data, attend_args(*sizes), {})
    said = [text for text in program.report.warnings if "was declared apart" in text]
    assert len(said) == 1 and said[0].startswith(f"axis {total!r} was declared apart, and the model takes it for ")


# Forms ----------------------------------------------------------------------------------------------------------------

X = _random(4, 3)
N, MORE, WIDE, HALF = Dim("n"), Dim("more", min=1), Dim("wide", min=2, max=64), Dim("half")


def double(x: Tensor) -> Tensor:
    return x * 2


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y])


def nested(pair: Any, more: Any) -> Tensor:
    result: Tensor = pair[0] + more["b"][1] * pair[1]
    return result


@dataclass(frozen=True)
class Form:
    """`dynamic_shapes` of some form, the dimensions of the inputs in the file, and arguments of other sizes."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    shapes: Any
    dims: Sequence[Sequence[Any]]
    other: tuple[Any, ...]
    routes: tuple[str, ...] = ("auto", "trace")


FORMS = [
    Form("auto", double, (X,), ({0: Dim.AUTO, 1: Dim.AUTO},), [["batch", "length"]], (_random(1, 9),)),
    Form("dynamic", double, (X,), ({0: Dim.DYNAMIC},), [["batch", 3]], (_random(0, 3),)),
    *(
        Form("hint-with-range", double, (X,), ({0: hint(min=2, max=9)},), [["batch", 3]], (_random(9, 3),))
        for hint in (Dim.AUTO,)
        if callable(hint)  # from torch 2.7 on
    ),
    Form("static", double, (X,), ({0: "n", 1: Dim.STATIC},), [["n", 3]], (_random(7, 3),)),
    Form("number", double, (X,), ((N, 3),), [["n", 3]], (_random(1, 3),)),
    Form("nothing", double, (X,), (None,), [[4, 3]], (X,)),
    Form("negative-axis", double, (X,), ({-1: "last"},), [[4, "last"]], (_random(4, 1),)),
    Form("range", double, (X,), {"x": {0: WIDE}}, [["wide", 3]], (_random(64, 3),)),
    Form("multiple", joined, (X, _random(8, 3)), ({0: N}, {0: 2 * N}), [["n", 3], ["2*n", 3]], (_random(1, 3), X[:2])),
    Form("offset", joined, (X, X[1:]), ({0: MORE}, {0: MORE - 1}), [["more", 3], ["more - 1", 3]], (X[:2], X[:1])),
    Form("alone", lambda x: x.view(-1, 2, 3), (X,), ({0: 2 * HALF},), [["2*half", 3]], (_random(6, 3),)),
    Form("mixed", joined, (X, X), ({0: N}, {0: Dim.AUTO}), [["n", 3], ["y_count", 3]], (_random(1, 3), _random(5, 3))),
    Form("label-and-dim", joined, (X, X), ({0: "n"}, {0: N}), [["n", 3]] * 2, (_random(1, 3), _random(1, 3))),
    Form(
        "nested",
        nested,
        ((X, 2), {"a": X, "b": [X, X + 1]}),
        (({0: N}, None), {"a": None, "b": [None, {0: N}]}),
        [["n", 3], [4, 3], [4, 3], ["n", 3]],
        ((_random(1, 3), 2), {"a": X, "b": [X, _random(1, 3)]}),
        routes=("auto",),  # by trace the number is an input
    ),
    Form(
        "nested-tensors",
        nested,
        ((X, torch.ones(1)), {"a": X, "b": [X, X + 1]}),
        (({0: N}, None), {"a": None, "b": [None, {0: N}]}),
        [["n", 3], [1], [4, 3], [4, 3], ["n", 3]],
        ((_random(1, 3), torch.ones(1) * 2), {"a": X, "b": [X, _random(1, 3)]}),
    ),
]


@pytest.mark.parametrize(
    ("form", "route"),
    [pytest.param(form, route, id=f"{form.name}-{route}") for form in FORMS for route in form.routes],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_form(form: Form, route: str) -> None:
    program = purexport.export(form.function, form.args, dynamic_shapes=form.shapes, capture=route)
    graph = program.model_proto.graph
    assert graph is not None
    assert program.report.route == ("export" if route == "auto" else "trace")
    assert [dims_of(value) for value in graph.input] == [list(dims) for dims in form.dims]
    for args in (form.args, form.other):
        compare_with_torch(form.function, program.model_proto.SerializeToString(), args, {})


def shifted(x: Tensor, y: Tensor) -> Tensor:
    return x + y[1:] * len(range(x.shape[0])) + sum(range(x.shape[1]))


def test_a_derived_dimension_follows_in_a_trace() -> None:
    shapes = ({0: N, 1: "m"}, {0: N + 1, 1: "m"})
    with pytest.warns(UserWarning, match="axis 'm' was declared dynamic, but the model fixes it"):
        program = purexport.export(shifted, (X, _random(5, 3)), dynamic_shapes=shapes, capture="trace")
    graph = program.model_proto.graph
    assert graph is not None
    dims = ["n", 3]
    assert [dims_of(value) for value in (*graph.input, *graph.output)] == [dims, ["n + 1", 3], dims]
    given = (_random(7, 3), _random(8, 3))
    (found,) = run_ort(program.model_proto.SerializeToString(), [item.numpy() for item in given])
    assert_near(found, shifted(*given), CHAIN)


def test_a_script_takes_dynamic_shapes() -> None:
    program = purexport.export(torch.jit.script(torch.nn.ReLU()), (X,), dynamic_shapes=({0: "rows"},))
    graph = program.model_proto.graph
    assert graph is not None
    assert dims_of(graph.input[0]) == ["rows", 3]


def test_a_program_has_its_sizes() -> None:
    program = torch.export.export(torch.nn.ReLU(), (X,))
    with pytest.raises(purexport.ExportError, match="dynamic_shapes says nothing of an ExportedProgram, whose sizes"):
        purexport.export(program, (X,), dynamic_shapes=({0: "rows"},))


DOES_NOT_FIT = [
    ("number", double, (X,), ({1: 4},), r"1: 4 is not the size of an axis of a tensor of shape \[4, 3\]"),
    (
        "range",
        double,
        (X,),
        ({0: Dim("n", min=5)},),
        "axis 0 of 'x' was declared from 5 on, and the example has 4",
    ),
    (
        "one-name",
        joined,
        (X, X[1:]),
        ({0: N}, {0: N}),
        "axis 0 of 'y' must have the size 4, because axis 0 of 'x' has 4",
    ),
    ("multiple", joined, (X, X), ({0: N}, {0: 2 * N}), "axis 0 of 'y' must have the size 8"),
    ("python-number", lambda x, n: x * n, (X, 2), ({0: N}, Dim.AUTO), "2 is a Python number"),
]


@pytest.mark.parametrize("route", ["auto", "trace"])
@pytest.mark.parametrize(("function", "args", "shapes", "said"), [row[1:] for row in DOES_NOT_FIT], ids=lambda row: "")
def test_what_does_not_fit_is_refused(function: Any, args: Any, shapes: Any, said: str, route: str) -> None:
    with pytest.raises(purexport.ExportError, match=said) as caught:
        purexport.export(function, args, dynamic_shapes=shapes, capture=route)
    assert caught.value.code == "dynamic-shapes-do-not-fit"


# What torch assumes ---------------------------------------------------------------------------------------------------


def _line(function: Callable[..., Any], offset: int) -> str:
    return f"test_specs.py:{inspect.getsourcelines(function)[1] + offset}"


def from_two(x: Tensor) -> Tensor:
    return x.mean(0) if x.shape[0] > 1 else x * 2


def not_empty(x: Tensor) -> Tensor:
    return x + 1 if x.numel() != 0 else x.new_ones(1, 3)


def in_tens(x: Tensor) -> Tensor:
    if x.shape[0] % 10 != 0:
        x = x + 1
    return x * 2


def half_of_both(x: Tensor) -> Tensor:
    rows, columns = x.shape
    if rows * 2 <= columns * 3:
        return x + rows
    return x


def stretched(x: Tensor) -> Tensor:
    """The slice has one row for every size, which torch knows only for sizes of 2 and more."""
    bias = torch.ones(1, 3)
    return x + bias[max(0, 1 - x.shape[0]) :]


def table(x: Tensor) -> Tensor:
    return x + torch.ones(128, 3)[: x.shape[0]]


ASSUMED = [
    ("table", table, {0: "n"}, "torch.export holds that n <= 128; for", None, [(1, 3), (128, 3)]),
    ("greater", from_two, {0: "n"}, "torch.export holds that n > 1 at {line};", 1, [(2, 3), (7, 3)]),
    ("empty", not_empty, {0: "n"}, "torch.export holds that n != 0 at {line};", 1, [(1, 3), (7, 3)]),
    ("modulo", in_tens, {0: "n"}, "torch.export holds that Mod(n, 10) != 0 at {line};", 1, [(1, 3), (7, 3)]),
    ("two", half_of_both, {0: "a", 1: "b"}, "torch.export holds that 2*a <= 3*b at {line};", 2, [(1, 3), (6, 5)]),
    ("small", stretched, {0: "n"}, "torch.export takes every dynamic size of this model to be 2 or more", 0, [(5, 3)]),
]


@pytest.mark.parametrize(
    ("name", "function", "axes", "said", "offset", "others"), ASSUMED, ids=[row[0] for row in ASSUMED]
)
def test_an_assumption_is_a_remark(
    name: str, function: Any, axes: Any, said: str, offset: int, others: Sequence[tuple[int, int]]
) -> None:
    """And the file is right wherever the assumption holds."""
    with pytest.warns(UserWarning) as caught:
        program = purexport.export(function, (X,), input_names=["x"], dynamic_axes={"x": axes}, capture="export")
    (found,) = program.report.warnings
    assert said.format(line="").split(" at ")[0] in found and [str(item.message) for item in caught] == [found]
    assert "{line}" not in said or _line(function, offset) in found
    for shape in others:
        compare_with_torch(function, program.model_proto.SerializeToString(), (_random(*shape),), {})


@pytest.mark.parametrize("squeezed", [lambda x: x.squeeze(0) + 1, torch.squeeze, lambda x: x.squeeze((0, 1))])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_squeeze_of_a_dynamic_axis(squeezed: Any) -> None:
    """The file removes the axis where torch does; torch.export makes an axis of size 1 in the example static."""
    program = purexport.export(squeezed, (X,), dynamic_shapes=({0: "n"},))
    for rows in (7, 1):
        compare_with_torch(squeezed, program.model_proto.SerializeToString(), (_random(rows, 3),), {})
    assert any("the output declares the axis for all sizes" in text for text in program.report.warnings)
    program = purexport.export(squeezed, (X[:1],), dynamic_shapes=({0: "n"},))
    compare_with_torch(squeezed, program.model_proto.SerializeToString(), (_random(1, 3),), {})
    assert any("the model fixes it at 1" in text for text in program.report.warnings)


def quarter(x: Tensor) -> Tensor:
    return x[: x.shape[0] // 4].squeeze(0).softmax(-1)


def test_a_squeeze_of_a_computed_size() -> None:
    """No example gives the axis another size, and softmax takes a known rank; the file is for sizes that are longer."""
    program = purexport.export(quarter, (X,), dynamic_shapes=({0: "n"},))
    assert any("takes an axis for longer than 1" in text for text in program.report.warnings)
    compare_with_torch(quarter, program.model_proto.SerializeToString(), (_random(9, 3),), {})


def test_what_an_operator_asks_to_lay_out_memory_is_no_remark() -> None:
    program = purexport.export(
        lambda x: x.transpose(0, 1).contiguous().view(-1).clone(),
        (X,),
        dynamic_axes={"x": {0: "a", 1: "b"}},
        capture="export",
    )
    assert program.report.warnings == []
    for shape in ((1, 3), (4, 1), (0, 2)):
        (got,) = run_ort(program.model_proto.SerializeToString(), [_random(*shape).numpy()])
        assert got.tolist() == _random(*shape).t().reshape(-1).tolist()


class Buffers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)
        return result


def test_buffers_that_stay_are_not_written() -> None:
    """torch.export puts fake tensors in place of the buffers of inner modules while the model runs."""
    program = purexport.export(Buffers(), (X,), capture="export", mutated_state="error")
    assert program.report.warnings == []
