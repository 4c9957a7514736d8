"""Other sizes for dynamic axes, at which a trace is repeated to find out what follows from a size.

A model may need its sizes to fit each other: a mask is as long as past and new tokens together, two inputs have one
batch.  Nobody declares that.  So relations are read off the example: a size that is the sum of two others stays their
sum, and where sizes change together, equal sizes stay equal.  A relation that holds by chance does no harm: the sizes
are then only less independent of each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

_MAGNITUDES = 128  # rows of sizes
Sizes = dict[str, int]  # by label


def together(sizes: Mapping[str, int], classes: bool) -> Sizes:
    """New sizes for all labels, independent of each other but for sums; with `classes` equal sizes stay equal.

    The largest sizes grow least, so that the model does not become slow.
    """
    found: Sizes = {}
    sums = sums_among(sizes)
    groups = _classes(sizes) if classes else [[label] for label in sizes]
    factor = 1
    for group in sorted(groups, key=lambda group: -sizes[group[0]]):
        free = [label for label in group if label not in sums]
        factor += bool(free)
        found |= {label: sizes[label] * factor for label in free}
    for label in sorted(sums, key=lambda label: sizes[label]):  # the parts of a sum are smaller than it
        found[label] = sum(found[part] for part in sums[label])
    return {label: found[label] for label in sizes}


def twice(sizes: Mapping[str, int]) -> Sizes:
    """Every size doubled, so that every linear relation holds again."""
    return {label: 2 * size for label, size in sizes.items()}


def of_all_magnitudes(sizes: Mapping[str, int]) -> Iterator[Sizes]:
    """Sizes from 0 to a million, in no order, for what is computed from shapes alone.

    Sums of sizes stay sums in every second one only: that one size is the sum of two others may be chance, unless its
    name says so.
    """
    chance = random.Random(0)
    sums = sums_among(sizes)
    for number in range(_MAGNITUDES):
        found = {label: chance.randrange(1 << chance.randrange(21)) for label in sizes}  # 0 and 1 often
        for label in sorted(sums, key=lambda label: sizes[label]):  # the parts of a sum are smaller than it
            if number % 2 or _is_called_sum(label, sums[label]):
                found[label] = sum(found[part] for part in sums[label])
        yield found


def half(sizes: Mapping[str, int]) -> Sizes:
    """Every size halved if it is even and not small, else doubled; sums of sizes still sums."""
    return _changed(
        sizes, {label: size // 2 if size >= 16 and size % 2 == 0 else 2 * size for label, size in sizes.items()}
    )


def smallest(sizes: Mapping[str, int], changed: Iterable[str]) -> Sizes:
    """Some of the labels at 1, and sums of sizes still sums."""
    return _changed(sizes, {label: min(sizes[label], 1) for label in changed})


def beside(sizes: Mapping[str, int], changed: Iterable[str], step: int) -> Sizes:
    """Some of the labels larger by `step`, and sums of sizes still sums.

    Multiples of a size leave the same rest as the size itself where that is 0, so a number that follows from a rest
    (`x.shape[2] % 2`) does not change there.  One beside the size, every rest is another one.
    """
    return _changed(sizes, {label: sizes[label] + step for label in changed})


def _changed(sizes: Mapping[str, int], others: Mapping[str, int]) -> Sizes:
    """The sizes with some others, and sums of sizes still sums."""
    found = {**sizes, **others}
    sums = sums_among(sizes)
    for label in sorted(sums, key=lambda label: sizes[label]):
        if any(found[part] != sizes[part] for part in sums[label]):
            found[label] = sum(found[part] for part in sums[label])
    return found


def doubled(sizes: Mapping[str, int], label: str, classes: bool, factor: int = 2) -> Iterator[Sizes]:
    """Sizes at which one label is `factor` times as long: alone, with the sums it is a part of, with the labels of its
    size.
    """
    grown = {other for other, size in sizes.items() if other == label or (classes and size == sizes[label])}
    changed = {**sizes, **{other: factor * sizes[other] for other in grown}}
    yield changed
    sums = {whole: parts for whole, parts in sums_among(sizes).items() if whole not in grown}
    summed = dict(changed)
    for whole in sorted(sums, key=lambda whole: sizes[whole]):
        summed[whole] += sum(summed[part] - sizes[part] for part in sums[whole])
    if summed != changed:
        yield summed
    if not classes and sum(size == sizes[label] for size in sizes.values()) > 1:
        yield from doubled(sizes, label, classes=True, factor=factor)


def grown(sizes: Mapping[str, int], label: str) -> Iterator[Sizes]:
    """Sizes at which an empty axis is not: alone, or with one other label, which may be a sum of it."""
    yield {**sizes, label: 2}
    for other, size in sizes.items():
        if size > 0:
            yield {**sizes, label: 2, other: size + 2}


def _classes(sizes: Mapping[str, int]) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for label, size in sizes.items():
        groups.setdefault(size, []).append(label)
    return list(groups.values())


def _is_called_sum(label: str, parts: Sequence[str]) -> bool:
    """Whether a label is an expression, as "past + seq" is, or one such as total_sequence_length."""
    return sorted(label.replace(" ", "").split("+")) == sorted(parts) or label in {f"total_{part}" for part in parts}


def sums_among(sizes: Mapping[str, int]) -> dict[str, tuple[str, str]]:
    """Each label whose size is the sum of the sizes of two other labels, with those two."""
    groups = [group for group in _classes(sizes) if sizes[group[0]] > 0]
    parts = [label for group in groups for label in group[:2]]
    found: dict[str, tuple[str, str]] = {}
    for one, other in combinations(parts, 2):
        for label, size in sizes.items():
            if size == sizes[one] + sizes[other]:
                found.setdefault(label, (one, other))
    return found
