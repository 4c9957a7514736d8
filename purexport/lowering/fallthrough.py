"""Calls that stay what they are: the operator export types other than ONNX.

    ONNX_ATEN           every ATen call          org.pytorch.aten: ATen[operator="exp"](x)
    ONNX_ATEN_FALLBACK  ATen calls that cannot   org.pytorch.aten: ATen[operator="poisson"](x)
                        be lowered
    ONNX_FALLTHROUGH    any call that cannot     foo_namespace: bar[alpha=2](x, y)
                        be lowered
    RAW                 every call               aten: exp(x); prim: Constant, ListConstruct, If, Loop,
                                                 PythonOp for autograd Functions with a symbolic

Tensors are inputs in the order of the schema; trailing absent ones are left out.  For ATen and RAW constants are inputs
too, as the documents show them; a node of a custom operator has them as attributes, because that is where the kernel of
a runtime looks for them.  What is no number (dtypes, texts) is an attribute always, and a list of tensors is a
`prim::ListConstruct`.  The overload stands in the attribute `overload_name`, unless it is the default one.
Source: the documents of torch.onnx of 2020, "Operator Export Type".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from purexport import dtypes
from purexport.aten.autograd_functions import TARGET as AUTOGRAD
from purexport.aten.graph import Call, ListType, TensorType, Type
from purexport.aten.names import parsed
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Graph, Node, Value
from purexport.lowering.blocks import typed
from purexport.lowering.core.emitter import Emitter
from purexport.options import OperatorExportTypes as Kind

ATEN_DOMAIN = "org.pytorch.aten"
_OURS = ("prim", "sequence")  # calls of our own, that have their rules


def always(kind: Kind, call: Call, arguments: Mapping[str, Any]) -> bool:
    """True for a call that this kind of export keeps, whether it has a rule or not."""
    namespace = parsed(call.target).namespace
    if call.target == "prim::getitem":
        return isinstance(arguments["list"], Value)  # of a kept call, whose list is a value
    if call.blocks or namespace in _OURS:
        return False
    return kind is Kind.RAW or (kind is Kind.ONNX_ATEN and namespace == "aten")


def at_last(kind: Kind, call: Call) -> bool:
    """True for a call that this kind of export keeps because it cannot be lowered."""
    namespace = parsed(call.target).namespace
    if call.blocks or namespace in _OURS:
        return False
    return kind is Kind.ONNX_FALLTHROUGH or (kind is Kind.ONNX_ATEN_FALLBACK and namespace == "aten")


def keep(
    op: Emitter,
    kind: Kind,
    call: Call,
    types: Iterable[Type],
    arguments: Mapping[str, Any],
    custom: Mapping[str, Callable[..., Any]],
) -> Any:
    """The result of a node that says the call as it is, or a list of several.

    `types` are those of its results; `custom` holds the rule of autograd Functions, which says their calls.
    Raises UnsupportedForm for what no node can hold.
    """
    if call.target == AUTOGRAD:
        applied: Any = custom[AUTOGRAD]
        return applied.as_it_is(op, **arguments)
    target, named = call.target, dict(arguments)
    if target == "prim::getitem":
        target, named = "aten::__getitem__.t", {"list": arguments["list"], "idx": arguments["index"]}
    namespace, operator, overload = parsed(target)
    inputs, attributes = _arguments(op, kind, named)
    if overload and overload != "default":
        attributes["overload_name"] = overload
    outputs = [_result(type_) for type_ in types]
    if kind in (Kind.ONNX_ATEN, Kind.ONNX_ATEN_FALLBACK):
        attributes["operator"] = operator
        operator, namespace = "ATen", ATEN_DOMAIN
    results = _node(op, operator, namespace, inputs, outputs, attributes)
    return results[0] if len(results) == 1 else results


def as_list(op: Emitter) -> None:
    """The outputs of the model's graph, which `op` writes, as the one list that the model returns."""
    graph = op.graph
    result = Value(name="output")
    result.element = (graph.outputs[0].dtype or dtypes.FLOAT, None)
    for index, value in enumerate(graph.outputs):
        value.name = f"output_{index}"
    graph.outputs = _node(op, "ListConstruct", "prim", list(graph.outputs), [result], {})


def name_controls(graph: Graph) -> None:
    """Branches and loops by the names that they have in torch's graphs."""
    for node in graph.nodes:
        for body in node.subgraphs():
            node.domain = "prim"
            name_controls(body)


def _arguments(op: Emitter, kind: Kind, named: Mapping[str, Any]) -> tuple[list[Value | None], dict[str, Any]]:
    inputs: list[Value | None] = []
    attributes: dict[str, Any] = {}
    for name, item in named.items():
        if item is None:
            inputs.append(None)
        elif _is_number(item) or (isinstance(item, list) and all(map(_is_number, item))):
            if kind is Kind.ONNX_FALLTHROUGH and item != []:
                attributes[name] = item
            else:
                inputs.append(_number(op, kind, item))
        elif isinstance(item, Value):
            inputs.append(item)
        elif isinstance(item, list):
            inputs.append(_list(op, kind, name, item))
        elif isinstance(item, complex) or type(item).__module__.startswith("purexport"):
            raise UnsupportedForm(
                f"takes {name!r} as a complex or quantized number, which no node can hold", code="call-not-kept"
            )
        else:
            attributes[name] = str(item).removeprefix("torch.")
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs, attributes


def _number(op: Emitter, kind: Kind, item: Any) -> Value:
    """Numbers as torch has them: 64 bits."""
    if kind is Kind.RAW and isinstance(item, list):
        return _node(op, "ListConstruct", "prim", [_number(op, kind, part) for part in item], [Value()], {})[0]
    first = item[0] if isinstance(item, list) and item else 0 if isinstance(item, list) else item
    code = {bool: dtypes.BOOL, int: dtypes.INT64}.get(type(first), dtypes.DOUBLE)
    if kind is Kind.RAW:
        return _node(op, "Constant", "prim", [], [Value(code, ())], {"value": item})[0]
    return op.const(item, code)


def _list(op: Emitter, kind: Kind, name: str, items: list[Any]) -> Value:
    """A list of tensors, some of which may be None, or of sizes of which some are computed."""
    if not all(item is None or _is_number(item) or isinstance(item, Value) for item in items):
        raise UnsupportedForm(
            f"takes {name!r} as a list of {type(items[0]).__name__}, which no node can hold", code="call-not-kept"
        )
    parts = [_number(op, kind, item) if _is_number(item) else item for item in items]
    return _node(op, "ListConstruct", "prim", parts, [Value()], {})[0]


def _node(
    op: Emitter,
    op_type: str,
    domain: str,
    inputs: list[Any],
    outputs: list[Value],
    attributes: dict[str, Any],
) -> list[Value]:
    node = Node(op_type, inputs, outputs, attributes, domain, op.source)
    for value in outputs:
        value.node = node
    op.graph.nodes.append(node)
    return outputs


def _result(type_: Any) -> Value:
    if isinstance(type_, ListType):
        return Value()
    if isinstance(type_, TensorType) and (type_.dtype.is_complex or dtypes.is_quantized(type_.dtype)):
        raise UnsupportedForm("gives complex or quantized tensors, which no node can hold", code="call-not-kept")
    return typed(Value(), type_)


def _is_number(item: Any) -> bool:
    return isinstance(item, (bool, int, float))
