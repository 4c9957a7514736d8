"""`purexport.compare`: the node that is at fault in files with a planted fault, why it is, and the reproducer.

The networks are small and of different kinds; `python -m benchmarks.planted_faults` does the same with twenty networks
and 1,000 faults.
"""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.comparison import compared, file_values
from tests.comparison.planting import faults, matters


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Mixer(nn.Module):
    """Residual blocks, a mean, and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(self.blocks(x).mean(1)), -1)


class Convolved(nn.Module):
    """Convolutions, statistics, a pool, a cast to whole numbers and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.table = nn.Embedding(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        chosen = (y.flatten(1)[:, :6] * 4).long().clamp(0, 15)
        return y.permute(0, 2, 3, 1), self.table(chosen).sum(1)


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind().eval()


NETWORKS: dict[str, tuple[nn.Module, Tensor]] = {
    "mixer": (made(Mixer), torch.linspace(-2, 2, 64).sin().reshape(2, 4, 8)),
    "convolved": (made(Convolved), torch.linspace(-3, 3, 128).cos().reshape(2, 2, 8, 4)),
}
WAYS = [("mixer", "trace"), pytest.param("mixer", "export", marks=pytest.mark.full), ("convolved", "trace")]


def data_of(name: str, route: str = "trace", **options: Any) -> bytes:
    model, x = NETWORKS[name]
    return bytes(purexport.export(model, (x,), capture=route, **options).model_proto.SerializeToString())


@pytest.mark.parametrize(("name", "route"), WAYS)
def test_the_node_at_fault_is_named(name: str, route: str) -> None:
    """Of faults that change an output every one is found, at its node; the others change nothing."""
    model, x = NETWORKS[name]
    data = data_of(name, route, dynamic_axes={"x": {0: "batch"}})
    assert purexport.compare(model, (x,), data).agrees
    count = 0
    for fault in itertools.islice(faults(data, 3), 24):
        found = purexport.compare(model, (x,), fault.data)
        if matters(data, fault.data, {"x": x.numpy()}):
            assert found.node_name in fault.nodes, (fault.said, found.as_text())
            assert found.at_fault == "file"
            count += 1
        else:
            assert found.agrees, (fault.said, found.as_text())
    assert count >= 12


def changed(data: bytes, op_type: str, change: Callable[[ps.NodeProto], None], which: int = 0) -> bytes:
    model = ps.loads(data)
    change([node for node in model.graph.node if node.op_type == op_type][which])
    return bytes(model.SerializeToString())


def epsilon(node: ps.NodeProto) -> None:
    next(item for item in node.attribute if item.name == "epsilon").f = 0.5


def test_the_report() -> None:
    model, x = NETWORKS["mixer"]
    found = purexport.compare(model, x, changed(data_of("mixer"), "LayerNormalization", epsilon, 1))
    assert not found
    text = str(found)
    for part in (
        "output 'output' is wrong in onnxruntime: at (",
        "at fault: node 'blocks.1.norm/LayerNormalization' (LayerNormalization): its attribute 'epsilon' is 0.5, and "
        "an export of the model writes 1e-05",
        "first wrong value: 'blocks.1.norm/LayerNormalization_output', at (",
        "in torch: aten::layer_norm at blocks.1.norm (",
        "test_compare.py:",
        "largest error by module",
    ):
        assert part in text
    assert found.layers["blocks.0.down"] < 1e-5
    assert found.layers["blocks.1.norm"] > 1e-2
    facts = found.as_dict()
    assert (facts["agrees"], facts["node"], facts["at_fault"]) == (False, found.node_name, "file")
    assert facts["first_wrong"]["name"] == "blocks.1.norm/LayerNormalization_output"


def test_an_error_that_grows_is_blamed_on_its_node() -> None:
    """The fault is within the bounds at its node, and beyond them a few nodes later."""

    class Growing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(nn.functional.leaky_relu(x, 0.1) * -200)

    x = torch.linspace(-1, 1, 32)
    data = bytes(purexport.export(Growing(), (x,)).model_proto.SerializeToString())

    def slope(node: ps.NodeProto) -> None:
        node.attribute[0].f = 0.10002

    found = purexport.compare(Growing(), (x,), changed(data, "LeakyRelu", slope))
    assert (found.op_type, found.at_fault) == ("LeakyRelu", "file")
    assert found.first_wrong is not None
    assert found.first_wrong.name == "output"
    assert found.first_wrong.anchor.call == "aten::exp"


class Sinh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(torch.erf(x) * 2)


RULE = {"aten::erf": lambda op, x: op.Tanh(x)}


def test_a_rule_is_blamed_with_the_operator_and_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.linspace(-1, 1, 12)
    with pytest.raises(purexport.VerificationError) as error:
        purexport.export(Sinh(), (x,), verify=True, custom_translation_table=RULE)
    assert "what the export made, up to node 'Tanh' (Tanh)" in str(error.value)
    assert "aten::erf at the model (" in str(error.value)

    found = purexport.compare(
        Sinh(), (x,), changed(data_of_model(Sinh(), x), "Erf", lambda node: setattr(node, "op_type", "Tanh"))
    )
    assert found.cause.endswith("its operator is Tanh, and an export of the model writes Erf")
    names = [Path(name).name for name in found.write_reproducer(tmp_path / "repro")]
    assert names == ["model.onnx", "input_0.npy", "expected_0.npy", "run.py"]
    ran = subprocess.run([sys.executable, "run.py"], cwd=tmp_path / "repro", capture_output=True, text=True, check=True)
    assert float(ran.stdout.split()[-1]) == pytest.approx(float((torch.tanh(x) - torch.erf(x)).abs().max()), rel=1e-4)
    with pytest.raises(FileExistsError, match="it is not empty; give another folder"):
        found.write_reproducer(tmp_path / "repro")
    monkeypatch.chdir(tmp_path)
    assert found.write_reproducer("repro", overwrite=True)


def data_of_model(model: nn.Module, *args: Tensor) -> bytes:
    return bytes(purexport.export(model, args).model_proto.SerializeToString())


def test_nothing_to_reproduce(tmp_path: Path) -> None:
    found = purexport.compare(*NETWORKS["mixer"], data_of("mixer"))
    with pytest.raises(purexport.ExportError, match="no node is at fault"):
        found.write_reproducer(tmp_path)


def test_the_runtime_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of one node come out wrong although the file is right: the evaluator computes something else there."""
    model, x = NETWORKS["mixer"]
    real = file_values.all_values

    def wrong(file: ps.ModelProto, feed: Any, **more: Any) -> Any:
        found = real(file, feed, **more)
        for name in found.values:
            if "Gelu" in name or name in ("output", "head/Gemm_output"):
                found.values[name] = found.values[name] + 1
        return found

    def outputs(*given: Any, **more: Any) -> Any:
        found = file_values.outputs_of(*given, **more)
        found.values = {name: value + 1 for name, value in found.values.items()}
        return found

    monkeypatch.setattr(compared, "all_values", wrong)
    monkeypatch.setattr(compared, "outputs_of", outputs)
    found = purexport.compare(model, x, data_of("mixer"))
    assert (found.at_fault, found.op_type) == ("runtime", "Gelu")
    assert "than the specification of the operator says" in found.why


def test_an_optimization_is_blamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the session with optimizations is wrong; the first level that is gets named, and can be reproduced."""
    model, x = NETWORKS["mixer"]
    real = file_values.outputs_of

    def outputs(file: ps.ModelProto, feed: Any, by: str = "", level: str = "", **more: Any) -> Any:
        found = real(file, feed, by, level, **more)
        if level not in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC"):
            found.values = {name: value + 1 for name, value in found.values.items()}
        return found

    monkeypatch.setattr(compared, "outputs_of", outputs)
    found = purexport.compare(model, x, data_of("mixer"))
    assert found.at_fault == "optimization"
    assert found.why == (
        "ORT_ENABLE_EXTENDED of onnxruntime gives the wrong result, and ORT_ENABLE_BASIC the right one"
    )
    assert found.reproducible
    names = [Path(name).name for name in found.write_reproducer(tmp_path)]
    assert names == ["model.onnx", "input_0.npy", "expected_0.npy", "run.py"]
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in shown] == ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"]
    assert all(float(line[2]) < 1e-4 for line in shown)  # onnxruntime itself is sound here


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * (2 if purexport.is_in_onnx_export() else 3)


