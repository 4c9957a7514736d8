"""Arithmetic on Python numbers inside a graph: sizes, indices, scale factors.

One table from ATen name to Python function serves scripts (on symbolic integers) and the lowering
(on known integers).  `aten::mul.int` and `aten::mul.Tensor` mean the same when every operand is a number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from purexport.aten.names import base_of, without_underscore


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + b if alpha == 1 else a + alpha * b


def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - b if alpha == 1 else a - alpha * b


def _rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _sub(b, a, alpha)


def _div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc":
        return a // b if (a >= 0) == (b > 0) else -(-a // b)
    return a / b


def _not(a: Any) -> Any:
    # Python's `not` would force a symbolic condition to True or False
    return a.__sym_not__() if hasattr(a, "__sym_not__") else not a


def _int(a: Any) -> int:
    # Python's `int` would force a symbolic number to the example's
    return math.trunc(a) if hasattr(a, "__sym_float__") else int(a)


def _bool(a: Any) -> Any:
    # and so would `bool`
    if hasattr(a, "__sym_not__"):
        return a
    return a != 0 if hasattr(a, "__sym_float__") else bool(a)


_SCALARS: dict[str, Callable[..., Any]] = {
    "aten::add": _add,
    "aten::sub": _sub,
    "aten::rsub": _rsub,
    "aten::mul": operator.mul,
    "aten::div": _div,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::pow": operator.pow,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__not__": _not,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::trunc": math.trunc,
    "aten::round": round,
    "aten::Int": _int,
    "aten::Float": float,
    "aten::Bool": _bool,
    "aten::ScalarImplicit": lambda a: a,
    "aten::IntImplicit": int,
    "aten::FloatImplicit": float,
    "prim::abs": abs,
    "prim::max": max,
    "prim::min": min,
}


def is_scalar_operator(base: str) -> bool:
    """True when `base` (without its overload) has a meaning on plain numbers."""
    return base in _SCALARS


def function_of(base: str) -> Callable[..., Any]:
    """What `base` computes of numbers, taken by position.  Raises KeyError where it has no meaning on numbers."""
    return _SCALARS[base]


def without_write(target: str) -> str:
    """`aten::add.Tensor` of `aten::add_.Tensor`: on numbers the result is a new number, and nothing is written.

    A trace records `count += n` of two sizes as an in-place operator, because sizes are tensors there.
    """
    plain = without_underscore(target)
    return plain if is_scalar_operator(base_of(plain)) else target


def evaluate(base: str, args: Mapping[str, Any]) -> Any:
    """The result on numbers.  Raises KeyError for an operator that has no meaning on numbers."""
    named = {name: value for name, value in args.items() if name in ("alpha", "rounding_mode")}
    operands = [value for name, value in args.items() if name not in named]
    return _SCALARS[base](*operands, **named)
