"""What a row of the table sees: a node that is being converted (`Draft`), and the values that it reads (`Value`).

A draft holds the node in the form of one version of its operator. Its attributes are Python values, with the defaults
of that version where it has any. Its inputs know their types and, where the model holds them, their elements.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.attributes import get_attribute_value
from proto_schema.dtypes import DTYPES
from proto_schema.errors import UnreadableDataError, bounded
from proto_schema.inference.types import Shape, Tensor, Type, known_shape
from proto_schema.onnx import AttributeProto, NodeProto, TensorProto
from proto_schema.operators import OpSchema
from proto_schema.sizes import Dim

__all__ = ["ConversionError", "Draft", "ParameterError", "Refusal", "RefusedError", "Value"]

READ_AT_MOST = 1 << 20
"""Elements of a constant that a row reads: axes, pads and scales, never weights."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node cannot be converted: `needs` is the opset nearest to the target that can say it, 0 if unknown."""

    node: str
    reason: str
    needs: int = 0

    def __str__(self) -> str:
        hint = f"; opset {self.needs} can express it" if self.needs else ""
        return f"{self.node}: {self.reason}{hint}"


def listed(refusals: Sequence[Refusal]) -> str:
    """The first twenty, a line each where there are several."""
    lines = [str(item) for item in refusals[:20]]
    if len(refusals) > 20:
        lines.append(f"and {len(refusals) - 20} more")
    return lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)


