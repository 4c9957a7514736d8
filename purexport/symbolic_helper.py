"""The helpers of symbolic functions, under the names that code written for torch.onnx uses.

A symbolic function gets values of `g`, and `parse_args` turns known values into Python numbers.  The names with a
leading underscore are part of the interface, because old code imports them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import torch

from purexport import dtypes
from purexport.aten.schema import dtype_from_code
from purexport.compat.symbolic.values import SymbolicValue
from purexport.errors import ExportError, UnsupportedForm

Function = TypeVar("Function", bound=Callable[..., Any])

# the ONNX data type of each dtype that a symbolic function may meet, by the names of scalarType()
cast_pytorch_to_onnx: Mapping[str, int] = {
    **{name: dtypes.onnx_code(dtype) for dtype, name in dtypes.scalar_types().items()},
    "Undefined": 0,
}
# torch's dtypes in the order of their numbers, which arguments named dtype carry
scalar_type_to_pytorch_type: Sequence[torch.dtype] = [dtype_from_code(code) for code in range(12)]
scalar_type_to_onnx: Sequence[int] = [
    dtypes.onnx_code(dtype) if dtype is not torch.complex32 else 0 for dtype in scalar_type_to_pytorch_type
]
pytorch_name_to_type: Mapping[str, torch.dtype] = {
    name: dtypes.torch_dtype(code) for name, code in cast_pytorch_to_onnx.items() if code
}


def parse_args(*arg_descriptors: str) -> Callable[[Function], Function]:
    """Declare the arguments of a symbolic function: one descriptor for each argument after `g`.

    `"v"` a value; `"i"`, `"f"`, `"b"`, `"s"` a known number or text; `"is"`, `"fs"` a list of such;
    `"t"` a known tensor; `"none"` what must be None.  A None stays None.
    Raises UnsupportedForm (an UnsupportedOperatorError of the export) where an argument should be known and is
    computed, TypeError when there are more arguments than descriptors.
    """
    unknown = [item for item in arg_descriptors if item not in _CONVERTERS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a descriptor; known are {', '.join(map(repr, _CONVERTERS))}")

    def decorate(function: Function) -> Function:
        names = list(inspect.signature(function).parameters)[1:]
        by_name = dict(zip(names, arg_descriptors, strict=False))

        @functools.wraps(function)
        def call(g: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(arg_descriptors):
                raise TypeError(
                    f"{function.__name__} has {len(arg_descriptors)} descriptors in parse_args, and got {len(args)}"
                )
            places = [names[place] if place < len(names) else str(place) for place in range(len(args))]
            converted = [
                parsed(arg, kind, name, function.__name__)
                for arg, kind, name in zip(args, arg_descriptors, places, strict=False)
            ]
            named = {
                name: parsed(arg, by_name[name], name, function.__name__) if name in by_name else arg
                for name, arg in kwargs.items()
            }
            return function(g, *converted, **named)

        return call  # type: ignore[return-value]

    return decorate


def parsed(arg: Any, kind: str, name: str, function: str) -> Any:
    """One argument of a symbolic function, as `parse_args` converts it; the names are for its errors."""
    if kind == "v" or not isinstance(arg, SymbolicValue):
        return arg
    if arg.node().mustBeNone():
        return None
    if kind == "none":
        raise UnsupportedForm(
            f"has a symbolic function {function} that takes None only for {name!r}", code="symbolic-refuses"
        )
    known = _constant_of(arg)
    if known is None:
        raise UnsupportedForm(
            f"has a symbolic function {function} that wants {name!r} known at the export, by "
            f"parse_args {kind!r}, and the model computes it",
            code="symbolic-refuses",
        )
    try:
        return _CONVERTERS[kind](known)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnsupportedForm(
            f"has a symbolic function {function} whose argument {name!r} does not fit {kind!r}: {error}",
            code="symbolic-refuses",
        ) from None


def _constant_of(value: SymbolicValue) -> Any:
    """What is known of a value, or None: a list is known when each of its elements is."""
    if value.items is None:
        return value.known if value.is_known else None
    found = [_constant_of(item) for item in value.items]
    return None if any(item is None for item in found) else found


def _number(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(known: Any) -> Any:
        if isinstance(known, torch.Tensor):
            known = known.item()
        if convert is int and isinstance(known, float) and not known.is_integer():
            raise ValueError(f"{known} is not an integer")
        return convert(known)

    return converted


def _numbers(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(known: Any) -> Any:
        items = known.reshape(-1).tolist() if isinstance(known, torch.Tensor) else known
        return [_number(convert)(item) for item in items]

    return converted


def _text(known: Any) -> str:
    if not isinstance(known, str):
        raise TypeError(f"{known!r} is not text")
    return known


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "v": lambda known: known,
    "i": _number(int),
    "f": _number(float),
    "b": _number(bool),
    "s": _text,
    "t": torch.as_tensor,
    "is": _numbers(int),
    "fs": _numbers(float),
    "none": lambda known: None,
}


def quantized_args(*arg_q_descriptors: bool, **options: Any) -> Callable[[Function], Function]:
    """A decorator that returns the symbolic function unchanged, for code that uses torch.onnx's.

    Quantized tensors never reach a symbolic function here: such a call is refused with its source line.
    """
    return lambda function: function


# Asking --------------------------------------------------------------------------------------------------------------


def _is_value(x: Any) -> bool:
    """Whether `x` is a value of `g`."""
    return isinstance(x, SymbolicValue)


def _is_constant(value: Any) -> bool:
    """Whether `value` is known at the export."""
    return not isinstance(value, SymbolicValue) or value.is_known


def _is_none(x: Any) -> bool:
    """Whether `x` is None, or a value that stands for it."""
    return x is None or (isinstance(x, SymbolicValue) and x.node().mustBeNone())


def _is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor of the graph."""
    return isinstance(x, SymbolicValue) and x.type().kind() == "TensorType"


