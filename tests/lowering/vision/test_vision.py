"""torchvision's operators: suppression of boxes, pools of regions, deformable convolution; transforms of pictures."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.harness import Input, Row, f32, f64, u8, values
from tests.row_plans import Plan, row_params, run_row
from tests.torchvision_shim import torchvision

ops = torchvision().ops
direct = torch.ops.torchvision

# overlapping by a half, by a tenth, not at all, the first again, inside out, and without area
BOXES = [
    [0.0, 0.0, 10.0, 10.0],
    [0.0, 0.0, 10.0, 5.0],
    [0.0, 9.0, 10.0, 19.0],
    [50.0, 50.0, 60.0, 60.0],
    [0.0, 0.0, 10.0, 10.0],
    [10.0, 10.0, 0.0, 0.0],
    [5.0, 0.0, 5.0, 9.0],
]
SCORES = [0.9, 0.8, 0.7, 0.6, 0.9, 0.95, 0.1]


def _nms(threshold: float) -> object:
    return lambda boxes, scores: ops.nms(boxes, scores, threshold)


NMS = [
    Row("nms", _nms(0.4), values(BOXES[:4]), values(SCORES[:4])),
    Row("nms-exactly-the-threshold", _nms(0.5), values(BOXES), values(SCORES), trap="> and not >="),
    Row(
        "nms-threshold-between-floats",
        _nms(0.6),
        values([[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 6.0]]),
        values([0.9, 0.8]),
        trap="6/10 in float32 is more than 0.6",
    ),
    Row("nms-ties", _nms(0.4), values(BOXES[:5]), values([0.5] * 5), trap="the first of equals stays"),
    Row("nms-inside-out", _nms(0.0), values(BOXES), values(SCORES), trap="such a box overlaps nothing"),
    Row("nms-negative-scores", _nms(0.4), values(BOXES[:4]), values([-1.0, -2.0, -0.5, 0.0])),
    Row("nms-one", _nms(1.0), values(BOXES), values(SCORES)),
    Row("nms-none", _nms(0.5), f32(0, 4), f32(0)),
    Row(
        "nms-any-count",
        lambda boxes, scores: boxes[ops.nms(boxes, scores, 0.5)],
        f32(8, 4, low=0, high=5),
        f32(8),
        dynamic="batch",
    ),
    Row(
        "batched-nms",
        lambda boxes, scores, kinds: ops.batched_nms(boxes, scores, kinds, 0.5),
        values(BOXES[:5]),
        values(SCORES[:5]),
        values([0, 0, 1, 1, 2], torch.int64),
    ),
]

# over the edges, inside, smaller than a pixel, empty, far away
ROIS = [
    [0.0, -2.0, -3.0, 5.0, 6.0],
    [1.0, 1.3, 2.1, 6.2, 5.7],
    [0.0, 2.0, 2.0, 2.4, 2.3],
    [1.0, 3.0, 3.0, 3.0, 3.0],
    [1.0, 20.0, 20.0, 24.0, 24.0],
    [0.0, 4.0, 1.0, 12.0, 12.0],
]


def align(
    size: tuple[int, int] = (2, 3), scale: float = 1.0, ratio: int = -1, aligned: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, rois: ops.roi_align(x, rois, size, scale, ratio, aligned)


IMAGE = f32(2, 3, 7, 8)
ALIGN = [
    Row("align-samples", align(ratio=2), IMAGE, values(ROIS)),
    Row("align-samples-scale", align(ratio=3, scale=0.5), IMAGE, values(ROIS)),
    Row("align-aligned-samples", align(ratio=2, aligned=True), IMAGE, values(ROIS)),
    Row("align-adaptive", align(), IMAGE, values(ROIS)),
    Row("align-aligned-adaptive", align(scale=0.7, aligned=True), IMAGE, values(ROIS)),
    Row("align-one-image", align(ratio=2, aligned=True), f32(1, 2, 5, 5), values([[0.0, 1.0, 1.0, 4.0, 4.0]])),
    Row("align-double", align(ratio=2, aligned=True), f64(2, 3, 7, 8), values(ROIS, torch.float64)),
    Row("align-no-rois", align(ratio=2), IMAGE, f32(0, 5)),
    Row("align-no-rois-adaptive", align(aligned=True), IMAGE, f32(0, 5)),
    Row(
        "align-any-count",
        align(scale=0.5),
        IMAGE,
        values(ROIS),
        dynamic={1: {0: "rois"}, 0: {2: "height", 3: "width"}},
    ),
    Row(
        "align-aligned-any-count",
        align(scale=0.5, aligned=True),
        IMAGE,
        values(ROIS),
        dynamic={1: {0: "rois"}, 0: {0: "n", 2: "height", 3: "width"}},
    ),
    Row(
        "ps-align-samples",
        lambda x, rois: direct.ps_roi_align(x, rois, 0.8, 2, 3, 2),
        f32(2, 12, 7, 8),
        values(ROIS),
    ),
    Row(
        "ps-align-adaptive",
        lambda x, rois: ops.ps_roi_align(x, rois, 2, 0.8),
        f32(2, 8, 7, 8),
        values(ROIS),
        trap="a region without extent gives NaN",
    ),
    Row(
        "ps-align-any-count",
        lambda x, rois: direct.ps_roi_align(x, rois, 1.0, 2, 2, 1),
        f32(2, 8, 7, 8),
        values(ROIS),
        dynamic={1: {0: "rois"}},
    ),
]

# corners at halves, thirds that float32 rounds, over the edges, far away
POOLED = [
    [0.0, 0.0, 0.0, 3.0, 3.0],
    [1.0, 0.5, 1.5, 5.5, 4.49],
    [0.0, -0.5, -1.5, 2.5, 6.5],
    [1.0, 2.0, 2.0, 2.0, 2.0],
    [1.0, 20.0, 20.0, 24.0, 24.0],
    [0.0, 1.0, 1.0, 20.0, 9.0],
    [0.0, 5.0, 5.0, 2.0, 2.0],
]
POOL = [
    Row("pool", lambda x, rois: ops.roi_pool(x, rois, 2), IMAGE, values(POOLED)),
    Row("pool-thirds", lambda x, rois: ops.roi_pool(x, rois, (3, 2)), IMAGE, values(POOLED)),
    Row("pool-scale", lambda x, rois: ops.roi_pool(x, rois, (3, 2), 0.5), IMAGE, values(POOLED)),
    Row("pool-places", lambda x, rois: direct.roi_pool(x, rois, 0.7, 3, 2), IMAGE, values(POOLED)),
    Row("pool-no-rois", lambda x, rois: ops.roi_pool(x, rois, 2), IMAGE, f32(0, 5)),
    Row(
        "pool-any-count",
        lambda x, rois: direct.roi_pool(x, rois, 1.0, 2, 2),
        IMAGE,
        values(POOLED),
        dynamic={1: {0: "rois"}, 0: {2: "height", 3: "width"}},
    ),
    Row("ps-pool", lambda x, rois: ops.ps_roi_pool(x, rois, 2), f32(2, 8, 7, 8), values(POOLED)),
    Row(
        "ps-pool-thirds",
        lambda x, rois: ops.ps_roi_pool(x, rois, (3, 2)),
        f32(2, 12, 7, 8),
        values(POOLED),
        traced="'Tuple[int, int]'",
    ),
    Row("ps-pool-scale", lambda x, rois: direct.ps_roi_pool(x, rois, 0.7, 3, 2), f32(2, 6, 7, 8), values(POOLED)),
    Row(
        "ps-pool-double",
        lambda x, rois: ops.ps_roi_pool(x, rois, 2),
        f64(1, 4, 7, 8),
        values([POOLED[2]], torch.float64),
    ),
    Row(
        "ps-pool-any-count",
        lambda x, rois: ops.ps_roi_pool(x, rois, 2),
        f32(2, 8, 7, 8),
        values(POOLED),
        dynamic={1: {0: "rois"}, 0: {2: "height", 3: "width"}},
    ),
]


class Deform(torch.nn.Module):
    """Offsets and masks are inputs; offset_groups follow from their number."""

    def __init__(self, channels: tuple[int, int] = (4, 6), kernel: tuple[int, int] = (3, 2), **options: object) -> None:
        super().__init__()
        self.layer = ops.DeformConv2d(*channels, kernel, **options)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, offset, mask)


class Moved(torch.nn.Module):
    """As networks use it: a plain convolution says the offsets and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.say = torch.nn.Conv2d(4, 27, 3, padding=1)
        self.layer = ops.DeformConv2d(4, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        said = self.say(x)
        return self.layer(x, said[:, :18] * 3, said[:, 18:].sigmoid())


DEFORM_OPSETS = (11, 13, 16, 18, 19, 20, 23)
FAR = {"low": -4.0, "high": 4.0}
DEFORM = [
    Row("deform", Deform(), f32(2, 4, 6, 7), f32(2, 12, 4, 6, **FAR)),
    Row("deform-mask", Deform(), f32(2, 4, 6, 7), f32(2, 12, 4, 6, **FAR), f32(2, 6, 4, 6), opsets=DEFORM_OPSETS),
    Row(
        "deform-whole-offsets",
        Deform(bias=False),
        f32(1, 4, 3, 3),
        values(torch.arange(24.0).reshape(1, 12, 1, 2).sub(12).tolist()),
        opsets=DEFORM_OPSETS,
    ),
    Row(
        "deform-groups",
        Deform(groups=2, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        f32(2, 4, 6, 7),
        f32(2, 24, 3, 9, **FAR),
        f32(2, 12, 3, 9),
        opsets=DEFORM_OPSETS,
    ),
    Row(
        "deform-offset-groups",
        Deform(kernel=(2, 2), stride=2),
        f32(2, 4, 6, 6),
        f32(2, 32, 3, 3, **FAR),
        f32(2, 16, 3, 3),
        opsets=DEFORM_OPSETS,
    ),
    Row(
        "deform-any-size",
        Moved,
        f32(2, 4, 6, 7),
        dynamic={0: {0: "batch", 2: "height", 3: "width"}},
        opsets=DEFORM_OPSETS,
    ),
]

PICTURE = f32(1, 3, 6, 8, low=0.0, high=1.0)
BYTES = u8(1, 3, 6, 8)
BILINEAR = torchvision().transforms.InterpolationMode.BILINEAR
FLOW = torch.full((1, 6, 8, 2), 0.1)


def _picture(name: str, spec: Input, *arguments: Any, **options: Any) -> Row:
    """A function of torchvision.transforms.v2.functional."""
    transform = getattr(importlib.import_module("torchvision.transforms.v2.functional"), name)
    kind = "-bytes" if spec is BYTES else ""
    return Row(
        f"{name}{kind}", lambda x: transform(x, *arguments, **options), spec, opsets=(20,), routes=("trace", "export")
    )


PICTURES = [
    _picture("resize", PICTURE, [4, 5], antialias=True),
    _picture("rotate", PICTURE, 30.0, interpolation=BILINEAR, expand=True),
    _picture("affine", PICTURE, 10.0, [1, 2], 1.2, [3.0, 4.0], interpolation=BILINEAR, fill=0.5),
    _picture("elastic", PICTURE, FLOW),
    _picture("normalize", PICTURE, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]),
    _picture("rgb_to_grayscale", PICTURE),
    _picture("gaussian_blur", PICTURE, [3, 3], [1.0, 1.2]),
    _picture("adjust_hue", PICTURE, 0.2),
    _picture("adjust_sharpness", PICTURE, 2.0),
    _picture("autocontrast", PICTURE),
    _picture("equalize", BYTES),
    _picture("posterize", BYTES, 3),
    _picture("to_dtype", BYTES, torch.float32, scale=True),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*NMS, *ALIGN, *POOL, *DEFORM, *PICTURES]))
def test_vision(row: Row, plan: Plan) -> None:
    run_row(row, plan)
