"""Every model and test value that the official package ships decodes, and encodes to the official runtime's bytes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from google.protobuf.message import DecodeError as OfficialDecodeError
from onnx import onnx_data_pb2

import proto_schema as ps
from proto_schema.wire import interpret

ROOT = Path(onnx.__file__).parent
FILES = sorted([*ROOT.rglob("*.onnx"), *ROOT.rglob("*.pb")])

PAIRS = {
    "ModelProto": onnx.ModelProto,
    "TensorProto": onnx.TensorProto,
    "SequenceProto": onnx_data_pb2.SequenceProto,
    "OptionalProto": onnx_data_pb2.OptionalProto,
}


def test_there_are_enough() -> None:
    assert len(FILES) > 450


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_bytes(path: Path) -> None:
    data = path.read_bytes()
    names = ["ModelProto"] if path.suffix == ".onnx" else ["TensorProto", "SequenceProto", "OptionalProto"]
    accepted = 0
    for name in names:
        cls = getattr(ps, name)
        try:
            expected = PAIRS[name].FromString(data).SerializeToString()
        except OfficialDecodeError:
            with pytest.raises(ps.DecodeError):
                cls.FromString(data)
            continue
        accepted += 1
        message = cls.FromString(data)
        assert message.SerializeToString() == expected
        assert message.ByteSize() == len(expected)
        if name == "ModelProto":
            assert ps.ir.from_message(message).to_message().SerializeToString() == expected
        if len(data) < 1 << 16:
            view = memoryview(data)
            budget = interpret.Allowance(1 << 30)
            assert interpret.encode(interpret.decode(cls, view, 0, len(view), budget)) == expected
    assert accepted > 0
