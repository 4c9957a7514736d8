"""What rows state before they run: a bound of what they take, for every row.

The official cases run with each input made longer along its axes, so that constant overhead does not count. The memory
that Python and numpy then take must lie below what the row stated. `fuzz/extremes.py` walks over extreme attributes
and shapes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from fuzz import extremes
from proto_schema.budget import Budget, Cost
from proto_schema.compute import costs, rows

ROOT = Path(__file__).parents[2]
TIMES = 2_000  # as long
MOST_ELEMENTS = 60_000  # of an input
SLACK = 96 << 10  # bytes: the node, its messages, what numpy imports
ENOUGH = 1 << 17  # bytes of a result beside which the slack does not count
UNMEASURED = {
    "Gradient": "is refused",
    "ImageDecoder": "takes files of images, which cannot be made longer",
    "Optional": "moves nothing",
    "OptionalHasElement": "makes one bool",
    "OptionalGetElement": "moves nothing",
    "SequenceEmpty": "makes nothing",
    "SequenceLength": "makes one number",
    "SequenceAt": "moves nothing",
    "Shape": "makes a few numbers",
    "Size": "makes one number",
}


class Noted(Budget):
    """A budget that notes the costs of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: list[Cost] = []

    def charge(self, cost: Cost) -> None:
        self.costs.append(cost)
        super().charge(cost)


def longer(feed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs with one axis longer: of all that have an axis of the size, or of one of them alone."""
    arrays = {name: item for name, item in feed.items() if isinstance(item, np.ndarray)}
    seen = set()
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if size in (0, 1) or (size, axis) in seen:
                continue
            seen.add((size, axis))
            yield {**feed, name: repeated(array, axis)}
            every = {other: long_at(item, size, axis) for other, item in arrays.items()}
            yield {**feed, **every}
            last = {other: long_at(item, size, axis - array.ndim) for other, item in arrays.items()}
            yield {**feed, **last}


def repeated(array: Any, axis: int) -> Any:
    times = min(TIMES, MOST_ELEMENTS // max(1, array.size))
    return np.concatenate([array] * times, axis=axis) if times > 1 else array


def long_at(array: Any, size: int, axis: int) -> Any:
    fits = -array.ndim <= axis < array.ndim and array.shape[axis] == size
    return repeated(array, axis) if fits else array


def measured(name: str, model: ps.ModelProto, inputs: list[Any]) -> Iterator[str]:
    """What a node found wrong; "" for a run that fits."""
    session = ps.reference.ReferenceEvaluator(model)
    feed = dict(zip(session.input_names, inputs, strict=False))
    with suppress(ps.reference.EvaluationError):  # what is made once in a process is made here
        session.run(None, feed)
    for given in longer(feed):
        noted = Noted()
        tracemalloc.start()
        try:
            made = session.run(None, given, budget=noted)
        except (ps.reference.EvaluationError, MemoryError):
            continue
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        results = sum(map(costs.weight, made))
        if peak < ENOUGH:
            continue
        stated = sum(cost.results for cost in noted.costs), sum(cost.scratch for cost in noted.costs)
        shapes = [getattr(item, "shape", None) for item in given.values()]
        if peak > sum(stated) + SLACK:
            yield f"{name}: {peak} bytes, and {stated[0]} + {stated[1]} are stated, for {shapes}"
        elif results > stated[0] + SLACK:
            yield f"{name}: results of {results} bytes, and {stated[0]} are stated, for {shapes}"
        else:
            yield ""


@pytest.mark.sweep
def test_costs_are_bounds() -> None:
    wrong, seen = [], set()
    for name, model, inputs in extremes.nodes():
        found = list(measured(name, model, inputs))
        wrong += [text for text in found if text]
        if found:
            seen.add(model.graph.node[0].op_type)
    names = {name for _, name in rows.table()}
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
    assert names - seen == set(UNMEASURED), " ".join(sorted((names - seen) ^ set(UNMEASURED)))
