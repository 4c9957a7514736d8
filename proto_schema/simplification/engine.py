"""The rounds over the nodes of a graph, and the model that comes of them."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proto_schema import operators
from proto_schema.budget import FOLDING, BudgetLike, budget_of
from proto_schema.collection import paused_collection
from proto_schema.graphs.names import as_text, free_names
from proto_schema.graphs.order import check_order
from proto_schema.helper import make_node
from proto_schema.onnx import ModelProto, NodeProto
from proto_schema.simplification.branches import spliced
from proto_schema.simplification.draft import Draft
from proto_schema.simplification.folding import RANDOM, folded
from proto_schema.simplification.merging import merged
from proto_schema.simplification.proof import proven
from proto_schema.simplification.rewrites import REWRITES

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
    if isinstance(model, (str, os.PathLike)):
        from proto_schema.files import load

        given = load(model)
    else:
        given = model if isinstance(model, ModelProto) else ModelProto.FromString(model)
    if fold_bytes < 0:
        raise ValueError(f"fold_bytes={fold_bytes} must be 0 or more")
    if given.graph is not None:
        check_order(given.graph)
    done: Counter[str] = Counter()
    made, spent = given, budget_of(budget, max(FOLDING, 64 * fold_bytes)).fresh()
    with paused_collection():
        for _ in range(_ROUNDS):
            before = done.total()
            draft = Draft(made, fold_bytes, spent)
            branches = spliced(draft)
            if branches:  # what is known of the graph is found anew
                done["branches"] += branches
                made = draft.model
                continue
            made = _Round(draft, done).run()
            if done.total() == before:
                break
    if prove:
        proven(given, made, prove, budget)
    return Simplified(made, dict(done))


class _Round:
    """One walk over the nodes, from the first to the last, and what it leaves behind."""

    def __init__(self, draft: Draft, done: Counter[str]) -> None:
        self.draft = draft
        self.done = done
        self.kept: list[NodeProto] = []
        self.known: dict[Hashable, NodeProto] = {}
        self.gone: set[int] = set()  # of nodes that are part of another one now
        self.named: dict[str, str] = {}  # values that became outputs, with the names of these

    def run(self) -> ModelProto:
        for node in self.draft.graph.node:
            self._visit(self._renamed(node))
        self.kept = [self._with_names(node) for node in self.kept if id(node) not in self.gone]
        self._without_unused()
        graph = self.draft.graph
        graph.node = self.kept
        live = {name for node in self.kept for name in free_names(node)} | self.draft.outputs
        inputs = {item.name or "" for item in graph.input}
        fixed = [item for item in graph.initializer if item.name in inputs]
        constants = {name: item for name, item in self.draft.constants.items() if name in live}
        if (self.draft.model.ir_version or 0) < _TENSORS_ALONE:
            new = [name for name in constants if name not in self.draft.given]
            nodes = [make_node("Constant", [], [name], value=constants.pop(name)) for name in new]
            graph.node = self.kept = [*nodes, *self.kept]
        graph.initializer = [*fixed, *constants.values()]
        made = {name for node in self.kept for name in node.output}
        graph.value_info = [item for item in graph.value_info if item.name in made]
        return self.draft.model

    def _with_names(self, node: NodeProto) -> NodeProto:
        """The node with its inputs as they have become, and with outputs of the graph instead of what became one."""
        node = self._renamed(node)
        if not self.named.keys().isdisjoint(node.output):
            node = copy.copy(node)
            node.output = [self.named.get(name, name) for name in node.output]
        return node

    def _renamed(self, node: NodeProto) -> NodeProto:
        """The node with its inputs as they have become. Bodies take only what keeps its name."""
        names = [self.draft.now(name) for name in node.input]
        if names != node.input:
            node = copy.copy(node)
            node.input = names
        return node

    def _visit(self, node: NodeProto) -> None:
        draft = self.draft
        if not draft.fits(node):
            self._keep(node)
            return
        results = folded(draft, node)
        if results is None:
            results = self._known_content(node)
        if results is not None and self._made_constant(node, results):
            draft.drop(node)
            return
        if self._rewritten(node):
            return
        made = merged(draft, node)
        if made is not None:
            self.done["merged"] += 1
            self._leave(draft.makers[node.input[0]])
            draft.drop(node)
            draft.take(made)
            node = made
        first = self._equal(node)
        if first is not None:
            self.done["equal"] += 1
            draft.drop(node)
            for mine, other in zip(node.output, first.output, strict=True):
                draft.replace(mine, other)
            return
        self._keep(node)

    def _leave(self, node: NodeProto) -> None:
        """Take a node out that was kept: another one does its work, and no later node may be equal to it."""
        self.gone.add(id(node))
        self.draft.drop(node)
        for name in node.output:
            self.draft.makers.pop(name, None)

    def _keep(self, node: NodeProto) -> None:
        self.kept.append(node)
        for name in node.output:
            if name:
                self.draft.makers[name] = node

    def _known_content(self, node: NodeProto) -> dict[str, Any] | None:
        """What inference knows of the results, as of the Shape of a tensor with static sizes."""
        if node.domain or node.op_type in RANDOM or any(item.g is not None for item in node.attribute):
            return None
        found = {name: self.draft.array(name) for name in node.output if name}
        return None if not found or any(array is None for array in found.values()) else found

    def _made_constant(self, node: NodeProto, results: Mapping[str, Any]) -> bool:
        """Tensors of the file instead of a node; a Constant for an output, which a node must make."""
        if node.op_type == "Constant" and not self.draft.outputs.isdisjoint(node.output):
            return False
        constant = node.op_type == "Constant" and not node.domain
        old = constant and (self.draft.model.ir_version or 0) < _TENSORS_ALONE
        self.done["constants" if constant else "folded"] += not old  # which becomes a Constant again
        for name, array in results.items():
            if name in self.draft.outputs:
                self.draft.set_constant(name, array)
                value = self.draft.constants.pop(name)
                self.kept.append(make_node("Constant", [], [name], name=node.name or None, value=value))
            else:
                self.draft.set_constant(name, array)
        return True

    def _rewritten(self, node: NodeProto) -> bool:
        draft = self.draft
        row = REWRITES.get(node.op_type or "") if not node.domain and node.input and node.input[0] else None
        if row is None or (node.domain or "", node.op_type or "", node.overload or "") in draft.functions:
            return False
        found = row(draft, node)
        if found is None:
            return False
        if isinstance(found, NodeProto):
            self.done["cancelled"] += 1
            draft.drop(node)
            draft.take(found)
            self._keep(found)
            return True
        found, result = draft.now(found), node.output[0]
        plain = node.op_type in ("Identity", "Dropout")  # whose results have the type of their input by definition
        if not plain and not draft.same_type(found, result):
            return False
        if draft.may_go(result):
            draft.drop(node)
            draft.replace(result, found)
        elif self._takes_name(found, result):
            draft.drop(node)
            draft.replace(found, result)
        else:
            return False
        self.done["identities"] += 1
        return True

    def _takes_name(self, found: str, result: str) -> bool:
        """Let the node that makes `found` make the output `result` instead, if nothing else asks for `found`."""
        maker = self.draft.makers.get(found)
        if maker is None or result in self.draft.captured or not self.draft.may_go(found):
            return False
        self.named[found] = result
        self.draft.makers[result] = maker
        return True

    def _equal(self, node: NodeProto) -> NodeProto | None:
        """An earlier node that computes the same."""
        draft = self.draft
        if node.domain or node.op_type in RANDOM or not all(draft.may_go(name) for name in node.output if name):
            return None
        if any(item.g is not None or item.ref_attr_name for item in node.attribute) or not all(node.output):
            return None
        if operators.schema(node.op_type or "", draft.opset) is None:
            return None
        attributes = tuple(sorted((as_text(item.name), item.SerializeToString()) for item in node.attribute))
        key = (node.op_type, tuple(node.input), len(node.output), attributes)
        first = self.known.setdefault(key, node)
        if id(first) in self.gone:
            first = self.known[key] = node
        return None if first is node else first

    def _without_unused(self) -> None:
        live = set(self.draft.outputs)
        kept = []
        for node in reversed(self.kept):
            if live.isdisjoint(node.output):
                self.done["unused"] += 1
                continue
            live.update(free_names(node))
            kept.append(node)
        self.kept = kept[::-1]
