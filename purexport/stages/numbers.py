"""Export with the Python numbers among the arguments as inputs of the file, as a trace of torch.onnx has them.

A number becomes a zero-dim tensor before the stages run: int64, float64 or bool, also in containers of Python's own.
Where the capture or a later stage refuses that (an axis must be known, Python counts with the number), the number is
the constant that it was.  Invariant: a model that exports with numbers as constants exports here.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from purexport.errors import ExportError
from purexport.frontends.choose import takes_numbers
from purexport.frontends.core.request import NumbersHeldError, Request, flatten
from purexport.frontends.core.structures import apart, number_tensor
from purexport.stages.run import Run

T = TypeVar("T")
Stages = Callable[[Run], tuple[Run, T]]
_MOST_APART = 8  # more numbers than these are not tried one after the other


def with_numbers(run: Run, stages: Stages[T]) -> tuple[Run, T, list[str]]:
    """What `stages` give with as many numbers as possible as inputs, the run with tensors for them, and remarks on the
    others.

    Raises what `stages` raises where all numbers are constants.
    """
    places = _places(run)
    remarks: list[str] = []
    if not places:
        declared, made = stages(run)
        return declared if run.varying is None else _with_numbers_seen(run, declared, remarks), made, remarks
    done = _tried(run, places, stages, remarks)
    if done is None:
        remarks.clear()
        done = stages(run)  # raises what has nothing to do with the numbers
        taken: list[int] = []
        for place in places if 1 < len(places) <= _MOST_APART else ():
            other = _tried(run, [*taken, place], stages, remarks)
            if other is not None and len(other[0].numbers) > len(taken):
                taken, done = [*taken, place], other
        left = ", ".join(map(repr, _names(run, [place for place in places if place not in taken])))
        remarks.append(
            f"the Python numbers {left} among the arguments cannot be inputs of the file, because the model needs "
            "their values at the export; the file has the numbers of the example"
        )
    declared, made = done
    if run.varying is not None:
        declared = _with_numbers_seen(run, declared, remarks)
    return declared, made, list(dict.fromkeys(remarks))


def _with_numbers_seen(run: Run, declared: Run, remarks: list[str]) -> Run:
    """The run with the numbers that varied in observed calls among its constants, if no input stands for them.

    So a call of the file with another number is refused, also where the capture sees no effect of it: a loop in Python
    ran for the example's.
    """
    tree = apart(run.arguments)
    leaves = [leaf for _, leaf in tree.leaves()]
    places = [place for place, number in enumerate(tree.numbers()) if number or _is_tensor(leaves[place])]
    fixed = [index for index, place in enumerate(places) if not _is_tensor(leaves[place])]
    taken = _taken(declared, len(places))
    constants = {index: leaves[places[index]] for index in fixed if index not in taken}
    left = [places[index] for index in constants if places[index] in (run.varying or ())]
    if left and not remarks:
        remarks.append(
            f"the Python numbers {', '.join(map(repr, _names(run, left)))} varied in the observed calls, and are no "
            "inputs of the file, because the model takes them as numbers; the file has those of the example"
        )
    return dataclasses.replace(declared, constants=constants)


def _taken(declared: Run, count: int) -> set[int]:
    """Which of all tensors and numbers are inputs of the file."""
    if not declared.constants and not declared.numbers:
        return set()
    return {index for index in range(count) if index not in declared.constants}


def _places(run: Run) -> list[int]:
    """Which leaves of the arguments are numbers that may be inputs; none by a route that has none."""
    args, kwargs = run.arguments
    options = run.options
    request = Request(run.model, args, kwargs, options.capture, dynamic_shapes=options.dynamic_shapes)
    if run.weights.valueless_tensors or not takes_numbers(request):
        return []
    places = [place for place, number in enumerate(apart(run.arguments).numbers()) if number]
    return places if run.varying is None else [place for place in places if place in run.varying]


def _tried(run: Run, places: Sequence[int], stages: Stages[T], remarks: list[str]) -> tuple[Run, T] | None:
    """What `stages` give with the numbers at these places as inputs, less those that a trace holds; None if refused.

    Warnings are shown only if it is not.
    """
    taken = list(places)
    idle: list[int] = []
    while taken:
        given, positions = _with_tensors(run, taken, idle)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                done = stages(given)
            except NumbersHeldError as held:
                gone = [place for place, position in positions.items() if position in held.positions]
                taken = [place for place in taken if place not in gone]
                idle += gone if held.idle else []
                remarks += [held.remark] if held.remark is not None else []
                continue
            except ExportError:
                return None
        for item in caught:
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
        return done
    return stages(_with_tensors(run, [], idle)[0])


def _with_tensors(run: Run, taken: Sequence[int], idle: Sequence[int]) -> tuple[Run, dict[int, int]]:
    """The run with zero-dim tensors for the numbers at these places, and the position of each among the tensors."""
    tree = apart(run.arguments)
    leaves = [leaf for _, leaf in tree.leaves()]
    places = [place for place, number in enumerate(tree.numbers()) if number or _is_tensor(leaves[place])]
    tensors = [place for place in places if place in taken or _is_tensor(leaves[place])]
    fixed = {index: leaves[place] for index, place in enumerate(places) if place not in tensors}
    free = {index for index, place in enumerate(places) if place in idle}
    positions = {place: tensors.index(place) for place in taken}
    args, kwargs = tree.rebuilt(
        number_tensor(leaf) if place in positions else leaf for place, leaf in enumerate(leaves)
    )
    numbers = {position: leaves[place] for place, position in positions.items()}
    constants = {index: None if index in free else number for index, number in fixed.items()}
    return dataclasses.replace(run, args=args, kwargs=kwargs, numbers=numbers, constants=constants), positions


def _names(run: Run, places: Sequence[int]) -> list[str]:
    """The names that the numbers at these places would have as inputs."""
    given, positions = _with_tensors(run, places, [])
    request = Request(run.model, given.args, given.kwargs)
    names = flatten(request).names
    return [names[position] for position in positions.values()]


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)
