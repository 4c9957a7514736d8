"""Training exports: dropout and batch normalization as training graphs, parameters untouched, the mode restored.

Random masks are compared by what they must be: a share of zeros, and the rest scaled; the drawing is the runtime's.
"""

from __future__ import annotations

import copy
import io
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import purexport
from purexport import TrainingMode
from tests.harness import run_ort
from tests.tolerances import assert_near


class Net(nn.Module):
    """A convolution before batch normalization, which an optimizer would fold into it; a weight that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=0.3), nn.Dropout(0.25)
        self.scale = nn.Parameter(torch.linspace(1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.conv(x))) * self.scale.abs().view(3, 1, 1)


IMAGE = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))
# training, the mode of the model before, does the file train?
MODES = [
    (TrainingMode.TRAINING, False, True),
    (TrainingMode.TRAINING, True, True),
    (True, False, True),
    (TrainingMode.PRESERVE, True, True),
    (TrainingMode.PRESERVE, False, False),
    (TrainingMode.EVAL, True, False),
    (False, True, False),
]


def exported(model: nn.Module, example: Tensor = IMAGE, **options: Any) -> onnx.ModelProto:
    with pytest.warns(UserWarning, match="writes to its buffer") if options.pop("writes", False) else nullcontext():
        program = purexport.export(model, (example,), **options)
    found = onnx.load_from_string(program.model_proto.SerializeToString())
    onnx.checker.check_model(found, full_check=True)
    return found


@pytest.mark.parametrize(("training", "before", "trains"), MODES)
def test_modes(training: TrainingMode | bool, before: bool, trains: bool) -> None:
    """The nodes say it, the parameters keep their names and values, and each module its mode."""
    model = Net().train(before)
    model.drop.train(not before if training is not TrainingMode.PRESERVE else before)
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = exported(model, training=training, writes=trains)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    weights = {item.name: onnx.numpy_helper.to_array(item) for item in found.graph.initializer}
    for name, parameter in model.named_parameters():
        if trains or name != "scale":
            np.testing.assert_array_equal(weights[name], parameter.detach().numpy())
    kinds = [node.op_type for node in found.graph.node]
    assert ("Dropout" in kinds) == trains
    assert ("Abs" in kinds) == trains  # of a parameter, which is to be trained
    # training runtimes look for the operator; where a model trains by itself, the batch is written out
    assert ("BatchNormalization" in kinds) == (training is not TrainingMode.PRESERVE or not trains)


NORMS: dict[str, tuple[nn.Module, Tensor, bool]] = {
    # the model, its input, and whether it has the operator
    "after-a-convolution": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=0.3)), IMAGE, True),
    "of-a-matrix": (nn.BatchNorm1d(8), IMAGE[:, 0, 0], True),
    "of-rows": (nn.BatchNorm1d(2, momentum=None), IMAGE[:, :, 0], True),
    "many-channels": (nn.BatchNorm2d(16), torch.cat([IMAGE] * 8, 1), True),
    "without-weights": (nn.BatchNorm2d(2, affine=False), IMAGE, True),
    "without-statistics": (nn.BatchNorm2d(2, track_running_stats=False), IMAGE, True),
    "with-neither": (nn.BatchNorm2d(2, affine=False, track_running_stats=False), IMAGE, True),
    "two-with-equal-weights": (nn.Sequential(nn.BatchNorm2d(2), nn.ReLU(), nn.BatchNorm2d(2)), IMAGE, True),
    "doubles": (nn.BatchNorm2d(2).double(), IMAGE.double(), False),  # the operator's epsilon is a float32
}


@pytest.mark.parametrize("opset", [9, 13, 14, 17, 20, 23])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.filterwarnings("ignore:.*writes to its buffer")
def test_batch_norm_of_the_batch(name: str, opset: int) -> None:
    """The operator in training mode where the opset has it, written out before; the numbers are torch's, run for run.

    ONNX Runtime writes over the statistics that the operator reads, and merges small ones with equal weights.
    """
    model, example, has = copy.deepcopy(NORMS[name])
    found = exported(model, example, training=True, opset_version=opset)
    norms = [node for node in found.graph.node if node.op_type == "BatchNormalization"]
    assert bool(norms) == (has and opset >= 14)
    for node in norms:
        said = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        assert said["training_mode"] == 1 and len(node.output) == 3
    assert not any(torch.isnan(tensor).any() for tensor in model.state_dict().values())
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == ["input"]
    expected = model.train()(example)
    for _ in range(2):
        assert_near(torch.from_numpy(session.run(None, {"input": example.numpy()})[0]), expected)


@pytest.mark.parametrize("capture", ["trace", "export"])
@pytest.mark.parametrize("opset", [14, 17, 20])
@pytest.mark.filterwarnings("ignore:.*writes to its buffer", "ignore::DeprecationWarning")
def test_training_operators_are_those_of_torch(capture: str, opset: int) -> None:
    """The nodes that training runtimes look for, what they read, and their attributes."""
    model, file = Net(), io.BytesIO()
    mode = torch.onnx.TrainingMode.TRAINING
    ours = exported(model, training=mode, opset_version=opset, capture=capture, do_constant_folding=False)
    options: dict[str, Any] = {"dynamo": False, "training": mode, "opset_version": opset, "do_constant_folding": False}
    torch.onnx.export(model, (IMAGE,), file, **options)
    theirs = onnx.load_from_string(file.getvalue())

    def kept(proto: onnx.ModelProto) -> list[Any]:
        weights = {item.name for item in proto.graph.initializer} & {*model.state_dict()}
        return [
            (
                node.op_type,
                [name for name in node.input if name in weights],
                len(node.output) if node.op_type == "BatchNormalization" else 1,
                {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute},
            )
            for node in proto.graph.node
            if node.op_type in ("BatchNormalization", "Dropout")
        ]

    assert len(kept(ours)) == 2 and kept(ours) == kept(theirs)


def test_running_statistics_go_out() -> None:
    """With mutated_state="io" the buffers leave the file as torch has them afterwards, of the unbiased variance."""
    model = nn.BatchNorm2d(2, momentum=0.3)
    program = purexport.export(model, (IMAGE,), training=True, mutated_state="io")
    found = program(IMAGE)
    assert_near(found[0], model.train()(IMAGE))
    after = dict(model.named_buffers())
    for name, got in zip(program.written, found[1:], strict=True):
        assert_near(got, after[name])
    assert len(program.written) == 3


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17, 20, 23])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_dropout_masks(share: float, opset: int) -> None:
    """A share of zeros within five deviations, the rest scaled; an operator with a training mode from opset 12 on."""
    ones = torch.ones(100, 200)
    found = exported(nn.Dropout(share), ones, training=True, opset_version=opset)
    kinds = [node.op_type for node in found.graph.node]
    assert ("Dropout" in kinds) == (opset >= 12)
    got = run_ort(found.SerializeToString(), [ones.numpy()])[0]
    assert abs((got == 0).mean() - share) < 5 * (share * (1 - share) / ones.numel()) ** 0.5
    assert_near(got[got != 0], np.full_like(got[got != 0], 1 / (1 - share)))


def test_mode_after_an_error() -> None:
    model = nn.Sequential(Net(), nn.Linear(5, 5)).eval()
    model[0].norm.train()
    modes = [module.training for module in model.modules()]
    with pytest.raises(purexport.ExportError):
        purexport.export(model, (IMAGE,), training=True)
    assert [module.training for module in model.modules()] == modes


class Again(nn.Module):
    """Statistics that others read: the second call's, and the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.norm.running_mean * 2 if self.norm.running_mean is not None else x
        return self.norm(self.norm(x) + x), before


@pytest.mark.parametrize("functions", [False, True])
def test_statistics_with_other_readers(functions: bool) -> None:
    """Each run reads the statistics that the model had at the export."""
    model = Again()
    found = exported(model, training=True, writes=True, export_modules_as_functions=functions)
    expected = model.train()(IMAGE)
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(2):
        first, second = session.run(None, {session.get_inputs()[0].name: IMAGE.numpy()})
        assert_near(first, expected[0])
        np.testing.assert_array_equal(second, np.zeros(2, np.float32))
