"""Which axes of the arguments may vary: the model runs at other sizes, and its own errors say what it does not take.

Axes that are equal in the example may have to be equal, and an axis that is the sum of two others may have to be their
sum.  Both are read off the example as hypotheses, and each is tested by running the model: sizes that must be equal are
varied together and then apart, sums are varied with their parts.  What runs only together is one group with one label.
The tensors of one cache are taken for one tensor.  Invariant: at the end all groups are varied at once, each to a size
of its own; a group that is free only while others are not is given up.

A label is `batch` for the axis 0 that all inputs share, else the name of the first input with the axis: `x_dim_2`, and
`past_key_values_dim_2` for a cache, until `graph/passes/size_names.py` finds a better one.  Labels that the user gave
go before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.axes import Axes, own_name
from purexport.aten.unique_names import UniqueNames
from purexport.frontends.core.structures import Path, joined

Place = tuple[int, int]  # the position of a tensor, and one of its axes
Unit = tuple[Place, ...]  # places that are never varied apart: an axis of all tensors of a cache
Sizes = dict[Unit, int]
Runs = Callable[[Sequence[torch.Tensor]], "str | None"]  # runs the model; returns its error

_MOST_UNITS = 40  # of one size; beyond it subsets of them are not tried
_MOST_SETS = 100  # of units that are tried for one group


@dataclass
class FreeAxes:
    """The axes that may vary with their labels, and for each other axis the reason, by input."""

    dynamic: dict[str, Axes] = field(default_factory=dict)
    static: dict[str, dict[int, str]] = field(default_factory=dict)
    given: frozenset[str] = frozenset()  # the labels that the user gave


@dataclass
class _Group:
    """Units of one size that vary together.  The size is `total` of those of two others where it is their sum."""

    units: list[Unit]
    grown: tuple[int, int]  # two sizes at which the model runs
    parts: tuple[_Group, ...] = ()


def free_axes(
    tensors: Sequence[torch.Tensor],
    names: Sequence[str],
    paths: Sequence[Path],
    runs: Runs,
    labels: Mapping[str, Axes],
) -> FreeAxes:
    """The axes of `tensors` that the model lets vary; `runs` runs it and returns its error.

    `labels` are those that the user gave.
    """
    search = _FreeAxesSearch(tensors, _units(tensors, paths), runs)
    groups = search.together(search.groups())
    found = FreeAxes()
    derived = UniqueNames(label for named in labels.values() for label in named.values())
    every = {place for group in groups for unit in group.units for place in unit if place[1] == 0}
    for group in groups:
        places = sorted(place for unit in group.units for place in unit)
        given = [labels[names[position]][axis] for position, axis in places if axis in labels.get(names[position], {})]
        label = given[0] if given else derived.unique(label_of(places, every, names, paths))
        for position, axis in places:
            found.dynamic.setdefault(names[position], {})[axis] = label
    for unit, error in search.errors.items():
        for position, axis in unit:
            if axis not in found.dynamic.get(names[position], {}):
                found.static.setdefault(names[position], {})[axis] = f"the model does not run at other sizes: {error}"
    return found


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of that shape with the values of `tensor`, repeated where it is longer; zeros where there are none."""
    for axis, size in enumerate(shape):
        if tensor.shape[axis] == 0 and size:
            tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
        elif size != tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(size, device=tensor.device) % tensor.shape[axis])
    return tensor


def _units(tensors: Sequence[torch.Tensor], paths: Sequence[Path]) -> dict[Unit, int]:
    """Each unit with its size in the example."""
    found: dict[tuple[object, ...], list[Place]] = {}
    for position, (tensor, path) in enumerate(zip(tensors, paths, strict=True)):
        cache = _cache(path, joined(path[:-1]))
        for axis, size in enumerate(tensor.shape):
            key = (cache, tensor.dim(), axis, size) if cache else (position, axis)
            found.setdefault(key, []).append((position, axis))
    return {tuple(places): tensors[places[0][0]].shape[places[0][1]] for places in found.values()}


