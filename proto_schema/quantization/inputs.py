"""What samples show of the inputs of products, for algorithms that round weights so that results change little.

The model runs once for each sample and each group of inputs, whose numbers fit into memory together. That is when the
first weight of a group is read, so a model of any size needs the memory of one group; the samples must be there until
the model is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Array, Samples
from proto_schema.onnx import ModelProto
from proto_schema.quantization.codes.compensated import spread_of
from proto_schema.quantization.codes.integers import Floats
from proto_schema.wire.records import dataclass

_TOGETHER = 1 << 30  # bytes of what is kept of a group
_ROWS = 128  # inputs that are kept as they are


@dataclass
class Seen:
    """What was seen of an input X: X.T @ X, which `spread` takes the place of, or sums of magnitudes and some rows."""

    moments: Floats | None
    magnitudes: Floats
    rows: list[Array]
    count: int = 0
    every: int = 1  # which rows are kept
    spread: Floats | None = None

    def add(self, found: Array) -> None:
        """Take in some rows."""
        if not np.isfinite(found).all():
            raise ValueError("hold a NaN or an infinity")
        if self.moments is not None:
            self.moments += found.T @ found
        else:
            self.magnitudes += np.abs(found).sum(0)
            self.rows.extend(row.copy() for row in found[-self.count % self.every :: self.every])
            while len(self.rows) > 2 * _ROWS:
                self.rows, self.every = self.rows[::2], self.every * 2
        self.count += len(found)


class Inputs:
    """What samples show of some values of a model."""

    def __init__(
        self, model: ModelProto, samples: Any, wanted: Mapping[str, int], *, moments: bool, budget: BudgetLike = None
    ) -> None:
        """`wanted` are names of values, in the order in which they will be asked for, and the size of their last axis.

        Raises ValueError for samples that the model does not take; they are run for the first group.
        """
        self.model = model
        self.samples = Samples(model, samples, budget)
        self.budget = budget
        self.with_moments = moments
        self._groups = list(_groups(wanted, moments))
        self._seen: dict[str, Seen] = {}
        if self._groups:
            self._collect(self._groups[0])

    def of(self, name: str) -> Seen:
        """What was seen of a value. Raises ValueError where no sample makes it a tensor of floats."""
        if name not in self._seen:
            self._collect(next(group for group in self._groups if name in group))
        found = self._seen[name]
        if not found.count:
            raise ValueError(
                f"no sample shows its input {name!r} as float32 or float16; give samples that come to it, or "
                "algorithm='hqq' or 'k-quant', which need none"
            )
        return found

    def spread(self, name: str) -> Floats:
        """What `compensated` needs to know of a value. Raises ValueError as `of` does."""
        seen = self.of(name)
        if seen.spread is None:
            assert seen.moments is not None
            seen.spread, seen.moments = spread_of(seen.moments), None
        return seen.spread

    def _collect(self, group: Mapping[str, int]) -> None:
        self._seen = {}
        for name, length in group.items():
            moments = np.zeros((length, length), np.float32) if self.with_moments else None
            self._seen[name] = Seen(moments, np.zeros(length, np.float32), [])
        with Runner(self.model, group, self.budget, halves=True) as runner:
            for place, feed in self.samples:
                for name, value in runner.run(place, feed):
                    if name in group and value.shape[-1:] == (group[name],):
                        rows = value.reshape(-1, group[name]).astype(np.float32, copy=False)
                        try:
                            self._seen[name].add(rows)
                        except ValueError as error:
                            raise ValueError(f"{place}: the numbers of {name!r} {error}") from error


def _groups(wanted: Mapping[str, int], moments: bool) -> Sequence[dict[str, int]]:
    groups: list[dict[str, int]] = []
    size = 0
    for name, length in wanted.items():
        more = 4 * length * (length if moments else 2 * _ROWS)
        if not groups or size + more > _TOGETHER:
            groups.append({})
            size = 0
        groups[-1][name] = length
        size += more
    return groups
