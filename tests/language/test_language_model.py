"""Folders for runtimes, of tiny models of transformers.  The file's numbers are torch's, step by step.

transformers is no requirement of the tests: they run where it is installed.
"""

from __future__ import annotations

import importlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError
from purexport.language import attention, folder
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")

SIZES = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
SIZES |= {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}
# of each kind one: a window, norms of queries and keys, sinks and experts, attention that is written out
NAMES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM", "GptOssForCausalLM", "BloomForCausalLM"]
MORE = {"MistralForCausalLM": {"sliding_window": 4}, "GptOssForCausalLM": {"sliding_window": 4, "num_local_experts": 4}}
MORE["MixtralForCausalLM"] = {"num_local_experts": 4}


def made(name: str, **sizes: int) -> Any:
    """A tiny model of a class, with weights that tell tokens apart."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**(SIZES | MORE.get(name, {}) | sizes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15) if parameter.dim() > 1 else parameter.add_(0.1)
    return model


def operators(path: Path) -> list[str]:
    return [node.op_type or "" for node in ps.load(path / "model.onnx").graph.node]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("target", "fused"), [("onnx", "Attention"), ("onnxruntime", "GroupQueryAttention")], ids=["onnx", "onnxruntime"]
)
@pytest.mark.parametrize("name", NAMES)
def test_model(name: str, target: str, fused: str, tmp_path: Path) -> None:
    report = purexport.language_model(made(name), tmp_path, target, verify=True)
    assert report.difference is not None and (tmp_path / "config.json").is_file()
    assert report.proven == report.fused and not any("not proven" in text for text in report.warnings)
    if not (name == "GptOssForCausalLM" and target == "onnx"):  # the standard's operator has no sinks
        assert operators(tmp_path).count(fused) == report.attention == report.layers == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("positive", [True, False])
def test_experts(positive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One operator a layer; where it cannot say the router's weights, the products that the model itself makes."""
    if not positive:
        monkeypatch.setattr("purexport.fusion.experts._is_positive", lambda *_: False)
    report = purexport.language_model(made("MixtralForCausalLM"), tmp_path, "onnxruntime", verify=True)
    assert report.difference is not None
    assert operators(tmp_path).count("MoE") == (2 if positive else 0)
    assert any("the weights of its experts may be negative" in line for line in report.not_fused) is not positive


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("target", "products"), [("onnx", "DequantizeLinear"), ("onnxruntime", "MatMulNBits")], ids=["onnx", "onnxruntime"]
)
def test_quantized(target: str, products: str, tmp_path: Path) -> None:
    """Products of one input are one product; 17 steps are those of the rounded weights."""
    model = made("LlamaForCausalLM")
    report = purexport.language_model(model, tmp_path, target, quantize={"type": "int4", "smallest": 512}, verify=True)
    assert report.difference is not None and report.difference < 1e-4
    found = operators(tmp_path)
    assert found.count(products) == (2 * 5 + 1 if target == "onnxruntime" else 2 * 7 + 1)
    assert found.count("GroupQueryAttention" if target == "onnxruntime" else "Attention") == 2


# (the class, its sizes, the scheme, how large the file may be beside the checkpoint's floats)
EXPERTS: list[Any] = [
    ("MixtralForCausalLM", {}, {"type": "int4", "accuracy_level": 4}, 0.3),
    pytest.param(
        *("Qwen3MoeForCausalLM", {"num_experts": 8, "moe_intermediate_size": 64}, "int8", 0.45), marks=pytest.mark.sweep
    ),
    pytest.param("GptOssForCausalLM", {}, "int4", 0.3, marks=pytest.mark.sweep),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "sizes", "scheme", "share"), EXPERTS)
def test_quantized_experts(name: str, sizes: dict[str, int], scheme: Any, share: float, tmp_path: Path) -> None:
    """From a folder with a tensor for each expert to QMoE; 17 steps are those of the rounded weights."""
    model = made(name, **sizes, hidden_size=128, intermediate_size=64)
    model.save_pretrained(tmp_path / "from")
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", "onnxruntime", quantize=scheme, verify=True)
    assert report.difference is not None and report.difference < 1e-4
    found = operators(tmp_path / "to")
    assert found.count("QMoE") == 2 and "MoE" not in found
    floats = sum(item.nbytes for item in model.state_dict().values())
    assert report.bytes < share * floats + 150_000  # the tables of angles, and the graph
    assert not any("quantize:" in text for text in report.warnings)


