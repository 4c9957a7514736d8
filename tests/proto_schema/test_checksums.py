"""Checksums of external data: `check` reads the whole file and compares, loading does not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema.checking import checksums
from proto_schema.numpy_helper import from_array, to_array
from purexport.cli.main import main

RIGHT = hashlib.sha1(bytes(4096) + np.arange(600, dtype=np.float32).tobytes()).hexdigest()


def _saved(folder: Path, *digests: str) -> Path:
    """A model of as many tensors as there are digests, which all lie in one file."""
    weight, path = np.arange(600, dtype=np.float32), folder / "m.onnx"
    (folder / "w.bin").write_bytes(bytes(4096) + weight.tobytes())
    graph = ps.GraphProto(name="g")
    for number, digest in enumerate(digests):
        tensor = from_array(weight, f"w{number}")
        ps.external.set_entries(tensor, "w.bin", 4096, 2400)
        tensor.external_data.append(ps.StringStringEntryProto(key="checksum", value=digest))
        graph.initializer.append(tensor)
    opset = ps.OperatorSetIdProto(version=17)
    path.write_bytes(ps.dumps(ps.ModelProto(ir_version=8, graph=graph, opset_import=[opset])))
    return path


# what the tensors say, what is said of it
ROWS: list[tuple[str, tuple[str, ...], str]] = [
    ("right", (RIGHT,), ""),
    ("in large letters", (RIGHT.upper(),), ""),
    ("empty, as if absent", ("",), ""),
    ("wrong", ("0" * 40,), f"tensor 'w0': the checksum of {{folder}}/w.bin is {RIGHT}, and the model says {'0' * 40}"),
    ("the second is wrong", (RIGHT, "0" * 40), f"tensor 'w1': the checksum of {{folder}}/w.bin is {RIGHT}"),
    ("no digest", ("ab",), "tensor 'w0': the checksum 'ab' is no SHA1 digest, which has 40 hexadecimal digits"),
    ("one digit too many", (RIGHT + "0",), "is no SHA1 digest"),
    ("other digits", ("\u0661" * 40,), "is no SHA1 digest"),
]


@pytest.mark.parametrize(("digests", "said"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_check_compares_the_checksum(digests: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = _saved(tmp_path, *digests)
    onnx.checker.check_model(str(path))  # the official checker does not look at it
    loaded = ps.load(path)
    assert loaded.graph is not None
    assert to_array(loaded.graph.initializer[0])[1] == 1  # loading neither
    for model in (path, loaded):
        if not said:
            ps.checker.check_model(model)
            continue
        with pytest.raises(ps.CheckError) as caught:
            ps.checker.check_model(model)
        assert said.replace("{folder}", str(tmp_path)) in str(caught.value)
    assert main(["check", str(path)]) == (1 if said else 0)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = checksums.sha1

    def counted(*data: bytes, usedforsecurity: bool) -> object:
        made.append(data)
        return real(*data, usedforsecurity=usedforsecurity)

    monkeypatch.setattr(checksums, "sha1", counted)
    ps.checker.check_model(_saved(tmp_path, *[RIGHT] * 50))
    assert len(made) == 1


def test_a_tensor_in_an_attribute(tmp_path: Path) -> None:
    path = _saved(tmp_path, "0" * 40)
    model = ps.load(path)
    assert model.graph is not None
    node = ps.helper.make_node("Constant", [], ["y"], value=model.graph.initializer.pop())
    model.graph.node.append(node)
    with pytest.raises(ps.CheckError, match=r"the model says 0{40}"):
        ps.checker.check_model(model)


def test_without_its_folder_only_the_form_is_checked(tmp_path: Path) -> None:
    """The bytes of a model say nothing of where its files are."""
    ps.checker.check_model(_saved(tmp_path, "0" * 40).read_bytes())
    with pytest.raises(ps.CheckError, match=r"no SHA1 digest"):
        ps.checker.check_model(_saved(tmp_path, "ab").read_bytes())
