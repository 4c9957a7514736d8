"""A vision transformer with windowed attention (Liu et al. 2021, arXiv:2103.14030): images of any size are padded to
whole windows; every second layer shifts them, with a mask that is written in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

WIDTH, HEADS, WINDOW = 16, 2, 4


def partition(x: Tensor) -> Tensor:
    """[batch, height, width, channels] -> [windows, WINDOW * WINDOW, channels]."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, WINDOW * WINDOW, channels)


def reverse(windows: Tensor, height: int, width: int) -> Tensor:
    channels = windows.shape[-1]
    x = windows.view(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, height, width, channels)


class WindowAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS))
        places = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0).contiguous() + WINDOW - 1
        apart[:, :, 0] *= 2 * WINDOW - 1
        self.register_buffer("index", apart.sum(-1), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, places, _ = x.shape
        query, key, value = self.qkv(x).reshape(count, places, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (WIDTH // HEADS) ** -0.5) @ key.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(places, places, -1).permute(2, 0, 1).contiguous()
        scores = scores + bias.unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(count // windows, windows, HEADS, places, places) + mask[None, :, None]
            scores = scores.view(-1, HEADS, places, places)
        return self.out((scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(count, places, WIDTH))


class Layer(nn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = WindowAttention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def mask(self, height: int, width: int) -> Tensor:
        """[windows, places, places]: what the shift brought together does not see each other."""
        regions = torch.zeros((1, height, width, 1))
        parts = (slice(0, -WINDOW), slice(-WINDOW, -self.shift), slice(-self.shift, None))
        for row, rows in enumerate(parts):
            for column, columns in enumerate(parts):
                regions[:, rows, columns, :] = 3 * row + column
        windows = partition(regions).squeeze(-1)
        apart = windows.unsqueeze(1) - windows.unsqueeze(2)
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        y = self.norm_1(x)
        bottom, right = (WINDOW - height % WINDOW) % WINDOW, (WINDOW - width % WINDOW) % WINDOW
        y = functional.pad(y, (0, 0, 0, right, 0, bottom))
        full = y.shape[1], y.shape[2]
        if self.shift:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = reverse(self.attention(partition(y), self.mask(*full) if self.shift else None), *full)
        if self.shift:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y[:, :height, :width, :].contiguous()
        return x + self.mlp(self.norm_2(x))


class Merge(nn.Module):
    """Four neighbours become one; odd sizes are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1)
        return self.reduce(self.norm(x))


class WindowTransformer(nn.Module):
    """Images [batch, 3, height, width] -> class logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.layers = nn.Sequential(Layer(0), Layer(WINDOW // 2), Merge(), Layer(0), Layer(WINDOW // 2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = self.layers(self.patches(image).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean(dim=(1, 2)))


CASES = [
    Case(
        "windows",
        WindowTransformer,
        lambda batch, height, width: (torch.randn(batch, 3, height, width),),
        {0: {0: "batch", 2: "height", 3: "width"}},
        {"batch": 2, "height": 22, "width": 26},
        [{"batch": 1, "height": 16, "width": 35}, {"batch": 3, "height": 41, "width": 18}],
        ("trace",),
        slow=True,  # torch's shape functions take their time over sizes padded to whole windows
    ),
    Case(
        "windows-batch",
        WindowTransformer,
        lambda batch: (torch.randn(batch, 3, 22, 26),),
        {0: {0: "batch"}},
        {"batch": 2},
        [{"batch": 1}, {"batch": 3}],
    ),
]