def _is_packed_list(list_value: Any) -> bool:
    """Whether `list_value` is a list whose elements `_unpack_list` gives."""
    return isinstance(list_value, SymbolicValue) and list_value.items is not None


def _maybe_get_const(value: Any, descriptor: str) -> Any:
    """`value` as a Python number when it is known, else the value itself."""
    if not isinstance(value, SymbolicValue) or _is_none(value):
        return None if _is_none(value) else value
    known = _constant_of(value)
    return value if known is None else _CONVERTERS[descriptor](known)


def _get_const(value: Any, desc: str, arg_name: str) -> Any:
    """`value` as a Python number.  Raises UnsupportedForm when the model computes it."""
    if not _is_constant(value):
        raise UnsupportedForm(
            f"has a symbolic function that wants {arg_name!r} known, and the model computes it", code="symbolic-refuses"
        )
    return _maybe_get_const(value, desc)


def _maybe_get_scalar(value: Any) -> Any:
    """A known zero-dim tensor as torch's tensor, else the value itself."""
    known = _maybe_get_const(value, "t")
    return known if isinstance(known, torch.Tensor) and known.shape == () else value


def _scalar(x: Any) -> Any:
    """A known number as a Python number, else None."""
    if isinstance(x, SymbolicValue):
        x = _constant_of(x)
    if isinstance(x, torch.Tensor):
        return x.item() if x.numel() == 1 else None
    return x if isinstance(x, (bool, int, float)) else None


def _unpack_list(list_value: SymbolicValue) -> list[SymbolicValue]:
    """The elements of a list of tensors."""
    if list_value.items is not None:
        return list_value.items
    if isinstance(list_value.known, (list, tuple)):
        return [SymbolicValue(known=item) for item in list_value.known]
    raise UnsupportedForm(
        "has a symbolic function that takes a list, and its length is not known here", code="symbolic-refuses"
    )


