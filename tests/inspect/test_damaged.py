"""Every verb on damaged files: an answer or one clear line, never a traceback, never an unforeseen exception."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

from purexport.cli.main import main

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
MODELS = [path for path in sorted(SHIPPED.rglob("*.onnx")) if 100 < path.stat().st_size < 5000][:50]

VERBS = [
    ["show", "BAD"],
    ["show", "BAD", "--json"],
    ["inspect", "BAD"],
    ["inspect", "BAD", "--json"],
    ["inspect", "BAD", "--hex", "--depth", "99"],
    ["inspect", "BAD", "graph.node[0]"],
    ["locate", "BAD", "0x20", "--json"],
    ["locate", "BAD", "graph.node.op_type"],
    ["stat", "BAD", "--duplicates"],
    ["check", "BAD", "--full", "--parsers"],
    ["canonicalize", "BAD", "-o", "OUT"],
    ["diff", "BAD", "GOOD"],
    ["salvage", "BAD", "-o", "OUT"],
    ["edit", "BAD", "-o", "OUT", "--rename-value", "x=z", "--drop-doc-strings", "--ir-version", "9"],
    ["edit", "BAD", "--set", "producer_name=me", "--metadata", "a=b", "--append", "--json"],
    ["extract", "BAD", "--tensors", "-o", "OUT"],
    ["extract", "BAD", "--outputs", "y", "-o", "OUT"],
]


def damaged(data: bytes, random_: random.Random) -> bytes:
    """A copy that is cut, has bits flipped, loses or doubles a piece, or had its line ends changed."""
    changed = bytearray(data)
    at = random_.randrange(len(data))
    kind = random_.randrange(5)
    if kind == 0:
        del changed[at:]
    elif kind == 1:
        for _ in range(random_.randrange(1, 6)):
            changed[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    elif kind == 2:
        del changed[at : at + random_.randrange(1, 30)]
    elif kind == 3:
        changed[at:at] = data[: random_.randrange(1, 60)]
    else:
        changed = bytearray(data.replace(b"\n", b"\r\n"))
    return bytes(changed)


@pytest.mark.parametrize("copies", [1, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_verbs_on_damaged_files(path: Path, copies: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_ = random.Random(path.parent.name)
    for _ in range(copies):
        bad = tmp_path / "bad.onnx"
        bad.write_bytes(damaged(path.read_bytes(), random_))
        names = {"BAD": str(bad), "GOOD": str(path), "OUT": str(tmp_path / "out.onnx")}
        for argv in VERBS:
            status = main([names.get(word, word) for word in argv])
            streams = capsys.readouterr()
            assert status in (0, 1, 2), argv
            assert "--traceback" not in streams.err, (argv, streams.err, bad.read_bytes().hex())
            assert streams.err.count("\n") == (status == 2), (argv, streams.err)
