"""`metadata=True`: each node says the line, module and class of the model that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.softmax(1)


@torch.jit.script
def halve(x: torch.Tensor) -> torch.Tensor:
    while bool(x.max() > 0.5):
        x = x / 2
    return x


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return halve(x.exp()).tanh()


def line_of(text: str) -> str:
    """The number of the first line of this file that holds `text`."""
    lines = Path(__file__).read_text().splitlines()
    return str(next(number for number, line in enumerate(lines, start=1) if text in line))


RELU = ("Relu", __file__, line_of("torch.relu("), "blocks.0", f"{__name__}.Block")
GEMM = ("Gemm", *RELU[1:3], "blocks.0.linear", "torch.nn.modules.linear.Linear")
SOFTMAX = ("Softmax", __file__, line_of("x.softmax("), None, f"{__name__}.Net")
EXP = ("Exp", __file__, line_of("halve(x.exp())"), None, f"{__name__}.Halves")
# a script has a source of its own, and no Python class
DIV = ("Div", __file__, line_of("x = x / 2"), None, EXP[4])
SCRIPTED = ("Relu", *RELU[1:3], None, "Block")
INSIDE = ("Gemm", *RELU[1:3], None, GEMM[4])


def exported() -> Any:
    return torch.export.export(Net(), (X,))


def scripted() -> Any:
    return torch.jit.script(Block())


ROWS = [
    # name, model, options, IR version, some of the nodes in order
    ("trace", Net, {}, 10, [GEMM, RELU, SOFTMAX]),
    ("export", Net, {"capture": "export"}, 10, [GEMM, RELU, SOFTMAX]),
    ("oldest", Net, {"opset_version": 9}, 10, [GEMM, RELU, SOFTMAX]),
    ("newer", Net, {"opset_version": 23}, 11, [GEMM, RELU, SOFTMAX]),
    ("program", exported, {}, 10, [GEMM, RELU, SOFTMAX]),
    ("script", scripted, {}, 10, [SCRIPTED]),
    ("trace-and-script", Halves, {}, 10, [EXP, DIV, ("Tanh", *EXP[1:])]),
    (
        "functions",
        Net,
        {"export_modules_as_functions": True},
        10,
        [SOFTMAX, INSIDE, ("Relu", *RELU[1:3], None, RELU[4])],
    ),
]


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    def walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for attribute in node.attribute:
                yield from walk(attribute.g.node)

    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)


@pytest.mark.parametrize(
    ("make", "options", "version", "expected"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_nodes_say_where_they_come_from(
    make: Callable[[], Any], options: dict[str, Any], version: int, expected: list[tuple[str | None, ...]]
) -> None:
    data = ps.dumps(purexport.export(make(), (X,), metadata=True, **options).model_proto)
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert model.ir_version == version
    found = []
    for node in all_nodes(model):
        entries = {entry.key.removeprefix("purexport."): entry.value for entry in node.metadata_props}
        assert entries.keys() <= {"file", "line", "module", "class"}, "each key has our prefix"
        found.append((node.op_type, *(entries.get(key) for key in ("file", "line", "module", "class"))))
    places = [found.index(row) for row in expected]
    assert places == sorted(places)


def test_it_is_off_by_default_and_changes_nothing_else() -> None:
    model = Net()
    plain, told = (purexport.export(model, (X,), metadata=wanted).model_proto for wanted in (False, True))
    assert plain.ir_version == 9 and plain == purexport.export(model, (X,)).model_proto
    assert not any(node.metadata_props for node in plain.graph.node)
    told.ir_version = 9
    for node in told.graph.node:
        node.metadata_props = []
    assert ps.dumps(told) == ps.dumps(plain)


TORCHS = [
    ("gru", lambda: nn.GRU(3, 3), (X[None],)),
    ("attention", lambda: nn.MultiheadAttention(3, 1), (X[None], X[None], X[None])),
    ("sequential", lambda: nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.LayerNorm(3))), (X,)),
    ("function", lambda: torch.relu, (X,)),
]


@pytest.mark.parametrize("capture", ["trace", "export"])
@pytest.mark.parametrize(("make", "args"), [row[1:] for row in TORCHS], ids=[row[0] for row in TORCHS])
def test_torchs_modules_have_torchs_lines(make: Callable[[], Any], args: Any, capture: str) -> None:
    program = purexport.export(make(), args, metadata=True, capture=capture)
    ours = str(Path(purexport.__file__).parent)
    for node in program.model_proto.graph.node:
        said = {item.key.removeprefix("purexport."): item.value for item in node.metadata_props}
        assert not any(str(value).startswith(ours) for value in said.values())
        if isinstance(make(), nn.Module):
            assert "/torch/nn/" in Path(said["file"] or "").as_posix()


def test_a_refusal_in_torchs_modules_names_torchs_line() -> None:
    table = {"aten::relu": lambda op, x: op.Nothing(x)}
    with pytest.raises(purexport.UnsupportedOperatorError, match=r"torch[/\\]nn[/\\][\w/\\]+\.py:\d+"):
        purexport.export(nn.Sequential(nn.Tanh(), nn.ReLU()), (X,), custom_translation_table=table)
