"""A small diffusion model (Ho et al. 2020, arXiv:2006.11239): a network of pixels and time, and one step back."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

STEPS = 50


def timestep_embedding(steps: Tensor, width: int) -> Tensor:
    """[batch] -> [batch, width]; an odd width ends in a zero."""
    half = width // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half)
    angles = steps[:, None].float() * rates[None]
    result = torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)
    return functional.pad(result, (0, width % 2))


class Residual(nn.Module):
    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(4, before), nn.GroupNorm(4, after)
        self.conv_1, self.conv_2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time, 2 * after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv_1(functional.silu(self.norm_1(x)))
        scale, shift = self.time(functional.silu(time))[:, :, None, None].chunk(2, dim=1)
        h = self.conv_2(functional.silu(self.norm_2(h) * (1 + scale) + shift))
        return self.skip(x) + h


class PixelAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, *pixels = x.shape
        flat = x.reshape(batch, channels, -1)
        query, key, value = self.qkv(self.norm(flat)).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(channels))
        weights = torch.einsum("bct,bcs->bts", query * scale, key * scale).softmax(dim=-1)
        flat = flat + self.out(torch.einsum("bts,bcs->bct", weights, value))
        return flat.reshape(batch, channels, *pixels)


class Denoiser(nn.Module):
    """A noisy image and the step it stands at -> the noise in it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(17, 32), nn.SiLU(), nn.Linear(32, 32))
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.middle = Residual(8, 16, 32), Residual(16, 16, 32)
        self.attention, self.up = PixelAttention(16), Residual(24, 8, 32)
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.leave = nn.Sequential(nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1))

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        time = self.time(timestep_embedding(steps, 17))
        first = self.enter(x)
        h = self.shrink(self.down(first, time))
        h = self.attention(self.middle(h, time))
        h = functional.interpolate(h, scale_factor=2.0, mode="nearest")
        h = h[:, :, : first.shape[2], : first.shape[3]]
        return self.leave(self.up(torch.cat([h, first], dim=1), time))


class Step(nn.Module):
    """One step back: image, step of each image, and fresh noise -> a less noisy image, and what it will become."""

    def __init__(self) -> None:
        super().__init__()
        self.denoiser = Denoiser()
        betas = torch.linspace(1e-3, 0.1, STEPS)
        self.register_buffer("betas", betas)
        self.register_buffer("kept", torch.cumprod(1.0 - betas, dim=0))

    def forward(self, x: Tensor, steps: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        def at(table: Tensor) -> Tensor:
            return table[steps].view(-1, 1, 1, 1)

        before = torch.where(steps > 0, self.kept[(steps - 1).clamp(min=0)], torch.ones(())).view(-1, 1, 1, 1)
        kept, beta = at(self.kept), at(self.betas)
        clean = (x - (1 - kept).sqrt() * self.denoiser(x, steps)) / kept.sqrt()
        clean = clean.clamp(-1, 1)
        mean = before.sqrt() * beta / (1 - kept) * clean + (1 - beta).sqrt() * (1 - before) / (1 - kept) * x
        spread = (beta * (1 - before) / (1 - kept)).clamp(min=1e-20).log().mul(0.5).exp()
        return mean + (steps != 0).float().view(-1, 1, 1, 1) * spread * noise, clean


class DeterministicStep(nn.Module):
    """A step of DDIM with guidance (Song et al. 2020, arXiv:2010.02502): one step for all, a number on the side."""

    def __init__(self) -> None:
        super().__init__()
        self.denoiser = Denoiser()
        self.register_buffer("kept", torch.cumprod(1.0 - torch.linspace(1e-3, 0.1, STEPS), dim=0))

    def forward(self, x: Tensor, step: Tensor, guidance: Tensor) -> Tensor:
        twice = torch.cat([x] * 2)
        noise, other = self.denoiser(twice, step.expand(twice.shape[0])).chunk(2)
        noise = noise + guidance * (other.flip(-1) - noise)
        previous = step - 5
        before = torch.where(previous >= 0, self.kept[previous], self.kept[0])
        clean = (x - (1 - self.kept[step]) ** 0.5 * noise) / self.kept[step] ** 0.5
        return before**0.5 * clean + (1 - before) ** 0.5 * noise


_AXES = {0: "batch", 2: "height", 3: "width"}
_SIZES = {"batch": 2, "height": 8, "width": 6}
_OTHERS = [{"batch": 1, "height": 5, "width": 7}, {"batch": 3, "height": 12, "width": 9}]
CASES = [
    Case(
        "diffusion-step",
        Step,
        lambda batch, height, width: (
            torch.randn(batch, 3, height, width),
            torch.arange(batch) * 7 % STEPS,
            torch.randn(batch, 3, height, width),
        ),
        {0: _AXES, 1: {0: "batch"}, 2: _AXES},
        _SIZES,
        _OTHERS,
    ),
    Case(
        "diffusion-ddim",
        DeterministicStep,
        lambda batch, height, width: (
            torch.randn(batch, 3, height, width),
            torch.tensor(3 * batch),  # with three images a step that has five before it
            torch.tensor(1.5),
        ),
        {0: _AXES},
        _SIZES,
        _OTHERS,
    ),
]
