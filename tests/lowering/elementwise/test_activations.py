"""Activations, as functions and as modules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import Row, f16, f32, f64, i64, layer, values
from tests.row_plans import Plan, row_params, run_row

BORDERS = values([-math.inf, -30.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 30.0, math.inf])

ROWS = [
    Row("relu", functional.relu, f32(3, 4)),
    Row("relu-int", torch.relu, i64(9)),
    Row("relu-nan", functional.relu, values([math.nan, -1.0]), trap="NaN stays"),
    Row("relu-inplace", nn.ReLU(inplace=True), f32(3, 4)),
    Row("relu6", functional.relu6, f32(9, low=-3, high=9)),
    Row("hardtanh", functional.hardtanh, f32(9)),
    Row("hardtanh-bounds", lambda x: functional.hardtanh(x, -0.25, 0.75), f32(9)),
    Row("hardtanh-module", layer(nn.Hardtanh, -2.0, 2.0), f32(9), dynamic="batch"),
    Row("gelu", functional.gelu, f32(3, 4)),
    Row("gelu-tanh", lambda x: functional.gelu(x, approximate="tanh"), f32(3, 4)),
    Row("gelu-half", functional.gelu, f16(9)),
    Row("silu", functional.silu, f32(9)),
    Row("mish", functional.mish, f32(9)),
    Row("hardsigmoid", functional.hardsigmoid, f32(9, low=-5, high=5)),
    Row("hardswish", functional.hardswish, f32(9, low=-5, high=5)),
    Row("leaky-relu", functional.leaky_relu, f32(9)),
    Row("leaky-relu-slope", lambda x: functional.leaky_relu(x, 0.3), f32(9)),
    Row("elu", functional.elu, BORDERS),
    Row("elu-alpha", lambda x: functional.elu(x, 0.7), f32(9)),
    Row("elu-scales", lambda x: torch.ops.aten.elu(x, 0.7, 1.3, 0.5), f32(9)),
    Row("elu-negative-scale", lambda x: torch.ops.aten.elu(x, 0.7, 1.3, -1.5), f32(9)),
    Row("elu-negative-scale-f64", lambda x: torch.ops.aten.elu(x, 0.7, 1.3, -1.5), f64(9)),
    Row("celu-negative-alpha", lambda x: functional.celu(x, -0.5), f32(9)),
    Row("selu", functional.selu, f32(9)),
    Row("celu", functional.celu, f32(9)),
    Row("celu-alpha", lambda x: functional.celu(x, 0.5), f32(9)),
    Row("softplus", functional.softplus, BORDERS),
    Row("softplus-beta", lambda x: functional.softplus(x, beta=2, threshold=3), f32(9, low=-3, high=3)),
    Row("softsign", functional.softsign, f32(9)),
    Row("tanhshrink", functional.tanhshrink, f32(9)),
    Row("softshrink", functional.softshrink, f32(9)),
    Row("softshrink-lambda", lambda x: functional.softshrink(x, 0.2), f32(9)),
    Row(
        "hardshrink",
        functional.hardshrink,
        values([-1.0, -0.5, 0.2, 0.5, 0.7, math.nan]),
        trap="the bound itself is zero",
    ),
    Row("logsigmoid", functional.logsigmoid, BORDERS),
    Row("logsigmoid-module", layer(nn.LogSigmoid), f32(9)),
    Row("logsigmoid-forward", lambda x: torch.ops.aten.log_sigmoid_forward(x)[0], f32(9)),
    Row("glu", functional.glu, f32(3, 4)),
    Row("glu-axis", lambda x: functional.glu(x, 1), f32(2, 6, 3), dynamic="batch"),
    Row("prelu-single", layer(nn.PReLU), f32(2, 3, 4)),
    Row("prelu-channels", layer(nn.PReLU, 3), f32(2, 3, 4, 5), dynamic="batch"),
    Row("prelu-matrix", layer(nn.PReLU, 4), f32(3, 4), dynamic="batch"),
    Row("prelu-vector", functional.prelu, f32(5), f32(1)),
    Row("prelu-zero-dim", functional.prelu, f32(), f32(1)),
    Row("prelu-kernel", torch.ops.aten._prelu_kernel, f32(2, 3), f32(1, 3)),
    Row("rrelu-eval", layer(nn.RReLU), f32(9)),
    Row("logit", torch.logit, f32(9, low=0.1, high=0.9)),
    Row("logit-eps", lambda x: torch.logit(x, 0.1), f32(9, low=0, high=1)),
    Row("special-logit", torch.special.logit, f32(9, low=0.1, high=0.9)),
    Row(
        "of-computed-numbers",
        lambda x: (
            functional.leaky_relu(x, x.size(0) * 0.5),
            functional.elu(x, x.size(0) / 3),
            functional.celu(x, x.size(0) * 0.5),
            functional.celu(x, -x.size(0) * 1.5),
            functional.softshrink(x, x.size(0) / 8),
            functional.hardshrink(x, x.size(0) / 8),
            functional.softplus(x, x.size(0) * 0.5),
        ),
        f32(4, low=-2, high=2),
        dynamic={0: {0: "n"}},
        sizes={"n": 1},
        every=(3, 7),
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
