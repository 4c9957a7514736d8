"""Inputs for a model that nobody gives: sizes that inference allows, and random numbers of the declared types.

A size without a number is a symbol to inference. In part it knows what the nodes ask of it: a product says that the
inner size equals the weight's. The rest is tried: numbers are put into the inputs, and inference runs again. Numbers
are allowed where it finds no more contradictions than it found without.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.graphs.dims import known_size
from proto_schema.graphs.sharing import sharing
from proto_schema.inference.types import Tensor
from proto_schema.inference.walk import InferenceError
from proto_schema.ir.inferred import Recorder
from proto_schema.onnx import GraphProto, ModelProto, TensorShapeProto, TypeProto, ValueInfoProto
from proto_schema.sizes import Dim, Size
from proto_schema.tensors.dtypes import DTYPES

TRIED = (2, 3, 4, 8, 16, 32, 64, 48, 128, 224, 256, 512, 640, 1)
"""Sizes of an axis, in this order; the first is the usual one, and the last one broadcasts to whatever is there."""

_FEW = 4  # samples

LONG = (224, 256, 640, 64)
"""Sizes of an axis in which every window fits; most models take one of them."""

_MOST = 1 << 40  # unknown sizes; fewer than infinity

Shapes = dict[str, tuple[int, ...]]


def asked(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that a run needs: those without a default, except optionals, which may have no element."""
    graph = model.graph or GraphProto()
    defaults = {item.name for item in graph.initializer}
    found = [item for item in graph.input if item.name not in defaults]
    return [item for item in found if item.type is None or item.type.optional_type is None]


def allowed_shapes(
    model: ModelProto, sizes: Mapping[str, int] | None = None, given: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Shapes]:
    """Shapes of the inputs that are tensors, the most usual first; where inference allows none, those of size 2.

    `sizes` are those of named axes, `given` the shapes of inputs that are there already.
    """
    named = dict(sizes or {})
    made = sharing(model)
    graph = made.graph or GraphProto()
    for item in graph.input:
        for dim, size in zip(_dims(item), (given or {}).get(item.name or "", ()), strict=False):
            if dim.dim_param:
                named.setdefault(dim.dim_param, size)
    graph.input = [_with(item, named, (given or {}).get(item.name or "")) for item in graph.input]
    known, problems = _inferred(made)
    symbols = _symbols(known)
    found, least = False, _least_unknown(made, symbols, known, problems) if symbols else 0
    for values in _candidates(symbols, known):
        shapes = _numbers(known, values)
        if shapes is not None and (not symbols or _unknown(made, shapes, problems) <= min(least, _MOST)):
            found = True
            yield shapes
    if not found:
        usual = _numbers(known, dict.fromkeys(symbols, TRIED[0]))
        yield usual or {
            name: tuple(size if isinstance(size, int) else 2 for size in row) for name, row in known.items()
        }


def _dims(item: ValueInfoProto) -> Sequence[TensorShapeProto.Dimension]:
    kind = item.type.tensor_type if item.type is not None else None
    return kind.shape.dim if kind is not None and kind.shape is not None else ()


def _with(item: ValueInfoProto, named: Mapping[str, int], shape: Sequence[int] | None) -> ValueInfoProto:
    """The input with numbers where they are known."""
    dims = list(_dims(item))
    sizes: list[int | None] = [named.get(dim.dim_param or "") if known_size(dim) is None else None for dim in dims]
    if shape is not None and len(shape) == len(dims):
        sizes = [size if known_size(dim) is None else None for dim, size in zip(dims, shape, strict=True)]
    if all(size is None for size in sizes):
        return item
    made = copy.deepcopy(item)
    for dim, size in zip(_dims(made), sizes, strict=True):
        if size is not None:
            dim.dim_param, dim.dim_value = None, size
    return made


