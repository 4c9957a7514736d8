"""The same model and options through torch.onnx (`dynamo=False`) and through us: one interface.

A row compares inputs and outputs by name, dtype and axes, and the parameters: those that the files hold, or with
`export_params=False` those that they take.  Constants that are no parameters are no part of it; an axis or input that
the options do not name is compared by its being there.  What differs on purpose has tests of its own, at the end.
"""

from __future__ import annotations

import copy
import inspect
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import purexport


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y) * 2


class Nested(nn.Module):
    def forward(self, x: Tensor, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return x + pair[0], (pair[0] * 2, x.sum(0) + pair[1])


class Listed(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return list(x.split(2, 0))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class Token(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.end = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.end(self.table(ids))


class Unused(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.relu()


class Sizes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1)


class Offset(nn.Module):
    """A buffer beside a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.offset


@dataclass(frozen=True)
class Row:
    """`args` as `export` takes them; `options` go to both."""

    name: str
    model: Any
    args: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


X, IMAGE, WORDS = torch.randn(3, 4), torch.randn(2, 3, 16, 16), torch.tensor([[1, 2, 3], [4, 5, 6]])
STEPS = torch.randn(5, 2, 4)
STATE = torch.zeros(1, 2, 6)
PLAIN = {"do_constant_folding": False}
BATCH = {"dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
CONVOLUTIONS = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 5))
NORMED = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
ROWS = [
    Row("linear", nn.Linear(4, 2), (X,), ("x",), ("y",)),
    Row("linear tensor args", nn.Linear(4, 2), X, ("x",), ("y",)),
    Row("linear batch", nn.Linear(4, 2), (X,), ("x",), ("y",), BATCH),
    Row("linear axes as a list", nn.Linear(4, 2), (X,), ("x",), ("y",), {"dynamic_axes": {"x": [0], "y": [0]}}),
    Row("linear weights as inputs", nn.Linear(4, 2), (X,), ("x",), ("y",), {"export_params": False}),
    Row("linear named weights", nn.Linear(4, 2), (X,), ("x", "w", "b"), ("y",)),
    Row("linear some weights named", nn.Linear(4, 2), (X,), ("x", "w"), ("y",)),
    Row("linear named inputs", nn.Linear(4, 2), (X,), ("x", "w", "b"), ("y",), {"export_params": False}),
    Row("initializers as inputs", nn.Linear(4, 2), (X,), ("x",), ("y",), {"keep_initializers_as_inputs": True}),
    *(
        Row(f"two layers opset {opset}", Shared(), (X,), ("x",), ("y",), {**PLAIN, "opset_version": opset})
        for opset in (9, 11, 13, 17, 20)
    ),
    Row("two layers weights as inputs", Shared(), (X,), ("x",), ("y",), {**PLAIN, "export_params": False}),
    Row("two layers in training", Shared(), (X,), ("x",), ("y",), {"training": purexport.TrainingMode.TRAINING}),
    Row("image", CONVOLUTIONS, (IMAGE,), ("x",), ("y",)),
    Row("image batch", CONVOLUTIONS, (IMAGE,), ("x",), ("y",), BATCH),
    Row("image weights as inputs", CONVOLUTIONS, (IMAGE,), ("x",), ("y",), {"export_params": False}),
    Row("image any size", nn.Conv2d(3, 4, 3), (IMAGE,), ("x",), ("y",), {"dynamic_axes": {"x": {2: "height"}}}),
    Row("two inputs", Sum(), (X, X), ("x", "z"), ("y",)),
    Row("by keyword", Sum(), (X, {"y": X}), ("x", "z"), ("y",)),
    Row("first input named", Sum(), (X, X[:1]), ("a",), ("b",), {"dynamic_axes": {"a": {0: "n"}, "b": {0: "n"}}}),
    Row("broadcast", Sum(), (X, X[:1]), ("x", "z"), ("y",), BATCH),
    Row("nested", Nested(), (X, (X, X[0])), ("a", "b", "c"), ("p", "q", "r")),
    Row("list of results", Listed(), (X,), ("x",), ("first", "last")),
    Row("integers", Token(), (WORDS,), ("x",), ("y",), PLAIN),
    Row(
        "integers batch and length",
        Token(),
        (WORDS,),
        ("x",),
        ("y",),
        {**PLAIN, "dynamic_axes": {"x": {0: "n", 1: "t"}}},
    ),
    Row("flattened", Sizes(), (IMAGE,), ("x",), ("y",), BATCH),
    Row("buffer", Offset(), (X,), ("x",), ("y",)),
    Row("buffer as input", Offset(), (X,), ("x",), ("y",), {"export_params": False}),
    Row("layer norm", nn.LayerNorm(4), (X,), ("x",), ("y",), {"opset_version": 17}),
    Row("lstm", nn.LSTM(4, 6), (STEPS, (STATE, STATE)), ("x", "h", "c"), ("y", "hn", "cn"), PLAIN),
    Row("gru", nn.GRU(4, 6), (STEPS, STATE), ("x", "h"), ("y", "hn"), PLAIN),
    Row("half", nn.Linear(4, 2).half(), (X.half(),), ("x",), ("y",)),
    Row("double", nn.Linear(4, 2).double(), (X.double(),), ("x",), ("y",)),
    Row("bool result", nn.Sequential(nn.Linear(4, 2), nn.Threshold(0.0, 0.0)), (X,), ("x",), ("y",)),
    Row("script", torch.jit.script(Shared()), (X,), ("x",), ("y",), PLAIN),
]


def interface(row: Row, export: Any, **more: Any) -> dict[str, Any]:
    """What a caller of the file sees."""
    file = io.BytesIO()
    options = copy.deepcopy({"opset_version": 17, **row.options, **more})  # theirs writes to dynamic_axes
    if export is torch.onnx.export and "training" in options:
        options["training"] = getattr(torch.onnx.TrainingMode, options["training"].name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(row.model, row.args, file, input_names=row.inputs, output_names=row.outputs, **options)
    model = onnx.load_from_string(file.getvalue())
    infos = {item.name: item.type.tensor_type for item in model.graph.input}
    results = {item.name: item.type.tensor_type for item in model.graph.output}
    labels = {
        label
        for axes in row.options.get("dynamic_axes", {}).values()
        if isinstance(axes, dict)
        for label in axes.values()
    }
    state = {*row.model.state_dict(), *row.inputs} if isinstance(row.model, nn.Module) else set(row.inputs)
    held = [tuple(item.dims) for item in model.graph.initializer if item.name in state or len(item.dims) > 1]
    return {
        "inputs": [(name, kind.elem_type, _axes(kind, labels)) for name, kind in infos.items()][: len(row.inputs)],
        "others": [(kind.elem_type, _axes(kind, labels)) for kind in infos.values()][len(row.inputs) :],
        "outputs": [(name, kind.elem_type, _axes(kind, labels)) for name, kind in results.items()],
        "parameters": len(held),
        "opset": model.opset_import[0].version,
    }


def _axes(kind: onnx.TypeProto.Tensor, labels: set[str]) -> list[int | str]:
    """Numbers, names that the options give, and "?" for names made up."""
    found = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
    return [dim if isinstance(dim, int) or dim in labels else "?" for dim in found]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_same_interface(row: Row) -> None:
    ours = interface(row, purexport.export)
    theirs = interface(row, torch.onnx.export, dynamo=False)
    assert ours == theirs


def test_unused_inputs_stay() -> None:
    """torch.onnx drops them, so that the file is called otherwise than the model."""
    row = Row("unused input", Unused(), (X, X), ("x", "z"), ("y",))
    assert [name for name, *_ in interface(row, purexport.export)["inputs"]] == ["x", "z"]
    assert [name for name, *_ in interface(row, torch.onnx.export, dynamo=False)["inputs"]] == ["x"]


def test_norms_are_not_folded_away() -> None:
    """In eval mode torch.onnx folds batch normalization into the convolution, parameters taken as inputs included."""
    row = Row("normed", NORMED, (IMAGE,), ("x",), ("y",), {"export_params": False})
    assert len(interface(row, purexport.export)["others"]) == 6
    assert len(interface(row, torch.onnx.export, dynamo=False)["others"]) == 2


def test_options_of_the_peer_are_known() -> None:
    """By name, every option of today's torch.onnx.export: taken, or said to have no meaning any more."""
    from purexport.compat import past_options

    ours = inspect.signature(purexport.export).parameters
    theirs = [name for name in inspect.signature(torch.onnx.export).parameters if name != "deprecated_kwargs"]
    assert [name for name in theirs if name not in ours and name not in past_options._PAST] == []
