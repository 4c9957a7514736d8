"""Which tensors become integers, and with whose scale: what each operator asks for, node by node.

The rows of `FORMS` are the operators that ONNX Runtime's quantizer takes for QDQ by default, and what it does with
each. A runtime fuses a node with the pairs around it to an integer kernel, so both sides of a product are marked, and
what merely moves numbers passes the scale of its input on. A `Relu` or `Clip` behind a product needs no node of its
own: the integers end where its range ends. Only nodes of the main graph are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from proto_schema.calibration.codes import Source
from proto_schema.calibration.options import CalibrationOptions
from proto_schema.calibration.ranges import Range
from proto_schema.ir import Graph, Node, Value
from proto_schema.onnx import TensorProto
from proto_schema.quantization.candidates import STANDARD
from proto_schema.quantization.codes.integers import Grid, ranges
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.dtypes import element_count


@dataclass(frozen=True)
class Bias:
    """A bias, which gets the product of the scales of what its node multiplies: the node, the place of the input."""

    node: Node
    place: int
    value: Value
    data: Value
    weight: Value
    axis: int | None


@dataclass
class Places:
    """What was asked for.

    `activations` have a scale of their own, `shared` that of another tensor. `weights` are int8 without zero point,
    with the axis of their channels or None; `constants` are in the type of the activations. `fused` are nodes that are
    left out: what they read stands for what they made.
    """

    activations: dict[Value, Range] = field(default_factory=dict)
    shared: dict[Value, Value] = field(default_factory=dict)
    weights: dict[Value, int | None] = field(default_factory=dict)
    constants: set[Value] = field(default_factory=set)
    biases: list[Bias] = field(default_factory=list)
    fused: list[Node] = field(default_factory=list)

    def owner(self, value: Value) -> Value:
        """The tensor whose scale a tensor has."""
        while value in self.shared:
            value = self.shared[value]
        return value

    def __contains__(self, value: Value | None) -> bool:
        return any(value in held for held in (self.activations, self.shared, self.weights, self.constants))


def watched(graph: Graph, options: CalibrationOptions, opset: int) -> dict[str, Value]:
    """The tensors whose ranges are needed, by name."""
    nodes = [node for node in graph.nodes if _form(node, options, opset) is not None]
    values = [value for node in nodes for value in (*node.inputs, *node.outputs)]
    return {value.name: value for value in values if value is not None and value.tensor is None}


def found_places(graph: Graph, options: CalibrationOptions, opset: int, seen: Mapping[Value, Range]) -> Places:
    """The places of a graph whose activations have these ranges."""
    marking = _Marking(graph, options, opset, seen)
    for node in graph.nodes:
        form = _form(node, options, opset)
        if form is not None:
            form(marking, node)
    return marking.places


class _Marking:
    def __init__(self, graph: Graph, options: CalibrationOptions, opset: int, seen: Mapping[Value, Range]) -> None:
        self.options = options
        self.opset = opset
        self.places = Places()
        self.outputs = set(graph.outputs)
        self.seen = {
            value: item
            for value, item in seen.items()
            if not item.reason
            and not (value.producer is not None and value.producer.op_type == "DequantizeLinear")
            and not (value.is_input and value in self.outputs)
        }
        for node in graph.nodes:
            if _form(node, options, opset) is not None:
                self._narrow(node)

    def _narrow(self, node: Node) -> None:
        """What only a `Relu` or `Clip` reads needs no numbers that it cuts; a `Softmax` can reach all from 0 to 1."""
        read, made = node.input(0), node.outputs[0]
        if read is None or made is None or made not in self.seen:
            return
        if node.op_type == "Softmax":
            self.seen[made] = Range(np.float32(0), np.float32(1))
        elif node.op_type in ("Relu", "Clip") and read in self.seen and len(read.uses) == 1:
            self.seen[read] = self.seen[made]

    # -- marks

    def is_marked(self, value: Value | None) -> bool:
        return value in self.places

    def tensor(self, value: Value | None) -> None:
        """An activation, or a constant in its place."""
        if value is None or value in self.places or self.options.leaves(value.name):
            return
        held = self.float_constant(value)
        if held is not None:
            least, greatest = Source.of(held, None, self.options.threads).extremes()
            if not Range(least[0], greatest[0]).is_unbounded:  # as that of a mask
                self.places.constants.add(value)
        elif value in self.seen:
            self.places.activations[value] = self.seen[value]

    def same(self, value: Value | None, of: Value | None) -> None:
        """A tensor with the scale of another."""
        if value is not None and of is not None and value in self.seen and not self.options.leaves(value.name):
            self.places.activations.pop(value, None)
            self.places.shared[value] = of

    def weight(self, value: Value | None, axis: int | None) -> None:
        held = self.float_constant(value)
        if held is None or value is None:
            self.tensor(value)
            return
        if self.options.leaves(value.name):
            return
        rank = len(held.dims)
        channels = axis if self.options.per_channel and axis is not None and -rank <= axis < rank else None
        if value not in self.places or (channels is not None and value in self.places.weights):
            self.places.weights[value] = channels if channels is None else channels % rank

    def bias(self, node: Node, place: int) -> None:
        data, weight, value = node.input(0), node.input(1), node.input(place)
        held = self.float_constant(value)
        if held is None or value is None or data is None or weight is None:
            return
        axis = self.places.weights.get(weight)
        if axis is not None and tuple(held.dims) != ((weight.sizes or ())[axis],):
            return  # its elements are not those of the weight's channels
        if not self.options.leaves(value.name):
            self.places.biases.append(Bias(node, place, value, data, weight, axis))

    def held(self, value: Value | None) -> TensorProto | None:
        """The tensor of the file that a value is, unless it is an output, too."""
        return None if value is None or value in self.outputs else value.constant

    def float_constant(self, value: Value | None) -> TensorProto | None:
        item = self.held(value)
        return item if item is not None and item.data_type == TensorProto.FLOAT and element_count(item.dims) else None

    # -- forms

    def ends(self, node: Node) -> None:
        """All float inputs and outputs."""
        for value in (*node.inputs, *node.outputs):
            self.tensor(value)

    def product(self, node: Node) -> None:
        for value in node.inputs:
            held = self.float_constant(value)
            rank = len(held.dims) if held is not None else 0
            self.weight(value, rank - 1 if rank > 1 and value is node.input(1) else None)
        self.tensor(node.outputs[0])

    def weighted(self, node: Node) -> None:
        """A `Conv`, `ConvTranspose` or `Gemm`."""
        data, weight = node.input(0), node.input(1)
        self.tensor(data)
        if not self.is_marked(data):
            return
        self.tensor(node.outputs[0])
        axes = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if _attribute(node, "transB", 0) else 1}
        self.weight(weight, axes[node.op_type])
        if self.is_marked(weight):
            self.bias(node, 2)

    def normalization(self, node: Node) -> None:
        self.tensor(node.input(0))
        if not self.is_marked(node.input(0)):
            return
        self.weight(node.input(1), None)
        if self.is_marked(node.input(1)):
            self.bias(node, 2)
        for value in node.outputs:
            self.tensor(value)

    def direct(self, node: Node) -> None:
        """What merely moves numbers, or is always among them."""
        if self.is_marked(node.input(0)):
            self.same(node.outputs[0], node.input(0))

    def split(self, node: Node) -> None:
        self.tensor(node.input(0))
        if self.is_marked(node.input(0)):
            for value in node.outputs:
                self.same(value, node.input(0))

    def gather(self, node: Node) -> None:
        if self.float_constant(node.input(0)) is not None:
            self.tensor(node.input(0))
        self.direct(node)

    def choice(self, node: Node) -> None:
        if self.is_marked(node.input(1)) and self.is_marked(node.input(2)):
            self.tensor(node.outputs[0])

    def padding(self, node: Node) -> None:
        for value in node.inputs:
            self.tensor(value)
        if self._pads_what_is_there(node) and self.is_marked(node.input(0)):
            self.same(node.outputs[0], node.input(0))
        else:
            self.tensor(node.outputs[0])

    def _pads_what_is_there(self, node: Node) -> bool:
        """Whether what a `Pad` adds is zero or comes from its input."""
        if _attribute(node, "mode", "constant") != "constant":
            return True
        if self.opset < 11:
            return not _attribute(node, "value", 0.0)
        if node.input(2) is None:
            return True
        value = self.held(node.input(2))
        return value is not None and not np.any(to_array(value))

    def limit(self, node: Node) -> None:
        """A `Relu` or `Clip`."""
        read, made = node.input(0), node.outputs[0]
        if read is None or made is None or not self.is_marked(read):
            return
        if self._is_fused(node, read, made):
            self.places.fused.append(node)
            self.places.activations.pop(read, None)
            self.places.shared.pop(read, None)
        self.tensor(made)

    def _is_fused(self, node: Node, read: Value, made: Value) -> bool:
        """Whether integers of the range of the result cut what the node cuts, to half a step."""
        alone = len(read.uses) == 1 and not read.is_input
        if not alone or read not in self.seen or made not in self.seen or self.options.leaves(made.name):
            return False
        limits = self._limits(node)
        if limits is None:
            return False
        scale, zero = scale_of(self.seen[made], self.options.grid)
        low, high = ((end - zero) * float(scale) for end in (self.options.grid.low, self.options.grid.high))
        step = float(scale) / 2 * (1 + 1e-6)
        return low >= limits[0] - step and high <= limits[1] + step

    def _limits(self, node: Node) -> tuple[float, float] | None:
        """Between what a node cuts; None where only a run knows it."""
        if node.op_type == "Relu":
            return 0.0, float("inf")
        if self.opset < 11:
            return float(_attribute(node, "min", -np.inf)), float(_attribute(node, "max", np.inf))
        found = [-float("inf"), float("inf")]
        for place, item in enumerate(node.inputs[1:]):
            if item is None:
                continue
            value = self.held(item)
            if value is None or element_count(value.dims) != 1:
                return None
            found[place] = float(to_array(value).reshape(-1)[0])
        return found[0], found[1]


def scale_of(numbers: Range, grid: Grid) -> tuple[np.float32, int]:
    """The scale and the zero point of a range."""
    extremes = np.array([numbers.low], np.float32), np.array([numbers.high], np.float32)
    scales, zeros = ranges(extremes, grid, "even", zero_points=True, round_scales=lambda scales: scales)
    return scales[0], int(zeros[0])


Form: TypeAlias = "Callable[[_Marking, Node], None]"

# operator: (what is marked, from which opset on)
FORMS: dict[str, tuple[Form, int]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), (_Marking.weighted, 1)),
    "MatMul": (_Marking.product, 1),
    **dict.fromkeys(("InstanceNormalization", "LayerNormalization", "BatchNormalization"), (_Marking.normalization, 1)),
    **dict.fromkeys(("Add", "Mul", "Concat", "Softmax", "Sigmoid", "LeakyRelu"), (_Marking.ends, 1)),
    **dict.fromkeys(("GlobalAveragePool", "ArgMax", "CumSum"), (_Marking.ends, 1)),
    **dict.fromkeys(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"), (_Marking.direct, 1)),
    **dict.fromkeys(("AveragePool", "Slice", "TopK"), (_Marking.direct, 1)),
    "MaxPool": (_Marking.direct, 12),  # where it takes integers
    "Resize": (_Marking.direct, 11),
    "Split": (_Marking.split, 1),
    **dict.fromkeys(("Gather", "GatherElements"), (_Marking.gather, 1)),
    "Where": (_Marking.choice, 1),
    "Pad": (_Marking.padding, 1),
    **dict.fromkeys(("Relu", "Clip"), (_Marking.limit, 1)),
}


def _form(node: Node, options: CalibrationOptions, opset: int) -> Form | None:
    form, first = FORMS.get(node.op_type, (None, 1))
    if form is None or opset < first or node.domain not in STANDARD or not node.outputs or not node.inputs:
        return None
    weight = node.input(1) if form in _WITH_WEIGHTS else None
    return form if options.takes(node.name, weight.name if weight is not None else None) else None


_WITH_WEIGHTS: Collection[Form] = (_Marking.weighted, _Marking.product)


def _attribute(node: Node, name: str, usual: Any) -> Any:
    value = node.attributes.get(name, usual)
    return value.decode() if isinstance(value, bytes) else value
