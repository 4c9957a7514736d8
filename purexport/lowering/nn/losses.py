"""Losses in all reductions: 0 none, 1 mean, 2 sum.

The score of a target's class is picked by comparison with the class numbers, not gathered. So every opset can express
it, and a target equal to `ignore_index`, which is no class, picks nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.arithmetic import log1p
from purexport.lowering.elementwise.compare import eq
from purexport.lowering.nn.attention import log_softmax
from purexport.lowering.support.common import swap_last
from purexport.lowering.tensor.create import iota

_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(op: Emitter, loss: Value, reduction: int) -> Value:
    if reduction == _NONE:
        return loss
    if reduction == _MEAN:
        return op.ReduceMean(loss, keepdims=0)
    # torch sums whole numbers as int64
    return op.ReduceSum(loss if dtypes.is_floating(loss.dtype) else op.cast(loss, dtypes.INT64), keepdims=0)


def _at_least(op: Emitter, value: Value, bound: float) -> Value:
    return op.Max(value, op.like(bound, value))


# Distances ----------------------------------------------------------------------------------------------------------


@lower("aten::mse_loss", promote="self target")
def mse_loss(op: Emitter, self: Value, target: Value, reduction: int = 1) -> Value:
    """aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"""
    difference = op.Sub(self, target)
    return _reduced(op, op.Mul(difference, difference), reduction)


@lower("aten::l1_loss", promote="self target")
def l1_loss(op: Emitter, self: Value, target: Value, reduction: int = 1) -> Value:
    """aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"""
    return _reduced(op, op.Abs(op.Sub(self, target)), reduction)


@lower("aten::huber_loss", promote="self target")
def huber_loss(op: Emitter, self: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    """aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.) -> Tensor

    d * d / 2 for differences d up to `delta`, then delta * (d - delta / 2).
    """
    distance = op.Abs(op.Sub(self, target))
    near = op.Mul(op.like(0.5, self), op.Mul(distance, distance))
    far = op.Mul(op.like(delta, self), op.Sub(distance, op.like(0.5 * delta, self)))
    loss = _reduced(op, op.Where(op.Less(distance, op.like(delta, self)), near, far), reduction)
    return op.cast(loss, op.result_dtype)  # torch gives the dtype of `self` for a mean of wider numbers


@lower("aten::smooth_l1_loss", promote="self target")
def smooth_l1_loss(op: Emitter, self: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    """aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> Tensor

    d * d / (2 * beta) for differences d up to `beta`, then d - beta / 2.
    """
    if beta == 0:
        return l1_loss(op, self, target, reduction)
    distance = op.Abs(op.Sub(self, target))
    near = op.Mul(op.like(0.5 / beta, self), op.Mul(distance, distance))
    far = op.Sub(distance, op.like(0.5 * beta, self))
    return _reduced(op, op.Where(op.Less(distance, op.like(beta, self)), near, far), reduction)


@lower("aten::poisson_nll_loss", promote="input target")
def poisson_nll_loss(
    op: Emitter, input: Value, target: Value, log_input: bool, full: bool, eps: float, reduction: int
) -> Value:
    """aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction)
    -> Tensor

    With `full` Stirling's approximation of log(target!) is added for targets above one.
    """
    input, target = op.cast(input, op.result_dtype), op.cast(target, op.result_dtype)
    if log_input:
        loss = op.Sub(op.Exp(input), op.Mul(target, input))
    else:
        loss = op.Sub(input, op.Mul(target, op.Log(op.Add(input, op.like(eps, input)))))
    if full:
        # Stirling's approximation of log(target!) for targets above one
        one = op.like(1, target)
        safe = _at_least(op, target, 1.0)
        logarithm = op.Mul(op.like(0.5, target), op.Log(op.Mul(op.like(2 * math.pi, target), safe)))
        stirling = op.Add(op.Sub(op.Mul(safe, op.Log(safe)), safe), logarithm)
        loss = op.Add(loss, op.Where(op.Greater(target, one), stirling, op.like(0, target)))
    return _reduced(op, loss, reduction)


# Probabilities ------------------------------------------------------------------------------------------------------


@lower("aten::binary_cross_entropy")
def binary_cross_entropy(
    op: Emitter, self: Value, target: Value, weight: Value | None = None, reduction: int = 1
) -> Value:
    """aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor

    Logarithms are at least -100, as in torch's kernel, so that the loss stays finite.
    """
    one = op.like(1, self)
    positive = _at_least(op, op.Log(self), -100.0)
    negative = _at_least(op, log1p(op, op.Neg(self)), -100.0)
    loss = op.Sub(op.Mul(op.Sub(target, one), negative), op.Mul(target, positive))
    return _reduced(op, loss if weight is None else op.Mul(loss, weight), reduction)


@lower("aten::binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    op: Emitter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None,
    int reduction=1) -> Tensor
    """
    # -log(sigmoid(x)) without overflow on either side
    cost = op.cast(op.Softplus(op.Neg(self)), op.result_dtype)
    self, target = op.like(self, cost), op.like(target, cost)
    weight, pos_weight = (None if item is None else op.like(item, cost) for item in (weight, pos_weight))
    one = op.like(1, cost)
    if pos_weight is not None:
        cost = op.Mul(cost, op.Add(op.Mul(op.Sub(pos_weight, one), target), one))
    loss = op.Add(op.Mul(op.Sub(one, target), self), cost)
    return _reduced(op, loss if weight is None else op.Mul(loss, weight), reduction)