def _cache(path: Path, name: str) -> str:
    """The name of the cache that an input belongs to, without the layer; empty where there is none."""
    inside = [step.text for step in path if step.joint == "."]
    if not inside:
        return ""
    halves = [text for text in inside[:-1] if not text.isdigit()]
    return ".".join([name.partition(".")[0], *halves])


def label_of(places: Sequence[Place], every: set[Place], names: Sequence[str], paths: Sequence[Path]) -> str:
    """The label of axes that vary together; `every` has the places of all first axes that vary."""
    if set(places) == every:
        return "batch"
    position, axis = places[0]
    name = _cache(paths[position], names[position]) or names[position]
    return own_name(name.replace(".", "_"), axis)


class _FreeAxesSearch:
    """The runs made so far: the example, what is known of each unit, and the error of each that does not vary."""

    def __init__(self, tensors: Sequence[torch.Tensor], units: Mapping[Unit, int], runs: Runs) -> None:
        self.tensors = tensors
        self.sizes = dict(units)
        self.runs = runs
        self.errors: dict[Unit, str] = {}

    def error(self, changed: Sizes) -> str | None:
        """What the model says to the example with some units of other sizes."""
        shapes = [list(tensor.shape) for tensor in self.tensors]
        for unit, size in changed.items():
            for position, axis in unit:
                shapes[position][axis] = size
        return self.runs([resized(tensor, shape) for tensor, shape in zip(self.tensors, shapes, strict=True)])

    def groups(self) -> list[_Group]:
        """The groups that vary on their own, then those that vary with a sum."""
        found: list[_Group] = []
        by_size: dict[int, list[Unit]] = {}
        for unit, size in self.sizes.items():
            by_size.setdefault(size, []).append(unit)
        for size, units in by_size.items():
            left = list(units)
            for proposal in _proposals(units):
                if set(proposal) <= set(left):
                    grown = self.fitting(proposal, size)
                    if grown is not None:
                        found += self.apart(proposal, grown)
                        left = [unit for unit in left if unit not in proposal]
            for unit in left:
                self.errors[unit] = self.error({unit: size + 1}) or "it varies only with others"
        found += self.sums()
        return found

    def fitting(self, units: Sequence[Unit], size: int) -> tuple[int, int] | None:
        """Two sizes at which the model runs when these units have them."""
        for one, other in _others(size):
            if self.error(dict.fromkeys(units, one)) is None:
                return one, other
        return None

    def apart(self, units: Sequence[Unit], grown: tuple[int, int]) -> list[_Group]:
        """The smallest groups of units that vary together, where all do."""
        found: list[_Group] = []
        left = list(units)
        while left:
            first, rest = left[0], left[1:]
            of_axis = [unit for unit in rest if unit[0][1] == first[0][1]]
            sets = itertools.chain([()], [of_axis], *(combinations(rest, count) for count in range(1, len(rest))))
            parted = (
                inside for inside in itertools.islice(sets, _MOST_SETS) if self._parts(left, first, inside, grown)
            )
            inside = [first, *next(parted, rest)]
            for unit in inside[1:] if len(inside) > 2 else ():
                fewer = [other for other in inside[1:] if other != unit]
                if self._parts(left, first, fewer, grown):
                    inside = [first, *fewer]
            found.append(_Group(inside, grown))
            left = [unit for unit in left if unit not in inside]
        return found

    def _parts(self, units: Sequence[Unit], first: Unit, inside: Sequence[Unit], grown: tuple[int, int]) -> bool:
        """Whether the model runs where the first unit and those `inside` have another size than the other units."""
        sizes = {unit: grown[1] if unit == first or unit in inside else grown[0] for unit in units}
        return self.error(sizes) is None

    def sums(self) -> list[_Group]:
        """Groups of fixed units of which one is the sum of two others, or differs from another by a number."""
        found: list[_Group] = []
        fixed = {size: [unit for unit in self.errors if self.sizes[unit] == size] for size in self.sizes.values()}
        options = [(size, option) for size, units in fixed.items() for option in _subsets(units)]
        for (one, first), (other, second) in combinations(options, 2):
            if set(first) & set(second):
                continue
            for whole, third in options:
                used = {*first, *second, *third}
                if whole != one + other or len(used) < len(first) + len(second) + len(third):
                    continue
                if used <= self.errors.keys() and self._runs_as_sum(first, second, third):
                    parts = (_Group(list(first), (one + 1, one + 2)), _Group(list(second), (other + 2, other + 1)))
                    found += [*parts, _Group(list(third), (whole + 3, whole + 3), parts)]
                    for unit in used:
                        del self.errors[unit]
        for (one, first), (other, second) in combinations(options, 2):
            used = {*first, *second}
            if one == other or not used <= self.errors.keys():
                continue
            if self.error({**dict.fromkeys(first, one + 1), **dict.fromkeys(second, other + 1)}) is None:
                part = _Group(list(first), (one + 1, one + 2))
                found += [part, _Group(list(second), (other + 1, other + 2), (part,))]
                for unit in used:
                    del self.errors[unit]
        return found

    def _runs_as_sum(self, first: Sequence[Unit], second: Sequence[Unit], third: Sequence[Unit]) -> bool:
        for more, further in ((1, 0), (0, 1), (1, 2)):
            changed = {unit: self.sizes[unit] + more for unit in first}
            changed |= {unit: self.sizes[unit] + further for unit in second}
            changed |= {unit: self.sizes[unit] + more + further for unit in third}
            if self.error(changed) is not None:
                return False
        return True

    def together(self, groups: Sequence[_Group]) -> list[_Group]:
        """The groups that vary independently of each other, all at once."""
        kept: list[_Group] = list(groups)
        if len(kept) < 2 or self.error(self._all_other(kept)) is None:
            return kept
        kept = []
        for group in groups:
            if group.parts and not all(part in kept for part in group.parts):
                continue
            attempt = [*kept, group, *(other for other in groups if group in other.parts)]
            error = self.error(self._all_other(attempt))
            if error is None or group.parts:
                kept = [*kept, group]
            else:
                self.errors |= dict.fromkeys(group.units, error)
        return kept

    def _all_other(self, groups: Iterable[_Group]) -> Sizes:
        """A size of its own for each group; sums and differences hold."""
        sizes: Sizes = {}
        new: dict[int, int] = {}
        used = set(self.sizes.values())
        for group in groups:
            old = self.sizes[group.units[0]]
            if group.parts:
                size = old + sum(new.get(id(part), 0) - self.sizes[part.units[0]] for part in group.parts)
            else:
                step = abs(group.grown[1] - group.grown[0]) or 1
                size = group.grown[0]
                while size in used and group.grown[0] > old:
                    size += step
            used.add(size)
            new[id(group)] = size
            sizes |= dict.fromkeys(group.units, size)
        return sizes


