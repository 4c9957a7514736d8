"""A model with pairs of `QuantizeLinear` and `DequantizeLinear`.

An activation x becomes x -> QuantizeLinear -> DequantizeLinear -> x_dequantized, which all nodes of the main graph
read; a graph output keeps its name behind the pair. A constant keeps its name, too: a `DequantizeLinear` makes it.
A bias is int32, with the product of the scales of data and weight, so that an integer kernel can add it to its sums.
Where that scale would be too small for the bias, the weight's becomes larger, as ONNX Runtime does it.
The weights are read for their ranges here, and once more when the model is saved; never a whole one at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.calibration.codes import Codes, Source
from proto_schema.calibration.options import CalibrationOptions
from proto_schema.calibration.qdq_points import Bias, Places, found_places, scale_of, watched
from proto_schema.calibration.ranges import Range, collected
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Array, Given, Samples
from proto_schema.ir import Builder, Model, Node, Value, from_message
from proto_schema.numpy_helper import from_array
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.quantization.candidates import STANDARD
from proto_schema.quantization.codes.elements import FLOATS, Floats
from proto_schema.quantization.codes.integers import Grid, ranges
from proto_schema.quantization.hoisted import constant_of
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.dtypes import element_count
from proto_schema.units import size_text

_WEIGHTS = Grid(8, True)
_FREE = 4  # the IR version from which on initializers need not be inputs
_MARGIN = 1.0001  # of a bias below the greatest int32


@dataclass(frozen=True)
class CalibratedTensor:
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
    options: CalibrationOptions
    entries: tuple[CalibratedTensor, ...]

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


def calibrated(model: ModelProto, options: CalibrationOptions, samples: Given, budget: BudgetLike = None) -> Calibrated:
    """The model with activations and weights as integers, by the ranges that the samples show.

    `model` does not change. `budget` is for each run of our evaluator, and for the bytes of a file of samples. Raises
    ValueError for samples that the model does not take, for activations and weights that hold a NaN, for weights that
    hold an infinity, for an opset without the operators, and where nothing can be quantized. An activation that reaches
    infinity or 1e30, as a mask does, or is 0 in all samples stays in floats.
    """
    work = from_message(model)
    _make_initializers(work)
    opset = next((version or 1 for domain, version in work.opsets.items() if domain in STANDARD), 1)
    needed = 13 if options.per_channel else 10
    if opset < needed:
        what = "A scale for each channel" if options.per_channel else "QuantizeLinear"
        raise ValueError(
            f"{what} needs opset {needed}, and the model has opset {opset}; convert it first (--opset {needed})"
        )
    values = watched(work.graph, options, opset)
    given = work.to_message()
    with Runner(given, values.keys(), budget) as runner:
        seen = collected(runner, Samples(given, samples, budget), options)
    places = found_places(work.graph, options, opset, {values[name]: item for name, item in seen.items()})
    if not places.activations:
        raise ValueError(
            "no activation can be quantized: outside of the branches of If and the bodies of loops, which stay as they "
            "are, the model has no Conv, MatMul, Gemm or other operator with an integer form that works on float32, or "
            "the patterns leave all of them out. Without --activations weights inside of branches and bodies are "
            "quantized, too"
        )
    made, entries = _Rewriting(work, options, places).run()
    left = [
        CalibratedTensor(name, "activation", "float", 0.0, 0, reason=item.reason)
        for name, item in seen.items()
        if item.reason
    ]
    return Calibrated(made, options, (*entries, *left))


def _make_initializers(model: Model) -> None:
    """Let the file hold the floats of Constant nodes of the main graph, however few they are."""
    graph = model.graph
    if (model.message.ir_version or 0) < _FREE:
        return
    for node in graph.nodes:
        tensor = constant_of(node)
        if tensor is not None and tensor.data_type in FLOATS[:3] and not node.output.is_output:
            graph.add_initializer(tensor).stand_for(node.output)
            graph.nodes.remove(node)


class _Rewriting:
    def __init__(self, model: Model, options: CalibrationOptions, places: Places) -> None:
        self.model = model
        self.graph = model.graph
        self.options = options
        self.places = places
        self.held = {value: value.tensor for value in self.graph.initializers}
        self.outputs = set(self.graph.outputs)
        self.scales: dict[Value, tuple[Floats, Floats]] = {}
        self.entries: list[CalibratedTensor] = []
        self._builder = Builder(model.graph, model.opsets)
        self._constants = self._builder.after(None)
        self._behind: dict[Node | None, Builder] = {}  # what makes a value, and who writes behind it
        self._parameters: dict[Value, tuple[Value, Value]] = {}

    def run(self) -> tuple[ModelProto, list[CalibratedTensor]]:
        places = self.places
        for value, numbers in places.activations.items():
            scale, zero = scale_of(numbers, self.options.grid)
            self.scales[value] = np.array([scale], np.float32), np.array([zero], np.float32)
        constants = [value for value in self.held if value in places.weights or value in places.constants]
        for value in constants:
            self.scales[value] = self._scales_of(value)
        for bias in places.biases:
            self._widen(bias)
        for value, numbers in places.activations.items():
            self._pair(value, numbers)
        for value in places.shared:
            self._pair(value, None)
        for value in constants:
            self._constant(value)
        for bias in places.biases:
            self._bias(bias)
        for node in places.fused:
            self._fuse(node)
        return self.model.to_message(), self.entries

    # -- numbers

    def _tensor_of(self, value: Value) -> TensorProto:
        tensor = self.held[value]
        assert isinstance(tensor, TensorProto)  # only such values are marked as constants
        return tensor

    def _source(self, value: Value) -> Source:
        return Source.of(self._tensor_of(value), self.places.weights.get(value), self.options.threads)

    def _scales_of(self, value: Value) -> tuple[Floats, Floats]:
        is_weight = value in self.places.weights
        grid = _WEIGHTS if is_weight else self.options.grid
        extremes = self._source(value).extremes()
        try:
            return ranges(extremes, grid, "even", zero_points=not is_weight, round_scales=lambda scales: scales)
        except ValueError as error:
            raise ValueError(
                f"weight {value.name!r} cannot be quantized: {error}; leave it out with exclude={value.name!r}"
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
        sizes = np.abs(to_array(self._tensor_of(bias.value)).astype(np.float64)).reshape(-1)
        largest = sizes if bias.axis is not None else sizes.max(keepdims=True)
        if not np.isfinite(largest).all():
            raise ValueError(
                f"bias {bias.value.name!r} holds a NaN or an infinity; leave it out with exclude={bias.value.name!r}"
            )
        least = _MARGIN * 2 * largest / (2.0 * np.iinfo(np.int32).max)
        product = data.astype(np.float64) * weight.astype(np.float64)
        short = (product < least) & (product > 0)
        wider = weight.astype(np.float64) * np.where(short, least / np.where(short, product, 1), 1)
        self.scales[bias.weight] = wider.astype(np.float32), self.scales[bias.weight][1]

    # -- tensors and nodes

    def _pair(self, value: Value, numbers: Range | None) -> None:
        scale, zero = self._parameters_of(self.places.owner(value))
        name, new_name = value.name, self.model.new_name
        if value in self.outputs:
            named, value.name, uses = name, new_name(f"{name}_unquantized"), list(value.uses)
        else:
            named = new_name(f"{name}_dequantized")
            uses = [use for use in value.uses if isinstance(use[0], Node) and use[0].graph is self.graph]
        if value.producer not in self._behind:
            self._behind[value.producer] = self._builder.after(value.producer)
        write, coded = self._behind[value.producer], new_name(f"{name}_quantized")
        codes = write.QuantizeLinear(value, scale, zero, outputs=[coded], name=new_name(f"{name}_quantize"))
        made = write.DequantizeLinear(codes, scale, zero, outputs=[named], name=new_name(f"{name}_dequantize"))
        if value in self.outputs:
            made.declared, value.declared = value.declared, None
        value.replace_uses(made, uses)
        scales, zeros = self.scales[self.places.owner(value)]
        ends = (None, None) if numbers is None else (float(numbers.low), float(numbers.high))
        self.entries.append(
            CalibratedTensor(
                name, "activation", self.options.type, float(scales[0]), int(zeros[0]), 1, ends[0], ends[1]
            )
        )

    def _parameters_of(self, owner: Value) -> tuple[Value, Value]:
        if owner not in self._parameters:
            scales, zeros = self.scales[owner]
            dtype = np.int8 if self.options.grid.signed or owner in self.places.weights else np.uint8
            shape = () if self.places.weights.get(owner) is None else (-1,)
            self._parameters[owner] = (
                self._array(f"{owner.name}_scale", scales.reshape(shape)),
                self._array(f"{owner.name}_zero_point", zeros.astype(dtype).reshape(shape)),
            )
        return self._parameters[owner]

    def _constant(self, value: Value) -> None:
        is_weight, axis = value in self.places.weights, self.places.weights.get(value)
        grid, name = _WEIGHTS if is_weight else self.options.grid, value.name
        scales, zeros = self.scales[value]
        payload = Codes(self._source(value), grid, scales, zeros)
        code = TensorProto.INT8 if is_weight else self.options.code
        dims = list(self._tensor_of(value).dims)
        codes = self._added(f"{name}_quantized", TensorProto(data_type=code, dims=dims, raw_data=payload))
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        made = self._dequantized([codes, *self._parameters_of(value)], f"{name}_dequantize", attributes)
        made.stand_for(value)
        self.graph.remove_initializer(value)
        kind, text = ("weight", "int8") if is_weight else ("constant", self.options.type)
        count = element_count(dims)
        after = count + len(scales) * 5
        self.entries.append(
            CalibratedTensor(
                name, kind, text, float(scales[0]), int(zeros[0]), len(scales), None, None, count * 4, after
            )
        )

    def _dequantized(self, inputs: Sequence[Value], name: str, attributes: dict[str, Any]) -> Value:
        """What a node at the beginning of the graph makes of codes."""
        made: Value = self._constants.DequantizeLinear(*inputs, name=self.model.new_name(name), **attributes)
        return made

    def _bias(self, bias: Bias) -> None:
        found = self._bias_scales(bias)
        if found is None:
            return
        scales = (found[0] * found[1]).astype(np.float32)
        values, name = to_array(self._tensor_of(bias.value)), bias.value.name
        limits = np.iinfo(np.int32)
        with np.errstate(divide="ignore", invalid="ignore"):
            codes = np.rint(values.astype(np.float64) / scales.astype(np.float64))
        if not np.isfinite(codes).all() or np.any(codes < limits.min) or np.any(codes > limits.max):
            return  # its scale is too small for int32: the floats are exact
        shape = () if bias.axis is None else (-1,)
        inputs = [
            self._array(f"{name}_quantized", codes.astype(np.int32)),
            self._array(f"{name}_quantized_scale", scales.reshape(shape)),
        ]
        wanted = self.model.new_name(f"{name}_dequantized")
        made = self._dequantized(inputs, f"{name}_dequantize", {} if bias.axis is None else {"axis": 0})
        made.name = wanted
        bias.node.set_input(bias.place, made)
        if not bias.value.uses and bias.value in self.graph.initializers:
            self.graph.remove_initializer(bias.value)
        before = values.size * 4
        self.entries.append(
            CalibratedTensor(name, "bias", "int32", float(scales[0]), 0, len(scales), None, None, before, before)
        )

    def _array(self, name: str, values: Array) -> Value:
        return self._added(name, from_array(values))

    def _added(self, name: str, tensor: TensorProto) -> Value:
        return self.graph.add_initializer(tensor, self.model.new_name(name))

    # -- the graph

    def _fuse(self, node: Node) -> None:
        """What the node reads stands for what it made, which is cut by the range of the integers."""
        value = node.inputs[0]
        assert value is not None  # or it would not be marked
        value.stand_for(node.output)
        self.graph.nodes.remove(node)
