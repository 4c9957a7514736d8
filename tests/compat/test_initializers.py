"""The order of initializers: the entries of `state_dict`, then what the export adds.  Old code zips the two."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.tiers import dealt


class Shuffled(nn.Module):
    """Reads its tensors in another order than `state_dict` has them, and constants before all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("offset", torch.arange(4.0))
        self.register_buffer("quiet", torch.full((4,), 3.0), persistent=False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.last.weight
        self.norm = nn.BatchNorm1d(4).eval()
        self.scale = nn.Parameter(torch.linspace(1, 2, 4))
        self.same = nn.Parameter(self.scale.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.arange(4.0) + self.quiet
        x = self.norm(self.tied(self.first(x) * 0.5)) * self.same
        return self.last(x * self.scale) + self.offset


MODEL, X = Shuffled().eval(), torch.randn(3, 4)
STATE = MODEL.state_dict()
TIED, UNUSED = {"tied.weight"}, {"norm.num_batches_tracked"}
PLAIN = [
    {},
    {"do_constant_folding": False},
    {"keep_initializers_as_inputs": True},
    {"external_data": True, "opset_version": 9},
    {"training": purexport.TrainingMode.PRESERVE, "export_modules_as_functions": {nn.BatchNorm1d}},
]
WITH_VALUES = [
    {"dynamic_axes": {"x": {0: "n"}}, "mutated_state": "io"},
    {"weights": {name: tensor + 1 for name, tensor in STATE.items()}},
]
ROUTES: dict[str, Any] = {
    "trace": lambda: MODEL,
    "export": lambda: MODEL,
    "script": lambda: torch.jit.script(MODEL),
    "program": lambda: torch.export.export(MODEL, (X,)),
}
ROWS: list[tuple[str, dict[str, Any]]] = [
    *((route, options) for route in ("trace", "export", "script") for options in [*PLAIN[:4], WITH_VALUES[0]]),
    *((route, options) for route in ("trace", "export") for options in [*PLAIN[4:], *WITH_VALUES[1:]]),
    *(("program", options) for options in PLAIN[:4]),
]


@pytest.mark.parametrize(
    ("route", "options"), dealt(ROWS, 2, [f"{route}-{'-'.join(options)}" for route, options in ROWS])
)
def test_parameters_come_first_in_the_order_of_state_dict(tmp_path: Path, route: str, options: dict[str, Any]) -> None:
    """A tied tensor stands under its first name; entries that no node reads are left out, as by torch.onnx."""
    model = ROUTES[route]()
    purexport.export(model, (X,), tmp_path / "m.onnx", capture=route if route == "export" else "auto", **options)
    graph = onnx.load(tmp_path / "m.onnx").graph
    held = [item.name for item in graph.initializer]
    listed = model.state_dict if route == "program" else model.state_dict()
    known = [name for name in listed if name not in TIED | UNUSED]
    assert held[: len(known)] == known and len(held) > len(known)
    assert known[0] == "scale" and {*listed} - {*known} == TIED | UNUSED
    if "keep_initializers_as_inputs" in options:
        assert [item.name for item in graph.input] == ["x", *(name for name in held if "constant" not in name)]
    for initializer, name in zip(graph.initializer, known, strict=False):
        value = torch.from_numpy(onnx.numpy_helper.to_array(initializer).copy())
        torch.testing.assert_close(value, listed[name] + (1 if "weights" in options else 0), rtol=0, atol=0)


def test_the_order_is_that_of_torch() -> None:
    """Without folding, which turns weights round and names them anew there."""
    names = {}
    for export, options in ((purexport.export, {}), (torch.onnx.export, {"dynamo": False})):
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            export(MODEL, (X,), file, do_constant_folding=False, keep_initializers_as_inputs=True, **options)
        held = [item.name for item in onnx.load_from_string(file.getvalue()).graph.initializer]
        names[export] = [name for name in held if name in STATE]
    assert names[purexport.export] == names[torch.onnx.export]
