"""Arguments are bound by the ATen schema, in the same way for all front ends.

`signature("aten::slice.Tensor")` is parsed from the schema text that torch itself holds.  The functionalization needs
the alias annotations of that text: `Tensor(a)` is a view, `Tensor(a!)` is a write.
Source: the grammar in torch's `aten/src/ATen/native/README.md`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.graph import Arg
from purexport.aten.names import operator_of, parsed, schema_of

MISSING = object()
_ALIAS = re.compile(r"\(([a-z]\w*)?(!)?(?:\s*->\s*\*|\|\s*\w+)*(!)?\)")

# TorchScript passes these as the integers of c10's enums; the rules see torch's objects.
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a schema: `alias` is the letter of its annotation, `writes` the exclamation mark."""

    name: str
    type: str
    default: Any
    alias: str | None
    writes: bool
    kwarg_only: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """A schema: its parameters in order, and for each result the alias letter shared with a parameter, or None."""

    target: str
    parameters: tuple[Parameter, ...]
    returns: tuple[str | None, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the parameters that the operator writes to."""
        return tuple(parameter.name for parameter in self.parameters if parameter.writes)

    @property
    def is_view(self) -> bool:
        """True when a result shares storage with an argument that is not written."""
        written = {parameter.alias for parameter in self.parameters if parameter.writes}
        return any(alias is not None and alias not in written for alias in self.returns)

    def aliased(self) -> str | None:
        """The name of the parameter that a view's result aliases."""
        letters = {alias for alias in self.returns if alias is not None}
        for parameter in self.parameters:
            if parameter.alias in letters:
                return parameter.name
        return None


def signature(target: str) -> Signature:
    """The signature of `aten::name.overload`.  Raises LookupError for a name that torch does not know."""
    return _builtin(target) if target.startswith(("aten::", "prim::")) else _found(target)


@functools.cache
def number_parameters(target: str) -> frozenset[str]:
    """The parameters that are no tensors; none for what has no schema, as what takes lists apart."""
    try:
        return frozenset(item.name for item in signature(target).parameters if "Tensor" not in item.type)
    except LookupError:
        return frozenset()


@functools.cache
def changes_shape(target: str) -> bool:
    """Whether an operator gives a tensor another shape in place (torch's tag `inplace_view`)."""
    tags = getattr(operator_of(target), "tags", ())
    return torch.Tag.inplace_view in tags and parsed(target).name != "detach_"


def _found(target: str) -> Signature:
    return _from_schema(target, schema_of(target))


_builtin = functools.cache(_found)  # not for a torch.library: its operators may be removed and declared again


def _from_schema(target: str, schema: Any) -> Signature:
    text = str(schema)
    arguments, returns = _split_schema(text)
    parameters = []
    for argument, piece in zip(schema.arguments, arguments, strict=True):
        alias, writes = _alias(piece)
        default = argument.default_value if argument.has_default_value() else MISSING
        kind = str(argument.real_type)
        parameters.append(
            Parameter(argument.name, kind, _convert(default, kind), alias, writes, bool(argument.kwarg_only))
        )
    return Signature(target, tuple(parameters), tuple(_alias(piece)[0] for piece in returns))


def _split_schema(text: str) -> tuple[list[str], list[str]]:
    """The texts of arguments and of results; parentheses of annotations and brackets do not split."""
    start = text.index("(")
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            break
    arguments = [piece for piece in _split_commas(text[start + 1 : position]) if piece != "*"]
    result = text[position + 1 :].strip().removeprefix("->").strip()
    if result.startswith("(") and result.endswith(")"):
        result = result[1:-1]
    return arguments, _split_commas(result)


def _split_commas(text: str) -> list[str]:
    pieces, depth, current, quote = [], 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(current.strip())
            current = ""
            continue
        current += char
    if current.strip():
        pieces.append(current.strip())
    return pieces


def _alias(piece: str) -> tuple[str | None, bool]:
    if not piece.startswith("Tensor("):
        return None, False
    match = _ALIAS.match(piece, len("Tensor"))
    if match is None:
        return None, False
    return match.group(1), bool(match.group(2) or match.group(3))


def target_of(schema: str) -> str:
    """The operator's name with its overload, from the text of a TorchScript schema.

    The suffix of `index.Tensor_hacked_twin` is dropped: it only says that no tensor of a list of optional ones is None.
    """
    return schema[: schema.index("(")].removesuffix("_hacked_twin").removesuffix(".hacked_twin")


@functools.cache
def _dtype_by_code() -> dict[int, torch.dtype]:
    """c10::ScalarType code to dtype, asked of torch itself."""
    names = (
        "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 "
        "bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz "
        "float8_e4m3fnuz uint16 uint32 uint64 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 "
        "int7 float8_e8m0fnu float4_e2m1fn_x2"
    )
    codes = enumerate(names.split())
    return {code: getattr(torch, name) for code, name in codes if hasattr(torch, name)}


def dtype_from_code(code: int) -> torch.dtype:
    """The dtype of a c10::ScalarType code, as TorchScript passes them.  Raises ValueError for an unknown one."""
    try:
        return _dtype_by_code()[code]
    except KeyError:
        raise ValueError(f"unknown c10::ScalarType code {code}") from None


def code_of_dtype(dtype: torch.dtype) -> int:
    """The c10::ScalarType code of a dtype.  Raises ValueError for a dtype that has none."""
    code = next((code for code, known in _dtype_by_code().items() if known is dtype), None)
    if code is None:
        raise ValueError(f"{dtype} has no c10::ScalarType code")
    return code


def _convert(value: Any, kind: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if "ScalarType" in kind:
            return dtype_from_code(value)
        if "MemoryFormat" in kind and value < len(_MEMORY_FORMATS):
            return _MEMORY_FORMATS[value]
    return value


def bind(target: str, args: Sequence[Arg], kwargs: Mapping[str, Arg]) -> dict[str, Arg]:
    """Arguments of a call by name, in schema order, defaults filled in.  Raises TypeError when they do not fit."""
    parameters = signature(target).parameters
    if len(args) > len(parameters):
        raise TypeError(f"{target} takes {len(parameters)} arguments, {len(args)} were given")
    bound: dict[str, Arg] = {}
    for position, parameter in enumerate(parameters):
        if position < len(args):
            value = args[position]
        elif parameter.name in kwargs:
            value = kwargs[parameter.name]
        elif parameter.default is not MISSING:
            value = parameter.default
        else:
            raise TypeError(f"{target} misses its argument {parameter.name!r}")
        bound[parameter.name] = _convert(value, parameter.type)
    return bound


def is_wrapped_number(tensor: torch.Tensor) -> bool:
    """True for a literal that was wrapped in a tensor: torch marks it, and type promotion shows the mark."""
    if tensor.dim() or tensor.dtype not in (torch.int64, torch.float64, torch.complex128, torch.bool):
        return False
    if tensor.dtype is torch.int64:
        return torch.result_type(torch.zeros((), dtype=torch.int8), tensor) is torch.int8
    if tensor.dtype is torch.bool:
        return False
    return torch.result_type(torch.zeros(1, dtype=torch.int8), tensor) is not tensor.dtype
