"""Sampling by grids in every mode and border, before and after ONNX had an operator for it; affine grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.harness import Row, f32, f64
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
OPSETS = (9, 16, 20, 23)  # without GridSample, for planes, for volumes
ANY = {0: {0: "batch", 2: "h", 3: "w"}, 1: {0: "batch", 1: "rows", 2: "columns"}}


def sampled(**options: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda x, grid: functional.grid_sample(x, grid, **options)


def _rows() -> list[Row]:
    rows = []
    borders = ("zeros", "border", "reflection")
    for mode, border, align in itertools.product(("bilinear", "nearest", "bicubic"), borders, (False, True)):
        sample = sampled(mode=mode, padding_mode=border, align_corners=align)
        name = f"{mode}-{border}{'-aligned' if align else ''}"
        grid = f32(2, 3, 5, 2, low=-2.5, high=2.5)
        rows.append(Row(name, sample, f32(2, 2, 4, 5), grid, opsets=OPSETS))
        if mode != "bicubic":
            volume = f32(1, 2, 3, 2, 3, low=-2.5, high=2.5)
            rows.append(Row(f"{name}-volume", sample, f32(1, 2, 4, 5, 3), volume, opsets=OPSETS))
    return rows


SAMPLES = _rows()

MORE = [
    Row("any-size", sampled(align_corners=False), f32(2, 2, 4, 5), f32(2, 3, 5, 2), dynamic=ANY, opsets=OPSETS),
    Row("lowest", sampled(align_corners=True), f32(2, 2, 4, 5), f32(2, 3, 5, 2)),
    Row(
        "grid_sampler_2d",
        lambda x, g: aten.grid_sampler_2d(x, g, 0, 1, True),
        f32(1, 2, 3, 4),
        f32(1, 2, 2, 2),
        opsets=OPSETS,
    ),
    Row(
        "grid_sampler_3d",
        lambda x, g: aten.grid_sampler_3d(x, g, 0, 0, False),
        f32(1, 1, 3, 4, 2),
        f32(1, 2, 2, 2, 3),
        opsets=OPSETS,
    ),
]

AFFINE = [
    Row("affine", lambda t: functional.affine_grid(t, [2, 1, 3, 4], align_corners=False), f32(2, 2, 3)),
    Row("affine-aligned", lambda t: functional.affine_grid(t, [2, 1, 3, 4], align_corners=True), f32(2, 2, 3)),
    Row(
        "affine-aligned-one",
        lambda t: functional.affine_grid(t, [2, 1, 1, 4], align_corners=True),
        f32(2, 2, 3),
        trap="a single pixel is at 0, not at -1",
    ),
    Row("affine-volume", lambda t: functional.affine_grid(t, [1, 1, 3, 4, 2], align_corners=False), f32(1, 3, 4)),
    Row(
        "affine-any-batch",
        lambda t, x: functional.affine_grid(t, [x.shape[0], 1, 3, 4], align_corners=True),
        f32(2, 2, 3),
        f32(2, 1, 3, 4),
        dynamic="batch",
    ),
]


DOUBLE = [
    Row(
        f"grid-double-{mode}",
        sampled(mode=mode, align_corners=False),
        f64(1, 2, 4, 5),
        f64(1, 3, 3, 2, low=-1.2, high=1.2),
        opsets=(17, 20),
        routes=("trace",),
    )
    for mode in ("bilinear", "bicubic")
]


@pytest.mark.parametrize(("row", "plan"), row_params([*DOUBLE, *SAMPLES, *MORE, *AFFINE]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
