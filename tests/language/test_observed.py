"""`observe` in `generate` of transformers: a decoder with its cache, and the halves of an encoder-decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purexport
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="generate is a function of transformers")
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

IDS = torch.tensor([[3, 4, 5, 6], [7, 3, 4, 5]])


def test_a_decoder_with_its_cache() -> None:
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval()
    with purexport.observe(model) as seen:
        model.generate(IDS, max_new_tokens=4, do_sample=False)
        model.generate(IDS[:1, :3], max_new_tokens=3, do_sample=False)
    assert len(seen.forms) == 1
    program = purexport.export(model, seen, verify=True)
    report = program.report
    assert "and on 4 more calls" in report.verified  # two of each form that were kept
    dynamic = report.dynamic
    assert dynamic["input_ids"][0] == "batch" and set(dynamic["input_ids"]) == {0, 1}
    caches = {name: axes for name, axes in dynamic.items() if name.endswith((".key", ".value"))}
    assert len(caches) == 4 and {tuple(axes) for axes in caches.values()} == {(0, 2)}


def test_the_halves_of_an_encoder_decoder() -> None:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    with purexport.observe(model.encoder) as encoder, purexport.observe(model) as whole:
        model.generate(IDS, max_new_tokens=3, do_sample=False)
        model.generate(IDS[:, :3], max_new_tokens=3, do_sample=False)
    seen: Any
    for module, seen in ((model.encoder, encoder), (model, whole.forms[0]), (model, whole.forms[1])):
        assert purexport.export(module, seen, verify=True).report.verified
    assert len(whole.forms) == 2
