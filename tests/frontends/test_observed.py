"""`observe`: real calls of a module become the arguments, the axes and the verified calls of an export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from purexport.errors import ExportError
from purexport.frontends.core.observed import Observed
from purexport.options import Options
from purexport.stages import observed


class Inner(nn.Module):
    """What is observed; `Outer` calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any, state: Any = None, *, mode: str = "up", shift: float = 0) -> Any:
        if isinstance(x, dict):
            x = x["a"] + x["b"]
        if state is not None:
            x = x + state.h
        return self.layer(x) + shift if mode == "up" else x

    def decode(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


@dataclass
class State:
    h: Tensor


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()


def f32(*shape: int) -> Tensor:
    return torch.randn(*shape)


Calls = Callable[[Inner], object]
# what is called -> inputs of the file with their sizes, how many calls it is verified on beside the example
ROWS: dict[str, tuple[Calls, dict[str, list[int | str]], int]] = {
    "one call": (lambda net: net(f32(3, 4)), {"x": [3, 4]}, 0),
    "same sizes": (lambda net: [net(f32(3, 4)), net(f32(3, 4))], {"x": [3, 4]}, 1),
    "a batch": (lambda net: [net(f32(3, 4)), net(f32(5, 4)), net(f32(7, 4))], {"x": ["batch", 4]}, 1),
    "a batch of 1 first": (lambda net: [net(f32(1, 4)), net(f32(5, 4))], {"x": ["batch", 4]}, 1),
    "none without a 1": (lambda net: [net(f32(1, 4)), net(f32(0, 4))], {"x": ["batch", 4]}, 2),
    "square": (
        lambda net: [net(f32(2, 3, 3, 4)), net(f32(2, 5, 5, 4))],
        {"x": [2, "x_dim_1", "x_dim_2", 4]},
        1,
    ),
    "dicts": (
        lambda net: [net({"a": f32(size, 4), "b": f32(size, 4)}) for size in (2, 3)],
        {"x_a": ["batch", 4], "x_b": ["batch", 4]},
        1,
    ),
    "dataclasses and a text": (
        lambda net: [net(f32(size, 4), State(f32(size, 4)), mode="down") for size in (2, 3)],
        {"x": ["batch", 4], "state_h": ["batch", 4]},
        1,
    ),
    "a number that varied": (
        lambda net: [net(f32(2, 4), shift=number) for number in (2.5, 3.5)],
        {"x": [2, 4], "shift": []},
        1,
    ),
    "a number that did not": (lambda net: [net(f32(2, 4), shift=2.5) for _ in "ab"], {"x": [2, 4]}, 1),
}


def sizes(program: purexport.ONNXProgram) -> dict[str, list[int | str]]:
    found = {}
    for item in program.model_proto.graph.input:
        assert item.type is not None and item.type.tensor_type is not None and item.type.tensor_type.shape is not None
        found[item.name or ""] = [dim.dim_param or dim.dim_value or 0 for dim in item.type.tensor_type.shape.dim]
    return found


@pytest.mark.parametrize(("calls", "inputs", "others"), ROWS.values(), ids=ROWS)
def test_the_file_takes_what_was_seen(calls: Calls, inputs: dict[str, list[int | str]], others: int) -> None:
    model = Outer().eval()
    with purexport.observe(model.inner) as seen:
        calls(model.inner)
    program = purexport.export(model.inner, seen, verify=True)
    assert sizes(program) == inputs
    more = f" and on {others} more call{'s' if others > 1 else ''}" if others else ""
    assert f"on the example{more} (" in program.report.verified
    assert not program.report.warnings
    assert not any(model.inner._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_another_call_is_verified() -> None:
    """The file has the number of the example, and the other call gives another result."""

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 1 else x

    net = Keeps()
    with purexport.observe(net) as seen:
        net(torch.ones(3)), net(torch.zeros(3))
    with (
        pytest.warns(UserWarning, match="a truth value at"),
        pytest.raises(purexport.VerificationError, match=r"verify\[0\]: output 'output'"),
    ):
        purexport.export(net, seen, verify=True, capture="trace")


def test_the_example_has_no_size_of_1() -> None:
    """At size 1 the tracer sees a model that broadcasts; the sum of two axes follows."""

    class Grows(nn.Module):
        def forward(self, new: Tensor, past: Tensor, mask: Tensor) -> Tensor:
            both = torch.cat([past, new])
            return both.sum() if mask.shape[0] == 1 else both * mask * (new.shape[0] > 1)

    net = Grows()
    with purexport.observe(net) as seen:
        net(f32(4), f32(0), f32(4)), net(f32(1), f32(4), f32(5)), net(f32(1), f32(5), f32(6))
    args = observed.taken(net, seen, None, Options()).args
    assert [tuple(tensor.shape) for tensor in args] == [(2,), (4,), (6,)]


def test_names_and_axes_of_the_user_go_before() -> None:
    net = Inner()
    with purexport.observe(net) as seen:
        net(f32(2, 4)), net(f32(3, 4))
    program = purexport.export(net, seen, input_names=["in"], dynamic_axes={"in": {0: "n"}})
    assert sizes(program) == {"in": ["n", 4]}
    assert purexport.compare(net, seen, program)
    captured = purexport.capture(net, seen)
    assert sizes(captured.to_onnx(opset_version=17)) == {"x": ["batch", 4]}


def test_calls_of_several_forms() -> None:
    net = Inner()
    with purexport.observe(net) as seen:
        net(f32(2, 4)), net(f32(2, 4), State(f32(2, 4))), net(f32(3, 4))
    assert len(seen) == 3 and [len(form) for form in seen.forms] == [2, 1]
    words = (
        "1 call of the Inner had another form than the first: state_h is float32 with 2 axes; the file is for the "
        r"first form, and seen.forms\[1\] is for an export of the other"
    )
    with pytest.warns(UserWarning, match=words):
        program = purexport.export(net, seen)
    assert sizes(program) == {"x": ["batch", 4]}
    assert sizes(purexport.export(net, seen.forms[1])) == {"x": [2, 4], "state_h": [2, 4]}
    assert str(seen).splitlines() == [
        "3 calls of the Inner",
        "form 0: 2 calls",
        "  x  float32[2 | 3, 4]",
        "form 1: 1 call",
        "  x  float32[2, 4]",
        "  state_h  float32[2, 4]",
    ]


def test_a_number_that_the_model_must_know_is_that_of_the_example() -> None:
    class Repeats(nn.Module):
        def forward(self, x: Tensor, times: int) -> Tensor:
            return torch.cat([x] * times)

    net = Repeats()
    with purexport.observe(net) as seen:
        net(f32(2), 3), net(f32(2), 4)
    with pytest.warns(UserWarning, match="takes numbers among its arguments as Python numbers .'times' at"):
        program = purexport.export(net, seen, verify=True)
    assert "on the example (" in program.report.verified
    with pytest.raises(ValueError, match="exported for the number 3, and 4 was given"):
        program(f32(2), 4)


def test_a_method() -> None:
    net = Inner()
    with purexport.observe(net.decode) as seen:
        net.decode(f32(2, 4)), net.decode(f32(3, 4))
    assert "decode" not in vars(net)
    program = purexport.export(net.decode, seen, verify=True)
    assert sizes(program) == {"x": ["batch", 4]}


def test_nothing_stays_after_an_exception() -> None:
    net = Inner()
    with pytest.raises(RuntimeError, match="mat1 and mat2"), purexport.observe(net) as seen:
        net(f32(2, 4))
        net(f32(2, 5))
    assert len(seen) == 1
    assert not net._forward_hooks and not net._forward_pre_hooks and not net.layer._forward_pre_hooks
    with pytest.raises(RuntimeError, match="mat1 and mat2"), purexport.observe(net.decode):
        net.decode(f32(2, 5))
    assert "decode" not in vars(net)


def test_the_arguments_of_two_calls_are_kept() -> None:
    """What is kept of the others are sizes."""
    net = Inner()
    with purexport.observe(net) as seen:
        for size in range(9):
            net(f32(size, 4))
    (form,) = seen._forms
    assert [call.place for call in form.kept] == [0, 2] and [call.shapes[0][0] for call in form.calls] == [*range(9)]


REFUSED: dict[str, tuple[Callable[[Outer], Observed], str]] = {
    "no call": (lambda model: calls_of(model.inner, lambda net: None), "no call of the Inner was seen; run the model"),
    "a part was called": (
        lambda model: calls_of(model.inner, lambda net: net.decode(f32(2, 4))),
        "no call of the Inner was seen, but of its layer: observe one of these, or the method that calls them",
    ),
}


def calls_of(net: Inner, calls: Calls) -> Observed:
    with purexport.observe(net) as seen:
        calls(net)
    return seen


@pytest.mark.parametrize(("called", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(called: Callable[[Outer], Observed], words: str) -> None:
    model = Outer()
    with pytest.raises(ExportError, match=words) as caught:
        purexport.export(model.inner, called(model))
    assert caught.value.code == "no-call-observed"


def test_mistakes() -> None:
    with pytest.raises(TypeError, match=r"observe takes an nn.Module or a method of an object"), purexport.observe(f32):
        pass
    script = torch.jit.script(nn.Linear(4, 4))
    with pytest.raises(TypeError, match="torch shows no calls of a script; observe"), purexport.observe(script):
        pass
    net = Inner()
    with pytest.raises(ValueError, match="kwargs are among the observed calls"):
        purexport.export(net, calls_of(net, lambda net: net(f32(2, 4))), kwargs={"mode": "up"})
