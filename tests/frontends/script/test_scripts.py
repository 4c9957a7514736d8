"""Scripts: what is known at export is computed, the rest becomes calls; refusals name the script's line."""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035  TorchScript knows these

import onnx
import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.harness import run_ort
from tests.tiers import in_turn
from tests.tolerances import assert_near

Axes = dict[str, dict[int, str]]


class Stack(nn.Module):
    """A loop over a constant, a list that grows, module lists, a size in a condition, an assertion."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.rounds = 3
        self.more = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x: Tensor, flag: bool = True) -> Tuple[Tensor, bool]:  # noqa: UP006
        out: List[Tensor] = []  # noqa: UP006
        for i in range(self.rounds):
            x = self.layer(x)
            if i % 2 == 0 and flag:
                out.append(x)
        for layer in self.more:
            x = layer(x)
        if x.dim() == 2:
            x = x.view(x.size(0), -1)
        assert x.shape[1] == 4, "four columns"
        return torch.cat(out, 1) + x.repeat(1, 2), x.dtype == torch.float32


class Point(NamedTuple):
    x: Tensor
    y: Tensor


class Containers(nn.Module):
    """Dicts, tuples, named tuples, Optional, strings, isinstance, and a list seen through two names."""

    def forward(self, x: Tensor, scale: Optional[float] = None, mode: str = "sum") -> Dict[str, Tensor]:  # noqa: UP006, UP045
        point = Point(x, x * 2)
        items = [point.x]
        same = items
        same.append(point.y)
        if scale is not None:
            items.append(x * scale)
        total = items[0]
        for item in items[1:]:
            total = total + item
        if mode == "mean":
            total = total / len(items)
        parts: Dict[str, Tensor] = {"total": total}  # noqa: UP006
        if "last" not in parts:
            parts["last"] = items[-1]
        return parts


class InPlace(nn.Module):
    """Writes through views, in a loop, and to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        for i in range(2):
            y[i] += i + 1
        y[:, 1:] = 0
        self.count += 1
        return y * self.count


@torch.jit.script
def sizes(x: Tensor, y: Tensor) -> Tuple[Tensor, int]:  # noqa: UP006
    rows, columns = x.size(0), x.size(1)
    flat = x.reshape(rows * columns)
    return torch.cat([flat, y.expand(rows, 3).reshape(-1)]), rows * 2


@torch.jit.script
def promoted(x: Tensor, n: int) -> Tensor:
    if x.is_floating_point():
        return x * n
    return x / n + torch.tensor([1.5, 2.5])


@torch.jit.script
def looped(x: Tensor, times: Tensor) -> Tensor:
    for i in range(int(times)):
        x = x + i
    return x


@torch.jit.script
def branched(x: Tensor) -> Tuple[Tensor, int]:  # noqa: UP006
    """The sides give tensors of one rank and other sizes, and different numbers."""
    if bool(x.sum() > 0):
        y, n = x * 2, 1
    else:
        y, n = -x[:1], 2
    return y, n


@torch.jit.script
def returned_early(x: Tensor) -> Tensor:
    if bool(x.max() > 3):
        return x + 1
    return x - 1


@torch.jit.script
def doubled(x: Tensor) -> Tuple[Tensor, int]:  # noqa: UP006
    n = 0
    while bool(x.sum() < 100):
        x = x * 2
        n += 1
    return x, n


@torch.jit.script
def grown(x: Tensor, times: Tensor) -> Tensor:
    """A carried size that changes at every step, branches on the step, and a break on data."""
    out = torch.zeros(1, 3)
    for i in range(int(times)):
        if i % 2 == 0:  # noqa: SIM108  the branch is what is tested
            out = torch.cat([out, x * i])
        else:
            out = torch.cat([out, -x])
        if bool(out.sum() < -50):
            break
    return out


class LoopModel2(nn.Module):
    """The documents' example: a scripted loop in a traced module keeps its trip count open."""

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        return looped(x, times) * 2


class Gate(nn.Module):
    """A branch on data around a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return self.layer(x)
        return x


class Mixed(nn.Module):
    """A scripted module inside a traced one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.jit.script(Gate())
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gate(x))


@torch.jit.script
def ranks_differ(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x
    return x.sum()


def loaded(module: nn.Module) -> Any:
    """The module after torch.jit.save and torch.jit.load."""
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(module), stream)
    stream.seek(0)
    return torch.jit.load(stream)


@dataclass(frozen=True)
class Program:
    """A script, its arguments, dynamic axes and the arguments that they allow."""

    make: Any
    args: tuple[Any, ...]
    axes: Axes | None = None
    others: tuple[tuple[Any, ...], ...] = ()


COUNTS = tuple((torch.ones(2, 3), torch.tensor(count)) for count in (0, 1, 7))


@torch.jit.script
def literals(x: Tensor, times: Tensor) -> Tensor:
    """A literal is new at every call."""
    first = torch.tensor([1.0, 2.0, 3.0])
    first[0] = x[0]
    with torch.no_grad():
        for _ in range(int(times)):
            step = torch.tensor([1.0, 0.5, 0.25])
            step.add_(first)
            first = first + step
    return first


