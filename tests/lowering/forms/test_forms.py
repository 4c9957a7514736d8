"""Operators in dtypes without a kernel: ONNX Runtime loads each file, and computes what torch does.

The bounds for float64 are far below a float32's rounding, and near a double's own.
"""

from __future__ import annotations

import functools
import math

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

import purexport
from proto_schema import operators
from proto_schema.operators import runtimes
from purexport.lowering.core.running import FORMS
from purexport.lowering.rules import registered
from tests.harness import Row, boolean, f64, i32, i64, u8, values
from tests.row_plans import Plan, row_params, run_row

AT = (9, 13, 20, 23)
EXACTLY = {"rtol": 1e-13, "atol": 1e-300}  # relative alone: near zero too
NEARLY = {"rtol": 1e-11, "atol": 1e-13}  # sums of products
DOUBLE = torch.float64
EDGES = [-math.inf, -1e200, -700.0, -30.0, -5.5, -1.0, -0.3, -1e-9, -1e-200, -0.0, math.nan]
REAL = values([*EDGES, *(-item for item in EDGES), 0.45, 2.7], DOUBLE)
TURNS = values([-40.3, -4.712, -1.0, -1e-9, 0.0, 0.3, 1.5707, 3.0], DOUBLE)
UNIT = values([-1.0, -1 + 1e-15, -0.9, -0.3, -1e-9, 0.0, 1e-200, 0.5, 0.99, 1.0, 1.5, -1.5, math.nan], DOUBLE)
IMAGE, SIGNAL = f64(2, 4, 7, 6), f64(2, 4, 9)
LOWEST = values([[[-(2**63)] * 3] * 3], torch.int64)  # as low as what pads


def _row(name, model, *inputs, **options):
    return Row(name, model, *inputs, opsets=options.pop("opsets", AT), routes=("trace",), **options)


def _in(dtype, function):
    """The function in another dtype, between float32 ends that every runtime takes."""
    return lambda *args: function(*(item.to(dtype) if item.is_floating_point() else item for item in args)).float()


def _double(layer_of, *args, **options):
    return functools.partial(_made, layer_of, args, options)


class _Made(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)


def _made(layer_of, args, options):
    torch.manual_seed(0)
    return _Made(layer_of(*args, **options, dtype=DOUBLE)).eval()


