"""Two models on the same inputs: our evaluator runs both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.dtypes import DTYPES
from proto_schema.graphs.dims import known_size
from proto_schema.onnx import ModelProto, TypeProto, ValueInfoProto

_RTOL, _ATOL = 1e-3, 1e-5  # of float32; merged weights are rounded anew
_SIZE = 2  # of an axis that has a name and no number


class ProofError(ValueError):
    """The simplified model computes something else, or the two could not be run."""


def proven(before: ModelProto, after: ModelProto, given: int | Sequence[Mapping[str, Any]]) -> None:
    """Raises ProofError where results of the models are further apart than rounding, which says where."""
    from proto_schema.reference import EvaluationError, ReferenceEvaluator, UnsupportedOperatorError

    feeds = list(random_inputs(before, given)) if isinstance(given, int) else list(given)
    try:
        first, second = ReferenceEvaluator(before), ReferenceEvaluator(after)
        for place, feed in enumerate(feeds):
            for name, mine, theirs in zip(
                first.output_names, second.run(None, feed), first.run(None, feed), strict=True
            ):
                if not _equal(mine, theirs):
                    raise ProofError(
                        f"output {name!r} of the simplified model differs on inputs {place}; please report it, and "
                        "leave the model as it is"
                    )
    except (EvaluationError, UnsupportedOperatorError) as error:
        raise ProofError(f"the models cannot be run on these inputs, so nothing is proven: {error}") from error


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


def random_inputs(model: ModelProto, count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """`count` times values for the inputs that have no default: normal numbers, and 0 or 1 as whole numbers.

    An axis without a number has the size 2. Raises ProofError for an input that is no tensor of numbers.
    """
    draw = np.random.default_rng(seed)
    graph = model.graph
    held = {item.name for item in graph.initializer} if graph is not None else set()
    inputs = [item for item in (graph.input if graph is not None else ()) if item.name not in held]
    for _ in range(count):
        yield {item.name or "": _drawn(item, draw) for item in inputs}


def _drawn(item: ValueInfoProto, draw: np.random.Generator) -> Any:
    kind: TypeProto.Tensor | None = item.type.tensor_type if item.type is not None else None
    row = DTYPES.get(kind.elem_type or 0) if kind is not None else None
    if kind is None or kind.shape is None or row is None or not row.native:
        raise ProofError(f"input {item.name!r} has no type that random numbers are made of; give prove= the inputs")
    sizes = [_SIZE if (size := known_size(dim)) is None else size for dim in kind.shape.dim]
    numbers = np.dtype(row.numpy)
    drawn = draw.integers(0, 2, sizes) if numbers.kind in "biu" else draw.standard_normal(sizes)
    return drawn.astype(numbers)
