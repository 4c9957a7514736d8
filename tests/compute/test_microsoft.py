"""Rows of com.microsoft beside ONNX Runtime: those that our quantization and export write, and those of real files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.compute import rows
from proto_schema.parser import parse_model
from proto_schema.reference import EvaluationError, ReferenceEvaluator
from tests.compute.runtime import Node, compare
from tests.tolerances import Bounds

SUMS = Bounds(times=10, loose="sums of many products, added in another order")
ROUNDED = Bounds(rtol=2e-2, atol=2e-2, loose="the kernel rounds the other operand to int8")
STEPS = Bounds(rtol=1e-2, atol=1e-2, loose="a state that lies between two codes falls to either side")
Draw = np.random.Generator
Make = Callable[[Draw], Node]


def f32(draw: Draw, *shape: int) -> Any:
    return draw.standard_normal(shape).astype(np.float32)


def scales(draw: Draw, *shape: int) -> Any:
    return draw.uniform(0.01, 0.1, shape).astype(np.float32)


def u8(draw: Draw, *shape: int) -> Any:
    return draw.integers(0, 256, shape).astype(np.uint8)


def point(draw: Draw, kind: Any = np.uint8) -> list[Any]:
    return [np.array(draw.uniform(0.01, 0.1), np.float32), np.array(draw.integers(0, 100), kind)]


def node(op: str, inputs: Sequence[Any], bounds: Bounds = SUMS, outputs: int = 1, **attributes: Any) -> Node:
    given = list(inputs)
    while given[-1] is None:
        given.pop()
    said = {name: value for name, value in attributes.items() if value is not None}
    return Node(op, given, said, 1, outputs, "com.microsoft", bounds)


def bits(number: int, zeros: str = "", size: int = 64, bias: bool = False, block: int = 32) -> Make:
    """MatMulNBits with N of 5; `zeros`: packed, as floats, or none."""

    def make(draw: Draw) -> Node:
        blocks = -(-size // block)
        packed, floats = u8(draw, 5, -(-blocks * number // 8)), f32(draw, 5, blocks) + 8
        points = {"packed": packed, "floats": floats, "": None}[zeros]
        weight = u8(draw, 5, blocks, block * number // 8)
        inputs = [f32(draw, 2, 3, size), weight, scales(draw, 5, blocks), points, None, f32(draw, 5) if bias else None]
        return node("MatMulNBits", inputs, N=5, K=size, bits=number, block_size=block)

    return make


def gather(zeros: bool) -> Make:
    def make(draw: Draw) -> Node:
        inputs = [u8(draw, 7, 16), draw.integers(0, 7, (2, 3)), scales(draw, 7, 2), u8(draw, 7, 1) if zeros else None]
        return node("GatherBlockQuantized", inputs, block_size=16, quantize_axis=1, gather_axis=0)

    return make


def attention(
    *,
    bias: bool = False,
    mask: str = "",
    added: bool = False,
    past: int = 0,
    by_head: bool = False,
    causal: bool = False,
    scale: float | None = None,
) -> Make:
    def make(draw: Draw) -> Node:
        batch, heads, length, keys, size = 2, 2, 3, 3 if causal else 5, 4
        width, whole = heads * size, keys + past
        shape = (batch, heads, keys, size) if by_head else (batch, keys, width)
        masks: dict[str, Any] = {
            "keys": draw.integers(0, 2, (batch, whole)).astype(np.int32),
            "lengths": np.array([2, whole], np.int32),
        }
        inputs = [f32(draw, batch, length, width), f32(draw, *shape), f32(draw, *shape)]
        inputs += [f32(draw, 3 * width) if bias else None, masks.get(mask)]
        inputs += [f32(draw, batch, heads, length, whole) if added else None]
        inputs += [f32(draw, batch, heads, past, size) if past else None for _ in range(2)]
        outputs = 3 if past else 1
        said = 1 if causal else None
        return node("MultiHeadAttention", inputs, SUMS, outputs, num_heads=heads, unidirectional=said, scale=scale)

    return make


def grouped(
    *,
    past: int = 0,
    new: int = 3,
    rotary: int = 0,
    added: bool = False,
    sinks: bool = False,
    packed: bool = False,
    room: int = 0,
    **said: Any,
) -> Make:
    def make(draw: Draw) -> Node:
        batch, heads, kv, size = 1 if past and new > 1 else 2, 4, 2, 16
        whole, held = past + new, max(past, room)
        query = f32(draw, batch, new, (heads + 2 * kv) * size) if packed else f32(draw, batch, new, heads * size)
        inputs = [query, *(None if packed else f32(draw, batch, new, kv * size) for _ in range(2))]
        inputs += [f32(draw, batch, kv, held, size) if held else None for _ in range(2)]
        inputs += [np.full((batch,), whole - 1, np.int32), np.array(whole, np.int32)]
        inputs += [f32(draw, 16, rotary // 2) if rotary else None for _ in range(2)]
        inputs += [None, f32(draw, batch, heads, new, whole) if added else None, f32(draw, heads) if sinks else None]
        attributes = {"num_heads": heads, "kv_num_heads": kv, "do_rotary": int(bool(rotary)), **said}
        return node("GroupQueryAttention", inputs, SUMS, 3, **attributes)

    return make


def rotary(heads: int = 0, interleaved: int = 0, partial: int = 0, single: bool = False) -> Make:
    def make(draw: Draw) -> Node:
        places = np.array([2]) if single else draw.integers(0, 16, (2, 3))
        tables = [f32(draw, 16, (partial or 8) // 2) for _ in range(2)]
        said = {"interleaved": interleaved, "num_heads": heads, "rotary_embedding_dim": partial}
        return node("RotaryEmbedding", [f32(draw, 2, 3, 32), places, *tables], **said)

    return make


def experts(kind: str = "relu", k: int = 2, normalized: int = 0, bias: bool = True) -> Make:
    def make(draw: Draw) -> Node:
        count, size, inner = 4, 8, 6
        wide = inner * 2 if kind == "swiglu" else inner
        inputs = [f32(draw, 5, size), f32(draw, 5, count), f32(draw, count, wide, size)]
        inputs += [f32(draw, count, wide) if bias else None, f32(draw, count, size, inner)]
        inputs += [f32(draw, count, size) if bias else None]
        said: dict[str, Any] = {"k": k, "activation_type": kind, "normalize_routing_weights": normalized}
        if kind == "swiglu":
            said |= {"swiglu_fusion": 1, "activation_alpha": 1.5, "activation_beta": 1.0, "swiglu_limit": 0.7}
        return node("MoE", inputs, **said)

    return make


def coded_experts(number: int, zeros: bool = False, block: int = 0) -> Make:
    def make(draw: Draw) -> Node:
        count, size, inner = 4, 32, 32
        inputs: list[Any] = [f32(draw, 5, size), f32(draw, 5, count)]
        points: list[Any] = [None, None, None]
        for high, wide in ((2 * inner, size), (size, inner)):
            steps = (count, high, wide // block) if block else (count, high)
            inputs += [u8(draw, count, high, wide * number // 8), scales(draw, *steps), f32(draw, count, high)]
            points.append(u8(draw, count, high, -(-wide // block * number // 8)) if zeros else None)
        said: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": number}
        said |= {"activation_alpha": 1.5, "activation_beta": 1.0, "normalize_routing_weights": 1}
        said |= {"block_size": block} if block else {}
        return node("QMoE", [*inputs, *points], ROUNDED if block else SUMS, **said)

    return make


def dynamic_lstm(direction: str = "forward", each: bool = False, peepholes: bool = False, kind: Any = np.int8) -> Make:
    def make(draw: Draw) -> Node:
        count, size, hidden = 2 if direction == "bidirectional" else 1, 3, 4

        def weight(rows: int) -> list[Any]:
            low, high = (-100, 100) if kind is np.int8 else (0, 255)
            shape = (count, 4 * hidden) if each else (count,)
            points = np.zeros(shape, kind) if each else draw.integers(0, 10, shape).astype(kind)
            codes = draw.integers(low, high, (count, rows, 4 * hidden)).astype(kind)
            return [codes, scales(draw, *shape) / 5, points]

        w, r = weight(size), weight(hidden)
        inputs = [f32(draw, 5, 1, size), w[0], r[0], f32(draw, count, 8 * hidden), None, None, None]
        inputs += [f32(draw, count, 3 * hidden) if peepholes else None, *w[1:], *r[1:]]
        return node("DynamicQuantizeLSTM", inputs, STEPS, 3, hidden_size=hidden, direction=direction)

    return make


def of_codes(op: str, shape: Sequence[int], kind: Any = np.uint8, count: int = 1, **said: Any) -> Make:
    def make(draw: Draw) -> Node:
        inputs: list[Any] = []
        for _ in range(count):
            inputs += [draw.integers(0, 100, shape).astype(kind), *point(draw, kind)]
        return node(op, [*inputs, *point(draw, kind)], **said)

    return make


def unit(op: str, **said: Any) -> Make:
    """Of results between 0 and 1."""
    steps = [np.array(1 / 256, np.float32), np.array(0, np.uint8)]
    return lambda draw: node(op, [u8(draw, 2, 3, 4), *point(draw), *steps], **said)


def plain(op: str, inputs: Callable[[Draw], Sequence[Any]], **said: Any) -> Make:
    return lambda draw: node(op, inputs(draw), **said)


ROWS: list[tuple[str, Make]] = [
    ("4 bits", bits(4)),
    ("4 bits, zero points", bits(4, "packed")),
    ("4 bits, zero points that are numbers", bits(4, "floats")),
    ("4 bits, a bias", bits(4, bias=True)),
    ("4 bits, half a block", bits(4, "packed", 48)),
    ("4 bits, blocks of 16", bits(4, "packed", 48, block=16)),
    ("8 bits", bits(8)),
    ("8 bits, zero points", bits(8, "packed")),
    ("2 bits", bits(2)),
    ("2 bits, zero points", bits(2, "packed", 128)),
    ("rows of a table", gather(False)),
    ("rows of a table, zero points", gather(True)),
    ("heads", attention()),
    ("heads, a bias of the inputs", attention(bias=True)),
    ("heads, hidden keys", attention(mask="keys")),
    ("heads, lengths", attention(mask="lengths")),
    ("heads, added scores", attention(added=True, scale=0.3)),
    ("heads, a past", attention(past=2, added=True)),
    ("heads, keys by head", attention(by_head=True)),
    ("heads, causal", attention(causal=True)),
    ("groups, at first", grouped()),
    ("groups, a past", grouped(past=4, new=1)),
    ("groups, several after a past", grouped(past=4, new=3)),
    ("groups, a buffer", grouped(past=4, new=1, room=9)),
    ("groups, rotary", grouped(past=4, new=1, rotary=16)),
    ("groups, rotary in turns, at first", grouped(rotary=16, rotary_interleaved=1)),
    ("groups, softcap", grouped(past=2, new=2, softcap=5.0)),
    ("groups, a window", grouped(past=6, new=3, local_window_size=3)),
    ("groups, added scores", grouped(past=2, new=2, added=True)),
    ("groups, sinks", grouped(past=2, new=2, sinks=True)),
    ("groups, smooth", grouped(past=2, new=2, smooth_softmax=1)),
    ("groups, packed", grouped(packed=True, past=2, new=2)),
    ("rotary", rotary()),
    ("rotary in turns", rotary(interleaved=1)),
    ("rotary of a part", rotary(4, partial=4)),
    ("rotary from a position", rotary(single=True)),
    ("experts", experts()),
    ("experts, gelu, one each", experts("gelu", 1, bias=False)),
    ("experts, silu, normalized", experts("silu", 2, 1)),
    ("experts, swiglu", experts("swiglu", 2, 1)),
    ("experts of 4 bits", coded_experts(4)),
    ("experts of 8 bits", coded_experts(8)),
    ("experts of 4 bits in blocks", coded_experts(4, block=16)),
    ("experts of 8 bits in blocks, zero points", coded_experts(8, True, 16)),
    ("lstm", dynamic_lstm()),
    ("lstm, both ways, a scale a column", dynamic_lstm("bidirectional", True)),
    ("lstm, peepholes, bytes", dynamic_lstm("reverse", peepholes=True, kind=np.uint8)),
    ("matmul, rounding", plain("DynamicQuantizeMatMul", lambda d: [
        f32(d, 2, 3, 8), u8(d, 8, 5), scales(d, 1), u8(d, 1), f32(d, 5)])),
    ("matmul, rounding, a scale a column", plain("DynamicQuantizeMatMul", lambda d: [
        f32(d, 3, 8), u8(d, 8, 5).astype(np.int8), scales(d, 5), np.zeros(5, np.int8)])),
    ("matmul to float", plain("MatMulIntegerToFloat", lambda d: [
        u8(d, 3, 8), u8(d, 8, 5), scales(d, 1), scales(d, 5), u8(d, 1), u8(d, 5), f32(d, 5)])),
    ("gemm of codes", plain("QGemm", lambda d: [
        u8(d, 3, 8), *point(d), u8(d, 5, 8), *point(d), d.integers(-99, 99, 5).astype(np.int32),
        np.array(1.5, np.float32), np.array(7, np.uint8)], transB=1)),
    ("gemm of codes to float", plain("QGemm", lambda d: [
        u8(d, 8, 3), *point(d), u8(d, 8, 5), *point(d)], transA=1, alpha=0.5)),
    ("fused matmul", plain("FusedMatMul", lambda d: [f32(d, 2, 4, 3), f32(d, 2, 5, 4)], transA=1, transB=1, alpha=0.5)),
    ("gelu", plain("Gelu", lambda d: [f32(d, 3, 4)])),
    ("bias gelu", plain("BiasGelu", lambda d: [f32(d, 3, 4), f32(d, 4)])),
    ("fast gelu", plain("FastGelu", lambda d: [f32(d, 3, 4), f32(d, 4)])),
    ("quick gelu", plain("QuickGelu", lambda d: [f32(d, 3, 4)], alpha=1.3)),
    ("skip norm", plain("SkipLayerNormalization", lambda d: [
        f32(d, 2, 3, 8), f32(d, 2, 3, 8), f32(d, 8), f32(d, 8), f32(d, 8)], epsilon=1e-3)),
    ("skip root norm", plain("SkipSimplifiedLayerNormalization", lambda d: [
        f32(d, 2, 3, 8), f32(d, 2, 3, 8), f32(d, 8)], epsilon=1e-3)),
    ("add of codes", of_codes("QLinearAdd", [3, 4], count=2)),
    ("add of codes, int8", of_codes("QLinearAdd", [3, 4], np.int8, count=2)),
    ("mul of codes", of_codes("QLinearMul", [3, 4], count=2)),
    ("sigmoid of codes", unit("QLinearSigmoid")),
    ("leaky relu of codes", of_codes("QLinearLeakyRelu", [3, 4], alpha=0.2)),
    ("softmax of codes", unit("QLinearSoftmax", opset=13, axis=-1)),
    ("softmax of codes, of all from an axis", unit("QLinearSoftmax", opset=12, axis=1)),
    ("average of codes", of_codes("QLinearGlobalAveragePool", [2, 3, 4, 4], channels_last=0)),
    ("average of codes, channels last", of_codes("QLinearGlobalAveragePool", [2, 4, 4, 3], channels_last=1)),
    ("windows of codes", of_codes("QLinearAveragePool", [2, 3, 4, 4], kernel_shape=[2, 2], strides=[2, 2])),
    ("concat of codes", plain("QLinearConcat", lambda d: [
        *point(d), u8(d, 2, 3), *point(d), u8(d, 2, 4), *point(d)], axis=1)),
    ("where of codes", plain("QLinearWhere", lambda d: [
        d.integers(0, 2, (3, 4)).astype(bool), u8(d, 3, 4), *point(d), u8(d, 3, 4), *point(d), *point(d)])),
    ("codes", plain("QuantizeLinear", lambda d: [f32(d, 3, 4), *point(d)])),
    ("codes as numbers", plain("DequantizeLinear", lambda d: [u8(d, 3, 4), scales(d, 4), u8(d, 4)], axis=1)),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("make", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_beside_the_runtime(make: Make, seed: int) -> None:
    compare(make(np.random.default_rng(seed)))


def test_every_row_is_compared() -> None:
    made = {make(np.random.default_rng(0)).op_type for _, make in ROWS}
    assert made == {name for domain, name in rows.table() if domain == rows.MICROSOFT}


def test_a_weight_that_is_none() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2, 64] x, uint8[5, 2, 16] w, float[5, 2] s) => (float[2, 5] y)
    { y = com.microsoft.MatMulNBits<bits = 3, N = 5, K = 64>(x, w, s) }"""
    feed = {"x": np.ones((2, 64), np.float32), "w": np.ones((5, 2, 16), np.uint8), "s": np.ones((5, 2), np.float32)}
    with pytest.raises(EvaluationError, match="bits=3 and block_size=32 do not describe a weight"):
        ReferenceEvaluator(parse_model(text)).run(None, feed)


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8"])
def test_what_quantize_writes(kind: str) -> None:
    """The model with MatMulNBits computes what the one with DequantizeLinear computes, up to the steps of codes."""
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[3, 64] x) => (float[3, 5] y) { y = MatMul(x, w) }'
    model = parse_model(text)
    weight = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    model.graph.initializer.append(ps.numpy_helper.from_array(weight, "w"))
    feed = {"x": np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)}
    scheme = {"type": kind, "block_size": 32, "smallest": 1}
    written = ps.quantization.quantize(model, scheme, target="onnxruntime")
    assert [item.op_type for item in written.graph.node] == ["MatMulNBits"]
    found = [ReferenceEvaluator(item).run(None, feed)[0] for item in (ps.quantization.quantize(model, scheme), written)]
    np.testing.assert_allclose(found[1], found[0], rtol=0.05, atol=0.2)
    np.testing.assert_allclose(found[1], feed["x"] @ weight, atol=3.0)
