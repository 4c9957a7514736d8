"""The limits of the format and of machines: 2 GiB, 100 levels, a million nodes, offsets past 2**32, few open files.

Large files are sparse, large outputs go to a sink that counts: what is tested is sizes and places, not gigabytes.
Whether weights were read is asked of the kernel: which pages of the file are in memory. What takes long at full size
runs small by default and whole with `pytest -m sweep -n 0 tests/proto_schema/test_limits.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import external
from proto_schema.external import tensors
from proto_schema.external.payload import LazyPayload
from proto_schema.numpy_helper import from_array, to_array
from proto_schema.wire import MAX_DEPTH, MAX_LENGTH, varint
from proto_schema.wire.codec import encode_parts
from purexport.cli.main import main

GIB2 = 1 << 31
UINT8 = ps.TensorProto.UINT8


def printed(*words: object) -> tuple[int, str]:
    """(exit status, what it writes) of a command line."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main([str(word) for word in words])
    assert "--traceback" not in errors.getvalue(), errors.getvalue()
    return status, out.getvalue() + errors.getvalue()


def nodes(count: int, start: int = 0) -> list[ps.NodeProto]:
    names = [str(number) for number in range(start, start + count + 1)]
    return [ps.NodeProto(op_type="Relu", input=[a], output=[b]) for a, b in itertools.pairwise(names)]


def model(made: list[ps.NodeProto], *weights: ps.TensorProto) -> ps.ModelProto:
    """A valid model whose input is the first node's, and whose output the last one's."""
    value = ps.helper.make_tensor_value_info
    ends = [value(made[0].input[0], 1, [1])], [value(made[-1].output[0], 1, [1])]
    graph = ps.helper.make_graph(made, "g", *ends, list(weights))
    return ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 20)], ir_version=10)


# ---- 2 GiB


class Counting:
    """A stream that stores nothing."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: Any) -> int:
        self.count += len(data)
        return len(data)


def of_size(size: int, read: bool = False) -> ps.ModelProto:
    """A model whose encoding has just so many bytes; `read`: its weight can be read."""
    made = model(nodes(1), ps.TensorProto(name="w", data_type=UINT8))
    assert made.graph is not None
    weight = made.graph.initializer[0]
    zeros = bytes(1 << 22)

    def chunks() -> Iterator[bytes]:
        assert read, "the weight was read"
        left = weight.dims[0]
        while left:
            yield zeros[: min(left, len(zeros))]
            left -= min(left, len(zeros))

    def filled(count: int) -> int:
        weight.dims, weight.raw_data = [count], LazyPayload(count, chunks)
        return made.ByteSize()

    count = size - (filled(size - 64) - (size - 64))
    filled(count)
    weight.doc_string = "x" * (size - made.ByteSize() - 2) if made.ByteSize() != size else None
    assert made.ByteSize() == size
    return made


@pytest.mark.parametrize("size", [MAX_LENGTH, MAX_LENGTH + 1, MAX_LENGTH + 2, 3 * GIB2])
def test_around_2_gib_is_decided_before_the_first_byte(size: int, tmp_path: Path) -> None:
    made = of_size(size)
    fits = size <= MAX_LENGTH
    assert ps.plan(made, tmp_path / "m.onnx").kind == ("inline" if fits else "external")
    if fits:
        assert ps.plan(made, Counting()).written == size
        return
    for refused in (lambda: ps.plan(made, Counting()), lambda: ps.save(made, Counting()), lambda: ps.dumps(made)):
        with pytest.raises(ps.EncodeError, match="2 GiB"):
            refused()
    with pytest.raises(ps.EncodeError, match="pass external_data=True"):
        ps.save(made, tmp_path / "m.onnx", external_data=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sweep
def test_the_last_byte_that_fits_is_written() -> None:
    sink = Counting()
    ps.save(of_size(MAX_LENGTH, read=True), sink)
    assert sink.count == MAX_LENGTH
    sink = Counting()
    ps.save(of_size(MAX_LENGTH + 1, read=True), sink, archive="tar")
    assert sink.count > MAX_LENGTH


def inline_file(path: Path, size: int) -> ps.ModelProto:
    """A file of just so many bytes with its weight inside, which is a hole; returns the model that it holds."""
    made = of_size(size)
    parts, total = encode_parts(made)
    with path.open("wb") as file:
        for part in parts:
            if isinstance(part, LazyPayload):
                file.seek(part.nbytes, os.SEEK_CUR)
            else:
                file.write(bytes(part))  # type: ignore[arg-type]
        file.truncate(total)
    assert path.stat().st_size == size
    return made


def resident(path: Path) -> int:
    """How many bytes of a file are in memory."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    size, pages = path.stat().st_size, -(-path.stat().st_size // mmap.PAGESIZE)
    found = np.zeros(pages, np.uint8)
    with path.open("rb") as file:
        arguments = (None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_size_t(0))
        start = ctypes.c_void_p(library.mmap(*arguments))
    assert library.mincore(start, ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)) == 0
    library.munmap(start, ctypes.c_size_t(size))
    return int(np.count_nonzero(found & 1)) * mmap.PAGESIZE


