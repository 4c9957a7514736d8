"""Python numbers among the arguments: symbols for the model, and inputs of the file where the graph computes with them.

A number that Python itself takes (a count of steps, an axis) is a constant instead, with a remark.  So is one that the
model does something else with than with a number of Python, such as to ask for its class.  A bool among the arguments
decides how the model goes on; it is always a constant, and a call of the program with another one is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenGraph, values_in
from purexport.frontends.core.request import Flat, NumbersHeldError, Request
from purexport.frontends.trace.decisions import arguments_in
from purexport.frontends.trace.numbers import SYMBOLIC
from purexport.frontends.trace.recorder import Recorder
from purexport.frontends.trace.tensors import Recorded

Results = tuple[Recorder, Sequence[Any]]


def refuse_flags(request: Request) -> None:
    """Raise NumbersHeldError for bools, which are no inputs of the file."""
    flags = [place for place, number in request.numbers.items() if isinstance(number, bool)]
    if flags:
        raise NumbersHeldError(flags)


def with_numbers(
    recorder: Recorder, numbers: Mapping[int, Any], names: Sequence[str], tensors: Sequence[Recorded]
) -> list[Any]:
    """The tensors for the model, with symbols in place of those that stand for numbers."""
    return [
        recorder.number(tensor, name, numbers[place]) if place in numbers else tensor
        for place, (name, tensor) in enumerate(zip(names, tensors, strict=True))
    ]


def with_constants(flat: Flat, numbers: Mapping[int, Any]) -> Flat:
    """The arguments with the numbers as they are."""
    leaves = list(flat.leaves)
    for place, number in numbers.items():
        leaves[flat.positions[place]] = number
    left = [place for place in range(len(flat.names)) if place not in numbers]
    return dataclasses.replace(
        flat, leaves=leaves, positions=[flat.positions[at] for at in left], names=[flat.names[at] for at in left]
    )


def refuse_unused(request: Request, names: Sequence[str], recorder: Recorder, graph: AtenGraph) -> None:
    """Raise NumbersHeldError for numbers that Python took, and for those that no result follows from."""
    places = {names[place]: place for place in request.numbers}
    used = set(values_in([*graph.outputs, *(item.value for item in graph.assigned)]))
    used.update(value for call in graph.calls for value in call.inputs())
    decisions = recorder.decisions
    taken = dict(decisions.taken)
    unused = [name for name, number in recorder.given.items() if number.value not in used]
    for path in decisions.paths.values():
        for name in arguments_in(path.number).intersection(unused):
            taken.setdefault(name, path.line)
    if taken:
        said = ", ".join(f"{name!r} at {line}" for name, line in taken.items())
        raise NumbersHeldError(
            _of(places, taken),
            f"the model takes numbers among its arguments as Python numbers ({said}); the file has the numbers of the "
            "example",
        )
    if unused:
        raise NumbersHeldError(_of(places, unused), idle=True)


def _of(places: Mapping[str, int], names: Iterable[str]) -> list[int]:
    return [places[name] for name in names]


def refuse_others(request: Request, names: Sequence[str], symbolic: Results, plain: Results) -> None:
    """Raise NumbersHeldError for all numbers where the results for symbols are not those for Python's numbers."""
    some, others = map(_elements, (symbolic, plain))
    if len(some) == len(others) and all(map(_is_same, some, others)):
        return
    said = ", ".join(repr(names[place]) for place in request.numbers)
    raise NumbersHeldError(
        request.numbers,
        f"the model computes something else where numbers among its arguments are inputs ({said}); the file has the "
        "numbers of the example",
    )


def _elements(results: Results) -> list[Any]:
    recorder, leaves = results
    return [recorder.elements.of(leaf) if type(leaf) is Recorded else leaf for leaf in leaves]


def _is_same(one: Any, other: Any) -> bool:
    """Whether a result is the same up to rounding."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) or isinstance(one, SYMBOLIC)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)
