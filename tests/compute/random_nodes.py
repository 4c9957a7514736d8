"""Random nodes that ONNX Runtime computes, by theme: attributes, sizes and old opsets that no case of the package has.

What is left out here, since ONNX Runtime and the specification differ: pools with SAME padding whose kernel is shorter
than the stride; `align_corners` with scales that give no whole size, and `tf_crop_and_resize` of an axis that keeps its
size; `is_causal` beside a past (ONNX Runtime 1.31 has the rule before the errata); NaN at a node of a tree that
compares with "not equal"; labels of two classes that both have votes; base values where no leaf votes; the number of
pieces of an empty string; windows in double, whose factors are float32 there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tests.compute.runtime import Node
from tests.tolerances import Bounds

SUMS = Bounds(times=4, loose="sums of many products, added in another order")
ML = "ai.onnx.ml"
KINDS: dict[str, Callable[[Draw], Node]] = {}


class Draw(Random):
    """Random choices and arrays from one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.arrays = np.random.default_rng(seed)

    def f32(self, *shape: int) -> Any:
        """Normal numbers."""
        return self.arrays.standard_normal(shape).astype(np.float32)

    def ints(self, low: int, high: int, *shape: int) -> Any:
        """Whole numbers below `high`."""
        return self.arrays.integers(low, high, shape)

    def list(self, low: int, high: int, count: int) -> list[int]:
        """Numbers up to `high`."""
        return [self.randint(low, high) for _ in range(count)]

    def maybe(self, value: Any, chance: float = 0.5) -> Any:
        """The value, or None."""
        return value if self.random() < chance else None


def kind(function: Callable[[Draw], Node]) -> Callable[[Draw], Node]:
    """Declare a theme."""
    KINDS[function.__name__] = function
    return function


def given(*inputs: Any) -> list[Any]:
    """The inputs without those at the end that are left out."""
    found = list(inputs)
    while found[-1] is None:
        found.pop()
    return found


def padding(draw: Draw, axes: int, most: int) -> dict[str, Any]:
    """Pads, uneven ones too, or a rule for them."""
    rule = draw.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    return {"pads": draw.list(0, most, 2 * axes)} if rule == "NOTSET" else {"auto_pad": rule}


@kind
def convolution(draw: Draw) -> Node:
    axes, group, each, made = draw.choice([1, 2, 2, 3]), draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 4)
    kernel = draw.list(1, 4, axes)
    attributes = {"group": group, "strides": draw.list(1, 3, axes), **padding(draw, axes, 2)}
    if "SAME" not in attributes.get("auto_pad", ""):
        attributes["dilations"] = draw.list(1, 2, axes)
    sizes = draw.list(7, 13 if axes < 3 else 8, axes)
    inputs = (
        draw.f32(2, group * each, *sizes),
        draw.f32(group * made, each, *kernel),
        draw.maybe(draw.f32(group * made)),
    )
    return Node("Conv", given(*inputs), attributes, draw.choice([7, 11, 22]), bounds=SUMS)


@kind
def transposed_convolution(draw: Draw) -> Node:
    axes, group, each, made = draw.choice([1, 2, 2, 3]), draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 4)
    sizes, kernel = draw.list(3, 8 if axes < 3 else 5, axes), draw.list(2, 4, axes)
    strides, dilations = draw.list(1, 3, axes), draw.list(1, 2, axes)
    attributes: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
    rule = draw.choice(["pads", "SAME_UPPER", "SAME_LOWER", "VALID", "shape"])
    if rule == "pads":
        attributes |= {"pads": draw.list(0, 1, 2 * axes), "output_padding": [draw.randint(0, s - 1) for s in strides]}
    elif rule == "shape":
        whole = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
        attributes["output_shape"] = [max(1, size - draw.randint(0, 2)) for size in whole]
    else:
        attributes["auto_pad"] = rule
    inputs = (
        draw.f32(2, group * each, *sizes),
        draw.f32(group * each, made, *kernel),
        draw.maybe(draw.f32(group * made)),
    )
    return Node("ConvTranspose", given(*inputs), attributes, draw.choice([7, 11]), bounds=SUMS)


