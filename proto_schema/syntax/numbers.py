"""Literals to the numbers that fields hold, and lists of them.

A decimal is rounded to float32 once. Python's float has rounded it to float64 before: where that result lies exactly
between two float32 the digits decide (`to_float32`). A list is matched and converted as a whole, and one by one only
where that fails, so that the error has its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import c_float
from decimal import Decimal
from math import isinf, isnan
from typing import Any, TypeVar

import numpy as np

from proto_schema.syntax.cursor import Cursor

__all__ = ["float32", "float64", "int64", "numbers", "whole"]

Number = TypeVar("Number", int, float)

_INT = r"-?[0-9]{1,4000}"  # Python converts no longer ones by default
_FLOAT = r"-?[0-9]{1,4000}(?:\.[0-9]{0,4000})?(?:[eE][+-]?[0-9]{1,40})?"
_BLANK = r"[ \t\n\v\f\r]*"
_INTS = re.compile(rf"{_BLANK}({_INT}(?:{_BLANK},{_BLANK}{_INT})*){_BLANK}(?=\}})")
_FLOATS = re.compile(rf"{_BLANK}({_FLOAT}(?:{_BLANK},{_BLANK}{_FLOAT})*){_BLANK}(?=\}})")
_IS_INT = re.compile(r"-?[0-9]+\Z")


def whole(cursor: Cursor, low: int, high: int, what: str) -> int:
    """An integer from `low` to `high`. `what` names it in errors."""
    start = _start(cursor)
    text = cursor.number()
    if not _IS_INT.match(text):
        cursor.at = start
        cursor.expected(what) if not text else cursor.fail(f"expected {what}, found {text[:60]}")
    value = int(text) if len(text) < 40 else high + 1
    if not low <= value <= high:
        cursor.fail(f"{text[:60]} is not from {low} to {high}, as {what} must be", start)
    return value


def int64(cursor: Cursor, what: str) -> int:
    """An integer of 64 bits."""
    return whole(cursor, -(2**63), 2**63 - 1, what)


def float64(cursor: Cursor, what: str) -> float:
    """A number, rounded to float64. ParseError beyond its range; below it is 0."""
    start = _start(cursor)
    return _float64(cursor, cursor.number() or cursor.expected(what), start)


def _float64(cursor: Cursor, text: str, start: int) -> float:
    try:
        value = float(text)
    except ValueError:
        cursor.fail(f"{text[:60]} is not a number: digits must follow the exponent's e", start)
    if isinf(value) and text[-1].isdigit():
        cursor.fail(f"{text[:60]} is beyond the range of float64", start)
    return value


def float32(cursor: Cursor, what: str) -> float:
    """A number, rounded to float32 once. ParseError beyond its range; below it is 0."""
    start = _start(cursor)
    text = cursor.number() or cursor.expected(what)
    value = _float64(cursor, text, start)
    rounded = to_float32(value, text)
    if isinf(rounded) and not isinf(value):
        cursor.fail(f"{text[:60]} is beyond the range of float32", start)
    return rounded


def to_float32(value: float, text: str) -> float:
    """The float32 nearest to the decimal `text`, whose float64 is `value`. Infinite beyond the range."""
    near: float = c_float(value).value
    if near == value or isnan(value) or isinf(near):
        return near
    other = float(np.nextafter(np.float32(near), np.float32(np.inf if value > near else -np.inf)))
    if near + other != 2 * value:
        return near
    exact, halfway = Decimal(text), Decimal(value)
    if exact == halfway:
        return near  # to even, as the conversion of float64 did
    return max(near, other) if exact > halfway else min(near, other)


def numbers(cursor: Cursor, kind: Callable[[Cursor, str], Number], what: str, low: int, high: int) -> list[Number]:
    """The numbers before a closing brace, commas between. `low` and `high` are the range of whole ones.

    `kind` is `float32`, `float64`, or anything else for whole numbers.
    """
    floating = kind in (float32, float64)
    cursor.blanks()
    match = (_FLOATS if floating else _INTS).match(cursor.text, cursor.at)
    if match is not None:
        found: list[Any] | None = _converted(match.group(1).split(","), kind, floating, low, high)
        if found is not None:
            cursor.at = match.end()
            return found
    made = [kind(cursor, what)]
    while cursor.take(","):
        made.append(kind(cursor, what))
    return made


def _converted(items: list[str], kind: Any, floating: bool, low: int, high: int) -> list[Any] | None:
    """The numbers, None where one is out of range."""
    if not floating:
        whole_ones = list(map(int, items))
        return whole_ones if low <= min(whole_ones) and max(whole_ones) <= high else None
    wide = np.array(list(map(float, items)))
    if kind is float64:
        return None if np.isinf(wide).any() else wide.tolist()
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if np.isinf(narrow).any():
        return None
    back = narrow.astype(np.float64)
    for place in np.flatnonzero(_halfway(wide, back)):
        narrow[place] = to_float32(float(wide[place]), items[place].strip())
    listed: list[Any] = narrow.tolist()
    return listed


def _halfway(wide: np.ndarray[Any, Any], back: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where a float64 lies exactly between two float32, `back` being the one that it was rounded to."""
    towards = np.where(wide > back, np.float32(np.inf), np.float32(-np.inf)).astype(np.float32)
    with np.errstate(over="ignore"):
        other = np.nextafter(back.astype(np.float32), towards).astype(np.float64)
    result: np.ndarray[Any, Any] = (wide != back) & (back + other == 2 * wide)
    return result


def _start(cursor: Cursor) -> int:
    cursor.blanks()
    return cursor.at
