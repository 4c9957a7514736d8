"""A model that was loaded never gives what somebody wrote into its file later, whoever reads the bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import payload
from proto_schema.numpy_helper import from_array, to_array

LONG = 3000


def model(number: int) -> ps.ModelProto:
    """One weight of floats, one of four bits, and one behind a node."""
    weights = [
        from_array(np.full(LONG, number, np.float32), "w"),
        ps.TensorProto(name="q", data_type=ps.TensorProto.INT4, dims=[LONG], raw_data=bytes([number]) * (LONG // 2)),
    ]
    node = ps.helper.make_node("Constant", [], ["c"], value=from_array(np.full(LONG, number, np.int8), "v"))
    graph = ps.helper.make_graph([node], "g", [], [ps.helper.make_tensor_value_info("c", 3, [LONG])], weights)
    return ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 21)], ir_version=10)


def weights(loaded: ps.ModelProto) -> list[ps.TensorProto]:
    assert loaded.graph is not None
    attribute = loaded.graph.node[0].attribute[0]
    return [*loaded.graph.initializer, *([attribute.t] if attribute.t is not None else [])]


def arrays(loaded: ps.ModelProto) -> list[Any]:
    return [to_array(tensor) for tensor in weights(loaded)]


def saved(loaded: ps.ModelProto) -> bytes:
    stream = io.BytesIO()
    ps.save(loaded, stream)
    return stream.getvalue()


def compared(loaded: ps.ModelProto) -> bool:
    return loaded == model(2) or loaded.graph == model(2).graph


def spoken(loaded: ps.ModelProto) -> str:
    return ps.printer.to_text(loaded)


Reader = Callable[[ps.ModelProto], Any]
READERS: dict[str, Reader] = {
    "to_array": arrays,
    "dumps": ps.dumps,
    "SerializeToString": lambda loaded: loaded.SerializeToString(),
    "save": saved,
    "equality": compared,
    "chunks": lambda loaded: [list(payload.chunks(tensor.raw_data or b"")) for tensor in weights(loaded)],
    "text": spoken,
    "the evaluator": lambda loaded: ps.reference.ReferenceEvaluator(loaded).run(None, {}),
    "quantize": lambda loaded: ps.dumps(ps.quantization.quantize(loaded, "int8")),
}


def overwritten(path: Path) -> None:
    """As `cp other.onnx m.onnx` does it: another model of as many bytes in the same file."""
    with open(path, "r+b") as file:
        file.write(ps.dumps(model(3)))


def cut(path: Path) -> None:
    os.truncate(path, 5)


def appended(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\x10\x01")


def replaced(path: Path) -> None:
    ps.save(model(3), path)


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [overwritten, cut, appended])
@pytest.mark.parametrize("reader", READERS)
def test_an_inline_file_that_is_written_into(reader: str, change: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(2), path)
    loaded = ps.load(path)
    change(path)
    with pytest.raises(ps.ExternalDataError, match=r"m\.onnx has changed or been replaced since it was opened"):
        READERS[reader](loaded)


@pytest.mark.parametrize("change", [replaced, removed])
@pytest.mark.parametrize("reader", READERS)
def test_an_inline_file_that_has_no_name_any_more(reader: str, change: Callable[[Path], None], tmp_path: Path) -> None:
    """It is mapped, and nobody can open it to write into it."""
    path = tmp_path / "m.onnx"
    ps.save(model(2), path)
    loaded = ps.load(path)
    change(path)
    READERS[reader](loaded)
    assert [np.unique(array).tolist() for array in arrays(loaded)] == [[2], [0, 2], [2]]


@pytest.mark.parametrize("change", [overwritten, cut, appended])
def test_a_data_file_that_is_written_into_after_it_was_mapped(change: Callable[[Path], None], tmp_path: Path) -> None:
    ps.save(model(2), tmp_path / "m.onnx", external_data=True)
    loaded = ps.load(tmp_path / "m.onnx")
    arrays(loaded)
    change(tmp_path / "m.onnx.data")
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced since it was opened"):
        to_array(weights(loaded)[0])


def test_a_file_that_is_written_into_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(2), path)
    loaded = ps.load(path)
    pieces = payload.chunks(weights(loaded)[0].raw_data or b"", LONG * 2)
    next(pieces)
    overwritten(path)
    with pytest.raises(ps.ExternalDataError, match="has changed"):
        next(pieces)

    def writes() -> bytes:
        overwritten(path)
        return b"z"

    ps.save(model(2), path)
    loaded = ps.load(path)
    assert loaded.graph is not None
    loaded.graph.initializer.append(
        ps.TensorProto(name="z", data_type=ps.TensorProto.INT8, dims=[1], raw_data=ps.LazyPayload(1, writes))
    )
    with pytest.raises(ps.ExternalDataError, match="has changed"):
        ps.dumps(loaded)
