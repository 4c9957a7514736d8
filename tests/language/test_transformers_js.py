"""Folders for transformers.js: names of files, inputs and outputs are those that it asks for, and keys of configs.

What it asks for is written out here.  Whether it gives torch's tokens is seen in node, with its own package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError
from purexport.language import transformers_js
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")
from tests.language import test_language_model, test_several  # noqa: E402  they need transformers, too

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parent.parent.parent
LAYERS = 2


def cache(prefix: str, *kinds: str) -> list[str]:
    return [f"{prefix}.{at}.{kind}{part}" for at in range(LAYERS) for kind in kinds for part in ("key", "value")]


def of_pictures(name: str) -> Any:
    torch.manual_seed(0)
    return test_several._random(getattr(transformers, name)(test_several._pictures(name)))


BOTH = ("decoder.", "encoder.")
SEQ2SEQ = (["logits", *cache("present", *BOTH)], cache("past_key_values", *BOTH))
TEXT = ["input_ids", "attention_mask"]
MASKED = ["input_ids", "encoder_hidden_states", "encoder_attention_mask"]
STEP = (["logits", *cache("present", "")], cache("past_key_values", ""))
# a class -> (inputs, outputs) of its files
FILES: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "LlamaForCausalLM": {"model": ([*TEXT, "position_ids", *STEP[1]], STEP[0])},
    "T5ForConditionalGeneration": {
        "encoder_model": (TEXT, ["last_hidden_state"]),
        "decoder_model_merged": ([*MASKED, *SEQ2SEQ[1]], SEQ2SEQ[0]),
    },
    "WhisperForConditionalGeneration": {
        "encoder_model": (["input_features"], ["last_hidden_state"]),
        "decoder_model_merged": ([*MASKED[:2], *SEQ2SEQ[1]], SEQ2SEQ[0]),
    },
    "LlavaForConditionalGeneration": {
        "vision_encoder": (["pixel_values"], ["image_features"]),
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "decoder_model_merged": (["inputs_embeds", "attention_mask", "position_ids", *STEP[1]], STEP[0]),
    },
    "Gemma3ForConditionalGeneration": {
        "vision_encoder": (["pixel_values"], ["image_features"]),
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "decoder_model_merged": (["inputs_embeds", "attention_mask", "position_ids", *STEP[1]], STEP[0]),
    },
    "Lfm2ForCausalLM": {
        "model": (
            [*TEXT, "position_ids", "past_conv.0", *STEP[1][2:]],
            ["logits", "present_conv.0", *STEP[0][3:]],
        )
    },
}


def made(name: str) -> Any:
    if name in test_several.SIZES:
        return test_several.made(name)
    if name == "Lfm2ForCausalLM":
        sizes = {**test_several.WORDS, "layer_types": ["conv", "full_attention"]}
        torch.manual_seed(0)
        return test_several._random(transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**sizes)))
    return of_pictures(name) if name.endswith("ForConditionalGeneration") else test_language_model.made(name)


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("Whisper")])
def test_graphs(name: str) -> None:
    """The graphs that are to be written have the names, and caches whose length is that of an axis."""
    parts = transformers_js.graphs_of(made(name), None).parts
    found = {part.file: (part.input_names, list(part.output_names)) for part in parts}
    assert found == {f"{stem}.onnx": ports for stem, ports in FILES[name].items()}
    past = [port for part in parts for port in part.inputs if port.name.startswith("past_")]
    assert past and all(
        port.shape[0] == "batch_size" and (isinstance(port.shape[2], str) or "conv" in port.name) for port in past
    )


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path) -> None:
    """From a folder, each file of each type has the names, and the sizes of an empty cache; fp32 is torch's."""
    variants = list(transformers_js.VARIANTS)
    made(name).save_pretrained(source := tmp_path / "from")
    tmp_path = tmp_path / "to"
    report = purexport.language_model(source, tmp_path, "transformers.js", variants=variants, verify=True)
    assert report.difference is not None and report.target == "transformers.js"
    suffixes = [transformers_js.VARIANTS[variant] for variant in variants]
    wanted = {f"{stem}{suffix}.onnx" for stem in FILES[name] for suffix in suffixes}
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == wanted
    assert {"config.json", "generation_config.json"} <= set(report.files)
    for stem, (inputs, outputs) in FILES[name].items():
        for suffix in suffixes:
            graph = ps.load(tmp_path / "onnx" / f"{stem}{suffix}.onnx").graph
            assert [item.name for item in graph.input] == inputs and [item.name for item in graph.output] == outputs
            for item in graph.input:
                shape = item.type.tensor_type.shape.dim
                if (item.name or "").startswith("past_conv"):
                    assert shape[0].dim_param == "batch_size" and shape[1].dim_value and shape[2].dim_value
                elif (item.name or "").startswith("past_"):
                    assert shape[0].dim_param == "batch_size" and shape[1].dim_value and shape[3].dim_value
                    assert shape[2].dim_param  # an unknown name is a length of 0
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [name] and config["model_type"] and transformers_js._KEY not in config


