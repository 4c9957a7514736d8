"""Quantize, dequantize and fake-quantize.

Where numbers fall between two steps to the last bit, torch and ONNX may take different ones (see lowering/qdq.py): the
inputs here are drawn, and those that are ties on purpose have a scale that is a power of two.
"""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares quantized_decomposed

from tests.harness import Row, f16, f32, i8, layer, u8, values
from tests.row_plans import Plan, row_params, run_row

TIES = [0.25, 0.75, 1.25, -0.25, -0.75, 100.0, -100.0]
CHANNELS = torch.tensor([0.1, 0.25, 0.5])
ZEROS = torch.tensor([3, 0, -5])
QUINT8, QINT8, QINT32 = torch.quint8, torch.qint8, torch.qint32
Q = torch.ops.quantized_decomposed
TRACE = ("trace",)  # torch.export has no fakes of these
SCRIPT = (*TRACE, "script")


def per_tensor(scale, zero_point, dtype):
    return lambda x: torch.quantize_per_tensor(x, scale, zero_point, dtype).dequantize()


def per_channel(axis, dtype=QINT8):
    return lambda x: torch.quantize_per_channel(x, CHANNELS, ZEROS, axis, dtype).dequantize()


def integers(scale, zero_point, dtype):
    return lambda x: torch.quantize_per_tensor(x, scale, zero_point, dtype).int_repr()


class FakeQuant(torch.nn.Module):
    """A fake-quantize module of torch.ao that has seen numbers, with the observer off."""

    def __init__(self, kind="default_fake_quant"):
        super().__init__()
        self.fake = getattr(torch.ao.quantization, kind)()
        self.fake(torch.randn(3, 8))
        self.fake.disable_observer()

    def forward(self, x):
        return self.fake(x)


AFFINE = [
    Row("quint8", per_tensor(0.1, 128, QUINT8), f32(3, 7)),
    Row("qint8", per_tensor(0.03, -5, QINT8), f32(3, 7)),
    Row("ties", per_tensor(0.5, 4, QINT8), values(TIES), trap="half to even, then the limits"),
    Row("integers", integers(0.5, 4, QUINT8), values(TIES), routes=SCRIPT),
    Row("qint32", per_tensor(1e-5, 3, QINT32), f32(3, 7), trap="ONNX has no QuantizeLinear to int32"),
    Row("qint32-integers", integers(0.25, -7, QINT32), values(TIES), routes=SCRIPT),
    Row(
        "tensor-parameters",
        lambda x, s, z: torch.quantize_per_tensor(x, s, z, QUINT8).dequantize(),
        f32(3, 7),
        values(0.125),
        values(5, torch.int32),
        routes=TRACE,
    ),
    Row(
        "several",
        lambda x, y: [
            q.dequantize()
            for q in torch.quantize_per_tensor(
                [x, y], torch.tensor([0.1, 0.2]), torch.tensor([3, 4], dtype=torch.int32), QUINT8
            )
        ],
        f32(3, 7),
        f32(2),
        routes=TRACE,
    ),
    Row(
        "dequantize-several",
        lambda x, y: torch.dequantize([torch.quantize_per_tensor(v, 0.1, 3, QUINT8) for v in (x, y)]),
        f32(3, 7),
        f32(2),
        routes=TRACE,
    ),
    Row("channels", per_channel(0), f32(3, 7), routes=TRACE, trap="before opset 13 there is no axis"),
    Row("channels-middle", per_channel(1), f32(2, 3, 4), routes=TRACE, dynamic="batch"),
    Row("channels-last", per_channel(1), f32(2, 3), routes=TRACE),
    Row("channels-of-one-axis", per_channel(0), f32(3), routes=TRACE),
    Row(
        "make-quantized",
        lambda x: torch._make_per_tensor_quantized_tensor(x, 0.25, 3).dequantize(),
        u8(3, 4),
        routes=TRACE,
    ),
    Row("dequantize-plain", torch.dequantize, f16(3, 4), routes=TRACE),
    Row("dynamic-batch", per_tensor(0.1, 128, QUINT8), f32(3, 7), dynamic="batch", routes=TRACE),
]