GROWN = tuple((torch.full((1, 3), size), torch.tensor(count)) for size, count in ((1.0, 0), (1.0, 1), (9.0, 8)))
TRACED = ("a scripted loop in a trace", "a scripted module in a trace")
PROGRAMS = {
    "stack": Program(lambda: torch.jit.script(Stack()), (torch.ones(2, 4),), {"x": {0: "n"}}, ((torch.rand(5, 4),),)),
    "stack without the list's flag": Program(lambda: loaded(Stack()), (torch.rand(3, 4),)),
    "containers": Program(lambda: torch.jit.script(Containers()), (torch.rand(2, 3),)),
    "containers with all": Program(lambda: torch.jit.script(Containers()), (torch.rand(2, 3), 0.5, "mean")),
    "in place": Program(lambda: torch.jit.script(InPlace()), (torch.rand(3, 4),)),
    "sizes": Program(
        lambda: sizes,
        (torch.rand(2, 3), torch.rand(1, 3)),
        {"x": {0: "rows", 1: "columns"}},
        ((torch.rand(4, 5), torch.rand(1, 3)), (torch.rand(1, 1), torch.rand(1, 3))),
    ),
    "promotion of floats": Program(lambda: promoted, (torch.rand(2), 3)),
    "promotion of integers": Program(lambda: promoted, (torch.arange(2), 3)),
    "a traced module": Program(
        lambda: torch.jit.trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (torch.ones(1, 3, 8, 8),)),
        (torch.rand(1, 3, 8, 8),),
    ),
    "literals written in place": Program(
        lambda: literals, (torch.rand(3), torch.tensor(2)), None, ((torch.rand(3), torch.tensor(0)),)
    ),
    "a loop on data": Program(lambda: looped, (torch.ones(2, 3), torch.tensor(3)), None, COUNTS),
    "a branch on data": Program(lambda: branched, (torch.ones(2, 3),), None, ((-torch.ones(2, 3),),)),
    "an early return on data": Program(lambda: returned_early, (torch.ones(2),), None, ((torch.full((2,), 8.0),),)),
    "a while on data": Program(lambda: doubled, (torch.ones(2, 3),), None, ((torch.full((2, 3), 200.0),),)),
    "a size that grows in a loop": Program(lambda: grown, (torch.ones(1, 3), torch.tensor(3)), None, GROWN),
    "a scripted loop in a trace": Program(LoopModel2, (torch.ones(2, 3), torch.tensor(3)), {"x": {0: "n"}}, COUNTS),
    "a scripted module in a trace": Program(Mixed, (torch.ones(2, 3),), {"x": {0: "n"}}, ((-torch.ones(5, 3),),)),
    "attention": Program(
        lambda: torch.jit.script(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()),
        (torch.rand(2, 5, 8),),
        {"src": {0: "batch", 1: "time"}},
        ((torch.rand(3, 7, 8),),),
    ),
}


@pytest.mark.parametrize(("name", "opset"), in_turn(PROGRAMS, (11, 17, 23)))
def test_program(name: str, opset: int) -> None:
    program = PROGRAMS[name]
    torch.manual_seed(0)
    model = program.make()
    exported = purexport.export(model, program.args, dynamic_axes=program.axes, opset_version=opset)
    onnx.checker.check_model(exported.model_proto.SerializeToString(), full_check=True)
    assert exported.report.route == ("trace" if name in TRACED else "script")
    for args in (program.args, *program.others):
        tensors = [arg.numpy() for arg in args if isinstance(arg, Tensor)]
        got = run_ort(exported.model_proto.SerializeToString(), tensors)
        # a module that counts its calls starts anew each time
        fresh = copy.deepcopy(model) if isinstance(model, nn.Module) else model
        leaves = torch.utils._pytree.tree_leaves(fresh(*args))
        for mine, theirs in zip(got, leaves, strict=True):
            assert_near(mine, torch.as_tensor(theirs))


def test_names_are_those_of_the_state_dict_and_the_schema() -> None:
    graph = purexport.export(torch.jit.script(Stack()), (torch.ones(2, 4),)).model_proto.graph
    assert [item.name for item in graph.input] == ["x"]
    assert [item.name for item in graph.initializer][:4] == [
        "layer.weight",
        "layer.bias",
        "more.0.weight",
        "more.0.bias",
    ]
    assert graph.node[0].name == "layer/Gemm"


def test_keyword_arguments_and_defaults() -> None:
    model = torch.jit.script(Containers())
    graph = purexport.export(model, (torch.ones(2),), kwargs={"mode": "mean"}).model_proto.graph
    assert [item.name for item in graph.output] == ["total", "last"]
    with pytest.raises(purexport.ExportError, match=r"unknown \['size'\]"):
        purexport.export(model, (torch.ones(2),), kwargs={"size": 1})
    with pytest.raises(purexport.ExportError, match=r"missing \['x'\]"):
        purexport.export(model, ())


def test_loops_on_data_stay_loops() -> None:
    """With the trip count open there is one Loop, whatever the example's count; its branches are If nodes inside."""
    program = purexport.export(grown, (torch.ones(1, 3), torch.tensor(2)))
    (loop,) = [node for node in program.model_proto.graph.node if node.op_type == "Loop"]
    body = next(item.g for item in loop.attribute if item.name == "body")
    assert "If" in [node.op_type for node in body.node]


# what is refused, and what the error says
ONES, THREE = torch.ones(2), torch.tensor(3)
REFUSED = {
    "ranks that differ": (
        ranks_differ,
        (ONES,),
        r"float32\[2\] \('x'\) on one path and .*float32\[\] \(made at .*py:[0-9]+\)\) on the other",
    ),
    "an assertion that fails": (Stack(), (torch.ones(2, 2, 4),), r"raises at .*test_scripts\.py:\d+.*four columns"),
    "args of a wrong shape": (Stack(), (torch.ones(2, 5),), r"aten::linear at .* does not run"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, args, message = REFUSED[name]
    script = torch.jit.script(model) if isinstance(model, nn.Module) else model
    with pytest.raises(purexport.ExportError, match=message):
        purexport.export(script, args)
