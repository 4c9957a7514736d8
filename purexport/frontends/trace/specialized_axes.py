"""What a trace holds fixed although it follows from a dynamic axis: numbers (`math.sqrt(x.shape[0])`), steps, branches.

The tracer warns wherever Python asks for a number, also where the number never changes.  So the numbers are found out
at other sizes (`probes`), by a run of the trace (`replay`).  Where one differs, the model is traced again, and the
graphs are compared.

- The same calls with the same constants: nothing is held.  A run without the tracer shows that sooner (`agreement`).
- A constant differs, or a line is run more often (a loop over an axis): the axis becomes static.  Further traces, each
  with as few sizes changed as the model takes, say which axis.  An axis that changed without an effect on that place is
  not held.
- Other calls: the model takes another path at those sizes.  Nothing is held; a remark says where, and which way the
  file goes.  Where decisions are all that differs, and operators run at lines where none did, or none where some did,
  runs without the tracer show it, too.

A loop over pieces of a size (`for start in range(0, n, 64)`) takes one step for every size up to a piece.  So each axis
is also made much longer, one at a time.  Such a trace computes only the shapes of large products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten import scalars
from purexport.aten.axes import Axes, Derived, Specialised
from purexport.aten.graph import AtenGraph, AtenValue, Call, Frame, ScalarType, Source, every_call
from purexport.errors import ExportError
from purexport.frontends.core.shape_functions import UnfitError
from purexport.frontends.trace import decisions, probes
from purexport.frontends.trace.agreement import Compared, Lines
from purexport.frontends.trace.probes import Sizes
from purexport.frontends.trace.replay import Asked
from purexport.frontends.trace.torchscript import Decision, TooManyCallsError

# values in the inputs of a trace with all sizes changed; beyond it the sizes change one by one, which costs less memory
MANY = 1 << 20
# by how much sizes grow, so that their rests change
STEPS = (1, 2, 4, 8, 16, 32)
# sizes beyond the pieces that models take: 1024, else 256, else 64; and the values in the inputs of such a trace
FAR = (1040, 272, 80)
MANY_FAR = 4 * MANY
# labels that are tried one by one; where there are more, those of one size change together
FEW = 8
# where it is not known which number differs, or whether one does
_UNKNOWN = (-1, None)


@dataclass(frozen=True)
class Runs:
    """Runs of the model without the tracer: at other sizes, beside the trace; and at those of the example."""

    beside: Callable[[Sequence[torch.Tensor]], Compared]
    example: Callable[[], Lines | None]


@dataclass
class Taken:
    """A trace: its graph, and each decision that Python made from sizes alone.

    `asked` finds out what Python would get at other sizes; None where only the model itself shows it.  `runs` are runs
    without the tracer.
    """

    graph: AtenGraph
    decisions: list[Decision]
    asked: Asked | None = None
    runs: Runs | None = None


# tensors, and whether costly operators may leave their results unwritten -> the trace
Again = Callable[[list[torch.Tensor], bool], Taken]


@dataclass
class Found:
    """The axes that a trace holds, remarks on paths that differ at other sizes, and notes on those that did not."""

    held: list[Specialised]
    remarks: list[str]
    notes: list[str]


@dataclass
class _Probe:
    """A trace at other sizes beside that of the example: which labels changed, and what differs."""

    changed: set[str]
    places: list[str]  # where a constant or a number of steps differs
    branch: str | None  # a remark on the other path that the model takes


def specialized_axes(
    first: Taken,
    again: Again,
    tensors: Sequence[torch.Tensor],
    names: Sequence[str],
    axes: Mapping[str, Axes],
    derived: Derived,
) -> Found:
    """What `first` holds.

    `again` traces the model on other tensors, if asked for shapes alone.  Where the model does not run, nothing is
    said.  `derived` says which labels follow from others.
    """
    search = _Search(first, again, tensors, [axes.get(name, {}) for name in names], derived)
    search.become_large()
    search.become_small()
    search.change_rests()
    search.become_half()
    search.become_far()
    for label in (label for label in search.labels if not search.sizes[label]):
        search.note(search.first_that_fits(probes.grown(search.sizes, label)))
    notes = [
        f"the model compares sizes at {line}; the file has the branch of the example, which all tried sizes took"
        for line in dict.fromkeys(search.in_doubt())
        if not any(line in branch for branch in search.branches)
    ]
    return Found(search.held(), list(dict.fromkeys(search.branches)), notes)


class _Search:
    """The probes made so far, and what they say."""

    def __init__(
        self,
        first: Taken,
        again: Again,
        tensors: Sequence[torch.Tensor],
        axes: Sequence[Axes],
        derived: Derived,
    ) -> None:
        self.derived = derived
        self.first = first
        self.again = again
        self.tensors = tensors
        self.axes = axes
        self.sizes: Sizes = {}
        for tensor, named in zip(tensors, axes, strict=True):
            for axis, label in named.items():
                self.sizes.setdefault(label, tensor.shape[axis])
        self.few = len(self.sizes) <= FEW
        one_a_size = {size: label for label, size in reversed(self.sizes.items())}
        self.labels = list(self.sizes if self.few else one_a_size.values())
        self.probes: list[_Probe] = []
        self.branches: list[str] = []
        # the numbers with which other paths begin that were seen
        self.paths: set[tuple[int, Any]] = set()
        self.harmless: set[int] = set()  # the places of numbers that differed while the calls were the same
        # the numbers up to the first that differed somewhere: where others differ, mostly it does again
        self.decided: Asked | None = None
        self.cut_short = False
        self.is_large = not any(True for _ in self.longer())
        self.has_grown = False

    def become_large(self) -> None:
        """Change all sizes at once; where that shows a difference, change them label by label."""
        if self.is_large:
            return
        together = self.first_that_fits(self.longer())
        if together is None or together.places or together.branch is not None:
            self.double_one_by_one(together)
        self.note(together)

    def double_one_by_one(self, together: _Probe | None) -> None:
        self.label_by_label(together, lambda label: probes.doubled(self.sizes, label, classes=not self.few))

    def become_half(self) -> None:
        """For an example that is large already: halve all sizes.  Without a doubt left after that, and after all sizes
        have become a little larger, nothing need be doubled, which would cost the most.
        """
        if not self.is_large:
            return
        together = self.first_that_fits([probes.half(self.sizes)]) if self.has_grown else None
        if together is None or together.places or together.branch is not None:
            self.double_one_by_one(None)
        self.note(together)

    def become_small(self) -> None:
        """Change all sizes to 1; label by label where that shows another constant."""
        together = self.first_that_fits([probes.smallest(self.sizes, self.sizes)])
        if together is None or together.places:
            self.label_by_label(together, lambda label: [probes.smallest(self.sizes, [label])])
        self.note(together)

    def change_rests(self) -> None:
        """Make all sizes a little larger, by the least step at which the model runs: whole patches, whole windows."""
        for step in STEPS:
            together = self.first_that_fits([probes.beside(self.sizes, self.sizes, step)])
            if together is not None:
                self.has_grown = not together.places and together.branch is None
                if together.places:
                    self.label_by_label(together, functools.partial(self._beside, step))
                self.note(together)
                return

    def _beside(self, step: int, label: str) -> list[Sizes]:
        return [probes.beside(self.sizes, [label], step)]

    def become_far(self) -> None:
        """Make each label that is not held much longer, by the largest factor at which the model runs.

        A sum grows with its parts; alone it would fit nothing.
        """
        left_out = {item.axis for item in self.held()} | probes.sums_among(self.sizes).keys()
        for label in self.labels:
            if label in left_out or not self.sizes[label]:
                continue
            self.cut_short = False
            tried = self.sizes[label]
            for goal in FAR:
                factor = -(-goal // self.sizes[label])
                if factor > 2 and self.note_far(label, factor):
                    tried *= factor
                    break
            if self.cut_short:
                self.branches.append(
                    f"the model makes too many calls where {label!r} is large; sizes far above {tried} were not tried"
                )

    def note_far(self, label: str, factor: int) -> bool:
        """Note what differs where a label is so many times longer; False where the model does not run there.

        First everything grows that may have to fit the label.  What differs there is tried with the label alone, too.
        """
        attempts = list(probes.doubled(self.sizes, label, not self.few, factor))
        for sizes in reversed(attempts):
            if self.count(sizes) > MANY_FAR:
                continue
            probe = self.first_that_fits([sizes], far=True)
            if probe is None:
                continue
            if probe.branch is None or sizes == attempts[-1]:
                self.note(probe)
            if probe.places and sizes != attempts[0]:
                alone = self.first_that_fits(attempts[:1], far=True)
                self.note(alone if alone is not None and alone.branch is None else None)
            return True
        return False

    def in_doubt(self) -> Iterator[str]:
        """The lines of decisions that may be others at sizes that were not tried."""
        first, every = self.first, map(self._with_derived, probes.of_all_magnitudes(self.sizes))
        plan = first.asked.plan if first.asked is not None and first.decisions else None
        return decisions.in_doubt(first.decisions, self.harmless, plan, map(self._shapes, every))

    def _with_derived(self, sizes: Sizes) -> Sizes:
        return {**sizes, **{label: size(sizes[root]) for label, (root, size) in self.derived.items()}}

    def count(self, sizes: Sizes) -> int:
        """The values in the inputs at these sizes."""
        return sum(math.prod(shape) for shape in self._shapes(sizes))

    def label_by_label(self, together: _Probe | None, alone: Callable[[str], Iterable[Sizes]]) -> None:
        for label in self.labels:
            probe = self.first_that_fits(alone(label))
            # a path that is taken only where sizes change alone is that of sizes which do not fit each other
            if probe is not None and (together is None or probe.branch is None):
                self.note(probe)

    def note(self, probe: _Probe | None) -> None:
        """Keep what a probe says."""
        if probe is not None:
            self.probes.append(probe)
            self.branches += [probe.branch] if probe.branch is not None else []

    def longer(self) -> Iterator[Sizes]:
        """All sizes larger, at first independent of each other."""
        for sizes in (*(probes.together(self.sizes, classes) for classes in (False, True)), probes.twice(self.sizes)):
            if self.count(sizes) <= MANY:
                yield sizes

    def held(self) -> list[Specialised]:
        """For each place with another constant, the labels that it follows from."""
        found: dict[str, Specialised] = {}
        for place in dict.fromkeys(place for probe in self.probes for place in probe.places):
            differ = [probe.changed for probe in self.probes if place in probe.places]
            others = [probe for probe in self.probes if place not in probe.places and probe.branch is None]
            free = {label for probe in others for label in probe.changed}
            # all of them changed it, so what they have in common explains it
            shared = set.intersection(*differ)
            for label in shared - free or set.union(*differ) - free or shared or set.union(*differ):
                found.setdefault(label, Specialised(label, self.sizes[label], place))
        return [found[label] for label in self.sizes if label in found]

    def first_that_fits(self, attempts: Iterable[Sizes], far: bool = False) -> _Probe | None:
        """The trace at the first sizes at which the model takes the example's path, else at the last that it takes."""
        probe = None
        for independent in attempts:
            sizes = self._with_derived(independent)
            changed = {label for label, size in sizes.items() if size != self.sizes[label]}
            if not changed:
                continue
            shapes = self._shapes(sizes)
            others = self._other_numbers(shapes)
            differs = next(iter(others.items())) if others else None
            if differs is None:  # Python gets the same numbers, so the model makes the same calls
                return _Probe(changed, [], None)
            if differs in self.paths:  # the model takes a path that was seen
                continue
            tensors = self._resized(shapes)
            said = {label: size for label, size in sizes.items() if label in changed}
            if differs != _UNKNOWN and self.first.runs is not None:
                compared = self.first.runs.beside(tensors)
                if compared.same:
                    self.harmless |= others.keys()
                    return _Probe(changed, [], None)
                branch = self._other_path(others, compared.lines, said)
                if branch is not None:
                    probe = _Probe(changed, [], branch)
                    self.paths.add(differs)
                    continue
            try:
                other = self.again(tensors, far)
            except ExportError as error:  # the model does not run on those sizes, or takes too long there
                self.cut_short |= isinstance(error.__cause__, TooManyCallsError)
                continue
            difference = _Difference(self.first, other)
            probe = _Probe(changed, difference.places, difference.branch(said))
            if probe.branch is None:
                self.harmless |= set() if probe.places else others.keys()
                break
            if differs != _UNKNOWN and not probe.places:
                self.paths.add(differs)
        return probe

    def _other_path(self, others: Mapping[int, Any], lines: Lines | None, sizes: Sizes) -> str | None:
        """A remark on the other path that the model takes at some sizes, where decisions are all that differs.

        A number that follows from one of them goes the way of the remark.
        """
        at = {item.place: item.line for item in reversed(self.first.decisions)}
        if lines is None or not others.keys() <= at.keys():
            return None
        mine = self.lines_of_example
        shared = mine.keys() & lines if mine is not None else set()
        # of the operators that both paths run, another number or another count of steps may be that of a size
        if mine is None or mine.keys() == lines.keys() or any(mine[one] != lines[one] for one in shared):
            return None
        first, *more = dict.fromkeys(at[place] for place in others)
        value = bool(next(iter(others.values())))
        return _said_of_decision(first, not value, value, sizes, more)

    @functools.cached_property
    def lines_of_example(self) -> Lines | None:
        """The lines of the model that run at the sizes of the example."""
        return self.first.runs.example() if self.first.runs is not None else None

    def _other_numbers(self, shapes: Sequence[Sequence[int]]) -> dict[int, Any]:
        """Those that Python gets and that are not the example's, by their place among all; at least the first."""
        if self.first.asked is None or self.first.asked.plan is None:
            differs = self._first_other_number(self._resized(shapes))
            return {} if differs is None else dict([differs])
        numbers = self.first.asked.plan.at([tuple(shape) for shape in shapes])
        pairs = enumerate(zip(self.first.asked.numbers, numbers, strict=False))
        others = {place: other for place, (mine, other) in pairs if not _is_same(mine, other)}
        return others or ({} if len(numbers) == len(self.first.asked.numbers) else dict([_UNKNOWN]))

    def _first_other_number(self, tensors: Sequence[torch.Tensor]) -> tuple[int, Any] | None:
        """The first number that Python gets and that is not the example's, with its place among them."""
        if self.first.asked is None:
            return _UNKNOWN
        for few in (self.decided, self.first.asked.head):
            if few is not None:
                with suppress(UnfitError):
                    differs = _first_other(few, tensors)
                    if differs is not None:
                        return differs
        asked: Asked | None = self.first.asked
        while asked is not None:
            try:
                differs = _first_other(asked, tensors)
            except UnfitError:  # beyond a number that differs, the calls may not fit the sizes
                asked = asked.half
                continue
            if differs is not None:
                self.decided = self.decided or self.first.asked.up_to(differs[0])
                return differs
            return None if asked is self.first.asked else _UNKNOWN
        return _UNKNOWN

    def _shapes(self, sizes: Sizes) -> list[list[int]]:
        shapes = [list(tensor.shape) for tensor in self.tensors]
        for shape, named in zip(shapes, self.axes, strict=True):
            for axis, label in named.items():
                shape[axis] = sizes[label]
        return shapes

    def _resized(self, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """The example's tensors, repeated or cut to other shapes; empty ones are filled with zeros."""
        found = []
        for tensor, shape in zip(self.tensors, shapes, strict=True):
            other = tensor
            for axis, size in enumerate(shape):
                if tensor.shape[axis] == 0 and size:
                    other = other.new_zeros([*other.shape[:axis], size, *other.shape[axis + 1 :]])
                elif size != tensor.shape[axis]:
                    copies = -(-size // tensor.shape[axis])
                    other = torch.cat([other] * copies, axis).narrow(axis, 0, size)
            found.append(other)
        return found


def _first_other(asked: Asked, tensors: Sequence[torch.Tensor]) -> tuple[int, Any] | None:
    """The first of the numbers that is not the example's.  Raises UnfitError where they cannot be found out."""
    numbers = enumerate(zip(asked.numbers, asked.at(tensors), strict=True))
    return next(((place, other) for place, (mine, other) in numbers if not _is_same(mine, other)), None)


class _Difference:
    """What differs between two traces of one model.

    Calls are matched by target and line, and by their order among those.  Only where a target has another number of
    calls are the lines looked up, because that takes time.
    """

    def __init__(self, one: Taken, other: Taken) -> None:
        self.one, self.other = one, other
        self.constants = [_constants(one.graph), _constants(other.graph)]
        self.places: list[str] = []
        self.first_other: str | None = None  # the place of the first call that only one of the two makes
        calls = list(every_call(one.graph.calls)), list(every_call(other.graph.calls))
        if [call.target for call in calls[0]] == [call.target for call in calls[1]]:
            origins = [_origins(one.graph), _origins(other.graph)]
            before = Source()
            for mine, theirs in zip(*calls, strict=True):
                self._compare(mine, theirs, before, origins)
                before = before if mine.target == "prim::getitem" else mine.source
            ends = [list(one.graph.outputs), list(other.graph.outputs)]
            if not self._same(ends[0], ends[1], origins):
                self.places.append("the model's results")
        else:
            self._compare_by_line()

    def branch(self, sizes: Sizes) -> str | None:
        """A remark on the paths where they differ: the first decision that differs, else the first call."""
        if self.first_other is None:
            return None
        for mine, theirs in zip(self.one.decisions, self.other.decisions, strict=False):
            if mine.line != theirs.line:
                break
            if mine.value != theirs.value:
                return _said_of_decision(mine.line, mine.value, theirs.value, sizes)
        return (
            f"the model makes other calls from {self.first_other} on where {_said(sizes)}; the file has the calls of "
            "the example for all sizes"
        )

    def _compare_by_line(self) -> None:
        without_line: list[tuple[int, str]] = []  # and after how many places
        for key, mine, theirs in _matched(*(list(every_call(taken.graph.calls)) for taken in (self.one, self.other))):
            source = (mine or theirs)[0].source
            place = str(source)
            if not mine or not theirs:
                self.first_other = self.first_other or place
            elif len(mine) != len(theirs) and mine[0].base == "aten::size":
                continue  # what reads a size is recorded where it is used: another path uses it once more
            elif len(mine) != len(theirs):  # so many steps, where it is one line
                if mine[0].source.line:
                    self.places.append(key[1] or place)
                else:
                    without_line.append((len(self.places), key[1] or place))
            else:
                for one, other in zip(mine, theirs, strict=True):
                    self._compare(one, other, source, None)
        if self.first_other is None:
            for position, place in reversed(without_line):
                self.places.insert(position, place)

    def _compare(self, mine: Call, theirs: Call, before: Source, origins: Any) -> None:
        """Note the place of two calls with other constants.  A further element of a list comes from the call before."""
        without = _without_effect(theirs)
        args = [
            [
                *(arg for name, arg in call.args.items() if name not in without),
                *(block.outputs for block in call.blocks),
            ]
            for call in (mine, theirs)
        ]
        if not self._same(args[0], args[1], origins):
            self.places.append(str(before if theirs.target == "prim::getitem" else mine.source))

    def _same(self, one: Any, other: Any, origins: Any) -> bool:
        if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(self._same(mine, theirs, origins) for mine, theirs in pairs)
        if isinstance(one, AtenValue) and isinstance(other, AtenValue):
            mine, theirs = self.constants[0].get(one), self.constants[1].get(other)
            if mine is None or theirs is None:
                return mine is theirs and (origins is None or origins[0].get(one) == origins[1].get(other))
            return mine.dtype == theirs.dtype and torch.equal(mine, theirs)
        return _is_same(one, other) or (
            isinstance(one, AtenValue) is not isinstance(other, AtenValue) and self._equal(one, other)
        )

    def _equal(self, one: Any, other: Any) -> bool:
        """Whether one trace holds the number that the other computes: `max(h / w, 1.0)` takes one of the two."""
        computed, number, graph = (
            (one, other, self.one.graph) if isinstance(one, AtenValue) else (other, one, self.other.graph)
        )
        if not isinstance(number, (int, float)) or not isinstance(computed.type, ScalarType):
            return False
        return bool(_evaluated(computed, {value: call for call in graph.calls for value in call.outputs}) == number)


def _said_of_decision(line: str, mine: bool, theirs: bool, sizes: Sizes, more: Sequence[str] = ()) -> str:
    way = "the way of the example" if more else f"the way of {mine}"
    others = f", and gets another answer at {', '.join(more)}, too" if more else ""
    return (
        f"the model compares sizes at {line}, with {mine} for the example and {theirs} where {_said(sizes)}{others}; "
        f"the file goes {way} for all sizes"
    )


def _said(sizes: Sizes) -> str:
    return ", ".join(f"{label!r} is {size}" for label, size in sizes.items())


def _evaluated(item: Any, makers: Mapping[AtenValue, Call]) -> Any:
    """The number that a value is, computed from the recorded sizes; None where it follows from something else."""
    if not isinstance(item, AtenValue):
        return item
    call = makers.get(item)
    if call is None:
        return None
    if call.target == "aten::size.int":
        return call.args["self"].tensor.shape[call.args["dim"]]
    if not scalars.is_scalar_operator(call.base):
        return None
    args = {name: _evaluated(arg, makers) for name, arg in call.args.items()}
    unknown = any(args[name] is None for name, arg in call.args.items() if isinstance(arg, AtenValue))
    return None if unknown else scalars.evaluate(call.base, args)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def _without_effect(call: Call) -> tuple[str, ...]:
    """Arguments that do not matter at the recorded sizes: models turn `is_causal` off for a single query."""
    if call.base == "aten::scaled_dot_product_attention":
        lengths = [call.args[name].tensor.shape[-2:-1] for name in ("query", "key")]
        return ("is_causal",) if lengths == [(1,), (1,)] else ()
    return ()


def _constants(graph: AtenGraph) -> dict[AtenValue, torch.Tensor]:
    return {item.value: item.tensor for item in graph.inputs if item.kind == "constant" and item.tensor is not None}


def _origins(graph: AtenGraph) -> dict[AtenValue, tuple[int, int]]:
    """Where each value comes from: the position of its call, and its position among the results."""
    found: dict[AtenValue, tuple[int, int]] = {}
    for at, call in enumerate(every_call(graph.calls)):
        found |= {value: (at, place) for place, value in enumerate(call.outputs)}
        given = [value for block in call.blocks for value in block.inputs]
        found |= {value: (at, -1 - place) for place, value in enumerate(given)}
    inputs = [item.value for item in graph.inputs if item.kind != "constant"]
    return found | {value: (-1, place) for place, value in enumerate(inputs)}


def _matched(ours: Sequence[Call], others: Sequence[Call]) -> Iterator[tuple[tuple[str, str], list[Call], list[Call]]]:
    """The calls of two traces by target and line.

    Where their numbers differ, the lines that led there count, too: a function that one path calls once more, from
    another line, is no further step.
    """
    groups = _by_line(ours), _by_line(others)
    for key in dict.fromkeys([*groups[0], *groups[1]]):
        mine, theirs = (group.get(key, []) for group in groups)
        if not mine or not theirs or len(mine) == len(theirs):
            yield key, mine, theirs
            continue
        stacks = _by_stack(mine), _by_stack(theirs)
        for stack in dict.fromkeys([*stacks[0], *stacks[1]]):
            yield key, stacks[0].get(stack, []), stacks[1].get(stack, [])


def _by_stack(calls: Sequence[Call]) -> dict[tuple[Frame, ...], list[Call]]:
    found: dict[tuple[Frame, ...], list[Call]] = {}
    for call in calls:
        found.setdefault(call.source.stack, []).append(call)
    return found


def _by_line(calls: Sequence[Call]) -> dict[tuple[str, str], list[Call]]:
    """Calls by target and stack; elements of a list by the line before them."""
    found: dict[tuple[str, str], list[Call]] = {}
    before = ""
    for call in calls:
        before = before if call.target == "prim::getitem" else str(call.source)
        found.setdefault((call.target, before), []).append(call)
    return found
