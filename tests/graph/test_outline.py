"""`export_modules_as_functions`: modules as ONNX functions, judged by onnx's checker and run in ONNX Runtime.

A row says which functions the file has, each with how often it is called, counted over the graph and the functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import proto_schema as ps
import purexport
from tests.tolerances import CHAIN, assert_near


class Block(nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x).relu()) + x


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.end = nn.Sequential(nn.Linear(4, 2), nn.Dropout(), nn.Softmax(-1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            x = block(x)
        return self.end(x), x


class Twice(nn.Module):
    """One module called in two places, with something of the model's own between; two results of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.pair = Pair()

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.pair(self.block(self.block(x) * 2))
        return low + high


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amin(0), x.exp().amax(0)


class Choice(nn.Module):
    """An If in a module; its branches see the module's weights, and know no modules inside."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.weight = Block(), nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.block(x), lambda x: x @ self.weight, (x,))


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.choice = Choice()

    def forward(self, x: Tensor) -> Tensor:
        return self.choice(x + 1) * 2


class Tied(nn.Module):
    """Two layers of one weight, and a weight that the model itself reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) @ self.first.weight


@dataclass(frozen=True)
class Row:
    """`functions`: name -> number of calls; `wanted`: the option."""

    name: str
    model: nn.Module
    args: tuple[Tensor, ...]
    functions: dict[str, int]
    wanted: Any = True
    options: dict[str, Any] = field(default_factory=dict)
    routes: tuple[str, ...] = ("trace", "export")


X = torch.linspace(-1, 1, 16).reshape(4, 4)
ALIKE = {"Block": 2, "Linear": 2, "LayerNorm": 1, "Sequential": 1, "Softmax": 1}
ROWS = [
    Row("alike share one", Stack(Block(), Block()), (X,), ALIKE),
    Row(
        "different eps",
        Stack(Block(), Block(1e-2)),
        (X,),
        {"Block": 1, "Block.1": 1, "Linear": 3, "LayerNorm": 1, "LayerNorm.1": 1, "Sequential": 1, "Softmax": 1},
    ),
    Row("of some classes", Stack(Block(), Block()), (X,), {"Block": 2}, wanted={Block}),
    Row("innermost only", Stack(Block(), Block()), (X,), {"LayerNorm": 2}, wanted=[nn.LayerNorm]),
    Row("none found", Stack(Block(), Block()), (X,), {}, wanted={nn.Conv2d}),
    Row("called twice", Twice(), (X,), {"Block": 2, "Linear": 1, "LayerNorm": 1, "Pair": 1}),
    Row("If inside", Around(), (X,), {"Choice": 1}, routes=("export",)),
    Row("tied weights", Tied(), (X,), {"Linear": 2}),
    Row("parameters outside", Tied(), (X,), {"Linear": 2}, options={"export_params": False}),
]


RUNS = [(row, route) for row in ROWS for route in row.routes]


def all_nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for item in node.attribute:
            yield from all_nodes(item.g.node)


@pytest.mark.parametrize("opset", [15, *(pytest.param(opset, marks=pytest.mark.full) for opset in (18, 20))])
@pytest.mark.parametrize(("row", "route"), RUNS, ids=[f"{row.name.replace(' ', '-')}-{route}" for row, route in RUNS])
def test_functions(row: Row, route: str, opset: int) -> None:
    program = purexport.export(
        row.model,
        row.args,
        capture=route,
        opset_version=opset,
        export_modules_as_functions=row.wanted,
        **row.options,
    )
    ps.checker.check_model(program.model_proto, full_check=True)
    model = onnx.load_from_string(program.model_proto.SerializeToString())
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version >= 8
    listed = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    calls = Counter((node.domain, node.op_type) for node in all_nodes(listed))
    assert {item.name: calls[item.domain, item.name] for item in model.functions} == row.functions
    assert {item.domain for item in model.opset_import} == {"", *(function.domain for function in model.functions)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    state = row.model.state_dict()
    feeds = dict(zip([item.name for item in session.get_inputs()], row.args, strict=False))
    feeds |= {item.name: state[item.name] for item in session.get_inputs() if item.name in state}
    with torch.no_grad():
        expected = row.model.eval()(*row.args)
    results = expected if isinstance(expected, tuple) else (expected,)
    found = session.run(None, {name: tensor.numpy() for name, tensor in feeds.items()})
    for got, want in zip(found, results, strict=True):
        assert_near(got, want, CHAIN)


def test_domain_names_and_weights() -> None:
    """The domain is the class's package; inputs come first, weights have their names in the module."""
    program = purexport.export(Stack(Block()), (X,), export_modules_as_functions=True, opset_version=15)
    functions = {item.name: item for item in program.model_proto.functions}
    assert (functions["Linear"].domain, functions["Block"].domain) == ("torch.nn.modules.linear", Block.__module__)
    assert functions["Block"].input == ["input", "linear.weight", "linear.bias", "norm.weight", "norm.bias"]
    (call,) = [node for node in program.model_proto.graph.node if node.op_type == "Block"]
    assert call.name == "blocks.0/Block"
    assert call.input[1:] == [f"blocks.0.{name}" for name in functions["Block"].input[1:]]
    assert functions["Block"].node[0].name == "linear/Linear"


@pytest.mark.parametrize("length", [1, 5])
def test_other_sizes(length: int) -> None:
    """Sizes that may change are computed inside the functions."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    program = purexport.export(
        layer,
        (torch.randn(2, 3, 8),),
        export_modules_as_functions=True,
        opset_version=17,
        dynamic_axes={"src": {0: "batch", 1: "length"}},
    )
    onnx.checker.check_model(onnx.load_from_string(program.model_proto.SerializeToString()), full_check=True)
    assert {"MultiheadAttention", "Linear"} <= {item.name for item in program.model_proto.functions}
    example = torch.randn(length, length, 8)
    assert_near(program(example)[0], layer(example), CHAIN)


REFUSED = [
    (nn.Linear(4, 4), {"opset_version": 14}, "needs opset_version 15 or later, not 14"),
    (torch.jit.script(nn.Linear(4, 4)), {}, "needs an nn.Module, which knows its modules' classes"),
    (torch.sigmoid, {}, "not builtin_function_or_method"),
    (nn.Linear(4, 4), {"export_modules_as_functions": {"Linear"}}, "neither a bool nor a set of module classes"),
]


@pytest.mark.parametrize(("model", "options", "message"), REFUSED, ids=["opset", "script", "function", "names"])
def test_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        purexport.export(model, (X,), **{"export_modules_as_functions": True, **options})
