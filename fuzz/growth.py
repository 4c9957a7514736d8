"""Invariant: time and memory grow in proportion to the input, whatever pattern it repeats.

The first byte chooses the message class; the rest is repeated to SMALL bytes and eight times that (repeating fields
merges messages and appends to lists, where quadratic work hides), decoded, and encoded again where it was accepted.
Eight times the bytes may take at most STEEPEST times the time; a second measurement must confirm it. The time is this
thread's own, so that a busy machine is no finding. Memory at its peak stays below PER_BYTE times the input and SLACK.
"""

from __future__ import annotations

import time
import tracemalloc

import proto_schema as ps
from fuzz.harness import Harness, Violation, split
from fuzz.seeds import small_messages
from proto_schema.wire.fields import Message

SMALL = 1 << 17  # far below, copies stay in the processor's caches and look linear
STEEPEST = 16  # linear is 8, quadratic 64
WORTH = 0.2  # seconds; what takes less is quick enough, and too short to time
PER_BYTE, SLACK = 512, 1 << 18  # two bytes become at most an empty message and its place in a list


def check(data: bytes) -> str:
    cls, pattern = split(data)
    pattern = pattern[:SMALL] or b"\0"
    small = pattern * (SMALL // len(pattern))
    word, taken = _run(cls, small * 8)
    if taken > WORTH and _steep(cls, small):
        raise Violation(f"eight times the input takes more than {STEEPEST} times as long")
    least = pattern * (1 + SMALL // 8 // len(pattern))
    if _peak(cls, least) > PER_BYTE * len(least) + SLACK:
        raise Violation(f"it takes more than {PER_BYTE} bytes of memory an input byte")
    return word


def _run(cls: type[Message], data: bytes) -> tuple[str, float]:
    """(what became of it, seconds)."""
    start = time.thread_time()
    try:
        cls.FromString(data).SerializeToString()
        verdict = "accepted"
    except ps.DecodeError:
        verdict = "refused"
    return f"{cls.__qualname__} {verdict}", time.thread_time() - start


def _steep(cls: type[Message], small: bytes) -> bool:
    """Of two that are both accepted, or both refused: a refusal costs a second decoding, which looks steep."""
    brief = min(_run(cls, small) for _ in range(3))
    long = _run(cls, small * 8)
    return long[0] == brief[0] and long[1] > STEEPEST * brief[1]


def _peak(cls: type[Message], data: bytes) -> int:
    tracemalloc.start()
    try:
        _run(cls, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HARNESS = Harness(
    "growth",
    "time and memory are in proportion to the input",
    ps.DecodeError,
    check,
    small_messages,
    longest=256,
    head=1,
    timed=True,
)
