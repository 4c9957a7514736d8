"""The first wrong value, and the node that is to blame for it.

Values are judged in the order of the file's nodes.  The first one that is too far from torch's is wrong, but the fault
may lie before it: an error that is small at its node can grow.  So the node is found by what is known for certain.

1. The file differs from a new export in a node before the wrong value, or in a tensor that such a node takes, and both
   nodes compute something else from the same inputs: that node, the first of them.
2. Otherwise, of the nodes between the wrong value and the last right ones, the first whose result in the runtime is not
   what our evaluator computes from the same inputs: the runtime.
3. Otherwise the file does what its nodes say, and these are not what torch computes: the rule of the call, or what the
   export took for granted.

Invariant: a node whose result is right, or that nothing wrong depends on, is never blamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

import proto_schema as ps
from proto_schema.graphs.names import free_names
from purexport.comparison.closeness import Difference, difference
from purexport.comparison.differing import Change, change_of
from purexport.comparison.file_values import EVALUATOR, FileValues, node_results
from purexport.comparison.torch_values import Anchor
from purexport.runtime.verification import Tolerance


@dataclass(frozen=True)
class Judged:
    """One value of the file beside torch's."""

    name: str
    place: int  # of its node in the file
    anchor: Anchor
    difference: Difference


@dataclass
class Evidence:
    """What is known of one file: its values, what torch has for some of them, and a new export with the same nodes.

    For a file of another exporter `missing` is the first value of torch that it does not have.
    """

    file: ps.ModelProto
    found: FileValues
    anchors: Mapping[str, Anchor]
    bounds: Tolerance
    fresh: ps.ModelProto | None = None
    missing: Anchor | None = None
    makers: dict[str, int] = field(default_factory=dict)
    constants: dict[str, ps.TensorProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.file.graph
        self.makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
        self.constants = {tensor.name or "": tensor for tensor in graph.initializer}

    def judged(self) -> Iterator[Judged]:
        """The values that both have, in the order of the file."""
        outputs = {item.name for item in self.file.graph.output}
        names = sorted((name for name in self.anchors if name in self.makers), key=self.makers.__getitem__)
        for name in names:
            if name in self.found.values:
                anchor = self.anchors[name]
                inside = name not in outputs
                apart = difference(self.found.values[name], anchor.tensor, self.bounds, inside=inside)
                yield Judged(name, self.makers[name], anchor, apart)

    def behind(self, names: Sequence[str], right: frozenset[str] = frozenset()) -> list[int]:
        """The places of the nodes that `names` depend on, in order; those behind values in `right` are left out."""
        places: set[int] = set()
        todo = [name for name in names if name not in right]
        while todo:
            place = self.makers.get(todo.pop())
            if place is not None and place not in places:
                places.add(place)
                todo += [name for name in free_names(self.file.graph.node[place]) if name not in right]
        return sorted(places)


@dataclass(frozen=True)
class Blamed:
    """A node, why it is at fault (`file`, `runtime` or `rule`), and what is wrong with it."""

    place: int
    at_fault: str
    change: Change | None = None
    nodes: tuple[int, ...] = ()  # that may be at fault, where it is not known which


def blamed(evidence: Evidence, wrong: Judged | None, right: frozenset[str]) -> Blamed | None:
    """The node at fault for a wrong value; where there is none, for what cannot be computed, or for the outputs.

    `right` are the values that are what torch computes.
    """
    if wrong is not None:
        roots = [wrong.name]
    else:
        stopped = _stopped(evidence)
        roots = [name for name in evidence.file.graph.node[stopped].output if name] if stopped is not None else []
    unknown = not roots
    if unknown:  # no value is wrong: the runtime refuses what our evaluator computes, or optimizes it wrongly
        roots = [item.name or "" for item in evidence.file.graph.output]
    places = evidence.behind(roots)
    changed = _changed(evidence, places)
    if changed is None and unknown and evidence.found.failure:
        changed = _changed(evidence, places, any_change=True)
    if changed is not None or unknown:
        return changed
    suspects = evidence.behind(roots, right)
    place = evidence.makers[roots[0]]
    if wrong is None:
        return Blamed(place, "file", nodes=tuple(suspects))
    if evidence.found.by != EVALUATOR:
        for suspect in suspects:
            if _computed_otherwise(evidence, suspect):
                return Blamed(suspect, "runtime")
    if evidence.missing is not None:
        return Blamed(_likely(evidence, evidence.missing, suspects), "file", nodes=tuple(suspects))
    return Blamed(place, "rule" if evidence.fresh is not None else "file", nodes=tuple(suspects))


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


def _changed(evidence: Evidence, places: Sequence[int], *, any_change: bool = False) -> Blamed | None:
    """The first node that is not the one of a new export, and that computes something else, or with `any_change`."""
    if evidence.fresh is None:
        return None
    counterparts = {next(iter(node.output), ""): node for node in evidence.fresh.graph.node}
    constants = {tensor.name or "": tensor for tensor in evidence.fresh.graph.initializer}
    values = evidence.found.values
    for place in places:
        node = evidence.file.graph.node[place]
        other = counterparts.get(next(iter(node.output), ""))
        change = change_of(node, other, evidence.constants, constants)
        if change is None:
            continue
        if other is None or any_change:
            return Blamed(place, "file", change)
        mine = node_results(evidence.file, node, values, evidence.constants)
        theirs = node_results(evidence.fresh, other, values, constants)
        if isinstance(mine, str) or isinstance(theirs, str) or _differ(mine, theirs):
            return Blamed(place, "file", change)
    return None


def _differ(mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> bool:
    for name, tensor in theirs.items():
        other = mine.get(name)
        if other is None or other.dtype != tensor.dtype or other.shape != tensor.shape:
            return True
        if not torch.equal(torch.nan_to_num(other.double()), torch.nan_to_num(tensor.double())):
            return True
    return False


def _computed_otherwise(evidence: Evidence, place: int) -> bool:
    """Whether the runtime's result of a node is not what our evaluator computes from the runtime's values."""
    node = evidence.file.graph.node[place]
    results = node_results(evidence.file, node, evidence.found.values, evidence.constants)
    if isinstance(results, str):
        return False
    return any(
        not difference(evidence.found.values[name], tensor, evidence.bounds, inside=True).close
        for name, tensor in results.items()
        if name in evidence.found.values
    )
