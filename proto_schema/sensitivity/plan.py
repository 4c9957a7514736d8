"""A plan of a quantization: the type of each weight, as a value that JSON can hold."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from proto_schema.onnx import ModelProto
from proto_schema.quantization import dequantized, quantize
from proto_schema.quantization.model import Target
from proto_schema.quantization.scheme import TYPES
from proto_schema.wire.records import dataclass

_FIELDS = ("weights", "bytes", "error")


@dataclass(frozen=True)
class QuantizationPlan:
    """Weights and their types ("" where a weight stays), the bytes of all, and the expected error of the outputs.

    The error is relative, the root of the sum of what each weight costs alone, which takes costs to be independent.
    """

    weights: Mapping[str, str]
    bytes: int
    error: float

    @classmethod
    def of(cls, given: Any) -> QuantizationPlan:
        """A plan from the dict that `as_dict` gives.  Raises ValueError for another value."""
        if not isinstance(given, Mapping) or not isinstance(given.get("weights"), Mapping):
            raise ValueError("a plan has an object `weights` with the type of each weight, as --sensitivity writes it")
        for name, kind in given["weights"].items():
            if kind and kind not in TYPES:
                raise ValueError(f"plan: {name!r} has the type {kind!r}, which is not one of {', '.join(TYPES)}")
        size, error = given.get("bytes", 0), given.get("error", 0.0)
        if not isinstance(size, int) or not isinstance(error, (int, float)):
            raise ValueError("plan: bytes and error are numbers, as --sensitivity writes them")
        return cls(dict(given["weights"]), size, float(error))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def apply(self, model: ModelProto, target: Target = "onnx", **options: Any) -> ModelProto:
        """The model with each weight in its type; `options` are fields of `Scheme`.  Raises as `quantize` does."""
        for kind in self._types():
            model = quantize(model, self._scheme(kind, options), target=target)
        return model

    def rounded(self, model: ModelProto, target: Target = "onnx", **options: Any) -> ModelProto:
        """The model with the numbers that the codes mean.  Raises as `dequantized` does."""
        for kind in self._types():
            model = dequantized(model, self._scheme(kind, options), target=target)
        return model

    def _types(self) -> list[str]:
        return sorted({kind for kind in self.weights.values() if kind})

    def _scheme(self, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        names = tuple(glob.escape(name) for name, given in self.weights.items() if given == kind)
        return {"smallest": 1, **options, "type": kind, "include": names}
