"""torchvision's models, all but the quantized ones: exported, and equal to torch in ONNX Runtime on other images.

By default a detection head that is written out runs, and the smallest of the builders.  `pytest -m full` takes the
smallest of some families, and the head at further opsets; `pytest -m sweep` every builder by both routes, and the
detection models.
"""

from __future__ import annotations

import copy
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import purexport
from tests.harness import CAPTURES, run_ort
from tests.models.detection_head import DetectionHead
from tests.models.zoo import draw_weights, measured
from tests.tolerances import CHAIN, Bounds, assert_near
from tests.torchvision_shim import torchvision

OPSET = 20
IMAGE = (3, 64, 64)


# A head written out ---------------------------------------------------------------------------------------------------


def boxes_and_logits(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    corners = torch.rand(count, 2, generator=generator) * 16 - 2
    sizes = torch.rand(count, 2, generator=generator) * 8
    return torch.cat([corners, corners + sizes], 1), torch.randn(count, 4, generator=generator) * 2


HEADS = {"trace": OPSET, "export": 17, "script": 11}  # the opset by default of each route


@pytest.mark.parametrize(
    ("route", "opset"),
    [
        pytest.param(route, opset, marks=() if opset == least else pytest.mark.full)
        for route, least in HEADS.items()
        for opset in (11, 17, OPSET, 23)
    ],
)
def test_detection_head(route: str, opset: int) -> None:
    """Other boxes than the example's, none and one among them: other counts at every step."""
    torchvision()  # declares the operators
    model: Any = DetectionHead()
    program = purexport.export(
        torch.jit.script(model) if route == "script" else model,
        boxes_and_logits(12),
        input_names=["boxes", "logits"],
        dynamic_axes={"boxes": {0: "n"}, "logits": {0: "n"}},
        opset_version=opset,
        capture="auto" if route == "script" else route,
    )
    data, kept = program.model_proto.SerializeToString(), set()
    for count in (12, 0, 1, 3, 40):
        example = boxes_and_logits(count)
        expected = model(*example)
        found = run_ort(data, [tensor.numpy() for tensor in example])
        for got, want in zip(found, expected, strict=True):
            assert_near(got, want, CHAIN)
        kept.add(len(expected[0]))
    assert len(kept) >= 3, kept


# Builders -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Builder:
    """A builder by its name: the shapes of its inputs without the batch, and options that keep it small."""

    name: str
    shapes: Sequence[tuple[int, ...]] = (IMAGE,)
    options: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[Any, ...] = ()  # further arguments of forward
    batch: int = 2
    drawn: bool = True  # False where weights of equal variance let numbers grow without bound

    def make(self) -> nn.Module:
        options = {"weights": None, **self.options}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(zlib.crc32(self.name.encode()))
            model: nn.Module = torchvision().models.get_model(self.name, **options).eval()
            if self.drawn:
                draw_weights(model)
            measured(model, *self.example(1, self.batch if self.drawn else 8))
        return model

    def example(self, seed: int, batch: int = 0) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        images = (torch.randn(batch or self.batch, *shape, generator=generator) for shape in self.shapes)
        return (*images, *self.more)


_CLIP = (3, 8, 32, 32)
# what a family needs, by the begin of its builders' names; the first that fits counts
_FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    # their pooling would enlarge smaller images, and windows and heads of fixed size want these
    ("efficientnet", {"shapes": [(3, 128, 128)], "drawn": False}),
    ("alexnet", {"shapes": [(3, 224, 224)]}),
    ("vgg", {"shapes": [(3, 224, 224)]}),
    ("maxvit", {"shapes": [(3, 224, 224)]}),
    ("inception", {"shapes": [(3, 107, 107)], "options": {"init_weights": False}}),
    ("googlenet", {"options": {"init_weights": False}}),
    ("vit_h_14", {"shapes": [(3, 56, 56)], "options": {"image_size": 56}}),
    ("vit", {"options": {"image_size": 64}}),
    ("swin3d", {"shapes": [(3, 4, 64, 64)]}),
    ("mvit", {"shapes": [(3, 16, 224, 224)], "batch": 1}),
    ("s3d", {"shapes": [(3, 16, 224, 224)]}),
    ("r3d", {"shapes": [_CLIP]}),
    ("mc3", {"shapes": [_CLIP]}),
    ("r2plus1d", {"shapes": [_CLIP]}),
    ("raft", {"shapes": [(3, 128, 128), (3, 128, 128)], "more": (2,)}),
    ("fcn", {"options": {"weights_backbone": None, "aux_loss": True}}),
    ("deeplabv3", {"options": {"weights_backbone": None}}),
    ("lraspp", {"options": {"weights_backbone": None}}),
)


