"""How the values of a model fit into a type, by running it in float32 on samples."""

from __future__ import annotations

from collections.abc import Collection

from proto_schema.budget import BudgetLike
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Given, Samples
from proto_schema.onnx import ModelProto
from proto_schema.precision.constants import MASK, Fit, fit_of


def observed(
    model: ModelProto, names: Collection[str], samples: Given, code: int, budget: BudgetLike = None
) -> dict[str, Fit]:
    """The worst that the samples show of each of these values. Raises ValueError as a calibration does."""
    found: dict[str, Fit] = {}
    with Runner(model, names, budget) as runner:
        for place, feed in Samples(model, samples, budget):
            for name, array in runner.run(place, feed):
                fit, known = fit_of(array, code, MASK), found.get(name, Fit())
                found[name] = Fit(max(fit.over, known.over), fit.masks + known.masks, max(fit.loss, known.loss))
    return found
