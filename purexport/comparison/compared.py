"""A file beside what torch computes: the outputs first, and where they differ, the search for the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import proto_schema as ps
from proto_schema.budget import BudgetLike
from purexport.comparison.closeness import difference
from purexport.comparison.conditioning import explained
from purexport.comparison.contributions import contributions
from purexport.comparison.departures import Departure, RecordedModel
from purexport.comparison.differing import TORCH, in_fewer_bits
from purexport.comparison.evidence import Evidence, Judged
from purexport.comparison.file_values import EVALUATOR, ONNXRUNTIME, FileValues, all_values, outputs_of
from purexport.comparison.located import Blamed, blamed, by_contribution
from purexport.comparison.matching import LEAST_ALIKE, by_content, first_without_partner, shared
from purexport.comparison.measures import measures
from purexport.comparison.result import Comparison, Output
from purexport.comparison.torch_values import Anchor
from purexport.runtime.sessions import as_real
from purexport.runtime.verification import Tolerance

# from the plainest: where a level is wrong and the one before it right, its optimizations are at fault
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def compared(
    file: ps.ModelProto,
    feed: Mapping[str, torch.Tensor],
    expected: Sequence[torch.Tensor],
    anchors: Sequence[Anchor],
    bounds: Tolerance,
    fresh: ps.ModelProto | None = None,
    other: str = TORCH,
    inside: bool = False,
    recorded: RecordedModel | None = None,
    budget: BudgetLike = None,
) -> Comparison:
    """Whether the outputs of `file` for `feed` are `expected`, and the node to blame where not.

    With `inside` the values of all nodes are compared also where the outputs agree.  `anchors` are values of torch with
    the names of `fresh`, a new export, or of the file itself.  `other` is in words what they are of.  `recorded` is
    what was recorded of the model, and runs it again.  `budget` is for each run of our evaluator.
    """
    names = [item.name or "" for item in file.graph.output]
    plain = outputs_of(file, feed, budget=budget)
    result = Comparison(plain.by, other, failure=plain.failure)
    if not plain.failure:
        result.outputs = _outputs(names, plain, expected, bounds)
    if result.agrees and not inside:
        return result
    found = all_values(file, feed, budget=budget)
    if plain.failure and not found.failure:
        found.failure = plain.failure
    quantizing = in_fewer_bits(file, fresh)
    same = fresh is not None and shared(file, fresh, quantizing) >= LEAST_ALIKE
    recorded_outputs = _recorded_outputs(file if fresh is None else fresh, anchors)
    known = {anchor.name: anchor for anchor in anchors}
    missing = None
    if fresh is not None and not same:
        known = by_content(file, found.values, anchors, bounds)
        missing = first_without_partner(fresh, anchors, known)
        known |= {name: Anchor(name, tensor) for name, tensor in zip(names, expected, strict=False)}
    if not result.agrees:
        departure = _departure(plain, names, recorded_outputs, expected, bounds, recorded)
        if departure is not None:
            result.at_fault, result.why = "capture", departure.text
            return result
        for name, tensor in zip(names, expected, strict=False):
            known.setdefault(name, Anchor(name, tensor))
    evidence = Evidence(file, found, known, bounds, fresh if same else None, missing, quantizing, budget)
    if result.agrees:
        _judge(result, evidence)
    else:
        _search(result, evidence, feed, expected, bounds)
    return result


def _recorded_outputs(model: ps.ModelProto, anchors: Sequence[Anchor]) -> list[torch.Tensor | None]:
    """What was recorded for each output, None where torch has no value for it."""
    values = {anchor.name: anchor.tensor for anchor in anchors}
    return [values.get(item.name or "") for item in model.graph.output]


def _departure(
    plain: FileValues,
    names: Sequence[str],
    outputs: Sequence[torch.Tensor | None],
    expected: Sequence[torch.Tensor],
    bounds: Tolerance,
    recorded: RecordedModel | None,
) -> Departure | None:
    """Where the model departs from what was recorded, if the file computes that and the model something else."""
    unknown = False
    for name, was, tensor in zip(names, outputs, expected, strict=False):
        if was is None:
            mine = plain.values.get(name)
            unknown = unknown or (mine is not None and not difference(mine, tensor, bounds).close)
        elif not difference(as_real(was).detach().cpu(), tensor, bounds).close:
            mine = plain.values.get(name)
            found = recorded.departure(expected, bounds) if recorded is not None else None
            if mine is None or difference(mine, was, bounds).close or (found is not None and found.random):
                return found or Departure()
    return recorded.departure(expected, bounds) if unknown and recorded is not None else None


def _judge(result: Comparison, evidence: Evidence) -> None:
    """The values inside, and the largest error of each module."""
    result.judged = list(evidence.judged())
    result.values, result.evidence = len(result.judged), evidence
    for item in result.judged if result.other == TORCH else ():
        scope = item.anchor.source.scope or "the model"
        result.layers[scope] = max(result.layers.get(scope, 0.0), item.difference.error)


def _outputs(
    names: Sequence[str], found: FileValues, expected: Sequence[torch.Tensor], bounds: Tolerance
) -> list[Output]:
    return [
        Output(name, difference(found.values[name], tensor, bounds), measures(found.values[name], tensor))
        for name, tensor in zip(names, expected, strict=False)
        if name in found.values
    ]


def _search(
    result: Comparison,
    evidence: Evidence,
    feed: Mapping[str, torch.Tensor],
    expected: Sequence[torch.Tensor],
    bounds: Tolerance,
) -> None:
    _judge(result, evidence)
    wrong = next((item for item in result.judged if not item.difference.close), None)
    right = frozenset(item.name for item in result.judged if item.difference.close)
    blame = blamed(evidence, result.judged, wrong, right, result.other)
    if blame is None and not evidence.found.failure and evidence.found.by == ONNXRUNTIME:
        blame = _beyond_nodes(result, evidence, feed, expected, bounds)
        if blame is None:
            return
    result.first_wrong, result.blamed = wrong, blame
    if blame is not None and blame.at_fault == "rounding":
        result.explained = None if bounds.given else explained(evidence, feed, expected)
        result.at_fault, result.why, result.blamed = "rounding", _adds_up(blame, result.other), None
        return
    behind = evidence.missing or (wrong.anchor if wrong is not None else None)
    if blame is not None and blame.own is not None:
        behind = blame.own.judged.anchor
    if behind is not None and result.other == TORCH:
        result.call, result.source = behind.call, str(behind.source)
    if blame is not None:
        result.node, result.at_fault = evidence.file.graph.node[blame.place], blame.at_fault
        result.why = _why(evidence, blame, wrong, result.other)


def _why(evidence: Evidence, blame: Blamed, wrong: Judged | None, other: str) -> str:
    if blame.ties is not None:
        return blame.ties.text(other)
    alone = _alone(blame, other)
    if blame.change is not None:
        return blame.change.against(other) + (f"; {alone}" if alone else "")
    if blame.at_fault == "quantization":
        names = [name for place in blame.nodes if place in evidence.quantizing for name in _weights(evidence, place)]
        coded = f" ({', '.join(map(repr, names[:3]))})" if names else ""
        return f"it works with numbers in fewer bits{coded}, where {other} has floats; {alone}"
    if blame.at_fault == "runtime":
        return (
            f"{evidence.found.by} computes something else than the specification of the operator says; our evaluator "
            "and torch agree on it"
        )
    if blame.at_fault == "disputed":
        return (
            f"{evidence.found.by} computes something else than our evaluator from the same inputs; compare the file "
            "with the torch model to see which of them is right"
        )
    if wrong is None:
        return evidence.found.failure or "it cannot be computed"
    count = len(blame.nodes)
    if evidence.missing is not None and blame.own is None:
        return f"it is the first of {count:,} nodes behind the last values that {other} has, too"
    nodes = "this node computes" if count < 2 else f"these {count} nodes, from the last right values on, compute"
    more = f"; {alone}" if alone and not blame.own_is_wrong(wrong) else ""
    if blame.at_fault == "rule":
        return f"{nodes} what the file says, and {_writes(other)} so; {other} computes something else{more}"
    return f"{nodes} something else than {other}{more}"


def _weights(evidence: Evidence, place: int) -> list[str]:
    """The tensor of codes that a node takes."""
    return [name for name in evidence.file.graph.node[place].input if name in evidence.constants][:1]


def _alone(blame: Blamed, other: str) -> str:
    """How far the node's part is off by itself."""
    if blame.own is None:
        return ""
    others = f", and no other result by more than {blame.next_own:.1e}" if blame.next_own else ""
    return (
        f"computed alone on the values of {other}, the result {blame.own.judged.name!r} is off by "
        f"{blame.own.error:.1e} of its largest element{others}"
    )


