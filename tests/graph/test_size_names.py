"""Names of axes that nobody named, and of sizes that data decides, as the file's inputs and outputs have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport


def kept(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    keep = scores > 0.5
    return boxes[keep][:50], scores[keep][:50]


X, IDS = torch.arange(24.0).reshape(4, 6) - 9, torch.ones(2, 5, dtype=torch.int64)
# the model, its arguments, the axes, the axes of inputs and outputs in the file
ROWS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any], list[list[Any]]]] = {
    "batch and length": (lambda x: x * 2, (IDS,), {"x": [0, 1]}, [["batch", "length"]] * 2),
    "vector": (lambda x: x * 2, (X[0],), {"x": [0]}, [["length"]] * 2),
    "image": (lambda x: x * 2, (torch.ones(1, 3, 4, 4),), {"x": [0, 2, 3]}, [["batch", 3, "height", "width"]] * 2),
    "apart": (
        lambda x, y: (x * 2, y[:1]),
        (X, X),
        {"x": [0], "y": [0]},
        [["x_count", 6], ["y_count", 6], ["x_count", 6], ["min(y_count, 1)", 6]],
    ),
    "names of users stay": (lambda x: x * 2, (X,), {"x": {0: "x_dim_0", 1: "n"}}, [["x_dim_0", "n"]] * 2),
    "data": (lambda x: x.nonzero(), (X,), {}, [[4, 6], ["nonzero_count", 2]]),
    "name of data that is taken": (
        lambda x: x.nonzero(),
        (X,),
        {"x": {0: "nonzero_count"}},
        [["nonzero_count", 6], ["nonzero_count_1", 2]],
    ),
    "one size of data twice": (
        kept,
        (torch.rand(9, 4), torch.rand(9)),
        {"boxes": {0: "n"}, "scores": {0: "n"}},
        [["n", 4], ["n"], ["min(nonzero_count, 50)", 4], ["min(nonzero_count, 50)"]],
    ),
}


@pytest.mark.parametrize("capture", ["trace", "export"])
@pytest.mark.parametrize("name", ROWS)
def test_names(name: str, capture: str) -> None:
    model, args, axes, expected = ROWS[name]
    graph = purexport.export(model, args, dynamic_axes=axes, capture=capture).model_proto.graph
    shapes = [item.type.tensor_type.shape.dim for item in (*graph.input, *graph.output)]
    assert [[dim.dim_param or dim.dim_value for dim in dims] for dims in shapes] == expected
