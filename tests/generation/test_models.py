"""Folders of tiny models of transformers run again: greedy tokens and samples are those of `generate` of transformers.

One class of each kind, with every target and cache that it has; encoders and classifiers give the model's own outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.errors import ExportError
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")
from tests.language import test_language_model, test_several  # noqa: E402  they need transformers, too

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

IDS = torch.tensor([[5, 6, 7, 8, 9], [11, 12, 13, 14, 3]])
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
TOKENS = 8
SAMPLED = {"do_sample": True, "top_k": 20, "temperature": 1.3, "repetition_penalty": 1.1}


def same_tokens(model: Any, folder: Path, inputs: dict[str, Any], runtime: str | None = None, **options: Any) -> None:
    """The tokens of the folder are those of the model, with the same seed where they are samples."""
    options = {"max_new_tokens": TOKENS, "do_sample": False} | options
    torch.manual_seed(5)
    with torch.no_grad():
        wanted = model.generate(**inputs, **options)
    loaded = purexport.load_pretrained(folder, runtime=runtime)
    torch.manual_seed(5)
    found = loaded.generate(**inputs, **options)
    assert torch.equal(found, wanted)
    assert len(found) == 1 or len(set(found[:, -TOKENS:].flatten().tolist())) > 1  # one token alone shows little


TARGETS = ("onnx", "onnxruntime", "onnxruntime-genai")
CACHES = ("dynamic", "static", None)
DECODERS = [
    (name, target, cache)
    for name in test_language_model.NAMES
    for target in TARGETS
    for cache in CACHES
    if cache is not None or target != "onnxruntime-genai"
]


@pytest.mark.parametrize(("name", "target", "cache"), DECODERS)
def test_decoder(name: str, target: Any, cache: Any, tmp_path: Path) -> None:
    """Rows of different lengths, with the padding in front that `generate` wants."""
    model = test_language_model.made(name)
    options: dict[str, Any] = {"cache": cache, "max_length": 32 if cache == "static" else None}
    options["last_logits"] = name == "LlamaForCausalLM" and target == "onnxruntime"
    report = purexport.language_model(model, tmp_path, target, **options)
    told = any("prompts of one length only" in text for text in report.warnings)
    mask = torch.ones_like(LEFT) if told else LEFT
    inputs = {"input_ids": IDS, "attention_mask": mask}
    same_tokens(model, tmp_path, inputs)
    same_tokens(model, tmp_path, inputs, **SAMPLED)


def test_evaluator(tmp_path: Path) -> None:
    model = test_language_model.made("LlamaForCausalLM")
    purexport.language_model(model, tmp_path)
    same_tokens(model, tmp_path, {"input_ids": IDS, "attention_mask": LEFT}, "reference")


def test_calls_go_on(tmp_path: Path) -> None:
    """A cache is used twice, also one of buffers: each continuation is the model's."""
    model = test_language_model.made("LlamaForCausalLM")
    for cache in ("dynamic", "static"):
        purexport.language_model(model, tmp_path / cache, cache=cache, max_length=16 if cache == "static" else None)
        loaded = purexport.load_pretrained(tmp_path / cache)
        first = loaded(input_ids=IDS)
        branches = {}
        for token in (7, 21):
            branches[token] = loaded(input_ids=torch.full((2, 1), token), past_key_values=first.past_key_values)
        for token, branch in branches.items():
            last = loaded(input_ids=torch.full((2, 1), 33), past_key_values=branch.past_key_values)
            with torch.no_grad():
                wanted = model(input_ids=torch.cat([IDS, torch.tensor([[token, 33]] * 2)], 1)).logits[:, -2:]
            found = torch.cat([branch.logits, last.logits], 1)
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="the cache of this folder has room for 16 tokens, and these are 17"):
        loaded.generate(IDS, max_new_tokens=20)


@pytest.mark.parametrize("name", test_several.SIZES)
def test_encoder_decoder(name: str, tmp_path: Path) -> None:
    model = test_several.made(name)
    purexport.language_model(model, tmp_path)
    inputs: dict[str, Any] = {"input_ids": IDS, "attention_mask": LEFT.flip(1)}
    if name.startswith("Whisper"):
        inputs = {"input_features": torch.randn(2, 20, 60, generator=torch.Generator().manual_seed(1))}
    same_tokens(model, tmp_path, inputs, eos_token_id=None)
    same_tokens(model, tmp_path, inputs)
    given = inputs | {"decoder_input_ids": IDS[:, :3]}
    found = purexport.load_pretrained(tmp_path)(**given)
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model(**given).logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "more"), [row[:2] for row in test_several.STATES])
def test_state(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = test_several._random(kind(kind.config_class(**{**test_several.WORDS, **more})))
    purexport.language_model(model, tmp_path)
    same_tokens(model, tmp_path, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})
    with pytest.raises(ValueError, match="attention_mask hides tokens, which the states of this model would see"):
        purexport.load_pretrained(tmp_path).generate(IDS, attention_mask=LEFT)


