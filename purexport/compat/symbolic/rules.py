"""Symbolic functions as rules of the lowering, and the order in which rules count.

`custom_translation_table` of the export goes first, then registered functions, then our own rules.  The `symbolic` of
an autograd Function is the rule of the one call that the capture recorded for it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.autograd_functions import TARGET, ArgumentSlot, AutogradFunctions
from purexport.aten.schema import MISSING, Parameter, code_of_dtype, signature
from purexport.compat.symbolic.context import GraphContext
from purexport.compat.symbolic.registry import RECORDED_AS, REGISTRY
from purexport.compat.symbolic.translations import guarded, named, translations
from purexport.compat.symbolic.values import SymbolicValue
from purexport.errors import ExportError, UnsupportedForm
from purexport.graph import ir
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized

Rule = Callable[..., Any]


def custom_rules(
    opset: int,
    table: Mapping[Any, Rule] | None,
    functions: AutogradFunctions,
    elsewhere: Mapping[str, Rule],
    lend: Callable[[], None],
) -> dict[str, Rule]:
    """The rules that go before ours, by ATen name with or without its overload: `rule(op, *arguments)`.

    `elsewhere` has the symbolic functions that are registered with torch.onnx and not with us.  `lend` makes the
    helpers of torch.onnx take our values, if torch.onnx is loaded.

    Raises TypeError for a key of `table` that names no operator, and for a value that is no function of `op`.
    """
    symbolics = {**elsewhere, **REGISTRY.at(opset)}
    for name, recorded in RECORDED_AS.items():
        if name in symbolics:
            symbolics.setdefault(recorded, symbolics[name])
    rules: dict[str, Rule] = {name: Symbolic(name, function, lend) for name, function in symbolics.items()}
    rules.update(translations(table or {}))
    rules[TARGET] = _Applied(functions, lend)
    return rules


@dataclass(frozen=True)
class Symbolic:
    """The rule of an operator whose symbolic function is registered."""

    name: str
    function: Callable[..., Any]
    lend: Callable[[], None]

    def __call__(self, op: Emitter, *arguments: Any) -> Any:
        parameters = signature(op.target).parameters
        positional, keywords = _taken(self.function, parameters, [_shown(argument) for argument in arguments])
        expected = [None if type_ is None else type_.dtype for type_ in op.results]
        what = f"the symbolic function {named(self.function)} of {op.target}"
        result = _run(op, what, self.lend, self.function, positional, keywords)
        if len(expected) == 1:
            return _single(op, what, result, expected[0])
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        return _several(op, what, items, expected)


@dataclass(frozen=True)
class _Applied:
    """The rule of an autograd Function with a `symbolic`: its results as a list, with None for those it leaves out."""

    functions: AutogradFunctions
    lend: Callable[[], None]

    def __call__(self, op: Emitter, tensors: Sequence[Any], sizes: Sequence[Any], key: int) -> list[Any]:
        call = self.functions.calls[key]
        what = f"the symbolic of the autograd Function {call.name}"
        arguments = call.arguments([_shown(item) for item in tensors], [_shown(item) for item in sizes])
        result = _run(op, what, self.lend, call.function.symbolic, arguments, {})
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        leaves = call.result if isinstance(call.result, (list, tuple)) else [call.result]
        if len(items) != len(leaves):
            raise ExportError(
                f"{what} at {op.source} gives {len(items)} results, and its forward gives {len(leaves)}",
                code="symbolic-fails",
            )
        # values that forward returns beside tensors are no results of the graph
        kept = [item for item, leaf in zip(items, leaves, strict=True) if hasattr(leaf, "index")]
        return _several(op, what, kept, call.dtypes)

    def as_it_is(self, op: Emitter, tensors: Sequence[Any], sizes: Sequence[Any], key: int) -> list[ir.Value]:
        """The call as a node `prim::PythonOp`, with the attributes that torch's own graphs give it."""
        call = self.functions.calls[key]
        arguments = [leaf for leaf in call.leaves if not isinstance(leaf, ArgumentSlot)]
        attributes = {
            "name": call.name,
            "module": str(call.function.__module__),
            "cconv": "".join("d" if isinstance(leaf, ArgumentSlot) else "c" for leaf in call.leaves),
            "scalar_args": [repr(leaf) for leaf in arguments],
        }
        inputs = [op.const(item) if isinstance(item, int) else item for item in (*tensors, *sizes)]
        node = ir.Node("PythonOp", inputs, [], attributes, "prim", op.source)
        node.outputs = [ir.Value(dtypes.onnx_code(dtype), node=node) for dtype in call.dtypes]
        op.graph.nodes.append(node)
        return node.outputs


