"""The first wrong value, and the node that is to blame for it.

Values are judged in the order of the file's nodes.  The first one that is too far from the reference's is wrong, but
the fault may lie before it: an error that is small at its node can grow.  So the node is found by what is certain.

1. The file differs from a new export in a node before the wrong value, or in a tensor that such a node takes, and both
   nodes compute something else from the same inputs, by more than the bounds: that node, the first of them.
2. Otherwise a node that chooses by the order of scores, where the two choices differ by nothing but ties.
3. Otherwise, if our evaluator computes what torch does, from the reference's values: the first of the nodes between the
   wrong value and the last right ones whose result in the runtime is not what our evaluator computes from the same
   inputs.  That is the runtime.  Without torch nobody can tell which of the two is right.
4. Otherwise the part of the file that departs most by itself (`contributions`): because of what differs from a new
   export in it, because it has numbers in fewer bits, or because an export writes it so.
5. Where no part stands out, rounding adds up.

Invariant: a node whose result is right, or that nothing wrong depends on, is never blamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

import proto_schema as ps
from purexport.comparison.closeness import difference
from purexport.comparison.contributions import Contribution, contributions, most, too_far
from purexport.comparison.differing import TORCH, NodeDifference, change_of
from purexport.comparison.evidence import Evidence, Judged
from purexport.comparison.file_values import EVALUATOR, node_results
from purexport.comparison.ties import Ties, ties_before
from purexport.comparison.torch_values import Anchor
from purexport.runtime.verification import Tolerance


@dataclass(frozen=True)
class Blamed:
    """A node, why it is at fault, and what is wrong with it.

    `at_fault` is one of those of `Comparison`.  `nodes` may be at fault, where it is not known which.  `own` is how far
    the node's part of the file is off by itself, `next_own` the largest of the others.
    """

    place: int
    at_fault: str
    change: NodeDifference | None = None
    nodes: tuple[int, ...] = ()
    ties: Ties | None = None
    own: Contribution | None = None
    next_own: float = 0.0

    def own_is_wrong(self, wrong: Judged) -> bool:
        """Whether the part is the one that makes the first wrong value."""
        return self.own is not None and self.own.judged.name == wrong.name


def blamed(
    evidence: Evidence, judged: Sequence[Judged], wrong: Judged | None, right: frozenset[str], other: str
) -> Blamed | None:
    """The node at fault for a wrong value; where there is none, for what cannot be computed, or for the outputs.

    `judged` are the values that both sides have, `right` those that are what the reference has, and `other` says what
    that is.
    """
    if wrong is not None:
        roots = [wrong.name]
    else:
        stopped = _stopped(evidence)
        roots = [name for name in evidence.file.graph.node[stopped].output if name] if stopped is not None else []
    unknown = not roots
    if unknown:  # no value is wrong: the runtime refuses what our evaluator computes, or optimizes it wrongly
        roots = [item.name or "" for item in evidence.file.graph.output]
    outputs = [item.name or "" for item in evidence.file.graph.output]
    suspects = evidence.behind(roots, right)
    coded = not evidence.quantizing.isdisjoint(suspects)
    places = evidence.behind(outputs if coded else roots)  # what a quantization costs is no fault: others come first
    changed = _changed(evidence, places)
    if changed is None and unknown and evidence.found.failure:
        changed = _changed(evidence, places, any_change=True)
    if changed is not None or unknown:
        return changed
    if wrong is None:
        return Blamed(evidence.makers[roots[0]], "file", nodes=tuple(suspects))
    ties = ties_before(evidence, suspects, wrong.name)
    if ties is not None:
        return Blamed(ties.place, "ties", nodes=(ties.place,), ties=ties)
    parts = contributions(evidence, judged, outputs if coded else [wrong.name])
    own = next((item for item in parts if item.judged.name == wrong.name), None)
    sound = own is not None and not own.is_too_far  # our evaluator computes what the reference is
    if sound and evidence.found.by != EVALUATOR:
        for suspect in suspects:
            if _computed_otherwise(evidence, suspect):
                return Blamed(suspect, "runtime" if other == TORCH else "disputed")
    if evidence.missing is not None and not sound and not coded:
        return Blamed(_likely(evidence, evidence.missing, suspects), "file", nodes=tuple(suspects))
    return by_contribution(evidence, parts) or Blamed(
        evidence.makers[wrong.name],
        "rounding" if sound else "rule" if evidence.fresh is not None else "file",
        nodes=tuple(suspects),
        own=max(parts, key=lambda item: item.error, default=None),
    )


def by_contribution(evidence: Evidence, parts: Sequence[Contribution]) -> Blamed | None:
    """The part that departs most by itself, and why; None where none stands out."""
    found = most(parts)
    coded = [item for item in parts if not evidence.quantizing.isdisjoint(item.nodes)]
    if coded and (found is None or found in coded):
        found = max(coded, key=lambda item: item.error)
    if found is None:
        return None
    next_own = max((item.error for item in parts if item is not found), default=0.0)
    place = found.judged.place
    if not evidence.quantizing.isdisjoint(found.nodes):
        return Blamed(place, "quantization", nodes=found.nodes, own=found, next_own=next_own)
    for at, change, _ in _changes(evidence, found.nodes):
        return Blamed(at, "file", change, found.nodes, own=found, next_own=next_own)
    at_fault = "rule" if evidence.fresh is not None else "file"
    return Blamed(place, at_fault, nodes=found.nodes, own=found, next_own=next_own)


def _likely(evidence: Evidence, missing: Anchor, suspects: Sequence[int]) -> int:
    """The first of the suspects whose result has the shape of torch's value that the file does not have."""
    for place in suspects:
        results = [evidence.found.values.get(name) for name in evidence.file.graph.node[place].output]
        if any(item is not None and item.shape == missing.tensor.shape for item in results):
            return place
    return suspects[0]