PICTURES = ["LlavaForConditionalGeneration", "Gemma3ForConditionalGeneration", "Qwen2VLForConditionalGeneration"]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = test_several._random(getattr(transformers, name)(test_several._pictures(name)))
    purexport.language_model(model, tmp_path)
    inputs = test_several.inputs_of(tmp_path / "vision.onnx")
    pixels = torch.randn([int(size) for size in inputs["pixel_values"]], generator=torch.Generator().manual_seed(1))
    loaded: Any = purexport.load_pretrained(tmp_path)
    count = len(loaded._features({"pixel_values": pixels.numpy()})["image_features"])
    qwen = name.startswith("Qwen2VL")
    ids = torch.tensor([[5, 96 if qwen else 6, *[98] * count, 7, 8, 9]])
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}
    given |= {"token_type_ids": (ids == 98).long()} if name.startswith("Gemma3") else {}
    columns = round((len(pixels) + 1) ** 0.5) - 1  # a row has two patches less than a column
    grid = {"image_grid_thw": torch.tensor([[1, columns + 2, columns]]), "mm_token_type_ids": (ids == 98).long()}
    given |= grid if qwen else {}
    same_tokens(model, tmp_path, given)
    text = torch.tensor([[5, 6, 7]])
    same_tokens(model, tmp_path, {"input_ids": text, "attention_mask": torch.ones_like(text)})
    with pytest.raises(ValueError, match=f"input_ids have {count - 1} tokens for pictures, and pixel_values give"):
        shorter = {key: item[:, :2] if key == "x" else item for key, item in given.items()}
        loaded(**(shorter | {"input_ids": torch.cat([ids[:, :2], ids[:, 3:]], 1), "attention_mask": None}))


WORDS = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
# class, task, inputs: what the outputs of a folder are compared on
OTHERS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("BertModel", lambda: {"input_ids": IDS, "attention_mask": LEFT}),
    ("BertForSequenceClassification", lambda: {"input_ids": IDS, "token_type_ids": torch.ones_like(IDS)}),
    ("BertForMaskedLM", lambda: {"input_ids": IDS}),
    ("ViTForImageClassification", lambda: {"pixel_values": torch.randn(2, 3, 32, 32)}),
    ("Wav2Vec2ForCTC", lambda: {"input_values": torch.randn(2, 4000)}),
]


@pytest.mark.parametrize(("name", "inputs"), OTHERS, ids=[row[0] for row in OTHERS])
def test_other_models(name: str, inputs: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    """Encoders, classifiers, pictures and sounds: a call gives the model's outputs, and generate is refused."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    more = {"image_size": 32, "patch_size": 8} if name.startswith("ViT") else {}
    model = kind(kind.config_class(**WORDS, intermediate_size=32, **more)).eval()
    purexport.pretrained_model(model, tmp_path)
    given = inputs()
    loaded = purexport.load_pretrained(tmp_path)
    found = loaded(**given)
    with torch.no_grad():
        wanted = model(**given)
    for key, item in found.items():
        torch.testing.assert_close(item, wanted[key], rtol=1e-3, atol=1e-4)
    with pytest.raises(ExportError, match=f"generates no text \\({name}\\)"):
        loaded.generate(**given)


@pytest.mark.parametrize("name", test_language_model.NAMES)
def test_two_graphs_of_fixed_shapes(name: str, tmp_path: Path) -> None:
    """Prompts of less than a piece, of one, and of more; the weights are in one file, and sizes are numbers.

    All but those that data decides: the experts of GPT-OSS take the tokens that chose them.
    """
    model = test_language_model.made(name)
    report = purexport.language_model(model, tmp_path, cache="static", max_length=32, prompt_length=4, verify=True)
    assert report.difference is not None
    assert report.files[:3] == ["prefill.onnx", "step.onnx", "model.onnx.data"]
    for file, tokens in (("prefill.onnx", 4), ("step.onnx", 1)):
        graph = ps.load(tmp_path / file).graph
        inside = graph.value_info if name != "GptOssForCausalLM" else ()
        for item in (*graph.input, *graph.output, *inside):
            assert all(dim.dim_value is not None for dim in item.type.tensor_type.shape.dim), item.name
        assert graph.input[0].type.tensor_type.shape.dim[1].dim_value == tokens
    state = sum(item.nbytes for item in model.state_dict().values())
    assert (tmp_path / "model.onnx.data").stat().st_size < 1.3 * state + 40_000
    for count in (1, 3, 4, 5):
        same_tokens(model, tmp_path, {"input_ids": IDS[:1, :count], "attention_mask": LEFT[1:, :count]})
    loaded = purexport.load_pretrained(tmp_path)
    first = loaded(input_ids=IDS[1:])
    with torch.no_grad():
        torch.testing.assert_close(first.logits, model(input_ids=IDS[1:]).logits, rtol=1e-3, atol=1e-4)
    assert first.past_key_values.get_seq_length() == 5
    with pytest.raises(ValueError, match=r"input_ids is \[2, 4\], and prefill.onnx takes \[1, 4\]"):
        loaded(input_ids=IDS)
