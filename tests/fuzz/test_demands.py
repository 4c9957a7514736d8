"""No few bytes make a tool take time or memory out of proportion; `fuzz/demands.py` and `fuzz/extremes.py` say how.

By default a part of the extremes runs; a sweep runs all, and breaks each bound to see that it is found.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import demands, extremes

ROOT = Path(__file__).parents[2]
PARTS = 60
# a bound that is broken -> demands that must be found then
FOUND: dict[str, tuple[str, set[str]]] = {
    "degree": ("squares", {"infer squares", "convert squares", "simplify squares"}),
    "digits": ("infer", {"infer squares in floats", "infer products of joined numbers", "infer texts of sizes"}),
    "inference": ("infer", {"infer functions with new sizes", "infer loops in loops"}),
    "depth": ("chain of functions", {"run a chain of functions"}),
    "patterns": ("Regex", {"simplify RegexFullMatch", "run RegexFullMatch"}),
    "samples": ("calibrate", {"calibrate pipe", "calibrate header"}),
    "folding": (
        "simplify",
        {
            f"simplify {name}"
            for name in (
                *("Conv", "MaxPool", "AveragePool", "LpPool", "a long MaxPool", "LRN", "Attention", "RoiAlign"),
                "many products",
            )
        },
    ),
    "evaluator": (
        "run",
        {
            f"run {name}"
            for name in (
                *("functions", "turns", "a loop that doubles", "Conv", "MaxPool", "AveragePool", "LpPool", "LRN"),
                *("a long MaxPool", "Attention", "RoiAlign", "TfIdfVectorizer", "StringConcat", "Tile", "Resize"),
                *("many products", "ReduceProd of a sparse tensor"),
            )
        },
    ),
}


def shown(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout + done.stderr


@pytest.mark.full
def test_extremes() -> None:
    found = shown("fuzz.extremes", "--part", f"0/{PARTS}")
    assert found.endswith(" runs, 0 past the budget\n"), found
    assert int(found.split()[0]) > 100


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(1, PARTS))
def test_all_extremes(part: int) -> None:
    found = shown("fuzz.extremes", "--part", f"{part}/{PARTS}")
    assert found.endswith(" runs, 0 past the budget\n"), found


@pytest.mark.sweep
def test_demands() -> None:
    found = shown("fuzz.demands")
    assert found == f"{len(demands.DEMANDS)} held, 0 asked for too much\n"


@pytest.mark.sweep
@pytest.mark.parametrize("name", demands.PLANTS)
def test_a_bound_that_is_broken_is_found(name: str) -> None:
    word, wanted = FOUND[name]
    found = shown("fuzz.demands", "--plant", name, "--only", word)
    lines = {line.partition(":")[0] for line in found.splitlines()}
    assert wanted <= lines, found


@pytest.mark.sweep
def test_a_cost_that_is_forgotten_is_found() -> None:
    found = shown("fuzz.extremes", "--planted")
    assert found.endswith(f"{len(extremes.PLANTS)} of {len(extremes.PLANTS)} are found\n"), found


def test_tables() -> None:
    assert FOUND.keys() == set(demands.PLANTS)
    assert {name for _, names in FOUND.values() for name in names} <= demands.DEMANDS.keys()
