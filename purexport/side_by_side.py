"""`purexport.compare`: a file beside the model that it was exported from, or beside another file.

The model is captured once more on the arguments of the comparison, with the names, axes and opset of the file.  So each
node of the file has a partner, and torch's value is known for it; the file needs no metadata.  A file of another
exporter is matched by its values.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import proto_schema as ps
from proto_schema.budget import BudgetLike
from proto_schema.graphs.similar import similar
from proto_schema.operators import canonical
from purexport.aten.graph import AtenGraph, AtenValue
from purexport.comparison.compared import compared
from purexport.comparison.departures import RecordedModel
from purexport.comparison.file_values import EVALUATOR, all_values
from purexport.comparison.matching import alike
from purexport.comparison.result import Comparison
from purexport.comparison.torch_values import Anchor, anchors, torch_values
from purexport.driver import Model, lowered
from purexport.errors import ExportError
from purexport.frontends.core.mode import select_model_mode_for_export
from purexport.frontends.core.observed import Observed
from purexport.frontends.core.structures import tensors_in
from purexport.options import Options, TrainingMode
from purexport.program import ONNXProgram
from purexport.runtime.verification import expected_of, tolerance
from purexport.stages.build import build_program
from purexport.stages.run import opened

_ENOUGH = 0.99  # of the nodes alike: no other route is tried


@dataclass(frozen=True)
class _Fresh:
    """A new export of the model, and torch's values by the names in it."""

    program: ONNXProgram
    anchors: list[Anchor]
    alike: float
    graph: AtenGraph
    known: Mapping[AtenValue, Any]


def compare(
    model: Model | str | bytes | os.PathLike[str] | ps.ModelProto | ONNXProgram,
    args: object,
    file_or_program: str | bytes | os.PathLike[str] | ps.ModelProto | ONNXProgram,
    kwargs: Mapping[str, object] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    inside: bool = False,
    budget: BudgetLike = None,
) -> Comparison:
    """Compare a file with the model on these arguments, and find the first node that is wrong.

    `model` is what `export` takes, or another file, which our evaluator then runs: so a runtime is compared with the
    evaluator, an opset with another, a route with another.  `file_or_program` is a path, bytes, a `ModelProto` or an
    `ONNXProgram`; it runs in onnxruntime, or in our evaluator where that is not installed.  `args` and `kwargs` are
    the arguments of the model; for two files `args` holds the tensors of the inputs in order, or is a dict by name.
    `rtol` and `atol` are those of `export`.  With `inside` the values of all nodes are compared also where the outputs
    agree.  `budget` is for each run of our evaluator (default: 16 GiB).  A module runs in eval mode, as in an export.

    The result says whether the outputs agree (`bool(result)`), which node is at fault, and why; `str(result)` is a
    report.  The values of all nodes are in memory meanwhile, once by torch and once by the runtime.

    Raises ExportError for arguments that the model does not take, ValueError for ones that the file does not take,
    OSError and the errors of `proto_schema.load` for a file that cannot be read.
    """
    file, route = _model_of(file_or_program)
    if isinstance(args, Observed):
        args, kwargs = args.form.best.arguments
    if isinstance(model, (str, bytes, os.PathLike, ps.ModelProto, ONNXProgram)):
        return _two_files(_model_of(model)[0], file, args, kwargs, (rtol, atol), inside, budget)
    bounds = tolerance(file, rtol, atol)
    fresh = _closest(file, model, args, kwargs, (route,) if route in _ROUTES else _ROUTES)
    program = fresh.program if fresh is not None else ONNXProgram(file)
    arguments = _arguments(args)
    feed = program.feed(file, arguments, kwargs or {})

    def run() -> list[torch.Tensor]:
        with select_model_mode_for_export(model, TrainingMode.EVAL):  # as it was captured
            return expected_of(program, model, arguments, kwargs or {})

    expected = run()
    if fresh is None:
        return compared(file, feed, expected, [], bounds, inside=inside, budget=budget)
    recorded = RecordedModel(fresh.graph, fresh.known, model, run)
    again = fresh.program.model_proto
    return compared(file, feed, expected, fresh.anchors, bounds, again, inside=inside, recorded=recorded, budget=budget)


_ROUTES = ("trace", "export")


