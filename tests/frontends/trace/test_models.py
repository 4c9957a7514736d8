"""Models by dispatch: each is captured once, and its file computes what the model does, also at other sizes.

A row says what is remarked (a part of each remark, in order), so that a row without one promises that nothing was taken
from the example.
"""

from __future__ import annotations

import copy
import functools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import _higher_order_ops as higher_order
from torch import nn
from torch.nn import functional

import purexport

script: Any = torch.jit.script


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@dataclass(frozen=True)
class Model:
    """`shapes` are those of the arguments; `axes` names axes by input; `others` are further shapes of the arguments."""

    name: str
    model: Any
    shapes: Sequence[tuple[int, ...]] = ((3, 7),)
    axes: Mapping[str, Mapping[int, str]] | None = None
    others: Sequence[Sequence[tuple[int, ...]]] = ()
    remarks: Sequence[str] = ()
    args: Callable[[], tuple[Any, ...]] | None = None
    calls: Sequence[str] = field(default=())


def n(name: str, model: Any, *others: int, remarks: Sequence[str] = (), axis: int = 1) -> Model:
    """A function of one tensor of the shape (3, 7) with one dynamic axis."""
    shapes = [[(3, size) if axis else (size, 7)] for size in others]
    return Model(name, model, ((3, 7),), {"x": {axis: "n"}}, shapes, remarks)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        y.mul_(2)
        y = functional.max_pool2d(y, 2).mean((2, 3))
        return {"logits": self.linear(y), "parts": [y[:, 1:3], y.view(y.shape[0], -1)]}


class Asking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


class Counting(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x.add_(1) + self.count


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.linear(x)
            return (y @ y.t()).float()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2


def gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        y = x.clone().requires_grad_()
        return torch.autograd.grad((y * y).sum(), y)[0]


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0] = 1
    y.t()[1].mul_(3)
    return y


def part_written(x: torch.Tensor) -> Any:
    y = x.clone()
    part = y[:, :7].contiguous()  # all of it in the example
    return y, part.mul_(2)


def written(x: torch.Tensor) -> torch.Tensor:
    state, y = torch.zeros(3), torch.zeros_like(x)
    for i in range(x.shape[1]):
        state = state * 0.5 + x[:, i]
        y[:, i] = state
    return y


def rounded(x: torch.Tensor) -> torch.Tensor:
    """What libraries do where they are told that sizes are tensors."""
    ceil: Any = torch.ceil if torch.jit.is_tracing() else math.ceil
    return torch.zeros(int(ceil(x.shape[1] / 2) * 2))


def padded_to_seven(x: torch.Tensor) -> torch.Tensor:
    size = math.ceil(x.shape[1] / 7) * 7
    return functional.pad(x, (0, size - x.shape[1])) * 2 if size != x.shape[1] else x


def padded_to_four(x: torch.Tensor) -> torch.Tensor:
    """As models with windows do; without padding, what cuts it off again would leave nothing."""
    more = (4 - x.shape[1] % 4) % 4
    if more > 0:
        x = functional.pad(x, (0, more))
    y = x.unflatten(1, (-1, 4)).softmax(-1).flatten(1)
    return y[:, :-more] if more > 0 else y


def padded_if_unequal(x: torch.Tensor) -> torch.Tensor:
    more = (4 - x.shape[1] % 4) % 4
    if more != 0:
        x = functional.pad(x, (0, more)).cumsum(1)[:, :-more]
    return x if more else x.cumsum(1)


def quotients(x: torch.Tensor) -> Any:
    size = x.shape[1]
    return [torch.zeros(one) for one in (math.ceil(size / 2) + 3, math.floor(size / 3), int(size / 3), round(size / 3))]


def causal_if_several(x: torch.Tensor) -> torch.Tensor:
    """As libraries ask: for one element `is_causal` would be a symbolic truth value."""
    y = x[x > 0][:, None, None]
    return functional.scaled_dot_product_attention(y, y, y, is_causal=y.shape[0] > 1 and x is None)


