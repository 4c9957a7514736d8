"""Random numbers: the distributions of torch, drawn by the runtime. The numbers themselves are not those of torch.

ONNX draws uniform or normal floats, and all other distributions are computed from these. A static shape is an attribute
of the node; for a computed one the -Like form draws in the shape of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add, lower
from purexport.lowering.elementwise.arithmetic import log1p
from purexport.lowering.reduce.sorting import top_k
from purexport.lowering.support.common import dims_of, full


def _draw(op: Emitter, op_type: str, sizes: Sequence[Any], **parameters: Any) -> Value:
    """float32 numbers in the shape `sizes`; `op_type` is RandomUniform or RandomNormal."""
    shape = op.ints(list(sizes))
    if isinstance(shape, list) and shape:
        return op.emit(op_type, shape=shape, dtype=dtypes.FLOAT, **parameters)
    like = full(op, list(sizes), 0.0, dtypes.FLOAT)
    return op.emit(op_type + "Like", like, dtype=dtypes.FLOAT, **parameters)


def _uniform(op: Emitter, sizes: Sequence[Any], low: float = 0.0, high: float = 1.0) -> Value:
    return _draw(op, "RandomUniform", sizes, low=low, high=high)


def _normal(op: Emitter, sizes: Sequence[Any], mean: float = 0.0, std: float = 1.0) -> Value:
    """A deviation of 0 leaves nothing to draw, and ends the process in ONNX Runtime (1.31)."""
    if std == 0:
        return full(op, list(sizes), mean, dtypes.FLOAT)
    return _draw(op, "RandomNormal", sizes, mean=mean, scale=std)


def _result(op: Emitter, value: Value) -> Value:
    return op.cast(value, op.result_dtype)


# Uniform and normal -------------------------------------------------------------------------------------------------


@lower("aten::rand", "aten::rand.generator")
def rand(op: Emitter, size: Sequence[Any], dtype: Any = None, generator: Any = None) -> Value:
    """aten::rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return _result(op, _uniform(op, size))


@lower("aten::rand_like")
def rand_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    """aten::rand_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return _result(op, _uniform(op, dims_of(op, self)))


@lower("aten::randn")
def randn(op: Emitter, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return _result(op, _normal(op, size))


@lower("aten::randn_like")
def randn_like(op: Emitter, self: Value, dtype: Any = None) -> Value:
    """aten::randn_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return _result(op, _normal(op, dims_of(op, self)))


def _uniform_rule(op: Emitter, **arguments: Any) -> Value:
    """aten::uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> Tensor

    The argument `from` is a keyword of Python, so the rule takes a dictionary.
    """
    return _result(op, _uniform(op, dims_of(op, arguments["self"]), arguments["from"], arguments["to"]))


add(Rule(_uniform_rule, ("self", "from", "to", "generator")), "aten::uniform")


