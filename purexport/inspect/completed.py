"""What a salvaged model lacks to be valid: versions, a name, inputs for values that nothing makes, outputs.

Strategy: what the rest of the model says is taken, and what it does not say is guessed so that the nodes fit it.  The
opset is the newest that the IR version had and every node fits.  A value that is used and that nothing makes becomes an
input.  Its data type is that of an operand that must have the same one, else the first that the operator takes.  Its
rank is the first with which shape inference agrees, where those of the other operands come first.  Results that nobody
uses become outputs.
Invariant: nothing that was kept is changed.  Every guess is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy

import proto_schema as ps
from proto_schema.checker import CheckerContext, check_node
from proto_schema.errors import CheckError
from proto_schema.graphs.dims import known_size
from proto_schema.graphs.names import bodies, constants, free_names
from proto_schema.helper import find_min_ir_version_for, make_opsetid, make_tensor_type_proto
from proto_schema.inference.alone import infer_node_outputs
from proto_schema.inference.walk import InferenceError
from proto_schema.onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.operators import canonical, ir_version_for, newest_opset, schema

_RANKS = (4, 2, 3, 1, 5, 0)  # of a value of which nothing is known; the first that fits
_MOST_GUESSED = 500  # inputs and outputs: a model that lacks more is not worth a guess each
_FIRST_TYPES = ("tensor(float)", "tensor(int64)", "tensor(bool)")


class Additions:
    """The fields to add to the model and to its graph, the outputs to leave out, and a line about each."""

    def __init__(self) -> None:
        self.model = ModelProto()
        self.graph = GraphProto()
        self.left_out: set[str] = set()
        self.notes: list[str] = []


def additions(model: ModelProto) -> Additions:
    """What to add to a model, which has no weights' data here, so that it is valid; what cannot be known is a guess."""
    found = Additions()
    graph = model.graph
    if graph is None:
        return found
    opsets = _opsets(model, found)
    if not graph.name:
        found.graph.name = "salvaged"
        found.notes.append("the graph's name: salvaged")
    types = _Types(graph, opsets)
    made = {value.name for value in graph.input} | {tensor.name for tensor in constants(graph)}
    for node in graph.node:
        for name in dict.fromkeys(free_names(node)):
            if name not in made and len(found.graph.input) < _MOST_GUESSED:
                value = ValueInfoProto(name=name, type=types.of(name, node))
                found.graph.input.append(value)
                found.notes.append(f"input {name}: {_text(value.type)}; nothing makes this value")
                made.add(name)
        types.follow(node)
        made.update(name for name in node.output if name)
    _outputs(graph, made, types, found)
    return found


def _opsets(model: ModelProto, found: Additions) -> list[OperatorSetIdProto]:
    """The opsets of the model, with those that its nodes need; also its IR version."""
    bodies: list[GraphProto | FunctionProto | None] = [model.graph, *model.functions]
    nodes = [node for body in bodies if body is not None for node in _all(body.node)]
    given = {canonical(item.domain or "") for item in model.opset_import}
    own = {function.domain for function in model.functions}
    for domain in dict.fromkeys(["", *(canonical(node.domain or "") for node in nodes)]):
        if domain in given:
            continue
        version, many = 1, "all"
        if not domain or domain in ("ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.training"):
            version, many = _version(domain, nodes, model.ir_version)
        found.model.opset_import.append(make_opsetid(domain, version))
        why = "a domain of its own" if domain in own else f"the newest that {many} its nodes fit, or a guess"
        found.notes.append(f"opset {domain or 'ai.onnx'} {version}: {why}")
    opsets = [*model.opset_import, *found.model.opset_import]
    if not model.ir_version:
        found.model.ir_version = find_min_ir_version_for(opsets, ignore_unknown=True)
        found.notes.append(f"IR version {found.model.ir_version}: the lowest that has these opsets")
    return opsets