@functools.lru_cache
def table(size: int) -> torch.Tensor:
    return torch.arange(size) * 2


@script
def scripted(x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 1:
        x = x * 3
    return torch.relu(x)


def signs(x: torch.Tensor) -> torch.Tensor:
    """How many numbers of the first row are negative, and how many are not."""
    return functional.one_hot((x[0] > 0).long(), 2).sum(0)


@script
def decided(x: torch.Tensor) -> torch.Tensor:
    return x * 3 if bool(x.sum() > 1) else x


@torch.jit.script_if_tracing
def counted(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum())):
        x = x * 2
    return x


def one_row(x: torch.Tensor) -> torch.Tensor:
    if len(x) != 1:
        raise ValueError("one row is expected")
    return x[0] * 2


def told_apart(x: torch.Tensor) -> torch.Tensor:
    size = float(x.shape[1])
    return x / size if type(size) is float else x * size


LINEAR = nn.Linear(7, 2)
ZERO = torch.zeros((), dtype=torch.int64)
BATCH = {"x": {0: "batch"}}
AREA = {"x": {0: "batch", 2: "height", 3: "width"}}
LOOP = r"the steps at .*test_models.py:\d+.* are a Loop of the file"
DATA = r"the model takes a truth value at .*test_models.py:\d+ that the data decides"

