"""Static models hold no node that asks for a size, and every inner value of a file has its shape written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import purexport
from tests.shapes.test_dynamic_shapes import BOTH, X, both_numbers, causal_mask, dims_of, windows

STATIC: list[tuple[str, Callable[..., Any]]] = [
    ("numbers", both_numbers),
    ("mask", causal_mask),
    ("windows", windows),
    ("flatten", lambda x: x.reshape(x.shape[0], -1).flatten().view(x.numel() // 3, 3)),
    ("resize", lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")),
    ("pool", lambda x: F.adaptive_avg_pool2d(x[None, None], (2, 3))),
    ("expand", lambda x: x[None].expand(2, x.size(0), 3) + x.new_ones(x.shape)),
    ("split", lambda x: torch.cat(x.chunk(3) + x.split(x.shape[0] // 2), 1 - 1)),
    ("pad", lambda x: F.pad(x, (1, x.shape[0] - 3), mode="reflect" if x.dim() == 3 else "constant")),
    ("norm", lambda x: F.layer_norm(x, x.shape[1:]) + F.group_norm(x[..., None], 1)[..., 0]),
    ("attention", lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)),
    ("roll", lambda x: x.roll(1, 0).flip(1).repeat(2, x.shape[0])),
    ("index", lambda x: x[torch.arange(x.shape[0]) // 2]),
]


@pytest.mark.parametrize("route", BOTH)
@pytest.mark.parametrize("model", [row[1] for row in STATIC], ids=[row[0] for row in STATIC])
def test_a_static_model_asks_for_no_size(model: Any, route: str) -> None:
    program = purexport.export(model, (X,), capture=route)
    found = {node.op_type for node in program.model_proto.graph.node}
    assert not found & {"Shape", "Size"}
    assert all(isinstance(dim, int) for value in program.model_proto.graph.output for dim in dims_of(value))


@pytest.mark.parametrize("route", BOTH)
def test_inner_values_have_shapes_with_names(route: str) -> None:
    """Each node's output is an output of the graph or has a value_info, in the names of the axes."""

    def model(x: Tensor) -> Tensor:
        return torch.cat([x.t(), x.t() * 2], 1).relu().sum(1)

    graph = purexport.export(model, (X,), capture=route, dynamic_axes={"x": {0: "n"}}).model_proto.graph
    shapes = {value.name: dims_of(value) for value in [*graph.value_info, *graph.output]}
    assert set(shapes) == {name for node in graph.node for name in node.output}
    assert [3, "2*n"] in shapes.values()
