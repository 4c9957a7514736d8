"""Models and graphs put together, with the names of `onnx.compose`.

    merged = ps.compose.merge_models(encoder, decoder, io_map=[("features", "memory")])

Nothing that is given changes, unless `inplace` asks for it. Messages are copied but for what is large: weights stay
views of the files that they were loaded from, and external data stays where it is, so that models of any size are
joined in the time of their graphs. Renaming follows scopes: a name in the body of an If changes where its value does.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence

from proto_schema.graphs.calls import FunctionId, callable_functions, callee, domain_of, function_id
from proto_schema.graphs.names import Unique, as_text, bodies, constants, defined, rename_graph, rename_node, used
from proto_schema.graphs.similar import similar
from proto_schema.graphs.subgraphs import subgraph
from proto_schema.helper import make_model, make_node, make_tensor
from proto_schema.onnx import (
    DeviceConfigurationProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
)

__all__ = [
    "OverlapError",
    "add_prefix",
    "add_prefix_graph",
    "check_overlapping_names",
    "expand_out_dim",
    "expand_out_dim_graph",
    "merge_graphs",
    "merge_models",
]

Pairs = Sequence[tuple[str, str]]

_AXES_ARE_INPUTS = 13
"""The opset from which Unsqueeze takes its axes as an input."""


# -- merging -----------------------------------------------------------------------------------------------------------


def check_overlapping_names(g1: GraphProto, g2: GraphProto, io_map: Pairs | None = None) -> list[tuple[str, list[str]]]:
    """The names that both graphs have, as (kind, names) where there are any.

    Kinds are "edge", "value_info", "initializer" and "sparse_initializer". Inputs of `g2` in `io_map` do not count as
    edges, for they go away when the graphs are joined. Raises TypeError for what is no graph.
    """
    _require(GraphProto, g1=g1, g2=g2)
    joined = {name for _, name in io_map or ()}
    kinds: list[tuple[str, Iterable[str], Iterable[str]]] = [
        ("edge", _edges(g1), (name for name in _edges(g2) if name not in joined)),
        ("value_info", _names(g1.value_info), _names(g2.value_info)),
        ("initializer", _names(g1.initializer), _names(g2.initializer)),
    ]
    found = [(kind, _common(first, second)) for kind, first, second in kinds]
    sparse = [_common(_sparse(g1, part), _sparse(g2, part)) for part in ("values", "indices")]
    found.append(("sparse_initializer", [*sparse[0], *sparse[1]]))
    return [(kind, names) for kind, names in found if names]


def merge_graphs(
    g1: GraphProto,
    g2: GraphProto,
    io_map: Pairs,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    prefix1: str | None = None,
    prefix2: str | None = None,
    name: str | None = None,
    doc_string: str | None = None,
) -> GraphProto:
    """One graph of two: the outputs of `g1` feed the inputs of `g2` as `io_map` pairs them.

    The other inputs and outputs stay, or those that `inputs` and `outputs` name. `prefix1` and `prefix2` go before all
    names of a graph, in `io_map` too; `inputs` and `outputs` are names of the result. `name` is by default both names
    with an underscore between. Raises TypeError for what is no graph, ValueError for a name that a graph does not have
    and for names that both have.
    """
    _require(GraphProto, g1=g1, g2=g2)
    io_map = [((prefix1 or "") + first, (prefix2 or "") + second) for first, second in io_map]
    g1 = add_prefix_graph(g1, prefix1) if prefix1 else copy.deepcopy(g1)
    g2 = add_prefix_graph(g2, prefix2) if prefix2 else copy.deepcopy(g2)
    _check_pairs(g1, g2, io_map)
    g1, g2 = _parts(g1, g2, io_map, inputs, outputs)
    _check_overlap(g1, g2, io_map)

    source = {second: first for first, second in io_map}
    feeding = {first for first, _ in io_map}
    first_name, second_name = g1.name or "", g2.name or ""
    made = GraphProto(name=f"{first_name}_{second_name}" if name is None else name)
    made.doc_string = _joined_docs(g1, g2) if doc_string is None else doc_string
    made.input = [*g1.input, *(value for value in g2.input if value.name not in source)]
    made.output = [*g1.output, *g2.output]
    if inputs:
        kept = set(inputs)
        made.input = [value for value in made.input if value.name in kept]
    if outputs:
        kept = set(outputs)
        made.output = [value for value in made.output if value.name in kept]
    else:
        made.output = [*(value for value in g1.output if value.name not in feeding), *g2.output]
    made.node = [*g1.node, *_connected(g2, source)]
    made.initializer = [*g1.initializer, *(tensor for tensor in g2.initializer if tensor.name not in source)]
    made.sparse_initializer = [
        *g1.sparse_initializer,
        *(sparse for sparse in g2.sparse_initializer if sparse.values is None or sparse.values.name not in source),
    ]
    made.value_info = [*g1.value_info, *(value for value in g2.value_info if value.name not in source)]
    known = {value.name for value in (*made.value_info, *made.output)}
    made.value_info += [value for value in g1.output if value.name in feeding and value.name not in known]
    made.quantization_annotation = [*g1.quantization_annotation, *g2.quantization_annotation]
    made.metadata_props = _metadata(g1.metadata_props, g2.metadata_props, strict=False)
    return made


def merge_models(
    m1: ModelProto,
    m2: ModelProto,
    io_map: Pairs,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    prefix1: str | None = None,
    prefix2: str | None = None,
    name: str | None = None,
    doc_string: str | None = None,
    producer_name: str | None = "onnx.compose.merge_models",
    producer_version: str | None = "1.0",
    domain: str | None = "",
    model_version: int | None = 1,
) -> ModelProto:
    """One model of two, as `merge_graphs` joins their graphs; a prefix goes before the names of functions too.

    Functions that both models have stay once if they are the same. Training information is left out. The result is
    checked. Raises TypeError for what is no model, CheckError where the result is not valid, ValueError as
    `merge_graphs` does and where IR versions, opsets, metadata or functions of the models differ.
    """
    _require(ModelProto, m1=m1, m2=m2)
    if m1.ir_version != m2.ir_version:
        raise ValueError(
            f"the models have IR versions {m1.ir_version} and {m2.ir_version}: set `ir_version` of both to the higher "
            "one, which reads all that the lower one holds"
        )
    imports = _imports(m1, m2)
    io_map = [((prefix1 or "") + first, (prefix2 or "") + second) for first, second in io_map]
    m1 = add_prefix(m1, prefix1) if prefix1 else m1
    m2 = add_prefix(m2, prefix2) if prefix2 else m2
    graph = merge_graphs(
        m1.graph or GraphProto(), m2.graph or GraphProto(), io_map, inputs, outputs, name=name, doc_string=doc_string
    )
    model = make_model(
        graph,
        opset_imports=imports,
        ir_version=m1.ir_version,
        producer_name=producer_name,
        producer_version=producer_version,
        domain=domain,
        model_version=model_version,
        functions=_functions(m1, m2),
    )
    model.metadata_props = _metadata(m1.metadata_props, m2.metadata_props, strict=True)
    model.configuration = _configurations(m1, m2)
    from proto_schema.checker import check_model

    check_model(model)
    return model


def _check_pairs(g1: GraphProto, g2: GraphProto, io_map: Pairs) -> None:
    has, takes = {value.name or "" for value in g1.output}, {value.name or "" for value in g2.input}
    seen: set[str] = set()
    for first, second in io_map:
        if first not in has:
            raise ValueError(f"io_map: the first graph has no output {first!r}{_close(first, has)}")
        if second not in takes:
            raise ValueError(f"io_map: the second graph has no input {second!r}{_close(second, takes)}")
        if second in seen:
            raise ValueError(f"io_map: the input {second!r} of the second graph is fed twice")
        seen.add(second)


def _close(name: str, known: Iterable[str]) -> str:
    names = similar(name, known)
    return f"; it has {', '.join(map(repr, names))}" if names else ""


def _parts(
    g1: GraphProto, g2: GraphProto, io_map: Pairs, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> tuple[GraphProto, GraphProto]:
    """What is left of the graphs when only these inputs and outputs stay."""
    for what, names, fields in (
        ("inputs", inputs, [*g1.input, *g2.input]),
        ("outputs", outputs, [*g1.output, *g2.output]),
    ):
        known = {value.name or "" for value in fields}
        for wanted in names or ():
            if wanted not in known:
                raise ValueError(f"{what}: none of the graphs has {wanted!r}{_close(wanted, known)}")
    sides = []
    for graph, kept_in, kept_out in (
        (g1, set(inputs or ()), {*(outputs or ()), *(first for first, _ in io_map)}),
        (g2, {*(inputs or ()), *(second for _, second in io_map)}, set(outputs or ())),
    ):
        starts = [value.name or "" for value in graph.input if not inputs or value.name in kept_in]
        ends = [value.name or "" for value in graph.output if not outputs or value.name in kept_out]
        if (len(starts), len(ends)) != (len(graph.input), len(graph.output)):
            found = subgraph(ModelProto(graph=graph), ends, starts, all_inputs=True).graph or GraphProto()
            found.doc_string, found.metadata_props = graph.doc_string, graph.metadata_props
            graph = found  # noqa: PLW2901
        sides.append(graph)
    return sides[0], sides[1]


class OverlapError(ValueError):
    """Two graphs that are to become one have the same names.  `found` says which, without what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        super().__init__(f"{found}. {remedy}")