@lower("aten::kl_div", promote="self target")
def kl_div(op: Emitter, self: Value, target: Value, reduction: int = 1, log_target: bool = False) -> Value:
    """aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor

    `self` is a logarithm. Where the target is zero, the term is zero.
    """
    if log_target:
        return _reduced(op, op.Mul(op.Exp(target), op.Sub(target, self)), reduction)
    zero = op.like(0, target)
    entropy = op.Where(eq(op, target, zero), zero, op.Mul(target, op.Log(target)))
    return _reduced(op, op.Sub(entropy, op.Mul(target, self)), reduction)


# Classes ------------------------------------------------------------------------------------------------------------


def _picked(op: Emitter, scores: Value, target: Value, ignore_index: Any) -> Value:
    """True at the class of each target, in the shape of `scores`; false everywhere for an ignored target."""
    axis = 0 if scores.rank == 1 else 1
    classes = op.Reshape(iota(op, op.dim(scores, axis)), [-1, *[1] * (scores.rank - axis - 1)])
    wanted = op.Unsqueeze(op.cast(target, dtypes.INT64), axes=[axis])
    hit = op.Equal(wanted, classes)
    return op.And(hit, op.Not(op.Equal(wanted, op.like(ignore_index, wanted))))


def _class_weights(op: Emitter, scores: Value, weight: Value | None) -> Value:
    if weight is None:
        return op.like(1, scores)
    behind = scores.rank - (1 if scores.rank == 1 else 2)
    return op.Reshape(weight, [-1, *[1] * behind]) if behind else weight


def _nll(
    op: Emitter, scores: Value, target: Value, weight: Value | None, reduction: int, ignore_index: Any
) -> tuple[Value, Value]:
    """(loss, sum of the weights of the targets that are not ignored)."""
    axis = 0 if scores.rank == 1 else 1
    picked = _picked(op, scores, target, ignore_index)
    zero = op.like(0, scores)
    weights = op.Where(picked, _class_weights(op, scores, weight), zero)
    each = op.ReduceSum(op.Where(picked, op.Mul(scores, weights), zero), axes=[axis], keepdims=0)
    total = op.ReduceSum(weights, keepdims=0)
    loss = op.Neg(each)
    if reduction == _NONE:
        return loss, total
    loss = op.ReduceSum(loss, keepdims=0)
    return (op.Div(loss, total) if reduction == _MEAN else loss), total


@lower("aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd")
def nll_loss(
    op: Emitter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: Any = -100,
) -> Value:
    """aten::nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100)
    -> Tensor
    """
    return _nll(op, self, target, weight, reduction, ignore_index)[0]


@lower("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss_forward(
    op: Emitter, self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: Any
) -> tuple[Value, Value]:
    """aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)
    -> (Tensor output, Tensor total_weight)
    """
    return _nll(op, self, target, weight, reduction, ignore_index)


