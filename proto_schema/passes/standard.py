"""The passes that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proto_schema.budget import BudgetLike
from proto_schema.ir import Model, from_message
from proto_schema.passes.base import Pass
from proto_schema.simplification.engine import FOLDED_BYTES, STEPS, reduced
from proto_schema.simplification.unused import remove_uncalled, remove_unused


class CommonSubexpressionElimination(Pass):
    """One node for nodes of the graph that compute the same: `equal`.

    Nodes that draw random numbers, have bodies or make outputs of the graph stay.
    """

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place."""
        return reduced(model, {"equal"})


class DeadCodeElimination(Pass):
    """Removes nodes and constants that nobody reads (`unused`), in bodies, too, and functions that nobody calls."""

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place."""
        owners = (model.graph, *model.functions)
        nodes = sum(remove_unused(graph) for owner in owners for graph in reversed(list(owner.nested())))
        functions = remove_uncalled(model)
        return {"unused": nodes, "unused functions": functions}


class ConstantFolding(Pass):
    """Computes what follows from constants, and from sizes that are known: `folded`, `constants`.

    Tensors of more than `fold_bytes` bytes are neither read nor made. `budget` is for all of it together.
    """

    def __init__(self, *, fold_bytes: int = FOLDED_BYTES, budget: BudgetLike = None) -> None:
        self.fold_bytes = fold_bytes
        self.budget = budget

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place."""
        return reduced(model, {"fold", "unused"}, fold_bytes=self.fold_bytes, budget=self.budget)


class Simplify(Pass):
    """All that `ps.simplify` does."""

    def __init__(self, *, fold_bytes: int = FOLDED_BYTES, budget: BudgetLike = None) -> None:
        self.fold_bytes = fold_bytes
        self.budget = budget

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place."""
        return reduced(model, STEPS, fold_bytes=self.fold_bytes, budget=self.budget)


class Inline(Pass):
    """Functions of the model become part of its graph (`inlined`), as of `ps.inliner.inline_local_functions`."""

    def __init__(self, *, convert_version: bool = False) -> None:
        self.convert_version = convert_version

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place: it gets another graph. Raises CheckError for functions that call themselves."""
        from proto_schema.inliner import inline_local_functions

        before = len(model.functions)
        if not before:
            return {}
        made = from_message(inline_local_functions(model.to_message(), self.convert_version))
        model.graph, model.functions = made.graph, made.functions
        model.message, model.opsets = made.message, made.opsets
        return {"inlined": before - len(model.functions)}


class Rewrite(Pass):
    """Rules of `ps.rewrite`, by their names."""

    def __init__(self, rules: Iterable[Any]) -> None:
        self.rules = tuple(rules)

    def change(self, model: Model) -> Mapping[str, int]:
        """Change a model in place. Raises what `ps.rewrite.apply` raises."""
        from proto_schema.rewrite import apply

        return apply(model, self.rules)
