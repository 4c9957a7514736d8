"""Reads a pickle as data: the file chooses no import, no attribute and no code.

Strategy: the opcodes of protocols 2 to 5, each a few lines of the table below, work on a stack of plain values. A
global is looked up in a table that the caller gives, and only functions of that table can be called. Any other global
is refused by its name.
Time is in proportion to the pickle. Each opcode takes from the stack what others have put there, or copies a part of
the pickle. Four ways around that are closed: only texts become keys of a dict (numbers could be made to collide, and
tuples that share their parts take long to hash), a set is kept as a list, numbers have at most LONGEST_NUMBER bytes,
and the lists that are given to functions have no more items, all calls together, than the pickle has bytes.
A class of the table may stand for records: what the pickle sets of them stays data.
Memory is counted by opcode, before anything is made, and bounded by a budget.
Source: the opcodes as Lib/pickletools.py of CPython documents them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from purexport.errors import WeightsError
from purexport.weights.budget import TOO_MUCH, Budget
from purexport.weights.stored import shown

LONGEST_NUMBER = 1 << 10
MOST_ARGUMENTS = 8  # of _rebuild_tensor_v3
NEWEST = 5


class Record:
    """An object of a class that the table names: what the pickle sets of it, as data. It may be a key of a dict."""

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: object = None


def ignored(*_: object) -> None:
    """What the table has for a function or a class whose value is not needed, whatever its arguments are."""


class EndsEarlyError(WeightsError):
    """The data ends before the pickle does."""


class Unpickler:
    """Reads the pickle at `at`, and leaves `at` behind it.

    `globals_` maps "module.name" to a value, or to a function that may be called.
    """

    def __init__(
        self,
        data: bytes,
        globals_: Mapping[str, object],
        persistent: Callable[[object], object],
        place: str,
        budget: Budget,
        at: int = 0,
    ) -> None:
        self.data = data
        self.at = at
        self.place = place
        self._budget = budget
        self._given = 0  # items of lists that functions got
        self._globals = globals_
        self._persistent = persistent
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: list[Any] = []  # by their numbers, as picklers give them; `_far` has those that do not follow on
        self._far: dict[int, Any] = {}

    def load(self) -> object:
        """The value. WeightsError says at which byte the pickle is malformed, or asks for what is not allowed."""
        data, table, costs, budget = self.data, _OPCODES, _COSTS, self._budget
        try:
            while True:
                code = data[self.at]
                self.at += 1
                if code == _STOP:
                    return self._stack.pop()
                budget.left -= costs[code]
                if budget.left < 0:
                    self.fail(TOO_MUCH)
                step = table.get(code)
                if step is None:
                    self.fail(f"opcode {data[self.at - 1 : self.at]!r} is not one of pickle's protocols 2 to {NEWEST}")
                step(self)
        except IndexError:
            if self.at >= len(data):
                self._ends_early()
            self.fail("it takes more from its stack than is there")

    def _ends_early(self) -> NoReturn:
        self.at = len(self.data)
        raise EndsEarlyError(f"{self.place} @{self.at:#x}: it ends too early")

    def fail(self, reason: str, code: str = "") -> NoReturn:
        """Raises WeightsError with the place."""
        raise WeightsError(f"{self.place} @{self.at:#x}: {reason}", code=code)

    def _spend(self, size: int) -> None:
        self._budget.left -= size
        if self._budget.left < 0:
            self.fail(TOO_MUCH)

    # ---- bytes

    def _take(self, size: int) -> bytes:
        begin = self.at
        self.at += size
        if self.at > len(self.data):
            self._ends_early()
        return self.data[begin : begin + size]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _sized(self, size: int) -> bytes:
        return self._take(self._number(size))

    def _text(self, size: int) -> str:
        try:
            return self._sized(size).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self.fail("a text is no UTF-8")

    def _old_text(self, size: int) -> str | bytes:
        """A str of Python 2: the names of a state dict, or bytes."""
        data = self._sized(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def _line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            self._ends_early()
        line = self.data[self.at : end]
        self.at = end + 1
        return line.decode("ascii", "backslashreplace")

    # ---- the opcodes

    def _protocol(self) -> None:
        version = self._number(1)
        if version > NEWEST:
            self.fail(f"it is of pickle protocol {version}, and {NEWEST} is the newest that is known")

    def _frame(self) -> None:
        self._number(8)

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _marked(self) -> list[Any]:
        """The values put on the stack since the last mark."""
        items, self._stack = self._stack, self._marks.pop()
        self._budget.left += _MARK
        return items

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._marked()

    def _drop(self) -> None:
        self._marked()

    def _dup(self) -> None:
        self._stack.append(self._stack[-1])

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _signed(self, data: bytes) -> None:
        if len(data) > LONGEST_NUMBER:
            self.fail(f"a number has {len(data)} bytes")
        self._push(int.from_bytes(data, "little", signed=True))

    def _float(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def _tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise IndexError
        items = tuple(self._stack[len(self._stack) - size :])
        del self._stack[len(self._stack) - size :]
        self._push(items)

    def _list(self) -> list[Any]:
        if not isinstance(self._stack[-1], list):
            self.fail("it appends to what is not a list")
        found: list[Any] = self._stack[-1]
        return found

    def _append(self) -> None:
        value = self._stack.pop()
        self._list().append(value)

    def _appends(self) -> None:
        items = self._marked()
        self._list().extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            self.fail("it sets an item of what is not a dict")
        if len(items) % 2:
            self.fail("a key has no value")
        self._spend(_ITEM * len(items) + (0 if target else _TABLE))
        for key, value in zip(items[::2], items[1::2], strict=True):
            set_item(target, key, value)

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set_items([key, value])

    def _dict(self) -> None:
        items = self._marked()
        self._push({})
        self._set_items(items)

    def _marked_list(self) -> None:
        items = self._marked()
        self._push(items)

    def _marked_tuple(self) -> None:
        items = self._marked()
        self._push(tuple(items))

    def _global(self) -> None:
        module = self._line()
        self._find(module, self._line())

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            self.fail("the name of a global is not text")
        self._find(module, name)

    def _find(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if full not in self._globals:
            self.fail(
                f"it needs {shown(full)[1:-1]}, which no state dict needs, and code is never run; load the file where "
                "you trust it, and save its state dict alone"
            )
        self._push(self._globals[full])

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not (callable(function) and isinstance(arguments, tuple)):
            self.fail(f"it calls {shown(function)}, which is not a function")
        if len(arguments) > MOST_ARGUMENTS and function is not ignored:
            self.fail(f"{self._near()}a call has {len(arguments)} arguments")
        # a list that was put into the memo costs two bytes when it is given again, and all its items when it is copied
        given = sum(len(item) for item in (arguments, *arguments) if isinstance(item, (list, tuple)))
        self._given += given
        if self._given > len(self.data):
            self.fail("the lists that its calls copy have more items than it has bytes: it is hostile")
        self._spend(_ITEM * given)
        try:
            self._push(function(*arguments))
        except TypeError:
            self.fail(f"{self._near()}the arguments of a call do not fit")
        except WeightsError as error:
            self.fail(f"{self._near()}{error}", error.code)

    def _near(self) -> str:
        """The last key before this place, for messages: what is made here is probably its value."""
        for stack in (self._stack, *self._marks[:-3:-1]):
            for item in stack[:-3:-1]:
                if isinstance(item, str):
                    return f"near {shown(item)}: "
        return ""

    def _build(self) -> None:
        """Sets attributes, which only records have. A state dict carries the versions of its modules in this way."""
        state = self._stack.pop()
        if isinstance(self._stack[-1], Record):
            self._stack[-1].state = state

    def _persistent_id(self) -> None:
        try:
            self._push(self._persistent(self._stack.pop()))
        except TypeError:
            self.fail(f"{self._near()}it refers to something else than a storage")
        except WeightsError as error:
            self.fail(f"{self._near()}{error}", error.code)

    def _put(self, key: int) -> None:
        value = self._stack[-1]
        if key < len(self._memo):
            self._memo[key] = value
        elif key == len(self._memo):
            self._far.pop(key, None)
            self._memo.append(value)
        else:
            self._spend(_FAR)
            self._far[key] = value

    def _get(self, key: int) -> None:
        if key < len(self._memo):
            self._push(self._memo[key])
        elif key in self._far:
            self._push(self._far[key])
        else:
            self.fail(f"it gets value {key}, which was never put")


def set_item(target: dict[Any, Any], key: object, value: object) -> None:
    """Sets an item under a key that is a text or a record; any other becomes an object, which no name equals."""
    target[key if type(key) is str or isinstance(key, Record) else object()] = value


_STOP = ord(".")
_Step = Callable[[Unpickler], None]
_OPCODES: dict[int, _Step] = {
    ord(code): step
    for code, step in (
        ("\x80", Unpickler._protocol),
        ("\x95", Unpickler._frame),
        ("(", Unpickler._mark),
        ("0", Unpickler._pop),
        ("1", Unpickler._drop),
        ("2", Unpickler._dup),
        ("N", lambda self: self._push(None)),
        ("\x88", lambda self: self._push(True)),
        ("\x89", lambda self: self._push(False)),
        ("K", lambda self: self._push(self._number(1))),
        ("M", lambda self: self._push(self._number(2))),
        ("J", lambda self: self._signed(self._take(4))),
        ("\x8a", lambda self: self._signed(self._sized(1))),
        ("\x8b", lambda self: self._signed(self._sized(4))),
        ("G", Unpickler._float),
        ("\x8c", lambda self: self._push(self._text(1))),
        ("X", lambda self: self._push(self._text(4))),
        ("\x8d", lambda self: self._push(self._text(8))),
        ("U", lambda self: self._push(self._old_text(1))),
        ("T", lambda self: self._push(self._old_text(4))),
        ("C", lambda self: self._push(self._sized(1))),
        ("B", lambda self: self._push(self._sized(4))),
        ("\x8e", lambda self: self._push(self._sized(8))),
        ("\x96", lambda self: self._push(self._sized(8))),
        (")", lambda self: self._push(())),
        ("\x85", lambda self: self._tuple(1)),
        ("\x86", lambda self: self._tuple(2)),
        ("\x87", lambda self: self._tuple(3)),
        ("t", Unpickler._marked_tuple),
        ("]", lambda self: self._push([])),
        ("l", Unpickler._marked_list),
        ("a", Unpickler._append),
        ("e", Unpickler._appends),
        ("\x8f", lambda self: self._push([])),  # a set
        ("\x90", Unpickler._appends),
        ("\x91", Unpickler._marked_list),
        ("}", lambda self: self._push({})),
        ("d", Unpickler._dict),
        ("s", Unpickler._set_item),
        ("u", lambda self: self._set_items(self._marked())),
        ("c", Unpickler._global),
        ("\x93", Unpickler._stack_global),
        ("R", Unpickler._reduce),
        ("\x81", Unpickler._reduce),  # a new object of a class: what these are called for here
        ("b", Unpickler._build),
        ("Q", Unpickler._persistent_id),
        ("q", lambda self: self._put(self._number(1))),
        ("r", lambda self: self._put(self._number(4))),
        ("\x94", lambda self: self._put(len(self._memo) + len(self._far))),
        ("h", lambda self: self._get(self._number(1))),
        ("j", lambda self: self._get(self._number(4))),
    )
}

# What an opcode takes in memory: a place on the stack and in the list it goes to, and the object in CPython.  Texts and
# bytes are paid by what is read (`Budget`).
_MARK = 96  # a list that is let go
_TABLE = 184  # the first of a dict
_ITEM = 56  # half of what an item of a dict takes, whose table has just grown: it is counted for keys and for values
_FAR = 128  # an item of the memo that does not follow the one before
_COSTS = [16] * 256
for _codes, _cost in (
    (b"(", _MARK + 16),
    (b"]l\x8f\x91", 104),
    (b"}d", 80),
    (b"\x85\x86\x87t", 80),
    (b"J\x8a\x8bMG", 48),
    (b"X\x8c\x8dUTCB\x8e\x96", 88),
    (b"R\x81", 88),
    (b"Q", 112),
):
    for _code in _codes:
        _COSTS[_code] = _cost