FUNCTIONS = [
    _row("sinh", torch.sinh, REAL, **EXACTLY),
    _row("cosh", torch.cosh, REAL, **EXACTLY),
    _row("tan", torch.tan, TURNS, rtol=1e-11, atol=1e-300),
    _row("asinh", torch.asinh, REAL, **EXACTLY),
    _row("acosh", torch.acosh, REAL, **EXACTLY),
    _row("atanh", torch.atanh, UNIT, **EXACTLY),
    _row("atan", torch.atan, REAL, **EXACTLY),
    _row("atan2", torch.atan2, f64(3, 4), f64(4), **EXACTLY),
    _row("asin", torch.asin, UNIT, **EXACTLY),
    _row("acos", torch.acos, UNIT, **EXACTLY),
    _row("erf", torch.erf, REAL, **EXACTLY),
    _row("gelu", functional.gelu, f64(3, 4), **NEARLY),
    _row("softplus", functional.softplus, REAL, **EXACTLY),
    _row("elu", lambda x: functional.elu(x, 0.3), REAL, **EXACTLY),
    _row("celu", lambda x: functional.celu(x, 0.3), f64(3, 4), **EXACTLY),
    _row("mish", functional.mish, f64(3, 4), **EXACTLY),
    _row("prelu", functional.prelu, f64(2, 3, 4), f64(3), **EXACTLY),
    _row("logsigmoid", functional.logsigmoid, f64(3, 4), **EXACTLY),
    _row("instance-norm", lambda x: functional.instance_norm(x), f64(2, 3, 5), **NEARLY),
]
WINDOWS = [
    _row("conv", _double(nn.Conv2d, 4, 6, 3, stride=2, padding=1)(), IMAGE, **NEARLY),
    _row("conv-groups", _double(nn.Conv2d, 4, 6, (3, 2), dilation=2, groups=2)(), IMAGE, dynamic="batch", **NEARLY),
    _row("conv-any-length", _double(nn.Conv1d, 4, 6, 3, padding=1)(), SIGNAL, dynamic={0: {2: "length"}}, **NEARLY),
    _row(
        "conv-whole", lambda x, w: functional.conv2d(x, w, padding=1), i64(1, 2, 5, 4), i64(3, 2, 3, 3), opsets=AT[1:]
    ),
    _row("conv-transposed", _double(nn.ConvTranspose2d, 4, 6, 3, 2, 1, 1, 2)(), IMAGE, **NEARLY),
    _row(
        "conv-transposed-any-length",
        _double(nn.ConvTranspose1d, 4, 6, 3, 3, 2, dilation=2)(),
        SIGNAL,
        dynamic={0: {2: "length"}},
        **NEARLY,
    ),
    _row("mean-pool", nn.AvgPool2d(3, 2, 1), IMAGE, **NEARLY),
    _row("mean-pool-uncounted", nn.AvgPool2d(3, 2, 1, True, False), IMAGE, opsets=AT[1:], **NEARLY),
    _row("mean-pool-whole", nn.AvgPool2d(3, 2, 1), i64(1, 2, 5, 4), opsets=AT[1:]),
    _row(
        "mean-pool-by-number",
        nn.AvgPool2d(3, 2, 1, divisor_override=4),
        i64(1, 2, 5, 4),
        opsets=AT[1:],
        trap="the sum is divided once, and the quotient truncated",
    ),
    _row("mean-pool-all", nn.AdaptiveAvgPool2d(1), IMAGE, **NEARLY),
    _row("max-pool-long", nn.MaxPool2d(3, 2, 1, return_indices=True), i64(2, 3, 5, 4), opsets=AT[1:], dynamic="batch"),
    _row("max-pool-int", nn.MaxPool2d(2, return_indices=True), i32(2, 3, 5, 4), opsets=AT[1:]),
    _row("max-pool-of-lowest", nn.MaxPool2d(2, 2, 1, return_indices=True), LOWEST, opsets=AT[1:]),
]
STEPS = [
    _row("lstm", _double(nn.LSTM, 4, 3, 2, bidirectional=True)(), f64(5, 2, 4), **NEARLY),
    _row("lstm-any-length", _double(nn.LSTM, 4, 3)(), f64(5, 2, 4), dynamic={0: {0: "time"}}, opsets=AT[1:], **NEARLY),
    _row("gru", _double(nn.GRU, 4, 3, bidirectional=True)(), f64(5, 2, 4), **NEARLY),
    _row("rnn-unbiased", _double(nn.RNN, 4, 3, 2, bias=False)(), f64(5, 2, 4), opsets=(9, 20), **NEARLY),
    _row("rnn", _double(nn.RNN, 4, 3, nonlinearity="relu")(), f64(5, 2, 4), **NEARLY),
]
SMALL = [
    _row("kron-truth", torch.kron, boolean(2, 2), boolean(3, 1)),
    _row("addr-truth", torch.addr, boolean(2, 3), boolean(2), boolean(3)),
    _row("pad-truth", lambda x: functional.pad(x, (1, 1), value=True), boolean(2, 3)),
    _row("fill-truth", lambda x: torch.full_like(x, True) ^ x, boolean(2, 3)),
    _row(
        "index-fill-truth",
        lambda x, i: x.index_fill(1, i, True),
        boolean(2, 3),
        values([0, 2], torch.int64),
        opsets=AT[1:],
    ),
    _row(
        "scatter-reduce-truth",
        lambda x, i, s: x.scatter_reduce(1, i, s, "amin"),
        boolean(2, 3),
        values([[0, 0], [2, 1]], torch.int64),
        boolean(2, 2),
        opsets=(20, 23),
    ),
    _row(
        "index-reduce-mean",
        lambda x, i, s: x.index_reduce(0, i, s, "mean"),
        i64(3, 2),
        values([0, 0, 2], torch.int64),
        i64(3, 2),
        opsets=(16, 20),
    ),
    _row("einsum-bytes", lambda x, y: torch.einsum("ij,jk->ik", x, y), u8(2, 3), u8(3, 2), opsets=(13, 20)),
    _row("einsum-sum", lambda x: torch.einsum("ij->", x), i32(2, 3), opsets=(13, 20)),
    _row("distance-bytes", lambda x, y: functional.pairwise_distance(x, y), u8(2, 3), u8(2, 3), opsets=(13, 20)),
    _row(
        "added-product",
        lambda a, b, c: torch.addmm(a, b, c, beta=0.1, alpha=0.3),
        f64(2),
        f64(2, 3),
        f64(3, 2),
        **EXACTLY,
    ),
    _row("added-vector", lambda a, b, c: torch.addmv(a, b, c, alpha=0.3), f64(2), f64(2, 3), f64(3), **EXACTLY),
]
LINE = values([[-1.75, 0.5, 3.0], [2.25, -0.125, 8.0]])
BFLOAT16 = [
    _row(
        f"bfloat16-{name}",
        _in(torch.bfloat16, function),
        *inputs,
        opsets=(13, 20, 23),
        rtol=2**-7,
        atol=2**-9,
        loose="the numbers are those of bfloat16, and a unit in its last place is 2**-7",
    )
    for name, function, inputs in (
        ("add", lambda x: x + 0.1, [LINE]),
        ("linear", lambda x: functional.linear(x, torch.ones(2, 3, dtype=torch.bfloat16)), [LINE]),
        ("softmax", lambda x: x.softmax(-1), [LINE]),
        ("layer-norm", lambda x: functional.layer_norm(x, [3]), [LINE]),
        ("where", lambda x: torch.where(x > 0, x, -x), [LINE]),
        ("conv", lambda x: functional.conv1d(x[None], torch.ones(1, 2, 2, dtype=torch.bfloat16)), [LINE]),
        ("sum", lambda x: x.sum(0).cumsum(0), [LINE]),
        ("gelu", functional.gelu, [LINE]),
    )
]
ROWS = [*FUNCTIONS, *WINDOWS, *STEPS, *SMALL, *BFLOAT16]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


