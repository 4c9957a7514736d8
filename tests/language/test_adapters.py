"""LoRA adapters: merged, as inputs, or as they are; and what is refused.  The layers are those of peft, made by hand.

transformers is no requirement of the tests: they run where it is installed.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import purexport
from purexport.errors import ExportError
from purexport.language.adapters import adapters_as, without_wrapper
from purexport.language.model import program_of
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
pytest.importorskip("transformers", reason="language models are made by transformers")

from tests.language.test_caches import made  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NAME = "model.layers.0.self_attn.q_proj"


class LoraLayer(nn.Module):
    """What a layer of peft holds and computes."""

    def __init__(self, base: Any, rank: int, scaling: float, adapters: tuple[str, ...] = ("default",)) -> None:
        super().__init__()
        self.base_layer = base
        self.active_adapters = list(adapters)
        self.scaling = dict.fromkeys(adapters, scaling)
        rows, columns = base.weight.shape if isinstance(base, nn.Linear) else base.weight.shape[::-1]
        self.lora_A = nn.ModuleDict({name: nn.Linear(columns, rank, bias=False) for name in adapters})
        self.lora_B = nn.ModuleDict({name: nn.Linear(rank, rows, bias=False) for name in adapters})
        for parameter in (*self.lora_A.parameters(), *self.lora_B.parameters()):
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: Any) -> Any:
        found = self.base_layer(x)
        for name in self.active_adapters:
            found = found + self.lora_B[name](self.lora_A[name](x)) * self.scaling[name]
        return found


def adapted(name: str = "LlamaForCausalLM", **options: Any) -> Any:
    """A model with adapters of queries and values, or of GPT-2's projection."""
    model = made(name)
    torch.manual_seed(1)
    for path, layer in list(model.named_modules()):
        if path.rpartition(".")[2] in ("q_proj", "v_proj", "c_attn"):
            model.set_submodule(path, LoraLayer(layer, 4, 0.5, **options))
    return model.eval()


def feed_of(decoder: Any) -> tuple[Any, dict[str, Any]]:
    args = decoder.args(2, 5, 0, seed=4)
    return args, {name: item.numpy() for name, item in zip(decoder.input_names, args, strict=True)}


@pytest.mark.parametrize(("lora", "target"), [(None, "onnx"), ("merge", "onnxruntime"), ("inputs", "onnxruntime")])
def test_numbers(lora: str | None, target: str, tmp_path: Path) -> None:
    """The file is compared with the model that has its adapters beside its weights."""
    model = adapted()
    before = {name: item.clone() for name, item in model.state_dict().items()}
    report = purexport.language_model(model, tmp_path, target, lora=lora, verify=True)
    assert report.difference is not None and report.attention == 2
    if lora == "merge":
        assert report.nodes == program_of(made("LlamaForCausalLM"), target)[2].nodes
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], item) for name, item in before.items())
    assert type(model.get_submodule(NAME)) is LoraLayer


def test_merged_layers_of_gpt2(tmp_path: Path) -> None:
    """Its weights are [in, out], and two adapters are in use at once."""
    model = adapted("GPT2LMHeadModel", adapters=("one", "two"))
    report = purexport.language_model(model, tmp_path, lora="merge", verify=True)
    assert report.difference is not None


