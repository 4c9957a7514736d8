"""Random programs, shortly and always the same: each route computes what torch does, and a difference is noticed.

`python -m fuzz programs` makes as many as one likes (docs/development/fuzzing.md).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzz.__main__ import main
from fuzz.programs import routes
from fuzz.programs.make import make
from fuzz.programs.noise import Noise, near
from fuzz.programs.program import Draw, Program, Step
from fuzz.programs.refusals import GAPS, KNOWN, QUOTED, kind_of
from fuzz.programs.routes import run
from fuzz.programs.shrink import smaller
from purexport.errors import ExportError, Gap, UnsupportedOperatorError
from purexport.errors.codes import CODES

PLAIN = Program(
    (Draw("x0", "float32", (2, 3), "lattice", 1),),
    (Draw("p0", "float32", (3,), "lattice", 2),),
    (Step("v0 = x0 + self.p0"), Step("v1 = torch.relu(v0)"), Step("v2 = v1.transpose(0, 1)")),
    ("v2", "v0"),
    ({}, {}),
    20,
)


SEEDS = [pytest.param(f"tests:{number}", marks=pytest.mark.full if number >= 4 else ()) for number in range(12)]


@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed: str) -> None:
    outcome = run(make(seed))
    assert outcome.findings == []
    assert set(outcome.routes) == {"trace", "export", "script"}


def test_a_seed_makes_one_program() -> None:
    assert make("tests:3") == make("tests:3")
    assert make("tests:3") != make("tests:4")


def test_a_program_has_the_axes_that_are_asked_for() -> None:
    """Two of them, at four sizes, and every route computes what torch does."""
    program = make("tests:axes", 2)
    assert len(program.sizes) == 4 and all(set(row) == {"n", "m"} for row in program.sizes)
    assert 1 in program.sizes[2].values()
    assert {label for axes in program.dynamic_axes().values() for label in axes.values()} == {"n", "m"}
    outcome = run(program)
    assert outcome.findings == []
    assert outcome.counts["feeds compared"] > 0


def doubled(*given: Any) -> list[torch.Tensor]:
    return [value * 2 for value in COMPUTED(*given)]


COMPUTED = routes._computed


def test_other_results_are_noticed_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_computed", doubled)
    found = run(PLAIN, ("trace",)).findings
    assert [(finding.what, finding.route) for finding in found] == [("other results than torch", "trace")] * 2
    small = smaller(PLAIN, found[0])
    assert len(small.steps) <= 1
    assert small.owned == ()


def refuse(*_: Any, **__: Any) -> Any:
    raise routes.ExportError("no reason that is known")


def crash(*_: Any, **__: Any) -> Any:
    raise IndexError("out of range")


@pytest.mark.parametrize(
    ("replaced", "what"), [(refuse, "refusal that is not listed"), (crash, "exception IndexError")]
)
def test_what_an_export_raises_is_noticed(replaced: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("purexport.export", replaced)
    assert {finding.what for finding in run(PLAIN).findings} == {what}


def test_routes_that_differ_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = iter([0.0, 0.0, 4e-6, 4e-6, 0.0, 0.0])
    monkeypatch.setattr(routes, "_computed", lambda *given: [v + o for o in [next(offsets)] for v in COMPUTED(*given)])
    found = run(replace(PLAIN, outputs=("v2",))).findings
    assert {(finding.what, finding.route) for finding in found} == {
        ("routes differ", "trace/export"),
        ("routes differ", "export/script"),
    }


def test_a_script_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PLAIN.script("trace"), "script", "exec"), {"__name__": "script"})
    assert len(re.findall("array", capsys.readouterr().out)) == 4


@pytest.mark.parametrize(
    ("statement", "moves"),
    [
        ("x.relu()", False),
        ("x.transpose(0, 1)", False),
        ("x.floor()", False),
        ("x.exp()", True),
        ("torch.add(x, x, alpha=3)", True),
        ("x.clone().sigmoid_()", True),
        ("(x.exp() - x.exp()).sign()", True),
    ],
)
def test_noise_moves_what_is_inexact(statement: str, moves: bool) -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    with Noise(1):
        noisy = eval(statement, {"torch": torch, "x": x})
    assert torch.equal(noisy, eval(statement, {"torch": torch, "x": x})) != moves


def test_near_is_strict_about_kinds() -> None:
    one = torch.ones(2)
    assert near(one + 1e-5, one)
    assert not near(one + 1e-3, one)
    assert not near(one.double(), one)
    assert not near(one.reshape(1, 2), one)
    assert not near(torch.tensor([1, 2]), torch.tensor([1, 3]))


def gaps(*rows: tuple[str, str]) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(9, [Gap(target, "m", "because", code) for target, code in rows])


REFUSALS = [
    (gaps(("aten::a", "opset-too-low")), True),
    (gaps(("aten::a", "no-rule")), False),
    (gaps(("aten::a", "opset-too-low"), ("aten::b", "no-rule")), False),
    (gaps(("aten::a", "opset-too-low"), ("aten::b", "size-not-known")), True),
    (gaps(("aten::grid_sampler", "no-onnx-form")), True),
    (gaps(("aten::a", "no-onnx-form")), False),
    (ExportError("torch.export does not take the model: ValueError", code="torch-export-refuses"), True),
    (ExportError("aten::a at m does not run: Repeats cannot be negative", code="call-does-not-run"), True),
    (ExportError("aten::a at m does not run: a fault of ours", code="call-does-not-run"), False),
    (ExportError("Repeats cannot be negative", code="rule-fault"), False),
    (ExportError("something else"), False),
]


@pytest.mark.parametrize(("error", "known"), REFUSALS)
def test_refusals_are_known_or_not(error: ExportError, known: bool) -> None:
    assert (kind_of(error) is not None) == known


def test_refusals_name_codes_that_are() -> None:
    named = {*KNOWN, *(code for code, _, _ in GAPS), *(code for codes, _, _ in QUOTED for code in codes)}
    assert named <= set(CODES)


@pytest.mark.full
def test_one_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["programs", "--seed", "tests:1", "--out", str(tmp_path)]) == 0
    assert "programs: 1 programs" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
