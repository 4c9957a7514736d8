"""One program on all routes: exported, judged by onnx's checker, run, and compared with torch and between the routes.

Invariant: each route gives a file that computes what torch computes on every feed, to `CHAIN` of `tests.tolerances`, or
refuses for a reason that `refusals` lists; and the files of two routes agree to a quarter of that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedInRuntime

import purexport
from fuzz.programs.noise import near
from fuzz.programs.program import Program
from fuzz.programs.refusals import kind_of
from purexport.errors import ExportError

ROUTES = ("trace", "export", "script")
AGREEMENT = 0.25  # of the tolerance, between two files
# warnings: an axis that was to be dynamic is not, or the file is right for some sizes only
HOLDS = (
    "the file takes only that size",
    "for sizes where it does not hold",
    "for sizes where that does not hold",
    "the model goes another way",
)
NUMBER = "that the data decides; the file has that of the example"
RARE = "share memory at a few sizes"  # likewise, of sizes of 1 or where a slice takes all
STOPS = "the file stops with an error"  # a warning says so of some sizes
LONGER = "the file has an axis more than torch"  # likewise
DOES_NOT_RUN = "the file does not run"


@dataclass(frozen=True)
class Finding:
    """Something that breaks the invariant: what, on which route, and what was said."""

    what: str
    route: str
    text: str

    @property
    def key(self) -> str:
        """Findings of one key are taken for the same while a program is made smaller."""
        return f"{self.what} {self.route}"


@dataclass
class Outcome:
    """What became of a program: by route "exported" or a kind of refusal; findings; what the files computed."""

    routes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
    results: dict[tuple[str, int], list[torch.Tensor]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    at: Callable[[str], None] = lambda _: None

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def run(program: Program, routes: tuple[str, ...] = ROUTES, at: Callable[[str], None] = lambda _: None) -> Outcome:
    """Exports the program on the routes.  Raises whatever torch raises for the program itself.

    `at` is told what is about to happen, so that a crash of the process can be laid at somebody's door.
    """
    outcome = Outcome(at=at)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made = program.module_class()
        owned = [draw.at(program.sizes[0]) for draw in program.owned]

        def module() -> torch.nn.Module:
            return made(*[value.clone() for value in owned])

        wanted = [_results(module()(*program.feed(feed))) for feed in range(len(program.sizes))]
        for route in routes:
            _run_route(program, route, module, wanted, outcome)
    _compare_routes(outcome)
    return outcome


def _results(result: Any) -> list[torch.Tensor]:
    """Copies: what a program returns may share memory."""
    return [value.clone() for value in (result if isinstance(result, tuple) else (result,))]


def _run_route(program: Program, route: str, module: Any, wanted: list[list[torch.Tensor]], outcome: Outcome) -> None:
    model = module()
    if route == "script":
        try:
            model = torch.jit.script(model)
        except Exception as error:
            outcome.routes[route] = f"torch does not script it: {_last_line(error)}"
            return
    outcome.at(f"{route}: export")
    try:
        exported = purexport.export(
            model,
            program.feed(0),
            opset_version=program.opset,
            capture="auto" if route == "script" else route,
            input_names=[draw.name for draw in program.inputs],
            dynamic_axes=program.dynamic_axes() or None,
        )
    except ExportError as error:
        kind = kind_of(error)
        outcome.routes[route] = kind or "unlisted"
        if kind is None:
            outcome.findings.append(Finding("refusal that is not listed", route, f"{type(error).__name__}: {error}"))
        return
    except Exception as error:
        outcome.routes[route] = "exception"
        outcome.findings.append(Finding(f"exception {type(error).__name__}", route, f"{type(error).__name__}: {error}"))
        return
    outcome.routes[route] = "exported"
    outcome.operators.update(exported.report.rules)
    outcome.operators.update(exported.report.decomposed)
    holds = any(words in text for text in exported.report.warnings for words in HOLDS)
    if holds:
        outcome.count("a warning says that not every size goes")
    # a trace follows the example where data decides
    follows = route == "trace" and (program.branches or any(NUMBER in text for text in exported.report.warnings))
    feeds = [0] if holds or follows else range(len(program.sizes))
    rare = [text for text in exported.report.warnings if RARE in text]
    if rare:
        outcome.count("a warning says that a few sizes do not go")
        sliced = any("a slice" in text for text in rare)
        feeds = [feed for feed in feeds if not feed or not (sliced or 1 in program.sizes[feed].values())]
    data = exported.model_proto.SerializeToString()
    try:
        outcome.at(f"{route}: runtime")
        runner = _runner(program, data, outcome)
        for feed in feeds:
            found = _computed(program, runner, feed)
            outcome.count("feeds compared")
            right = wanted[feed]
            if route == "script" and not _all_near(found, right):
                right = _results(torch.jit.script(module())(*program.feed(feed)))
                if _all_near(found, right):
                    outcome.count("a script computes something else than eager torch, and its file the same")
                    continue
            longer = any(LONGER in text for text in exported.report.warnings) and not _all_near(found, right)
            if longer and _all_near(_flat(found), _flat(right)):
                outcome.count("an axis of size 1 stays where a warning says that it does")
                continue
            outcome.results[route, feed] = found
            _compare(route, f"feed {feed}", found, right, outcome)
    except _Finding as error:
        if error.what == DOES_NOT_RUN and any(STOPS in text for text in exported.report.warnings):
            outcome.count("the file stops where a warning says that it does")
            return
        outcome.findings.append(Finding(error.what, route, str(error)))
    except _Unjudged:
        outcome.count("not judged: no runtime computes it")


class _Finding(Exception):  # noqa: N818
    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.what = what


class _Unjudged(Exception):  # noqa: N818
    pass


def _runner(program: Program, data: bytes, outcome: Outcome) -> Any:
    try:
        onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    except Exception as error:
        raise _Finding("the checker refuses the file", error) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if program.optimized else level.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except NotImplementedInRuntime as error:
        if "Erf" in str(error):  # of which onnx's reference evaluator computes float32 only
            raise _Unjudged from error
        outcome.count("run by the reference evaluator")
        return onnx.reference.ReferenceEvaluator(data)
    except Exception as error:
        raise _Finding("ONNX Runtime refuses the file", error) from None


def _computed(program: Program, runner: Any, feed: int) -> list[torch.Tensor]:
    given = {draw.name: value.numpy() for draw, value in zip(program.inputs, program.feed(feed), strict=True)}
    reference = isinstance(runner, onnx.reference.ReferenceEvaluator)
    names = runner.input_names if reference else [value.name for value in runner.get_inputs()]
    try:
        found = runner.run(None, {name: given[name] for name in names})
    except Exception as error:
        if reference:
            raise _Unjudged from error
        raise _Finding(DOES_NOT_RUN, error) from None
    return [torch.from_numpy(np.array(value)) for value in found]


def _compare(route: str, where: str, found: list[torch.Tensor], wanted: list[torch.Tensor], outcome: Outcome) -> None:
    if len(found) != len(wanted):
        text = f"{where}: {len(wanted)} results, {len(found)} in the file"
        outcome.findings.append(Finding("other results than torch", route, text))
        return
    for position, (mine, right) in enumerate(zip(found, wanted, strict=True)):
        if not near(mine, right):
            text = f"{where}, result {position}: {_shown(mine)}, torch gives {_shown(right)}"
            outcome.findings.append(Finding("other results than torch", route, text))
            return


def _all_near(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return len(found) == len(wanted) and all(near(a, b) for a, b in zip(found, wanted, strict=True))


def _flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.flatten() for tensor in tensors]


def _compare_routes(outcome: Outcome) -> None:
    """Where no file differs from torch, no two differ by more than a part of what is allowed."""
    if outcome.findings:
        return
    for (route, feed), found in outcome.results.items():
        for other in ROUTES[ROUTES.index(route) + 1 :]:
            theirs = outcome.results.get((other, feed))
            if theirs is None:
                continue
            outcome.count("pairs of routes compared")
            if not all(near(a, b, AGREEMENT) for a, b in zip(found, theirs, strict=True)):
                outcome.findings.append(Finding("routes differ", f"{route}/{other}", f"feed {feed}"))


def _shown(tensor: torch.Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind}{tuple(tensor.shape)} {tensor.flatten()[:6].tolist()}"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:80] if lines else type(error).__name__
