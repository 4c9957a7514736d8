"""A model with pairs of `QuantizeLinear` and `DequantizeLinear`: the messages that change are copied, others shared.

An activation x becomes x -> QuantizeLinear -> DequantizeLinear -> x_dequantized, which all nodes of the main graph
read; a graph output keeps its name behind the pair. A constant keeps its name, too: a `DequantizeLinear` makes it.
A bias is int32, with the product of the scales of data and weight, so that an integer kernel can add it to its sums.
Where that scale would be too small for the bias, the weight's becomes larger, as ONNX Runtime does it.
The weights are read for their ranges here, and once more when the model is saved; never a whole one at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.calibration.codes import Codes, Source
from proto_schema.calibration.options import Options
from proto_schema.calibration.places import Bias, Places, found_places, scale_of, watched
from proto_schema.calibration.ranges import Range, collected
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Array, Given, Samples
from proto_schema.dtypes import element_count
from proto_schema.helper import make_node
from proto_schema.numpy_helper import from_array
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from proto_schema.payload import Payload
from proto_schema.quantization.candidates import STANDARD, graphs_inside, names_of, nodes_of
from proto_schema.quantization.elements import Floats
from proto_schema.quantization.hoisted import with_constants_as_initializers
from proto_schema.quantization.integers import Grid, ranges
from proto_schema.tensors import to_array
from proto_schema.units import size_text

_WEIGHTS = Grid(8, True)
_MARGIN = 1.0001  # of a bias below the greatest int32


@dataclass(frozen=True)
class Entry:
    """A tensor that is integers: `kind` is "activation", "weight", "constant" or "bias".

    An activation that stays in floats has a `reason` and no scale. `scale` and `zero_point` are those of the first
    channel. `low` and `high` are what an activation's range is cut to. `before` and `after` are bytes of constants.
    """

    name: str
    kind: str
    type: str
    scale: float
    zero_point: int
    channels: int = 1
    low: float | None = None
    high: float | None = None
    before: int = 0
    after: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Calibrated:
    """The quantized model and what was done."""

    model: ModelProto
    options: Options
    entries: tuple[Entry, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        sums = {key: sum(getattr(entry, key) for entry in self.entries) for key in ("before", "after")}
        return {"options": asdict(self.options), "entries": [asdict(entry) for entry in self.entries], **sums}

    def lines(self) -> Iterator[str]:
        """A line for each tensor, and one for all."""
        width = max((len(entry.name) for entry in self.entries), default=0)
        for entry in self.entries:
            if entry.reason:
                yield f"{entry.name:<{width}}  stays: it {entry.reason}"
                continue
            text = f"{entry.name:<{width}}  {entry.kind:<10} {entry.type:<5}  scale {entry.scale:<12.6g}"
            if entry.channels > 1:
                text += f" and {entry.channels - 1} more"
            elif entry.kind in ("activation", "constant"):
                text += f" zero point {entry.zero_point:<4}"
            if entry.low is not None:
                text += f" [{entry.low:.6g}, {entry.high:.6g}]"
            yield text.rstrip()
        kinds = [entry.kind for entry in self.entries if not entry.reason]
        sizes = [size_text(sum(getattr(entry, key) for entry in self.entries)) for key in ("before", "after")]
        yield (
            f"{kinds.count('activation')} activations to {self.options.type}, "
            f"{len(kinds) - kinds.count('activation')} weights and biases to integers: {sizes[0]} -> {sizes[1]}"
        )


def calibrated(model: ModelProto, options: Options, samples: Given, budget: BudgetLike = None) -> Calibrated:
    """The model with activations and weights as integers, by the ranges that the samples show.

    `model` does not change. `budget` is for each run of our evaluator, and for the bytes of a file of samples. Raises
    ValueError for samples that the model does not take, for activations and weights that hold a NaN, for weights that
    hold an infinity, for an opset without the operators, and where nothing can be quantized. An activation that reaches
    infinity or 1e30, as a mask does, or is 0 in all samples stays in floats.
    """
    model = with_constants_as_initializers(model)
    graph = model.graph or GraphProto()
    opset = next((item.version or 1 for item in model.opset_import if (item.domain or "") in STANDARD), 1)
    needed = 13 if options.per_channel else 10
    if opset < needed:
        what = "A scale for each channel" if options.per_channel else "QuantizeLinear"
        raise ValueError(
            f"{what} needs opset {needed}, and the model has opset {opset}; convert it first (--opset {needed})"
        )
    names = watched(graph, options, opset)
    with Runner(model, names, budget) as runner:
        seen = collected(runner, Samples(model, samples, budget), options)
    places = found_places(graph, options, opset, seen)
    if not places.activations:
        raise ValueError(
            "no activation can be quantized: outside of the branches of If and the bodies of loops, which stay as they "
            "are, the model has no Conv, MatMul, Gemm or other operator with an integer form that works on float32, or "
            "the patterns leave all of them out. Without --activations weights inside of branches and bodies are "
            "quantized, too"
        )
    made, entries = _Rewriting(model, options, places).run()
    left = [
        Entry(name, "activation", "float", 0.0, 0, reason=item.reason) for name, item in seen.items() if item.reason
    ]
    return Calibrated(made, options, (*entries, *left))


class _Rewriting:
    def __init__(self, model: ModelProto, options: Options, places: Places) -> None:
        self.model = model
        self.graph = model.graph or GraphProto()
        self.options = options
        self.places = places
        self.held = {item.name or "": item for item in self.graph.initializer}
        self.scales: dict[str, tuple[Floats, Floats]] = {}
        self.entries: list[Entry] = []
        self._fused_outputs = {node.output[0] for node in places.fused.values()}
        self._names = names_of(model)
        self._made: list[TensorProto] = []
        self._first: list[NodeProto] = []
        self._pairs: dict[str, list[NodeProto]] = {}
        self._renamed_inputs: dict[str, str] = {}
        self._renamed_outputs: dict[str, str] = {}
        self._biased: dict[tuple[int, int], str] = {}
        self._parameters: dict[str, tuple[str, str]] = {}

    def run(self) -> tuple[ModelProto, list[Entry]]:
        places = self.places
        for name, numbers in places.activations.items():
            scale, zero = scale_of(numbers, self.options.grid)
            self.scales[name] = np.array([scale], np.float32), np.array([zero], np.float32)
        constants = [name for name in self.held if name in places.weights or name in places.constants]
        for name in constants:
            self.scales[name] = self._scales_of(name)
        for bias in places.biases:
            self._widen(bias)
        outputs = {item.name for item in self.graph.output}
        for node in places.fused.values():
            self._renamed_outputs[node.input[0]] = node.output[0]
        for name, numbers in places.activations.items():
            self._pair(name, name in outputs, numbers)
        for name in places.shared:
            self._pair(name, name in outputs, None)
        for name in constants:
            self._constant(name)
        for bias in places.biases:
            self._bias(bias)
        return self._model(), self.entries

    # -- numbers

    def _source(self, name: str) -> Source:
        return Source.of(self.held[name], self.places.weights.get(name), self.options.threads)

    def _scales_of(self, name: str) -> tuple[Floats, Floats]:
        is_weight = name in self.places.weights
        grid = _WEIGHTS if is_weight else self.options.grid
        extremes = self._source(name).extremes()
        try:
            return ranges(extremes, grid, "even", zero_points=not is_weight, round_scales=lambda scales: scales)
        except ValueError as error:
            raise ValueError(
                f"weight {name!r} cannot be quantized: {error}; leave it out with exclude={name!r}"
            ) from error

    def _bias_scales(self, bias: Bias) -> tuple[Floats, Floats] | None:
        """The scales of data and weight; None where the bias has to stay in floats."""
        data = self.scales.get(self.places.owner(bias.data))
        weight = self.scales.get(self.places.owner(bias.weight))
        return None if data is None or weight is None else (data[0], weight[0])

    def _widen(self, bias: Bias) -> None:
        """A larger scale of the weight where the numbers of the bias would not fit into int32."""
        found = self._bias_scales(bias)
        if found is None or bias.weight not in self.places.weights:
            return
        data, weight = found
        sizes = np.abs(to_array(self.held[bias.name]).astype(np.float64)).reshape(-1)
        largest = sizes if bias.axis is not None else sizes.max(keepdims=True)
        if not np.isfinite(largest).all():
            raise ValueError(f"bias {bias.name!r} holds a NaN or an infinity; leave it out with exclude={bias.name!r}")
        least = _MARGIN * 2 * largest / (2.0 * np.iinfo(np.int32).max)
        product = data.astype(np.float64) * weight.astype(np.float64)
        short = (product < least) & (product > 0)
        wider = weight.astype(np.float64) * np.where(short, least / np.where(short, product, 1), 1)
        self.scales[bias.weight] = wider.astype(np.float32), self.scales[bias.weight][1]

    # -- tensors and nodes

    def _pair(self, name: str, is_output: bool, numbers: Range | None) -> None:
        scale, zero = self._parameters_of(self.places.owner(name))
        read, made = name, self._name(f"{name}_dequantized") if not is_output else name
        if is_output:
            read = self._name(f"{name}_unquantized")
            self._renamed_outputs[name] = read
        else:
            self._renamed_inputs[name] = made
        codes = self._name(f"{name}_quantized")
        self._pairs[name] = [
            make_node("QuantizeLinear", [read, scale, zero], [codes], self._name(f"{name}_quantize")),
            make_node("DequantizeLinear", [codes, scale, zero], [made], self._name(f"{name}_dequantize")),
        ]
        scales, zeros = self.scales[self.places.owner(name)]
        ends = (None, None) if numbers is None else (float(numbers.low), float(numbers.high))
        self.entries.append(
            Entry(name, "activation", self.options.type, float(scales[0]), int(zeros[0]), 1, ends[0], ends[1])
        )

    def _parameters_of(self, owner: str) -> tuple[str, str]:
        if owner not in self._parameters:
            scales, zeros = self.scales[owner]
            dtype = np.int8 if self.options.grid.signed or owner in self.places.weights else np.uint8
            shape = () if self.places.weights.get(owner) is None else (-1,)
            self._parameters[owner] = (
                self._array(f"{owner}_scale", scales.reshape(shape)),
                self._array(f"{owner}_zero_point", zeros.astype(dtype).reshape(shape)),
            )
        return self._parameters[owner]

    def _constant(self, name: str) -> None:
        is_weight, axis = name in self.places.weights, self.places.weights.get(name)
        grid = _WEIGHTS if is_weight else self.options.grid
        scales, zeros = self.scales[name]
        payload = Codes(self._source(name), grid, scales, zeros)
        code = TensorProto.INT8 if is_weight else self.options.code
        dims = list(self.held[name].dims)
        codes = self._tensor(f"{name}_quantized", code, dims, payload)
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        inputs = [codes, *self._parameters_of(name)]
        made = make_node("DequantizeLinear", inputs, [name], self._name(f"{name}_dequantize"), **attributes)
        self._first.append(made)
        kind, text = ("weight", "int8") if is_weight else ("constant", self.options.type)
        count = element_count(dims)
        after = count + len(scales) * 5
        self.entries.append(
            Entry(name, kind, text, float(scales[0]), int(zeros[0]), len(scales), None, None, count * 4, after)
        )

    def _bias(self, bias: Bias) -> None:
        found = self._bias_scales(bias)
        if found is None:
            return
        scales = (found[0] * found[1]).astype(np.float32)
        values = to_array(self.held[bias.name])
        limits = np.iinfo(np.int32)
        with np.errstate(divide="ignore", invalid="ignore"):
            codes = np.rint(values.astype(np.float64) / scales.astype(np.float64))
        if not np.isfinite(codes).all() or np.any(codes < limits.min) or np.any(codes > limits.max):
            return  # its scale is too small for int32: the floats are exact
        shape = () if bias.axis is None else (-1,)
        attributes: dict[str, Any] = {} if bias.axis is None else {"axis": 0}
        names = [
            self._array(f"{bias.name}_quantized", codes.astype(np.int32)),
            self._array(f"{bias.name}_quantized_scale", scales.reshape(shape)),
        ]
        made = self._name(f"{bias.name}_dequantized")
        self._first.append(
            make_node("DequantizeLinear", names, [made], self._name(f"{bias.name}_dequantize"), **attributes)
        )
        self._biased[id(bias.node), bias.place] = made
        before = values.size * 4
        self.entries.append(
            Entry(bias.name, "bias", "int32", float(scales[0]), 0, len(scales), None, None, before, before)
        )

    def _array(self, name: str, values: Array) -> str:
        name = self._name(name)
        self._made.append(from_array(values, name))
        return name

    def _tensor(self, name: str, code: int, dims: Sequence[int], payload: Payload) -> str:
        name = self._name(name)
        self._made.append(TensorProto(name=name, data_type=code, dims=list(dims), raw_data=payload))
        return name

    def _name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    # -- the model

    def _model(self) -> ModelProto:
        graph, places = self.graph, self.places
        nodes = list(self._first)
        for item in graph.input:
            nodes.extend(self._pairs.get(item.name or "", ()))
        for node in graph.node:
            if id(node) in places.fused:
                continue
            made = self._node(node)
            nodes.append(made)
            for name in node.output:
                nodes.extend(self._pairs.get(self._after_fusing(name), ()))
        result, inner = copy.copy(self.model), copy.copy(graph)
        inner.node = nodes
        inner.value_info = [item for item in graph.value_info if self._stays(item)]
        gone = {*places.weights, *places.constants}
        kept = [item for item in graph.initializer if item.name not in gone]
        unread = self._unread(inner)
        inner.initializer = [item for item in kept if item.name not in unread] + self._made
        result.graph = inner
        return result

    def _after_fusing(self, name: str) -> str:
        """The name under which a value goes on behind nodes that are left out."""
        while name in self._renamed_outputs and self._renamed_outputs[name] in self._fused_outputs:
            name = self._renamed_outputs[name]
        return name

    def _node(self, node: NodeProto) -> NodeProto:
        made = copy.copy(node)
        made.input = [
            self._biased.get((id(node), place), self._renamed_inputs.get(name, name))
            for place, name in enumerate(node.input)
        ]
        made.output = [self._result(name) for name in node.output]
        return made

    def _result(self, name: str) -> str:
        name = self._after_fusing(name)
        return self._renamed_outputs.get(name, name)

    def _stays(self, item: ValueInfoProto) -> bool:
        return item.name not in self._renamed_outputs and item.name not in self.places.weights

    def _unread(self, graph: GraphProto) -> set[str]:
        """Biases of before that nothing reads any more."""
        candidates = {bias.name for bias in self.places.biases}
        read = {name for _, node in nodes_of(graph) for name in node.input}
        read.update(item.name or "" for item in graph.output)
        read.update(item.name or "" for inner in graphs_inside(graph) for item in inner.output)
        return candidates - read
