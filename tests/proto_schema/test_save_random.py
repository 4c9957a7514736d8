"""Random models from random sources, saved with random options, again and again: plan, progress and bytes agree.

`pytest -m sweep tests/proto_schema/test_save_random.py` runs more of them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.external import copying, meter, tensors
from proto_schema.external.payload import FileMap, FileRange
from proto_schema.files import durable
from proto_schema.numpy_helper import to_array

SIZES = (0, 1, 4, 100, 1023, 1024, 1025, 4096, 5000, 20_000)
NAMES = ("f0", "f1", "f2", "sub/f0", "sub/f1", "m.onnx.data", "m.onnx.raw", "m.onnx-x", "m.onnx.safetensors")


class Maker:
    """Draws payloads; `contents` are the bytes of each."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.draw, self.folder = draw, folder
        self.made: list[tuple[Any, bytes]] = []
        self.contents: list[bytes] = []
        (folder / "sub").mkdir()

    def tensor(self, name: str) -> ps.TensorProto:
        if self.made and self.draw.random() < 0.2:
            payload, content = self.draw.choice(self.made)
        else:
            content = self.draw.randbytes(self.draw.choice(SIZES))
            payload = self.payload(content)
            self.made.append((payload, content))
        self.contents.append(content)
        return ps.TensorProto(name=name, data_type=2, dims=[len(content)], raw_data=payload)

    def payload(self, content: bytes) -> Any:
        size, middle = len(content), len(content) // 3
        kind = self.draw.choice(["bytes", "bytearray", "array", "lazy", "range", "range", "map range", "map view"])
        match kind:
            case "bytes":
                return content
            case "bytearray":
                return bytearray(content)
            case "array":
                return memoryview(np.frombuffer(content, np.uint8)) if content else memoryview(b"")
            case "lazy":
                return ps.LazyPayload(size, lambda: [content[:middle], content[middle:]])
        free = [self.folder / name for name in NAMES if not (self.folder / name).exists()]
        if not free or not content:
            return content
        path, offset = self.draw.choice(free), self.draw.choice((0, 0, 3, 64))
        path.write_bytes(bytes(offset) + content + self.draw.choice((b"", b"tail")))
        if kind == "range":
            return FileRange(path, offset, size)
        with path.open("rb") as file:
            mapped = FileMap.of(file.fileno(), str(path))
        return FileRange(mapped, offset, size) if kind == "map range" else memoryview(mapped)[offset : offset + size]

    def model(self) -> ps.ModelProto:
        """Tensors in attributes and in initializers, in the order of the encoding."""
        held = [self.tensor(f"a{index}") for index in range(self.draw.randrange(3))]
        node = ps.NodeProto(op_type="X", attribute=[ps.AttributeProto(name="a", t=item, type=4) for item in held])
        weights = [self.tensor(f"w{index}") for index in range(self.draw.randrange(1, 7))]
        return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", node=[node], initializer=weights))

    def options(self) -> dict[str, Any]:
        return {
            "external_data": self.draw.choice((None, True, False, "reference")),
            "size_threshold": self.draw.choice((0, 1, 1024, 10**6)),
            "alignment": self.draw.choice((1, 7, 64, 4096)),
            "shard_size": self.draw.choice((None, 1, 6000, 10**6)),
        }


def check(model: ps.ModelProto, path: Path, options: dict[str, Any], contents: list[bytes]) -> None:
    """Saves as planned, or refuses as planned."""
    try:
        plan = ps.plan(model, path, **options)
    except ps.EncodeError as error:
        assert "referred to in place" in str(error)
        with pytest.raises(ps.EncodeError, match="referred to in place"):
            ps.save(model, path, **options)
        return
    told: list[tuple[int, int]] = []
    ps.save(model, path, **options, progress=lambda done, total: told.append((done, total)))
    assert [to_array(tensor).tobytes() for tensor in tensors(ps.load(path))] == contents
    assert {file.name: file.size for file in plan.files} == {
        file.name: (path.parent / file.name).stat().st_size for file in plan.files
    }
    for tensor, content in zip(plan.tensors, contents, strict=True):
        if tensor.offset is None:
            assert len(content) <= 1024 and tensor.length == len(content)
        else:
            data = (path.parent / tensor.file).read_bytes()
            assert data[tensor.offset : tensor.offset + tensor.length] == content
    assert told[-1] == (plan.written, plan.written) and told == sorted(told)
    assert not [name for name in os.listdir(path.parent) if name.endswith(".tmp")]


def walk(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model over an older one or none; then it is loaded and saved three times more."""
    for module, name, small in (
        (meter, "EVERY", 5000),
        (copying, "WORTH", 2000),
        (copying, "STEP", 3000),
        (durable, "WRITE_BACK", 20_000),
    ):
        monkeypatch.setattr(module, name, small)
    draw, path = random.Random(seed), folder / "m.onnx"
    if draw.random() < 0.6:
        old = ps.TensorProto(name="o", data_type=2, dims=[3000], raw_data=bytes(3000))
        ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=[old])), path, draw.random() < 0.5)
    maker = Maker(draw, folder)
    model = maker.model()
    check(model, path, maker.options(), maker.contents)
    if not path.exists() or not [tensor.name for tensor in tensors(ps.load(path)) if tensor.name != "o"]:
        return  # refused: there is nothing of it to load
    for _ in range(3):
        check(ps.load(path), path, maker.options(), maker.contents)


@pytest.mark.parametrize("seed", range(25))
def test_random_saves(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(seed, tmp_path, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(100, 700))
def test_more_random_saves(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(seed, tmp_path, monkeypatch)