def builder(name: str) -> Builder:
    return Builder(name, **next((options for start, options in _FAMILIES if name.startswith(start)), {}))


def all_builders() -> list[str]:
    models = torchvision().models
    left_out = {*models.list_models(module=models.quantization), *models.list_models(module=models.detection)}
    return sorted(set(models.list_models()) - left_out)


# one of a family each, among the quick ones; tests/models/test_models.py has more of classification
QUICK = (
    "shufflenet_v2_x0_5",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in ("mnasnet0_5", "regnet_x_400mf", "lraspp_mobilenet_v3_large")
    ),
)


@pytest.mark.parametrize("name", QUICK)
def test_builder(name: str) -> None:
    check_builder(builder(name), "trace")


@pytest.mark.sweep
@pytest.mark.parametrize("route", CAPTURES)
@pytest.mark.parametrize("name", all_builders())
def test_builder_sweep(name: str, route: str) -> None:
    check_builder(builder(name), route)


def check_builder(item: Builder, route: str) -> float:
    """Export on one input, compare on another; the largest difference as a share of the largest number."""
    model = item.make()
    program = purexport.export(model, item.example(1), opset_version=OPSET, capture=route)
    other = item.example(2)
    with tempfile.TemporaryDirectory() as folder:  # some pass the 2 GiB of one message
        program.save(f"{folder}/model.onnx")
        found = run_ort(f"{folder}/model.onnx", [x.numpy() for x in other if isinstance(x, Tensor)])
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*other))
    assert len(found) == len(expected)
    worst = 0.0
    for got, want in zip(found, expected, strict=True):
        assert got.shape == tuple(want.shape)
        worst = max(worst, float(np.abs(got - want.numpy()).max() / want.abs().max()))
    assert worst < 1e-3, worst
    with torch.no_grad():
        first = pytree.tree_leaves(model(*item.example(1)))
    moved = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(first, expected, strict=True))
    assert moved > 100 * worst, "both inputs give nearly the same, which compares nothing"
    return worst


# Detection ------------------------------------------------------------------------------------------------------------

_SMALL = {"weights": None, "weights_backbone": None, "num_classes": 4}
_TWO_STAGES = {
    "min_size": 96,
    "max_size": 128,
    "rpn_pre_nms_top_n_test": 100,
    "rpn_post_nms_top_n_test": 20,
    "box_detections_per_img": 10,
}
_ONE_STAGE = {"topk_candidates": 50, "detections_per_img": 10, "score_thresh": 0.01}
DETECTION: dict[str, dict[str, Any]] = {
    "fasterrcnn_resnet50_fpn": {**_TWO_STAGES, "box_score_thresh": 0.9},
    "fasterrcnn_resnet50_fpn_v2": {**_TWO_STAGES, "box_score_thresh": 0.3},
    "fasterrcnn_mobilenet_v3_large_fpn": {**_TWO_STAGES, "box_score_thresh": 0.3, "rpn_score_thresh": 0.0},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {**_TWO_STAGES, "box_score_thresh": 0.3, "rpn_score_thresh": 0.0},
    "maskrcnn_resnet50_fpn": {**_TWO_STAGES, "box_score_thresh": 0.9},
    "maskrcnn_resnet50_fpn_v2": {**_TWO_STAGES, "box_score_thresh": 0.3},
    "keypointrcnn_resnet50_fpn": {**_TWO_STAGES, "box_score_thresh": 0.9, "num_classes": 2, "num_keypoints": 3},
    "retinanet_resnet50_fpn": {**_ONE_STAGE, "min_size": 96, "max_size": 128},
    "retinanet_resnet50_fpn_v2": {**_ONE_STAGE, "min_size": 96, "max_size": 128},
    # between the scores of the best boxes, so that some images have none
    "fcos_resnet50_fpn": {**_ONE_STAGE, "min_size": 96, "max_size": 128, "score_thresh": 0.112},
    "ssd300_vgg16": _ONE_STAGE,
    "ssdlite320_mobilenet_v3_large": _ONE_STAGE,
}