DYNAMIC = [
    Row(
        f"dynamic-{name}",
        lambda x, dtype=dtype, reduce=reduce: torch.quantize_per_tensor_dynamic(x, dtype, reduce).dequantize(),
        given,
        opsets=(13, 20),
        routes=TRACE,
    )
    for name, dtype, reduce, given in [
        ("quint8", QUINT8, False, f32(5, 9)),
        ("reduced", QUINT8, True, f32(5, 9)),
        ("qint8", QINT8, False, f32(5, 9)),
        ("qint8-reduced", QINT8, True, f32(5, 9)),
        ("positive", QUINT8, False, f32(5, 9, low=1)),
        ("negative", QUINT8, False, f32(5, 9, high=-1)),
        ("zeros", QUINT8, False, values([0.0, 0.0])),
        ("small", QUINT8, False, f32(9, low=-1e-4, high=2e-4)),
    ]
]

FAKE = [
    Row("fake", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), f32(3, 7)),
    Row(
        "fake-odd-ties",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 3, 0, 255),
        values(TIES),
        trap="the zero point is added after the rounding",
    ),
    Row(
        "fake-narrow",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.01, 0, -127, 127),
        f32(3, 7),
        trap="-128 must not appear",
    ),
    Row("fake-4-bit", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 1, -8, 7), f32(9, 7)),
    Row("fake-16-bit", lambda x: torch.fake_quantize_per_tensor_affine(x, 1e-4, 9, -32768, 32767), f32(9)),
    Row("fake-u16", lambda x: torch.fake_quantize_per_tensor_affine(x, 1e-4, 9, 0, 65535), f32(9)),
    Row("fake-half", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 3, 0, 255), f16(3, 7)),
    Row(
        "fake-tensor-parameters",
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, 0, 255),
        f32(3, 7),
        values(0.125),
        values(5, torch.int32),
    ),
    Row(
        "fake-tensor-parameters-narrow",
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, 2, 9),
        f32(3, 7),
        values(0.125),
        values(5, torch.int32),
    ),
    Row(
        "fake-channels",
        lambda x: torch.fake_quantize_per_channel_affine(x, CHANNELS, ZEROS.int(), 1, -128, 127),
        f32(2, 3, 4),
    ),
    Row(
        "fake-channels-narrow",
        lambda x: torch.fake_quantize_per_channel_affine(x, CHANNELS, ZEROS.int(), 0, -7, 7),
        f32(3, 4),
    ),
    Row(
        "fake-mask",
        lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 0, -4, 3),
        values([*TIES, 1.5, 1.75, 1.76, -2.25, -2.26]),
    ),
    Row(
        "fake-channels-mask",
        lambda x: torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, CHANNELS, ZEROS.int(), 0, -7, 7),
        f32(3, 9),
    ),
    *(
        Row(
            f"fake-switch-{on}",
            lambda x, s, z, on: torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                x, s, z, on, -4, 3
            ),
            f32(3, 9),
            values([0.5]),
            values([1], torch.int32),
            values([on], torch.int64),
        )
        for on in (0, 1)
    ),
    Row("fake-module", FakeQuant, f32(3, 8), routes=TRACE),
    *(
        Row(f"fake-module-{kind}", layer(FakeQuant, kind), f32(3, 8), routes=TRACE)
        for kind in [
            "default_per_channel_weight_fake_quant",
            "default_weight_fake_quant",
            "default_fused_act_fake_quant",
            "default_fused_wt_fake_quant",
            "default_fused_per_channel_wt_fake_quant",
        ]
    ),
]

