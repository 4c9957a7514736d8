"""Operators on torch's quantized tensors.

Rows return the integers, which must be equal, so that one step of difference fails.  A row with `nearly` returns the
numbers and allows one step: ONNX Runtime sums in an order of its own, and a result that lies between two integers to
the last bit may go to the other one.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.harness import Layer, Row, f32, i64, layer
from tests.row_plans import Plan, row_params, run_row

OPS = torch.ops.quantized
QUINT8, QINT8 = torch.quint8, torch.qint8
TRACE = ("trace",)  # torch.export has no fakes of quantized tensors
SCALE, ZERO = 0.05, 117
OUT = (0.0625, 100)  # of the results


def quantized(x, scale=SCALE, zero_point=ZERO, dtype=QUINT8):
    return torch.quantize_per_tensor(x, scale, zero_point, dtype)


def of(function, *more, dtype=QUINT8, zero_point=ZERO):
    """A model that quantizes its tensors, calls the function, and gives the result's integers."""

    def model(*tensors):
        found = function(*[quantized(x, dtype=dtype, zero_point=zero_point) for x in tensors], *more)
        return [item.int_repr() for item in found] if isinstance(found, (list, tuple)) else found.int_repr()

    return model


class Packed(nn.Module):
    """A layer with packed weights: `kind` says which operator, the weight has a scale a channel or one for all."""

    def __init__(self, prepack, call, weight, *options, channels=True, bias=True, dynamic=False, nearly=False):
        super().__init__()
        self.call, self.dynamic, self.nearly = call, dynamic, nearly
        tensor = torch.randn(weight) * 0.2
        if channels:
            scales = torch.linspace(0.005, 0.01, weight[0], dtype=torch.float64)
            packed = torch.quantize_per_channel(tensor, scales, torch.zeros(weight[0]).long(), 0, QINT8)
        else:
            packed = torch.quantize_per_tensor(tensor, 0.01, 0, QINT8)
        outputs = weight[0]
        self.packed = prepack(packed, torch.randn(outputs) if bias else None, *options)

    def forward(self, x, *others):
        if self.dynamic:
            return self.call(x, self.packed)
        tensors = [quantized(item) for item in (x, *others)]
        result = self.call(*tensors, self.packed, *OUT)
        return result.dequantize() if self.nearly else result.int_repr()


