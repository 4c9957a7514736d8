"""external_data="reference": the .onnx refers to bytes of files that are there, and no save harms these files."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper as official

import proto_schema as ps
from proto_schema.external.payload import FileRange, file_range
from proto_schema.files.marks import size_of_data
from proto_schema.numpy_helper import from_array, to_array
from tests.tolerances import CHAIN, assert_near

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(3))
BIAS = RNG.standard_normal(64).astype(np.float32)


def checkpoint(path: Path, **arrays: Any) -> dict[str, FileRange]:
    """A safetensors file of these arrays, and where each lies."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values()))
    starts = {name: 8 + len(text) + row["data_offsets"][0] for name, row in header.items()}
    return {name: FileRange(path, starts[name], array.nbytes) for name, array in arrays.items()}


def tensor(name: str, array: Any, data: Any) -> ps.TensorProto:
    return ps.TensorProto(name=name, dims=list(array.shape), data_type=1, raw_data=data)


def model(*weights: ps.TensorProto) -> ps.ModelProto:
    """y = x @ w0 @ w1 ... + BIAS; the bias is in memory, and small."""
    last, nodes = "x", []
    for index, weight in enumerate(weights):
        nodes.append(ps.NodeProto(op_type="MatMul", input=[last, weight.name or ""], output=[f"h{index}"]))
        last = f"h{index}"
    nodes.append(ps.NodeProto(op_type="Add", input=[last, "bias"], output=["y"]))
    graph = ps.GraphProto(
        name="g",
        node=nodes,
        initializer=[*weights, from_array(BIAS, "bias")],
        input=[ps.helper.make_tensor_value_info("x", 1, [1, 64])],
        output=[ps.helper.make_tensor_value_info("y", 1, [1, 64])],
    )
    return ps.ModelProto(ir_version=8, opset_import=[ps.OperatorSetIdProto(domain="", version=17)], graph=graph)


