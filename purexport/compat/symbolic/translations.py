"""`custom_translation_table`: keys that name operators, and functions that write them.

A key is a name, an operator as `torch.ops` has it, or a Python function that torch.export records, such as
`operator.floordiv`.  A value is a function, or a list of functions, of which the first that does not fail counts.  A
function is written in one of two ways.  Ours takes `op` and all arguments of the schema.  That of torch.onnx takes the
arguments alone, and writes with the opsets of onnxscript, whose calls `onnxscript_calls` hands to `op`; it may also be
an onnxscript function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.names import name_of, operator_of
from purexport.aten.schema import MISSING, Parameter, signature
from purexport.compat.symbolic.onnxscript_calls import Operand, function_written, handed_to
from purexport.errors import ExportError, OpsetError, UnsupportedForm
from purexport.graph import ir
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized

Rule = Callable[..., Any]


def translations(table: Mapping[Any, Any]) -> Iterator[tuple[str, Rule]]:
    """The rules of a table by ATen name.  Raises TypeError for a key that names no operator, and a value of no use."""
    for key, value in table.items():
        name = operator_name(key)
        rules = value if isinstance(value, (list, tuple)) else [value]
        wrong = next((rule for rule in rules if not callable(rule)), None if rules else value)
        if wrong is not None:
            raise TypeError(
                f"custom_translation_table gives {name} a {type(wrong).__name__}; give a function of (op, *arguments), "
                "as in lambda op, x: op.Relu(x), in which op writes the same operators, or a function of onnxscript"
            )
        yield name, Translation(tuple(rules))


def operator_name(key: Any) -> str:
    """`"ns::op"` or `"ns::op.overload"` of a key.  Raises TypeError for anything else."""
    key = getattr(key, "_opoverload", key)  # of torch.library.custom_op
    if isinstance(key, torch._ops.OpOverload):
        return name_of(key._schema)
    if isinstance(key, torch._ops.OpOverloadPacket):
        return str(key._qualified_op_name)
    if isinstance(key, str):
        return key
    from purexport.fx.reader import python_target  # it loads sympy, and most tables need none of it

    name = python_target(key) if callable(key) else None
    if name is None:
        raise TypeError(
            f"custom_translation_table has the key {key!r}; give 'ns::op' or torch.ops.ns.op.default, or a Python "
            "function on sizes, such as operator.floordiv"
        )
    return name


@dataclass(frozen=True)
class Translation:
    """The rule of an operator that `custom_translation_table` names."""

    functions: tuple[Rule, ...]

    def __call__(self, op: Emitter, *arguments: Any) -> Any:
        for function in self.functions[:-1]:
            try:
                return _translated(op, function, arguments)
            except (ExportError, UnsupportedForm, OpsetError):
                continue
        return _translated(op, self.functions[-1], arguments)


def _translated(op: Emitter, function: Rule, arguments: Sequence[Any]) -> Any:
    what = f"the function {named(function)} that custom_translation_table gives {op.target}"
    if not hasattr(function, "to_function_proto") and _takes_op(function, len(arguments)):
        return guarded(op, what, lambda: function(op, *arguments))
    return guarded(op, what, lambda: _as_in_torch(op, function, arguments))


def _takes_op(function: Rule, count: int) -> bool:
    """Whether a function takes `op` before the arguments of an operator, of which there are `count`.

    Its first parameter is called `op` or `g`, or it takes more arguments than there are without `op`.
    """
    parameters = _parameters(function)
    positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    if not positional:
        return any(item.kind is item.VAR_POSITIONAL for item in parameters)
    return positional[0].name in ("op", "g") or sum(item.default is item.empty for item in positional) > count


def _parameters(function: Rule) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _as_in_torch(op: Emitter, function: Rule, arguments: Sequence[Any]) -> Any:
    """The results of a function that takes the arguments alone."""
    script = hasattr(function, "to_function_proto") and not hasattr(function, "func")
    shown = [_shown(op, argument) for argument in arguments]
    with handed_to(op):
        if script:
            positional, keywords = _taken(getattr(function, "function", function), op.target, shown)
            found = unwrapped(function_written(op, function, positional, keywords))
            return found[0] if len(found) == 1 else found
        positional, keywords = _taken(function, op.target, shown)
        return unwrapped(function(*positional, **keywords))


def _taken(function: Rule, target: str, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the function takes them: what it does not take is left out where it is at its default."""
    own = _parameters(function)
    positional = [item.name for item in own if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    count = len(arguments) if any(item.kind is item.VAR_POSITIONAL for item in own) else len(positional)
    takes_all = any(item.kind is item.VAR_KEYWORD for item in own)
    by_name = {item.name for item in own if item.kind is item.KEYWORD_ONLY}
    schema: Sequence[Parameter | None] = (
        signature(target).parameters if _has_schema(target) else [None] * len(arguments)
    )
    keywords = {}
    for parameter, argument in list(zip(schema, arguments, strict=True))[count:]:
        if parameter is not None and (parameter.name in by_name or takes_all):
            keywords[parameter.name] = argument
        elif parameter is None or parameter.default is MISSING or argument != parameter.default:
            given = "an argument" if parameter is None else f"{parameter.name}={argument!r}"
            raise TypeError(f"it takes {count} arguments, and the call has {given} beside them")
    return list(arguments[:count]), keywords


def _has_schema(target: str) -> bool:
    """False for a Python function that a graph calls."""
    return operator_of(target) is not None


def _shown(op: Emitter, argument: Any) -> Any:
    if isinstance(argument, ir.Value):
        return Operand(op, argument)
    if isinstance(argument, (Pair, Quantized)):
        raise UnsupportedForm(
            "takes complex or quantized tensors, which a function of torch.onnx cannot; give a function of (op, ...)",
            code="symbolic-refuses",
        )
    if isinstance(argument, (list, tuple)):
        return [_shown(op, item) for item in argument]
    if isinstance(argument, torch.dtype):
        return dtypes.onnx_code(argument)
    if isinstance(argument, (torch.layout, torch.device, torch.memory_format)):
        return None
    return argument


def unwrapped(result: Any) -> Any:
    """A result of such a function, as a rule gives it."""
    if isinstance(result, Operand):
        return result.value
    if isinstance(result, (list, tuple)):
        return [unwrapped(item) for item in result]
    return result


def guarded(op: Emitter, what: str, run: Callable[[], Any]) -> Any:
    """The result of `run`; an error says that the user's function failed, and where."""
    try:
        return run()
    except OpsetError as error:
        raise OpsetError(f"{what}: {error}", error.lowest) from error
    except UnsupportedForm:
        raise
    except Exception as error:
        text = str(error).replace("; this is a mistake in a lowering rule, please report it", "")
        raise ExportError(
            f"{what} at {op.source} failed: {type(error).__name__}: {text}", code="symbolic-fails"
        ) from error


def named(function: Any) -> str:
    """The name of a function for messages."""
    return str(getattr(function, "__name__", type(function).__name__))