def test_a_model_that_computes_something_else_while_it_is_captured() -> None:
    x = torch.ones(3)
    found = purexport.compare(Asks(), (x,), data_of_model(Asks(), x))
    assert (found.at_fault, found.node) == ("capture", None)
    with pytest.raises(
        purexport.VerificationError,
        match=r"from the model's own code \(Asks\) on, at .*asks whether",
    ):
        purexport.export(Asks(), (x,), verify=True)


def test_a_model_in_training_mode_is_compared_in_eval_mode() -> None:
    """As it is exported: its statistics would be those of the arguments, and dropout random."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    x = torch.randn(3, 2, 6, 6)
    assert purexport.compare(model, (x,), purexport.export(model, (x,)))
    assert model.training and model[1].num_batches_tracked == 0


def test_other_weights() -> None:
    """The usual mistake: the file is of another checkpoint."""
    _, x = NETWORKS["mixer"]
    torch.manual_seed(5)
    found = purexport.compare(Mixer().eval(), (x,), data_of("mixer"))
    assert found.at_fault == "file"
    assert "its input 'blocks.0.up.weight', a tensor of the file, is " in found.why
    assert "(128 of 128 elements differ)" in found.why


def test_files_of_another_exporter() -> None:
    """They are paired by their values: the node is named, and torch's line."""
    model, x = NETWORKS["mixer"]
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), buffer, dynamo=False)  # type: ignore[arg-type]
    assert purexport.compare(model, (x,), buffer.getvalue()).agrees

    def relu(node: ps.NodeProto) -> None:
        node.op_type = "Relu"
        del node.attribute[:]

    found = purexport.compare(model, (x,), changed(buffer.getvalue(), "Gelu", relu, 1))
    assert (found.at_fault, found.op_type) == ("file", "Relu")
    assert found.torchs.startswith("aten::gelu at blocks.1 (")