def _all(nodes: list[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for graph in bodies(node):
            yield from _all(graph.node)


def _version(domain: str, nodes: list[NodeProto], ir_version: int | None) -> tuple[int, str]:
    """The newest opset, of those that the IR version had, at which the checker takes most nodes: `all` or `most of`."""
    apart = {
        (node.op_type, len(node.input), len(node.output), *sorted(str(item.name) for item in node.attribute)): node
        for node in nodes
        if canonical(node.domain or "") == domain
    }
    alone = [_without_bodies(node) for node in apart.values()]
    newest = newest_opset(domain)
    versions = [at for at in range(newest, 0, -1) if not ir_version or ir_version_for(at, domain) <= ir_version]
    best, most = versions[0] if versions else newest, -1
    for version in versions:
        context = CheckerContext(ir_version or int(ps.Version.IR_VERSION), {domain: version})
        count = sum(_fits(node, context) for node in alone)
        if count > most:
            best, most = version, count
        if count == len(alone):
            break
    return best, "all" if most == len(alone) else "most of"


def _without_bodies(node: NodeProto) -> NodeProto:
    """The node with empty graphs: nodes in them use values of the graph around it, and are asked themselves."""
    alone = copy(node)
    alone.attribute = [copy(item) for item in node.attribute]
    for item in alone.attribute:
        item.g, item.graphs = GraphProto(name="body") if item.g is not None else None, []
    return alone


def _fits(node: NodeProto, context: CheckerContext) -> bool:
    try:
        check_node(node, context)
    except CheckError:
        return False
    return True


class _Types:
    """The types of values, from what is declared and from what the nodes make of it."""

    def __init__(self, graph: GraphProto, opsets: list[OperatorSetIdProto]) -> None:
        self.opsets = opsets
        self.versions = {canonical(item.domain or ""): item.version or 0 for item in opsets}
        self.known: dict[str, TypeProto] = {}
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.name and value.type is not None:
                self.known[value.name] = value.type
        for tensor in constants(graph):
            self.known[tensor.name or ""] = make_tensor_type_proto(tensor.data_type or 1, list(tensor.dims))

    def of(self, name: str, node: NodeProto) -> TypeProto:
        """The type of a value that a node uses: what is declared, else a guess, which counts from now on."""
        found = self.known.get(name)
        if not _complete(found):
            code = self._code(name, node)
            ranks = [
                rank
                for rank in (*self._ranks_beside(node), *_RANKS)
                if self._agrees(name, make_tensor_type_proto(code, [None] * rank), node)
            ]
            found = make_tensor_type_proto(code, [None] * (ranks or [1])[0])
            self.known[name] = found
        assert found is not None
        return found

    def result(self, name: str, node: NodeProto) -> TypeProto:
        """The type of a result; where its rank is unknown, it is taken to have one axis."""
        found = self.known.get(name)
        if _complete(found):
            assert found is not None
            return found
        code = found.tensor_type.elem_type if found is not None and found.tensor_type is not None else None
        return make_tensor_type_proto(code or int(TensorProto.DataType.FLOAT), [None])

    def follow(self, node: NodeProto) -> None:
        """What the node makes of the types of its inputs."""
        for name, found in self._inferred(node, self.known).items():
            if not _complete(self.known.get(name)):
                self.known[name] = found

    def _code(self, name: str, node: NodeProto) -> int:
        """The data type of an operand: that of another one that must have the same, else one that it may have."""
        known = schema(node.op_type or "", self.versions.get(canonical(node.domain or ""), 0), node.domain or "")
        if known is None or name not in node.input:
            return int(TensorProto.DataType.FLOAT)
        formals = [known.inputs[min(at, len(known.inputs) - 1)] for at in range(len(node.input))]
        formal = formals[list(node.input).index(name)]
        for other, theirs in zip(node.input, formals, strict=True):
            of_other = self.known.get(other)
            if theirs.type == formal.type and of_other is not None and of_other.tensor_type is not None:
                return of_other.tensor_type.elem_type or 1
        allowed = known.constraints.get(formal.type, frozenset([formal.type]))
        first = next((text for text in (*_FIRST_TYPES, *sorted(allowed)) if text in allowed), _FIRST_TYPES[0])
        word = first.removeprefix("tensor(").removesuffix(")").upper()
        return int(TensorProto.DataType.__members__.get(word, TensorProto.DataType.FLOAT))

    def _ranks_beside(self, node: NodeProto) -> Iterator[int]:
        """The ranks of the other operands."""
        for name in node.input:
            kind = self.known.get(name)
            if kind is not None and kind.tensor_type is not None and kind.tensor_type.shape is not None:
                yield len(kind.tensor_type.shape.dim)

    def _agrees(self, name: str, guess: TypeProto, node: NodeProto) -> bool:
        """Whether the node takes a value of this type, as far as its other operands are known."""
        try:
            self._checked(node, {**self.known, name: guess})
        except (InferenceError, CheckError, ValueError):
            return False
        return True

    def _inferred(self, node: NodeProto, known: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
        try:
            return self._checked(node, known)
        except (InferenceError, CheckError, ValueError):
            return {}

    def _checked(self, node: NodeProto, known: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
        version = self.versions.get(canonical(node.domain or ""), 0)
        entry = schema(node.op_type or "", version, node.domain or "")
        if entry is None:
            return {}
        given = {name: known.get(name, TypeProto()) for name in free_names(node)}
        return infer_node_outputs(entry, node, given, opset_imports=self.opsets)


def _complete(kind: TypeProto | None) -> bool:
    """Whether a value of a main graph may be declared so."""
    if kind is None or kind.WhichOneof("value") is None:
        return False
    return kind.tensor_type is None or (bool(kind.tensor_type.elem_type) and kind.tensor_type.shape is not None)


def _text(kind: TypeProto | None) -> str:
    """`FLOAT[?, 6]`; the form alone for what is no tensor."""
    tensor = kind.tensor_type if kind is not None else None
    if tensor is None:
        return (kind.WhichOneof("value") if kind is not None else None) or "of no type"
    dims = tensor.shape.dim if tensor.shape is not None else []
    sizes = ["?" if (size := known_size(dim)) is None else str(size) for dim in dims]
    name = next((name for name, code in TensorProto.DataType.__members__.items() if code == tensor.elem_type), "?")
    return f"{name}[{', '.join(dim.dim_param or size for dim, size in zip(dims, sizes, strict=True))}]"


def _outputs(graph: GraphProto, made: set[str | None], types: _Types, found: Additions) -> None:
    """Outputs that nothing makes are left out; without any the results that no node uses take their place."""
    found.left_out = {value.name or "" for value in graph.output if value.name not in made}
    found.notes += [f"without output {name}: nothing makes it any more" for name in sorted(found.left_out)]
    if len(graph.output) > len(found.left_out):
        return
    used = {name for node in graph.node for name in free_names(node)}
    for node in graph.node:
        for name in node.output:
            if name and name not in used and len(found.graph.output) < _MOST_GUESSED:
                value = ValueInfoProto(name=name, type=types.result(name, node))
                found.graph.output.append(value)
                found.notes.append(f"output {name}: {_text(value.type)}; no node uses this value")
