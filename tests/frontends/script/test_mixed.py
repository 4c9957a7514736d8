"""Tracing and scripting in one model, as it was written for torch.onnx: each beside the other and within it."""

# ruff: noqa: UP006, UP035  TorchScript knows these forms, and reads no annotations of text in ignored methods

from collections.abc import Callable
from typing import Any, Dict, List

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.tolerances import EXACT, assert_near

X = torch.linspace(-2, 3, 32).reshape(4, 8)


@torch.jit.script_if_tracing
def repeated(x: Tensor, count: Tensor, scale: float = 0.5) -> Tensor:
    for i in range(int(count)):
        x = x * scale + i
    return x


class Conditional(nn.Module):
    """Traced: a function that is scripted for the trace."""

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        return repeated(x, count) * 2


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.mean() > 0):
            return self.linear(x)
        return self.linear(-x) * 2


class AroundScript(nn.Module):
    """Traced: a scripted module inside, whose branch stays."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = torch.jit.script(Inner()), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x) + 1)


class AroundTrace(nn.Module):
    """Scripted: a traced module inside a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), X)

    def forward(self, x: Tensor, times: int = 2) -> Tensor:
        for _ in range(times):
            x = self.inner(x)
        return x


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        later = torch.jit.fork(self.one, x)
        now = self.other(x)
        return torch.jit.wait(later) + now


class ForkedMany(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        later: List[torch.jit.Future[Tensor]] = []
        for i in range(3):
            later.append(torch.jit.fork(self.linear, x * i))
        return torch.stack([torch.jit.wait(item) for item in later])


class Lists(nn.Module):
    """Scripted: modules in lists and dicts, methods that are exported, ignored and unused."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.ends = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})

    @torch.jit.unused
    def in_training(self, x: Tensor) -> Tensor:
        raise RuntimeError("never scripted")

    @torch.jit.export
    def encoded(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        if self.training:
            return {"relu": self.in_training(x)}
        found: Dict[str, Tensor] = {}
        for name, end in self.ends.items():
            found[name] = end(self.encoded(x))
        return found


class Methods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)

    def weighted(self, factor: Tensor) -> Tensor:
        return self.conv.weight * factor


def by_methods() -> Any:
    return torch.jit.trace_module(Methods(), {"forward": (X[None],), "weighted": (torch.ones(1),)})


ROWS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "script_if_tracing": (Conditional, (X, torch.tensor(3)), (X, torch.tensor(5))),
    "script-in-trace": (AroundScript, (X,), (-X,)),
    "trace-in-script": (lambda: torch.jit.script(AroundTrace()), (X,), (X[:2],)),
    "fork-in-trace": (Forked, (X,), (X[:2],)),
    "fork-in-script": (lambda: torch.jit.script(Forked()), (X,), (X[:2],)),
    "forks-in-trace": (ForkedMany, (X,), (X[:2],)),
    "forks-in-script": (lambda: torch.jit.script(ForkedMany()), (X,), (X[:2],)),
    "lists": (lambda: torch.jit.script(Lists().eval()), (X,), (X[:2],)),
    "trace_module": (by_methods, (X[None],), (X[None] * 2,)),
}


@pytest.mark.parametrize(("make", "args", "others"), ROWS.values(), ids=ROWS.keys())
def test_mixed(make: Callable[[], Any], args: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    model = make()
    axes = {"x": {0: "rows"}} if len(args[0].shape) == 2 else None
    program = purexport.export(model, args, dynamic_axes=axes)
    for given in (args, others):
        with torch.no_grad():
            wanted = model(*given)
        for mine, theirs in zip(
            program(*given), wanted.values() if isinstance(wanted, dict) else [wanted], strict=True
        ):
            assert_near(mine, theirs)


class Ignoring(nn.Module):
    @torch.jit.ignore
    def hidden(self, x: Tensor) -> Tensor:
        return x + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden(x) * 2


def test_what_a_script_ignores_is_refused() -> None:
    with pytest.raises(purexport.ExportError, match=r"calls the Python function hidden at .*, which torch.jit.ignore"):
        purexport.export(torch.jit.script(Ignoring()), (X,))
    assert_near(purexport.export(Ignoring(), (X,))(X)[0], (X + 1) * 2, EXACT)
