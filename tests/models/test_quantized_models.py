"""Whole quantized models, as torch makes them: eager mode, quantization-aware training, PT2E's operators, torchvision.

Every layer rounds, and a number that lies between two steps to the last bit may go to the other one.  So the integers
before the last dequantize may differ by a few steps, and nearly all must be equal (see `agrees`).
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import pytest
import torch
import torch.ao.quantization as tq
import torch.ao.quantization.fx._decomposed  # declares quantized_decomposed
from torch import nn
from torch.nn import functional

import purexport
from tests.harness import check_file, run_ort
from tests.tolerances import assert_near
from tests.torchvision_shim import torchvision

ENGINE = "x86"


class Net(nn.Module):
    """Convolutions with norms, a residual sum, a concatenation, pools and a linear layer."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.first, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.second, self.act = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Hardswish()
        self.sum, self.join = torch.ao.nn.quantized.FloatFunctional(), torch.ao.nn.quantized.FloatFunctional()
        self.pool, self.linear = nn.MaxPool2d(2), nn.Linear(16, 5)

    def forward(self, x):
        x = self.relu(self.norm(self.first(self.quant(x))))
        y = self.act(self.second(x))
        x = self.pool(self.join.cat([self.sum.add_relu(x, y), y], 1))
        x = torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)
        return self.dequant(self.linear(x))


def calibrated(model, *inputs):
    model.qconfig = tq.get_default_qconfig(ENGINE)
    prepared = tq.prepare(model)
    prepared(*inputs)
    return tq.convert(prepared)


def eager():
    model = tq.fuse_modules(Net().eval(), [["first", "norm", "relu"]])
    return calibrated(model, torch.randn(8, 3, 12, 12)), torch.randn(4, 3, 12, 12)


def unfused():
    return calibrated(Net().eval(), torch.randn(8, 3, 12, 12)), torch.randn(4, 3, 12, 12)


def trained():
    model = tq.fuse_modules_qat(Net().train(), [["first", "norm", "relu"]])
    model.qconfig = tq.get_default_qat_qconfig(ENGINE)
    prepared = tq.prepare_qat(model)
    prepared(torch.randn(8, 3, 12, 12))
    return tq.convert(prepared.eval()), torch.randn(4, 3, 12, 12)


def perceptron():
    layers = nn.Sequential(tq.QuantStub(), nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 4), tq.DeQuantStub()).eval()
    return calibrated(tq.fuse_modules(layers, [["1", "2"]]), torch.randn(20, 9)), torch.randn(6, 9)


def dynamic():
    layers = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    return tq.quantize_dynamic(layers, {nn.Linear}), torch.randn(6, 9)


class Decomposed(nn.Module):
    """What PT2E makes of a convolution and a linear layer: integers and parameters beside plain operators."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.randint(-127, 128, (4, 3, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.linspace(0.001, 0.002, 4))
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("weight", torch.randint(-127, 128, (5, 4), dtype=torch.int8))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        x = self.rounded(x, 0.03, 120)
        kernel = ops.dequantize_per_channel(self.kernel, self.scales, self.zeros, 0, -127, 127, torch.int8)
        x = self.rounded(torch.relu(functional.conv2d(x, kernel)), 0.02, 0)
        x = self.rounded(x.mean([2, 3]), 0.02, 0)
        weight = ops.dequantize_per_tensor(self.weight, 0.01, 0, -127, 127, torch.int8)
        return self.rounded(functional.linear(x, weight), 0.02, 128)

    @staticmethod
    def rounded(x, scale, zero):
        ops = torch.ops.quantized_decomposed
        q = ops.quantize_per_tensor(x, scale, zero, 0, 255, torch.uint8)
        return ops.dequantize_per_tensor(q, scale, zero, 0, 255, torch.uint8)


def pt2e():
    return Decomposed(), torch.randn(2, 3, 8, 8)


def vision(name):
    def make():
        model = getattr(torchvision().models.quantization, name)(weights=None, quantize=False).eval()
        model.fuse_model()
        return calibrated(model, torch.randn(4, 3, 64, 64)), torch.randn(2, 3, 64, 64)

    return make


def agrees(actual, expected, steps, share):
    """At most `steps` of the result's own scale apart, and at least a `share` of the numbers equal."""
    found = np.unique(np.abs(expected))
    step = np.diff(found).min() if len(found) > 1 else 1.0
    off = np.round(np.abs(actual - expected) / step)
    assert off.max() <= steps, f"{off.max()} steps apart"
    assert (off == 0).mean() >= share, f"only {(off == 0).mean():.2%} are equal"


@functools.cache
def made(make):
    """The model and its example.  Do not change it: it is shared by the tests of one process."""
    torch.backends.quantized.engine = ENGINE
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return make()


