"""Numbers that follow from sizes or from data, as Python sees them: what stands behind `torch.SymInt` and its like.

A `Number` has the value of the example, and says how the graph computes it.  A whole number is also a `Size` over the
declared axes and over symbols for what is not known to follow from them.  Calls are put into the graph when an operator
takes the number, so that what Python computes in passing leaves no trace.

torch asks such an object for the methods below by their names (`torch/fx/experimental/sym_node.py`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Protocol

import torch

from proto_schema.sizes import Dim, Size
from proto_schema.sizes.size import less, maximum, minimum
from purexport.aten.graph import Arg

Operands = "tuple[Number | int | float | bool, ...]"


ARGUMENT = "argument"
"""The target of a number that the user gives; its operand is the name."""


class Owner(Protocol):
    """Where numbers come from and are asked: the recorder."""

    def computed(self, target: str, operands: Any, kind: type, example: Any, size: Dim | None) -> Number: ...
    def emitted(self, number: Number) -> Arg: ...
    def answer(self, number: Number, by_python: bool = False) -> bool: ...
    def provable(self, number: Number) -> bool | None: ...
    def require(self, number: Number) -> Any: ...
    def written(self, number: Number) -> Any: ...
    def assume(self, number: Number) -> bool: ...
    def may_be_key(self) -> bool: ...
    def is_asked_by_torch(self) -> bool: ...


class Number:
    """A number of the graph.

    `kind` is `int`, `float` or `bool`, `example` its value at the example.  `size` is that of a whole number.  `origin`
    is the target and the operands of the call that computes it, or a function that emits it.
    """

    __slots__ = ("example", "kind", "origin", "owner", "size", "value")

    def __init__(self, owner: Owner, kind: type, example: Any, size: Dim | None, origin: Any) -> None:
        self.owner = owner
        self.kind = kind
        self.example = example
        self.size = size
        self.origin = origin
        self.value: Arg = None

    @property
    def key(self) -> Any:
        """What is equal for numbers that are computed in the same way."""
        if self.size is not None:
            return self.size
        return (self.kind, self.origin[0], *(_key(item) for item in self.origin[1])) if self.origin else self.example

    @property
    def fixed(self) -> bool:
        """Whether the number is the same for all sizes."""
        return isinstance(self.size, int) or self.origin is None

    # -- what torch asks of a symbolic number

    def is_int(self) -> bool:
        return self.kind is int

    def is_float(self) -> bool:
        return self.kind is float

    def is_bool(self) -> bool:
        return self.kind is bool

    def is_symbolic(self) -> bool:
        return True

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_constant(self) -> bool:
        return self.fixed

    def constant_int(self) -> Any:
        return self.example if self.fixed and self.kind is int else None

    def constant_bool(self) -> Any:
        return self.example if self.fixed and self.kind is bool else None

    def maybe_as_int(self) -> Any:
        return self.constant_int()

    def maybe_as_float(self) -> Any:
        return self.example if self.fixed and self.kind is float else None

    def maybe_as_bool(self) -> Any:
        return self.constant_bool()

    def has_hint(self) -> bool:
        return True

    def require_hint(self, *_: Any) -> Any:
        return self.example

    @property
    def hint(self) -> Any:
        return self.example

    _hint = hint

    @property
    def pytype(self) -> type:
        return self.kind

    @property
    def expr(self) -> Any:
        return self

    _expr = expr
    shape_env = None
    constant = None

    def clone(self) -> Number:
        return self

    def str(self) -> Any:  # the name is torch's
        return repr(self.owner.written(self))

    _graph_repr = graph_repr = str

    def __str__(self) -> str:  # type: ignore[valid-type]
        return text_of(self)

    __repr__ = __str__

    def wrap_int(self, number: int) -> Number:
        return Number(self.owner, int, number, number, None)

    def wrap_float(self, number: float) -> Number:
        return Number(self.owner, float, number, None, None)

    def wrap_bool(self, number: bool) -> Number:
        return Number(self.owner, bool, number, None, None)

    def guard_int(self, *_: Any) -> int:
        return int(self.owner.require(self))

    def guard_float(self, *_: Any) -> float:
        return float(self.owner.require(self))

    def guard_bool(self, *_: Any) -> bool:
        return self.owner.answer(self)

    def int_(self) -> int:
        return self.guard_int()

    def float_(self) -> float:
        return self.guard_float()

    def bool_(self) -> bool:  # Python asks by this, and operators do not
        return self.owner.answer(self, by_python=True)

    def guard_or_false(self, *_: Any) -> bool:
        return self.owner.provable(self) is True

    def guard_or_true(self, *_: Any) -> bool:
        return self.owner.provable(self) is not False

    guard_size_oblivious = guard_or_false
    statically_known_true = guard_or_false

    def expect_true(self, *_: Any) -> bool:
        return self.owner.assume(self)

    def expect_size(self, *_: Any) -> bool:
        return True

    def is_contiguous(self, sizes: Any, strides: Any) -> Number:
        return self.wrap_bool(_is_contiguous(sizes, strides))

    def is_non_overlapping_and_dense(self, sizes: Any, strides: Any) -> Number:
        return self.wrap_bool(_is_contiguous(sizes, strides))

    def is_channels_last_contiguous_2d(self, *_: Any) -> Number:
        return self.wrap_bool(False)

    is_channels_last_contiguous_3d = is_channels_last_contiguous_2d
    is_channels_last_strides_2d = is_channels_last_contiguous_2d
    is_channels_last_strides_3d = is_channels_last_contiguous_2d

    def sym_sum(self, items: Any) -> Number:
        total: Any = items[0]
        for item in items[1:]:
            total = total.add(item)
        found: Number = total
        return found

    def sym_ite(self, one: Any, other: Any) -> Any:
        return one if self.guard_bool() else other

    def sym_int(self) -> Number:
        return self.trunc() if self.kind is float else self  # type: ignore[attr-defined]


def _key(item: Any) -> Any:
    return item.key if isinstance(item, Number) else (type(item), item)


def hash_of(node: Any) -> int | None:
    """The hash of a number, which no number of another capture has where the number may stay one of the graph.

    None for what is no number of ours.
    """
    if not isinstance(node, Number):
        return None
    return hash((id(node.owner), node.key) if node.owner.may_be_key() else node.owner.require(node))


def plain(item: Any) -> Any:
    """The number of the example of a symbolic number; anything else as it is."""
    return item.node.example if isinstance(item, SYMBOLIC) else item


_WRAPPERS: dict[type, Any] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def wrapped(number: Any) -> Any:
    """The number as Python sees it."""
    if not isinstance(number, Number):
        return number
    if number.fixed:
        return number.example
    return _WRAPPERS[number.kind](number)


def _is_contiguous(sizes: Any, strides: Any) -> bool:
    expected = 1
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        if size.example == 1:
            continue
        if stride.example != expected:
            return False
        expected *= size.example
    return True


# Arithmetic -----------------------------------------------------------------------------------------------------------

_SIGNS = {"aten::eq.int": "==", "aten::ne.int": "!=", "aten::lt.int": "<", "aten::le.int": "<="}
_SIGNS |= {"aten::gt.int": ">", "aten::ge.int": ">=", "aten::add.int": "+", "aten::sub.int": "-"}
_SIGNS |= {"aten::mul.int": "*", "aten::div.int": "/", "aten::floordiv.int": "//", "aten::remainder.int": "%"}
_SIGNS |= {"aten::__and__.bool": "and", "aten::__or__.bool": "or"}
_SIGNS |= {"aten::pow.int": "**", "aten::pow.int_to_int": "**"}


def text_of(item: Any) -> str:
    """A number as a person would write it."""
    if not isinstance(item, Number):
        return str(item)
    if item.size is not None:
        return str(item.size)
    if not isinstance(item.origin, tuple):
        return str(item.example) if item.origin is None else "a number of the data"
    target, operands = item.origin
    if target == ARGUMENT:
        return str(operands[0])
    if any(isinstance(one, torch.Tensor) for one in operands):
        return "a number of the data"
    sign = _SIGNS.get(target)
    if sign is not None:
        inner = [f"({text_of(one)})" if " " in text_of(one) else text_of(one) for one in operands]
        return f"{inner[0]} {sign} {inner[1]}"
    return f"{target.partition('::')[2].partition('.')[0]}({', '.join(map(text_of, operands))})"


def _power(base: Dim, exponent: Dim) -> Dim | None:
    if isinstance(exponent, int) and 0 <= exponent <= 8:
        made: Dim = 1
        for _ in range(exponent):
            made = made * base
        return made
    return None


def _floor(one: Dim, other: Dim) -> Dim | None:
    low = other if isinstance(other, int) else other.low
    return one // other if low is not None and low > 0 else None


def _remainder(one: Dim, other: Dim) -> Dim | None:
    low = other if isinstance(other, int) else other.low
    return one % other if low is not None and low > 0 else None


def _whole(number: Number, name: str) -> Dim | None:
    """`ceil`, `floor` or `trunc` of a quotient of a size and a number, as a size.

    A quotient of doubles is a whole number only if the exact one is.
    """
    target, operands = number.origin if isinstance(number.origin, tuple) else ("", ())
    if target != "aten::div.int":
        return None
    one: Dim | None = operands[0].size
    other = operands[1].size
    if one is None or not isinstance(other, int) or other <= 0:
        return None
    if name == "ceil":
        return -(-one // other)
    return one // other if name == "floor" or less(one, 0) is False else None


# method: target, function of numbers, function of sizes, kind of the result (None: that of the operands)
_BINARY: dict[str, tuple[str, Callable[..., Any], Callable[..., Any] | None, type | None]] = {
    "add": ("aten::add.int", operator.add, operator.add, None),
    "sub": ("aten::sub.int", operator.sub, operator.sub, None),
    "mul": ("aten::mul.int", operator.mul, operator.mul, None),
    "floordiv": ("aten::floordiv.int", operator.floordiv, _floor, None),
    "int_floordiv": ("aten::floordiv.int", operator.floordiv, _floor, int),
    "mod": ("aten::remainder.int", operator.mod, _remainder, None),
    "truediv": ("aten::div.int", operator.truediv, None, float),
    "int_truediv": ("aten::div.int", operator.truediv, None, float),
    "float_truediv": ("aten::div.int", operator.truediv, None, float),
    "pow": ("aten::pow.int_to_int", operator.pow, _power, None),
    "pow_by_natural": ("aten::pow.int_to_int", operator.pow, _power, int),
    "float_pow": ("aten::pow.int", operator.pow, None, float),
    "sym_min": ("prim::min.int", min, minimum, None),
    "sym_max": ("prim::max.int", max, maximum, None),
    "eq": ("aten::eq.int", operator.eq, None, bool),
    "ne": ("aten::ne.int", operator.ne, None, bool),
    "lt": ("aten::lt.int", operator.lt, None, bool),
    "le": ("aten::le.int", operator.le, None, bool),
    "gt": ("aten::gt.int", operator.gt, None, bool),
    "ge": ("aten::ge.int", operator.ge, None, bool),
    "and_": ("aten::__and__.bool", operator.and_, None, bool),
    "or_": ("aten::__or__.bool", operator.or_, None, bool),
    "sym_and": ("aten::__and__.bool", operator.and_, None, bool),
    "sym_or": ("aten::__or__.bool", operator.or_, None, bool),
}
_UNARY: dict[str, tuple[str, Callable[..., Any], Callable[..., Any] | None, type | None]] = {
    "neg": ("aten::neg.int", operator.neg, operator.neg, None),
    "abs": ("prim::abs.int", abs, None, None),
    "sym_not": ("aten::__not__", operator.not_, None, bool),
    "trunc": ("aten::Int.Scalar", math.trunc, lambda size: size, int),
    "floor": ("aten::floor.float", math.floor, lambda size: size, int),
    "ceil": ("aten::ceil.float", math.ceil, lambda size: size, int),
    "sym_float": ("aten::Float.Scalar", float, None, float),
    "sqrt": ("aten::sqrt.float", math.sqrt, None, float),
    "exp": ("aten::exp.float", math.exp, None, float),
    "log": ("aten::log.float", math.log, None, float),
    "fabs": ("aten::fabs.float", math.fabs, None, float),
    "sym_sqrt": ("aten::sqrt.float", math.sqrt, None, float),
}


_TO_WHOLE = {"aten::Int.Scalar": "trunc", "aten::floor.float": "floor", "aten::ceil.float": "ceil"}


def _define(name: str, target: str, function: Any, of_sizes: Any, kind: type | None) -> None:
    def method(self: Number, *others: Number) -> Number:
        operands = (self, *others)
        example = function(*(item.example for item in operands))
        size: Dim | None = None
        chosen = target
        if target == "aten::pow.int_to_int" and not isinstance(example, int):
            chosen = "aten::pow.int"  # of a float, and of a negative exponent
        made = float if isinstance(example, float) else kind or int
        if of_sizes is not None and made is int and all(item.size is not None for item in operands):
            size = of_sizes(*(item.size for item in operands))
        elif target in _TO_WHOLE and self.kind is float:
            size = _whole(self, _TO_WHOLE[target])
        return self.owner.computed(chosen, operands, made, example, size)

    setattr(Number, name, method)


for _name, _row in (*_BINARY.items(), *_UNARY.items()):
    _define(_name, *_row)


def _rounded(self: Number, digits: Any = None) -> Number:
    """Python's `round` gives an integer where ATen's gives a float; both round ties to the even number."""
    if digits is not None:
        return self.owner.computed("python::round", (self, digits), float, round(self.example, int(digits)), None)
    if self.kind is int:
        return self
    inner = self.owner.computed("aten::round.float", (self,), float, float(round(self.example)), None)
    return self.owner.computed("aten::Int.Scalar", (inner,), int, round(self.example), None)


Number.round = _rounded  # type: ignore[attr-defined]

__all__ = ["ARGUMENT", "SYMBOLIC", "Number", "Size", "hash_of", "plain", "text_of", "wrapped"]
