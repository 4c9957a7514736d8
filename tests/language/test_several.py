"""Models of several graphs in folders, whose files share their data.  The numbers are torch's, step by step.

transformers is no requirement of the tests: they run where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError, VerificationError
from purexport.language import encoder_decoder, recurrences, state
from tests.models import decoders, multimodal
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = {"vocab_size": 99, "d_model": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BOTH = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in (("layers", 2), ("ffn_dim", 48))}
BOTH |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 1}
T5 = {"d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 4}
SOUND = {"num_mel_bins": 20, "max_source_positions": 30, "max_target_positions": 64}
SIZES: dict[str, dict[str, Any]] = {
    "T5ForConditionalGeneration": {**TEXT, **T5},
    "BartForConditionalGeneration": {**TEXT, **BOTH, "max_position_embeddings": 64},
    "WhisperForConditionalGeneration": {**TEXT, **BOTH, **SOUND},
}


def made(name: str) -> Any:
    """A tiny model of a class, with weights that tell tokens apart."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**SIZES[name])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15) if parameter.dim() > 1 else parameter.add_(0.1)
    return model


def inputs_of(path: Path) -> dict[str, list[Any]]:
    """The inputs of a file, with their shapes."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return {item.name: item.shape for item in session.get_inputs()}


# class, target, opset, how many layers of attention are one operator
ROWS = [
    ("T5ForConditionalGeneration", "onnx", 23, 6),
    ("BartForConditionalGeneration", "onnxruntime", 21, 2),
    ("WhisperForConditionalGeneration", "onnx", 17, 0),
]


@pytest.mark.parametrize(("name", "target", "opset", "attention"), ROWS, ids=[row[0] for row in ROWS])
def test_encoder_decoder(name: str, target: str, opset: int, attention: int, tmp_path: Path) -> None:
    model = made(name)
    report = purexport.language_model(model, tmp_path, target, opset, verify=True)
    assert report.difference is not None and (report.attention, report.layers) == (attention, 6)
    assert report.files[:3] == ["encoder.onnx", "decoder.onnx", "model.onnx.data"]
    whole = sum(parameter.numel() * 4 for parameter in model.parameters())  # tied ones are one parameter
    # each of them begins at a multiple of 4096
    assert (tmp_path / "model.onnx.data").stat().st_size < whole + 60 * 4096
    inputs = inputs_of(tmp_path / "decoder.onnx")
    cache = ["batch_size", 4, "past_sequence_length", 16]
    assert inputs["past_key_values.1.decoder.key"] == inputs["past_key_values.0.decoder.value"] == cache
    assert ("encoder_attention_mask" in inputs) == (name != "WhisperForConditionalGeneration")


def test_as_generate_does(tmp_path: Path) -> None:
    """The loop that a program around the files has gives the tokens of `generate`."""
    model = made("T5ForConditionalGeneration")
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = 0
    purexport.language_model(model, tmp_path)
    ids = torch.randint(3, 90, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    wanted = model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None)
    encoder, decoder = (
        onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    names = [item.name.replace("present", "past_key_values") for item in encoder.get_outputs()]
    found = dict(zip(names, encoder.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}), strict=True))
    del found["last_hidden_state"]
    for layer in range(2):
        for part in ("key", "value"):
            found[f"past_key_values.{layer}.decoder.{part}"] = torch.zeros(2, 4, 0, 16).numpy()
    tokens = torch.zeros(2, 1, dtype=torch.int64)
    names = [item.name.replace("present", "past_key_values") for item in decoder.get_outputs()]
    for _ in range(12):
        feed = {"input_ids": tokens[:, -1:].numpy(), "encoder_attention_mask": mask.numpy()}
        logits, *cache = decoder.run(None, found | feed)
        found |= dict(zip(names[1:], cache, strict=True))
        tokens = torch.cat([tokens, torch.from_numpy(logits[:, -1:]).argmax(-1)], 1)
    assert tokens.tolist() == wanted.tolist()


FSMT = {"langs": ["en", "de"], "src_vocab_size": 99, "tgt_vocab_size": 99, "tie_word_embeddings": False}


@pytest.mark.parametrize("source", ["module", "folder"])
def test_no_mask_with_a_cache(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that hides no later tokens where it has a cache takes one token at a time."""
    monkeypatch.setitem(SIZES, "FSMTForConditionalGeneration", {**TEXT, **BOTH, **FSMT, "max_position_embeddings": 64})
    model = made("FSMTForConditionalGeneration")
    if source == "folder":
        model.save_pretrained(tmp_path / "from")
    report = purexport.language_model(model if source == "module" else tmp_path / "from", tmp_path / "to", verify=True)
    assert report.difference is not None
    assert inputs_of(tmp_path / "to" / "decoder.onnx")["input_ids"] == ["batch_size", 1]


