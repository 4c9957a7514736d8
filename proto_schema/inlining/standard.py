"""Operators that the standard defines by others, as functions in the textual syntax.

The bodies follow the definitions in docs/Operators.md of ONNX; where it gives several forms, the one that neither
overflows nor loses digits stands here. A constant takes the type of the input by CastLike, which came with opset 15:
below, and for operators without a row, calls stay as they are. What depends on the call is in `by_call`. The rows are
(lowest opset, text), newest first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from proto_schema.inlining import by_call
from proto_schema.onnx import FunctionProto, NodeProto, OperatorSetIdProto
from proto_schema.operators import schema
from proto_schema.parser import parse_function
from proto_schema.tensors.attributes import make_attribute

__all__ = ["ROWS", "body_of"]

_ZERO = "zero_f = Constant <value_float = 0.0> () zero = CastLike (zero_f, X) "
_ONE = "one_f = Constant <value_float = 1.0> () one = CastLike (one_f, X) "
_ALPHA = "alpha_f = Constant <value_float: float = @alpha> () alpha = CastLike (alpha_f, X) "
_REDUCED = "<keepdims: int = @keepdims, noop_with_empty_axes: int = @noop_with_empty_axes>"
_WINDOW = (
    "one = Constant <value_float = 1.0> () zero = Constant <value_float = 0.0> () turn = Constant <value_float = "
    "6.283185307179586> () length = Cast <to = 1> (size) flag = Constant <value_int: int = @periodic> () "
    "periodic = Cast <to = 1> (flag) shorter = Sub (one, periodic) period = Sub (length, shorter) "
    "steps = Range (zero, length, one) turns = Mul (steps, turn) angle = Div (turns, period) wave = Cos (angle) "
)
_WINDOW_END = "output = Cast <to: int = @output_datatype> (window) "


def _cosine_window(first: float, second: float) -> str:
    return (
        f"{_WINDOW} first = Constant <value_float = {first}> () second = Constant <value_float = {second}> () "
        f"swing = Mul (second, wave) window = Sub (first, swing) {_WINDOW_END}"
    )


def _normalized(mean: str) -> str:
    """(X - mean) / (standard deviation + 1e-9), `mean` being a call that takes the mean of {}."""
    return (
        f"EX = {mean.format('X')} centered = Sub (X, EX) square = Mul (centered, centered) "
        f"variance = {mean.format('square')} deviation = Sqrt (variance) tiny_f = Constant <value_float = 1e-9> () "
        "tiny = CastLike (tiny_f, X) divisor = Add (deviation, tiny) Y = Div (centered, divisor) "
    )


_SOFTMAX = (
    "axis = Constant <value_int: int = @axis> () shape = Constant <value_ints = [1]> () axes = Reshape (axis, shape) "
    "most = ReduceMax <keepdims = 1> (input, axes) low = Sub (input, most) power = Exp (low) "
    "sum = ReduceSum <keepdims = 1> (power, axes) "
)
_LOG_SUM_EXP = (
    "wide = Cast <to = 11> (data) most = ReduceMax <keepdims = 1, noop_with_empty_axes: int = @noop_with_empty_axes> "
    "(wide, axes) endless = IsInf (most) zero = Constant <value = double {0}> () shift = Where (endless, zero, most) "
    "low = Sub (wide, shift) power = Exp (low) sum = ReduceSum <keepdims = 1, noop_with_empty_axes: int = "
    f"@noop_with_empty_axes> (power, axes) log = Log (sum) result = Add (log, shift) again = ReduceMax {_REDUCED} "
    "(result, axes) reduced = CastLike (again, data) "
)

ROWS: dict[str, tuple[tuple[int, str], ...]] = {
    "BlackmanWindow": (
        (
            17,
            f"{_WINDOW} double = Add (angle, angle) wave2 = Cos (double) a = Constant <value_float = 0.42> () "
            "b = Constant <value_float = 0.5> () c = Constant <value_float = 0.08> () bw = Mul (b, wave) "
            f"cw = Mul (c, wave2) left = Sub (a, bw) window = Add (left, cw) {_WINDOW_END}",
        ),
    ),
    "Celu": (
        (
            15,
            f"{_ZERO} {_ONE} {_ALPHA} ratio = Div (X, alpha) power = Exp (ratio) less = Sub (power, one) "
            "scaled = Mul (alpha, less) low = Min (scaled, zero) high = Max (X, zero) Y = Add (high, low)",
        ),
    ),
    "DynamicQuantizeLinear": (
        (
            18,
            "zero = Constant <value_float = 0.0> () steps = Constant <value_float = 255.0> () top = ReduceMax "
            "<keepdims = 0> (x) high = Max (top, zero) bottom = ReduceMin <keepdims = 0> (x) low = Min (bottom, zero) "
            "range = Sub (high, low) y_scale = Div (range, steps) below = Sub (zero, low) place = Div (below, y_scale) "
            "kept = Clip (place, zero, steps) whole = Round (kept) y_zero_point = Cast <to = 2> (whole) "
            "y = QuantizeLinear (x, y_scale, y_zero_point)",
        ),
    ),
    "Elu": (
        (
            15,
            f"{_ZERO} {_ONE} {_ALPHA} negative = Less (X, zero) power = Exp (X) less = Sub (power, one) "
            "low = Mul (alpha, less) Y = Where (negative, low, X)",
        ),
    ),
    "GreaterOrEqual": ((12, "greater = Greater (A, B) equal = Equal (A, B) C = Or (greater, equal)"),),
    "HammingWindow": ((17, _cosine_window(25 / 46, 21 / 46)),),
    "HannWindow": ((17, _cosine_window(0.5, 0.5)),),
    "HardSigmoid": (
        (
            15,
            f"{_ZERO} {_ONE} {_ALPHA} beta_f = Constant <value_float: float = @beta> () beta = CastLike (beta_f, X) "
            "scaled = Mul (alpha, X) moved = Add (scaled, beta) low = Min (moved, one) Y = Max (low, zero)",
        ),
    ),
    "HardSwish": ((15, "gate = HardSigmoid <alpha = 0.16666667, beta = 0.5> (X) Y = Mul (X, gate)"),),
    "LeakyRelu": (
        (16, f"{_ZERO} {_ALPHA} negative = Less (X, zero) low = Mul (alpha, X) Y = Where (negative, low, X)"),
    ),
    "LessOrEqual": ((12, "less = Less (A, B) equal = Equal (A, B) C = Or (less, equal)"),),
    "LogSoftmax": ((18, f"{_SOFTMAX} log = Log (sum) output = Sub (low, log)"),),
    "MeanVarianceNormalization": (
        (18, "axes = Constant <value_ints: ints = @axes> () " + _normalized("ReduceMean ({}, axes)")),
        (15, _normalized("ReduceMean <axes: ints = @axes> ({})")),
    ),
    "Mish": ((18, "soft = Softplus (X) gate = Tanh (soft) Y = Mul (X, gate)"),),
    "PRelu": ((16, f"{_ZERO} negative = Less (X, zero) low = Mul (slope, X) Y = Where (negative, low, X)"),),
    "ReduceL1": ((18, f"size = Abs (data) reduced = ReduceSum {_REDUCED} (size, axes)"),),
    "ReduceL2": (
        (
            18,
            f"square = Mul (data, data) sum = ReduceSum {_REDUCED} (square, axes) wide = Cast <to = 11> (sum) "
            "root = Sqrt (wide) reduced = CastLike (root, data)",
        ),
    ),
    "ReduceLogSum": (
        (
            18,
            f"sum = ReduceSum {_REDUCED} (data, axes) wide = Cast <to = 11> (sum) log = Log (wide) "
            "reduced = CastLike (log, data)",
        ),
    ),
    "ReduceLogSumExp": ((18, _LOG_SUM_EXP),),
    "ReduceSumSquare": ((18, f"square = Mul (data, data) reduced = ReduceSum {_REDUCED} (square, axes)"),),
    "Relu": ((15, f"{_ZERO} Y = Max (X, zero)"),),
    "Selu": (
        (
            15,
            f"{_ZERO} {_ONE} {_ALPHA} gamma_f = Constant <value_float: float = @gamma> () "
            "gamma = CastLike (gamma_f, X) negative = Less (X, zero) power = Exp (X) less = Sub (power, one) "
            "low = Mul (alpha, less) "
            "chosen = Where (negative, low, X) Y = Mul (gamma, chosen)",
        ),
    ),
    "Shrink": (
        (
            15,
            "zero_f = Constant <value_float = 0.0> () zero = CastLike (zero_f, input) bias_f = Constant <value_float: "
            "float = @bias> () bias = CastLike (bias_f, input) lambd_f = Constant <value_float: float = @lambd> () "
            "lambd = CastLike (lambd_f, input) under = Neg (lambd_f) lower = CastLike (under, input) "
            "below = Less (input, lower) raised = Add (input, bias) above = Greater (input, lambd) "
            "lowered = Sub (input, bias) upper = Where (above, lowered, zero) output = Where (below, raised, upper)",
        ),
    ),
    "Softmax": ((18, f"{_SOFTMAX} output = Div (power, sum)"),),
    "Softplus": (
        (
            15,
            f"{_ZERO} {_ONE} high = Max (X, zero) size = Abs (X) below = Neg (size) power = Exp (below) "
            "more = Add (one, power) log = Log (more) Y = Add (high, log)",
        ),
    ),
    "Softsign": (
        (
            15,
            "one_f = Constant <value_float = 1.0> () one = CastLike (one_f, input) size = Abs (input) "
            "more = Add (one, size) output = Div (input, more)",
        ),
    ),
    "SwiGLU": ((28, "gate = Swish <alpha: float = @alpha> (A) Y = Mul (gate, B)"),),
    "Swish": ((24, f"{_ALPHA} scaled = Mul (alpha, X) gate = Sigmoid (scaled) Y = Mul (X, gate)"),),
    "ThresholdedRelu": ((15, f"{_ZERO} {_ALPHA} above = Greater (X, alpha) Y = Where (above, X, zero)"),),
}


def body_of(node: NodeProto, domain: str, opset: int) -> FunctionProto | None:
    """The function that the node stands for at this opset of its domain; None where it has no row."""
    name = node.op_type or ""
    if domain or (name not in ROWS and name not in by_call.ROWS):
        return None
    form = by_call.ROWS[name](node) if name in by_call.ROWS else None
    rows = ROWS.get(name, () if form is None else (form,))
    text = next((text for lowest, text in rows if lowest <= opset), None)
    return None if text is None else _body(name, opset, text)


@lru_cache(maxsize=64)
def _body(op_type: str, opset: int, text: str) -> FunctionProto | None:
    found = schema(op_type, opset)
    if found is None:
        return None
    inputs, outputs = (", ".join(formal.name for formal in side) for side in (found.inputs, found.outputs))
    made = parse_function(f"{op_type} ({inputs}) => ({outputs}) {{ {text} }}")
    made.domain = ""
    made.opset_import = [OperatorSetIdProto(domain="", version=opset)]
    for name, attribute in found.attributes.items():
        if attribute.default is not None:
            value: Any = list(attribute.default) if isinstance(attribute.default, tuple) else attribute.default
            made.attribute_proto.append(make_attribute(name, value, attr_type=attribute.type))
        else:
            made.attribute.append(name)
    return made