VERBS = [  # those that must not read the weights
    ("show", "M"),
    ("inspect", "M"),
    ("inspect", "M", "graph.initializer[0]"),
    ("locate", "M", str(GIB2 - 4096)),
    ("stat", "M"),
    ("check", "M"),
    ("edit", "M", "--set", "producer_name=me", "--dry-run"),
]


@pytest.mark.parametrize("size", [MAX_LENGTH, GIB2])
def test_an_inline_file_of_2_gib_is_not_read(size: int, tmp_path: Path) -> None:
    """One byte more than the format allows is loaded, so that it can be saved again, and `check` says it."""
    path = tmp_path / "m.onnx"
    made = inline_file(path, size)
    assert made.graph is not None
    before = resident(path)
    loaded = ps.load(path)
    (weight,) = tensors(loaded)
    assert to_array(weight).shape == tuple(made.graph.initializer[0].dims)
    assert to_array(weight)[-1] == 0
    assert ps.plan(loaded, tmp_path / "out.onnx").kind == ("inline" if size <= MAX_LENGTH else "external")
    for words in VERBS:
        status, text = printed(*(path if word == "M" else word for word in words))
        fine = words[0] not in ("check", "edit") or (size <= MAX_LENGTH and words[0] == "check")
        assert (status == 0) == fine, (words, text)
        assert fine or "2 GiB" in text
    assert resident(path) - before < 1 << 26
    path.unlink()