def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights go from file to file; what is tied is stored once, and one file stays where the other is replaced."""
    made("BartForConditionalGeneration").save_pretrained(tmp_path / "from")
    out = tmp_path / "to"
    assert main(["llm", str(tmp_path / "from"), "-o", str(out), "--verify"]) == 0
    assert "verified: logits differ by at most" in capsys.readouterr().out
    names = {"encoder.onnx", "decoder.onnx", "model.onnx.data", "config.json", "generation_config.json"}
    assert {path.name for path in out.iterdir()} == names
    ps.save(ps.load(out / "encoder.onnx"), out / "encoder.onnx", external_data=False)
    assert {path.name for path in out.iterdir()} == names and inputs_of(out / "decoder.onnx")


def _wrong_cross(model: Any, given: Any, count: int = 1) -> Any:
    encoded, result = _started(model, given, count)
    layer = result.past_key_values.cross_attention_cache.layers[1]
    layer.keys, layer.values = layer.values, layer.keys
    return encoded, result


def _unmasked(model: Any, encoded: Any, ids: Any, cache: Any, mask: Any) -> Any:
    return _stepped(model, encoded, ids, cache, None if mask is None else mask | 1)


_started, _stepped = encoder_decoder._started, encoder_decoder._stepped
FAULTS: list[tuple[str, Callable[..., Any]]] = [("_started", _wrong_cross), ("_stepped", _unmasked)]


@pytest.mark.parametrize(("place", "fault"), FAULTS, ids=lambda item: getattr(item, "__name__", ""))
def test_verify_finds(place: str, fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values of cross attention that were exchanged, and a mask that is not looked at."""
    monkeypatch.setattr(encoder_decoder, place, fault)
    with pytest.raises(VerificationError, match="a logit of the file differs"):
        purexport.language_model(made("T5ForConditionalGeneration"), tmp_path, verify=True)


def test_refusals(tmp_path: Path) -> None:
    model = made("T5ForConditionalGeneration")
    with pytest.raises(ExportError, match="onnxruntime-genai is given decoders of keys and values only"):
        purexport.language_model(model, tmp_path, "onnxruntime-genai")
    with pytest.raises(ExportError, match=r"no input_ids were found .*give what its processor makes"):
        purexport.language_model(model, tmp_path, inputs={"input_ids": torch.zeros(2, 3, 4)})
    assert not list(tmp_path.iterdir())


def test_held_axes_are_refused(tmp_path: Path) -> None:
    """A loop over the rows of the batch, in Python, holds that of the example."""
    from transformers import LlamaForCausalLM

    class InTurn(LlamaForCausalLM):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, **more: Any) -> Any:
            tokens = torch.zeros_like(input_ids)
            for row in range(len(input_ids)):
                tokens[row] = input_ids[row].flip(0).flip(0)
            return super().forward(input_ids=tokens, **more)

    model = InTurn(decoders.made("LlamaForCausalLM").step.model.config).eval()
    with pytest.raises(ExportError, match=r"the model holds batch_size at 2.*test_several\.py"):
        purexport.language_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


WORDS = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
WORDS |= {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 128, "pad_token_id": 0}
PICTURE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
PICTURE |= {"image_size": 16, "patch_size": 8}
PATCHES = {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2, "patch_size": 4}
ANGLES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}


def _pictures(name: str) -> Any:
    """The config of a model that reads pictures."""
    if name == "LlavaForConditionalGeneration":
        text = transformers.LlamaConfig(**WORDS)
        return transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(**PICTURE), text_config=text, image_token_index=98
        )
    if name == "Gemma3ForConditionalGeneration":
        text = transformers.Gemma3TextConfig(**WORDS, sliding_window=8, query_pre_attn_scalar=16)
        vision = transformers.SiglipVisionConfig(**PICTURE)
        return transformers.Gemma3Config(
            vision_config=vision, text_config=text, mm_tokens_per_image=4, image_token_id=98
        )
    text = WORDS | {"rope_parameters": ANGLES}
    return transformers.Qwen2VLConfig(
        text_config=text, vision_config=PATCHES, image_token_id=98, video_token_id=97, vision_start_token_id=96
    )


def _random(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15) if parameter.dim() > 1 else parameter.add_(0.1)
    return model.eval()


# Gemma 3 sees all of a picture at once, and Qwen2-VL has three positions for a token
@pytest.mark.parametrize("name", ["LlavaForConditionalGeneration", "Gemma3ForConditionalGeneration", "Qwen2VLForConditionalGeneration"])  # fmt: skip  # noqa: E501
def test_pictures(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _random(getattr(transformers, name)(_pictures(name)))
    report = purexport.language_model(model, tmp_path, verify=True)
    assert report.difference is not None and report.attention == report.layers
    assert report.files[:4] == ["vision.onnx", "embedding.onnx", "decoder.onnx", "model.onnx.data"]
    assert list(inputs_of(tmp_path / "vision.onnx")) == ["pixel_values"]
    decoder = inputs_of(tmp_path / "decoder.onnx")
    assert ("token_type_ids" in decoder) == name.startswith("Gemma3")
    assert len(decoder["position_ids"]) == (3 if name.startswith("Qwen2VL") else 2)


# patches with a shape and a decoder with states, tiles, a mask by kinds, features of several layers
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("Lfm2VlForConditionalGeneration", "past_key_values.0.key"),
        ("Qwen3_5ForConditionalGeneration", "past_key_values.0.recurrent_state"),
        ("LlavaOnevisionForConditionalGeneration", "position_ids"),
        ("PaliGemmaForConditionalGeneration", "token_type_ids"),
        ("Qwen3VLForConditionalGeneration", "placed_deepstack_visual_embeds.0"),
    ],
)
def test_pictures_from_the_config(name: str, asked: str, tmp_path: Path) -> None:
    """No inputs are given: the layout follows from the config."""
    model, _ = multimodal.made(name, "vision")
    assert purexport.language_model(model, tmp_path, verify=True).difference is not None
    assert asked in inputs_of(tmp_path / "decoder.onnx")


