"""torch's symbolic sizes in the neutral graph: expressions of the names of the axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from purexport.aten.graph import Dim, ListType, ScalarType, TensorType, Type


class Symbols:
    """Names of the program's symbolic sizes: those that the user declared, else torch's own."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.texts: dict[Any, str] = {}

    def dim(self, size: Any) -> Dim:
        """A size as the neutral graph writes it."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        return self.text(expression)

    def text(self, expression: Any) -> str:
        """The text of an expression with the names of its symbols; the terms are sorted by these names."""
        found = self.texts.get(expression)
        if found is None:
            named = {
                symbol: type(symbol)(self.names[str(symbol)], **symbol.assumptions0)
                for symbol in expression.free_symbols
                if str(symbol) in self.names
            }
            found = self.texts[expression] = str(expression.xreplace(named))
        return found

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


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    strides = tensor.stride() if tensor.layout == torch.strided else ()
    return tuple(strides) if all(type(stride) is int for stride in strides) else None