def test_a_weight_past_2_gib_has_no_length_that_readers_take(tmp_path: Path) -> None:
    inline_file(tmp_path / "m.onnx", 3 * GIB2 // 2)
    with pytest.raises(ps.DecodeError, match="above the limit of 2\\*\\*31 - 1"):
        ps.load(tmp_path / "m.onnx")


# ---- an external file of 100 GB

PLACES = [0, 2**31 - 32, 2**32 - 32, 2**32 + 4096, 50 * 10**9 // 4096 * 4096, 10**11 - 32]


def test_an_external_file_of_100_gb(tmp_path: Path) -> None:
    data, arrays = tmp_path / "w.bin", [np.full(8, number, np.float32) for number in range(len(PLACES))]
    with data.open("wb") as file:
        for place, array in zip(PLACES, arrays, strict=True):
            file.seek(place)
            file.write(array.tobytes())
    assert data.stat().st_size == 10**11
    weights = [ps.TensorProto(name=f"w{number}", data_type=1, dims=[8]) for number in range(len(PLACES))]
    for weight, place in zip(weights, PLACES, strict=True):
        external.set_entries(weight, "w.bin", place, 32)
    whole = ps.TensorProto(name="whole", data_type=UINT8, dims=[10**11])
    external.set_entries(whole, "w.bin", 0, 10**11)
    path = tmp_path / "m.onnx"
    ps.save(model(nodes(1)), path)
    path.write_bytes(model(nodes(1), *weights, whole).SerializeToString())
    before = resident(data)
    loaded = list(tensors(ps.load(path)))
    for weight, array in zip(loaded, arrays, strict=False):
        np.testing.assert_array_equal(to_array(weight), array)
    assert to_array(loaded[-1]).shape == (10**11,)
    small = model(nodes(1), *loaded[:-1])
    ps.save(small, tmp_path / "copy.onnx", external_data=True, size_threshold=0)
    for weight, array in zip(tensors(ps.load(tmp_path / "copy.onnx")), arrays, strict=True):
        np.testing.assert_array_equal(to_array(weight), array)
    ps.save(small, tmp_path / "same.onnx", external_data="reference", size_threshold=0)
    assert [to_array(weight)[0] for weight in tensors(ps.load(tmp_path / "same.onnx"))] == [0, 1, 2, 3, 4, 5]
    plan = ps.plan(ps.load(path), tmp_path / "big.onnx", external_data=True)
    assert plan.written > 10**11 and not plan.fits
    with pytest.raises(OSError, match="make room"):
        ps.save(ps.load(path), tmp_path / "big.onnx", external_data=True)
    for verb in ("show", "check", "inspect"):
        assert printed(verb, path)[0] == 0
    status, text = printed("stat", path)
    assert status == 1 and "begin inside another tensor's bytes" in text  # those of the one that has it all
    for number, place in enumerate(PLACES):
        assert f"w{number}" in printed("locate", path, place + 4, "--data", "w.bin")[1]
    assert resident(data) - before < 1 << 26


# ---- levels


def nested_graphs(levels: int) -> bytes:
    """A model whose messages nest so deep: graph, node, attribute, graph, ..."""
    data = b""
    for level in range(levels - 1, 0, -1):  # inside the graph of the model, which is the first
        data = varint((1, 5, 6)[(level - 1) % 3] << 3 | 2) + varint(len(data)) + data
    return b"\x08\x0a" + varint(7 << 3 | 2) + varint(len(data)) + data


def nested_groups(levels: int) -> bytes:
    """A model with an unknown field of groups in groups."""
    return b"\x08\x0a\x3a\0" + varint(99 << 3 | 3) * levels + varint(99 << 3 | 4) * levels


def groups_in_graphs(levels: int) -> bytes:
    """A third of the levels are groups, within the innermost message."""
    data = nested_groups(levels // 3)[4:]
    for level in range(levels - levels // 3 - 1, 0, -1):
        data = varint((1, 5, 6)[(level - 1) % 3] << 3 | 2) + varint(len(data)) + data
    return b"\x08\x0a" + varint(7 << 3 | 2) + varint(len(data)) + data


LEVELS = [nested_graphs, nested_groups, groups_in_graphs]


@pytest.mark.parametrize("build", LEVELS)
def test_levels(build: Callable[[int], bytes], tmp_path: Path) -> None:
    """100 are read and written by everything; 101 are one error, and what reads damaged files shows the rest."""
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    good.write_bytes(build(MAX_DEPTH))
    bad.write_bytes(build(MAX_DEPTH + 1))
    loaded = ps.load(good)
    assert ps.dumps(loaded) == good.read_bytes() and len(repr(loaded)) > 0
    copied = ps.ModelProto()
    copied.CopyFrom(loaded)
    assert copied == loaded and copied.ByteSize() == good.stat().st_size
    ps.save(loaded, tmp_path / "saved.onnx")
    with pytest.raises(ps.DecodeError, match="more than 100 nested"):
        ps.load(bad)
    for verb, *words in (("show",), ("inspect",), ("stat",), ("diff", good), ("locate", 60)):
        status, text = printed(verb, good, *words)
        assert status == 0, text
        assert printed(verb, bad, *words)[0] in (0, 1, 2)
    for verb, *words in (
        ("html", "-o"),
        ("salvage", "-o"),
        ("canonicalize", "-o"),
        ("edit", "--set", "domain=d", "-o"),
    ):
        status, text = printed(verb, good, *words, tmp_path / f"{verb}.out")
        assert status == 0, text
        assert printed(verb, bad, *words, tmp_path / f"{verb}.bad")[0] in (0, 1, 2)


def test_a_message_of_101_levels_is_not_written() -> None:
    message = ps.GraphProto()
    for _ in range(34):
        attribute = ps.AttributeProto(name="a", type=ps.AttributeProto.GRAPH, g=message)
        message = ps.GraphProto(node=[ps.NodeProto(attribute=[attribute])])
    with pytest.raises(ps.EncodeError, match="more than 100 nested"):
        ps.dumps(ps.ModelProto(graph=message))


# ---- many nodes, many tensors

NODES = [1_000, pytest.param(1_000_000, marks=pytest.mark.sweep)]
TENSORS = [200, pytest.param(100_000, marks=pytest.mark.sweep)]


@pytest.mark.parametrize("count", NODES)
def test_nodes(count: int, tmp_path: Path) -> None:
    path, same = tmp_path / "m.onnx", tmp_path / "same.onnx"
    made = model(nodes(count))
    ps.save(made, path)
    loaded = ps.load(path)
    assert loaded == made
    ps.save(loaded, same)
    assert same.read_bytes() == path.read_bytes()
    ps.checker.check_model(path, full_check=True)
    last = f"graph.node[{count - 1}]"
    assert printed("inspect", path, last)[0] == printed("locate", path, last)[0] == printed("stat", path)[0] == 0
    assert printed("locate", path, path.stat().st_size // 2)[0] == printed("show", path)[0] == 0
    assert printed("diff", path, same)[0] == 0
    assert printed("edit", path, "--rename-value", "1=one", "-o", tmp_path / "edited.onnx")[0] == 0
    assert printed("extract", path, "--outputs", count, "-o", tmp_path / "part.onnx")[0] == 0
    assert printed("canonicalize", path, "-o", same)[0] == printed("salvage", path, "-o", same)[0] == 0
    assert same.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("count", TENSORS)
def test_tensors(count: int, tmp_path: Path) -> None:
    """Inside, in one file, in a hundred files; each of them another one's source."""
    values = np.arange(count * 16, dtype=np.float32).reshape(count, 16)
    made = model(nodes(1), *(from_array(row, f"w{number}") for number, row in enumerate(values)))

    def check(path: Path) -> ps.ModelProto:
        loaded = ps.load(path)
        found = [to_array(weight) for weight in tensors(loaded)]
        np.testing.assert_array_equal(np.stack(found), values)
        return loaded

    options: dict[str, Any] = {"external_data": True, "size_threshold": 0, "alignment": 64}
    ps.save(made, tmp_path / "inline.onnx")
    ps.save(check(tmp_path / "inline.onnx"), tmp_path / "one.onnx", **options)
    ps.save(check(tmp_path / "one.onnx"), tmp_path / "many.onnx", shard_size=values.nbytes // 100, **options)
    assert len(list(tmp_path.glob("many.onnx*data"))) in (100, 101)
    loaded = check(tmp_path / "many.onnx")
    plan = ps.plan(loaded, tmp_path / "again.onnx", **options)
    assert len(plan.tensors) == count and plan.written > values.nbytes
    ps.save(loaded, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "inline.onnx").read_bytes()
    ps.checker.check_model(tmp_path / "many.onnx")
    assert printed("stat", tmp_path / "many.onnx")[0] == printed("show", tmp_path / "many.onnx")[0] == 0
    assert printed("diff", tmp_path / "many.onnx", tmp_path / "inline.onnx", "--ignore", "storage")[0] == 0


# ---- odd shapes and names

SHAPES = [(), (1,) * 64, (0,), (0, 3), (3, 0, 2), (2**40, 0), (0, 2**40), (1,) * 63 + (0,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Rank 0 and 64, and nothing at all: inside, outside, and as a list of numbers."""
    array = np.full(shape, 2.5, np.float32)
    made = model(nodes(1), from_array(array, "w"), ps.helper.make_tensor("v", 1, shape, array.ravel().tolist()))
    ps.save(made, tmp_path / "inline.onnx")
    ps.save(made, tmp_path / "out.onnx", external_data=True, size_threshold=0)
    empty = ps.TensorProto(name="e", data_type=1, dims=list(shape))
    external.set_entries(empty, "e.bin", 0, array.nbytes)
    (tmp_path / "e.bin").write_bytes(array.tobytes())
    (tmp_path / "given.onnx").write_bytes(model(nodes(1), empty).SerializeToString())
    for path in tmp_path.glob("*.onnx"):
        ps.checker.check_model(path)
        for weight in tensors(ps.load(path)):
            found = to_array(weight)
            assert found.shape == shape and found.dtype == np.float32
            np.testing.assert_array_equal(found, array)
        ps.save(ps.load(path), tmp_path / "again" if path.name == "x" else path)
        for verb in ("show", "stat", "inspect"):
            assert printed(verb, path)[0] == 0


BAD_SHAPES = [
    ("65 axes, more than numpy has", [1] * 65, bytes(4), "numpy has no arrays"),
    ("a product of 10,000 sizes", [2**62] * 10_000, bytes(4), "overflow"),
    ("a product of a million sizes", [2**62] * 1_000_000, bytes(4), "overflow"),
    ("nothing, of sizes beyond numpy's", [0, 2**62, 2**62], b"", "numpy has no arrays"),
]


@pytest.mark.parametrize(
    ("dims", "data", "words"),
    [pytest.param(*row[1:], id=row[0], marks=[pytest.mark.sweep] if len(row[1]) > 10**5 else []) for row in BAD_SHAPES],
)
def test_shapes_that_are_refused(dims: list[int], data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(model(nodes(1), ps.TensorProto(name="w", data_type=1, dims=dims, raw_data=data)), path)
    (weight,) = tensors(ps.load(path))
    with pytest.raises(ps.DecodeError, match=words) as caught:
        to_array(weight)
    assert len(str(caught.value)) < 4000
    for verb in ("show", "stat", "check", "inspect"):
        assert len(printed(verb, path)[1]) < 20_000 + 3 * path.stat().st_size


def test_names_of_1_mb(tmp_path: Path) -> None:
    """Of everything that has one; what is printed of them is bounded."""
    name = itertools.count()

    def long() -> str:
        return f"{next(name)}-" + "n" * (1 << 20)

    first, last, weight = long(), long(), long()
    made = model([ps.helper.make_node("Add", [first, weight], [last], name=long(), doc_string=long())])
    assert made.graph is not None
    made.graph.name = made.producer_name = long()
    made.graph.initializer.append(from_array(np.ones(1, np.float32), weight))
    made.graph.input[0] = ps.helper.make_tensor_value_info(first, 1, [long()])
    made.metadata_props.append(ps.StringStringEntryProto(key=long(), value=long()))
    path = tmp_path / "m.onnx"
    ps.save(made, path)
    assert ps.load(path) == made
    ps.checker.check_model(path, full_check=True)
    ps.save(ps.load(path), tmp_path / "out.onnx", external_data=True, size_threshold=0)
    assert to_array(next(iter(tensors(ps.load(tmp_path / "out.onnx"))))) == [1]
    for words in (("show", path), ("stat", path), ("inspect", path), ("locate", path, 100), ("check", path)):
        status, text = printed(*words)
        assert status == 0 and len(text) < 20_000 + path.stat().st_size, (words[0], len(text))
    edited = tmp_path / "edited.onnx"
    assert printed("edit", path, "--rename-value", f"{weight}=w", "--drop-doc-strings", "-o", edited)[0] == 0
    assert ps.load(edited).graph.initializer[0].name == "w"  # type: ignore[union-attr]
    made.graph.node[0].op_type = long()
    for refused in (
        lambda: ps.checker.check_model(made),
        lambda: ps.dumps(ps.ModelProto(producer_name=long(), graph=3)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            refused()
        assert len(str(caught.value)) < 4000


# ---- what the system gives

FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
import numpy as np
import proto_schema as ps
from proto_schema import external
from proto_schema.wire.codec import encode_parts
from proto_schema.external import tensors
model = ps.load(sys.argv[1] + "/many.onnx")
for kind in ("one", "reference", "shards", "inline", "tar"):
    options = {
        "one": {"external_data": True, "size_threshold": 0, "alignment": 4},
        "reference": {"external_data": "reference", "size_threshold": 0},
        "shards": {"external_data": True, "size_threshold": 0, "shard_size": 5000, "resume": True},
        "inline": {"external_data": False},
        "tar": {"external_data": True, "archive": "tar"},
    }[kind]
    folder = sys.argv[1] if kind == "reference" else sys.argv[1] + "/" + kind
    ps.save(model, f"{folder}/{kind}.onnx", **options)
    if kind != "tar":
        again = ps.load(f"{folder}/{kind}.onnx")
        values = [int(ps.numpy_helper.to_array(tensor)[0]) for tensor in tensors(again)]
        assert values == list(range(400)), kind
ps.checker.check_model(sys.argv[1] + "/many.onnx")
"""


@pytest.mark.full
def test_few_open_files(tmp_path: Path) -> None:
    """400 tensors in 50 files, and a process that may have 32 files open."""
    resource = pytest.importorskip("resource", reason="the system has no limit that a process can set")
    assert resource
    weights = [from_array(np.full(16, number, np.float32), f"w{number}") for number in range(400)]
    options: dict[str, Any] = {"external_data": True, "size_threshold": 0, "alignment": 64}
    ps.save(model(nodes(1), *weights), tmp_path / "many.onnx", shard_size=512, **options)
    assert len(list(tmp_path.glob("*data"))) == 50
    for name in ("one", "shards", "inline", "tar"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", FILES, str(tmp_path), "32"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=with_package())
    assert done.returncode == 0, done.stderr


def with_package(**more: str) -> dict[str, str]:
    """The environment, with the folder of the package that is tested on the path."""
    return {**os.environ, "PYTHONPATH": str(Path(ps.__file__).parent.parent), **more}
