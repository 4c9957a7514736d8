"""Modules become ONNX functions: `a/Gemm, a/Relu`  ->  one node of an operator that stands for the class of module `a`.

Every node knows the module path that it comes from, so a run of nodes under one path is a call of that module.  Runs
nest as modules do.  The values that a run reads from outside become the function's inputs, parameters included.  The
values of the run that are read outside become its outputs.  Two instances of a class use the same function if their
nodes are equal; otherwise the later function is named `Name.1`, `Name.2`, ...  The domain is the Python package of the
class.

Invariants: the graph computes the same as before, node by node in the same order; constants that are no weights are
inside the functions; a module without nodes (an Identity) has no function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any

import torch

import proto_schema as ps
from proto_schema.wire.records import dataclass
from purexport.aten.graph import Source
from purexport.graph.build import build_node, raw_tensor
from purexport.graph.ir import Graph, Node, Value
from purexport.graph.passes.cse import attribute_key, share_equal_nodes
from purexport.graph.passes.dce import remove_dead_nodes
from purexport.graph.passes.naming import assign_names
from purexport.torch_patches.torch_jit import ScriptModule

OLDEST_OPSET = 15
_LARGEST = 1024  # elements of a nameless constant inside a function; a larger one becomes an input


@dataclass(slots=True, eq=False)
class Function:
    """A module's nodes, in a graph of their own; `path` is that of the first instance."""

    domain: str
    name: str
    graph: Graph
    path: str


@dataclass(slots=True)
class OutlinedFunctions:
    """The functions found so far, innermost first, by class and by what they compute."""

    classes: Mapping[str, type]
    arguments: Collection[Value]
    found: list[Function] = field(default_factory=list)
    known: dict[Hashable, Function] = field(default_factory=dict)
    names: Counter[tuple[str, str]] = field(default_factory=Counter)

    def outline(self, graph: Graph, uses: Counter[Value], depth: int = 0) -> None:
        """Replace each run of a module's nodes in `graph` by a call, in place, bodies of If and Loop included."""
        nodes: list[Node] = []
        for path, run in groupby(graph.nodes, key=lambda node: self._module(node, depth)):
            if path is None:
                for node in run:
                    for body in node.subgraphs():
                        self.outline(body, uses, depth)
                    nodes.append(node)
            else:
                nodes.append(self._call(path, list(run), uses, depth))
        graph.nodes = nodes

    def _module(self, node: Node, depth: int) -> str | None:
        """The path of the module at this depth that the node belongs to; depth counts modules that are functions."""
        parts = node.source.scope.split(".")
        paths = (".".join(parts[: end + 1]) for end in range(len(parts)))
        chain = [path for path in paths if path in self.classes]
        return chain[depth] if depth < len(chain) else None

    def _call(self, path: str, run: list[Node], uses: Counter[Value], depth: int) -> Node:
        inner = Graph(nodes=run)
        inside = _counted(inner)
        inner.outputs = [value for node in run for value in node.outputs if uses[value] > inside[value]]
        made = {value for node in run for value in node.outputs}
        own = made | _bodies(inner)
        read = [value for value in inside if value not in own and not _inner(value)]
        outer = sorted(read, key=lambda value: bool(value.name) and value not in self.arguments)  # weights come last
        results = list(inner.outputs)
        self.outline(inner, uses, depth + 1)
        copied = _Copy(path).graph(inner, outer)
        function = self._function(self.classes[path], copied, path)
        return Node(function.name, list(outer), results, domain=function.domain, source=Source(path))

    def _function(self, kind: type, graph: Graph, path: str) -> Function:
        domain, name = kind.__module__, kind.__name__
        key = (domain, name, _key(graph))
        if key not in self.known:
            number = self.names[domain, name]
            self.names[domain, name] += 1
            function = Function(domain, f"{name}.{number}" if number else name, graph, path)
            self.known[key] = function
            self.found.append(function)
        return self.known[key]


def modules_as_functions(graph: Graph, model: Any, wanted: bool | Collection[type]) -> list[Function]:
    """Make functions from modules of `model`: from all except the model itself, or from those of the `wanted` classes.

    Changes `graph` in place and removes dead nodes.
    """
    if not wanted:
        return []
    remove_dead_nodes(graph)
    chosen = None if isinstance(wanted, bool) else frozenset(wanted)
    classes = {path: type(module) for path, module in model.named_modules(remove_duplicate=False) if path}
    classes = {path: kind for path, kind in classes.items() if _runs(kind) and (chosen is None or kind in chosen)}
    arguments = {value for value in graph.inputs if value.name not in dict(model.named_parameters())}
    functions = OutlinedFunctions(classes, arguments)
    functions.outline(graph, _counted(graph))
    for function in functions.found:
        share_equal_nodes(function.graph)
        assign_names(function.graph)
    return functions.found


def check_wanted(wanted: Any, model: Any, opset: int) -> None:
    """Raise ValueError where functions are impossible with this option, model or opset."""
    if not wanted:
        return
    if wanted is not True and (isinstance(wanted, str) or not all(isinstance(item, type) for item in wanted)):
        raise ValueError(f"export_modules_as_functions={wanted!r} is neither a bool nor a set of module classes")
    if opset < OLDEST_OPSET:
        raise ValueError(f"export_modules_as_functions needs opset_version {OLDEST_OPSET} or later, not {opset}")
    if not isinstance(model, torch.nn.Module) or isinstance(model, ScriptModule):
        kind = type(model).__name__
        raise ValueError(
            f"export_modules_as_functions needs an nn.Module, which knows its modules' classes, not {kind}"
        )


