"""Where rules are declared: `@lower("aten::clamp", "aten::clamp.Tensor")` on a function `rule(op, **arguments)`.

A rule is a pure function of the emitter and the call's arguments by their ATen names: tensors are `Value`s, numbers
are Python numbers where they are known and zero-dim `Value`s where they are computed.  It returns one value, or a
tuple, as the operator does.  An argument that a rule does not name must have its default, otherwise the call is
refused: nothing is ignored silently.

`lower_quantized` declares what the same operator does with torch's quantized tensors: a rule of its own, which gets
`Quantized` where the rule for plain tensors gets values.  `lower_complex` does so for complex tensors, which are
`Pair`s, and `lower_over_fields` one rule for real and complex ones; `by_parts` names the operators whose plain rule
serves the real and the imaginary part alike.
`lower_training` declares what is written instead for training runtimes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from proto_schema.wire.records import dataclass
from purexport.aten.schema import signature
from purexport.lowering.core.emitter import Emitter

Function = TypeVar("Function", bound=Callable[..., Any])

# These say how torch lays data out or where it computes; they do not change a number.
LAYOUT_ARGUMENTS = frozenset(
    [
        "memory_format",
        "layout",
        "device",
        "pin_memory",
        "non_blocking",
        "copy",
        "implicit",
        "benchmark",
        "deterministic",
        "cudnn_enabled",
        "cudnn_enable",
        "allow_tf32",
    ]
)

# what follows the ATen name of a rule for quantized tensors
QUANTIZED = "@quantized"
COMPLEX = "@complex"
TRAINING = "@training"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.  `promote` names the operands that torch's type promotion brings to one dtype first.

    `to_float` says that integers are computed in the default float dtype (`aten::sin`, true division).
    """

    function: Callable[..., Any]
    parameters: tuple[str, ...]
    promote: tuple[str, ...] = ()
    to_float: bool = False

    def __call__(self, op: Emitter, arguments: Mapping[str, Any]) -> Any:
        return self.function(op, **arguments)


_RULES: dict[str, Rule] = {}
_BY_PARTS: dict[str, tuple[str, ...]] = {}


def lower(*targets: str, promote: str = "", to_float: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function as the rule of each ATen name (with its overload)."""

    def register(function: Function) -> Function:
        add(Rule(function, _parameters(function)[1:], tuple(promote.split()), to_float), *targets)
        return function

    return register


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that `inspect.signature` gives, read from the code where that says them: 700 rules are 10 ms."""
    code = getattr(function, "__code__", None)
    if (
        code is None
        or hasattr(function, "__wrapped__")
        or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    ):
        return tuple(inspect.signature(function).parameters)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def lower_quantized(*targets: str) -> Callable[[Function], Function]:
    """Register the decorated function as the rule of each ATen name for calls that take quantized tensors."""
    return lower(*[target + QUANTIZED for target in targets])


def lower_complex(*targets: str, promote: str = "") -> Callable[[Function], Function]:
    """Register the decorated function as the rule of each name for calls that take or give complex tensors.

    `promote` names the operands that are brought to parts of one dtype; those that are real stay `Value`s.
    """
    return lower(*[target + COMPLEX for target in targets], promote=promote)


def lower_over_fields(*targets: str, promote: str = "") -> Callable[[Function], Function]:
    """Register the decorated function as the rule of each name for real and for complex tensors (`support.fields`)."""
    return lower(*targets, *[target + COMPLEX for target in targets], promote=promote)


def lower_training(*targets: str) -> Callable[[Function], Function]:
    """Register the decorated function as the rule of each name in files for training runtimes."""
    return lower(*[target + TRAINING for target in targets])


def by_parts(operands: str, *targets: str) -> None:
    """Rows for operators that treat the real and the imaginary part alike: reshaping, joining, adding up.

    `operands` names the arguments that are complex numbers or tensors, or lists of them.
    """
    for target in targets:
        if target in _BY_PARTS:
            raise ValueError(f"{target} has two rows")
        _BY_PARTS[target] = tuple(operands.split())


def rule_of(target: str) -> Rule:
    """The rule of a name whose file is imported already.  Raises KeyError when it has none."""
    return _RULES[target]


def taken(target: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are arguments of `target`: a rule that serves several operators takes more."""
    known = {parameter.name for parameter in signature(target).parameters}
    return tuple(name for name in names if name in known)


def add(rule: Rule, *targets: str) -> None:
    """Register `rule`.  Raises ValueError when a name has a rule already."""
    for target in targets:
        if target in _RULES:
            raise ValueError(f"{target} has two rules")
        _RULES[target] = rule


def declared() -> dict[str, Rule]:
    """Every rule whose file is imported, by name."""
    return dict(_RULES)


def declared_by_parts() -> dict[str, tuple[str, ...]]:
    """The operands of each operator that treats both parts of complex tensors alike, by name."""
    return dict(_BY_PARTS)


def unary(target: str, op_type: str, *, to_float: bool = False) -> None:
    """One row for an operator that is the same in ONNX: `unary("aten::tanh", "Tanh")`."""

    def rule(op: Emitter, self: Any) -> Any:
        return op.emit(op_type, self)

    rule.__name__ = target.removeprefix("aten::")
    add(Rule(rule, ("self",), ("self",) if to_float else (), to_float), target)


def binary(op_type: str, *targets: str, to_float: bool = False) -> None:
    """One row for a promoted operator of two operands that is the same in ONNX."""

    def rule(op: Emitter, self: Any, other: Any) -> Any:
        return op.emit(op_type, self, other)

    add(Rule(rule, ("self", "other"), ("self", "other"), to_float), *targets)
