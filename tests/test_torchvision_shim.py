"""The two kernels that stand in for torchvision's compiled ones, against values worked out by hand.

Where the compiled operators load, these rows run on them, so they hold the stand-ins to the real thing.
"""

from __future__ import annotations

import pytest
import torch

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