@pytest.mark.filterwarnings("ignore")
def test_experts_that_stay_are_told(tmp_path: Path) -> None:
    scheme = {"type": "float8e4m3fn", "smallest": 512}
    report = purexport.language_model(made("MixtralForCausalLM"), tmp_path, "onnxruntime", quantize=scheme)
    told = [text for text in report.warnings if "MoE, whose form for codes has no float8e4m3fn" in text]
    assert len(told) == 2 * 2 and operators(tmp_path).count("MoE") == 2


def in_codes(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The weight as AWQ packs it: zero points of 8, and scales of 32 codes of a row."""
    rows = weight.detach().reshape(len(weight), -1, 32)
    scales = (rows.abs().amax(-1, keepdim=True) / 7).half()
    codes = (rows / scales.float()).round().clamp(-8, 7).reshape(weight.shape).T.to(torch.int64) + 8
    columns = codes.reshape(len(codes), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
    words = (columns << torch.arange(0, 32, 4)).sum(-1).to(torch.int32)
    groups = scales[..., 0].T.contiguous()
    zeros = torch.full((len(groups), words.shape[1]), -0x77777778, dtype=torch.int32)
    return {"qweight": words, "scales": groups, "qzeros": zeros}


@pytest.mark.filterwarnings("ignore")
def test_a_folder_in_codes(tmp_path: Path) -> None:
    """Codes of 4 bits go from the folder to the kernel's form; 17 steps are those of the floats they stand for."""
    from safetensors.torch import load_file, save_file  # which transformers needs

    made("LlamaForCausalLM", intermediate_size=64).save_pretrained(source := tmp_path / "from")
    state = load_file(source / "model.safetensors")
    for name in [name for name in state if name.endswith("_proj.weight")]:
        state |= {name.removesuffix("weight") + key: item for key, item in in_codes(state.pop(name)).items()}
    save_file(state, source / "model.safetensors")
    config = json.loads((source / "config.json").read_text()) | {"quantization_config": {"quant_method": "awq"}}
    (source / "config.json").write_text(json.dumps(config))
    scheme = {"type": "int4", "exclude": "*lm_head*", "smallest": 512}
    report = purexport.language_model(source, tmp_path / "to", "onnxruntime", quantize=scheme, verify=True)
    assert report.difference is not None and report.difference < 1e-4
    assert operators(tmp_path / "to").count("MatMulNBits") == 2 * 5
    held = ps.load(tmp_path / "to" / "model.onnx")
    assert held.graph is not None
    scales = {tensor.name: ps.numpy_helper.to_array(tensor) for tensor in held.graph.initializer}
    wanted = state["model.layers.0.mlp.down_proj.scales"].float().numpy().T
    assert any(np.array_equal(item, wanted) for name, item in scales.items() if "down_proj" in (name or ""))


@pytest.mark.filterwarnings("ignore")
def test_attention_that_does_not_count_tokens_is_told(tmp_path: Path) -> None:
    """With the other operators a new token would stand behind the padding of its row."""
    for width, told in ((12, 1), (16, 0)):
        model = made("LlamaForCausalLM", hidden_size=4 * width, head_dim=width)
        report = purexport.language_model(model, tmp_path / f"{width}", "onnxruntime-genai")
        found = [text for text in report.warnings if "2 of 2 layers have other attention" in text]
        assert len(found) == told and all(f"keys have {width} elements" in text for text in found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"max_shard_size": "20KB"}], ids=["one-file", "shards"])