def test_two_files() -> None:
    """Opsets beside each other; and one file in two runtimes."""
    _, x = NETWORKS["convolved"]
    new, old = data_of("convolved"), data_of("convolved", opset_version=13)
    assert purexport.compare(new, (x,), old).agrees
    assert purexport.compare(ps.loads(new), {"x": x}, new).agrees

    def strides(node: ps.NodeProto) -> None:
        next(item for item in node.attribute if item.name == "pads").ints[:] = [1, 1, 2, 0]

    found = purexport.compare(new, (x,), changed(new, "Conv", strides))
    assert found.op_type == "Conv"
    assert "its attribute 'pads' is [1, 1, 2, 0], and the first file has [1, 1, 1, 1]" in str(found)
    assert "torch" not in str(found)


def test_weights_beside_a_file_are_those_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has data of the same name that is another file's."""
    x = torch.linspace(-1, 1, 3 * 32).reshape(3, 32)
    models = {folder: nn.Linear(32, 32) for folder in ("ours", "other", ".")}
    for folder, model in models.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        purexport.export(model, (x,), tmp_path / folder / "m.onnx", external_data=True)
    monkeypatch.chdir(tmp_path)
    assert purexport.compare(models["ours"], (x,), "ours/m.onnx").agrees
    (tmp_path / "other" / "m.onnx.data").replace("m.onnx.data")
    assert purexport.compare("ours/m.onnx", (x,), "ours/m.onnx").agrees
    purexport.export(models["other"], (x,), "other/m.onnx", external_data=True)
    assert not purexport.compare("other/m.onnx", (x,), "ours/m.onnx").agrees
    Path("m.onnx.data").unlink()
    assert purexport.compare("ours/m.onnx", (x,), "ours/m.onnx").agrees


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = NETWORKS["mixer"]
    monkeypatch.setattr(file_values, "installed", lambda name: False)
    assert purexport.compare(model, (x,), data_of("mixer")).runtime == "the evaluator"
    found = purexport.compare(model, (x,), changed(data_of("mixer"), "LayerNormalization", epsilon))
    assert found.node_name == "blocks.0.norm/LayerNormalization"
    broken = changed(data_of("mixer"), "Transpose", lambda node: setattr(node.attribute[0], "ints", [0, 1]))
    found = purexport.compare(model, (x,), broken)
    assert found.op_type == "Transpose"
    assert "cannot be computed" in found.failure


