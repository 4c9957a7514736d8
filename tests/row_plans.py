"""What the tests run of a row: which opsets on which routes, in which tier.

    @pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
    def test_row(row: Row, plan: Plan) -> None:
        run_row(row, plan)

A row is captured once a route, and written at every opset of the plan.  By default the first row of an
operator, by the first word of its name, runs at the lowest opset, the default one and the newest by the row's first
route, which is the trace for most, and the others at one of the first two in turn; a row that no lower opset can say is
refused just below.
The first row of every sixth operator runs by one of the other routes in turn, too, at the default opset: a capture by
torch.export takes ten times as long as a trace.  Rows of `REACHING` run by all routes.
`pytest -m full` adds these routes for the other rows, and a sample of the opsets on every route, another for each row;
`pytest -m sweep` takes all, and those that only onnx's own evaluator knows.

A file is judged by onnx and compared with torch in ONNX Runtime.  Where another route gives the very bytes of a file
that was judged, nothing is left to ask, and it is counted (`SAME`); `tests/conftest.py` prints how many there are, and
fails a run of all tests in which a route has fewer of them than `LEAST_SAME`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

import purexport
from purexport.options import DEFAULT_OPSET
from tests.harness import (
    CAPTURES,
    OPSETS,
    ORT_NEWEST_OPSET,
    PROGRAM_OPSETS,
    Case,
    Row,
    axes_by_name,
    capture_model,
    check_file,
    judge,
)
from tests.scripting import scripted, traced
from tests.tiers import Asked

Plan = Mapping[str, Sequence[int]]  # opsets by route, the route first whose files the others are compared with

OTHERS_EVERY = 6  # of so many operators the first row of one runs by another route by default
SAMPLED = 2  # opsets of programs and scripts in the full tier
# rows that reach a rule by a route that is neither a trace nor the one in turn
REACHING = frozenset(
    (
        *(
            "isinf-half",
            *("resolve_neg", "copies", "sizes", "numel-static", "resolve-neg", "lift-fresh"),
            "rsub-tensor",
            "scalar-synonyms",
            "eq-tensor",
            "special-1",
            "cat-synonyms",
            "power-1",
            "same-3d-no-batch",
        ),
        *("dropout-plain", "split-sizes", "moveaxis-several", "unsafe-split", "unsafe-split-with-sizes"),
        *("subtract-scalar", "multiply-scalar", "divide-scalar", "divide-scalar-mode", "true-divide-scalar"),
        *("divide-floor-int64", "special-log1p", "special-expm1", "not_equal-number", "less-number", "greater-number"),
        *("less_equal-number", "greater_equal-number", "clip-tensor", "symbolic-several", "lstm-cell", "gru-cell"),
        *("rnn-cell", "rnn-cell-relu", "special-polygamma", "special-xlogy", "special-xlogy-number"),
        *("special-xlogy-of-number", "strided-chunks-that-overlap", "arccos", "arccosh", "arcsin", "arcsinh", "arctan"),
        *("arctanh", "concat", "fix", "ger", "inverse", "less-tensor", "less_equal-tensor", "linalg_matmul", "orgqr"),
        *("row_stack", "special_digamma-0", "special-erf", "special_erfc-0", "special_exp2", "special"),
        *("special_expit", "gammainc", "special_gammaln-0", "special_log_softmax", "special-logsumexp"),
        *(
            "absolute",
            "adjoint",
            "atleast",
            "clip",
            "concatenate",
            "valid",
            "transpose2d-output-padding",
            "det",
            "divide",
        ),
        *("greater_equal-tensor", "not_equal-tensor", "matrix_exp", "adjust_hue", "special_erfinv-0", "special_i0-0"),
        *("special-logit", "special_psi-0", "special-round", "swapaxes"),
        *(
            "abs",
            "arctan2",
            "conv3d",
            "convolution",
            "gammaincc",
            "greater-tensor",
            "multiply",
            "negative",
            "row-stack",
        ),
        *("same-1d", "symbolic", "transpose3d"),
        *("special_softmax", "subtract", "swapdims", "true-divide", "exp", "neg", "transpose", "permute", "movedim"),
    )
)
RULES_RUN: set[str] = set()  # by the rows that were exported in this process
SAME: Counter[tuple[str, bool]] = Counter()  # by route, and whether the bytes were those of a file that was judged
# the shares of the files by each route in a run of the default tests that are those of the trace, as pinned
LEAST_SAME = {"export": 0.82, "script": 0.81, "traced-script": 0.0}


def row_params(rows: Iterable[Row]) -> list[Any]:
    """The rows as parameters (row, plan), one for each tier that has something of the row to run."""
    found: list[Any] = []
    operators: set[str] = set()
    for row in rows:
        operator = row.name.partition("-")[0]
        others = row.routes[1:]
        if row.name not in REACHING:
            turn = len(operators) % max(1, OTHERS_EVERY * len(others))
            others = others[turn // OTHERS_EVERY :][:1] if operator not in operators and not turn % OTHERS_EVERY else ()
        by_tier = _plans(row, others, leads=operator not in operators or row.name in REACHING)
        operators.add(operator)
        for tier, plan in by_tier.items():
            marks = () if tier == "default" else (getattr(pytest.mark, tier),)
            name = row.name if tier == "default" else f"{row.name}-{tier}"
            if plan and tier in Asked.tiers:
                found.append(pytest.param(row, plan, id=name, marks=marks))
    return found


def _plans(row: Row, others: Sequence[str], leads: bool) -> dict[str, Plan]:
    first = row.routes[0]
    lowest = row.min_opset or 0
    able = sorted({opset for opset in row.opsets if opset > lowest} | ({lowest} if lowest else set()))
    usual = min(able, key=lambda opset: abs(opset - DEFAULT_OPSET))
    in_turn = (usual, able[0])[zlib.crc32(row.name.encode()) % 2]
    below = [lowest - 1] if lowest > OPSETS[0] else []
    default = {route: [usual] if route in others else [] for route in row.routes}
    default[first] = list(dict.fromkeys([usual, able[0], *able[-1:], *below] if leads else [in_turn, *below]))
    full: dict[str, list[int]] = {}
    sweep: dict[str, list[int]] = {}
    for route in row.routes:
        sample = _sample(row, route)
        unknown = range(ORT_NEWEST_OPSET + 1, 29) if row.opsets == OPSETS and route == first != "script" else ()
        for opset in (*below, *able, *unknown):
            if opset not in default[route]:
                chosen = opset in sample or opset in (lowest, lowest - 1, usual)
                (full if chosen else sweep).setdefault(route, []).append(opset)
    return {"default": {route: opsets for route, opsets in default.items() if opsets}, "full": full, "sweep": sweep}


def _sample(row: Row, route: str) -> set[int]:
    """The opsets of the full tier: of the usual ones every second one by trace, and those between by torch.export.

    By trace, where it is not the first route, the default opset alone.
    """
    if route == "trace" != row.routes[0]:
        return set()
    if row.opsets == OPSETS and route in CAPTURES:
        return set(OPSETS[(zlib.crc32(row.name.encode()) + (route == "export")) % 2 :: 2])
    if row.opsets in (OPSETS, PROGRAM_OPSETS):
        first = zlib.crc32(f"{row.name} {route.removeprefix('traced-')}".encode())
        return {row.opsets[(first + step) % len(row.opsets)] for step in range(SAMPLED)}
    return set(row.opsets)


def run_row(row: Row, plan: Plan) -> None:
    """A row on the routes and at the opsets of a plan: refused below min_opset, equal to torch from there on."""
    judged: dict[int, bytes] = {}
    cases: list[Case] = []
    for route, opsets in plan.items():
        captured = capture_row(row, route)
        for opset in opsets:
            try:
                if row.min_opset is not None and opset < row.min_opset:
                    with pytest.raises(purexport.UnsupportedOperatorError, match=rf"opset {row.min_opset}\b"):
                        captured.to_onnx(opset_version=opset)
                    continue
                data = _written(captured, opset)
                SAME[route, judged.get(opset) == data] += 1
                if judged.setdefault(opset, data) == data and route != next(iter(plan)):
                    continue
                if row.unjudged and opset > ORT_NEWEST_OPSET:
                    check_file(data, opset)
                    continue
                cases = cases or [Case.of(row.make_model(), *given) for given in row.cases()]
                judge(data, cases, opset, row.bounds)
            except AssertionError as error:
                trap = f"\nthe trap of this row: {row.trap}" if row.trap else ""
                raise AssertionError(f"by {route} at opset {opset}: {error}{trap}") from error


def run_here() -> dict[str, Any]:
    """What the rows did in this process, in a form that a worker can hand on."""
    return {"rules": sorted(RULES_RUN), "files": [(route, same, count) for (route, same), count in SAME.items()]}


def verdict(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a run of all default tests is told of its rows; a line that begins with FAILED fails it."""
    from tests.lowering.test_rules_have_rows import rules_wanted

    files: Counter[tuple[str, bool]] = Counter()
    rules: set[str] = set()
    for run in runs:
        rules.update(run.get("rules", ()))
        for route, same, count in run.get("files", ()):
            files[route, same] += count
    missing = sorted(rules_wanted() - rules)
    said = [f"FAILED: no row in tests/lowering runs {', '.join(missing)}" if missing else "a row runs every rule"]
    for route, least in LEAST_SAME.items():
        same, other = files[route, True], files[route, False]
        share = same / max(same + other, 1)
        failed = "" if share >= least else f"FAILED: at least {least:.1%} were: "
        shares = f"{route}: {same} files are those of the first route ({share:.1%}), {other} were judged alone"
        said.append(failed + shares)
    return said


def capture_row(row: Row, route: str) -> purexport.CapturedModel:
    """The model of a row, captured on a route."""
    args, kwargs = row.make_inputs()
    axes = axes_by_name(row.dynamic_axes(), args)
    model = row.make_model()
    if route == "script":
        model = scripted(model, args, kwargs)
    elif route == "traced-script":
        model, args, kwargs = traced(model, args, kwargs)
    captured = capture_model(model, args, kwargs, capture=route if route in CAPTURES else "auto", dynamic_axes=axes)
    assert captured.route == route.removeprefix("traced-")
    return captured


def export_row(row: Row, route: str, opset: int) -> Any:
    """The ONNXProgram of a row."""
    program = capture_row(row, route).to_onnx(opset_version=opset)
    RULES_RUN.update(program.report.rules)
    return program


def _written(captured: purexport.CapturedModel, opset: int) -> bytes:
    program = captured.to_onnx(opset_version=opset)
    RULES_RUN.update(program.report.rules)
    program.model_proto.graph.name = "row"  # a script's class is another than that of its module
    return bytes(program.model_proto.SerializeToString())
