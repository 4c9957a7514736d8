"""Two models on the same inputs: our evaluator runs both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from proto_schema.budget import Budget, BudgetLike, Cost, ExceededError, budget_of
from proto_schema.onnx import ModelProto
from proto_schema.reference.inputs import Shapes, allowed_shapes, asked, drawn

_RTOL, _ATOL = 1e-3, 1e-5  # of float32; merged weights are rounded anew
_SHAPES = 4  # that are tried
_DRAWN = 8  # bytes of a random number


class ProofError(ValueError):
    """The changed model computes something else, or the two could not be run."""


def proven(
    before: ModelProto, after: ModelProto, given: int | Sequence[Mapping[str, Any]], budget: BudgetLike = None
) -> None:
    """Raises ProofError where results of the models are further apart than rounding, which says where.

    `budget` is for each run of a model, and for the random numbers of its inputs (default: that of the evaluator).
    """
    found = difference(before, after, feeds_of(before, given, budget), budget)
    if found:
        raise ProofError(f"{found}; please report it, and leave the model as it is")


def feeds_of(
    model: ModelProto, given: int | Sequence[Mapping[str, Any]], budget: BudgetLike = None
) -> list[Mapping[str, Any]]:
    """Inputs to run a model on: so many random ones, or those that are given. Raises ProofError."""
    from proto_schema.reference import EvaluationError, UnsupportedOperatorError

    try:
        return list(random_inputs(model, given, budget=budget)) if isinstance(given, int) else list(given)
    except (EvaluationError, UnsupportedOperatorError) as error:
        raise ProofError(_NOT_RUN.format(error)) from error


def difference(
    before: ModelProto, after: ModelProto, feeds: Iterable[Mapping[str, Any]], budget: BudgetLike = None
) -> str:
    """Where results of the models are further apart than rounding; "" where they are not. Raises ProofError."""
    from proto_schema.reference import EvaluationError, ReferenceEvaluator, UnsupportedOperatorError

    try:
        first, second = ReferenceEvaluator(before, budget=budget), ReferenceEvaluator(after, budget=budget)
        for place, feed in enumerate(feeds):
            for name, mine, theirs in zip(
                first.output_names, second.run(None, feed), first.run(None, feed), strict=True
            ):
                if not _equal(mine, theirs):
                    return f"output {name!r} of the changed model differs on inputs {place}"
    except (EvaluationError, UnsupportedOperatorError) as error:
        raise ProofError(_NOT_RUN.format(error)) from error
    return ""


_NOT_RUN = "the models cannot be run on these inputs, so nothing is proven: {}"


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(mine) == len(theirs) and all(map(_equal, mine, theirs))
    if not isinstance(theirs, np.ndarray):
        return bool(mine == theirs)
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    if theirs.dtype.kind not in "fc":
        return bool(np.array_equal(mine, theirs))
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0))
    return bool(np.allclose(mine, theirs, _RTOL, max(_ATOL, _ATOL * largest), equal_nan=True))


def random_inputs(model: ModelProto, count: int, seed: int = 0, budget: BudgetLike = None) -> Iterator[dict[str, Any]]:
    """`count` times values for the inputs that have no default, of shapes that inference allows.

    Of several shapes those are taken with which our evaluator runs the model. Raises ProofError for an input that is no
    tensor of numbers or past the budget, UnsupportedOperatorError for a model that the evaluator does not know.
    """
    draw = np.random.default_rng(seed)
    most = budget_of(budget)
    shapes = _runnable(model, most)
    for _ in range(count):
        yield _feed(model, shapes, draw, most)


def _runnable(model: ModelProto, budget: Budget) -> Shapes:
    """The first shapes with which the model runs; the first of all where it runs with none of a few."""
    from proto_schema.reference import EvaluationError, ReferenceEvaluator

    evaluator = ReferenceEvaluator(model, budget=budget)
    first: Shapes | None = None
    for shapes in islice(allowed_shapes(model), _SHAPES):
        first = shapes if first is None else first
        with suppress(EvaluationError):
            evaluator.run(None, _feed(model, shapes, np.random.default_rng(0), budget))
            return shapes
    return first or {}


def _feed(model: ModelProto, shapes: Shapes, draw: np.random.Generator, budget: Budget) -> dict[str, Any]:
    count = sum(math.prod(shape) for shape in shapes.values())
    try:
        budget.fresh().charge(Cost(count, count * _DRAWN))
    except ExceededError as error:
        raise ProofError(
            "the models cannot be run on these inputs, so nothing is proven: the inputs are past the budget: "
            f"{error}. Give them more with --budget (budget= in Python)"
        ) from None
    feed = {item.name or "": drawn(item, shapes.get(item.name or ""), draw) for item in asked(model)}
    for name, array in feed.items():
        if array is None:
            raise ProofError(f"input {name!r} has no type that random numbers are made of; give prove= the inputs")
    return feed
