"""Large constants become nodes that make tensors of the same shape, with the name of `onnx.tools.replace_constants`.

The result computes other numbers: it is a small file for tests that need only the structure of a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TypeVar

from proto_schema.graphs.calls import domain_of
from proto_schema.graphs.names import Unique, bodies, defined, used
from proto_schema.helper import make_node, make_tensor
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count

__all__ = ["replace_initializer_by_constant_of_shape"]

Owner = TypeVar("Owner", ModelProto, GraphProto, FunctionProto)

_SINCE = {False: ("ConstantOfShape", 9), True: ("Range", 11)}


def replace_initializer_by_constant_of_shape(
    onx: Owner,
    threshold: int = 128,
    ir_version: int | None = None,
    use_range: bool = False,
    value_constant_of_shape: float = 0.5,
) -> Owner:
    """A copy in which constants of more than `threshold` elements are made by ConstantOfShape.

    These, and those that are there, are filled with `value_constant_of_shape`; with `use_range` they hold numbers from
    0 to 1 by Range instead. `ir_version` is that of the result. Sparse constants, texts and initializers that are
    inputs as well stay. Raises ValueError for an opset without these operators, TypeError for anything else.
    """
    if not isinstance(onx, (ModelProto, GraphProto, FunctionProto)):
        raise TypeError(f"a model, graph or function is expected, not a {type(onx).__name__}")
    made = copy.copy(onx)
    replace = _ConstantReplacing(threshold, use_range, value_constant_of_shape)
    if isinstance(made, ModelProto):
        name, since = _SINCE[use_range]
        for row in made.opset_import:
            if not domain_of(row.domain) and (row.version or 0) < since:
                raise ValueError(f"{name} came with opset {since}, and the model has opset {row.version}: convert it")
        made.ir_version = ir_version or made.ir_version
        made.graph = replace.graph(made.graph) if made.graph is not None else None
        made.functions = [replace.function(function) for function in made.functions]
    elif isinstance(made, GraphProto):
        made = replace.graph(made)
    else:
        made = replace.function(made)
    return made


class _ConstantReplacing:
    def __init__(self, threshold: int, use_range: bool, value: float) -> None:
        self.threshold = threshold
        self.use_range = use_range
        self.value = value

    def graph(self, graph: GraphProto) -> GraphProto:
        made = copy.copy(graph)
        unique = Unique([*defined(graph), *used(graph.node)])
        inputs = {value.name for value in graph.input}
        large = [item for item in graph.initializer if self._large(item) and item.name not in inputs]
        names = {item.name for item in large}
        made.initializer = [item for item in graph.initializer if item.name not in names]
        made.node = [
            *(node for item in large for node in self._made(item, [item.name or ""], unique)),
            *(new for node in graph.node for new in self._replaced(node, unique)),
        ]
        return made

    def function(self, function: FunctionProto) -> FunctionProto:
        made = copy.copy(function)
        unique = Unique([*function.input, *used(function.node)])
        made.node = [new for node in function.node for new in self._replaced(node, unique)]
        return made

    def _large(self, tensor: TensorProto) -> bool:
        known = DTYPES.get(tensor.data_type or 0)
        return known is not None and known.bits > 0 and element_count(tensor.dims) > self.threshold

    def _replaced(self, node: NodeProto, unique: Unique) -> Iterator[NodeProto]:
        """What stands for a node."""
        value = next((item.t for item in node.attribute if item.name == "value" and item.t is not None), None)
        if domain_of(node.domain) == "" and node.op_type == "Constant" and value is not None and self._large(value):
            yield from self._made(value, node.output, unique)
        elif domain_of(node.domain) == "" and node.op_type == "ConstantOfShape":
            dtype = TensorProto.FLOAT if value is None else value.data_type or TensorProto.FLOAT
            yield from self._filled(node.input[0], dtype, node.output, unique)
        elif any(True for _ in bodies(node)):
            made = copy.copy(node)
            made.attribute = [copy.copy(item) for item in node.attribute]
            for item in made.attribute:
                item.g = None if item.g is None else self.graph(item.g)
                item.graphs = [self.graph(graph) for graph in item.graphs]
            yield made
        else:
            yield node

    def _made(self, tensor: TensorProto, outputs: list[str], unique: Unique) -> Iterator[NodeProto]:
        shape = unique(f"{tensor.name or outputs[0]}__SHAPE")
        dims = make_tensor(shape, TensorProto.INT64, [len(tensor.dims)], tensor.dims)
        yield make_node("Constant", [], [shape], value=dims)
        yield from self._filled(shape, tensor.data_type or 0, outputs, unique)

    def _filled(self, shape: str, dtype: int, outputs: list[str], unique: Unique) -> Iterator[NodeProto]:
        if not self.use_range:
            value = make_tensor("", dtype, [1], [self.value])
            yield make_node("ConstantOfShape", [shape], list(outputs), value=value)
            return
        names = ("zero", "one", "N", "RANGE", "RANGEf", "Nf", "FLAT")
        zero, one, count, steps, wide, divisor, flat = (unique(f"{shape}_{name}") for name in names)
        yield make_node("Constant", [], [zero], value_int=0)
        yield make_node("Constant", [], [one], value_int=1)
        yield make_node("ReduceProd", [shape], [count], keepdims=0)
        yield make_node("Range", [zero, count, one], [steps])
        yield make_node("Cast", [steps], [wide], to=dtype)
        yield make_node("Cast", [count], [divisor], to=dtype)
        yield make_node("Div", [wide, divisor], [flat])
        yield make_node("Reshape", [flat, shape], list(outputs))
