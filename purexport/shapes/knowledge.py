"""What torch knows of symbolic sizes by now, so that what is learnt on one path can be forgotten on the others.

torch's `ShapeEnv` learns while shape functions run: that two sizes are equal, that a size is a number, in which range
it is.  It keeps that for good.  Of a body that may not run, only the numbers are kept: a size that was read as a number
is a constant of the file, on whatever path, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols


@dataclass(frozen=True)
class Known:
    """What is known of sizes: which are equal to others, their ranges, what divides them, and what was assumed."""

    equal: Mapping[Any, Any]
    ranges: Mapping[Any, Any]
    divisible: AbstractSet[Any]
    axioms: Mapping[Any, Any]
    guards: Sequence[Any]
    asserts: Mapping[Any, Sequence[Any]]


class Knowledge:
    """The part of a `ShapeEnv` that grows with what is learnt."""

    def __init__(self, env: ShapeEnv) -> None:
        self.env = env

    def now(self) -> Known:
        """What is known now."""
        env = self.env
        asserts = {size: tuple(held) for size, held in env.deferred_runtime_asserts.items()}
        return Known(
            dict(env.replacements),
            dict(env.var_to_range),
            set(env.divisible),
            dict(env.axioms),
            tuple(env.guards),
            asserts,
        )

    def assume(self, condition: Any, holds: bool) -> None:
        """Take two sizes for one where a condition that compares them says so; others say nothing here."""
        if not isinstance(condition, torch.SymBool):
            return
        relation = condition.node.expr
        if type(relation).__name__ != ("Equality" if holds else "Unequality"):
            return
        one, other = relation.args
        for size, same in ((one, other), (other, one)):
            unknown = free_unbacked_symbols(same) and not free_unbacked_symbols(size)
            if size.is_Symbol and size not in same.free_symbols and not unknown:
                self.equate(size, same)
                return

    def equate(self, symbol: Any, size: Any) -> None:
        """Take a symbol for a size from now on."""
        self.env.replacements[symbol] = size
        self._changed()

    def leave(self, before: Known, assumed: Known) -> Known:
        """Forget what was learnt since `before`, but for sizes that became numbers; returns what was known.

        `assumed` is what was known when the body began, which says more than `before` what its condition says.
        """
        learnt = self.now()
        numbers = {
            size: number
            for size, number in learnt.equal.items()
            if number.is_Integer and assumed.equal.get(size) != number
        }
        new = {size: same for size, same in learnt.equal.items() if size not in before.ranges}
        equal = {**new, **before.equal, **numbers}
        ranges, asserts = {**learnt.ranges, **before.ranges}, {**learnt.asserts, **before.asserts}
        self.take(replace(before, equal=equal, ranges=ranges, asserts=asserts))
        return learnt

    def take(self, known: Known) -> None:
        """Know this, and no more."""
        env = self.env
        for held, wanted in (
            (env.replacements, known.equal),
            (env.var_to_range, known.ranges),
            (env.axioms, known.axioms),
            (env.deferred_runtime_asserts, {size: list(items) for size, items in known.asserts.items()}),
        ):
            held.clear()
            held.update(wanted)
        env.divisible.clear()
        env.divisible.update(known.divisible)
        env.guards[:] = known.guards
        self._changed()

    def _changed(self) -> None:
        """Tell torch's caches that what is known of sizes is not what it was."""
        env = self.env
        env._version_counter += 1
        if hasattr(env, "_replacements_version_counter"):  # not all versions of torch have it
            env._replacements_version_counter += 1
        for name in ("evaluate_expr", "_inner_evaluate_expr"):  # where it has its cache, by the version of torch
            clear = getattr(getattr(ShapeEnv, name, None), "cache_clear", None)
            if clear is not None:
                clear()