@kind
def pool(draw: Draw) -> Node:
    name, axes = draw.choice(["MaxPool", "AveragePool", "LpPool"]), draw.choice([1, 2, 2, 3])
    kernel = draw.list(3, 4, axes)
    opset, newer, ceils = {
        "MaxPool": (draw.choice([8, 10, 11, 12, 22]), 10, 10),
        "AveragePool": (draw.choice([7, 10, 11, 19, 22]), 19, 10),
        "LpPool": (draw.choice([7, 11, 18, 22]), 18, 18),
    }[name]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": draw.list(1, 3, axes), **padding(draw, axes, 2)}
    if opset >= newer and "auto_pad" not in attributes:
        attributes["dilations"] = draw.list(1, 2, axes)
    if opset >= ceils:
        attributes["ceil_mode"] = draw.randint(0, 1)
    outputs = 1
    if name == "AveragePool":
        attributes["count_include_pad"] = draw.randint(0, 1)
    elif name == "LpPool":
        attributes["p"] = draw.randint(1, 3)
    elif draw.random() < 0.5:
        outputs, attributes["storage_order"] = 2, draw.randint(0, 1) if axes > 1 else 0
    return Node(name, [draw.f32(2, 3, *draw.list(7, 12 if axes < 3 else 8, axes))], attributes, opset, outputs)


# ThresholdedRelu jumps, and Softplus lets states grow without end: both have rows in test_networks
_ALPHA = {"LeakyRelu", "ScaledTanh", "HardSigmoid", "Elu", "Affine"}
_BETA = {"ScaledTanh", "HardSigmoid", "Affine"}


@kind
def recurrent(draw: Draw) -> Node:
    name = draw.choice(["RNN", "GRU", "LSTM"])
    gates, functions = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[name]
    direction = draw.choice(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    length, batch, size, hidden = draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 5)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if draw.random() < 0.5:
        chosen = [
            draw.choice([*sorted(_ALPHA), "Relu", "Tanh", "Sigmoid", "Softsign"]) for _ in range(functions * count)
        ]
        attributes["activations"] = chosen
        for key, takers in (("activation_alpha", _ALPHA), ("activation_beta", _BETA)):
            if numbers := [round(draw.uniform(0.1, 0.9), 2) for item in chosen if item in takers]:
                attributes[key] = numbers
    if draw.random() < 0.3:
        attributes["clip"] = draw.choice([0.1, 0.5, 2.0])
    if name != "RNN":
        attributes["linear_before_reset" if name == "GRU" else "input_forget"] = draw.randint(0, 1)
    inputs = [
        draw.f32(length, batch, size),
        draw.f32(count, gates * hidden, size),
        draw.f32(count, gates * hidden, hidden),
        draw.maybe(draw.f32(count, 2 * gates * hidden)),
        draw.maybe(draw.ints(1, length + 1, batch).astype(np.int32)),
        draw.maybe(draw.f32(count, batch, hidden)),
    ]
    if name == "LSTM":
        inputs += [draw.maybe(draw.f32(count, batch, hidden)), draw.maybe(draw.f32(count, 3 * hidden))]
    loose = Bounds(times=20, loose="states without bound, where activations do not bound them, and five steps of them")
    return Node(name, given(*inputs), attributes, draw.choice([7, 14, 22]), 3 if name == "LSTM" else 2, bounds=loose)


@kind
def resize(draw: Draw) -> Node:
    mode, opset = draw.choice(["nearest", "linear", "cubic"]), draw.choice([10, 11, 13, 18, 19])
    axes = 2 if mode == "cubic" else draw.randint(1, 3)
    data = draw.f32(1, 2, *draw.list(2, 9, axes))
    scales = np.array([1, 1, *[draw.choice([0.5, 0.6, 0.75, 1.5, 2, 2.5, 3.3]) for _ in range(axes)]], np.float32)
    if opset == 10:
        data = draw.f32(1, 2, *draw.list(2, 9, 2))
        scales = np.array([1, 1, *[draw.choice([0.5, 0.75, 1, 2, 2.5, 3.3]) for _ in range(2)]], np.float32)
        return Node("Resize", [data, scales], {"mode": draw.choice(["nearest", "linear"])}, opset)
    rule = draw.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"])
    if opset == 11 and draw.random() < 0.2:
        rule = "tf_half_pixel_for_nn"
    elif opset == 19 and draw.random() < 0.3:
        rule = "half_pixel_symmetric"
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": rule}
    if mode == "nearest":
        attributes["nearest_mode"] = draw.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    elif mode == "cubic":
        attributes |= {"cubic_coeff_a": draw.choice([-0.75, -0.5]), "exclude_outside": draw.randint(0, 1)}
    if opset >= 18 and mode != "nearest" and not rule.startswith(("tf", "half_pixel_")) and draw.random() < 0.4:
        attributes["antialias"] = 1
    roi: Any = np.zeros(0, np.float32)
    if rule == "tf_crop_and_resize":
        attributes["extrapolation_value"] = -1.0
        starts = [round(draw.uniform(-0.2, 0.4), 2) for _ in range(axes)]
        ends = [round(draw.uniform(0.6, 1.3), 2) for _ in range(axes)]
        roi = np.array([0, 0, *starts, 1, 1, *ends], np.float32)
    if draw.random() < 0.5 and rule not in ("align_corners", "tf_crop_and_resize"):
        return Node("Resize", [data, roi, scales], attributes, opset)
    sizes = np.array([1, 2, *[draw.choice([s for s in range(1, 15) if s != old]) for old in data.shape[2:]]])
    none = np.zeros(0, np.float32) if opset == 11 else None
    return Node("Resize", [data, roi, none, sizes], attributes, opset, bounds=SUMS)