def _check_overlap(g1: GraphProto, g2: GraphProto, io_map: Pairs) -> None:
    for kind, names in check_overlapping_names(g1, g2, io_map):
        shown = ", ".join(map(as_text, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise OverlapError(
            f"both graphs have these {kind} names: {shown}",
            "Give one of them a prefix: prefix2='second_', or add_prefix before",
        )
    joined = {second for _, second in io_map}
    both = _common(defined(g1), (name for name in defined(g2) if name not in joined))
    if both:
        raise OverlapError(f"both graphs define {', '.join(map(as_text, both[:10]))}", "Give one of them a prefix")


def _connected(graph: GraphProto, source: dict[str, str]) -> Iterator[NodeProto]:
    """The nodes of the second graph, taking values of the first in place of its inputs."""
    scope = ChainMap(source)
    for node in graph.node:
        rename_node(node, scope, lambda _: {}, str)
        yield node
    made = {name for node in graph.node for name in node.output}
    for value in graph.output:  # an input that is an output as well
        if value.name in source and value.name not in made:
            yield make_node("Identity", [source[value.name]], [value.name])


def _joined_docs(g1: GraphProto, g2: GraphProto) -> str:
    texts = [as_text(text) for graph in (g1, g2) for text in (graph.name, graph.doc_string)]
    return f"Graph combining {texts[0]} and {texts[2]}\n" + "\n\n".join(texts)


def _imports(m1: ModelProto, m2: ModelProto) -> list[OperatorSetIdProto]:
    """The opsets of both. ValueError where they differ."""
    first, second = ({domain_of(row.domain): row.version or 0 for row in model.opset_import} for model in (m1, m2))
    differing = [domain for domain in first if second.get(domain, first[domain]) != first[domain]]
    if differing:
        shown = ", ".join(f"{name or 'ai.onnx'} {first[name]} and {second[name]}" for name in differing)
        newest = max(first[differing[0]], second[differing[0]])
        raise ValueError(
            f"the models import different opsets: {shown}. Convert one of them first: "
            f"ps.version_converter.convert_version(model, {newest})"
        )
    return [OperatorSetIdProto(domain=domain, version=version) for domain, version in {**first, **second}.items()]


def _metadata(
    first: list[StringStringEntryProto], second: list[StringStringEntryProto], strict: bool
) -> list[StringStringEntryProto]:
    """The entries of both; of a key that both have, the first is kept. `strict`: ValueError where the values differ."""
    made = {entry.key: entry.value for entry in first}
    for entry in second:
        if strict and made.get(entry.key, entry.value) != entry.value:
            raise ValueError(
                f"the metadata {entry.key!r} is {made[entry.key]!r} in one model and {entry.value!r} in the other: "
                "make them the same, or remove one"
            )
        made.setdefault(entry.key, entry.value)
    return [StringStringEntryProto(key=key, value=value) for key, value in made.items()]


def _functions(m1: ModelProto, m2: ModelProto) -> list[FunctionProto]:
    known = {function_id(function): function for function in m1.functions}
    made = [copy.deepcopy(function) for function in m1.functions]
    differing = []
    for function in m2.functions:
        other = known.get(function_id(function))
        if other is None:
            made.append(copy.deepcopy(function))
        elif other != function:
            differing.append(f"{function.domain or ''}::{function.name or ''}")
    if differing:
        raise ValueError(
            f"both models have functions of these names, and they differ: {', '.join(differing[:10])}. Give one of "
            "the models a prefix: prefix2='second_'"
        )
    return made


def _configurations(m1: ModelProto, m2: ModelProto) -> list[DeviceConfigurationProto]:
    made = [copy.deepcopy(row) for row in m1.configuration]
    known = {row.name: row for row in made}
    for row in m2.configuration:
        if row.name not in known:
            made.append(copy.deepcopy(row))
        elif known[row.name] != row:
            raise ValueError(f"both models have a device configuration {row.name!r}, and they differ: rename one")
    return made


# -- prefixes ----------------------------------------------------------------------------------------------------------


def add_prefix_graph(
    graph: GraphProto,
    prefix: str,
    rename_nodes: bool | None = True,
    rename_edges: bool | None = True,
    rename_inputs: bool | None = True,
    rename_outputs: bool | None = True,
    rename_initializers: bool | None = True,
    rename_value_infos: bool | None = True,
    inplace: bool | None = False,
    name_map: dict[str, str] | None = None,
) -> GraphProto:
    """The graph with `prefix` before its names; empty names stay empty.

    `rename_edges` is for results of nodes that are no outputs. A value that is of two kinds gets the prefix if one of
    them does. With `rename_nodes` the graphs in nodes get it throughout; without, they only follow the names that they
    take from outside. `name_map`: new names for values from around the graph, to which those of this one are added.
    Raises TypeError for what is no graph, ValueError where a new name is already another value's.
    """
    _require(GraphProto, graph=graph)
    made = graph if inplace else copy.deepcopy(graph)
    outputs = set(_names(made.output))
    renamed: set[str] = set()
    if rename_edges:
        renamed.update(name for node in made.node for name in node.output if name not in outputs)
    if rename_inputs:
        renamed.update(_names(made.input))
    if rename_outputs:
        renamed |= outputs
    if rename_initializers:
        renamed.update(_names(constants(made)))
        renamed.update(_sparse(made, "indices"))
    if rename_value_infos:
        renamed.update(_names(made.value_info))
    renamed.discard("")
    own = {name: _with(prefix, name) for name in renamed}
    taken = _common(own.values(), (name for name in defined(made) if name not in renamed))
    if taken:
        raise ValueError(f"with the prefix {prefix!r}, names of values would equal other names: {', '.join(taken)}")

    def local(inner: GraphProto) -> dict[str, str]:
        if inner is made:
            return own
        if not rename_nodes:
            return {}
        names = [*defined(inner), *_names(inner.value_info), *_sparse(inner, "indices")]
        return {name: _with(prefix, name) for name in names if name}

    around = {} if name_map is None else name_map
    rename_graph(made, ChainMap(around), local, (lambda name: _with(prefix, name)) if rename_nodes else str)
    around.update(own)
    return made


def add_prefix(
    model: ModelProto,
    prefix: str,
    rename_nodes: bool | None = True,
    rename_edges: bool | None = True,
    rename_inputs: bool | None = True,
    rename_outputs: bool | None = True,
    rename_initializers: bool | None = True,
    rename_value_infos: bool | None = True,
    rename_functions: bool | None = True,
    inplace: bool | None = False,
) -> ModelProto:
    """The model with `prefix` before the names in its graph, as `add_prefix_graph`, and those of its functions.

    What stands inside of functions keeps its names, but for calls of functions. Raises TypeError for what is no model.
    """
    _require(ModelProto, model=model)
    made = model if inplace else copy.deepcopy(model)
    if made.graph is not None:
        add_prefix_graph(
            made.graph,
            prefix,
            rename_nodes,
            rename_edges,
            rename_inputs,
            rename_outputs,
            rename_initializers,
            rename_value_infos,
            inplace=True,
        )
    if rename_functions and made.functions:
        own = set(callable_functions(made.functions))
        for function in made.functions:
            function.name = _with(prefix, function.name or "")
            _rename_calls(function.node, own, prefix)
        _rename_calls(made.graph.node if made.graph is not None else [], own, prefix)
    return made


def _rename_calls(nodes: Iterable[NodeProto], functions: set[FunctionId], prefix: str) -> None:
    for node in nodes:
        if callee(node) in functions:
            node.op_type = _with(prefix, node.op_type or "")
        for graph in bodies(node):
            _rename_calls(graph.node, functions, prefix)


def _with(prefix: str, name: str) -> str:
    if isinstance(name, bytes):  # a name that is no UTF-8
        return prefix.encode() + name
    return prefix + name if name else name


# -- a new axis --------------------------------------------------------------------------------------------------------


def expand_out_dim_graph(graph: GraphProto, dim_idx: int, inplace: bool | None = False) -> GraphProto:
    """The graph with an axis of size 1 inserted into each output, whose name stays, by Unsqueeze nodes.

    `dim_idx` is where the axis is in the result; a negative one counts from the back. The nodes are of opset 13 or
    later. Raises TypeError for what is no graph, ValueError for outputs that are no tensors or that no node makes.
    """
    return _expanded(graph, dim_idx, bool(inplace), _AXES_ARE_INPUTS)


def expand_out_dim(model: ModelProto, dim_idx: int, inplace: bool | None = False) -> ModelProto:
    """The model with an axis of size 1 inserted into each output, as `expand_out_dim_graph`, at the model's opset."""
    _require(ModelProto, model=model)
    made = model if inplace else copy.deepcopy(model)
    opset = next((row.version for row in made.opset_import if not domain_of(row.domain)), None)
    if made.graph is not None:
        _expanded(made.graph, dim_idx, True, _AXES_ARE_INPUTS if opset is None else opset)
    return made


def _expanded(graph: GraphProto, axis: int, inplace: bool, opset: int) -> GraphProto:
    _require(GraphProto, graph=graph)
    by_nodes = {name for node in graph.node for name in node.output}
    for value in graph.output:
        if value.name not in by_nodes:
            raise ValueError(f"the output {value.name!r} is not the result of a node: put an Identity before it")
        if value.type is not None and value.type.tensor_type is None:
            raise ValueError(f"the output {value.name!r} is not a tensor, and only tensors have axes")
    shapes = [_with_axis(value, axis) for value in graph.output]
    made = graph if inplace else copy.deepcopy(graph)
    unique = Unique([*used(made.node), *defined(made)])
    inner = {name: unique(f"{name}_collapsed_dim_{axis}") for name in _names(made.output)}
    outputs, made.output = made.output, []
    rename_graph(made, ChainMap(), lambda scope: inner if scope is made else {}, str)
    axes = unique(f"{made.name or ''}_expand_out_dim_idx")
    if opset >= _AXES_ARE_INPUTS:
        constant = make_tensor(f"{axes}-value", TensorProto.INT64, [1], [axis])
        made.node.append(make_node("Constant", [], [axes], f"{axes}-constant", value=constant))
    for output, shape in zip(outputs, shapes, strict=True):
        name = output.name or ""
        if opset >= _AXES_ARE_INPUTS:
            node = make_node("Unsqueeze", [inner[name], axes], [name], f"unsqueeze-{name}")
        else:
            node = make_node("Unsqueeze", [inner[name]], [name], f"unsqueeze-{name}", axes=[axis])
        made.node.append(node)
        if shape is not None and output.type is not None:
            output.type.tensor_type.shape = shape
    made.output = outputs
    return made


def _with_axis(value: ValueInfoProto, axis: int) -> TensorShapeProto | None:
    """The shape of an output with the new axis; None where the rank is unknown."""
    shape: TensorShapeProto | None = None if value.type is None else value.type.tensor_type.shape
    if shape is None:
        return None
    dims = copy.deepcopy(shape.dim)
    place = axis + len(dims) + 1 if axis < 0 else axis
    if not 0 <= place <= len(dims):
        raise ValueError(f"the output {value.name!r} has {len(dims)} axes: none can be inserted at {axis}")
    dims.insert(place, TensorShapeProto.Dimension(dim_value=1))
    return TensorShapeProto(dim=dims)


# -- small things ------------------------------------------------------------------------------------------------------


def _require(kind: type[GraphProto] | type[ModelProto], **given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not a {type(value).__name__}")


def _names(items: Iterable[ValueInfoProto | TensorProto]) -> Iterator[str]:
    return (item.name for item in items if item.name)


def _edges(graph: GraphProto) -> Iterator[str]:
    return (name for node in graph.node for name in (*node.input, *node.output) if name)


def _sparse(graph: GraphProto, part: str) -> Iterator[str]:
    """The names of the `values` or of the `indices` of sparse initializers."""
    tensors: list[TensorProto | None] = [getattr(sparse, part) for sparse in graph.sparse_initializer]
    return (tensor.name for tensor in tensors if tensor is not None and tensor.name)


def _common(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """What is in both, in the order of the first."""
    others = set(second)
    return [name for name in dict.fromkeys(first) if name in others]
