"""A file beside what torch computes: the outputs first, and where they differ, the search for the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import proto_schema as ps
from purexport.comparison.closeness import difference
from purexport.comparison.differing import TORCH
from purexport.comparison.file_values import ONNXRUNTIME, FileValues, all_values, outputs_of
from purexport.comparison.located import Blamed, Evidence, Judged, blamed
from purexport.comparison.matching import LEAST_ALIKE, alike, by_content, first_without_partner
from purexport.comparison.result import Comparison, Output
from purexport.comparison.torch_values import Anchor
from purexport.runtime.verification import Tolerance

# from the plainest: where a level is wrong and the one before it right, its optimizations are at fault
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")

_ANOTHER_WAY = (
    "the model gives another result than the operators that were recorded of it; it draws random numbers, keeps state "
    "between calls, or asks whether it is being exported"
)


def compared(
    file: ps.ModelProto,
    feed: Mapping[str, torch.Tensor],
    expected: Sequence[torch.Tensor],
    anchors: Sequence[Anchor],
    bounds: Tolerance,
    fresh: ps.ModelProto | None = None,
    other: str = TORCH,
    inside: bool = False,
) -> Comparison:
    """Whether the outputs of `file` for `feed` are `expected`, and the node to blame where not.

    With `inside` the values of all nodes are compared also where the outputs agree.  `anchors` are values of torch with
    the names of `fresh`, a new export, or of the file itself.  `other` is in words what they are of.
    """
    names = [item.name or "" for item in file.graph.output]
    plain = outputs_of(file, feed)
    result = Comparison(plain.by, other, failure=plain.failure)
    if not plain.failure:
        result.outputs = _outputs(names, plain, expected, bounds)
    if result.agrees and not inside:
        return result
    found = all_values(file, feed)
    if plain.failure and not found.failure:
        found.failure = plain.failure
    same = fresh is not None and alike(file, fresh) >= LEAST_ALIKE
    known = {anchor.name: anchor for anchor in anchors}
    missing = None
    if fresh is not None and not same:
        known = by_content(file, found.values, anchors, bounds)
        missing = first_without_partner(fresh, anchors, known)
        known |= {name: Anchor(name, tensor) for name, tensor in zip(names, expected, strict=False)}
    evidence = Evidence(file, found, known, bounds, fresh if same else None, missing)
    if result.agrees:
        _judge(result, evidence)
    else:
        _search(result, evidence, feed, expected, bounds)
    return result


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
        Output(name, difference(found.values[name], tensor, bounds))
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
    recorded = [evidence.anchors.get(item.name or "") for item in evidence.file.graph.output]
    if any(
        anchor is not None and not difference(anchor.tensor, tensor, bounds).close
        for anchor, tensor in zip(recorded, expected, strict=False)
    ):
        result.at_fault, result.why = "capture", _ANOTHER_WAY
        return
    _judge(result, evidence)
    wrong = next((item for item in result.judged if not item.difference.close), None)
    right = frozenset(item.name for item in result.judged if item.difference.close)
    blame = blamed(evidence, wrong, right)
    if blame is None and not evidence.found.failure and evidence.found.by == ONNXRUNTIME:
        _optimized(result, evidence, feed, expected, bounds)
        return
    result.first_wrong, result.blamed = wrong, blame
    behind = evidence.missing or (wrong.anchor if wrong is not None else None)
    if behind is not None and result.other == TORCH:
        result.call, result.source = behind.call, str(behind.source)
    if blame is not None:
        result.node, result.at_fault = evidence.file.graph.node[blame.place], blame.at_fault
        result.why = _why(evidence, blame, wrong, result.other)


def _why(evidence: Evidence, blame: Blamed, wrong: Judged | None, other: str) -> str:
    if blame.change is not None:
        return blame.change.against(other)
    if blame.at_fault == "runtime":
        return f"{evidence.found.by} computes something else than the specification of the operator says"
    if wrong is None:
        return evidence.found.failure or "it cannot be computed"
    count = len(blame.nodes)
    if evidence.missing is not None:
        return f"it is the first of {count:,} nodes behind the last values that {other} has, too"
    nodes = "this node computes" if count < 2 else f"these {count} nodes, from the last right values on, compute"
    if blame.at_fault == "rule":
        return f"{nodes} what the file says, and {_writes(other)} so; {other} computes something else"
    return f"{nodes} something else than {other}"


def _writes(other: str) -> str:
    return "an export writes them" if other == TORCH else f"{other} has them"


def _optimized(
    result: Comparison,
    evidence: Evidence,
    feed: Mapping[str, torch.Tensor],
    expected: Sequence[torch.Tensor],
    bounds: Tolerance,
) -> None:
    """The outputs are wrong only where the inner values are not asked for: a level of optimization is at fault."""
    names = [item.name or "" for item in evidence.file.graph.output]
    right: dict[str, torch.Tensor] = {}
    for before, level in zip(("", *LEVELS), LEVELS, strict=False):
        found = outputs_of(evidence.file, feed, ONNXRUNTIME, level)
        if found.failure or not all(item.difference.close for item in _outputs(names, found, expected, bounds)):
            said = f"{level} of onnxruntime gives the wrong result"
            result.at_fault = "optimization" if before else "runtime"
            result.why = (
                f"{said}, and {before} the right one" if before else f"{said}, and every node alone the right one"
            )
            result.levels, result.right = (before, level) if before else (), right
            return
        right = found.values
    result.at_fault, result.why = "runtime", "onnxruntime gives another result in each run"