DECOMPOSED = [
    Row("d-quantize", lambda x: Q.quantize_per_tensor(x, 0.1, 3, 0, 255, torch.uint8), f32(3, 7)),
    Row(
        "d-quantize-narrow",
        lambda x: Q.quantize_per_tensor(x, 0.01, 0, -127, 127, torch.int8),
        f32(3, 7),
    ),
    Row(
        "d-quantize-16-bit",
        lambda x: Q.quantize_per_tensor(x, 1e-4, 0, -32768, 32767, torch.int16),
        f32(3, 7),
    ),
    Row(
        "d-quantize-32-bit",
        lambda x: Q.quantize_per_tensor(x, 1e-4, 0, -(2**31), 2**31 - 1, torch.int32),
        f32(3, 7),
        traced="found type 'float'",
    ),
    Row(
        "d-both",
        lambda x: Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8), 0.1, 3, -128, 127, torch.int8
        ),
        f32(3, 7),
        dynamic="batch",
    ),
    Row(
        "d-both-half",
        lambda x: Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, 0.125, 3, -128, 127, torch.int8),
            0.125,
            3,
            -128,
            127,
            torch.int8,
            out_dtype=torch.float16,
        ),
        f16(3, 7),
    ),
    Row(
        "d-tensor",
        lambda x, s, z: Q.dequantize_per_tensor.tensor(
            Q.quantize_per_tensor.tensor(x, s, z, 0, 255, torch.uint8), s, z, 0, 255, torch.uint8
        ),
        f32(3, 7),
        values([0.25]),
        values([7], torch.int64),
    ),
    Row(
        "d-tensor2",
        lambda x: Q.dequantize_per_tensor.tensor2(
            Q.quantize_per_tensor.tensor2(x, *D_PARAMETERS, torch.uint8), *D_PARAMETERS, torch.uint8
        ),
        f32(3, 7),
        routes=TRACE,
    ),
    Row(
        "d-channels",
        lambda x: Q.dequantize_per_channel(
            Q.quantize_per_channel(x, CHANNELS, ZEROS, 1, -127, 127, torch.int8),
            CHANNELS,
            ZEROS,
            1,
            -127,
            127,
            torch.int8,
        ),
        f32(2, 3, 4),
    ),
    Row(
        "d-channels-symmetric",
        lambda x: Q.dequantize_per_channel(x, CHANNELS, None, 1, -127, 127, torch.int8),
        i8(2, 3, 4),
    ),
    Row(
        "d-dequantize-int32",
        lambda x: Q.dequantize_per_tensor(x.int(), 0.1, 0, -9, 9, torch.int32),
        i8(7),
    ),
    Row("d-fake-channels", lambda x: Q.fake_quant_per_channel(x, CHANNELS, ZEROS, 0, -128, 127), f32(3, 4)),
    Row(
        "d-group",
        lambda x, s, z: Q.dequantize_per_channel_group(
            Q.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 4), s, z, -8, 7, torch.int8, 4, torch.float32
        ),
        f32(3, 8),
        f32(3, 2, low=0.1, high=0.2),
        values([[1, 2], [3, -1], [0, 0]], torch.int8),
    ),
    Row(
        "d-token",
        lambda x: Q.dequantize_per_token(
            Q.quantize_per_token(x, *Q.choose_qparams_per_token_asymmetric(x, torch.int8), -128, 127, torch.int8),
            *Q.choose_qparams_per_token_asymmetric(x, torch.int8),
            -128,
            127,
            torch.int8,
            torch.float32,
        ),
        f32(3, 8),
    ),
    Row("d-choose", lambda x: Q.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8), f32(3, 8)),
    Row(
        "d-choose-positive",
        lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8),
        f32(9, low=1),
    ),
    Row("d-choose-symmetric", lambda x: Q.choose_qparams_symmetric.tensor(x, -128, 127, 1e-6, torch.int8), f32(3, 8)),
    Row(
        "d-choose-symmetric-unsigned", lambda x: Q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-6, torch.uint8), f32(9)
    ),
    Row("d-choose-token", lambda x: Q.choose_qparams_per_token(x, torch.int8), f32(3, 8), routes=TRACE),
]
D_PARAMETERS = [torch.tensor([0.25]), torch.tensor([7]), torch.tensor([0]), torch.tensor([255])]


@pytest.mark.parametrize(("row", "plan"), row_params([*AFFINE, *DYNAMIC, *FAKE, *DECOMPOSED]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
