"""Programs of bug reports about other exporters, as their authors wrote them, on every route that can have them.

A row is right where the file computes what torch computes, at the example's sizes and at others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch.func import functional_call, grad, hessian, jacrev, vjp, vmap
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils import _pytree as pytree

import purexport
from tests.harness import run_ort
from tests.tolerances import CHAIN, assert_near

BOTH = ("trace", "export")
ALL = (*BOTH, "script")


def numbers(*sizes: int) -> Tensor:
    return torch.sin(torch.arange(float(torch.Size(sizes).numel())) * 0.7 + 0.3).reshape(sizes)


class Program(NamedTuple):
    name: str
    make: Callable[[], Any]
    calls: Sequence[Any]  # the arguments of the example, and of calls at other sizes
    axes: dict[str, dict[int, str]] | None = None
    routes: tuple[str, ...] = BOTH
    opset: int | None = None
    default: bool = False


def padded(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return pad_sequence([a, b, c], batch_first=True, padding_value=-1.0)


def exact(x: Tensor) -> Tensor:
    return torch.normal(x, 0.0) + torch.normal(1.0, 0.0, [2, 3]) + torch.empty(2, 3).normal_(2.0, 0.0)


def products(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.prod(x), x.prod(1), x.prod(0, keepdim=True), x.cumprod(1)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.conv(x)).float()


def contracted(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.einsum("bij,bjk->bik", x, w.bfloat16()).float()


def of_each(x: Tensor, i: Tensor) -> Tensor:
    return vmap(lambda row, place: row[:, place])(x, i)


def taken(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.take_along_dim(x, i, 1), torch.take_along_dim(x, x.argsort(1), dim=1), x.take_along_dim(i % 3)


def there_and_back(x: Tensor) -> Tensor:
    window = torch.hann_window(16)
    found = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(found, 16, 4, window=window, length=x.shape[1])


def drawn(mean: Tensor, deviation: Tensor) -> Tensor:
    return torch.distributions.Normal(mean, deviation).rsample()


def more_in_a_column(x: Tensor, u: Tensor) -> Tensor:
    x = x.clone()
    x[:, u[0, 0]] += 1
    x[u[0, 1], 1:] = 0
    return x


def sums(x: Tensor) -> Tensor:
    return associative_scan(lambda one, other: one + other, x, 0, combine_mode="generic")


def linear_steps(a: Tensor, b: Tensor) -> Tensor:
    def combine(one: Any, other: Any) -> Any:
        return one[0] * other[0], other[0] * one[1] + other[1]

    return associative_scan(combine, (a, b), 1, reverse=True, combine_mode="generic")[1]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        weights = {name: value * 2 for name, value in self.layer.named_parameters()}
        return functional_call(self.layer, weights, (x,))


def slope(x: Tensor) -> Tensor:
    return grad(lambda y: (y.sin() * y).sum())(x)


def jacobian(x: Tensor) -> Tensor:
    return jacrev(lambda y: y.sin() * y.sum())(x)


def curvature(x: Tensor) -> Tensor:
    return hessian(lambda y: (y**3).sum() * y[0])(x)


def bits(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    whole = x.view(torch.int32)
    return whole, x.view(torch.uint8), x.view(torch.uint8).view(torch.float32), (whole & 0x7FFFFFFF).view(torch.float32)


def nested(depth: int) -> nn.Module:
    model: nn.Module = nn.Linear(4, 4)
    for _ in range(depth):
        model = nn.Sequential(model)
    return model


def smoothed(x: Tensor) -> Tensor:
    return functional.interpolate(x, size=(5, 7), mode="bicubic", antialias=True, align_corners=True)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.zeros(x.shape[0], 4)
        out = torch.zeros(x.shape[0], x.shape[1], 4)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            out[:, t] = state
        return out, state


def counted(x: Tensor) -> Tensor:
    out = torch.empty(0)
    torch.arange(x.size(0), out=out)
    return out + x.sum()


def written_in_branches(x: Tensor) -> Tensor:
    y = torch.zeros(x.size(0), x.size(1))
    if bool(x.sum() > 0):
        if x.size(1) > 3:
            y[:, 1 : x.size(1) - 1].add_(x[:, 1 : x.size(1) - 1])
        else:
            y.mul_(2)
    return y


def powers(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.vander(x, 4), torch.vander(x, increasing=True), torch.combinations(x, 3, True)


def cut(x: Tensor, i: Tensor) -> list[Tensor]:
    return list(torch.tensor_split(x, i, dim=0))


def added(x: Tensor, y: Tensor) -> Tensor:
    return x + y


LARGE = torch.tensor([[2**40, 2**30, 3], [2**62, 3, 5]])
N = {"x": {0: "n"}}

PROGRAMS = [
    Program(
        "pad_sequence",
        lambda: padded,
        [(numbers(3, 2), numbers(5, 2), numbers(4, 2)), (numbers(7, 2), numbers(2, 2), numbers(1, 2))],
        {"a": {0: "a"}, "b": {0: "b"}, "c": {0: "c"}},
        ALL,
    ),
    Program("normal-without-deviation", lambda: exact, [(numbers(2, 3),)], routes=ALL, default=True),
    Program(
        "products-that-overflow",
        lambda: products,
        [(LARGE,), (torch.tensor([[-(2**63), -1, 7], [2**33, 2**33, 2**3], [1, 2, 3]]),), (LARGE[:, :0],)],
        {"x": {0: "n", 1: "m"}},
        ALL,
        default=True,
    ),
    Program(
        "products-of-few-that-overflow", lambda: products, [(LARGE,), (LARGE.flip(0, 1),)], routes=ALL, default=True
    ),
    Program("autocast-batch-norm", lambda: Normalized().eval(), [(numbers(2, 3, 8, 8),), (numbers(5, 3, 8, 8),)], N),
    Program(
        "autocast-einsum",
        lambda: contracted,
        [(numbers(2, 3, 4), numbers(2, 4, 5)), (numbers(3, 3, 4), numbers(3, 4, 5))],
        {"x": {0: "n"}, "w": {0: "n"}},
    ),
    Program("vmapped-index", lambda: of_each, [(numbers(3, 4, 5), torch.tensor([1, 4, -5]))]),
    Program(
        "take_along_dim",
        lambda: taken,
        [
            (numbers(3, 5), torch.tensor([[1, 4], [0, 0], [2, 3]])),
            (numbers(4, 6), torch.tensor([[1, 5], [0, 0], [2, 3], [1, 2]])),
        ],
        {"x": {0: "n", 1: "m"}, "i": {0: "n"}},
        ALL,
    ),
    Program("istft-length", lambda: there_and_back, [(numbers(2, 64),), (numbers(3, 80),)], {"x": {0: "n", 1: "t"}}),
    Program(
        "rsample",
        lambda: drawn,
        [(torch.full((3, 4), 1e3), torch.full((3, 4), 1e-7)), (torch.full((5, 4), 1e3), torch.full((5, 4), 1e-7))],
        {"mean": {0: "n"}, "deviation": {0: "n"}},
    ),
    Program(
        "column-by-a-tensor",
        lambda: more_in_a_column,
        [(numbers(3, 5), torch.tensor([[2, 1]])), (numbers(4, 6), torch.tensor([[-1, -2]]))],
        {"x": {0: "n", 1: "m"}},
        ALL,
        default=True,
    ),
    Program(
        "associative_scan",
        lambda: sums,
        [(numbers(6, 3),), (numbers(9, 3),), (numbers(1, 3),)],
        N,
        ("trace",),
        default=True,
    ),
    Program(
        "associative_scan-of-two",
        lambda: linear_steps,
        [(numbers(2, 7, 3), numbers(2, 7, 3)), (numbers(5, 12, 3), numbers(5, 12, 3))],
        {"a": {0: "n", 1: "t"}, "b": {0: "n", 1: "t"}},
        ("trace",),
    ),
    Program("functional_call", Scaled, [(numbers(2, 4),), (numbers(5, 4),)], N),
    Program("func.grad", lambda: slope, [(numbers(3, 4),), (numbers(5, 4),)], N, ("trace",)),
    Program("jacrev", lambda: jacobian, [(numbers(4),), (numbers(6),)], N, ("trace",)),
    Program("hessian", lambda: curvature, [(numbers(3),)], routes=("trace",)),
    Program("view-dtype", lambda: bits, [(numbers(3, 4),), (numbers(5, 4),)], N, opset=26),
    Program("nested-330", lambda: nested(330), [(numbers(2, 4),)]),
    Program(
        "bicubic-antialias-align_corners",
        lambda: smoothed,
        [(numbers(1, 3, 12, 11),), (numbers(2, 3, 9, 20),)],
        {"x": {0: "n", 2: "h", 3: "w"}},
        ALL,
    ),
    Program(
        "steps-written",
        Steps,
        [(numbers(2, 5, 3),), (numbers(3, 8, 3),)],
        {"x": {0: "n", 1: "t"}},
        ("trace", "script"),
    ),
    Program("arange-out", lambda: counted, [(numbers(3, 4),), (numbers(5, 4),)], N, ALL),
    Program(
        "written-in-branches",
        lambda: written_in_branches,
        [(numbers(3, 5).abs(),), (numbers(3, 6).abs(),), (-numbers(4, 4).abs(),), (numbers(2, 3).abs(),)],
        {"x": {0: "n", 1: "m"}},
        ("script",),
    ),
    Program("powers", lambda: powers, [(numbers(5),), (numbers(3),)], N, ALL),
    Program(
        "tensor_split",
        lambda: cut,
        [
            (numbers(6, 4), torch.tensor([2, 5])),
            (numbers(6, 4), torch.tensor([3, -1])),
            (numbers(6, 4), torch.tensor([4, 9])),
        ],
        routes=("trace", "script"),
    ),
    Program("a-list-of-arguments", lambda: added, [[numbers(3, 4), numbers(3, 4)]], routes=ALL, default=True),
]

ROWS = [
    pytest.param(
        row, route, id=f"{row.name}-{route}", marks=() if row.default and route != "export" else pytest.mark.full
    )
    for row in PROGRAMS
    for route in row.routes
]


@pytest.mark.parametrize(("row", "route"), ROWS)
def test_a_reported_program_is_right(row: Program, route: Any) -> None:
    torch.manual_seed(0)
    model = row.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        given = torch.jit.script(model) if route == "script" else model
        names = list(row.axes) if row.axes else None
        program = purexport.export(
            given,
            row.calls[0],
            dynamic_axes=row.axes,
            input_names=names,
            opset_version=row.opset,
            capture="auto" if route == "script" else route,
        )
    assert program.report.route == route
    data = program.model_proto.SerializeToString()
    for args in row.calls:
        if row.name.startswith("nested"):
            wanted = pytree.tree_leaves(next(m for m in model.modules() if isinstance(m, nn.Linear))(*args))
        else:
            wanted = pytree.tree_leaves(model(*args))
        found = run_ort(data, [item.numpy() for item in args])
        for mine, theirs in zip(found, wanted, strict=True):
            assert_near(mine, theirs.detach(), CHAIN)


@pytest.mark.full
def test_what_torch_func_keeps_is_said() -> None:
    def derived(x: Tensor) -> Tensor:
        value, back = vjp(torch.sin, x)
        result: Tensor = back(torch.ones_like(value))[0]
        return result

    with pytest.raises(purexport.ExportError, match=r"only inside of torch.func.grad.*capture=\"auto\"") as caught:
        purexport.export(derived, (numbers(3, 4),), dynamic_axes=N, capture="export")
    assert caught.value.code == "program-not-read"
