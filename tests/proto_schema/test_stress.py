"""Two to eight writers of one path at once, and readers; `stress.py` says what must hold after each round.

    pytest -m sweep -n 0 tests/proto_schema/test_stress.py

runs 2,000 rounds of each scenario, with locks and as on a file system that has none. By default a few.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
FEW = 2
# scenario, rounds with -m full; a few of all are made by default, in one process
ROWS = {
    "one_path": 25,
    "saves": 15,
    "edits": 15,
    "readers": 15,
    "one_location": 10,
    "referring": 15,
    "killed": 15,
}
WITHOUT_LOCKS = {"one_path": 15, "saves": 15}
MANY = 2000


def stress(scenarios: str, rounds: int, *words: str) -> None:
    command = [sys.executable, "-m", "tests.proto_schema.stress", *scenarios.split(), "--rounds", str(rounds), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.keys() == set(scenarios.split())
    for scenario, result in found.items():
        assert result["wrong"] == [] and result["rounds"] == rounds, scenario


def rows(scenarios: dict[str, int]) -> list[Any]:
    return [
        (" ".join(scenarios), FEW),
        *(pytest.param(scenario, rounds, marks=pytest.mark.full) for scenario, rounds in scenarios.items()),
        *(pytest.param(scenario, MANY, marks=pytest.mark.sweep) for scenario in scenarios),
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("scenario", "rounds"), rows(ROWS))
def test_writers_at_once(scenario: str, rounds: int) -> None:
    stress(scenario, rounds)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("scenario", "rounds"), rows(WITHOUT_LOCKS))
def test_where_locks_are_not_to_be_had(scenario: str, rounds: int) -> None:
    """Names that cannot collide: a whole model all the same. Unused data files may stay."""
    stress(scenario, rounds, "--without-locks")