def _inferred(model: ModelProto) -> tuple[dict[str, tuple[Dim, ...]], int]:
    """The shapes of the inputs as inference knows them in the end, and how many contradictions it found."""
    walk = Recorder(sharing(model))
    try:
        walk.run()
    except InferenceError:
        return {}, 0
    graph = walk.model.graph or GraphProto()
    values = walk.kept.get(id(graph.node), [None])[-1]
    found: dict[str, tuple[Dim, ...]] = {}
    for item in graph.input:
        kind = values.get(item.name or "") if values is not None else None
        if isinstance(kind, Tensor) and kind.shape is not None:
            found[item.name or ""] = tuple([walk.scope.equations.resolved(size) for size in kind.shape])
    return found, len(walk.problems)


def _symbols(known: Mapping[str, tuple[Dim, ...]]) -> list[str]:
    sizes = [size for shape in known.values() for size in shape if isinstance(size, Size)]
    return list(dict.fromkeys(name for size in sizes for name in sorted(size.symbols)))


def _candidates(symbols: Sequence[str], known: Mapping[str, tuple[Dim, ...]]) -> Iterator[dict[str, int]]:
    """Values of the symbols: all the same, or 1 for those of first axes, which mostly count samples."""
    first = {name for shape in known.values() for size in shape[:1] if isinstance(size, Size) for name in size.symbols}
    for size in TRIED:
        found = [dict.fromkeys(symbols, size)]
        if first and len(first) < len(symbols) and size > 1:
            found.append({name: 1 if name in first else size for name in symbols})
        yield from found if size <= _FEW else reversed(found)
        if not symbols:
            return


def _numbers(known: Mapping[str, tuple[Dim, ...]], values: Mapping[str, int]) -> Shapes | None:
    found: Shapes = {}
    for name, shape in known.items():
        sizes = [size.replaced(values) if isinstance(size, Size) else size for size in shape]
        numbers = [size for size in sizes if isinstance(size, int) and size >= 0]
        if len(numbers) != len(sizes):
            return None
        found[name] = tuple(numbers)
    return found


def _least_unknown(
    model: ModelProto, symbols: Sequence[str], known: Mapping[str, tuple[Dim, ...]], problems: int
) -> float:
    """How many sizes stay unknown where the axes are long: fewer than where a window does not fit."""
    for size in LONG:
        shapes = _numbers(known, dict.fromkeys(symbols, size))
        count = _unknown(model, shapes, problems) if shapes is not None else math.inf
        if count < math.inf:
            return count
    return math.inf


def _unknown(model: ModelProto, shapes: Shapes, problems: int) -> float:
    """How many sizes inside of the model follow from data with these shapes of the inputs.

    Infinity where inference finds more contradictions with these shapes than without, or no elements in an output.
    """
    made = sharing(model)
    graph = made.graph or GraphProto()
    graph.input = [_with(item, {}, shapes.get(item.name or "")) for item in graph.input]
    walk = Recorder(made)
    try:
        walk.run()
    except InferenceError:
        return math.inf
    values = walk.kept[id(graph.node)][-1]
    outputs = [values.get(item.name or "") for item in graph.output]
    empty = any(isinstance(kind, Tensor) and kind.shape is not None and 0 in kind.shape for kind in outputs)
    if empty or len(walk.problems) > problems:
        return math.inf
    inside = [kind for name, kind in values.types.items() if name not in shapes]
    known = [kind.shape for kind in inside if isinstance(kind, Tensor) and kind.shape is not None]
    return sum(isinstance(size, Size) for shape in known for size in shape)


def drawn(item: ValueInfoProto, shape: Sequence[int] | None, draw: np.random.Generator) -> Any:
    """Random values of an input: normal numbers, and 0 or 1 as whole numbers; None where its type has none."""
    kind: TypeProto.Tensor | None = item.type.tensor_type if item.type is not None else None
    row = DTYPES.get(kind.elem_type or 0) if kind is not None else None
    if shape is None or row is None or not row.native or not row.bits:
        return None
    numbers = np.dtype(row.numpy)
    found = draw.integers(0, 2, shape) if numbers.kind in "biu" else draw.standard_normal(shape)
    return found.astype(numbers)