# Targets ------------------------------------------------------------------------------------------------------------


def _types(target: str, model, x: torch.Tensor, opset: int = 20) -> list[str]:
    program = purexport.export(model, x, opset_version=opset, target=target)
    return [node.op_type for node in program.model_proto.graph.node]


def test_any_target_keeps_the_dtype_of_the_model() -> None:
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    assert _types("onnx; any", torch.exp, x) == ["Exp"]
    assert _types("onnx", torch.exp, x) == ["Cast", "Exp", "Cast"]
    assert _types("onnx", torch.exp, x.float()) == ["Exp"]
    assert _types("onnx", torch.exp, x.half()) == ["Exp"]  # the runtime itself casts these


def test_an_older_release_has_fewer_kernels() -> None:
    """The kernels differ between releases, and so do the forms."""
    release, newest = runtimes.releases()[0], runtimes.newest()
    differing = [
        (name, opset, dtype)
        for opset in (13, 17, 20)
        for name in operators.operators(opset)
        for schema in [operators.schema(name, opset)]
        for dtype in (2, 3, 6, 7, 11)
        if schema is not None
        and newest.runs(name, schema.since_version, {"T": dtype})
        and not release.runs(name, schema.since_version, {"T": dtype})
    ]
    assert differing
    assert _types(f"onnx; onnxruntime=={release.version}", torch.acos, torch.ones(2))


def test_what_no_form_can_run_is_said() -> None:
    program = purexport.export(torch.linalg.det, torch.eye(3, dtype=DOUBLE)[None].repeat(2, 1, 1), opset_version=20)
    kept = [node.op_type for node in program.model_proto.graph.node]
    assert ("Det" in kept) == ("no CPU kernel of Det" in program.report.as_text())


def test_each_form_is_of_an_operator() -> None:
    registered()
    known = {name for opset in range(9, 27) for name in operators.operators(opset)}
    assert {op_type for op_type, _ in FORMS} <= known
    assert onnx.defs.has("Elu")