def _arguments(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def _model_of(given: Any) -> tuple[ps.ModelProto, str]:
    """The message, and the route by which it was made where that is known."""
    if isinstance(given, ONNXProgram):
        return given.model_proto, given.report.route
    if isinstance(given, ps.ModelProto):
        return given, ""
    return (ps.loads(given) if isinstance(given, bytes) else ps.load(given)), ""


def _closest(
    file: ps.ModelProto, model: Any, args: Any, kwargs: Mapping[str, Any] | None, routes: Sequence[str]
) -> _Fresh | None:
    """The new export that is most like the file; None where the model cannot be exported with these arguments."""
    best: _Fresh | None = None
    for route in routes:
        try:
            found = _fresh(file, model, args, kwargs, route)
        except (ExportError, ValueError):
            continue  # the other route may take the model; with none, the outputs alone are compared
        if best is None or found.alike > best.alike:
            best = found
        if best.alike >= _ENOUGH:
            break
    return best


def _fresh(file: ps.ModelProto, model: Any, args: Any, kwargs: Mapping[str, Any] | None, route: str) -> _Fresh:
    graph = file.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = [item for item in graph.input if item.name not in held]
    options = Options(
        opset_version=next((item.version for item in file.opset_import if not canonical(item.domain or "")), None),
        input_names=[item.name or "" for item in inputs],
        output_names=[item.name or "" for item in graph.output],
        dynamic_axes=_dynamic(inputs),
        capture=route,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the file was exported
        with opened(model, args, kwargs, options) as run:
            declared, onnx = lowered(run)
            program = build_program(declared, onnx)
            known = torch_values(onnx.pure.graph, tensors_in(declared.arguments))
            found = anchors(onnx.pure.graph, known, onnx.lowered.stands)
    return _Fresh(program, found, alike(file, program.model_proto), onnx.pure.graph, known)


def _dynamic(inputs: Sequence[ps.ValueInfoProto]) -> dict[str, dict[int, str]] | None:
    axes: dict[str, dict[int, str]] = {}
    for item in inputs:
        shape = item.type.tensor_type.shape if item.type is not None and item.type.tensor_type is not None else None
        for axis, dim in enumerate(shape.dim if shape is not None else ()):
            if dim.dim_param and dim.dim_param.isidentifier():
                axes.setdefault(item.name or "", {})[axis] = dim.dim_param
    return axes or None


def check_names(given: Iterable[str], needed: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError for a name that no input has, and for an input that is missing."""
    names = list(given)
    there = ", ".join(map(repr, known)) or "none"
    for name in names:
        if name not in known:
            near = next(iter(similar(name, known)), "")
            meant = f"; did you mean {near!r}?" if near else ""
            raise ValueError(f"there is no input {name!r}; the inputs are {there}{meant}")
    for name in needed:
        if name not in names:
            raise ValueError(f"the input {name!r} is missing; the inputs are {there}")


def _two_files(
    right: ps.ModelProto,
    file: ps.ModelProto,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    bounds: tuple[float | None, float | None],
    inside: bool,
    budget: BudgetLike,
) -> Comparison:
    """The file beside another one, whose values our evaluator computes."""
    given: dict[str, torch.Tensor] = {}
    if isinstance(args, Mapping):
        given = {name: torch.as_tensor(value) for name, value in args.items()}
        held = {tensor.name for tensor in right.graph.initializer}
        inputs = [item.name or "" for item in right.graph.input]
        check_names(given, [name for name in inputs if name not in held], inputs)
    feed = given or ONNXProgram(right).feed(right, _arguments(args), kwargs or {})
    found = all_values(right, feed, EVALUATOR, budget)
    if found.failure:
        raise ExportError(f"the first file cannot be run: {found.failure}", code="verify-impossible")
    names = [item.name or "" for item in right.graph.output]
    known = [Anchor(name, tensor) for name, tensor in found.values.items() if name not in feed]
    wanted = [item.name or "" for item in file.graph.input][: len(feed)]
    other = feed if feed.keys() == set(wanted) else dict(zip(wanted, feed.values(), strict=False))
    expected = [found.values[name] for name in names if name in found.values]
    return compared(
        file, other, expected, known, tolerance(file, *bounds), right, "the first file", inside, budget=budget
    )
