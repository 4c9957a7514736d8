"""GGUF: every type gives the numbers of the reference, bit by bit, and what is malformed is refused with its place.

The reference is the `gguf` package. Its numbers for fixed blocks are kept as checksums; the tests do without it.
Where it is installed, many more blocks are compared, and files that its writer makes.
"""

from __future__ import annotations

import importlib
import zlib
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
from proto_schema.external.payload import FileRange
from proto_schema.quantization import measured
from purexport.weights import Stored, WeightsError, open_weights
from purexport.weights.gguf import payload as payloads
from purexport.weights.gguf.types import TYPES
from tests.tiers import dealt
from tests.weights import made
from tests.weights.made import gguf_info as info
from tests.weights.made import gguf_text as text

DECODED = [row for row in TYPES.values() if row.decode is not None]


def blocks_of(code: int, count: int) -> bytes:
    return Random(code).randbytes(count * TYPES[code].size)


def checksum(values: np.ndarray[Any, Any]) -> int:
    """Of the bits, all NaNs taken as one."""
    return zlib.crc32(np.where(np.isnan(values), np.float32(1e30), values).astype("<f4").tobytes())


# of 64 blocks by gguf 0.19.0: `checksum(gguf.quants.dequantize(...))`; of Q8_K, which it lacks, by the loop below
CHECKSUMS = {
    "Q4_0": 0x64E2535C,
    "Q4_1": 0x02B403D1,
    "Q5_0": 0x2D28A112,
    "Q5_1": 0xF0A77741,
    "Q8_0": 0x10B0D7A2,
    "Q2_K": 0xCCE8578B,
    "Q3_K": 0x980CC549,
    "Q4_K": 0xD8FBFB55,
    "Q5_K": 0xA5F4EFFF,
    "Q6_K": 0x0C1137A3,
    "Q8_K": 0x566E3C9F,
    "IQ2_XXS": 0x0EA0694F,
    "IQ2_XS": 0xFC7DD8E8,
    "IQ3_XXS": 0xB48DA7D1,
    "IQ1_S": 0x55F99A30,
    "IQ4_NL": 0xD0A09B94,
    "IQ3_S": 0x98D99A81,
    "IQ2_S": 0x99CE311B,
    "IQ4_XS": 0x3518FF7D,
    "IQ1_M": 0x1C201B61,
    "TQ1_0": 0x8ECBC619,
    "TQ2_0": 0x408CD12F,
    "MXFP4": 0x79F47205,
    "NVFP4": 0xF4C60FEE,
}


@pytest.mark.parametrize("row", DECODED, ids=lambda row: row.name)
def test_numbers_of_each_type(row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "STEP", 5 * row.elements)  # 64 blocks in pieces
    data = blocks_of(row.code, 64)
    path = made.gguf(tmp_path / "m.gguf", [info(b"w", [row.elements * 16, 4], row.code, 0)], data)
    found = open_weights(path)["w"]
    values = np.frombuffer(found.payload.tobytes(), "<f4")
    assert found.shape == (4, row.elements * 16)
    assert checksum(values) == CHECKSUMS[row.name]


def test_checksum_of_q8_k() -> None:
    """Computed number by number: a float32, and 256 bytes with signs that it scales."""
    data, values = blocks_of(15, 64), []
    for start in range(0, len(data), 292):
        scale = np.frombuffer(data[start : start + 4], "<f4")[0]
        with np.errstate(over="ignore", invalid="ignore"):
            values += [scale * np.float32(byte - 256 * (byte > 127)) for byte in data[start + 4 : start + 260]]
    assert checksum(np.array(values, np.float32)) == CHECKSUMS["Q8_K"]


# gguf has no numbers for Q8_K; test_checksum_of_q8_k computes them
COMPARED = [row for row in DECODED if row.name != "Q8_K"]


@pytest.mark.full
@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_the_numbers_of_the_reference(row: Any) -> None:
    pytest.importorskip("gguf", reason="the numbers of its blocks are kept as checksums, which another test compares")
    gguf, quants = importlib.import_module("gguf"), importlib.import_module("gguf.quants")
    blocks = np.frombuffer(blocks_of(row.code, 512), np.uint8).reshape(-1, row.size)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(blocks, gguf.GGMLQuantizationType(row.code))
        found = row.decode(blocks)
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert found.dtype == np.float32 and found.shape == wanted.shape and same.all()
    assert checksum(wanted[:64]) == CHECKSUMS[row.name]


# ---- codes that are kept

PARTED = [row for row in TYPES.values() if row.parts is not None]
# (type of the file, what is asked, the operator that reads the codes)
KEPT = [
    *((row.name, {"type": f"int{row.bits}"}, "DequantizeLinear") for row in PARTED),
    ("Q4_0", {"type": "uint4"}, "DequantizeLinear"),
    *((name, {"type": "int4", "target": "onnxruntime"}, "MatMulNBits") for name in ("Q4_0", "Q3_K")),
    *((name, {"type": "int8", "target": "onnxruntime"}, "MatMulNBits") for name in ("Q8_0", "Q6_K", "IQ4_XS")),
]


