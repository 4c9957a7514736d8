"""The arguments of a call as its rule takes them.

Type promotion is done once, here, before the rule runs; an argument that the rule does not name must have its default,
otherwise the call is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from purexport import dtypes
from purexport.aten.graph import Call
from purexport.aten.schema import MISSING, number_parameters, signature
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.promotion import common_dtype
from purexport.lowering.core.registry import LAYOUT_ARGUMENTS, Rule
from purexport.lowering.support import pairs


def unknown_argument(call: Call, rule: Rule, arguments: Mapping[str, Any]) -> str:
    """Why the rule cannot take this call: it does not know an argument that is not at its default; empty if it can."""
    missing = [name for name in arguments if name not in rule.parameters and name not in LAYOUT_ARGUMENTS]
    if not missing or not call.target.startswith(("aten::", "quantized")):
        return ""
    defaults = {item.name: item.default for item in signature(call.target).parameters}
    for name in missing:
        value, default = arguments[name], defaults.get(name, MISSING)
        if default is MISSING or isinstance(value, Value) or value != default:
            return f"with {name}={value!r} has no rule yet"
    return ""


def known_arguments(
    op: Emitter, call: Call, rule: Rule, arguments: Mapping[str, Any], *, as_pairs: bool
) -> dict[str, Any]:
    """Those arguments that the rule names: promoted operands in torch's common dtype, sizes among tensors as tensors.

    With `as_pairs` promoted operands are brought to parts of a complex dtype.
    """
    promoted = _promoted(op, call, rule, arguments, as_pairs=as_pairs) if rule.promote else arguments
    return {name: _listed(op, call, name, promoted[name]) for name in rule.parameters if name in promoted}


def computed_numbers(target: str, arguments: Mapping[str, Any]) -> list[str]:
    """The arguments that are numbers, or lists of them, in the schema, and that the graph computes."""
    numbers = number_parameters(target)
    return [
        name
        for name, argument in arguments.items()
        if name in numbers and any(isinstance(item, Value) and item.const is None for item in flat([argument]))
    ]


def flat(items: Iterable[Any]) -> Iterator[Any]:
    """The items, those of lists in their place."""
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from flat(item)
        else:
            yield item


def code_of(number: Any) -> int:
    """The ONNX dtype of a Python number: bool, int64 or float."""
    return {bool: dtypes.BOOL, int: dtypes.INT64}.get(type(number), dtypes.FLOAT)


def _promoted(
    op: Emitter, call: Call, rule: Rule, arguments: Mapping[str, Any], *, as_pairs: bool
) -> Mapping[str, Any]:
    names = [name for name in rule.promote if arguments.get(name) is not None]
    dtype = common_dtype([call.args[name] for name in names], rule.to_float)
    if as_pairs:
        return {**arguments, **{name: pairs.operand(op, arguments[name], pairs.part_code(dtype)) for name in names}}
    like = Value(dtypes.onnx_code(dtype))
    return {**arguments, **{name: op.like(arguments[name], like) for name in names}}


def _listed(op: Emitter, call: Call, name: str, argument: Any) -> Any:
    """Sizes that a trace put into a list of tensors become tensors."""
    plain = (bool, int, float)
    if not isinstance(argument, list) or not any(isinstance(item, plain) for item in argument):
        return argument
    if not any(item.name == name and item.type == "List[Tensor]" for item in signature(call.target).parameters):
        return argument
    return [op.const(item, code_of(item)) if isinstance(item, plain) else item for item in argument]
