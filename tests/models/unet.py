"""A U-Net (Ronneberger et al. 2015, arXiv:1505.04597): the way up meets the skips by interpolation to their size, or
by transposed convolution and padding; height and width are dynamic."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case


class Double(nn.Sequential):
    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Images [batch, 3, height, width] -> class logits of each pixel."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.first, self.second, self.third = Double(3, 8), Double(8, 16), Double(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.up_1 = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.up_2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join_1, self.join_2 = Double(32, 16), Double(16, 8)
        self.out = nn.Conv2d(8, 3, 1)

    def meet(self, x: Tensor, skip: Tensor) -> Tensor:
        if self.form == "interpolate":
            x = functional.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        elif self.form == "corners":
            x = functional.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=True)
        else:
            rows, columns = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return torch.cat([skip, x], dim=1)

    def forward(self, image: Tensor) -> Tensor:
        first = self.first(image)
        second = self.second(self.pool(first))
        third = self.third(self.pool(second))
        x = self.join_1(self.meet(self.up_1(third), second))
        return self.out(self.join_2(self.meet(self.up_2(x), first)))


CASES = [
    Case(
        f"unet-{form}",
        lambda form=form: UNet(form),
        lambda batch, height, width: (torch.randn(batch, 3, height, width),),
        {0: {0: "batch", 2: "height", 3: "width"}},
        {"batch": 2, "height": 16, "width": 12},
        [{"batch": 1, "height": 9, "width": 15}, {"batch": 3, "height": 21, "width": 18}],
    )
    for form in ("interpolate", "corners", "pad")
]
