"""One conversion: functions inlined, nodes decided, casts put in, the result checked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from proto_schema import operators
from proto_schema.budget import BudgetLike
from proto_schema.calibration.samples import Given, Samples
from proto_schema.checker import check_model
from proto_schema.errors import CheckError
from proto_schema.graphs.names import as_text
from proto_schema.graphs.similar import similar
from proto_schema.inliner import inline_local_functions
from proto_schema.ir import Model, Node, from_message
from proto_schema.onnx import GraphProto, ModelProto, TensorProto
from proto_schema.precision.constants import Fit, nbytes
from proto_schema.precision.kept import KeptNodes, Types, decided
from proto_schema.precision.observed import observed
from proto_schema.precision.options import TOLERANCE, Borders, Options, is_operator
from proto_schema.precision.report import PrecisionReport, Stay, counts
from proto_schema.precision.rewriting import CastRewriter
from proto_schema.precision.search import Search
from proto_schema.precision.signatures import FLOAT32
from proto_schema.shape_inference import infer_with_problems
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.units import counted
from proto_schema.wire.collection import paused_collection
from proto_schema.wire.records import dataclass

_DRAWN = 3  # random inputs of a search without samples
_SEARCHED = 16  # samples that a search runs


@dataclass(frozen=True)
class Converted:
    """The model in another type, and what was done."""

    model: ModelProto
    report: PrecisionReport


def convert_float(
    model: ModelProto | bytes | str | os.PathLike[str],
    dtype: str = "float16",
    keep: str | Iterable[str] = (),
    io: Borders = "keep",
    samples: Given | None = None,
    *,
    search: bool = False,
    tolerance: float = TOLERANCE,
    budget: BudgetLike = None,
) -> ModelProto:
    """The model computing in "float16" or "bfloat16" wherever its operators can. `model` does not change.

    keep: operators or patterns of names of nodes that stay in float32. io: float32 inputs and outputs stay ("keep",
    with casts behind them) or become the type ("convert"). samples: as of `quantize(calibration=)`; the model runs on
    them in float32, and nodes whose values overflow or mostly vanish in the type stay. search: look for the fewest
    nodes that must stay so that outputs differ by at most `tolerance` of their largest element, on the samples or on
    random inputs. `budget` is for each run of our evaluator. Weights are read once for their range, and once more when
    the model is saved, in bounded pieces. Raises ValueError for options and samples that do not fit, CheckError for a
    model that is not valid. `converted` gives the report, too.
    """
    return converted(model, dtype, keep, io, samples, search=search, tolerance=tolerance, budget=budget).model


def converted(
    model: ModelProto | bytes | str | os.PathLike[str],
    dtype: str = "float16",
    keep: str | Iterable[str] = (),
    io: Borders = "keep",
    samples: Given | None = None,
    *,
    search: bool = False,
    tolerance: float = TOLERANCE,
    budget: BudgetLike = None,
) -> Converted:
    """The same, with the report."""
    options = Options.of(dtype, keep, io=io, search=search, tolerance=tolerance)
    if isinstance(model, (str, os.PathLike)):
        from proto_schema.files.models import load

        model = load(model)
    elif not isinstance(model, ModelProto):
        model = ModelProto.FromString(model)
    with paused_collection():
        return _Conversion(model, options).run(samples, budget)


class _Conversion:
    def __init__(self, model: ModelProto, options: Options) -> None:
        self.given = model
        self.options = options
        self.notes: list[str] = []
        self.opsets = {operators.canonical(item.domain or ""): item.version or 0 for item in model.opset_import}
        self._expect_type()
        self.model = model
        if model.functions:
            self.model = inline_local_functions(model, convert_version=True)
            gone = len(model.functions) - len(self.model.functions)
            self.notes.append(f"{counted(gone, 'function')} became part of the graph, whose types depend on the call")

    def _expect_type(self) -> None:
        opset, code = self.opsets.get("", 0), self.options.code
        schema = operators.schema("Cast", opset)
        if schema is None or f"tensor({DTYPES[code].text})" not in schema.constraints["T2"]:
            first = next(
                version
                for version in operators.versions("Cast")
                if f"tensor({DTYPES[code].text})" in _constraint(version)
            )
            raise ValueError(
                f"opset {opset} of the model has no {self.options.dtype}; convert it to opset {first} or later first "
                f"(--opset {first})"
            )

    def run(self, samples: Given | None, budget: BudgetLike) -> Converted:
        seen: Mapping[str, Fit] = {}
        if samples is not None:
            seen = observed(self.model, self._names(), samples, self.options.code, budget)
        chosen: Sequence[int] = ()
        if self.options.search:
            chosen = self._searched(samples, seen, budget)
        made, report = self._convert(self.options, seen, chosen)
        note = self._check(made)
        return Converted(made, replace(report, notes=(*report.notes, note)) if note else report)

    def _names(self) -> frozenset[str]:
        """The names of the values of the main graph."""
        graph = self.model.graph or GraphProto()
        return frozenset(name for node in graph.node for name in node.output if name)

    def _searched(self, samples: Given | None, seen: Mapping[str, Fit], budget: BudgetLike) -> Sequence[int]:
        from proto_schema.rewrite.proof import random_inputs

        if samples is None:
            feeds: list[Mapping[str, Any]] = list(random_inputs(self.model, _DRAWN, budget=budget))
        else:
            feeds = [feed for _, feed in islice(Samples(self.model, samples, budget), _SEARCHED)]
        inside = Options(self.options.dtype, self.options.keep, "keep")

        def convert(nodes: Sequence[int]) -> ModelProto:
            return self._convert(inside, seen, nodes)[0]

        found = Search(self.model, convert, feeds, self.options.tolerance, budget).run()
        what = "samples" if samples is not None else "random inputs, not samples"
        self.notes.append(
            f"the search kept {counted(len(found.nodes), 'node')}: outputs differ by {found.difference:.2g} of their "
            f"largest element, {found.before:.2g} without ({counted(found.runs, 'run')} on {len(feeds)} {what})"
        )
        return found.nodes

    def _convert(
        self, options: Options, seen: Mapping[str, Fit], chosen: Collection[int]
    ) -> tuple[ModelProto, PrecisionReport]:
        work = from_message(self.model)
        work.infer()
        types = Types(work, self.opsets)
        kept = decided(work, options, types, seen, chosen)
        nodes = [node for graph in work.graph.nested() for node in graph.nodes]
        stays = tuple(Stay(_name(node), node.op_type, kept.reasons[node]) for node in nodes if node in kept.reasons)
        changed = counts(node.op_type for node in nodes if _changes(node, kept, types))
        before, unused = _bytes(work), list(self._unused(work, options))
        rewriter = CastRewriter(work, options, types, kept)
        casts = rewriter.run()
        clamped = {as_text(name): count for name, count in kept.clamped.items() if name in rewriter.stored}
        made = work.to_message()
        made.ir_version = max(made.ir_version or 0, DTYPES[options.code].since)
        notes = (*self.notes, *unused)
        report = PrecisionReport(options.dtype, options.io, changed, stays, clamped, casts, before, _bytes(work), notes)
        return made, report

    def _unused(self, work: Model, options: Options) -> Iterator[str]:
        """A line for each of `keep` that fits nothing. Raises ValueError where it is no operator at all."""
        nodes = [node for graph in work.graph.nested() for node in graph.nodes]
        used = {options.kept_by(node.op_type, node.name) for node in nodes}
        for item in options.keep:
            if item in used or any(Options(keep=(item,)).kept_by(node.op_type, node.name) for node in nodes):
                continue
            if not is_operator(item) and not set("*?[") & set(item):
                near = similar(item, {node.op_type for node in nodes} | {as_text(node.name) for node in nodes})
                hint = f"; near: {', '.join(map(repr, near))}" if near else ""
                raise ValueError(f"keep={item!r} fits no node and is no operator{hint}")
            yield f"keep {item!r} fits no node of the model"

    def _check(self, made: ModelProto) -> str:
        """Raises CheckError where the result is not valid; says so where the given model is not valid already."""
        error = _invalid(made)
        if error is None:
            return ""
        before = _invalid(self.model)
        if before is not None:
            mine, theirs = (infer_with_problems(item, check_type=True)[1] for item in (made, self.model))
            if len(mine) <= len(theirs):
                return f"the model is not valid, and neither is the result: {before}"
            error = CheckError(mine[-1])
        raise CheckError(
            f"the converted model is not valid, though the given one is; please report it: {error}"
        ) from error


def _invalid(model: ModelProto) -> CheckError | None:
    """The first rule that a model breaks, None for a valid one."""
    try:
        check_model(model, full_check=True)
    except CheckError as error:
        return error
    return None


def _constraint(version: int) -> frozenset[str]:
    schema = operators.schema("Cast", version)
    return frozenset() if schema is None else schema.constraints["T2"]


def _name(node: Node) -> str:
    made = node.outputs[0] if node.outputs else None
    return as_text(node.name or (made.name if made is not None else ""))


def _changes(node: Node, kept: KeptNodes, types: Types) -> bool:
    """Whether a node computes in the other type."""
    if node in kept.reasons or node.op_type in ("Cast", "Constant"):
        return False
    found = kept.signatures.get(node)
    if found is None:  # it has bodies
        return any(types(value) == FLOAT32 for value in (*node.inputs, *node.outputs))
    return found.can_change


def _bytes(work: Model) -> int:
    """The bytes of all float constants, those of Constant nodes among them."""
    codes = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    total = 0
    for graph in work.graph.nested():
        held = [value.tensor for value in graph.initializers]
        held += [node.attributes.get("value") for node in graph.nodes if node.op_type == "Constant"]
        total += sum(nbytes(item) for item in held if isinstance(item, TensorProto) and item.data_type in codes)
    return total
