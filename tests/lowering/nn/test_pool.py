"""Pooling: every border case against torch.

The traps are where a window hangs over an edge, and what it then counts.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import CAPTURES, Row, f32, layer, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
FEW = (9, 20)
EXPORT = ("export",)
ANY = {0: {0: "batch", 2: "height", 3: "width"}}

MAX = [
    Row("max1d", layer(nn.MaxPool1d, 3), f32(2, 3, 8), dynamic="batch"),
    # torch.export itself holds the length fixed
    Row(
        "max1d-any-size",
        layer(nn.MaxPool1d, 3),
        f32(2, 3, 8),
        dynamic={0: {0: "batch", 2: "length"}},
        routes=("trace",),
    ),
    Row("max2d", layer(nn.MaxPool2d, 3, stride=2, padding=1), f32(2, 3, 7, 8), dynamic=ANY),
    Row("max3d", layer(nn.MaxPool3d, (1, 2, 3), padding=(0, 1, 1)), f32(1, 2, 4, 5, 6), dynamic="batch"),
    Row("max-negative", lambda x: functional.max_pool2d(x - 9, 3, 1, 1), f32(1, 1, 3, 3), trap="padding is not a zero"),
    Row(
        "max-of-padded",
        lambda x: functional.max_pool2d(functional.pad(-1 - x * x, (1, 1, 1, 1)), 3, 2),
        f32(1, 2, 6, 6),
        trap="a runtime that merges the two takes the zeros for no numbers",
    ),
    Row("max1d-no-batch", layer(nn.MaxPool1d, 2), f32(3, 7)),
    Row("max2d-no-batch", layer(nn.MaxPool2d, 2), f32(3, 7, 6), dynamic={0: {1: "height"}}),
    Row("max3d-no-batch", layer(nn.MaxPool3d, 2), f32(2, 4, 5, 4)),
    Row(
        "max-dilated-places",
        layer(nn.MaxPool2d, 2, stride=1, dilation=(2, 3), return_indices=True),
        f32(2, 2, 6, 7),
        opsets=(9, 20),
    ),
    Row("max-dilated", layer(nn.MaxPool2d, 2, stride=1, dilation=(2, 3)), f32(1, 2, 6, 7)),
]

COMPUTED = [
    Row("avg-whole-plane", lambda x: functional.avg_pool2d(x, x.shape[2:]), f32(2, 3, 7, 8), dynamic=ANY),
    Row("max-whole-axis", lambda x: functional.max_pool1d(x, x.shape[2]), f32(2, 3, 8), dynamic={0: {2: "length"}}),
    Row("avg-part", lambda x: functional.avg_pool1d(x, x.shape[2] // 4), f32(2, 3, 8), dynamic={0: {2: "length"}}),
    Row(
        "max-part",
        lambda x: functional.max_pool2d(x - 9, (x.shape[2] // 2, 3), 1, (x.shape[2] // 4, 1)),
        f32(2, 3, 8, 7),
        dynamic={0: {2: "height"}},
        trap="padding is not a zero",
    ),
    Row("avg-one-for-both", lambda x: functional.avg_pool2d(x, x.shape[2] // 2), f32(2, 8, 9), dynamic={0: {2: "w"}}),
    Row(
        "max-dilated-part",
        lambda x: functional.max_pool1d(x, 2, 1, 0, x.shape[2] // 4),
        f32(2, 3, 8),
        dynamic={0: {2: "length"}},
    ),
]
for _row in COMPUTED:
    _row.routes, _row.opsets = CAPTURES, (11, 18)

AVERAGE = [
    Row("avg1d", layer(nn.AvgPool1d, 3), f32(2, 3, 8), dynamic={0: {0: "batch", 2: "length"}}),
    Row("avg2d", layer(nn.AvgPool2d, 3, stride=2, padding=1), f32(2, 3, 7, 8), dynamic=ANY),
    Row("avg2d-no-pad-count", layer(nn.AvgPool2d, 3, 2, 1, count_include_pad=False), f32(1, 2, 7, 8), dynamic=ANY),
    Row("avg2d-divisor", layer(nn.AvgPool2d, 3, 2, 1, divisor_override=5), f32(1, 2, 7, 8), dynamic=ANY),
    Row("avg3d", layer(nn.AvgPool3d, (1, 2, 3), padding=(0, 1, 1)), f32(1, 2, 4, 5, 6), dynamic="batch"),
    Row("avg1d-no-batch", layer(nn.AvgPool1d, 2), f32(3, 7)),
    Row("avg2d-no-batch", layer(nn.AvgPool2d, 2, padding=1, ceil_mode=True), f32(3, 7, 6)),
    Row("avg3d-no-batch", layer(nn.AvgPool3d, 2), f32(2, 4, 5, 4)),
    Row("lp1d", layer(nn.LPPool1d, 2, 3), f32(1, 2, 8)),
    Row("lp2d", layer(nn.LPPool2d, 3, 2, ceil_mode=True), f32(1, 2, 5, 5, low=0.1, high=1.0), opsets=FEW),
]


def _border_rows() -> list[Row]:
    """ceil_mode with every padding and a stride below, at and above the kernel, on sizes that do and do not divide."""
    rows = []
    for kernel, stride, padding, size in itertools.product((2, 3), (1, 2, 3, 4), (0, 1), (5, 6, 7)):
        if 2 * padding > kernel:
            continue
        name = f"k{kernel}-s{stride}-p{padding}-n{size}"
        args: Any = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": True}
        once: Any = {"opsets": (9,), "routes": ("trace",)}
        trap = "a last window that would start in the right padding is dropped"
        rows.append(Row(f"max-ceil-{name}", layer(nn.MaxPool1d, **args), f32(1, 2, size), trap=trap, **once))
        for include in (True, False):
            average = layer(nn.AvgPool1d, **args, count_include_pad=include)
            text = "padding counts, the overhang does not"
            rows.append(Row(f"avg-ceil-{name}-{include}", average, f32(1, 2, size), trap=text, **once))
    return rows


BORDERS = _border_rows()

CEIL = [
    Row("max-ceil-2d", lambda x: functional.max_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=True), f32(1, 2, 6, 6)),
    Row(
        "max-ceil-dilated",
        lambda x: functional.max_pool1d(x, 2, 3, 1, 2, ceil_mode=True),
        f32(1, 2, 8),
        opsets=(9, 20),
    ),
    Row(
        "max-ceil-dilated-wide",
        lambda x: functional.max_pool1d(x, 2, 4, 0, 4, ceil_mode=True),
        f32(1, 2, 7),
        opsets=(9, 20),
        trap="ONNX Runtime refuses padding as large as the kernel",
    ),
    Row("avg-ceil-2d", lambda x: functional.avg_pool2d(x, (3, 2), (2, 3), (1, 1), ceil_mode=True), f32(1, 2, 6, 6)),
    Row("avg-ceil-divisor", lambda x: functional.avg_pool2d(x, 3, 2, 1, True, True, 4), f32(1, 2, 6, 7)),
    Row(
        "max-ceil-any-size",
        lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        f32(1, 2, 6, 7),
        dynamic=ANY,
    ),
    Row(
        "avg-ceil-any-size",
        lambda x: functional.avg_pool2d(x, 3, 2, 1, True),
        f32(1, 2, 6, 7),
        dynamic=ANY,
    ),
    Row(
        "avg-ceil-any-size-no-pad-count",
        lambda x: functional.avg_pool2d(x, 2, 3, 1, True, False),
        f32(1, 2, 6, 7),
        dynamic=ANY,
    ),
    Row(
        "avg-ceil-any-size-divisor",
        lambda x: functional.avg_pool2d(x, 3, 2, 1, True, True, 4),
        f32(1, 2, 6, 7),
        dynamic=ANY,
    ),
]

ADAPTIVE = [
    Row("adaptive-avg1d", layer(nn.AdaptiveAvgPool1d, 4), f32(2, 3, 8), dynamic="batch"),
    Row("adaptive-avg1d-uneven", layer(nn.AdaptiveAvgPool1d, 3), f32(2, 3, 8), dynamic="batch"),
    Row("adaptive-avg2d-one", layer(nn.AdaptiveAvgPool2d, 1), f32(2, 3, 5, 4), dynamic=ANY),
    Row("adaptive-avg2d-uneven", layer(nn.AdaptiveAvgPool2d, (3, 5)), f32(1, 2, 7, 9), dynamic="batch"),
    Row("adaptive-avg2d-larger", layer(nn.AdaptiveAvgPool2d, 7), f32(1, 2, 3, 5), trap="windows overlap"),
    Row(
        "adaptive-avg2d-keep", layer(nn.AdaptiveAvgPool2d, (None, 2)), f32(1, 2, 3, 5), traced="'Tuple[NoneType, int]'"
    ),
    Row("adaptive-avg2d-same", layer(nn.AdaptiveAvgPool2d, (3, 5)), f32(1, 2, 3, 5)),
    Row("adaptive-avg2d-any-size", layer(nn.AdaptiveAvgPool2d, (3, 2)), f32(1, 2, 7, 9), dynamic=ANY),
    Row(
        "adaptive-avg2d-keep-any-size",
        layer(nn.AdaptiveAvgPool2d, (None, 1)),
        f32(1, 2, 7, 9),
        dynamic=ANY,
        traced="'Tuple[NoneType, int]'",
    ),
    Row("adaptive-avg3d", layer(nn.AdaptiveAvgPool3d, 2), f32(1, 2, 4, 6, 2), dynamic="batch"),
    Row("adaptive-avg3d-uneven", layer(nn.AdaptiveAvgPool3d, (2, 3, 4)), f32(1, 2, 5, 4, 7)),
    Row("adaptive-avg1d-no-batch", layer(nn.AdaptiveAvgPool1d, 3), f32(3, 7)),
    Row("adaptive-avg2d-no-batch", layer(nn.AdaptiveAvgPool2d, 1), f32(3, 7, 6)),
    Row("adaptive-avg3d-no-batch", layer(nn.AdaptiveAvgPool3d, 2), f32(3, 4, 5, 6)),
    Row("_adaptive_avg_pool2d", aten._adaptive_avg_pool2d, f32(1, 2, 4, 4), [2, 2]),
    Row("_adaptive_avg_pool3d", aten._adaptive_avg_pool3d, f32(1, 2, 4, 4, 4), [2, 2, 2]),
    Row("adaptive-max1d", layer(nn.AdaptiveMaxPool1d, 4), f32(2, 3, 8), dynamic="batch"),
    Row("adaptive-max1d-uneven", layer(nn.AdaptiveMaxPool1d, 3), f32(2, 3, 8), dynamic="batch"),
    Row("adaptive-max2d-one", layer(nn.AdaptiveMaxPool2d, 1), f32(2, 3, 5, 4), dynamic=ANY),
    Row("adaptive-max2d-uneven", layer(nn.AdaptiveMaxPool2d, (3, 5)), f32(1, 2, 7, 9), dynamic="batch"),
    Row("adaptive-max2d-larger", layer(nn.AdaptiveMaxPool2d, 7), f32(1, 2, 3, 5)),
    Row("adaptive-max2d-no-batch", layer(nn.AdaptiveMaxPool2d, (2, 3)), f32(3, 7, 6)),
    Row("adaptive-max3d-uneven", layer(nn.AdaptiveMaxPool3d, (2, 3, 4)), f32(1, 2, 5, 4, 7), opsets=FEW),
    Row("adaptive-max2d-any-size", layer(nn.AdaptiveMaxPool2d, (3, 2)), f32(1, 2, 7, 9), dynamic=ANY),
]

INDICES = [
    Row("max1d-indices", layer(nn.MaxPool1d, 2, return_indices=True), f32(2, 3, 7), dynamic="batch"),
    Row("max2d-indices", layer(nn.MaxPool2d, 3, 2, 1, return_indices=True), f32(2, 3, 7, 6), dynamic="batch"),
    Row("max2d-indices-any-size", layer(nn.MaxPool2d, 2, return_indices=True), f32(2, 3, 6, 7), dynamic=ANY),
    Row(
        "max2d-indices-ceil",
        lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        f32(2, 2, 6, 6),
        trap="positions count within one plane, without the padding",
    ),
    Row(
        "max2d-indices-ceil-any-size",
        lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        f32(2, 2, 6, 6),
        dynamic=ANY,
    ),
    Row("max3d-indices", layer(nn.MaxPool3d, 2, return_indices=True), f32(1, 2, 4, 4, 5)),
    Row("max2d-indices-no-batch", layer(nn.MaxPool2d, 2, return_indices=True), f32(3, 5, 5)),
    Row(
        "max-indices-ties",
        lambda x: functional.max_pool2d(x, 2, 1, return_indices=True),
        values([[[[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]]]),
        trap="the first of equals, row by row",
    ),
    Row("adaptive-max1d-indices", layer(nn.AdaptiveMaxPool1d, 4, return_indices=True), f32(2, 3, 8)),
    Row(
        "adaptive-max2d-indices",
        layer(nn.AdaptiveMaxPool2d, (3, 2), return_indices=True),
        f32(2, 2, 7, 5),
    ),
    Row(
        "adaptive-max2d-indices-ties",
        lambda x: functional.adaptive_max_pool2d(x, 2, return_indices=True),
        values([[[[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]]]),
        trap="the first of equals, row by row",
    ),
    # functional.max_unpool checks values in Python, which a trace does not take
    Row(
        "max-unpool1d",
        lambda x: functional.max_unpool1d(*functional.max_pool1d(x, 2, return_indices=True), 2),
        f32(1, 2, 6),
        routes=EXPORT,
    ),
    Row(
        "max-unpool2d",
        lambda x: aten.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), [7, 6]),
        f32(2, 2, 6, 6),
        dynamic="batch",
    ),
    Row(
        "max-unpool3d",
        lambda x: aten.max_unpool3d(*functional.max_pool3d(x, 2, return_indices=True), [4, 4, 4], [2, 2, 2], [0, 0, 0]),
        f32(1, 2, 4, 4, 4),
    ),
    Row(
        "max-unpool2d-no-batch",
        lambda x, i: aten.max_unpool2d(x, i, [3, 3]),
        f32(2, 1, 2),
        values([[[0, 8]], [[4, 2]]], torch.int64),
    ),
    Row(
        "fractional-2d",
        lambda x, r: aten.fractional_max_pool2d(x, [2, 3], [4, 3], r),
        f32(2, 3, 9, 8),
        f32(2, 3, 2, low=0, high=1),
        opsets=(9, 13, 20),
        dynamic="batch",
        trap="the first random number is the width's",
    ),
    Row(
        "fractional-3d",
        lambda x, r: aten.fractional_max_pool3d(x, [2, 2, 3], [2, 3, 1], r),
        f32(2, 6, 5, 8),
        f32(1, 2, 3, low=0, high=1),
        opsets=(9, 13, 20),
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*MAX, *AVERAGE, *COMPUTED, *CEIL, *BORDERS, *ADAPTIVE, *INDICES]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
