"""Which tensors become integers, and with whose scale: what each operator asks for, node by node.

The rows of `FORMS` are the operators that ONNX Runtime's quantizer takes for QDQ by default, and what it does with
each. A runtime fuses a node with the pairs around it to an integer kernel, so both sides of a product are marked, and
what merely moves numbers passes the scale of its input on. A `Relu` or `Clip` behind a product needs no node of its
own: the integers end where its range ends. Only nodes of the main graph are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from proto_schema.attributes import get_attribute_value
from proto_schema.calibration.codes import Source
from proto_schema.calibration.options import Options
from proto_schema.calibration.ranges import Range
from proto_schema.dtypes import element_count
from proto_schema.onnx import GraphProto, NodeProto, TensorProto
from proto_schema.quantization.candidates import STANDARD, graphs_inside, nodes_of
from proto_schema.quantization.integers import Grid, ranges
from proto_schema.tensors import to_array


@dataclass(frozen=True)
class Bias:
    """A bias, which gets the product of the scales of what its node multiplies: the node, the place of the input."""

    node: NodeProto
    place: int
    data: str
    weight: str
    axis: int | None

    @property
    def name(self) -> str:
        """The name of the bias."""
        return self.node.input[self.place]


@dataclass
class Places:
    """What was asked for.

    `activations` have a scale of their own, `shared` that of another tensor. `weights` are int8 without zero point,
    with the axis of their channels or None; `constants` are in the type of the activations. `fused` are nodes that are
    left out: what they read gets the name of what they made.
    """

    activations: dict[str, Range] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    weights: dict[str, int | None] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    biases: list[Bias] = field(default_factory=list)
    fused: dict[int, NodeProto] = field(default_factory=dict)

    def owner(self, name: str) -> str:
        """The tensor whose scale a tensor has."""
        while name in self.shared:
            name = self.shared[name]
        return name

    def __contains__(self, name: str) -> bool:
        return any(name in held for held in (self.activations, self.shared, self.weights, self.constants))


def watched(graph: GraphProto, options: Options, opset: int) -> set[str]:
    """The tensors whose ranges are needed."""
    held = {item.name for item in graph.initializer}
    nodes = [node for node in graph.node if _form(node, options, opset) is not None]
    return {name for node in nodes for name in (*node.input, *node.output) if name and name not in held}


def found_places(graph: GraphProto, options: Options, opset: int, seen: Mapping[str, Range]) -> Places:
    """The places of a graph whose activations have these ranges."""
    marking = _Marking(graph, options, opset, seen)
    for node in graph.node:
        form = _form(node, options, opset)
        if form is not None:
            form(marking, node)
    return marking.places


class _Marking:
    def __init__(self, graph: GraphProto, options: Options, opset: int, seen: Mapping[str, Range]) -> None:
        self.options = options
        self.opset = opset
        self.places = Places()
        self.inputs = {item.name or "" for item in graph.input}
        self.outputs = {item.name or "" for item in graph.output}
        fixed = self.inputs | self.outputs
        self.held = {item.name or "": item for item in graph.initializer if item.name not in fixed}
        self.reads = Counter(name for _, node in nodes_of(graph) for name in node.input)
        self.reads.update(item.name or "" for inner in graphs_inside(graph) for item in inner.output)
        dequantized = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
        both = self.inputs & self.outputs
        self.seen = {
            name: item
            for name, item in seen.items()
            if not item.reason and name not in dequantized and name not in both
        }
        for node in graph.node:
            if _form(node, options, opset) is not None:
                self._narrow(node)

    def _narrow(self, node: NodeProto) -> None:
        """What only a `Relu` or `Clip` reads needs no numbers that it cuts; a `Softmax` can reach all from 0 to 1."""
        made = node.output[0]
        if node.op_type == "Softmax" and made in self.seen:
            self.seen[made] = Range(np.float32(0), np.float32(1))
        elif node.op_type in ("Relu", "Clip"):
            read = node.input[0]
            if read in self.seen and made in self.seen and self.reads[read] == 1 and read not in self.outputs:
                self.seen[read] = self.seen[made]

    # -- marks

    def is_marked(self, name: str) -> bool:
        return name in self.places

    def tensor(self, name: str) -> None:
        """An activation, or a constant in its place."""
        if not name or name in self.places or self.options.leaves(name):
            return
        if self.is_float_constant(name):
            least, greatest = Source.of(self.held[name], None, self.options.threads).extremes()
            if not Range(least[0], greatest[0]).is_unbounded:  # as that of a mask
                self.places.constants.add(name)
        elif name in self.seen:
            self.places.activations[name] = self.seen[name]

    def same(self, name: str, of: str) -> None:
        """A tensor with the scale of another."""
        if name in self.seen and not self.options.leaves(name):
            self.places.activations.pop(name, None)
            self.places.shared[name] = of

    def weight(self, name: str, axis: int | None) -> None:
        if not self.is_float_constant(name):
            self.tensor(name)
            return
        if self.options.leaves(name):
            return
        rank = len(self.held[name].dims)
        channels = axis if self.options.per_channel and axis is not None and -rank <= axis < rank else None
        if name not in self.places or (channels is not None and name in self.places.weights):
            self.places.weights[name] = channels if channels is None else channels % rank

    def bias(self, node: NodeProto, place: int) -> None:
        data, weight = node.input[0], node.input[1]
        if place >= len(node.input) or not self.is_float_constant(node.input[place]):
            return
        axis, sizes = self.places.weights.get(weight), tuple(self.held[node.input[place]].dims)
        if axis is not None and sizes != (self.held[weight].dims[axis],):
            return  # its elements are not those of the weight's channels
        if not self.options.leaves(node.input[place]):
            self.places.biases.append(Bias(node, place, data, weight, axis))

    def is_float_constant(self, name: str) -> bool:
        item = self.held.get(name)
        return item is not None and item.data_type == TensorProto.FLOAT and element_count(item.dims) > 0

    # -- forms

    def ends(self, node: NodeProto) -> None:
        """All float inputs and outputs."""
        for name in (*node.input, *node.output):
            self.tensor(name)

    def product(self, node: NodeProto) -> None:
        for name in node.input:
            rank = len(self.held[name].dims) if self.is_float_constant(name) else 0
            self.weight(name, rank - 1 if rank > 1 and name == node.input[1] else None)
        self.tensor(node.output[0])

    def weighted(self, node: NodeProto) -> None:
        """A `Conv`, `ConvTranspose` or `Gemm`."""
        data, weight = node.input[0], node.input[1]
        self.tensor(data)
        if not self.is_marked(data):
            return
        self.tensor(node.output[0])
        axes = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if _attribute(node, "transB", 0) else 1}
        self.weight(weight, axes[node.op_type or ""])
        if self.is_marked(weight):
            self.bias(node, 2)

    def normalization(self, node: NodeProto) -> None:
        self.tensor(node.input[0])
        if not self.is_marked(node.input[0]):
            return
        self.weight(node.input[1], None)
        if self.is_marked(node.input[1]):
            self.bias(node, 2)
        for name in node.output:
            self.tensor(name)

    def direct(self, node: NodeProto) -> None:
        """What merely moves numbers, or is always among them."""
        if self.is_marked(node.input[0]):
            self.same(node.output[0], node.input[0])

    def split(self, node: NodeProto) -> None:
        self.tensor(node.input[0])
        if self.is_marked(node.input[0]):
            for name in node.output:
                self.same(name, node.input[0])

    def gather(self, node: NodeProto) -> None:
        if self.is_float_constant(node.input[0]):
            self.tensor(node.input[0])
        self.direct(node)

    def choice(self, node: NodeProto) -> None:
        if self.is_marked(node.input[1]) and self.is_marked(node.input[2]):
            self.tensor(node.output[0])

    def padding(self, node: NodeProto) -> None:
        for name in node.input:
            self.tensor(name)
        if self._pads_what_is_there(node) and self.is_marked(node.input[0]):
            self.same(node.output[0], node.input[0])
        else:
            self.tensor(node.output[0])

    def _pads_what_is_there(self, node: NodeProto) -> bool:
        """Whether what a `Pad` adds is zero or comes from its input."""
        if _attribute(node, "mode", "constant") != "constant":
            return True
        if self.opset < 11:
            return not _attribute(node, "value", 0.0)
        if len(node.input) < 3 or not node.input[2]:
            return True
        value = self.held.get(node.input[2])
        return value is not None and not np.any(to_array(value))

    def limit(self, node: NodeProto) -> None:
        """A `Relu` or `Clip`."""
        read, made = node.input[0], node.output[0]
        if not self.is_marked(read):
            return
        if self._is_fused(node):
            self.places.fused[id(node)] = node
            self.places.activations.pop(read, None)
            self.places.shared.pop(read, None)
        self.tensor(made)

    def _is_fused(self, node: NodeProto) -> bool:
        """Whether integers of the range of the result cut what the node cuts, to half a step."""
        read, made = node.input[0], node.output[0]
        alone = self.reads[read] == 1 and read not in self.inputs | self.outputs
        if not alone or read not in self.seen or made not in self.seen or self.options.leaves(made):
            return False
        limits = self._limits(node)
        if limits is None:
            return False
        scale, zero = scale_of(self.seen[made], self.options.grid)
        low, high = ((end - zero) * float(scale) for end in (self.options.grid.low, self.options.grid.high))
        step = float(scale) / 2 * (1 + 1e-6)
        return low >= limits[0] - step and high <= limits[1] + step

    def _limits(self, node: NodeProto) -> tuple[float, float] | None:
        """Between what a node cuts; None where only a run knows it."""
        if node.op_type == "Relu":
            return 0.0, float("inf")
        if self.opset < 11:
            return float(_attribute(node, "min", -np.inf)), float(_attribute(node, "max", np.inf))
        found = [-float("inf"), float("inf")]
        for place, name in enumerate(node.input[1:]):
            if not name:
                continue
            value = self.held.get(name)
            if value is None or element_count(value.dims) != 1:
                return None
            found[place] = float(to_array(value).reshape(-1)[0])
        return found[0], found[1]


def scale_of(numbers: Range, grid: Grid) -> tuple[np.float32, int]:
    """The scale and the zero point of a range."""
    extremes = np.array([numbers.low], np.float32), np.array([numbers.high], np.float32)
    scales, zeros = ranges(extremes, grid, "even", zero_points=True, round_scales=lambda scales: scales)
    return scales[0], int(zeros[0])


Form: TypeAlias = "Callable[[_Marking, NodeProto], None]"

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


def _form(node: NodeProto, options: Options, opset: int) -> Form | None:
    form, first = FORMS.get(node.op_type or "", (None, 1))
    if form is None or opset < first or (node.domain or "") not in STANDARD or not node.output or not node.input:
        return None
    weight = node.input[1] if form in _WITH_WEIGHTS and len(node.input) > 1 else None
    return form if options.takes(node.name, weight) else None


_WITH_WEIGHTS: Collection[Form] = (_Marking.weighted, _Marking.product)


def _attribute(node: NodeProto, name: str, usual: Any) -> Any:
    value = next((get_attribute_value(item) for item in node.attribute if item.name == name), usual)
    return value.decode() if isinstance(value, bytes) else value
