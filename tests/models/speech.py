"""Encoders of speech: wav2vec-like from samples (Baevski et al. 2020, arXiv:2006.11477) with masks from lengths, and
Whisper-like from a spectrogram (Radford et al. 2022, arXiv:2212.04356)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, weight_norm

from tests.models.case import Case

WIDTH, HEADS = 32, 4
KERNELS = ((10, 5), (3, 2), (2, 2))


class Features(nn.Module):
    """Samples [batch, samples] -> [batch, 16, frames]."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [1, 16, 16, 16]
        self.convs = nn.ModuleList(
            nn.Conv1d(sizes[i], sizes[i + 1], kernel, stride=stride, bias=False)
            for i, (kernel, stride) in enumerate(KERNELS)
        )
        self.norm = nn.GroupNorm(16, 16)

    def forward(self, samples: Tensor) -> Tensor:
        x = samples[:, None]
        for position, conv in enumerate(self.convs):
            x = conv(x)
            x = functional.gelu(self.norm(x) if position == 0 else x)
        return x


class PositionalConv(nn.Module):
    """Positions by a wide grouped convolution with normalized weights; an even kernel gives one frame too many."""

    def __init__(self, parametrized: bool) -> None:
        super().__init__()
        norm = parametrizations.weight_norm if parametrized else weight_norm
        self.conv = norm(nn.Conv1d(WIDTH, WIDTH, 8, padding=4, groups=4), name="weight", dim=2)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.conv(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, frames, _ = x.shape
        query, key, value = (
            part.view(batch, frames, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(context.transpose(1, 2).reshape(batch, frames, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.norm_2(x))))


class Wav2Vec(nn.Module):
    """Samples and their lengths -> states of the frames, padded ones zero, and how many frames count."""

    def __init__(self, parametrized: bool) -> None:
        super().__init__()
        self.features = Features()
        self.norm, self.project = nn.LayerNorm(16), nn.Linear(16, WIDTH)
        self.positions = PositionalConv(parametrized)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def frames(self, samples: Tensor) -> Tensor:
        for kernel, stride in KERNELS:
            samples = torch.div(samples - kernel, stride, rounding_mode="floor") + 1
        return samples

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.project(self.norm(self.features(samples).transpose(1, 2)))
        batch, longest, _ = x.shape
        counts = self.frames(lengths)
        mask = torch.zeros((batch, longest), dtype=x.dtype)
        mask[(torch.arange(batch), counts - 1)] = 1
        mask = mask.flip([-1]).cumsum(-1).flip([-1]).bool()
        x[~mask] = 0
        x = x + self.positions(x)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        hidden = hidden.expand(batch, 1, longest, longest)
        for layer in self.layers:
            x = layer(x, hidden)
        return x * mask.unsqueeze(-1), counts


def sinusoids(length: int, width: int) -> Tensor:
    steps = math.log(10000) / (width // 2 - 1)
    times = torch.arange(length)[:, None] * torch.exp(-steps * torch.arange(width // 2))[None]
    return torch.cat([torch.sin(times), torch.cos(times)], dim=1)


class Whisper(nn.Module):
    """A spectrogram [batch, 20, frames] -> states at half the rate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1 = nn.Conv1d(20, WIDTH, 3, padding=1)
        self.conv_2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(64, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = functional.gelu(self.conv_2(functional.gelu(self.conv_1(spectrogram)))).permute(0, 2, 1)
        x = (x + self.positions[: x.shape[1]]).to(x.dtype)
        for layer in self.layers:
            x = layer(x, None)
        return self.norm(x)


def _samples(batch: int, samples: int) -> tuple[Tensor, Tensor]:
    counts = torch.randint(60, samples + 1, (batch,))
    counts[0] = samples
    return torch.randn(batch, samples), counts


CASES = [
    *(
        Case(
            f"wav2vec-{name}",
            lambda parametrized=parametrized: Wav2Vec(parametrized),
            _samples,
            {0: {0: "batch", 1: "samples"}, 1: {0: "batch"}},
            {"batch": 2, "samples": 160},
            [{"batch": 1, "samples": 87}, {"batch": 3, "samples": 301}],
        )
        for name, parametrized in (("parametrized", True), ("older", False))
    ),
    Case(
        "whisper",
        Whisper,
        lambda batch, frames: (torch.randn(batch, 20, frames),),
        {0: {0: "batch", 2: "frames"}},
        {"batch": 2, "frames": 16},
        [{"batch": 1, "frames": 1}, {"batch": 3, "frames": 37}],
    ),
]
