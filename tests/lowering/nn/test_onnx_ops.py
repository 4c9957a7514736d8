"""Rows of torch.onnx.ops: operators of ONNX that a model names itself."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from torch import nn

import purexport
from tests.harness import CAPTURES, Row, f32, i64
from tests.row_plans import Plan, row_params, run_row

pytest.importorskip("torch.onnx.ops", reason="torch.onnx.ops came with torch 2.7")
SCRIPTS = "Compiled functions can't take variable number of arguments"  # the defaults of torch.onnx.ops


def rotary(x: Any, cos: Any, sin: Any, at: Any = None, **options: Any) -> Any:
    return torch.onnx.ops.rotary_embedding(x, cos, sin, at, **options)


def attention(*tensors: Any, **options: Any) -> Any:
    return torch.onnx.ops.attention(*tensors, **options)


def gelu(x: Any) -> Any:
    if not purexport.is_in_onnx_export():
        return nn.functional.gelu(x, approximate="tanh") + 1
    return torch.onnx.ops.symbolic("Gelu", (x,), {"approximate": "tanh"}, dtype=x.dtype, shape=x.shape) + 1


def clipped(x: Any) -> Any:
    if not purexport.is_in_onnx_export():
        return x.clamp(max=0.5)
    low_left_out = (x, None, torch.tensor(0.5))
    return torch.onnx.ops.symbolic("ai.onnx::Clip", low_left_out, dtype=x.dtype, shape=x.shape)


def halves(x: Any) -> Any:
    if not purexport.is_in_onnx_export():
        return x.split(3, 1)
    shapes = ([x.shape[0], 3], [x.shape[0], 3])
    attributes = {"axis": 1, "num_outputs": 2}
    return torch.onnx.ops.symbolic_multi_out("Split", (x,), attributes, dtypes=(1, x.dtype), shapes=shapes)


HEADS = f32(2, 4, 3, 8)
ROWS = [
    Row("rotary", rotary, f32(2, 3, 5, 8), f32(9, 4), f32(9, 4), i64(2, 5, low=0, high=9), traced=SCRIPTS),
    Row(
        "rotary-three-axes",
        lambda *tensors: rotary(*tensors, num_heads=2, interleaved=True, rotary_embedding_dim=4),
        f32(2, 5, 16),
        f32(2, 5, 2),
        f32(2, 5, 2),
        traced=SCRIPTS,
    ),
    Row("attention", lambda *tensors: attention(*tensors)[0], HEADS, HEADS, HEADS, dynamic="batch", traced=SCRIPTS),
    Row(
        "attention-of-a-past",
        lambda *tensors: attention(*tensors[:3], None, *tensors[3:], softcap=2.0, scale=0.3),
        *[HEADS] * 5,
        traced=SCRIPTS,
    ),
    Row(
        "attention-grouped",
        lambda *tensors: attention(*tensors, q_num_heads=4, kv_num_heads=2, is_causal=True)[0],
        f32(2, 3, 16),
        f32(2, 3, 8),
        f32(2, 3, 8),
        traced=SCRIPTS,
    ),
    Row("symbolic", gelu, f32(2, 3), dynamic="batch", routes=CAPTURES),
    Row("symbolic-optional", clipped, f32(2, 3), dynamic="batch", routes=CAPTURES),
    Row("symbolic-several", halves, f32(2, 6), dynamic="batch", routes=CAPTURES),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        attributes = {"i": 1, "f": 1.5, "s": "a", "ii": [1, 2], "ff": [1.5], "ss": ["a", "b"]}
        one = torch.onnx.ops.symbolic("my::One", (x, None, x), attributes, dtype=torch.int64, shape=x.shape, version=3)
        return one, *torch.onnx.ops.symbolic_multi_out("my::Two", (one,), dtypes=(7, 9), shapes=([2], x.shape))


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_custom_operator(capture: str) -> None:
    options: Any = {"dynamic_axes": {"x": {0: "rows"}}, "capture": capture}
    model = onnx.load_from_string(
        purexport.export(Custom(), (torch.ones(2, 3),), **options).model_proto.SerializeToString()
    )
    assert {item.domain: item.version for item in model.opset_import}["my"] == 3
    graph = model.graph
    one, two = graph.node
    assert (one.domain, one.op_type, one.input) == ("my", "One", ["x", "", "x"])
    found = {item.name: onnx.helper.get_attribute_value(item) for item in one.attribute}
    assert found == {"i": 1, "f": 1.5, "s": b"a", "ii": [1, 2], "ff": [1.5], "ss": [b"a", b"b"]}
    assert (two.op_type, len(two.output)) == ("Two", 2)
    shapes = [[dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in graph.output]
    assert shapes == [["rows", 3], [2], ["rows", 3]]
    assert [item.type.tensor_type.elem_type for item in graph.output] == [7, 7, 9]
