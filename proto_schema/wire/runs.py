"""Runs: the many values of one repeated field at once, by numpy, for lists of thousands and millions of values.

Strategy: a decoder hands over the bytes where a long repeated field begins. What is there is checked as a whole: floats
by stride, varints by the bits that say whether they go on, texts by their lengths. A `Run` keeps these bytes, and
becomes a list when somebody asks for the list; until then it is written back as the bytes it was.

Invariants: a run holds only bytes that the encoder would write for its values, so what is overlong or odd ends it.
What is malformed ends it, too: the decoder goes on from there value by value, and refuses in its own words.
All who hold a run get one and the same list, so that a message and its shallow copy share it as they share any list.
Work arrays are of one block, whatever the size of the run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from proto_schema.errors import DecodeError
from proto_schema.external.payload import went_past
from proto_schema.wire import read_length, varint, varint_size
from proto_schema.wire.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

SHORTEST, SHORTEST_PACKED = 1024, 256  # bytes: shorter fields are decoded value by value, which is as fast
LEAST = 64  # values: fewer are decoded and encoded one by one
_BLOCK = 1 << 15  # bytes or values that are worked on at once, so that work arrays stay in the processor's cache
_DTYPES = {"float": "<f4", "double": "<f8", "int32": "<i4", "int64": "<i8", "uint64": "<u8"}
_CODES = {"float": "d", "double": "d", "int32": "i", "int64": "q", "uint64": "Q"}  # of Python's arrays
_FIXED = {"float": 4, "double": 8}
_LONGEST = 10  # bytes of a varint


@dataclass(frozen=True)
class Form:
    """How the values of a field are written: the kind by name, and the tag before each value; packed ones have none."""

    kind: str
    tag: int
    packed: bool


class Run:
    """The values of a repeated field, as the bytes that they are written as."""

    __slots__ = ("_count", "_made", "data", "form")

    def __init__(self, form: Form, data: bytes, count: int) -> None:
        self.form = form
        self.data = data
        self._count = count
        self._made: dict[str, list[Any]] = {}

    @property
    def untouched(self) -> bool:
        """Whether nobody has the list, so that the bytes are the values."""
        return not self._made

    @property
    def payload(self) -> int:
        """The bytes of the values alone, while the list is untouched."""
        if self.form.kind == "bytes":
            return sum(map(len, _each_text(self.data)))
        return len(self.data) - (0 if self.form.packed else self._count)

    def values(self) -> list[Any]:
        """The list, which is the truth from now on; the same one for all callers, in whichever thread."""
        if not self._made:
            self._made.setdefault("list", list(_each(self.form, self.data)))
        return self._made["list"]

    def numbers(self) -> Array | list[Any]:
        """The numbers as an array of the type that the field has, or the list if somebody has it."""
        import numpy as np

        return np.concatenate(list(_arrays(self.form, self.data))) if self.untouched else self.values()

    def first(self, count: int) -> list[Any]:
        """The first values, without making all of them."""
        return list(islice(_each(self.form, self.data) if self.untouched else self.values(), count))

    def copied(self) -> Run | list[Any]:
        """Values of their own, equal to these. A list with a NaN equals only lists with that same object."""
        return Run(self.form, self.data, self._count) if self.untouched and not self._has_nan() else list(self.values())

    def _has_nan(self) -> bool:
        import numpy as np

        return self.form.kind in _FIXED and any(np.isnan(part).any() for part in _arrays(self.form, self.data))

    def append(self, value: Any) -> None:
        self.values().append(value)

    def __len__(self) -> int:
        return self._count if self.untouched else len(self.values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __eq__(self, other: object) -> bool:
        """As lists are equal."""
        if not isinstance(other, Run):
            return self.values() == other
        if not (self.untouched and other.untouched):
            return self.values() == other.values()
        if self.form.kind not in _FIXED or self is other:
            return self.form == other.form and self.data == other.data
        return len(self) == len(other) and all(
            bool((mine == theirs).all())
            for mine, theirs in zip(_arrays(self.form, self.data), _arrays(other.form, other.data), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


# ---- bytes to runs


def begun(form: Form, buf: Any, start: int, end: int) -> tuple[Run, int] | None:
    """The run whose first tag is at `start`, and the position after it; None where it is short, or odd from the start.

    `buf` may end before `end`: then a value that ends beyond it is not in the run.
    """
    window = bytes(buf[start : start + SHORTEST])
    if window.count(form.tag) < (LEAST // 4 if form.kind == "bytes" else SHORTEST // (_LONGEST + 1)):
        return None
    octets = _octets(buf, start, end)
    if form.kind in _FIXED:
        count, size = _fixed(form, octets)
    elif form.kind == "bytes":
        count, size = _texts(form, octets)
    else:
        count, size = _varints(form, octets)
    if count < LEAST:
        return None
    run = Run(form, octets[:size].tobytes(), count)
    if isinstance(buf, memoryview):
        went_past(buf, size)
    return run, start + size


def packed(form: Form, buf: Any, start: int, stop: int) -> Run | None:
    """The run of a field whose values come packed; None where they are few, odd or malformed."""
    octets = _octets(buf, start, stop)
    source = Form(form.kind, form.tag, True)
    if form.kind in _FIXED:
        count, size = _fixed(source, octets)
    else:
        count, size = _varints(source, octets)
    if size != octets.size or count < LEAST:
        return None
    data = octets.tobytes()
    if isinstance(buf, memoryview):
        went_past(buf, size)
    if not form.packed:
        data = b"".join(_written(form, part) for part in _arrays(source, data))
    return Run(form, data, count)


def _octets(buf: Any, start: int, end: int) -> Array:
    import numpy as np

    return np.frombuffer(buf, np.uint8)[start:end]


def _fixed(form: Form, octets: Array) -> tuple[int, int]:
    """(how many values there are in a row, their size)"""
    width = _FIXED[form.kind] + (not form.packed)
    count = octets.size // width
    if form.packed:
        return count, count * width
    tags = octets[: count * width : width]
    for first in range(0, count, _BLOCK):
        same = tags[first : first + _BLOCK] == form.tag
        if not same.all():
            count = first + int(same.argmin())
            break
    return count, count * width


def _varints(form: Form, octets: Array) -> tuple[int, int]:
    """(how many values there are in a row, their size); one that is not as short as it can be ends the row."""
    count = position = 0
    while position < octets.size:
        block = octets[position : position + _BLOCK]
        if form.packed:
            whole, size, good = _bare(form, block)
        else:
            whole, size, good = _tagged(form, block)
        count += whole
        position += size
        if not (whole and good):
            break
    return count, position


def _tagged(form: Form, block: Array) -> tuple[int, int, bool]:
    """(values in a row at the start of the block, their size, whether all that end in the block are good)"""
    pairs = block[: block.size & ~1].view("<u2")
    if pairs.size and ((pairs & 0x80FF) == form.tag).all():  # all of one byte, behind the tag of one byte
        return pairs.size, 2 * pairs.size, True
    ends = (block < 128).nonzero()[0]
    ends = ends[: ends.size & ~1]
    tags, lasts = ends[::2], ends[1::2]
    if not tags.size:
        return 0, 0, False
    good = block[tags] == form.tag
    good[0] &= tags[0] == 0
    good[1:] &= tags[1:] - lasts[:-1] == 1
    good &= _shortest(form, block, tags + 1, lasts)
    return _until_bad(good, lasts)


def _bare(form: Form, block: Array) -> tuple[int, int, bool]:
    """As `_tagged`, for values without tags."""
    import numpy as np

    lasts = (block < 128).nonzero()[0]
    if lasts.size == block.size:
        return block.size, block.size, True
    if not lasts.size:
        return 0, 0, False
    starts = np.concatenate((lasts[:1] * 0, lasts[:-1] + 1))
    return _until_bad(_shortest(form, block, starts, lasts), lasts)


def _until_bad(good: Array, lasts: Array) -> tuple[int, int, bool]:
    if good.all():
        return good.size, int(lasts[-1]) + 1, True
    count = int(good.argmin())
    return count, int(lasts[count - 1]) + 1 if count else 0, False


def _shortest(form: Form, block: Array, starts: Array, lasts: Array) -> Array:
    """Which varints are of ten bytes at most, as short as they can be, and of a value that the field can hold."""
    longer = lasts - starts
    last = block[lasts]
    good: Array = (last != 0) | (longer == 0)
    if int(longer.max()) < 4:
        return good
    good &= (longer < _LONGEST - 1) | ((longer == _LONGEST - 1) & (last == 1))
    if form.kind == "int32":
        some = good.nonzero()[0]
        held = _numbers(block, starts[some], lasts[some])
        good[some] = held == held.astype("<i4")
    return good


def _texts(form: Form, octets: Array) -> tuple[int, int]:
    """(how many texts there are in a row, their size); where the tag is in no text, its places are those of texts."""
    count = position = 0
    patience = LEAST  # texts that are gone past one by one before their places are looked for again
    data: memoryview = octets.data
    while position < octets.size:
        block = octets[position : position + _BLOCK]
        places = (block[:-1] == form.tag).nonzero()[0]
        sizes = block[places + 1]
        ends = places + sizes
        ends += 2
        good = (sizes < 128) & (ends <= block.size)
        good[:1] &= places[:1] == 0
        good[1:] &= ends[:-1] == places[1:]
        whole = good.size if good.all() else int(good.argmin())
        if whole:
            count += whole
            position += int(ends[whole - 1])
        if whole >= LEAST:
            patience = LEAST
            continue
        for _ in range(patience):
            after = _past(form, data, position)
            if after == position:
                return count, position
            count += 1
            position = after
        patience = min(2 * patience, _BLOCK)
    return count, position


def _past(form: Form, data: memoryview, position: int) -> int:
    """The position after the text whose tag is here; the same position where there is none, or an odd one."""
    if position + 2 > len(data) or data[position] != form.tag:
        return position
    size, at = data[position + 1], position + 2
    if size > 127:
        try:
            size, at = read_length(data, position + 1, len(data))
        except DecodeError:
            return position
        if at - position - 1 != varint_size(size):
            return position
    return at + size if at + size <= len(data) else position


# ---- runs to values


def _each(form: Form, data: bytes) -> Iterator[Any]:
    """The values as Python has them."""
    if form.kind == "bytes":
        return _each_text(data)
    return chain.from_iterable(map(_listed, _arrays(form, data)))


def _listed(part: Array) -> list[Any]:
    """As `tolist`, but a signalling NaN of 32 bits stays one, which a cast would quieten."""
    import numpy as np

    if part.dtype != np.float32 or not np.isnan(part).any():
        return list(part.tolist())
    with np.errstate(invalid="ignore"):
        wide = part.astype(np.float64)
    nan = np.isnan(part)
    bits = part.view("<u4")[nan].astype(np.uint64)
    wide.view(np.uint64)[nan] = bits >> 31 << 63 | np.uint64(0x7FF << 52) | (bits & 0x7FFFFF) << 29
    return list(wide.tolist())


def _each_text(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size = data[position + 1]
        position += 2
        if size > 127:
            size, position = read_length(data, position - 1, len(data))
        yield data[position : position + size]
        position += size


def _arrays(form: Form, data: bytes) -> Iterator[Array]:
    """The numbers, block by block."""
    import numpy as np

    dtype = np.dtype(_DTYPES[form.kind])
    octets = np.frombuffer(data, np.uint8)
    if form.kind in _FIXED:
        width = dtype.itemsize + (not form.packed)
        rows = octets.reshape(-1, width)[:, width - dtype.itemsize :]
        for first in range(0, len(rows), _BLOCK):
            yield np.ascontiguousarray(rows[first : first + _BLOCK]).view(dtype).reshape(-1)
        return
    position = 0
    while position < octets.size:
        block = octets[position : position + _BLOCK]
        lasts = (block < 128).nonzero()[0]
        if form.packed:
            starts = np.concatenate((lasts[:1] * 0, lasts[:-1] + 1))
        else:
            lasts = lasts[: lasts.size & ~1]
            starts, lasts = lasts[::2] + 1, lasts[1::2]
        yield _numbers(block, starts, lasts).astype(dtype)
        position += int(lasts[-1]) + 1


def _numbers(block: Array, starts: Array, lasts: Array) -> Array:
    """The varints between these places as numbers of 64 bits."""
    import numpy as np

    longer = lasts - starts
    made: Array = (block[starts] & 127).astype(np.uint64)
    for place in range(1, int(longer.max(initial=0)) + 1):
        some = (longer >= place).nonzero()[0]
        made[some] |= (block[starts[some] + place] & np.uint64(127)) << np.uint64(7 * place)
    return made.view(np.int64)


# ---- values to bytes


def encoded(form: Form, values: Run | Sequence[Any]) -> bytes | None:
    """The field with its values, or the body of a packed one; None where they are few, or written one by one.

    Raises anything for a value that the field cannot hold.
    """
    if isinstance(values, Run):
        if values.untouched:
            return values.data
        values = values.values()
    if len(values) < LEAST:
        return None
    if form.kind == "bytes":
        return _joined(form, values)
    import numpy as np

    code = _CODES[form.kind]
    pieces = []
    for first in range(0, len(values), _BLOCK):
        part = np.frombuffer(array(code, values[first : first + _BLOCK]), code)
        pieces.append(_written(form, _single(part) if form.kind == "float" else part))
    return b"".join(pieces)


def _joined(form: Form, values: Sequence[Any]) -> bytes | None:
    """Only of bytes objects."""
    if set(map(type, values)) != {bytes}:
        return None
    sizes = list(map(len, values))
    heads = {size: bytes((form.tag,)) + varint(size) for size in set(sizes)}
    return b"".join(chain.from_iterable(zip(map(heads.__getitem__, sizes), values, strict=True)))


def _single(part: Array) -> Array:
    """Rounded to 32 bits; infinite beyond their range; a NaN keeps the bits that have room, and stays one."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        made = part.astype(np.float32)
    nan = np.isnan(part)
    if nan.any():
        bits = part[nan].view(np.uint64)
        low = bits >> 29 & 0x7FFFFF
        low[low == 0] = 1 << 22
        made.view(np.uint32)[nan] = bits >> 63 << 31 | 0x7F800000 | low
    return made


