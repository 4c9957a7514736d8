"""Sums of products as plain dicts, from products to their coefficients, and division of them.

A product is a sorted tuple of factors.  Of a factor only its `order` counts here, and whether it equals another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

MOST_STEPS = 64  # of a division


class Factor(Protocol):
    """What a product is made of."""

    @property
    def order(self) -> tuple[int, str]:
        """Its place among the factors of a product."""

    @property
    def digest(self) -> str:
        """A short text that says its content."""


F = TypeVar("F", bound=Factor)


def together(terms: Mapping[tuple[F, ...], int], times: int, others: Mapping[tuple[F, ...], int], count: int) -> Any:
    """`times` of a sum and `count` of another as one, however long; for a look at it, not to be kept as a size."""
    made = {product: times * number for product, number in terms.items()}
    for product, number in others.items():
        made[product] = made.get(product, 0) + count * number
    return {product: number for product, number in made.items() if number}


def rank(product: tuple[Any, ...]) -> tuple[int, list[tuple[int, str]]]:
    """The order of products by which one of them is the leading one."""
    return len(product), [factor.order for factor in product]


def content(terms: Mapping[tuple[F, ...], int]) -> str:
    """A text that says a sum, as long as it has factors."""
    parts = ((" ".join(factor.digest for factor in product), count) for product, count in terms.items())
    return "+".join(f"{count} {product}" for product, count in sorted(parts))


def hashed(text: str) -> str:
    """32 hexadecimal digits, which no two texts share."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def quotient(above: Mapping[tuple[F, ...], int], below: Mapping[tuple[F, ...], int]) -> dict[tuple[F, ...], int] | None:
    """The quotient of two sums where there is no remainder, by long division of polynomials; else None.

    None for one of more than MOST_STEPS products, too: `z**32 // (z + a + b + ...)` has as many as there are products
    of 31 symbols.
    """
    lead = max(below, key=rank)
    found: dict[tuple[F, ...], int] = {}
    left = dict(above)
    while left:
        if len(found) >= MOST_STEPS:
            return None
        top = max(left, key=rank)
        product = _divided(top, lead)
        count, rest = divmod(left[top], below[lead])
        if product is None or rest:
            return None
        found[product] = count
        for part, times in below.items():
            key = tuple(sorted(part + product, key=lambda factor: factor.order))
            left[key] = left.get(key, 0) - times * count
            if not left[key]:
                del left[key]
    return found


def common(*sums: Mapping[tuple[F, ...], int]) -> tuple[int, tuple[F, ...]]:
    """The number and the factors that are in every one of the products."""
    entries = [entry for terms in sums for entry in terms.items()]
    number = math.gcd(*(count for _, count in entries))
    shared = list(entries[0][0])
    for product, _ in entries[1:]:
        left = list(product)
        kept = []
        for factor in shared:
            if factor in left:
                left.remove(factor)
                kept.append(factor)
        shared = kept
    return number, tuple(shared)


def without(terms: Mapping[tuple[F, ...], int], number: int, factors: tuple[F, ...]) -> dict[tuple[F, ...], int]:
    """The sum without a number and factors that are in each of its products."""
    divided = {_divided(product, factors): count // number for product, count in terms.items()}
    return {product: count for product, count in divided.items() if product is not None}


def reduced(
    above: dict[tuple[F, ...], int], below: dict[tuple[F, ...], int]
) -> tuple[dict[tuple[F, ...], int], dict[tuple[F, ...], int]]:
    """Both sums without the number and the factors that are in every one of their products; `below` leads above 0."""
    number, factors = common(above, below)
    if below[max(below, key=rank)] < 0:
        number = -number
    if number == 1 and not factors:
        return above, below
    return without(above, number, factors), without(below, number, factors)


def _divided(one: tuple[F, ...], other: tuple[F, ...]) -> tuple[F, ...] | None:
    left = list(one)
    for factor in other:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
