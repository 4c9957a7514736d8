"""Programs as people write them around torch.onnx, run with torch.onnx and under `patch`: they see the same.

A row is a function of nothing that exports, looks at what it made, and returns what it saw.  It knows torch.onnx only,
and runs in an empty folder.  Those that use the newer exporter need onnxscript, and take torch seconds each.
docs/coming-from-torch-onnx.md says what differs on purpose; programs do not look at that here.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.onnx.symbolic_helper as helper
import torch.onnx.utils
import torch.onnx.verification
from torch import Tensor, nn

import purexport


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(128, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def interface(model: onnx.ModelProto | Any) -> Any:
    def described(value: Any) -> Any:
        kind = value.type.tensor_type
        return value.name, kind.elem_type, [dim.dim_param or dim.dim_value for dim in kind.shape.dim]

    return [described(item) for item in model.graph.input], [described(item) for item in model.graph.output]


def run(model: Any, *tensors: Tensor) -> list[Any]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {item.name: tensor.numpy() for item, tensor in zip(session.get_inputs(), tensors, strict=False)}
    return session.run(None, feed)


def tutorial_of_2018() -> Any:
    """Parameters are named by input_names, the printed graph is searched, the model was in training mode."""
    model = Net().train()
    names = ["actual_input_1", *(f"learned_{number}" for number in range(4))]
    torch.onnx.export(model, X, "alexnet.onnx", input_names=names, output_names=["output1"], dynamo=False)
    found = onnx.load("alexnet.onnx")
    onnx.checker.check_model(found)
    text = onnx.helper.printable_graph(found.graph)
    held = [item.name for item in found.graph.initializer][:4]
    same = np.allclose(run("alexnet.onnx", X)[0], model.eval()(X).detach(), atol=1e-5)
    return held, interface(found), "%learned_3[FLOAT, 10]" in text, same


def super_resolution() -> Any:
    axes = {"input": {0: "batch_size"}, "output": {0: "batch_size"}}
    torch.onnx.export(
        Net().eval(),
        X,
        "net.onnx",
        export_params=True,
        opset_version=10,
        do_constant_folding=True,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes=axes,
        dynamo=False,
    )
    found = onnx.load("net.onnx")
    return interface(found), found.opset_import[0].version, run("net.onnx", X.repeat(3, 1, 1, 1))[0].shape


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 8), nn.Linear(8, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        hidden = self.table(input_ids) * attention_mask[..., None]
        return {"last_hidden_state": self.last(hidden), "pooler_output": hidden.mean(1)}


def hub() -> Any:
    """Named arguments in a dict, names of outputs from the model, axes of all."""
    given = {"input_ids": torch.randint(0, 20, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in (*given, "last_hidden_state")}
    torch.onnx.export(
        Words().eval(),
        (given,),
        f="hub.onnx",
        input_names=list(given),
        output_names=["last_hidden_state", "pooler_output"],
        dynamic_axes=axes | {"pooler_output": {0: "batch_size"}},
        do_constant_folding=True,
        opset_version=14,
        dynamo=False,
    )
    more = torch.randint(0, 20, (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    return interface(onnx.load("hub.onnx")), [item.shape for item in run("hub.onnx", *more)]


def symbolic_of_a_runtime() -> Any:
    def gelu(g: Any, x: Any, approximate: Any) -> Any:
        return g.op("com.microsoft::Gelu", x).setType(x.type())

    torch.onnx.register_custom_op_symbolic("aten::gelu", gelu, 9)
    options: Any = {"custom_opsets": {"com.microsoft": 1}, "input_names": ["x"], "output_names": ["y"]}
    try:
        torch.onnx.export(nn.GELU(), (X,), "gelu.onnx", opset_version=13, dynamo=False, **options)
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::gelu", 9)
    found = onnx.load("gelu.onnx")
    opsets = {item.domain: item.version for item in found.opset_import}
    return [node.op_type for node in found.graph.node], opsets, interface(found)


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        return x.clamp(min=0) * slope

    @staticmethod
    @helper.parse_args("v", "f")
    def symbolic(g: Any, x: Any, slope: float) -> Any:
        return g.op("LeakyRelu", g.op("Relu", x), alpha_f=slope)


class Leaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Leaky.apply(x, 2.0) + 1


def function_with_symbolic() -> Any:
    torch.onnx.export(Leaks(), (X,), "leaky.onnx", input_names=["x"], output_names=["y"], dynamo=False)
    found = onnx.load("leaky.onnx")
    return [node.op_type for node in found.graph.node if node.op_type != "Constant"], interface(found)


def new_weights_by_zip() -> Any:
    """Initializers and state_dict side by side, as the file of an older checkpoint is brought up to date."""
    file, other = io.BytesIO(), Net().eval()
    options: Any = {"do_constant_folding": False, "keep_initializers_as_inputs": True, "dynamo": False}
    torch.onnx.export(Net().eval(), X, file, input_names=["x"], output_names=["y"], **options)
    found = onnx.load_from_string(file.getvalue())
    for held, (name, tensor) in zip(found.graph.initializer, other.state_dict().items(), strict=False):
        assert held.name == name
        held.CopyFrom(onnx.numpy_helper.from_array(tensor.numpy(), name))
    same = np.allclose(run(found.SerializeToString(), X)[0], other(X).detach(), atol=1e-5)
    return [item.name for item in found.graph.input], same


def weights_from_outside() -> Any:
    model, file = Net().eval(), io.BytesIO()
    torch.onnx.export(model, X, file, export_params=False, input_names=["x"], output_names=["y"], dynamo=False)
    found = onnx.load_from_string(file.getvalue())
    (got,) = run(file.getvalue(), X, *model.state_dict().values())
    return [item.name for item in found.graph.input], np.allclose(got, model(X).detach(), atol=1e-5)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = self.layer(x, (h, c))
        return y, h, c


def recurrent() -> Any:
    states = {name: {1: "batch"} for name in ("h0", "c0", "hn", "cn")}
    torch.onnx.export(
        Recurrent().eval(),
        (torch.randn(2, 5, 4), torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)),
        "lstm.onnx",
        input_names=["x", "h0", "c0"],
        output_names=["y", "hn", "cn"],
        dynamic_axes={"x": {0: "batch", 1: "time"}, "y": {0: "batch", 1: "time"}} | states,
        opset_version=13,
        dynamo=False,
    )
    found = onnx.load("lstm.onnx")
    results = run("lstm.onnx", torch.randn(3, 9, 4), torch.zeros(1, 3, 6), torch.zeros(1, 3, 6))
    return interface(found), [item.shape for item in results], [node.op_type for node in found.graph.node].count("LSTM")


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, input_ids: Tensor, past_key_values: Any = None) -> Any:
        keys = torch.cat([past_key_values[0][0], self.table(input_ids)[:, None]], 2)
        return self.last(keys.mean(2)), ((keys, keys * 2),)


def decoder_with_a_past() -> Any:
    """Axes of outputs have labels of their own.  Values of the past that the model does not read are left out there."""
    past = ((torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 8)),)
    names = ["past_key_values.0.key", "past_key_values.0.value"]
    present = ["present.0.key", "present.0.value"]
    axes = {name: {0: "batch", 2: "past"} for name in names} | {name: {0: "batch", 2: "total"} for name in present}
    torch.onnx.export(
        Decoder().eval(),
        (torch.randint(0, 11, (2, 3)), {"past_key_values": past}),
        "decoder.onnx",
        input_names=["input_ids", *names],
        output_names=["logits", *present],
        dynamic_axes={"input_ids": {0: "batch", 1: "seq"}, "logits": {0: "batch"}} | axes,
        opset_version=17,
        dynamo=False,
    )
    inputs, outputs = interface(onnx.load("decoder.onnx"))
    return inputs[:2], outputs


class Found(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return torch.nonzero(x), x[x > 0]


def sizes_that_data_decides() -> Any:
    axes = {"x": {1: "width"}, "places": {0: "count"}, "values": {0: "count"}}
    options: Any = {"input_names": ["x"], "output_names": ["places", "values"], "dynamic_axes": axes}
    torch.onnx.export(Found(), (torch.tensor([[1.0, 0, 2]]),), "found.onnx", dynamo=False, **options)
    return interface(onnx.load("found.onnx"))


def fine_tuning() -> Any:
    """What a training runtime reads: operators in training mode, and which weights are to be trained."""
    model, file = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Dropout(0.3)), io.BytesIO()
    options: Any = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    torch.onnx.export(model, X, file, input_names=["x"], output_names=["y"], export_params=True, **options)
    found = onnx.load_from_string(file.getvalue())
    trained = [name for name, _ in model.named_parameters()]
    held = [item.name for item in found.graph.initializer if item.name in model.state_dict()]
    kinds = [node.op_type for node in found.graph.node if node.op_type != "Constant"]
    return kinds, held, [name for name in held if name not in trained], interface(found), model.training


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if torch.onnx.is_in_onnx_export() else x


def companions() -> Any:
    model, file = Net().train(), io.BytesIO()
    with torch.onnx.select_model_mode_for_export(model, torch.onnx.TrainingMode.EVAL):
        inside = model.training
    torch.onnx.utils.export(Asks(), (X,), file)
    kinds = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    return inside, model.training, [kind for kind in kinds if kind != "Constant"], torch.onnx.is_in_onnx_export()


def mistakes() -> Any:
    """What is an error that code catches, and what is none."""
    caught = []
    for options in ({"opset_version": 3}, {"output_names": ["a", "b"]}, {"dynamic_axes": {"nope": {0: "n"}}}):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                torch.onnx.export(Net().eval(), X, io.BytesIO(), dynamo=False, **options)
                caught.append(any("nope" in str(item.message) for item in said))
            except RuntimeError:
                caught.append(True)
    return caught


# The newer exporter --------------------------------------------------------------------------------------------------


def program_of_today() -> Any:
    program: Any = torch.onnx.export(Net().eval(), (X,), dynamo=True)
    program.optimize()
    program.save("today.onnx", external_data=True)
    results = program(X)
    facts = [type(results), len(results), isinstance(program, torch.onnx.ONNXProgram), sorted(os.listdir("."))]
    recorded = isinstance(program.exported_program, torch.export.ExportedProgram)
    return facts, recorded, [item.name for item in program.model_proto.graph.initializer][:4]


def changed_by_hand() -> Any:
    program: Any = torch.onnx.export(Net().eval(), (X,), dynamo=True)
    program.model.graph.inputs[0].name = "image"
    program.model.doc_string = "mine"
    program.model.metadata_props["license"] = "free"
    program.save("changed.onnx", keep_initializers_as_inputs=True)
    found = onnx.load("changed.onnx")
    kinds = [node.op_type for node in program.model.graph if node.op_type in ("Conv", "Relu", "MaxPool", "Gemm")]
    return [item.name for item in found.graph.input][:5], found.doc_string, found.metadata_props[0].value, kinds


def axes_renamed() -> Any:
    class Joined(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.cat([x, y]) * 2

    batch = torch.export.Dim("batch", min=1, max=100)
    program: Any = torch.onnx.export(
        Joined(),
        (torch.randn(2, 4), torch.randn(3, 4)),
        dynamo=True,
        input_names=["x", "y"],
        output_names=["z"],
        dynamic_shapes={"x": {0: batch}, "y": {0: torch.export.Dim.DYNAMIC}},
    )
    first, second = (item.shape[0] for item in program.model.graph.inputs)
    program.rename_axes({first: "left", second: "right"})
    size = program.model_proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    results = program(torch.randn(5, 4), torch.randn(1, 4))
    return interface(program.model_proto)[0], sorted(size.split(" + ")), results[0].shape


def other_weights_and_sessions() -> Any:
    program: Any = torch.onnx.export(Net().eval(), (X,), dynamo=True, input_names=["image"], output_names=["scores"])
    program.initialize_inference_session(lambda model: onnxruntime.InferenceSession(model))
    before = program(X)[0].shape
    program.release()
    program.apply_weights({name: torch.zeros_like(tensor) for name, tensor in Net().state_dict().items()})
    relu = [node.outputs[0].name for node in program.model.graph if node.op_type == "Relu"]
    zeros = program(X)[0].abs().max().item()
    return before, zeros, program.call_reference(X)[0].shape, program.compute_values(relu, (X,))[0].shape


def verified() -> Any:
    program: Any = torch.onnx.export(Net().eval(), (X,), dynamo=True)
    found = torch.onnx.verification.verify_onnx_program(program)
    inside = torch.onnx.verification.verify_onnx_program(program, (X,), compare_intermediates=True)
    return len(found), all(info.max_abs_diff < 1e-4 for info in (*found, *inside)), bool(inside)


def a_program_of_torch_export() -> Any:
    recorded = torch.export.export(Net().eval(), (X,))
    program: Any = torch.onnx.export(recorded, (), "recorded.onnx", dynamo=True)
    return interface(onnx.load("recorded.onnx"))[0], [item.name for item in program.model_proto.graph.initializer][:4]


OLDER = [
    *(tutorial_of_2018, super_resolution, hub, symbolic_of_a_runtime, function_with_symbolic, new_weights_by_zip),
    *(weights_from_outside, recurrent, decoder_with_a_past, sizes_that_data_decides, fine_tuning, companions, mistakes),
]
NEWER = [
    *(program_of_today, changed_by_hand, axes_renamed, other_weights_and_sessions, verified, a_program_of_torch_export),
]


def both(program: Callable[[], Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program sees with torch.onnx, and what under `patch`."""
    seen = []
    for name, opened in (("theirs", nullcontext), ("ours", purexport.patch)):
        (folder / name).mkdir()
        monkeypatch.chdir(folder / name)
        with opened(), torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            seen.append(program())
    return seen


@pytest.mark.parametrize("program", OLDER, ids=lambda program: program.__name__)
def test_programs(program: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = both(program, tmp_path, monkeypatch)
    assert ours == theirs


@pytest.mark.sweep
@pytest.mark.parametrize("program", NEWER, ids=lambda program: program.__name__)
def test_programs_of_the_newer_exporter(
    program: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="torch.onnx's newer exporter is written with it")
    theirs, ours = both(program, tmp_path, monkeypatch)
    assert ours == theirs
