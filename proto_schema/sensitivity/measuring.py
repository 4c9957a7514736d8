"""What each weight costs alone: the model runs with this weight rounded to the numbers of a type, and no other.

The cost is the squared difference of the outputs over their squares, on samples.  Costs of several weights add up as
far as their errors are independent, so a plan is a knapsack: for each weight one type, the least sum of costs in a
size.  It is filled by the step that saves most error for a byte, which is the best plan but for the last step.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Array, Samples
from proto_schema.onnx import ModelProto
from proto_schema.quantization import dequantized, planned
from proto_schema.quantization.model import Target
from proto_schema.sensitivity.plan import QuantizationPlan
from proto_schema.units import size_text
from proto_schema.wire.records import dataclass

_STAYS = ""  # the type of a weight that is not quantized


@dataclass(frozen=True)
class WeightCost:
    """A weight in a type ("" as it is): its bytes, and the relative squared difference of the outputs that it makes."""

    name: str
    type: str
    bytes: int
    cost: float


@dataclass(frozen=True)
class Sensitivities:
    """The costs of each weight: as it is, and in each type, the smallest first."""

    weights: Mapping[str, Sequence[WeightCost]]

    def lines(self) -> Iterator[str]:
        """A line for each weight, the most sensitive first."""
        width = max((len(name) for name in self.weights), default=0)
        rows = sorted(self.weights.items(), key=lambda item: -max(one.cost for one in item[1]))
        for name, choices in rows:
            found = "  ".join(
                f"{one.type} {size_text(one.bytes)} error {math.sqrt(one.cost):.2e}" for one in choices if one.type
            )
            yield f"{name:<{width}}  {found}"

    def plan(self, size: int | None = None, error: float | None = None) -> QuantizationPlan:
        """The types with the least error in so many bytes, or the fewest bytes with so small an error.

        Raises ValueError where not one of the two is given, and for a size that no plan has.
        """
        if (size is None) == (error is None):
            raise ValueError("give the size of the weights or the error of the outputs that is wanted, one of the two")
        chosen = dict.fromkeys(self.weights, 0)  # the smallest of each
        least = sum(choices[0].bytes for choices in self.weights.values())
        if size is not None and least > size:
            raise ValueError(
                f"the weights take {least} bytes in the smallest of these types, which is more than {size}; add a "
                "type of fewer bits"
            )
        steps = self._steps()
        total, cost = least, sum(choices[0].cost for choices in self.weights.values())
        for name, at in steps:
            if error is not None and cost <= error * error:
                break
            choices = self.weights[name]
            more = choices[at].bytes - choices[chosen[name]].bytes
            if size is not None and total + more > size:
                continue
            total, cost = total + more, cost - choices[chosen[name]].cost + choices[at].cost
            chosen[name] = at
        if error is not None:
            self._lower(chosen, error * error)
        rows = [self.weights[name][at] for name, at in chosen.items()]
        expected = math.sqrt(math.fsum(one.cost for one in rows))
        return QuantizationPlan({one.name: one.type for one in rows}, sum(one.bytes for one in rows), expected)

    def _lower(self, chosen: dict[str, int], most: float) -> None:
        """Take back what the last steps made needless: a smaller type where the sum of costs stays at most so large."""
        for name in sorted(chosen, key=lambda name: -self.weights[name][chosen[name]].bytes):
            for at in range(chosen[name]):
                rows = [self.weights[other][at if other == name else now].cost for other, now in chosen.items()]
                if math.fsum(rows) <= most:
                    chosen[name] = at
                    break

    def _steps(self) -> list[tuple[str, int]]:
        """(weight, choice) in the order of the error that a byte saves; those of a weight in their own order."""
        found: list[tuple[float, int, str, int]] = []
        for number, (name, choices) in enumerate(self.weights.items()):
            at = 0
            while at + 1 < len(choices):
                rates = [
                    ((choices[at].cost - later.cost) / max(later.bytes - choices[at].bytes, 1), place)
                    for place, later in enumerate(choices[at + 1 :], at + 1)
                ]
                rate, place = max(rates)
                if rate <= 0:
                    break
                found.append((-rate, number, name, place))
                at = place
        return [(name, place) for _, _, name, place in sorted(found)]


def sensitivities(
    model: ModelProto,
    samples: Any,
    types: Sequence[str] = ("int4", "int8"),
    *,
    target: Target = "onnx",
    budget: BudgetLike = None,
    **options: Any,
) -> Sensitivities:
    """What each weight costs in each type; a weight that a type does not take has no cost of it.

    `samples` are those of `quantize(calibration=)`, `options` are fields of `Scheme`, such as `block_size`.  The model
    runs once for each sample, weight and type.  Raises ValueError for samples and options that do not fit.
    """
    feeds = list(Samples(model, samples, budget))
    wanted = list(_outputs(model, feeds, budget))
    found: dict[str, list[WeightCost]] = {}
    for kind in types:
        for entry in planned(model, {**options, "type": kind}, target=target).entries:
            if not entry.form:
                continue
            scheme = {**options, "type": kind, "include": (glob.escape(entry.name),)}
            alone = dequantized(model, scheme, target=target)
            cost = difference(wanted, list(_outputs(alone, feeds, budget)))
            rows = found.setdefault(entry.name, [WeightCost(entry.name, _STAYS, entry.before, 0.0)])
            rows.append(WeightCost(entry.name, kind, entry.after, cost))
    return Sensitivities({name: sorted(rows, key=lambda one: (one.bytes, one.cost)) for name, rows in found.items()})


def outputs_differ(model: ModelProto, other: ModelProto, samples: Any, budget: BudgetLike = None) -> float:
    """The relative difference of the outputs of two models on samples: the root of the cost of all that differs."""
    feeds = list(Samples(model, samples, budget))
    return math.sqrt(difference(list(_outputs(model, feeds, budget)), list(_outputs(other, feeds, budget))))


def _outputs(model: ModelProto, feeds: Sequence[Any], budget: BudgetLike) -> Iterator[dict[str, Array]]:
    names = [item.name or "" for item in model.graph.output] if model.graph is not None else []
    with Runner(model, names, budget) as runner:
        for place, feed in feeds:
            found = {name: item for name, item in runner.run(place, feed) if name in names}
            if not found:
                raise ValueError(f"{place}: the model has no output of float32, by which errors are measured")
            yield found


def difference(wanted: Sequence[Mapping[str, Array]], found: Sequence[Mapping[str, Array]]) -> float:
    """The mean over samples and outputs of the squared difference over the square of what is wanted."""
    costs = []
    for before, after in zip(wanted, found, strict=True):
        for name, item in before.items():
            whole = float(np.square(item, dtype=np.float64).sum())
            apart = float(np.square(after[name].astype(np.float64) - item).sum())
            costs.append(apart / whole if whole else float(apart > 0))
    return float(np.mean(costs))
