"""Interpolation in all modes, by sizes and by factors, static and dynamic; grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.harness import Row, f32, f64, i64, u8
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
SPATIAL = {1: "length", 2: "height", 3: "width"}
RANKS = {
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
}
SHAPES = {1: (2, 2, 5), 2: (2, 2, 4, 5), 3: (1, 2, 3, 4, 5)}
SIZES = {1: (8,), 2: (7, 3), 3: (5, 2, 9)}


def interpolate(**options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.interpolate(x, **options)


def _modes() -> list[Row]:
    """Every mode and rank by sizes that enlarge and shrink, and by a factor; corners aligned or not."""
    rows = []
    for mode, ranks in RANKS.items():
        for rank, align in itertools.product(ranks, (False, True)):
            if align and mode.startswith("nearest"):
                continue
            options: dict[str, Any] = {"mode": mode, **({"align_corners": True} if align else {})}
            name = f"{mode}-{rank}d{'-aligned' if align else ''}"
            shape = SHAPES[rank]
            rows.append(Row(f"{name}-size", interpolate(size=SIZES[rank], **options), f32(*shape), dynamic="batch"))
            rows.append(Row(f"{name}-factor", interpolate(scale_factor=2.0, **options), f32(*shape)))
            axes = {0: {axis: f"n{axis}" for axis in range(2, rank + 2)}}
            any_size = interpolate(scale_factor=2.0, **options)
            rows.append(Row(f"{name}-any-size", any_size, f32(*shape), dynamic=axes))
    return rows


MODES = _modes()

FACTORS = [
    Row(
        "factor-fraction",
        interpolate(scale_factor=1.3, mode="bilinear"),
        f32(1, 1, 7, 5),
        trap="coordinates go by the factor, not by the ratio of the rounded sizes",
    ),
    Row("factor-fraction-nearest", interpolate(scale_factor=1.7), f32(1, 1, 7, 5)),
    Row("factor-fraction-cubic", interpolate(scale_factor=0.6, mode="bicubic"), f32(1, 1, 7, 5)),
    Row(
        "factor-recomputed",
        interpolate(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
        f32(1, 1, 7, 5),
        routes=("export",),
    ),
    Row("factor-shrinks-any-size", interpolate(scale_factor=0.5), f32(1, 1, 6, 4), dynamic={0: {2: "h"}}),
    Row("factor-by-axis", interpolate(scale_factor=(2.0, 0.5), mode="bilinear"), f32(1, 1, 6, 6)),
    Row(
        "factor-fraction-any-size",
        interpolate(scale_factor=1.5, mode="bilinear"),
        f32(1, 1, 6, 4),
        dynamic={0: {2: "h", 3: "w"}},
        sizes={"h": 7, "w": 9},
    ),
    Row(
        "size-of-another",
        lambda x, y: functional.interpolate(x, size=y.shape[2:]),
        f32(1, 1, 4, 4),
        f32(1, 1, 6, 8),
        dynamic={1: {2: "h", 3: "w"}},
    ),
    Row(
        "size-of-another-linear",
        lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear"),
        f32(1, 1, 4, 4),
        f32(1, 1, 6, 8),
        dynamic={0: {2: "a", 3: "b"}, 1: {2: "h", 3: "w"}},
    ),
    Row("shrinks-unevenly", interpolate(size=(2, 3)), f32(2, 2, 5, 1), opsets=(9, 10, 11, 13), trap="floor, not ceil"),
    Row(
        "size-of-another-that-is-smaller",
        lambda x, y: functional.interpolate(x, size=y.shape[2:]),
        f32(1, 1, 5, 7),
        f32(1, 1, 2, 9),
        dynamic={0: {2: "a", 3: "b"}, 1: {2: "h", 3: "w"}},
        opsets=(9, 10, 11, 13),
        trap="floor, not ceil",
    ),
    Row(
        "factor-shrinks-unevenly-any-size",
        interpolate(scale_factor=0.4),
        f32(1, 1, 5, 5),
        dynamic={0: {2: "h"}},
        opsets=(9, 11, 13),
    ),
    Row("size-one", interpolate(size=(1, 4), mode="bilinear"), f32(1, 1, 5, 5)),
    Row("size-one-aligned", interpolate(size=(1, 4), mode="bilinear", align_corners=True), f32(1, 1, 5, 5)),
    Row("size-same", interpolate(size=(5, 5), mode="bicubic"), f32(1, 1, 5, 5)),
]

DTYPES = [
    Row("double", interpolate(size=(7, 3), mode="bilinear"), f64(1, 1, 4, 5)),
    Row("double-nearest", interpolate(size=(7, 3)), f64(1, 1, 4, 5)),
    Row(
        "double-any-size",
        interpolate(scale_factor=2.0, mode="bilinear"),
        f64(1, 1, 4, 5),
        dynamic={0: {2: "h"}},
    ),
    Row("nearest-bytes", lambda x: functional.interpolate(x.to(torch.uint8), size=(7, 3)), i64(1, 1, 4, 5, low=0)),
]

# torch computes these in whole numbers, and rounds behind each axis
BYTES = [
    Row("bytes-bilinear", interpolate(size=(11, 17), mode="bilinear"), u8(2, 3, 7, 23), dynamic="batch"),
    Row("bytes-bicubic", interpolate(size=(11, 17), mode="bicubic", antialias=True), u8(2, 3, 7, 23)),
    Row("bytes-bicubic-aligned", interpolate(size=(4, 31), mode="bicubic", align_corners=True), u8(2, 3, 7, 23)),
    Row(
        "bytes-bilinear-any-size",
        interpolate(size=(11, 17), mode="bilinear", antialias=True),
        u8(1, 3, 7, 23),
        dynamic={0: {2: "h", 3: "w"}},
    ),
    Row(
        "bytes-bicubic-any-size",
        interpolate(size=(11, 17), mode="bicubic"),
        u8(1, 3, 7, 23),
        dynamic={0: {2: "h", 3: "w"}},
    ),
    Row(
        "bytes-bicubic-keeps-size",
        interpolate(scale_factor=(1.1, 1.6), mode="bicubic"),
        u8(1, 5, 8, 9),
        trap="an axis that keeps its size is not interpolated, whatever its factor",
    ),
    Row(
        "bytes-bicubic-keeps-any-size",
        interpolate(scale_factor=(1.1, 1.6), mode="bicubic"),
        u8(1, 5, 8, 9),
        dynamic={0: {2: "h", 3: "w"}},
        sizes={"h": 7, "w": 12},
    ),
]

ANTIALIAS = [
    Row(
        "antialias-bilinear",
        interpolate(size=(3, 4), mode="bilinear", antialias=True),
        f32(1, 2, 9, 7),
        dynamic="batch",
    ),
    Row("antialias-bilinear-larger", interpolate(size=(11, 4), mode="bilinear", antialias=True), f32(1, 1, 9, 7)),
    *(
        Row(
            f"antialias-{mode}-any-size",
            interpolate(size=(4, 9), mode=mode, antialias=True),
            f32(1, 2, 9, 7),
            dynamic={0: {2: "height", 3: "width"}},
            sizes={"height": 13, "width": 5},
        )
        for mode in ("bilinear", "bicubic")
    ),
    Row(
        "antialias-factor-any-size",
        interpolate(scale_factor=0.5, mode="bilinear", antialias=True),
        f32(1, 2, 8, 6),
        dynamic={0: {2: "height", 3: "width"}},
    ),
    Row("antialias-bicubic", interpolate(size=(3, 4), mode="bicubic", antialias=True), f32(1, 2, 9, 7)),
    Row(
        "antialias-aligned",
        interpolate(size=(3, 4), mode="bicubic", antialias=True, align_corners=True),
        f32(1, 2, 9, 7),
    ),
]

# What decompositions show: a factor for each axis.
INNER = [
    Row("upsample_nearest1d", lambda x: aten.upsample_nearest1d(x, [7], 1.5), f32(1, 2, 5)),
    Row("upsample_nearest2d", lambda x: aten.upsample_nearest2d(x, [6, 8], 2.0, 2.0), f32(1, 2, 3, 4)),
    Row("upsample_nearest3d", lambda x: aten.upsample_nearest3d(x, [2, 6, 8]), f32(1, 2, 3, 4, 3)),
    Row("_upsample_nearest_exact1d", lambda x: aten._upsample_nearest_exact1d(x, [7], 1.5), f32(1, 2, 5)),
    Row("_upsample_nearest_exact2d", lambda x: aten._upsample_nearest_exact2d(x, [6, 8]), f32(1, 2, 3, 4)),
    Row("_upsample_nearest_exact3d", lambda x: aten._upsample_nearest_exact3d(x, [2, 6, 8]), f32(1, 2, 3, 4, 3)),
    Row("upsample_linear1d", lambda x: aten.upsample_linear1d(x, [7], False), f32(1, 2, 5)),
    Row("upsample_bilinear2d", lambda x: aten.upsample_bilinear2d(x, [6, 8], True), f32(1, 2, 3, 4)),
    Row("upsample_trilinear3d", lambda x: aten.upsample_trilinear3d(x, [2, 6, 8], False), f32(1, 2, 3, 4, 3)),
    Row("upsample_bicubic2d", lambda x: aten.upsample_bicubic2d(x, [6, 8], False), f32(1, 2, 3, 4)),
    Row("_upsample_bilinear2d_aa", lambda x: aten._upsample_bilinear2d_aa(x, [2, 8], False), f32(1, 2, 6, 4)),
    Row("_upsample_bicubic2d_aa", lambda x: aten._upsample_bicubic2d_aa(x, [2, 8], False), f32(1, 2, 6, 4)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*MODES, *FACTORS, *DTYPES, *BYTES, *ANTIALIAS, *INNER]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
