"""Generator and discriminator: transposed convolutions, batch statistics, and weights that are computed from others
(spectral and weight normalization, as parametrizations and in the older form)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from tests.models.case import Case

CLASSES = 5


class Generator(nn.Module):
    """Noise [batch, 12] and class [batch] -> images [batch, 3, 16, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Embedding(CLASSES, 4)
        self.enter = nn.Linear(16, 16 * 4 * 4)
        self.up_1 = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, bias=False)
        self.norm_1, self.norm_0 = nn.BatchNorm2d(8), nn.BatchNorm2d(16)
        self.up_2 = weight_norm(nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1))
        self.out = parametrizations.weight_norm(nn.Conv2d(8, 3, 3, padding=1))

    def forward(self, noise: Tensor, label: Tensor) -> Tensor:
        x = self.enter(torch.cat([noise, self.classes(label)], dim=1)).view(-1, 16, 4, 4)
        x = functional.relu(self.norm_1(self.up_1(functional.relu(self.norm_0(x)))))
        return torch.tanh(self.out(functional.leaky_relu(self.up_2(x), 0.2)))


class Discriminator(nn.Module):
    """Images of any size and their classes -> a verdict [batch]."""

    def __init__(self, norm: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            norm(nn.Conv2d(3, 8, 4, stride=2, padding=1)),
            nn.LeakyReLU(0.2, inplace=True),
            norm(nn.Conv2d(8, 16, 4, stride=2, padding=1)),
            nn.InstanceNorm2d(16, affine=True),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.PReLU(16),
        )
        self.classes = norm(nn.Embedding(CLASSES, 16))
        self.out = norm(nn.Linear(16, 1))

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = self.layers(image).sum(dim=(2, 3))
        return (self.out(x) + (self.classes(label) * x).sum(1, keepdim=True)).squeeze(1)


_NORMS = {"spectral": parametrizations.spectral_norm, "spectral-older": spectral_norm}
CASES = [
    Case(
        "gan-generator",
        Generator,
        lambda batch: (torch.randn(batch, 12), torch.randint(0, CLASSES, (batch,))),
        {0: {0: "batch"}, 1: {0: "batch"}},
        {"batch": 3},
        [{"batch": 1}, {"batch": 5}],
    ),
    *(
        Case(
            f"gan-discriminator-{name}",
            lambda norm=norm: Discriminator(norm),
            lambda batch, height, width: (torch.randn(batch, 3, height, width), torch.randint(0, CLASSES, (batch,))),
            {0: {0: "batch", 2: "height", 3: "width"}, 1: {0: "batch"}},
            {"batch": 2, "height": 16, "width": 12},
            [{"batch": 1, "height": 11, "width": 17}, {"batch": 3, "height": 20, "width": 24}],
        )
        for name, norm in _NORMS.items()
    ),
]
