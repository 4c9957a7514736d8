"""Damaged models: whatever decodes, checker and printers answer or refuse with their own errors, never with another.

Invariant: for any bytes, `loads` gives a model or DecodeError; for any model, `check_model` returns or raises
CheckError, `to_text` returns or raises ValueError, `printable_graph` and `text_format` return. The damage is seeded.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import proto_schema as ps
from fuzz.checker import odd
from proto_schema import checker, text

ROUNDS = 600


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 20)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.randrange(1, 60)]


DAMAGE: list[Callable[[bytearray, random.Random], None]] = [_flip, _flip, _flip, _cut, _repeat]


def _damaged(seed: int) -> ps.ModelProto | None:
    rng = random.Random(seed)
    data = bytearray(rng.choice(_SEEDS))
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(DAMAGE)(data, rng)
    try:
        return ps.loads(bytes(data))
    except ps.DecodeError:
        return None


_SEEDS = odd()


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.full) for block in range(1, 4))])
def test_damaged_models_are_refused_with_the_declared_errors_only(block: int) -> None:
    decoded = refused = 0
    for seed in range(block * ROUNDS, (block + 1) * ROUNDS):
        model = _damaged(seed)
        if model is None:
            continue
        decoded += 1
        try:
            checker.check_model(model, full_check=True)
        except ps.CheckError as error:
            refused += 1
            assert str(error), seed
        try:
            text.to_text(model)
        except ValueError as error:
            assert "raw_data" in str(error), seed
        text.text_format(model)
        text.printable_graph(model.graph or ps.GraphProto())
    assert decoded > ROUNDS / 20
    assert refused > decoded / 10
