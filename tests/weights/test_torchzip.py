"""What torch.save writes, read without torch: every tensor's bytes; which dict is taken; everything else is refused."""

from __future__ import annotations

import argparse
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from proto_schema import ExternalDataError
from proto_schema.derived.strided import StridedPayload
from proto_schema.external.payload import FileRange
from purexport.dtypes import onnx_code
from purexport.weights import WeightsError, open_weights, torchzip
from purexport.weights.budget import Budget
from tests.weights import made

GRID = torch.arange(24.0).reshape(2, 3, 4)
NORM = torch.nn.BatchNorm1d(3)


def octets(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def attributed(tensor: torch.Tensor) -> torch.Tensor:
    tensor.note = "kept by torch, of no use here"  # type: ignore[attr-defined]
    return tensor


# (what, tensor, whether it lies in the file as it is)
TENSORS: list[tuple[str, torch.Tensor, bool]] = [
    ("contiguous", GRID, True),
    ("a parameter", torch.nn.Parameter(GRID), True),
    ("a parameter with an attribute", attributed(torch.nn.Parameter(GRID.clone())), True),
    ("a tensor with an attribute", attributed(GRID.clone()), True),
    ("a buffer", torch.nn.Buffer(GRID), True),
    ("a slice from the middle", GRID[1], True),
    ("one row of several", GRID[:, 1:2, :1][1], True),
    ("transposed", GRID.permute(2, 0, 1), False),
    ("a column", GRID[:, 1], False),
    ("every other", GRID[..., ::2], False),
    ("expanded", GRID[:1].expand(5, 3, 4), False),
    ("a scalar of a row", GRID[1, 2, 3], True),
    ("a scalar", torch.tensor(3), True),
    ("nothing", torch.zeros(0, 3), True),
    ("nothing, strided", torch.zeros(3, 0, 2).permute(2, 1, 0), True),
    ("empty at the end", GRID[2:], True),
    *[
        (str(dtype), (GRID > 3 if dtype is torch.bool else torch.zeros(3)).to(dtype), True)
        for dtype in (
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.bool,
            torch.complex64,
            torch.complex128,
            torch.float8_e4m3fn,
            torch.float8_e4m3fnuz,
            torch.float8_e5m2,
            torch.float8_e5m2fnuz,
        )
    ],
]


# both formats of torch.save: the archive, and what torch before 1.6 wrote
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "legacy"])


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_tensors(protocol: int, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    tensors = {name: tensor for name, tensor, _ in TENSORS}
    torch.save(tensors, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    found = open_weights(path)
    assert list(found) == [name for name, _, _ in TENSORS]
    for name, tensor, whole in TENSORS:
        row = found[name]
        assert (row.dtype, row.shape, row.origin) == (onnx_code(tensor.dtype), tuple(tensor.shape), "m.pt"), name
        assert row.payload.tobytes() == octets(tensor), name
        assert isinstance(row.payload, FileRange if whole else StridedPayload), name
        assert all(0 < len(chunk) <= 7 for chunk in row.payload.chunks(7)), name


@FORMATS
def test_tied_storages_are_one_range(zipped: bool, tmp_path: Path) -> None:
    tensors = {"a": GRID, "b": GRID, "c": GRID.clone(), "t": GRID.mT, "u": GRID.mT}
    torch.save(tensors, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    identity = {name: row.payload.identity for name, row in open_weights(tmp_path / "m.pt").items()}
    assert identity["a"] == identity["b"] != identity["c"]
    assert identity["t"] == identity["u"] != identity["a"]


STATE = NORM.state_dict()
ADAM = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())

# (what, checkpoint, the names that are found)
DICTS: list[tuple[str, Any, list[str]]] = [
    ("a state dict", STATE, list(STATE)),
    ("numbers among tensors", {"w": GRID, "version": 3, "name": "x", "none": None}, ["w"]),
    ("state_dict", {"state_dict": STATE, "epoch": 3, "lr": 0.1}, list(STATE)),
    ("the only one", {"net": STATE, "args": ["a", 1, {"b"}]}, list(STATE)),
    ("with the optimizer", {"model": STATE, "optimizer": ADAM.state_dict()}, list(STATE)),
    ("the usual one of several", {"ema": {"x": GRID}, "model": STATE}, list(STATE)),
    ("deeper", {"checkpoint": {"model": STATE}}, list(STATE)),
    ("the same dict twice", {"a": STATE, "b": STATE}, list(STATE)),
    ("an OrderedDict", OrderedDict(b=GRID, a=GRID), ["b", "a"]),
    ("other things of torch", {"w": GRID, "d": torch.device("cpu"), "s": torch.Size([3]), "t": torch.float16}, ["w"]),
    ("keys that are not names", {"w": GRID, 3: GRID, ("a",): GRID, "big": 1 << 200, "c": b"xyz"}, ["w"]),
]


@FORMATS
@pytest.mark.parametrize(("checkpoint", "names"), [row[1:] for row in DICTS], ids=[row[0] for row in DICTS])
def test_which_dict_is_taken(checkpoint: Any, names: list[str], zipped: bool, tmp_path: Path) -> None:
    torch.save(checkpoint, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert list(open_weights(tmp_path / "m.pt")) == names


AGAIN = "load it with torch and save its state dict again with torch.save"
NEVER_RUN = (
    "which no state dict needs, and code is never run; load the file where you trust it, and save its state dict"
)


class Quantized:
    """What a quantized tensor is in a pickle; making a real one is deprecated and warns."""

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_qtensor, ()


# (what, checkpoint, message behind the file's name)
CHECKPOINTS: list[tuple[str, Any, str]] = [
    ("a tensor alone", GRID, ": it holds a single tensor without a name; save {name: tensor}"),
    ("a list", [GRID], f": no dict of tensors by name is in it, it has no names; {AGAIN}"),
    ("numbers", {"a": 3, "b": {"c": 4}}, f": no dict of tensors by name is in it, it has 'a', 'b'; {AGAIN}"),
    (
        "several",
        {"gen": {"w": GRID}, "disc": {"w": GRID}},
        ": several dicts of it hold tensors: ['gen'], ['disc']; pass the "
        "one that is meant, as torch.load(path, mmap=True)['gen']",
    ),
    (
        "two usual ones",
        {"model": {"w": GRID}, "state_dict": {"w": GRID}},
        ": several dicts of it hold tensors: ['model'], [",
    ),
    ("a module", torch.nn.Linear(1, 1), f"it needs torch.nn.modules.linear.Linear, {NEVER_RUN}"),
    ("options", {"w": GRID, "args": argparse.Namespace()}, f"it needs argparse.Namespace, {NEVER_RUN}"),
    (
        "quantized",
        {"w": Quantized()},
        "it needs torch._utils._rebuild_qtensor, which no state dict needs",
    ),
    ("sparse", {"w": torch.eye(2).to_sparse()}, "it needs torch._utils._rebuild_sparse_tensor, "),
    (
        "on the meta device",
        {"w": torch.empty(2, device="meta")},
        "it needs torch._utils._rebuild_meta_tensor_no_storage, ",
    ),
    (
        "conjugate",
        {"w": torch.tensor([1j]).conj()},
        "near 'w': a tensor is a lazy conjugate or negation; save tensor.resolve",
    ),
    (
        "complex of halves",
        {"w": torch.zeros(2, dtype=torch.complex32)},
        "near 'w': ONNX has no data type for torch.complex32",
    ),
    (
        "a conjugate parameter",
        {"v": torch.nn.Parameter(torch.tensor([1j]).conj())},
        "near 'v': a tensor is a lazy conj",
    ),
]


@FORMATS
@pytest.mark.parametrize(("checkpoint", "message"), [r[1:] for r in CHECKPOINTS], ids=[r[0] for r in CHECKPOINTS])
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_checkpoints_that_are_refused(checkpoint: Any, message: str, zipped: bool, tmp_path: Path) -> None:
    torch.save(checkpoint, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.pt")
    assert str(caught.value).startswith(("m.pt: ", "m.pt @0x")) and message in str(caught.value)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/purexport-was-here",)


@FORMATS
def test_nothing_is_run(zipped: bool, tmp_path: Path) -> None:
    torch.save({"w": GRID, "x": Evil()}, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        WeightsError, match=r"m.pt(: data.pkl)? @0x[0-9a-f]+: it needs posix.system, which no state dict needs"
    ):
        open_weights(tmp_path / "m.pt")
    assert not os.path.exists("/tmp/purexport-was-here")


def test_torchscript_is_refused(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "m.pt")
    with pytest.raises(WeightsError, match=r"it is a TorchScript archive, not a checkpoint; save torch.jit.load"):
        open_weights(tmp_path / "m.pt")


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return change


# (what, members to change, options of the archive, message)
ARCHIVES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("compressed", {}, {"compression": zipfile.ZIP_DEFLATED}, f"member 'm/data.pkl' is compressed (deflate); {AGAIN}"),
    ("no pickle", {"m/data.pkl": None}, {}, "the zip archive has no data.pkl: it was not written by torch.save"),
    (
        "two pickles",
        {"n/data.pkl": b""},
        {},
        "the zip archive has 'm/data.pkl', 'n/data.pkl': it was not written by torch",
    ),
    ("big-endian", {"m/byteorder": b"big"}, {}, f"its byte order is 'big'; {AGAIN}"),
    ("no storage", {"m/data/0": None}, {}, f"the storage 'm/data/0' is missing; {AGAIN}"),
    (
        "a short storage",
        {"m/data/0": b"123"},
        {},
        f"the storage 'm/data/0' has 3 bytes, but the pickle says 96; {AGAIN}",
    ),
    ("a cut pickle", {"m/data.pkl": lambda data: data[:-1]}, {}, "it ends too early"),
    ("an empty pickle", {"m/data.pkl": b""}, {}, "data.pkl @0x0: it ends too early"),
    (
        "a negative step",
        {"m/data.pkl": replaced(b"K\x04K\x01\x87", b"K\x04J\xff\xff\xff\xff\x87")},
        {},
        "the arguments of a",
    ),
    (
        "a step too large",
        {"m/data.pkl": replaced(b"K\x04K\x01\x87", b"K\x04K\x02\x87")},
        {},
        "near 'w': a tensor of shape "
        "(2, 3, 4) and steps (12, 4, 2) from 0 lies outside of its storage, which has 96 bytes",
    ),
    (
        "a shape that is not a size",
        {"m/data.pkl": replaced(b"K\x02K\x03K\x04", b"K\x02K\x03N")},
        {},
        "near 'w': the arguments",
    ),
    (
        "a shape of another rank",
        {"m/data.pkl": replaced(b"K\x02K\x03K\x04\x87", b"K\x02K\x03\x86")},
        {},
        "near 'w': the arg",
    ),
    (
        "another storage class",
        {"m/data.pkl": replaced(b"FloatStorage", b"QInt8Storage")},
        {},
        "it needs torch.QInt8Storage",
    ),
    ("another word", {"m/data.pkl": replaced(b"storage", b"storagf")}, {}, "refers to something else than a storage"),
    (
        "a huge storage",
        {"m/data.pkl": replaced(b"q\x06K\x18", b"q\x06\x8a\x0a" + b"\x7f" * 10)},
        {},
        "overflows 64 bits",
    ),
]


@pytest.mark.parametrize(("members", "options", "message"), [r[1:] for r in ARCHIVES], ids=[r[0] for r in ARCHIVES])
def test_archives_that_are_refused(
    members: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    torch.save({"w": GRID}, tmp_path / "m.pt")
    made.rezipped(tmp_path / "m.pt", {})
    made.rezipped(tmp_path / "m.pt", members, **options)
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.pt")
    assert message in str(caught.value)


def test_an_archive_written_anew_is_read(tmp_path: Path) -> None:
    torch.save({"w": GRID}, tmp_path / "m.pt")
    made.rezipped(tmp_path / "m.pt", {})
    assert open_weights(tmp_path / "m.pt")["w"].payload == octets(GRID)


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" + b"0X\x03\0\0\0cpuK\x18tQ"
CALL = b"ctorch._utils\n_rebuild_tensor_v2\n"

# (what, body of the pickle, message)
PICKLES: list[tuple[str, bytes, str]] = [
    ("a newer protocol", b"\x80\x06", "it is of pickle protocol 6, and 5 is the newest that is known"),
    ("an opcode of protocol 0", b"I3\n", "opcode b'I' is not one of pickle's protocols 2 to 5"),
    ("no such opcode", b"\xff", "opcode b'\\xff' is not one of pickle's protocols 2 to 5"),
    ("an extension", b"\x82\x01", "opcode b'\\x82' is not one of"),
    ("an empty stack", b"0", "it takes more from its stack than is there"),
    ("a pair of one", b"N\x86", "it takes more from its stack than is there"),
    ("a value never put", b"h\x07", "it gets value 7, which was never put"),
    ("a long text", b"X\xff\xff\xff\xffabc", "it ends too early"),
    ("a huge number", b"\x8b\x00\x10\x00\x00" + bytes(4096), "a number has 4096 bytes"),
    ("a key without a value", b"}(Nu", "a key has no value"),
    ("items of no dict", b"N(NNu", "it sets an item of what is not a dict"),
    ("appending to no list", b"NNa", "it appends to what is not a list"),
    ("no UTF-8", b"X\x01\0\0\0\xff", "a text is no UTF-8"),
    ("calling a number", b"K\x01)R", "it calls 1, which is not a function"),
    ("calling a tuple", b")]R", "it calls (), which is not a function"),
    ("a call without arguments", CALL + b")R", "the arguments of a call do not fit"),
    ("a global by stack", b"\x8c\x02os\x8c\x06system\x93", "it needs os.system, which no state dict needs"),
    ("a global of numbers", b"K\x01K\x02\x93", "the name of a global is not text"),
    ("a global that never ends", b"cos", "it ends too early"),
    ("a persistent number", b"K\x01Q", "it refers to something else than a storage"),
    (
        "a function of a function",
        b"ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0ctorch\nTensor\n)NtR",
        "the arguments of a",
    ),
    ("building on nothing", b"Nb", "it takes more from its stack than is there"),
    (
        "a storage of no class",
        b"(X\x07\0\0\0storageNX\x01\0\0\0" + b"0NK\x18tQ",
        "it refers to something else than a storage",
    ),
    ("no storage", CALL + b"(NK\0))NNtR", "the arguments of a call do not fit"),
    (
        "no type",
        b"ctorch._utils\n_rebuild_tensor_v3\n(" + STORAGE + b"K\0))NNNtR",
        "the arguments of a call do not fit",
    ),
    ("an OrderedDict of no pairs", b"ccollections\nOrderedDict\n]Na\x85R", "the arguments of a call do not fit"),
    ("a size of None", b"ctorch\nSize\nN\x85R", "the arguments of a call do not fit"),
    (
        "33 axes",
        CALL + b"(" + STORAGE + b"K\0(" + b"K\x01" * 33 + b"t(" + b"K\x01" * 33 + b"tNNtR",
        "a tensor has 33 axes",
    ),
    ("as a list", CALL + b"(" + STORAGE + b"K\0]]NNtR", "the arguments of a call do not fit"),
]


@pytest.mark.parametrize(("body", "message"), [row[1:] for row in PICKLES], ids=[row[0] for row in PICKLES])
def test_pickles_that_are_refused(body: bytes, message: str, tmp_path: Path) -> None:
    made.torch_archive(tmp_path / "m.pt", pickled(body), _0=octets(GRID))
    with pytest.raises(WeightsError) as caught:
        open_weights(tmp_path / "m.pt")
    assert str(caught.value).startswith("m.pt: data.pkl @0x") and message in str(caught.value)
    assert str(caught.value).isascii()


def test_deep_and_shared_pickles_take_no_time(tmp_path: Path) -> None:
    """Dicts in dicts, each a thousand times, and tuples nested a hundred thousand deep."""
    shared = b"}" + b"".join(b"q%c" % level + b"}(" + b"".join(
        b"X\x03\0\0\0%03dh%c" % (key, level) for key in range(1000)
    ) + b"u" for level in range(3))  # fmt: skip
    for body in (shared, b"N" + b"\x85" * 100_000, b"]" * 100_000 + b"a" * 99_999):
        made.torch_archive(tmp_path / "m.pt", pickled(body))
        with pytest.raises(WeightsError, match="no dict of tensors by name is in it"):
            open_weights(tmp_path / "m.pt")


def test_values_of_every_opcode(tmp_path: Path) -> None:
    """What pickle itself writes of plain values is read as the same, beside a tensor."""
    from purexport.weights.unpickle import Unpickler

    plain = [
        None,
        True,
        False,
        0,
        255,
        256,
        70000,
        -1,
        1 << 40,
        -(1 << 70),
        0.5,
        "a",
        "\u00e4",
        "x" * 300,
        b"b",
        b"y" * 300,
    ]
    value = {
        "l": plain,
        "t": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "d": {"a": {}, "b": []},
        "same": [plain, plain],
    }
    for protocol in (3, 4, 5):
        assert Unpickler(pickle.dumps(value, protocol), {}, lambda key: key, "here", Budget()).load() == value
    sets = pickle.dumps([{1}, frozenset([2]), bytearray(b"c")], 5)
    assert Unpickler(sets, {}, lambda key: key, "here", Budget()).load() == [[1], [2], b"c"]
    assert Unpickler(b"(X\x01\0\0\0aK\x07d.", {}, lambda key: key, "here", Budget()).load() == {"a": 7}
    popped = b"(NN1N(0N20."  # values, and marks, taken back
    assert Unpickler(popped, {}, lambda key: key, "here", Budget()).load() is None


def test_a_checkpoint_that_changes_is_refused(tmp_path: Path) -> None:
    torch.save({"w": GRID, "t": GRID.mT}, tmp_path / "m.pt")
    found = open_weights(tmp_path / "m.pt")
    torch.save({"w": GRID + 1, "t": GRID.mT, "x": GRID}, tmp_path / "m.pt")
    for row in found.values():
        with pytest.raises(ExternalDataError, match=r"m.pt has changed or been replaced since it was opened"):
            row.payload.tobytes()


def cut(data: bytes, size: int) -> bytes:
    return data[:size]


def central(data: bytes, offset: int, form: str, value: int) -> bytes:
    """The archive with a number in the first entry of its directory, or (from -22 on) in the end of that, changed."""
    start = len(data) if offset < 0 else data.index(b"PK\1\2")
    changed = bytearray(data)
    struct.pack_into(form, changed, start + offset, value)
    return bytes(changed)


# (what, a change of the file, message)
FILES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (
        "cut off",
        lambda data: cut(data, len(data) // 2),
        "the directory at the end of the zip archive is missing; the file is",
    ),
    ("more behind it", lambda data: data + b"x", "the directory at the end of the zip archive is missing"),
    ("the magic alone", lambda _: b"PK\3\4", "the directory at the end of the zip archive is missing"),
    ("in parts", lambda data: central(data, -18, "<H", 1), "it is one part of an archive in several; join them first"),
    (
        "too many members",
        lambda data: central(central(data, -14, "<H", 999), -12, "<H", 999),
        "its directory would have 999",
    ),
    ("one member less", lambda data: central(central(data, -14, "<H", 1), -12, "<H", 1), "but its 1 entries have"),
    (
        "directory elsewhere",
        lambda data: central(data, -6, "<I", 0),
        "its directory is damaged at byte 0; the file is damaged",
    ),
    (
        "directory outside",
        lambda data: central(data, -6, "<I", 1 << 30),
        "which the file does not hold; the file is damaged",
    ),
    ("encrypted", lambda data: central(data, 8, "<H", 1), "member 'm/data.pkl' is encrypted; load it with torch"),
    (
        "another method",
        lambda data: central(data, 10, "<H", 77),
        "member 'm/data.pkl' is compressed (method 77); load it",
    ),
    (
        "another checksum",
        lambda data: central(data, 16, "<I", 1),
        "the bytes of member 'm/data.pkl' do not fit its checksum",
    ),
    ("another size", lambda data: central(data, 24, "<I", 1 << 20), "member 'm/data.pkl' would have 1048576 bytes at"),
    (
        "a missing wide size",
        lambda data: central(data, 24, "<I", 0xFFFFFFFF),
        "the size or place of member 'm/data.pkl' is",
    ),
    (
        "another place",
        lambda data: central(data, 42, "<I", 1),
        "the header of member 'm/data.pkl', at 1, is not what the dir",
    ),
    (
        "a place outside",
        lambda data: central(data, 42, "<I", 1 << 30),
        "the header of member 'm/data.pkl', at 1073741824, lies",
    ),
    ("a name twice", lambda data: data.replace(b"m/data/0", b"m/data/1"), "it has two members of the name 'm/data/1'"),
    (
        "a name in no UTF-8",
        lambda data: data.replace(b"m/data/0", b"m/data/\xff"),
        "the name b'm/data/\\xff' of a member is no",
    ),
    (
        "another local name",
        lambda data: data.replace(b"m/data/0", b"m/data/2", 1),
        "the header of member 'm/data/0', at ",
    ),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_zip_files_that_are_refused(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"w": GRID, "v": GRID + 1}, path)
    made.rezipped(path, {})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(WeightsError) as caught:
        open_weights(path)
    assert str(caught.value).startswith("m.pt: ") and message in str(caught.value)


def test_a_pickle_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": GRID}, tmp_path / "m.pt")
    monkeypatch.setattr(torchzip, "LONGEST_PICKLE", 50)
    with pytest.raises(
        WeightsError, match=r"member 'm/data.pkl' has \d+ bytes, more than the 50 that it may have; load"
    ):
        open_weights(tmp_path / "m.pt")


def test_zip64(tmp_path: Path) -> None:
    """Numbers of 64 bits: where the end of the directory lies, and sizes and places of members, as beyond 4 GiB."""
    torch.save({"w": GRID}, tmp_path / "m.pt")
    made.rezipped(tmp_path / "m.pt", {})
    data = (tmp_path / "m.pt").read_bytes()
    start = data.index(b"PK\1\2")
    directory, entries, at = b"", 0, start
    while data[at : at + 4] == b"PK\1\2":
        row = list(struct.unpack_from("<4s6H3L5H2L", data, at))
        name = data[at + 46 : at + 46 + row[10]]
        extra = struct.pack("<2H2x2HQQQ", 0x7075, 2, 1, 24, row[9], row[8], row[16])
        row[8] = row[9] = row[16] = 0xFFFFFFFF
        row[11] = len(extra)
        directory += struct.pack("<4s6H3L5H2L", *row) + name + extra
        at += 46 + row[10]
        entries += 1
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, len(directory), start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (tmp_path / "m.pt").write_bytes(data[:start] + directory + end64 + locator + end)
    assert open_weights(tmp_path / "m.pt")["w"].payload == octets(GRID)
    for place, message in (
        (1 << 40, "the end of its directory would be at"),
        (start, "the end of its directory is not at"),
    ):
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, place, 1)
        (tmp_path / "m.pt").write_bytes(data[:start] + directory + end64 + locator + end)
        with pytest.raises(WeightsError, match=message):
            open_weights(tmp_path / "m.pt")


def test_what_torch_writes_beyond_4_gib_is_read(tmp_path: Path) -> None:
    """A storage of 5 GB that is a hole: torch writes 64-bit numbers for what comes behind it."""
    with torch.serialization.skip_data():
        torch.save({"big": torch.empty(5 << 28), "w": GRID}, tmp_path / "m.pt")
    found = open_weights(tmp_path / "m.pt")
    assert found["big"].nbytes == 5 << 30 and found["w"].nbytes == 96
    payload = found["w"].payload
    assert isinstance(payload, FileRange) and payload.offset > 1 << 32