class ConversionError(RuntimeError, ValueError):
    """A model cannot be converted as asked. `refusals` has a row for each node that is to blame.

    `needs` is the opset nearest to the target to which the model converts, 0 where none is known.
    """

    code = "cannot-convert"

    def __init__(self, text: str, refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(bounded(text))
        self.refusals = list(refusals)
        self.needs = 0


class RefusedError(Exception):
    """A row cannot convert its node; never leaves the package."""

    def __init__(self, reason: str, needs: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.needs = needs


class ParameterError(RefusedError):
    """A row needs an attribute that is a parameter of a function: each call has its own value."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the graph: its name, what is known of its type, and the tensor where the model holds it."""

    name: str
    type: Type | None = None
    held: TensorProto | None = None

    @property
    def dtype(self) -> int:
        """The code of the data type, 0 where it is not known, does not exist, or the value is no tensor."""
        return self.type.dtype if isinstance(self.type, Tensor) and self.type.dtype in DTYPES else 0

    @property
    def shape(self) -> Shape:
        """The shape, None where not even the rank is known."""
        return self.type.shape if isinstance(self.type, Tensor) else None

    @property
    def rank(self) -> int | None:
        """The number of axes, None where it is not known."""
        return None if self.shape is None else len(self.shape)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape where all of its sizes are numbers, else None."""
        return known_shape(self.shape)

    def dim(self, axis: int) -> Dim | None:
        """One size of the shape; None where the rank is not known."""
        return None if self.shape is None or not -len(self.shape) <= axis < len(self.shape) else self.shape[axis]

    def array(self) -> npt.NDArray[Any] | None:
        """The elements, where the model holds them or all follow from what it holds; else None."""
        if self.held is not None:
            count = 1
            for size in self.held.dims:
                count *= size
            if count > READ_AT_MOST:
                return None
            from proto_schema.numpy_helper import to_array

            try:
                return to_array(self.held)
            except UnreadableDataError:
                raise
            except ValueError:  # external data that is not there
                return None
        sizes = self.sizes
        if isinstance(self.type, Tensor) and self.type.content is not None and sizes is not None:
            plain = [item for item in self.type.content if isinstance(item, (int, float))]
            if len(plain) == len(self.type.content):
                return np.array(plain, DTYPES[self.dtype or TensorProto.INT64].numpy).reshape(sizes)
        return None

    def ints(self) -> list[int] | None:
        """The elements as integers, where all are known."""
        found = self.array()
        return None if found is None or found.dtype.kind not in "iub" else [int(item) for item in found.reshape(-1)]

    def number(self) -> float | None:
        """The only element, where there is one and it is known."""
        found = self.array()
        return None if found is None or found.size != 1 or found.dtype.kind not in "iufb" else found.reshape(-1)[0]


@dataclass(slots=True)
class Draft:
    """A node in the form of `schema`. `outputs` holds names, empty for outputs that nobody wants."""

    schema: OpSchema
    inputs: list[Value | None]
    attributes: dict[str, Any]
    outputs: list[str]
    types: list[Type | None]
    source: NodeProto | None = None
    changed: bool = field(default=False)

    # -- inputs

    def has(self, place: int) -> bool:
        """Whether the node has that input."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def input(self, place: int) -> Value | None:
        """An input, None where the node leaves it out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def __getitem__(self, place: int) -> Value:
        """An input that the operator requires. Raises RefusedError where the node has none."""
        found = self.input(place)
        if found is None:
            raise RefusedError(f"it has no input {place}, which its operator requires")
        return found

    def wants(self, place: int) -> bool:
        """Whether the node names that output."""
        return place < len(self.outputs) and bool(self.outputs[place])

    def out_type(self, place: int) -> Type | None:
        """What is known of the type of an output."""
        return self.types[place] if place < len(self.types) else None

    # -- what rows ask, and refuse where it is not known

    def ints(self, place: int) -> list[int] | None:
        """The elements of an integer input, where the node has it and they are known."""
        found = self.input(place)
        return None if found is None else found.ints()

    def need_ints(self, place: int) -> list[int]:
        """The same. Raises RefusedError where they are not known."""
        found = self.ints(place)
        if found is None:
            raise RefusedError(f"its input {self.formal(place)!r} is computed when the model runs")
        return found

    def need_rank(self, place: int) -> int:
        """The rank of an input. Raises RefusedError where it is not known."""
        found = self[place].rank
        if found is None:
            raise RefusedError(f"the rank of its input {self.formal(place)!r} is not known")
        return found

    def need_dtype(self, place: int) -> int:
        """The data type of an input. Raises RefusedError where it is not known."""
        found = self[place].dtype
        if not found:
            raise RefusedError(f"the data type of its input {self.formal(place)!r} is not known")
        return found

    def formal(self, place: int) -> str:
        """The name of an input in the operator's specification."""
        formals = self.schema.inputs
        return formals[min(place, len(formals) - 1)].name if formals else str(place)

    # -- attributes

    def given(self, name: str) -> bool:
        """Whether the node has that attribute itself."""
        return name in self.attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: the node's, else the default of this version, else `default`. Text is bytes.

        Raises ParameterError for one whose value is the function's.
        """
        if name in self.attributes:
            value = self.attributes[name]
            if isinstance(value, AttributeProto):
                if value.ref_attr_name:
                    raise ParameterError(f"its attribute {name!r} is a parameter of the function")
                return get_attribute_value(value)
            return value
        declared = self.schema.attributes.get(name)
        if declared is None or declared.default is None:
            return default
        return list(declared.default) if isinstance(declared.default, tuple) else declared.default

    def text(self, name: str, default: str = "") -> str:
        """The value of a text attribute."""
        value = self.attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)

    # -- other forms of the same node

    def with_(
        self,
        *,
        op_type: str = "",
        inputs: Sequence[Value | None] | None = None,
        drop: str = "",
        also: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> Draft:
        """The node in the form of the version that the row leads to. `drop` names attributes that it has no more.

        An attribute of the value None is dropped, too. `also` has attributes whose names are computed.
        """
        attributes.update(also or {})
        made = copy.copy(self)
        made.changed = True
        if op_type:
            made.schema = _renamed(self.schema, op_type)
        if inputs is not None:
            made.inputs = list(inputs)
            while made.inputs and made.inputs[-1] is None:
                made.inputs.pop()
        gone = {*drop.split(), *(name for name, value in attributes.items() if value is None)}
        kept = {name: value for name, value in self.attributes.items() if name not in gone}
        made.attributes = {**kept, **{name: value for name, value in attributes.items() if value is not None}}
        return made


def _renamed(schema: OpSchema, op_type: str) -> OpSchema:
    """A schema of the other operator's name; the engine looks up the right version of it."""
    return replace(schema, name=op_type)
