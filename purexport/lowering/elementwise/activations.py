"""Activations: the ONNX operator where this opset has it, else its formula.

ONNX attributes of activations are float32 numbers, so float64 tensors are computed by formula. Where torch's default
differs from that of ONNX, torch's is written.
"""

from __future__ import annotations

from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.arithmetic import expm1
from purexport.lowering.elementwise.compare import clamp
from purexport.lowering.support.common import axis_of
from purexport.lowering.support.kernels import largest

# Klambauer et al. 2017, arXiv:1706.02515
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@lower("aten::relu")
def relu(op: Emitter, self: Value) -> Value:
    """aten::relu(Tensor self) -> Tensor

    ONNX Relu takes integers since opset 14; here integers are the maximum with zero.
    """
    return op.Relu(self) if dtypes.is_floating(self.dtype) else largest(op, self, op.like(0, self))


@lower("aten::hardtanh")
def hardtanh(op: Emitter, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    """aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"""
    return clamp(op, self, op.like(min_val, self), op.like(max_val, self))


@lower("aten::relu6")
def relu6(op: Emitter, self: Value) -> Value:
    """aten::relu6(Tensor self) -> Tensor"""
    return hardtanh(op, self, 0, 6)


@lower("aten::gelu")
def gelu(op: Emitter, self: Value, approximate: str = "none") -> Value:
    """aten::gelu(Tensor self, *, str approximate="none") -> Tensor

    ONNX Gelu has the same two forms of `approximate`.
    """
    return op.Gelu(self, approximate=approximate)


@lower("aten::silu")
def silu(op: Emitter, self: Value) -> Value:
    """aten::silu(Tensor self) -> Tensor"""
    return op.Mul(self, op.Sigmoid(self))


@lower("aten::mish")
def mish(op: Emitter, self: Value) -> Value:
    """aten::mish(Tensor self) -> Tensor"""
    return op.Mul(self, op.Tanh(op.Softplus(self)))


@lower("aten::hardsigmoid")
def hardsigmoid(op: Emitter, self: Value) -> Value:
    """aten::hardsigmoid(Tensor self) -> Tensor

    relu6(x + 3) / 6. The default slope of ONNX HardSigmoid is 0.2, not 1/6.
    """
    if self.dtype == dtypes.DOUBLE:  # the attribute 1/6 would be rounded to float32
        return op.Div(op.Clip(op.Add(self, 3.0), min=0.0, max=6.0), 6.0)
    return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)


@lower("aten::hardswish")
def hardswish(op: Emitter, self: Value) -> Value:
    """aten::hardswish(Tensor self) -> Tensor"""
    if self.dtype == dtypes.DOUBLE:
        return op.Mul(self, hardsigmoid(op, self))
    return op.HardSwish(self)


@lower("aten::leaky_relu")
def leaky_relu(op: Emitter, self: Value, negative_slope: Any = 0.01) -> Value:
    """aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"""
    if self.dtype == dtypes.DOUBLE or isinstance(negative_slope, Value):  # the attribute is a float32 and known
        return op.Where(op.Less(self, 0.0), op.Mul(self, op.like(negative_slope, self)), self)
    return op.LeakyRelu(self, alpha=negative_slope)


@lower("aten::prelu", "aten::_prelu_kernel")
def prelu(op: Emitter, self: Value, weight: Value) -> Value:
    """aten::prelu(Tensor self, Tensor weight) -> Tensor

    `weight` holds one slope, or one for each channel (axis 1). ONNX PRelu broadcasts from the last axis.
    """
    if weight.rank == 1 and self.rank > 2 and weight.shape not in ((1,), None):
        weight = op.Unsqueeze(weight, axes=list(range(1, self.rank - 1)))
    if self.rank == 0:
        weight = op.Reshape(weight, op.shape(self))
    return op.PRelu(self, weight)