@kind
def upsample(draw: Draw) -> Node:
    scales = [1.0, 1.0, *[draw.choice([1.0, 1.5, 2.0, 2.5, 3.3]) for _ in range(2)]]
    data, mode, opset = draw.f32(1, 2, *draw.list(2, 9, 2)), draw.choice(["nearest", "linear"]), draw.choice([7, 9])
    if opset == 9:
        return Node("Upsample", [data, np.array(scales, np.float32)], {"mode": mode}, opset)
    return Node("Upsample", [data], {"mode": mode, "scales": scales}, opset)


@kind
def grid_sample(draw: Draw) -> Node:
    axes = draw.choice([2, 2, 3])
    opset = draw.choice([16, 20]) if axes == 2 else 20
    modes = ["nearest", "bilinear", "bicubic"] if opset == 16 else ["nearest", "linear", "cubic"]
    attributes = {
        "mode": draw.choice(modes[:axes] if axes == 2 else modes[:2]),
        "padding_mode": draw.choice(["zeros", "border", "reflection"]),
        "align_corners": draw.randint(0, 1),
    }
    if axes == 2 and draw.random() < 0.3:
        attributes["mode"] = modes[2]
    grid = (draw.arrays.random((2, *draw.list(1, 5, axes), axes)) * 3 - 1.5).astype(np.float32)
    return Node("GridSample", [draw.f32(2, 3, *draw.list(2, 6, axes)), grid], attributes, opset, bounds=SUMS)


@kind
def regions(draw: Draw) -> Node:
    start, extent = draw.arrays.random((5, 2)) * 12 - 1, draw.arrays.random((5, 2)) * 12
    boxes = np.concatenate([start, start + extent], 1).astype(np.float32)
    if draw.random() < 0.3:
        boxes = np.concatenate([draw.ints(0, 2, 5, 1), np.clip(boxes, 0, 7)], 1).astype(np.float32)
        attributes: dict[str, Any] = {"pooled_shape": draw.list(1, 4, 2), "spatial_scale": draw.choice([1.0, 0.5])}
        return Node("MaxRoiPool", [draw.f32(2, 3, 8, 9), boxes], attributes, 7)
    opset = draw.choice([10, 16])
    attributes = {
        "output_height": draw.randint(1, 4),
        "output_width": draw.randint(1, 4),
        "sampling_ratio": draw.choice([0, 0, 1, 2, 3]),
        "spatial_scale": draw.choice([1.0, 0.5, 0.25]),
        "mode": draw.choice(["avg", "max"]),
    }
    if opset == 16:
        attributes["coordinate_transformation_mode"] = draw.choice(["half_pixel", "output_half_pixel"])
    return Node("RoiAlign", [draw.f32(2, 3, 8, 9), boxes, draw.ints(0, 2, 5)], attributes, opset, bounds=SUMS)


@kind
def suppression(draw: Draw) -> Node:
    count = draw.randint(1, 20)
    start = draw.arrays.random((2, count, 2))
    boxes = np.concatenate([start, start + draw.arrays.random((2, count, 2)) / 2], 2).astype(np.float32)
    scores = np.round(draw.arrays.random((2, 3, count)), draw.choice([1, 4])).astype(np.float32)  # ties, too
    limits = [np.array([draw.randint(0, 6)]), np.array([draw.choice([0, 0.3, 0.5, 1])], np.float32)]
    inputs = given(boxes, scores, *limits, draw.maybe(np.array([0.4], np.float32)))
    return Node("NonMaxSuppression", inputs, {"center_point_box": draw.randint(0, 1)}, draw.choice([10, 11]))


