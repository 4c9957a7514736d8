"""Rewriting a neutral graph by rows: each row looks at one call and returns what stands for its results.

A row is a function of a `FusionSite`.  It writes calls in front of the call that it looks at, and returns a value for
each result of that call, or None where it does not apply.  Calls that nobody uses any more are taken out behind each
row.

Invariant: what a row replaces is computed by the new calls, from values that exist in front of the call.  A prover,
where one is given, runs both (`proofs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.aten.graph import (
    Arg,
    AtenGraph,
    AtenValue,
    Call,
    Dim,
    Input,
    TensorType,
    map_values,
    tensor_type,
    values_in,
    with_values,
)
from purexport.fusion.expressions import Expressions, is_of_numbers
from purexport.fusion.proofs import Prover

Row = Callable[["FusionSite"], Sequence[AtenValue] | None]


@dataclass
class Fused:
    """What was rewritten: how often by which row, and why a row that nearly applied did not."""

    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    proven: dict[str, int] = field(default_factory=dict)  # how often a row was seen to compute the same
    unproven: list[str] = field(default_factory=list)  # what a prover could not run, and why
    attention: int = 0  # calls of attention in the end, whatever they became


class FusionSite:
    """One call of a graph, as a row sees it."""

    def __init__(self, graph: AtenGraph, expressions: Expressions, call: Call, fused: Fused) -> None:
        self.graph = graph
        self.known = expressions
        self.call = call
        self.before: list[Call] = []
        self.instead: dict[AtenValue, AtenValue] = {}  # of values that other calls make, for the outputs of the graph
        self.behind: dict[AtenValue, AtenValue] = {}  # the same for the calls behind this one, and for the outputs
        self.fused = fused

    def write(self, target: str, types: Iterable[TensorType], /, **args: Arg) -> list[AtenValue]:
        """The results of a new call."""
        outputs = [AtenValue(type_) for type_ in types]
        self.before.append(Call(target, args, outputs, self.call.source))
        return list(outputs)

    def constant(self, tensor: torch.Tensor, name: str) -> AtenValue:
        """A constant; the same one for the same tensor."""
        for item in self.known.inputs.values():
            if item.kind == "constant" and item.tensor is tensor:
                return item.value
        made = AtenValue(tensor_type(tensor))
        self.known.inputs[made] = Input(made, name, "constant", tensor)
        return made

    def user_input(self, name: str) -> Input | None:
        """The input of the user with a name."""
        return next((item for item in self.graph.inputs if item.kind == "user" and item.name == name), None)

    def refuse(self, reason: str) -> None:
        """Say why a row does not apply to what it is for."""
        self.fused.reasons.append(f"{self.call.source}: {reason}")


def rewrite(graph: AtenGraph, rows: Sequence[Row], prover: Prover | None = None) -> tuple[AtenGraph, Fused]:
    """`graph` after each of the rows was applied to each call, one after the other, and what they did.

    Raises VerificationError where a prover finds that a row writes something else.
    """
    fused = Fused()
    for row in rows:
        graph = _rewritten_by(graph, row, fused, prover)
    fused.attention = _attention_in(graph)
    return graph, fused


def _rewritten_by(graph: AtenGraph, row: Row, fused: Fused, prover: Prover | None) -> AtenGraph:
    known = Expressions(graph)
    if prover is not None:
        prover.look_at(graph, known)
    instead: dict[AtenValue, AtenValue] = {}
    outputs: dict[AtenValue, AtenValue] = {}
    behind: dict[Call, dict[AtenValue, AtenValue]] = {}  # by the call behind which they count
    calls: list[Call] = []
    passed: dict[AtenValue, AtenValue] = {}

    def current(value: AtenValue) -> AtenValue:
        while value in instead or value in passed:
            value = instead[value] if value in instead else passed[value]
        return value

    for call in graph.calls:
        site = FusionSite(graph, known, call, fused)
        found = None if is_of_numbers(call) else row(site)
        if found is not None:
            name = getattr(row, "__name__", "row")
            fused.counts[name] = fused.counts.get(name, 0) + 1
            if prover is not None:
                _prove(prover, name, site, found)
            calls += site.before
            instead.update(zip(call.outputs, found, strict=True))
            outputs.update(site.instead)
            behind[call] = site.behind
        calls.append(call)
    written: list[Call] = []
    for call in calls:
        written.append(with_values(call, current))
        passed.update(behind.get(call, {}))
    results = [map_values(item, lambda value: current(outputs.get(value, value))) for item in graph.outputs]
    # rows add constants to what is known
    return replace(graph, inputs=list(known.inputs.values()), calls=_used(written, results), outputs=results)


def _prove(prover: Prover, name: str, site: FusionSite, found: Sequence[AtenValue]) -> None:
    pairs = [*zip(site.call.outputs, found, strict=True), *site.instead.items(), *site.behind.items()]
    reason = prover.prove(name, site.call, site.before, pairs)
    if reason is None:
        site.fused.proven[name] = site.fused.proven.get(name, 0) + 1
    else:
        site.fused.unproven.append(reason)


def _used(calls: Sequence[Call], outputs: Sequence[Arg]) -> list[Call]:
    """The calls that the outputs need, so that the next row does not see what this one has replaced."""
    needed = set(values_in(outputs))
    found = []
    for call in reversed(calls):
        if needed.intersection(call.outputs):
            needed.update(call.inputs())
            found.append(call)
    return found[::-1]


def _attention_in(graph: AtenGraph) -> int:
    """How many calls of attention the outputs need; what only gives a size is not computed."""
    needed = set(values_in(graph.outputs))
    count = 0
    for call in reversed(graph.calls):
        if needed.intersection(call.outputs) and call.base != "aten::size":
            needed.update(call.inputs())
            count += call.target in (own.ATTENTION, own.ATTENTION_WITH_PAST, own.GROUP_QUERY_ATTENTION)
    return count


def tensor(value: AtenValue, *shape: Dim | Any) -> TensorType:
    """The type of a tensor with the dtype of `value` and another shape."""
    return TensorType(value.tensor.dtype, tuple(shape))
