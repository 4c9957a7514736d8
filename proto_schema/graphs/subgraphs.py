"""Parts of a model between named values: the nodes that are needed, and what says their types.

The walk goes back from the outputs, over what nodes use and what their subgraphs take from outside, and ends at the
inputs. It takes time linear in the graph. Messages and weights are shared with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from proto_schema.graphs.names import Unique, as_text, defined, free_names, used
from proto_schema.graphs.similar import similar
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["subgraph"]


@dataclass
class _Cut:
    """The parts of a subgraph, found by going back from its outputs."""

    nodes: set[int]
    used: set[str]
    open: list[str]


def subgraph(
    model: ModelProto, outputs: Sequence[str], inputs: Sequence[str] | None = None, *, all_inputs: bool = False
) -> ModelProto:
    """A model of the nodes between named values: all that `outputs` need, back to `inputs` (default: the graph's own).

    With `all_inputs`, inputs that nothing needs stay inputs. Weights are shared with `model`. Raises ValueError for
    names that are not in the graph, inputs that are missing, and values whose type the file does not say.
    """
    graph = model.graph or GraphProto()
    makers = {name: at for at, node in enumerate(graph.node) for name in map(as_text, node.output) if name}
    constants = {as_text(tensor.name) for tensor in graph.initializer}
    constants |= {as_text(row.values.name) for row in graph.sparse_initializer if row.values is not None}
    own = [as_text(value.name) for value in graph.input if as_text(value.name) not in constants]
    known = {*makers, *constants, *(as_text(value.name) for value in graph.input)}
    for name in [*outputs, *(inputs or ())]:
        if name not in known:
            close = similar(name, known)
            raise ValueError(f"the graph has no value {name!r}{'; it has ' if close else ''}{', '.join(close)}")
    starts = list(own if inputs is None else inputs)
    begin = set(starts)
    cut = _cut(graph.node, outputs, begin, makers, constants)
    missing = [name for name in cut.open if name not in begin]
    if missing:
        raise ValueError(f"{', '.join(outputs)} also need {', '.join(missing)}: name it among the inputs")
    starts = [name for name in starts if all_inputs or name in cut.used]
    made = GraphProto(name=graph.name or "subgraph", node=_nodes(graph, cut, begin))
    kept = cut.used - begin
    made.initializer = [tensor for tensor in graph.initializer if as_text(tensor.name) in kept]
    made.sparse_initializer = [
        row for row in graph.sparse_initializer if row.values and as_text(row.values.name) in kept
    ]
    types = _types(graph)
    made.input = [_typed(types, name) for name in starts]
    made.output = [_typed(types, name) for name in outputs]
    inner = {as_text(name) for node in made.node for name in node.output} - set(outputs)
    made.value_info = [value for value in graph.value_info if as_text(value.name) in inner]
    rest = {row.name: getattr(model, row.name) for row in ModelProto.FIELDS if row.name not in ("graph",)}
    return ModelProto(graph=made, **{name: value for name, value in rest.items() if value})


def _nodes(graph: GraphProto, cut: _Cut, begin: set[str]) -> list[NodeProto]:
    """The nodes of the part. A result that is also an input of the part has another name, which nobody reads."""
    nodes = [graph.node[at] for at in sorted(cut.nodes)]
    unique = None
    for place, node in enumerate(nodes):
        if any(as_text(name) in begin for name in node.output):
            unique = unique or Unique([*used(graph.node), *defined(graph)])
            nodes[place] = copy(node)
            nodes[place].output = [unique(as_text(name)) if as_text(name) in begin else name for name in node.output]
    return nodes


def _cut(
    nodes: Sequence[NodeProto], outputs: Sequence[str], starts: set[str], makers: dict[str, int], constants: set[str]
) -> _Cut:
    cut = _Cut(set(), set(), [])
    todo = list(outputs)
    while todo:
        name = todo.pop()
        if name in cut.used:
            continue
        cut.used.add(name)
        if name in starts or name in constants:
            continue
        if name not in makers:
            cut.open.append(name)
        elif makers[name] not in cut.nodes:
            cut.nodes.add(makers[name])
            todo += map(as_text, free_names(nodes[makers[name]]))
    return cut


def _types(graph: GraphProto) -> dict[str, ValueInfoProto | TensorProto]:
    """What says the type of each value: the first entry that has it, else the tensor."""
    found: dict[str, ValueInfoProto | TensorProto] = {}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type is not None:
            found.setdefault(as_text(value.name), value)
    for tensor in graph.initializer:
        found.setdefault(as_text(tensor.name), tensor)
    return found


def _typed(types: Mapping[str, ValueInfoProto | TensorProto], name: str) -> ValueInfoProto:
    found = types.get(name)
    if isinstance(found, TensorProto):
        from proto_schema.helper import make_tensor_value_info  # it loads numpy

        return make_tensor_value_info(name, found.data_type or 0, found.dims)
    if found is None:
        raise ValueError(
            f"the file does not say the type of {name!r}: infer shapes first, or where an operator is not known cut at "
            "another value"
        )
    return found
