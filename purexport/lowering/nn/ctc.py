"""CTC loss: the sum over all alignments, by the forward recursion over time in logarithms.

States are the labels with blanks between and around them. One time step is a function of the logarithms of all states,
repeated over the time axis; a sequence that has ended keeps its states. (Graves et al. 2006, equations 6 to 8.)
"""

from __future__ import annotations

import math
from typing import Any

import torch

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.compare import eq
from purexport.lowering.support.common import reshape
from purexport.lowering.tensor.slices import slice_axis

_END = 2**63 - 1


def _lengths(op: Emitter, lengths: Any) -> Value:
    """[N] as int64."""
    value = op.cast(lengths, dtypes.INT64) if isinstance(lengths, Value) else op.const(list(lengths))
    return reshape(op, value, [-1]) if value.rank == 0 else value


def _rows(op: Emitter, targets: Value, lengths: Value) -> Value:
    """[N, S]: the labels of each sequence. Labels that are given as one row are split by their lengths."""
    labels = op.cast(targets, dtypes.INT64)
    if labels.rank == 2:
        return labels
    known = lengths.const
    longest = op.dim(labels, 0) if known is None else int(known.max())
    before = op.Concat(op.const([0]), slice_axis(op, _sums(op, lengths), 0, 0, -1), axis=0)
    places = op.Add(op.Unsqueeze(before, [1]), op.Unsqueeze(numbers_below(op, longest), [0]))
    last = op.Sub(value_of(op, op.dim(labels, 0)), op.const(1))
    places = op.Where(op.Less(places, last), places, last)
    return op.Gather(labels, places, axis=0)


def _sums(op: Emitter, lengths: Value) -> Value:
    if lengths.const is not None:
        return op.const(torch.cumsum(lengths.const, 0))
    return op.CumSum(lengths, op.const(0))


def _logarithm_of_sum(op: Emitter, *terms: Value) -> Value:
    """log(exp(a) + exp(b) + ...); minus infinity where all terms are."""
    top = op.Max(*terms)
    safe = op.Where(op.Greater(top, op.like(-math.inf, top)), top, op.like(0, top))
    total = op.Sum(*[op.Exp(op.Sub(term, safe)) for term in terms])
    return op.Add(op.Log(total), safe)


def _shifted(op: Emitter, states: Value, by: int) -> Value:
    """States moved to the right; the first ones become impossible (minus infinity)."""
    front = op.Mul(slice_axis(op, states, 1, 0, by), op.like(0, states))
    front = op.Where(op.IsNaN(front), op.like(0, states), front)
    filler = op.Add(front, op.like(-math.inf, states))
    return op.Concat(filler, slice_axis(op, states, 1, 0, -by), axis=1)


def _losses(op: Emitter, log_probs: Value, targets: Value, inputs: Value, lengths: Value, blank: int) -> Value:
    """The negative logarithm of the probability of each sequence: [N]."""
    labels = _rows(op, targets, lengths)
    column = op.Unsqueeze(labels, [2])
    blanks = op.Add(op.Mul(column, op.const(0)), op.const(blank))
    pairs = op.Reshape(op.Concat(blanks, column, axis=2), [0, -1])
    states = op.Concat(pairs, op.Squeeze(slice_axis(op, blanks, 1, 0, 1), [2]), axis=1)  # [N, 2 S + 1]
    # a label may follow the previous label without a blank between them if they differ
    moved = op.Concat(slice_axis(op, states, 1, 0, 2), slice_axis(op, states, 1, 0, -2), axis=1)
    skips = op.Not(op.Or(eq(op, states, op.const(blank)), eq(op, states, moved)))
    place = numbers_below(op, op.dim(states, 1))
    skips = op.And(skips, op.Greater(place, op.const(1)))
    never = op.like(-math.inf, log_probs)

    def seen(op: Emitter, at: Value) -> Value:
        now = op.Squeeze(op.Gather(log_probs, at, axis=0), [0])
        return op.GatherElements(now, states, axis=1)

    start = op.Where(op.Less(place, op.const(2)), seen(op, op.const([0])), never)

    def step(op: Emitter, number: Value, alpha: Value) -> list[Value]:
        at = op.Add(number, op.const([1]))
        jumped = op.Where(skips, _shifted(op, alpha, 2), never)
        following = op.Add(_logarithm_of_sum(op, alpha, _shifted(op, alpha, 1), jumped), seen(op, at))
        going = op.Unsqueeze(op.Less(at, inputs), [1])
        return [op.Where(going, following, alpha)]

    steps = op.known(op.Sub(value_of(op, op.dim(log_probs, 0)), op.const(1)))
    (alpha,) = repeat(op, steps, step, start)
    last = op.Unsqueeze(op.Mul(lengths, op.const(2)), [1])
    before = op.Sub(last, op.const(1))
    has_label = op.Greater(last, op.const(0))
    at_label = op.GatherElements(alpha, op.Where(has_label, before, op.const(0)), axis=1)
    at_label = op.Where(has_label, at_label, never)
    total = _logarithm_of_sum(op, op.GatherElements(alpha, last, axis=1), at_label)
    return op.Neg(op.Squeeze(total, [1]))


@lower("aten::ctc_loss.IntList", "aten::ctc_loss.Tensor")
def ctc_loss(
    op: Emitter,
    log_probs: Value,
    targets: Value,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Value:
    """aten::ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0,
    int reduction=1, bool zero_infinity=False) -> Tensor

    `log_probs` is [T, N, C]; `targets` is [N, S] or all labels in one row. `reduction` 0 is none, 1 the mean of the
    losses divided by the target lengths, 2 the sum.
    """
    alone = log_probs.rank == 2
    inputs, lengths = _lengths(op, input_lengths), _lengths(op, target_lengths)
    if alone:
        log_probs = op.Unsqueeze(log_probs, [1])
    losses = _losses(op, log_probs, targets, inputs, lengths, blank)
    if zero_infinity:
        losses = op.Where(op.Less(losses, op.like(math.inf, losses)), losses, op.like(0, losses))
    if reduction == 0:
        return op.Squeeze(losses, [0]) if alone else losses
    if reduction == 2:
        return op.ReduceSum(losses, axes=[0], keepdims=0)
    counts = op.cast(op.Where(op.Less(lengths, op.const(1)), op.const(1), lengths), losses.dtype)
    return op.ReduceMean(op.Div(losses, counts), axes=[0], keepdims=0)