def detector(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model: nn.Module = torchvision().models.get_model(name, **{**_SMALL, **DETECTION[name]}).eval()
        if "mobilenet" in name:
            draw_weights(model)
            # by the statistics of one small image, others would give numbers so large that they find no boxes
            measured(model, images())
        if name.startswith("ssd300"):  # without normalization its scores would all be 1
            for parameter in model.head.classification_head.parameters():
                parameter.mul_(0.02)
    return model


def image(seed: int, height: int = 80, width: int = 100) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(seed))


def images() -> list[Tensor]:
    """The example, and images of other sizes."""
    return [image(1), image(2, 100, 80), image(3, 150, 97), image(4, 64, 120)]


@pytest.mark.sweep
@pytest.mark.parametrize("opset", [17, OPSET])
@pytest.mark.parametrize("name", list(DETECTION))
def test_detector_sweep(name: str, opset: int) -> None:
    check_detector(name, opset)


def check_detector(name: str, opset: int) -> list[int]:
    """Export on one image, compare on it and on others of other sizes; how many detections each had."""
    model = detector(name)
    axes = {"image": {1: "height", 2: "width"}}
    program = purexport.export(
        model, ([image(1)],), input_names=["image"], dynamic_axes=axes, opset_version=opset, capture="trace"
    )
    data = program.model_proto.SerializeToString()
    names = [output.name for output in program.model_proto.graph.output]
    counts = []
    others = images()
    if "rcnn" in name:  # so bright that nearly nothing is found
        others.append(torch.full((3, 80, 90), 9.0))
    with torch.no_grad():
        wanted = [copy.deepcopy(model)([other])[0] for other in others]
        exact = [copy.deepcopy(model).double()([other.double()])[0] for other in others]
    rounding = {key: max(map(_apart, (one[key] for one in wanted), (one[key] for one in exact))) for key in wanted[0]}
    for other, expected in zip(others, wanted, strict=True):
        assert names == [f"output_0_{key}" for key in expected]
        found = dict(zip(expected, run_ort(data, [other.numpy()]), strict=True))
        compare_detections(found, {key: value.numpy() for key, value in expected.items()}, rounding)
        counts.append(len(expected["scores"]))
    return counts


DETECTOR = Bounds(rtol=1e-3, atol=1e-5, loose="the errors of a backbone's many layers, and of a softmax over them")
IN_PIXELS = Bounds(rtol=1e-3, atol=0.02, loose="the same errors through exp(), times an anchor's size in pixels")


def compare_detections(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rounding: Mapping[str, float]
) -> None:
    """Equal but for rounding; where scores are ties the order is open, and only scores are compared.

    `rounding` is how far torch's floats are from its doubles for any of the images: the file may be off by twice that.
    """
    scores = expected["scores"]
    assert found["scores"].shape == scores.shape
    assert_near(found["scores"], scores, _wider(DETECTOR, rounding["scores"]))
    gaps = np.abs(np.diff(scores, prepend=np.inf, append=-np.inf))
    alone = np.minimum(gaps[:-1], gaps[1:]) > 1e-5
    assert alone.sum() >= len(scores) // 2, "nearly all are ties, which compares nothing"
    for key, value in expected.items():
        assert found[key].shape == value.shape and found[key].dtype == value.dtype, key
        assert_near(found[key][alone], value[alone], _wider(IN_PIXELS, rounding[key]), key)


def _wider(bounds: Bounds, rounding: float) -> Bounds:
    return replace(bounds, atol=max(bounds.atol or 0.0, 2 * rounding))


def _apart(value: Tensor, exact: Tensor) -> float:
    """The largest difference, of as many detections."""
    same = value.shape == exact.shape and value.numel()
    return float((value.double() - exact.double()).abs().max()) if same else 0.0
