"""Messages behave as those of protobuf: the rows of `manner_rows`, with protobuf's classes and ours.

And a random sequence of writes, after each of which both have the same bytes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from proto_schema.compat import modules
from tests.import_onnx.beside import OFFICIAL, both
from tests.import_onnx.manner_rows import ROWS


@pytest.mark.parametrize(("name", "code"), ROWS, ids=[name for name, _ in ROWS])
def test_same_as_protobuf(name: str, code: str, tmp_path: Path) -> None:
    official, ours = both(code, tmp_path)
    assert ours == official


VALUES = {
    "string": "text",
    "int64": 7,
    "int32": 3,
    "uint64": 9,
    "float": 1.5,
    "double": 2.5,
    "bytes": b"xy",
    "payload": b"z",
}


class Pair:
    """A message of each kind, which get the same writes."""

    def __init__(self, official: Any, ours: Any) -> None:
        self.official = official
        self.ours = ours

    def write(self, rng: random.Random, depth: int) -> str:
        """One write at a place of this message or below; what it was."""
        field = rng.choice(self.ours.DESCRIPTOR.fields)
        theirs, mine = getattr(self.official, field.name), getattr(self.ours, field.name)
        if field.message_type is not None and depth < 5 and rng.random() < 0.7:
            if not field.is_repeated:
                return f"{field.name}." + Pair(theirs, mine).write(rng, depth + 1)
            if not len(mine) or rng.random() < 0.3:
                theirs.add()
                mine.add()
                return f"{field.name}.add()"
            place = rng.randrange(len(mine))
            return f"{field.name}[{place}]." + Pair(theirs[place], mine[place]).write(rng, depth + 1)
        action = rng.choice(("set", "set", "clear", "delete"))
        if action == "clear":
            self.official.ClearField(field.name)
            self.ours.ClearField(field.name)
        elif field.is_repeated and action == "delete" and len(mine):
            place = rng.randrange(len(mine))
            del theirs[place], mine[place]
        elif field.message_type is None:
            value = VALUES.get(field.field.kind.name, 1)
            if field.is_repeated:
                theirs.append(value)
                mine.append(value)
            else:
                setattr(self.official, field.name, value)
                setattr(self.ours, field.name, value)
        return f"{field.name} {action}"


@pytest.mark.parametrize("seed", range(12))
def test_random_writes(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(OFFICIAL.ModelProto(), modules.__dict__["ModelProto"]())
    done = []
    for _ in range(120):
        done.append(pair.write(rng, 0))
        assert pair.ours.SerializeToString() == pair.official.SerializeToString(deterministic=True), done[-3:]
    assert str(pair.ours) == str(pair.official)
    assert pair.ours.ByteSize() == pair.official.ByteSize()
