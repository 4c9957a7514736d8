"""The scripts that are written of rows' models: what stands in them, and what cannot be written."""

from __future__ import annotations

import ast
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.scripting import CannotBeWrittenError, Writer, scripted, traced

X = torch.ones(2, 3)
BOUND, INFINITE = 0.5, float("inf")
WEIGHT = torch.arange(3.0)
OPTIONS: dict[str, Any] = {"mode": "bilinear", "align_corners": True}


def halved(x: Any, by: Any = 2) -> Any:
    return x / by


def either(x: Tensor) -> Tensor:
    return x + 1 if bool(x.sum() > 0) else x - 1


def kept(index: Any) -> Any:
    """A function of a closure, whose index holds a slice."""

    def run(x: Tensor) -> Tensor:
        y = x.clone()
        y[index] = 0
        return y

    return run


def loss(way: str, **options: Any) -> Any:
    return lambda *x: functional.mse_loss(*x, reduction=way, **options)


WRITTEN = [
    # name, model, inputs, the function `row`
    ("number", lambda x: x.clamp(min=BOUND), (X,), "(x: Tensor): return x.clamp(min=0.5)"),
    ("infinity", lambda x: x.clamp(max=INFINITE), (X,), "(x: Tensor): return x.clamp(max=float('inf'))"),
    ("dtype", lambda x, to=torch.int8: x.to(to), (X,), "(x: Tensor): return x.to(torch.int8)"),
    (
        "types",
        lambda x, n, s: x.sum(n) * s,
        (X, [0, 1], 2.0),
        "(x: Tensor, n: List[int], s: float): return x.sum(n) * s",
    ),
    (
        "none",
        lambda x, y: x if y is None else y,
        (X, None),
        "(x: Tensor, y: Optional[Tensor]): return x if y is None else y",
    ),
    ("builtin", torch.relu, (X,), "(x0: Tensor): return called_0(x0)"),
    ("method", torch.Tensor.add, (X, 2), "(x0: Tensor, x1: int): return x0.add(x1)"),
    (
        "partial",
        functools.partial(torch.add, alpha=2),
        (X, X),
        "(x0: Tensor, x1: Tensor): return called_0(x0, x1, alpha=2)",
    ),
    (
        "parts",
        loss("sum", weight=None),
        (X, X),
        "(x0: Tensor, x1: Tensor): return functional.mse_loss(x0, x1, reduction='sum', weight=None)",
    ),
    (
        "options",
        lambda x: functional.interpolate(x, **OPTIONS),
        (X,),
        "(x: Tensor): return functional.interpolate(x, mode='bilinear', align_corners=True)",
    ),
    ("index", kept((slice(1, None), [0, 2])), (X,), "(x: Tensor): y = x.clone() y[1:, [0, 2]] = 0 return y"),
    ("overload", lambda x: torch.ops.aten.add.Scalar(x, 2), (X,), "(x: Tensor): return add_0(x, 2)"),
    ("tensor", lambda x: x * WEIGHT, (X,), "(x: Tensor): return x * self.WEIGHT_0"),
    ("helper", lambda x: halved(halved(x), 3), (X,), "(x: Tensor): return halved_1(halved_0(x), 3)"),
]


@pytest.mark.parametrize(("model", "args", "text"), [pytest.param(*row[1:], id=row[0]) for row in WRITTEN])
def test_what_is_written(model: Any, args: tuple[Any, ...], text: str) -> None:
    definition = Writer().definition("row", model, args, {})
    assert " ".join(ast.unparse(ast.fix_missing_locations(definition)).split()) == f"def row{text}"


RUN = [row for row in WRITTEN if row[0] != "options"]


@pytest.mark.parametrize(("model", "args"), [pytest.param(*row[1:3], id=row[0]) for row in RUN])
def test_it_computes_the_same(model: Any, args: tuple[Any, ...]) -> None:
    torch.testing.assert_close(scripted(model, args, {})(*args), model(*args))


def test_a_script_keeps_what_a_trace_loses() -> None:
    script = scripted(either, (X,), {})
    trace, args, _ = traced(either, (X,), {})
    assert "prim::If" in str(script.inlined_graph)
    assert "prim::If" not in str(trace.inlined_graph)
    assert script(-X).equal(either(-X))
    assert not trace(-args[0])[0].equal(either(-X))


@pytest.mark.full  # torch.jit.script takes seconds for nn.LSTM; the rows of recurrent layers go this way, too
def test_a_layer_with_several_forms_of_forward_is_called() -> None:
    layer = nn.LSTM(3, 4).eval()
    found, states = scripted(layer, (X,), {})(X)
    torch.testing.assert_close((found, states), layer(X))


REFUSED = [
    ("overload", lambda x: torch.ops.aten.to.dtype_layout(x, dtype=torch.float64), (X,), "another overload"),
    ("type", lambda x, y: x, (X, object()), "no TorchScript type"),
    ("mixed", lambda x, y: x, (X, [1, 2.0]), "no TorchScript type"),
    ("any-number", lambda x: halved(*[item + 1 for item in x]), (X,), "how many there are"),
    ("torch", lambda x: +x, (X,), "UnaryOp"),
]


@pytest.mark.parametrize(("model", "args", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_refused(model: Any, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises((CannotBeWrittenError, AttributeError), match=message):
        scripted(model, args, {})
