"""The exporter of transformers, which calls torch.onnx.export, under `patch()`: its files compute what torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import purexport
from purexport.program import ONNXProgram

L = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
IDS = torch.tensor([[3, 7, 11, 4, 9], [8, 30, 2, 5, 41]])
MASK = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
IMAGE = {"image_size": 16, "patch_size": 4}

# model, configuration, what its arguments are
MODELS = [
    ("LlamaForCausalLM", "LlamaConfig", {**L, "num_key_value_heads": 1}, {"input_ids": IDS, "attention_mask": MASK}),
    ("MixtralForCausalLM", "MixtralConfig", {**L, "num_local_experts": 4}, {"input_ids": IDS, "attention_mask": MASK}),
    ("BertModel", "BertConfig", L, {"input_ids": IDS, "attention_mask": MASK}),
    ("ViTModel", "ViTConfig", {**L, **IMAGE}, {"pixel_values": torch.linspace(-1, 1, 1536).reshape(2, 3, 16, 16)}),
]


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(ONNXProgram, "model"), reason="the exporter changes the onnx_ir model of a program")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("model", "config", "options", "inputs"), MODELS, ids=[row[0] for row in MODELS])
def test_the_programs_of_its_documentation(
    model: str, config: str, options: Any, inputs: Any, dynamic: bool, tmp_path: Path
) -> None:
    transformers: Any = pytest.importorskip("transformers", reason="its exporter is tested")
    pytest.importorskip("onnxscript", reason="the exporter of transformers needs it")
    from transformers.exporters import ExportedModel
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**options)).eval()
    with purexport.patch():
        exported = OnnxExporter().export(made, dict(inputs), config=OnnxConfig(dynamic=dynamic))
    exported.save_pretrained(tmp_path)
    wanted = made(**inputs)
    for found in (exported(**inputs), ExportedModel.from_pretrained(tmp_path)(**inputs)):
        for name in [name for name, value in wanted.items() if isinstance(value, torch.Tensor)]:
            torch.testing.assert_close(torch.as_tensor(found[name]), wanted[name], rtol=1e-4, atol=1e-5)
