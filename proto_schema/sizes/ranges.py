"""Ranges of integers, both ends included, and what arithmetic does to them.  None is an end that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

Bound: TypeAlias = "int | None"
Span: TypeAlias = "tuple[int | None, int | None]"


class Bounded(Protocol):
    """What has a range."""

    low: Bound
    high: Bound


B = TypeVar("B", bound=Bounded)


def added(one: Span, other: Span) -> Span:
    """The range of a sum."""
    low = None if one[0] is None or other[0] is None else one[0] + other[0]
    high = None if one[1] is None or other[1] is None else one[1] + other[1]
    return low, high


def scaled(span: Span, count: int) -> Span:
    """The range of a multiple."""
    low, high = (None if end is None else end * count for end in span)
    return (low, high) if count >= 0 else (high, low)


def multiplied(one: Span, other: Span) -> Span:
    """The range of a product."""
    if one[0] is None or other[0] is None or one[0] < 0 or other[0] < 0:
        if None in one or None in other:
            return None, None
        corners = [a * b for a in one for b in other if a is not None and b is not None]
        return min(corners), max(corners)
    high = None if one[1] is None or other[1] is None else one[1] * other[1]
    return one[0] * other[0], 0 if one[1] == 0 or other[1] == 0 else high


def divided(span: Span, number: int) -> Span:
    """The range of a quotient by a number above 0, rounded down."""
    low, high = span
    return None if low is None else low // number, None if high is None else high // number


def quotient(above: Span, below: Span) -> Span:
    """The range of a quotient, rounded down; a denominator of 0 has none."""
    (low, high), (least, most) = above, below
    if least is None or low is None or low < 0 or least < 0:
        return None, None
    return 0 if most is None else low // max(most, 1), None if high is None else high // max(least, 1)


def both(one: Span, other: Span) -> Span:
    """The range of what lies in two ranges."""
    lows, highs = ([span[end] for span in (one, other)] for end in (0, 1))
    return (
        max((end for end in lows if end is not None), default=None),
        min((end for end in highs if end is not None), default=None),
    )


def either(spans: Sequence[Span]) -> Span:
    """The range of what lies in one of several ranges."""
    lows, highs = [span[0] for span in spans], [span[1] for span in spans]
    return (
        None if None in lows else min(end for end in lows if end is not None),
        None if None in highs else max(end for end in highs if end is not None),
    )


def chosen(spans: Sequence[Span], *, least: bool) -> Span:
    """The range of the least, or else of the greatest, of several."""
    lows, highs = zip(*spans, strict=True)
    if least:
        known = [high for high in highs if high is not None]
        return None if None in lows else min(lows), min(known, default=None)
    known = [low for low in lows if low is not None]
    return max(known, default=None), None if None in highs else max(highs)


def of_sum(terms: Mapping[tuple[B, ...], int]) -> Span:
    """The range of a sum of products, from those of the factors."""
    total: Span = (0, 0)
    for product, count in terms.items():
        part: Span = (1, 1)
        for factor in product:
            part = multiplied(part, (factor.low, factor.high))
        total = added(total, scaled(part, count))
    return total
