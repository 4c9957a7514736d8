"""SHA-256 of tensors and data files in a model: written while the bytes pass, kept by saves, compared by a check."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.external import entries, manifest
from proto_schema.external.payload import LazyPayload
from proto_schema.numpy_helper import from_array
from purexport.cli.main import main

RNG = np.random.default_rng(7)
VALUES = [RNG.standard_normal(1024).astype(np.float32) for _ in range(3)]
FILES = {"external_data": True}
SHARDS = {"external_data": True, "shard_size": 5000}
KINDS: dict[str, dict[str, Any]] = {
    "inline": {},
    "external": FILES,
    "shards": SHARDS,
    "resume": {**SHARDS, "resume": True},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made() -> ps.ModelProto:
    """Three large tensors, one of them computed when it is written, a tied one, and a small one in a node."""
    weights = [from_array(value, f"w{place}") for place, value in enumerate(VALUES)]
    weights[2].raw_data = LazyPayload(4096, VALUES[2].tobytes)
    weights.append(from_array(VALUES[0], "tied"))
    node = helper.make_node("Constant", [], ["c"], value=from_array(np.arange(3), "small"))
    add = helper.make_node("Sum", ["x", "w0", "w1", "w2", "tied"], ["y"])
    given, result = (helper.make_tensor_value_info(name, 1, [1024]) for name in "xy")
    graph = helper.make_graph([node, add], "g", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def digests(model: ps.ModelProto) -> dict[str, str]:
    assert model.graph is not None
    return {tensor.name or "": manifest.digest_of(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_compared(kind: str) -> None:
    given = made()
    before = ps.dumps(given)
    ps.save(given, "m.onnx", checksums=True, **KINDS[kind])
    assert ps.dumps(given) == before
    model = ps.load("m.onnx")
    wanted = [hashlib.sha256(value.tobytes()).hexdigest() for value in VALUES]
    assert digests(model) == {"w0": wanted[0], "w1": wanted[1], "w2": wanted[2], "tied": wanted[0]}
    names = sorted(name for name in os.listdir() if name.endswith(".data"))
    assert len(names) == {"inline": 0, "external": 1}.get(kind, 3)
    said = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names}
    assert manifest.digests_of_files(model) == said
    found = manifest.compare(model)
    assert (found.tensors, found.files, found.without, found.mismatches) == (5, len(names), 0, [])
    onnx.checker.check_model("m.onnx", full_check=True)
    ps.save(ps.load("m.onnx"), "m.onnx", checksums=True, **KINDS[kind])  # over itself: the data may stay
    assert digests(ps.load("m.onnx")) == digests(model) and not manifest.compare(ps.load("m.onnx")).mismatches


# what is damaged: which byte of which data file; the tensor that is named, the bytes of it
PLANTED = [
    ("m.onnx-00002-of-00003.data", 100, "tensor 'w1', bytes 0 to 4096 of the file: its SHA-256 is "),
    ("m.onnx-00001-of-00003.data", 4095, "tensor 'tied', bytes 0 to 4096 of the file: its SHA-256 is "),
    ("m.onnx-00003-of-00003.data", 4100, "no tensor, but bytes between them or behind: its SHA-256 is "),
]


@pytest.mark.parametrize(("name", "place", "said"), PLANTED, ids=["first", "tied", "mark"])
def test_a_flipped_byte_is_named(name: str, place: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    ps.save(made(), "m.onnx", checksums=True, **SHARDS)
    assert main(["check", "m.onnx", "--checksums"]) == 0
    assert "checksums: 5 tensors, 3 data files are as they were written\n" in capsys.readouterr().out
    data = bytearray(Path(name).read_bytes())
    data[place] ^= 1
    Path(name).write_bytes(data)
    assert main(["check", "m.onnx"]) == 0  # which reads no weights
    capsys.readouterr()
    assert main(["check", "m.onnx", "--checksums"]) == 1
    assert f"checksums: {name}: {said}" in capsys.readouterr().out
    assert main(["check", "m.onnx", "--checksums", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["checksums"]["mismatches"]
    assert {row["file"] for row in rows} == {name}
    if "tensor" in said[:6]:
        with pytest.raises(
            ps.ExternalDataError, match=r"its bytes have the SHA-256 .*: the file that they come from is"
        ):
            ps.save(ps.load("m.onnx"), "copy.onnx", checksums=True, **FILES)
        assert not [other for other in os.listdir() if "copy" in other and not other.endswith("lock")]
        ps.save(ps.load("m.onnx"), "copy.onnx", **FILES)  # without it: the tensor says still what it was
        assert main(["check", "copy.onnx", "--checksums"]) == 1


def test_other_damages(capsys: pytest.CaptureFixture[str]) -> None:
    ps.save(made(), "m.onnx", checksums=True, **SHARDS)
    first, second, third = sorted(name for name in os.listdir() if name.endswith(".data"))
    os.unlink(first)
    os.truncate(second, 4000)
    Path(third).write_bytes(Path(third).read_bytes() + b"more")
    found = {row.file: row for row in manifest.compare(ps.load("m.onnx")).mismatches}
    assert "No such file" in found[first].reason
    assert str(found[second]) == f"{second}: tensor 'w1', bytes 0 to 4096 of the file: the file ends at 4000"
    assert "no tensor, but bytes between them or behind" in found[third].reason
    assert main(["check", "m.onnx", "--checksums"]) == 1
    ps.save(made(), "i.onnx", checksums=True)
    data = Path("i.onnx").read_bytes()
    Path("i.onnx").write_bytes(data.replace(VALUES[1].tobytes(), VALUES[1].tobytes()[:-1] + b"\0"))
    assert main(["check", "i.onnx", "--checksums"]) == 1
    assert "checksums: tensor 'w1': its SHA-256 is" in capsys.readouterr().out


def test_what_keeps_and_loses_a_digest() -> None:
    """Bytes of a file keep theirs in other files and models; bytes in memory may be others now."""
    ps.save(made(), "m.onnx", checksums=True, **SHARDS)
    said = digests(ps.load("m.onnx"))
    ps.save(ps.load("m.onnx"), "r.onnx", external_data="reference")
    assert digests(ps.load("r.onnx")) == said and len(manifest.digests_of_files(ps.load("r.onnx"))) == 3
    ps.save(ps.load("m.onnx"), "o.onnx", **FILES)
    assert digests(ps.load("o.onnx")) == said and not manifest.digests_of_files(ps.load("o.onnx"))
    changed = ps.load("m.onnx")
    assert changed.graph is not None
    changed.graph.initializer[1] = from_array(VALUES[1] + 1, "w1")
    ps.save(changed, "c.onnx", **FILES)
    assert digests(ps.load("c.onnx")) == {**said, "w1": ""}
    assert manifest.compare(ps.load("c.onnx")).without == 2  # that, and the small one in the node
    ps.save(ps.load("c.onnx"), "c.onnx", external_data="reference", checksums=True)
    found = manifest.compare(ps.load("c.onnx"))
    assert (found.tensors, found.files, found.without, found.mismatches) == (5, 1, 0, [])


def test_ranges_that_overlap() -> None:
    """Each tensor is compared, up to a bound of what is read."""
    data = np.tile(np.arange(250, dtype=np.uint8), 40).tobytes()
    Path("w.data").write_bytes(data)
    for count, bound in ((3, False), (30, True)):
        rows = []
        for place in range(count):
            tensor = ps.TensorProto(name=f"w{place}", data_type=2, dims=[9000])
            ps.external.set_entries(tensor, "w.data", place * 7, 9000)
            rows.append(manifest.with_digest(tensor, hashlib.sha256(data[place * 7 : place * 7 + 9000]).hexdigest()))
        Path("m.onnx").write_bytes(ps.dumps(ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=rows))))
        found = manifest.compare(ps.load("m.onnx"))
        assert [str(row) for row in found.mismatches] == (
            ["w.data: its tensors overlap too often to be compared one by one"] if bound else []
        )


def test_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="the model comes first in an archive"):
        ps.save(made(), "m.tar", archive="tar", checksums=True)
    ps.save(made(), "m.onnx", **FILES)
    assert main(["check", "m.onnx", "--checksums"]) == 2
    assert "m.onnx has no checksums: write it with --checksums, or add them with" in capsys.readouterr().err
    assert main(["infer", "m.onnx", "-o", "m.onnx", "--checksums"]) == 0
    assert main(["check", "m.onnx", "--checksums"]) == 0
    model = ps.load("m.onnx")
    assert model.graph is not None and entries(model.graph.initializer[0]).location == "m.onnx.data"
