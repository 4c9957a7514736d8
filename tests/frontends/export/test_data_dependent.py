"""Sizes that the data decides: filters, where, nonzero and nms behind a detector, and questions about such sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from tests.harness import compare_with_torch
from tests.torchvision_shim import torchvision

ops = torchvision().ops


def detections(count: int, shift: float) -> tuple[Tensor, Tensor]:
    """Boxes with corners in order, and scores from `shift` to `shift + 1`."""
    generator = torch.Generator().manual_seed(count)
    boxes = torch.rand(count, 4, generator=generator) * 50
    boxes[:, 2:] += boxes[:, :2] + 1
    return boxes, torch.rand(count, generator=generator) + shift


def filtered(boxes: Tensor, scores: Tensor) -> Any:
    kept = scores > 0.5
    boxes, scores = boxes[kept], scores[kept]
    kept = ops.nms(boxes, scores, 0.5)
    return boxes[kept], scores[kept]


def by_where(boxes: Tensor, scores: Tensor) -> Any:
    (places,) = torch.where(scores > 0.5)
    return boxes[places], boxes[torch.nonzero(scores > 0.7).squeeze(1)]


def best(boxes: Tensor, scores: Tensor) -> Any:
    kept = scores > 0.3
    boxes, scores = boxes[kept], scores[kept]
    values, places = scores.topk(min(5, scores.shape[0]))
    return values, boxes[places]


def by_class(boxes: Tensor, scores: Tensor) -> Any:
    found = [boxes[(scores * 3).long() == number] for number in range(3)]
    return torch.cat(found), ops.box_iou(found[0], found[1])


def none_left(boxes: Tensor, scores: Tensor) -> Any:
    boxes = boxes[scores > 0.5]
    if boxes.numel() == 0:
        return boxes.new_zeros(0, 4)
    return boxes * 2


def batched(boxes: Tensor, scores: Tensor) -> Any:
    kept = ops.remove_small_boxes(boxes, 3.0)
    boxes, scores = boxes[kept], scores[kept]
    if len(boxes.shape) != 2 or boxes.shape[0] < 1:
        return boxes, scores
    kept = ops.batched_nms(boxes, scores, (scores * 3).long(), 0.5)[:10]
    return boxes[kept], scores[kept]


AXES = {"boxes": {0: "n"}, "scores": {0: "n"}}
TAKEN: list[tuple[Callable[..., Any], str]] = [
    (filtered, ""),
    (by_where, ""),
    (best, ""),
    (by_class, ""),
    (none_left, "u0 == 0, for sizes that the data decides; the file takes it that this is not so"),
    (batched, "u0 < 1, for sizes that the data decides; the file takes it that this is not so"),
]


@pytest.mark.parametrize(("function", "said"), TAKEN, ids=[row[0].__name__ for row in TAKEN])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sizes_of_the_data(function: Callable[..., Any], said: str) -> None:
    """Also where nothing or everything is left."""
    program = purexport.export(function, detections(12, 0), dynamic_axes=AXES, capture="export")
    remarks = program.report.warnings
    assert len(remarks) == bool(said) and all(said in text and "test_data_dependent.py:" in text for text in remarks)
    data = program.model_proto.SerializeToString()
    for count, shift in ((12, 0), (30, 0), (9, -2), (9, 2), (1, 0), (0, 0)):
        args = detections(count, shift)
        compare_with_torch(function, data, args, {})


def more_than_five(boxes: Tensor, scores: Tensor) -> Any:
    boxes = boxes[scores > 0.5]
    if boxes.shape[0] > 5:
        return boxes * 2
    return boxes


def as_good(boxes: Tensor, scores: Tensor) -> Any:
    if scores.max() > 0.5:
        return boxes * 2
    return boxes


@pytest.mark.parametrize("function", [more_than_five, as_good])
def test_a_question_that_splits_larger_sizes_is_refused(function: Callable[..., Any]) -> None:
    line = inspect.getsourcelines(function)[1] + (1 if function is as_good else 2)
    with pytest.raises(purexport.ExportError, match=rf"test_data_dependent.py:{line}\b") as caught:
        purexport.export(function, detections(12, 0), dynamic_axes=AXES, capture="export")
    assert caught.value.code == "data-dependent"


def any_of_ones(x: Tensor) -> Any:
    return x * 2 if (torch.ones(x.shape[:1]) > 0).any().item() else x


def any_below(x: Tensor) -> Any:
    return x * 2 if torch.ones(x.shape[:1]).lt(0).any() else x


def number_of_a_table(x: Tensor) -> Any:
    return x * 2 if torch.arange(5).sum().item() > 9.5 else x


def written_through_a_view(x: Tensor) -> Any:
    mask = torch.zeros(2, 3)
    mask.select(0, 1)[1] = 1
    return x * 2 if mask.any() else x


def written_afterwards(x: Tensor) -> Any:
    mask = torch.zeros(3)
    seen = mask.any()
    mask[1] = 1
    return x * 2 if seen else x


def written_where_a_table_says(x: Tensor) -> Any:
    mask = torch.ones(3)
    mask[mask == torch.tensor([1.0, 2.0, 1.0])] = torch.tensor(-1.0)
    return x * 2 if (mask > 0).sum() == 1 else x


CONSTANTS = (
    any_of_ones,
    any_below,
    number_of_a_table,
    written_through_a_view,
    written_afterwards,
    written_where_a_table_says,
)


@pytest.mark.parametrize("function", CONSTANTS)
def test_a_question_about_constants_is_answered(function: Callable[..., Any]) -> None:
    """torch.export knows no numbers, also where none of them come from the data."""
    x = torch.randn(3, 2)
    program = purexport.export(function, (x,), capture="export")
    assert not program.report.warnings
    compare_with_torch(function, program.model_proto.SerializeToString(), (x,), {})


def random_mask(x: Tensor) -> Any:
    return x * 2 if torch.rand(3).gt(0.5).any() else x


def written_with_data(x: Tensor) -> Any:
    mask = torch.zeros(3)
    mask[1:].select(0, 0).copy_(x[0, 0])
    return x * 2 if mask.any() else x


def ones_of_the_length(x: Tensor) -> Any:
    return x * 2 if torch.ones(x.shape[0]).sum() > 2 else x


@pytest.mark.parametrize("function", [random_mask, written_with_data, ones_of_the_length])
def test_a_question_about_other_numbers_is_refused(function: Callable[..., Any]) -> None:
    axes = {"x": {0: "n"}} if function is ones_of_the_length else None
    with pytest.raises(purexport.ExportError, match="decides on the content of a tensor") as caught:
        purexport.export(function, (torch.ones(3, 2),), capture="export", dynamic_axes=axes)
    assert caught.value.code == "data-dependent"