MODELS = [
    Model("static", Convolutional(), ((2, 3, 8, 8),), calls=("aten::conv2d", "aten::batch_norm", "aten::linear")),
    Model("batch", Convolutional(), ((2, 3, 8, 8),), BATCH, [[(5, 3, 8, 8)]]),
    Model("batch-of-one", Convolutional(), ((1, 3, 8, 8),), BATCH, [[(1, 3, 8, 8)], [(4, 3, 8, 8)]]),
    Model("area", Convolutional(), ((2, 3, 8, 8),), AREA, [[(5, 3, 10, 13)]]),
    Model("lstm", nn.LSTM(7, 5, batch_first=True), ((2, 4, 7),), {"input": {0: "b", 1: "t"}}, [[(3, 9, 7)]]),
    Model(
        "encoder", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), ((2, 4, 8),), {"src": {0: "b", 1: "t"}},
        [[(3, 9, 8)]], calls=("aten::scaled_dot_product_attention", "aten::layer_norm"),
    ),
    n("literal", lambda x: torch.tensor([[x.sum(), 1.0], [x.shape[1], x.max()]]) * x.mean(), 9, 4),
    Model("literal-static", lambda x: x * torch.as_tensor((x.mean(), 2, True)).double().sum()),
    Model("nested", lambda given: {"sum": given["a"] + given["b"][0]}, args=lambda: ({"a": rand(2), "b": [rand(2)]},)),
    Model("buffer", Counting(), remarks=("its buffer 'count'", "its input 'x'")),
    Model("mixed-precision", Mixed(), axes=BATCH, others=[[(5, 7)]]),
    Model("function", lambda x: Doubled.apply(x) + 1, axes=BATCH, others=[[(5, 7)]]),
    Model("script", lambda x: scripted(x) + 1),
    Model("compiled", torch.compile(nn.Linear(7, 5), backend="eager")),
    # sizes that Python computes with
    n("view", lambda x: x.view(x.shape[1], -1), 9),
    n("largest", lambda x: x[:, : max(x.shape[1] - 5, 0)], 9, 4),
    n("smallest", lambda x: x.topk(min(x.shape[1], 10))[0], 19),
    n("root", lambda x: x / math.sqrt(x.shape[1]), 9),
    n("logarithm", lambda x: x * math.log(x.shape[1]), 13),
    n("whole", lambda x: torch.zeros(int(x.shape[1] * 0.5)), 12),
    n("rounded", lambda x: torch.zeros(round(x.shape[1] / 3)), 13),
    n("rounded-by-torch", rounded, 12),
    n("power", lambda x: x * x.shape[1] ** 2, 13),
    n("length", lambda x: x / len(x), 5, axis=0),
    n("padding", lambda x: functional.pad(x, (0, (8 - x.shape[1] % 8) % 8)), 9, 16),
    n("literal", lambda x: torch.tensor([x.shape[1], 2]), 9),
    n("window", lambda x: x.unfold(1, 3, 2), 14),
    n("scaled", lambda x: functional.interpolate(x[None, None], scale_factor=1.5), 14),
    n("pieces", lambda x: x.split([2, x.shape[1] - 2], 1)[1], 9),
    n("chunks", lambda x: x.chunk(2, 1)[0], 9),
    n("range", lambda x: x + torch.arange(x.shape[1]), 9),
    n("wide-or-tall", lambda x: torch.linalg.svd(x)[1], 2),
    n("diagonal", lambda x: x.trace(), 3, 9),
    # questions
    n("greater", lambda x: x * 2 if x.shape[1] > 5 else x, 9, remarks=(r"for which n > 5 at .*test_models.py:\d+",)),
    n("remainder", lambda x: x * 2 if x.shape[1] % 2 else x, 9, remarks=("the way of the example, for which",)),
    n("multiple", padded_to_seven, 14, remarks=(r"of the example, for which not \(7\*\(\(n \+ 6\)//7\)\) != n at .*",)),
    n("multiple-by-remainder", lambda x: x * 2 if x.shape[1] % 7 else x, 14, remarks=("the example, for which not",)),
    n("to-multiple", padded_to_four, 8, 9, 16, remarks=("the way of the example, for which",)),
    n("to-multiple-unequal", padded_if_unequal, 8, 9, 16, remarks=("the way of the example, for which",)),
    n("empty-for-zero", lambda x: x[:, : -(x.shape[1] % 4)], 8, 9),
    n("quotients", quotients, 8, 30),
    n("pad-with-a-number", lambda x: functional.pad(x, [1, x.size(1)], value=x.size(1) * 0.29), 8, 30),
    n("classes", lambda x: functional.one_hot((x > 0).long(), x.shape[1] + 4), 8, 2),
    n("asked-of-data", lambda x: x[x > 0] * 2 if x[x > 0].shape[0] > 1 else 2 * x[x > 0], 9),
    n("causal-if-several", causal_if_several, 9),
    n("asked-of-data-and-not-the-same", lambda x: 2 if x[x > 0].shape[0] > 1 else 3, remarks=(r"for which u\d+ > 1",)),
    n("as-many", lambda x: x * 2 if (x > -9).sum().item() == x.numel() else x, 9, remarks=("way of the example",)),
    n("fixed", lambda x: x * 2 if x.shape[1] == 7 else x, remarks=("'n' was declared dynamic, .* fixes it at 7",)),
    n("uneven-steps", lambda x: sum(x[:, i] * (i % 3) for i in range(x.shape[1])), remarks=("was declared dynamic",)),
    n("steps", lambda x: torch.stack([x[:, i] * 2 for i in range(x.shape[1])]), 9, 2, remarks=(LOOP,)),
    n("written", written, 9, 2, remarks=(LOOP,)),
    n("few-steps", lambda x: functools.reduce(torch.add, x.unflatten(1, (-1, 7)).unbind(1)), 21, remarks=(LOOP,)),
    n(
        "whole-blocks", lambda x: sum(x[:, 99 * i :] for i in range((x.shape[1] + 98) // 99)), 9, 99,
        remarks=(r"way of the example, for which \(\(n \+ 98\)//99\) == 1 at .*test_models.py:\d+",),
    ),
    n("a-share", lambda x: x * len([*range(math.ceil(x.shape[1] * 0.3))]), remarks=("'n' .* fixes it at 7 at",)),
    Model(
        "one-row",
        one_row,
        ((1, 7),),
        {"x": {0: "batch", 1: "n"}},
        [[(1, 9)]],
        ("'batch' was declared dynamic, .* fixes it at 1 at .*test_models.py",),
    ),
    n("counted", lambda x: x * sum(range(x.shape[1])), remarks=("'n' was declared dynamic, .* fixes it at 7",)),
    n("kept", lambda x: x + table(x.shape[1]), 9),
    n("key", lambda x: x * {7: 1, 9: 2}.get(x.shape[1], 5), remarks=("'n' was declared dynamic, .* fixes it at 7",)),
    n("kind", told_apart, remarks=("'n' was declared dynamic, .* fixes it at 7",)),
    n("sine", lambda x: x * math.sin(x.sum().item()), remarks=("takes a number at .* that the data decides",)),
    n("told", lambda x: x * 2 if torch.jit.is_tracing() or x.shape[1] > 8 else x + x, 9),
    n("permuted", lambda x: x.t().as_strided(x.shape, x.t().stride()[::-1]), 9),
    n("number", lambda x: x + torch.tensor(x.shape[1]), 9),
    n("implied", lambda x: x * 2 if x.shape[1] + 1 > x.shape[1] and x.shape[1] > -1 else x, 9),
    n(
        "asked-for-none", lambda x: x * 2 if x.shape[1] > 0 else x + 1, 9,
        remarks=(r"'n' is taken to have 2 elements or more: for 0 .*\(not n > 0 at .*test_models.py:\d+\)",),
    ),
    n("none-is-no-other", lambda x: x * 2 if x.shape[1] > 0 else 2 * x, 9, 0),
    n("text", lambda x: x * len(f"{x.shape[1]}"), 9, remarks=(r"writes the number n into a text at .*:\d+;.* is 7",)),
    Model(
        "same", lambda x, y: x + y if x.shape == y.shape else x, ((3, 7), (3, 7)), {"x": {1: "n"}, "y": {1: "m"}},
        remarks=("one size",),
    ),
    # axes of one element, and pieces of an axis
    Model(
        "squeezed", lambda x: x.squeeze(1), ((3, 1, 4),), {"x": {0: "b", 1: "n"}}, [[(5, 1, 4)]],
        remarks=("'n' was declared dynamic, .* fixes it at 1",),
    ),
    Model(
        "asked-for-one", lambda x: x * 2 if x.shape[0] == 1 else x, ((4, 7),), BATCH, [[(5, 7)]],
        remarks=(r"'batch' is taken to have 2 elements or more: .* \(batch == 1 at .*test_models.py:\d+\)",),
    ),
    Model(
        "one-of-which-is-asked", lambda x: x * 2 if x.shape[0] == 1 else x, ((1, 7),), BATCH, [[(1, 7)]],
        remarks=("'batch' was declared dynamic, .* fixes it at 1",),
    ),
    Model(
        "one-is-no-other", lambda x: x * 2 if x.shape[0] > 1 else 2 * x, ((1, 7),), BATCH, [[(1, 7)], [(5, 7)]],
    ),
    Model("of-one-size", lambda x, y: x * y, ((2, 3), (1, 3)), {"x": {0: "b"}, "y": {0: "b"}}, [[(5, 3), (5, 3)]]),
    n("as-many-pieces", lambda x: x.split(2, 1)[-1], remarks=()),
    Model(
        "two-pieces", lambda x: sum(x.split(x.shape[1] // 2, 1)), ((3, 6),), {"x": {1: "n"}}, [[(3, 8)], [(3, 4)]],
    ),
    n("halves", lambda x: x.split(x.shape[1] // 2 + 1, 1)[-1], 9),
    Model("two-dtypes", lambda x: functional.huber_loss(x, x.double())),
    # elements
    n("count", lambda x: torch.arange(int((x > 0).sum().item())), 9),
    n("counts", lambda x: torch.cat([y * i for i, y in enumerate(x.t().split(signs(x).tolist()))]), 9),
    n("largest-count", lambda x: torch.zeros(max(y for y in signs(x).tolist())), 9),
    n("chosen", lambda x: x[x > 0] * 2, 9),
    n("places", lambda x: torch.where(x > 0)[1], 9),
    n("asked", lambda x: x * 2 if x.sum() > -1e9 else x, 9, remarks=(DATA,)),
    Model("constants", lambda x: x * torch.arange(3).tolist()[1] + float(torch.ones(2).sum())),
    # writes
    n("assigned", assigned, 9),
    n("another-shape", lambda x: x.clone().unsqueeze_(0).add_(1), 9),
    Model("out", lambda x: torch.add(x, 1, out=torch.empty(3, 7))),
    # functions among the operands
    n("cond", lambda x: torch.cond(x.sum() > 0, lambda y: y * y.shape[1], lambda y: y - 1, (x,)) * x.shape[1], 9, 4),
    n("while", lambda x: higher_order.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2 + i), (ZERO, x))[1], 9),
    n("scan", lambda x: higher_order.scan(lambda c, row: (c + row, c * row.shape[0]), x[0] * 0, x)[1], 9, 4),
    n("map", lambda x: higher_order.map(lambda row: row.sin() + 1, x.t()), 9),
    # torch.func, and gradients
    Model("grad", lambda x: torch.func.grad(lambda y: (y * y.sin()).sum())(x)),
    Model("jacobian", lambda x: torch.func.jacrev(lambda y: y * y)(x), ((3,),)),
    Model("functional", lambda x: torch.func.functional_call(LINEAR, {"weight": torch.ones(2, 7)}, (x,))),
    n("vmap", lambda x: torch.vmap(lambda y: y.cumsum(0))(x), 9),
    Model("autograd", gradient),
    Model("copied", lambda x: copy.deepcopy(x) + 1),
]  # fmt: skip


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_model(row: Model) -> None:
    args = row.args() if row.args else tuple(rand(*shape) for shape in row.shapes)
    model = row.model.eval() if isinstance(row.model, nn.Module) else row.model
    given = [tuple(rand(*shape) for shape in shapes) for shapes in row.others]
    with warnings.catch_warnings(record=True) as caught, torch.random.fork_rng():
        warnings.simplefilter("always")
        captured = purexport.capture(model, args, capture="trace", dynamic_axes=row.axes)
        captured.to_onnx(verify=[args, *given])
    remarks = [str(item.message) for item in caught if item.category is UserWarning]
    assert len(remarks) == len(row.remarks), remarks
    for remark, part in zip(remarks, row.remarks, strict=True):
        assert re.search(part, remark)
    assert captured.route == "trace"
    for call in row.calls:  # as the model called it, and not what it falls apart into
        assert call in str(captured)


HALF = torch.export.Dim("half", min=3, max=20)
DECLARED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "twice": (lambda x, y: x.reshape(-1, 2) * y[:, None], ({0: 2 * HALF}, {0: HALF}), "2*half"),
    "within": (lambda x, y: x if y.shape[0] < 21 and x.shape[0] > 1 else y, ({0: 2 * HALF}, {0: HALF}), "2*half"),
    "static": (lambda x, y: x * len(range(y.shape[0])) + sum(range(y.shape[0])), ({0: 2 * HALF}, {0: HALF}), "8"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_sizes(name: str) -> None:
    model, shapes, size = DECLARED[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        captured = purexport.capture(model, (rand(8), rand(4)), capture="trace", dynamic_shapes=shapes)
        program = captured.to_onnx(verify=[(rand(8), rand(4))] + ([(rand(10), rand(5))] if name != "static" else []))
    assert len(caught) == (name == "static"), [str(item.message) for item in caught]
    shape = program.model_proto.graph.input[0].type.tensor_type.shape.dim[0]
    assert str(shape.dim_param or shape.dim_value) == size


def test_calls_have_lines_and_modules() -> None:
    captured = purexport.capture(Convolutional().eval(), (rand(2, 3, 8, 8),), capture="trace")
    line = next(line for line in str(captured).splitlines() if "aten::linear" in line)
    assert re.search(r"# linear \(.*test_models\.py:\d+\)", line)


def test_nothing_of_the_users_is_written() -> None:
    model, x = Counting(), rand(3, 7)
    before = x.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        purexport.capture(model, (x,), capture="trace")
    assert model.count == 0 and torch.equal(x, before)


def test_nothing_is_computed_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    from purexport.frontends.trace import data

    original = data.Elements._run_entry
    monkeypatch.setattr(
        data.Elements, "_run_entry", lambda self, entry: (ran.append(entry.operator.target), original(self, entry))[1]
    )

    def model(x: torch.Tensor) -> torch.Tensor:
        y = x @ x.t()
        z = x + 1
        z.mul_(2)
        return y if z.sum() > 1e9 else z

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        purexport.capture(model, (rand(3, 7),), capture="trace")
    assert ran == ["aten::add.Tensor", "aten::mul_.Tensor", "aten::sum", "aten::gt.Scalar"]


def test_arguments_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: Any) -> Any:
        raise AssertionError("an argument is copied")

    model, x = nn.Conv2d(1, 2, 3), rand(1, 1, 8, 8)
    for name in ("clone", "index_select"):
        monkeypatch.setattr(torch.Tensor, name, copy)
    for axes in (None, {"input": {0: "batch", 2: "height"}}):
        purexport.capture(model, (x,), capture="trace", dynamic_axes=axes)


def test_what_is_overwritten_is_read_before() -> None:
    """The elements of `y` are asked for after those of `x`, which is written in between."""

    def model(x: torch.Tensor) -> torch.Tensor:
        y = x + 0
        z = y * 2
        y.add_(1)
        return x * float(y.sum()) * float(z.sum())

    x = rand(3, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        purexport.capture(model, (x,), capture="trace").to_onnx(verify=[(x,)])


def test_operators_that_are_declared_later_are_recorded_whole() -> None:
    purexport.capture(lambda x: x * 2, (rand(3, 7),), capture="trace")
    library: Any = torch.library.Library("pxlater", "DEF")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: (x * 2).relu(), "CompositeImplicitAutograd")
    try:
        captured = purexport.capture(lambda x: torch.ops.pxlater.composite(x), (rand(3, 7),), capture="trace")
    finally:
        library._destroy()
    assert "pxlater::composite" in str(captured)


def test_a_written_parameter_is_refused_with_its_line() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(7))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.add_(1)
            return x * self.weight

    with pytest.raises(purexport.ExportError, match=r"its parameters weight at .*test_models.py:\d+"):
        purexport.capture(Writing(), (rand(3, 7),), capture="trace")


def test_a_model_without_values() -> None:
    model = nn.Sequential(nn.Linear(7, 5, device="meta"), nn.LayerNorm(5, device="meta"))
    captured = purexport.capture(model, (rand(3, 7),), capture="trace", dynamic_axes={"input": {0: "n"}})
    assert re.findall(r"aten::\w+", str(captured)) == ["aten::linear", "aten::layer_norm"]
    asking = nn.Sequential(model, Asking())
    with pytest.raises(purexport.ExportError, match=r"weight without values, at .*test_models.py:\d+"):
        purexport.capture(asking, (rand(3, 7),), capture="trace")


REFUSED = {
    "sparse": (lambda x: x.to_sparse().to_dense(), r"sparse tensor.*at .*test_models.py:\d+"),
    "branches-of-other-sizes": (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y[:1], (x,)), "branches"),
    "rows-of-data": (lambda x: sum(x[row] for row in x[0].nonzero()), r"pieces that the data counts.*test_models.py"),
    "broken": (lambda x: x @ x, "does not run on these args"),
    "a-copy-at-other-sizes": (part_written, "may or may not have copied"),
    "strides": (lambda x: x + x[:, 1:].stride(0), r"computes with the strides .* at .*test_models.py:\d+"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(purexport.ExportError, match=message):
        purexport.capture(model, (rand(3, 7),), capture="trace", dynamic_axes={"x": {1: "n"}})


def test_torch_takes_tensors_for_numbers_after_a_capture() -> None:
    """A class that once had an index of its own would be a sequence for ever."""
    purexport.capture(lambda x, at: x[at], (rand(3, 4), torch.tensor(1)), capture="trace")
    assert torch.tensor([torch.tensor(1.0), 2.0]).tolist() == [1, 2]