def test_weights_in_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """config.json says which files have one, under the name that is looked for."""
    save = ps.save
    monkeypatch.setattr(ps, "save", lambda *args, **more: save(*args, **more, external_data=True, size_threshold=64))
    model = torch.nn.Linear(64, 8)
    program = purexport.export(model, (torch.rand(2, 64),), opset_version=21)
    files = {"config.json": b'{"transformers.js_config": {"dtype": "q4"}}'}
    told = transformers_js.Progress(None, transformers_js.FOLDER_STAGES)
    names = transformers_js.write_variants({"model.onnx": program.model_proto}, tmp_path, ["fp32", "fp16"], files, told)
    assert {"onnx/model.onnx_data", "onnx/model_fp16.onnx_data", "config.json"} <= set(names)
    config = json.loads((tmp_path / "config.json").read_text())["transformers.js_config"]
    assert config == {"dtype": "q4", "use_external_data_format": {"model.onnx": 1, "model_fp16.onnx": 1}}
    tensors = ps.load(tmp_path / "onnx" / "model_fp16.onnx").graph.initializer
    places = {item.value for tensor in tensors for item in tensor.external_data if item.key == "location"}
    assert places == {"model_fp16.onnx_data"}


@pytest.mark.full
def test_other_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`hf` by the command line, from a folder."""
    words = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
    config = transformers.BertConfig(**words, intermediate_size=32)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    asked = ["--target", "transformers.js", "--variants", "fp32,q8", "--verify"]
    assert main(["hf", str(tmp_path / "bert"), "-o", str(tmp_path / "out"), *asked]) == 0
    assert {path.name for path in (tmp_path / "out" / "onnx").iterdir()} == {"model.onnx", "model_quantized.onnx"}
    assert "verified: outputs differ by at most" in capsys.readouterr().out


def _state() -> Any:
    sizes = {**test_several.WORDS, "state_size": 8, "expand": 2}
    return transformers.MambaForCausalLM(transformers.MambaConfig(**sizes))


LLAMA: Callable[[], Any] = lambda: test_language_model.made("LlamaForCausalLM")  # noqa: E731
REFUSED: list[tuple[str, Callable[[], Any], dict[str, Any], type[Exception], str]] = [
    ("states", _state, {}, ExportError, "MambaForCausalLM keeps states beside keys and values, and takes tokens one"),
    ("types", LLAMA, {"variants": "fp8"}, ValueError, "variants: 'fp8' is not one of fp32, fp16, q8, q4, q4f16"),
    ("no type", LLAMA, {"variants": []}, ValueError, "variants names no type"),
    ("bits", LLAMA, {"quantize": "int4"}, ValueError, "takes no quantize=; leave it away; its files in fewer bits"),
    ("cache", LLAMA, {"cache": None}, ValueError, "target='transformers.js' takes no cache=; leave it away"),
    ("target", LLAMA, {"variants": "fp32", "target": "onnx"}, ValueError, "variants are of target='transformers.js'"),
    ("no floats", LLAMA, {"variants": "q4", "verify": True}, ValueError, "verify=True compares the files of fp32"),
]


@pytest.mark.parametrize(
    ("model", "options", "kind", "words"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(
    model: Callable[[], Any], options: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        purexport.language_model(model(), tmp_path / "out", **({"target": "transformers.js"} | options))
    assert not list(tmp_path.rglob("*.onnx"))


PACKAGE = "TRANSFORMERS_JS"  # the folder in which npm installed the package


@pytest.mark.full
@pytest.mark.skipif(PACKAGE not in os.environ, reason=f"{PACKAGE} names no folder with @huggingface/transformers")
def test_in_node() -> None:
    """Sixteen models of thirteen tasks, in node: tokens and scores are torch's."""
    script = ROOT / "benchmarks" / "transformers_js.py"
    command = [sys.executable, str(script), os.environ[PACKAGE], "--variants", "fp32"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 of 16 right" in done.stdout