def _adds_up(blame: Blamed, other: str) -> str:
    own = blame.own
    each = "is the same"
    if own is not None and own.error:
        each = f"is right within {own.error:.1e} of its largest element (the most at {own.judged.name!r})"
    return (
        f"no node stands out: computed alone on the values of {other}, the result of each {each}. The differences add "
        "up; rtol and atol say how far results may be apart"
    )


def _writes(other: str) -> str:
    return "an export writes them" if other == TORCH else f"{other} has them"


def _beyond_nodes(
    result: Comparison,
    evidence: Evidence,
    feed: Mapping[str, torch.Tensor],
    expected: Sequence[torch.Tensor],
    bounds: Tolerance,
) -> Blamed | None:
    """The outputs are wrong only where the inner values are not asked for: an optimization, the runtime, or rounding.

    A runtime is at fault only if our evaluator gives the right outputs, or if a level of optimization does.
    """
    names = [item.name or "" for item in evidence.file.graph.output]
    right: dict[str, torch.Tensor] = {}
    for before, level in zip(("", *LEVELS), LEVELS, strict=False):
        found = outputs_of(evidence.file, feed, ONNXRUNTIME, level)
        if not found.failure and all(item.difference.close for item in _outputs(names, found, expected, bounds)):
            right = found.values
            continue
        said = f"{level} of onnxruntime gives the wrong result"
        if before:
            result.at_fault, result.why = "optimization", f"{said}, and {before} the right one"
            result.levels, result.right = (before, level), right
            return None
        evaluator = outputs_of(evidence.file, feed, EVALUATOR, budget=evidence.budget)
        outputs = _outputs(names, evaluator, expected, bounds)
        if len(outputs) == len(names) and all(item.difference.close for item in outputs):
            agree = "our evaluator and torch" if result.other == TORCH else "our evaluator"
            result.at_fault = "runtime" if result.other == TORCH else "disputed"
            result.why = f"{said}, every node alone the right one, and {agree} agree on it"
            return None
        return _summed(result, evidence, names)
    result.at_fault, result.why = "runtime", "onnxruntime gives another result in each run"
    return None


def _summed(result: Comparison, evidence: Evidence, names: Sequence[str]) -> Blamed:
    """The part that stands out behind the first wrong output; else rounding."""
    wrong = next((item.name for item in result.outputs if not item.difference.close), names[0])
    parts = contributions(evidence, result.judged, [wrong])
    most = max(parts, key=lambda item: item.error, default=None)
    return by_contribution(evidence, parts) or Blamed(evidence.makers.get(wrong, 0), "rounding", own=most)
