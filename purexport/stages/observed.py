"""An export of calls that were observed: the example, its dynamic axes, and the calls that the file is verified on.

Axes with equal sizes in all calls share a label, except axes of one tensor: pictures are often square.  A tracer cannot
tell a size of 1 from a broadcast axis, and one of 0 from no tokens.  So where a dynamic axis has such a size in the
example, the example gets another one, and sizes that were sums of it in all calls follow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.axes import Axes
from purexport.aten.unique_names import UniqueNames
from purexport.frontends.core.free_axes import FreeAxes, label_of, resized
from purexport.frontends.core.mode import copied, exporting, preserved, select_model_mode_for_export
from purexport.frontends.core.observed import Observed, ObservedCall, ObservedForm, Place
from purexport.frontends.core.request import Flat, Request, argument_names, flatten, named_axes
from purexport.lock import alone
from purexport.options import Options

_FEWEST = 2  # the first size that is neither empty nor broadcast
_Column = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ObservedArguments:
    """What observed calls stand for: the arguments of the example, the options with the axes and calls to verify,
    which leaves of the arguments are numbers that varied, and remarks.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    free_axes: FreeAxes
    numbers: frozenset[int]
    remarks: list[str]


@dataclass
class _ObservedAxis:
    """Axes whose sizes were equal in all calls: their places, and these sizes."""

    places: list[Place]
    sizes: _Column
    label: str = ""


def taken(model: Any, observed: Observed, kwargs: Mapping[str, Any] | None, options: Options) -> ObservedArguments:
    """The export that observed calls ask for.

    Raises ExportError if no call was seen, ValueError for `kwargs` beside the calls.
    """
    if kwargs:
        raise ValueError("kwargs are among the observed calls; give them in the call that is observed")
    form = observed.form
    best = form.best
    args, keywords = best.arguments
    request = Request(model, args, keywords, options.capture, options.input_names, options.dynamic_axes)
    flat = flatten(request)
    given = named_axes(request, flat.names, flat.tensors, flat.paths)
    groups = _labelled(_groups(form), flat, given)
    remarks = observed.remarks()
    sizes = _sizes(groups, form.calls.index(best))
    if sizes:
        other = _at_sizes(flat, sizes)
        if _runs(model, other, options):
            args, keywords = other
        else:
            names = ", ".join(sorted({group.label for group in groups if group.places[0] in sizes}))
            remarks.append(
                f"the example has sizes of 0 or 1 on {names}, because the model does not run on it at others"
            )
    found = _free(groups, flat, form, given)
    if options.dynamic_shapes is None:
        options = dataclasses.replace(options, dynamic_axes=_declared(model, options, flat, found, given))
    if options.verify is True:
        options = dataclasses.replace(options, verify=[_as_args(call) for call in _to_verify(form, sizes)])
    return ObservedArguments(args, keywords, options, found, frozenset(form.varied_numbers()), remarks)


def _groups(form: ObservedForm) -> list[_ObservedAxis]:
    """The axes that varied, by the sizes that they had."""
    found: dict[tuple[_Column, int], _ObservedAxis] = {}
    before: dict[tuple[_Column, int], int] = {}
    for place, column in form.vectors().items():
        if len(set(column)) > 1:
            turn = before.get((column, place[0]), 0)
            before[column, place[0]] = turn + 1
            found.setdefault((column, turn), _ObservedAxis([], column)).places.append(place)
    return list(found.values())


def _labelled(groups: list[_ObservedAxis], flat: Flat, given: Mapping[str, Axes]) -> list[_ObservedAxis]:
    """The groups with labels: those that the user gave to one of their axes, or else names of their first places."""
    names = UniqueNames(label for axes in given.values() for label in axes.values())
    every = {place for group in groups for place in group.places if place[1] == 0}
    for group in groups:
        labels = [given.get(flat.names[place], {}).get(axis) for place, axis in group.places]
        own = next((label for label in labels if label is not None), None)
        group.label = own or names.unique(label_of(group.places, every, flat.names, flat.paths))
    return groups


def _sizes(groups: Sequence[_ObservedAxis], call: int) -> dict[Place, int]:
    """The sizes of the example that must be others: none is 0 or 1, and sums of two groups hold."""
    small = [group for group in groups if group.sizes[call] < _FEWEST]
    if not small:
        return {}
    sums = [
        (whole, one, other)
        for one, other in itertools.combinations(groups, 2)
        for whole in groups
        if all(c == a + b for a, b, c in zip(one.sizes, other.sizes, whole.sizes, strict=True))
    ]
    made = {id(group): group.sizes[call] for group in groups}
    used = {*made.values()}
    wholes = {id(whole) for whole, _, _ in sums}
    for group in small:
        if id(group) not in wholes:
            size = next(size for size in itertools.count(_FEWEST) if size not in used)
            made[id(group)] = size
            used.add(size)
    for whole, one, other in sums:
        made[id(whole)] = made[id(one)] + made[id(other)]
    return {
        place: made[id(group)] for group in groups for place in group.places if made[id(group)] != group.sizes[call]
    }


def _at_sizes(flat: Flat, sizes: Mapping[Place, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with these sizes of axes; elements are repeated."""
    tensors = []
    for position, tensor in enumerate(flat.tensors):
        shape = [sizes.get((position, axis), size) for axis, size in enumerate(tensor.shape)]
        tensors.append(resized(tensor, shape))
    return flat.rebuild(tensors)


def _runs(model: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], options: Options) -> bool:
    args, kwargs = copied(arguments)
    mode = select_model_mode_for_export(model, options.training)
    with alone(), mode, preserved(model), exporting(), torch.no_grad():
        try:
            model(*args, **kwargs)
        except Exception:  # whatever the model says about sizes that are not its own
            return False
    return True


def _free(groups: Sequence[_ObservedAxis], flat: Flat, form: ObservedForm, given: Mapping[str, Axes]) -> FreeAxes:
    """The axes for the pipeline and the report."""
    found = FreeAxes(given=frozenset(label for axes in given.values() for label in axes.values()))
    for group in groups:
        for position, axis in group.places:
            found.dynamic.setdefault(flat.names[position], {})[axis] = group.label
    calls = len(form.calls)
    seen = "as in the one call that was observed" if calls == 1 else f"as in all {calls} calls that were observed"
    for (position, axis), _ in form.vectors().items():
        name = flat.names[position]
        if axis not in found.dynamic.get(name, {}) and axis not in given.get(name, {}):
            found.static.setdefault(name, {})[axis] = seen
    return found


def _declared(
    model: Any, options: Options, flat: Flat, found: FreeAxes, given: Mapping[str, Axes]
) -> Mapping[str, Any] | None:
    """`dynamic_axes` with what was observed; what the user gave goes before."""
    inputs = {*flat.names, *argument_names(model, flat.rebuild(flat.tensors))}
    axes: dict[str, Any] = {name: own for name, own in (options.dynamic_axes or {}).items() if name not in inputs}
    for name in flat.names:
        own = {**found.dynamic.get(name, {}), **given.get(name, {})}
        if own:
            axes[name] = own
    return axes or None


def _to_verify(form: ObservedForm, sizes: Mapping[Place, int]) -> list[ObservedCall]:
    """The calls on which the file is verified beside the example."""
    calls = [call for call in form.kept if call is not form.best or sizes]
    return sorted(calls, key=lambda call: call.place)


def _as_args(call: ObservedCall) -> tuple[Any, ...]:
    args, kwargs = call.arguments
    return (*args, kwargs)
