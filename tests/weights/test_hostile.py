"""Checkpoints that are made to cost: time and memory stay in proportion to the file, whatever it repeats.

Steps are counted, not seconds: lines of Python that are run, and the items that calls of a pickle copy. Each pattern is
given at n and 4n.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from proto_schema.external.payload import MemoryPayload
from purexport.weights import Stored, WeightsError, budget, open_weights, torchlegacy
from purexport.weights.match import Wanted, match
from purexport.weights.stored import shown
from tests.tiers import dealt
from tests.weights import made
from tests.weights.test_torchlegacy import persistent
from tests.weights.test_torchzip import STORAGE

MOST = 9  # linear is 4, twice that where a legacy file is read again in a larger part; quadratic is 16
SMALL = 200  # repetitions
LARGE = 50_000  # bytes

TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\0K\4K\6\x86K\1K\4\x86\x89NtR"
DATA = bytes(96)


def name(number: int) -> bytes:
    return b"\x8c\x06%06x" % number


def archive(body: Callable[[int], bytes]) -> Callable[[Path, int], Path]:
    """An archive of a pickle, which grows with the number of repetitions."""

    def make(folder: Path, count: int) -> Path:
        return made.torch_archive(folder / "m.pt", b"\x80\x04" + body(count) + b".", _0=DATA)

    return make


def repeated(pattern: bytes, head: bytes = b"", tail: bytes = b"") -> Callable[[Path, int], Path]:
    return archive(lambda count: head + pattern * count + tail)


def far_apart(count: int) -> bytes:
    return b"N" + b"".join(b"r" + (9 * number).to_bytes(4, "little") for number in range(count))


def rows(count: int) -> bytes:
    return TENSOR + b"q\0" + b"0}(" + b"".join(name(number) + b"h\0" for number in range(count)) + b"u"


def dicts_in_dicts(count: int) -> bytes:
    """Each dict holds the one before under ten names."""
    found = b"}\x94"
    for number in range(count):
        before = b"j" + number.to_bytes(4, "little")
        found += b"}\x94(" + b"".join(b"\x8c\x01%d" % key + before for key in range(10)) + b"u"
    return found


def legacy(folder: Path, count: int) -> Path:
    """As many tensors as storages."""
    parts = b"".join(pickle.dumps(part, 2) for part in (torchlegacy.MAGIC, torchlegacy.VERSION, {}))
    body = b"\x80\x02}("
    for number in range(count):
        stored = persistent(key=str(number), count=1)
        body += name(number) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + b"K\0))\x89NtR"
    parts += body + b"u." + pickle.dumps([str(number) for number in range(count)], 2)
    (folder / "m.pt").write_bytes(parts + ((1).to_bytes(8, "little") + bytes(4)) * count)
    return folder / "m.pt"


def safetensors(folder: Path, count: int) -> Path:
    header = {f"{n:06x}": {"dtype": "U8", "shape": [], "data_offsets": [n, n + 1]} for n in range(count)}
    return made.safetensors(folder / "m.safetensors", header, bytes(count))


def gguf(folder: Path, count: int) -> Path:
    infos = [made.gguf_info(b"%06x" % number, [8], 0, 32 * number) for number in range(count)]
    return made.gguf(folder / "m.gguf", infos, bytes(32 * count))


def gguf_metadata(item: Callable[[int], bytes]) -> Callable[[Path, int], Path]:
    return lambda folder, count: made.gguf(folder / "m.gguf", [], b"", [item(number) for number in range(count)])


def gguf_texts(folder: Path, count: int) -> Path:
    """One entry of metadata: a vocabulary."""
    texts = (9).to_bytes(4, "little") + (8).to_bytes(4, "little") + count.to_bytes(8, "little")
    entry = made.gguf_text(b"k") + texts + made.gguf_text(b"") * count
    return made.gguf(folder / "m.gguf", [], b"", [entry])


def repeated_json(item: str) -> Callable[[Path, int], Path]:
    def make(folder: Path, count: int) -> Path:
        text = '{"__metadata__":[' + ",".join([item] * count) + "]}"
        return made.safetensors(folder / "m.safetensors", text.encode())

    return make


def shards(folder: Path, count: int) -> Path:
    """As many files as tensors."""
    for number in range(count):
        made.of_arrays(folder / f"{number}.safetensors", {str(number): np.zeros(0)})
    index = {"weight_map": {str(number): f"{number}.safetensors" for number in range(count)}}
    (folder / "i.json").write_text(json.dumps(index))
    return folder / "i.json"


def arrays(folder: Path, count: int) -> Path:
    data = io.BytesIO()
    np.save(data, np.zeros(3, np.float32))
    with zipfile.ZipFile(folder / "m.npz", "w") as file:
        for number in range(count):
            file.writestr(f"{number}.npy", data.getvalue())
    return folder / "m.npz"


def in_a_long_folder(folder: Path, count: int) -> Path:
    """Storages whose members have names of 60 kB."""
    with zipfile.ZipFile(folder / "m.pt", "w") as file:
        file.writestr("m" * 60_000 + "/data.pkl", STORAGE[:-1] + b"q\0" + b"h\0Q" * count + b".")
    return folder / "m.pt"


# (what, what makes the file)
PATTERNS: list[tuple[str, Callable[[Path, int], Path]]] = [
    ("values", repeated(b"N")),
    ("the top of the stack put down", repeated(b"\x94", b"N")),
    ("numbers far apart put down", archive(far_apart)),
    ("empty dicts", repeated(b"}")),
    ("dicts of one item", repeated(b"}NNs")),
    ("items of one dict", repeated(b"NN", b"}(", b"u")),
    ("items of one dict, one by one", repeated(b"NNs", b"}")),
    ("marks", repeated(b"(")),
    ("lists in lists", repeated(b"]")),
    ("a list, one by one", repeated(b"Na", b"]")),
    ("tuples in tuples", repeated(b"\x85", b"N")),
    ("pairs of the pair before", repeated(b"2\x86", b"N")),
    ("a key of pairs of pairs", repeated(b"2\x86", b"}N", b"Ns")),
    ("a set of pairs of pairs", repeated(b"2\x86", b"\x8f(N", b"\x90")),
    ("lists of the list before", repeated(b"]q\1h\0ah\0ah\1q\0", b"]q\0")),
    ("dicts in dicts, ten times each", archive(dicts_in_dicts)),
    ("storages", repeated(b"h\0Q", STORAGE[:-1] + b"q\0")),
    ("storages in a long folder", in_a_long_folder),
    ("tensors by name", archive(rows)),
    ("storages of a legacy file", legacy),
    ("tensors of a safetensors file", safetensors),
    ("tensors of a GGUF file", gguf),
    ("keys of a GGUF file", gguf_metadata(lambda number: made.gguf_text(b"%06x" % number) + bytes(5))),
    ("texts of a GGUF file", gguf_texts),
    ("empty objects of JSON", repeated_json("{}")),
    ("objects of JSON", repeated_json('{"a":0}')),
    ("lists of JSON", repeated_json("[[]]")),
    ("texts of JSON", repeated_json('"a"')),
    ("files of an index", shards),
    ("arrays of an archive", arrays),
]


def steps(path: Path) -> int:
    """Lines that run in our readers while the file is opened."""
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        open_weights(path)
    except WeightsError:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("make", dealt([row[1] for row in PATTERNS], 3, [row[0] for row in PATTERNS]))
def test_steps_grow_with_the_file(make: Callable[[Path, int], Path], tmp_path: Path) -> None:
    counts = []
    for factor in (1, 4):
        folder = tmp_path / str(factor)
        folder.mkdir()
        counts.append(steps(make(folder, SMALL * factor)))
    assert counts[1] <= MOST * counts[0], counts


def size_of(folder: Path, make: Callable[[Path, int], Path], count: int) -> int:
    """The bytes of a checkpoint with all its files."""
    make(folder, count)
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize("make", dealt([row[1] for row in PATTERNS], 3, [row[0] for row in PATTERNS]))
def test_memory_stays_within_the_budget(
    make: Callable[[Path, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a base of a 512th, so that files of 50 kB come to its end."""
    base = 1 << 19
    monkeypatch.setattr(budget, "BASE", base)
    each = (size_of(tmp_path, make, 60) - size_of(tmp_path, make, 40)) // 20
    size = size_of(tmp_path, make, LARGE // each)
    path = next(tmp_path.glob("[im].*"))
    tracemalloc.start()
    try:
        open_weights(path)
    except WeightsError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= base + budget.RATE * size + (1 << 18), peak / size


# (what, body of the pickle, message)
COPIES: list[tuple[str, bytes, str]] = [
    ("a list copied", b"ctorch\nSize\nq\0](" + b"N" * 99 + b"e\x85q\1" + b"h\0h\1R0" * 99, "its calls copy have"),
    (
        "a list of pairs copied",
        b"ccollections\nOrderedDict\nq\0](" + b"NN\x86" * 99 + b"e\x85q\1" + b"h\0h\1R0" * 99,
        "the lists that its calls copy have more items than it has bytes",
    ),
    ("many arguments", b"c_codecs\nencode\n(" + b"N" * 9 + b"tR", "a call has 9 arguments"),
    (
        "many arguments inside",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n("
        + b"N" * 9
        + b"tNtR",
        "the arguments of a call do not fit",
    ),
    ("an error on lists in lists", b"]" + b"q\0](h\0h\0h\0h\0h\0h\0h\0h\0e" * 9 + b")R", "it calls [["),
]


@pytest.mark.parametrize(("body", "message"), [row[1:] for row in COPIES], ids=[row[0] for row in COPIES])
def test_what_is_shared_is_not_multiplied(body: bytes, message: str, tmp_path: Path) -> None:
    made.torch_archive(tmp_path / "m.pt", b"\x80\x02" + body + b".")
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.pt")
    assert message in str(caught.value) and len(str(caught.value)) < 1000


def test_what_is_shared_is_shown_once() -> None:
    value: Any = ["x" * 500]
    for _ in range(9):
        value = [value] * 9
    assert len(shown(value)) < 2000


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    """Many members that share their data, each with a header of its own that leads there."""
    data = io.BytesIO()
    np.save(data, np.zeros(3, np.float32))
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as file:
        file.writestr("a.npy", data.getvalue())
        file.writestr("b.npy", data.getvalue())
    content = bytearray((tmp_path / "m.npz").read_bytes())
    second = content.index(b"b.npy") - 30
    content[28:30] = (second - 5 - 30 + 35).to_bytes(2, "little")  # the first begins where the second's data does
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(WeightsError, match=r"member 'a.npy' would have 140 bytes at \d+, .* before the next one"):
        open_weights(tmp_path / "m.npz")


def test_errors_on_what_does_not_fit_are_short() -> None:
    """Names of a megabyte, and shapes of thousands of axes, beside a model of few."""
    wanted = [Wanted(("weight",), 1, (2, 3))]
    long = "x" * (1 << 20)
    row = Stored("weight", 1, (0,) * 5000, MemoryPayload(b""), "m.safetensors")
    for weights in ({"weight": row}, {f"{long}.weight": row}, {f"{long}\u202e.weight": row, long: row}):
        with pytest.raises(WeightsError) as caught:
            match(weights, wanted)
        assert len(str(caught.value)) < 2000 and str(caught.value).isascii()
