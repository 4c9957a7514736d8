"""Calls of a module that were seen, as the arguments of an export: their forms, and which sizes and numbers varied.

Calls have one form if their arguments have the same structure, the same dtypes and numbers of axes, and are equal
where they are neither tensors nor numbers.  A cache without tokens is the same form as one with tokens, of length 0.

Tensors are kept by reference, and of each form those of two calls at most: the best example so far, and the call that
differs from it most.  Of all calls the shapes and numbers are kept.  Invariant: what is kept shares no container with
the caller's objects, because models change their caches in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from proto_schema.units import counted
from proto_schema.wire.records import dataclass
from purexport.errors import ExportError
from purexport.frontends.core.request import argument_name
from purexport.frontends.core.structures import Path, StructureNode, apart, is_number, joined, mapped

Place = tuple[int, int]  # the position of a tensor, and one of its axes
Shape = tuple[int, ...]
_LENGTH = -2  # the axis of keys and values that grows
_MOST_DIFFERENCES = 3  # that an error or a line of text names
_MOST_SIZES = 4


@dataclass(frozen=True)
class ObservedEntry:
    """What a form says of one leaf: its path, and the text that all its calls share.

    `axes` is the number of axes of a tensor, and None for other leaves.  `grows` marks a tensor of a cache of keys and
    values.
    """

    path: Path
    text: str
    axes: int | None = None
    number: bool = False
    grows: bool = False


@dataclass(eq=False)
class ObservedCall:
    """One call: its place among all calls of the module, the shapes of its tensors, its numbers, and its arguments.

    `tree` is None where the arguments are not kept.
    """

    place: int
    shapes: list[Shape]
    numbers: list[Any]
    tree: StructureNode | None = None

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args` and `kwargs` of a call that is kept, in containers of their own."""
        assert self.tree is not None
        args, kwargs = self.tree.rebuilt(leaf for _, leaf in self.tree.leaves())
        return args, kwargs

    def differs(self, other: ObservedCall) -> int:
        """On how many axes the sizes are others."""
        pairs = zip(self.shapes, other.shapes, strict=True)
        return sum(one != two for mine, theirs in pairs for one, two in zip(mine, theirs, strict=True))


@dataclass
class ObservedForm:
    """Calls of one form, in their order."""

    entries: tuple[ObservedEntry, ...]
    calls: list[ObservedCall] = field(default_factory=list)
    kept: list[ObservedCall] = field(default_factory=list)  # those that have their arguments

    def add(self, call: ObservedCall) -> None:
        """Take a call, and let go of the arguments of a call that is no longer needed."""
        self.calls.append(call)
        self.kept.append(call)
        needed = (self.best, self.other)
        for gone in [kept for kept in self.kept if kept not in needed]:
            gone.tree = None
            self.kept.remove(gone)

    @property
    def best(self) -> ObservedCall:
        """The example: of the calls that are kept, one with as few sizes of 0 and 1 as there are; 0 counts twice."""
        return min(self.kept, key=lambda call: sum(max(2 - size, 0) for shape in call.shapes for size in shape))

    @property
    def other(self) -> ObservedCall | None:
        """The kept call whose sizes, or else numbers, differ most from those of the best one."""
        best = self.best
        rest = [call for call in self.kept if call is not best]
        return max(rest, key=lambda call: (call.differs(best), call.numbers != best.numbers), default=None)

    def vectors(self) -> dict[Place, Shape]:
        """The sizes of each axis, one per call."""
        axes = [(position, axis) for position, shape in enumerate(self.calls[0].shapes) for axis in range(len(shape))]
        return {(place, axis): tuple(call.shapes[place][axis] for call in self.calls) for place, axis in axes}

    def varied_numbers(self) -> list[int]:
        """Which leaves are numbers that varied."""
        leaves = [place for place, entry in enumerate(self.entries) if entry.number]
        columns = zip(*(call.numbers for call in self.calls), strict=True)
        return [leaf for leaf, column in zip(leaves, columns, strict=True) if len(set(column)) > 1]


