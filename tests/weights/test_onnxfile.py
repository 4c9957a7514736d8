"""Initializers of another ONNX model: inside it, beside it, as bytes or as lists of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external.payload import FileRange
from purexport.weights import WeightsError, open_weights

T = ps.TensorProto
LARGE = np.arange(1000, dtype=np.float32)

# (name, tensor, its bytes)
TENSORS: list[tuple[str, ps.TensorProto, bytes]] = [
    ("raw", ps.numpy_helper.from_array(LARGE), LARGE.tobytes()),
    ("floats", T(data_type=T.FLOAT, dims=[2], float_data=[1.0, -2.0]), np.array([1, -2], "<f4").tobytes()),
    ("longs", T(data_type=T.INT64, dims=[], int64_data=[-1]), b"\xff" * 8),
    ("bfloat16", T(data_type=T.BFLOAT16, dims=[2], int32_data=[0x3F80, 0xC000]), b"\x80\x3f\x00\xc0"),
    ("int4", T(data_type=T.INT4, dims=[3], int32_data=[0x21, 0x03]), b"\x21\x03"),
    ("raw int4", T(data_type=T.INT4, dims=[3], raw_data=b"\x21\x03"), b"\x21\x03"),
    ("complex", T(data_type=T.COMPLEX64, dims=[1], float_data=[1.0, 2.0]), np.array([1 + 2j], "<c8").tobytes()),
    ("empty", T(data_type=T.FLOAT, dims=[0]), b""),
]


def model(*more: ps.TensorProto) -> ps.ModelProto:
    tensors = []
    for name, tensor, _ in TENSORS:
        tensor.name = name
        tensors.append(tensor)
    return ps.ModelProto(ir_version=10, graph=ps.GraphProto(initializer=[*tensors, *more]))


@pytest.mark.parametrize("external", [False, True])
def test_initializers(external: bool, tmp_path: Path) -> None:
    words = T(name="words", data_type=T.STRING, dims=[1], string_data=[b"left out"])
    ps.save(model(words), tmp_path / "m.onnx", external_data=external, size_threshold=100)
    found = open_weights(tmp_path / "m.onnx")
    assert list(found) == [row[0] for row in TENSORS]
    for name, tensor, data in TENSORS:
        row = found[name]
        assert (row.dtype, row.shape, row.origin) == (tensor.data_type, tuple(tensor.dims), "m.onnx")
        assert row.payload.tobytes() == data, name
    large = found["raw"].payload
    assert isinstance(large, FileRange) and large.stamp is not None
    assert large.source == str(tmp_path / ("m.onnx.data" if external else "m.onnx"))


def with_data(tensor: ps.TensorProto, **entries: str) -> ps.TensorProto:
    tensor.data_location = T.EXTERNAL
    tensor.external_data = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
    return tensor


# (what, initializers, message behind the file's name)
WRONG: list[tuple[str, list[ps.TensorProto], str]] = [
    (
        "a name twice",
        [T(name="a", data_type=1, dims=[0]), T(name="a", data_type=1, dims=[0])],
        "the initializer 'a' comes twice; check the model with `purexport check`",
    ),
    ("no name", [T(data_type=1, dims=[0])], "the initializer None has no readable name"),
    (
        "an unknown type",
        [T(name="a", data_type=99, dims=[0])],
        "the tensor 'a' has the data type 99, which is not a number",
    ),
    (
        "too few bytes",
        [T(name="a", data_type=1, dims=[2], raw_data=b"1234")],
        "the tensor 'a' cannot be read: m.onnx: tensor 'a' has 4 bytes, but FLOAT [2] needs 8",
    ),
    (
        "too few numbers",
        [T(name="a", data_type=1, dims=[2], float_data=[1.0])],
        "the tensor 'a' cannot be read: tensor ",
    ),
    (
        "an absent file",
        [with_data(T(name="a", data_type=1, dims=[2]), location="no.data")],
        "cannot be read: tensor 'a': cannot",
    ),
    ("a path outside", [with_data(T(name="a", data_type=1, dims=[2]), location="../x")], "leaves the model's folder"),
    ("negative dims", [T(name="a", data_type=1, dims=[-1], raw_data=b"")], "the shape [-1] is negative or overflows"),
]


@pytest.mark.parametrize(("tensors", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_refused(tensors: list[ps.TensorProto], message: str, tmp_path: Path) -> None:
    encoded = ps.ModelProto(ir_version=10, graph=ps.GraphProto(initializer=tensors)).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(encoded)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.onnx")
    assert str(caught.value).startswith("m.onnx: ") and message in str(caught.value)


def test_tensors_of_a_loaded_model(tmp_path: Path) -> None:
    """As values of a mapping: of a model that was loaded with a trust_root, or changed since."""
    ps.save(model(), tmp_path / "m.onnx", external_data=True, size_threshold=100)
    (tmp_path / "links").mkdir()
    for name in ("m.onnx", "m.onnx.data"):
        (tmp_path / "links" / name).symlink_to(tmp_path / name)
    with pytest.raises(WeightsError, match="is or contains a link out of the model's folder"):
        open_weights(tmp_path / "links" / "m.onnx")
    loaded = ps.load(tmp_path / "links" / "m.onnx", trust_root=tmp_path)
    assert loaded.graph is not None
    found = open_weights({str(tensor.name): tensor for tensor in loaded.graph.initializer})
    assert {name: row.payload.tobytes() for name, row in found.items()} == {name: data for name, _, data in TENSORS}
    lazy = T(data_type=T.UINT8, dims=[3], raw_data=ps.LazyPayload(3, lambda: b"abc"))
    assert open_weights({"lazy": lazy})["lazy"].payload is lazy.raw_data
    with pytest.raises(
        WeightsError, match=r"^the mapping: the tensor 'a' has the data type STRING, which is not a number"
    ):
        open_weights({"a": T(data_type=T.STRING, dims=[0])})


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a\x3a\xff")
    with pytest.raises(WeightsError, match=r"^m.onnx: it is not a readable ONNX model: .*truncated"):
        open_weights(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a")
    assert len(open_weights(tmp_path / "m.onnx")) == 0