def test_dynamic_axes_and_other_sizes() -> None:
    model, x = NETWORKS["mixer"]
    data = data_of("mixer", dynamic_axes={"x": {0: "batch", 1: "length"}})
    other = torch.cat([x, x], 1)[:1]
    assert purexport.compare(model, (other,), data).agrees
    static = purexport.compare(model, (other,), data_of("mixer"))
    assert not static.agrees
    assert "Got invalid dimensions for input: x" in static.failure


NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3), nn.LayerNorm(3))


class Two(nn.Module):
    def forward(self, a, b):
        return a - 2 * b
"""


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("net.py").write_text(NET)
    spec = ("--input", "x=float32[2,4]")
    assert main(["export", "net.py:Net", *spec, "-o", "net.onnx"]) == 0
    Path("bad.onnx").write_bytes(changed(Path("net.onnx").read_bytes(), "LayerNormalization", epsilon))
    np.save("x.npy", np.ones((2, 4), np.float32))
    heavy = {"0.weight": np.full((3, 4), 0.5), "0.bias": np.zeros(3), "1.weight": np.ones(3), "1.bias": np.ones(3)}
    np.savez("w.npz", **{name: array.astype(np.float32) for name, array in heavy.items()})
    assert main(["export", "net.py:Net", *spec, "--weights", "w.npz", "-o", "heavy.onnx"]) == 0
    two = ("--input", "a=float32[2,4]", "--input", "b=float32[4]")
    assert main(["export", "net.py:Two", *two, "-o", "two.onnx"]) == 0
    capsys.readouterr()
    for line, status, said in (
        (("net.py:Two", "two.onnx", *two[2:], *two[:2]), 0, "the file agrees with torch in onnxruntime: 1 output"),
        (("net.py:Net", "net.onnx", *spec), 0, "the file agrees with torch in onnxruntime: 1 output, largest relative"),
        (("net.onnx", "net.onnx", "--input", "x=@x.npy"), 0, "the file agrees with the first file in onnxruntime"),
        (("net.py:Net", "bad.onnx", *spec), 1, "at fault: node '1/LayerNormalization' (LayerNormalization): its attr"),
        (("net.onnx", "bad.onnx", *spec), 1, "is 0.5, and the first file has 9.9999"),
        (("net.py:Net", "bad.onnx", *spec, "--json"), 1, '"node": "1/LayerNormalization"'),
        (("net.py:Net", "bad.onnx", *spec, "--repro", "out"), 1, "wrote out/run.py"),
        (("net.py:Net", "bad.onnx"), 2, "say what to compare on, as in --input"),
        (("net.py:Net", "none.onnx", *spec), 2, "none.onnx"),
        (("net.onnx", "bad.onnx", "--input", "y=float32[2,4]"), 2, "there is no input 'y'; the inputs are 'x'"),
        (("net.py:Net", "bad.onnx", "--input", "inptu=float32[2,4]"), 2, "are 'x', 'input'; did you mean 'input'?"),
        (("net.onnx", "bad.onnx", *spec, "--weights", "w.npz"), 2, "--weights fills a model of torch"),
        (("net.py:Net", "net.onnx", *spec, "--weights", "w.npz"), 1, "its input '0.weight', a tensor of the file, is "),
        (("net.py:Net", "heavy.onnx", *spec, "--weights", "w.npz"), 0, "the file agrees with torch"),
        (("net.py:Net", "net.onnx", "--input", "x=float32[3,4]"), 1, "    Please fix either the inputs/outputs or"),
    ):
        assert main(["compare", *line]) == status, line
        answer = capsys.readouterr()
        assert said in (answer.out if status < 2 else answer.err), (line, answer)