@lower("aten::normal_functional")
def normal_functional(op: Emitter, self: Value, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Value:
    """aten::normal_functional(Tensor self, float mean=0., float std=1., *, Generator? generator=None) -> Tensor"""
    return _result(op, _normal(op, dims_of(op, self), mean, std))


@lower("aten::normal.float_float")
def normal(
    op: Emitter, mean: float, std: float, size: Sequence[Any], generator: Any = None, dtype: Any = None
) -> Value:
    """aten::normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None,
    ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return _result(op, _normal(op, size, mean, std))


@lower("aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor")
def normal_tensors(op: Emitter, mean: Any, std: Any = 1.0, generator: Any = None) -> Value:
    """aten::normal.Tensor_float(Tensor mean, float std=1., *, Generator? generator=None) -> Tensor"""
    wide = op.Add(op.like(mean, Value(op.result_dtype)), op.like(std, Value(op.result_dtype)))
    noise = op.RandomNormalLike(wide, dtype=dtypes.FLOAT)
    return op.Add(op.Mul(_result(op, noise), op.like(std, wide)), op.like(mean, wide))


@lower("aten::exponential")
def exponential(op: Emitter, self: Value, lambd: float = 1.0, generator: Any = None) -> Value:
    """aten::exponential(Tensor self, float lambd=1., *, Generator? generator=None) -> Tensor

    -log(1 - u) / lambd for a uniform u in [0, 1).
    """
    wait = op.Neg(log1p(op, op.Neg(_uniform(op, dims_of(op, self)))))
    return _result(op, op.Div(wait, op.like(lambd, wait)))


@lower("aten::log_normal")
def log_normal(op: Emitter, self: Value, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> Value:
    """aten::log_normal(Tensor self, float mean=1., float std=2., *, Generator? generator=None) -> Tensor"""
    return _result(op, op.Exp(_normal(op, dims_of(op, self), mean, std)))


@lower("aten::cauchy")
def cauchy(op: Emitter, self: Value, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> Value:
    """aten::cauchy(Tensor self, float median=0., float sigma=1., *, Generator? generator=None) -> Tensor"""
    drawn = _uniform(op, dims_of(op, self), -math.pi / 2, math.pi / 2)
    return _result(op, op.Add(op.Mul(op.Tan(drawn), op.like(sigma, drawn)), op.like(median, drawn)))


@lower("aten::geometric")
def geometric(op: Emitter, self: Value, p: float, generator: Any = None) -> Value:
    """aten::geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor

    The number of trials until the first success, at least one.
    """
    drawn = _uniform(op, dims_of(op, self))
    trials = op.Ceil(op.Div(log1p(op, op.Neg(drawn)), op.like(math.log1p(-p), drawn)))
    return _result(op, op.Max(trials, op.like(1, trials)))


# Integers -----------------------------------------------------------------------------------------------------------


@lower("aten::randint")
def randint(op: Emitter, high: Any, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::randint(SymInt high, SymInt[] size, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return _integers(op, 0, high, size)


@lower("aten::randint.low")
def randint_low(op: Emitter, low: Any, high: Any, size: Sequence[Any], dtype: Any = None) -> Value:
    """aten::randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=4, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return _integers(op, low, high, size)


@lower("aten::randint_like")
def randint_like(op: Emitter, self: Value, high: Any, dtype: Any = None) -> Value:
    """aten::randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return _integers(op, 0, high, dims_of(op, self))


@lower("aten::randint_like.low_dtype")
def randint_like_low(op: Emitter, self: Value, low: Any, high: Any, dtype: Any = None) -> Value:
    """aten::randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, ScalarType? dtype=None,
    Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    return _integers(op, low, high, dims_of(op, self))


def _integers(op: Emitter, low: Any, high: Any, sizes: Sequence[Any]) -> Value:
    """Integers from `low` up to but not including `high`; both may be computed."""
    double = Value(dtypes.DOUBLE)
    span = op.Sub(op.like(high, double), op.like(low, double))
    # in double, where a float below one times the span stays below the span
    steps = op.Floor(op.Mul(op.cast(_uniform(op, sizes), dtypes.DOUBLE), span))
    return _result(op, op.cast(op.Add(steps, op.like(low, double)), dtypes.INT64))


@lower("aten::randperm")
def randperm(op: Emitter, n: Any, dtype: Any = None) -> Value:
    """aten::randperm(SymInt n, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None)
    -> Tensor

    The positions that sort uniform numbers.
    """
    return _result(op, top_k(op, _uniform(op, [n]), n, 0)[1])


@lower("aten::bernoulli")
def bernoulli(op: Emitter, self: Value, generator: Any = None) -> Value:
    """aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor

    1 with the probability that `self` holds, else 0.
    """
    drawn = op.RandomUniformLike(self, dtype=dtypes.FLOAT)
    return _result(op, op.Less(drawn, op.cast(self, dtypes.FLOAT)))


@lower("aten::bernoulli.p")
def bernoulli_p(op: Emitter, self: Value, p: Any, generator: Any = None) -> Value:
    """aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor"""
    drawn = _uniform(op, dims_of(op, self))
    return _result(op, op.Less(drawn, op.like(p, drawn)))


@lower("aten::bernoulli.Tensor")
def bernoulli_tensor(op: Emitter, self: Value, p: Value, generator: Any = None) -> Value:
    """aten::bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor"""
    return bernoulli_p(op, self, p)


@lower("aten::multinomial")
def multinomial(op: Emitter, self: Value, num_samples: Any, replacement: bool = False, generator: Any = None) -> Value:
    """aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None)
    -> Tensor

    Positions along the last axis, drawn with its elements as weights.
    """
    weights = op.cast(self, dtypes.FLOAT)
    if not replacement:
        # without replacement: the largest of weights divided by exponential numbers first (the Gumbel-top-k trick)
        waits = op.Neg(log1p(op, op.Neg(op.RandomUniformLike(weights, dtype=dtypes.FLOAT))))
        return top_k(op, op.Div(weights, waits), num_samples, -1)[1]
    row = weights if self.rank == 2 else op.Unsqueeze(weights, axes=[0])
    count = op.known(num_samples)
    found = op.Multinomial(op.Log(row), sample_size=count, dtype=dtypes.INT64)
    return found if self.rank == 2 else op.Squeeze(found, axes=[0])


# Dropout ------------------------------------------------------------------------------------------------------------


@lower("aten::dropout")
def dropout(op: Emitter, input: Value, p: Any, train: bool) -> Value:
    """aten::dropout(Tensor input, float p, bool train) -> Tensor

    Kept elements are divided by 1 - p. Outside training the input passes unchanged.
    """
    if not train or p == 0:
        return input
    if p < 1:
        return op.Dropout(input, ratio=op.const(p, dtypes.FLOAT), training_mode=op.const(True, dtypes.BOOL))
    return _thinned(op, input, p, dims_of(op, input))


@lower("aten::feature_dropout")
def feature_dropout(op: Emitter, input: Value, p: Any, train: bool) -> Value:
    """aten::feature_dropout(Tensor input, float p, bool train) -> Tensor

    Whole channels, that is slices of the first two axes, are zeroed.
    """
    if not train or p == 0:
        return input
    return _thinned(op, input, p, _channels(op, input))


def _channels(op: Emitter, value: Value) -> list[Any]:
    return [op.dim(value, 0), op.dim(value, 1), *[1] * (value.rank - 2)]


def _thinned(op: Emitter, value: Value, p: float, sizes: Sequence[Any]) -> Value:
    if p == 1:
        return op.Mul(value, op.like(0, value))
    kept = op.Not(op.Less(_uniform(op, sizes), op.const(p, dtypes.FLOAT)))
    return op.Mul(value, op.Mul(op.cast(kept, value.dtype), op.like(1 / (1 - p), value)))


@lower("aten::alpha_dropout")
def alpha_dropout(op: Emitter, input: Value, p: Any, train: bool) -> Value:
    """aten::alpha_dropout(Tensor input, float p, bool train) -> Tensor"""
    return _alpha(op, input, p, dims_of(op, input)) if train and p else input


@lower("aten::feature_alpha_dropout")
def feature_alpha_dropout(op: Emitter, input: Value, p: Any, train: bool) -> Value:
    """aten::feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor"""
    return _alpha(op, input, p, _channels(op, input)) if train and p else input


def _alpha(op: Emitter, value: Value, p: float, sizes: Sequence[Any]) -> Value:
    """Dropped elements get the lower limit of SELU, and the result is scaled so that mean and variance stay (Klambauer
    et al. 2017).
    """
    limit = 1.7580993408473766
    a = 1 / math.sqrt((limit**2 * p + 1) * (1 - p)) if p < 1 else 0.0
    kept = op.Not(op.Less(_uniform(op, sizes), op.const(p, dtypes.FLOAT)))
    chosen = op.Where(kept, value, op.like(-limit, value))
    return op.Add(op.Mul(chosen, op.like(a, value)), op.like(a * limit * p, value))


@lower("aten::native_dropout")
def native_dropout(op: Emitter, input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)

    The second result is the mask of the kept elements.
    """
    if train is False or p == 0:
        return input, full(op, dims_of(op, input), True, dtypes.BOOL)
    kept = op.Not(op.Less(_uniform(op, dims_of(op, input)), op.const(p, dtypes.FLOAT)))
    scale = op.like(1 / (1 - p) if p < 1 else 0, input)
    return op.Mul(input, op.Mul(op.cast(kept, input.dtype), scale)), kept
