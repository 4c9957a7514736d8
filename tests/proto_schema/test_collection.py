"""The garbage collector rests while something large is made, and a program's own use of it stays as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from proto_schema.wire import collection
from proto_schema.wire.collection import paused_collection


class Cycle:
    """Memory that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    """The run of the tests froze what it is made of, and counting that takes its time."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect(1)
    yield
    if frozen:
        gc.freeze()


def test_it_rests_and_goes_on() -> None:
    with paused_collection():
        assert not gc.isenabled()
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with paused_collection(worth_it=False):
        assert gc.isenabled()


def test_who_stopped_it_keeps_it_stopped() -> None:
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_cycles_of_something_small_go_with_the_next_pass_over_what_is_new() -> None:
    with paused_collection():
        seen = weakref.ref(Cycle())
    gc.collect(0)
    assert seen() is None


def test_what_is_large_is_not_walked_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MUCH", 1000)
    with paused_collection():
        kept = [[number] for number in range(5000)]
    assert not {id(item) for item in gc.get_objects(generation=0)} & {id(item) for item in kept}


def test_what_a_program_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MUCH", 1000)
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collection():
        kept = [[number] for number in range(5000)]
    assert len(kept) == 5000 and gc.get_freeze_count() >= frozen - 1000
    gc.unfreeze()


def test_little_asks_for_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gc.get_freeze_count` walks all that is frozen: 0.1 s for a million objects, at each call."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("counted"))
    with paused_collection():
        pass
    assert gc.isenabled()
