"""Weights in codes of GPTQ, AWQ and bitsandbytes: the numbers of these libraries, and codes that are kept in a file.

The numbers of the libraries for fixed words are kept as checksums; the tests do without them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from proto_schema.quantization import measured
from purexport.weights import WeightsError, bitsandbytes, gptq_awq, open_weights, transposed
from tests.weights import made

Array = np.ndarray[Any, Any]
KINDS = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8"}
NF4 = [-1, -0.696192801, -0.525073051, -0.394917488, -0.284441382, -0.18477343, -0.0910500363, 0]
NF4 += [0.0795802996, 0.160930201, 0.246112302, 0.337915242, 0.440709829, 0.562617004, 0.722956836, 1]
FP4 = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]


def words(seed: int, *shape: int) -> Array:
    return np.frombuffer(Random(seed).randbytes(4 * int(np.prod(shape))), "<i4").reshape(shape)


def halves(seed: int, *shape: int) -> Array:
    drawn = np.frombuffer(Random(seed).randbytes(2 * int(np.prod(shape))), "<u2") % 1000
    return drawn.astype(np.float16).reshape(shape) / np.float16(512)


def folder(path: Path, arrays: dict[str, Array], **config: Any) -> Path:
    """A checkpoint of one file, and the quantization config beside it."""
    header, data = {}, b""
    for name, array in arrays.items():
        part = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": KINDS[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        data += part
    made.safetensors(path / "model.safetensors", header, data)
    if config:
        (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    return path


def numbers(path: Path, name: str = "p.weight") -> Array:
    stored = open_weights(path)[name]
    return np.frombuffer(stored.payload.tobytes(), "<f4").reshape(stored.shape)


def checksum(values: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(values, "<f4").tobytes())


def gptq(bits: int, **more: Array) -> dict[str, Array]:
    zeros = words(bits + 10, 3, 64 * bits // 32)
    if bits == 3:  # auto-gptq does not wrap them there, though its zero points are of 3 bits
        zeros = zeros * 0
    parts = {"qweight": words(bits, 96 * bits // 32, 64), "qzeros": zeros, "scales": halves(bits + 20, 3, 64)}
    return {f"p.{name}": item for name, item in (parts | more).items()}


def awq() -> dict[str, Array]:
    parts = {"qweight": words(1, 96, 8), "qzeros": words(2, 3, 8), "scales": halves(3, 3, 64)}
    return {f"p.{name}": item for name, item in parts.items()}


def blocks4(kind: str, nested: bool, **state: Any) -> dict[str, Array]:
    table = NF4 if kind == "nf4" else [*FP4, *(-number for number in FP4)]
    said = {"quant_type": kind, "blocksize": 64, "dtype": "float32", "shape": [48, 128]}
    parts = {"": words(6, 96 * 64 // 8).view(np.uint8).reshape(-1, 1), ".quant_map": np.float32(table)}
    parts[".absmax"] = halves(5, 96).astype(np.float32)
    if nested:
        said |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}
        parts[".absmax"] = np.frombuffer(Random(8).randbytes(96), np.uint8)
        parts[".nested_absmax"] = halves(7, 1).astype(np.float32)
        parts[".nested_quant_map"] = halves(9, 256).astype(np.float32)
    text = json.dumps(said | state).encode()
    parts[f".quant_state.bitsandbytes__{kind}"] = np.frombuffer(text, np.uint8)
    return {f"p.weight{name}": item for name, item in parts.items()}


# (a name, the tensors, the config, the checksum of the numbers that the library makes of them):
# auto-gptq 0.7.1, autoawq 0.2.9, bitsandbytes 0.50.2
ROWS: list[tuple[str, dict[str, Array], dict[str, Any], int]] = [
    ("gptq in 2 bits", gptq(2), {"quant_method": "gptq"}, 0x8182E0A6),
    ("gptq in 3 bits", gptq(3), {"quant_method": "gptq", "group_size": 32}, 0x9881BB4B),
    ("gptq in 4 bits", gptq(4), {"quant_method": "gptq", "checkpoint_format": "gptq"}, 0x5B57C148),
    ("gptq in 8 bits", gptq(8), {"quant_method": "gptq"}, 0x3936F0B6),
    ("awq", awq(), {}, 0x402B1D78),
    ("nf4", blocks4("nf4", False), {}, 0xC58B6F62),
    ("nf4, nested", blocks4("nf4", True), {}, 0x42AE65B2),
    ("fp4", blocks4("fp4", False), {}, 0xB88FBA8F),
    ("fp4, nested", blocks4("fp4", True), {}, 0x1E1C510F),
]


@pytest.mark.parametrize(("tensors", "config", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_numbers_of_the_library(
    tensors: dict[str, Array], config: dict[str, Any], wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gptq_awq, "STEP", 96 * 24)  # several pieces
    monkeypatch.setattr(bitsandbytes, "_STEP", 64 * 20)
    folder(tmp_path, tensors | {"p.bias": np.float32([1])}, **config)
    assert sorted(open_weights(tmp_path)) == ["p.bias", "p.weight"]
    assert checksum(numbers(tmp_path)) == wanted


def test_rows_of_8_bits(tmp_path: Path) -> None:
    codes, largest = words(4, 8, 6).view(np.int8), np.float32(np.arange(8) + 1)
    folder(tmp_path, {"p.weight": codes, "p.SCB": largest, "p.weight_format": np.uint8(0)})
    assert np.array_equal(numbers(tmp_path), codes * (largest / np.float32(127))[:, None])


def test_zero_points_as_they_are(tmp_path: Path) -> None:
    """GPTQ's second format stores them so; where no config says it, symmetric codes do."""
    less_one = numbers(folder(tmp_path, gptq(4), quant_method="gptq"))
    kept = numbers(folder(tmp_path, gptq(4), quant_method="gptq", checkpoint_format="gptq_v2"))
    assert not np.array_equal(less_one, kept)
    for stored, format_ in ((0x77777777, "gptq"), (-0x77777778, "gptq_v2")):
        symmetric = gptq(4, qzeros=np.full((3, 8), stored, np.int32))
        told = numbers(folder(tmp_path, symmetric, quant_method="gptq", checkpoint_format=format_))
        (tmp_path / "config.json").unlink()
        assert np.array_equal(numbers(folder(tmp_path, symmetric)), told)