def _stopped(evidence: Evidence) -> int | None:
    """The first node of which no result was computed, in a file that could not be run to its end."""
    if not evidence.found.failure:
        return None
    for place, node in enumerate(evidence.file.graph.node):
        names = [name for name in node.output if name]
        if names and not any(name in evidence.found.values for name in names) and _is_tensor(evidence, names):
            return place
    return None


def _is_tensor(evidence: Evidence, names: Sequence[str]) -> bool:
    types = {item.name: item.type for item in evidence.file.graph.value_info}
    kinds = [types[name] for name in names if types.get(name) is not None]
    return all(kind is None or kind.tensor_type is not None for kind in kinds)


def _changes(evidence: Evidence, places: Sequence[int]) -> Iterator[tuple[int, NodeDifference, ps.NodeProto | None]]:
    """The nodes that are not those of a new export: place, what differs, and the node of the export."""
    if evidence.fresh is None:
        return
    counterparts = {next(iter(node.output), ""): node for node in evidence.fresh.graph.node}
    constants = {tensor.name or "": tensor for tensor in evidence.fresh.graph.initializer}
    for place in places:
        node = evidence.file.graph.node[place]
        other = counterparts.get(next(iter(node.output), ""))
        change = change_of(node, other, evidence.constants, constants, evidence.makers)
        if change is not None:
            yield place, change, other


def _changed(evidence: Evidence, places: Sequence[int], *, any_change: bool = False) -> Blamed | None:
    """The first changed node that computes something else by more than the bounds, or with `any_change` the first."""
    values = evidence.found.values
    fresh = evidence.fresh
    if fresh is None:
        return None
    constants = {tensor.name or "": tensor for tensor in fresh.graph.initializer}
    for place, change, other in _changes(evidence, places):
        if any_change:
            return Blamed(place, "file", change)
        if other is None or place in evidence.quantizing or _reads_codes(evidence, place, change):
            continue
        mine = node_results(evidence.file, evidence.file.graph.node[place], values, evidence.constants, evidence.budget)
        theirs = node_results(fresh, other, values, constants, evidence.budget)
        if isinstance(mine, str) or isinstance(theirs, str) or _differ(mine, theirs, evidence.bounds):
            return Blamed(place, "file", change)
    return None


def _reads_codes(evidence: Evidence, place: int, change: NodeDifference) -> bool:
    """Whether a node is another one because it reads what is made of numbers in fewer bits."""
    names = evidence.file.graph.node[place].input
    made = any(evidence.makers.get(name) in evidence.quantizing for name in names)
    return made and change.what in ("operator", "list of inputs")


def _differ(mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], bounds: Tolerance) -> bool:
    for name, tensor in theirs.items():
        other = mine.get(name)
        if other is None or other.dtype != tensor.dtype:
            return True
        if too_far(difference(other, tensor, bounds, inside=True), tensor):
            return True
    return False


def _computed_otherwise(evidence: Evidence, place: int) -> bool:
    """Whether the runtime's result of a node is not what our evaluator computes from the runtime's values."""
    node = evidence.file.graph.node[place]
    results = node_results(evidence.file, node, evidence.found.values, evidence.constants, evidence.budget)
    if isinstance(results, str):
        return False
    return any(
        too_far(difference(evidence.found.values[name], tensor, evidence.bounds, inside=True), tensor)
        for name, tensor in results.items()
        if name in evidence.found.values
    )