@lower("aten::cross_entropy_loss")
def cross_entropy_loss(
    op: Emitter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: Any = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1,
    SymInt ignore_index=-100, float label_smoothing=0.) -> Tensor

    The targets are classes, or probabilities of all classes if they are floats.
    """
    axis = 0 if self.rank == 1 else 1
    scores = log_softmax(op, self, axis)
    if dtypes.is_floating(target.dtype):
        return _soft_cross_entropy(op, scores, target, weight, reduction, label_smoothing)
    loss, total = _nll(op, scores, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return loss
    ignored = op.Equal(op.cast(target, dtypes.INT64), op.like(ignore_index, op.const(0)))
    weighted = op.Mul(scores, _class_weights(op, scores, weight))
    smooth = op.Neg(op.ReduceSum(weighted, axes=[axis], keepdims=0))
    smooth = op.Where(ignored, op.like(0, smooth), smooth)
    if reduction != _NONE:
        smooth = op.ReduceSum(smooth, keepdims=0)
    if reduction == _MEAN:
        smooth = op.Div(smooth, total)
    share = op.Div(op.like(label_smoothing, scores), _count_of_classes(op, scores, axis))
    return op.Add(op.Mul(loss, op.like(1 - label_smoothing, scores)), op.Mul(smooth, share))


def _count_of_classes(op: Emitter, scores: Value, axis: int) -> Value:
    return op.like(op.dim(scores, axis), scores)


def _soft_cross_entropy(
    op: Emitter, scores: Value, target: Value, weight: Value | None, reduction: int, smoothing: float
) -> Value:
    axis = 0 if scores.rank == 1 else 1
    if smoothing:
        share = op.Div(op.like(smoothing, scores), _count_of_classes(op, scores, axis))
        target = op.Add(op.Mul(target, op.like(1 - smoothing, scores)), share)
    weighted = op.Mul(op.Mul(scores, target), _class_weights(op, scores, weight))
    return _reduced(op, op.Neg(op.ReduceSum(weighted, axes=[axis], keepdims=0)), reduction)


@lower("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    op: Emitter,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    reduction: str,
    ignore_index: Any,
    label_smoothing: float,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Value, ...]:
    """torch_nn::_linear_cross_entropy_batch_chunked(Tensor input, Tensor linear_weight, Tensor target,
    Tensor? linear_bias, Tensor? weight, str reduction, SymInt ignore_index, float label_smoothing,
    SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype, bool allow_retain_graph, bool compute_input_grad,
    bool compute_linear_weight_grad, bool compute_linear_bias_grad) -> (Tensor, Tensor, Tensor, Tensor)

    The loss is computed at once: splitting the batch to save memory is left to the runtime.

    The gradients that torch computes at the same time are refused.
    """
    if compute_input_grad or compute_linear_weight_grad or compute_linear_bias_grad:
        raise UnsupportedForm(
            "computes gradients, which a file cannot do; export under torch.no_grad()", code="computes-gradients"
        )
    scores = _scores(op, input, linear_weight, linear_bias, acc_dtype)
    classes = None if weight is None else op.cast(weight, scores.dtype)
    number = {"none": _NONE, "mean": _MEAN}.get(reduction, _SUM)
    loss = cross_entropy_loss(op, scores, target, classes, number, ignore_index, label_smoothing)
    nothing = [op.const(torch.empty(shape, dtype=op.result.dtype)) for shape in ((0, 0), (0, 0), (0,))]
    return op.cast(loss, op.result_dtype), *nothing


@lower("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_each(
    op: Emitter,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    ignore_index: Any,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Value:
    """torch_nn::_linear_cross_entropy_batch_chunked_no_reduction(Tensor input, Tensor linear_weight, Tensor target,
    Tensor? linear_bias, Tensor? weight, SymInt ignore_index, SymInt batch_chunk_size, str acc_policy,
    ScalarType acc_dtype) -> Tensor

    The loss of each sample, computed at once.
    """
    scores = _scores(op, input, linear_weight, linear_bias, acc_dtype)
    classes = None if weight is None else op.cast(weight, scores.dtype)
    loss = cross_entropy_loss(op, scores, target, classes, _NONE, ignore_index)
    return op.cast(loss, op.result_dtype)


def _scores(op: Emitter, input: Value, weight: Value, bias: Value | None, dtype: torch.dtype) -> Value:
    """[N, C], in the dtype in which the loss is accumulated, or a wider one."""
    code = dtypes.DOUBLE if dtype is torch.float64 else dtypes.FLOAT
    scores = op.MatMul(op.cast(input, code), swap_last(op, op.cast(weight, code)))
    return scores if bias is None else op.Add(scores, op.cast(bias, code))


# Margins ------------------------------------------------------------------------------------------------------------


@lower("aten::hinge_embedding_loss")
def hinge_embedding_loss(op: Emitter, self: Value, target: Value, margin: float = 1.0, reduction: int = 1) -> Value:
    """aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1., int reduction=1) -> Tensor

    x where the target is 1, max(0, margin - x) where it is -1.
    """
    zero = op.like(0, self)
    target = op.cast(target, self.dtype)
    apart = op.Where(eq(op, target, op.like(1, self)), zero, _at_least(op, op.Sub(op.like(margin, self), self), 0.0))
    close = op.Where(eq(op, target, op.like(-1, self)), zero, self)
    return _reduced(op, op.Add(apart, close), reduction)


@lower("aten::margin_ranking_loss", promote="input1 input2 target")
def margin_ranking_loss(
    op: Emitter, input1: Value, input2: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1)
    -> Tensor

    max(0, margin - target * (input1 - input2)). Differences of integers wrap.
    """
    turned = op.Neg(target) if dtypes.is_floating(target.dtype) else op.Sub(op.like(0, target), target)
    wrong = op.cast(op.Mul(turned, op.Sub(input1, input2)), op.result_dtype)
    return _reduced(op, _at_least(op, op.Add(wrong, op.like(margin, wrong)), 0.0), reduction)


