"""An export leaves everything as it was, whether it succeeds or fails: at the capture, at an operator, at the file."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # whose import adds filters of warnings
from torch import nn
from torch.autograd import function as autograd

import purexport
from purexport.compat.symbolic.registry import REGISTRY
from tests.tiers import in_turn

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Busy(nn.Module):
    """Draws from every generator, writes to its buffers and attributes, has hooks and parts in both modes."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails = fails
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3), nn.BatchNorm1d(3).eval())
        self.register_buffer("count", torch.zeros(()))
        self.seen = 0
        self.layers[0].register_forward_hook(lambda *_: None)
        self.layers[0].register_forward_pre_hook(lambda *_: None)
        self.register_load_state_dict_post_hook(lambda *_: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails == "capture":
            random.random()
            raise KeyError("no")
        self.count += 1
        self.seen = 3
        x = self.layers(x) + torch.rand(3) * random.random() * float(np.random.rand())
        return torch.poisson(x.abs()) if self.fails == "operator" else x


class Full(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError("no space")


def state(model: nn.Module) -> dict[str, Any]:
    """What may not change, in forms that compare."""
    modules = list(model.modules())
    return {
        "modes": [module.training for module in modules],
        "hooks": [[*module._forward_hooks.values(), *module._forward_pre_hooks.values()] for module in modules],
        "attributes": [{name: str(value) for name, value in vars(module).items()} for module in modules],
        "parameters": [
            (parameter.requires_grad, parameter.grad, parameter.tolist()) for parameter in model.parameters()
        ],
        "buffers": {name: buffer.tolist() for name, buffer in model.named_buffers()},
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "switches": [torch.is_grad_enabled(), torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()],
        "filters": list(warnings.filters),
        "registry": {name: dict(found) for name, found in REGISTRY._functions.items()},
        "tracer": torch.jit._trace._trace_module_map,
        "apply": "apply" in vars(autograd._SingleLevelFunction),
        "exporting": purexport.is_in_onnx_export(),
    }


ENDS: list[tuple[str, Any, type[Exception] | None]] = [
    ("", None, None),
    ("capture", None, purexport.ExportError),
    ("operator", None, purexport.UnsupportedOperatorError),
    ("", Full, OSError),
]


@pytest.mark.filterwarnings("ignore:the model writes to its buffer", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("route", "training"), in_turn(["trace", "export", "auto"], [True, False, purexport.TrainingMode.PRESERVE])
)
@pytest.mark.parametrize(("fails", "file", "error"), ENDS, ids=["succeeds", "capture", "operator", "file"])
def test_everything_is_left_as_it_was(
    fails: str, file: Callable[[], Any] | None, error: type[Exception] | None, route: str, training: Any
) -> None:
    model = Busy(fails)
    before = state(model)
    options: dict[str, Any] = {"capture": route, "training": training}
    if error is None:
        purexport.export(model, (X,), **options)
    else:
        with pytest.raises(error):
            purexport.export(model, (X,), file() if file is not None else None, **options)
    after = state(model)
    assert [name for name in before if after[name] != before[name]] == []
