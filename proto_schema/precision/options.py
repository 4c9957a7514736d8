"""`Options`: into which type a model is converted, and what stays in float32."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from proto_schema import operators
from proto_schema.onnx import TensorProto
from proto_schema.precision.signatures import MICROSOFT_FORMS
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.records import dataclass

Borders: TypeAlias = Literal["keep", "convert"]

TYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
LARGEST = {TensorProto.FLOAT16: 65504.0, TensorProto.BFLOAT16: float.fromhex("0x1.fep127")}
TOLERANCE = 0.01


@dataclass(frozen=True)
class Options:
    """What is asked for.

    `dtype` is "float16" or "bfloat16". `keep` are operators or patterns of names of nodes, as of fnmatch, that stay in
    float32, with their bodies. `io` says whether float32 inputs and outputs stay ("keep") or change ("convert").
    `search` looks for the fewest nodes to keep so that outputs differ by at most `tolerance` of their largest element.
    """

    dtype: str = "float16"
    keep: tuple[str, ...] = ()
    io: Borders = "keep"
    search: bool = False
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.dtype not in TYPES:
            raise ValueError(f"there is no half type {self.dtype!r}; it can be {' or '.join(TYPES)}")
        if self.io not in ("keep", "convert"):
            raise ValueError(f"io is 'keep' or 'convert', not {self.io!r}")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance is a part of the largest element, above 0 and below 1, not {self.tolerance}")

    @classmethod
    def of(cls, dtype: str, keep: str | Iterable[str], **more: Any) -> Options:
        """The options as a user gives them: `keep` may be one text with commas."""
        parts = keep.split(",") if isinstance(keep, str) else list(keep)
        return cls(dtype, tuple(part.strip() for part in parts if part.strip()), **more)

    @property
    def code(self) -> int:
        """The type's code of TensorProto."""
        return int(TYPES[self.dtype])

    @property
    def largest(self) -> float:
        """The largest finite number of the type."""
        return LARGEST[TYPES[self.dtype]]

    def kept_by(self, op_type: str, name: str) -> str:
        """The first of `keep` that fits an operator or the name of a node; "" where none does."""
        return next((item for item in self.keep if item == op_type or (name and fnmatchcase(name, item))), "")


def is_operator(name: str) -> bool:
    """Whether some domain has an operator of this name, so that it is no misspelt one."""
    return name in MICROSOFT_FORMS or any(operators.versions(name, domain) for domain in operators.domains())


def text_of(code: int) -> str:
    """`float16`, as type strings have it."""
    return DTYPES[code].text
