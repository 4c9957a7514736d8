"""Names of inputs, parameters and outputs: names from the caller are kept, and derived names avoid them.

Derived names come from the parameters of `forward`, from `state_dict` and from the keys of the results.  The capture
makes them unique among inputs, among parameters and among outputs.  This module makes them unique together, before
anything refers to them by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from purexport.aten.graph import AtenGraph, AtenValue, Input
from purexport.aten.unique_names import UniqueNames
from purexport.frontends.core.module_tensors import owned_tensors


def ordered_and_named(inputs: Sequence[Input], model: Any, names: Sequence[str]) -> list[Input]:
    """The inputs sorted: those of the user, then those in `state_dict` in its order, then the rest.

    The first of them get `names`.  An input of the model that is not in `state_dict` cannot be named.  A tied tensor
    has the first of its names, whichever the model reads first.  Raises ValueError for too many names.
    """
    listed = [item.names for item in owned_tensors(model) if item.persistent]
    order = {name: place for place, name in enumerate(name for names in listed for name in names)}
    users = [item for item in inputs if item.kind == "user"]
    own = [item for item in inputs if item.kind in ("parameter", "buffer") and item.name in order]
    own.sort(key=lambda item: order[item.name])
    first = {name: names[0] for names in listed for name in names}
    taken = {item.name for item in inputs}
    rest = [item for item in inputs if item not in {*users, *own}]
    for place, item in enumerate(own):
        if first[item.name] not in taken:
            own[place] = replace(item, name=first[item.name])
            taken.add(own[place].name)
    named = [*users, *own]
    if len(names) > len(named):
        raise ValueError(
            f"input_names names {len(names)} values, and the model has {len(named)} inputs, parameters and buffers"
        )
    renamed = [replace(item, name=name) for item, name in zip(named, names, strict=False)]
    return [*renamed, *named[len(names) :], *rest]


def name_outputs(names: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """Give `output_names` to the first outputs.  Raises ValueError for too many names."""
    if given is not None and len(given) > len(names):
        raise ValueError(f"output_names names {len(given)} values, and the model has {len(names)}")
    return [*(given or ()), *names[len(given or ()) :]]


def make_way(
    graph: AtenGraph,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic_axes: Collection[str],
    state: Collection[AtenValue] = (),
) -> AtenGraph:
    """The graph in which no derived name is one that the caller gave to another value: `x` becomes `x_1`.

    Raises ValueError where `dynamic_axes` uses such a name, because it could mean either value.  Raises it also where
    the name belongs to a buffer whose value is in `state`: it is an input and output of the file, found by its name.
    """
    given = {*(input_names or ()), *(output_names or ())}
    names = UniqueNames({*given, *(item.name for item in graph.inputs), *graph.output_names})
    # the values that can be named come first, in the order of the names
    inputs = list(graph.inputs)
    for place, item in enumerate(inputs):
        if place < len(input_names or ()) or item.name not in given:
            continue
        if item.kind == "user" and item.name in dynamic_axes:
            raise ValueError(
                f"dynamic_axes names {item.name!r}, which is an input's own name and is given to another value; "
                "name the input too, by input_names"
            )
        if item.kind != "user" and item.value in state:
            raise ValueError(
                f"{item.name!r} is the input of a buffer, by mutated_state='io', and is given to another value; "
                "give that another name"
            )
        inputs[place] = replace(item, name=names.unique(item.name))
    start = len(output_names or ())
    derived = [names.unique(name) if name in given else name for name in graph.output_names[start:]]
    return replace(graph.with_inputs(inputs), output_names=[*graph.output_names[:start], *derived])


def unknown_axes(dynamic_axes: Iterable[str], known: Sequence[str], arguments: Collection[str] = ()) -> list[str]:
    """A remark on each name in `dynamic_axes` that belongs to no input, no output and no argument."""
    remarks = []
    for name in dynamic_axes:
        if name not in known and name not in arguments:
            nearest = max(known, key=partial(_likeness, name))
            remarks.append(
                f"dynamic_axes names {name!r}, which is left out: the inputs and outputs are {', '.join(known)}, "
                f"and the nearest is {nearest!r}"
            )
    return remarks


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()
