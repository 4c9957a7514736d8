"""torch's symbolic sizes in the neutral graph: sizes over the names of the axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

import proto_schema as ps
from proto_schema.sizes import Dim as Known
from proto_schema.sizes import maximum, minimum
from purexport.aten.graph import Dim, ListType, ScalarType, TensorType, Type

_HIGHEST = 16  # a power


class Symbols:
    """Names of the program's symbolic sizes: those that the user declared, else torch's own.

    `sizes` says which symbols are expressions of others.  `labels` names whole expressions.
    """

    def __init__(
        self, names: Mapping[str, str], sizes: Mapping[Any, Any] | None = None, labels: Mapping[Any, str] | None = None
    ) -> None:
        self.names = names
        self.sizes = sizes or {}
        self.known: dict[Any, Known] = {key: ps.Size.symbol(label) for key, label in (labels or {}).items()}

    def expression(self, size: Any) -> Any:
        """The expression of a symbolic size."""
        expression = size.node.expr
        return expression.xreplace(self.sizes) if self.sizes else expression

    def dim(self, size: Any) -> Dim:
        """A size as the neutral graph writes it."""
        return size if isinstance(size, int) else self.size(self.expression(size))

    def text(self, expression: Any) -> str:
        """A sympy expression in the names of its symbols."""
        names = {
            item: type(item)(self.names[str(item)], **item.assumptions0)
            for item in expression.free_symbols
            if str(item) in self.names
        }
        return str(expression.xreplace(names))

    def size(self, expression: Any) -> Known:
        """What a sympy expression says, in the names of its symbols.

        What is no expression of sizes becomes one symbol, whose name is torch's text.
        """
        found = self.known.get(expression)
        if found is None:
            found = self.known[expression] = self._read(expression)
        return found

    def _read(self, expression: Any) -> Known:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            name = str(expression)
            return ps.Size.symbol(self.names.get(name, name))
        function = _FUNCTIONS.get(type(expression).__name__)
        if function is not None:
            return function(*map(self.size, expression.args))
        if expression.is_Pow and expression.exp.is_Integer and 0 < int(expression.exp) <= _HIGHEST:
            return reduce(_times, [self.size(expression.base)] * int(expression.exp))
        return ps.Size.symbol(str(expression))

    def type(self, value: Any) -> Type:
        """The type of `value`, which torch.export recorded for a node or a fake tensor run returned."""
        if isinstance(value, torch.Tensor):
            return TensorType(value.dtype, tuple(map(self.dim, value.shape)), self._strides(value))
        if isinstance(value, (bool, torch.SymBool)):
            return ScalarType(bool)
        if isinstance(value, (int, torch.SymInt)):
            return ScalarType(int)
        if isinstance(value, (float, torch.SymFloat)):
            return ScalarType(float)
        return ListType(len(value) if isinstance(value, (list, tuple)) else None)

    def _strides(self, tensor: torch.Tensor) -> tuple[Dim, ...]:
        return tuple(map(self.dim, tensor.stride())) if tensor.layout == torch.strided else ()


def _plus(one: Known, other: Known) -> Known:
    return one + other


def _times(one: Known, other: Known) -> Known:
    return one * other


def _over(one: Known, other: Known) -> Known:
    return one // other


def _rest(one: Known, other: Known) -> Known:
    return one % other


# by the names of sympy's classes and of torch's, which this module does not import
_FUNCTIONS: Mapping[str, Callable[..., Known]] = {
    "Add": lambda *items: reduce(_plus, items),
    "Mul": lambda *items: reduce(_times, items),
    "FloorDiv": _over,
    "CleanDiv": _over,
    "CeilDiv": lambda one, other: -(-one // other),
    "Mod": _rest,
    "PythonMod": _rest,
    "Max": maximum,
    "Min": minimum,
}
