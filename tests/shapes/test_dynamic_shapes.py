"""Dynamic axes by every route: one meaning, names kept, and a warning with the line that makes a size static.

A row is a program, an example, what is declared dynamic and other arguments of other sizes: 0, 1, 2, odd.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.export import Dim, ShapesCollection

import purexport
from tests.harness import check_export, export, run_ort
from tests.tiers import dealt
from tests.tolerances import assert_near

OPSETS = (11, 13, 17, 20, 23)
BOTH = ("trace", "export")
EXPORT = ("export",)
BATCH = {"x0": {0: "batch"}}


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


X = _random(4, 3)
SIZES = [(_random(n, 3),) for n in (0, 1, 2, 7)]
FROM_ONE = SIZES[1:]
IMAGES = [(_random(n, 2, h, w),) for n, h, w in ((1, 5, 9), (3, 6, 4))]


@dataclass(frozen=True)
class Program:
    """`axes` are dynamic_axes by the names x0, x1, ...; `shapes` are dynamic_shapes; `dims` those of the
    first output."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = (X,)
    others: Sequence[tuple[Any, ...]] = tuple(SIZES)
    axes: Mapping[str, Mapping[int, str]] | None = None
    shapes: Any = None
    dims: Sequence[Any] | None = None
    routes: Sequence[str] = BOTH
    opsets: Sequence[int] = OPSETS


def both_numbers(x: Tensor) -> Tensor:
    rows, columns = x.shape
    return x.reshape(rows * columns) * (rows + columns) - x.numel() // max(columns, 1)


def pairs(*xs: Tensor) -> Tensor:
    return xs[0] @ xs[1].t()


def checked_slice(x: Tensor, n: Tensor) -> Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x[:k] * 2


def zeros_of(n: Tensor) -> Tensor:
    return torch.zeros(n.item(), 2) + n


def counted(x: Tensor) -> tuple[Tensor, Tensor]:
    found = x.nonzero()
    return found, found.sum(1) * found.shape[0]


def causal_mask(x: Tensor) -> Tensor:
    length = x.shape[0]
    mask = torch.full((length, length), float("-inf")).triu(1)
    return (x @ x.t() + mask).softmax(-1)


def windows(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1]).unfold(1, 2, 1).sum(-1)


