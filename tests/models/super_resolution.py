"""A sub-pixel super-resolution network: convolutions, then a pixel shuffle (Shi et al. 2016, arXiv:1609.05158)."""

from __future__ import annotations

from torch import Tensor, nn


class SubPixelNet(nn.Module):
    """Luma [n, 1, h, w] -> [n, 1, h * scale, w * scale]."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 64, 5, padding=2)
        self.mapping = nn.Conv2d(64, 32, 3, padding=1)
        self.upscale = nn.Conv2d(32, scale * scale, 3, padding=1)
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, luma: Tensor) -> Tensor:
        x = self.features(luma).tanh()
        x = self.mapping(x).tanh()
        return self.shuffle(self.upscale(x))
