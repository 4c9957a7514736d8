"""Cast, CastLike and BitCast, between all data types.

The tables of the specification of Cast are followed: the float8 types saturate or become NaN (float8e5m2: infinite)
beyond their range, float8e8m0 rounds as `round_mode` says, integers keep their low bits, and text is a number as Python
writes it. What the specification leaves undefined is done as the official generators of test cases do: 4- and 2-bit
integers made from numbers beyond their range keep their low bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import WIDE, copied, made
from proto_schema.compute.rows import row
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_array, from_codes, to_array, to_codes
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.minifloat import FORMATS, Format
from proto_schema.tensors.rounding import rounded, wide_integers

__all__ = ["cast"]

_STRING, _FLOAT8E8M0 = TensorProto.STRING, TensorProto.FLOAT8E8M0


def _cast_cost(call: Call, x: Array, like: Array | None = None) -> Cost:
    to = call.attribute("to", 0) if like is None else call.dtype(1)
    width = 128 if to in (_STRING, b"STRING") else 2 * WIDE
    return made(x.shape, width, times=width, scratch=3)


@row("Cast", cost=_cast_cost)
def _cast(call: Call, x: Array) -> Any:
    to = call.attribute("to", 0)
    if isinstance(to, bytes):  # opset 1 names the type
        names = {item.name: item.code for item in DTYPES.values()}
        to = names.get(to.decode("utf-8", "replace").upper(), 0)
    return _converted(call, x, int(to))


@row("CastLike", cost=_cast_cost)
def cast_like(call: Call, x: Array, like: Array) -> Any:
    """A cast to the data type of the second input."""
    return _converted(call, x, call.dtype(1))


def _converted(call: Call, x: Array, to: int) -> Typed:
    if to not in DTYPES:
        call.fail(f"{to} is not a data type")
    saturate = bool(call.attribute("saturate", 1))
    try:
        return Typed(cast(x, call.dtype(0), to, saturate, call.text("round_mode", "up")), to)
    except ValueError as error:
        call.fail(str(error))


def cast(x: Array, source: int, to: int, saturate: bool = True, round_mode: str = "up") -> Array:
    """The values of a tensor of type `source` in the type `to`, as an array of its numpy type.

    Raises ValueError for text that is no number.
    """
    if source == to:
        return x
    if to == _STRING:
        return _as_text(x)
    row_ = DTYPES[to]
    if source == _STRING:
        x = _numbers(x, row_.numpy)
    if x.dtype.kind == "c" and "c" not in row_.numpy:
        x = x.real
    if row_.native:
        return x.astype(row_.numpy)
    if row_.numpy.lstrip("<")[0] in "iu":
        return rounded(wide_integers(x).astype(row_.numpy), to)
    if to == _FLOAT8E8M0:
        return _power_of_two(x.astype(np.float32), saturate, round_mode)
    if to in FORMATS and FORMATS[to].nan is not None:
        return _small(x.astype(np.float32), to, FORMATS[to], saturate)
    return rounded(x.astype(np.float32), to)


def _as_text(x: Array) -> Array:
    found = np.empty(x.shape, object)
    found.reshape(-1)[:] = [str(item) for item in x.reshape(-1)]
    return found


def _numbers(texts: Array, kind: str) -> Array:
    if "i" in kind or "u" in kind:
        found = [_integer(str(item)) for item in texts.reshape(-1).tolist()]
        return np.array(found, np.int64 if min(found, default=0) < 0 else np.uint64).reshape(texts.shape)
    if kind == "b1":
        return np.array([_truth(str(item)) for item in texts.reshape(-1).tolist()], bool).reshape(texts.shape)
    numbers = [float(str(item)) for item in texts.reshape(-1).tolist()]
    return np.array(numbers, np.float64).reshape(texts.shape)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _truth(text: str) -> bool:
    return text.strip().lower() == "true" or (text.strip().lower() != "false" and float(text) != 0)


def _small(x: Array, code: int, form: Format, saturate: bool) -> Array:
    """To a float8 type with NaN: out of its range the largest value, or without `saturate` infinity or NaN."""
    found = to_array(from_codes(to_codes(from_array(x, None, code)), code))
    if saturate:
        return found
    step = 2.0 ** (int(form.largest >> form.mantissa_bits) - form.bias - form.mantissa_bits)
    largest = float(to_array(from_codes(np.array(form.largest, np.uint8), code)))
    middle = largest + step / 2
    beyond = np.abs(x) > middle if form.largest % 2 == 0 else np.abs(x) >= middle  # a tie goes to the even code
    beyond_value = np.copysign(np.float32(np.inf), x) if DTYPES[code].name == "FLOAT8E5M2" else np.float32(np.nan)
    result: Array = np.where(beyond, beyond_value, found).astype(np.float32)
    return result


def _power_of_two(x: Array, saturate: bool, mode: str) -> Array:
    """To float8e8m0, which holds 2**-127 to 2**127 and NaN. The sign is dropped."""
    size = np.abs(x).astype(np.float64)
    fraction, exponent = np.frexp(size)  # size = fraction * 2**exponent, 0.5 <= fraction < 1
    power = exponent - 1
    exact = fraction == 0.5
    if mode == "up":
        power = np.where(exact, power, power + 1)
    elif mode == "nearest":
        power = np.where(fraction >= 0.75, power + 1, power)
    missing = np.isnan(x)
    if saturate:
        power = np.where(np.isinf(x), 127, np.where(size == 0, -127, power))
    else:
        missing = missing | np.isinf(x) | (size == 0) | (power > 127) | (power < -127)
    found = np.ldexp(np.float64(1), np.clip(power, -127, 127)).astype(np.float32)
    result: Array = np.where(missing, np.float32(np.nan), found)
    return result


@row("BitCast", cost=copied)
def bit_cast(call: Call, x: Array) -> Any:
    """The same bits as another type of the same width."""
    to, source = int(call.attribute("to", 0)), call.dtype(0)
    if to not in DTYPES or not DTYPES[to].bits or DTYPES[to].bits != DTYPES[source].bits:
        call.fail(f"the types {DTYPES[source].name} and {DTYPES[to].name if to in DTYPES else to} differ in width")
    if DTYPES[source].native and DTYPES[to].native:
        return Typed(np.ascontiguousarray(x).view(DTYPES[to].numpy).reshape(x.shape), to)
    codes = to_codes(from_array(np.ascontiguousarray(x), None, source))
    return Typed(to_array(from_codes(np.ascontiguousarray(codes), to)), to)