def test_groups_in_any_order(tmp_path: Path) -> None:
    """With `desc_act` the codes of a group are no neighbours; each has the scale that its number names."""
    order = np.random.default_rng(3).permutation(np.arange(96) // 32).astype(np.int32)
    plain = numbers(folder(tmp_path, gptq(4), quant_method="gptq"))
    found = numbers(folder(tmp_path, gptq(4, g_idx=order), quant_method="gptq"))
    same = order == np.arange(96) // 32
    assert np.array_equal(found[:, same], plain[:, same]) and not np.array_equal(found, plain)
    scales = halves(24, 3, 64).astype(np.float32).T
    steps = found / scales[:, order]
    assert np.allclose(steps, np.round(steps), atol=1e-3)


# ---- codes that are kept


class Across(nn.Module):
    """A product with a weight of [in, out]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(96, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def exported(
    path: Path, scheme: dict[str, Any], *, rank: int = 2, half: bool = False, opset: int = 21, across: bool = False
) -> ps.ModelProto:
    with torch.device("meta"):
        model = Across() if across else nn.Linear(96, 64, bias=False)
    dtype = torch.float16 if half else torch.float32
    example = torch.rand([2] * (rank - 1) + [96]).to(dtype)
    stored = open_weights(path)["p.weight"]
    weights = purexport.Checkpoint({"weight": transposed(stored, (1, 0)) if across else stored}, cast=True)
    program = purexport.export(
        model.to(dtype), (example,), path / "m.onnx", weights=weights, quantize=scheme, opset_version=opset
    )
    return program.model_proto


def by_onnxruntime(path: Path, half: bool) -> Array:
    """What the file multiplies with: a product with the unit matrix."""
    options = ort.SessionOptions()  # fused with the product, a DequantizeLinear rounds in another order
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path / "m.onnx", options, providers=["CPUExecutionProvider"])
    kind = np.float16 if half else np.float32
    given = session.get_inputs()[0]
    unit = np.eye(96, dtype=kind).reshape([1] * (len(given.shape) - 2) + [96, 96])
    rows = [unit[..., at : at + 2, :] for at in range(0, 96, 2)]
    if len(given.shape) == 3:
        rows = [np.concatenate([row, row]) for row in rows]
    found: Any = [session.run(None, {given.name: row})[0] for row in rows]
    return np.concatenate([item.reshape(-1, 64)[:2] for item in found]).T


# (tensors, scheme, the operator that reads the codes, options of the export)
KEPT: list[tuple[str, Callable[[], dict[str, Array]], dict[str, Any], str, dict[str, Any]]] = [
    ("int4", lambda: gptq(4), {"type": "int4"}, "DequantizeLinear", {}),
    ("uint4, rank 3", lambda: gptq(4), {"type": "uint4"}, "DequantizeLinear", {"rank": 3}),
    ("uint4 across", lambda: gptq(4), {"type": "uint4"}, "DequantizeLinear", {"across": True}),
    ("int4 across, half", lambda: gptq(4), {"type": "int4"}, "DequantizeLinear", {"across": True, "half": True}),
    ("across for a kernel", lambda: gptq(4), {"target": "onnxruntime"}, "MatMulNBits", {"across": True}),
    ("int8", lambda: gptq(8), {"type": "int8"}, "DequantizeLinear", {}),
    ("int2", lambda: gptq(2), {"type": "int2"}, "DequantizeLinear", {"opset": 25}),
    ("4 bits for a kernel", lambda: gptq(4), {"type": "int4", "target": "onnxruntime"}, "MatMulNBits", {}),
    ("8 bits for a kernel", lambda: gptq(8), {"type": "uint8", "target": "onnxruntime"}, "MatMulNBits", {"rank": 3}),
    ("2 bits for a kernel", lambda: gptq(2), {"type": "int2", "target": "onnxruntime"}, "MatMulNBits", {}),
    ("awq for a kernel", awq, {"type": "int4", "target": "onnxruntime"}, "MatMulNBits", {"half": True}),
    ("awq", awq, {"type": "uint4"}, "DequantizeLinear", {}),
]


@pytest.mark.parametrize(("tensors", "scheme", "form", "options"), [row[1:] for row in KEPT], ids=[r[0] for r in KEPT])
def test_codes_are_kept(
    tensors: Callable[[], dict[str, Array]],
    scheme: dict[str, Any],
    form: str,
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    folder(tmp_path, tensors(), quant_method="awq" if tensors is awq else "gptq")
    made = exported(tmp_path, scheme, **options)
    assert made.graph is not None and form in {node.op_type for node in made.graph.node}
    half = bool(options.get("half"))
    wanted = numbers(tmp_path).astype(np.float16 if half else np.float32)
    assert np.array_equal(by_onnxruntime(tmp_path, half), wanted)


def test_what_the_scheme_says_otherwise(tmp_path: Path) -> None:
    """Other bits, another block size, no zero points, groups in any order: the floats are quantized anew."""
    schemes: list[dict[str, Any]] = [{"type": "int8"}, {"block_size": 16}, {"type": "int4", "symmetric": True}]
    folder(tmp_path, gptq(4), quant_method="gptq")
    weights = purexport.Checkpoint(tmp_path, rename={"p.": ""})
    with torch.device("meta"):
        model = nn.Linear(96, 64, bias=False)
    program = purexport.export(model, (torch.rand(2, 96),), weights=weights)
    assert program.model_proto is not None
    errors = [measured(program.model_proto, scheme).entries[0].error for scheme in ({"type": "int4"}, *schemes)]
    assert errors[0] == 0 and all(error is not None and error > 1e-4 for error in errors[1:])
    order = np.random.default_rng(3).permutation(np.arange(96) // 32).astype(np.int32)
    folder(tmp_path, gptq(4, g_idx=order), quant_method="gptq")
    program = purexport.export(model, (torch.rand(2, 96),), weights=weights)
    error = measured(program.model_proto, "int4").entries[0].error
    assert error is not None and error > 1e-4


def test_all_zero_points_in_the_middle_are_left_out(tmp_path: Path) -> None:
    """But for unsigned types in front of DequantizeLinear, which takes 0 then."""
    folder(tmp_path, gptq(4, qzeros=np.full((3, 8), 0x77777777, np.int32)), quant_method="gptq")
    for kind, target, parts in (("int4", "onnx", 2), ("uint4", "onnx", 3), ("uint4", "onnxruntime", 2)):
        made = exported(tmp_path, {"type": kind, "symmetric": True, "target": target})
        assert made.graph is not None
        names = [tensor.name for tensor in made.graph.initializer]
        assert names == ["weight_quantized", "weight_scale", "weight_zero_point"][:parts]
        assert np.array_equal(by_onnxruntime(tmp_path, half=False), numbers(tmp_path))
    assert np.array_equal(by_onnxruntime(tmp_path, False), numbers(tmp_path))


# ---- what is refused


def without(tensors: dict[str, Array], name: str) -> dict[str, Array]:
    return {key: item for key, item in tensors.items() if key != name}


TEXT = "p.weight.quant_state.bitsandbytes__nf4"
REFUSED: list[tuple[str, dict[str, Array], dict[str, Any], str]] = [
    ("no config", gptq(4), {}, "no quantization config says which; put .*config.json"),
    ("another layout", gptq(4), {"quant_method": "gptq", "checkpoint_format": "marlin"}, "'marlin' of 'gptq'"),
    ("a version of AWQ", awq(), {"quant_method": "awq", "version": "gemv"}, "the version 'gemv' of AWQ"),
    ("words of another type", gptq(4, qweight=words(4, 12, 64).view(np.float32)), {}, "must be a matrix of INT32"),
    ("other shapes", gptq(4, qweight=words(4, 12, 32)), {}, "fits neither GPTQ nor AWQ .* qzeros \\[3, 8\\]"),
    (
        "groups of no size",
        gptq(4, scales=halves(1, 5, 64), qzeros=words(1, 5, 8)),
        {"quant_method": "gptq"},
        "5 groups",
    ),
    ("no elements", gptq(4, scales=halves(1, 0, 64), qzeros=words(1, 0, 8)), {}, "must have elements"),
    ("places of another size", gptq(4, g_idx=words(1, 95)), {"quant_method": "gptq"}, r"must be INT32 \[96\]"),
    ("no table", without(blocks4("nf4", False), "p.weight.quant_map"), {}, "needs a tensor 'p.weight.quant_map'"),
    ("no weight", without(blocks4("nf4", False), "p.weight"), {}, "needs a tensor 'p.weight'"),
    ("no text", blocks4("nf4", False) | {TEXT: np.frombuffer(b"{nf4", np.uint8)}, {}, "is not JSON text"),
    ("no object", blocks4("nf4", False) | {TEXT: np.frombuffer(b"[1]", np.uint8)}, {}, "is not a JSON object"),
    ("no sizes", blocks4("nf4", False, shape=[-1]), {}, "which is not a list of sizes"),
    ("an odd block", blocks4("nf4", False, blocksize=3), {}, "the block size 3, which is none of"),
    ("another shape", blocks4("nf4", False, shape=[48, 126]), {}, "must have 3024 elements of its type"),
    ("no offset", blocks4("nf4", True, nested_offset=None), {}, "256 scales with the offset None"),
    ("columns", {"p.weight": np.int8([[1]]), "p.SCB": np.float32([1]), "p.weight_format": np.uint8(1)}, {}, "by rows"),
    ("scales", {"p.weight": np.int8([[1]]), "p.SCB": np.float32([1, 2])}, {}, r"FLOAT \[rows\] of 'p.weight'"),
]


@pytest.mark.parametrize(
    ("tensors", "config", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(tensors: dict[str, Array], config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=message):
        open_weights(folder(tmp_path, tensors, **config))


def test_groups_that_do_not_exist(tmp_path: Path) -> None:
    places = np.full(96, 3, np.int32)
    folder(tmp_path, gptq(4, g_idx=places), quant_method="gptq")
    with pytest.raises(WeightsError, match="names groups from 3 to 3 of 3"):
        numbers(tmp_path)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    folder(tmp_path, gptq(4))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"^config\.json: it is not the JSON"):
        open_weights(tmp_path)


def test_what_only_looks_so_stays(tmp_path: Path) -> None:
    """A weight beside the words, or words alone, are tensors of a model as others are."""
    tensors = {**gptq(4), "p.weight": np.float32([1]), "q.qweight": words(1, 2, 2)}
    assert set(open_weights(folder(tmp_path, tensors))) == set(tensors)
