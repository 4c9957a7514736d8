"""Weights in floats of 8 bits with scales: the numbers of torch, in pieces, and folders of language models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import purexport
from purexport.weights import WeightsError, float8, open_weights
from tests.weights import made

KINDS = {torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float32: "F32", torch.float16: "F16"}
E8M0 = getattr(torch, "float8_e8m0fnu", None)  # torch has it since 2.7
KINDS |= {torch.bfloat16: "BF16", torch.int32: "I32"} | ({E8M0: "F8_E8M0"} if E8M0 else {})
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
Tensors = dict[str, torch.Tensor]


def folder(path: Path, tensors: Tensors, **config: Any) -> Path:
    """A checkpoint of one file, and the quantization config beside it."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        data += part
    made.safetensors(path / "model.safetensors", header, data)
    if config:
        (path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8", **config}}))
    return path


def drawn(*shape: int, dtype: torch.dtype = E4M3) -> torch.Tensor:
    """Any codes but those of no number."""
    codes = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    numbers = codes.view(dtype).float()
    return torch.where(numbers.isfinite(), numbers, 1).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(2)) + 0.5


def spread(scale: torch.Tensor, shape: torch.Size, rows: int, columns: int) -> torch.Tensor:
    """A scale for each element."""
    wide = scale.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    return wide[..., : shape[-2], : shape[-1]]


# (what, the weight, its scales, the name of these, the config, the size of blocks)
ROWS: list[tuple[str, torch.Tensor, torch.Tensor, str, dict[str, Any], tuple[int, int]]] = [
    ("usual", drawn(256, 384), scales(2, 3), "p.weight_scale_inv", {"weight_block_size": [128, 128]}, (128, 128)),
    ("cut at the edge", drawn(300, 200), scales(3, 2), "p.weight_scale_inv", {}, (128, 128)),
    ("other blocks", drawn(60, 96), scales(4, 3), "p.weight_scale_inv", {"weight_block_size": [16, 32]}, (16, 32)),
    ("equal parts", drawn(64, 96), scales(4, 2), "p.weight_scale_inv", {}, (16, 48)),
    ("a stack", drawn(3, 130, 140), scales(3, 2, 2), "p.weight_scale_inv", {}, (128, 128)),
    ("one scale", drawn(40, 50), scales(1).reshape(()), "p.weight_scale_inv", {}, (40, 50)),
    ("one scale for a stack", drawn(3, 4, 5), scales(1), "p.weight_scale", {}, (4, 5)),
    ("of all", drawn(40, 50), scales(1), "p.weight_scale", {}, (40, 50)),
    ("of rows", drawn(40, 50), scales(40, 1), "p.weight_scale", {}, (1, 50)),
    ("e5m2", drawn(140, 20, dtype=E5M2), scales(2, 1), "p.weight_scale_inv", {}, (128, 128)),
    ("bfloat16", drawn(140, 20), scales(2, 1).bfloat16(), "p.weight_scale_inv", {}, (128, 128)),
    ("float16", drawn(140, 20), scales(2, 1).half(), "p.weight_scale_inv", {}, (128, 128)),
]
if E8M0:
    ROWS.append(("powers of two", drawn(140, 20), scales(2, 1).to(E8M0), "p.weight_scale_inv", {}, (128, 128)))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_numbers(row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, weight, scale, name, config, block = row
    monkeypatch.setattr(float8, "_STEP", 1000)  # rows come in several pieces
    found = open_weights(folder(tmp_path, {"p.weight": weight, name: scale}, **config))
    assert set(found) == {"p.weight"}
    stored = found["p.weight"]
    if scale.numel() == 1:
        wanted = weight.float() * scale.float()
    else:
        wanted = weight.float() * spread(scale.float(), weight.shape, *block)
    chunks = list(stored.payload.chunks())
    assert stored.shape == tuple(weight.shape) and b"".join(chunks) == wanted.numpy().tobytes()
    assert max(map(len, chunks)) <= 4 * max(1000, weight.shape[-1])


def test_what_only_looks_so_stays(tmp_path: Path) -> None:
    """Scales of other weights, of none, and weights without scales."""
    tensors = {"p.weight": scales(2, 2), "p.weight_scale": scales(1), "q_scale_inv": scales(1), "r.weight": drawn(4, 4)}
    assert set(open_weights(folder(tmp_path, tensors))) == set(tensors)


# (what, the weight, its scales, words of the error)
REFUSED: list[tuple[str, torch.Tensor, torch.Tensor, str]] = [
    ("too few", drawn(300, 200), scales(2, 7), "has 2 x 7 scales, which do not fit the weight"),
    ("another rank", drawn(4, 4, 4), scales(2, 2), r"has the shape \[2, 2\], and its weight \[4, 4, 4\]"),
    ("another stack", drawn(4, 4, 4), scales(2, 1, 1), r"has the shape \[2, 1, 1\]"),
    ("none", drawn(4, 4), scales(0, 1), r"has the shape \[0, 1\]"),
    ("a vector", drawn(4), scales(4), r"has the shape \[4\]"),
    ("integers", drawn(4, 4), torch.ones(1, 1, dtype=torch.int32), "must be floats, and is INT32"),
]


@pytest.mark.parametrize(("weight", "scale", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(weight: torch.Tensor, scale: torch.Tensor, words: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=words):
        open_weights(folder(tmp_path, {"p.weight": weight, "p.weight_scale_inv": scale}))


def in_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight as transformers writes it: codes, and a scale for each block of 128 x 128."""
    rows, columns = (-(-size // 128) for size in weight.shape)
    padded = torch.zeros(rows * 128, columns * 128)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    largest = padded.reshape(rows, 128, columns, 128).abs().amax((1, 3)).clamp(min=1e-12)
    scale = largest / 448
    return (weight / spread(scale, weight.shape, 128, 128)).to(E4M3), scale


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("LlamaForCausalLM", {}, marks=pytest.mark.sweep),
        ("MixtralForCausalLM", {"quantize": "int4", "target": "onnxruntime"}),
    ],
)
def test_folders(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """A language model, with a tensor for each expert; the logits are those of the numbers that the codes mean."""
    module = pytest.importorskip("tests.language.test_language_model", reason="transformers is not installed")
    from safetensors.torch import load_file

    made_model: Callable[..., Any] = module.made
    made_model(name, intermediate_size=64).save_pretrained(tmp_path / "from")
    state = load_file(tmp_path / "from" / "model.safetensors")
    for key in [key for key in state if key.endswith(("_proj.weight", "w1.weight", "w2.weight", "w3.weight"))]:
        state[key], state[f"{key}_scale_inv"] = in_blocks(state[key])
    assert any(key.endswith("_scale_inv") for key in state)
    config = json.loads((tmp_path / "from" / "config.json").read_text())
    folder(tmp_path / "from", state)
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "from" / "config.json").write_text(json.dumps(config))
    report = purexport.language_model(tmp_path / "from", tmp_path / "to", verify=True, **options)
    assert report.difference is not None and report.difference < 1e-4