def _get_tensor_rank(x: SymbolicValue) -> int | None:
    """The rank, or None."""
    return x.type().dim() if _is_tensor(x) else None


def _get_tensor_sizes(x: SymbolicValue, allow_nonstatic: bool = True) -> list[int | None] | list[int] | None:
    """The sizes, None for those that can change; without `allow_nonstatic` None when one of them can."""
    if not _is_tensor(x):
        return None
    return x.type().varyingSizes() if allow_nonstatic else x.type().sizes()


def _get_tensor_dim_size(x: SymbolicValue, dim: int) -> int | None:
    """One size, None when it can change."""
    sizes = _get_tensor_sizes(x)
    return None if sizes is None else sizes[dim]


def _try_get_scalar_type(*args: Any) -> str | None:
    """`scalarType()` of the first value that has one."""
    found = (arg.type().scalarType() for arg in args if _is_tensor(arg))
    return next((name for name in found if name is not None), None)


def _is_fp(value: SymbolicValue) -> bool:
    """Whether a tensor holds floating-point numbers."""
    dtype = value.type().dtype()
    return dtype is not None and dtype.is_floating_point


def _is_bool(value: SymbolicValue) -> bool:
    """Whether a tensor holds booleans."""
    return value.type().dtype() is torch.bool


# Writing --------------------------------------------------------------------------------------------------------------


def _if_scalar_type_as(*given: Any) -> Any:
    """A number as a constant in the dtype of a tensor: `_if_scalar_type_as(number, tensor)`, before that `g`."""
    number, tensor = given[-2:]
    if isinstance(number, SymbolicValue):
        return number
    dtype = tensor.type().dtype()
    return number if dtype is None else SymbolicValue(known=torch.as_tensor(number, dtype=dtype))


def _reshape_helper(g: Any, input: Any, shape: Any, allowzero: int = 0) -> Any:
    """`Reshape`; `shape` is a value or a list of numbers."""
    shape = shape if isinstance(shape, SymbolicValue) else g.op("Constant", value_t=torch.tensor(list(shape)))
    return g.op("Reshape", input, shape, allowzero_i=allowzero or None)


def _squeeze_helper(g: Any, input: Any, axes_i: Sequence[int]) -> Any:
    """`Squeeze` in the form of the requested opset."""
    return g.op("Squeeze", input, axes_i=list(axes_i))


def _unsqueeze_helper(g: Any, input: Any, axes_i: Sequence[int]) -> Any:
    """`Unsqueeze` in the form of the requested opset."""
    return g.op("Unsqueeze", input, axes_i=list(axes_i))


def _unimplemented(op: str, msg: str, value: Any = None) -> NoReturn:
    """Refuse the call: it becomes a line of the export's UnsupportedOperatorError, with the place."""
    raise UnsupportedForm(f"is refused by the symbolic function of {op}: {msg}", code="symbolic-refuses")


def _onnx_unsupported(op_name: str, value: Any = None) -> NoReturn:
    """Refuse the call, as `_unimplemented` does."""
    raise UnsupportedForm(
        f"is refused by its symbolic function: {op_name} has no form in ONNX", code="symbolic-refuses"
    )


def _onnx_opset_unsupported(op_name: str, current_opset: int, supported_opset: int, value: Any = None) -> NoReturn:
    """Refuse the call at this opset."""
    raise UnsupportedForm(
        f"is refused by the symbolic function of {op_name}: needs opset {supported_opset} or later",
        code="opset-too-low",
    )


def check_training_mode(op_train_mode: int, op_name: str) -> None:
    """Does nothing: the mode of the export is that of the captured model."""


class SymbolicValueError(ExportError):
    """What a symbolic function raises for a value that it cannot take; `value` is that value."""

    def __init__(self, msg: str, value: Any) -> None:
        super().__init__(f"{msg} ({value!r})", code="symbolic-fails")