@kind
def norm(draw: Draw) -> Node:
    data = draw.f32(2, 6, *draw.list(2, 5, draw.randint(1, 3)))
    name = draw.choice(["batch", "training", "instance", "layer", "group", "rms", "lrn", "lp", "mvn"])
    scale, bias = draw.f32(6), draw.f32(6)
    if name in ("batch", "training"):
        running = [draw.f32(6), np.abs(draw.f32(6)) + np.float32(0.1)]
        if name == "batch":
            return Node(
                "BatchNormalization", [data, scale, bias, *running], {"epsilon": 1e-3}, draw.choice([7, 9, 14, 15])
            )
        attributes: dict[str, Any] = {"training_mode": 1, "momentum": draw.choice([0.9, 0.3])}
        return Node(
            "BatchNormalization", [data, scale, bias, *running], attributes, draw.choice([14, 15]), 3, bounds=SUMS
        )
    if name == "instance":
        return Node("InstanceNormalization", [data, scale, bias], {}, draw.choice([6, 22]), bounds=SUMS)
    axis = draw.randint(-data.ndim, data.ndim - 1)
    if name == "layer":
        inputs = [data, draw.f32(*data.shape[axis:]), draw.f32(*data.shape[axis:])]
        return Node("LayerNormalization", inputs, {"axis": axis}, 17, draw.choice([1, 3]), bounds=SUMS)
    if name == "rms":
        return Node("RMSNormalization", [data, draw.f32(*data.shape[axis:])], {"axis": axis}, 23, bounds=SUMS)
    if name == "group":
        opset = draw.choice([18, 21])
        sizes = 3 if opset == 18 else 6
        inputs = [data, draw.f32(sizes), draw.f32(sizes)]
        return Node("GroupNormalization", inputs, {"num_groups": 3}, opset, bounds=SUMS)
    if name == "lrn":
        attributes = {"size": draw.choice([1, 3, 5]), "alpha": 0.02, "beta": 0.6, "bias": 1.5}
        return Node("LRN", [draw.f32(2, 6, 3, 4)], attributes, draw.choice([7, 13]))
    if name == "lp":
        return Node("LpNormalization", [data], {"axis": axis, "p": draw.choice([1, 2])}, draw.choice([7, 22]))
    axes = draw.choice([[0, 2, 3], [0, 1, 2, 3], [2, 3]])
    return Node("MeanVarianceNormalization", [draw.f32(2, 3, 4, 5)], {"axes": axes}, draw.choice([9, 13]), bounds=SUMS)


@kind
def product(draw: Draw) -> Node:
    name = draw.choice(["matmul", "gemm", "einsum"])
    if name == "matmul":
        shapes = [
            ((3, 4), (4, 5)),
            ((4,), (4, 5)),
            ((3, 4), (4,)),
            ((4,), (4,)),
            ((2, 1, 3, 4), (5, 4, 2)),
            ((0, 4), (4, 3)),
            ((3, 0), (0, 4)),
        ]
        one, other = draw.choice(shapes)
        return Node("MatMul", [draw.f32(*one), draw.f32(*other)], {}, draw.choice([7, 13]))
    if name == "gemm":
        turned, other, bias = (
            draw.randint(0, 1),
            draw.randint(0, 1),
            draw.choice([None, (), (1,), (5,), (3, 5), (3, 1)]),
        )
        attributes: dict[str, Any] = {
            "alpha": draw.choice([1.0, 0.5]),
            "beta": draw.choice([1.0, 2.0]),
            "transA": turned,
            "transB": other,
        }
        inputs = [draw.f32(*((4, 3) if turned else (3, 4))), draw.f32(*((5, 4) if other else (4, 5)))]
        return Node(
            "Gemm", given(*inputs, None if bias is None else draw.f32(*bias)), attributes, draw.choice([7, 11, 13])
        )
    equation, *made = draw.choice(
        [
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("bij, bjk -> bik", (2, 3, 4), (2, 4, 5)),
            ("ii->i", (3, 3)),
            ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 2)),
            ("ij,jk", (2, 3), (3, 4)),
            ("bhqd,bhkd->bhqk", (1, 2, 3, 4), (1, 2, 5, 4)),
            ("ij->", (2, 3)),
            ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
        ]
    )
    return Node("Einsum", [draw.f32(*shape) for shape in made], {"equation": equation}, 12, bounds=SUMS)


