"""Which of many small messages are plain: bytes that the decoder accepts and that the encoder would write again.

Strategy: all messages are walked at the same time by numpy, one field of each in a step. What is not plain is only set
apart, and left to the decoder, which knows why: fields out of order or twice, unknown ones, numbers that are not as
short as they can be, members of one oneof together, NaNs, long lists, deep messages, and all that holds payloads or
notes (tensors, and what may hold tensors).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from proto_schema.wire import LEN, VARINT
from proto_schema.wire.fields import ENUM, INT32, MESSAGE, PAYLOAD, Field, Message, message_class, reachable
from proto_schema.wire.interpret import footprint
from proto_schema.wire.records import dataclass
from proto_schema.wire.scalars import enum_values

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

PADDING = 16  # bytes behind the messages that a step may look at, whatever they are
_LONGEST = 1 << 14  # bytes of a message: those of a length of two bytes
_TOGETHER = 1 << 13  # messages that are walked at once, so that work arrays stay in the processor's cache
_STEPS = 40  # fields of a message
LEVELS = 8  # of messages in messages
_TAGS = 256  # a tag above is not known here
_REFUSED, _BYTES, _CHILD, _WIDE, _NARROW, _FOUR, _EIGHT = range(7)


@dataclass(frozen=True)
class _Table:
    """What stands behind each tag of a class: how it is read, whether it may come again, and its bit in a oneof."""

    code: Array
    again: Array
    oneof: Array
    small: Array  # by tag and value: the numbers of one byte that a field takes
    children: dict[int, type[Message]]
    codes: frozenset[int]
    exclusive: bool


@cache
def _table(cls: type[Message]) -> _Table:
    import numpy as np

    code, again, oneof = (np.zeros(_TAGS, np.uint8) for _ in range(3))
    small = np.zeros((_TAGS, 128), bool)
    children = {}
    names = sorted({field.oneof for field in cls.FIELDS if field.oneof})
    for field in cls.FIELDS:
        tag = field.number << 3 | field.kind.wire_type
        if tag >= _TAGS or field.packed:
            continue
        code[tag], again[tag] = _code(cls, field), field.repeated
        oneof[tag] = 1 << names.index(field.oneof) if field.oneof else 0
        small[tag, list(enum_values(field.enum) if field.enum else range(128))] = True
        if field.kind is MESSAGE:
            children[tag] = message_class(cls, field)
    return _Table(code, again, oneof, small, children, frozenset(code[code > 0].tolist()), bool(names))


def _code(cls: type[Message], field: Field) -> int:
    if field.kind is MESSAGE:
        child = message_class(cls, field)
        noted = any(inner.NOTES for inner in reachable(child))
        return _REFUSED if noted and not child.ALIKE else _CHILD
    if field.kind in (ENUM, INT32):
        return _NARROW
    if field.kind.wire_type == VARINT:
        return _WIDE
    if field.kind.wire_type == LEN:
        return _REFUSED if field.kind is PAYLOAD else _BYTES
    return _FOUR if field.kind.name == "float" else _EIGHT


def fields_of(cls: type[Message]) -> list[Field]:
    """The fields that a plain message of the class can have, in the order of its bytes."""
    code = _table(cls).code
    tags = {field.name: field.number << 3 | field.kind.wire_type for field in cls.FIELDS if not field.packed}
    return [field for field in cls.FIELDS if tags.get(field.name, _TAGS) < _TAGS and code[tags[field.name]]]


@cache
def may_hold(cls: type[Message], target: type[Message]) -> bool:
    """Whether a plain message of a class can have one of class `target` in it."""
    seen = {cls}
    todo = [cls]
    while todo:
        table = _table(todo.pop())
        found = {child for tag, child in table.children.items() if table.code[tag] == _CHILD}
        todo += found - seen
        seen |= found
    return target in seen


def plain(cls: type[Message], octets: Array, starts: Array, stops: Array) -> tuple[Array, Array]:
    """(which of the messages between these places are plain, what the objects of each take of the budget).

    At least PADDING bytes follow the last one.
    """
    import numpy as np

    good, costs = np.ones(starts.size, bool), np.zeros(starts.size, np.int64)
    for first in range(0, starts.size, _TOGETHER):
        part = slice(first, first + _TOGETHER)
        _walk(cls, octets, starts[part], stops[part], good[part], costs[part])
    return good, costs


def _walk(cls: type[Message], octets: Array, starts: Array, stops: Array, good: Array, costs: Array) -> None:
    """Sets `good` and `costs` of the messages and of all in them, class by class and level by level."""
    import numpy as np

    good &= stops - starts < _LONGEST
    owners = good.nonzero()[0]
    todo: list[tuple[type[Message], int, Array, Array, Array]] = [(cls, LEVELS, starts[owners], stops[owners], owners)]
    while todo:
        inner, levels, at, stop, owner = todo.pop()
        costs += np.bincount(owner, minlength=costs.size) * footprint(inner)
        if not levels:
            good[owner] = False
            continue
        for child, begins, ends, owners in _fields(_table(inner), octets, at, stop, owner, good):
            todo.append((child, levels - 1, begins, ends, owners))


def _fields(
    table: _Table, octets: Array, at: Array, stop: Array, owner: Array, good: Array
) -> list[tuple[type[Message], Array, Array, Array]]:
    """Goes through messages of one class, field by field; returns those inside, as (class, starts, stops, owners)."""
    import numpy as np

    found: dict[type[Message], list[tuple[Array, Array, Array]]] = {}
    last: Array = np.zeros(at.size, np.intp)
    members: Array = np.zeros(at.size, np.uint8)
    for _ in range(_STEPS):
        more = at < stop
        if not more.all():
            at, stop, owner, last, members = (part[more] for part in (at, stop, owner, last, members))
        if not at.size:
            break
        tag = octets[at].astype(np.intp)
        wide = tag > 127
        if wide.any():
            second = octets[at + 1].astype(np.intp)
            tag = np.where(wide, np.where((second == 1) & wide, tag, 0), tag)  # 128 to 255, in two bytes
            at = at + wide
        at = at + 1
        code = table.code[tag]
        bad = code == _REFUSED
        bad |= tag < last
        bad |= (tag == last) & (table.again[tag] == 0)
        if table.exclusive:
            bit = table.oneof[tag]
            bad |= (members & bit) != 0
            members = members | bit
        last = tag
        after = at.copy()
        for kind in table.codes:
            some = np.arange(at.size) if len(table.codes) == 1 else (code == kind).nonzero()[0]
            if some.size:
                after[some], wrong = _STEP[kind](table, octets, at[some], tag[some])
                bad[some] |= wrong
        bad |= after > stop
        for number, child in table.children.items():
            some = ((tag == number) & ~bad).nonzero()[0]
            if some.size:
                sizes = lengths(octets, at[some])[1]
                found.setdefault(child, []).append((at[some] + sizes, after[some], owner[some]))
        if bad.any():
            good[owner[bad]] = False
            left = ~bad
            after, stop, owner, last, members = (part[left] for part in (after, stop, owner, last, members))
        at = after
    else:
        good[owner[at < stop]] = False
    joined = {child: [np.concatenate(part) for part in zip(*parts, strict=True)] for child, parts in found.items()}
    return [(child, part[0], part[1], part[2]) for child, part in joined.items()]


def lengths(octets: Array, at: Array) -> tuple[Array, Array, Array]:
    """(lengths, the bytes that each takes, which of them are odd)"""
    import numpy as np

    first = octets[at].astype(np.intp)
    wide = first > 127
    if not wide.any():
        return first, np.ones_like(first), wide
    second = octets[at + 1].astype(np.intp)
    return np.where(wide, first + (second << 7) - 128, first), 1 + wide, wide & ((second == 0) | (second > 127))


def _past_bytes(_: _Table, octets: Array, at: Array, __: Array) -> tuple[Array, Array]:
    length, size, odd = lengths(octets, at)
    return at + size + length, odd


def _past_wide(_: _Table, octets: Array, at: Array, __: Array) -> tuple[Array, Array]:
    """Numbers of ten bytes at most, as short as they can be."""
    import numpy as np

    after = at + 1
    bad = np.zeros(at.size, bool)
    going = (octets[at] > 127).nonzero()[0]
    for place in range(1, 10):
        if not going.size:
            break
        byte = octets[after[going]]
        bad[going] = (byte == 0) | ((byte > 1) if place == 9 else False)
        after[going] += 1
        going = going[byte > 127]
    return after, bad


def _past_narrow(table: _Table, octets: Array, at: Array, tag: Array) -> tuple[Array, Array]:
    """Numbers of one byte, and of these what the field takes."""
    value = octets[at]
    return at + 1, (value > 127) | ~table.small[tag, value & 127]


def _past_four(_: _Table, octets: Array, at: Array, __: Array) -> tuple[Array, Array]:
    """No infinities and no NaNs: a list with a NaN equals only lists with the same object."""
    return at + 4, ((octets[at + 3] & 127) == 127) & (octets[at + 2] > 127)


def _past_eight(_: _Table, octets: Array, at: Array, __: Array) -> tuple[Array, Array]:
    return at + 8, ((octets[at + 7] & 127) == 127) & (octets[at + 6] > 239)


_STEP = {
    _BYTES: _past_bytes,
    _CHILD: _past_bytes,
    _WIDE: _past_wide,
    _NARROW: _past_narrow,
    _FOUR: _past_four,
    _EIGHT: _past_eight,
}

__all__ = ["LEVELS", "PADDING", "fields_of", "lengths", "may_hold", "plain"]
