"""Weights of compressed-tensors and ModelOpt: written here after their formats, read as numbers, and kept as codes.

`packed_words` writes a bit at a time, as the format says, and the reader reads bytes.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from proto_schema.quantization import measured
from proto_schema.reference import ReferenceEvaluator
from purexport.weights import WeightsError, compressed, open_weights, transposed
from tests.weights import made

Array = np.ndarray[Any, Any]
Tensors = dict[str, torch.Tensor]
ROWS, LENGTH = 48, 96
E4M3 = torch.float8_e4m3fn
KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", E4M3: "F8_E4M3"}
KINDS |= {torch.int8: "I8", torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64"}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def folder(path: Path, tensors: Tensors, **config: Any) -> Path:
    """A checkpoint of one file, and the quantization config beside it."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    made.safetensors(path / "model.safetensors", header, data)
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    return path


def drawn(low: int, high: int, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def scales(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(2)) + 0.5).to(dtype)


def packed_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """[rows, n] of codes without a sign as words, a bit at a time: bit b of element i is bit i * bits + b of a row."""
    rows, count = codes.shape
    words = np.zeros((rows, -(-count * bits // 32)), np.uint32)
    for place in range(count):
        for bit in range(bits):
            word, at = divmod(place * bits + bit, 32)
            words[:, word] |= ((codes[:, place].numpy() >> bit & 1) << at).astype(np.uint32)
    return torch.from_numpy(words.view(np.int32))


def in_words(bits: int, groups: int, zeros: bool = False, length: int = LENGTH, **more: torch.Tensor) -> Any:
    """(the tensors, the numbers, the config) of pack-quantized."""
    middle, scale = 1 << bits - 1, scales(ROWS, groups)
    codes = drawn(-middle, middle, ROWS, length)
    points = drawn(-middle, middle, ROWS, groups, seed=3) if zeros else torch.zeros(ROWS, groups)
    size = -(-length // groups)
    places = more["g_idx"].long() if "g_idx" in more else torch.arange(length) // size
    numbers = (codes - points[:, places]).float() * scale.float()[:, places]
    parts = {"packed": packed_words(codes + middle, bits), "scale": scale, "shape": torch.tensor([ROWS, length])}
    if zeros:
        parts["zero_point"] = packed_words((points.long() + middle).T, bits).T
    weights = {"num_bits": bits, "group_size": size if groups > 1 else None}
    config = {"config_groups": {"group_0": {"weights": weights}}, "format": "pack-quantized"}
    return {f"p.weight_{name}": item for name, item in (parts | more).items()}, numbers, config


def in_bytes(groups: int, zeros: bool = False, form: str = "int-quantized") -> Any:
    codes, scale = drawn(-128, 128, ROWS, LENGTH).to(torch.int8), scales(ROWS, groups)
    tensors = {"p.weight": codes, "p.weight_scale": scale, "p.input_scale": scales(1)}
    points = torch.zeros(ROWS, groups)
    if zeros:
        points = drawn(-128, 128, ROWS, groups, seed=3)
        tensors["p.weight_zero_point"] = points.to(torch.int8)
    wide = (item.float().repeat_interleave(LENGTH // groups, 1) for item in (points, scale))
    return tensors, (codes.float() - next(wide)) * next(wide), {"format": form}


def floats4(modelopt: bool) -> Any:
    codes, scale = drawn(0, 16, ROWS, LENGTH), scales(ROWS, LENGTH // 16).to(E4M3)
    octets = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    over = torch.tensor([0.25 if modelopt else 4.0])
    signed = torch.where(codes > 7, -1.0, 1.0) * E2M1[codes % 8]
    numbers = signed * (scale.float() * 0.25).repeat_interleave(16, 1)
    if modelopt:
        parts = {"weight": octets, "weight_scale": scale, "weight_scale_2": over[0], "input_scale": scales(1)}
        return {f"p.{name}": item for name, item in parts.items()}, numbers, {"quant_algo": "NVFP4"}
    parts = {"weight_packed": octets, "weight_scale": scale, "weight_global_scale": over}
    return {f"p.{name}": item for name, item in parts.items()}, numbers, {"format": "nvfp4-pack-quantized"}


def floats8(*shape: int, modelopt: bool = False) -> Any:
    codes, scale = (drawn(-448, 449, ROWS, LENGTH).float() / 2).to(E4M3), scales(*shape, dtype=torch.float32)
    tensors = {"p.weight": codes, "p.weight_scale": scale, "p.input_scale": scales(1)}
    wide = scale if scale.numel() in (1, ROWS) else scale.repeat_interleave(LENGTH // shape[1], 1)
    config = {"quant_algo": "FP8"} if modelopt else {"format": "float-quantized"}
    return tensors, codes.float() * wide, config


ORDER = torch.from_numpy(np.random.default_rng(3).permutation(np.arange(LENGTH) // 32).astype(np.int32))


class Across(nn.Module):
    """A product with a weight of [in, out]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(LENGTH, ROWS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


# what, the tensors with their numbers and config, and the scheme that keeps the codes with the opset it needs
KEPT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "4 bits in words": (lambda: in_words(4, 3), {"type": "int4"}),
    "4 bits in words, zero points": (lambda: in_words(4, 3, True), {"type": "uint4", "target": "onnxruntime"}),
    "8 bits in words": (lambda: in_words(8, 1), {"type": "int8"}),
    "integers by rows": (lambda: in_bytes(1), {"type": "int8"}),
    "integers in groups, zero points": (lambda: in_bytes(3, True), {"type": "uint8"}),
    "floats of 4 bits": (lambda: floats4(False), {"type": "nvfp4"}),
    "floats of 4 bits, ModelOpt": (lambda: floats4(True), {"type": "nvfp4"}),
    "floats of 8 bits by rows": (lambda: floats8(ROWS, 1), {"type": "float8e4m3fn"}),
    "floats of 8 bits in groups": (lambda: floats8(ROWS, 3), {"type": "float8e4m3fn"}),
    "floats of 8 bits, ModelOpt": (lambda: floats8(modelopt=True), {"type": "float8e4m3fn"}),
}
READ: dict[str, Callable[[], Any]] = {
    "2 bits in words": lambda: in_words(2, 3),
    "3 bits in words, zero points": lambda: in_words(3, 3, True),
    "5 bits in words, not whole": lambda: in_words(5, 1, length=90),
    "4 bits in words, a shorter group": lambda: in_words(4, 3, length=88),
    "groups in any order": lambda: in_words(4, 3, True, g_idx=ORDER),
    "naive": lambda: in_bytes(1, form="naive-quantized"),
}


@pytest.mark.parametrize("name", [*KEPT, *READ])
def test_numbers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_STEP", 7 * LENGTH)  # rows come in several pieces
    tensors, wanted, config = (KEPT[name][0] if name in KEPT else READ[name])()
    found = open_weights(folder(tmp_path, tensors | {"p.bias": scales(1)}, quant_method="compressed-tensors", **config))
    assert set(found) == {"p.weight", "p.bias"}
    stored = found["p.weight"]
    numbers = np.frombuffer(stored.payload.tobytes(), "<f4").reshape(stored.shape)
    assert np.array_equal(numbers, wanted.numpy())


@pytest.mark.parametrize("name", KEPT)
def test_codes_are_kept(name: str, tmp_path: Path) -> None:
    """Nothing is rounded, for a product of either form, and what reads the file gets the numbers of the checkpoint."""
    make, scheme = KEPT[name]
    tensors, wanted, config = make()
    folder(tmp_path, tensors, quant_method="modelopt" if "ModelOpt" in name else "compressed-tensors", **config)
    stored = open_weights(tmp_path)["p.weight"]
    unit = np.eye(LENGTH, dtype=np.float32)
    for across, given in ((False, unit), (True, unit[None])):
        with torch.device("meta"):
            model = Across() if across else nn.Linear(LENGTH, ROWS, bias=False)
        weights = purexport.Checkpoint({"weight": transposed(stored, (1, 0)) if across else stored})
        program = purexport.export(model, (torch.from_numpy(given),), weights=weights, quantize=scheme)
        kinds = {node.op_type for node in program.model_proto.graph.node}
        assert kinds & ({"MatMulNBits"} if "target" in scheme else {"DequantizeLinear"})
        found: Any = ReferenceEvaluator(program.model_proto).run(None, {program.model_proto.graph.input[0].name: given})
        assert np.array_equal(found[0].reshape(LENGTH, ROWS).T, wanted.numpy())
    if scheme["type"] != "nvfp4":  # ONNX Runtime's CPU has no kernel of floats of 4 bits
        options = ort.SessionOptions()  # fused with the product, a DequantizeLinear rounds in another order
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(ps.dumps(program.model_proto), options, providers=["CPUExecutionProvider"])
        found = session.run(None, {session.get_inputs()[0].name: unit[None]})
        assert np.array_equal(found[0][0].T, wanted.numpy())


def test_other_types_are_quantized_anew(tmp_path: Path) -> None:
    """Floats of one kind stay no integers, and no floats of another kind."""
    with torch.device("meta"):
        model = nn.Linear(LENGTH, ROWS, bias=False)
    for make, types in (
        (lambda: floats4(True), ("float8e4m3fn", "int4")),
        (lambda: floats8(ROWS, 1), ("nvfp4", "int8")),
    ):
        tensors, _, config = make()
        folder(tmp_path, tensors, **config)
        weights = purexport.Checkpoint(tmp_path, rename={"p.": ""})
        program = purexport.export(model, (torch.rand(2, LENGTH),), weights=weights)
        for kind in types:
            error = measured(program.model_proto, kind).entries[0].error
            assert error is not None and error > 1e-4


def changed(make: Callable[[], Any], **tensors: Any) -> Any:
    """The same with other tensors; None takes one away."""
    found, _, config = make()
    found = {**found, **{f"p.{name}": item for name, item in tensors.items()}}
    return {name: item for name, item in found.items() if item is not None}, config


def four() -> Any:
    return in_words(4, 3, True)


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("no shape", changed(four, weight_shape=None), {}, "needs a tensor 'p.weight_shape'"),
    (
        "another shape",
        changed(four, weight_shape=torch.tensor([48, 200])),
        {},
        r"which codes of \[48, 200\] do not fill",
    ),
    ("a shape of nothing", changed(four, weight_shape=torch.tensor([0, -1])), {}, r"says \[0, -1\]"),
    ("a shape of floats", changed(four, weight_shape=scales(2)), {}, r"must be INT64 \[2\], and is FLOAT16"),
    ("scales of other rows", changed(four, weight_scale=scales(47, 3)), {}, r"has the shape \[47, 3\] for a weight"),
    ("scales of integers", changed(four, weight_scale=drawn(0, 9, 48, 3)), {}, "must be floats, and is INT64"),
    ("zero points of other rows", changed(four, weight_zero_point=drawn(0, 9, 5, 3)), {}, "words of 48 x 3 codes"),
    ("places of other columns", changed(four, weight_g_idx=ORDER[1:]), {}, r"must be INT32 \[96\]"),
    ("a stack", changed(four, weight_packed=drawn(0, 9, 2, 3, 4).int()), {}, "must be a matrix"),
    ("another format", changed(four), {"format": "marlin-24"}, "has the format 'marlin-24', and pack-quantized"),
    (
        "bytes with other points",
        changed(lambda: in_bytes(3, True), weight_zero_point=scales(48, 3)),
        {},
        r"INT8 \[48, 3\]",
    ),
    (
        "blocks of another size",
        changed(lambda: floats4(True), weight_scale=scales(48, 3).to(E4M3)),
        {},
        r"\[48, 6\], and",
    ),
    ("two scales of scales", changed(lambda: floats4(True), weight_scale_2=scales(2)), {}, "must be one FLOAT, and is"),
    ("scaled inputs", changed(lambda: floats4(True), pre_quant_scale=scales(96)), {}, "a pre_quant_scale"),
]


@pytest.mark.parametrize(("given", "more", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(given: Any, more: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors, config = given
    with pytest.raises(WeightsError, match=message):
        open_weights(folder(tmp_path, tensors, **{"quant_method": "compressed-tensors", **config, **more}))


def test_what_only_looks_so_stays(tmp_path: Path) -> None:
    """Bytes without a scale, and bytes with one scale that are no floats."""
    tensors = {"p.weight": drawn(0, 9, 4, 4).to(torch.int8), "q.weight": drawn(0, 9, 4, 4).to(torch.uint8)}
    tensors |= {"q.weight_scale": scales(4, 1), "r.weight_packed": drawn(0, 9, 4, 4).int()}
    assert set(open_weights(folder(tmp_path, tensors))) == set(tensors)


@pytest.mark.full
@pytest.mark.skipif("COMPRESSED_TENSORS" not in os.environ, reason="COMPRESSED_TENSORS is no folder of the package")
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
def test_the_words_of_the_library(bits: int) -> None:
    """The packer here writes what the library writes."""
    path = Path(os.environ["COMPRESSED_TENSORS"], "compressed_tensors/compressors/pack_quantized/helpers.py")
    spec = importlib.util.spec_from_file_location("helpers_of_compressed_tensors", path)  # of which it needs this file
    assert spec is not None and spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    middle = 1 << bits - 1
    codes = drawn(-middle, middle, 40, 90)
    for given, dim in ((codes, 1), (codes.T, 0)):
        words = packed_words(codes + middle, bits)
        assert torch.equal(library.pack_to_int32(given.to(torch.int8), bits, packed_dim=dim), words if dim else words.T)
