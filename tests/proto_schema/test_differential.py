"""Our decoders against the official one on mutated models: they accept the same bytes and write the same bytes back."""

from __future__ import annotations

import random

import onnx
import pytest
from google.protobuf.message import DecodeError as OfficialDecodeError
from onnx import TensorProto

import proto_schema as ps
from proto_schema.wire import interpret

CLASSES = [(onnx.ModelProto, ps.ModelProto), (TensorProto, ps.TensorProto), (onnx.AttributeProto, ps.AttributeProto)]
BYTES_THAT_MATTER = (0, 1, 7, 8, 10, 18, 0x0B, 0x0C, 0x7F, 0x80, 0xFF)


def rich_model() -> bytes:
    """A model in which nearly every kind of field is used."""
    tensor = TensorProto(
        dims=[1, 2, 3],
        data_type=1,
        float_data=[1.5, float("nan"), 3e38],
        int32_data=[1, -1, 300],
        int64_data=[1, -5, 2**62],
        uint64_data=[2**64 - 1],
        double_data=[1e300],
        string_data=[b"a", b"\xff"],
        name="t\xe9",
        raw_data=b"abc",
        data_location=TensorProto.EXTERNAL,
    )
    tensor.segment.begin = 3
    attribute = onnx.AttributeProto(
        name="a", type=7, f=1.5, i=-3, s=b"xx", floats=[1, 2], ints=[1, -2, 300], strings=[b"q"]
    )
    attribute.t.CopyFrom(tensor)
    attribute.tensors.append(tensor)
    shape = attribute.tp.sequence_type.elem_type.tensor_type.shape
    shape.dim.add().dim_param = "N"
    shape.dim.add().dim_value = 4
    attribute.g.node.add(op_type="X", input=["", "a"])
    attribute.sparse_tensor.values.CopyFrom(tensor)
    model = onnx.ModelProto(ir_version=3, model_version=-1, producer_name="x")
    model.graph.node.add(op_type="Z").attribute.append(attribute)
    model.graph.initializer.append(tensor)
    return model.SerializeToString()


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes([rng.choice(BYTES_THAT_MATTER)])
            case 2:
                del out[at : at + rng.choice((1, 1, 2, 8))]
            case 3:
                out[at:at] = bytes(rng.choices(BYTES_THAT_MATTER, k=rng.choice((1, 2, 3, 5, 10))))
            case 4:
                del out[at:]
            case 5:
                start = rng.randrange(len(out) + 1)
                out[at:at] = out[start : start + rng.randrange(1, 40)]
    return bytes(out)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 8))])
def test_mutated(seed: int) -> None:
    rng = random.Random(seed)
    start = rich_model()
    accepted = 0
    for _ in range(1500):
        data = mutated(start, rng)
        for theirs, ours in CLASSES:
            try:
                expected = theirs.FromString(data).SerializeToString()
            except OfficialDecodeError:
                expected = None
            assert generated(ours, data) == expected == interpreted(ours, data), data.hex()
            accepted += expected is not None
    assert accepted > 100


def generated(cls: type[ps.Message], data: bytes) -> bytes | None:
    try:
        message = cls.FromString(data)
    except ps.DecodeError as error:
        assert error.offset is not None and 0 <= error.offset <= len(data)
        return None
    encoded = message.SerializeToString()
    assert message.ByteSize() == len(encoded)
    return encoded


def interpreted(cls: type[ps.Message], data: bytes) -> bytes | None:
    try:
        return interpret.encode(interpret.decode(cls, memoryview(data), 0, len(data), interpret.Allowance(1 << 30)))
    except ps.DecodeError:
        return None
