"""The printed graph, in the form of the torch.onnx documents of 2018 to 2020.

    graph(%input : Float(10, 3, 224, 224),
          %weight : Float(64, 3, 11, 11)):
      %2 : Float(10, 64, 55, 55) = onnx::Conv[group=1, ...](%input, %weight), scope: Net/Sequential[layers]/Conv2d[0]
      return (%2)

The lines have the form of 2018.  The header with commas and the blocks under Loop and If have the form of 2020.
Inputs, outputs and parameters have their names, and all other values have numbers.  A constant is a line before its
first use, and so is an absent optional input.  `SourceFacts` says which module a node comes from; a file does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

import proto_schema as ps
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.records import dataclass
from purexport.graph.ir import Graph

Kinds = ps.AttributeProto

# the names of the types that torch had then
_DTYPES = {row.code: row.scalar for row in DTYPES.values() if row.storage}
_NAMESPACES = {"": "onnx", "ai.onnx": "onnx", "org.pytorch.aten": "aten"}
_MOST_ELEMENTS = 10  # of a constant that is shown, as in torch


@dataclass(frozen=True)
class SourceFacts:
    """Facts that a file lacks: the model's own initializers in order, and scope and source line by node name."""

    parameters: Sequence[str] = ()
    scopes: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)


def origins(graph: Graph, model: Any, parameters: Sequence[str], *, lines: bool) -> SourceFacts:
    """The origins of a named graph; with `lines` also source lines, as the documents show them for scripts."""
    scope, scopes, places = _scopes(model), {}, {}
    for node in _all_nodes(graph):
        scopes[node.name] = scope(node.source.scope)
        if lines and node.source.line:
            places[node.name] = os.path.basename(node.source.line)
    return SourceFacts(list(parameters), scopes, places)


