"""What random graphs consist of: a row each, a function of the graph that grows, which adds nodes or none.

INSIDE are the rows that bodies and functions consist of, too. A row that decides on numbers takes exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import proto_schema as ps
from fuzz.meaning.graphs import DOMAIN, FLOATS, SIZES, Builder, Function, Value, declared

Row = Callable[[Builder], Any]
INTEGERS = ("int64", "int32", "uint8")
NUMBERS = (*FLOATS, "int64", "int32")
DEEPEST = 2


def grow(graph: Builder, rows: Sequence[Row]) -> None:
    """Add what a random row adds."""
    graph.choices.one_of(rows)(graph)


# Elements -------------------------------------------------------------------------------------------------------------


def exact_unary(g: Builder) -> Any:
    op = g.choices.one_of(("Relu", "Neg", "Abs", "Identity", "Neg", "Identity", "HardTanh", "Sign", "Floor", "Round"))
    x = g.pick(FLOATS, exact=op in ("Sign", "Floor", "Round"))
    if op == "HardTanh":
        return g.add("Clip", [x, g.constant(np.array(-1, x.dtype)), g.constant(np.array(1, x.dtype))]) if x else None
    return g.add(op, [x])


def rough_unary(g: Builder) -> Any:
    op = g.choices.one_of(
        ("Sigmoid", "Tanh", "Softplus", "Erf", "HardSigmoid", "Elu", "Selu", "HardSwish", "Softsign", "Gelu", "Mish")
    )
    return g.add(op, [g.pick(FLOATS)], rough=True)


def leaky(g: Builder) -> Any:
    if g.in_function and g.choices.below(2):
        return g.add("LeakyRelu", [g.pick(FLOATS)], rough=True, refer={"alpha": "alpha"}, alpha=0.5)
    return g.add("LeakyRelu", [g.pick(FLOATS)], rough=True, alpha=(0.5, 0.25)[g.choices.below(2)])


def alias(g: Builder) -> Any:
    """A node that changes nothing: its number of readers is what tools count wrongly."""
    x = g.pick()
    if x is None:
        return None
    kind = g.choices.below(8)
    if kind == 0 and x.is_float:
        return g.add("Dropout", [x], [True, not g.choices.below(3)])
    if kind == 1:
        shape = x.arrays[0].shape
        if all(array.shape == shape for array in x.arrays):
            return g.add("Reshape", [x, g.constant(np.array(shape, np.int64))])
    if kind == 2 and x.dtype in NUMBERS and x.rank:
        return g.add("Pad", [x, g.constant(np.zeros(2 * x.rank, np.int64))])
    if kind == 3:
        return g.add("Cast", [x], to=int(ps.helper.np_dtype_to_tensor_dtype(x.arrays[0].dtype)))
    if kind == 4:
        return g.add("Expand", [x, g.add("Shape", [x])])
    if kind == 5 and x.rank:
        return g.add("Transpose", [g.add("Transpose", [x])])
    if kind == 6 and x.rank:
        return g.add("Concat", [x], axis=g.choices.below(x.rank))
    return g.add("Identity", [x])


def neutral(g: Builder) -> Any:
    """`x + 0`, `x - -0.0`, `x * 1` and their like: some are x, some only nearly."""
    x = g.pick(NUMBERS)
    if x is None:
        return None
    op = g.choices.one_of(("Add", "Sub", "Mul", "Div", "Add", "Sub", "Pow"))
    number = {"Add": (0.0, -0.0), "Sub": (-0.0, 0.0)}.get(op, (1.0, 1.0))[g.choices.below(2)]
    shape = [(), (1,), (1,) * x.rank][g.choices.below(3)]
    other = g.constant(np.full(shape, number).astype(x.dtype))
    return g.add(op, [other, x] if op in ("Add", "Mul", "Sub") and not g.choices.below(3) else [x, other])


def binary(g: Builder) -> Any:
    op = g.choices.one_of(("Add", "Mul", "Sub", "Add", "Max", "Min"))
    x = g.pick(NUMBERS)
    y = g.pick([x.dtype]) if x else None
    return g.add(op, [x, y] if g.choices.below(2) else [y, x], rough=op == "Mul" and not (x and x.dtype in INTEGERS))


def with_constant(g: Builder) -> Any:
    x = g.pick(NUMBERS)
    if x is None:
        return None
    shape = list(x.arrays[0].shape[-1:]) if g.choices.below(2) else []
    op = g.choices.one_of(("Add", "Mul", "Sub"))
    return g.add(op, [x, g.constant(g.numbers(shape, x.dtype, 3))], rough=op == "Mul" and x.is_float)


def several(g: Builder) -> Any:
    x = g.pick(FLOATS)
    found = [g.pick([x.dtype]) for _ in range(1 + g.choices.below(3))] if x else []
    return g.add(g.choices.one_of(("Max", "Min", "Sum")), [x, *found], rough=len(found) > 1)


def compared(g: Builder) -> Any:
    x = g.pick((*FLOATS, "int64", "int32"), exact=True)
    y = g.pick([x.dtype], exact=True) if x else None
    return g.add(g.choices.one_of(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")), [x, y])


def logical(g: Builder) -> Any:
    x, y = g.pick(["bool"]), g.pick(["bool"])
    return g.add(*(("Not", [x]), ("And", [x, y]), ("Or", [x, y]), ("Xor", [x, y]))[g.choices.below(4)])


def where(g: Builder) -> Any:
    x = g.pick()
    return g.add("Where", [g.pick(["bool"]), x, g.pick([x.dtype]) if x else None])


def cast(g: Builder) -> Any:
    to = g.choices.one_of((1, 11, 7, 6, 9, 1, 10))
    x = g.pick(exact=to in (6, 7, 9))
    if x is None or (x.dtype == "uint8" and to == 10):
        return None
    return g.add("Cast", [x], rough=to == 10 and x.dtype in ("float32", "float64"), to=to)


def clip(g: Builder) -> Any:
    """Bounds that are there or not."""
    x = g.pick((*FLOATS, "int64"))
    if x is None:
        return None
    bounds = [g.constant(np.array(-1, x.dtype)), g.constant(np.array(2, x.dtype))]
    low, high = (("", bounds[1]), (bounds[0], ""), (bounds[0], bounds[1]), ("", ""))[g.choices.below(4)]
    return g.add("Clip", [x, low, high] if high else [x, low] if low else [x])


# Places ---------------------------------------------------------------------------------------------------------------


def transpose(g: Builder) -> Any:
    """One, or two behind each other."""
    found: Value | None = g.pick()
    if found is None or not found.rank:
        return None
    for _ in range(1 + g.choices.below(2)):
        order = np.random.default_rng(g.choices.below(256)).permutation(found.rank).tolist()
        found = g.add("Transpose", [found], **({"perm": order} if g.choices.below(4) else {}))
        if found is None:
            return None
    return found


def reshape(g: Builder) -> Any:
    x = g.pick()
    if x is None:
        return None
    form = g.choices.below(6)
    if form == 0 and x.rank:
        return g.add("Flatten", [x], axis=g.choices.below(x.rank + 1))
    if form == 1:
        return g.add("Reshape", [x, g.add("Shape", [g.pick()])])
    wanted = ([-1], [0, -1], [-1, 1], [1, -1], [0, 0, -1], [-1, 2], [2, 3], [3, -1])[g.choices.below(8)]
    return g.add("Reshape", [x, g.constant(np.array(wanted, np.int64))])


def squeezes(g: Builder) -> Any:
    x = g.pick()
    if x is None:
        return None
    axis = g.choices.below(x.rank + 1)
    made = g.add("Unsqueeze", [x, g.constant(np.array([axis], np.int64))])
    if made is None or g.choices.below(2):
        return made
    back = axis if g.choices.below(2) else g.choices.below(x.rank + 1)
    return g.add("Squeeze", [made, g.constant(np.array([back], np.int64))])


def concat(g: Builder) -> Any:
    x = g.pick()
    if x is None or not x.rank:
        return None
    return g.add("Concat", [x, g.pick([x.dtype], x.rank)], axis=g.choices.below(x.rank) - x.rank * g.choices.below(2))


def split(g: Builder) -> Any:
    x = g.pick()
    if x is None or not x.rank:
        return None
    axis = g.choices.below(x.rank)
    size = x.arrays[0].shape[axis]
    if size < 2 or any(array.shape[axis] != size for array in x.arrays):
        return None
    return g.add("Split", [x, g.constant(np.array([1, size - 1], np.int64))], 2, axis=axis)


def cut(g: Builder) -> Any:
    """Slices forwards, backwards, of nothing, and beyond the end; with and without axes and steps."""
    x = g.pick()
    if x is None or not x.rank:
        return None
    starts, ends, steps = ((0, 99, 1), (1, 99, 1), (-1, -99, -1), (0, -1, 1), (0, 9223372036854775807, 2), (-2, 99, 1))[
        g.choices.below(6)
    ]
    axis = g.choices.below(x.rank)
    given = [g.constant(np.array([item], np.int64)) for item in (starts, ends, axis, steps)]
    if steps == 1 and not g.choices.below(2):
        given = given[:3]
    return g.add("Slice", [x, *given])


def gather(g: Builder) -> Any:
    x = g.pick()
    if x is None or not x.rank:
        return None
    index = g.choices.one_of((np.array(0), np.array([0, 1, 0]), np.array(-1), np.array([[0], [-1]])))
    return g.add("Gather", [x, g.constant(index.astype(np.int64))], axis=g.choices.below(x.rank))


def repeated(g: Builder) -> Any:
    x = g.pick()
    if x is None or not x.rank:
        return None
    if g.choices.below(2):
        return g.add("Tile", [x, g.constant(np.array([1 + g.choices.below(2) for _ in range(x.rank)], np.int64))])
    return g.add("Expand", [x, g.constant(np.array([2, *[1] * x.rank], np.int64))])


def padded(g: Builder) -> Any:
    x = g.pick(NUMBERS)
    if x is None or not x.rank:
        return None
    pads = np.array([g.choices.below(3) for _ in range(2 * x.rank)], np.int64)
    mode = ("constant", "edge", "reflect")[g.choices.below(3)]
    value = [g.constant(np.array(1.5, x.dtype))] if mode == "constant" and g.choices.below(2) else []
    return g.add("Pad", [x, g.constant(pads), *value], mode=mode)


def sizes(g: Builder) -> Any:
    """What shapes are computed from."""
    shape = g.add("Shape", [g.pick()])
    if shape is None or g.choices.below(3) == 0:
        return shape
    one = g.add("Gather", [shape, g.constant(np.array(0, np.int64))], axis=0)
    if one is None:
        return None
    return g.add(
        *(("Add", [one, one]), ("Mul", [one, g.constant(np.array(2, np.int64))]), ("Cast", [one]))[g.choices.below(2)]
    )


def filled(g: Builder) -> Any:
    shape = g.add("Shape", [g.pick()])
    value = ps.numpy_helper.from_array(np.array([1.5], np.float32))
    return g.add("ConstantOfShape", [shape], value=value) if shape else None


def ranged(g: Builder) -> Any:
    size = g.add("Size", [g.pick()])
    return (
        g.add("Range", [g.constant(np.array(0, np.int64)), size, g.constant(np.array(2, np.int64))]) if size else None
    )


def triangle(g: Builder) -> Any:
    x = g.pick(FLOATS)
    return g.add("Trilu", [x], upper=g.choices.below(2))


def selected(g: Builder) -> Any:
    """Results whose size follows from numbers; of several, perhaps only one."""
    x = g.pick((*FLOATS, "int64"), exact=True)
    if x is None or not x.rank or g.depth:
        return None
    form = g.choices.below(4)
    if form == 0:
        return g.add("TopK", [x, g.constant(np.array([1], np.int64))], 2, axis=g.choices.below(x.rank))
    if form == 1:
        return g.add("ArgMax", [x], axis=g.choices.below(x.rank), keepdims=g.choices.below(2))
    if form == 2:
        return g.add("NonZero", [x])
    return g.add("Unique", [x], [True, False, True] if g.choices.below(2) else [True])


# Sums and layers ------------------------------------------------------------------------------------------------------


def reduced(g: Builder) -> Any:
    x = g.pick(FLOATS)
    if x is None or not x.rank:
        return None
    op = g.choices.one_of(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"))
    axis = g.choices.below(x.rank) - x.rank * g.choices.below(2)
    as_input = op == "ReduceSum" or g.opset >= 18
    keep = g.choices.below(2)
    if g.choices.below(4) == 0:
        return g.add(op, [x], rough=True, keepdims=keep)
    if as_input:
        return g.add(op, [x, g.constant(np.array([axis], np.int64))], rough=True, keepdims=keep)
    return g.add(op, [x], rough=True, axes=[axis], keepdims=keep)


def softmax(g: Builder) -> Any:
    x = g.pick(FLOATS)
    if x is None or not x.rank:
        return None
    axis = g.choices.below(x.rank) - x.rank * g.choices.below(2)
    return g.add(
        g.choices.one_of(("Softmax", "LogSoftmax")), [x], rough=True, **({"axis": axis} if g.choices.below(3) else {})
    )


def product(g: Builder) -> Any:
    """A product with a weight, whose numbers are exact in every type of fewer bits."""
    x = g.pick(["float32"])
    if x is None or not x.rank:
        return None
    inner, outer = x.arrays[0].shape[-1], 1 + g.choices.below(4)
    if x.rank == 2 and g.choices.below(2):
        bias = g.constant(g.numbers([outer], most=3)) if g.choices.below(2) else None
        flip = g.choices.below(2)
        weight = g.constant(weights(g, [outer, inner] if flip else [inner, outer]))
        return g.add(
            "Gemm",
            [x, weight, bias] if bias else [x, weight],
            rough=True,
            transB=flip,
            alpha=(1.0, 0.5)[g.choices.below(2)],
        )
    return g.add("MatMul", [x, g.constant(weights(g, [inner, outer]))], rough=True)


def products(g: Builder) -> Any:
    x = g.pick(["float32"])
    y = g.pick(["float32"])
    return g.add("MatMul", [x, y], rough=True)


def weights(g: Builder, shape: Sequence[int]) -> Any:
    """-1, 0 and 1."""
    return np.random.default_rng(g.choices.below(256)).integers(-1, 2, shape).astype(np.float32)


def image(g: Builder) -> Value | None:
    """A value of four axes, made of another where there is none."""
    found = g.pick(["float32"], 4)
    if found is None or not g.choices.below(4):
        x = g.pick(["float32"])
        found = (
            g.add(
                "Reshape",
                [x, g.constant(np.array(g.choices.one_of(((0, 1, 1, -1), (-1, 2, 1, 1), (-1, 2, 1, 2))), np.int64))],
            )
            if x and x.rank
            else None
        )
    return found if found is not None and all(array.size for array in found.arrays) else None


def convolution(g: Builder) -> Any:
    """A convolution and, mostly, its normalization, with what real graphs have between and beside them."""
    x = image(g)
    if x is None:
        return None
    channels, made = x.arrays[0].shape[1], 1 + g.choices.below(3)
    turned = not g.choices.below(4)
    made = channels if turned and g.choices.below(2) else made
    weight = g.constant(weights(g, [channels, made, 1, 1] if turned else [made, channels, 1, 1]))
    inputs = [x, weight, g.constant(g.numbers([made], most=3))] if g.choices.below(2) else [x, weight]
    op = "ConvTranspose" if turned else "Conv"
    y = g.add(op, inputs, rough=True)
    if y is None:
        return None
    if not g.choices.below(4):
        g.add(op, inputs, rough=True)  # an equal one
    between = y
    for _ in range(g.choices.below(3)):
        form = g.choices.below(4)
        shape = y.arrays[0].shape
        if form == 0:
            between = g.add("Identity", [between]) or between
        elif form == 1:
            between = g.add("Dropout", [between]) or between
        elif form == 2:
            between = g.add("Pad", [between, g.constant(np.zeros(8, np.int64))]) or between
        elif all(array.shape == shape for array in y.arrays):
            between = g.add("Reshape", [between, g.constant(np.array(shape, np.int64))]) or between
    if not g.choices.below(5):
        return between
    if not g.choices.below(3):
        g.add(g.choices.one_of(("Neg", "Relu", "Identity")), [between if g.choices.below(2) else y])
    numbers = [g.constant(g.numbers([made], most=6)) for _ in range(3)]
    variance = g.constant(np.abs(g.numbers([made], most=6)) + np.float32(0.5))
    return g.add(
        "BatchNormalization", [between, *numbers, variance], rough=True, epsilon=(1e-5, 1e-3)[g.choices.below(2)]
    )


def pooled(g: Builder) -> Any:
    x = image(g)
    if x is None:
        return None
    form = g.choices.below(3)
    if form == 0:
        return g.add("GlobalAveragePool", [x], rough=True)
    if form == 1:
        return g.add(
            "MaxPool", [x], kernel_shape=[1, 2], pads=[0, g.choices.below(2), 0, 1], ceil_mode=g.choices.below(2)
        )
    return g.add(
        "AveragePool",
        [x],
        rough=True,
        kernel_shape=[1, 2],
        pads=[0, g.choices.below(2), 0, 1],
        count_include_pad=g.choices.below(2),
    )


def resized(g: Builder) -> Any:
    """With inputs left out in the middle."""
    x = image(g)
    scales = np.array([1, 1, 1, 2], np.float32)
    return g.add(
        "Resize",
        [x, "", g.constant(scales)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def normalized(g: Builder) -> Any:
    x = g.pick(["float32"])
    if x is None or not x.rank:
        return None
    size = x.arrays[0].shape[-1]
    scale = g.constant(g.numbers([size], most=6))
    bias = [g.constant(g.numbers([size], most=6))] if g.choices.below(2) else []
    return g.add("LayerNormalization", [x, scale, *bias], [True, True, False][: 1 + g.choices.below(2)], rough=True)


def recurrent(g: Builder) -> Any:
    """Inputs left out in the middle, and results that nobody takes."""
    x = g.pick(["float32"], 3)
    if x is None:
        return None
    size, hidden = x.arrays[0].shape[-1], 2
    w, r = (g.constant(g.numbers([1, 3 * hidden, columns], most=2)) for columns in (size, hidden))
    bias = g.constant(g.numbers([1, 6 * hidden], most=2)) if g.choices.below(2) else ""
    return g.add(
        "GRU",
        [x, w, r, bias],
        ([True], [False, True], [True, True])[g.choices.below(3)],
        rough=True,
        hidden_size=hidden,
        linear_before_reset=g.choices.below(2),
    )


def sequence(g: Builder) -> Any:
    x = g.pick(FLOATS)
    y = g.pick([x.dtype], x.rank) if x and x.rank else None
    if x is None or y is None:
        return None
    axis = g.choices.below(x.rank)
    form = g.choices.below(5)
    if form == 0:
        made = g.add("SplitToSequence", [x], axis=axis, keepdims=g.choices.below(2))
        return g.add("SequenceLength", [made])
    made = g.add("SequenceConstruct", [x, y])
    if form == 1:
        made = g.add("SequenceInsert", [made, x, g.constant(np.array(g.choices.below(2), np.int64))])
    if form == 2:
        made = g.add("SequenceErase", [made, g.constant(np.array(g.choices.below(2), np.int64))])
    if g.choices.below(2):
        return g.add("SequenceAt", [made, g.constant(np.array(-g.choices.below(2), np.int64))])
    return g.add("ConcatFromSequence", [made], axis=axis)


def optional(g: Builder) -> Any:
    """A tensor that might be none, and the question whether it is one."""
    x = g.pick(FLOATS)
    if x is None or g.opset < 15:
        return None
    made = g.add("Optional", [x], of_tensor=False)
    if made is None:
        return None
    if g.choices.below(2):
        made = g.add("Identity", [made], of_tensor=False) if g.opset >= 16 else made
    if not g.choices.below(3):
        g.add("OptionalHasElement", [made])
    return g.add("OptionalGetElement", [made])


# Control --------------------------------------------------------------------------------------------------------------


def condition(g: Builder) -> str | None:
    """A bool: a constant, of a size, or of numbers."""
    form = g.choices.below(4)
    if form == 0:
        return g.constant(np.array(bool(g.choices.below(2))))
    if form == 1:
        size = g.add("Size", [g.pick()])
        found = g.add("Greater", [size, g.constant(np.array(4, np.int64))]) if size else None
    else:
        x = g.pick(["float32"], exact=True)
        flat = g.add("ReduceMax", [x], keepdims=0) if x is not None and all(array.size for array in x.arrays) else None
        found = g.add("Greater", [flat, g.constant(np.array(1, np.float32))]) if flat else None
    return found.name if found else None


def body_of(g: Builder) -> Builder:
    """A body in this graph. Bodies beside each other have the same names inside."""
    name = f"{g.prefix[0]}_{'i' * (g.depth + 1)}"
    allowed = bool(g.choices.below(3))
    return Builder(g.choices, g.opset, name, g, initializers_allowed=allowed, functions=g.functions)


def branch(g: Builder) -> Any:
    chosen = condition(g)
    if chosen is None or g.depth >= DEEPEST:
        return None
    bodies = [body_of(g), body_of(g)]
    for body in bodies:
        for _ in range(1 + g.choices.below(4)):
            grow(body, INSIDE)
    first = bodies[0].pick()
    second = bodies[1].pick([first.dtype], first.rank) if first else None
    if first is None or second is None:
        return None
    if g.depth and not _like(first, second):
        return None  # the next turn of a loop around it may choose the other, and what a loop carries keeps its sizes
    graphs = [_closed(body, [value], [], g) for body, value in zip(bodies, (first, second), strict=True)]
    exact = all(value.exact for body in bodies for value in body.visible())
    return g.add("If", [chosen], rough=not exact, then_branch=graphs[0], else_branch=graphs[1])


def _closed(body: Builder, results: Sequence[Value], inputs: Sequence[ps.ValueInfoProto], g: Builder) -> ps.GraphProto:
    """The body as a graph; what it gives from outside is copied, for a graph gives only what it makes."""
    own = {value.name for value in body.values} - {item.name for item in inputs}
    outputs = []
    for value in results:
        made: Value | None = value
        if value.name not in own or any(item.name == value.name for item in outputs):
            made = body.add("Identity", [value]) or value
        said = declared(made or value, g.choices)
        if g.in_function:
            said.type.tensor_type.shape = None  # calls pass other shapes than the example has
        outputs.append(said)
    return ps.GraphProto(
        name="b",
        node=body.nodes,
        input=list(inputs),
        output=outputs,
        initializer=body.initializers,
        sparse_initializer=body.sparse,
    )


def loop(g: Builder) -> Any:
    """So many turns as a number or a size says; a value is carried, another one is stacked.

    There is a turn: of none the standard does not say the sizes of what is stacked.
    """
    state = g.pick(["float32"])
    if state is None or g.depth >= DEEPEST:
        return None
    form = g.choices.below(3)
    size = g.add("Size", [g.pick(rank=1)]) if form == 2 else None
    sized = size is not None and all(array > 0 for array in size.arrays)
    trips = size.name if size and sized else g.constant(np.array(1 + g.choices.below(3), np.int64))
    body = body_of(g)
    names = [body.name() for _ in range(3)]
    places = [np.array(0, np.int64)] * len(SIZES), [np.array(True)] * len(SIZES), state.arrays
    body.values += [Value(name, tuple(arrays), state.exact) for name, arrays in zip(names, places, strict=True)]
    inputs = [declared(value, g.choices, of_input=True) for value in body.values]
    carried = body.values[2]
    for _ in range(1 + g.choices.below(4)):
        grow(body, INSIDE)
    goes = body.add("Identity", [names[1]])
    fitting = [value for value in body.values if value.dtype == "float32" and _like(value, carried)]
    after = body.add("Tanh", [g.choices.one_of(fitting[::-1])], rough=True)
    stacked = body.pick()
    if goes is None or after is None or stacked is None:
        return None
    graph = _closed(body, [goes, after, stacked], inputs, g)
    return g.add(
        "Loop", [trips, g.constant(np.array(True)) if g.choices.below(2) else "", state], 2, rough=True, body=graph
    )


def scan(g: Builder) -> Any:
    """A body for each part of a value, forwards or backwards, of any axis; a value is carried, others are stacked."""
    state, x = g.pick(["float32"]), g.pick(FLOATS)
    if state is None or x is None or not x.rank or g.depth >= DEEPEST:
        return None
    axis = g.choices.below(x.rank)
    if not all(array.shape[axis] for array in x.arrays):
        return None
    body = body_of(g)
    parts = tuple(np.take(array, 0, axis) for array in x.arrays)
    names = [body.name(), body.name()]
    carried, part = Value(names[0], state.arrays, state.exact), Value(names[1], parts, x.exact)
    body.values += [carried, part]
    inputs = [declared(value, g.choices, of_input=True) for value in body.values]
    for _ in range(1 + g.choices.below(4)):
        grow(body, INSIDE)
    fitting = [value for value in body.values if value.dtype == "float32" and _like(value, carried)]
    after = body.add("Tanh", [g.choices.one_of(fitting[::-1])], rough=True)
    stacked = body.pick()
    if after is None or stacked is None:
        return None
    graph = _closed(body, [after, stacked], inputs, g)
    options: dict[str, Any] = {"num_scan_inputs": 1}
    if axis or g.choices.below(2):
        options["scan_input_axes"] = [axis - x.rank * g.choices.below(2)]
    if g.choices.below(2):
        options["scan_input_directions"] = [g.choices.below(2)]
        options["scan_output_directions"] = [g.choices.below(2)]
    if g.choices.below(2):
        options["scan_output_axes"] = [g.choices.below(stacked.rank + 1)]
    return g.add(
        "Scan", [state, x], ([True, True], [False, True])[g.choices.below(2)], rough=True, body=graph, **options
    )


def _like(one: Value, other: Value) -> bool:
    return all(mine.shape == theirs.shape for mine, theirs in zip(one.arrays, other.arrays, strict=True))


def call(g: Builder) -> Any:
    """A call of a function, with its attribute or without."""
    if not g.functions:
        return None
    function: Function = g.choices.one_of(g.functions)
    given = {"alpha": 0.25} if g.choices.below(2) else {}
    return g.add(
        function.proto.name or "",
        [g.pick(["float32"])],
        rough=True,
        domain=DOMAIN,
        overload=function.proto.overload or "",
        **given,
    )


INSIDE: tuple[Row, ...] = (
    exact_unary, rough_unary, alias, neutral, binary, with_constant, where, cast, clip, transpose, reshape, squeezes,
    concat, cut, gather, reduced, softmax, compared, logical, several, leaky, sizes, repeated, padded, product, branch,
    call,
)  # fmt: skip
ROWS: tuple[Row, ...] = (
    convolution, convolution, branch, branch, loop, scan, call, call, optional, split, filled, ranged, triangle,
    selected, products, pooled, resized, normalized, recurrent, sequence, sequence, alias, neutral,
)  # fmt: skip