def test_folder(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights go from file to file: no parameter of the model that is made has values."""
    made("LlamaForCausalLM").save_pretrained(tmp_path / "from", **options)
    (tmp_path / "from" / "tokenizer.json").write_text("{}")
    read: list[Any] = []
    reader = folder.read_folder

    def reading(place: Path) -> Any:
        read.append(reader(place))
        return read[-1]

    monkeypatch.setattr("purexport.language.model.read_folder", reading)
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", "onnxruntime-genai", verify=True)
    assert all(parameter.is_meta for parameter in read[0][0].parameters())
    assert report.difference is not None and report.attention == 2
    assert {"config.json", "tokenizer.json", "genai_config.json", "model.onnx"} <= set(report.files)
    decoder = json.loads((tmp_path / "to" / "genai_config.json").read_text())["model"]["decoder"]
    wanted = {"head_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    assert {name: decoder[name] for name in wanted} == wanted


OTHERS: dict[str, dict[str, Any]] = {
    "MixtralForCausalLM": {"num_local_experts": 4},  # a tensor for each expert
    "GPTNeoXForCausalLM": {},  # other names
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_folder_of_other_tensors(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint has other tensors than the model; what the library makes of them is in the file."""
    monkeypatch.setitem(MORE, name, OTHERS[name])
    made(name).save_pretrained(tmp_path / "from")
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", verify=True)
    assert report.difference is not None and report.difference < 1e-4


# the type of the checkpoint, the target, dtype= -> the type of the cache in the file
TYPES: list[tuple[torch.dtype, str, str | None, str]] = [
    (torch.bfloat16, "onnx", None, "tensor(bfloat16)"),
    (torch.bfloat16, "onnxruntime", None, "tensor(float)"),
    (torch.bfloat16, "onnxruntime", "float16", "tensor(float16)"),
    (torch.float32, "onnx", "float16", "tensor(float16)"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("stored", "target", "dtype", "wanted"), TYPES)
def test_types(stored: torch.dtype, target: str, dtype: str | None, wanted: str, tmp_path: Path) -> None:
    import onnxruntime

    made("LlamaForCausalLM").to(stored).save_pretrained(tmp_path / "from")
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", target, dtype=dtype, verify=True)
    assert report.difference is not None
    session = onnxruntime.InferenceSession(str(tmp_path / "to" / "model.onnx"), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[-1].type == session.get_outputs()[0].type == wanted
    assert any("bfloat16" in line for line in report.warnings) == (
        stored is torch.bfloat16 and wanted.endswith("(float)")
    )


@pytest.mark.filterwarnings("ignore")
def test_norm_between_types(tmp_path: Path) -> None:
    """The norm computes in float32 and gives halves back; the model that is given stays as it is."""
    model = made("GptOssForCausalLM")
    report = purexport.language_model(model, tmp_path, dtype="float16", verify=True)
    assert report.difference is not None and model.dtype == torch.float32


@pytest.mark.filterwarnings("ignore")
def test_progress(tmp_path: Path) -> None:
    """What is written is verified afterwards; the bytes are counted while it is written."""
    said: list[tuple[str, int]] = []
    counted: list[tuple[int, int]] = []

    def progress(stage: str, number: int, stages: int, *, done: int | None = None, total: int | None = None) -> None:
        assert stages == 6
        if done is None or total is None:
            said.append((stage, number))
        else:
            counted.append((done, total))

    purexport.language_model(made("LlamaForCausalLM"), tmp_path, verify=True, progress=progress)
    stages = ("capture", "functionalize", "lower", "build", "save", "verify")
    assert said == [(stage, number) for number, stage in enumerate(stages, 1)]
    assert counted and counted[-1][0] == counted[-1][1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM"])
def test_generated(name: str, tmp_path: Path) -> None:
    """onnxruntime-genai generates what `generate` does."""
    runtime = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    model = made(name)
    purexport.language_model(model, tmp_path, "onnxruntime-genai")
    ids = torch.randint(3, 90, (1, 6), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 32, "do_sample": False, "eos_token_id": None}
    wanted = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    loaded = runtime.Model(str(tmp_path))
    parameters = runtime.GeneratorParams(loaded)
    parameters.set_search_options(max_length=len(wanted), do_sample=False)
    generator = runtime.Generator(loaded, parameters)
    generator.append_tokens(ids.numpy().astype("int32"))
    while not generator.is_done():
        generator.generate_next_token()
    got = [int(token) for token in generator.get_sequence(0)]
    assert got == wanted[: len(got)] and wanted[len(got) :][:1] in ([], [2])  # it stops in front of the end


@pytest.mark.filterwarnings("ignore")
def test_last_logits(tmp_path: Path) -> None:
    """The prompt has several tokens; the check compares the shapes too."""
    report = purexport.language_model(made("LlamaForCausalLM"), tmp_path, last_logits=True, verify=True)
    assert report.difference is not None


def test_registries_are_as_before() -> None:
    """What stands in for a function of transformers is gone afterwards, also after an error."""
    model = made("LlamaForCausalLM")
    modeling, masking = (
        importlib.import_module(f"transformers.{name}") for name in ("modeling_utils", "masking_utils")
    )
    registries = (modeling.ALL_ATTENTION_FUNCTIONS, masking.ALL_MASK_ATTENTION_FUNCTIONS)
    before = [dict(registry._global_mapping) for registry in registries], model.config._attn_implementation
    with pytest.raises(KeyError, match="stop"), attention.attention_recorded(model) as asks:
        assert asks and model.config._attn_implementation == attention.NAME
        raise KeyError("stop")
    assert ([dict(registry._global_mapping) for registry in registries], model.config._attn_implementation) == before


def test_patterns_of_masks() -> None:
    """A mask function is asked what it hides; one that looks into tensors, or is of no known pattern, says nothing."""
    masks = importlib.import_module("transformers.masking_utils")
    of = attention.pattern_of
    assert of(masks.causal_mask_function, None) == ("causal", 0)
    assert of(masks.bidirectional_mask_function, None) == ("full", 0)
    assert of(masks.sliding_window_causal_mask_function(7), 7) == ("window", 7)
    assert of(masks.sliding_window_causal_mask_function(70000), None) == ("other", 0)
    assert of(masks.sliding_window_causal_mask_function(7), 6) == ("other", 0)
    assert of(masks.padding_mask_function(torch.ones(1, 3, dtype=torch.bool)), None) == ("other", 0)


@pytest.mark.filterwarnings("ignore")
def test_files_of_others_stay(tmp_path: Path) -> None:
    """A file with another content is not written over, and nothing else is written then."""
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(FileExistsError, match="says something else"):
        purexport.language_model(made("LlamaForCausalLM"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "mine"


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExportError, match=r"has no config\.json"):
        purexport.language_model(tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match="target='tflite' is not one of 'onnx'"):
        purexport.language_model(made("LlamaForCausalLM"), tmp_path / "out", "tflite")
    with pytest.raises(ValueError, match="dtype='int8' is not one of 'float32', 'float16', 'bfloat16'"):
        purexport.language_model(made("LlamaForCausalLM"), tmp_path / "out", dtype="int8")
    made("LlamaForCausalLM").save_pretrained(quantized := tmp_path / "quantized")
    config = json.loads((quantized / "config.json").read_text()) | {"quantization_config": {"quant_method": "hqq"}}
    (quantized / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportError, match="quantized by hqq, and gptq, awq, bitsandbytes, fp8 can be read"):
        purexport.language_model(quantized, tmp_path / "out")
    with pytest.raises(ExportError, match="Linear is not a model of transformers"):
        purexport.language_model(torch.nn.Linear(2, 2), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert main(["llm", str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert "has no config.json" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["from/config.json", "from/model.safetensors", "to"])
def test_a_pipe_is_refused(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not waited for, and stays what it is."""
    made("LlamaForCausalLM").save_pretrained(tmp_path / "from")
    pipe = tmp_path / place
    pipe.unlink(missing_ok=True)
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    assert main(["llm", str(tmp_path / "from"), "-o", str(tmp_path / "to")]) in (1, 2)
    assert pipe.name in capsys.readouterr().err and pipe.is_fifo()


@pytest.mark.filterwarnings("ignore")
def test_a_pipe_is_written_once(tmp_path: Path) -> None:
    """As that of an export: whoever reads it gets the file."""
    made("LlamaForCausalLM").save_pretrained(tmp_path / "from")
    (tmp_path / "to").mkdir()
    os.mkfifo(pipe := tmp_path / "to" / "model.onnx")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(pipe.read_bytes)
        assert main(["llm", str(tmp_path / "from"), "-o", str(tmp_path / "to")]) == 0
        assert ps.loads(found.result(10)).graph is not None and pipe.is_fifo()


@pytest.mark.filterwarnings("ignore")
def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made("LlamaForCausalLM").save_pretrained(tmp_path / "from")
    out = tmp_path / "out"
    options = ["--target", "onnxruntime", "--verify", "--json"]
    assert main(["llm", str(tmp_path / "from"), "-o", str(out), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["attention"], report["layers"], report["target"]) == (2, 2, "onnxruntime")
    assert report["difference"] < 1e-4