def sound_blocks(row: Any, count: int) -> bytes:
    """Random blocks whose numbers are of usual sizes."""
    drawn = np.frombuffer(blocks_of(row.code, 40 * count), np.uint8).reshape(-1, row.size)
    with np.errstate(all="ignore"):
        largest = np.abs(row.decode(drawn)).max(1)
        return drawn[(largest < 1000) & (largest > 1e-3)][:count].tobytes()


def product_of(row: Any, quantize: Any, path: Path) -> tuple[ps.ModelProto, Stored]:
    """A product with a weight [8, 512] of a file, and that weight."""
    data = sound_blocks(row, 8 * 512 // row.elements)
    source = made.gguf(path / "m.gguf", [info(b"weight", [512, 8], row.code, 0)], data)
    with torch.device("meta"):
        model = nn.Linear(512, 8, bias=False)
    program = purexport.export(
        model, (torch.rand(2, 512),), path / "m.onnx", weights=source, quantize=quantize, opset_version=25
    )
    return program.model_proto, open_weights(source)["weight"]


@pytest.mark.parametrize(("name", "quantize", "form"), dealt(KEPT, 2))
def test_codes_are_kept(name: str, quantize: dict[str, Any], form: str, tmp_path: Path) -> None:
    """ONNX Runtime multiplies with the numbers of the file, difference 0.0."""
    row = next(row for row in PARTED if row.name == name)
    model, stored = product_of(row, quantize, tmp_path)
    assert model.graph is not None and form in {node.op_type for node in model.graph.node}
    options = ort.SessionOptions()  # fused with the product, a DequantizeLinear rounds in another order
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    unit = np.eye(512, dtype=np.float32)
    given = session.get_inputs()[0].name
    found = np.concatenate([session.run(None, {given: unit[at : at + 2]})[0] for at in range(0, 512, 2)])
    wanted = np.frombuffer(stored.payload.tobytes(), "<f4").reshape(8, 512)
    assert np.abs(found.T - wanted).max() == 0.0 and np.abs(wanted).max() > 0


@pytest.mark.parametrize(("name", "asked"), [("Q4_0", "int8"), ("Q8_0", "int4"), ("Q4_1", "int4"), ("Q4_K", "int4")])
def test_what_is_quantized_anew(name: str, asked: str, tmp_path: Path) -> None:
    """Other bits, and types with an offset for each block."""
    row = next(row for row in TYPES.values() if row.name == name)
    model, _ = product_of(row, None, tmp_path)
    error = measured(model, asked).entries[0].error
    assert error is not None and error > 1e-4


def test_a_file_of_the_reference(tmp_path: Path) -> None:
    """Its metadata, its alignment and its shapes, as its writer makes them."""
    gguf: Any = pytest.importorskip("gguf", reason="test_plain_types reads files that are made by hand")
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal((3, 64)).astype(np.float32) for name in ("a", "b", "c")}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_token_list(["<s>", "\u00e9", "x" * 70000])
    writer.add_array("nested", [[1, 2], [3, 4]])
    writer.add_bool("flag", True)
    writer.add_tensor("a", arrays["a"])
    writer.add_tensor("b", arrays["b"].astype(np.float16))
    q8 = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quants.quantize(arrays["c"], q8)
    writer.add_tensor("c", packed, raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_weights(tmp_path / "m.gguf")
    wanted = {"a": arrays["a"], "b": arrays["b"].astype(np.float16), "c": gguf.quants.dequantize(packed, q8)}
    assert {name: row.shape for name, row in found.items()} == dict.fromkeys("abc", (3, 64))
    assert {name: row.payload.tobytes() for name, row in found.items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }


@pytest.mark.parametrize("version", [2, 3])
def test_plain_types(version: int, tmp_path: Path) -> None:
    """They lie in the file as they are, and are ranges of it."""
    infos, data, wanted = [], b"", {}
    for row in TYPES.values():
        if row.decode is None:
            held = bytes(range(1, 6 * row.size + 1))
            infos.append(info(row.name.encode(), [3, 2], row.code, len(data)))
            wanted[row.name] = held
            data += held + bytes(-len(held) % 32)
    infos.append(info(b"number", [], 0, len(data)))
    path = made.gguf(tmp_path / "m.gguf", infos, data + b"\1\2\3\4", version=version)
    found = open_weights(path)
    assert found["number"].shape == () and found["number"].payload.tobytes() == b"\1\2\3\4"
    for name, held in wanted.items():
        assert found[name].shape == (2, 3) and isinstance(found[name].payload, FileRange)
        assert found[name].payload.tobytes() == held
    assert open_weights(tmp_path)["F32"].shape == (2, 3)  # the folder's one checkpoint


def word(number: int, width: int = 4) -> bytes:
    return number.to_bytes(width, "little")


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + word(kind) + value


PARTS = entry(b"split.count", 2, word(2, 2))


def test_a_model_in_parts(tmp_path: Path) -> None:
    first = made.gguf(tmp_path / "m-00001-of-00002.gguf", [info(b"a", [1], 0, 0)], b"\0\0\x80\x3f", [PARTS])
    with pytest.raises(WeightsError, match=r"part 1 of 2, and m-00002-of-00002\.gguf is not beside it"):
        open_weights(first)
    second = made.gguf(tmp_path / "m-00002-of-00002.gguf", [info(b"b", [1], 0, 0)], b"\0\0\0\x40", [PARTS])
    assert list(open_weights(first)) == ["a", "b"] and list(open_weights(second)) == ["b"]
    made.gguf(second, [info(b"a", [1], 0, 0)], b"\0\0\0\x40", [PARTS])
    with pytest.raises(WeightsError, match="'a' is in another part of the model, too"):
        open_weights(first)
    second.write_bytes(b"no")
    with pytest.raises(WeightsError, match=r"m-00002-of-00002\.gguf: it is part 2 of .*, but no GGUF file"):
        open_weights(first)


FLOATS = info(b"w", [2], 0, 0)
HUGE = (1 << 63) - 1
DEEP = b"".join(word(9) + word(1, 8) for _ in range(9))

# (what is wrong, arguments of `made.gguf`, what the error says)
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("version 1", {"version": 1}, "version 1, and 2 and 3 can be read"),
    ("big-endian", {"version": 3 << 24}, "big-endian order; convert it"),
    ("tensors that are not there", {"tensors": HUGE}, f"at byte 8: the number of tensors is {HUGE}, for which"),
    ("entries that are not there", {"held": HUGE}, f"at byte 16: the number of entries of metadata is {HUGE}"),
    ("one tensor too many", {"infos": [], "tensors": 2, "data": bytes(60)}, "at byte 48: the tensor '' comes twice"),
    ("a key that is long", {"entries": [text(b"k" * 70000) + word(4) + word(1)]}, "would have 70000 bytes"),
    ("a key that is not text", {"entries": [entry(b"\xff", 4, word(1))]}, "at byte 24: a key .* is not text in UTF-8"),
    ("a key twice", {"entries": [entry(b"k", 4, word(1))] * 2}, "at byte 41: the key 'k' comes twice"),
    ("an unknown type of metadata", {"entries": [entry(b"k", 99, word(1, 8))]}, "at byte 33: 'k' has the type 99"),
    ("a text past the end", {"entries": [entry(b"k", 8, word(HUGE, 8))]}, "at byte 37: the length of 'k' is"),
    ("an array past the end", {"entries": [entry(b"k", 9, word(4) + word(HUGE, 8))]}, "number of items of 'k' is"),
    ("arrays in arrays", {"entries": [entry(b"k", 9, DEEP + word(4) + word(0, 8))]}, "'k' is in too many arrays"),
    ("an alignment of 0", {"entries": [entry(b"general.alignment", 4, word(0))]}, "is 0, and must be a power of two"),
    ("an alignment of 24", {"entries": [entry(b"general.alignment", 4, word(24))]}, "must be a power of two"),
    (
        "an alignment as text",
        {"entries": [entry(b"general.alignment", 8, text(b"32"))]},
        "type 8, which is not a count",
    ),
    ("a name twice", {"infos": [FLOATS, FLOATS]}, "at byte 57: the tensor 'w' comes twice"),
    ("five axes", {"infos": [info(b"w", [1] * 5, 0, 0)]}, "would have 5 axes"),
    ("sizes that overflow", {"infos": [info(b"w", [1 << 32, 1 << 32], 0, 0)]}, "overflows 64 bits"),
    ("an unknown type", {"infos": [info(b"w", [2], 5, 0)]}, "at byte 24: tensor 'w' has the type 5, which is none"),
    ("a type of products", {"infos": [info(b"w", [32], 9, 0)]}, "has the type Q8_1, which llama.cpp makes"),
    ("a type without numbers", {"infos": [info(b"w", [128], 41, 0)]}, "has the type Q1_0, which is too new"),
    ("half a block", {"infos": [info(b"w", [16, 2], 2, 0)]}, "is Q4_0 and has rows of 16 elements, not a multiple"),
    ("a gap", {"infos": [info(b"w", [2], 0, 32)], "data": bytes(64)}, "'w' begins at 32 of the data, not at 0"),
    ("an overlap", {"infos": [FLOATS, info(b"v", [2], 0, 0)], "data": bytes(64)}, "'v' begins at 0 .*, not at 32"),
    ("data past the end", {"data": bytes(7)}, "'w' ends at byte 72 of a file of 71"),
]


@pytest.mark.parametrize(("arguments", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"infos": [FLOATS], "data": bytes(8), **arguments}
    with pytest.raises(WeightsError, match=message):
        open_weights(made.gguf(tmp_path / "m.gguf", **given))


def test_cut_off_anywhere(tmp_path: Path) -> None:
    """Every beginning of a file is refused with the file's name."""
    entries = [entry(b"k", 9, word(8) + word(2, 8) + text(b"a") + text(b"bc"))]
    content = made.gguf(tmp_path / "m.gguf", [FLOATS], b"\1" * 8, entries).read_bytes()
    for end in range(4, len(content)):
        (tmp_path / "m.gguf").write_bytes(content[:end])
        with pytest.raises(WeightsError, match=r"^m\.gguf: "):
            open_weights(tmp_path / "m.gguf")