PROGRAMS = [
    Program("add", lambda x: x + 1, axes=BATCH, dims=["batch", 3]),
    Program("numel", lambda x: x * x.numel(), axes=BATCH),
    Program("numbers", both_numbers, axes=BATCH, dims=["3*batch"]),
    Program("name-with-blank", lambda x: x.t(), axes={"x0": {0: "batch size"}}, dims=[3, "batch size"]),
    Program(
        "two-axes",
        lambda x: x.t() @ x,
        axes={"x0": {0: "rows", 1: "columns"}},
        dims=["columns", "columns"],
        others=[(_random(a, b),) for a, b in ((1, 5), (2, 1), (7, 3))],
    ),
    Program(
        "shared-name",
        lambda x, y: x * y,
        (X, X + 1),
        [(_random(n, 3), _random(n, 3)) for n in (0, 1, 5)],
        axes={"x0": {0: "n"}, "x1": {0: "n"}},
        dims=["n", 3],
    ),
    Program(
        "cat",
        lambda x, y: torch.cat([x, y, x]),
        (X, _random(2, 3)),
        [(_random(1, 3), _random(5, 3))],
        axes={"x0": {0: "a"}, "x1": {0: "b"}},
        dims=["2*a + b", 3],
    ),
    Program(
        "varargs",
        pairs,
        (X, X + 1),
        [(_random(1, 3), _random(5, 3))],
        axes={"x0": {0: "a"}, "x1": {0: "b"}},
        dims=["a", "b"],
    ),
    Program("size-zero-example", lambda x: x.sum(0) + x, (_random(0, 3),), axes=BATCH, dims=["batch", 3]),
    Program("size-one-example", lambda x: x.sum(0) + x, (_random(1, 3),), axes=BATCH, dims=["batch", 3]),
    Program("pow-of-size", lambda x: x * x.shape[0] ** -0.5, axes=BATCH, others=FROM_ONE),
    Program("size-squared", lambda x: x + x.shape[0] ** 2, axes=BATCH),
    Program("size-modulo", lambda x: x * (x.shape[0] % 3) + x.shape[0] // 2, axes=BATCH),
    Program("size-abs", lambda x: x * abs(x.shape[0] - 3), axes=BATCH),
    Program("size-min-max", lambda x: x[: min(x.shape[0], 3)] * max(x.shape[0], 2), axes=BATCH, routes=EXPORT),
    Program("math-trunc", lambda x: x[: math.trunc(x.shape[0] / 2)], axes=BATCH, routes=EXPORT),
    Program("math-floor", lambda x: x[: math.floor(x.shape[0] / 2)], axes=BATCH, routes=EXPORT),
    Program("math-ceil", lambda x: x[: math.ceil(x.shape[0] / 2)], axes=BATCH, routes=EXPORT),
    Program("round", lambda x: x[: round(x.shape[0] / 2)], axes=BATCH, routes=EXPORT),
    Program("sym-float", lambda x: x / torch.sym_float(x.shape[0]), axes=BATCH, routes=EXPORT, others=FROM_ONE),
    Program("sym-sqrt", lambda x: x * torch.sym_sqrt(x.shape[0]), axes=BATCH, routes=EXPORT),
    Program(
        "sym-max", lambda x: x * torch.sym_max(x.shape[0], 3) + torch.sym_min(x.shape[0], 2), axes=BATCH, routes=EXPORT
    ),
    Program("sym-sum", lambda x: x * torch.sym_sum([x.shape[0], 2, x.shape[0]]), axes=BATCH, routes=EXPORT),
    Program("arange", lambda x: torch.arange(x.shape[0])[:, None] + x, axes=BATCH, dims=["batch", 3]),
    Program("causal-mask", causal_mask, axes=BATCH, others=FROM_ONE, dims=["batch", "batch"]),
    Program("expand", lambda x: x[None].expand(2, -1, -1).reshape(-1, 3), axes=BATCH, dims=["2*batch", 3]),
    Program("new-zeros", lambda x: torch.cat([x, x.new_zeros(x.shape[0] + 1, 3)]), axes=BATCH, dims=["2*batch + 1", 3]),
    Program("half", lambda x: x[: x.shape[0] // 2], axes=BATCH, dims=["batch//2", 3]),
    Program("last-rows", lambda x: x[-2:], axes=BATCH, others=[SIZES[2], SIZES[3]], routes=("trace",)),
    Program("last-rows-any", lambda x: x[-2:], axes=BATCH, routes=EXPORT),
    Program(
        "write-half", lambda x: x.clone().index_fill_(0, torch.arange(x.shape[0] // 2), 7), axes=BATCH, others=FROM_ONE
    ),
    Program(
        "split",
        lambda x: x.split([x.shape[0] - 1, 1])[0],
        axes=BATCH,
        opsets=(13, 17, 20, 23),
        others=FROM_ONE,
        dims=["batch - 1", 3],
    ),
    Program("flip-roll", lambda x: x.flip(0).roll(1, 0), axes=BATCH, others=FROM_ONE),
    Program("windows", windows, axes=BATCH, dims=["batch", 2]),
    Program(
        "conv",
        lambda x: F.conv2d(x, torch.ones(3, 2, 3, 3), stride=2, padding=1),
        (_random(2, 2, 8, 8),),
        IMAGES,
        axes={"x0": {0: "n", 2: "h", 3: "w"}},
    ),
    Program(
        "resize",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
        (_random(2, 2, 8, 8),),
        IMAGES,
        axes={"x0": {0: "n", 2: "h", 3: "w"}},
        dims=["n", 2, "2*h", "2*w"],
    ),
    Program(
        "flatten",
        lambda x: x.flatten(1),
        (_random(2, 2, 8, 8),),
        IMAGES,
        axes={"x0": {0: "n", 2: "h", 3: "w"}},
        dims=["n", "2*h*w"],
    ),
    Program("item", lambda x: x * x.sum().item(), axes=BATCH, routes=EXPORT),
    Program(
        "item-size",
        checked_slice,
        (X, torch.tensor(2)),
        [(X, torch.tensor(n)) for n in (0, 1, 4)],
        axes=BATCH,
        routes=EXPORT,
    ),
    Program("item-zeros", zeros_of, (torch.tensor(2),), [(torch.tensor(n),) for n in (0, 1, 5)], routes=EXPORT),
    Program(
        "item-arange",
        lambda n: torch.arange(n.item()) * 2,
        (torch.tensor(2),),
        [(torch.tensor(n),) for n in (0, 1, 5)],
        routes=EXPORT,
    ),
    Program("nonzero", counted, axes=BATCH),
    Program("mask", lambda x: x[x > 0] * 2, axes=BATCH),
    Program("mask-rows", lambda x: x[x[:, 0] > 0].sum(0), axes=BATCH),
    Program("masked-select", lambda x: torch.masked_select(x, x > 0).sum(), axes=BATCH),
    Program("where-indices", lambda x: x[torch.where(x > 0)] - 1, axes=BATCH),
    Program(
        "repeat-interleave",
        lambda x, n: torch.repeat_interleave(x, n, 0),
        (X, torch.tensor([1, 0, 2, 3])),
        [(X, torch.tensor([0, 0, 0, 1]))],
    ),
    # dynamic_shapes
    Program("dim", lambda x: x + 1, shapes=({0: Dim("batch")},), dims=["batch", 3]),
    Program(
        "dim-by-name",
        lambda x, y: x * y,
        (X, X),
        [(_random(5, 3), _random(5, 3))],
        shapes={"x": {0: (n := Dim("n"))}, "y": {0: n}},
        dims=["n", 3],
    ),
    Program("dim-tuple", lambda x: x + 1, shapes=((Dim("n"), None),), dims=["n", 3]),
    Program("dim-string", lambda x: x + 1, shapes=({0: "batch size"},), dims=["batch size", 3]),
    Program(
        "dim-derived",
        lambda x, y: torch.cat([x, y]),
        (X, _random(8, 3)),
        [(_random(3, 3), _random(6, 3))],
        shapes=({0: (b := Dim("b"))}, {0: 2 * b}),
        dims=["3*b", 3],
    ),
    Program(
        "dim-plus-one",
        lambda x, y: x + y[1:],
        (X, _random(5, 3)),
        [(_random(1, 3), _random(2, 3))],
        shapes=({0: (c := Dim("c"))}, {0: c + 1}),
        dims=["c", 3],
    ),
    Program(
        "dim-derived-alone",
        lambda y: y.view(-1, 2, 3).sum(1),
        (_random(8, 3),),
        [(_random(6, 3),)],
        shapes=({0: 2 * Dim("b")},),
        dims=["b", 3],
    ),
    Program(
        "dim-derived-of-one",
        lambda x, y: torch.cat([x, y]),
        (_random(1, 3), _random(2, 3)),
        [(_random(3, 3), _random(6, 3))],
        shapes=({0: (d := Dim("d"))}, {0: 2 * d}),
        dims=["3*d", 3],
    ),
    Program("dim-auto", lambda x: x * 2, shapes=({0: Dim.AUTO},), dims=["batch", 3]),
    Program(
        "dim-dynamic",
        lambda x: x * 2,
        others=[(_random(5, 2),)],
        shapes=({0: Dim.DYNAMIC, 1: Dim.AUTO},),
        dims=["batch", "length"],
    ),
    Program(
        "dim-nested",
        lambda d: d["a"] + d["b"][0],
        ({"a": X, "b": [X * 2, X]},),
        [({"a": _random(1, 3), "b": [_random(1, 3), X]},)],
        shapes=({"a": {0: (m := Dim("m"))}, "b": [{0: m}, None]},),
        dims=["m", 3],
    ),
    Program(
        "dim-partly-named",
        lambda x, y: x + y.sum(),
        (X, X),
        [(_random(5, 3), X)],
        shapes={"x": {0: Dim("n")}},
        dims=["n", 3],
    ),
]


def _params() -> list[Any]:
    found = []
    for number, program in enumerate(PROGRAMS):
        routes = EXPORT if program.shapes is not None else program.routes
        for step, route in enumerate(routes):
            opset = program.opsets[(number + 2 * step) % len(program.opsets)]
            found.append(pytest.param(program, route, opset, id=f"{program.name}-{route}-{opset}"))
    return found


@pytest.mark.parametrize(("program", "route", "opset"), dealt(_params(), 2))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_program(program: Program, route: str, opset: int) -> None:
    options = {"dynamic_shapes": program.shapes} if program.shapes is not None else {}
    made = check_export(
        program.function,
        program.args,
        opset=opset,
        capture=route,
        other_args=program.others,
        dynamic_axes=program.axes,
        **options,
    )
    if program.dims is not None:
        assert dims_of(made.model_proto.graph.output[0]) == list(program.dims)


def dims_of(value: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


BY_BOTH = [item for item in PROGRAMS if item.axes and item.routes == BOTH]


@pytest.mark.parametrize("program", dealt(BY_BOTH, every=4, ids=[item.name for item in BY_BOTH]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_routes_agree(program: Program) -> None:
    """Both files show the same inputs and outputs, names of axes included, and give the same results."""
    opset = max(program.opsets)
    made = [
        export(program.function, program.args, {}, opset=opset, capture=route, dynamic_axes=program.axes)
        for route in BOTH
    ]
    graphs = [item.model_proto.graph for item in made]
    by_trace, by_export = ([_interface(value) for value in [*graph.input, *graph.output]] for graph in graphs)
    assert by_trace == by_export
    for args in (program.args, *program.others):
        feeds = [tensor.numpy() for tensor in args]
        one, other = (run_ort(item.model_proto.SerializeToString(), feeds) for item in made)
        for mine, theirs in zip(one, other, strict=True):
            assert_near(mine, theirs)


def _interface(value: Any) -> Any:
    """Name, dtype and dimensions; a size that only the data knows has a name of no meaning."""
    dims = ["?" if re.fullmatch(r"\w+_(count|size)(_\d+)?", str(dim)) else dim for dim in dims_of(value)]
    return value.name, value.type.tensor_type.elem_type, dims


# What the model holds at one size -------------------------------------------------------------------------------------


def fixed_view(x: Tensor) -> Tensor:
    y = x + 1
    return y.view(4, 3) * 2


def python_loop(x: Tensor) -> Tensor:
    total = x[0]
    for row in list(x)[1:]:
        total = total + row
    return total


def added(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def large_only(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 3 else x


def stepped(x: Tensor) -> Tensor:
    total = x.sum()
    for _ in range(x.shape[0]):
        total = total * 2
    return total


def data_steps(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(n):
        x = x * 2
    return x


def _line(function: Callable[..., Any], offset: int) -> str:
    return f"test_dynamic_shapes.py:{function.__code__.co_firstlineno + offset}"


HELD = [
    (
        "view",
        fixed_view,
        (X,),
        BATCH,
        BOTH,
        r"axis 'batch' was declared dynamic, but the model fixes it at 4 at .*",
        _line(fixed_view, 2),
    ),
    (
        "unbind",
        python_loop,
        (X,),
        BATCH,
        ("export",),  # a trace has a Loop for it
        r"axis 'batch' was declared dynamic, but the model fixes it at 4 at .*",
        _line(python_loop, 2),
    ),
    ("one-size", added, (X, X + 1), {"x0": {0: "a"}, "x1": {0: "b"}}, BOTH, "axes 'a' and 'b' were declared apart", ""),
    ("assumed", large_only, (X,), BATCH, EXPORT, "torch.export holds that batch > 3 at .*", _line(large_only, 1)),
    (
        "condition",
        large_only,
        (X,),
        BATCH,
        ("trace",),
        "the file goes the way of the example, for which batch > 3 at",
        _line(large_only, 1),
    ),
    ("steps", stepped, (X,), BATCH, ("trace",), "axis 'batch' was declared dynamic", _line(stepped, 2)),
    ("steps", stepped, (X,), BATCH, EXPORT, "axis 'batch' was declared dynamic", _line(stepped, 3)),
    (
        "data-steps",
        data_steps,
        (X, torch.tensor(3)),
        None,
        ("trace",),
        "the model takes a number at .* that the data decides",
        _line(data_steps, 1),
    ),
]


@pytest.mark.parametrize(
    ("function", "args", "axes", "route", "message", "line"),
    [
        pytest.param(function, args, axes, route, message, line, id=f"{name}-{route}")
        for name, function, args, axes, routes, message, line in HELD
        for route in routes
    ],
)
def test_what_is_held_is_said(function: Any, args: Any, axes: Any, route: str, message: str, line: str) -> None:
    """In a warning and in the report, with the user's line."""
    names = [f"x{place}" for place in range(len(args))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = purexport.export(function, args, input_names=names, capture=route, dynamic_axes=axes)
    assert any(re.search(message, str(warning.message)) for warning in caught)
    (said,) = [text for text in program.report.warnings if re.search(message, text)]
    assert line in said


def test_what_a_script_holds_is_said() -> None:
    """The file shows it too: the axis is a number, and two axes of one size have one name."""
    with pytest.warns(UserWarning, match="the script fixes it at 4"):
        held = purexport.export(torch.jit.script(fixed_view), (X,), dynamic_axes={"x": {0: "n"}}).model_proto.graph
    assert dims_of(held.input[0]) == [4, 3]
    axes = {"x": {0: "a"}, "y": {0: "b"}}
    with pytest.warns(UserWarning, match="axes 'a' and 'b' were declared apart"):
        merged = purexport.export(torch.jit.script(added), (X, X + 1), dynamic_axes=axes).model_proto.graph
    assert dims_of(merged.input[0]) == dims_of(merged.input[1])


def test_a_number_of_steps_that_is_static_is_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        program = purexport.export(stepped, (X,), capture="trace")
    assert not program.report.warnings


def test_ranges_are_in_the_report() -> None:
    shapes = ({0: Dim("batch", min=2, max=16)},)
    program = purexport.export(lambda x: x + 1, (X,), dynamic_shapes=shapes)
    assert program.report.warnings == ["axis 'batch' was declared from 2 to 16; the file does not check it"]


def _collected(x: Tensor, y: Tensor) -> ShapesCollection:
    shapes = ShapesCollection()
    shapes[x] = {0: Dim("batch")}
    shapes[y] = (Dim("batch"), None)
    return shapes


def _further(x: Tensor, y: Tensor) -> Any:
    shapes = torch.export.AdditionalInputs()
    shapes.add((torch.cat([x, x]), torch.cat([y, y])))
    return shapes


@pytest.mark.parametrize(("collect", "label"), [(_collected, "batch"), (_further, "batch")])
def test_collections_of_shapes(collect: Any, label: str) -> None:
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    program = purexport.export(_add, (x, y), dynamic_shapes=collect(x, y))
    graph = program.model_proto.graph
    assert [dims_of(value) for value in (*graph.input, *graph.output)] == [[label, 3]] * 3


def test_collections_that_do_not_fit_are_refused() -> None:
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    with pytest.raises(purexport.ExportError, match="dynamic_shapes does not fit the args: Some tensors"):
        purexport.export(_add, (x, y), dynamic_shapes=_collected(x, x.clone()))
    with pytest.raises(purexport.ExportError, match="4 is a Python number, which the file holds fixed"):
        further = torch.export.AdditionalInputs()
        further.add((x, 5))
        purexport.export(_add, (x, 4), dynamic_shapes=further)


def _add(x: Tensor, y: Any) -> Tensor:
    return x + y


def test_axes_of_a_program_are_named() -> None:
    """An ExportedProgram does not keep the names of its dimensions."""
    program = torch.export.export(_Flat(), (X,), dynamic_shapes=({0: Dim("batch")},))
    plain = purexport.export(program).model_proto.graph
    assert [dims_of(value) for value in (*plain.input, *plain.output)] == [["batch", 3], ["3*batch"]]
    graph = purexport.export(program, input_names=["a"], dynamic_axes={"a": {0: "batch"}}).model_proto.graph
    assert [dims_of(value) for value in (*graph.input, *graph.output)] == [["batch", 3], ["3*batch"]]


class _Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten() * 2


# Refusals -------------------------------------------------------------------------------------------------------------


class Deciding(nn.Module):
    """Python decides on data inside a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + 1)


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


def decides(x: Tensor) -> Tensor:
    return x * 2 if x.max().item() > 1 else x


def counts(x: Tensor) -> Tensor:
    return x[: (x.shape[0] * 0.5).__int__()]


def broken(x: Tensor) -> Tensor:
    return x @ x


REFUSED = [
    ("data", Deciding(), {}, r"decides on the content of a tensor at inner \(.*" + _line(Inner.forward, 1)),
    ("item", decides, {}, r"decides on the content of a tensor at the model \(.*" + _line(decides, 1)),
    (
        "fixed-number",
        counts,
        {"dynamic_axes": {"x": {0: "n"}}},
        r"makes a size static that follows.*" + _line(counts, 1),
    ),
    ("broken", broken, {}, r"RuntimeError: .* at the model \(.*" + _line(broken, 1)),
    (
        "unknown-name",
        broken,
        {"dynamic_shapes": {"z": {0: Dim.AUTO}}},
        r"dynamic_shapes names \['z'\], and the args are x",
    ),
    ("too-many", broken, {"dynamic_shapes": ({}, {})}, "dynamic_shapes has 2 entries, and the args are x"),
    (
        "form",
        broken,
        {"dynamic_shapes": ({"a": {0: Dim.AUTO}},)},
        "the form of the args x: 'a': .* is not an axis",
    ),
]


@pytest.mark.parametrize(("model", "options", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals_are_short_and_name_the_line(
    model: Any, options: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """torch's own pages of text and partial graphs do not appear, neither in the error nor on the terminal."""
    with pytest.raises(purexport.ExportError, match=message) as caught:
        purexport.export(model, (X,), capture="export", **options)
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)
    captured = capfd.readouterr()
    assert captured.err == "" and captured.out == ""


def test_what_torch_refuses_is_told_once() -> None:
    with pytest.raises(purexport.ExportError, match=r"\Athe model does not run on these args: [^\n]*\Z"):
        purexport.export(broken, (X,))