class WeightOnly(nn.Module):
    """A linear layer whose weight alone is quantized."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (16, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.linspace(0.001, 0.002, 16))

    def forward(self, x):
        return torch._weight_int8pack_mm(x, self.weight, self.scales)


CONV1 = (OPS.conv1d_prepack, OPS.conv1d)
CONV2 = (OPS.conv2d_prepack, OPS.conv2d)
CONV3 = (OPS.conv3d_prepack, OPS.conv3d)
PLAIN = ([1, 1], [0, 0], [1, 1], 1)
UP = ([2, 2], [1, 1], [1, 1], [1, 1], 1)

LAYERS = [
    Row("linear", layer(Packed, OPS.linear_prepack, OPS.linear, (5, 7)), f32(3, 7)),
    Row("linear-one-scale", layer(Packed, OPS.linear_prepack, OPS.linear, (5, 7), channels=False), f32(3, 7)),
    Row("linear-no-bias", layer(Packed, OPS.linear_prepack, OPS.linear, (5, 7), bias=False), f32(2, 3, 7)),
    Row("linear-relu", layer(Packed, OPS.linear_prepack, OPS.linear_relu, (5, 7)), f32(3, 7), dynamic="batch"),
    Row("conv1d", layer(Packed, *CONV1, (4, 3, 3), [1], [1], [1], 1), f32(2, 3, 8), dynamic="batch"),
    Row("conv1d-relu", layer(Packed, OPS.conv1d_prepack, OPS.conv1d_relu, (4, 3, 3), [2], [0], [1], 1), f32(2, 3, 8)),
    Row("conv2d", layer(Packed, *CONV2, (4, 3, 3, 3), *PLAIN), f32(2, 3, 6, 6), dynamic="batch"),
    Row(
        "conv2d-strided",
        layer(Packed, *CONV2, (4, 3, 3, 3), [2, 2], [1, 2], [1, 1], 1, nearly=True),
        f32(2, 3, 7, 6),
        rtol=0,
        atol=1.01 * OUT[0],
        loose="ONNX Runtime sums in an order of its own: what lies between two steps may go to the other one",
    ),
    Row("conv2d-groups", layer(Packed, *CONV2, (6, 1, 3, 3), [1, 1], [1, 1], [1, 1], 3), f32(2, 3, 6, 6)),
    Row("conv2d-dilated", layer(Packed, *CONV2, (4, 3, 2, 2), [1, 1], [0, 0], [2, 2], 1), f32(1, 3, 6, 6)),
    Row("conv2d-no-bias", layer(Packed, *CONV2, (4, 3, 1, 1), *PLAIN, bias=False), f32(2, 3, 4, 4)),
    Row("conv2d-relu", layer(Packed, OPS.conv2d_prepack, OPS.conv2d_relu, (4, 3, 3, 3), *PLAIN), f32(2, 3, 6, 6)),
    Row("conv3d", layer(Packed, *CONV3, (4, 3, 2, 2, 2), [1] * 3, [0] * 3, [1] * 3, 1), f32(1, 3, 4, 4, 4)),
    Row(
        "conv3d-relu",
        layer(Packed, OPS.conv3d_prepack, OPS.conv3d_relu, (4, 3, 2, 2, 2), [1] * 3, [1] * 3, [1] * 3, 1),
        f32(1, 3, 3, 4, 4),
    ),
    Row(
        "conv-transpose1d",
        layer(
            Packed,
            OPS.conv_transpose1d_prepack,
            OPS.conv_transpose1d,
            (4, 4, 3),
            [2],
            [1],
            [1],
            [1],
            1,
            channels=False,
        ),
        f32(2, 4, 5),
    ),
    Row(
        "conv-transpose2d",
        layer(Packed, OPS.conv_transpose2d_prepack, OPS.conv_transpose2d, (4, 4, 3, 3), *UP, channels=False),
        f32(2, 4, 5, 5),
        dynamic="batch",
    ),
    Row(
        "conv-transpose3d",
        layer(
            Packed,
            OPS.conv_transpose3d_prepack,
            OPS.conv_transpose3d,
            (4, 4, 2, 2, 2),
            [2] * 3,
            [0] * 3,
            [0] * 3,
            [1] * 3,
            1,
            channels=False,
        ),
        f32(1, 4, 3, 3, 3),
    ),
]
ARITHMETIC = [
    Row("add", of(OPS.add, *OUT), f32(3, 7), f32(3, 7)),
    Row("add-broadcast", of(OPS.add, *OUT), f32(3, 7), f32(7)),
    Row("add-relu", of(OPS.add_relu, *OUT), f32(3, 7), f32(3, 7), dynamic="batch"),
    Row("mul", of(OPS.mul, *OUT), f32(3, 7), f32(3, 7)),
    Row("mul-relu", of(OPS.mul_relu, *OUT), f32(3, 7), f32(3, 7)),
    Row("matmul", of(OPS.matmul, *OUT), f32(2, 3, 4), f32(2, 4, 5)),
    Row("add-number", of(OPS.add_scalar, 0.5), f32(3, 7)),
    Row("add-number-far", of(OPS.add_scalar, 9.0), f32(3, 7), trap="the zero point leaves the integers"),
    Row("add-number-far-below", of(OPS.add_scalar, -9.0), f32(3, 7)),
    Row("add-number-overload", of(OPS.add, 0.5), f32(3, 7)),
    Row("mul-number", of(OPS.mul_scalar, 0.5), f32(3, 7)),
    Row("mul-number-overload", of(OPS.mul, 2.0), f32(3, 7)),
    Row("mul-number-negative", of(OPS.mul_scalar, -0.5), f32(3, 7), trap="the integers are mirrored"),
    Row("mul-number-zero", of(OPS.mul_scalar, 0.0), f32(3, 7)),
    Row("cat", of(lambda x, y: OPS.cat([x, y], 1, *OUT)), f32(3, 7), f32(3, 2)),
    Row("cat-same", of(lambda x, y: OPS.cat([x, y], -1, SCALE, ZERO)), f32(3, 7), f32(3, 2), dynamic="batch"),
    Row("cat-of-first", of(lambda x, y: OPS.cat([x, y], 1, None, None)), f32(3, 7), f32(3, 2)),
    Row("cat-relu", of(lambda x, y: OPS.cat_relu([x, y], 1, *OUT)), f32(3, 7), f32(3, 2)),
    Row("cat-plain", of(lambda x, y: torch.cat([x, y], 1)), f32(3, 7), f32(3, 2)),
]
ACTIVATIONS = [
    Row("relu", of(torch.relu), f32(3, 7)),
    Row("relu6", of(OPS.relu6), f32(3, 7, low=-2, high=9)),
    Row("hardtanh", of(F.hardtanh), f32(3, 7)),
    Row("clamp", of(lambda x: x.clamp(-0.77, 0.88)), f32(3, 7)),
    Row("clamp-quantized", of(OPS.clamp, -0.77, 0.88), f32(3, 7)),
    Row("threshold", of(lambda x: F.threshold(x, 0.3, 0.1)), f32(3, 7)),
    Row("threshold-quantized", of(OPS.threshold, 0.3, 0.1), f32(3, 7)),
    Row("leaky-relu", of(F.leaky_relu), f32(3, 7)),
    Row("leaky-relu-given", of(OPS.leaky_relu, 0.2, False, *OUT), f32(3, 7)),
    Row("sigmoid", of(torch.sigmoid), f32(3, 7)),
    Row("sigmoid-signed", of(torch.sigmoid, dtype=QINT8, zero_point=3), f32(3, 7)),
    Row("sigmoid-given", of(OPS.sigmoid, *OUT), f32(3, 7)),
    Row("tanh", of(torch.tanh), f32(3, 7)),
    Row("hardsigmoid", of(F.hardsigmoid), f32(3, 7)),
    Row("hardswish", of(OPS.hardswish, *OUT), f32(3, 7)),
    Row("elu-given", of(OPS.elu, *OUT, 0.5), f32(3, 7)),
    Row("celu", of(OPS.celu, *OUT, 0.5), f32(3, 7)),
    Row("gelu", of(F.gelu), f32(3, 7)),
    Row("softmax", of(OPS.softmax, 1, 1 / 256, 0), f32(3, 7)),
    Row("prelu", of(OPS.prelu, torch.quantize_per_tensor(torch.tensor([0.25]), 0.01, 0, QUINT8), *OUT), f32(3, 7)),
    Row("dropout", of(OPS.dropout, *OUT, 0.5, False), f32(3, 7)),
    Row("dropout-plain", of(lambda x: F.dropout(x, 0.5, False)), f32(3, 7)),
]
ONES = torch.linspace(0.5, 1.5, 4)
NORMS = [
    *(
        Row(f"batch-norm-{name}", of(getattr(OPS, name), ONES, ONES - 1, ONES * 0.1, ONES + 0.5, 1e-5, *OUT), given)
        for name, given in [
            ("batch_norm", f32(2, 4, 3, 3)),
            ("batch_norm_relu", f32(2, 4, 3, 3)),
            ("batch_norm1d", f32(2, 4, 3)),
            ("batch_norm2d", f32(2, 4, 3, 3)),
            ("batch_norm3d", f32(2, 4, 2, 3, 3)),
            ("batch_norm1d_relu", f32(2, 4, 3)),
            ("batch_norm2d_relu", f32(2, 4, 3, 3)),
            ("batch_norm3d_relu", f32(2, 4, 2, 3, 3)),
        ]
    ),
    Row("layer-norm", of(OPS.layer_norm, [4], ONES, ONES - 1, 1e-5, *OUT), f32(3, 5, 4)),
    Row("group-norm", of(OPS.group_norm, 2, ONES, ONES - 1, 1e-5, *OUT), f32(3, 4, 5)),
    Row("instance-norm", of(OPS.instance_norm, ONES, ONES - 1, 1e-5, *OUT), f32(2, 4, 5, 5)),
]
POOLS = [
    Row("max-pool1d", of(lambda x: F.max_pool1d(x, 2)), f32(2, 3, 6)),
    Row("max-pool2d", of(lambda x: F.max_pool2d(x, 3, 2, 1)), f32(2, 3, 7, 7), dynamic="batch"),
    Row("max-pool3d", of(lambda x: F.max_pool3d(x, 2)), f32(2, 3, 4, 4, 4)),
    Row("avg-pool1d", of(lambda x: F.avg_pool1d(x, 2)), f32(2, 3, 6)),
    Row("avg-pool2d", of(lambda x: F.avg_pool2d(x, 2)), f32(2, 3, 6, 6), trap="halves go to the even step"),
    Row("avg-pool2d-padded", of(lambda x: F.avg_pool2d(x, 3, 2, 1)), f32(2, 3, 7, 7)),
    Row("avg-pool3d", of(lambda x: F.avg_pool3d(x, 2)), f32(1, 3, 4, 4, 4)),
    Row("adaptive-avg-pool2d", of(lambda x: F.adaptive_avg_pool2d(x, 1)), f32(2, 3, 4, 4), dynamic="batch"),
    Row("adaptive-avg-pool2d-2", of(lambda x: F.adaptive_avg_pool2d(x, 2)), f32(2, 3, 6, 6)),
    Row("adaptive-avg-pool1d", of(lambda x: F.adaptive_avg_pool1d(x, 2)), f32(2, 3, 6)),
    Row("adaptive-avg-pool3d", of(lambda x: F.adaptive_avg_pool3d(x, 2)), f32(1, 3, 4, 4, 4)),
    Row("mean", of(lambda x: x.mean([2, 3])), f32(2, 3, 4, 5)),
    Row("mean-keepdim", of(lambda x: x.mean([2, 3], keepdim=True)), f32(2, 3, 4, 5)),
    Row("upsample-bilinear", of(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")), f32(1, 3, 3, 4)),
    Row(
        "upsample-bilinear-size",
        of(lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=True)),
        f32(1, 3, 3, 4),
    ),
]
MOVES = [
    Row("view", of(lambda x: x.view(3, 8).reshape(4, 6)), f32(2, 3, 4)),
    Row("flatten", of(lambda x: torch.flatten(x, 1)), f32(2, 3, 4), dynamic="batch"),
    Row("permute", of(lambda x: x.permute(2, 0, 1).transpose(0, 1)), f32(2, 3, 4)),
    Row("t", of(lambda x: x.t().contiguous()), f32(2, 3)),
    Row("slice", of(lambda x: x[:, 1:, ::2]), f32(2, 3, 4)),
    Row("select", of(lambda x: x[1]), f32(2, 3, 4)),
    Row("unsqueeze", of(lambda x: x.unsqueeze(1).squeeze(1)), f32(2, 3)),
    Row("squeeze", of(lambda x: x.squeeze().clone()), f32(2, 1, 3)),
    Row("chunk", of(lambda x: x.chunk(2, 1)), f32(2, 4)),
    Row("split", of(lambda x: x.split(3, 1)), f32(2, 4)),
    Row("split-sizes", of(lambda x: x.split([1, 3], 1)), f32(2, 4)),
    Row("squeeze-axes", of(lambda x: x.squeeze((1, 2)).repeat(2, 1)), f32(2, 1, 1, 3)),
    Row("stack", of(lambda x, y: torch.stack([x, y])), f32(2, 4), f32(2, 4)),
    Row(
        "stack-scales",
        lambda x, y: torch.stack([quantized(x), quantized(y, 0.02, 100)], 1).int_repr(),
        f32(2, 4),
        f32(2, 4),
        trap="the scale of the first",
    ),
    Row("unbind", of(lambda x: x.unbind(0)), f32(2, 4)),
    Row("expand", of(lambda x: x.expand(3, 2, 4).contiguous()), f32(2, 4)),
    Row("flip", of(lambda x: x.flip(1)), f32(2, 4)),
    Row("index-select", of(lambda x: x.index_select(1, torch.tensor([2, 0]))), f32(2, 4)),
    Row("channel-shuffle", of(lambda x: F.channel_shuffle(x, 2)), f32(2, 4, 3, 3)),
    Row("pixel-shuffle", of(lambda x: F.pixel_shuffle(x, 2)), f32(2, 4, 3, 3)),
    Row("pad", of(lambda x: F.pad(x, (1, 2), value=0.5)), f32(2, 4), trap="the border is a number, not an integer"),
    Row("pad-reflect", of(lambda x: F.pad(x, (1, 2), mode="reflect")), f32(2, 3, 5)),
    Row("nearest", of(lambda x: F.interpolate(x, scale_factor=2.0)), f32(1, 3, 3, 4)),
    Row("nearest-size", of(lambda x: F.interpolate(x, (5, 7))), f32(1, 3, 3, 4)),
    Row("size", of(lambda x: x.view(x.size(0), -1)), f32(2, 3, 4), dynamic="batch"),
    Row("narrow-unflatten", of(lambda x: x.narrow(1, 1, 4).unflatten(1, (2, 2)).movedim(0, 1)), f32(2, 6)),
    Row("detach", of(lambda x: x.detach()), f32(2, 6)),
    Row(
        "channels",
        lambda x: (
            torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, QUINT8)
            .contiguous()
            .int_repr()
        ),
        f32(2, 3),
    ),
]
DYNAMIC = [
    Row(
        "linear-dynamic",
        layer(Packed, OPS.linear_prepack, OPS.linear_dynamic, (5, 7), dynamic=True),
        f32(3, 7),
        dynamic="batch",
    ),
    Row(
        "linear-relu-dynamic",
        layer(Packed, OPS.linear_prepack, OPS.linear_relu_dynamic, (5, 7), dynamic=True),
        f32(3, 7),
    ),
    Row(
        "linear-half",
        layer(lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(7, 5)), dtype=torch.float16)),
        f32(3, 7),
    ),
    Row(
        "conv2d-dynamic",
        layer(Packed, OPS.conv2d_prepack, OPS.conv2d_dynamic, (4, 3, 3, 3), *PLAIN, dynamic=True),
        f32(2, 3, 6, 6),
    ),
    Row("weight-only", WeightOnly, f32(3, 64)),
    Row(
        "conv1d-dynamic",
        layer(Packed, OPS.conv1d_prepack, OPS.conv1d_dynamic, (4, 3, 3), [1], [1], [1], 1, dynamic=True),
        f32(2, 3, 6),
    ),
    Row("embedding", layer(lambda: quantized_embedding()), i64(3, 4, low=0, high=10), dynamic="batch"),
]


def quantized_embedding():
    model = nn.Sequential(nn.Embedding(10, 12))
    model.qconfig = torch.ao.quantization.float_qparams_weight_only_qconfig
    return torch.ao.quantization.convert(torch.ao.quantization.prepare(model))


ALL = [*LAYERS, *ARITHMETIC, *ACTIVATIONS, *NORMS, *POOLS, *MOVES, *DYNAMIC]
for _row in ALL:
    _packed = isinstance(_row.model, Layer) and _row.model.factory is Packed  # which torch.jit.script refuses
    _row.routes, _row.opsets = TRACE if _packed else (*TRACE, "script"), (13, 20)


@pytest.mark.parametrize(("row", "plan"), row_params(ALL))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
