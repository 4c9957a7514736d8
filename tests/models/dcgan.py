"""A DCGAN generator: noise to image through transposed convolutions (Radford et al. 2015, arXiv:1511.06434)."""

from __future__ import annotations

from torch import Tensor, nn


class Generator(nn.Module):
    """[n, noise, 1, 1] -> [n, 3, 64, 64] in (-1, 1)."""

    def __init__(self, noise: int = 100, width: int = 32) -> None:
        super().__init__()
        channels = (noise, 8 * width, 4 * width, 2 * width, width)
        blocks: list[nn.Module] = []
        for i in range(4):
            stride, padding = (1, 0) if i == 0 else (2, 1)  # 1 -> 4 -> 8 -> 16 -> 32
            blocks += [
                nn.ConvTranspose2d(channels[i], channels[i + 1], 4, stride, padding, bias=False),
                nn.BatchNorm2d(channels[i + 1]),
                nn.ReLU(inplace=True),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.to_image = nn.Sequential(nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.to_image(self.blocks(z))