def test_folder_with_pictures(tmp_path: Path) -> None:
    """No weight has values while the inputs are looked for, and tokens of pictures are counted nevertheless."""
    torch.manual_seed(0)
    name = "LlavaForConditionalGeneration"
    _random(getattr(transformers, name)(_pictures(name))).save_pretrained(tmp_path / "from")
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", verify=True)
    assert report.difference is not None and report.attention == report.layers


def test_attention_with_more_arguments(tmp_path: Path) -> None:
    """Sinks of each token are no argument of the call that attention is recorded as; they are not left out."""
    model, _ = multimodal.made("Inkling2ForCausalLM", "state")
    assert purexport.language_model(model, tmp_path, verify=True).difference is not None


LINEAR: dict[str, Any] = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
LINEAR |= {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "num_experts": 0}
SPACES = {"state_size": 8, "expand": 2, "num_heads": 16, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
# class, its config, some of its state, the operator of its recurrences for each target
STATES: list[tuple[str, dict[str, Any], list[str], dict[str, str]]] = [
    (
        "MambaForCausalLM",
        {"state_size": 8, "expand": 2},
        ["0.conv_state", "0.recurrent_state"],
        {"onnx": "Scan", "onnxruntime": "Scan"},
    ),
    ("FalconMambaForCausalLM", {"state_size": 8, "expand": 2}, ["0.recurrent_state"], {"onnx": "Scan"}),
    ("Mamba2ForCausalLM", SPACES, ["0.recurrent_state"], {"onnx": "Scan", "onnxruntime": "LinearAttention"}),
    ("Qwen3NextForCausalLM", LINEAR, ["1.key"], {"onnx": "Scan", "onnxruntime": "LinearAttention"}),
    ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}, ["0.conv_state", "1.key"], {"onnx": ""}),
]


@pytest.mark.parametrize(
    ("name", "more", "slots", "target", "operator"),
    [(*row[:3], *pair) for row in STATES for pair in row[3].items()],
    ids=[f"{row[0]}-{target}" for row in STATES for target in row[3]],
)
def test_state(name: str, more: dict[str, Any], slots: list[str], target: Any, operator: str, tmp_path: Path) -> None:
    """State is an input and an output.  A long prompt is one run, or two, of which the second goes on."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = _random(kind(kind.config_class(**{**WORDS, **more})))
    report = purexport.language_model(model, tmp_path, target, verify=True)
    assert report.difference is not None and (not operator or operator in report.nodes)
    inputs = inputs_of(tmp_path / "model.onnx")
    assert {f"past_key_values.{slot}" for slot in slots} <= set(inputs)
    assert inputs["input_ids"] == ["batch_size", "sequence_length"]
    ids = torch.randint(0, 99, (1, 37), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        wanted = model(input_ids=ids, use_cache=False).logits
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    names = [item.name.replace("present", "past_key_values") for item in session.get_outputs()]
    for cut in (37, 20):
        sizes = {"batch_size": 1, "past_sequence_length": 0}
        found = {
            name: np.zeros([sizes.get(size, size) for size in shape], np.float32)
            for name, shape in inputs.items()
            if name.startswith("past_")
        }
        logits = []
        for start, end in ((0, cut), (cut, 37))[: 1 + (cut < 37)]:
            feed = {"input_ids": ids[:, start:end].numpy(), "attention_mask": np.ones((1, end), np.int64)}
            feed["position_ids"] = np.arange(start, end)[None]
            answer = session.run(None, found | {name: item for name, item in feed.items() if name in inputs})
            found = dict(zip(names[1:], answer[1:], strict=True))
            logits.append(torch.from_numpy(answer[0]))
        torch.testing.assert_close(torch.cat(logits, 1), wanted, rtol=1e-3, atol=1e-3)


def test_a_loop_over_chunks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that cuts a text into chunks by itself would be written for the number of chunks of the example."""
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**WORDS, **LINEAR)).eval()
    slots = state.slots_of(model)
    assert state.takes_any_length(model, slots)
    monkeypatch.setattr(recurrences, "_KINDS", ())
    assert {slot.attribute for slot in slots} == {"keys", "values", "conv_states", "recurrent_states"}
    assert not state.takes_any_length(model, slots)
