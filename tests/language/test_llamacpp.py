"""Folders with a .gguf of llama.cpp: the model is the one that the file was made of, whatever order its rows have."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proto_schema as ps
import purexport
from purexport.errors import ExportError
from purexport.language import folder, llamacpp
from purexport.weights import WeightsError, gguffile
from tests.language.test_language_model import made

gguf: Any = pytest.importorskip("gguf", reason="files of llama.cpp are made by its package gguf")


# what llama.cpp's converter does to tensors of these: rows of q and k in the order of its rotation, norms plus one
IN_TURNS = ("llama", "arcee", "granite", "olmo", "smollm3")
ONE_MORE = ("gemma", "gemma2", "gemma3", "nemotron")


def written(
    model: Any, path: Path, architecture: str, kind: str = "F32", skip: str = "", more: str = "", norms: str = "F32"
) -> Path:
    """A folder of a model: its config, and a .gguf file, whose names come from the tables of gguf."""
    path.mkdir()
    model.config.save_pretrained(path)
    known = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(known, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(path / "m.gguf", architecture)
    writer.add_block_count(model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        array, ending = tensor.numpy(), name.rpartition(".")[2]
        new = names.get_name(name, (".weight", ".bias"))
        if skip and skip in (new, name):
            continue
        assert new is not None and new.endswith(ending)
        if architecture in ONE_MORE and name.endswith("norm.weight"):
            array = array + np.float32(1)
        if architecture == "gpt2" and name.startswith("transformer.h.") and array.ndim == 2:
            array = array.T
        if architecture in IN_TURNS and (".q_proj" in name or ".k_proj" in name):
            heads = model.config.num_attention_heads if ".q_proj" in name else model.config.num_key_value_heads
            half = array.shape[0] // heads // 2
            array = array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if kind != "F32" and array.ndim == 2 and ending == "weight":
            code = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(new, gguf.quants.quantize(array, code), raw_dtype=code)
        else:
            writer.add_tensor(new, np.ascontiguousarray(array, np.float32 if norms == "F32" else np.float16))
    if more:
        writer.add_tensor(more, np.ones(8, np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return path


# the class, its sizes, the architecture of the file
ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("LlamaForCausalLM", {}, "llama"),
    ("LlamaForCausalLM", {"attention_bias": True, "tie_word_embeddings": True}, "llama"),
    ("MistralForCausalLM", {}, "llama"),
    ("Qwen2ForCausalLM", {}, "qwen2"),
    ("Qwen3ForCausalLM", {}, "qwen3"),
    ("Gemma2ForCausalLM", {}, "gemma2"),
    ("GPT2LMHeadModel", {}, "gpt2"),
]
MORE = [
    ("ArceeForCausalLM", {}, "arcee"),
    ("CohereForCausalLM", {"use_qk_norm": True}, "command-r"),
    ("Cohere2ForCausalLM", {}, "cohere2"),
    ("Ernie4_5ForCausalLM", {}, "ernie4_5"),
    ("Exaone4ForCausalLM", {}, "exaone4"),
    ("GemmaForCausalLM", {}, "gemma"),
    ("Gemma3ForCausalLM", {}, "gemma3"),
    ("Glm4ForCausalLM", {}, "glm4"),
    ("GPTBigCodeForCausalLM", {}, "starcoder"),
    ("GraniteForCausalLM", {}, "granite"),
    ("HunYuanDenseV1ForCausalLM", {}, "hunyuan-dense"),
    ("MptForCausalLM", {}, "mpt"),
    ("NemotronForCausalLM", {}, "nemotron"),
    ("OlmoForCausalLM", {}, "olmo"),
    ("Olmo2ForCausalLM", {}, "olmo2"),
    ("Olmo3ForCausalLM", {}, "olmo2"),
    ("PhiForCausalLM", {}, "phi2"),
    ("Phi3ForCausalLM", {}, "phi3"),
    ("SeedOssForCausalLM", {}, "seed_oss"),
    ("SmolLM3ForCausalLM", {}, "smollm3"),
    ("StableLmForCausalLM", {}, "stablelm"),
    ("Starcoder2ForCausalLM", {}, "starcoder2"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "sizes", "kind"), [*ROWS, *(pytest.param(*row, marks=pytest.mark.full) for row in MORE)]
)
def test_numbers(name: str, sizes: dict[str, Any], kind: str, tmp_path: Path) -> None:
    model = made(name, **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # different numbers that one can be added to
                parameter.copy_(torch.arange(len(parameter)) % 7 / 8 + 0.25)
    skip = "lm_head.weight" if model.config.tie_word_embeddings else ""
    place = written(model, tmp_path / "from", kind, skip=skip, more="rope_freqs.weight")
    found = folder.loaded(folder.look_into(place), torch.float32)
    ids = torch.arange(3, 12)[None]
    assert torch.equal(found(ids).logits, model(ids).logits)
    for key, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[key], tensor), key


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])  # codes that can be kept, and blocks that are floats
def test_numbers_of_blocks(kind: str, tmp_path: Path) -> None:
    model = made("LlamaForCausalLM", intermediate_size=64, num_hidden_layers=1)
    source = folder.look_into(written(model, tmp_path / "from", "llama", kind))
    state = folder.loaded(source, torch.float32).state_dict()
    code = gguf.GGMLQuantizationType[kind]
    for key, tensor in model.state_dict().items():
        if "proj" in key:
            wanted = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), code), code)
            assert np.array_equal(state[key].numpy(), wanted), key


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        pytest.param("F32", None, marks=pytest.mark.sweep),
        ("Q4_0", "int4"),
        pytest.param("Q8_0", "int8", marks=pytest.mark.sweep),
    ],
)
def test_folders(kind: str, scheme: str | None, tmp_path: Path) -> None:
    """From file to file; codes in blocks of the asked bits stay as they are, those of q and k in another order."""
    model = made("LlamaForCausalLM", intermediate_size=64)
    place = written(model, tmp_path / "from", "llama", kind)
    asked = None if scheme is None else {"type": scheme, "block_size": 32, "smallest": 512}
    report = purexport.language_model(place, tmp_path / "to", "onnxruntime", quantize=asked, verify=True)
    assert report.difference is not None and report.difference < 1e-4
    held = ps.load(tmp_path / "to" / "model.onnx").graph
    assert held is not None and "config.json" in report.files and "m.gguf" not in report.files
    if scheme is not None:
        scales = {item.name: ps.numpy_helper.to_array(item) for item in held.initializer}
        found = [
            item for name, item in scales.items() if "down_proj" in (name or "") and (name or "").endswith("_scale")
        ]
        blocks = gguf.quants.quantize(
            model.state_dict()["model.layers.0.mlp.down_proj.weight"].numpy(), gguf.GGMLQuantizationType[kind]
        )
        size = {"Q4_0": 18, "Q8_0": 34}[kind]
        wanted = blocks.reshape(64, -1, size)[:, :, :2].copy().view(np.float16)[..., 0]
        assert any(np.array_equal(item, wanted.astype(np.float32)) for item in found)


# (what, the class, the architecture, how the file is written, words of the error)
REFUSED: list[tuple[str, str, str, dict[str, str], str]] = [
    (
        "another architecture",
        "LlamaForCausalLM",
        "granite",
        {},
        "is of the architecture 'granite', and config.json has",
    ),
    ("another config", "Qwen2ForCausalLM", "llama", {}, "'llama', and config.json has model_type 'qwen2'; known are"),
    (
        "a tensor",
        "LlamaForCausalLM",
        "llama",
        {"more": "blk.0.ffn_gate_exps.weight"},
        "'blk.0.ffn_gate_exps.weight', wh",
    ),
    (
        "a tensor of no layer",
        "LlamaForCausalLM",
        "llama",
        {"more": "ffn_up.weight"},
        "the tensor 'ffn_up.weight', whose",
    ),
    ("a shape", "LlamaForCausalLM", "llama", {"more": "blk.7.attn_k.bias"}, ""),
    ("nothing", "LlamaForCausalLM", "llama", {"skip": "blk.1.attn_q.weight"}, "q_proj"),
    ("a norm in halves", "GemmaForCausalLM", "gemma", {"norms": "F16", "skip": "lm_head.weight"}, "as FLOAT16, which"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(row: Any, tmp_path: Path) -> None:
    _, name, kind, options, words = row
    model = made(name)
    place = written(model, tmp_path / "from", kind, **options)
    if not words:  # 8 numbers for 3 heads
        model.config.num_key_value_heads = 3
        words = "'blk.7.attn_k.bias' of shape [8] for 3 heads"
        found = {"blk.7.attn_k.bias": folder.open_weights(place / "m.gguf")["blk.7.attn_k.bias"]}
        with pytest.raises(ExportError) as caught:
            llamacpp.of_llama_cpp(model.config, place / "m.gguf", found)
    else:
        with pytest.raises((ExportError, WeightsError)) as caught:
            purexport.language_model(place, tmp_path / "to")
    assert words in str(caught.value)


def test_what_a_folder_may_hold(tmp_path: Path) -> None:
    """Later parts belong to the first; two files are two models."""
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"")
    assert folder._weights_of(tmp_path).name == "m-00001-of-00002.gguf"
    (tmp_path / "n.gguf").write_bytes(b"")
    with pytest.raises(ExportError, match=r"nor one \.gguf file"):
        folder._weights_of(tmp_path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"none")
    with pytest.raises(WeightsError, match="it is not a GGUF file"):
        gguffile.architecture(tmp_path / "m.gguf")


def test_names_of_the_model_stay(tmp_path: Path) -> None:
    """A file whose names are not llama.cpp's is read as others are."""
    config = importlib.import_module("transformers").LlamaConfig()
    assert llamacpp.of_llama_cpp(config, tmp_path / "m.gguf", {}) == {}
