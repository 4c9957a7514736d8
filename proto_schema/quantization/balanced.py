"""Factors for the elements that a product sums over, which make room where inputs are large, as AWQ finds them.

    x @ W = (x / s) @ (s * W)

Where inputs are large on average, an error of the weights costs most; such rows of W are multiplied with more, so that
they keep more digits in their block. s is the mean magnitude to a power, the same for all weights that read an input,
and the power is the one with the least error of the results on some rows of inputs. The power 0 changes nothing.

Lin et al.: AWQ: Activation-aware Weight Quantization, 2023, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from proto_schema.external.payload import CHUNK, Payload, byte_view
from proto_schema.quantization.codes.elements import stored
from proto_schema.quantization.codes.integers import Floats
from proto_schema.quantization.codes.streams import Quantized

if TYPE_CHECKING:
    from proto_schema.quantization.inputs import Inputs

_POWERS = np.arange(20) / 20
_LEAST = 1e-4


class Balance:
    """The factors of an input, which are found when they are first asked for."""

    def __init__(self, inputs: Inputs, name: str, weights: Sequence[Quantized]) -> None:
        """`weights` are those that read it, without the factors."""
        self.inputs = inputs
        self.name = name
        self.weights = weights
        self._found: Floats | None = None

    def factors(self) -> Floats:
        """A number above 0 for each element."""
        if self._found is None:
            self._found = self._searched()
        return self._found

    def _searched(self) -> Floats:
        seen = self.inputs.of(self.name)
        rows = np.stack(seen.rows).astype(np.float32, copy=False)
        magnitudes = np.maximum(seen.magnitudes / seen.count, _LEAST)
        choices = [_scaled(magnitudes**power) for power in _POWERS]
        errors = np.zeros(len(choices))
        for weight in self.weights:
            for slab in weight.slabs():
                wanted = rows @ slab
                for place, factors in enumerate(choices):
                    made = weight.rounded(slab * factors[:, None]) / factors[:, None]
                    errors[place] += np.square(rows @ made - wanted, dtype=np.float64).sum()
        return choices[int(errors.argmin())]


def _scaled(factors: Any) -> Floats:
    made: Floats = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
    return made


class Reciprocals(Payload):
    """One over each factor, as the elements of a float type."""

    def __init__(self, balance: Balance, length: int, dtype: int, width: int) -> None:
        self.balance, self.dtype = balance, dtype
        self.size = length * width

    @property
    def nbytes(self) -> int:
        return self.size

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        yield byte_view(stored(np.float32(1) / self.balance.factors(), self.dtype).tobytes())