def _all_nodes(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        yield node
        for body in node.subgraphs():
            yield from _all_nodes(body)


def _scopes(model: Any) -> Callable[[str], str]:
    """From a module path to classes and attributes: `features.0` -> `AlexNet/Sequential[features]/Conv2d[0]`."""
    modules = dict(model.named_modules()) if isinstance(model, torch.nn.Module) else {}
    root = _class(model) if modules else _function(model)

    def scope(path: str) -> str:
        parts = path.split(".") if path else []
        steps = [
            f"{_class(modules.get('.'.join(parts[: end + 1])))}[{part}]" for end, part in enumerate(parts)
        ]  # fmt: skip
        return "/".join([root, *steps])

    return scope


def _class(module: Any) -> str:
    return str(getattr(module, "original_name", type(module).__name__)) if module is not None else "Module"


def _function(model: Any) -> str:
    # the class of a script is called ScriptFunction
    name = getattr(model, "qualified_name", None) or getattr(model, "__name__", None) or type(model).__name__
    return str(name).rpartition(".")[2]


def graph_text(model: ps.ModelProto, origins: SourceFacts) -> str:
    """The main graph of `model` as text, one line a node."""
    assert model.graph is not None
    return "\n".join([*_Printer(model.graph, origins).lines(), ""])


class _Printer:
    """Prints one graph; it knows the types of its values, and numbers the values without a name."""

    def __init__(self, graph: ps.GraphProto, origins: SourceFacts) -> None:
        self.graph = graph
        self.origins = origins
        self.types = _types(graph)
        self.initializers = {tensor.name or "": tensor for tensor in graph.initializer}
        inputs = [item.name or "" for item in graph.input]
        self.header = [*inputs, *(name for name in origins.parameters if name in self.initializers)]
        self.header = list(dict.fromkeys(self.header))
        named = [*self.header, *(item.name or "" for item in graph.output)]
        self.names = {name: f"%{name}" for name in named}
        self.taken = set(self.names.values())
        self.next = len(self.header)

    def lines(self) -> Iterator[str]:
        entries = [f"{self.names[name]} : {self._type(name)}" for name in self.header]
        yield "graph(" + ",\n      ".join(entries) + "):"
        for node in self.graph.node:
            yield from self._node(node, "  ")
        yield f"  return ({self._list(item.name for item in self.graph.output)})"

    def _node(self, node: ps.NodeProto, indent: str) -> Iterator[str]:
        end = self._end(node)
        for name in dict.fromkeys(_used(node)):
            if name not in self.names and (not name or name in self.initializers):
                yield f"{indent}{self._constant(name)}{end}"
        outputs = ", ".join(f"{self._name(name)} : {self._type(name)}" for name in node.output)
        yield f"{indent}{outputs} = {_called(node)}({self._list(node.input)}){end}"
        for number, body in enumerate(_bodies(node)):
            yield from self._block(node, number, body, indent + "  ")

    def _block(self, node: ps.NodeProto, number: int, body: ps.GraphProto, indent: str) -> Iterator[str]:
        self.types.update(_types(body))
        inputs = [f"{self._name(item.name)} : {self._type(item.name)}" for item in body.input]
        if node.op_type == "Loop":
            inputs[1] = f"{self._name(body.input[1].name)} : bool"
        yield f"{indent}block{number}({', '.join(inputs)}):"
        for inner in body.node:
            yield from self._node(inner, indent + "  ")
        yield f"{indent}  -> ({self._list(item.name for item in body.output)})"

    def _constant(self, name: str) -> str:
        if not name:
            return f"{self._name(name)} : None = prim::Constant()"
        tensor = self.initializers[name]
        return f"{self._name(name)} : {self._type(name)} = onnx::Constant[value={_tensor(tensor)}]()"

    def _end(self, node: ps.NodeProto) -> str:
        scope, line = self.origins.scopes.get(node.name or "", ""), self.origins.lines.get(node.name or "", "")
        return (f", scope: {scope}" if scope else "") + (f" # {line}" if line else "")

    def _name(self, name: str | None) -> str:
        key = name or ""
        while key not in self.names:
            number = f"%{self.next}"
            self.next += 1
            if number not in self.taken:
                self.names[key] = number
        return self.names[key]

    def _list(self, names: Any) -> str:
        return ", ".join(self._name(name) for name in names)

    def _type(self, name: str | None) -> str:
        return self.types.get(name or "", "Tensor")


# Values and attributes ------------------------------------------------------------------------------------------------


def _types(graph: ps.GraphProto) -> dict[str, str]:
    values = [*graph.value_info, *graph.input, *graph.output]
    found = {tensor.name or "": _dtype(tensor.data_type, map(str, tensor.dims)) for tensor in graph.initializer}
    return {**found, **{value.name or "": _type(value.type) for value in values}}


def _type(type_: ps.TypeProto | None) -> str:
    if type_ is not None and type_.sequence_type is not None:
        return "Tensor[]"
    tensor = type_.tensor_type if type_ is not None else None
    if tensor is None or not tensor.elem_type:
        return "Tensor"
    if tensor.shape is None:
        return _dtype(tensor.elem_type, None)
    return _dtype(
        tensor.elem_type,
        (dim.dim_param or "*" if dim.dim_value is None else str(dim.dim_value) for dim in tensor.shape.dim),
    )


def _dtype(code: int | None, sizes: Any) -> str:
    name = _DTYPES.get(code or 0) or ps.TensorProto.DataType(code or 0).name
    return name if sizes is None else f"{name}({', '.join(sizes)})"


def _called(node: ps.NodeProto) -> str:
    domain = node.domain or ""
    if (domain, node.op_type) == ("prim", "PythonOp"):  # as torch prints it: ^Name(what is no tensor)(%x, %y)
        held = {item.name: item for item in node.attribute}
        scalars = [bytes(text).decode() for text in held["scalar_args"].strings]
        return f"^{bytes(held['name'].s or b'').decode()}({', '.join(scalars)})"
    # the documents know ATen calls by the operator's name alone
    hidden = {"overload_name"} if domain else set()
    shown = [item for item in node.attribute if item.g is None and not item.graphs and item.name not in hidden]
    attributes = ", ".join(f"{item.name}={_attribute(item)}" for item in shown)
    return f"{_NAMESPACES.get(domain, domain)}::{node.op_type}" + (f"[{attributes}]" if attributes else "")


def _attribute(item: ps.AttributeProto) -> str:
    if item.type == Kinds.TENSOR and item.t is not None:
        return _tensor(item.t)
    show = {
        Kinds.INT: lambda: str(item.i or 0),
        Kinds.FLOAT: lambda: _number(item.f or 0.0),
        Kinds.STRING: lambda: _quoted(item.s),
        Kinds.INTS: lambda: _listed(map(str, item.ints)),
        Kinds.FLOATS: lambda: _listed(map(_number, item.floats)),
        Kinds.STRINGS: lambda: _listed(map(_quoted, item.strings)),
    }.get(Kinds.AttributeType(item.type or 0))
    return show() if show is not None else "<...>"


def _listed(items: Any) -> str:
    return f"[{', '.join(items)}]"


def _quoted(text: Any) -> str:
    readable = bytes(text or b"").decode(errors="replace")
    return '"' + readable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _number(value: float) -> str:
    """A number as C++ prints a double: six digits, and no decimals for a whole number."""
    return f"{value:g}"


def _tensor(tensor: ps.TensorProto) -> str:
    """`{9216}` for one number, `1  2 [ CPULongType{2} ]` for a few, as torch prints them; else `<Tensor>`."""
    code, dims = tensor.data_type or 0, list(tensor.dims)
    count = 1
    for dim in dims:
        count *= dim
    if count > _MOST_ELEMENTS or code not in _DTYPES:
        return "<Tensor>"
    array = ps.numpy_helper.to_array(tensor)
    numbers = [_element(item) for item in array.reshape(-1).tolist()]
    if count == 1:
        return f"{{{numbers[0]}}}"
    return f" {'  '.join(numbers)} [ CPU{_DTYPES[code]}Type{{{','.join(map(str, dims))}}} ]"


def _element(item: Any) -> str:
    return str(int(item)) if isinstance(item, (bool, int)) else f"{item:g}"


def _bodies(node: ps.NodeProto) -> list[ps.GraphProto]:
    """The bodies of a node; for an If, the body for a true condition comes first."""
    found = [item for item in node.attribute if item.g is not None]
    found.sort(key=lambda item: item.name == "else_branch")
    return [item.g for item in found if item.g is not None]


def _used(node: ps.NodeProto) -> Iterator[str]:
    """The names that a node and the bodies in it refer to."""
    yield from node.input
    for body in _bodies(node):
        for inner in body.node:
            yield from _used(inner)
        yield from (item.name or "" for item in body.output)