class Observed:
    """The calls that `purexport.observe` saw; `purexport.export` takes it in place of the arguments.

    `print` shows the forms with the sizes and numbers that varied.  `len` is the number of calls.
    """

    def __init__(self, name: str, parameters: Sequence[str] = (), forms: Sequence[ObservedForm] = ()) -> None:
        self.name = name
        self.refused: ExportError | None = None  # why calls could not be noted
        self.parts: list[str] = []  # the parts of a module that were called, where it was not
        self._parameters = parameters
        self._forms = list(forms)

    def add(self, tree: StructureNode | ExportError) -> None:
        """Take a call with these arguments, which `arguments_as` made."""
        if isinstance(tree, ExportError):
            self.refused = tree
            return
        entries = tuple(_entries(tree))
        leaves = [leaf for _, leaf in tree.leaves()]
        shapes = [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        numbers = [leaf for leaf, entry in zip(leaves, entries, strict=True) if entry.number]
        form = next((form for form in self._forms if form.entries == entries), None)
        if form is None:
            form = ObservedForm(entries)
            self._forms.append(form)
        form.add(ObservedCall(len(self), shapes, numbers, tree))

    def __len__(self) -> int:
        return sum(len(form.calls) for form in self._forms)

    @property
    def forms(self) -> list[Observed]:
        """The calls of each form, in the order of their first calls.  Each can be exported by itself."""
        return [Observed(self.name, self._parameters, [form]) for form in _merged(self._forms)]

    @property
    def form(self) -> ObservedForm:
        """The first form.  Raises ExportError if no call was seen."""
        if self.refused is not None and not self._forms:
            raise self.refused
        if not self._forms:
            if self.parts:
                raise ExportError(
                    f"no call of the {self.name} was seen, but of its {', '.join(self.parts)}: observe one of these, "
                    "or the method that calls them, as in purexport.observe(model.decode)",
                    code="no-call-observed",
                )
            raise ExportError(
                f"no call of the {self.name} was seen; run the model inside the block: "
                "with purexport.observe(module) as seen: pipe(...)",
                code="no-call-observed",
            )
        return _merged(self._forms)[0]

    def remarks(self) -> list[str]:
        """What the user should know: calls of other forms, which a file of the first one does not take."""
        first, *others = _merged(self._forms)
        return [
            f"{counted(len(form.calls), 'call')} of the {self.name} had another form than the first: "
            f"{self._difference(first, form)}; the file is for the first form, and seen.forms[{number}] is for an "
            "export of the other"
            for number, form in enumerate(others, 1)
        ]

    def _difference(self, one: ObservedForm, other: ObservedForm) -> str:
        """How the second form differs, in words."""
        mine, theirs = ({entry.path: entry for entry in form.entries} for form in (one, other))
        found = []
        for path in dict.fromkeys([*theirs, *mine]):
            first, second = mine.get(path), theirs.get(path)
            if first != second:
                name = self._name(path)
                gone = "is missing" if second is None else f"is {second.text}"
                found.append(f"{name} {gone}" + ("" if first is None else f", not {first.text}"))
        more = len(found) - _MOST_DIFFERENCES
        return ", ".join(found[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")

    def _name(self, path: Path) -> str:
        return joined((path[0]._replace(text=argument_name(path, self._parameters)), *path[2:]))

    def __str__(self) -> str:
        lines = [f"{counted(len(self), 'call')} of the {self.name}"]
        forms = _merged(self._forms)
        for number, form in enumerate(forms):
            if len(forms) > 1:
                lines.append(f"form {number}: {counted(len(form.calls), 'call')}")
            lines += [f"  {self._name(entry.path)}  {text}" for entry, text in _described(form)]
        return "\n".join(lines)

    __repr__ = __str__


def arguments_as(args: tuple[Any, ...], kwargs: dict[str, Any]) -> StructureNode | ExportError:
    """The arguments of a call before it, in containers of their own; an error where they cannot be taken to pieces."""
    try:
        return apart(mapped(_itself, (args, kwargs)))
    except ExportError as refused:  # it is none of the caller's, who runs a pipeline
        return refused


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _entries(node: StructureNode, path: Path = (), grows: bool = False) -> Iterator[ObservedEntry]:
    """The leaves of a tree, as `StructureNode.leaves` gives them."""
    if node.kind is None:
        yield _entry(path, node.item, grows)
        return
    grown = node.kind.changes and all(
        steps[-1].text in ("key", "value") and isinstance(part.item, torch.Tensor) and part.item.dim() == 4
        for steps, part in zip(node.paths, node.parts, strict=True)
    )
    grown = grown and all(not hasattr(layer, "max_cache_len") for layer in getattr(node.item, "layers", ()))
    grown = grown and not any(step.text in ("decoder", "encoder") for steps in node.paths for step in steps)
    for steps, part in zip(node.paths, node.parts, strict=True):
        yield from _entries(part, path + steps, grown)


def _entry(path: Path, leaf: Any, grows: bool) -> ObservedEntry:
    if isinstance(leaf, torch.Tensor):
        text = f"{str(leaf.dtype).removeprefix('torch.')} with {counted(leaf.dim(), 'axis', 'axes')}"
        return ObservedEntry(path, text, leaf.dim(), grows=grows)
    if is_number(leaf) and not isinstance(leaf, bool):
        return ObservedEntry(path, f"a number ({type(leaf).__name__})", number=True)
    plain = leaf is None or isinstance(leaf, (bool, str, bytes))
    return ObservedEntry(path, repr(leaf) if plain else f"a {type(leaf).__name__}")


def _merged(forms: Sequence[ObservedForm]) -> list[ObservedForm]:
    """The forms, with calls whose cache is empty among those that have one of keys and values."""
    found = list(forms)
    for full in forms:
        rest = tuple(entry for entry in full.entries if not entry.grows)
        empty = next((form for form in found if form.entries == rest), None)
        if len(rest) == len(full.entries) or empty is None:
            continue
        calls = [*full.calls, *(_with_cache(call, full) for call in empty.calls)]
        calls.sort(key=lambda call: call.place)
        both = ObservedForm(full.entries, calls, [call for call in calls if call.tree is not None])
        found[found.index(empty)] = both
        found.remove(full)
    return found


def _with_cache(call: ObservedCall, full: ObservedForm) -> ObservedCall:
    """A call with an empty cache, as one with a cache of length 0 whose tensors are like those of another form."""
    like = full.best
    tensors = [entry for entry in full.entries if entry.axes is not None]
    own = iter(call.shapes)
    shapes = []
    batch = call.shapes[0][0] if call.shapes and call.shapes[0] else 1
    for entry, shape in zip(tensors, like.shapes, strict=True):
        shapes.append((batch, *shape[1:_LENGTH], 0, *shape[_LENGTH + 1 :]) if entry.grows else next(own))
    if call.tree is None or like.tree is None:
        return ObservedCall(call.place, shapes, call.numbers)
    mine = (leaf for _, leaf in call.tree.leaves())
    sizes = iter(shapes)
    leaves = []
    for entry, (_, leaf) in zip(full.entries, like.tree.leaves(), strict=True):
        size = next(sizes) if entry.axes is not None else ()
        leaves.append(leaf.new_zeros(size) if entry.grows else next(mine))
    return ObservedCall(call.place, shapes, call.numbers, apart(like.tree.rebuilt(iter(leaves))))


def _described(form: ObservedForm) -> Iterator[tuple[ObservedEntry, str]]:
    """Each entry with its sizes, or with its numbers."""
    vectors = form.vectors()
    columns = iter(list(zip(*(call.numbers for call in form.calls), strict=True)))
    position = -1
    for entry in form.entries:
        if entry.axes is not None:
            position += 1
            sizes = [_spelled(vectors[position, axis]) for axis in range(entry.axes)]
            yield entry, f"{entry.text.partition(' ')[0]}[{', '.join(sizes)}]"
        elif entry.number:
            yield entry, _spelled(next(columns))
        else:
            yield entry, entry.text


def _spelled(column: Sequence[Any]) -> str:
    """`2 | 4 | 8`: the values of a column, each once."""
    values = list(dict.fromkeys(column))
    more = " | ..." if len(values) > _MOST_SIZES else ""
    return " | ".join(map(str, values[:_MOST_SIZES])) + more
