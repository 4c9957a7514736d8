"""State that a model writes: warned of, refused, or taken in and out of the file; the model is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.tiers import in_turn
from tests.tolerances import assert_near

ROUTES = ("trace", "export", "script")
X = torch.tensor([1.0, -2.0, 3.0])


class Written(nn.Module):
    """A buffer written in place through a view, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.cache[0] += x
        self.count += 1
        return self.cache.sum(0) * self.count


class Assigned(nn.Module):
    """A buffer that is another tensor after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hidden", torch.ones(3))
        self.cell = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = torch.tanh(self.cell(self.hidden + x))
        return self.hidden * 2


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = Assigned()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        y.mul_(2)
        return self.state(x) + y


class Window(nn.Module):
    """A sliding window of the last four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.last = torch.cat([self.last[1:], x.unsqueeze(0)])
        return self.last.mean(0)


MODELS = {
    "written": (Written, (X,), ["x", "cache", "count"], ["output", "cache_out", "count_out"]),
    "assigned": (Assigned, (X,), ["x", "hidden"], ["output", "hidden_out"]),
    "inside and an input": (Inner, (X, X + 1), ["x", "y", "state.hidden"], ["output", "y_out", "state.hidden_out"]),
    "window": (Window, (X,), ["x", "last"], ["output", "last_out"]),
}


def exported(model: nn.Module, args: tuple[Tensor, ...], route: str, **options: Any) -> Any:
    if route == "script":
        return purexport.export(torch.jit.script(model), args, **options)
    return purexport.export(model, args, capture=route, **options)


@pytest.mark.parametrize("opset", [11, 17, 23])
@pytest.mark.parametrize(("name", "route"), in_turn(MODELS, ROUTES))
def test_state_goes_in_and_out(name: str, route: str, opset: int) -> None:
    """Several steps in ONNX Runtime, the state handed on, are the same steps in torch."""
    factory, args, inputs, outputs = MODELS[name]
    torch.manual_seed(0)
    model = factory()
    if (factory, route) == (Inner, "export"):  # torch.export drops what an inner module assigns
        with pytest.raises(
            purexport.ExportError, match=r"assigns a tensor to its buffer 'state.hidden'.*capture='trace'"
        ):
            purexport.export(model, args, capture=route, mutated_state="io", opset_version=opset)
        return
    program = exported(model, args, route, mutated_state="io", opset_version=opset, verify=True)
    graph = program.model_proto.graph
    assert graph is not None
    assert [item.name for item in graph.input] == inputs
    assert [item.name for item in graph.output] == outputs
    own, state = copy.deepcopy(model), list(program.state.values())
    for step in range(3):
        now = [arg + step for arg in args]
        got = program(*now, *state)
        expected = own(*(arg.clone() for arg in now))
        assert_near(got[0], expected)
        state = got[len(got) - len(state) :]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_left_as_it_was(name: str, route: str) -> None:
    factory, args, _, _ = MODELS[name]
    model = factory()
    buffers = {key: (value, value.clone()) for key, value in model.named_buffers()}
    with pytest.warns(UserWarning, match="the write itself is not kept"):
        exported(model, args, route)
    for key, value in model.named_buffers():
        assert value is buffers[key][0]
        assert torch.equal(value, buffers[key][1])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", MODELS)
def test_refused_when_asked(name: str, route: str) -> None:
    factory, args, _, _ = MODELS[name]
    with pytest.raises(purexport.ExportError, match=r"(?s)writes to its (buffer|input) .*mutated_state='error'"):
        exported(factory(), args, route, mutated_state="error")


def test_plain_attributes_are_left_as_they_were() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.last = 0, None

        def forward(self, x: Tensor) -> Tensor:
            self.calls, self.last, self.new = self.calls + 1, x * 2, x
            return x + self.calls

    model = Counting()
    purexport.export(model, (X,), capture="trace")
    assert (model.calls, model.last, hasattr(model, "new")) == (0, None, False)


def test_a_model_without_state_is_the_same_file() -> None:
    layer = nn.Linear(3, 3)
    plain, kept = (purexport.export(layer, (X,), mutated_state=policy) for policy in ("warn", "io"))
    assert plain.model_proto.SerializeToString() == kept.model_proto.SerializeToString()