def add_functions(proto: ps.ModelProto, functions: Sequence[Function], opset: int) -> None:
    """Add the functions to the model's message, and their domains to its imports."""
    if not functions:
        return
    known = {item.domain for item in proto.opset_import}
    inside = {node.domain for function in functions for node in _all_nodes(function.graph)}
    domains = {function.domain for function in functions} | (inside - known)
    custom = [item for item in proto.opset_import if item.domain and item.domain not in domains]
    named = [ps.OperatorSetIdProto(domain=domain, version=1) for domain in sorted(domains)]
    proto.opset_import = [*proto.opset_import[:1], *custom, *named]
    for function in functions:
        nodes = [build_node(node, opset) for node in function.graph.nodes]
        for node in nodes:
            _forget_values(node)
        used = {node.domain for node in _all_nodes(function.graph)}
        proto.functions.append(
            ps.FunctionProto(
                domain=function.domain,
                name=function.name,
                input=[value.name for value in function.graph.inputs],
                output=[value.name for value in function.graph.outputs],
                node=[
                    *(_constant(value) for value in function.graph.initializers()),
                    *nodes,
                ],
                opset_import=[item for item in proto.opset_import if not item.domain or item.domain in used],
            )
        )


def _forget_values(node: ps.NodeProto) -> None:
    """Say nothing of the values in the node's subgraphs.

    When ONNX Runtime (1.31) inlines a function, it renames these values and leaves what is said of them under the old
    names, which others may have by then.
    """
    for attribute in node.attribute:
        if attribute.g is not None:
            attribute.g.value_info = []
            for inner in attribute.g.node:
                _forget_values(inner)


def _constant(value: Value) -> ps.NodeProto:
    assert value.const is not None
    held = ps.AttributeProto(name="value", type=ps.AttributeProto.TENSOR, t=raw_tensor(value.const))
    return ps.NodeProto(op_type="Constant", name=f"{value.name}/Constant", output=[value.name], attribute=[held])


def _runs(kind: type) -> bool:
    """Whether modules of a class are called; a ModuleList only contains others."""
    return getattr(kind, "forward", None) is not torch.nn.Module.forward


# Values inside and outside ------------------------------------------------------------------------------------------


def _counted(graph: Graph) -> Counter[Value]:
    """How often each value is read in the graph, its bodies and its outputs, in order of first use."""
    return Counter(graph.used())


def _inner(value: Value) -> bool:
    """Whether the function itself contains a constant: a small one without a name."""
    return value.const is not None and not value.name and value.const.numel() <= _LARGEST


def _bodies(graph: Graph) -> set[Value]:
    """The values that are computed inside the bodies of If and Loop."""
    made: set[Value] = set()
    for node in graph.nodes:
        for body in node.subgraphs():
            made |= {*body.inputs, *(value for inner in body.nodes for value in inner.outputs), *_bodies(body)}
    return made


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for body in node.subgraphs():
            yield from _all_nodes(body)


class _Copy:
    """A copy of a run of nodes with its own values, whose names are relative to the module."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: dict[Value, Value] = {}

    def graph(self, graph: Graph, inputs: Sequence[Value]) -> Graph:
        """The copy, with `inputs` as its inputs."""
        formal = [self._input(value) for value in inputs]
        nodes = [self._node(node) for node in graph.nodes]
        return Graph(formal, [self.value(value) for value in graph.outputs], nodes)

    def _input(self, value: Value) -> Value:
        owned = value.is_constant or value.name.startswith(f"{self.path}.")
        name = value.name.removeprefix(f"{self.path}.") if owned and value.name else "input"
        self.values[value] = Value(value.dtype, value.shape, name=name)
        self.values[value].element = value.element
        return self.values[value]

    def value(self, value: Value) -> Value:
        """The copy's own value for one of the original's."""
        if value not in self.values:
            made = Value(value.dtype, value.shape, name="", const=value.const, stored=value.stored)
            made.element = value.element
            self.values[value] = made
        return self.values[value]

    def _node(self, node: Node) -> Node:
        inputs = [None if value is None else self.value(value) for value in node.inputs]
        attributes = {
            name: self._body(item) if isinstance(item, Graph) else item for name, item in node.attributes.items()
        }
        outputs = [self.value(value) for value in node.outputs]
        source = node.source.within(self.path)
        made = Node(node.op_type, inputs, outputs, attributes, node.domain, source)
        for value in outputs:
            value.node = made
        return made

    def _body(self, body: Graph) -> Graph:
        inputs = [self.value(value) for value in body.inputs]
        for copy, value in zip(inputs, body.inputs, strict=True):
            copy.name = value.name
        nodes = [self._node(node) for node in body.nodes]
        return Graph(inputs, [self.value(value) for value in body.outputs], nodes)


def _key(graph: Graph) -> Hashable:
    """A key that is equal for two graphs with the same nodes: values are numbered in order of appearance."""
    numbers: dict[Value, Hashable] = {}

    def number(value: Value | None) -> Hashable:
        if value is None:
            return None
        if value.const is not None:
            return attribute_key(value.const)
        return numbers.setdefault(value, len(numbers))

    def of(graph: Graph) -> Hashable:
        inputs = tuple(map(number, graph.inputs))
        nodes = tuple(
            (
                node.domain,
                node.op_type,
                tuple(map(number, node.inputs)),
                tuple(map(number, node.outputs)),
                tuple(
                    (name, of(item) if isinstance(item, Graph) else attribute_key(item))
                    for name, item in sorted(node.attributes.items())
                ),
            )
            for node in graph.nodes
        )
        return inputs, nodes, tuple(map(number, graph.outputs))

    return of(graph)
