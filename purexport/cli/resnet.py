"""The model of `purexport demo`: ResNet-50 in plain torch (He et al. 2015, arXiv:1512.03385), with random weights.

The stride stands on the 3x3 convolution of a block, as in torchvision, and parameters carry torchvision's names, so its
weights fit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut: [n, inputs, h, w] -> [n, 4 * width, h / stride, w / stride]."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        result: Tensor = self.relu(x)
        return result


class ResNet50(nn.Module):
    """Images [n, 3, h, w] -> class scores [n, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return scores


def resnet50(seed: int = 0) -> ResNet50:
    """A ResNet-50 in eval mode.  Its weights are random but keep the size of the activations from layer to layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNet50()
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            elif isinstance(module, Bottleneck):
                nn.init.constant_(module.bn3.weight, 0.2)
    return model.eval()


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))
