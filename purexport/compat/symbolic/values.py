"""What a symbolic function sees: values, their types and their nodes, with the method names of TorchScript's graph.

A value stands for a tensor of the ONNX graph, or for something known: a number, a text, None, a list.  A known value
becomes a tensor only when an operator takes it, in the dtype of the operator's other inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value as Tensor

_MISSING = object()
_SCALAR_TYPES = dtypes.scalar_types()
_KINDS = {bool: "BoolType", int: "IntType", float: "FloatType", str: "StringType", type(None): "NoneType"}


class SymbolicType:
    """The type of a value: `sizes()`, `dim()`, `scalarType()` and `dtype()` are None where they are unknown."""

    def __init__(self, dtype: torch.dtype | None, shape: Sequence[Any] | None, kind: str = "TensorType") -> None:
        self._dtype, self._shape, self._kind = dtype, None if shape is None else tuple(shape), kind

    def kind(self) -> str:
        """`"TensorType"`, `"IntType"`, `"ListType"` and so on."""
        return self._kind

    def sizes(self) -> list[int] | None:
        """The shape, if no size can change; else None."""
        sizes = self.varyingSizes()
        return None if sizes is None or None in sizes else [size for size in sizes if size is not None]

    def varyingSizes(self) -> list[int | None] | None:  # noqa: N802  the names are TorchScript's
        """The shape, with None for each size that can change."""
        return None if self._shape is None else [size if isinstance(size, int) else None for size in self._shape]

    def dim(self) -> int | None:
        """The rank."""
        return None if self._shape is None else len(self._shape)

    def scalarType(self) -> str | None:  # noqa: N802
        """`"Float"`, `"Long"`, `"Bool"` and so on."""
        return _SCALAR_TYPES.get(self._dtype) if self._dtype is not None else None

    def dtype(self) -> torch.dtype | None:
        """The dtype as torch's object."""
        return self._dtype

    def with_sizes(self, sizes: Sequence[Any] | None) -> SymbolicType:
        """This type with another shape."""
        return SymbolicType(self._dtype, sizes)

    def with_dtype(self, dtype: torch.dtype) -> SymbolicType:
        """This type with another dtype."""
        return SymbolicType(dtype, self._shape)

    def __str__(self) -> str:
        sizes = "" if self._shape is None else ", ".join(str(size) for size in self._shape)
        return f"{self.scalarType() or 'Tensor'}({sizes})" if self._kind == "TensorType" else self._kind


class SymbolicNode:
    """The node that made a value.  Attributes are read as in TorchScript: `node.t("value")`, `node["value"]`."""

    def __init__(self, value: SymbolicValue) -> None:
        self._value = value

    def kind(self) -> str:
        """`"onnx::Conv"`, `"onnx::Constant"`, `"prim::ListConstruct"`, `"prim::Param"` for an input."""
        if self._value.items is not None:
            return "prim::ListConstruct"
        if self._value.is_known:
            return "prim::Constant" if self._value.known is None else "onnx::Constant"
        made = self._value.tensor.node
        return f"{made.domain or 'onnx'}::{made.op_type}" if made is not None else "prim::Param"

    def mustBeNone(self) -> bool:  # noqa: N802
        """True for None."""
        return self._value.is_known and self._value.known is None

    def inputs(self) -> Iterator[SymbolicValue]:
        """The node's inputs; of a list, its elements."""
        if self._value.items is not None:
            return iter(self._value.items)
        made = None if self._value.is_known else self._value.tensor.node
        return (SymbolicValue(item) for item in (made.inputs if made is not None else ()) if item is not None)

    def _attributes(self) -> dict[str, Any]:
        if self._value.is_known:
            return {"value": self._value.known}
        made = self._value.tensor.node
        return dict(made.attributes) if made is not None else {}

    def attributeNames(self) -> list[str]:  # noqa: N802
        """The names of the attributes."""
        return list(self._attributes())

    def hasAttribute(self, name: str) -> bool:  # noqa: N802
        """Whether there is an attribute of that name."""
        return name in self._attributes()

    def addBlock(self) -> Any:  # noqa: N802
        """Refused: here `g.block()` writes a body, which is an attribute of its node from the start."""
        raise UnsupportedForm(
            "has a symbolic function that adds blocks to a node; write them with g.block()", code="symbolic-refuses"
        )

    def __getitem__(self, name: str) -> Any:
        return self._attributes()[name]

    def t(self, name: str) -> torch.Tensor:
        """An attribute as a tensor."""
        return torch.as_tensor(self[name])

    i = f = s = ints = __getitem__


class SymbolicValue:
    """A tensor of the ONNX graph (`tensor`), something known (`known`), or a list of values (`items`)."""

    __slots__ = ("_known", "_tensor", "items")

    def __init__(
        self, tensor: Tensor | None = None, known: Any = _MISSING, items: Sequence[SymbolicValue] | None = None
    ) -> None:
        self._tensor = tensor
        if tensor is not None and tensor.const is not None and not tensor.name:
            known = tensor.const  # what the model owns has a name, and is an input to the graph rather than a constant
        self._known = known
        self.items = None if items is None else list(items)

    @property
    def is_known(self) -> bool:
        """True for a constant: a tensor, a number, a text, None, or a list of numbers."""
        return self._known is not _MISSING

    @property
    def known(self) -> Any:
        """The constant."""
        return self._known

    @property
    def tensor(self) -> Tensor:
        """The value in the ONNX graph.  Raises UnsupportedForm if it is no tensor there."""
        if self._tensor is None:
            what = "a list" if self.items is not None else f"the constant {self._known!r}"
            raise UnsupportedForm(f"has a symbolic function that takes {what} for a tensor", code="symbolic-refuses")
        return self._tensor

    def operand(self) -> Any:
        """Its form for the emitter: the value of the graph, or the known value."""
        return self._tensor if self._tensor is not None else self._known

    def type(self) -> SymbolicType:
        """The type of the value."""
        if self.items is not None or isinstance(self._known, (list, tuple)):
            return SymbolicType(None, None, "ListType")
        if self._tensor is None:
            return SymbolicType(None, None, _KINDS.get(type(self._known), "AnyType"))
        dtype = None if self._tensor.dtype is None else dtypes.torch_dtype(self._tensor.dtype)
        return SymbolicType(dtype, self._tensor.shape)

    def setType(self, type: SymbolicType) -> SymbolicValue:  # noqa: N802
        """Set the type of a result; returns the value.  What the type leaves open stays as it is."""
        if type.dtype() is not None:
            self.tensor.dtype = dtypes.onnx_code(type.dtype())  # type: ignore[arg-type]
        if type._shape is not None:
            self.tensor.shape = type._shape
        return self

    def node(self) -> SymbolicNode:
        """What made the value."""
        return SymbolicNode(self)

    def isCompleteTensor(self) -> bool:  # noqa: N802
        """True for a tensor whose dtype and sizes are all known."""
        return self._tensor is not None and self._tensor.dtype is not None and self._tensor.is_static

    def debugName(self) -> str:  # noqa: N802
        """The name of an input or initializer; other values get their names later."""
        return self._tensor.name if self._tensor is not None else repr(self._known)

    def __repr__(self) -> str:
        return f"<{self.node().kind()}: {self.type()}>"