@kind
def quantized_product(draw: Draw) -> Node:
    name = draw.choice(["matmul", "linear", "convolution", "quantized"])
    single, octet = np.float32, np.uint8
    if name == "matmul":
        other = draw.choice([np.uint8, np.int8])
        one, two = draw.ints(0, 127, 2, 3, 300).astype(octet), draw.ints(0, 127, 300, 4).astype(other)
        return Node(
            "MatMulInteger",
            [one, two, octet(draw.randint(0, 9)), draw.ints(0, 9, *draw.choice([(), (4,)])).astype(other)],
            {},
            10,
        )
    if name == "linear":
        one, two = draw.ints(0, 255, 3, 40).astype(octet), draw.ints(0, 255, 40, 4).astype(octet)
        return Node(
            "QLinearMatMul",
            [one, single(0.01), octet(120), two, single(0.02), octet(130), single(0.03), octet(110)],
            {},
            10,
        )
    data, attributes = draw.ints(0, 255, 1, 4, 6, 7).astype(octet), {"group": 2, "pads": [1, 0, 0, 1]}
    if name == "convolution":
        weight = draw.ints(0, 255, 4, 2, 3, 3).astype(octet)
        return Node(
            "ConvInteger", [data, weight, octet(draw.randint(0, 255)), octet(draw.randint(0, 255))], attributes, 10
        )
    weight = draw.ints(-64, 63, 4, 2, 3, 3).astype(np.int8)  # without VNNI, sums of two products overflow beyond
    scale: list[Any] = draw.choice(
        [[single(0.01), np.int8(0)], [np.abs(draw.f32(4)) / 50 + single(0.001), np.zeros(4, np.int8)]]
    )
    bias = draw.maybe(draw.ints(-500, 500, 4).astype(np.int32))
    inputs = given(data, single(0.02), octet(120), weight, *scale, single(0.05), octet(100), bias)
    return Node("QLinearConv", inputs, attributes, 10)


@kind
def quantization(draw: Draw) -> Node:
    name, opset, data = (
        draw.choice(["Quantize", "Dequantize", "Dynamic"]),
        draw.choice([10, 13, 19, 21]),
        draw.f32(3, 4, 6) * 3,
    )
    if name == "Dynamic":
        return Node("DynamicQuantizeLinear", [data * np.float32(draw.choice([1, 0]))], {}, 11, 3)
    dtype = draw.choice([np.uint8, np.int8, *([np.uint16, np.int16] if opset >= 21 else [])])
    way = draw.choice(["all", *(["axis"] if opset >= 13 else []), *(["block"] if opset >= 21 else [])])
    axis = draw.randint(-3, 2)
    attributes, shape = ({} if way == "all" else {"axis": axis}), list(data.shape)
    if way == "block":
        attributes["block_size"] = 2
        shape[axis] = -(-shape[axis] // 2)
    shape = [] if way == "all" else [shape[axis]] if way == "axis" else shape
    limits = np.iinfo(dtype)
    scale = (draw.arrays.random(shape) * 0.1 + 0.01).astype(np.float32)
    zero = draw.maybe(draw.ints(limits.min, limits.max, *shape).astype(dtype), 0.8 if dtype == np.uint8 else 1)
    if name == "Quantize":
        return Node("QuantizeLinear", given(data, scale, zero), attributes, opset)
    return Node(
        "DequantizeLinear",
        given(draw.ints(limits.min, limits.max, *data.shape).astype(dtype), scale, zero),
        attributes,
        opset,
    )


@kind
def spectrum(draw: Draw) -> Node:
    loose = Bounds(times=10, loose="sums of float32 that nearly cancel, in another order")
    if draw.random() < 0.4:
        window = draw.maybe(np.abs(draw.f32(8)))
        return Node(
            "STFT",
            [draw.f32(2, 20, 1), np.array(draw.randint(1, 4)), window, np.array(8)],
            {"onesided": draw.randint(0, 1)},
            17,
            bounds=loose,
        )
    opset, axis, inverse = draw.choice([17, 20]), draw.choice([1, 2]), draw.randint(0, 1)
    parts = 2 if inverse else draw.choice([1, 2])
    attributes: dict[str, Any] = {"inverse": inverse, "onesided": draw.randint(0, 1) if parts == 1 else 0}
    length = draw.maybe(np.array(draw.randint(3, 9)))
    if opset == 17:
        attributes["axis"] = axis
        return Node("DFT", given(draw.f32(2, 5, 6, parts), length), attributes, opset, bounds=loose)
    return Node("DFT", [draw.f32(2, 5, 6, parts), length, np.array(axis)], attributes, opset, bounds=loose)


@kind
def loss(draw: Draw) -> Node:
    target, attributes = draw.ints(0, 4, 3, 5), {"reduction": draw.choice(["none", "mean", "sum"])}
    ignored = draw.choice([None, 1, -1])
    if ignored is not None:
        attributes["ignore_index"] = ignored
        target[0, 0] = ignored
    name = draw.choice(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
    weight = draw.maybe(np.abs(draw.f32(4)) + np.float32(0.1))
    return Node(name, given(draw.f32(3, 4, 5), target, weight), attributes, 13)
