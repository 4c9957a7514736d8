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
# scenario, rounds by default, with -m full
ROWS = [
    ("one_path", 6, 25),
    ("saves", 4, 15),
    ("edits", 4, 15),
    ("readers", 4, 15),
    ("one_location", 3, 10),
    ("referring", 4, 15),
    ("killed", 4, 15),
]
WITHOUT_LOCKS = [("one_path", 4, 15), ("saves", 4, 15)]
MANY = 2000


def stressed(scenario: str, rounds: int, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.proto_schema.stress", scenario, "--rounds", str(rounds), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(scenarios: list[tuple[str, int, int]]) -> list[Any]:
    return [
        pytest.param(scenario, rounds, marks=marks)
        for scenario, few, more in scenarios
        for rounds, marks in ((few, ()), (more, pytest.mark.full), (MANY, pytest.mark.sweep))
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("scenario", "rounds"), rows(ROWS))
def test_writers_at_once(scenario: str, rounds: int) -> None:
    found = stressed(scenario, rounds)
    assert found["wrong"] == [] and found["rounds"] == rounds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("scenario", "rounds"), rows(WITHOUT_LOCKS))
def test_where_locks_are_not_to_be_had(scenario: str, rounds: int) -> None:
    """Names that cannot collide: a whole model all the same. Unused data files may stay."""
    found = stressed(scenario, rounds, "--without-locks")
    assert found["wrong"] == [] and found["rounds"] == rounds
