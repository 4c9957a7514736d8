"""Rows of operators that compute each element by itself, with NumPy's broadcasting.

Of small integer tensors the content is followed: sizes stay exact through integer arithmetic, and through casts to
floating point and back.  A division of integers is rounded towards zero; it is a quotient of sizes only where both are
known not to be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import MOST, Content, Element, Type, is_size, known_shape
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim, Size, maximum, minimum

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)

_KEEPING = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli", "BitwiseNot", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax",
    "Mish", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "CumSum", "CumProd",
)  # fmt: skip


@row(*_KEEPING)
def keep_shape(site: Site) -> Type | None:
    """The shape of the first input."""
    dtype = int(site.attribute("dtype", 0)) or site.dtype(0) if site.schema.name == "Bernoulli" else 0
    if site.shape(0) == () and site.schema.name in ("Hardmax", "LogSoftmax", "Softmax"):
        site.fail(f"{site.schema.name} has an axis, and its input has rank 0")
    return site.out(site.shape(0), dtype)


@row("Identity")
def identity(site: Site) -> Type | None:
    """The input itself, whatever it is."""
    return site.type(0)


@row("SwiGLU")
def gated(site: Site) -> Type | None:
    """Two operands of one shape, without broadcasting."""
    one, other = site.shape(0), site.shape(1)
    if one is None or other is None:
        return site.out(one if one is not None else other)
    if len(one) != len(other):
        site.fail(f"the operands have ranks {len(one)} and {len(other)}, and SwiGLU takes one shape")
    return site.out(tuple([site.same(a, b, "the sizes of the operands") for a, b in zip(one, other, strict=True)]))


# Arithmetic on contents ----------------------------------------------------------------------------------------------


def _add(one: Dim, other: Dim) -> Element:
    return one + other


def _sub(one: Dim, other: Dim) -> Element:
    return one - other


def _mul(one: Dim, other: Dim) -> Element:
    return one * other


def _div(one: Dim, other: Dim) -> Element:
    if isinstance(one, int) and isinstance(other, int):
        return int(one / other) if abs(one) < 2**52 and other else None
    if isinstance(other, int) and other == 1:
        return one
    return one // other if _at_least(one, 0) and _at_least(other, 0) and other != 0 else None


def _mod(one: Dim, other: Dim) -> Element:
    return one % other if _at_least(other, 0) and other != 0 else None


def _at_least(size: Dim, least: int) -> bool:
    low = size if isinstance(size, int) else size.low
    return low is not None and low >= least


def _power(one: Dim, other: Dim) -> Element:
    if not isinstance(other, int) or not 0 <= other <= 8:
        return None
    result: Dim = 1
    for _ in range(other):
        result = result * one
    return result


_ON_SIZES: dict[str, Callable[[Dim, Dim], Element]] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Mod": _mod,
    "Min": minimum,
    "Max": maximum,
    "Pow": _power,
}
_COMPARED: dict[str, Callable[[Site, Dim, Dim], bool | None]] = {
    "Equal": lambda site, one, other: site.scope.equations.equals(one, other),
    "Less": lambda site, one, other: site.scope.equations.less(one, other),
    "Greater": lambda site, one, other: site.scope.equations.less(other, one),
    "LessOrEqual": lambda site, one, other: site.scope.equations.less(one, other + 1),
    "GreaterOrEqual": lambda site, one, other: site.scope.equations.less(other, one + 1),
}


_BINARY = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor",
)  # fmt: skip


@row(*_BINARY)
def binary(site: Site) -> Type | None:
    """Two operands that broadcast; before opset 7 the second to a part of the first, which the result is like."""
    name = site.schema.name
    if name == "PRelu" or (site.version < 7 and name != "Pow") or "broadcast" in site.schema.attributes:
        return site.out(site.shape(0), content=_combined(site) if site.shape(0) == site.shape(1) else None)
    shape = site.broadcast(site.shape(0), site.shape(1))
    return site.out(shape, content=_combined(site))


@row("Min", "Max", "Sum", "Mean")
def variadic(site: Site) -> Type | None:
    """Any number of operands that broadcast."""
    shape = site.broadcast(*[site.shape(place) for place in range(len(site.inputs))])
    return site.out(shape, content=_combined(site) if site.schema.name in _ON_SIZES else None)


def _combined(site: Site) -> Content:
    """The content of a result, where it follows from those of the operands."""
    name = site.schema.name
    on_floats = site.dtype(0) in _FLOATS
    arrays = _arrays(site)
    if arrays is None:
        return None
    result: list[Element] = []
    for items in zip(*(array.reshape(-1).tolist() for array in arrays), strict=True):
        total: Element = items[0]
        for item in items[1:]:
            total = _pair(site, name, total, item, on_floats)
        result.append(total)
    return tuple(result)


def _arrays(site: Site) -> list[np.ndarray[Any, Any]] | None:
    """The contents of all inputs as arrays of one shape; None where one is not known, or they are large."""
    found = []
    for place in range(len(site.inputs)):
        content, shape = site.content(place), known_shape(site.shape(place))
        if content is None or shape is None:
            return None
        array = np.empty(len(content), dtype=object)
        array[:] = content
        found.append(array.reshape(shape))
    common = list(np.broadcast_arrays(*found))
    return common if common[0].size <= MOST else None


def _pair(site: Site, name: str, one: Element, other: Element, on_floats: bool) -> Element:
    if isinstance(one, bool) and isinstance(other, bool):
        return {"And": one and other, "Or": one or other, "Xor": one != other, "Equal": one == other}.get(name)
    if isinstance(one, float) and one.is_integer():
        one = int(one)
    if isinstance(other, float) and other.is_integer():
        other = int(other)
    if not is_size(one) or not is_size(other):
        return None
    assert isinstance(one, (int, Size)) and isinstance(other, (int, Size))
    if name in _COMPARED:
        return _COMPARED[name](site, one, other)
    if on_floats and name in ("Div", "Mod", "Pow"):
        if name != "Div" or (one % other if other != 0 else 1) != 0:
            return None
        return one // other
    function = _ON_SIZES.get(name)
    return None if function is None else _held(function(one, other), site.dtype(0))


def _held(item: Element, dtype: int) -> Element:
    """A number that the dtype holds; of what wraps around nothing is known."""
    bits = {TensorProto.INT64: 63, TensorProto.INT32: 31}.get(dtype)
    return None if bits and isinstance(item, int) and not -(2**bits) <= item < 2**bits else item


@row("Neg", "Abs", "Floor", "Ceil")
def unary(site: Site) -> Type | None:
    """One operand; a size stays one."""
    content = site.content(0)
    functions: dict[str, Callable[[Dim], Element]] = {
        "Neg": lambda size: -size,
        "Abs": lambda size: abs(size) if isinstance(size, int) else size if _at_least(size, 0) else None,
        "Floor": lambda size: size,
        "Ceil": lambda size: size,
    }
    function = functions[site.schema.name]
    made = None
    if content is not None:
        known = [function(item) if isinstance(item, (int, Size)) and is_size(item) else None for item in content]
        made = tuple([_held(item, site.dtype(0)) for item in known])
    return site.out(site.shape(0), content=made)


@row("Cast", "CastLike", "BitCast")
def cast(site: Site) -> Type | None:
    """Another dtype; sizes and whole numbers stay what they are."""
    like = site.schema.name == "CastLike"
    dtype = site.dtype(1) if like else _target(site.attribute("to", 0))
    content = site.content(0) if site.schema.name != "BitCast" else None
    if content is not None:
        whole = dtype in (TensorProto.INT64, TensorProto.INT32)
        content = tuple([_cast(item, dtype, whole) for item in content])
    return site.out(site.shape(0), dtype, content)


def _target(code: int | bytes) -> int:
    """The dtype, of which the first version has the name."""
    if isinstance(code, int):
        return code
    name = code.decode("utf-8", "replace").upper()
    return int(TensorProto.DataType[name]) if name in TensorProto.DataType.__members__ else 0


def _cast(item: Element, dtype: int, whole: bool) -> Element:
    if dtype == TensorProto.BOOL:
        return bool(item) if isinstance(item, (bool, int, float)) else None
    if isinstance(item, bool):
        return int(item)
    if isinstance(item, float):
        return int(item) if whole and abs(item) < 2**31 else item if dtype in _FLOATS else None
    return _held(item, dtype) if whole or dtype in _FLOATS else None


@row("Where")
def where(site: Site) -> Type | None:
    """A choice, element by element."""
    shape = site.broadcast(site.shape(0), site.shape(1), site.shape(2))
    return site.out(shape, content=_chosen(site))


def _chosen(site: Site) -> Content:
    arrays = _arrays(site)
    if arrays is None:
        return None
    picked: list[Element] = []
    for condition, one, other in zip(*(array.reshape(-1).tolist() for array in arrays), strict=True):
        picked.append(one if condition is True or one == other else other if condition is False else None)
    return tuple(picked)


# What gives sizes ----------------------------------------------------------------------------------------------------


@row("Shape")
def shape_of(site: Site) -> Type | None:
    """The sizes of a tensor, of a part of its axes since opset 15."""
    shape = site.shape(0)
    if shape is None:
        return site.out((site.fresh(),))
    start, end = site.attribute("start", 0), site.attribute("end")
    part = shape[slice(start, end)]
    return site.out((len(part),), content=part)


@row("Size")
def size_of(site: Site) -> Type | None:
    """The number of elements of a tensor."""
    shape = site.shape(0)
    if shape is None:
        return site.out(())
    total: Dim = 1
    for size in shape:
        total = total * size
    return site.out((), content=(total,))


@row("Constant")
def constant(site: Site) -> Type | None:
    """The tensor, number or list in an attribute."""
    from proto_schema.inference.walk import stored_content

    for name, value in site.attributes.items():
        if name == "value":
            shape = tuple(value.dims)
            return site.out(shape, value.data_type or 0, stored_content(value, shape))
        if name == "sparse_value":
            dtype = value.values.data_type if value.values is not None else 0
            return site.out(tuple(value.dims), dtype or 0)
        if name in _CONSTANTS:
            dtype, rank = _CONSTANTS[name]
            items = value if rank else [value]
            known = dtype != TensorProto.STRING and len(items) <= MOST
            return site.out((len(items),) * rank, dtype, tuple(items) if known else None)
    return None


_CONSTANTS = {
    "value_float": (TensorProto.FLOAT, 0),
    "value_floats": (TensorProto.FLOAT, 1),
    "value_int": (TensorProto.INT64, 0),
    "value_ints": (TensorProto.INT64, 1),
    "value_string": (TensorProto.STRING, 0),
    "value_strings": (TensorProto.STRING, 1),
}
