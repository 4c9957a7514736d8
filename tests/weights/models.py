"""Small models for exports with weights from outside, and checkpoints of them made by hand."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import purexport
from tests.weights import made

NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}


def safetensors(
    path: Path, state: Mapping[str, Tensor], pad: int = 0, metadata: Mapping[str, str] | None = None
) -> Path:
    """A checkpoint of tensors; `pad` bytes before the first say where in the file they begin to be unaligned."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    if pad:
        header["pad"] = {"dtype": "U8", "shape": [pad], "data_offsets": [0, pad]}
        data = bytes(pad)
    for name, tensor in state.items():
        held = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        end = len(data) + len(held)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += held
    text = json.dumps(header).encode()
    return made.safetensors(path, text + b" " * (-len(text) % 8), data)


@dataclass(frozen=True)
class Built:
    """A model: how it is made, what it takes, and what no checkpoint holds of it."""

    make: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    kept: tuple[str, ...] = ()
    axes: Any = None

    def real(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        model = self.make().eval()
        for buffer in model.buffers():
            if buffer.is_floating_point():  # as if it had been trained
                buffer.copy_(buffer + torch.rand(buffer.shape).to(buffer.dtype))
        return model

    def hollow(self) -> nn.Module:
        with torch.device("meta"):
            return self.make().eval()

    def fake(self) -> nn.Module:
        with FakeTensorMode():
            return self.make().eval()

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}

    def rest(self, model: nn.Module) -> dict[str, Tensor]:
        """What it does not hold."""
        return {name: _get(model, name) for name in self.kept}


def _get(model: Any, name: str) -> Tensor:
    for part in name.split("."):
        model = getattr(model, part)
    found: Tensor = model
    return found


class Mixed(nn.Module):
    """Layers of many kinds, one after the other, a write in place, and a tensor made while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.conv, self.norm = nn.Linear(8, 8), nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4)
        self.recurrent = nn.LSTM(6, 5)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.relu(self.linear(x)) + self.scale * torch.arange(8) + torch.tensor(3.0)
        y = self.norm(self.conv(y))
        y[:, 0] = 1.0
        y, _ = self.recurrent(y)
        return y.reshape(y.size(0), -1).softmax(-1), torch.where(y > 0, y, 0)


class Tied(nn.Module):
    """An embedding whose table is the head's too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.head(self.table(ids))
        return result


class Rotary(nn.Module):
    """Attention with frequencies that checkpoints do not hold, and a mask that they do."""

    def __init__(self, width: int = 8, length: int = 12) -> None:
        super().__init__()
        self.take = nn.Linear(width, 3 * width)
        self.rates: Tensor
        self.register_buffer("rates", 1.0 / 10 ** (torch.arange(width // 2) / width), persistent=False)
        self.mask: Tensor
        self.register_buffer("mask", torch.ones(length, length).tril().bool())

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = self.take(x).chunk(3, -1)
        turns = torch.outer(torch.arange(length), torch.cat([self.rates, self.rates]))
        q, k = q * turns.cos(), k * turns.sin()
        result: Tensor = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:length, :length])
        return result


class Turned(nn.Module):
    """Weights read transposed, in pieces, and as a divisor and a power."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.divisor = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.rand(6) + 1)
        self.slope = nn.PReLU(6)

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.t() / self.divisor
        result: Tensor = self.slope(y) + self.weight[:, 1] ** 2 + self.weight.sum(1)
        return result


class Angles(nn.Module):
    """A complex parameter, and a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.offset = torch.arange(5) * 0.5

    def forward(self, x: Tensor) -> Tensor:
        return (self.phase * x).real + self.offset


class Counting(nn.Module):
    """A buffer that the model writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.total: Tensor
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(self.linear(x).sum(0))
        return x + self.total


class Narrow(nn.Module):
    """Weights in bfloat16, computed with in float32, as ONNX Runtime can on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.float())


def ids(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % 11


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape).to(dtype)


HALF = torch.float16

MODELS = {
    "layers of many kinds": Built(Mixed, (numbers(2, 4, 8),), axes={"x": {0: "batch"}}),
    "tied weights": Built(Tied, (ids(2, 3),), axes={"ids": {1: "length"}}),
    "a buffer that is not persistent": Built(Rotary, (numbers(1, 5, 8),), ("rates",), {"x": {0: "batch"}}),
    "transposed weights": Built(Turned, (numbers(3, 4),)),
    "complex, and an attribute": Built(Angles, (numbers(2, 5),), ("offset",)),
    "a buffer that is written": Built(Counting, (numbers(3, 4),)),
    "bfloat16": Built(Narrow, (numbers(2, 4),)),
    "float16": Built(
        lambda: nn.Sequential(nn.Linear(4, 3, dtype=HALF), nn.LayerNorm(3, dtype=HALF)), (numbers(2, 4).half(),)
    ),
    "float64": Built(lambda: nn.Linear(4, 3, dtype=torch.float64), (numbers(2, 4).double(),)),
}


def exported(model: Any, built: Built, **options: Any) -> purexport.ONNXProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return purexport.export(model, built.args, **options)
