"""A graph while it is simplified: what is known of its values, which node makes them, and what they have become.

Invariant: `uses` counts, for each value by the name that it has now, the nodes that read it and are still in the graph,
with the outputs of the graph. So whoever changes the graph says it to `drop`, `take` and `replace`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.attributes import get_attribute_value
from proto_schema.budget import Budget
from proto_schema.conversion.recorded import Recorder, sharing
from proto_schema.dtypes import DTYPES, element_count
from proto_schema.graphs.names import Unique, bodies, defined, free_names, used
from proto_schema.inference.site import misform
from proto_schema.inference.types import Shape, Tensor, known_shape
from proto_schema.inference.walk import Values
from proto_schema.numpy_helper import from_array, to_array
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorProto

Array = Any
PLAIN = frozenset(code for code, row in DTYPES.items() if row.native)
"""Data types that numpy has: others are not folded."""


class Draft:
    """The main graph of a model. `alias` says which other value stands for one that is gone."""

    def __init__(self, model: ModelProto, limit: int, budget: Budget) -> None:
        """Constants of more than `limit` bytes are not read. `budget` is for what is computed of them."""
        self.model = sharing(model)
        self.limit = limit
        self.budget = budget
        graph = self.model.graph or GraphProto()
        self.graph = graph
        recorder = Recorder(self.model)
        recorder.run()
        found = recorder.kept.get(id(graph.node)) or [Values()]
        self._types = found[0]
        self.opsets = {operators.canonical(item.domain or ""): item.version or 0 for item in model.opset_import}
        self.opset = self.opsets.get("", 0)
        inputs = {item.name or "" for item in graph.input}
        self.outputs = {item.name or "" for item in graph.output}
        self.constants: dict[str, TensorProto] = {
            item.name or "": item for item in graph.initializer if item.name not in inputs
        }
        self.given = frozenset(self.constants)
        self.functions = {(item.domain or "", item.name or "", item.overload or "") for item in model.functions}
        self.captured = {name for node in graph.node for body in bodies(node) for name in _taken(body)}
        self.makers: dict[str, NodeProto] = {}
        self.alias: dict[str, str] = {}
        self.unique = Unique([*defined(graph), *used(graph.node)])
        self._arrays: dict[str, Array] = {}
        self.uses = Counter(name for node in graph.node for name in free_names(node))
        self.uses.update(self.outputs)

    # What is known ----------------------------------------------------------------------------------------------------

    def type(self, name: str) -> Tensor | None:
        """The tensor type of a value, None for what is no tensor or not known."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return Tensor(tensor.data_type or 0, tuple(tensor.dims))
        found = self._types.get(name)
        return found if isinstance(found, Tensor) else None

    def shape(self, name: str) -> Shape:
        """Its sizes, which may be expressions; None where not even the rank is known."""
        found = self.type(name)
        return None if found is None else found.shape

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """Its sizes if all are numbers."""
        found = self.shape(name)
        return None if found is None else known_shape(found)

    def dtype(self, name: str) -> int:
        """Its data type; 0 where that is not known."""
        found = self.type(name)
        return 0 if found is None else found.dtype

    def same_type(self, one: str, other: str) -> bool:
        """Whether two values have one data type, and one shape for all sizes of the inputs."""
        mine, theirs = self.type(one), self.type(other)
        if mine is None or theirs is None or not mine.dtype or mine.shape is None:
            return False
        return (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)

    def array(self, name: str) -> Array | None:
        """The elements of a small constant, or those that inference knows; None for what is large or numpy lacks."""
        if name in self._arrays:
            return self._arrays[name]
        tensor = self.constants.get(name)
        made = self.read(tensor, self.limit) if tensor is not None else self._inferred(name)
        self._arrays[name] = made
        return made

    def read(self, tensor: TensorProto, limit: int) -> Array | None:
        """The elements of a tensor of at most so many bytes; None for others, and where its data is not there."""
        if tensor.data_type not in PLAIN or self.nbytes(tensor.data_type, tensor.dims) > limit:
            return None
        try:
            return to_array(tensor)
        except (ValueError, OSError):  # data that is not there: the constant stays as it is
            return None

    def _inferred(self, name: str) -> Array | None:
        found = self.type(name)
        if found is None or found.content is None or found.shape is None or found.dtype not in PLAIN:
            return None
        sizes = known_shape(found.shape)
        if sizes is None or self.nbytes(found.dtype, sizes) > self.limit:
            return None
        if not all(isinstance(item, (bool, int, float)) for item in found.content):
            return None
        try:
            return np.array(found.content, dtype=DTYPES[found.dtype].numpy).reshape(sizes)
        except (ValueError, OverflowError):
            return None

    @staticmethod
    def nbytes(dtype: int, sizes: Sequence[int]) -> int:
        """The bytes of a tensor of this type in memory."""
        return DTYPES[dtype].nbytes(element_count(sizes))

    def single(self, name: str) -> float | int | bool | None:
        """The number in a constant whose elements are all the same, with their sign; None for others."""
        array = self.array(name)
        if array is None or not array.size or array.dtype.kind not in "biuf" or not (array == array.flat[0]).all():
            return None
        if array.dtype.kind == "f" and np.signbit(array).any() != np.signbit(array).all():  # 0.0 and -0.0
            return None
        value: float | int | bool = array.flat[0].item()
        return value

    def attributes(self, node: NodeProto) -> Mapping[str, Any]:
        """The attributes with the defaults of the operator's version."""
        schema = operators.schema(node.op_type or "", self.opset)
        declared = schema.attributes if schema is not None else {}
        found = {name: row.default for name, row in declared.items() if row.default is not None}
        return {**found, **{item.name or "": get_attribute_value(item) for item in node.attribute}}

    def fits(self, node: NodeProto) -> bool:
        """Whether a node has the inputs, outputs and attributes that its version of the operator asks for."""
        schema = None if node.domain else operators.schema(node.op_type or "", self.opset)
        if schema is None:
            return bool(node.domain)
        given = zip(schema.inputs, node.input, strict=False)
        if any(not name and formal.option == "single" for formal, name in given):
            return False
        attributes = {
            item.name or "": None if item.ref_attr_name else get_attribute_value(item) for item in node.attribute
        }
        return len(node.output) >= schema.min_output and not misform(schema, len(node.input), attributes)

    # Changes ----------------------------------------------------------------------------------------------------------

    def drop(self, node: NodeProto) -> None:
        """The node leaves the graph: it reads nothing any more."""
        for name in free_names(node):
            self.uses[self.now(name)] -= 1

    def take(self, node: NodeProto) -> None:
        """The node comes into the graph."""
        for name in free_names(node):
            self.uses[self.now(name)] += 1

    def replace(self, name: str, by: str) -> None:
        """Let `by` stand for `name` from now on: its readers read `by`."""
        by = self.now(by)
        self.uses[by] += self.uses.pop(name, 0)
        self.alias[name] = by

    def now(self, name: str) -> str:
        """The value that stands for a name."""
        while name in self.alias:
            name = self.alias[name]
        return name

    def may_go(self, name: str) -> bool:
        """Whether another value may stand for one: not for an output, nor for one that a body takes."""
        return name not in self.outputs and name not in self.captured

    def set_constant(self, name: str, array: Array) -> None:
        """Let `name` be a tensor of the file from now on."""
        self.constants[name] = from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        self._arrays[name] = array

    def new_constant(self, wanted: str, array: Array) -> str:
        """A new tensor of the file, under a name that nothing has."""
        name = self.unique(wanted)
        self.set_constant(name, array)
        return name

    def add_constant(self, wanted: str, tensor: TensorProto) -> str:
        """The same, for a tensor whose elements are not read."""
        tensor.name = self.unique(wanted)
        self.constants[tensor.name] = tensor
        return tensor.name


def _taken(body: GraphProto) -> Iterator[str]:
    """What a body takes from around it, and every name inside, which does no harm."""
    yield from (item.name or "" for item in body.output)
    for node in body.node:
        yield from free_names(node)
