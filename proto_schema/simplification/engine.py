"""The rounds over the nodes of a graph, and the model that comes of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.budget import FOLDING, BudgetLike, budget_of
from proto_schema.graphs.order import check_order
from proto_schema.ir import Builder, Model, Node, Value, from_message
from proto_schema.ir.opened import message_of
from proto_schema.numpy_helper import from_array
from proto_schema.onnx import ModelProto
from proto_schema.rewrite import Rewriter
from proto_schema.rewrite.proof import proven
from proto_schema.simplification.branches import spliced
from proto_schema.simplification.equal import Equal
from proto_schema.simplification.folding import folded
from proto_schema.simplification.known import Known
from proto_schema.simplification.merging import merged
from proto_schema.simplification.rules import RULES
from proto_schema.simplification.unused import remove_unused
from proto_schema.wire.collection import paused_collection

FOLDED_BYTES = 1 << 20
_TENSORS_ALONE = 4  # the IR version since which a tensor of the file need not be an input, too
_ROUNDS = 20  # each but the last takes something out


@dataclass(frozen=True)
class Simplified:
    """A simplified model, and how often each thing was done: `folded`, `unused`, `equal`, `merged`, ..."""

    model: ModelProto
    done: Mapping[str, int] = field(default_factory=dict)


def simplify(
    model: ModelProto | bytes | str | os.PathLike[str],
    *,
    fold_bytes: int = FOLDED_BYTES,
    prove: int | Sequence[Mapping[str, Any]] = 0,
    budget: BudgetLike = None,
) -> ModelProto:
    """A model with fewer nodes that computes the same; `model` is a message, which stays as it is, bytes or a path.

    Tensors of more than `fold_bytes` bytes (default: 1 MiB) are neither read nor made, so that weights of any size
    stay where they are; a weight into which a normalization merges is read when the model is written. `budget` is what
    all folding together may take (default: 128 MiB, some seconds); a node past it stays. `prove` runs both models by
    `proto_schema.reference`: on so many random inputs, or on these. Each of these runs may take as much as the budget,
    too (default: 16 GiB, as for any run).
    Raises CheckError for a graph whose nodes are out of order or make a value twice, ProofError where the results
    differ, and what `load` raises.
    """
    return simplified(model, fold_bytes=fold_bytes, prove=prove, budget=budget).model


def simplified(
    model: ModelProto | bytes | str | os.PathLike[str],
    *,
    fold_bytes: int = FOLDED_BYTES,
    prove: int | Sequence[Mapping[str, Any]] = 0,
    budget: BudgetLike = None,
) -> Simplified:
    """The same, with the counts of what was done."""
    given = message_of(model)
    if given.graph is not None:
        check_order(given.graph)
    work = from_message(given)
    done = reduced(work, fold_bytes=fold_bytes, budget=budget)
    made = work.to_message()
    if prove:
        proven(given, made, prove, budget)
    return Simplified(made, done)


STEPS = frozenset({"branches", "fold", "rewrite", "merge", "equal", "unused"})


def reduced(
    model: Model, steps: Set[str] = STEPS, *, fold_bytes: int = FOLDED_BYTES, budget: BudgetLike = None
) -> dict[str, int]:
    """Change a model in place by these steps until they change nothing; how often each thing was done."""
    if fold_bytes < 0:
        raise ValueError(f"fold_bytes={fold_bytes} must be 0 or more")
    done: Counter[str] = Counter()
    spent = budget_of(budget, max(FOLDING, 64 * fold_bytes)).fresh()
    held = set(model.graph.initializers)
    with paused_collection():
        for _ in range(_ROUNDS):
            before = done.total()
            known = Known(model, fold_bytes, spent)
            branches = spliced(known) if "branches" in steps else 0
            if branches:  # what is known of the graph is found anew
                done["branches"] += branches
                continue
            _Round(known, done, steps).run()
            if done.total() == before:
                break
        if (model.message.ir_version or 0) < _TENSORS_ALONE:
            _make_nodes(model, [value for value in model.graph.initializers if value not in held])
    return dict(done)


def _make_nodes(model: Model, constants: Sequence[Value]) -> None:
    """Constant nodes, before all others, instead of tensors of the file."""
    graph = model.graph
    write = Builder(graph, model.opsets).after(None)
    for value in constants:
        write.Constant(value=value.tensor).stand_for(value)
        graph.remove_initializer(value)


class _Round:
    """One walk over the nodes, from the first to the last, and what it leaves behind."""

    def __init__(self, known: Known, done: Counter[str], steps: Set[str]) -> None:
        self.known = known
        self.graph = known.graph
        self.done = done
        self.steps = steps
        self.equal = Equal(known)
        self.rewriter = Rewriter(RULES, known.model.opsets, known.functions, known.array)

    def run(self) -> None:
        for node in self.graph.nodes:
            self._visit(node)
        if "unused" in self.steps:
            self.done["unused"] += remove_unused(self.graph)

    def _visit(self, node: Node) -> None:
        known, steps = self.known, self.steps
        if not known.fits(node):
            return
        if "fold" in steps:
            results = folded(known, node)
            if results is None:
                results = self._known_content(node)
            if results is not None and self._made_constant(node, results):
                return
        if "rewrite" in steps and self._rewritten(node):
            return
        made = merged(known, node) if "merge" in steps else None
        if made is not None:
            self.done["merged"] += 1
            self._stand_for(made.output, node)
            node = made
        if "equal" in steps and self.equal.merged(node):
            self.done["equal"] += 1

    def _stand_for(self, value: Value, node: Node) -> None:
        """Let a value be the result of a node, which goes."""
        result = node.output
        value.stand_for(result)
        if result in self.known.outputs:
            self.known.outputs.remove(result)
            self.known.outputs.add(value)
        self.graph.nodes.remove(node)

    def _known_content(self, node: Node) -> dict[Value, Any] | None:
        """What inference knows of the results, as of the Shape of a tensor with static sizes."""
        if node.domain or node.op_type in operators.RANDOM or node.bodies:
            return None
        found = {value: self.known.array(value) for value in node.outputs if value is not None}
        return None if not found or any(array is None for array in found.values()) else found

    def _made_constant(self, node: Node, results: Mapping[Value, Any]) -> bool:
        """Tensors of the file instead of a node; a Constant for an output, which a node must make."""
        known, graph = self.known, self.graph
        if node.op_type == "Constant" and not known.outputs.isdisjoint(results):
            return False
        constant = node.op_type == "Constant" and not node.domain
        old = constant and (known.model.message.ir_version or 0) < _TENSORS_ALONE
        self.done["constants" if constant else "folded"] += not old  # which becomes a Constant again
        for value, array in results.items():
            tensor = from_array(np.ascontiguousarray(array).reshape(array.shape), value.name)
            if value in known.outputs:
                made = known.builder.before(node).Constant(value=tensor, name=node.name)
                made.stand_for(value)
                known.outputs.add(made)
            else:
                made = graph.add_initializer(tensor, value.name)
                value.replace_uses(made)
            known.hold(made, array)
        graph.nodes.remove(node)
        return True

    def _rewritten(self, node: Node) -> bool:
        """Whether a rule took the node out, or made it another one with the same result."""
        if not node.outputs:
            return False
        is_output = node.outputs[0] in self.known.outputs
        if self.rewriter.visit(node) is None:
            return False
        if is_output:
            self.known.outputs = set(self.graph.outputs)
        self.done["cancelled" if self.rewriter.written else "identities"] += 1
        return True
