"""`Scheme`: in which type weights are stored, in blocks of which size, and which weights.

A scheme is made of a type's name, or of a mapping with the names of its fields, as a user gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from proto_schema.onnx import TensorProto
from proto_schema.wire.records import dataclass

__all__ = ["ALGORITHMS", "TYPES", "Kind", "Scheme"]

Family: TypeAlias = Literal["integer", "float", "cast"]


@dataclass(frozen=True)
class Kind:
    """A type that weights can have: `code` of TensorProto, `bits`, and the block size where none is asked for.

    `family`: integers with a scale, small floats with a scale, or a cast of each element, which has none. `scales` is
    the type of the scales of blocks where it is not the weight's own; these have a scale of their own, if it is a
    FLOAT8E4M3FN. A block of 0 is a whole output channel.
    """

    family: Family
    code: int
    bits: int
    block: int = 0
    signed: bool = True
    scales: int = 0


TYPES: dict[str, Kind] = {
    "int4": Kind("integer", TensorProto.INT4, 4, 32),
    "uint4": Kind("integer", TensorProto.UINT4, 4, 32, signed=False),
    "int8": Kind("integer", TensorProto.INT8, 8),
    "uint8": Kind("integer", TensorProto.UINT8, 8, signed=False),
    "int2": Kind("integer", TensorProto.INT2, 2, 32),
    "uint2": Kind("integer", TensorProto.UINT2, 2, 32, signed=False),
    "float8e4m3fn": Kind("float", TensorProto.FLOAT8E4M3FN, 8),
    "float8e5m2": Kind("float", TensorProto.FLOAT8E5M2, 8),
    "float4e2m1": Kind("float", TensorProto.FLOAT4E2M1, 4, 32),
    "nvfp4": Kind("float", TensorProto.FLOAT4E2M1, 4, 16, scales=TensorProto.FLOAT8E4M3FN),
    "mxfp4": Kind("float", TensorProto.FLOAT4E2M1, 4, 32, scales=TensorProto.FLOAT8E8M0),
    "float16": Kind("cast", TensorProto.FLOAT16, 16),
    "bfloat16": Kind("cast", TensorProto.BFLOAT16, 16),
}


ALGORITHMS: dict[str, str] = {
    "rtn": "to the nearest number of the range of a block",
    "k-quant": "the range with the least squared error, in which large elements count more",
    "hqq": "the range with the least error, in which few large errors count less",
    "gptq": "each element makes up for the errors of those before it, by samples",
    "awq": "elements are scaled by how large their inputs are, by samples",
}
"""How integers are found, with what is least; those of `BY_SAMPLES` need samples of the model's inputs."""

BY_SAMPLES = ("gptq", "awq")


@dataclass(frozen=True)
class Scheme:
    """How weights are stored.

    `type` is a name of `TYPES`. `block_size` elements that a product sums over share a scale (a power of two from 16
    on; 0 for all of an output channel; None for the type's usual one). `symmetric` leaves the zero points out (None:
    signed types do). `include` and `exclude` are patterns of names of weights, as of fnmatch: a weight is taken if it
    fits one of `include`, or there are none, and fits none of `exclude`. `embeddings` takes the tables, too, that
    nothing but `Gather` reads. `clip` searches for each block the range with the least squared error. `smallest` is the
    least number of elements of a weight that is taken. `accuracy_level` goes to MatMulNBits: 4 lets ONNX Runtime
    multiply in int8. `threads` convert at once (None: one a core). `algorithm` is a name of `ALGORITHMS`, for integers.
    """

    type: str = "int4"
    block_size: int | None = None
    symmetric: bool | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    embeddings: bool = False
    clip: bool = False
    smallest: int = 1024
    accuracy_level: int = 0
    threads: int | None = None
    algorithm: str = "rtn"

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"there is no quantization {self.type!r}; it can be {', '.join(TYPES)}")
        size = self.block_size
        if size is not None and size and (size < 16 or size & (size - 1)):
            raise ValueError(f"block_size is a power of two from 16 on, or 0 for a whole output channel, not {size}")
        if self.kind.scales and size not in (None, self.kind.block):
            raise ValueError(f"{self.type} has blocks of {self.kind.block} elements, not of {size}")
        if self.kind.family != "integer" and (self.symmetric is False or self.clip):
            raise ValueError(f"{self.type} has no zero points and no search of ranges; leave symmetric and clip out")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"there is no algorithm {self.algorithm!r}; it can be {', '.join(ALGORITHMS)}")
        if self.algorithm != "rtn" and self.kind.family != "integer":
            raise ValueError(f"{self.type} has no algorithm {self.algorithm!r}, which is of integers; leave it out")
        if self.clip and self.algorithm in ("k-quant", "hqq"):
            raise ValueError(f"the algorithm {self.algorithm!r} searches for ranges itself; leave clip out")
        if not 0 <= self.accuracy_level <= 4:
            raise ValueError(f"accuracy_level is 0 to 4, as of MatMulNBits, not {self.accuracy_level}")

    @classmethod
    def of(cls, asked: str | Mapping[str, Any] | Scheme) -> Scheme:
        """The scheme that a user means by a type's name or by a mapping. Raises ValueError for a name that none has."""
        if isinstance(asked, Scheme):
            return asked
        if isinstance(asked, str):
            return cls(asked)
        names = [field.name for field in fields(cls)]
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise ValueError(f"a quantization has no {unknown[0]!r}; it has {', '.join(names)}")
        given = dict(asked)
        for name in ("include", "exclude"):
            if name in given:
                value = given[name]
                given[name] = (value,) if isinstance(value, str) else tuple(value)
        return cls(**given)

    @property
    def kind(self) -> Kind:
        """The row of the type."""
        return TYPES[self.type]

    @property
    def needs_samples(self) -> bool:
        """Whether the algorithm asks for samples."""
        return self.algorithm in BY_SAMPLES

    @property
    def block(self) -> int:
        """The block size that holds, 0 for a whole output channel."""
        return self.kind.block if self.block_size is None else self.block_size

    @property
    def has_zero_points(self) -> bool:
        """Whether a block has a zero point of its own."""
        if self.kind.family != "integer":
            return False
        return not self.kind.signed if self.symmetric is None else not self.symmetric

    def excludes(self, name: str) -> bool:
        """Whether a weight of this name is left out by a pattern of `exclude`."""
        return any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def takes(self, name: str) -> bool:
        """Whether a weight of this name is wanted."""
        if self.excludes(name):
            return False
        return not self.include or any(fnmatchcase(name, pattern) for pattern in self.include)
