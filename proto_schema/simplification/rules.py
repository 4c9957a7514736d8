"""Nodes that change nothing, and pairs of nodes that cancel: rules of `ps.rewrite`.

A value may stand for a result only where data type and shape are known to be the same for all sizes of the inputs. What
is between two nodes that cancel may be read elsewhere, too, and stays then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proto_schema.inference.types import Tensor
from proto_schema.ir import Value
from proto_schema.rewrite import Match, Rule, rule
from proto_schema.sizes import Dim, Size
from proto_schema.sizes.reshaping import constant_shape, is_copied, may_be_zero, what_is_left


def same_type(one: Value, other: Value) -> bool:
    """Whether two values have one data type, and one shape for all sizes of the inputs."""
    mine, theirs = one.type, other.type
    if not isinstance(mine, Tensor) or not isinstance(theirs, Tensor) or not mine.dtype or mine.shape is None:
        return False
    return (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)


def _same(x: Value, match: Match) -> bool:
    return same_type(x, match.output)


def _first(op: Any, x: Value) -> Value:
    return x


def _single(array: Any) -> float | int | bool | None:
    """The number in an array whose elements are all the same, with their sign; None for others."""
    if array is None or not array.size or array.dtype.kind not in "biuf" or not (array == array.flat[0]).all():
        return None
    if array.dtype.kind == "f" and np.signbit(array).any() != np.signbit(array).all():  # 0.0 and -0.0
        return None
    found: float | int | bool = array.flat[0].item()
    return found


def _neutral(number: int, sign: int = 0) -> Callable[[Value, Value, Match], bool]:
    """`x + 0`, `x * 1`. Of floats x + 0.0 and x - -0.0 make 0.0 of -0.0; only x + -0.0 and x - 0.0 are always x."""

    def condition(x: Value, c: Value, match: Match) -> bool:
        if not same_type(x, match.output):
            return False
        found = _single(match.array(c))
        if found is None or found != number:
            return False
        return not (sign and isinstance(found, float)) or math.copysign(1, found) == sign

    return condition


def _is_inference(match: Match, training_mode: Value | None) -> bool:
    return training_mode is None or _single(match.array(training_mode)) is False


def _is_cast_to_itself(x: Value, to: int, match: Match) -> bool:
    return x.dtype == to and same_type(x, match.output)


def _pads_nothing(x: Value, pads: Value, match: Match) -> bool:
    array = match.array(pads)
    return array is not None and not array.any() and same_type(x, match.output)


def _is_whole(x: Value, steps: Value | None, match: Match) -> bool:
    """A part of the same shape is the whole, unless it goes backwards."""
    if not same_type(x, match.output):
        return False
    found = None if steps is None else match.array(steps)
    return steps is None or (found is not None and bool((found > 0).all()))


def _perm(x: Value, perm: Sequence[int] | None) -> list[int] | None:
    if perm is not None:
        return list(perm)
    return None if x.rank is None else list(range(x.rank))[::-1]


def _turns_nothing(x: Value, perm: Sequence[int] | None, match: Match) -> bool:
    found = _perm(x, perm)
    return found is not None and found == sorted(found) and same_type(x, match.output)


def _turn_once(op: Any, x: Value, first: Sequence[int] | None, second: Sequence[int] | None, match: Match) -> Any:
    one, two = _perm(x, first), _perm(x, second)
    if one is None or two is None or len(one) != len(two):
        return None
    both = [one[axis] for axis in two]
    if both == sorted(both):
        return x if same_type(x, match.output) else None
    return op.Transpose(x, perm=both)


def _needs_no_inner(shape: Value, match: Match) -> bool:
    """Not where the shape takes sizes from its input (0) that are others now."""
    array = match.array(shape)
    return array is not None and 0 not in array


def _of_constant_shape(op: Any, x: Value, shape: Value, allowzero: int, match: Match) -> Any:
    """A Reshape whose shape is computed from sizes of its input, with a shape of numbers, 0 and one -1.

    Without `allowzero` a computed size of 0 stands for the size of the input.  So a size that may be 0 must be that of
    the input at its place; with `allowzero`, it may be the one that is left.
    """
    old, computed = x.shape, shape.type
    if old is None or not isinstance(computed, Tensor) or computed.content is None or match.array(shape) is not None:
        return None
    copies = not allowzero
    new: list[Dim | None] = []
    for place, element in enumerate(computed.content):
        size = element if isinstance(element, Size) or (type(element) is int and element >= -1) else None
        if size is None or (size == 0 and not (copies and place < len(old))):
            return None
        new.append(old[place] if size == 0 else None if size == -1 else size)
    left = [place for place, size in enumerate(new) if size is None]
    if len(left) > 1:
        return None
    open_ = [place for place, size in enumerate(new) if isinstance(size, Size) and not is_copied(old, place, size)]
    if copies and any(may_be_zero(new[place]) for place in open_):
        return None
    if left:
        new[left[0]] = what_is_left(old, new, left[0])
    found = constant_shape(old, new, left[0] if left else None)
    if found is None:
        return None
    return op.Reshape(x, op.constant(np.array(found, np.int64), name=f"{match.output.name}_shape"))


def _once(op: Any, x: Value, shape: Value, rest: Any) -> Any:
    return op.Reshape(x, shape, **rest)


_PAIRS: tuple[tuple[Callable[..., Any], Callable[..., Any], Callable[..., bool] | None], ...] = (
    (lambda op, x: op.Not(op.Not(x)), _first, _same),
    (lambda op, x: op.Neg(op.Neg(x)), _first, _same),
    (lambda op, x, a=None, b=None: op.Squeeze(op.Unsqueeze(x, a), b), _first, _same),
    (lambda op, x, a=None, b=None: op.Unsqueeze(op.Squeeze(x, a), b), _first, _same),
    (lambda op, x, first, second: op.Transpose(op.Transpose(x, perm=first), perm=second), _turn_once, None),
    (lambda op, x, a, shape, rest, more: op.Reshape(op.Reshape(x, a, **more), shape, **rest), _once, _needs_no_inner),
    (lambda op, x, shape, rest, a=None: op.Reshape(op.Squeeze(x, a), shape, **rest), _once, _needs_no_inner),
    (lambda op, x, a, shape, rest: op.Reshape(op.Unsqueeze(x, a), shape, **rest), _once, _needs_no_inner),
    (lambda op, x, shape, rest, more: op.Reshape(op.Flatten(x, **more), shape, **rest), _once, _needs_no_inner),
)
"""Nodes that undo the one before them, and reshapes of what was reshaped before."""

RULES: tuple[Rule, ...] = (
    rule(lambda op, x: op.Identity(x), _first),
    rule(
        lambda op, x, seed, ratio=None, training_mode=None: op.Dropout(x, ratio, training_mode, seed=seed),
        _first,
        _is_inference,
    ),
    rule(lambda op, x, to, rest: op.Cast(x, to=to, **rest), _first, _is_cast_to_itself),
    rule(lambda op, x, y, rest: op.CastLike(x, y, **rest), _first, _same),
    rule(lambda op, x, rest: op.Concat(x, **rest), _first, _same),
    rule(lambda op, x: op.Max(x), _first, _same),
    rule(lambda op, x: op.Mean(x), _first, _same),
    rule(lambda op, x: op.Min(x), _first, _same),
    rule(lambda op, x: op.Sum(x), _first, _same),
    rule(lambda op, x, shape: op.Expand(x, shape), _first, _same),
    rule(lambda op, x, rest: op.Flatten(x, **rest), _first, _same),
    rule(lambda op, x, repeats: op.Tile(x, repeats), _first, _same),
    rule(lambda op, x, pads, rest, v=None, axes=None: op.Pad(x, pads, v, axes, **rest), _first, _pads_nothing),
    rule(lambda op, x, s, e, axes=None, steps=None: op.Slice(x, s, e, axes, steps), _first, _is_whole),
    rule(lambda op, x, c: op.Add(x, c), _first, _neutral(0, -1)),
    rule(lambda op, x, c: op.Sub(x, c), _first, _neutral(0, 1)),
    rule(lambda op, x, c: op.Mul(x, c), _first, _neutral(1)),
    rule(lambda op, x, c: op.Div(x, c), _first, _neutral(1)),
    rule(lambda op, x, c: op.Pow(x, c), _first, _neutral(1)),
    rule(lambda op, x, perm: op.Transpose(x, perm=perm), _first, _turns_nothing),
    rule(lambda op, x, shape, rest: op.Reshape(x, shape, **rest), _first, _same),
    rule(lambda op, x, shape, allowzero: op.Reshape(x, shape, allowzero=allowzero), _of_constant_shape),
    rule(lambda op, x, axes=None: op.Squeeze(x, axes), _first, _same),
    rule(lambda op, x, axes: op.Unsqueeze(x, axes), _first, _same),
    *(rule(*row, shared=True) for row in _PAIRS),
)
