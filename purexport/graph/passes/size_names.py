"""Names that a person would give, for axes that nobody named:  `x: [x_dim_0, x_dim_1]`  ->  `x: [batch, length]`.

An axis of an input, by the places that its size has among the inputs:

- `batch` is axis 0 of all inputs whose axis 0 can change; `x_count` is that of one input, `x_length` if it is a vector;
- `height` and `width` are the last two of four axes or more, if both can change and the one before cannot;
- `length` is the one axis besides; of several inputs each has its own, `x_length`;
- any other keeps the name of its place, `x_dim_2`.

A size that data decides has the name of the operator that does: `nonzero_count`.  Names that users gave stay, and are
given to nothing else.  The names depend on the interface and the order of the nodes alone, so they are the same in
every export of a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from proto_schema.sizes import Dim, Size, symbol
from purexport.aten.axes import is_own_name
from purexport.aten.unique_names import UniqueNames
from purexport.graph.ir import Graph, Shape, Value

_DECIDED = re.compile(r"(unk__|u)\d+")
COUNTS: Mapping[str, str] = MappingProxyType(
    {
        "NonZero": "nonzero_count",
        "Unique": "unique_count",
        "NonMaxSuppression": "selected_count",
        "Compress": "compressed_count",
        "Range": "range_length",
        "StringSplit": "piece_count",
        "Loop": "loop_count",
    }
)
"""What the operators call the sizes that they decide."""
_FURTHEST = 200  # nodes between a size and the operator that decides it


def name_sizes(graphs: Sequence[Graph], given: Collection[str], same: Mapping[str, Dim] | None = None) -> None:
    """Name the sizes in the graphs in place; the first graph is the model's.

    `given` are the names that users gave; `same` says of sizes that data decides which other ones they are.
    """
    model = graphs[0]
    twice = {name: size for name, size in (same or {}).items() if _DECIDED.fullmatch(name) and name not in given}
    _replace(graphs, {name: _last(size, twice) for name, size in twice.items()})
    found = [name for value in _values(graphs) for size in value.shape or () for name in _symbols(size)]
    own = [name for name in dict.fromkeys(found) if name not in given]
    places = _places(model)
    inputs = [name for name in own if name in places and is_own_name(name)]
    decided = [name for name in own if name not in places and _DECIDED.fullmatch(name)]
    if not inputs and not decided:
        return
    names = UniqueNames({*found, *given} - {*inputs, *decided})
    wishes = {**_of_inputs(model, inputs, places), **_of_data(model, decided)}
    _replace(graphs, {name: symbol(names.unique(wish)) for name, wish in wishes.items()})


def _last(size: Dim, same: Mapping[str, Dim]) -> Dim:
    """What a size is after all replacements; a circle of them ends where it began."""
    for _ in same:
        found = size.replaced(same) if isinstance(size, Size) else size
        if found == size:
            break
        size = found
    return size


def _replace(graphs: Sequence[Graph], renamed: Mapping[str, Dim]) -> None:
    """Put sizes in place of symbols, in the shapes of all values."""
    if not renamed:
        return
    done: dict[Size, Dim] = {}
    for value in dict.fromkeys(_values(graphs)):
        value.sized = _renamed(value.sized, renamed, done)
        if value.element is not None:
            value.element = (value.element[0], _renamed(value.element[1], renamed, done))


Place = tuple[Value, int]


def _places(graph: Graph) -> dict[str, list[Place]]:
    """The axes of inputs that a symbol is the size of."""
    found: dict[str, list[Place]] = {}
    for value in graph.inputs:
        for axis, size in enumerate(value.shape or ()):
            if isinstance(size, Size) and size.name is not None:
                found.setdefault(size.name, []).append((value, axis))
    return found


def _of_inputs(graph: Graph, own: Sequence[str], places: Mapping[str, list[Place]]) -> dict[str, str]:
    """What the sizes of inputs are to be called."""
    first = {size for value in graph.inputs for size in (value.shape or ())[:1] if isinstance(size, Size)}
    short = {name: _short(places[name], len(first) == 1) for name in own}
    often = Counter(short.values())
    made: dict[str, str] = {}
    for name, wish in short.items():
        owner = re.sub(r"\W", "_", name.rpartition("_dim_")[0])
        alone = often[wish] == 1 and wish != "count"
        made[name] = name if wish is None else wish if alone or wish == "batch" else f"{owner}_{wish}"
    return made


def _short(places: Sequence[Place], shared: bool) -> str | None:
    """The name of a size without that of its input; None where its place says nothing.

    `shared` says that all inputs whose axis 0 can change have one size there.
    """
    value, axis = places[0]
    shape = value.shape or ()
    changing = [other for other, size in enumerate(shape) if other and not isinstance(size, int)]
    if axis == 0:
        return "length" if len(shape) == 1 else "batch" if shared else "count"
    if len(shape) > 3 and changing == [len(shape) - 2, len(shape) - 1]:
        return "height" if axis == changing[0] else "width"
    return "length" if changing == [axis] else None


def _of_data(graph: Graph, own: Sequence[str]) -> dict[str, str]:
    """What the sizes are to be called that data decides, those of outputs first."""
    makers: dict[str, Value] = {}
    for value in _values([graph]):
        for size in value.shape or ():
            if isinstance(size, Size) and size.name is not None:
                makers.setdefault(size.name, value)
    shown = [name for value in graph.outputs for size in value.shape or () for name in sorted(_symbols(size))]
    order = [*(name for name in dict.fromkeys(shown) if name in own), *own]
    return {name: _decided_by(makers.get(name)) for name in dict.fromkeys(order)}


def _decided_by(value: Value | None) -> str:
    """The name for a size of a value, by the nearest operator before it that decides a size."""
    ahead = [] if value is None else [value]
    for seen in ahead:
        node = seen.node
        if node is not None and node.op_type in COUNTS and not node.domain:
            return COUNTS[node.op_type]
        if node is not None and len(ahead) < _FURTHEST:
            ahead += [item for item in node.inputs if item is not None and item not in ahead]
    maker = value.node.op_type if value is not None and value.node is not None else "data"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", maker).lower() + "_size"


def _renamed(shape: Shape, renamed: Mapping[str, Dim], done: dict[Size, Dim]) -> Shape:
    if shape is None:
        return None
    for size in shape:
        if isinstance(size, Size) and size not in done:
            done[size] = size.replaced(renamed)
    return tuple([done[size] if isinstance(size, Size) else size for size in shape])


def _symbols(size: Dim | None) -> Iterable[str]:
    return size.symbols if isinstance(size, Size) else ()


def _values(graphs: Iterable[Graph]) -> Iterator[Value]:
    """Inputs, results of nodes and outputs, those of bodies too."""
    for graph in graphs:
        yield from graph.inputs
        for node in graph.nodes:
            yield from node.outputs
            yield from _values(node.subgraphs())
        yield from graph.outputs
