"""Which payloads have the same bytes, found without comparing each with each.

Those of one size are told apart by their first bytes, and what is left by a digest of all bytes, so that a file is read
whole only where there is reason to. Payloads that a function computes are the same only as objects.

No byte of a file is read twice for digests. The same range, mapped twice, has one digest; and of ranges that share
bytes without being the same only the first is compared: a file of n bytes could have n such ranges, of n bytes each.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from proto_schema.external.datafiles import identity
from proto_schema.external.payload import BytesLike, LazyPayload, chunks, file_range, nbytes

_SAMPLE = 1 << 12


def first_equal(payloads: Sequence[BytesLike], least: int = 1) -> list[BytesLike]:
    """For each payload the first one that has the same bytes: itself, often; also where it has fewer than `least`.

    Raises ExternalDataError where a file that a payload lies in cannot be read, or has changed.
    """
    firsts: dict[object, BytesLike] = {}
    keys = [identity(data) for data in payloads]
    for key, data in zip(keys, payloads, strict=True):
        firsts.setdefault(key, data)
    groups = [[key for key, data in firsts.items() if nbytes(data) >= least and not isinstance(data, LazyPayload)]]
    for tell in (nbytes, _sample):
        groups = [part for group in groups for part in _apart(group, firsts, tell)]
    digests = _Digests([firsts[key] for group in groups for key in group])
    groups = [part for group in groups for part in _apart(group, firsts, digests.of)]
    for group in groups:
        for key in group[1:]:
            firsts[key] = firsts[group[0]]
    return [firsts[key] for key in keys]


def _apart(
    group: Sequence[object], payloads: dict[object, BytesLike], tell: Callable[[BytesLike], Hashable]
) -> list[list[object]]:
    """The members of a group by what `tell` says of their payloads; those that are alone are left out."""
    parts: dict[Hashable, list[object]] = defaultdict(list)
    for key in group:
        parts[tell(payloads[key])].append(key)
    return [part for part in parts.values() if len(part) > 1]


def _sample(data: BytesLike) -> bytes:
    return bytes(next(iter(chunks(data, _SAMPLE))))


Place = tuple[object, int, int]
"""The stamp of a file (its path where it has none), first byte and end of a range of it."""


class _Digests:
    """What differs if the bytes do, for payloads that may share bytes of files."""

    def __init__(self, payloads: Sequence[BytesLike]) -> None:
        self._known: dict[Place, Hashable] = {}
        places: dict[object, set[Place]] = defaultdict(set)
        for data in payloads:
            place = _place(data)
            if place is not None:
                places[place[0]].add(place)
        for ranges in places.values():
            end = -1
            for place in sorted(ranges, key=lambda place: place[1:]):
                if place[1] < end:
                    self._known[place] = place  # alone with what it is called
                else:
                    end = place[2]

    def of(self, data: BytesLike) -> Hashable:
        place = _place(data)
        if place is None:
            return _digest(data)
        if place not in self._known:
            self._known[place] = _digest(data)
        return self._known[place]


def _place(data: BytesLike) -> Place | None:
    found = file_range(data)
    return None if found is None else (found.stamp or found.source, found.offset, found.offset + found.nbytes)


def _digest(data: BytesLike) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for chunk in chunks(data):
        digest.update(chunk)
    return digest.digest()
