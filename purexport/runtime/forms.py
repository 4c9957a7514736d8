"""Forms of a program's message that share its weights: other outputs, other names of axes, initializers as inputs.

A message is copied as far as it changes; what does not change belongs to both.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import proto_schema as ps


def with_graph(model: ps.ModelProto, **changes: Any) -> ps.ModelProto:
    """The model with other fields in its graph."""
    graph = copy.copy(model.graph)
    for name, value in changes.items():
        setattr(graph, name, value)
    made = copy.copy(model)
    made.graph = graph
    return made


def with_initializers(model: ps.ModelProto, *, kept: bool, as_inputs: bool) -> ps.ModelProto:
    """The model with its initializers in the file or not, and as inputs or not."""
    graph = model.graph
    known = {item.name for item in graph.input}
    more = [_info(tensor) for tensor in graph.initializer if as_inputs and tensor.name not in known]
    return with_graph(model, input=[*graph.input, *more], initializer=graph.initializer if kept else [])


def with_outputs(model: ps.ModelProto, names: Sequence[str]) -> ps.ModelProto:
    """The model with other values of its graph as outputs.  Raises ValueError for a name that no value has."""
    graph = model.graph
    known = {name: ps.ValueInfoProto(name=name) for node in graph.node for name in node.output if name}
    known |= {tensor.name or "": _info(tensor) for tensor in graph.initializer}
    known |= {item.name or "": item for item in (*graph.value_info, *graph.input, *graph.output)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"the file has no value {unknown[0]!r}; inputs, initializers and results of nodes have names")
    return with_graph(model, output=[known[name] for name in names])


def _info(tensor: ps.TensorProto) -> ps.ValueInfoProto:
    return ps.helper.make_tensor_value_info(tensor.name or "", tensor.data_type or 0, tensor.dims)


# Names of axes --------------------------------------------------------------------------------------------------------


def sizes_of(texts: Iterable[str]) -> dict[str, ps.Size]:
    """The sizes that the texts of a file say.

    The text of an expression is what the expression is written as; any other text is a name, whatever it holds.
    """
    known = frozenset(texts)
    found = {}
    for text in known:
        size = ps.Size.parse(f"({text})", known)
        found[text] = size if isinstance(size, ps.Size) and str(size) == text else ps.Size.symbol(text)
    return found


def renamed(sizes: Mapping[str, ps.Size], names: Mapping[str, str]) -> dict[str, str]:
    """What each text becomes where axes have other names: `2*n` is `2*batch` where `n` becomes `batch`.

    An expression may also be a key of `names`, which then names it as a whole.
    """
    values = {name: ps.Size.symbol(new) for name, new in names.items()}
    return {text: names[text] if text in names else str(size.replaced(values)) for text, size in sizes.items()}


def dimensions(model: ps.ModelProto) -> Iterator[ps.TensorShapeProto.Dimension]:
    """The dimensions with a name of every value of the model, those in bodies and functions included."""
    infos = [*_infos(model.graph), *(info for function in model.functions for info in _infos(function))]
    for info in infos:
        yield from (dim for dim in _dims(info.type) if dim.dim_param is not None)


def _infos(graph: ps.GraphProto | ps.FunctionProto) -> Iterator[ps.ValueInfoProto]:
    yield from graph.value_info
    if isinstance(graph, ps.GraphProto):
        yield from (*graph.input, *graph.output)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.g is not None else ()), *attribute.graphs):
                yield from _infos(body)


def _dims(kind: ps.TypeProto | None) -> Sequence[ps.TensorShapeProto.Dimension]:
    if kind is None:
        return ()
    if kind.sequence_type is not None:
        return _dims(kind.sequence_type.elem_type)
    if kind.optional_type is not None:
        return _dims(kind.optional_type.elem_type)
    return kind.tensor_type.shape.dim if kind.tensor_type is not None and kind.tensor_type.shape is not None else ()
