"""The kernels that stand in for torchvision's compiled ones, against values worked out by hand or taken from those.

Where the compiled operators load, the rows run on them, so they hold the stand-ins to the real thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.torchvision_shim import torchvision

# boxes that overlap by a half, by a tenth, and not at all
BOXES = [[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 5.0], [0.0, 9.0, 10.0, 19.0], [50.0, 50.0, 60.0, 60.0]]
NMS = [
    ("all stay", [0.9, 0.8, 0.7, 0.6], 0.6, [0, 1, 2, 3]),
    ("the overlapped goes", [0.9, 0.8, 0.7, 0.6], 0.4, [0, 2, 3]),
    ("the better one stays", [0.8, 0.9, 0.7, 0.6], 0.4, [1, 2, 3]),
    ("by falling score", [0.1, 0.2, 0.3, 0.4], 0.4, [3, 2, 1]),
]


@pytest.mark.parametrize(("name", "scores", "threshold", "kept"), NMS, ids=[name for name, *_ in NMS])
def test_nms(name: str, scores: list[float], threshold: float, kept: list[int]) -> None:
    assert torchvision().ops.nms(torch.tensor(BOXES), torch.tensor(scores), threshold).tolist() == kept


# a ramp of slope 1 to the right: each bin is the mean position of its samples
RAMP = torch.arange(8.0).expand(1, 1, 8, 8)
ROI_ALIGN = [
    ("aligned", [0.0, 2.0, 2.0, 6.0, 6.0], {"aligned": True}, [2.5, 4.5]),
    ("not aligned", [0.0, 2.0, 2.0, 6.0, 6.0], {"aligned": False}, [3.0, 5.0]),
    ("scaled", [0.0, 4.0, 4.0, 12.0, 12.0], {"aligned": True, "spatial_scale": 0.5}, [2.5, 4.5]),
    ("two samples a bin", [0.0, 2.0, 2.0, 6.0, 6.0], {"aligned": True, "sampling_ratio": 2}, [2.5, 4.5]),
    ("over the edge", [0.0, 6.0, 2.0, 10.0, 6.0], {"aligned": False, "sampling_ratio": 1}, [7.0, 0.0]),
]


@pytest.mark.parametrize(("name", "roi", "options", "row"), ROI_ALIGN, ids=[name for name, *_ in ROI_ALIGN])
def test_roi_align(name: str, roi: list[float], options: dict[str, object], row: list[float]) -> None:
    pooled = torchvision().ops.roi_align(RAMP, torch.tensor([roi]), 2, **options)
    assert pooled.shape == (1, 1, 2, 2)
    torch.testing.assert_close(pooled[0, 0], torch.tensor([row, row]))


# pixel values are positions: row 10 y, column x, channel 100 c
PLACES = (torch.arange(8.0) * 100)[:, None, None] + torch.arange(7.0)[:, None] * 10 + torch.arange(9.0)
POOLS: list[tuple[str, Callable[[Tensor], Tensor], list[float], list[list[float]]]] = [
    (
        "roi_pool: bins share rows, the far corner belongs to the region",
        lambda roi: torchvision().ops.roi_pool(PLACES[None, :1], roi, (3, 2)),
        [0.0, 1.0, 1.0, 5.0, 5.0],
        [[23.0, 25.0], [43.0, 45.0], [53.0, 55.0]],
    ),
    (
        "roi_pool: thirds of float32",
        lambda roi: torchvision().ops.roi_pool(PLACES[None, :1], roi, (3, 2)),
        [0.0, 0.0, 0.0, 3.0, 3.0],
        [[11.0, 13.0], [21.0, 23.0], [31.0, 33.0]],
    ),
    (
        "roi_pool: nothing there",
        lambda roi: torchvision().ops.roi_pool(PLACES[None, :1], roi, 2),
        [0.0, 20.0, 20.0, 24.0, 24.0],
        [[0.0, 0.0], [0.0, 0.0]],
    ),
    (
        "ps_roi_pool: channels of its own, without the last column",
        lambda roi: torchvision().ops.ps_roi_pool(PLACES[None], roi, 2),
        [0.0, 0.0, 0.0, 12.0, 4.0],
        [[7.5, 111.5], [227.5, 331.5]],
    ),
    (
        "ps_roi_align: half a pixel, channels of its own",
        lambda roi: torchvision().ops.ps_roi_align(PLACES[None], roi, 2, sampling_ratio=1),
        [0.0, 1.0, 1.0, 5.0, 5.0],
        [[16.5, 118.5], [236.5, 338.5]],
    ),
    (
        "ps_roi_align: the mean of no samples",
        lambda roi: torchvision().ops.ps_roi_align(PLACES[None], roi, 2),
        [0.0, 3.0, 3.0, 3.0, 3.0],
        [[math.nan, math.nan], [math.nan, math.nan]],
    ),
]


@pytest.mark.parametrize(("name", "pool", "roi", "expected"), POOLS, ids=[name for name, *_ in POOLS])
def test_pools(name: str, pool: Callable[[Tensor], Tensor], roi: list[float], expected: list[list[float]]) -> None:
    torch.testing.assert_close(pool(torch.tensor([roi]))[0, 0], torch.tensor(expected), equal_nan=True)


def test_deformed_by_nothing() -> None:
    x, weight = torch.rand(2, 4, 6, 7), torch.rand(6, 2, 3, 2)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    plain = functional.conv2d(x, weight, groups=2, **options)
    offset = torch.zeros(2, 24, *plain.shape[2:])
    torch.testing.assert_close(torchvision().ops.deform_conv2d(x, offset, weight, **options), plain)


def test_deformed_by_half_a_row() -> None:
    """Every tap reads between two rows, and the mask weighs it; below the last row there are zeros."""
    x, weight = torch.rand(1, 2, 5, 5), torch.rand(3, 2, 2, 2)
    offset = torch.tensor([0.5, 0.0]).repeat(4).view(1, 8, 1, 1).expand(1, 8, 4, 4)
    mask = torch.full((1, 4, 4, 4), 0.25)
    below = functional.pad(x[:, :, 1:], (0, 0, 0, 1))
    expected = functional.conv2d((x + below) / 2, weight) / 4
    torch.testing.assert_close(torchvision().ops.deform_conv2d(x, offset, weight, mask=mask), expected)
