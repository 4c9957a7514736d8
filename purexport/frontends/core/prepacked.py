"""The packed weights of torch's quantized layers, which are objects and not tensors.

The tracer does not accept such objects.  So a call with one is computed outside the trace, and its node is added by
hand; the node refers to each object by number.  A reader replaces each object by a plain list of its weights:

    linear               [weight, bias]
    convolution          [weight, bias, stride, padding, output_padding, dilation, groups, transposed]
    embedding            [weight]
    one recurrent layer  [input weight, hidden weight, input bias, hidden bias, reduce_range]

Weights are quantized tensors (in the float16 variants, plain ones).  They become constants of the neutral graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.names import packet_of
from purexport.errors import ExportError
from purexport.torch_patches.torch_jit import set_value, tracing_state, value_of
from purexport.torch_patches.tracer import untraced

NODE = "prim::CreateObject"  # the node that stands for an object in the trace; its attribute is the object's number
ATTRIBUTE = "index"

_CONVOLUTIONS = ("Conv2dPackedParamsBase", "Conv3dPackedParamsBase")

Constant = Callable[[torch.Tensor, str], Any]


def holds_object(args: Any) -> bool:
    """True when a torch script object is among the arguments, lists included."""
    return any(True for _ in _objects(args))


def _objects(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _objects(arg)


class PrepackedRecorder:
    """Adds calls with packed weights to the running trace; `objects` collects their packed weights."""

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Add a node for the call to the trace; returns the result of the call."""
        overload = _overload(function, args, kwargs)
        schema = overload._schema
        if schema.name.startswith("profiler::"):  # it marks a time, and computes nothing
            with untraced():
                return overload(*args, **kwargs)
        flat = _in_order(schema, args, kwargs)
        graph = tracing_state().graph()
        marker = value_of(torch.empty(0)).node()  # a node that knows the source line
        values = [
            self._value(graph, item, argument.type) for item, argument in zip(flat, schema.arguments, strict=True)
        ]
        with untraced():
            result = overload(*args, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        node = graph.create(schema.name, values, len(results))
        node.copyMetadata(marker)
        graph.insertNode(node)
        for tensor, output in zip(results, node.outputs(), strict=True):
            output.inferTypeFrom(tensor)
            set_value(tensor, output)
        return result

    def _value(self, graph: Any, item: Any, type_: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return value_of(item)
        if isinstance(item, torch.ScriptObject):
            node = graph.create(NODE, [], 1).i_(ATTRIBUTE, len(self.objects))
            self.objects.append(item)
            node.output().setType(item._type())
            return graph.insertNode(node).output()
        if isinstance(item, (list, tuple)) and any(
            isinstance(part, (torch.Tensor, torch.ScriptObject)) for part in item
        ):
            node = graph.create("prim::ListConstruct", [self._value(graph, part, None) for part in item], 1)
            node.output().setType(type_)
            return graph.insertNode(node).output()
        return graph.insertConstant(list(item) if isinstance(item, tuple) else item)


def _overload(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The overload that fits the arguments."""
    if isinstance(function, torch._ops.OpOverload):
        return function
    if not isinstance(function, torch._ops.OpOverloadPacket):
        name = getattr(function, "__name__", str(function))
        function = packet_of(f"aten::{name}")
        if function is None:
            raise ExportError(
                f"{name} takes an object of torch's own classes, and a trace cannot follow it",
                code="trace-cannot-record",
            )
    found = [getattr(function, name) for name in function.overloads()]
    fitting = [item for item in found if not item._schema.is_mutable and _fits(item._schema, args, kwargs)]
    if not fitting:
        raise ExportError(
            f"{function} takes an object of torch's own classes in a way that a trace cannot follow",
            code="trace-cannot-record",
        )
    return fitting[0]


def _fits(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    names = [argument.name for argument in schema.arguments]
    required = [argument.name for argument in schema.arguments if not argument.has_default_value()]
    given = [*names[: len(args)], *kwargs]
    if len(args) > len(names) or not set(given) <= set(names) or not set(required) <= set(given):
        return False
    flat = [*args, *kwargs.values()]
    kinds = [str(argument.type) for name in given for argument in schema.arguments if argument.name == name]
    return all(_suits(item, kind) for item, kind in zip(flat, kinds, strict=True))


def _suits(item: Any, kind: str) -> bool:
    if isinstance(item, torch.ScriptObject):
        return kind == str(item._type())
    if isinstance(item, (list, tuple)):
        return kind.startswith("List") and (not item or _suits(item[0], kind[len("List[") : -1]))
    return not isinstance(item, torch.Tensor) or ("Tensor" in kind and not kind.startswith("List"))


def _in_order(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    given = dict(zip([argument.name for argument in schema.arguments], args, strict=False)) | dict(kwargs)
    return [given.get(argument.name, argument.default_value) for argument in schema.arguments]


# Objects to lists -----------------------------------------------------------------------------------------------------


def unpacked(packed: Any, scope: str, constant: Constant) -> list[Any]:
    """The list that replaces an object; `constant(tensor, name)` makes a value of the graph.

    Raises ExportError for an object of an unknown kind.
    """
    kind = str(packed._type()).rpartition(".")[2]
    if kind == "LinearPackedParamsBase":
        return _weights(packed.unpack(), scope, constant)
    if kind in _CONVOLUTIONS:
        spatial = [list(getattr(packed, name)()) for name in ("stride", "padding", "output_padding", "dilation")]
        numbers = [packed.groups(), bool(packed.transpose())]
        return [*_weights((packed.weight(), packed.bias()), scope, constant), *spatial, *numbers]
    if kind == "EmbeddingPackedParamsBase":
        return [constant(torch.ops.quantized.embedding_bag_unpack(packed), _name(scope, "weight"))]
    if kind == "CellParamsBase":
        return _cell(packed, scope, constant)
    raise ExportError(
        f"{scope or 'the model'} holds an object of class {packed._type()}, and its weights are not known",
        code="packed-weights",
    )


def _weights(pair: Any, scope: str, constant: Constant) -> list[Any]:
    weight, bias = pair
    return [
        constant(weight, _name(scope, "weight")),
        None if bias is None else constant(bias.detach(), _name(scope, "bias")),
    ]


def _cell(packed: Any, scope: str, constant: Constant) -> list[Any]:
    (kind, tensors, _, flags, inner), _ = packed.__getstate__()
    if kind != "quantized_dynamic":
        raise ExportError(
            f"{scope or 'the model'} holds recurrent weights of kind {kind}; quantize them dynamically",
            code="packed-weights",
        )
    weights = [_weights(item.unpack(), scope, constant)[0] for item in inner]
    biases = [constant(tensor.detach(), _name(scope, "bias")) for tensor in tensors]
    return [*weights, *biases, bool(flags[0])]


def _name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
