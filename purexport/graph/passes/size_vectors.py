"""Sizes as vectors:  `a = Shape(x); b = Gather(a, 0); Reshape(b, [1])`  ->  `Shape(x, start=0, end=1)`.

Rules compute with sizes as zero-dim numbers, and hand them on in vectors, as shapes and bounds of slices.  A number
that is in a vector, and what it is computed from, becomes a vector of one element itself.  What else reads the number
gets it by a Squeeze.  Vectors are joined: in `Concat(Shape(x, start=0, end=1), Shape(x, start=1, end=2), [8])` the
first two become one, and all three `Shape(x)` where the last size of x is 8.

Invariants: a size is read where it was read before, and a node whose operands were zero-dim has one that is a vector.
Nodes that nothing reads any more stay, for `dce`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from proto_schema import operators
from purexport import dtypes
from purexport.aten.graph import Dim
from purexport.graph.ir import Graph, Node, Value

_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Neg", "Min", "Max", "Less", "Equal", "Where", "Cast"})
_LONGEST = 64  # numbers of a constant whose parts are looked at


def sizes_as_vectors(graph: Graph, opset: int) -> None:
    """Write the sizes of `graph` in fewer nodes, in place; linear in the number of nodes."""
    _Vectors(graph, opset).write(graph)


class _Vectors:
    def __init__(self, graph: Graph, opset: int) -> None:
        schema = operators.schema("Shape", opset)
        self.parts = schema is not None and "end" in schema.attributes
        self.readers: dict[Value, list[Node]] = {}
        self.results: set[Value] = set()
        self.readable: dict[Value, bool] = {}
        self.vectors: dict[Value, Value] = {}  # of the numbers that are written as vectors
        self.instead: dict[Value, Value] = {}  # of the vectors that were made of them
        for node in _nodes(graph):
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(node)
        self.results.update(value for inner in _graphs(graph) for value in inner.outputs)
        self.chosen = self._chosen(graph)

    # -- choosing

    def _chosen(self, graph: Graph) -> set[Value]:
        """The numbers that are in vectors, and those that they are computed from."""
        asked = [number for node in _nodes(graph) if (number := self._in_vector(node)) is not None]
        chosen: set[Value] = set()
        while asked:
            value = asked.pop()
            if value in chosen:
                continue
            chosen.add(value)
            if value.node is not None and value.node.op_type in _ELEMENTWISE:
                asked += self._to_follow(value.node)
        return chosen

    def _in_vector(self, node: Node) -> Value | None:
        """The number of which a node makes a vector of one element."""
        if node.domain or node.op_type not in ("Reshape", "Unsqueeze") or node.outputs[0] in self.results:
            return None
        value = node.inputs[0]
        if value is None or not self._is_readable(value) or node.outputs[0].shape != (1,):
            return None
        return value

    def _is_readable(self, value: Value) -> bool:
        """Whether a number is a size that is read from a shape, or computed from one."""
        found = self.readable.get(value)
        if found is None:
            node = value.node
            found = node is not None and value.shape == () and not node.domain and len(node.outputs) == 1
            if found and node is not None:
                inputs = [item for item in node.inputs if item is not None]
                found = _read_from(node) is not None or (
                    node.op_type in _ELEMENTWISE
                    and all(item.shape == () for item in inputs)
                    and any(map(self._is_readable, inputs))
                )
            self.readable[value] = found
        return found

    def _to_follow(self, node: Node) -> list[Value]:
        """The operands that become vectors: at least one, and each that nothing else reads as a number."""
        sizes = [value for value in dict.fromkeys(node.inputs) if value is not None and self._is_readable(value)]
        alone = [value for value in sizes if value not in self.results and len(self.readers[value]) == 1]
        return alone or sizes

    # -- writing

    def write(self, graph: Graph) -> None:
        """Rewrite the nodes of a graph, bodies included, in order."""
        nodes: list[Node] = []
        for node in graph.nodes:
            node.inputs = [None if value is None else self.instead.get(value, value) for value in node.inputs]
            for body in node.subgraphs():
                self.write(body)
            value = node.outputs[0]
            number = self._in_vector(node)
            if number is not None and number in self.vectors:
                self.instead[value] = self.vectors[number]
            elif value in self.chosen and len(node.outputs) == 1:
                nodes += self._as_vector(node)
            elif node.op_type == "Concat" and not node.domain and any(map(_whose_sizes, filter(None, node.inputs))):
                nodes += self._joined(node)
            else:
                nodes.append(node)
        graph.nodes = nodes
        graph.outputs = [self.instead.get(value, value) for value in graph.outputs]

    def _as_vector(self, node: Node) -> list[Node]:
        """A node that makes a number makes a vector of it, and a Squeeze the number where it is read."""
        value = node.outputs[0]
        read = _read_from(node)
        if read is None:
            inputs = [None if item is None else self.vectors.get(item, item) for item in node.inputs]
            made = [Node(node.op_type, list(inputs), [], dict(node.attributes), source=node.source)]
            made[0].outputs = [Value(value.dtype, (1,), node=made[0])]
        else:
            made = self._read(node, read[0], read[1], read[1] + 1)
        vector = self.vectors[value] = made[-1].outputs[0]
        vector.content = value.content
        if value in self.results or not all(map(self._takes_vector, self.readers[value])):
            node.op_type, node.attributes, node.inputs = "Squeeze", {}, [vector]
            made.append(node)
        return made

    def _takes_vector(self, node: Node) -> bool:
        if self._in_vector(node) is not None:
            return True
        return node.op_type in _ELEMENTWISE and node.outputs[0] in self.chosen

    def _read(self, node: Node, tensor: Value, start: int, end: int) -> list[Node]:
        """The nodes that read the sizes of a tensor from one axis to another; `node` is the one that they replace."""
        attributes = {} if (start, end) == (0, tensor.rank) else {"start": start, "end": end}
        if self.parts or not attributes:
            shape = Node("Shape", [tensor], [], attributes, source=node.source)
            shape.outputs = [_vector(tensor, start, end, shape)]
            return [shape]
        whole = Node("Shape", [tensor], [], {}, source=node.source)
        whole.outputs = [_vector(tensor, 0, tensor.rank, whole)]
        places = torch.arange(start, end)
        gather = Node("Gather", [whole.outputs[0], _constant(places)], [], {"axis": 0}, source=node.source)
        gather.outputs = [_vector(tensor, start, end, gather)]
        return [whole, gather]

    def _joined(self, node: Node) -> list[Node]:
        """A Concat of vectors with as few parts as possible."""
        parts = [value for value in node.inputs if value is not None]
        items = [item for part in parts for item in _items(part)]
        starts = _starts(parts)
        nodes: list[Node] = []
        joined: list[Value] = []
        place = 0
        while place < len(items):
            size, value = items[place]
            tensor, start, count = _longest_run(starts, items, place)
            if tensor is not None:
                nodes += self._read(node, tensor, start, start + count)
                joined.append(nodes[-1].outputs[0])
                place += count
            elif value is not None:
                joined.append(value)
                place += 1
            else:
                numbers: list[int] = []
                while place < len(items) and isinstance(size := items[place][0], int):
                    if numbers and _longest_run(starts, items, place)[0] is not None:
                        break
                    numbers.append(size)
                    place += 1
                joined.append(_constant(torch.tensor(numbers)))
        if len(joined) == 1 and node.outputs[0] not in self.results:
            self.instead[node.outputs[0]] = joined[0]
            return nodes
        node.inputs = list(joined)
        return [*nodes, node]


Item = tuple["Dim | None", "Value | None"]
"""A size in a vector and the part that it comes from: None for a number, and for one that is read from a shape."""


def _items(part: Value) -> list[Item]:
    """The sizes in a part of a vector; the part itself where it is not known what is in it."""
    if part.const is not None and not part.name and part.const.dim() == 1 and part.const.numel() <= _LONGEST:
        return [(int(number), None) for number in part.const.tolist()]
    if _whose_sizes(part) is not None and part.content is not None:
        return [(size, None) for size in part.content]
    content = part.content or (None,)
    return [(content[0] if part.shape == (1,) else None, part)]


def _whose_sizes(part: Value) -> Value | None:
    """The tensor whose sizes a vector holds, as it was read by this pass.

    None where more became known of the tensor since the vector was made, so that the sizes are other expressions.
    """
    node = part.node
    if node is None or node.domain:
        return None
    if node.op_type == "Gather" and node.inputs[0] is not None:
        node = node.inputs[0].node
    tensor = node.inputs[0] if node is not None and node.op_type == "Shape" and not node.domain else None
    if tensor is None or part.content is None or len(part.shape or ()) != 1:
        return None
    shape, content = tensor.shape, tuple(part.content)
    if shape is None or None in shape:
        return None
    starts = range(len(shape) - len(content) + 1)
    return tensor if any(tuple(shape[start : start + len(content)]) == content for start in starts) else None


Starts = dict["Dim | None", list[tuple[Value, int]]]
"""The tensors that have a size, and on which axis: of equal shapes the first tensor."""


def _starts(parts: Sequence[Value]) -> Starts:
    """Where a row of sizes may begin, of the tensors whose sizes are in the parts."""
    by_shape: dict[tuple[Dim | None, ...], Value] = {}
    for part in parts:
        tensor = _whose_sizes(part)
        if tensor is not None:
            by_shape.setdefault(tuple(tensor.shape or ()), tensor)
    found: Starts = {}
    for shape, tensor in by_shape.items():
        for axis, size in enumerate(shape):
            found.setdefault(size, []).append((tensor, axis))
    return found


def _longest_run(starts: Starts, items: Sequence[Item], place: int) -> tuple[Value | None, int, int]:
    """The tensor that has the most sizes in a row from a place on, with the axis and how many there are."""
    best: tuple[Value | None, int, int] = (None, 0, 0)
    for tensor, axis in starts.get(items[place][0], ()):
        shape = tensor.shape or ()
        count, most = 1, min(len(shape) - axis, len(items) - place)
        while count < most and shape[axis + count] == items[place + count][0]:
            count += 1
        if count > best[2] and not all(isinstance(size, int) for size, _ in items[place : place + count]):
            best = (tensor, axis, count)
    return best


def _read_from(node: Node) -> tuple[Value, int] | None:
    """The tensor and the axis whose size a node reads."""
    shape, place = (*node.inputs, None, None)[:2]
    if node.op_type != "Gather" or shape is None or place is None or place.const is None or shape.node is None:
        return None
    tensor = shape.node.inputs[0]
    if shape.node.op_type != "Shape" or shape.node.domain or shape.node.attributes or place.const.dim():
        return None
    axis = int(place.const.item())
    return (tensor, axis) if tensor is not None and tensor.shape is not None and 0 <= axis < tensor.rank else None


def _vector(tensor: Value, start: int, end: int, node: Node) -> Value:
    value = Value(dtypes.INT64, (end - start,), node=node)
    value.content = None if tensor.shape is None else tuple(tensor.shape[start:end])
    return value


def _constant(numbers: torch.Tensor) -> Value:
    return Value(dtypes.INT64, tuple(numbers.shape), const=numbers)


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.subgraphs():
            yield from _graphs(body)


def _nodes(graph: Graph) -> Iterator[Node]:
    return (node for inner in _graphs(graph) for node in inner.nodes)
