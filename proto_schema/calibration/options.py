"""`CalibrationOptions`: types of activations, how their ranges are found, and which nodes and tensors stay floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.integers import Grid
from proto_schema.quantization.scheme import Scheme

METHODS = ("minmax", "percentile", "entropy")
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


@dataclass(frozen=True)
class CalibrationOptions:
    """How activations are quantized.

    `type` is "uint8" or "int8". `method` finds a range: "minmax" takes the least and the greatest number, "percentile"
    cuts what is larger than `percentile` percent of all magnitudes, and "entropy" cuts where the distribution loses
    least. The last two count in `bins` intervals. With `per_channel` each output channel of a weight
    has a scale. `include` and `exclude` are patterns, as of fnmatch: a node is taken if its name or that of its weight
    fits one of `include`, or there are none; nothing whose name fits `exclude` is quantized, be it a node, a weight or
    an activation.
    """

    type: str
    method: str = "minmax"
    percentile: float = 99.999
    bins: int = 2048
    per_channel: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"activations can be {' or '.join(TYPES)}, not {self.type!r}")
        if self.method not in METHODS:
            raise ValueError(f"there is no method {self.method!r}; it can be {', '.join(METHODS)}")
        if not 50 < self.percentile <= 100:
            raise ValueError(f"percentile is above 50 and at most 100, as 99.99, not {self.percentile}")
        if not 128 <= self.bins <= 8192 or self.bins % 2:
            raise ValueError(f"bins is an even number from 128 to 8192, not {self.bins}")

    @classmethod
    def of(cls, scheme: str | Mapping[str, Any] | Scheme, activations: str, **more: Any) -> CalibrationOptions:
        """The options beside a scheme of weights. Raises ValueError where the scheme is not that of int8 weights."""
        asked = Scheme.of(scheme)
        if asked.type != "int8":
            raise ValueError(f"with activations weights are int8, not {asked.type}; leave the type out")
        usual = Scheme("int8", include=asked.include, exclude=asked.exclude, threads=asked.threads)
        for name in ("block_size", "symmetric", "embeddings", "clip", "smallest", "accuracy_level", "algorithm"):
            if getattr(asked, name) != getattr(usual, name):
                raise ValueError(f"{name} is of weights alone; leave it out with activations, or leave activations out")
        return cls(activations, include=asked.include, exclude=asked.exclude, threads=asked.threads, **more)

    @property
    def code(self) -> int:
        """The type's code of TensorProto."""
        return TYPES[self.type]

    @property
    def grid(self) -> Grid:
        """The integers of the type."""
        return Grid(8, self.type == "int8")

    def leaves(self, *names: str | None) -> bool:
        """Whether a pattern of `exclude` fits one of the names."""
        return any(fnmatchcase(name, pattern) for name in names if name for pattern in self.exclude)

    def takes(self, *names: str | None) -> bool:
        """Whether a node is taken of whose names these are."""
        if self.leaves(*names):
            return False
        return not self.include or any(fnmatchcase(name, item) for name in names if name for item in self.include)
