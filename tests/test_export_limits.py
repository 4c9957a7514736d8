"""Exports at the edges: names of 1 MB, tensors without elements, many axes, a thread that loads meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import proto_schema as ps
import purexport
from tests.harness import run_ort
from tests.tolerances import assert_near


class Edges(nn.Module):
    """A parameter without elements, one of nine axes, and numbers of rank 0."""

    def __init__(self) -> None:
        super().__init__()
        self.none = nn.Parameter(torch.ones(0, 3))
        self.wide = nn.Parameter(torch.arange(8.0).reshape(2, 1, 2, 1, 1, 2, 1, 1, 1))
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x, self.none]) * self.scale, self.wide.sum() * x.sum() + self.wide.permute(*range(8, -1, -1))


@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize("rows", [2, 0])
def test_shapes(route: str, rows: int, tmp_path: Path) -> None:
    model, x = Edges(), torch.ones(rows, 3)
    program = purexport.export(model, (x,), tmp_path / "m.onnx", capture=route, external_data=True)
    with torch.no_grad():
        expected = model(x)
    for found, wanted in zip(run_ort(program.model_proto.SerializeToString(), [x.numpy()]), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy())
    assert ps.load(tmp_path / "m.onnx") is not None


def test_names_of_1_mb(tmp_path: Path) -> None:
    names = [f"{letter}" * (1 << 20) for letter in "xy"]
    model = nn.Sequential()
    model.add_module("w" * (1 << 20), nn.Linear(3, 2))
    x = torch.ones(1, 3)
    program = purexport.export(model, (x,), tmp_path / "m.onnx", input_names=names[:1], output_names=names[1:])
    graph = ps.load(tmp_path / "m.onnx").graph
    assert graph is not None
    assert ([graph.input[0].name], [graph.output[0].name]) == (names[:1], names[1:])
    assert {len(tensor.name or "") for tensor in graph.initializer} == {(1 << 20) + 7, (1 << 20) + 5}
    (found,) = run_ort(program.model_proto.SerializeToString(), [x.numpy()])
    assert_near(found, model(x))


def test_a_thread_that_exports_and_one_that_loads(tmp_path: Path) -> None:
    path, problems = tmp_path / "m.onnx", list[str]()
    purexport.export(nn.Linear(3, 2), (torch.ones(1, 3),), path)
    expected, done = path.read_bytes(), threading.Event()

    def load() -> None:
        try:
            while not done.is_set():
                if ps.dumps(ps.load(path)) != expected:
                    problems.append("another model")
        except Exception as error:  # a thread's errors are nobody's
            problems.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=load)
    thread.start()
    made = [purexport.export(nn.Linear(3, 2), (torch.ones(1, 3),)).model_proto for _ in range(5)]
    done.set()
    thread.join(60)
    assert problems == [] and not thread.is_alive()
    assert all(len(one.graph.node) == len(made[0].graph.node) for one in made if one.graph and made[0].graph)


@pytest.mark.parametrize("route", ["trace", "export"])
def test_a_weight_of_other_tensors(route: str) -> None:
    """As torchao quantizes: there is no memory to write."""
    model = nn.Linear(4, 3)
    model.weight = nn.Parameter(TwoTensor(torch.ones(3, 4), torch.ones(3, 4)))
    with pytest.raises(purexport.ExportError, match=r"weight 'weight' is a TwoTensor, .*unwrap_tensor_subclass"):
        purexport.export(model, (torch.ones(2, 4),), capture=route)
