"""Names of inputs, parameters and outputs: names from the caller are kept, and derived names avoid them.

Derived names come from the parameters of `forward`, from `state_dict` and from the keys of the results.  The capture
makes them unique among inputs, among parameters and among outputs.  This module makes them unique together, before
anything refers to them by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

from purexport.aten.graph import AtenGraph, Input
from purexport.aten.unique_names import UniqueNames
from purexport.capture.core.module_tensors import owned_tensors


def order_inputs(inputs: list[Input], model: Any) -> list[Input]:
    """Sort the inputs: those of the user, then those in `state_dict` in its order, then the rest.

    Returns those that can be named, in order.  An input of the model that is not in `state_dict` cannot be named.
    A tied tensor gets the first of its names, whichever the model reads first.
    """
    listed = [item.names for item in owned_tensors(model) if item.persistent]
    order = {name: place for place, name in enumerate(name for names in listed for name in names)}
    users = [item for item in inputs if item.kind == "user"]
    own = [item for item in inputs if item.kind in ("parameter", "buffer") and item.name in order]
    own.sort(key=lambda item: order[item.name])
    first = {name: names[0] for names in listed for name in names}
    taken = {item.name for item in inputs}
    for item in own:
        if first[item.name] not in taken:
            item.name = first[item.name]
            taken.add(item.name)
    named = {id(item) for item in (*users, *own)}
    inputs[:] = [*users, *own, *(item for item in inputs if id(item) not in named)]
    return [*users, *own]


def name_inputs(named: Sequence[Input], names: Sequence[str]) -> None:
    """Give `input_names` to the first inputs that can be named.  Raises ValueError for too many names."""
    if len(names) > len(named):
        raise ValueError(
            f"input_names names {len(names)} values, and the model has {len(named)} inputs, parameters and buffers"
        )
    for item, name in zip(named, names, strict=False):
        item.name = name


def name_outputs(names: list[str], given: Sequence[str] | None) -> list[str]:
    """Give `output_names` to the first outputs.  Raises ValueError for too many names."""
    if given is not None and len(given) > len(names):
        raise ValueError(f"output_names names {len(given)} values, and the model has {len(names)}")
    return [*(given or ()), *names[len(given or ()) :]]


def make_way(
    graph: AtenGraph,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic_axes: Collection[str],
    state: Collection[Input] = (),
) -> None:
    """Rename, in place, each value with a derived name that the caller gave to another value: `x` becomes `x_1`.

    Raises ValueError where `dynamic_axes` uses such a name, because it could mean either value.  Raises it also where
    the name belongs to a buffer in `state`, which is an input and output of the file and is found by its name.
    """
    given = {*(input_names or ()), *(output_names or ())}
    names = UniqueNames({*given, *(item.name for item in graph.inputs), *graph.output_names})
    # the values that can be named come first, in the order of the names
    for item in [item for item in graph.inputs[len(input_names or ()) :] if item.name in given]:
        if item.kind == "user" and item.name in dynamic_axes:
            raise ValueError(
                f"dynamic_axes names {item.name!r}, which is an input's own name and is given to another value; "
                "name the input too, by input_names"
            )
        if item.kind != "user" and item in state:
            raise ValueError(
                f"{item.name!r} is the input of a buffer, by mutated_state='io', and is given to another value; "
                "give that another name"
            )
        item.name = names.unique(item.name)
    start = len(output_names or ())
    graph.output_names[start:] = [names.unique(name) if name in given else name for name in graph.output_names[start:]]


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