def test_other_adapters_as_inputs(tmp_path: Path) -> None:
    """Another adapter, of another rank, is given to the same file; one of rank 0 is none."""
    runtime = pytest.importorskip("onnxruntime")
    model, other = adapted(), adapted()
    torch.manual_seed(2)
    for layer in other.modules():
        if isinstance(layer, LoraLayer):
            layer.lora_A["default"] = nn.Linear(layer.base_layer.in_features, 6, bias=False)
            layer.lora_B["default"] = nn.Linear(6, layer.base_layer.out_features, bias=False)
            layer.scaling["default"] = 2.0
    program, decoder, _ = program_of(model, lora="inputs")
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {item.name: item.shape for item in session.get_overridable_initializers()}
    assert inputs[f"model.{NAME}.lora_A.weight"] == [64, "lora_rank"]
    assert inputs[f"model.{NAME}.lora_B.weight"] == ["lora_rank", 64] and len(inputs) == 8
    args, feed = feed_of(decoder)
    given, none = {}, {}
    for name, layer in other.named_modules():
        if isinstance(layer, LoraLayer):
            a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight * layer.scaling["default"]
            for part, item in (("A", a), ("B", b)):
                given[f"model.{name}.lora_{part}.weight"] = item.detach().t().contiguous().numpy()
                empty = torch.zeros(item.shape[1], 0) if part == "A" else torch.zeros(0, item.shape[0])
                none[f"model.{name}.lora_{part}.weight"] = empty.numpy()
    assert set(given) == set(inputs)
    for wanted, more in ((model, {}), (other, given), (made("LlamaForCausalLM"), none)):
        with torch.no_grad():
            expected = wanted(input_ids=args[0]).logits
        found = torch.from_numpy(session.run(["logits"], feed | more)[0])
        assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4
    # the same, as the runtime's file of an adapter
    file = runtime.AdapterFormat()
    file.set_parameters({name: runtime.OrtValue.ortvalue_from_numpy(item) for name, item in given.items()})
    file.export_adapter(str(tmp_path / "other.onnx_adapter"))
    loaded, options = runtime.LoraAdapter(), runtime.RunOptions()
    loaded.Load(str(tmp_path / "other.onnx_adapter"))
    options.add_active_adapter(loaded)
    with torch.no_grad():
        expected = other(input_ids=args[0]).logits
    found = torch.from_numpy(session.run(["logits"], feed, options)[0])
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4


def _other_kind(layer: Any) -> None:
    del layer.lora_A


def _on_an_embedding(layer: Any) -> None:
    layer.base_layer = nn.Embedding(3, 4)


def _merged_already(layer: Any) -> None:
    layer.merged = True


def _switched_off(layer: Any) -> None:
    layer.active_adapters = []


def _biased(layer: Any) -> None:
    layer.lora_B["default"] = nn.Linear(4, 64)


def _with_magnitudes(layer: Any) -> None:
    layer.use_dora = {"default": True}


REFUSED = [
    (_other_kind, "merge", "is not of LoRA"),
    (_on_an_embedding, "merge", "is on a layer of the kind Embedding"),
    (_merged_already, "inputs", "is merged or disabled"),
    (_switched_off, "inputs", "is one of 0 in use"),
    (_biased, "merge", "has more than two matrices"),
    (_with_magnitudes, "inputs", "has use_dora"),
]


@pytest.mark.parametrize(("change", "lora", "why"), REFUSED, ids=lambda item: getattr(item, "__name__", None))
def test_refused(change: Any, lora: str, why: str) -> None:
    model = adapted()
    change(model.get_submodule(NAME))
    with pytest.raises(ExportError, match=f"adapter of {NAME} {why}"), adapters_as(model, lora):
        pass
    assert type(model.get_submodule(NAME)) is LoraLayer


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lora='both' is not one of None, 'merge', 'inputs'"):
        purexport.language_model(adapted(), tmp_path, lora="both")
    with pytest.raises(ExportError, match="LlamaForCausalLM has no LoRA layers, which lora='merge' needs"):
        purexport.language_model(made("LlamaForCausalLM"), tmp_path, lora="merge")
    model = adapted()
    config = SimpleNamespace(is_prompt_learning=False)
    wrapper = SimpleNamespace(get_base_model=lambda: model, peft_config={"default": config})
    assert without_wrapper(wrapper) is model and without_wrapper(model) is model
    config.is_prompt_learning = True
    with pytest.raises(ExportError, match="learnt tokens in front of a prompt"):
        without_wrapper(wrapper)
    with pytest.raises(KeyError, match="stop"), adapters_as(model, "merge"):
        assert type(model.get_submodule(NAME)) is nn.Linear
        raise KeyError("stop")
    assert type(model.get_submodule(NAME)) is LoraLayer