# (model, most steps apart, least share that is equal)
MODELS = {
    "eager": (eager, 1, 0.95),
    "unfused": (unfused, 1, 0.95),
    "trained": (trained, 1, 0.9),  # each release of torch trains other weights
    "perceptron": (perceptron, 1, 0.95),
    "pt2e": (pt2e, 1, 0.95),
}


@pytest.mark.parametrize("opset", [13, *(pytest.param(opset, marks=pytest.mark.full) for opset in (20, 23))])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, opset):
    make, steps, share = MODELS[name]
    model, x = made(make)
    axes = {"x": {0: "batch"}}
    program = purexport.export(model, (x,), input_names=["x"], opset_version=opset, dynamic_axes=axes, capture="trace")
    data = program.model_proto.SerializeToString()
    check_file(data, opset)
    for value in (x, x[:1], torch.cat([x, -x])):
        found = run_ort(data, [value.numpy()], optimized=name != "pt2e")[0]
        agrees(found, model(value).numpy(), steps, share)


@pytest.mark.parametrize("name", ["eager", pytest.param("unfused", marks=pytest.mark.full), "perceptron"])
@pytest.mark.parametrize("traced", [False, True], ids=["script", "traced"])
def test_script(name, traced):
    make, steps, share = MODELS[name]
    model, x = made(make)
    script = torch.jit.trace(model, x) if traced else torch.jit.script(model)
    data = purexport.export(script, (x,), dynamic_axes={"x": {0: "batch"}}, input_names=["x"])
    data = data.model_proto.SerializeToString()
    for value in (x, x[:1], torch.cat([x, -x])):
        agrees(run_ort(data, [value.numpy()])[0], model(value).numpy(), steps, share)


def test_script_of_dynamic():
    model, x = made(dynamic)
    data = purexport.export(torch.jit.script(model), (x,)).model_proto.SerializeToString()
    assert_near(run_ort(data, [x.numpy()])[0], model(x))


@torch.jit.script
def asks(x):
    q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    return q.dequantize() if q.is_quantized else x


def test_a_script_that_asks_what_is_quantized_is_refused():
    with pytest.raises(
        purexport.ExportError,
        match=r"asks for is_quantized of what aten::quantize_per_tensor gives at .*test_quantized_models.py:\d+",
    ):
        purexport.export(asks, (torch.randn(3),))


def test_pt2e_by_export():
    model, x = made(pt2e)
    data = purexport.export(model, (x,), capture="export").model_proto.SerializeToString()
    agrees(run_ort(data, [x.numpy()])[0], model(x).numpy(), 1, 0.95)


def test_dynamic():
    """The input's own range decides each step, so the numbers are compared."""
    model, x = made(dynamic)
    data = purexport.export(model, (x,), dynamic_axes={"input": {0: "batch"}}).model_proto.SerializeToString()
    for value in (x, x[:2]):
        assert_near(run_ort(data, [value.numpy()])[0], model(value))


@pytest.mark.parametrize("name", ["eager", "perceptron", "dynamic", "pt2e"])
def test_weights_are_stored_as_integers(name):
    model, x = made({**{key: row[0] for key, row in MODELS.items()}, "dynamic": dynamic}[name])
    loaded = onnx.load_from_string(purexport.export(model, (x,)).model_proto.SerializeToString())
    matrices = [item for item in loaded.graph.initializer if len(item.dims) > 1]
    assert matrices
    assert {item.data_type for item in matrices} == {onnx.TensorProto.INT8}


def test_a_shared_layer_is_stored_once():
    model, x = made(perceptron)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x) + self.inner(x * 2)

    loaded = onnx.load_from_string(purexport.export(Both(), (x,)).model_proto.SerializeToString())
    assert len([item for item in loaded.graph.initializer if len(item.dims) > 1]) == 2


def test_a_quantized_output_is_refused():
    model, x = made(
        lambda: (calibrated(nn.Sequential(tq.QuantStub(), nn.Linear(3, 4)), torch.randn(4, 3)), torch.randn(2, 3))
    )
    with pytest.raises(purexport.ExportError, match=r"is a quantized tensor, and ONNX has none; return x.dequantize"):
        purexport.export(model, (x,), capture="trace")


def test_an_operator_without_a_quantized_form_is_refused():
    def model(x):
        return torch.topk(torch.quantize_per_tensor(x, 0.1, 3, torch.quint8), 2)[0].dequantize()

    with pytest.raises(purexport.UnsupportedOperatorError, match=r"aten::topk .* takes no quantized tensors here"):
        purexport.export(model, (torch.randn(4),), capture="trace")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_torchvision(name):
    model, x = made(vision(name))
    data = purexport.export(model, (x,), capture="trace").model_proto.SerializeToString()
    agrees(run_ort(data, [x.numpy()])[0], model(x).numpy(), 4, 0.5)
