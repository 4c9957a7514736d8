"""torch's symbolic sizes in the neutral graph: expressions of the names of the axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from purexport.aten.graph import Dim, ListType, ScalarType, TensorType, Type


class Symbols:
    """Names of the program's symbolic sizes: those that the user declared, else torch's own.

    `sizes` says which symbols are expressions of others.  `labels` names whole expressions.
    """

    def __init__(
        self, names: Mapping[str, str], sizes: Mapping[Any, Any] | None = None, labels: Mapping[Any, str] | None = None
    ) -> None:
        self.names = names
        self.sizes = sizes or {}
        self.texts: dict[Any, str] = dict(labels or {})
        self.renamed: dict[Any, Any] = {}

    def expression(self, size: Any) -> Any:
        """The expression of a symbolic size."""
        expression = size.node.expr
        return expression.xreplace(self.sizes) if self.sizes else expression

    def dim(self, size: Any) -> Dim:
        """A size as the neutral graph writes it."""
        if isinstance(size, int):
            return size
        expression = self.expression(size)
        if expression.is_Integer:
            return int(expression)
        return self.text(expression)

    def text(self, size: Any) -> str:
        """The text of an expression with the names of its symbols; the terms are sorted by these names."""
        found = self.texts.get(size)
        if found is None:
            expression = without_decided(size)
            named = {symbol: self._renamed(symbol) for symbol in expression.free_symbols}
            found = self.texts[size] = str(expression.xreplace(named))
        return found

    def _renamed(self, symbol: Any) -> Any:
        if symbol not in self.renamed:
            name = self.names.get(str(symbol))
            same = name is None
            self.renamed[symbol] = symbol if same else type(symbol)(name, **symbol.assumptions0)
        return self.renamed[symbol]

    def type(self, value: Any) -> Type:
        """The type of `value`, which torch.export recorded for a node or a fake tensor run returned."""
        if isinstance(value, torch.Tensor):
            return TensorType(value.dtype, tuple(map(self.dim, value.shape)), _strides(value))
        if isinstance(value, (bool, torch.SymBool)):
            return ScalarType(bool)
        if isinstance(value, (int, torch.SymInt)):
            return ScalarType(int)
        if isinstance(value, (float, torch.SymFloat)):
            return ScalarType(float)
        return ListType()


def without_decided(expression: Any) -> Any:
    """An expression without the minima and maxima of which one operand is known to be the result.

    No size is negative, so `Min(a, a + b)` is `a`, and `Min(a, a//2)` is `a//2`.
    """
    from torch.utils._sympy.functions import Max, Min  # it loads sympy, which a trace with static sizes does not need

    if not expression.has(Min, Max):
        return expression
    inner = expression.func(*map(without_decided, expression.args))
    if not isinstance(inner, (Min, Max)):
        return inner
    sign = 1 if isinstance(inner, Min) else -1
    kept = list(inner.args)
    for one, other in itertools.permutations(inner.args, 2):
        if one in kept and other in kept and _is_no_less(sign * one, sign * other):
            kept.remove(one)
    return inner.func(*kept)


def _is_no_less(one: Any, other: Any) -> bool:
    """Whether `one` is known to be no less than `other`, where all symbols are sizes."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    least: Any = 0  # of the difference: x//k lies between 0 and x
    for term, factor in (one - other).expand().as_coefficients_dict().items():
        if isinstance(term, FloorDiv) and term.args[1].is_positive:
            least += 0 if factor > 0 else term.args[0] * factor
        else:
            least += term * factor
    terms = sympy.expand(least).as_coefficients_dict()
    return all(factor >= 0 and (term == 1 or term.is_Symbol) for term, factor in terms.items())


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    strides = tensor.stride() if tensor.layout == torch.strided else ()
    return tuple(strides) if all(type(stride) is int for stride in strides) else None