def _shown(argument: Any) -> Any:
    """An argument of a rule as a symbolic function sees it."""
    if isinstance(argument, ir.Value):
        return SymbolicValue(argument)
    if isinstance(argument, (Pair, Quantized)):
        raise UnsupportedForm(
            "takes complex or quantized tensors, which a symbolic function cannot; convert them before",
            code="symbolic-refuses",
        )
    if isinstance(argument, (list, tuple)):
        plain = not any(isinstance(item, (ir.Value, list, tuple, Pair, Quantized)) for item in argument)
        return (
            SymbolicValue(known=list(argument))
            if plain and argument
            else SymbolicValue(items=[_shown(item) for item in argument])
        )
    if isinstance(argument, torch.dtype):
        return SymbolicValue(known=code_of_dtype(argument))
    if isinstance(argument, (torch.layout, torch.device, torch.memory_format)):
        return SymbolicValue(known=None)
    return SymbolicValue(known=argument)


def _taken(
    function: Callable[..., Any], parameters: Sequence[Parameter], arguments: Sequence[SymbolicValue]
) -> tuple[list[SymbolicValue], dict[str, SymbolicValue]]:
    """The arguments as the function takes them; arguments at their defaults are left out if it does not take them.

    Raises UnsupportedForm if it does not take an argument that is not at its default.
    """
    own = list(inspect.signature(function).parameters.values())[1:]
    count = sum(item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) for item in own)
    if any(item.kind is item.VAR_POSITIONAL for item in own):
        count = len(arguments)
    by_name = {item.name for item in own if item.kind is item.KEYWORD_ONLY}
    keywords = {}
    for parameter, argument in list(zip(parameters, arguments, strict=True))[count:]:
        if parameter.name in by_name:
            keywords[parameter.name] = argument
        elif parameter.default is MISSING or not argument.is_known or argument.known != parameter.default:
            raise UnsupportedForm(
                f"with {parameter.name}={argument!r} has a symbolic function that takes only {count} arguments",
                code="symbolic-refuses",
            )
    return list(arguments[:count]), keywords


def _run(
    op: Emitter,
    what: str,
    lend: Callable[[], None],
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    def run() -> Any:
        loaded = "torch.onnx" in sys.modules
        lend()
        try:
            return function(GraphContext(op), *arguments, **keywords)
        except Exception:
            if loaded or "torch.onnx" not in sys.modules:
                raise
        lend()  # the function loaded it
        return function(GraphContext(op), *arguments, **keywords)

    return guarded(op, what, run)


def _single(op: Emitter, what: str, result: Any, expected: torch.dtype | None) -> Any:
    if isinstance(result, (list, tuple)) and expected is None:  # the operator gives a list
        return [_unwrapped(op, what, item) for item in result]
    if isinstance(result, (list, tuple)):
        if len(result) != 1:
            raise ExportError(
                f"{what} at {op.source} gives {len(result)} results, and the operator gives one", code="symbolic-fails"
            )
        result = result[0]
    if isinstance(result, SymbolicValue) and result.items is not None:
        return [_unwrapped(op, what, item) for item in result.items]
    return _several(op, what, [result], [expected])[0]


def _several(op: Emitter, what: str, results: Sequence[Any], expected: Sequence[torch.dtype | None]) -> list[Any]:
    if len(results) != len(expected):
        raise ExportError(
            f"{what} at {op.source} gives {len(results)} results, and the operator gives {len(expected)}",
            code="symbolic-fails",
        )
    found = []
    for result, dtype in zip(results, expected, strict=True):
        item = _unwrapped(op, what, result)
        if isinstance(item, ir.Value) and dtype is not None:
            code = dtypes.onnx_code(dtype)
            if item.dtype not in (None, code):
                raise ExportError(
                    f"{what} at {op.source} gives {dtypes.type_string(item.dtype or 0)} where torch gives "
                    f"{dtypes.type_string(code)}; cast the result in it",
                    code="symbolic-fails",
                )
        found.append(item)
    return found


def _unwrapped(op: Emitter, what: str, result: Any) -> Any:
    if isinstance(result, SymbolicValue):
        return result.operand()
    if result is None or isinstance(result, (bool, int, float)):
        return result
    raise ExportError(
        f"{what} at {op.source} gives a {type(result).__name__} where it should give a value of g",
        code="symbolic-fails",
    )