@lower("aten::soft_margin_loss")
def soft_margin_loss(op: Emitter, self: Value, target: Value, reduction: int = 1) -> Value:
    """aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"""
    return _reduced(op, op.Softplus(op.Neg(op.Mul(op.cast(target, self.dtype), self))), reduction)


@lower("aten::cosine_embedding_loss")
def cosine_embedding_loss(
    op: Emitter, input1: Value, input2: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1)
    -> Tensor

    1 - cos for targets of 1, max(0, cos - margin) for targets of -1.
    """
    input1, input2, target = (op.cast(item, op.result_dtype) for item in (input1, input2, target))
    axis = input1.rank - 1
    eps = op.like(1e-12, input1)

    def dot(one: Value, other: Value) -> Value:
        result: Value = op.ReduceSum(op.Mul(one, other), axes=[axis], keepdims=0)
        return result

    sizes = op.Mul(op.Add(dot(input1, input1), eps), op.Add(dot(input2, input2), eps))
    cosine = op.Div(dot(input1, input2), op.Sqrt(sizes))
    zero, one, minus = op.like(0, cosine), op.like(1, cosine), op.like(-1, cosine)
    close = op.Where(eq(op, target, one), op.Sub(one, cosine), zero)
    apart = op.Where(eq(op, target, minus), _at_least(op, op.Sub(cosine, op.like(margin, cosine)), 0.0), zero)
    return _reduced(op, op.Add(close, apart), reduction)


def _distance(op: Emitter, x1: Value, x2: Value, p: float, eps: float) -> Value:
    """The p-norm of x1 - x2 + eps over the last axis."""
    apart = op.Sub(x1, x2)
    apart = apart if dtypes.is_floating(apart.dtype) else op.cast(apart, op.result_dtype)
    gap = op.Abs(op.Add(apart, op.like(eps, apart)))
    if x1.rank == x2.rank == 0:
        return gap
    axes = [max(x1.rank, x2.rank) - 1]
    if p == 2:
        return op.ReduceL2(gap, axes=axes, keepdims=0)
    if p == 1:
        return op.ReduceSum(gap, axes=axes, keepdims=0)
    if math.isinf(p):
        return op.ReduceMax(gap, axes=axes, keepdims=0)
    return op.Pow(op.ReduceSum(op.Pow(gap, op.like(p, gap)), axes=axes, keepdims=0), op.like(1 / p, gap))


@lower("aten::triplet_margin_loss", promote="anchor positive negative")
def triplet_margin_loss(
    op: Emitter,
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Value:
    """aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1., float p=2.,
    float eps=9.9999999999999995e-07, bool swap=False, int reduction=1) -> Tensor

    max(0, margin + distance to positive - distance to negative). With `swap` the smaller of the distances of anchor and
    positive to the negative counts.
    """
    close = _distance(op, anchor, positive, p, eps)
    far = _distance(op, anchor, negative, p, eps)
    if swap:
        far = op.Min(far, _distance(op, positive, negative, p, eps))
    return _reduced(op, _at_least(op, op.Add(op.Sub(close, far), op.like(margin, close)), 0.0), reduction)


@lower("aten::multi_margin_loss")
def multi_margin_loss(
    op: Emitter,
    self: Value,
    target: Value,
    p: Any = 1,
    margin: Any = 1,
    weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None,
    int reduction=1) -> Tensor

    The sum over the other classes of max(0, margin - x[y] + x[i])**p, divided by the number of classes.
    """
    single = target.rank == 0
    if self.rank < 2:
        scores: Value = op.Reshape(self, [1, -1])
        self, target = scores, op.Reshape(target, [-1])
    axis = 1
    zero = op.like(0, self)
    picked = _picked(op, self, target, -1)
    own = op.ReduceSum(op.Where(picked, self, zero), axes=[axis], keepdims=1)
    gap = _at_least(op, op.Add(op.Sub(op.like(margin, self), own), self), 0.0)
    if p == 2:
        gap = op.Mul(gap, gap)
    if weight is not None:
        gap = op.Mul(gap, op.ReduceSum(op.Where(picked, weight, zero), axes=[axis], keepdims=1))
    loss = op.ReduceSum(op.Where(picked, zero, gap), axes=[axis], keepdims=0)
    loss = op.Div(loss, _count_of_classes(op, self, axis))
    return op.Squeeze(loss, axes=[0]) if single and reduction == _NONE else _reduced(op, loss, reduction)