def check(path: Path, *arrays: Any) -> None:
    """The official checker takes the file, its loader and ours give these weights, ONNX Runtime computes with them."""
    onnx.checker.check_model(path, full_check=True)
    for found, expected in zip(onnx.load(path).graph.initializer, [*arrays, BIAS], strict=True):
        np.testing.assert_array_equal(official.to_array(found), expected)
    graph = ps.load(path).graph
    assert graph is not None
    for mine, expected in zip(graph.initializer, [*arrays, BIAS], strict=True):
        np.testing.assert_array_equal(to_array(mine), expected)
    x = RNG.standard_normal((1, 64)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    y = x
    for array in arrays:
        y = y @ array
    assert_near(session.run(None, {"x": x})[0], y + BIAS, CHAIN)


def locations(path: Path) -> list[str | None]:
    graph = onnx.load(path, load_external_data=False).graph
    return [item.external_data[0].value if item.external_data else None for item in graph.initializer]


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("where", ["c.safetensors", "sub/c.safetensors"])
def test_weights_stay_where_they_are(where: str, tmp_path: Path) -> None:
    found = checkpoint(tmp_path / where, a=A, b=B)
    before = (tmp_path / where).stat()
    path = tmp_path / "m.onnx"
    made = model(tensor("a", A, found["a"]), tensor("b", B, found["b"]))
    plan = ps.plan(made, path, external_data="reference")
    ps.save(made, path, external_data="reference")
    check(path, A, B)
    assert locations(path) == [where, where, None]
    after = (tmp_path / where).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert set(sizes(tmp_path)) == {"m.onnx", "c.safetensors"}
    assert plan.kind == "reference" and plan.referenced == A.nbytes + B.nbytes and plan.written == path.stat().st_size
    assert [(file.name, file.action) for file in plan.files] == [("m.onnx", "write"), (where, "refer")]
    assert [item.way for item in plan.tensors] == ["refer", "refer", "write"]


def test_what_cannot_be_referred_to_goes_into_a_side_file(tmp_path: Path) -> None:
    """Of memory, computed, at an offset that is no multiple of the element size; a tied one is stored once."""
    found = checkpoint(tmp_path / "c.safetensors", a=A)
    (tmp_path / "odd").write_bytes(b"123" + B.tobytes())
    weights = [
        tensor("a", A, found["a"]),
        tensor("odd", B, FileRange(tmp_path / "odd", 3, B.nbytes)),
        from_array(C, "memory"),
        from_array(C, "tied"),
        tensor("lazy", A, ps.LazyPayload(A.nbytes, lambda: A.T.tobytes())),
    ]
    path = tmp_path / "m.onnx"
    for _ in range(2):
        ps.save(model(*weights), path, external_data="reference", alignment=64)
        check(path, A, B, C, C, A.T)
        assert locations(path) == ["c.safetensors", *["m.onnx.data"] * 4, None]
        assert size_of_data(str(tmp_path / "m.onnx.data")) == 3 * A.nbytes
        assert len(os.listdir(tmp_path)) == 4


def test_small_weights_of_a_file_are_inside_the_model(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "c.safetensors", a=A, bias=BIAS)
    made = model(tensor("a", A, found["a"]))
    assert made.graph is not None
    made.graph.initializer[1].raw_data = found["bias"]
    ps.save(made, tmp_path / "m.onnx", external_data="reference")
    check(tmp_path / "m.onnx", A)
    assert locations(tmp_path / "m.onnx") == ["c.safetensors", None]
    ps.save(made, tmp_path / "m.onnx", external_data="reference", size_threshold=0)
    assert locations(tmp_path / "m.onnx") == ["c.safetensors", "c.safetensors"]
    check(tmp_path / "m.onnx", A)


# ---- where it cannot be


def elsewhere(folder: Path) -> FileRange:
    return checkpoint(folder.parent / "other" / "c.safetensors", a=A)["a"]


def linked(folder: Path) -> FileRange:
    source = elsewhere(folder)
    (folder / "c.safetensors").symlink_to(str(source.source))
    return FileRange(folder / "c.safetensors", source.offset, A.nbytes)


def linked_folder(folder: Path) -> FileRange:
    source = elsewhere(folder)
    (folder / "sub").symlink_to(folder.parent / "other", target_is_directory=True)
    return FileRange(folder / "sub/c.safetensors", source.offset, A.nbytes)


def hard_linked(folder: Path) -> FileRange:
    source = elsewhere(folder)
    os.link(str(source.source), folder / "c.safetensors")
    return FileRange(folder / "c.safetensors", source.offset, A.nbytes)


def odd(folder: Path) -> FileRange:
    (folder / "odd").write_bytes(b"123" + A.tobytes())
    return FileRange(folder / "odd", 3, A.nbytes)


REFUSED: list[tuple[str, Callable[[Path], Any], str]] = [
    (
        "another folder",
        elsewhere,
        r"other/c.safetensors lies outside .*write the .onnx file to .*other, or save with",
    ),
    ("a link", linked, "tensor 'a': .*link out of the model's folder.*external_data=True, which copies"),
    ("a folder that is a link", linked_folder, "link out of the model's folder"),
    ("a hard link", hard_linked, "link out of the model's folder"),
    ("memory only", lambda _: A.tobytes(), "'a' does not lie unchanged in a file; save with external_data=True"),
    ("an odd place", odd, "'a' lies at byte 3 of .*/odd, which is not a multiple of the size"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(make: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    made = model(tensor("a", A, make(folder)))
    there = sizes(tmp_path)
    for function in (ps.plan, ps.save):
        with pytest.raises(ps.EncodeError, match=message):
            function(made, folder / "m.onnx", external_data="reference")
    assert sizes(tmp_path) == there
    ps.save(made, folder / "m.onnx", external_data=True)
    check(folder / "m.onnx", A)


def test_the_folder_of_the_model_may_be_a_link_itself(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "alias").symlink_to(real)
    found = checkpoint(real / "c.safetensors", a=A)
    ps.save(model(tensor("a", A, found["a"])), tmp_path / "alias/m.onnx", external_data="reference")
    check(real / "m.onnx", A)


def test_a_model_without_large_weights_needs_no_reference(tmp_path: Path) -> None:
    ps.save(model(), tmp_path / "m.onnx", external_data="reference")
    check(tmp_path / "m.onnx")


# ---- later saves


LATER: list[dict[str, Any]] = [{}, {"external_data": True}, {"external_data": "reference"}, {"external_data": False}]


@pytest.mark.parametrize("options", LATER, ids=str)
@pytest.mark.parametrize("name", ["c.safetensors", "m.onnx.safetensors", "m.onnx-raw", "m.onnx.data"])
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "another model"])
def test_later_saves_leave_the_checkpoint(loaded: bool, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever its name; only a data file under the very name that a save writes is replaced, when it writes one."""
    path = tmp_path / "m.onnx"
    found = checkpoint(tmp_path / name, a=A, b=B)
    ps.save(model(tensor("a", A, found["a"]), tensor("b", B, found["b"])), path, external_data="reference")
    content = (tmp_path / name).read_bytes()
    later = ps.load(path) if loaded else model(tensor("a", A, A.tobytes()), tensor("b", B, B.tobytes()))
    later.producer_name = "later"
    if not loaded and options == {"external_data": "reference"}:
        options = {"external_data": True}
    ps.save(later, path, **options)
    check(path, A, B)
    if name != "m.onnx.data" or options.get("external_data") is not True:
        assert (tmp_path / name).read_bytes() == content


def test_a_side_file_never_takes_the_name_of_what_is_referred_to(tmp_path: Path) -> None:
    """The data file of an earlier save is referred to, and new weights come: again and again."""
    path = tmp_path / "m.onnx"
    ps.save(model(from_array(A, "a")), path, external_data=True)
    arrays = [A]
    for count, array in enumerate((B, C), 1):
        loaded = ps.load(path)
        assert loaded.graph is not None
        bias = loaded.graph.initializer.pop()
        again = model(*loaded.graph.initializer, from_array(array, f"w{count}"))
        assert again.graph is not None and bias.name == "bias"
        arrays.append(array)
        ps.save(again, path, external_data="reference")
        check(path, *arrays)
    assert locations(path) == ["m.onnx.data", "m.onnx.1.data", "m.onnx.2.data", None]
    ps.save(ps.load(path), path)
    assert os.listdir(tmp_path) == ["m.onnx"]
    check(path, *arrays)


# ---- weights of models that were loaded


def test_weights_inside_another_model_are_referred_to(tmp_path: Path) -> None:
    ps.save(model(from_array(A, "a")), tmp_path / "whole.onnx")
    loaded = ps.load(tmp_path / "whole.onnx")
    odd = file_range(loaded.graph.initializer[0].raw_data).offset % 4  # type: ignore[union-attr, arg-type]
    if odd:  # names of other lengths move the weights
        assert loaded.graph is not None
        loaded.producer_name = "x" * (4 - odd - 2 if odd < 2 else 8 - odd - 2)
        ps.save(loaded, tmp_path / "whole.onnx")
    path = tmp_path / "m.onnx"
    ps.save(ps.load(tmp_path / "whole.onnx"), path, external_data="reference")
    assert locations(path) == ["whole.onnx", None]
    check(path, A)


def test_a_model_does_not_refer_to_the_file_that_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(from_array(A, "a")), path)
    loaded = ps.load(path)
    with pytest.raises(ps.EncodeError, match=r"'a' lies in .*m.onnx, which is the file to be replaced"):
        ps.save(loaded, path, external_data="reference")
    found = checkpoint(tmp_path / "c.safetensors", b=B)
    assert loaded.graph is not None
    ps.save(model(loaded.graph.initializer[0], tensor("b", B, found["b"])), path, external_data="reference")
    assert locations(path) == ["m.onnx.data", "c.safetensors", None]
    check(path, A, B)


@pytest.mark.parametrize("befalls", ["replaced", "removed"])
def test_a_mapped_file_that_is_there_no_more_is_not_referred_to(befalls: str, tmp_path: Path) -> None:
    """The mapping has the right bytes, the path does not."""
    path, data = tmp_path / "m.onnx", tmp_path / "w.bin"
    ps.save(model(from_array(A, "a")), path, external_data=True, location="w.bin")
    loaded = ps.load(path)
    assert loaded.graph is not None
    np.testing.assert_array_equal(to_array(loaded.graph.initializer[0]), A)
    data.unlink()
    if befalls == "replaced":
        data.write_bytes(B.tobytes())
    found = checkpoint(tmp_path / "c.safetensors", b=B)
    target = tmp_path / "n.onnx"
    ps.save(model(loaded.graph.initializer[0], tensor("b", B, found["b"])), target, external_data="reference")
    assert locations(target) == ["n.onnx.data", "c.safetensors", None]
    check(target, A, B)