def _others(size: int) -> Iterator[tuple[int, int]]:
    """Pairs of other sizes: a little larger, halves and multiples, a little smaller."""
    least = max(size, 1)
    yield least + 1, least + 2
    if size > 7 and size % 4 == 0:
        yield size // 2, 2 * size
    if size > 1:
        yield 2 * size, 3 * size
    if size > 3:
        yield size - 1, size - 2


def _proposals(units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """Sets of units of one size that may vary together, the most likely first."""
    yield units
    if len(units) == 1 or len(units) > _MOST_UNITS:
        return
    yield from _by_axis(units)
    yield from ([other for other in units if other != unit] for unit in units)
    if len(units) > 3:
        yield from combinations(units, 2)
    yield from ([unit] for unit in units)


def _subsets(units: Sequence[Unit]) -> list[Sequence[Unit]]:
    """Sets of fixed units of one size: all, those of one axis, each alone."""
    found: list[Sequence[Unit]] = [units, *_by_axis(units), *([unit] for unit in units)] if units else []
    return [one for place, one in enumerate(found) if list(one) not in map(list, found[:place])]


def _by_axis(units: Sequence[Unit]) -> list[list[Unit]]:
    axes: dict[int, list[Unit]] = {}
    for unit in units:
        axes.setdefault(unit[0][1], []).append(unit)
    return list(axes.values()) if len(axes) > 1 else []