def _written(form: Form, part: Array) -> bytes:
    """The numbers of a block as they are written."""
    import numpy as np

    if form.kind in _FIXED:
        part = part.astype(_DTYPES[form.kind], copy=False)
        if form.packed:
            return part.tobytes()
        rows = np.empty((part.size, part.itemsize + 1), np.uint8)
        rows[:, 0] = form.tag
        rows[:, 1:] = part.view(np.uint8).reshape(part.size, -1)
        return rows.tobytes()
    bits = part.astype(np.int64, copy=False).view(np.uint64) if part.dtype.kind == "i" else part
    before = int(not form.packed)
    sizes = np.full(bits.size, 1 + before)
    most = int(bits.max())
    for power in range(7, most.bit_length(), 7):
        sizes += bits >= np.uint64(1 << power)
    stops = np.cumsum(sizes)
    starts = stops - sizes
    out = np.empty(int(stops[-1]), np.uint8)
    if before:
        out[starts] = form.tag
        starts += 1
    left, places = bits, starts
    while True:
        out[places] = left & np.uint64(127)
        going = (left > 127).nonzero()[0]
        if not going.size:
            break
        out[places[going]] |= 128
        left, places = left[going] >> np.uint64(7), places[going] + 1
    return out.tobytes()


__all__ = ["LEAST", "SHORTEST", "SHORTEST_PACKED", "Form", "Run", "begun", "encoded", "packed"]