@lower("aten::elu")
def elu(op: Emitter, self: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    """aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor

    `scale * x` above zero, `scale * alpha * (exp(input_scale * x) - 1)` below. ONNX Elu has `alpha` only.
    """
    if isinstance(input_scale, Value) or input_scale < 0:
        # a negative factor makes the argument positive, where ONNX Elu would return the argument itself
        bend = op.Mul(expm1(op, op.Mul(self, op.like(input_scale, self))), op.like(alpha, self))
        bent = op.Where(op.Greater(self, op.like(0, self)), self, bend)
    elif self.dtype == dtypes.DOUBLE or isinstance(alpha, Value):  # the attribute would be rounded to float32
        negative = op.Mul(op.Elu(op.Mul(self, op.like(input_scale, self))), op.like(alpha, self))
        bent = op.Where(op.Greater(self, op.like(0, self)), self, negative)
    elif input_scale == 1:
        bent = op.Elu(self, alpha=alpha)
    else:
        negative = op.Elu(op.Mul(self, op.like(input_scale, self)), alpha=alpha)
        bent = op.Where(op.Greater(self, op.like(0, self)), self, negative)
    return bent if scale == 1 else op.Mul(bent, op.like(scale, self))


@lower("aten::selu")
def selu(op: Emitter, self: Value) -> Value:
    """aten::selu(Tensor self) -> Tensor"""
    if self.dtype == dtypes.DOUBLE:  # the attributes are float32
        return elu(op, self, alpha=_SELU_ALPHA, scale=_SELU_SCALE)
    return op.Selu(self)


@lower("aten::celu")
def celu(op: Emitter, self: Value, alpha: Any = 1) -> Value:
    """aten::celu(Tensor self, Scalar alpha=1.) -> Tensor

    elu with `input_scale = 1 / alpha`, as torch computes it.
    """
    inverse = op.Reciprocal(op.cast(alpha, dtypes.DOUBLE)) if isinstance(alpha, Value) else 1 / alpha
    return elu(op, self, alpha=alpha, input_scale=inverse)


@lower("aten::softplus")
def softplus(op: Emitter, self: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor

    log(1 + exp(beta * x)) / beta; where beta * x is above `threshold`, x itself.
    """
    scaled = self if beta == 1 else op.Mul(self, op.like(beta, self))
    soft = op.Softplus(scaled) if beta == 1 else op.Div(op.Softplus(scaled), op.like(beta, self))
    return op.Where(op.Greater(scaled, op.like(threshold, self)), self, soft)


@lower("aten::log_sigmoid")
def log_sigmoid(op: Emitter, self: Value) -> Value:
    """aten::log_sigmoid(Tensor self) -> Tensor"""
    return op.Neg(op.Softplus(op.Neg(self)))


@lower("aten::log_sigmoid_forward")
def log_sigmoid_forward(op: Emitter, self: Value) -> tuple[Value, Value]:
    """aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)

    The second result is for the backward pass only.
    """
    return log_sigmoid(op, self), op.Exp(op.Neg(op.Abs(self)))


@lower("aten::softshrink")
def softshrink(op: Emitter, self: Value, lambd: Any = 0.5) -> Value:
    """aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor

    x moves towards zero by `lambd`, and between -lambd and lambd the result is zero. NaN stays NaN.
    """
    bound = op.like(lambd, self)
    return op.Sub(self, clamp(op, self, op.Neg(bound), bound))


@lower("aten::hardshrink")
def hardshrink(op: Emitter, self: Value, lambd: Any = 0.5) -> Value:
    """aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor

    Zero between -lambd and lambd, both included. NaN stays NaN.
    """
    outside = op.Greater(op.Abs(self), op.like(lambd, self))
    return op.Where(op.Or(outside, op.IsNaN(self)), self, op.like(0, self))


@lower("aten::glu")
def glu(op: Emitter, self: Value, dim: int = -1) -> Value:
    """aten::glu(Tensor self, int dim=-1) -> Tensor"""
    axis = axis_of(dim, self.rank)
    if op.known(op.dim(self, axis)) == 0:  # ONNX Runtime (1.31) does not split an empty axis
        return self
    one, gate = op.multi("Split", self, outputs=2, axis=axis, num_outputs=2)
    return op.Mul(one, op.Sigmoid(gate))


@lower("aten::rrelu")
def rrelu(
    op: Emitter,
    self: Value,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Value:
    """aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False,
    Generator? generator=None) -> Tensor

    In training each negative element has a random slope of its own between `lower` and `upper`, otherwise all have the
    mean of the two.
    """
    if not training:
        return leaky_relu(op, self, (lower + upper) / 2)
    slope = op.RandomUniformLike(self, low=lower, high=upper)
    return op.Where(op.Less(self, op.like(0, self)), op.Mul(self, slope), self)


@lower("aten::logit", "aten::special_logit", promote="self", to_float=True)
def logit(op: Emitter, self: Value, eps: float | None = None) -> Value:
    """aten::logit(Tensor self, float? eps=None) -> Tensor

    log(x / (1 - x)); `eps` clamps x to [eps, 1 - eps] first. Without it, numbers outside [0, 1] give NaN.
    """
    if eps is not None:
        self = clamp(op, self, op.like(eps, self), op.like(1 - eps, self))
    return op.Log(op.Div(self, op.Sub(op.like(1, self), self)))
