"""Arithmetic, activations and norms on quantized tensors: dequantize, the float operator, quantize.

The scale and zero point of the result are given by the call, or are those of the input, or are fixed (sigmoid and
tanh). Averages are computed on the integers themselves, whose halves are exact, because torch rounds these to even.
Source: the kernels in torch's `aten/src/ATen/native/quantized/cpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from purexport.aten.graph import TensorType
from purexport.dtypes import FLOAT, INT8
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import QUANTIZED, Rule, add, lower_quantized, rule_of, taken
from purexport.lowering.elementwise import (
    activations,  # noqa: F401
    arithmetic,  # noqa: F401
)
from purexport.lowering.nn import (
    adaptive_pool,  # noqa: F401
    norm,  # noqa: F401
    pool,  # noqa: F401
    resize,  # noqa: F401
)
from purexport.lowering.quantized.layers import like
from purexport.lowering.reduce import reductions  # noqa: F401
from purexport.lowering.support.qdq import (
    Quantized,
    as_quantized,
    dequantize,
    dequantized,
    integer_limits,
    quantize,
    requantized,
)

# Two operands -------------------------------------------------------------------------------------------------------


def _binary(op_type: str, relu: bool) -> Callable[..., Quantized]:
    def rule(op: Emitter, qa: Quantized, qb: Quantized, scale: float, zero_point: int) -> Quantized:
        value = op.emit(op_type, dequantized(op, qa), dequantized(op, qb))
        return like(op, op.Relu(value) if relu else value, qa, scale, zero_point)

    return rule


lower_quantized("quantized::add")(_binary("Add", relu=False))
lower_quantized("quantized::add_relu")(_binary("Add", relu=True))
lower_quantized("quantized::mul")(_binary("Mul", relu=False))
lower_quantized("quantized::mul_relu")(_binary("Mul", relu=True))
lower_quantized("quantized::matmul")(_binary("MatMul", relu=False))


@lower_quantized("quantized::add.Scalar", "quantized::add_scalar")
def add_number(op: Emitter, qa: Quantized, b: float) -> Quantized:
    """quantized::add.Scalar(Tensor qa, Scalar b) -> Tensor qc

    The zero point moves by the number divided by the scale. Where it would leave the range of the integers, the scale
    grows instead.
    """
    scale, zero, (low, high) = _known(qa)
    moved = zero - int(torch.round(torch.tensor(float(b)) / torch.tensor(scale)).item())
    if low <= moved <= high:
        return Quantized(qa.integers, qa.scale, op.const(moved, qa.zero_point.dtype or INT8))
    end = low if moved < low else high
    factor = float(torch.tensor(float(max(high - moved, moved - low))) / torch.tensor(float(high - low))) * scale
    numbers = dequantize(op, qa.integers, qa.scale, None)
    shifted = op.Sub(numbers, float(moved * scale))
    return as_quantized(op, shifted, factor, end, qa.integers.dtype or INT8)


@lower_quantized("quantized::mul.Scalar", "quantized::mul_scalar")
def mul_number(op: Emitter, qa: Quantized, b: float) -> Quantized:
    """quantized::mul.Scalar(Tensor qa, Scalar b) -> Tensor qc

    The scale is multiplied by the number. A negative number also mirrors the integers in their range.
    """
    scale, zero, (low, high) = _known(qa)
    dtype = qa.integers.dtype or INT8
    factor = op.const(abs(b) * scale if b else 1.0, FLOAT)
    if b > 0:
        return Quantized(qa.integers, factor, qa.zero_point)
    if b == 0:
        nothing = op.cast(op.Mul(op.cast(qa.integers, FLOAT), 0.0), dtype)
        return Quantized(nothing, factor, op.const(0, dtype))
    wide = op.Sub(float(low + high), op.cast(qa.integers, FLOAT))
    return Quantized(op.cast(wide, dtype), factor, op.const(low + high - zero, dtype))


def _known(tensor: Quantized) -> tuple[float, int, tuple[int, int]]:
    if tensor.scale.const is None or tensor.zero_point.const is None or tensor.axis is not None:
        raise UnsupportedForm(
            "with a number needs a tensor whose scale and zero point are known", code="quantized-tensor"
        )
    limits = integer_limits(tensor.integers.dtype or INT8)
    return float(tensor.scale.const.item()), int(tensor.zero_point.const.item()), limits


@lower_quantized("quantized::cat")
def quantized_cat(
    op: Emitter, qx: Sequence[Quantized], dim: int, scale: float | None = None, zero_point: int | None = None
) -> Quantized:
    """quantized::cat(Tensor[] qx, int dim, float? scale, int? zero_point) -> Tensor"""
    return _concat(op, qx, dim % qx[0].integers.rank, scale, zero_point, relu=False)


@lower_quantized("quantized::cat_relu")
def cat_relu(
    op: Emitter, qx: Sequence[Quantized], dim: int, scale: float | None = None, zero_point: int | None = None
) -> Quantized:
    """quantized::cat_relu(Tensor[] qx, int dim, float? scale, int? zero_point) -> Tensor"""
    return _concat(op, qx, dim % qx[0].integers.rank, scale, zero_point, relu=True)


@lower_quantized("aten::cat")
def cat_plain(op: Emitter, tensors: Sequence[Quantized], dim: int = 0) -> Quantized:
    """aten::cat(Tensor[] tensors, int dim=0) -> Tensor"""
    return _concat(op, tensors, dim % tensors[0].integers.rank, None, None, relu=False)


@lower_quantized("aten::stack")
def stack(op: Emitter, tensors: Sequence[Quantized], dim: int = 0) -> Quantized:
    """aten::stack(Tensor[] tensors, int dim=0) -> Tensor, with the scale and zero point of the first tensor"""
    axis = dim % (tensors[0].integers.rank + 1)
    unsqueezed = [tensor.with_integers(op.Unsqueeze(tensor.integers, [axis])) for tensor in tensors]
    return _concat(op, unsqueezed, axis, None, None, relu=False)


def _concat(
    op: Emitter, tensors: Sequence[Quantized], axis: int, scale: float | None, zero_point: int | None, relu: bool
) -> Quantized:
    """The concat of the tensors: those with the scale and zero point of the result as integers, others requantized."""
    first = tensors[0]
    empty = first.with_integers(op.const(torch.zeros(1)))
    result = empty if scale is None else as_quantized(op, empty.integers, scale, zero_point, first.integers.dtype or 0)
    integers = []
    for tensor in tensors:
        if _same_steps(tensor, result) and not relu:
            integers.append(tensor.integers)
            continue
        value = dequantized(op, tensor)
        integers.append(requantized(op, op.Relu(value) if relu else value, result).integers)
    return result.with_integers(op.Concat(*integers, axis=axis))


def _same_steps(one: Quantized, other: Quantized) -> bool:
    pairs = ((one.scale.const, other.scale.const), (one.zero_point.const, other.zero_point.const))
    return one.axis == other.axis and all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs)


def _plainly(op: Emitter, rule: Rule, arguments: dict[str, Any]) -> Value:
    """The result of the rule for plain tensors on the dequantized tensors."""
    plain = {name: dequantized(op, item) if isinstance(item, Quantized) else item for name, item in arguments.items()}
    first = plain[rule.parameters[0]]
    for name in rule.promote:
        if plain.get(name) is not None:
            plain[name] = op.like(plain[name], first)
    floats = [TensorType(torch.float32, type_.shape) if type_ is not None else None for type_ in op.results]
    result: Value = rule.function(op.giving(floats), **plain)
    return result


# One operand, parameters given --------------------------------------------------------------------------------------


def _given(target: str, plain: str, renamed: dict[str, str], fixed: dict[str, Any]) -> None:
    """Register `target` with the rule of `plain`, whose arguments have other names, and fixed arguments. The call gives
    the scale and zero point of the result.
    """
    ordinary = rule_of(plain)
    first = renamed.get(ordinary.parameters[0], ordinary.parameters[0])

    def rule(op: Emitter, **arguments: Any) -> Quantized:
        scale, zero_point = arguments.pop("output_scale"), arguments.pop("output_zero_point")
        plain_arguments = {name: arguments[renamed.get(name, name)] for name in names}
        value = _plainly(op, ordinary, plain_arguments | fixed)
        return like(op, value, arguments[first], scale, zero_point)

    names = [name for name in ordinary.parameters if name not in fixed]
    parameters = (*[renamed.get(name, name) for name in names], "output_scale", "output_zero_point")
    add(Rule(rule, parameters), target + QUANTIZED)


_given("quantized::hardswish", "aten::hardswish", {"self": "input"}, {})
_given("quantized::sigmoid", "aten::sigmoid", {"self": "qx"}, {})
_given("quantized::prelu", "aten::prelu", {"self": "qx"}, {})
_given("quantized::celu", "aten::celu", {}, {})
_given("quantized::elu", "aten::elu", {}, {})
_given("quantized::softmax", "aten::softmax.int", {"self": "qx"}, {"dtype": None, "half_to_float": False})
_given("quantized::layer_norm", "aten::layer_norm", {}, {})
_given("quantized::group_norm", "aten::group_norm", {}, {})


@lower_quantized("quantized::instance_norm")
def quantized_instance_norm(
    op: Emitter,
    input: Quantized,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Quantized:
    """quantized::instance_norm(Tensor input, Tensor? weight, Tensor? bias, float eps, float output_scale,
    int output_zero_point) -> Tensor
    """
    ordinary = rule_of("aten::instance_norm").function
    value = ordinary(op, dequantized(op, input), weight, bias, None, None, True, 0.0, eps)
    return like(op, value, input, output_scale, output_zero_point)


@lower_quantized("quantized::leaky_relu")
def quantized_leaky_relu(
    op: Emitter,
    qx: Quantized,
    negative_slope: float,
    inplace: bool,
    output_scale: float,
    output_zero_point: int,
) -> Quantized:
    """quantized::leaky_relu(Tensor qx, Scalar negative_slope, bool inplace, float output_scale, int output_zero_point)
    -> Tensor
    """
    value = op.LeakyRelu(dequantized(op, qx), alpha=negative_slope)
    return like(op, value, qx, output_scale, output_zero_point)


def _batch_norm(relu: bool) -> Callable[..., Quantized]:
    def rule(
        op: Emitter,
        qx: Quantized,
        weight: Value | None,
        bias: Value | None,
        mean: Value,
        var: Value,
        eps: float,
        output_scale: float,
        output_zero_point: int,
    ) -> Quantized:
        ordinary = rule_of("aten::batch_norm").function
        value = ordinary(op, dequantized(op, qx), weight, bias, mean, var, False, 0.0, eps)
        return like(op, op.Relu(value) if relu else value, qx, output_scale, output_zero_point)

    return rule


lower_quantized("quantized::batch_norm", *[f"quantized::batch_norm{n}d" for n in (1, 2, 3)])(_batch_norm(relu=False))
lower_quantized("quantized::batch_norm_relu", *[f"quantized::batch_norm{n}d_relu" for n in (1, 2, 3)])(
    _batch_norm(relu=True)
)


# Operators that keep the scale and zero point -----------------------------------------------------------------------


def _kept(target: str, plain: str = "", renamed: str = "", in_steps: bool = False) -> None:
    """Register `target` with the rule of `plain` (`target` itself by default). The result keeps the scale and zero
    point.

    `in_steps` computes on integers less the zero point instead of numbers. That is right only for operators that
    commute with a factor.
    """
    ordinary = rule_of(plain or target)
    first = renamed or ordinary.parameters[0]

    def rule(op: Emitter, **arguments: Any) -> Quantized:
        tensor = arguments.pop(first)
        if tensor.axis is not None:
            raise UnsupportedForm(
                "of a tensor quantized per channel has no ONNX form; dequantize it before", code="quantized-tensor"
            )
        work = replace(tensor, scale=op.const(1.0, FLOAT)) if in_steps else tensor
        value = _plainly(op, ordinary, {ordinary.parameters[0]: work, **arguments})
        return _in_steps(op, value, tensor) if in_steps else requantized(op, value, tensor)

    add(Rule(rule, taken(target, (first, *ordinary.parameters[1:]))), target + QUANTIZED)


def _in_steps(op: Emitter, value: Value, tensor: Quantized) -> Quantized:
    """Numbers in steps of the scale as integers. torch adds an odd zero point before it rounds ties to even."""
    one, zero = op.const(1.0, FLOAT), tensor.zero_point
    if zero.const is None or int(zero.const.item()) % 2:
        value, zero = op.Add(value, op.cast(zero, FLOAT)), op.const(0, zero.dtype or INT8)
    return tensor.with_integers(quantize(op, value, one, zero))


for _target in [
    "relu",
    "hardtanh",
    "clamp",
    "leaky_relu",
    "gelu",
    "threshold",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pad",
]:
    _kept(f"aten::{_target}")
for _target in [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "mean.dim",
    "upsample_bilinear2d.vec",
]:
    _kept(f"aten::{_target}", in_steps=True)
_kept("quantized::clamp", "aten::clamp", renamed="qx")
_kept("quantized::threshold", "aten::threshold", renamed="qx")


@lower_quantized("quantized::relu6")
def quantized_relu6(op: Emitter, qx: Quantized, inplace: bool = False) -> Quantized:
    """quantized::relu6(Tensor qx, bool inplace=False) -> Tensor"""
    return requantized(op, op.Clip(dequantized(op, qx), min=0.0, max=6.0), qx)


@lower_quantized("quantized::dropout")
def quantized_dropout(
    op: Emitter, self: Quantized, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> Quantized:
    """quantized::dropout(Tensor self, float output_scale, int output_zero_point, Scalar p=0.5, bool training=False)
    -> Tensor
    """
    if training:
        raise UnsupportedForm("in training mode has no ONNX form; export the model in eval mode", code="no-onnx-form")
    return self


@lower_quantized("aten::dropout")
def dropout_plain(op: Emitter, input: Quantized, p: float, train: bool) -> Quantized:
    """aten::dropout(Tensor input, float p, bool train) -> Tensor"""
    return quantized_dropout(op, input, 1.0, 0, p, train)


# Operators with a fixed scale and zero point ------------------------------------------------------------------------


def _fixed(target: str, scale: float, zero: int) -> None:
    """Register `target`, whose result has a known range: `zero` is the zero point of unsigned integers, that of signed
    ones is 128 less.
    """
    ordinary = rule_of(target)

    def rule(op: Emitter, self: Quantized) -> Quantized:
        offset = zero - 128 if self.integers.dtype == INT8 else zero
        return like(op, _plainly(op, ordinary, {"self": self}), self, scale, offset)

    add(Rule(rule, ("self",)), target + QUANTIZED)


_fixed("aten::sigmoid", 1 / 256, 0)
_fixed("aten::hardsigmoid", 1 / 256, 0)
_fixed("aten::tanh", 2 / 256, 128)
